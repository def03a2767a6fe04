"""Audit of a labeled data set before training: labels, copies, similar sequences, and shortcuts.

A feature that alone predicts the labels, such as the length or the first bases, is a shortcut: a model can be
good without learning what distinguishes the sequences. K-mers are not a shortcut, but the result to exceed.

Labels are of any kind that a model can be trained on. Two classes as FASTA files are a table of labels 1 and
0. N sequences, T labels or classes of `multiclass`, F features.
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
# Of measurements of a correlation of 0.97 with their replicates, 4 % of the pairs do.
DIFFERENT = 0.5
FEATURES = {
    "length": "length",
    "GC content": "gc_content",
    "N": "n",
    "lower-case letters": "lower_case",
    f"the first {END} bases": "first_bases",
    f"the last {END} bases": "last_bases",
    f"{K}-mer frequencies": "kmers",
}
"""Feature → column of `features.tsv`."""
OTHER = {
    "binary": "of the other class",
    "multiclass": "of another class",
    "multilabel": "with other labels",
    REGRESSION: "with another value",
}


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
    kind, values = labels.kind, labels.values.astype(np.float64)
    names = table.rows["name"].to_numpy(str)
    texts = table.rows["sequence"].tolist()
    regression = kind == REGRESSION
    if regression:
        usable = different(labels.values)
        if len(texts) < 2 * LEAST:
            raise DataError(f"{data[0]}: an audit needs at least {2 * LEAST} sequences")
    else:
        positives, known = np.nansum(values, axis=0), (~np.isnan(values)).sum(axis=0)
        usable = np.minimum(positives, known - positives) >= LEAST
        if not usable.any():
            raise DataError(
                f"{data[0]}: an audit needs at least {LEAST} sequences of each class"
            )
    classes, class_values = np.array(labels.outputs), values
    if kind == "binary":
        classes = np.array(["positive", "negative"])
        class_values = np.concatenate([values, 1 - values], axis=1)
    split_of = table.rows["split"].to_numpy(str)
    split_names = sorted(set(split_of.tolist())) if table.has_splits else []
    members = {"all": np.ones(len(names), bool)}
    members |= {split: split_of == split for split in split_names}
    groups = similar_groups(texts, SIMILAR)
    copies = np.array(first_copies(texts), np.int64)

    checks: list[dict[str, Any]] = []

    def check(name: str, sequences: int, finding: str = "", **metric: Any) -> None:
        row = {"check": name, "sequences": sequences, "metric": ""}
        row |= dict.fromkeys(["value", "low", "high"], math.nan)
        checks.append({**row, **metric, "finding": finding})

    def lacking(rows: NDArray[np.bool_], least: int) -> list[str]:
        """Return what labels of rows lack: sequences of a class, with and without it, or different numbers."""
        part = class_values[rows]
        no = "no sequence" if least == 1 else f"fewer than {least} sequences"
        if regression:
            faults = {"only one value of": ~different(labels.values[rows])}
        elif kind == "multilabel":
            faults = {
                f"{no} with": np.nansum(part, axis=0) < least,
                f"{no} without": np.nansum(1 - part, axis=0) < least,
            }
        else:
            faults = {f"{no} of class": np.nansum(part, axis=0) < least}
        return [
            f"{fault} {listed([repr(str(name)) for name in classes[which]])}"
            for fault, which in faults.items()
            if which.any()
        ]

    # Labels and splits
    rare = [f"{fault}: not evaluated" for fault in lacking(members["all"], LEAST)]
    check("sequences", len(names), "; ".join(rare))
    if count := table.unlabeled:
        have = "sequence has" if count == 1 else "sequences have"
        finding = f"{count:,} {have} no label: left out"
        check("sequences without a label", count, finding)
    missing = np.isnan(values)
    if missing.any():
        finding = f"{missing.sum():,} of {missing.size:,} labels are missing: ignored"
        rows = int(missing.any(axis=1).sum())
        check("sequences with a missing label", rows, finding)
    for split in ("train", "test"):
        if split_names and split not in split_names:
            check(f"sequences, {split}", 0, f"no sequence is in split {split!r}")
    for split in split_names:
        count = int(members[split].sum())
        faults = [
            f"split {split!r} has {fault}" for fault in lacking(members[split], 1)
        ]
        check(f"sequences, {split}", count, "; ".join(faults))

    # Copies and similar sequences
    why, limits = "one of the labels is wrong", np.zeros(values.shape[1])
    if regression:
        why = f"they differ by more than {DIFFERENT:g} standard deviations, which limits what can be predicted"
        limits = DIFFERENT * np.nanstd(values, axis=0)
    for what, are, ids in (
        ("copies of another sequence", "copies of", copies),
        ("sequences similar to another one", "similar to", groups),
    ):
        check(what, int((np.bincount(ids)[ids] > 1).sum()))
        by_id = pd.DataFrame(values).groupby(ids)
        ranges = by_id.transform("max") - by_id.transform("min")
        mixed = int((ranges > limits).any(axis=1).sum())
        finding = f"{mixed:,} {what}, {OTHER[kind]}: {why}"
        check(
            f"{what}, {OTHER[kind]}",
            mixed,
            finding if mixed and ids is copies else "",
        )
        if split_names:
            crossing = pd.Series(split_of).groupby(ids).transform("nunique") > 1
            held_out = int((crossing & (split_of != "train")).sum())
            finding = f"{held_out:,} held-out sequences are {are} one of another split: metrics are optimistic"
            check(f"{what}, in another split", held_out, finding if held_out else "")

    # Shortcuts
    metric, least = ("Spearman", 0.1) if regression else ("AUROC", 0.55)
    several = len(labels.outputs) > 1
    noun, plural = "class", "classes"
    if kind in ("multilabel", REGRESSION):
        noun, plural = "label", "labels"
    features = pd.DataFrame({"label": labels.outputs, "metric": metric})
    shuffled = np.random.default_rng((seed, 1)).permutation(int(groups.max()) + 1)
    folds = shuffled[groups] % FOLDS
    lower = (table.rows["lower"] / table.rows["sequence"].str.len()).tolist()
    predictable = values[:, usable]
    # Bases at an end predict the labels if composition differs anywhere. They are a shortcut if they do so
    # better than bases inside the sequence.
    inside = np.full(predictable.shape[1] + 1, np.nan)
    for position in INSIDE if usable.any() else ():
        x = _bases(texts, position)
        inside = np.fmax(inside, _estimates(x, predictable, kind, groups, folds)[:, 0])
    for feature, x in _features(texts, lower).items() if usable.any() else ():
        estimates = _estimates(x, predictable, kind, groups, folds)
        of_labels = np.full((len(labels.outputs), 3), np.nan)
        of_labels[usable] = estimates[:-1]
        for number, end in enumerate(("", "_low", "_high")):
            features[f"{FEATURES[feature]}{end}"] = of_labels[:, number]
        above = estimates[:, 1] > (
            np.fmax(least, inside) if feature.endswith("bases") else least
        )
        found = np.flatnonzero(above[:-1])
        mean = interval(*estimates[-1])
        subject, text, best = f"the {noun}", f"{metric} {mean}", ""
        if several and len(found):
            first = found[estimates[found, 1].argmax()]
            subject = f"{len(found):,} of {usable.sum():,} {plural}"
            best = f", {str(np.array(labels.outputs)[usable][first])!r} best"
            text = f"{metric} {interval(*estimates[first])}, mean {mean}"
        elif several:
            subject = f"the {plural} on average"
        finding = f"{subject} can be predicted from {feature} alone{best}: {text}"
        is_kmers = feature.endswith("frequencies")  # what a model should learn
        if is_kmers or not above.any():
            finding = ""
        estimate = dict(zip(("value", "low", "high"), estimates[-1], strict=True))
        name = f"mean {metric}" if several else metric
        check(f"{feature} alone", len(names), finding, metric=name, **estimate)

    counts = []
    for name, column in zip(classes, class_values.T, strict=True):
        for split, rows_of_split in members.items():
            part = column[rows_of_split & ~np.isnan(column)]
            row = {"label": name, "split": split, "sequences": len(part)}
            if not regression:
                row["positives"] = int(part.sum())
            elif len(part):
                row |= {"mean": part.mean(), "deviation": part.std()}
                row |= zip(
                    [
                        "minimum",
                        "lower_quartile",
                        "median",
                        "upper_quartile",
                        "maximum",
                    ],
                    np.percentile(part, [0, 25, 50, 75, 100]),
                    strict=True,
                )
            counts.append(row)
    alike = pd.DataFrame({"name": names, "group": groups})
    if regression:
        alike["label"] = [
            ", ".join(f"{value:g}" for value in row[~np.isnan(row)]) for row in values
        ]
    else:
        alike["label"] = [", ".join(classes[row == 1]) for row in class_values]
    alike["split"] = split_of if split_names else ""
    alike["copy_of"] = np.where(copies == np.arange(len(names)), "", names[copies])
    alike = alike[alike.groupby("group")["name"].transform("size") > 1].copy()
    alike["group"] = pd.factorize(alike["group"])[0] + 1
    alike = alike.sort_values("group", kind="stable")

    conclusions = [
        f"{row['finding'][:1].upper()}{row['finding'][1:]}."
        for row in checks
        if row["finding"]
    ] or [
        "No copies with other labels or in several splits, and no shortcut to the labels."
    ]
    tables = {
        "audit": pd.DataFrame(checks),
        "labels": pd.DataFrame(counts),
        "features": features,
        "similar": alike[["name", "label", "split", "group", "copy_of"]],
    }
    inputs = [*data, *(path for path in (negatives, splits) if path is not None)]
    with into_directory(output, inputs) as files:
        for name, rows_of_table in tables.items():
            write_tsv(files / f"{name}.tsv", rows_of_table)
    return conclusions


def _features(texts: Sequence[str], lower: Sequence[float]) -> dict[str, Floats]:
    """Return the values (N, F) of each of `FEATURES` of sequences in A C G T N."""
    from sklearn.feature_extraction.text import CountVectorizer

    lengths = np.array([len(text) for text in texts], np.float64)
    unknown = np.array([text.count("N") for text in texts])
    gc = np.array([text.count("G") + text.count("C") for text in texts])
    # The fraction of N, and their mean position as a fraction of the sequence.
    middle = np.full(len(texts), 0.5)
    for row in np.flatnonzero(unknown).tolist():
        positions = np.flatnonzero(base_codes(texts[row]) == UNKNOWN)
        middle[row] = positions.mean() / lengths[row]
    kmers = np.zeros((len(texts), 1))
    if lengths.max() >= K:
        counter = CountVectorizer(analyzer="char", ngram_range=(K, K), lowercase=False)
        kmers = counter.fit_transform(texts).toarray() / lengths[:, None]

    def with_square(column: Any) -> Floats:
        # The squared distance to the mean, so that extremes can predict too.
        values = np.asarray(column, np.float64)
        return np.stack([values, (values - values.mean()) ** 2], axis=1)

    features = (
        with_square(np.log(lengths)),
        with_square(gc / np.maximum(lengths - unknown, 1)),
        np.stack([unknown / lengths, middle], axis=1),
        with_square(lower),
        _bases(texts, 0),
        _bases(texts, 1),
        kmers,
    )
    return dict(zip(FEATURES, features, strict=True))


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
    kind: LabelKind,
    groups: NDArray[np.int64],
    folds: NDArray[np.int64],
) -> Floats:
    """Return how well features (N, F) predict labels (N, T) of other folds: a metric and its interval (T + 1, 3).

    The regression is logistic for two classes, and otherwise linear with an L2 penalty; of numbers, it fits the
    ranks, so that a few extreme ones do not decide. The metric is the AUROC, or Spearman's correlation of
    numbers. Intervals are over groups of similar sequences, and contain all T true values at once with a
    probability of 95 % (Bonferroni). The last row is the mean of the labels that have an interval. Missing
    labels are NaN, and so are metrics of features that are the same for all sequences.
    """
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.preprocessing import StandardScaler

    outputs = labels.shape[1]
    estimates = np.full((outputs + 1, 3), np.nan)
    if not np.ptp(x, axis=0).any():
        return estimates
    targets = labels
    if kind == REGRESSION:
        targets = rankdata(labels, axis=0, nan_policy="omit") / (~np.isnan(labels)).sum(
            0
        )
    scores = np.zeros(labels.shape)
    for fold in range(FOLDS):
        train, test = folds != fold, folds == fold
        if not test.any() or not train.any():
            continue
        scaler = StandardScaler().fit(x[train])
        scaled, scaled_test = scaler.transform(x[train]), scaler.transform(x[test])
        # Labels without missing values are fitted together.
        missing = np.isnan(targets).any(axis=0)
        together = [np.flatnonzero(~missing), *np.flatnonzero(missing)[:, None]]
        for columns in together:
            y = targets[train][:, columns]
            rows = ~np.isnan(y).any(axis=1)
            if not y[rows].size or not np.ptp(y[rows], axis=0).any():
                continue
            if kind == "binary":
                model = LogisticRegression(class_weight="balanced", max_iter=1000)
                model.fit(scaled[rows], y[rows, 0])
                scores[test, 0] = model.decision_function(scaled_test)
            else:
                # The penalty is that of features that have, all together, the variance of the noise. The
                # intercept is left out: folds differ by it only because labels are more frequent in one.
                ridge = Ridge(alpha=x.shape[1], fit_intercept=False)
                ridge.fit(scaled[rows], y[rows] - y[rows].mean(axis=0))
                predicted = ridge.predict(scaled_test)
                scores[np.ix_(test, columns)] = predicted.reshape(-1, len(columns))
    tail = TAIL / outputs
    for number in range(outputs):
        rows = ~np.isnan(labels[:, number])
        y, score, ids = labels[rows, number], scores[rows, number], groups[rows]
        if kind == REGRESSION:
            units = len(np.unique(ids))
            if np.ptp(y) and np.ptp(score) and units > 3:
                # On Fisher's scale; the variance of ranks is that of Fieller et al. (1957).
                value = float(spearmanr(y, score).statistic)
                middle = math.atanh(min(max(value, -1 + 1e-9), 1 - 1e-9))
                half = t_quantile(math.inf, tail) * math.sqrt(1.06 / (units - 3))
                ends = math.tanh(middle - half), math.tanh(middle + half)
                estimates[number] = value, *ends
            continue
        ranking = rank_rows(y, score)
        if ranking is not None:
            of_class = ids_by_class(y, ids)
            spread = spread_of(ranking.positives, ranking.negatives, of_class)
            estimates[number] = auroc_estimate(ranking.area, spread, tail)
    with_interval = estimates[:-1][~np.isnan(estimates[:-1, 1])]
    estimates[-1] = estimates[0]
    if outputs > 1 and len(with_interval):
        # The mean of the ends of intervals that hold together.
        estimates[-1] = with_interval.mean(axis=0)
    return estimates
