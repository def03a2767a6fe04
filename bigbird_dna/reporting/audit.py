"""Audit of a labeled data set before training: labels, copies, similar sequences, and shortcuts.

Labels are of any kind that a model can be trained on. Two classes as FASTA files are a table of labels 1 and
0. What counts as a shortcut is defined in `reporting.shortcuts`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bigbird_dna.config import LABEL_KINDS, LabelKind
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
from bigbird_dna.genome.sequence_tables import COLUMNS, SequenceTable, TableColumns
from bigbird_dna.genome.similar_groups import SIMILAR, similar_groups
from bigbird_dna.metrics.auroc import Estimate
from bigbird_dna.reporting.pages import render_page, shown_table
from bigbird_dna.reporting.sequence_metrics import REGRESSION
from bigbird_dna.reporting.shortcuts import (
    FEATURES,
    FOLDS,
    AuditedTexts,
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
    f"text label metric; estimate {' '.join(one.column for one in FEATURES)}",
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
Floats = NDArray[np.floating[Any]]
Groups = NDArray[np.int64]


class AuditedSet(NamedTuple):
    """Sequences with their labels and, if known, their splits."""

    names: list[str]
    given: AuditedTexts
    labels: Labels
    splits: NDArray[np.str_] | None  # (N,) empty: not in the table of splits
    unlabeled: int = 0  # rows that are left out, because they have no label

    @classmethod
    def of(cls, table: SequenceTable, task: LabelKind | None) -> AuditedSet:
        """Return the sequences of a table; `DataError` if there are too few of every class."""
        sequences, labels = (
            table.records.sequences,
            parse_labels(table, task, constant=True),
        )
        lower = np.array(
            [table.records.lower[name] / len(text) for name, text in sequences.items()]
        )
        splits = None
        if table.splits is not None:
            splits = np.array([table.splits.get(name, "") for name in sequences])
        found = cls(
            [*sequences],
            AuditedTexts([*sequences.values()], lower),
            labels,
            splits,
            table.unlabeled,
        )
        if labels.kind == REGRESSION:
            if len(sequences) < 2 * _LEAST:
                raise DataError(
                    f"{table.firsts[0]}: an audit needs at least {2 * _LEAST} sequences"
                )
        elif not found.usable.any():
            raise DataError(
                f"{table.firsts[0]}: an audit needs at least {_LEAST} sequences of each class"
            )
        return found

    @property
    def usable(self) -> NDArray[np.bool_]:
        """Which labels (T,) are frequent or different enough to be predicted."""
        values = self.labels.values
        if self.labels.kind == REGRESSION:
            return different(values)
        positives, known = np.nansum(values, axis=0), (~np.isnan(values)).sum(axis=0)
        return np.asarray(np.minimum(positives, known - positives) >= _LEAST)

    @property
    def columns(self) -> tuple[Sequence[str], Floats]:
        """Names (C,) and values (N, C) of labels; of both classes if there are two."""
        values = self.labels.values
        if self.labels.kind == "binary":
            return CLASSES[::-1], np.concatenate([values, 1 - values], axis=1)
        return self.labels.outputs, values

    @property
    def parts(self) -> dict[str, NDArray[np.bool_]]:
        """The sequences (N,) of each split by its name, which is empty for those without one."""
        if self.splits is None:
            return {}
        return {
            split: self.splits == split for split in sorted({*self.splits.tolist()})
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
    """Write the tables and the page of an audit to a directory; return the conclusions.

    The tables are `audit.tsv`, `labels.tsv`, `features.tsv` and `similar.tsv`; the page is `audit.html`. The
    files are as for `read_labeled_files`, and `task` as for `parse_labels`.
    """
    if task is not None:
        check_choice("--task", task, LABEL_KINDS)
    columns = TableColumns(sequence_column, tuple(label_columns), split_column)
    inputs = [*data, *(path for path in (negatives, splits) if path is not None)]
    audited = AuditedSet.of(
        read_labeled_files(data, negatives, splits, columns, task), task
    )
    groups = similar_groups(audited.given.texts, SIMILAR)
    copies = np.array(first_copies(audited.given.texts), np.int64)
    kind, usable = audited.labels.kind, audited.usable
    predicted = []
    if usable.any():
        values = audited.labels.values[:, usable]
        predicted = [*predict_from_features(audited.given, values, kind, groups, seed)]
    checks = [
        *_balance(audited),
        *_similarity(audited, groups, copies),
        *_features(audited, predicted),
    ]
    found = [
        f"{one.finding[:1].upper()}{one.finding[1:]}." for one in checks if one.finding
    ]
    conclusions = found or [
        "No copies with other labels or in several splits, and no shortcut to the labels."
    ]
    tables = {
        "audit": (pd.DataFrame(checks, columns=AUDIT.names), AUDIT),
        "labels": (_counts(audited), LABEL_COUNTS),
        "features": (_metrics(audited, predicted), FEATURE_METRICS),
        "similar": (_similar(audited, groups, copies), SIMILAR_SEQUENCES),
    }
    with into_directory(output, inputs) as files:
        for name, (table, schema) in tables.items():
            write_table(files / f"{name}.tsv", table, schema)
        text = render_page(
            "audit_page.html",
            style="run_page.css",
            title=f"Audit of {data[0].name}",
            conclusions=conclusions,
            kind=kind,
            several=len(audited.labels.outputs) > 1,
            different=DIFFERENT,
            shown={name: shown_table(files / f"{name}.tsv") for name in tables},
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
    rare = [*_missing(audited, values, _LEAST)]
    yield Check(
        "sequences",
        len(values),
        finding="; ".join(f"{one}: not evaluated" for one in rare),
    )
    if count := audited.unlabeled:
        fault = f"{count:,} {'sequence has' if count == 1 else 'sequences have'} no label: left out"
        yield Check("sequences without a label", count, finding=fault)
    missing = np.isnan(values)
    if missing.any():
        rows = int(missing.any(axis=1).sum())
        fault = (
            f"{int(missing.sum()):,} of {missing.size:,} labels are missing: ignored"
        )
        yield Check("sequences with a missing label", rows, finding=fault)
    parts = audited.parts
    for split in ("train", "test") if parts else ():
        if split not in parts:
            yield Check(
                f"sequences, {split}", 0, finding=f"no sequence is in split {split!r}"
            )
    for split, inside in parts.items():
        size, own = int(inside.sum()), values[inside]
        if split:
            faults = [f"split {split!r} has {one}" for one in _missing(audited, own, 1)]
            yield Check(f"sequences, {split}", size, finding="; ".join(faults))
        else:
            fault = f"{counted(size, 'sequence')} not in the table of splits"
            yield Check("sequences, no split", size, finding=fault)


def _missing(audited: AuditedSet, values: Floats, least: int) -> Iterator[str]:
    """Yield what labels with `values` (N, C) lack: sequences of a class, with and without it, or numbers."""
    kind, names = audited.labels.kind, np.array(audited.columns[0])
    no = "no sequence" if least == 1 else f"fewer than {least} sequences"
    if kind == REGRESSION:
        faults = {"only one value of": ~different(values)}
    else:
        of = "with" if kind == "multilabel" else "of class"
        faults = {f"{no} {of}": np.nansum(values, axis=0) < least}
    if kind == "multilabel":
        faults[f"{no} without"] = np.nansum(1 - values, axis=0) < least
    for fault, which in faults.items():
        if which.any():
            yield f"{fault} {listed([*map(repr, names[which].tolist())])}"


def _similarity(audited: AuditedSet, groups: Groups, copies: Groups) -> Iterator[Check]:
    """Yield the number of copies and of similar sequences: in total, with other labels, in several splits."""
    kind, splits = audited.labels.kind, audited.splits
    why = "one of the labels is wrong"
    if kind == REGRESSION:
        why = f"they differ by more than {DIFFERENT:g} standard deviations, which limits what can be predicted"
    kinds = (
        ("copies of another sequence", "copies of", copies),
        ("sequences similar to another one", "similar to", groups),
    )
    for what, are, ids in kinds:
        yield Check(what, int((np.bincount(ids)[ids] > 1).sum()))
        mixed, other = int(_contradicted(ids, audited.labels).sum()), OTHER[kind]
        fault = f"{mixed:,} {what}, {other}: {why}"
        wrong = mixed and ids is copies
        yield Check(f"{what}, {other}", mixed, finding=fault if wrong else "")
        if splits is None:
            continue
        several = _ranges(ids, np.unique(splits, return_inverse=True)[1]) > 0
        held_out = int((several & (splits != "train")).sum())
        fault = f"{held_out:,} held-out sequences are {are} one of another split: metrics are optimistic"
        yield Check(
            f"{what}, in another split", held_out, finding=fault if held_out else ""
        )


def _contradicted(ids: Groups, labels: Labels) -> NDArray[np.bool_]:
    """Return whether rows (N,) of a row's id have other labels, or numbers that differ by more than noise."""
    found = np.zeros(len(ids), bool)
    repeated = np.bincount(ids)[ids] > 1
    values, own = labels.values[repeated], ids[repeated]
    limits = np.zeros(values.shape[1])
    if labels.kind == REGRESSION:
        limits = DIFFERENT * np.nanstd(labels.values, axis=0)
    for column, limit in zip(values.T, limits, strict=True):
        known = ~np.isnan(column)
        rows = np.flatnonzero(repeated)[known]
        found[rows] |= _ranges(own[known], column[known]) > limit
    return found


def _ranges(ids: Groups, values: NDArray[Any]) -> Floats:
    """Return the largest minus the smallest of the values (N,) of rows of a row's id, (N,)."""
    least, most = np.full((2, int(ids.max(initial=0)) + 1), [[np.inf], [-np.inf]])
    np.minimum.at(least, ids, values)
    np.maximum.at(most, ids, values)
    found: Floats = (most - least)[ids]
    return found


def _features(
    audited: AuditedSet, predicted: Sequence[FeatureResult]
) -> Iterator[Check]:
    """Yield how well each feature alone predicts the labels."""
    kind, count = audited.labels.kind, len(audited.names)
    outputs = [
        name
        for name, good in zip(audited.labels.outputs, audited.usable, strict=True)
        if good
    ]
    several, metric = len(audited.labels.outputs) > 1, metric_of(kind)
    one, more = (
        ("label", "labels")
        if kind in ("multilabel", REGRESSION)
        else ("class", "classes")
    )
    for feature, found, shortcuts, on_average in predicted:
        text, best = f"{metric} {_shown(found.mean)}", ""
        subject = f"the {more} on average" if several else f"the {one}"
        if several and shortcuts:
            subject = f"{len(shortcuts):,} of {len(outputs):,} {more}"
            best = f", {outputs[shortcuts[0]]!r} best"
            text = f"{metric} {_shown(found.outputs[shortcuts[0]])}, mean {_shown(found.mean)}"
        fault = f"{subject} can be predicted from {feature.name} alone{best}: {text}"
        wrong = shortcuts or on_average
        name = f"mean {metric}" if several else metric
        yield Check(
            f"{feature.name} alone",
            count,
            name,
            *found.mean,
            finding=fault if wrong else "",
        )


def _shown(found: Estimate) -> str:
    return f"{found.value:.3f} [{found.low:.3f}, {found.high:.3f}]"


def _counts(audited: AuditedSet) -> pd.DataFrame:
    """Return the rows of `LABEL_COUNTS`: each label in all sequences, and in each split."""
    names, values = audited.columns
    rows = []
    for number, name in enumerate(names):
        for split, inside in {ALL: np.ones(len(values), bool), **audited.parts}.items():
            own = values[inside, number].astype(np.float64)
            own = own[~np.isnan(own)]
            if audited.labels.kind == REGRESSION and not len(own):
                numbers = [np.nan] * 8
            elif audited.labels.kind == REGRESSION:
                numbers = [
                    np.nan,
                    own.mean(),
                    own.std(),
                    *np.percentile(own, [0, 25, 50, 75, 100]),
                ]
            else:
                numbers = [own.sum(), *[np.nan] * 7]
            rows.append((name, split or NO_SPLIT, len(own), *numbers))
    return pd.DataFrame(rows, columns=LABEL_COUNTS.names)


def _metrics(audited: AuditedSet, predicted: Sequence[FeatureResult]) -> pd.DataFrame:
    """Return the rows of `FEATURE_METRICS`: each label, with the metrics of all features."""
    found = np.full((len(audited.labels.outputs), len(FEATURES), 3), np.nan)
    for number, one in enumerate(predicted):
        found[audited.usable, number] = one.found.outputs
    table = pd.DataFrame(
        found.reshape(len(found), -1), columns=FEATURE_METRICS.names[2:]
    )
    table.insert(0, "label", audited.labels.outputs)
    table.insert(1, "metric", metric_of(audited.labels.kind))
    return table


def _similar(audited: AuditedSet, groups: Groups, copies: Groups) -> pd.DataFrame:
    """Return the rows of `SIMILAR_SEQUENCES`: sequences that are similar to others, by group."""
    members = defaultdict[int, list[int]](list)
    for row, group in enumerate(groups.tolist()):
        members[group].append(row)
    names, values = audited.columns

    def label(row: int) -> str:
        if audited.labels.kind == REGRESSION:
            return ", ".join(
                f"{value:g}" for value in values[row].tolist() if value == value
            )
        return ", ".join(
            names[number] for number in np.flatnonzero(values[row] == 1).tolist()
        )

    rows = [
        (
            audited.names[row],
            label(row),
            "" if audited.splits is None else str(audited.splits[row]),
            number,
            "" if copies[row] == row else audited.names[copies[row]],
        )
        for number, group in enumerate(
            (one for one in members.values() if len(one) > 1), start=1
        )
        for row in group
    ]
    return pd.DataFrame(rows, columns=SIMILAR_SEQUENCES.names)
