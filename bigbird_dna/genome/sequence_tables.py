"""Read tables of sequences and labels: CSV, TSV and Parquet, also .gz, as public benchmarks publish them.

A table has a row per sequence, with the columns of `TableColumns`. Its splits are in a column, or each file
is a split by its name, such as train.csv, dev.csv and test.csv, or train-00000-of-00001.parquet.
"""

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import NamedTuple

from bigbird_dna.config.promoters import SEPARATORS, table_kind
from bigbird_dna.disk.atomic import reading
from bigbird_dna.disk.compression import open_bytes
from bigbird_dna.disk.foreign import read_frame
from bigbird_dna.errors import DataError
from bigbird_dna.genome.fields import RecordNames, check_name, quoted
from bigbird_dna.genome.records import LONGEST, Records
from bigbird_dna.genome.sequence import check_letters
from bigbird_dna.genome.splits import Split

# Names of splits in columns and file names. Published sets differ.
_SPLITS: Mapping[str, Split] = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("valid", "validation", "val", "dev"), "valid"),
    **dict.fromkeys(("test", "testing"), "test"),
}
_CLASSES = {"0": False, "0.0": False, "false": False, "negative": False}
_CLASSES |= {"1": True, "1.0": True, "true": True, "positive": True}


class TableColumns(NamedTuple):
    """Names of a table's columns; `name` and `split` are read if the table has them."""

    sequence: str = "sequence"
    label: str = "label"
    split: str = "split"
    name: str = "name"


class LabeledTable(NamedTuple):
    """The sequences of tables with labels of two classes, and their splits, if the tables have some."""

    positives: Records
    negatives: Records
    splits: Mapping[str, Split] | None


COLUMNS = TableColumns()


def read_labeled_tables(paths: Sequence[Path], columns: TableColumns = COLUMNS) -> LabeledTable:
    """Read tables whose labels are 0 and 1, false and true, or negative and positive.

    Names that are missing or repeated get a number. `DataError` names the file, and the row, counted from 1.
    """
    names, splits = RecordNames(), dict[str, Split]()
    negatives, positives = parts = [Records(paths[0]), Records(paths[0])]
    for path in paths:
        for where, text, label, split, name in _cells(path, columns):
            if not text or len(text) > LONGEST:
                raise DataError(f"{where}: a sequence must have 1 to {LONGEST:,} bp, not {len(text):,}")
            if label.lower() not in _CLASSES:
                raise DataError(f"{where}: label {quoted(label)} is not one of two classes: 0 or 1")
            known_as = names.add(check_name(name, "the name", where))
            parts[_CLASSES[label.lower()]].add(known_as, check_letters(text, where))
            if split is not None:
                splits[known_as] = split
    if len(splits) not in (0, len(names.used)):
        raise DataError(f"{paths[0]}: some rows or files have a split, others have none")
    for part, label in ((negatives, "0"), (positives, "1")):
        if not part.sequences:
            raise DataError(f"{paths[0]}: no sequence has label {label}")
    return LabeledTable(positives, negatives, splits or None)


def _cells(path: Path, columns: TableColumns) -> Iterator[tuple[str, str, str, Split | None, str]]:
    """Yield place, sequence, label, split and name of each row; the name is "row" without such a column."""
    header, rows = _rows(path)
    for column in (columns.sequence, columns.label):
        if column not in header:
            raise DataError(f"{path}: no column {column!r} (found: {', '.join(header) or 'none'})")
    places = [header.index(column) if column in header else None for column in columns]
    own = _split_of(path)
    for number, row in enumerate(rows, start=1):
        where = f"{path}: row {number:,}"
        text, label, split, name = (None if place is None else row[place] for place in places)
        if not isinstance(text, str):
            raise DataError(f"{where}: {quoted(str(text))} is not a sequence")
        if split is not None and str(split).lower() not in _SPLITS:
            raise DataError(f"{where}: {quoted(str(split))} is not a split: train, valid or test")
        known = own if split is None else _SPLITS[str(split).lower()]
        yield where, text.strip(), str(label).strip(), known, "row" if name is None else str(name)


def _split_of(path: Path) -> Split | None:
    """Return the split in the name of a file, such as dev.csv; None without one."""
    words = re.split(r"[^a-z]+", path.name.lower())
    found = {_SPLITS[word] for word in words if word in _SPLITS}
    return found.pop() if len(found) == 1 else None


def _rows(path: Path) -> tuple[list[str], Iterator[Sequence[object]]]:
    """Return the names of a table's columns, and its rows."""
    separator = SEPARATORS[table_kind(path.name)]
    if separator is None:
        frame = read_frame(path)
        return [*map(str, frame.columns)], frame.itertuples(index=False, name=None)
    rows = _text_rows(path, separator)
    return next(rows, []), rows


def _text_rows(path: Path, separator: str) -> Iterator[list[str]]:
    with open_bytes(path) as stream, reading(path, "not readable as a table", ValueError, csv.Error):
        text = TextIOWrapper(stream, encoding="utf-8-sig", newline="")
        reader, width = csv.reader(text, delimiter=separator, strict=True), 0
        for row in filter(None, reader):  # no blank lines
            width = width or len(row)
            if len(row) != width:
                raise DataError(
                    f"{path}: line {reader.line_num:,} has {len(row)} cells, the first line has {width}"
                )
            yield row
