"""Read and write tables (TSV) with declared columns, and objects (JSON).

A `Schema` declares a table's columns and the values of their cells, for writing, reading and checking.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from bigbird_dna.disk.atomic import atomic_path, reading
from bigbird_dna.disk.compression import read_lines
from bigbird_dna.errors import DataError, meant, shortened

if TYPE_CHECKING:
    import pandas as pd

_MISSING = ("", "-", ".")  # and any text that begins with NA, such as NaN
# Above this value, floats cannot represent all whole numbers.
_LARGEST = 2.0**53
_LONGEST_WHOLE = 18  # digits
_LONGEST_NUMBER = 400  # characters


class Column(NamedTuple):
    """A column and the values of its cells: numbers from `low` to `high`, or text, which may always be empty.

    An "estimate" has three columns: NAME, and its interval NAME_low and NAME_high, which may be missing.
    """

    name: str
    kind: Literal["text", "whole", "number", "estimate"] = "number"
    low: float = -math.inf
    high: float = math.inf
    missing: bool = False

    @property
    def cells(self) -> list[Column]:
        """The columns in the file for this declaration."""
        if self.kind != "estimate":
            return [self]
        ends = [Column(f"{self.name}{end}", missing=True) for end in ("_low", "_high")]
        return [self._replace(kind="number"), *ends]

    def value(self, cell: str) -> float | None:
        """Return the number in a cell, NaN if it is missing, or None if it is invalid for this column."""
        cell = cell.strip()
        if cell in _MISSING or cell.upper().startswith("NA"):
            return math.nan if self.missing else None
        if self.kind == "whole" and not (
            cell.isdecimal() and cell.isascii() and len(cell) <= _LONGEST_WHOLE
        ):
            return None
        try:
            value = float(cell) if len(cell) <= _LONGEST_NUMBER else math.nan
        except ValueError:
            return None
        return value if self.low <= value <= self.high else None

    @property
    def numbers(self) -> str:
        """Description of valid cells for messages."""
        what = "a whole number" if self.kind == "whole" else "a number"
        if math.isinf(self.low) or math.isinf(self.high):
            return what
        return f"{what} from {self.low:g} to {self.high:g}"


_KINDS = {
    "text": Column("", "text"),
    "count": Column("", "whole", low=0),
    "optional": Column("", "whole", low=0, missing=True),
    "number": Column(""),
    "fraction": Column("", low=0, high=1),
    "metric": Column("", missing=True),
    "estimate": Column("", "estimate", missing=True),
}


@dataclass(frozen=True)
class Schema:
    """The columns of a table, in order; rows are unique in the columns of `key`."""

    columns: Sequence[Column]
    key: Sequence[str] = ()

    @classmethod
    def of(cls, *groups: str | Column, key: Sequence[str] = ()) -> Schema:
        """Return a schema of columns, and of groups of a kind and names: "text model; count n positives".

        Kinds are text, count (a whole number from 0), optional (a count that may be missing), number,
        fraction, metric (a number that may be undefined) and estimate (such a number with its interval).
        """
        columns: list[Column] = []
        for group in groups:
            for kind, *names in map(
                str.split, group.split("; ") if isinstance(group, str) else ()
            ):
                columns += [_KINDS[kind]._replace(name=name) for name in names]
            columns += [] if isinstance(group, str) else [group]
        return cls(columns, key)

    @property
    def names(self) -> list[str]:
        """Names of the columns in the file; an estimate has three."""
        return [cell.name for column in self.columns for cell in column.cells]

    def part(self, *names: str) -> Schema:
        """Return a schema with only the given columns, those that a reader needs."""
        return Schema([column for column in self.columns if column.name in names])


def write_table(
    path: Path, table: pd.DataFrame, schema: Schema, digits: int = 6
) -> None:
    """Write a table as TSV: whole numbers in full, others with `digits` digits, undefined ones empty.

    `ValueError` if the columns differ from the schema.
    """
    if list(table.columns) != schema.names:
        raise ValueError(
            f"columns {', '.join(map(str, table.columns))} must be {', '.join(schema.names)}"
        )
    write_tsv(path, table, digits)


def write_tsv(path: Path, table: pd.DataFrame, digits: int = 6) -> None:
    """Write a table with any columns, in the format of `write_table`."""
    text = table.copy()
    for name in text.select_dtypes("float").columns:
        text[name] = [
            ""
            if value != value
            else f"{value:.0f}"
            if value.is_integer()
            else f"{value:.{digits}g}"
            for value in text[name]
        ]
    with atomic_path(path) as temporary:
        text.to_csv(temporary, sep="\t", index=False, lineterminator="\n")


def read_table(path: Path, schema: Schema) -> pd.DataFrame:
    """Read a table with the schema's columns, in any order; other columns are text.

    `DataError` if the file is missing or not a table, lacks a column, or has an invalid cell or a duplicate
    key; rows are counted from 1.
    """
    return with_types(path, read_text_table(path), schema)


def read_text_table(path: Path) -> pd.DataFrame:
    """Read a table with any columns, with all cells as text; `DataError` for a file that is not a table."""
    import pandas as pd

    _check_lines(Path(path))
    with reading(path, "not readable as a table", Exception):
        table: pd.DataFrame = pd.read_csv(
            path, sep="\t", dtype=str, keep_default_na=False
        )
    return table


def with_types(path: Path, table: pd.DataFrame, schema: Schema) -> pd.DataFrame:
    """Convert the schema's columns of a text table from `path` to numbers; errors as in `read_table`."""
    check_columns(path, table, schema.names)
    found = table.copy()
    for column in (
        cell
        for declared in schema.columns
        for cell in declared.cells
        if cell.kind != "text"
    ):
        values = [column.value(cell) for cell in table[column.name]]
        if None in values:
            row = values.index(None)
            cell = table[column.name].iloc[row]
            raise DataError(
                f"{path}: row {row + 1:,}: {column.name} {cell!r:.60} is not {column.numbers}"
            )
        kind = "int64" if column.kind == "whole" and not column.missing else "float64"
        found[column.name] = np.array(values, kind)
    if schema.key:
        twice = found.duplicated([*schema.key]).to_numpy()
        if twice.any():
            row = int(twice.argmax())
            key = ", ".join(
                f"{name} {found[name].iloc[row]!s:.60}" for name in schema.key
            )
            raise DataError(f"{path}: row {row + 1:,}: {key}: duplicate key")
    return found


def _check_lines(path: Path) -> None:
    """Raise `DataError` for duplicate column names, and for lines with more cells than the header.

    Pandas would rename such columns, and use the first cells of such lines as row names, which takes minutes
    for thousands of cells.
    """
    columns = 0
    for number, line in read_lines(path):
        cells, where = line.split("\t"), f"{path}: line {number}"
        if not columns and line.strip():
            columns = len(cells)
            check_unique(where, filter(None, cells))
        elif columns and len(cells) > columns:
            raise DataError(
                f"{where}: {len(cells):,} columns, the header has {columns:,}"
            )


def check_unique(where: str, names: Iterable[str]) -> None:
    """Raise `DataError` for columns of the same name."""
    name, count = next(iter(Counter(names).most_common(1)), ("", 0))
    if count > 1:
        raise DataError(f"{where}: {count:,} columns called {name!r:.60}")


class TableLines(NamedTuple):
    """A table that is read line by line: its header and rows, each with its location for errors."""

    where: str
    header: list[str]
    rows: Iterator[tuple[str, list[str]]]


def open_lines(path: Path, comment: str = "##") -> TableLines:
    """Open a table of any size; empty lines and lines that begin with `comment` are skipped.

    The header may begin with #; it is empty in an empty table. `DataError` for a row with another number of
    cells than the header, and for duplicate column names.
    """
    lines = (
        (f"{path}: line {number}", line) for number, line in read_lines(Path(path))
    )
    filled = (
        (where, line.split("\t"))
        for where, line in lines
        if line.strip() and not line.startswith(comment)
    )
    where, header = next(filled, (str(path), [""]))
    header = [header[0].lstrip("#"), *header[1:]]
    check_unique(where, header)

    def rows() -> Iterator[tuple[str, list[str]]]:
        for where, cells in filled:
            if len(cells) != len(header):
                raise DataError(
                    f"{where}: {len(cells)} columns, the header has {len(header)}"
                )
            yield where, cells

    return TableLines(where, header, rows())


def check_columns(path: Path, table: pd.DataFrame, columns: Sequence[str]) -> None:
    """Raise `DataError` for a table from `path` that lacks one of `columns`."""
    for name in columns:
        if name not in table.columns:
            raise missing_column(path, name, table.columns)


def missing_column(
    path: Path, name: str, found: Iterable[Any], option: str = ""
) -> DataError:
    """Return the error for a table without a column; `option` is the option that names it, if any."""
    names = [*map(str, found)]
    hint = (option and f"; give its name with {option}") + meant(name, names)
    listed = shortened(", ".join(names), 300) or "none"
    return DataError(f"{path}: no column {name!r} (found: {listed}){hint}")


def json_rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return rows for JSON, with None for NaN."""
    rows = table.to_dict("records")
    return [
        {str(key): None if value != value else value for key, value in row.items()}
        for row in rows
    ]


def number(values: Any, key: str, where: object) -> float:
    """Return `values[key]`, which must be a number; `where` is the file or line in errors."""
    value = values.get(key) if isinstance(values, Mapping) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise DataError(f"{where}: {key!r} must be a number, not {value!r:.60}")
    try:
        return float(value)
    except OverflowError:  # whole numbers in JSON are unlimited
        raise DataError(f"{where}: {key!r} is too large a number") from None


def whole_number(values: Any, key: str, where: object) -> int:
    """Return `values[key]`, which must be a whole number of a valid size; `where` as in `number`."""
    value = number(values, key, where)
    if not (value.is_integer() and abs(value) < _LARGEST):
        raise DataError(f"{where}: {key!r} must be a whole number, not {value!r:.60}")
    return int(value)
