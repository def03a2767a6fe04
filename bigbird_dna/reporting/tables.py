"""Tables (TSV) and objects (JSON) of figures as files."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bigbird_dna.disk.atomic import atomic_path, read_json, reading
from bigbird_dna.errors import DataError, shortened
from bigbird_dna.genome.compression import read_lines

if TYPE_CHECKING:
    import pandas as pd

# Beyond it floats skip whole numbers.
_LARGEST = 2.0**53


def write_tsv(path: Path, table: pd.DataFrame, digits: int = 6) -> None:
    """Write a table with tabs; whole numbers in full, `digits` of others, nothing for undefined ones."""
    text = table.copy()
    for name in text.select_dtypes("float").columns:
        text[name] = [_cell(value, digits) for value in text[name]]
    with atomic_path(path) as temporary:
        text.to_csv(temporary, sep="\t", index=False, lineterminator="\n")


def json_rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows fit for JSON, which has no NaN."""
    return [
        {
            str(key): None if isinstance(value, float) and math.isnan(value) else value
            for key, value in row.items()
        }
        for row in table.to_dict("records")
    ]


def read_tsv(path: Path, columns: Sequence[str] = (), *, text: bool = False) -> pd.DataFrame:
    """Read a table that must have `columns`; with `text` every cell as it is, an empty one as "".

    Raises
    ------
    DataError
        The file is missing, no table, or lacks a column.
    """
    import pandas as pd

    _check_lines(Path(path))
    options: dict[str, Any] = {"dtype": str, "keep_default_na": False} if text else {}
    with reading(path, "not readable as a table", Exception):
        table: pd.DataFrame = pd.read_csv(path, sep="\t", **options)
    check_columns(path, table, columns)
    return table


def _check_lines(path: Path) -> None:
    """Refuse columns of one name, and lines with more cells than the header.

    Pandas would give the columns other names, and take the first cells of such lines for names of rows; and
    of thousands it does so for minutes.
    """
    columns = 0
    for place, line in read_lines(path):
        cells = line.split("\t")
        if not columns and line.strip():
            columns = len(cells)
            name, count = Counter(filter(None, cells)).most_common(1)[0]
            if count > 1:
                raise DataError(f"{path}: line {place}: {count:,} columns called {name!r:.60}")
        elif columns and len(cells) > columns:
            raise DataError(f"{path}: line {place}: {len(cells):,} columns, the header has {columns:,}")


def read_cells(path: Path) -> Iterator[tuple[str, list[str]]]:
    """The lines of a table but those that begin with ##: where each is, as errors name it, and its cells."""
    for place, line in read_lines(Path(path)):
        if not line.startswith("##"):
            yield f"{path}: line {place}", line.split("\t")


def check_columns(path: Path, table: pd.DataFrame, columns: Sequence[str]) -> None:
    """Refuse a table, read from `path`, that lacks one of `columns`."""
    for name in columns:
        if name not in table.columns:
            found = shortened(", ".join(map(str, table.columns)), 300)
            raise DataError(f"{path}: no column {name!r} (found: {found})")


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON file that must hold an object."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise DataError(f"{path}: holds no JSON object")
    return value


def number(values: Any, key: str, where: object) -> float:
    """`values[key]`, which must be a number; `where` is the file, or the line, that it came from."""
    value = values.get(key) if isinstance(values, Mapping) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise DataError(f"{where}: {key!r} is not a number but {value!r:.60}")
    try:
        return float(value)
    except OverflowError:  # JSON's whole numbers have no end
        raise DataError(f"{where}: {key!r} is too large a number") from None


def whole_number(values: Any, key: str, where: object) -> int:
    """`values[key]`, which must be a whole number that a table can hold; `where` as in `number`."""
    value = number(values, key, where)
    if not (value.is_integer() and abs(value) < _LARGEST):
        raise DataError(f"{where}: {key!r} is not a whole number but {value!r:.60}")
    return int(value)


def _cell(value: float, digits: int) -> str:
    if value != value:
        return ""
    return f"{value:.0f}" if value.is_integer() else f"{value:.{digits}g}"
