"""What simple features of sequences alone predict about their labels.

A feature that alone predicts the labels, such as the length or the first bases, is a shortcut: a model can be
good without learning what distinguishes the sequences. K-mers are not a shortcut, but the result to exceed.

A feature is evaluated by a regression that was fitted to other groups of similar sequences: a logistic one
for labels of two classes, and otherwise a linear one with an L2 penalty, which fits all classes or labels at
once. The metric is the AUROC of each class or label, or Spearman's correlation of numbers. Of numbers, ranks
are fitted, so that a few extreme ones do not decide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from bigbird_dna.config import LabelKind
from bigbird_dna.genome.sequence import UNKNOWN, base_codes
from bigbird_dna.metrics.auroc import Estimate, Floats
from bigbird_dna.metrics.joint import JointEstimates, joint_aurocs, joint_correlations
from bigbird_dna.reporting.sequence_metrics import REGRESSION

END = 10  # bases at an end of a sequence
K = 4
FOLDS = 5
INSIDE = (0.3, 0.5, 0.7)  # places of bases that those at the ends are compared with
AUROC, SPEARMAN = "AUROC", "Spearman"
LEAST = {AUROC: 0.55, SPEARMAN: 0.1}
"""A feature is a shortcut if the lower end of the interval of its metric is above this."""

# Axes: N sequences, F features, T outputs (classes, labels or numbers).

LabelValues = NDArray[np.floating[Any]]
Groups = NDArray[np.int64]


class AuditedTexts(NamedTuple):
    """Sequences in A C G T N."""

    texts: list[str]
    lower: Floats  # (N,) fraction of lower-case letters in the file


class Feature(NamedTuple):
    """A feature of sequences."""

    name: str
    column: str
    compute: Callable[[AuditedTexts], Floats]  # (N, F)
    at_end: bool = False  # a shortcut only if it predicts better than the same bases inside sequences
    shortcut: bool = True  # otherwise what a model should learn


class FeatureResult(NamedTuple):
    """How well a feature alone predicts the outputs of sequences in other groups of similar ones."""

    feature: Feature
    found: JointEstimates
    shortcuts: list[
        int
    ]  # outputs for which the feature is a shortcut, the best predicted one first
    on_average: bool  # whether it is one for the mean of the outputs


def metric_of(kind: LabelKind) -> str:
    """Return the name of the metric for a kind of labels."""
    return SPEARMAN if kind == REGRESSION else AUROC


def predict_from_features(
    given: AuditedTexts, labels: LabelValues, kind: LabelKind, groups: Groups, seed: int
) -> Iterator[FeatureResult]:
    """Yield how well each of `FEATURES` predicts labels (N, T), none of which is constant.

    NaN are missing labels.

    Similar sequences have the same number in `groups` (N,), from 0. Estimates of a feature that is the same
    for all sequences are NaN.
    """
    folds = (
        np.random.default_rng((seed, 1)).permutation(int(groups.max()) + 1)[groups]
        % FOLDS
    )
    measure = joint_correlations if kind == REGRESSION else joint_aurocs
    regress = _logistic if kind == "binary" else _linear
    targets = labels
    if kind == REGRESSION:
        targets = rankdata(labels, axis=0, nan_policy="omit") / (~np.isnan(labels)).sum(
            axis=0
        )

    def measured(x: Floats) -> JointEstimates:
        scores = np.zeros(labels.shape)
        for fold in range(FOLDS):
            test = folds == fold
            learned = targets[~test]
            if 0 < len(learned) < len(x) and np.ptp(learned, axis=0).any():
                mean, spread = x[~test].mean(axis=0), x[~test].std(axis=0)
                scaled = (x - mean) / np.where(spread > 0, spread, 1.0)
                scores[test] = regress(scaled[~test], learned, scaled[test])
        return measure(labels, scores, groups)

    # Bases at an end predict the labels if composition differs anywhere. They are a shortcut if they do so
    # better than bases inside the sequence.
    inside = np.fmax.reduce(
        [_values(measured(_bases(given, place))) for place in INSIDE]
    )
    undefined = JointEstimates([Estimate()] * labels.shape[1], Estimate())
    least = LEAST[metric_of(kind)]
    for feature in FEATURES:
        x = feature.compute(given)
        found = measured(x) if np.ptp(x, axis=0).any() else undefined
        bounds = np.fmax(least, inside) if feature.at_end else least
        lows = np.array([one.low for one in (*found.outputs, found.mean)])
        above = (lows > bounds) & feature.shortcut
        best = np.argsort(-lows[:-1], kind="stable").tolist()
        yield FeatureResult(
            feature,
            found,
            [output for output in best if above[output]],
            bool(above[-1]),
        )


def _values(found: JointEstimates) -> list[float]:
    return [*(one.value for one in found.outputs), found.mean.value]


def _logistic(x: Floats, labels: LabelValues, test: Floats) -> Floats:
    """Return log-odds (M, 1) of a logistic regression on features (N, F), for features (M, F)."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(class_weight="balanced", max_iter=1000)
    odds: Floats = model.fit(x, labels[:, 0]).decision_function(test)
    return odds[:, None]


def _linear(x: Floats, labels: LabelValues, test: Floats) -> Floats:
    """Return scores (M, T) of a linear regression on standardized features (N, F), for features (M, F).

    The penalty is that of features that have, all together, the variance of the noise. The intercept is left
    out: folds differ by it only because labels are more frequent in one than in another.
    """
    missing = np.isnan(labels)
    if missing.any():
        columns = [
            _linear(x[~rows], column[~rows, None], test)
            if not rows.all()
            else np.zeros((len(test), 1))
            for column, rows in zip(labels.T, missing.T, strict=True)
        ]
        return np.concatenate(columns, axis=1)
    centered = labels - labels.mean(axis=0)
    slopes = np.linalg.solve(x.T @ x + x.shape[1] * np.eye(x.shape[1]), x.T @ centered)
    return np.asarray(test @ slopes, np.float64)


def _with_square(values: Floats) -> Floats:
    """Values (N,) and their squared distances to the mean, so that extremes can predict too; (N, 2)."""
    return np.stack([values, (values - values.mean()) ** 2], axis=1)


def _lengths(given: AuditedTexts) -> Floats:
    return _with_square(np.log([len(text) for text in given.texts]))


def _gc(given: AuditedTexts) -> Floats:
    counts = [
        [text.count("G") + text.count("C"), len(text) - text.count("N")]
        for text in given.texts
    ]
    found = np.array(counts, np.float64)
    return _with_square(found[:, 0] / np.maximum(found[:, 1], 1))


def _unknown(given: AuditedTexts) -> Floats:
    """Fraction of N, and the mean position of N as a fraction of the sequence."""
    rows = []
    for text in given.texts:
        places = np.flatnonzero(base_codes(text) == UNKNOWN)
        rows.append(
            (len(places) / len(text), places.mean() / len(text) if len(places) else 0.5)
        )
    return np.array(rows)


def _bases(given: AuditedTexts, place: float) -> Floats:
    """One-hot bases (N, 4 · `END`) at a place of the sequences, from 0 for the first to 1 for the last."""
    firsts = [round(place * max(len(text) - END, 0)) for text in given.texts]
    codes = [
        base_codes(text[at : at + END])
        for text, at in zip(given.texts, firsts, strict=True)
    ]
    padded = [
        np.pad(one, (END - len(one), 0), constant_values=UNKNOWN) for one in codes
    ]
    return np.eye(UNKNOWN + 1)[np.array(padded)][..., :UNKNOWN].reshape(len(codes), -1)


def _kmers(given: AuditedTexts) -> Floats:
    """Number of each k-mer per base, (N, at most 5 ^ k)."""
    from sklearn.feature_extraction.text import CountVectorizer

    if max(map(len, given.texts)) < K:
        return np.zeros((len(given.texts), 1))
    counted = CountVectorizer(analyzer="char", ngram_range=(K, K), lowercase=False)
    lengths = np.array([[len(text)] for text in given.texts])
    return np.asarray(
        counted.fit_transform(given.texts).toarray() / lengths, np.float64
    )


FEATURES = (
    Feature("length", "length", _lengths),
    Feature("GC content", "gc_content", _gc),
    Feature("N", "n", _unknown),
    Feature(
        "lower-case letters", "lower_case", lambda given: _with_square(given.lower)
    ),
    Feature(
        f"the first {END} bases",
        "first_bases",
        lambda given: _bases(given, 0),
        at_end=True,
    ),
    Feature(
        f"the last {END} bases",
        "last_bases",
        lambda given: _bases(given, 1),
        at_end=True,
    ),
    Feature(f"{K}-mer frequencies", "kmers", _kmers, shortcut=False),
)
