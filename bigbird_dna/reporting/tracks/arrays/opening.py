"""The array that is meant by `FILE`, `FILE::NAME` or a value in memory.

Column names come from a table's header, or from an array or attribute of strings called `tracks`
beside the values.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bigbird_dna.errors import DataError
from bigbird_dna.reporting.tracks.arrays.array import MemoryArray, TrackArray, Values
from bigbird_dna.reporting.tracks.arrays.hdf5_files import Hdf5Array
from bigbird_dna.reporting.tracks.arrays.numpy_files import NumpyArray, open_archive
from bigbird_dna.reporting.tracks.arrays.table_files import ParquetArray, read_table


def open_array(source: str | Path | Values, kind: str) -> TrackArray:
    """Look at an array's size and names; the values are read later.

    Parameters
    ----------
    source
        `FILE`, `FILE::NAME` or an array in memory.
    kind
        "predictions" or "labels": the array that is taken from a file with several, and what
        messages call an array in memory.

    Raises
    ------
    DataError
        The file is missing, damaged, of an unknown kind, or holds no numbers of rows × tracks.
    """
    if isinstance(source, np.ndarray):
        return MemoryArray(kind, source)
    text, _, name = str(source).partition("::")
    path = Path(text)
    if path.is_dir():
        raise DataError(f"{path}: is a directory, not a file")
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    if not path.stat().st_size:
        raise DataError(f"{path}: the file is empty")
    suffixes = path.name.lower()
    if suffixes.endswith(".npy"):
        return NumpyArray(path)
    if suffixes.endswith(".npz"):
        return open_archive(path, name, kind)
    if suffixes.endswith((".h5", ".hdf5")):
        return Hdf5Array(path, name, kind)
    if suffixes.endswith(".parquet"):
        return ParquetArray(path)
    if suffixes.endswith((".tsv", ".tsv.gz", ".txt", ".txt.gz")):
        return read_table(path, "\t")
    if suffixes.endswith((".csv", ".csv.gz")):
        return read_table(path, ",")
    raise DataError(f"{path}: its name ends in none of .npy, .npz, .h5, .parquet, .tsv[.gz] and .csv[.gz]")


def open_predictions(path: Path, labels: Path, shape: tuple[int, int]) -> TrackArray:
    """Open the predictions of the bins of `labels`, of this shape; `DataError` where theirs is another."""
    array = open_array(str(path), "predictions")
    if (array.rows, array.tracks) != shape:
        rows, tracks = shape
        raise DataError(
            f"{path}: {array.rows:,} bins × {array.tracks:,} tracks, {labels} has {rows:,} × {tracks:,}"
        )
    return array
