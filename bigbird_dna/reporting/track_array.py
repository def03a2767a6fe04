"""Arrays of rows × tracks as their readers see them: in memory, in NumPy's files and in HDF5.

N rows, T tracks. Strings called `tracks`, beside the values or an attribute of them, are the columns' names.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd
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

# Values of this many bytes are read at a time: they stay in a processor's cache while they are spread.
CHUNK = 2 << 20
NAMES = "tracks"
# Bytes of a name of a track, as numpy keeps text: what has more is no name.
_LONGEST_NAME = 4 * 4096

Values = NDArray[Any]
Chunks = Callable[[int, int], Iterator[Values]]


class TrackArray:
    """Values (N, T) that are read in row order; `path` names them in messages.

    `chunks(first, last)` gives tracks `first` to `last` - 1 of all rows, (some rows, last - first) at a time.
    `names` are those of the tracks, and columns of `intervals` tell which interval a row is, where the file
    has them.
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
        """Refuse whatever isn't numbers of rows × tracks; an array of one axis has one track."""
        if dtype.kind not in "fiub":
            raise DataError(f"{path}: holds {dtype}, not numbers")
        if len(shape) not in (1, 2):
            raise DataError(f"{path}: an array of shape {tuple(shape)}, expected rows × tracks")
        self.rows, self.tracks = (*shape, 1)[:2]
        if not self.rows or not self.tracks:
            raise DataError(f"{path}: {self.rows} rows × {self.tracks} tracks: nothing to evaluate")
        self.path, self.dtype, self.chunks = path, dtype, chunks
        self.names, self.intervals = names, intervals


def memory_array(
    path: str, values: Values, names: tuple[str, ...] | None = None, intervals: pd.DataFrame | None = None
) -> TrackArray:
    """An array that is in memory already, or mapped."""
    return TrackArray(path, values.dtype, values.shape, _row_chunks(as_rows(values)), names, intervals)


def _row_chunks(values: Values) -> Chunks:
    def chunks(first: int, last: int) -> Iterator[Values]:
        step = row_step(values.shape[1], values.dtype)
        for start in range(0, len(values), step):
            yield values[start : start + step, first:last]

    return chunks


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


def hdf5_array(path: Path, name: str, kind: str) -> TrackArray:
    """One data set of an HDF5 file: the one of this name, or the one meant by `kind`."""
    with open_hdf5(path) as stored:
        arrays = dict(own_arrays(stored))
        numbers = {key: item.ndim for key, item in arrays.items() if item.dtype.kind in "fiub"}
        chosen = choose_array(path, name.strip("/"), kind, numbers)
        data = arrays[chosen]

        def chunks(first: int, last: int) -> Iterator[Values]:
            # Whole chunks of the file, so that none is decompressed twice in one reading.
            step = -(-row_step(array.tracks, array.dtype) // height) * height
            with open_hdf5(path) as stored:
                data = stored[chosen]
                columns = () if data.ndim == 1 else (slice(first, last),)
                for start in range(0, array.rows, step):
                    yield as_rows(data[(slice(start, start + step), *columns)])

        array = TrackArray(f"{path}::{chosen}", data.dtype, data.shape, chunks)
        check_array(path, chosen, data)
        height = data.chunks[0] if data.chunks else 1
        names = read_text(path, data, NAMES)
        if names is None and NAMES in arrays:
            check_array(path, NAMES, arrays[NAMES])
            names = read_text(path, arrays[NAMES])
    array.names = track_names(array.path, names, array.tracks)
    return array


def numpy_array(path: Path, member: str = "") -> TrackArray:
    """A .npy file, or one array of a .npz file, decompressed as it is read.

    Reading, unlike a map, leaves the file out of this process's memory. One in Fortran order is mapped, or
    of a .npz file read whole.
    """

    @contextmanager
    def opened() -> Iterator[tuple[Header, IO[bytes]]]:
        """The header, and the stream of values that follows it."""
        if not member:
            with path.open("rb") as stream:
                yield read_header(stream), stream
        else:
            with open_npz(path) as stored, stored.open(member) as found:
                yield found

    def whole() -> Values:
        if not member:
            return as_rows(np.asarray(np.load(path, mmap_mode="r")))
        with open_npz(path) as stored:
            return as_rows(stored.read(member))

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
                        raise DataError(f"{array.path}: truncated in row {start + 1} or after it")
                    values = np.frombuffer(data, array.dtype).reshape(count, array.tracks)
                    yield values[:, first:last]

    with reading(path, f"not readable as {path.suffix.lower()}", Exception), opened() as (header, stream):
        array = TrackArray(f"{path}::{member}" if member else str(path), header.dtype, header.shape, chunks)
        needed = stream.tell() + header.nbytes
    size = path.stat().st_size
    if not member and size < needed:
        raise DataError(f"{path}: truncated: {size:,} bytes, its header promises {needed:,}")
    return array


def packed_array(path: Path) -> TrackArray:
    """Labels of a chromatin data set, unpacked as they are read."""
    labels = PackedLabels.load(path)

    def chunks(first: int, last: int) -> Iterator[Values]:
        low = first // 8  # the byte that holds the first track
        step = row_step(last - 8 * low, np.dtype(np.uint8))
        for start in range(0, labels.shape[0], step):
            packed = labels.packed[start : start + step, low : -(-last // 8)]
            yield PackedLabels(packed, last - 8 * low).rows()[:, first - 8 * low :]

    return TrackArray(str(path), np.dtype(np.uint8), labels.shape, chunks)


def open_archive(path: Path, name: str, kind: str) -> TrackArray:
    """The array `name` of a .npz file, or the one meant by `kind`; labels of a data set as they are."""
    names = None
    with reading(path, "not readable as .npz", Exception), open_npz(path) as stored:
        if {"packed", NAMES} <= set(stored.names) and not name:
            return packed_array(path)
        headers = {member: stored.header(member) for member in stored.names}
        numbers = {member: len(one.shape) for member, one in headers.items() if one.dtype.kind in "fiub"}
        chosen = choose_array(path, name, kind, numbers)
        listed = headers.get(NAMES)
        if listed is not None and chosen != NAMES and listed.dtype.itemsize <= _LONGEST_NAME:
            names = stored.read(NAMES)
    array = numpy_array(path, chosen)
    array.names = track_names(array.path, names, array.tracks)
    return array
