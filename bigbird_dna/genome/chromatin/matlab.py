"""Read large arrays of MATLAB files, version 5 and 7.3 (HDF5).

Shapes are MATLAB's: (rows, …), with rows as the fastest axis of the file. HDF5 has the same bytes with the
axes reversed, (…, rows). Values must be 0 or 1, of any numeric type. HDF5 is read in chunks. An array of
version 5 has at most 4 GB and is read as a whole; the largest, the windows of `test.mat`, has 1.8 GB.
"""

import math
import struct
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import scipy.io

from bigbird_dna.disk.atomic import reading
from bigbird_dna.disk.foreign import check_array, own_arrays
from bigbird_dna.errors import DataError
from bigbird_dna.genome.chromatin.labels import Bytes

_DAMAGED = "truncated or damaged MATLAB file"
BUDGET = 1 << 26  # bytes of an HDF5 array in memory at a time

# Version 5: codes of data elements, and of the types and classes of numeric arrays.
_COMPRESSED = 15
_TYPES = {
    1: 1,
    2: 1,
    3: 2,
    4: 2,
    5: 4,
    6: 4,
    7: 4,
    9: 8,
    12: 8,
    13: 8,
}  # type code → bytes per value
_NUMERIC_CLASSES = range(6, 16)
_OPAQUE = 17  # class without dimensions and name
_COMPLEX = 0x0800  # flag
_SMALLEST = 1032  # maximum compression factor of deflate
_HEADER = 1024  # maximum bytes of an array's flags, dimensions and name
_BYTE_ORDERS = {
    b"\x00\x01IM": "<",
    b"\x01\x00MI": ">",
}  # bytes 124 to 127 of a file of version 5
_NUMERIC = {"double", "single", "logical"} | {
    f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)
}


@dataclass(frozen=True)
class MatArray:
    """A numeric array of a MATLAB file."""

    path: Path
    name: str
    shape: tuple[int, ...]
    open: Callable[
        [], Any
    ]  # returns the values, axes reversed; HDF5 is read when indexed

    def pick(self, rows: npt.NDArray[np.intp]) -> Bytes:
        """Return rows, given in ascending order, (n, *shape[1:]); each chunk is read once."""
        dataset = self.open()
        with _faults(self.path):
            found = dataset[..., rows]
        return self._binary(found).transpose()

    def parts(self, rows: int) -> Iterator[tuple[int, int, Bytes]]:
        """Yield first track, first row and values of the parts (tracks, rows) of an array (rows, tracks).

        Only the first `rows` rows are read. Parts consist of complete chunks, so no chunk is read twice.
        """
        dataset = self.open()
        tracks = dataset.shape[0]
        if not tracks:
            return
        height, width = getattr(dataset, "chunks", None) or (1, 1)
        budget = BUDGET // dataset.dtype.itemsize
        height = min(tracks, max(1, budget // (height * width)) * height)
        width *= max(1, budget // (height * width))
        for row in range(0, rows, width):
            for track in range(0, tracks, height):
                with _faults(self.path):
                    values = dataset[
                        track : track + height, row : min(row + width, rows)
                    ]
                yield track, row, self._binary(values)

    def _binary(self, values: npt.NDArray[Any]) -> Bytes:
        small = values.astype(np.uint8)
        if small.size and (small.max() > 1 or not np.array_equal(small, values)):
            raise DataError(
                f"{self.path}: {self.name} contains values other than 0 and 1"
            )
        return small


@contextmanager
def open_mat(path: Path) -> Iterator[dict[str, MatArray]]:
    """Open a MATLAB file and yield its numeric arrays by name.

    A truncated or damaged file, or another file type, is a `DataError`, also later while arrays are read.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    with reading(path, _DAMAGED):
        if h5py.is_hdf5(path):
            with h5py.File(path, "r") as file:
                with _faults(path):
                    found = {
                        name: MatArray(
                            path,
                            name,
                            item.shape[::-1],
                            partial(_checked, path, name, item),
                        )
                        for name, item in own_arrays(file)
                        if "/" not in name and item.dtype.kind in "buif"
                    }
                yield found
            return
        with _faults(path):
            _check_elements(path)
            listed = scipy.io.whosmat(path)
        yield {
            name: MatArray(
                path, name, shape, partial(_read_version5, path, name, shape)
            )
            for name, shape, kind in listed
            if kind in _NUMERIC
        }


def _checked(path: Path, name: str, dataset: Any) -> Any:
    check_array(path, name, dataset)
    return dataset


def _read_version5(path: Path, name: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    with _faults(path):
        found = scipy.io.loadmat(path, variable_names=[name])[name]
    if found.shape != shape or found.dtype.kind not in "buif":
        raise DataError(
            f"{path}: {name} is {found.dtype} {found.shape}, expected numbers {shape}"
        )
    return np.asarray(found).transpose()


def _check_elements(path: Path) -> None:
    """Raise for a damaged file that SciPy does not detect, or on which it crashes the process.

    SciPy's list of arrays omits an array that is cut by the end of the file. SciPy also looks up an array's
    type code without checking that the format defines it.
    """
    with path.open("rb") as stream:
        head = stream.read(128)
        order = _BYTE_ORDERS.get(head[124:])
        if order is None or 0 in head[:4]:  # SciPy takes a zero here for version 4
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
        raise EOFError(f"the file ends at byte {end:,}, an array at byte {position:,}")


def _check_array(start: bytes, order: str, largest: int) -> None:
    """Check a numeric array by the bytes from its flags on: the type and the number of its values.

    `largest` is the maximum number of bytes of the array in a file of this size.
    """
    flags = struct.unpack_from(f"{order}I", start, 8)[0]
    if flags & 0xFF == _OPAQUE:
        return
    position = 0
    shape: tuple[int, ...] = ()
    for what, type_, most in (
        ("flags", 6, 8),
        ("dimensions", 5, 4 * 32),
        ("name", 1, 256),
    ):
        kind, size = struct.unpack_from(f"{order}2I", start, position)
        small = kind >> 16
        size = small or size
        # SciPy ignores the first of these tags, so another reader could see a different array.
        if (
            kind & 0xFFFF != type_
            or size > (4 if small else most)
            or (what == "flags" and size != 8)
        ):
            raise ValueError(f"the {what} of an array have {size:,} bytes")
        if what == "dimensions":
            shape = struct.unpack_from(
                f"{order}{size // 4}i", start, position + (4 if small else 8)
            )
        # An element of up to 4 bytes is stored inside its tag, with the size before the type.
        position += 8 if small else 8 + -(-size // 8) * 8
    if flags & 0xFF not in _NUMERIC_CLASSES:
        return
    kind, size = struct.unpack_from(f"{order}2I", start, position)
    if kind >> 16:
        kind, size = kind & 0xFFFF, kind >> 16
    if kind not in _TYPES or flags & _COMPLEX:
        raise ValueError(
            f"an array has type {kind}"
            + " with imaginary parts" * bool(flags & _COMPLEX)
        )
    if size != math.prod(shape) * _TYPES[kind] or size > largest:
        raise ValueError(f"an array {shape} has {size:,} bytes")


@contextmanager
def _faults(path: Path) -> Iterator[None]:
    """Convert all exceptions and warnings of a parser on a damaged file to `DataError`."""
    with reading(path, _DAMAGED, Exception), warnings.catch_warnings():
        warnings.simplefilter(
            "error"
        )  # SciPy warns and returns text for an array that it cannot read
        yield
