"""Arrays in .npy and .npz files."""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from bigbird_dna.errors import DataError
from bigbird_dna.genome.chromatin.labels import PackedLabels
from bigbird_dna.reporting.tables import reading
from bigbird_dna.reporting.tracks.arrays.array import TrackArray, Values, row_step
from bigbird_dna.reporting.tracks.arrays.members import NAMES, choose_array, track_names

_ERRORS = (ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error)


class NumpyArray(TrackArray):
    """A .npy file, or one array of a .npz file, decompressed as it is read.

    Reading, unlike a map, leaves the file out of this process's memory. One in Fortran order is mapped, or
    of a .npz file read whole.
    """

    def __init__(self, path: Path, member: str = "") -> None:
        self._file, self._member = path, member
        with reading(path, f"not readable as {path.suffix.lower()}", *_ERRORS), self._open() as stream:
            shape, self._fortran, dtype = _header(stream)
            super().__init__(f"{path}::{member}" if member else str(path), dtype, shape)
            needed = stream.tell() + math.prod(shape) * dtype.itemsize
        size = path.stat().st_size
        if not member and size < needed:
            raise DataError(f"{path}: truncated: {size:,} bytes, its header promises {needed:,}")

    def chunks(self, first: int, last: int) -> Iterator[Values]:
        step = row_step(self.tracks, self.dtype)
        with reading(self.path, "damaged", *_ERRORS):
            if self._fortran:
                stored = np.load(self._file, mmap_mode="r")
                whole = stored[self._member] if self._member else stored
                for start in range(0, self.rows, step):
                    yield whole[start : start + step, first:last]
                return
            with self._open() as stream:
                _header(stream)
                for start in range(0, self.rows, step):
                    count = min(step, self.rows - start)
                    wanted = count * self.tracks * self.dtype.itemsize
                    data = stream.read(wanted)
                    if len(data) < wanted:
                        raise DataError(f"{self.path}: truncated in row {start + 1} or after it")
                    values = np.frombuffer(data, self.dtype).reshape(count, self.tracks)
                    yield values[:, first:last]

    @contextmanager
    def _open(self) -> Iterator[IO[bytes]]:
        if not self._member:
            with self._file.open("rb") as stream:
                yield stream
        else:
            name = f"{self._member}.npy"
            with zipfile.ZipFile(self._file) as archive, archive.open(name) as member:
                yield member


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


def open_npz(path: Path, name: str, kind: str) -> TrackArray:
    """The array `name` of a .npz file, or the one meant by `kind`; labels of a data set as they are."""
    axes: dict[str, int] = {}  # of each array of numbers
    names = None
    with reading(path, "not readable as .npz", *_ERRORS), zipfile.ZipFile(path) as archive:
        members = [m.removesuffix(".npy") for m in archive.namelist() if m.endswith(".npy")]
        if {"packed", NAMES} <= set(members) and not name:
            return _PackedArray(path)
        for member in members:
            with archive.open(f"{member}.npy") as stream:
                shape, _, dtype = _header(stream)
            if dtype.kind in "fiub":
                axes[member] = len(shape)
        chosen = choose_array(path, name, kind, axes)
        if NAMES in members and chosen != NAMES:
            with archive.open(f"{NAMES}.npy") as stream:
                names = np.lib.format.read_array(stream)
    array = NumpyArray(path, chosen)
    array.names = track_names(array.path, names, array.tracks)
    return array


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(stream)
    if version == (2, 0):
        return np.lib.format.read_array_header_2_0(stream)
    raise ValueError(f"version {version} of the format is not known")
