"""Read arrays and tables of NumPy and Parquet files; nothing in them is executed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bigbird_dna.disk.atomic import reading

if TYPE_CHECKING:
    import pandas as pd


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
    buffered: Any = {"buffer_size": 1 << 16, "pre_buffer": False}
    with (
        reading(path, "not readable as Parquet", Exception),
        pq.ParquetFile(path, **buffered) as stored,
    ):
        yield stored


def read_frame(path: Path) -> pd.DataFrame:
    """Read a Parquet table, and ignore pandas metadata in the file."""
    with open_parquet(path) as stored:
        table = stored.read()
        table.validate(full=True)  # pandas detects invalid text only on access
        frame: pd.DataFrame = table.replace_schema_metadata(None).to_pandas()
        return frame
