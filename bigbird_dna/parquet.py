"""Parquet files that others may have made: what they claim is checked before it is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bigbird_dna.errors import DataError
from bigbird_dna.files import reading

if TYPE_CHECKING:
    import pandas as pd

_LARGEST = 2**31 - 1
# Rows that differ take more than a byte, which nothing makes smaller than by this factor.
_SMALLEST = 1032


@contextmanager
def open_parquet(path: Path) -> Iterator[Any]:
    """Open a file as `pyarrow.parquet.ParquetFile`.

    Raises
    ------
    DataError
        It is missing, no Parquet, or damaged; also where the block's reading of it fails.
    """
    import pyarrow.parquet as pq

    with reading(path, "not readable as Parquet", Exception), pq.ParquetFile(path) as stored:
        rows, size = stored.metadata.num_rows, path.stat().st_size
        if not 0 <= rows <= _SMALLEST * size:
            raise DataError(f"{path}: {rows:,} rows are more than a file of {size:,} bytes can hold")
        yield stored


def read_frame(path: Path, columns: Sequence[str] | None = None) -> pd.DataFrame:
    """Read a table, or some columns of it; errors as of `open_parquet`.

    Types are those of the columns: what pandas itself wrote into the file about them, its index too, is
    left alone.
    """
    with open_parquet(path) as stored:
        table = stored.read(columns=None if columns is None else list(columns))
        table.validate(full=True)  # text that is none is found by pandas as late as it is looked at
        frame: pd.DataFrame = table.replace_schema_metadata(None).to_pandas()
        return frame


def check_cells(path: Path, frame: pd.DataFrame, text: Sequence[str] = (), whole: Sequence[str] = ()) -> None:
    """Refuse columns of text that hold anything else, and of whole numbers from 0 to 2^31 likewise."""
    for name in text:
        if not _is_text(frame[name]):
            raise DataError(f"{path}: column {name!r} holds {frame[name].dtype}, not text in every row")
    for name in whole:
        column = frame[name]
        if column.dtype.kind not in "iu" or column.isna().any():
            raise DataError(f"{path}: column {name!r} holds {column.dtype}, not a whole number in every row")
        wrong = (column < 0) | (column > _LARGEST)
        if wrong.any():
            row = int(wrong.to_numpy().argmax())
            raise DataError(
                f"{path}: row {row + 1:,}: {name} {column.iloc[row]} is not a number from 0 to {_LARGEST:,}"
            )


def _is_text(column: pd.Series[Any]) -> bool:
    import pandas as pd

    if column.isna().any():
        return False
    if isinstance(column.dtype, pd.CategoricalDtype):
        return all(isinstance(name, str) for name in column.cat.categories)
    return pd.api.types.infer_dtype(column, skipna=False) in ("string", "empty")
