"""Audit of a labeled data set before training: labels, copies, similar sequences, and shortcuts.

Labels are of any kind that a model can be trained on. Two classes as FASTA files are a table of labels 1 and
0. What counts as a shortcut is defined in `reporting.shortcuts`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bigbird_dna.config.section import LabelKind
from bigbird_dna.config.sequences import LABEL_KINDS
from bigbird_dna.data.labeled_sequences import (
    Labels,
    different,
    parse_labels,
    read_labeled_files,
)
from bigbird_dna.disk.directories import into_directory
from bigbird_dna.disk.tables import Schema, write_table
from bigbird_dna.errors import DataError, check_choice
from bigbird_dna.genome.records import counted, first_copies, listed
from bigbird_dna.genome.sequence_tables import COLUMNS, TableColumns
from bigbird_dna.genome.similar_groups import SIMILAR, similar_groups
from bigbird_dna.metrics.auroc import Estimate, Floats
from bigbird_dna.reporting.pages import read_page_table, render_page
from bigbird_dna.reporting.sequence_metrics import REGRESSION
from bigbird_dna.reporting.shortcuts import (
    FEATURES,
    FOLDS,
    FeatureResult,
    metric_of,
    predict_from_features,
)

AUDIT = Schema.of(
    "text check; count sequences; text metric; metric value low high; text finding",
    key=["check"],
)
LABEL_COUNTS = Schema.of(
    "text label split; count sequences; optional positives; metric mean deviation minimum lower_quartile "
    "median upper_quartile maximum",
    key=["label", "split"],
)
FEATURE_METRICS = Schema.of(
    f"text label metric; estimate {' '.join(FEATURES.values())}",
    key=["label"],
)
SIMILAR_SEQUENCES = Schema.of(
    "text name label split; count group; text copy_of", key=["name"]
)
CLASSES = ("negative", "positive")
ALL, NO_SPLIT = "all", "none"
OTHER = {
    "binary": "of the other class",
    "multiclass": "of another class",
    "multilabel": "with other labels",
    REGRESSION: "with another value",
}
_LEAST = 2 * FOLDS  # sequences with and without a label that can be predicted
# Copies contradict each other if their numbers differ by more than this fraction of the standard deviation.
# Of measurements of a correlation of 0.97 with their replicates, 4 % of the pairs do.
DIFFERENT = 0.5

# Axes: N sequences, T labels (classes of `multiclass`), C columns of classes, two if `binary`.
Values = NDArray[np.floating[Any]]
Groups = NDArray[np.int64]


class AuditedSet(NamedTuple):
    """N sequences with their labels and, if known, their splits."""

    names: list[str]
    sequences: list[str]  # in A C G T N
    lower: Floats  # (N,) fraction of lower-case letters in the file
    labels: Labels
    splits: NDArray[np.str_] | None  # (N,) empty: not in the table of splits
    unlabeled: int  # rows that are left out, because they have no label

    @property
    def usable(self) -> NDArray[np.bool_]:
        """Which labels (T,) are frequent or different enough to be predicted."""
        values = self.labels.values
        if self.labels.kind == REGRESSION:
            return different(values)
        positives, known = np.nansum(values, axis=0), (~np.isnan(values)).sum(axis=0)
        return np.asarray(np.minimum(positives, known - positives) >= _LEAST)

    @property
    def columns(self) -> tuple[Sequence[str], Values]:
        """Names (C,) and values (N, C) of labels; of both classes if there are two."""
        values = self.labels.values
        if self.labels.kind == "binary":
            return CLASSES[::-1], np.concatenate([values, 1 - values], axis=1)
        return self.labels.outputs, values

    def rows_of(self, split: str) -> NDArray[np.bool_]:
        """The sequences (N,) of a split; `NO_SPLIT`: of none, `ALL`: all sequences."""
        if split == ALL or self.splits is None:
            return np.ones(len(self.names), bool)
        return np.asarray(self.splits == ("" if split == NO_SPLIT else split))

    @property
    def split_names(self) -> list[str]:
        """Names of the splits that have sequences."""
        if self.splits is None:
            return []
        return [split or NO_SPLIT for split in sorted({*self.splits.tolist()})]


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
    """Write the tables and the page of an audit to a directory; return the conclusions.

    The tables are `audit.tsv`, `labels.tsv`, `features.tsv` and `similar.tsv`; the page is `audit.html`. The
    files are as for `read_labeled_files`, and `task` as for `parse_labels`.
    """
    if task is not None:
        check_choice("--task", task, LABEL_KINDS)
    columns = TableColumns(sequence_column, tuple(label_columns), split_column)
    inputs = [*data, *(path for path in (negatives, splits) if path is not None)]
    table = read_labeled_files(data, negatives, splits, columns, task)
    records = table.records
    texts = [*records.sequences.values()]
    lower = [
        records.lower[name] / len(records.sequences[name]) for name in records.sequences
    ]
    audited = AuditedSet(
        [*records.sequences],
        texts,
        np.array(lower),
        parse_labels(table, task, constant=True),
        None
        if table.splits is None
        else np.array([table.splits.get(name, "") for name in records.sequences]),
        table.unlabeled,
    )
    kind, usable = audited.labels.kind, audited.usable
    if kind == REGRESSION and len(texts) < 2 * _LEAST:
        raise DataError(
            f"{table.firsts[0]}: an audit needs at least {2 * _LEAST} sequences"
        )
    if kind != REGRESSION and not usable.any():
        raise DataError(
            f"{table.firsts[0]}: an audit needs at least {_LEAST} sequences of each class"
        )
    groups = similar_groups(texts, SIMILAR)
    copies = np.array(first_copies(texts), np.int64)
    predicted = []
    if usable.any():
        values = audited.labels.values[:, usable]
        predicted = predict_from_features(
            texts, audited.lower, values, kind, groups, seed
        )
    checks = [
        *_balance(audited),
        *_similarity(audited, groups, copies),
        *_features(audited, predicted),
    ]
    conclusions = [
        f"{one.finding[:1].upper()}{one.finding[1:]}." for one in checks if one.finding
    ] or [
        "No copies with other labels or in several splits, and no shortcut to the labels."
    ]
    tables = {
        "audit": (pd.DataFrame(checks, columns=AUDIT.names), AUDIT),
        "labels": (_counts(audited), LABEL_COUNTS),
        "features": (_metrics(audited, predicted), FEATURE_METRICS),
        "similar": (_similar(audited, groups, copies), SIMILAR_SEQUENCES),
    }
    with into_directory(output, inputs) as files:
        for name, (rows, schema) in tables.items():
            write_table(files / f"{name}.tsv", rows, schema)
        text = render_page(
            "audit_page.html",
            style="run_page.css",
            title=f"Audit of {data[0].name}",
            conclusions=conclusions,
            kind=kind,
            several=len(audited.labels.outputs) > 1,
            different=DIFFERENT,
            tables={name: read_page_table(files / f"{name}.tsv") for name in tables},
        )
        (files / "audit.html").write_text(text, encoding="utf-8")
    return conclusions


class Check(NamedTuple):
    """A row of `AUDIT`; `finding` is empty if nothing is wrong."""

    check: str
    sequences: int
    metric: str = ""
    value: float = np.nan
    low: float = np.nan
    high: float = np.nan
    finding: str = ""


def _balance(audited: AuditedSet) -> Iterator[Check]:
    """Yield the number of sequences, in total and of each split, and which labels are missing or too rare."""
    values = audited.columns[1]
    rare = [f"{fault}: not evaluated" for fault in _faults(audited, values, _LEAST)]
    yield Check("sequences", len(values), finding="; ".join(rare))
    if count := audited.unlabeled:
        have = "sequence has" if count == 1 else "sequences have"
        fault = f"{count:,} {have} no label: left out"
        yield Check("sequences without a label", count, finding=fault)
    missing = np.isnan(values)
    if missing.any():
        rows = int(missing.any(axis=1).sum())
        fault = f"{missing.sum():,} of {missing.size:,} labels are missing: ignored"
        yield Check("sequences with a missing label", rows, finding=fault)
    splits = audited.split_names
    for split in ("train", "test"):
        if splits and split not in splits:
            fault = f"no sequence is in split {split!r}"
            yield Check(f"sequences, {split}", 0, finding=fault)
    for split in splits:
        own = values[audited.rows_of(split)]
        if split == NO_SPLIT:
            fault = f"{counted(len(own), 'sequence')} not in the table of splits"
            yield Check("sequences, no split", len(own), finding=fault)
            continue
        faults = [f"split {split!r} has {fault}" for fault in _faults(audited, own, 1)]
        yield Check(f"sequences, {split}", len(own), finding="; ".join(faults))


def _faults(audited: AuditedSet, values: Values, least: int) -> Iterator[str]:
    """Yield what labels with `values` (N, C) lack: sequences of a class, with and without it, or numbers."""
    kind, names = audited.labels.kind, np.array(audited.columns[0])
    no = "no sequence" if least == 1 else f"fewer than {least} sequences"
    if kind == REGRESSION:
        faults = {"only one value of": ~different(values)}
    elif kind == "multilabel":
        faults = {
            f"{no} with": np.nansum(values, axis=0) < least,
            f"{no} without": np.nansum(1 - values, axis=0) < least,
        }
    else:
        faults = {f"{no} of class": np.nansum(values, axis=0) < least}
    for fault, which in faults.items():
        if which.any():
            yield f"{fault} {listed([repr(str(name)) for name in names[which]])}"


def _similarity(audited: AuditedSet, groups: Groups, copies: Groups) -> Iterator[Check]:
    """Yield the number of copies and of similar sequences: in total, with other labels, in several splits."""
    labels, splits = audited.labels, audited.splits
    why, limits = "one of the labels is wrong", np.zeros(labels.values.shape[1])
    if labels.kind == REGRESSION:
        why = f"they differ by more than {DIFFERENT:g} standard deviations, which limits what can be predicted"
        limits = DIFFERENT * np.nanstd(labels.values, axis=0)
    for what, are, ids in (
        ("copies of another sequence", "copies of", copies),
        ("sequences similar to another one", "similar to", groups),
    ):
        yield Check(what, int((np.bincount(ids)[ids] > 1).sum()))
        by_id = pd.DataFrame(labels.values).groupby(ids)
        ranges = by_id.transform("max") - by_id.transform("min")
        mixed, other = int((ranges > limits).any(axis=1).sum()), OTHER[labels.kind]
        fault = f"{mixed:,} {what}, {other}: {why}" if mixed and ids is copies else ""
        yield Check(f"{what}, {other}", mixed, finding=fault)
        if splits is None:
            continue
        several = pd.Series(splits).groupby(ids).transform("nunique") > 1
        held_out = int((several & (splits != "train")).sum())
        fault = f"{held_out:,} held-out sequences are {are} one of another split: metrics are optimistic"
        fault = fault if held_out else ""
        yield Check(f"{what}, in another split", held_out, finding=fault)


def _features(
    audited: AuditedSet, predicted: Sequence[FeatureResult]
) -> Iterator[Check]:
    """Yield how well each feature alone predicts the labels."""
    kind, count = audited.labels.kind, len(audited.names)
    outputs = np.array(audited.labels.outputs)[audited.usable]
    several, metric = len(audited.labels.outputs) > 1, metric_of(kind)
    one, more = "class", "classes"
    if kind in ("multilabel", REGRESSION):
        one, more = "label", "labels"
    for feature, estimates, shortcuts, on_average in predicted:
        mean = _text(estimates.mean)
        subject, text = f"the {one}", f"{metric} {mean}"
        best = ""
        if several and shortcuts:
            subject = f"{len(shortcuts):,} of {len(outputs):,} {more}"
            best = f", {str(outputs[shortcuts[0]])!r} best"
            text = f"{metric} {_text(estimates.outputs[shortcuts[0]])}, mean {mean}"
        elif several:
            subject = f"the {more} on average"
        fault = f"{subject} can be predicted from {feature} alone{best}: {text}"
        fault = fault if shortcuts or on_average else ""
        name = f"mean {metric}" if several else metric
        yield Check(f"{feature} alone", count, name, *estimates.mean, finding=fault)


def _text(found: Estimate) -> str:
    return f"{found.value:.3f} [{found.low:.3f}, {found.high:.3f}]"


def _counts(audited: AuditedSet) -> pd.DataFrame:
    """Return the rows of `LABEL_COUNTS`: each label in all sequences, and in each split."""
    names, values = audited.columns
    rows = []
    for number, name in enumerate(names):
        for split in (ALL, *audited.split_names):
            own = values[audited.rows_of(split), number].astype(np.float64)
            own = own[~np.isnan(own)]
            row = [name, split, len(own), *[np.nan] * 8]
            if audited.labels.kind != REGRESSION:
                row[3] = own.sum()
            elif len(own):
                quantiles = np.percentile(own, [0, 25, 50, 75, 100])
                row[4:] = [own.mean(), own.std(), *quantiles]
            rows.append(row)
    return pd.DataFrame(rows, columns=LABEL_COUNTS.names)


def _metrics(audited: AuditedSet, predicted: Sequence[FeatureResult]) -> pd.DataFrame:
    """Return the rows of `FEATURE_METRICS`: each label, with the metrics of all features."""
    values = np.full((len(audited.labels.outputs), len(FEATURES), 3), np.nan)
    for number, result in enumerate(predicted):
        values[audited.usable, number] = result.estimates.outputs
    names = FEATURE_METRICS.names[2:]
    table = pd.DataFrame(values.reshape(len(values), -1), columns=names)
    table.insert(0, "label", audited.labels.outputs)
    table.insert(1, "metric", metric_of(audited.labels.kind))
    return table


def _similar(audited: AuditedSet, groups: Groups, copies: Groups) -> pd.DataFrame:
    """Return the rows of `SIMILAR_SEQUENCES`: sequences that are similar to others, by group."""
    rows = np.flatnonzero(np.bincount(groups)[groups] > 1)
    numbers = pd.factorize(groups[rows])[0]
    names, values = audited.columns
    table = []
    for position in np.argsort(numbers, kind="stable").tolist():
        row = int(rows[position])
        if audited.labels.kind == REGRESSION:
            labels = [f"{value:g}" for value in values[row] if value == value]
        else:
            labels = [
                names[number] for number in np.flatnonzero(values[row] == 1).tolist()
            ]
        split = "" if audited.splits is None else str(audited.splits[row])
        copy = "" if copies[row] == row else audited.names[int(copies[row])]
        number = int(numbers[position]) + 1
        table.append((audited.names[row], ", ".join(labels), split, number, copy))
    return pd.DataFrame(table, columns=SIMILAR_SEQUENCES.names)
