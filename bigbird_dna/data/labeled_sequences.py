"""Labeled sequences for training: any kind of label, in splits that do not divide similar sequences."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from bigbird_dna.config.promoters import is_table
from bigbird_dna.config.section import LabelKind
from bigbird_dna.console import log
from bigbird_dna.data.negatives import MAX_N
from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.genome.fields import (
    RecordNames,
    check_name,
    decimal,
    quoted,
    whole_number,
)
from bigbird_dna.genome.records import (
    check_names,
    check_splits,
    counted,
    divide,
    first_copies,
    look_up,
    read_records,
    read_splits,
    with_validation,
)
from bigbird_dna.genome.sequence import fraction_n
from bigbird_dna.genome.sequence_tables import (
    CLASSES,
    COLUMNS,
    LABEL,
    SequenceTable,
    TableColumns,
    class_of,
    read_tables,
    with_known_labels,
)
from bigbird_dna.genome.similarity import SIMILAR, similar_groups
from bigbird_dna.genome.splits import Split

# Axes: N sequences, T outputs.

MOST_CLASSES = 1000
_LIKELY_CLASSES = 100  # whole numbers up to here are classes, if every one occurs

Floats = npt.NDArray[np.float32]


class Labels(NamedTuple):
    """Labels of sequences: of one class or several labels of 0 and 1, one of several classes, or numbers."""

    kind: LabelKind
    outputs: tuple[
        str, ...
    ]  # names of the classes of `multiclass`, otherwise of the labels
    # (N, T); of `multiclass`, 1 for the class and 0 for all others; NaN: missing, only with several labels
    values: Floats

    @property
    def classes(self) -> npt.NDArray[np.int64]:
        """The classes (N,) that splits balance, from 0; one class for several labels and for numbers."""
        if self.kind == "multiclass":
            return np.asarray(self.values.argmax(axis=1), np.int64)
        values = (
            self.values[:, 0] if self.kind == "binary" else np.zeros(len(self.values))
        )
        return values.astype(np.int64)


@dataclass(frozen=True, eq=False)
class LabeledSequences:
    """N sequences in A C G T N with their labels and splits, in file order."""

    names: list[str]
    sequences: list[str]
    labels: Labels
    splits: npt.NDArray[np.str_]  # (N,)
    groups: npt.NDArray[np.int64]  # (N,) number of the group of similar sequences
    unlabeled: int = (
        0  # rows of the tables that were left out, because they have no label
    )

    def rows(self, *splits: Split) -> npt.NDArray[np.intp]:
        """Return the numbers of the sequences of some splits."""
        return np.flatnonzero(np.isin(self.splits, splits))

    @cached_property
    def sha256(self) -> str:
        """Checksum of sequences, labels and splits."""
        texts = "\n".join(
            [*self.sequences, *self.labels.outputs, *self.splits.tolist()]
        )
        return hashlib.sha256(texts.encode() + self.labels.values.tobytes()).hexdigest()

    @cached_property
    def length(self) -> int | None:
        """Length of all sequences in bp; None: lengths differ."""
        lengths = {*map(len, self.sequences)}
        return lengths.pop() if len(lengths) == 1 else None


def read_labeled_sequences(
    data: Sequence[Path],
    *,
    negatives: Path | None = None,
    splits: Path | None = None,
    columns: TableColumns = COLUMNS,
    task: LabelKind | None = None,
    similarity: float = SIMILAR,
    seed: int = 1,
) -> LabeledSequences:
    """Read labeled sequences (`read_labeled_files`), and divide them into splits.

    Without `task`, the kind of the labels is found from them (`parse_labels`). Sequences with more than 10 %
    N are excluded and counted. Similar sequences get the same split, unless the tables, or a table `splits`,
    specify each record's split; a missing validation split is taken from the training sequences. `UsageError`
    for files that do not belong together. `DataError` for labels of another kind, and for an empty split.
    """
    table = read_labeled_files(data, negatives, splits, columns, task)
    where = f"{data[0]}: by {'groups of similar sequences' if table.splits is None else 'the given splits'}"
    labels, sequences = parse_labels(table, task), table.records.sequences
    kept = np.array([fraction_n(text) <= MAX_N for text in sequences.values()], bool)
    if not kept.all():
        log(
            f"{counted(int((~kept).sum()), 'sequence')} not used: more than {MAX_N:.0%} N"
        )
    if not kept.any():
        raise DataError(f"{data[0]}: all sequences have more than {MAX_N:.0%} N")
    names = [name for name, good in zip(sequences, kept, strict=True) if good]
    texts = [sequences[name] for name in names]
    labels = labels._replace(values=labels.values[kept])
    log(f"comparing {len(names):,} sequences")
    groups = similar_groups(texts, similarity)
    if table.splits is None:
        chosen = divide(groups, labels.classes, seed)
    else:
        used = {*names}
        given = {name: split for name, split in table.splits.items() if name in used}
        chosen = with_validation(
            look_up(names, given, where), groups, labels.classes, seed
        )
    found = LabeledSequences(
        names, texts, labels, np.array(chosen), groups, table.unlabeled
    )
    _check(found, where)
    return found


def read_labeled_files(
    data: Sequence[Path],
    negatives: Path | None = None,
    splits: Path | None = None,
    columns: TableColumns = COLUMNS,
    task: LabelKind | None = None,
) -> SequenceTable:
    """Read tables (`read_tables`), or FASTA files of positives and `negatives` as the rows of a table.

    Rows without a label are left out, and further missing labels are "" (`with_known_labels`). `splits` is a
    table of splits of FASTA records. `UsageError` for files that do not belong together, `DataError` for a
    FASTA file without negatives.
    """
    if all(is_table(path.name) for path in data):
        if negatives is not None or splits is not None:
            raise UsageError(
                f"{data[0]} is a table, which contains the negatives and the splits"
            )
        return with_known_labels(read_tables(data, columns), task)
    if len(data) > 1:
        raise UsageError(
            f"{data[1]}: give one FASTA file of positives, or several tables"
        )
    if negatives is None:
        raise DataError(
            f"{data[0]}: FASTA records have no labels; give the negatives too, or a table"
        )
    # A table of splits refers to names, so they must be unique.
    names = RecordNames() if splits is None else None
    records, others = read_records(data[0], names), read_records(negatives, names)
    if names is None:
        check_names(records, others)
    elif names.changed:
        log(
            f"warning: {len(names.changed):,} of {len(names.used):,} records have no name, or that of another "
            f"one: their number is added, as in {names.changed[-1]!r}"
        )
    labels: list[tuple[str, ...]] = [("1",)] * len(records.sequences)
    labels += [("0",)] * len(others.sequences)
    records.sequences.update(others.sequences)
    records.lower.update(others.lower)
    split_of = None if splits is None else read_splits(splits)
    return SequenceTable(records, (LABEL,), labels, split_of, {0: data[0]})


def parse_labels(
    table: SequenceTable, task: LabelKind | None = None, *, constant: bool = False
) -> Labels:
    """Return the labels of a table, and log their kind.

    Without `task`: several columns are `multilabel` if they contain only 0 and 1, otherwise `regression`. One
    column is `binary` if it contains only 0 and 1, false and true, or negative and positive; `multiclass` if
    it contains text, two other values, or all whole numbers from 0 or 1 up to at most 100; otherwise
    `regression`. Columns with the same label in all rows are left out, unless `constant`. `DataError` names
    the row of a label of another kind, of -1 among such whole numbers, which may be a missing label, and of a
    number with a decimal comma; it is also raised if all columns are left out.
    """
    kind = task or _infer(table)
    if kind in ("binary", "multiclass") and len(table.columns) > 1:
        raise DataError(
            f"{table.where(0)}: task {kind} needs one column of labels, not {len(table.columns)}"
        )
    labels = (
        _classes(table) if kind == "multiclass" else _numbers(table, kind, constant)
    )
    for name in labels.outputs:
        check_name(name, "the name of a class or label", table.where(0))
    what = (
        "classes"
        if kind == "multiclass"
        else "label"
        if len(labels.outputs) == 1
        else "labels"
    )
    names = ", ".join(labels.outputs[:5]) + (", …" if len(labels.outputs) > 5 else "")
    log(f"task: {kind} ({len(labels.outputs):,} {what}: {names})")
    return labels


def _infer(table: SequenceTable) -> LabelKind:
    values = [{*column} - {""} for column in zip(*table.labels, strict=True)]
    if all(value.lower() in CLASSES for column in values for value in column):
        return "binary" if len(values) == 1 else "multilabel"
    if len(values) > 1:
        return "regression"
    (texts,) = values
    if "-1" in texts and (
        texts == {"-1", "0"} or (len(texts) > 2 and _are_classes(texts - {"-1"}))
    ):
        raise DataError(
            f"{table.where(table.labels.index(('-1',)))}: label '-1' among labels from 0: leave the cell "
            "empty if the label is unknown; if -1 is a class or a number, give --task multiclass or "
            "--task regression"
        )
    if len(texts) == 2 or _are_classes(texts):
        return "multiclass"
    for number, (text,) in enumerate(table.labels):
        if (
            "," in text
            and decimal(text) is None
            and decimal(text.replace(",", ".")) is not None
        ):
            raise DataError(
                f"{table.where(number)}: label {quoted(text)} has a decimal comma; write numbers with a point"
            )
    return (
        "multiclass" if any(decimal(text) is None for text in texts) else "regression"
    )


def _are_classes(texts: set[str]) -> bool:
    """Whether labels are all whole numbers from 0 or 1 up to at most 100."""
    whole = sorted(
        -1 if (number := whole_number(text)) is None else number for text in texts
    )
    return (
        whole[0] in (0, 1)
        and whole == [*range(whole[0], whole[0] + len(whole))]
        and len(whole) <= _LIKELY_CLASSES
    )


def _classes(table: SequenceTable) -> Labels:
    texts = [label for (label,) in table.labels]
    names = sorted(
        {*texts}, key=lambda text: (decimal(text) is None, decimal(text) or 0.0, text)
    )
    if not 2 <= len(names) <= MOST_CLASSES:
        raise DataError(
            f"{table.firsts[0]}: task multiclass needs 2 to {MOST_CLASSES:,} classes; column "
            f"{table.columns[0]!r} has {len(names):,}"
        )
    numbers = {name: number for number, name in enumerate(names)}
    rows = np.array([numbers[text] for text in texts])
    return Labels(
        "multiclass", tuple(names), np.eye(len(names), dtype=np.float32)[rows]
    )


def different(values: Floats) -> npt.NDArray[np.bool_]:
    """Return which columns (T,) of labels (N, T) have different ones; NaN are missing."""
    known = ~np.isnan(values)
    lowest = np.where(known, values, np.inf).min(axis=0)
    return np.asarray(np.where(known, values, -np.inf).max(axis=0) > lowest)


def _numbers(table: SequenceTable, kind: LabelKind, constant: bool) -> Labels:
    """Return labels of 0 and 1, or numbers; columns with the same label in all rows only if `constant`."""

    def read(text: str, number: int, column: str) -> float:
        if not text:
            return np.nan
        if kind != "regression":
            return float(class_of(text, table.where(number)))
        value = decimal(text)
        if value is None:
            raise DataError(
                f"{table.where(number)}: {column} {quoted(text)} is not a number, which task regression needs"
            )
        return value

    rows = [
        [
            read(text, number, column)
            for text, column in zip(labels, table.columns, strict=True)
        ]
        for number, labels in enumerate(table.labels)
    ]
    values = np.array(rows, np.float32)
    varied = (
        np.asarray((~np.isnan(values)).any(axis=0)) if constant else different(values)
    )
    same = [
        column for column, good in zip(table.columns, varied, strict=True) if not good
    ]
    if len(same) == len(table.columns):
        first = next(filter(None, table.labels[0]))
        raise DataError(
            f"{table.where(0)}: all {len(rows):,} rows have the same label {quoted(first)}"
        )
    if same:
        log(
            f"warning: {counted(len(same), 'column')} left out, without different labels: {same[0]} …"
        )
    kept = tuple(
        column for column, good in zip(table.columns, varied, strict=True) if good
    )
    return Labels(kind, kept, values[:, varied])


def _check(found: LabeledSequences, where: str) -> None:
    """`DataError` for an empty split, or a class without training sequences; log the splits, and copies with
    other labels and in other splits."""
    sizes, labels = Counter(found.splits.tolist()), found.labels
    for split in get_args(Split):
        if not sizes[split]:
            one = "; all are linked by similar ones, such as overlapping windows: give the splits"
            raise DataError(
                f"{where}: no sequence is in split {split!r}{'' if found.groups.any() else one}"
            )
    if labels.kind == "binary":
        check_splits(found.splits.tolist(), labels.values[:, 0] == 1, where)
    elif labels.kind == "multiclass":
        trained = labels.values[found.rows("train")].sum(axis=0)
        for name, count in zip(labels.outputs, trained, strict=True):
            if not count:
                raise DataError(
                    f"{where}: class {quoted(name)} has no training sequence"
                )
    largest = int(np.bincount(found.groups).max())
    shares = ", ".join(f"{sizes[split]:,} {split}" for split in get_args(Split))
    log(
        f"{shares} ({where}; the largest of {int(found.groups.max()) + 1:,} groups has {largest:,})"
    )
    first = np.array(first_copies(found.sequences))
    both = ~np.isnan(labels.values) & ~np.isnan(labels.values[first])
    if other := int(((labels.values != labels.values[first]) & both).any(axis=1).sum()):
        log(
            f"warning: {counted(other, 'sequence')} a copy of another one with another label"
        )
    training = found.groups[found.splits == "train"]
    held_out = found.groups[found.splits != "train"]
    if like := int(np.isin(held_out, training).sum()):
        log(
            f"warning: {like:,} of {sizes['valid'] + sizes['test']:,} held-out sequences are similar to a "
            "training sequence: metrics are optimistic"
        )
