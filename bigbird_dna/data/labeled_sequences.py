"""Labeled sequences for training: any kind of label, in splits that do not divide similar sequences."""

import fnmatch
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from bigbird_dna.config.promoters import is_table
from bigbird_dna.config.section import LabelKind
from bigbird_dna.console import log
from bigbird_dna.data.negatives import MAX_N
from bigbird_dna.disk.tables import missing_column
from bigbird_dna.errors import DataError, UsageError, counted
from bigbird_dna.genome.fields import check_name, quoted
from bigbird_dna.genome.sequence import fraction_n, reverse_complement
from bigbird_dna.genome.sequence_tables import (
    COLUMNS,
    TableColumns,
    check_sequence,
    read_chunks,
    read_fasta_windows,
)
from bigbird_dna.genome.similarity import SIMILAR, similar_groups
from bigbird_dna.genome.splits import SPLITS, Split

# Axes: N sequences, T outputs.

LABEL = "label"
MOST_CLASSES = 1000
_LIKELY_CLASSES = 100  # whole numbers up to here are classes, if every one occurs
_TRUTH = {"false": "0", "negative": "0", "true": "1", "positive": "1"}
_SPLITS: Mapping[str, Split] = {  # names in columns and file names of published sets
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("valid", "validation", "val", "dev"), "valid"),
    **dict.fromkeys(("test", "testing"), "test"),
}
FRACTIONS: Mapping[Split, float] = {"train": 0.8, "valid": 0.1, "test": 0.1}

Floats = npt.NDArray[np.float32]


class Labels(NamedTuple):
    """Labels of sequences: of one class or several labels of 0 and 1, one of several classes, or numbers.

    `outputs` are the names of the classes of `multiclass`, otherwise of the labels. `values` are (N, T): of
    `multiclass`, 1 for the class and 0 for all others; NaN is a missing label, only with several labels.
    """

    kind: LabelKind
    outputs: tuple[str, ...]
    values: Floats

    @property
    def classes(self) -> npt.NDArray[np.int64]:
        """The classes (N,) that splits balance, from 0; one class for several labels and for numbers."""
        if self.kind == "multiclass":
            return np.asarray(self.values.argmax(axis=1), np.int64)
        if self.kind == "binary":
            return self.values[:, 0].astype(np.int64)
        return np.zeros(len(self.values), np.int64)


class LabeledRows(NamedTuple):
    """Sequences of files with the texts of their labels."""

    rows: pd.DataFrame  # name, sequence (A C G T N), lower (number of letters), split ("": none), file, row
    labels: pd.DataFrame  # text, a column per label; NaN is missing
    unlabeled: int  # rows that were left out, because they have no label

    @property
    def has_splits(self) -> bool:
        return bool((self.rows["split"] != "").all())

    def where(self, number: int) -> str:
        """Name the file and row of a row, by its number from 0, in messages."""
        row = self.rows.iloc[number]
        return f"{row['file']}: row {row['row']:,}"


@dataclass(frozen=True, eq=False)
class LabeledSequences:
    """N sequences in A C G T N with their labels and splits, in file order."""

    names: list[str]
    sequences: list[str]
    labels: Labels
    splits: npt.NDArray[np.str_]  # (N,)
    groups: npt.NDArray[np.int64]  # (N,) number of the group of similar sequences
    unlabeled: int  # rows of the tables that were left out, because they have no label

    def rows(self, *splits: Split) -> npt.NDArray[np.intp]:
        """Return the numbers of the sequences of some splits."""
        return np.flatnonzero(np.isin(self.splits, splits))

    @cached_property
    def sha256(self) -> str:
        """Checksum of sequences, labels and splits."""
        texts = [*self.sequences, *self.labels.outputs, *self.splits.tolist()]
        content = "\n".join(texts).encode() + self.labels.values.tobytes()
        return hashlib.sha256(content).hexdigest()

    @cached_property
    def length(self) -> int | None:
        """Length of all sequences in bp; None: lengths differ."""
        lengths = set(map(len, self.sequences))
        return lengths.pop() if len(lengths) == 1 else None


def read_labeled_sequences(
    data: Sequence[Path],
    *,
    negatives: Path | None = None,
    columns: TableColumns = COLUMNS,
    task: LabelKind | None = None,
    similarity: float = SIMILAR,
    seed: int = 1,
) -> LabeledSequences:
    """Read labeled sequences (`read_labeled_files`), and divide them into splits.

    Without `task`, the kind of the labels is found from them (`parse_labels`). Sequences with more than 10 %
    N are excluded and counted. Similar sequences get the same split, unless the tables specify each row's
    split; a missing validation split is taken from the training sequences. `UsageError` for files that do not
    belong together. `DataError` for labels of another kind, and for an empty split.
    """
    table = read_labeled_files(data, negatives, columns)
    labels = parse_labels(table, task)
    usable = table.rows["sequence"].map(fraction_n).to_numpy() <= MAX_N
    if not usable.all():
        excluded = counted(int((~usable).sum()), "sequence")
        log(f"{excluded} not used: more than {MAX_N:.0%} N")

    if not usable.any():
        raise DataError(f"{data[0]}: all sequences have more than {MAX_N:.0%} N")

    rows = table.rows[usable]
    labels = labels._replace(values=labels.values[usable])
    sequences = rows["sequence"].tolist()
    log(f"comparing {len(sequences):,} sequences")
    groups = similar_groups(sequences, similarity)

    where = f"{data[0]}: by groups of similar sequences"
    if table.has_splits:
        where = f"{data[0]}: by the table's splits"
        splits = rows["split"].tolist()
        if "valid" not in splits:
            splits = take_validation(splits, groups, labels.classes, seed)
    else:
        splits = divide(groups, labels.classes, seed)

    split_of = np.array(splits)
    _check_splits(labels, split_of, where, linked=not groups.any())

    sizes = Counter(splits)
    counts = ", ".join(f"{sizes[split]:,} {split}" for split in SPLITS)
    largest = int(np.bincount(groups).max())
    log(
        f"{counts} ({where}; the largest of {int(groups.max()) + 1:,} groups has {largest:,})"
    )
    first = np.array(first_copies(sequences))
    # NaN differs from everything, so missing labels are compared with themselves.
    differing = np.abs(labels.values - labels.values[first]) > 0
    if differing.any():
        copies = counted(int(differing.any(axis=1).sum()), "sequence")
        log(f"warning: {copies} a copy of another one with another label")

    is_training = split_of == "train"
    similar = int(np.isin(groups[~is_training], groups[is_training]).sum())
    if similar:
        log(
            f"warning: {similar:,} of {int((~is_training).sum()):,} held-out sequences are similar to a training "
            "sequence: metrics are optimistic"
        )

    return LabeledSequences(
        rows["name"].tolist(), sequences, labels, split_of, groups, table.unlabeled
    )


def _check_splits(
    labels: Labels, split_of: npt.NDArray[np.str_], where: str, *, linked: bool
) -> None:
    """Raise `DataError` for an empty split, or one that lacks a class."""
    for split in SPLITS:
        values = labels.values[split_of == split]
        if not len(values):
            hint = ""
            if linked:
                hint = "; all are linked by similar ones, such as overlapping windows: give the splits"

            raise DataError(f"{where}: no sequence is in split {split!r}{hint}")

        if labels.kind == "binary":
            for label, noun in ((1, "positive"), (0, "negative")):
                if label not in values:
                    raise DataError(f"{where}: no {noun} is in split {split!r}")
        elif labels.kind == "multiclass" and split == "train":
            for name, count in zip(labels.outputs, values.sum(axis=0), strict=True):
                if not count:
                    raise DataError(
                        f"{where}: class {quoted(name)} has no training sequence"
                    )


def read_labeled_files(
    data: Sequence[Path],
    negatives: Path | None = None,
    columns: TableColumns = COLUMNS,
) -> LabeledRows:
    """Read tables, or one FASTA file of positives and one of `negatives`.

    Splits are in a column of the tables, or the names of their files. Names that are missing or repeated get
    a number. Rows without a label are left out. `UsageError` for files that do not belong together,
    `DataError` for a FASTA file without negatives.
    """
    if all(is_table(path.name) for path in data):
        if negatives is not None:
            raise UsageError(f"{data[0]} is a table, which contains the negatives")

        rows, labels = _read_tables(data, columns)
        noun = "row"
    elif len(data) > 1:
        raise UsageError(
            f"{data[1]}: give one FASTA file of positives, or several tables"
        )
    elif negatives is None:
        raise DataError(
            f"{data[0]}: FASTA records have no labels; give the negatives too, or a table"
        )
    else:
        records = []
        for path, label in ((data[0], "1"), (negatives, "0")):
            for number, (name, text) in enumerate(read_fasta_windows(path), 1):
                records.append((str(path), number, name, text, label, ""))

        names = ["file", "row", "name", "sequence", LABEL, "split"]
        rows = pd.DataFrame(records, columns=names)
        labels = rows[[LABEL]]
        noun = "record"

    unnamed = ((rows["name"] == "") | rows["name"].duplicated()).to_numpy()
    numbers = np.arange(1, len(rows) + 1).astype(str)
    numbered = rows["name"].mask(rows["name"] == "", noun) + "_" + numbers
    rows["name"] = rows["name"].mask(unnamed, numbered)
    if noun == "record" and unnamed.any():
        log(
            f"warning: {int(unnamed.sum()):,} of {len(rows):,} records have no name, or that of another one: "
            "their number is added"
        )

    sequences, lower = [], []
    cells = rows[["file", "row", "name", "sequence"]].itertuples(index=False)
    for file, number, name, text in cells:
        where = f"{file}: {noun} {number:,}"
        check_name(name, "the name", where)
        sequence = check_sequence(name, text, where)
        if sequence.fault:
            raise DataError(sequence.fault)

        sequences.append(sequence.text)
        lower.append(sequence.lower)

    rows = rows.assign(sequence=sequences, lower=lower)

    labeled = labels.notna().any(axis=1)
    if not labeled.any():
        raise DataError(f"{data[0]}: no row has a label (column {labels.columns[0]})")

    unlabeled = int((~labeled).sum())
    if unlabeled:
        log(f"warning: rows without a label are left out: {unlabeled:,}")

    labels = labels[labeled]
    if missing := int(labels.isna().to_numpy().sum()):
        log(f"warning: {missing:,} of {labels.size:,} labels are missing and ignored")

    return LabeledRows(rows[labeled], labels, unlabeled)


def _read_tables(
    paths: Sequence[Path], columns: TableColumns
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return file, row, name, sequence and split of all rows, and the texts of their labels."""
    names: dict[str, None] = {}  # of the columns of labels, in order
    parts, labels = [], []
    for path in paths:
        chunks = [*read_chunks(path)]
        if not any(map(len, chunks)):
            raise DataError(f"{path}: the table contains no rows")

        table = pd.concat(chunks, ignore_index=True)
        if not names:
            reserved = (columns.sequence, columns.split, columns.name)
            candidates = [str(name) for name in table if name not in reserved]
            usual = LABEL if LABEL in table else f"{LABEL}_[0-9]*"
            for name in columns.labels or (usual,):
                matches = fnmatch.filter(candidates, name)
                names |= dict.fromkeys([name] if name in table else matches or [name])

        options = {columns.sequence: "--sequence-column"}
        options |= dict.fromkeys(names, "--label-column")
        for column, option in options.items():
            if column not in table:
                raise missing_column(path, column, [*table], option)

        part = pd.DataFrame({"file": str(path), "row": table.index + 1})
        part["sequence"] = table[columns.sequence].fillna("").str.strip()
        part["name"] = ""
        if columns.name in table:
            part["name"] = table[columns.name].fillna("")

        if columns.split in table:
            part["split"] = table[columns.split].str.lower().map(_SPLITS)
            bad = part["split"].isna().to_numpy()
            if bad.any():
                row = int(bad.argmax())
                text = quoted(str(table[columns.split].iloc[row]))
                raise DataError(
                    f"{path}: row {row + 1:,}: {text} is not a split: train, valid or test"
                )
        else:
            words = re.split(r"[^a-z]+", path.name.lower())
            splits = {_SPLITS[word] for word in words if word in _SPLITS}
            part["split"] = splits.pop() if len(splits) == 1 else ""

        parts.append(part)
        labels.append(table[[*names]].apply(lambda column: column.str.strip()))

    rows = pd.concat(parts, ignore_index=True)
    if rows["split"].nunique() > 1 and (rows["split"] == "").any():
        raise DataError(
            f"{paths[0]}: some rows or files have a split, others have none"
        )

    texts = pd.concat(labels, ignore_index=True)
    return rows, texts.replace(["", ".", "?"], np.nan)


def parse_labels(table: LabeledRows, task: LabelKind | None = None) -> Labels:
    """Return the labels of rows, and log their kind.

    Without `task`: several columns are `multilabel` if they contain only 0 and 1, otherwise `regression`. One
    column is `binary` if it contains only 0 and 1, false and true, or negative and positive; `multiclass` if
    it contains text, two other values, or all whole numbers from 0 or 1 up to at most 100; otherwise
    `regression`. Columns with the same label in all rows are left out. `DataError` names the row of a
    label of another kind, and without `task` of -1 among whole numbers from 0 or 1, which may stand for a
    missing label; it is also raised if all columns are left out.
    """
    texts = table.labels
    columns = [*texts]
    numbers = texts.apply(
        lambda column: pd.to_numeric(
            column.str.lower().replace(_TRUTH), errors="coerce"
        )
    )
    values = numbers.to_numpy(np.float64)
    known = texts.notna().to_numpy()
    unfit = known & ~np.isfinite(values)  # no number
    not_binary = known & ~np.isin(values, (0, 1))
    distinct = np.unique(values[known & ~unfit])
    natural = distinct[distinct != -1]
    first = natural[0] if len(natural) else -1
    are_numbered = (
        first in (0, 1)
        and len(natural) <= _LIKELY_CLASSES
        and np.array_equal(natural, np.arange(first, first + len(natural)))
    )
    has_signs = distinct.tolist() == [-1, 1]

    if task is not None:
        kind = task
    elif not not_binary.any():
        kind = "binary" if len(columns) == 1 else "multilabel"
    elif unfit.any():
        kind = "multiclass" if len(columns) == 1 else "regression"
    elif are_numbered and -1 in distinct and not has_signs:
        row, number = np.argwhere(values == -1)[0].tolist()
        raise DataError(
            f"{table.where(row)}: {columns[number]} -1 among labels from {first:.0f}: leave the cell empty if "
            "the label is unknown; if -1 is a class or a number, give --task multiclass or --task regression"
        )
    elif len(columns) > 1:
        kind = "regression"
    else:
        two = texts[columns[0]].nunique() == 2
        kind = "multiclass" if two or are_numbered else "regression"

    if kind in ("binary", "multiclass") and len(columns) > 1:
        raise DataError(
            f"{table.where(0)}: task {kind} needs one column of labels, not {len(columns)}"
        )

    what = "classes"
    if kind == "multiclass":
        column = texts[columns[0]]
        if not unfit.any() and np.array_equal(distinct, distinct.round()):
            # pandas writes whole numbers as 0.0 if one is missing.
            column = numbers[columns[0]].astype(int).astype(str)

        names = sorted(column.unique(), key=_by_number)
        if not 2 <= len(names) <= MOST_CLASSES:
            raise DataError(
                f"{table.rows['file'].iloc[0]}: task multiclass needs 2 to {MOST_CLASSES:,} classes; column "
                f"{columns[0]!r} has {len(names):,}"
            )

        codes = pd.Categorical(column, categories=names).codes
        labels = Labels(kind, tuple(names), np.eye(len(names), dtype=np.float32)[codes])
    else:
        bad = np.argwhere(unfit if kind == "regression" else not_binary)
        if len(bad):
            row, number = bad[0].tolist()
            expected = "a number" if kind == "regression" else "0 or 1"
            raise DataError(
                f"{table.where(row)}: {columns[number]} {quoted(str(texts.iloc[row, number]))} is not {expected}, "
                f"which task {kind} needs"
            )

        values = values.astype(np.float32)
        varied = different(values)
        if not varied.any():
            raise DataError(
                f"{table.where(0)}: all {len(values):,} rows have the same label {quoted(str(texts.iloc[0, 0]))}"
            )

        if not varied.all():
            same = counted(int((~varied).sum()), "column")
            log(
                f"warning: {same} left out, without different labels: {texts.columns[~varied][0]} …"
            )

        labels = Labels(kind, tuple(texts.columns[varied]), values[:, varied])
        what = "label" if len(labels.outputs) == 1 else "labels"

    for name in labels.outputs:
        check_name(name, "the name of a class or label", table.where(0))

    listing = ", ".join(labels.outputs[:5]) + (", …" if len(labels.outputs) > 5 else "")
    log(f"task: {kind} ({len(labels.outputs):,} {what}: {listing})")
    return labels


def _by_number(text: str) -> tuple[bool, float, str]:
    """Return the key by which classes are sorted: numbers by value, then other texts."""
    try:
        return False, float(text), text
    except ValueError:
        return True, 0.0, text


def different(values: Floats) -> npt.NDArray[np.bool_]:
    """Return which columns (T,) of labels (N, T) have different ones; NaN are missing."""
    return (pd.DataFrame(values).nunique() > 1).to_numpy()


def first_copies(sequences: Iterable[str]) -> list[int]:
    """Return the number of the first sequence that is the same as each one, on either strand."""
    first: dict[str, int] = {}
    keys = (min(sequence, reverse_complement(sequence)) for sequence in sequences)
    return [first.setdefault(key, row) for row, key in enumerate(keys)]


def divide(
    groups: npt.NDArray[np.int64], classes: npt.NDArray[np.int64], seed: int
) -> list[Split]:
    """Return a split for each sequence (N,): about 80, 10 and 10 % of each class; groups are never divided.

    `classes` (N,) count from 0. Groups are assigned from the largest to the smallest, each to the split that
    lacks most of its quota; so large groups are used for training. Equal input and seed give equal splits.
    """
    members = np.zeros((int(groups.max()) + 1, int(classes.max()) + 1), np.int64)
    np.add.at(members, (groups, classes), 1)  # of a group and class
    shuffled = np.random.default_rng((seed, 6)).permutation(len(members))
    order = shuffled[np.argsort(-members.sum(axis=1)[shuffled], kind="stable")]
    totals = np.maximum(members.sum(axis=0), 1)
    missing = {split: fraction * totals for split, fraction in FRACTIONS.items()}
    split_of: list[Split] = ["train"] * len(members)
    for group in order.tolist():
        sizes = members[group]
        lacks = {}
        for split, quota in missing.items():
            lacks[split] = float((sizes * np.maximum(quota, 0) / totals).sum())

        best = max(FRACTIONS, key=lacks.__getitem__)
        split_of[group] = best
        missing[best] = missing[best] - sizes

    return [split_of[group] for group in groups.tolist()]


def take_validation(
    splits: list[Split],
    groups: npt.NDArray[np.int64],
    classes: npt.NDArray[np.int64],
    seed: int,
) -> list[Split]:
    """Return splits in which a tenth of the training sequences is for validation; see `divide`."""
    rows = np.flatnonzero(np.array(splits) == "train")
    if not len(rows):
        return splits

    again = np.array(divide(pd.factorize(groups[rows])[0], classes[rows], seed))
    held_out = rows[again == "valid"].tolist()
    log(
        f"no sequence is for validation: {len(held_out):,} of {len(rows):,} training sequences are used"
    )
    splits = [*splits]
    for row in held_out:
        splits[row] = "valid"

    return splits
