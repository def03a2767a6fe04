"""Large arrays of MATLAB files, version 5 and 7.3 (HDF5).

Shapes are MATLAB's: (rows, …), the rows fastest in the file. HDF5 has the same bytes under the axes
reversed, (…, rows). Values must be 0 or 1, of whatever numeric type. HDF5 is read in chunks. An
array of version 5, which can't have more than 4 GB, is read whole: the bundle's largest, the windows
of `test.mat`, has 1.8 GB.
"""

import math
import struct
import warnings
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import numpy.typing as npt
import scipy.io

from bigbird_dna.disk.foreign import check_array, own_arrays
from bigbird_dna.errors import DataError, error_text
from bigbird_dna.genome.chromatin.labels import Bytes

BUDGET = 1 << 26  # bytes of an HDF5 array in memory at a time

# Of version 5: the numbers of data elements, and of the types and classes of numeric arrays.
_COMPRESSED = 15
_TYPES = {1: 1, 2: 1, 3: 2, 4: 2, 5: 4, 6: 4, 7: 4, 9: 8, 12: 8, 13: 8}  # with the bytes of a value
_NUMERIC_CLASSES = range(6, 16)
_OPAQUE = 17  # a class that has neither dimensions nor name
_COMPLEX = 0x0800  # a flag
_SMALLEST = 1032  # deflate makes nothing smaller than by this factor
_HEADER = 1024  # bytes that hold an array's flags, dimensions and name
_BYTE_ORDERS = {b"\x00\x01IM": "<", b"\x01\x00MI": ">"}  # bytes 124 to 127 of a file of version 5
_NUMERIC = {"double", "single", "logical"} | {
    f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)
}


class LabelPart(NamedTuple):
    """Labels of consecutive tracks and rows, (tracks, rows)."""

    track: int
    row: int
    values: Bytes


@dataclass(frozen=True)
class MatArray(ABC):
    """A numeric array of a MATLAB file."""

    path: Path
    name: str
    shape: tuple[int, ...]

    @abstractmethod
    def pick(self, rows: npt.NDArray[np.intp]) -> Bytes:
        """Some rows, given in ascending order, (n, *shape[1:])."""

    @abstractmethod
    def parts(self, rows: int) -> Iterator[LabelPart]:
        """All of the first rows of an array (rows, tracks), chunk by chunk."""

    def _binary(self, values: npt.NDArray[Any]) -> Bytes:
        small = values.astype(np.uint8)
        if small.size and (small.max() > 1 or not np.array_equal(small, values)):
            raise DataError(f"{self.path}: {self.name} holds other values than 0 and 1")
        return small


@contextmanager
def open_mat(path: Path) -> Iterator[dict[str, MatArray]]:
    """Open a MATLAB file; gives its numeric arrays by name.

    A file that is no such one, truncated or damaged is a `DataError`, also later, while arrays are read.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    try:
        if h5py.is_hdf5(path):
            with h5py.File(path, "r") as file:
                with _faults(path):
                    found: dict[str, MatArray] = {
                        name: _Hdf5Array(path, name, item.shape[::-1], item)
                        for name, item in own_arrays(file)
                        if "/" not in name and item.dtype.kind in "buif"
                    }
                yield found
        else:
            with _faults(path):
                _check_elements(path)
                listed = scipy.io.whosmat(path)
            yield {
                name: _Version5Array(path, name, shape) for name, shape, kind in listed if kind in _NUMERIC
            }
    except OSError as error:
        raise DataError(f"{path}: truncated or damaged MATLAB file: {error_text(error)}") from None


@dataclass(frozen=True)
class _Hdf5Array(MatArray):
    dataset: Any  # h5py.Dataset, axes reversed

    def pick(self, rows: npt.NDArray[np.intp]) -> Bytes:
        """As `MatArray`; every chunk of the file that holds one of the rows is read once."""
        check_array(self.path, self.name, self.dataset)
        lead = self.dataset.shape[:-1]
        found = np.zeros((*lead, len(rows)), np.uint8)
        chunks = self.dataset.chunks or (1,) * len(lead) + (1024,)
        for group in np.unique(rows // chunks[-1]):
            members = np.flatnonzero(rows // chunks[-1] == group)
            low, high = int(rows[members[0]]), int(rows[members[-1]]) + 1
            row_bytes = math.prod(lead[1:]) * (high - low) * self.dataset.dtype.itemsize
            step = max(chunks[0], BUDGET // max(row_bytes, 1) // chunks[0] * chunks[0])
            for start in range(0, lead[0], step):
                with _faults(self.path):
                    chunk = self.dataset[start : start + step, ..., low:high]
                found[start : start + step, ..., members] = self._binary(chunk[..., rows[members] - low])
        return found.transpose()

    def parts(self, rows: int) -> Iterator[LabelPart]:
        """As `MatArray`, in unions of whole chunks, so that none is unpacked twice."""
        check_array(self.path, self.name, self.dataset)
        tracks = self.dataset.shape[0]
        if not tracks:
            return
        height, width = self.dataset.chunks or (1, 1)
        budget = BUDGET // self.dataset.dtype.itemsize
        height = min(tracks, max(1, budget // (height * width)) * height)
        width *= max(1, budget // (height * width))
        for row in range(0, rows, width):
            for track in range(0, tracks, height):
                with _faults(self.path):
                    values = self.dataset[track : track + height, row : min(row + width, rows)]
                yield LabelPart(track, row, self._binary(values))


@dataclass(frozen=True)
class _Version5Array(MatArray):
    def pick(self, rows: npt.NDArray[np.intp]) -> Bytes:
        """As `MatArray`."""
        return self._binary(self._read()[rows])

    def parts(self, rows: int) -> Iterator[LabelPart]:
        """As `MatArray`, a few tracks at a time."""
        values = self._read()
        for track in range(0, self.shape[1], 8):
            yield LabelPart(track, 0, self._binary(values[:rows, track : track + 8].T))

    def _read(self) -> npt.NDArray[Any]:
        with _faults(self.path):
            found = scipy.io.loadmat(self.path, variable_names=[self.name])[self.name]
        if found.shape != self.shape or found.dtype.kind not in "buif":
            raise DataError(
                f"{self.path}: {self.name} is {found.dtype} {found.shape}, not {self.shape} of numbers"
            )
        return np.asarray(found)


def _check_elements(path: Path) -> None:
    """Refuse a damaged file where SciPy doesn't notice, or crashes the process.

    Its list of arrays merely ends before one that the file's end cuts; and it looks up an array's
    type number without asking whether the format has it.
    """
    with path.open("rb") as stream:
        head = stream.read(128)
        order = _BYTE_ORDERS.get(head[124:])
        if order is None or 0 in head[:4]:  # the latter is version 4 to SciPy
            raise DataError(f"{path}: not a MATLAB file of version 5 or 7.3")
        end, position = stream.seek(0, 2), 128
        while position < end:
            stream.seek(position)
            kind, size = struct.unpack(f"{order}2I", stream.read(8))
            start, largest = stream.read(min(size, _HEADER)), size
            if kind == _COMPRESSED:
                start = zlib.decompressobj().decompress(start, _HEADER)[8:]
                largest = _SMALLEST * size
            _check_array(start, order, largest)
            position += 8 + size
    if position != end:
        raise EOFError(f"it ends at byte {end:,}, an array at {position:,}")


def _check_array(start: bytes, order: str, largest: int) -> None:
    """Check a numeric array by the bytes from its flags on: the type of its values, and that all are there.

    `largest` is how many bytes the array can have at most, in a file of its size.
    """
    flags = struct.unpack_from(f"{order}I", start, 8)[0]
    if flags & 0xFF == _OPAQUE:
        return
    position = 0
    shape: tuple[int, ...] = ()
    for what, type_, most in (("flags", 6, 8), ("dimensions", 5, 4 * 32), ("name", 1, 256)):
        kind, size = struct.unpack_from(f"{order}2I", start, position)
        small = kind >> 16
        size = small or size
        # SciPy doesn't look at the first of these tags: whoever reads it otherwise sees another array.
        if kind & 0xFFFF != type_ or size > (4 if small else most) or (what == "flags" and size != 8):
            raise ValueError(f"an array whose {what} have {size:,} bytes")
        if what == "dimensions":
            shape = struct.unpack_from(f"{order}{size // 4}i", start, position + (4 if small else 8))
        # An element of up to 4 bytes stands in its own tag, its size before the type.
        position += 8 if small else 8 + -(-size // 8) * 8
    if flags & 0xFF not in _NUMERIC_CLASSES:
        return
    kind, size = struct.unpack_from(f"{order}2I", start, position)
    if kind >> 16:
        kind, size = kind & 0xFFFF, kind >> 16
    if kind not in _TYPES or flags & _COMPLEX:
        raise ValueError(f"an array of type {kind}" + " with imaginary parts" * bool(flags & _COMPLEX))
    if size != math.prod(shape) * _TYPES[kind] or size > largest:
        raise ValueError(f"an array {shape} of {size:,} bytes")


@contextmanager
def _faults(path: Path) -> Iterator[None]:
    """Make one `DataError` of whatever a parser raises, or warns of, where a file is damaged."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # SciPy gives a text in place of an array it can't read
            yield
    except (DataError, MemoryError):
        raise
    except Exception as error:
        raise DataError(f"{path}: truncated or damaged MATLAB file: {error_text(error)}") from None
