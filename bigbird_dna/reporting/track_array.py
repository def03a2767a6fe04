"""Arrays of rows × tracks, read from memory, NumPy files or HDF5.

N rows, T tracks. Strings named `tracks`, stored with the values or as their attribute, are the column names.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bigbird_dna.disk.arrays import (
    Header,
    hdf5_arrays,
    open_hdf5,
    open_npz,
    read_header,
)
from bigbird_dna.disk.atomic import reading
from bigbird_dna.errors import DataError, one_of
from bigbird_dna.genome.chromatin.labels import PackedLabels

# Bytes read per chunk; small enough to stay in the CPU cache while values are transposed.
CHUNK = 2 << 20
NAMES = "tracks"
# Bytes of a track name in NumPy's fixed-width text; arrays with longer text are not track names.
_LONGEST_NAME = 4 * 4096

Values = NDArray[Any]
Chunks = Callable[[int, int], Iterator[Values]]


class TrackArray:
    """Values (N, T) that are read in row order; `path` names them in messages.

    `chunks(first, last)` yields tracks `first` to `last` - 1 of all rows, as arrays (rows, last - first).
    `names` are the track names, and `intervals` identifies the genomic interval of each row, if the file has
    them.
    """

    def __init__(
        self,
        path: str,
        dtype: np.dtype[Any],
        shape: Sequence[int],
        chunks: Chunks,
        names: tuple[str, ...] | None = None,
        intervals: pd.DataFrame | None = None,
    ) -> None:
        """Raise `DataError` unless values are numbers of rows × tracks; a 1-D array is a single track."""
        if dtype.kind not in "fiub":
            raise DataError(f"{path}: contains {dtype}, expected numbers")
        if len(shape) not in (1, 2):
            raise DataError(
                f"{path}: expected rows × tracks, found an array of shape {tuple(shape)}"
            )
        self.rows, self.tracks = (*shape, 1)[:2]
        if not self.rows or not self.tracks:
            raise DataError(
                f"{path}: {self.rows} rows × {self.tracks} tracks: no values to evaluate"
            )
        self.path, self.dtype, self.chunks = path, dtype, chunks
        self.names, self.intervals = names, intervals


def memory_array(
    path: str,
    values: Values,
    names: tuple[str, ...] | None = None,
    intervals: pd.DataFrame | None = None,
) -> TrackArray:
    """Return a `TrackArray` of an array in memory or a memory map."""
    return TrackArray(
        path, values.dtype, values.shape, _row_chunks(as_rows(values)), names, intervals
    )


def _row_chunks(values: Values) -> Chunks:
    def chunks(first: int, last: int) -> Iterator[Values]:
        step = row_step(values.shape[1], values.dtype)
        for start in range(0, len(values), step):
            yield values[start : start + step, first:last]

    return chunks


def as_rows(values: Values) -> Values:
    """Return a 1-D array as rows of one track; return other arrays unchanged."""
    return values[:, None] if values.ndim == 1 else values


def row_step(tracks: int, dtype: np.dtype[Any]) -> int:
    """Return the number of rows to read per chunk."""
    return max(CHUNK // max(tracks * dtype.itemsize, 1), 64)


def choose_array(path: Path, name: str, kind: str, found: Mapping[str, int]) -> str:
    """Choose the array of a file: the named array, the array named `kind`, or the only candidate."""
    listed = ", ".join(sorted(found)) or "none"
    if name:
        if name not in found:
            raise DataError(
                f"{path}: no numeric array {name!r}: {one_of(name, sorted(found))}"
            )
        return name
    for axes in (2, 1):  # one axis: one track
        flat = [key for key, count in found.items() if count == axes and key != NAMES]
        if kind in flat:
            return kind
        if len(flat) == 1:
            return flat[0]
        if flat:
            break
    raise DataError(
        f"{path}: {len(flat)} arrays of rows × tracks (found: {listed}); choose one with {path}::NAME"
    )


def track_names(path: str, values: Any, tracks: int) -> tuple[str, ...] | None:
    """Return track names as strings; None if `values` is not a list of strings."""
    if values is None:
        return None
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype.kind not in "SUOT":
        return None
    try:
        names = tuple(
            v.decode() if isinstance(v, bytes) else str(v) for v in array.tolist()
        )
    except UnicodeDecodeError:
        raise DataError(f"{path}: a track name is not UTF-8") from None
    if len(names) != tracks:
        raise DataError(f"{path}: {len(names)} track names, but {tracks} columns")
    return names


def hdf5_array(path: Path, name: str, kind: str) -> TrackArray:
    """Open a data set of an HDF5 file, chosen by `name` or else by `kind`."""
    with open_hdf5(path) as stored:
        arrays = dict(hdf5_arrays(stored))
        numbers = {
            key: item.ndim for key, item in arrays.items() if item.dtype.kind in "fiub"
        }
        chosen = choose_array(path, name.strip("/"), kind, numbers)
        data = arrays[chosen]

        def chunks(first: int, last: int) -> Iterator[Values]:
            # Read whole HDF5 chunks, so that no chunk is decompressed twice.
            step = -(-row_step(array.tracks, array.dtype) // height) * height
            with open_hdf5(path) as stored:
                data = stored[chosen]
                columns = () if data.ndim == 1 else (slice(first, last),)
                for start in range(0, array.rows, step):
                    yield as_rows(data[(slice(start, start + step), *columns)])

        array = TrackArray(f"{path}::{chosen}", data.dtype, data.shape, chunks)
        height = data.chunks[0] if data.chunks else 1
        names = data.attrs.get(NAMES)
        if names is None and NAMES in arrays:
            names = arrays[NAMES][()]
    array.names = track_names(array.path, names, array.tracks)
    return array


def numpy_array(path: Path, member: str = "") -> TrackArray:
    """Open a .npy file, or one array of a .npz file that is decompressed while it is read.

    Reading, unlike mapping, keeps the file out of the process's memory. Arrays in Fortran order are mapped
    (.npy) or read at once (.npz).
    """

    @contextmanager
    def opened() -> Iterator[tuple[Header, IO[bytes]]]:
        """Yield the header, and the stream of values after it."""
        if not member:
            with path.open("rb") as stream:
                yield read_header(stream), stream
        else:
            with (
                open_npz(path) as stored,
                stored.zip.open(f"{member}.npy") as stream,
            ):
                yield read_header(stream), stream

    def whole() -> Values:
        if not member:
            return as_rows(np.asarray(np.load(path, mmap_mode="r")))
        with open_npz(path) as stored:
            return as_rows(stored[member])

    def chunks(first: int, last: int) -> Iterator[Values]:
        with reading(array.path, "damaged", Exception):
            if header.fortran:
                yield from _row_chunks(whole())(first, last)
                return
            step = row_step(array.tracks, array.dtype)
            with opened() as (_, stream):
                for start in range(0, array.rows, step):
                    count = min(step, array.rows - start)
                    wanted = count * array.tracks * array.dtype.itemsize
                    data = stream.read(wanted)
                    if len(data) < wanted:
                        raise DataError(
                            f"{array.path}: truncated at or after row {start + 1}"
                        )
                    values = np.frombuffer(data, array.dtype).reshape(
                        count, array.tracks
                    )
                    yield values[:, first:last]

    with (
        reading(path, f"not readable as {path.suffix.lower()}", Exception),
        opened() as (header, stream),
    ):
        array = TrackArray(
            f"{path}::{member}" if member else str(path),
            header.dtype,
            header.shape,
            chunks,
        )
        needed = stream.tell() + math.prod(header.shape) * header.dtype.itemsize
    size = path.stat().st_size
    if not member and size < needed:
        raise DataError(
            f"{path}: truncated: {size:,} bytes, but the header needs {needed:,}"
        )
    return array


def packed_array(path: Path) -> TrackArray:
    """Open the labels of a chromatin data set, which are unpacked while they are read."""
    labels = PackedLabels.load(path)

    def chunks(first: int, last: int) -> Iterator[Values]:
        low = first // 8  # the byte with the first track
        step = row_step(last - 8 * low, np.dtype(np.uint8))
        for start in range(0, labels.shape[0], step):
            packed = labels.packed[start : start + step, low : -(-last // 8)]
            yield PackedLabels(packed, last - 8 * low).rows()[:, first - 8 * low :]

    return TrackArray(str(path), np.dtype(np.uint8), labels.shape, chunks)


def open_archive(path: Path, name: str, kind: str) -> TrackArray:
    """Open an array of a .npz file, chosen by `name` or else by `kind`, or a data set's packed labels."""
    names = None
    with reading(path, "not readable as .npz", Exception), open_npz(path) as stored:
        if {"packed", NAMES} <= set(stored.files) and not name:
            return packed_array(path)
        headers = {}
        for member in stored.files:
            with stored.zip.open(f"{member}.npy") as stream:
                headers[member] = read_header(stream)
        numbers = {
            member: len(one.shape)
            for member, one in headers.items()
            if one.dtype.kind in "fiub"
        }
        chosen = choose_array(path, name, kind, numbers)
        listed = headers.get(NAMES)
        if (
            listed is not None
            and chosen != NAMES
            and listed.dtype.itemsize <= _LONGEST_NAME
        ):
            names = stored[NAMES]
    array = numpy_array(path, chosen)
    array.names = track_names(array.path, names, array.tracks)
    return array
