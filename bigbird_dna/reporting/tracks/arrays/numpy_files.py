"""Arrays in .npy and .npz files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np

from bigbird_dna.disk.atomic import reading
from bigbird_dna.disk.foreign import Header, open_npz, read_header
from bigbird_dna.errors import DataError
from bigbird_dna.genome.chromatin.labels import PackedLabels
from bigbird_dna.reporting.tracks.arrays.array import TrackArray, Values, as_rows, row_step
from bigbird_dna.reporting.tracks.arrays.members import NAMES, choose_array, track_names

# Bytes of a name of a track, as numpy keeps text: what has more is no name.
_LONGEST_NAME = 4 * 4096


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
