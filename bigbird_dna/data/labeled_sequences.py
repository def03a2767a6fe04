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
from bigbird_dna.disk.atomic import reading
from bigbird_dna.disk.compression import open_bytes
from bigbird_dna.disk.tables import missing_column
from bigbird_dna.errors import DataError, UsageError, counted, listed
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
_CLASSES = {"0": 0.0, "0.0": 0.0, "false": 0.0, "negative": 0.0}
_CLASSES |= {"1": 1.0, "1.0": 1.0, "true": 1.0, "positive": 1.0}
_MISSING = ("", "na", "n/a", "#n/a", "nan", "<na>", "null", "none", ".", "-", "?")
"""Texts that stand for a missing label, in lower case; `_known_labels` has the exceptions."""
_SPLITS: Mapping[str, Split] = {  # names in columns and file names of published sets
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("valid", "validation", "val", "dev"), "valid"),
    **dict.fromkeys(("test", "testing"), "test"),
}
FRACTIONS: Mapping[Split, float] = {"train": 0.8, "valid": 0.1, "test": 0.1}

Floats = npt.NDArray[np.float32]
Classes = npt.NDArray[np.integer] | npt.NDArray[np.bool_]


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


class LabeledRows(NamedTuple):
    """Sequences of files with the texts of their labels."""

    rows: pd.DataFrame  # name, sequence (A C G T N), lower (number of letters), split ("": none), file, row
    labels: pd.DataFrame  # a column per label; "" is missing
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
    has_splits = table.has_splits
    where = f"{data[0]}: by {'the given splits' if has_splits else 'groups of similar sequences'}"
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
    if has_splits:
        chosen = with_validation(rows["split"].tolist(), groups, labels.classes, seed)
    else:
        chosen = divide(groups, labels.classes, seed)

    sizes = Counter(chosen)
    for split in SPLITS:
        if not sizes[split]:
            hint = ""
            if not groups.any():
                hint = "; all are linked by similar ones, such as overlapping windows: give the splits"
            raise DataError(f"{where}: no sequence is in split {split!r}{hint}")
        members = labels.values[np.array(chosen) == split]
        if labels.kind == "binary":
            for label, noun in ((1, "positive"), (0, "negative")):
                if label not in members:
                    raise DataError(f"{where}: no {noun} is in split {split!r}")
        elif labels.kind == "multiclass" and split == "train":
            for name, count in zip(labels.outputs, members.sum(axis=0), strict=True):
                if not count:
                    raise DataError(
                        f"{where}: class {quoted(name)} has no training sequence"
                    )
    largest = int(np.bincount(groups).max())
    counts = ", ".join(f"{sizes[split]:,} {split}" for split in SPLITS)
    log(
        f"{counts} ({where}; the largest of {int(groups.max()) + 1:,} groups has {largest:,})"
    )
    first = np.array(first_copies(sequences))
    both = ~np.isnan(labels.values) & ~np.isnan(labels.values[first])
    differing = ((labels.values != labels.values[first]) & both).any(axis=1)
    if differing.any():
        copies = counted(int(differing.sum()), "sequence")
        log(f"warning: {copies} a copy of another one with another label")
    is_training = np.array(chosen) == "train"
    similar = int(np.isin(groups[~is_training], groups[is_training]).sum())
    if similar:
        log(
            f"warning: {similar:,} of {sizes['valid'] + sizes['test']:,} held-out sequences are similar to a "
            "training sequence: metrics are optimistic"
        )
    return LabeledSequences(
        rows["name"].tolist(),
        sequences,
        labels,
        np.array(chosen),
        groups,
        table.unlabeled,
    )


def read_labeled_files(
    data: Sequence[Path],
    negatives: Path | None = None,
    splits: Path | None = None,
    columns: TableColumns = COLUMNS,
    task: LabelKind | None = None,
) -> LabeledRows:
    """Read tables, or FASTA files of positives and `negatives`.

    Names that are missing or repeated get a number. Rows without a label are left out, and further missing
    labels are "". `splits` is a table of splits of FASTA records. `UsageError` for files that do not belong
    together, `DataError` for a FASTA file without negatives.
    """
    if all(is_table(path.name) for path in data):
        if negatives is not None or splits is not None:
            raise UsageError(
                f"{data[0]} is a table, which contains the negatives and the splits"
            )
        return _read_tables(data, columns, task)
    if len(data) > 1:
        raise UsageError(
            f"{data[1]}: give one FASTA file of positives, or several tables"
        )
    if negatives is None:
        raise DataError(
            f"{data[0]}: FASTA records have no labels; give the negatives too, or a table"
        )
    rows = []
    for path, label in ((data[0], "1"), (negatives, "0")):
        for number, (name, text) in enumerate(read_fasta_windows(path), 1):
            rows.append((str(path), number, name, text, label))
    frame = pd.DataFrame(rows, columns=["file", "row", "name", "sequence", LABEL])
    frame["split"] = ""
    if splits is not None:
        # A table of splits refers to names, so they must be unique.
        repeated = frame["name"].duplicated()
        if repeated.any():
            name = frame["name"][repeated].iloc[0]
            raise DataError(
                f"{data[0]}: duplicate record {name!r}, here or in {negatives}: splits are given by names"
            )
        frame["split"] = look_up(
            frame["name"].tolist(), read_splits(splits), str(splits)
        )
    return LabeledRows(_checked_rows(frame, "record"), frame[[LABEL]], 0)


def _read_tables(
    paths: Sequence[Path], columns: TableColumns, task: LabelKind | None
) -> LabeledRows:
    labels: tuple[str, ...] = ()
    parts = []
    texts = []
    for path in paths:
        chunks = [*read_chunks(path)]
        if not chunks:
            raise DataError(f"{path}: the table contains no rows")
        table = pd.concat(chunks, ignore_index=True)
        labels = labels or _label_columns([*table], columns)
        options = {columns.sequence: "--sequence-column"}
        options |= dict.fromkeys(labels, "--label-column")
        for column, option in options.items():
            if column not in table:
                raise missing_column(path, column, [*table], option)
        part = pd.DataFrame({"sequence": table[columns.sequence].str.strip()})
        part["file"] = str(path)
        part["row"] = np.arange(1, len(part) + 1)
        part["name"] = table.get(columns.name, "")
        if columns.split in table:
            part["split"] = table[columns.split].str.lower().map(_SPLITS)
            bad = part["split"].isna().to_numpy()
            if bad.any():
                row = int(bad.argmax())
                text = quoted(table[columns.split].iloc[row])
                raise DataError(
                    f"{path}: row {row + 1:,}: {text} is not a split: train, valid or test"
                )
        else:
            words = re.split(r"[^a-z]+", path.name.lower())
            names = {_SPLITS[word] for word in words if word in _SPLITS}
            part["split"] = names.pop() if len(names) == 1 else ""
        parts.append(part)
        texts.append(table[[*labels]].apply(lambda column: column.str.strip()))
    rows = pd.concat(parts, ignore_index=True)
    texts_of = pd.concat(texts, ignore_index=True)
    if rows["split"].nunique() > 1 and (rows["split"] == "").any():
        raise DataError(
            f"{paths[0]}: some rows or files have a split, others have none"
        )
    rows = _checked_rows(rows, "row")

    known = texts_of.apply(_known_labels)
    values = {*np.unique(known.to_numpy(str))} - {""}
    classes = {_CLASSES.get(text.lower()) for text in values}
    if task == "multilabel" or (
        task is None
        and len(labels) > 1
        and classes - {None} == {0, 1}
        and all(text == "-1" or text.lower() in _CLASSES for text in values)
    ):
        known = known.mask(known == "-1", "")
    labeled = (known != "").any(axis=1)
    if not labeled.any():
        raise DataError(
            f"{paths[0]}: no row has a label (column {', '.join(labels[:5])})"
        )
    unlabeled = int((~labeled).sum())
    if unlabeled:
        log(f"warning: rows without a label are left out: {unlabeled:,}")
    known = known[labeled]
    if missing := int((known == "").to_numpy().sum()):
        log(f"warning: {missing:,} of {known.size:,} labels are missing and ignored")
    return LabeledRows(rows[labeled], known, unlabeled)


def _checked_rows(rows: pd.DataFrame, noun: str) -> pd.DataFrame:
    """Return rows with unique names, sequences in A C G T N and their number of lower-case letters."""
    names: dict[str, None] = {}
    changed = 0
    sequences, lower = [], []
    for file, row, name, text in rows[["file", "row", "name", "sequence"]].itertuples(
        index=False
    ):
        where = f"{file}: {noun} {row:,}"
        new, number = check_name(name, "the name", where), len(names) + 1
        while not new or new in names:
            new = f"{name or noun}_{number}"
            number += 1
        changed += new != name
        names[new] = None
        sequence = check_sequence(new, text, where)
        if sequence.fault:
            raise DataError(sequence.fault)
        sequences.append(sequence.text)
        lower.append(sequence.lower)
    if changed and noun == "record":
        log(
            f"warning: {changed:,} of {len(rows):,} records have no name, or that of another one: their number "
            "is added"
        )
    return rows.assign(name=[*names], sequence=sequences, lower=lower)


def _label_columns(header: Sequence[str], columns: TableColumns) -> tuple[str, ...]:
    """Return the columns of labels of a table: by their names or patterns, or the usual ones without any."""
    if not columns.labels:
        several = tuple(
            column for column in header if re.fullmatch(r"label_\d+", column)
        )
        return several if several and LABEL not in header else (LABEL,)
    reserved = (columns.sequence, columns.split, columns.name)
    candidates = [name for name in header if name not in reserved]
    labels: dict[str, None] = {}  # in order, without repetition
    for name in columns.labels:
        matches = [] if name in header else fnmatch.filter(candidates, name)
        labels.update(dict.fromkeys(matches or [name]))
    return tuple(labels)


def _known_labels(texts: pd.Series) -> pd.Series:
    """Return the labels of a column, with "" for missing ones, and whole numbers without decimals.

    A label is missing if its text is in `_MISSING`, in upper or lower case, with two exceptions: "-" is a
    class where "+" is another one, and "none" in lower case is a class among names. Whole numbers written as
    0.0 and 1.0, as by pandas in a column with missing values, become 0 and 1.
    """
    missing = texts.str.lower().isin(_MISSING)
    if (texts == "+").any():
        missing &= texts != "-"
    known = texts[~missing]
    is_number = pd.to_numeric(known, errors="coerce").notna()
    if not (is_number | known.str.lower().isin(_CLASSES)).all():
        missing &= texts != "none"
    texts = texts.mask(missing, "")
    if texts[~missing].str.fullmatch(r"[+-]?\d+(\.0*)?").all():
        texts = texts.str.replace(r"\.0*$", "", regex=True)
    return texts


def parse_labels(table: LabeledRows, task: LabelKind | None = None) -> Labels:
    """Return the labels of rows, and log their kind.

    Without `task`: several columns are `multilabel` if they contain only 0 and 1, otherwise `regression`. One
    column is `binary` if it contains only 0 and 1, false and true, or negative and positive; `multiclass` if
    it contains text, two other values, or all whole numbers from 0 or 1 up to at most 100; otherwise
    `regression`. Columns with the same label in all rows are left out. `DataError` names the row of a label of another kind, of -1 among such whole numbers, which may be a missing label, and of a
    number with a decimal comma; it is also raised if all columns are left out.
    """
    kind = task or _infer(table)
    columns = [*table.labels]
    if kind in ("binary", "multiclass") and len(columns) > 1:
        raise DataError(
            f"{table.where(0)}: task {kind} needs one column of labels, not {len(columns)}"
        )
    if kind == "multiclass":
        texts = table.labels[columns[0]]
        names = sorted(
            texts.unique(),
            key=lambda text: (_number(text) is None, _number(text) or 0.0, text),
        )
        if not 2 <= len(names) <= MOST_CLASSES:
            raise DataError(
                f"{table.rows['file'].iloc[0]}: task multiclass needs 2 to {MOST_CLASSES:,} classes; column "
                f"{columns[0]!r} has {len(names):,}"
            )
        codes = pd.Categorical(texts, categories=names).codes
        labels = Labels(kind, tuple(names), np.eye(len(names), dtype=np.float32)[codes])
        what = "classes"
    else:
        labels = _numbers(table, kind)
        what = "label" if len(labels.outputs) == 1 else "labels"
    for name in labels.outputs:
        check_name(name, "the name of a class or label", table.where(0))
    names_text = ", ".join(labels.outputs[:5]) + (
        ", …" if len(labels.outputs) > 5 else ""
    )
    log(f"task: {kind} ({len(labels.outputs):,} {what}: {names_text})")
    return labels


def _infer(table: LabeledRows) -> LabelKind:
    values = {*np.unique(table.labels.to_numpy(str))} - {""}
    several = table.labels.shape[1] > 1
    if all(text.lower() in _CLASSES for text in values):
        return "multilabel" if several else "binary"
    if several:
        return "regression"
    column = table.labels.iloc[:, 0]
    if "-1" in values and (
        values == {"-1", "0"} or (len(values) > 2 and _are_classes(values - {"-1"}))
    ):
        row = int((column == "-1").to_numpy().argmax())
        raise DataError(
            f"{table.where(row)}: label '-1' among labels from 0: leave the cell empty if the label is "
            "unknown; if -1 is a class or a number, give --task multiclass or --task regression"
        )
    if len(values) == 2 or _are_classes(values):
        return "multiclass"
    for row, text in enumerate(column):
        if _number(text) is None and _number(text.replace(",", ".")) is not None:
            raise DataError(
                f"{table.where(row)}: label {quoted(text)} has a decimal comma; write numbers with a point"
            )
    return (
        "multiclass" if any(_number(text) is None for text in values) else "regression"
    )


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if np.isfinite(value) else None


def _are_classes(texts: set[str]) -> bool:
    """Whether labels are all whole numbers from 0 or 1 up to at most 100."""
    if not all(text.isdecimal() for text in texts):
        return False
    numbers = sorted(map(int, texts))
    first = numbers[0]
    return (
        first in (0, 1)
        and numbers == [*range(first, first + len(numbers))]
        and len(numbers) <= _LIKELY_CLASSES
    )


def different(values: Floats) -> npt.NDArray[np.bool_]:
    """Return which columns (T,) of labels (N, T) have different ones; NaN are missing."""
    return (pd.DataFrame(values).nunique() > 1).to_numpy()


def _numbers(table: LabeledRows, kind: LabelKind) -> Labels:
    """Return labels of 0 and 1, or numbers, without the columns with the same label in all rows."""
    texts = table.labels
    if kind == "regression":
        values = texts.apply(pd.to_numeric, errors="coerce").to_numpy(np.float64)
        expected = "a number, which task regression needs"
    else:
        values = texts.apply(lambda column: column.str.lower().map(_CLASSES)).to_numpy(
            np.float64
        )
        expected = (
            "one of two classes: 0 or 1 (leave the cell empty if the label is unknown)"
        )
    bad = np.argwhere(~np.isfinite(values) & (texts != "").to_numpy())
    if len(bad):
        row, column = bad[0].tolist()
        text = quoted(texts.iloc[row, column])
        raise DataError(
            f"{table.where(row)}: {texts.columns[column]} {text} is not {expected}"
        )
    values = values.astype(np.float32)
    varied = different(values)
    if not varied.any():
        first = next(filter(None, texts.iloc[0]))
        raise DataError(
            f"{table.where(0)}: all {len(values):,} rows have the same label {quoted(first)}"
        )
    if not varied.all():
        same = counted(int((~varied).sum()), "column")
        log(
            f"warning: {same} left out, without different labels: {texts.columns[~varied][0]} …"
        )
    return Labels(kind, tuple(texts.columns[varied]), values[:, varied])


def first_copies(sequences: Iterable[str]) -> list[int]:
    """Return the number of the first sequence that is the same as each one, on either strand."""
    first: dict[str, int] = {}
    keys = (min(sequence, reverse_complement(sequence)) for sequence in sequences)
    return [first.setdefault(key, row) for row, key in enumerate(keys)]


def read_splits(path: Path) -> dict[str, Split]:
    """Read a table of record and split: tab-separated, with or without the header `name split`.

    Lines that begin with `#` are comments; columns after the second are ignored.
    """
    with (
        open_bytes(path) as stream,
        reading(path, "not readable as a table", ValueError),
    ):
        table = pd.read_csv(
            stream,
            sep="\t",
            header=None,
            names=["name", "split"],
            usecols=[0, 1],
            comment="#",
            dtype=str,
            keep_default_na=False,
        )
    if len(table) and tuple(table.iloc[0]) == ("name", "split"):
        table = table.iloc[1:]
    for name, split in table.itertuples(index=False):
        if split not in SPLITS:
            raise DataError(
                f"{path}: record {quoted(name)}: {split!r} is not a split; expected train, valid or test"
            )
    repeated = table["name"][table["name"].duplicated()]
    if len(repeated):
        raise DataError(f"{path}: duplicate record {quoted(repeated.iloc[0])}")
    if table.empty:
        raise DataError(f"{path}: the file contains no records")
    return dict(zip(table["name"], table["split"], strict=True))


def look_up(
    names: Sequence[str], table: Mapping[str, Split], where: str
) -> list[Split]:
    """Return the split of each record from a table of `read_splits`; `where` names the table in errors.

    A record that is only in `names` or only in the table is a `DataError`.
    """
    for records, what in (
        ([name for name in names if name not in table], "not in the table"),
        ([*table.keys() - {*names}], "in neither FASTA file"),
    ):
        if records:
            listing = listed([*map(repr, records)])
            raise DataError(
                f"{where}: {counted(len(records), 'record')} {what}: {listing}"
            )
    return [table[name] for name in names]


def divide(groups: npt.NDArray[np.int64], classes: Classes, seed: int) -> list[Split]:
    """Return a split for each sequence (N,): about 80, 10 and 10 % of each class; groups are never divided.

    `classes` (N,) count from 0.

    Groups are assigned from the largest to the smallest, each to the split that lacks most of its quota; so
    large groups are used for training. Equal input and seed give equal splits.
    """
    members = np.zeros((int(groups.max()) + 1, int(classes.max()) + 1), np.int64)
    np.add.at(members, (groups, classes.astype(np.int64)), 1)  # of a group and class
    shuffled = np.random.default_rng((seed, 6)).permutation(len(members))
    order = shuffled[np.argsort(-members.sum(axis=1)[shuffled], kind="stable")]
    totals = np.maximum(members.sum(axis=0), 1)
    missing = {split: fraction * totals for split, fraction in FRACTIONS.items()}
    chosen: list[Split] = ["train"] * len(members)
    for group in order.tolist():
        sizes = members[group]
        lacks = {
            split: float((sizes * np.maximum(quota, 0) / totals).sum())
            for split, quota in missing.items()
        }
        best = max(FRACTIONS, key=lacks.__getitem__)
        chosen[group] = best
        missing[best] = missing[best] - sizes
    return [chosen[group] for group in groups.tolist()]


def with_validation(
    splits: list[Split], groups: npt.NDArray[np.int64], classes: Classes, seed: int
) -> list[Split]:
    """Return splits in which a tenth of the training sequences is for validation, if none is yet; see
    `divide`."""
    if "valid" in splits:
        return splits
    rows = np.flatnonzero(np.array(splits) == "train")
    again = np.array(divide(pd.factorize(groups[rows])[0], classes[rows], seed))
    held_out = rows[again == "valid"].tolist()
    log(
        f"no sequence is for validation: {len(held_out):,} of {len(rows):,} training sequences are used"
    )
    splits = [*splits]
    for row in held_out:
        splits[row] = "valid"
    return splits
