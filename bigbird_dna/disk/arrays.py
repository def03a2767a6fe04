"""Read arrays and tables of NumPy, HDF5 and Parquet files; nothing in them is executed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bigbird_dna.disk.atomic import reading
from bigbird_dna.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

_LARGEST = 2**31 - 1
_PARQUET_BYTES = 1 << 16


@contextmanager
def open_npz(path: Path) -> Iterator[Any]:
    """Open a `.npz` file as `numpy.load` does; use it inside `atomic.reading`."""
    with path.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
        if not isinstance(arrays, np.lib.npyio.NpzFile):
            raise ValueError("a single array, expected an archive of arrays")
        yield arrays


@contextmanager
def open_parquet(path: Path) -> Iterator[Any]:
    """Open a file as `pyarrow.parquet.ParquetFile`; `DataError` if it is damaged, also while the block reads it."""
    import pyarrow.parquet as pq

    # By default, a column is read for all rows of a row group, often a million, at once.
    buffered: Any = {"buffer_size": _PARQUET_BYTES, "pre_buffer": False}
    with (
        reading(path, "not readable as Parquet", Exception),
        pq.ParquetFile(path, **buffered) as stored,
    ):
        yield stored


def read_frame(path: Path, columns: Sequence[str] | None = None) -> pd.DataFrame:
    """Read a Parquet table, or some of its columns, and ignore pandas metadata in the file."""
    with open_parquet(path) as stored:
        table = stored.read(columns=None if columns is None else list(columns))
        table.validate(full=True)  # pandas detects invalid text only on access
        frame: pd.DataFrame = table.replace_schema_metadata(None).to_pandas()
        return frame


def check_cells(
    path: Path, frame: pd.DataFrame, text: Sequence[str] = (), whole: Sequence[str] = ()
) -> None:
    """Raise `DataError` unless columns contain only text, or only whole numbers from 0 to 2^31 - 1."""
    for name in text:
        if not _is_text(frame[name]):
            raise DataError(
                f"{path}: column {name!r} contains {frame[name].dtype}, expected text"
            )
    for name in whole:
        column = frame[name]
        if column.dtype.kind not in "iu" or column.isna().any():
            raise DataError(
                f"{path}: column {name!r} contains {column.dtype}, expected whole numbers"
            )
        wrong = (column < 0) | (column > _LARGEST)
        if wrong.any():
            row = int(wrong.to_numpy().argmax())
            raise DataError(
                f"{path}: row {row + 1:,}: {name} {column.iloc[row]} is not between 0 and {_LARGEST:,}"
            )


def _is_text(column: pd.Series[Any]) -> bool:
    import pandas as pd

    if column.isna().any():
        return False
    if isinstance(column.dtype, pd.CategoricalDtype):
        return all(isinstance(name, str) for name in column.cat.categories)
    return pd.api.types.infer_dtype(column, skipna=False) in ("string", "empty")
