"""What simple features of sequences alone predict about their labels.

A feature that alone predicts the labels, such as the length or the first bases, is a shortcut: a model can be
good without learning what distinguishes the sequences. K-mers are not a shortcut, but the result to exceed.

A feature is evaluated by a regression that was fitted to other groups of similar sequences: a logistic one
for labels of two classes, and otherwise a linear one with an L2 penalty, which fits all classes or labels at
once. The metric is the AUROC of each class or label, or Spearman's correlation of numbers. Of numbers, ranks
are fitted, so that a few extreme ones do not decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from bigbird_dna.config.section import LabelKind
from bigbird_dna.genome.sequence import UNKNOWN, base_codes
from bigbird_dna.metrics.auroc import Estimate, Floats
from bigbird_dna.metrics.joint import JointEstimates, joint_estimates
from bigbird_dna.reporting.sequence_metrics import REGRESSION

END = 10  # bases at an end of a sequence
K = 4
FOLDS = 5
INSIDE = (0.3, 0.5, 0.7)  # positions of bases that those at the ends are compared with
AUROC, SPEARMAN = "AUROC", "Spearman"
LEAST = {AUROC: 0.55, SPEARMAN: 0.1}
"""A feature is a shortcut if the lower end of the interval of its metric is above this."""
FIRST, LAST, KMERS = (
    f"the first {END} bases",
    f"the last {END} bases",
    f"{K}-mer frequencies",
)
FEATURES = {
    "length": "length",
    "GC content": "gc_content",
    "N": "n",
    "lower-case letters": "lower_case",
    FIRST: "first_bases",
    LAST: "last_bases",
    KMERS: "kmers",
}
"""Feature → column of the table."""

# Axes: N sequences, F features, T outputs (classes, labels or numbers).

LabelValues = NDArray[np.floating[Any]]
Groups = NDArray[np.int64]


class FeatureResult(NamedTuple):
    """How well a feature alone predicts the outputs of sequences in other groups of similar ones."""

    feature: str
    estimates: JointEstimates
    shortcuts: list[int]  # outputs that it is a shortcut to, the best predicted first
    on_average: bool  # whether it is one for the mean of the outputs


def metric_of(kind: LabelKind) -> str:
    """Return the name of the metric for a kind of labels."""
    return SPEARMAN if kind == REGRESSION else AUROC


def predict_from_features(
    texts: Sequence[str],
    lower: Floats,
    labels: LabelValues,
    kind: LabelKind,
    groups: Groups,
    seed: int,
) -> list[FeatureResult]:
    """Return how well each of `FEATURES` predicts labels (N, T), none of which is constant; NaN are missing.

    `texts` are sequences in A C G T N, and `lower` (N,) their fractions of lower-case letters. Similar
    sequences have the same number in `groups` (N,), from 0. Estimates of a feature that is the same for all
    sequences are NaN.
    """
    shuffled = np.random.default_rng((seed, 1)).permutation(int(groups.max()) + 1)
    folds = shuffled[groups] % FOLDS
    regress = _logistic if kind == "binary" else _linear
    targets = labels
    if kind == REGRESSION:
        ranks = rankdata(labels, axis=0, nan_policy="omit")
        targets = ranks / (~np.isnan(labels)).sum(axis=0)

    def measure(x: Floats) -> JointEstimates:
        if not np.ptp(x, axis=0).any():
            return JointEstimates([Estimate()] * labels.shape[1], Estimate())
        scores = np.zeros(labels.shape)
        for fold in range(FOLDS):
            test = folds == fold
            learned = targets[~test]
            if 0 < len(learned) < len(x) and np.ptp(learned, axis=0).any():
                mean, spread = x[~test].mean(axis=0), x[~test].std(axis=0)
                scaled = (x - mean) / np.where(spread > 0, spread, 1.0)
                scores[test] = regress(scaled[~test], learned, scaled[test])
        return joint_estimates(labels, scores, groups, spearman=kind == REGRESSION)

    # Bases at an end predict the labels if composition differs anywhere. They are a shortcut if they do so
    # better than bases inside the sequence.
    inside = np.full(labels.shape[1] + 1, np.nan)
    for position in INSIDE:
        estimates = measure(_bases(texts, position))
        values = [one.value for one in (*estimates.outputs, estimates.mean)]
        inside = np.fmax(inside, values)
    least = LEAST[metric_of(kind)]
    results = []
    for feature, x in _features(texts, lower).items():
        estimates = measure(x)
        lows = np.array([one.low for one in (*estimates.outputs, estimates.mean)])
        above = lows > (np.fmax(least, inside) if feature in (FIRST, LAST) else least)
        if feature == KMERS:  # what a model should learn
            above[:] = False
        best = np.argsort(-lows[:-1], kind="stable")
        shortcuts = best[above[best]].tolist()
        results.append(FeatureResult(feature, estimates, shortcuts, bool(above[-1])))
    return results


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
    scores = np.zeros((len(test), labels.shape[1]))
    missing = np.isnan(labels)
    # Outputs without missing labels have the same matrix.
    complete = np.flatnonzero(~missing.any(axis=0))
    for columns in (complete, *np.flatnonzero(missing.any(axis=0))[:, None]):
        rows = ~missing[:, columns].any(axis=1)
        if len(columns) and rows.any():
            features, values = x[rows], labels[rows][:, columns]
            matrix = features.T @ features + x.shape[1] * np.eye(x.shape[1])
            sums = features.T @ (values - values.mean(axis=0))
            scores[:, columns] = test @ np.linalg.solve(matrix, sums)
    return scores


def _features(texts: Sequence[str], lower: Floats) -> dict[str, Floats]:
    """Return the values (N, F) of each of `FEATURES`."""
    from sklearn.feature_extraction.text import CountVectorizer

    lengths = np.array([len(text) for text in texts], np.float64)
    unknown = np.array([text.count("N") for text in texts])
    gc = np.array([text.count("G") + text.count("C") for text in texts])
    # The fraction of N, and their mean position as a fraction of the sequence.
    positions = [np.flatnonzero(base_codes(text) == UNKNOWN) for text in texts]
    middle = [
        where.mean() / len(text) if len(where) else 0.5
        for where, text in zip(positions, texts, strict=True)
    ]
    kmers = np.zeros((len(texts), 1))
    if lengths.max() >= K:
        counter = CountVectorizer(analyzer="char", ngram_range=(K, K), lowercase=False)
        kmers = counter.fit_transform(texts).toarray() / lengths[:, None]
    features = {
        "length": _with_square(np.log(lengths)),
        "GC content": _with_square(gc / np.maximum(lengths - unknown, 1)),
        "N": np.stack([unknown / lengths, middle], axis=1),
        "lower-case letters": _with_square(lower),
        FIRST: _bases(texts, 0),
        LAST: _bases(texts, 1),
        KMERS: kmers,
    }
    return features


def _with_square(values: Floats) -> Floats:
    """Values (N,) and their squared distances to the mean, so that extremes can predict too; (N, 2)."""
    return np.stack([values, (values - values.mean()) ** 2], axis=1)


def _bases(texts: Sequence[str], position: float) -> Floats:
    """One-hot bases (N, 4 · `END`) at a position of the sequences, from 0 for the first to 1 for the last."""
    codes = np.full((len(texts), END), UNKNOWN)
    for row, text in enumerate(texts):
        start = round(position * max(len(text) - END, 0))
        bases = base_codes(text[start : start + END])
        codes[row, END - len(bases) :] = bases
    bits: Floats = np.eye(UNKNOWN + 1)[codes][..., :UNKNOWN]
    return bits.reshape(len(texts), -1)
