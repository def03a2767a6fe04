"""Arrays in .npy and .npz files."""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from bigbird_dna.errors import DataError, error_text
from bigbird_dna.reporting.tracks.arrays.array import TrackArray, Values, check_numbers, row_step
from bigbird_dna.reporting.tracks.arrays.members import NAMES, choose_array, track_names
from bigbird_dna.reporting.tracks.arrays.packed_labels import PackedLabelsArray


class NpyArray:
    """A .npy file, read by rows; a file in Fortran order is mapped into memory."""

    def __init__(self, path: Path) -> None:
        self.path, self.names, self.places = str(path), None, None
        try:
            with path.open("rb") as stream:
                shape, self._fortran, self.dtype = _npy_header(stream)
                self._offset = stream.tell()
        except (OSError, ValueError) as error:
            raise DataError(f"{path}: not readable as .npy: {error_text(error)}") from None
        check_numbers(self.path, self.dtype, shape)
        self.rows, self.tracks = shape
        needed = self._offset + math.prod(shape) * self.dtype.itemsize
        size = path.stat().st_size
        if size < needed:
            raise DataError(f"{path}: truncated: {size:,} bytes, its header promises {needed:,}")

    def chunks(self, first: int, last: int) -> Iterator[Values]:
        step = row_step(self.tracks, self.dtype)
        if self._fortran:
            mapped: Values = np.memmap(
                self.path, self.dtype, "r", self._offset, (self.rows, self.tracks), "F"
            )
            for start in range(0, self.rows, step):
                yield mapped[start : start + step, first:last]
            return
        # Reading, unlike a map, leaves the file out of this process's memory.
        with Path(self.path).open("rb") as stream:
            stream.seek(self._offset)
            for start in range(0, self.rows, step):
                count = min(step, self.rows - start)
                values = np.fromfile(stream, self.dtype, count * self.tracks)
                if len(values) < count * self.tracks:
                    raise DataError(f"{self.path}: truncated in row {start + 1} or after it")
                yield values.reshape(count, self.tracks)[:, first:last]


def open_npz(path: Path, name: str, kind: str) -> TrackArray:
    """The array `name` of a .npz file, or the one meant by `kind`; labels of a data set as they are."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = [m.removesuffix(".npy") for m in archive.namelist() if m.endswith(".npy")]
        if {"packed", NAMES} <= set(members) and not name:
            with np.load(path) as stored:
                return PackedLabelsArray(path, stored["packed"], stored[NAMES])
        chosen = choose_array(path, name, kind, _npz_shapes(path, members))
        names = None
        if NAMES in members and chosen != NAMES:
            with np.load(path) as stored:
                names = stored[NAMES]
        return _NpzArray(path, chosen, names)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path}: not readable as .npz: {error_text(error)}") from None


class _NpzArray:
    """One array of a .npz file, decompressed as it is read."""

    def __init__(self, path: Path, member: str, names: Values | None) -> None:
        self.path = f"{path}::{member}"
        self.places = None
        self._file, self._member = path, f"{member}.npy"
        with zipfile.ZipFile(path) as archive, archive.open(self._member) as stream:
            shape, self._fortran, self.dtype = _npy_header(stream)
        check_numbers(self.path, self.dtype, shape)
        self.rows, self.tracks = shape
        self.names = track_names(self.path, names, self.tracks)

    def chunks(self, first: int, last: int) -> Iterator[Values]:
        step = row_step(self.tracks, self.dtype)
        try:
            if self._fortran:
                with np.load(self._file) as stored:
                    whole = stored[self._member.removesuffix(".npy")]
                for start in range(0, self.rows, step):
                    yield whole[start : start + step, first:last]
                return
            with zipfile.ZipFile(self._file) as archive, archive.open(self._member) as stream:
                _npy_header(stream)
                for start in range(0, self.rows, step):
                    count = min(step, self.rows - start)
                    wanted = count * self.tracks * self.dtype.itemsize
                    data = stream.read(wanted)
                    if len(data) < wanted:
                        raise DataError(f"{self.path}: truncated in row {start + 1} or after it")
                    values = np.frombuffer(data, self.dtype).reshape(count, self.tracks)
                    yield values[:, first:last]
        except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise DataError(f"{self.path}: damaged: {error_text(error)}") from None


def _npz_shapes(path: Path, members: Sequence[str]) -> dict[str, int]:
    """Arrays in the file and their number of axes; text is left out."""
    found = {}
    with zipfile.ZipFile(path) as archive:
        for member in members:
            with archive.open(f"{member}.npy") as stream:
                shape, _, dtype = _npy_header(stream)
            if dtype.kind in "fiub":
                found[member] = len(shape)
    return found


def _npy_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(stream)
    if version == (2, 0):
        return np.lib.format.read_array_header_2_0(stream)
    raise ValueError(f"version {version} of the format is not known")
