"""Read and write tables (TSV), and numbers of objects in JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bigbird_dna.disk.atomic import atomic_path, reading
from bigbird_dna.disk.compression import read_lines
from bigbird_dna.errors import DataError, meant, shortened

if TYPE_CHECKING:
    import pandas as pd


def write_tsv(path: Path, table: pd.DataFrame, digits: int = 6) -> None:
    """Write a table as TSV: whole numbers in full, others with `digits` digits, undefined ones empty."""
    text = table.copy()
    for name in text.select_dtypes("float").columns:
        cells = []
        for value in text[name]:
            if value != value:
                cells.append("")
            elif value.is_integer():
                cells.append(f"{value:.0f}")
            else:
                cells.append(f"{value:.{digits}g}")

        text[name] = cells

    with atomic_path(path) as temporary:
        text.to_csv(temporary, sep="\t", index=False, lineterminator="\n")


def read_text_table(path: Path) -> pd.DataFrame:
    """Read a table with all cells as text; `DataError` for a file that is not a table."""
    import pandas as pd

    with reading(path, "not readable as a table", Exception):
        table: pd.DataFrame = pd.read_csv(
            path, sep="\t", dtype=str, keep_default_na=False, index_col=False
        )
    return table


def read_table(
    path: Path, columns: Sequence[str], text: Sequence[str] = ()
) -> pd.DataFrame:
    """Read a table whose `columns` have numbers, NaN for an empty cell, except for those in `text`.

    `DataError` if the file is not a table, lacks a column, or has a cell that is not a number.
    """
    import pandas as pd

    table = read_text_table(path)
    check_columns(path, table, columns)
    for name in columns:
        if name not in text:
            with reading(path, f"column {name!r}", ValueError):
                table[name] = pd.to_numeric(table[name].mask(table[name] == ""))

    return table


def open_lines(
    path: Path, comment: str = "##"
) -> tuple[str, list[str], Iterator[tuple[str, list[str]]]]:
    """Open a table; return the location of its header, the header, and rows with their locations.

    Empty lines and lines that begin with `comment` are skipped. The header may begin with #; it is [""] in an
    empty table. `DataError` for a row with another number of cells than the header, and for duplicate names.
    """
    lines = (
        (f"{path}: line {number}", line.split("\t"))
        for number, line in read_lines(Path(path))
        if line.strip() and not line.startswith(comment)
    )
    where, header = next(lines, (str(path), [""]))
    header = [header[0].lstrip("#"), *header[1:]]
    check_unique(where, header)

    def rows() -> Iterator[tuple[str, list[str]]]:
        for where, cells in lines:
            if len(cells) != len(header):
                raise DataError(
                    f"{where}: {len(cells)} columns, the header has {len(header)}"
                )
            yield where, cells

    return where, header, rows()


def check_unique(where: str, names: Iterable[str]) -> None:
    """Raise `DataError` for columns of the same name."""
    name, count = next(iter(Counter(names).most_common(1)), ("", 0))
    if count > 1:
        raise DataError(f"{where}: {count:,} columns called {name!r:.60}")


def check_columns(path: Path, table: pd.DataFrame, columns: Sequence[str]) -> None:
    """Raise `DataError` for a table from `path` that lacks one of `columns`."""
    for name in columns:
        if name not in table.columns:
            raise missing_column(path, name, table.columns)


def missing_column(
    path: Path, name: str, columns: Iterable[Any], option: str = ""
) -> DataError:
    """Return the error for a table without a column; `option` is the option that names it, if any."""
    names = [*map(str, columns)]
    hint = (option and f"; give its name with {option}") + meant(name, names)
    listed = shortened(", ".join(names), 300) or "none"
    return DataError(f"{path}: no column {name!r} (found: {listed}){hint}")


def json_rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return rows for JSON, with None for NaN."""
    return [
        {str(key): None if value != value else value for key, value in row.items()}
        for row in table.to_dict("records")
    ]


def number(values: Any, key: str, where: object) -> float:
    """Return `values[key]`, which must be a number; `where` is the file or line in errors."""
    value = values.get(key) if isinstance(values, Mapping) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise DataError(f"{where}: {key!r} must be a number, not {value!r:.60}")
    return float(value)
