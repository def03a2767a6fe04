"""Audit of a labeled data set before training: labels, copies, similar sequences, and shortcuts.

A feature that alone predicts the labels, such as the length or the first bases, is a shortcut: a model can be
good without learning what distinguishes the sequences. K-mers are not a shortcut, but the result to exceed.

Labels are of any kind that a model can be trained on. N sequences, T labels or classes, F features.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import rankdata, spearmanr

from bigbird_dna.config.section import LabelKind
from bigbird_dna.config.sequences import LABEL_KINDS
from bigbird_dna.data.labeled_sequences import (
    different,
    first_copies,
    parse_labels,
    read_labeled_files,
)
from bigbird_dna.disk.directories import into_directory
from bigbird_dna.disk.tables import write_tsv
from bigbird_dna.errors import DataError, check_choice, listed
from bigbird_dna.genome.sequence import UNKNOWN, base_codes
from bigbird_dna.genome.sequence_tables import COLUMNS, TableColumns
from bigbird_dna.genome.similarity import SIMILAR, similar_groups
from bigbird_dna.metrics.auroc import (
    TAIL,
    Floats,
    auroc_estimate,
    ids_by_class,
    rank_rows,
    spread_of,
    t_quantile,
)
from bigbird_dna.reporting.result import interval
from bigbird_dna.reporting.sequences import REGRESSION

FOLDS = 5
LEAST = 2 * FOLDS  # sequences with and without a label that can be predicted
END = 10  # bases at an end of a sequence
K = 4
# Positions of bases that those at the ends are compared with, as fractions of the sequence.
INSIDE = (0.3, 0.5, 0.7)
# Copies contradict each other if their numbers differ by more than this fraction of the standard deviation.
DIFFERENT = 0.5


def audit_dataset(
    data: Sequence[Path],
    output: Path,
    *,
    negatives: Path | None = None,
    splits: Path | None = None,
    task: LabelKind | None = None,
    sequence_column: str = COLUMNS.sequence,
    label_columns: Sequence[str] = (),
    split_column: str = COLUMNS.split,
    seed: int = 1,
) -> list[str]:
    """Write the tables of an audit to a directory; return the conclusions.

    The tables are `audit.tsv`, `labels.tsv`, `features.tsv` and `similar.tsv`. The files are as for
    `read_labeled_files`, and `task` as for `parse_labels`.
    """
    if task is not None:
        check_choice("--task", task, LABEL_KINDS)
    columns = TableColumns(sequence_column, tuple(label_columns), split_column)
    table = read_labeled_files(data, negatives, splits, columns, task)
    labels = parse_labels(table, task, constant=True)
    values = labels.values.astype(np.float64)
    names = table.rows["name"].to_numpy(str)
    texts = table.rows["sequence"].tolist()
    regression = labels.kind == REGRESSION
    known = ~np.isnan(values)
    positives = np.nansum(values, axis=0)
    rare = np.minimum(positives, known.sum(axis=0) - positives) < LEAST
    if regression:
        rare = ~different(labels.values)
    if len(texts) < 2 * LEAST or (rare.all() and not regression):
        raise DataError(
            f"{data[0]}: an audit needs at least {LEAST} sequences of each class, or {2 * LEAST} numbers"
        )
    split_of = table.rows["split"].to_numpy(str)
    split_names = sorted(set(split_of.tolist())) if table.has_splits else []
    groups = similar_groups(texts, SIMILAR)
    copies = np.array(first_copies(texts), np.int64)
    outputs = np.array(labels.outputs)
    checks: list[dict[str, Any]] = []

    def check(name: str, count: int, finding: str = "") -> None:
        checks.append({"check": name, "sequences": count, "finding": finding})

    # Labels and splits
    finding = ""
    if rare.any():
        what = "all numbers are the same for" if regression else f"fewer than {LEAST}"
        finding = f"{what} {listed([repr(name) for name in outputs[rare].tolist()])}: not evaluated"
    check("sequences", len(names), finding)
    if count := table.unlabeled:
        check(
            "sequences without a label", count, f"{count:,} without a label: left out"
        )
    if not known.all():
        finding = f"{(~known).sum():,} of {known.size:,} labels are missing: ignored"
        count = int((~known).any(axis=1).sum())
        check("sequences with a missing label", count, finding)
    for split in sorted({*split_names, "train", "test"}) if split_names else ():
        rows = split_of == split
        finding = ""
        if not rows.any():
            finding = f"no sequence is in split {split!r}"
        elif split == "none":
            finding = f"{rows.sum():,} not in the table of splits"
        else:
            part = pd.DataFrame(values[rows])
            same = (part.nunique() < 2).to_numpy() & ~rare
            if same.any():
                same_names = [repr(name) for name in outputs[same].tolist()]
                finding = f"split {split!r} has only one value of {listed(same_names)}"
        check(f"sequences, {split}", int(rows.sum()), finding)

    # Copies and similar sequences
    limits = np.zeros(values.shape[1])
    why = "one of the labels is wrong"
    if regression:
        limits = DIFFERENT * np.nanstd(values, axis=0)
        why = f"they differ by more than {DIFFERENT:g} standard deviations"
    for what, ids in (
        ("copies of another sequence", copies),
        ("sequences similar to another one", groups),
    ):
        check(what, int((np.bincount(ids)[ids] > 1).sum()))
        by_id = pd.DataFrame(values).groupby(ids)
        ranges = by_id.transform("max") - by_id.transform("min")
        mixed = int((ranges > limits).any(axis=1).sum())
        finding = f"{mixed:,} {what}, with other labels: {why}"
        check(
            f"{what}, with other labels",
            mixed,
            finding if mixed and ids is copies else "",
        )
        if split_names:
            crossing = pd.Series(split_of).groupby(ids).transform("nunique") > 1
            count = int((crossing & (split_of != "train")).sum())
            finding = (
                f"{count:,} held-out {what}, in another split: metrics are optimistic"
            )
            check(f"{what}, in another split", count, finding if count else "")

    # Shortcuts
    metric, least = ("Spearman", 0.1) if regression else ("AUROC", 0.55)
    rng = np.random.default_rng((seed, 1))
    folds = rng.permutation(int(groups.max()) + 1)[groups] % FOLDS
    usable, usable_names = values[:, ~rare], outputs[~rare]
    features = pd.DataFrame({"label": usable_names, "metric": metric})
    # Bases at an end predict the labels if composition differs anywhere. They are a shortcut if they do so
    # better than bases inside the sequence.
    inside = np.full(usable.shape[1], np.nan)
    for position in INSIDE:
        estimates = _estimates(
            _bases(texts, position), usable, regression, groups, folds
        )
        inside = np.fmax(inside, estimates[:, 0])
    lower = table.rows["lower"] / table.rows["sequence"].str.len()
    for feature, x in _features(texts, lower.to_numpy()).items():
        estimates = _estimates(x, usable, regression, groups, folds)
        for number, end in enumerate(("", "_low", "_high")):
            features[f"{feature}{end}"] = estimates[:, number]
        limit = np.fmax(least, inside) if feature.endswith("bases") else least
        above = np.flatnonzero(estimates[:, 1] > limit)
        finding = ""
        if len(above) and feature != "kmers":  # k-mers are what a model should learn
            best = above[estimates[above, 1].argmax()]
            finding = (
                f"{len(above):,} of {len(usable_names):,} labels can be predicted from {feature} alone, "
                f"{str(usable_names[best])!r} best: {metric} {interval(*estimates[best])}"
            )
        check(f"{feature} alone", len(names), finding)

    counts = []
    for name, column in zip(outputs, values.T, strict=True):
        for split in ("all", *split_names):
            part = column[~np.isnan(column) & ((split == "all") | (split_of == split))]
            row = {"label": name, "split": split, "sequences": len(part)}
            if regression:
                row |= {"mean": part.mean(), "deviation": part.std()}
            else:
                row["positives"] = int(part.sum())
            counts.append(row)
    alike = pd.DataFrame({"name": names, "group": groups})
    alike["label"] = [
        ", ".join(f"{value:g}" for value in row[~np.isnan(row)])
        if len(outputs) == 1
        else ", ".join(outputs[row == 1])
        for row in values
    ]
    alike["split"] = split_of if split_names else ""
    alike["copy_of"] = np.where(copies == np.arange(len(names)), "", names[copies])
    alike = alike[alike.groupby("group")["name"].transform("size") > 1]
    alike = alike.assign(group=pd.factorize(alike["group"])[0] + 1)

    findings = [row["finding"] for row in checks if row["finding"]]
    conclusions = [f"{text[:1].upper()}{text[1:]}." for text in findings]
    if not conclusions:
        conclusions = [
            "No copies with other labels or in several splits, and no shortcut to the labels."
        ]
    inputs = [*data, *(path for path in (negatives, splits) if path is not None)]
    with into_directory(output, inputs) as files:
        write_tsv(files / "audit.tsv", pd.DataFrame(checks))
        write_tsv(files / "labels.tsv", pd.DataFrame(counts))
        write_tsv(files / "features.tsv", features)
        write_tsv(files / "similar.tsv", alike.sort_values("group", kind="stable"))
    return conclusions


def _features(texts: Sequence[str], lower: Floats) -> dict[str, Floats]:
    """Return the values (N, F) of each feature of sequences in A C G T N."""
    from sklearn.feature_extraction.text import CountVectorizer

    lengths = np.array([len(text) for text in texts], np.float64)
    unknown = np.array([text.count("N") for text in texts])
    gc = np.array([text.count("G") + text.count("C") for text in texts])
    kmers = np.zeros((len(texts), 1))
    if lengths.max() >= K:
        counter = CountVectorizer(analyzer="char", ngram_range=(K, K), lowercase=False)
        kmers = counter.fit_transform(texts).toarray() / lengths[:, None]
    columns = {
        "length": np.log(lengths),
        "gc_content": gc / np.maximum(lengths - unknown, 1),
        "n": unknown / lengths,
        "lower_case": lower,
    }
    # The squared distance to the mean, so that extremes can predict too.
    features = {
        name: np.stack([column, (column - column.mean()) ** 2], axis=1)
        for name, column in columns.items()
    }
    ends = {"first_bases": _bases(texts, 0), "last_bases": _bases(texts, 1)}
    return {**features, **ends, "kmers": kmers}


def _bases(texts: Sequence[str], position: float) -> Floats:
    """One-hot bases (N, 4 · `END`) at a position of the sequences, from 0 for the first to 1 for the last."""
    codes = np.full((len(texts), END), UNKNOWN)
    for row, text in enumerate(texts):
        start = round(position * max(len(text) - END, 0))
        bases = base_codes(text[start : start + END])
        codes[row, END - len(bases) :] = bases
    bits: Floats = np.eye(UNKNOWN + 1)[codes][..., :UNKNOWN]
    return bits.reshape(len(texts), -1)


def _estimates(
    x: Floats,
    labels: Floats,
    regression: bool,
    groups: NDArray[np.int64],
    folds: NDArray[np.int64],
) -> Floats:
    """Return how well features (N, F) predict labels (N, T) of other folds: a metric and its interval (T, 3).

    A linear regression with an L2 penalty predicts labels, or ranks of numbers. The metric is the AUROC, or
    Spearman's correlation of numbers. Intervals are over groups of similar sequences, and contain all T true
    values at once with a probability of 95 % (Bonferroni). Missing labels are NaN, and so are metrics of
    features that are the same for all sequences.
    """
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    estimates = np.full((labels.shape[1], 3), np.nan)
    if not labels.size or not np.ptp(x, axis=0).any():
        return estimates
    targets = labels
    if regression:
        targets = rankdata(labels, axis=0, nan_policy="omit") / len(labels)
    scores = np.zeros(labels.shape)
    for fold in np.unique(folds):
        train = folds != fold
        if not train.any():
            continue
        # The penalty is that of features that have, all together, the variance of the noise. The intercept is
        # left out: folds differ by it only because labels are more frequent in one.
        ridge = make_pipeline(
            StandardScaler(), Ridge(alpha=x.shape[1], fit_intercept=False)
        )
        y = targets[train] - np.nanmean(targets[train], axis=0)
        ridge.fit(x[train], np.nan_to_num(y))
        scores[~train] = ridge.predict(x[~train]).reshape(-1, labels.shape[1])
    tail = TAIL / labels.shape[1]
    for number, estimate in enumerate(estimates):
        rows = ~np.isnan(labels[:, number])
        y, score, ids = labels[rows, number], scores[rows, number], groups[rows]
        if not regression:
            ranking = rank_rows(y, score)
            assert ranking is not None
            spread = spread_of(
                ranking.positives, ranking.negatives, ids_by_class(y, ids)
            )
            estimate[:] = auroc_estimate(ranking.area, spread, tail)
            continue
        units = len(np.unique(ids))
        if np.ptp(score) and units > 3:
            # On Fisher's scale; the variance of ranks is that of Fieller et al. (1957).
            value = float(spearmanr(y, score).statistic)
            middle = math.atanh(min(max(value, -1 + 1e-9), 1 - 1e-9))
            half = t_quantile(math.inf, tail) * math.sqrt(1.06 / (units - 3))
            estimate[:] = value, math.tanh(middle - half), math.tanh(middle + half)
    return estimates
