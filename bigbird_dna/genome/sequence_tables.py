"""Read tables of sequences and labels: CSV, TSV and Parquet, also .gz, as public benchmarks publish them.

A table has a row per sequence, with the columns of `TableColumns`. Its splits are in a column, or each file
is a split by its name, such as train.csv, dev.csv and test.csv, or train-00000-of-00001.parquet.
"""

import csv
import fnmatch
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from io import TextIOWrapper
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from bigbird_dna.config.promoters import SEPARATORS, is_table, table_kind
from bigbird_dna.config.section import LabelKind
from bigbird_dna.console import log
from bigbird_dna.disk.arrays import open_parquet
from bigbird_dna.disk.atomic import reading
from bigbird_dna.disk.compression import open_bytes
from bigbird_dna.disk.tables import check_unique, missing_column
from bigbird_dna.errors import DataError
from bigbird_dna.genome.fields import RecordNames, check_name, decimal, quoted
from bigbird_dna.genome.records import LONGEST, Records, whole_records
from bigbird_dna.genome.sequence import check_letters, clean_bytes
from bigbird_dna.genome.splits import Split

# Names of splits in columns and file names. Published sets differ.
_SPLITS: Mapping[str, Split] = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("valid", "validation", "val", "dev"), "valid"),
    **dict.fromkeys(("test", "testing"), "test"),
}
CLASSES = {"0": False, "0.0": False, "false": False, "negative": False}
CLASSES |= {"1": True, "1.0": True, "true": True, "positive": True}
LABEL = "label"
MISSING = frozenset(
    {"", "na", "n/a", "#n/a", "nan", "<na>", "null", "none", ".", "-", "?"}
)
"""Texts that stand for a missing label, in lower case; `with_known_labels` has the exceptions."""
_PARQUET_ROWS = 4096  # in memory at a time


class TableColumns(NamedTuple):
    """Names of a table's columns; `name` and `split` are read if the table has them.

    `labels` may be patterns, such as "track_*". Without any, the label is `label`, or there are several:
    `label_0`, `label_1` and so on.
    """

    sequence: str = "sequence"
    labels: tuple[str, ...] = ()
    split: str = "split"
    name: str = "name"


class SequenceTable(NamedTuple):
    """The rows of tables: sequences, texts of their labels, and their splits, if the tables have some."""

    records: Records
    columns: tuple[str, ...]  # with labels
    labels: list[
        tuple[str, ...]
    ]  # of each row; "" is a missing label, after `with_known_labels`
    splits: Mapping[str, Split] | None
    firsts: Mapping[int, Path]  # number of the first row of each file → the file
    numbers: Sequence[int] = ()  # of the rows in the files, if rows were left out
    unlabeled: int = 0  # rows that were left out, because they have no label

    def where(self, number: int) -> str:
        """Name the file and row of a row, by its number from 0, in messages."""
        number = self.numbers[number] if self.numbers else number
        first = max(one for one in self.firsts if one <= number)
        return f"{self.firsts[first]}: row {number - first + 1:,}"


COLUMNS = TableColumns()


def class_of(label: str, where: str) -> bool:
    """Return which of two classes a label is; `DataError` for other labels."""
    if label.lower() not in CLASSES:
        hint = "; leave the cell empty if the label is unknown" if label == "-1" else ""
        raise DataError(
            f"{where}: label {quoted(label)} is not one of two classes: 0 or 1{hint}"
        )
    return CLASSES[label.lower()]


def with_known_labels(
    table: SequenceTable, task: LabelKind | None = None
) -> SequenceTable:
    """Return a table without the rows that have no label, and with "" for further missing labels.

    A label is missing if its text is in `MISSING`, in upper or lower case, with two exceptions: "-" is a
    class where "+" is another one, and "none" in lower case is a class among names. In several columns that
    otherwise contain only 0 and 1, or for `task` multilabel, a label of -1 is missing too. Whole numbers
    written as 0.0 and 1.0, as by pandas in a column with missing values, become 0 and 1. What is left out is
    logged; `DataError` if no row has a label.
    """
    original = np.array(table.labels, object)  # (rows, columns)
    labels = np.array([_known_labels(texts) for texts in original.T], object).T
    texts = {text.lower() for text in labels.ravel()} - {""}
    classes = {CLASSES.get(text) for text in texts}
    is_multilabel = (
        labels.shape[1] > 1 and texts <= {*CLASSES, "-1"} and {0, 1} <= classes
    )
    if task == "multilabel" or (task is None and is_multilabel):
        labels[labels == "-1"] = ""
    missing = labels == ""
    labeled = ~missing.all(axis=1)
    if not labeled.any():
        raise DataError(
            f"{table.firsts[0]}: no row has a label (column {', '.join(table.columns[:5])})"
        )
    unlabeled = int((~labeled).sum())
    if unlabeled:
        kinds = _counted(Counter(original[~labeled].ravel()))
        log(f"warning: rows without a label are left out: {unlabeled:,} ({kinds})")
    if ignored := Counter(original[labeled][missing[labeled]]):
        log(
            f"warning: {ignored.total():,} of {labels[labeled].size:,} labels are missing and ignored "
            f"({_counted(ignored)})"
        )
    table = table._replace(labels=[tuple(row) for row in labels[labeled]])
    if not unlabeled:
        return table
    names = np.array([*table.records.sequences], object)[labeled].tolist()
    records = replace(
        table.records,
        sequences={name: table.records.sequences[name] for name in names},
        lower={name: table.records.lower[name] for name in names},
    )
    splits = table.splits and {name: table.splits[name] for name in names}
    numbers = np.flatnonzero(labeled).tolist()
    return table._replace(
        records=records, splits=splits, numbers=numbers, unlabeled=unlabeled
    )


def _known_labels(texts: Iterable[str]) -> list[str]:
    """Return the labels of a column, with "" for missing ones, and whole numbers without decimals."""
    texts = list(texts)
    kinds = {*texts}
    known = {text for text in kinds if text.lower() not in MISSING}
    if "+" in known:
        known |= kinds & {"-"}
    if any(text.lower() not in CLASSES and decimal(text) is None for text in known):
        known |= kinds & {"none"}
    labels = {text: text for text in known}
    numbers = {text: re.fullmatch(r"([+-]?\d+)(\.0*)?", text) for text in known}
    if all(numbers.values()):
        labels = {text: match[1] for text, match in numbers.items() if match}
    return [labels.get(text, "") for text in texts]


def _counted(texts: Counter[str]) -> str:
    """List texts with their counts, the most frequent first."""
    listed = [
        f"{quoted(text) if text else 'empty'}: {count:,}"
        for text, count in texts.most_common(3)
    ]
    return ", ".join(listed) + (", …" if len(texts) > 3 else "")


def read_tables(
    paths: Sequence[Path], columns: TableColumns = COLUMNS
) -> SequenceTable:
    """Read tables of sequences and labels.

    Names that are missing or repeated get a number. `DataError` names the file, and the row, counted from 1.
    """
    names = RecordNames()
    records = Records(paths[0])
    labels: list[tuple[str, ...]] = []
    splits: dict[str, Split] = {}
    firsts: dict[int, Path] = {}
    label_columns: tuple[str, ...] = ()
    for path in paths:
        firsts[len(labels)] = path
        header, rows = _read_rows(path)
        label_columns = label_columns or _label_columns(header, columns)
        columns = columns._replace(labels=label_columns)
        for row in _cells(path, header, rows, columns):
            _check_length(row.text, row.where)
            name = names.add(check_name(row.name, "the name", row.where) or "row")
            records.add(name, check_letters(row.text, row.where))
            labels.append(row.labels)
            if row.split is not None:
                splits[name] = row.split
    if len(splits) not in (0, len(labels)):
        raise DataError(
            f"{paths[0]}: some rows or files have a split, others have none"
        )
    if not labels:
        raise DataError(f"{paths[0]}: the table contains no rows")
    return SequenceTable(records, label_columns, labels, splits or None, firsts)


def stream_sequences(
    path: Path, columns: TableColumns = COLUMNS, stream: IO[bytes] | None = None
) -> Iterator[tuple[str, str]]:
    """Yield name and sequence, in A C G T N, of each row of a table, or of each record of a FASTA file.

    A table needs no labels; its rows have the name in the column `name`, or "row_1" and so on, and names may
    repeat. `stream` is an open FASTA file, which `path` names in errors. `DataError` names the record or row.
    """
    for name, text, where in _stream(path, columns, stream, strict=True):
        _check_length(text, where)
        yield name, clean_bytes(check_letters(text, where)).decode("ascii")


class CheckedSequence(NamedTuple):
    """A sequence in A C G T N; or an empty one, with a note and a sentence why it is not DNA."""

    name: str
    text: str
    note: str = ""  # `EMPTY` or `INVALID_LETTER`
    fault: str = ""


EMPTY, INVALID_LETTER = "empty", "invalid_letter"


def stream_checked_sequences(
    path: Path, columns: TableColumns = COLUMNS, stream: IO[bytes] | None = None
) -> Iterator[CheckedSequence]:
    """Yield the sequences of `stream_sequences`, also empty ones and those with other letters than DNA's."""
    for name, text, where in _stream(path, columns, stream, strict=False):
        if not text:
            yield CheckedSequence(name, "", EMPTY, f"{where}: the sequence is empty")
            continue
        _check_length(text, where)
        try:
            letters = check_letters(text, where)
        except DataError as error:
            yield CheckedSequence(name, "", INVALID_LETTER, str(error))
        else:
            yield CheckedSequence(name, clean_bytes(letters).decode("ascii"))


def _stream(
    path: Path, columns: TableColumns, stream: IO[bytes] | None, *, strict: bool
) -> Iterator[tuple[str, str, str]]:
    """Yield name, text and place of each sequence; if not `strict`, FASTA records may have any letters or
    none, and tables missing sequences."""
    if stream is None and is_table(path.name):
        header, rows = _read_rows(path)
        columns = columns._replace(labels=(), split="")
        number = 0
        for row in _cells(path, header, rows, columns, strict=strict):
            number += 1
            name = check_name(row.name, "the name", row.where) or f"row_{number}"
            yield name, row.text, row.where
        if not number:
            raise DataError(f"{path}: the table contains no rows")
        return
    with open_bytes(path) if stream is None else nullcontext(stream) as source:
        for name, letters in whole_records(path, source, strict=strict):
            yield name, letters.decode("latin-1"), f"{path}: record {name!r}"


def _check_length(text: str, where: str) -> None:
    if not text or len(text) > LONGEST:
        raise DataError(
            f"{where}: a sequence must have 1 to {LONGEST:,} bp, not {len(text):,}"
        )


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


class _Row(NamedTuple):
    """A row of a table; the name is empty if there is none."""

    where: str
    text: str
    labels: tuple[str, ...]
    split: Split | None
    name: str


def _cells(
    path: Path,
    header: list[str],
    rows: Iterator[Sequence[object]],
    columns: TableColumns,
    *,
    strict: bool = True,
) -> Iterator[_Row]:
    """Yield the rows of a table; a missing sequence is an error, or if not `strict` empty."""
    options = {
        columns.sequence: "--sequence-column",
        **dict.fromkeys(columns.labels, "--label-column"),
    }
    for column, option in options.items():
        if column not in header:
            raise missing_column(path, column, header, option)
    split_of_file = _split_of(path)
    for number, values in enumerate(rows, start=1):
        where = f"{path}: row {number:,}"
        cells = dict(zip(header, values, strict=True))
        text, name, split = (
            None if _is_missing(cells.get(column)) else cells[column]
            for column in (columns.sequence, columns.name, columns.split)
        )
        if text is None and not strict:
            text = ""
        if not isinstance(text, str):
            raise DataError(f"{where}: {quoted(str(text))} is not a sequence")
        if columns.split not in header:
            known = split_of_file
        elif str(split).lower() in _SPLITS:
            known = _SPLITS[str(split).lower()]
        else:
            raise DataError(
                f"{where}: {quoted(str(split))} is not a split: train, valid or test"
            )
        labels = tuple(_label_text(cells[column], where) for column in columns.labels)
        yield _Row(
            where, text.strip(), labels, known, "" if name is None else str(name)
        )


def _is_missing(cell: object) -> bool:
    """Whether a cell is None, or in a column of numbers NaN."""
    return cell is None or cell != cell


def _label_text(cell: object, where: str) -> str:
    if isinstance(cell, list | tuple | dict | bytes):
        raise DataError(
            f"{where}: label {quoted(str(cell))} is not text, a number or true or false"
        )
    return "" if _is_missing(cell) else str(cell).strip()


def _split_of(path: Path) -> Split | None:
    """Return the split in the name of a file, such as dev.csv; None without one."""
    words = re.split(r"[^a-z]+", path.name.lower())
    found = {_SPLITS[word] for word in words if word in _SPLITS}
    return found.pop() if len(found) == 1 else None


def _read_rows(path: Path) -> tuple[list[str], Iterator[Sequence[object]]]:
    """Return the names of a table's columns, and its rows, of which only some are in memory."""
    separator = SEPARATORS[table_kind(path.name)]
    rows: Iterator[Sequence[object]]
    rows = _parquet_rows(path) if separator is None else _text_rows(path, separator)
    header = [str(name) for name in next(rows, [])]
    check_unique(str(path), filter(None, header))
    return header, rows


def _parquet_rows(path: Path) -> Iterator[Sequence[object]]:
    """Yield the names of the columns, and then the rows."""
    with (
        open_parquet(path) as stored,
        reading(path, "not readable as Parquet", Exception),
    ):
        yield stored.schema_arrow.names
        for batch in stored.iter_batches(_PARQUET_ROWS):
            batch.validate(full=True)  # invalid text is detected only on access
            yield from zip(
                *(column.to_pylist() for column in batch.columns), strict=True
            )


def _text_rows(path: Path, separator: str) -> Iterator[list[str]]:
    with (
        open_bytes(path) as stream,
        reading(path, "not readable as a table", ValueError, csv.Error),
    ):
        text = TextIOWrapper(stream, encoding="utf-8-sig", newline="")
        reader, width = csv.reader(text, delimiter=separator, strict=True), 0
        for row in filter(None, reader):  # no blank lines
            width = width or len(row)
            if len(row) != width:
                raise DataError(
                    f"{path}: line {reader.line_num:,} has {len(row)} cells, the first line has {width}"
                )
            yield row
