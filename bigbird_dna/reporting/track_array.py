"""Arrays of rows × tracks as their readers see them: in memory, in NumPy's files and in HDF5.

N rows, T tracks. Strings called `tracks`, beside the values or an attribute of them, are the columns' names.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.disk.atomic import reading
from bigbird_dna.disk.foreign import (
    Header,
    check_array,
    open_hdf5,
    open_npz,
    own_arrays,
    read_header,
    read_text,
)
from bigbird_dna.errors import DataError
from bigbird_dna.genome.chromatin.labels import PackedLabels

if TYPE_CHECKING:
    import pandas as pd


# Values of this many bytes are read at a time: they stay in a processor's cache while they are spread.
CHUNK = 2 << 20
Values = NDArray[Any]

# Strings of this name, beside the values or an attribute of them, are the columns' names.
NAMES = "tracks"

# Bytes of a name of a track, as numpy keeps text: what has more is no name.
_LONGEST_NAME = 4 * 4096


class TrackArray(ABC):
    """Values (N, T) that are read in row order; `path` is what messages call them."""

    names: tuple[str, ...] | None = None
    """Of the tracks; `None` where the file has none."""
    intervals: pd.DataFrame | None = None
    """Columns that say which interval a row is, where the file has any."""

    def __init__(self, path: str, dtype: np.dtype[Any], shape: Sequence[int]) -> None:
        """Refuse whatever isn't numbers of rows × tracks; an array of one axis has one track."""
        if dtype.kind not in "fiub":
            raise DataError(f"{path}: holds {dtype}, not numbers")
        if len(shape) not in (1, 2):
            raise DataError(f"{path}: an array of shape {tuple(shape)}, expected rows × tracks")
        rows, tracks = (*shape, 1)[:2]
        if not rows or not tracks:
            raise DataError(f"{path}: {rows} rows × {tracks} tracks: nothing to judge")
        self.path, self.dtype = path, dtype
        self.rows, self.tracks = rows, tracks

    @abstractmethod
    def chunks(self, first: int, last: int) -> Iterator[Values]:
        """Tracks `first` to `last` - 1 of all rows, (some rows, last - first) at a time, in order."""


class MemoryArray(TrackArray):
    """An array that is in memory already."""

    def __init__(
        self,
        path: str,
        values: Values,
        names: tuple[str, ...] | None = None,
        intervals: pd.DataFrame | None = None,
    ) -> None:
        super().__init__(path, values.dtype, values.shape)
        self.names, self.intervals = names, intervals
        self._values = as_rows(values)

    def chunks(self, first: int, last: int) -> Iterator[Values]:
        step = row_step(self.tracks, self.dtype)
        for start in range(0, self.rows, step):
            yield self._values[start : start + step, first:last]


def as_rows(values: Values) -> Values:
    """An array of one axis as rows of one track; another as it is."""
    return values[:, None] if values.ndim == 1 else values


def row_step(tracks: int, dtype: np.dtype[Any]) -> int:
    """Rows to read at a time."""
    return max(CHUNK // max(tracks * dtype.itemsize, 1), 64)


def choose_array(path: Path, name: str, kind: str, found: Mapping[str, int]) -> str:
    """The array of a file that is meant: the named, that called as `kind`, or the only one."""
    listed = ", ".join(sorted(found)) or "none"
    if name:
        if name not in found:
            raise DataError(f"{path}: no array {name!r} of numbers (found: {listed})")
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
        f"{path}: {len(flat)} arrays of rows × tracks (found: {listed}); name one as {path}::NAME"
    )


def track_names(path: str, values: Any, tracks: int) -> tuple[str, ...] | None:
    """Names of tracks as text; anything that isn't a list of text counts as none."""
    if values is None:
        return None
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype.kind not in "SUOT":
        return None
    try:
        names = tuple(v.decode() if isinstance(v, bytes) else str(v) for v in array.tolist())
    except UnicodeDecodeError:
        raise DataError(f"{path}: the name of a track is not UTF-8") from None
    if len(names) != tracks:
        raise DataError(f"{path}: {len(names)} names of tracks beside {tracks} columns")
    return names


class Hdf5TrackArray(TrackArray):
    """One data set of an HDF5 file."""

    def __init__(self, path: Path, name: str, kind: str) -> None:

        self._file = path
        with open_hdf5(path) as stored:
            arrays = dict(own_arrays(stored))
            numbers = {key: item.ndim for key, item in arrays.items() if item.dtype.kind in "fiub"}
            self._name = choose_array(path, name.strip("/"), kind, numbers)
            data = arrays[self._name]
            super().__init__(f"{path}::{self._name}", data.dtype, data.shape)
            check_array(path, self._name, data)
            # Whole chunks of the file, so that none is decompressed twice in one reading.
            height = data.chunks[0] if data.chunks else 1
            step = row_step(self.tracks, self.dtype)
            self._step = -(-step // height) * height
            names = read_text(path, data, NAMES)
            if names is None and NAMES in arrays:
                check_array(path, NAMES, arrays[NAMES])
                names = read_text(path, arrays[NAMES])
        self.names = track_names(self.path, names, self.tracks)

    def chunks(self, first: int, last: int) -> Iterator[Values]:
        with open_hdf5(self._file) as stored:
            data = stored[self._name]
            columns = () if data.ndim == 1 else (slice(first, last),)
            for start in range(0, self.rows, self._step):
                yield as_rows(data[(slice(start, start + self._step), *columns)])


class NumpyArray(TrackArray):
    """A .npy file, or one array of a .npz file, decompressed as it is read.

    Reading, unlike a map, leaves the file out of this process's memory. One in Fortran order is mapped, or
    of a .npz file read whole.
    """

    def __init__(self, path: Path, member: str = "") -> None:
        self._file, self._member = path, member
        with (
            reading(path, f"not readable as {path.suffix.lower()}", Exception),
            self._open() as (header, stream),
        ):
            super().__init__(f"{path}::{member}" if member else str(path), header.dtype, header.shape)
            self._fortran = header.fortran
            needed = stream.tell() + header.nbytes
        size = path.stat().st_size
        if not member and size < needed:
            raise DataError(f"{path}: truncated: {size:,} bytes, its header promises {needed:,}")

    def chunks(self, first: int, last: int) -> Iterator[Values]:
        step = row_step(self.tracks, self.dtype)
        with reading(self.path, "damaged", Exception):
            if self._fortran:
                whole = self._whole()
                for start in range(0, self.rows, step):
                    yield whole[start : start + step, first:last]
                return
            with self._open() as (_, stream):
                for start in range(0, self.rows, step):
                    count = min(step, self.rows - start)
                    wanted = count * self.tracks * self.dtype.itemsize
                    data = stream.read(wanted)
                    if len(data) < wanted:
                        raise DataError(f"{self.path}: truncated in row {start + 1} or after it")
                    values = np.frombuffer(data, self.dtype).reshape(count, self.tracks)
                    yield values[:, first:last]

    @contextmanager
    def _open(self) -> Iterator[tuple[Header, IO[bytes]]]:
        """The header, and the stream of values that follows it."""
        if not self._member:
            with self._file.open("rb") as stream:
                yield read_header(stream), stream
        else:
            with open_npz(self._file) as stored, stored.open(self._member) as member:
                yield stored.header(self._member), member

    def _whole(self) -> Values:
        if not self._member:
            return as_rows(np.asarray(np.load(self._file, mmap_mode="r")))
        with open_npz(self._file) as stored:
            return as_rows(stored.read(self._member))


class _PackedArray(TrackArray):
    """Labels of a chromatin data set, unpacked as they are read."""

    def __init__(self, path: Path) -> None:
        self._labels = PackedLabels.load(path)
        super().__init__(str(path), np.dtype(np.uint8), self._labels.shape)

    def chunks(self, first: int, last: int) -> Iterator[Values]:
        low = first // 8  # the byte that holds the first track
        step = row_step(last - 8 * low, self.dtype)
        for start in range(0, self.rows, step):
            packed = self._labels.packed[start : start + step, low : -(-last // 8)]
            yield PackedLabels(packed, last - 8 * low).rows()[:, first - 8 * low :]


def open_archive(path: Path, name: str, kind: str) -> TrackArray:
    """The array `name` of a .npz file, or the one meant by `kind`; labels of a data set as they are."""
    names = None
    with reading(path, "not readable as .npz", Exception), open_npz(path) as stored:
        if {"packed", NAMES} <= set(stored.names) and not name:
            return _PackedArray(path)
        headers = {member: stored.header(member) for member in stored.names}
        numbers = {member: len(one.shape) for member, one in headers.items() if one.dtype.kind in "fiub"}
        chosen = choose_array(path, name, kind, numbers)
        listed = headers.get(NAMES)
        if listed is not None and chosen != NAMES and listed.dtype.itemsize <= _LONGEST_NAME:
            names = stored.read(NAMES)
    array = NumpyArray(path, chosen)
    array.names = track_names(array.path, names, array.tracks)
    return array
