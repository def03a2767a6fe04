"""Tables (TSV) and objects (JSON) of figures as files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bigbird_dna.errors import DataError, error_text
from bigbird_dna.files import atomic_path, read_json
from bigbird_dna.genome.compression import read_lines

if TYPE_CHECKING:
    import pandas as pd


def write_tsv(path: Path, table: pd.DataFrame, digits: int = 6) -> None:
    """Write a table with tabs; whole numbers in full, `digits` of others, nothing for undefined ones."""
    text = table.copy()
    for name in text.select_dtypes("float").columns:
        text[name] = [_cell(value, digits) for value in text[name]]
    with atomic_path(path) as temporary:
        text.to_csv(temporary, sep="\t", index=False, lineterminator="\n")


def read_tsv(path: Path, columns: Sequence[str] = (), *, text: bool = False) -> pd.DataFrame:
    """Read a table that must have `columns`; with `text` every cell as it is, an empty one as "".

    Raises
    ------
    DataError
        The file is missing, no table, or lacks a column.
    """
    import pandas as pd

    options: dict[str, Any] = {"dtype": str, "keep_default_na": False} if text else {}
    with reading(path, "not readable as a table", ValueError):
        table: pd.DataFrame = pd.read_csv(path, sep="\t", **options)
    check_columns(path, table, columns)
    return table


def read_cells(path: Path) -> Iterator[tuple[str, list[str]]]:
    """The lines of a table but those that begin with ##: where each is, as errors name it, and its cells."""
    for place, line in read_lines(Path(path)):
        if not line.startswith("##"):
            yield f"{path}: line {place}", line.split("\t")


def check_columns(path: Path, table: pd.DataFrame, columns: Sequence[str]) -> None:
    """Refuse a table, read from `path`, that lacks one of `columns`."""
    for name in columns:
        if name not in table.columns:
            raise DataError(f"{path}: no column {name!r} (found: {', '.join(map(str, table.columns))})")


@contextmanager
def reading(path: str | Path, fault: str, *errors: type[Exception]) -> Iterator[None]:
    """Make a `DataError` that names file and `fault` of the system's errors, and of a library's `errors`."""
    caught: tuple[type[Exception], ...] = (OSError, *errors)
    try:
        yield
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except caught as error:
        raise DataError(f"{path}: {fault}: {error_text(error)}") from None


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
        raise DataError(f"{where}: {key!r} is no number but {value!r:.60}")
    return float(value)


def _cell(value: float, digits: int) -> str:
    if value != value:
        return ""
    return f"{value:.0f}" if value.is_integer() else f"{value:.{digits}g}"
