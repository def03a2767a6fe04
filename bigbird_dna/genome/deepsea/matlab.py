"""Large arrays of MATLAB files, version 5 and 7.3 (HDF5), read in pieces.

Shapes are MATLAB's: (rows, …), the rows fastest in the file. HDF5 has the same bytes under the axes
reversed, (…, rows). Values must be 0 or 1, of whatever numeric type. Only one piece of an array is in
memory at a time: SciPy's reader of version 5 would hold an array whole.
"""

import math
import struct
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import h5py
import numpy as np
import numpy.typing as npt

from bigbird_dna.errors import DataError
from bigbird_dna.genome.chromatin.labels import Bytes

_BUDGET = 1 << 26  # bytes of an array in memory at a time
_FILE_BLOCK = 1 << 20

# Version 5 data elements: type number → NumPy's type.
_TYPES = {
    1: "i1",
    2: "u1",
    3: "i2",
    4: "u2",
    5: "i4",
    6: "u4",
    7: "f4",
    9: "f8",
    12: "i8",
    13: "u8",
}
_MATRIX, _COMPRESSED = 14, 15
_NUMERIC_CLASSES = range(6, 16)  # double … uint64; characters, cells, sparse arrays are below


class Block(NamedTuple):
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
    def blocks(self, rows: int) -> Iterator[Block]:
        """All of the first rows of an array (rows, tracks), piece by piece."""

    def _binary(self, values: npt.NDArray[Any]) -> Bytes:
        small = values.astype(np.uint8)
        if small.size and (small.max() > 1 or not np.array_equal(small, values)):
            raise DataError(f"{self.path}: {self.name} holds other values than 0 and 1")
        return small


@contextmanager
def open_mat(path: Path) -> Iterator[dict[str, MatArray]]:
    """Open a MATLAB file; gives its numeric arrays by name.

    Raises
    ------
    DataError
        It is missing, no MATLAB file of version 5 or 7.3, truncated or damaged; also later, while
        arrays are read.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    try:
        if h5py.is_hdf5(path):
            with h5py.File(path, "r") as file:
                yield {
                    name: _Hdf5Array(path, name, item.shape[::-1], item)
                    for name, item in file.items()
                    if isinstance(item, h5py.Dataset) and item.dtype.kind in "buif"
                }
        else:
            with path.open("rb") as stream:
                yield {array.name: array for array in _list_arrays(path, stream)}
    except (OSError, EOFError, zlib.error, struct.error) as error:
        what = " ".join(str(error).split())
        raise DataError(f"{path}: truncated or damaged MATLAB file: {what}") from None


@dataclass(frozen=True)
class _Hdf5Array(MatArray):
    dataset: Any  # h5py.Dataset, axes reversed

    def pick(self, rows: npt.NDArray[np.intp]) -> Bytes:
        """As `MatArray`; every chunk of the file that holds one of the rows is read once."""
        lead = self.dataset.shape[:-1]
        found = np.zeros((*lead, len(rows)), np.uint8)
        chunks = self.dataset.chunks or (1,) * len(lead) + (1024,)
        for group in np.unique(rows // chunks[-1]):
            members = np.flatnonzero(rows // chunks[-1] == group)
            low, high = int(rows[members[0]]), int(rows[members[-1]]) + 1
            row_bytes = math.prod(lead[1:]) * (high - low) * self.dataset.dtype.itemsize
            step = max(chunks[0], _BUDGET // row_bytes // chunks[0] * chunks[0])
            for start in range(0, lead[0], step):
                piece = self.dataset[start : start + step, ..., low:high]
                found[start : start + step, ..., members] = self._binary(
                    piece[..., rows[members] - low]
                )
        return found.transpose()

    def blocks(self, rows: int) -> Iterator[Block]:
        """As `MatArray`, in unions of whole chunks, so that none is unpacked twice."""
        tracks = self.dataset.shape[0]
        height, width = self.dataset.chunks or (1, 1)
        budget = _BUDGET // self.dataset.dtype.itemsize
        height = min(tracks, max(1, budget // (height * width)) * height)
        width *= max(1, budget // (height * width))
        for row in range(0, rows, width):
            for track in range(0, tracks, height):
                values = self.dataset[track : track + height, row : min(row + width, rows)]
                yield Block(track, row, self._binary(values))


@dataclass(frozen=True)
class _Mat5Array(MatArray):
    element: "_Element"

    def pick(self, rows: npt.NDArray[np.intp]) -> Bytes:
        found = np.zeros((math.prod(self.shape[1:]), len(rows)), np.uint8)
        for number, column in enumerate(self._columns()):
            found[number] = self._binary(column[rows])
        return found.reshape(*self.shape[:0:-1], len(rows)).transpose()

    def blocks(self, rows: int) -> Iterator[Block]:
        for track, column in enumerate(self._columns()):
            yield Block(track, 0, self._binary(column[None, :rows]))

    def _columns(self) -> Iterator[npt.NDArray[Any]]:
        """Runs of `shape[0]` values, in the file's order."""
        source = self.element.source()
        *_, dtype, size = _array_header(source, self.element.order)
        if dtype is None or size != math.prod(self.shape) * dtype.itemsize:
            raise DataError(f"{self.path}: {self.name}: {size} bytes don't fill {self.shape}")
        for _ in range(math.prod(self.shape[1:])):
            yield np.frombuffer(source.read(self.shape[0] * dtype.itemsize), dtype)


class _Element(NamedTuple):
    """Where a version 5 array stands in its file."""

    stream: IO[bytes]
    order: str  # "<" or ">"
    start: int
    size: int
    compressed: bool

    def source(self) -> "_Source":
        return _Source(self)


class _Source:
    """The bytes of an element in sequence, unpacked as they are asked for."""

    def __init__(self, element: _Element) -> None:
        self._stream = element.stream
        self._position = element.start
        self._left = element.size
        self._unpack = zlib.decompressobj() if element.compressed else None
        if element.compressed:
            _read_tag(self, element.order)  # of the array inside

    def read(self, size: int) -> bytes:
        if self._unpack is None:
            return self._raw(size, whole=True)
        parts: list[bytes] = []
        while size:
            packed = self._unpack.unconsumed_tail or self._raw(_FILE_BLOCK)
            part = self._unpack.decompress(packed, size)
            if not part and not packed:
                raise EOFError("an array ends too early")
            parts.append(part)
            size -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _raw(self, size: int, whole: bool = False) -> bytes:
        self._stream.seek(self._position)
        found = self._stream.read(min(size, self._left))
        if len(found) < (size if whole else min(size, self._left)):
            raise EOFError("the file ends within an array")
        self._position += len(found)
        self._left -= len(found)
        return found


def _list_arrays(path: Path, stream: IO[bytes]) -> Iterator[_Mat5Array]:
    header = stream.read(128)
    orders = {b"\x00\x01IM": "<", b"\x01\x00MI": ">"}
    order = orders.get(header[124:])
    if order is None:
        raise DataError(f"{path}: not a MATLAB file of version 5 or 7.3")
    end = stream.seek(0, 2)
    position = 128
    while position < end:
        stream.seek(position)
        tag = stream.read(8)
        if len(tag) < 8:
            raise EOFError("the file ends within a tag")
        kind, size = struct.unpack(f"{order}2I", tag)
        if kind not in (_MATRIX, _COMPRESSED):
            raise DataError(f"{path}: damaged MATLAB file: element of type {kind} at {position}")
        if position + 8 + size > end:
            raise EOFError(f"the file ends at byte {end:,}, an array at {position + 8 + size:,}")
        element = _Element(stream, order, position + 8, size, kind == _COMPRESSED)
        name, shape, dtype, _ = _array_header(element.source(), order)
        if dtype is not None:
            yield _Mat5Array(path, name, shape, element)
        position += 8 + size


def _array_header(
    source: _Source, order: str
) -> tuple[str, tuple[int, ...], np.dtype[Any] | None, int]:
    """Name, shape, type and bytes of an array's values, which follow; no type: not numeric."""
    flags = struct.unpack(f"{order}2I", _read_element(source, order))[0]
    shape = np.frombuffer(_read_element(source, order), f"{order}i4").tolist()
    name = _read_element(source, order).decode("latin-1")
    if flags & 0xFF not in _NUMERIC_CLASSES or flags & 0x0800:  # complex numbers
        return name, tuple(shape), None, 0
    kind, size, inline = _read_tag(source, order)
    if inline:
        raise DataError(f"array {name!r} has {size} bytes: too small to hold windows or labels")
    return name, tuple(shape), np.dtype(order + _TYPES[kind]) if kind in _TYPES else None, size


def _read_tag(source: _Source, order: str) -> tuple[int, int, bytes]:
    """Type and size of the element that follows; one of up to 4 bytes stands in its own tag."""
    raw = source.read(8)
    kind, size = struct.unpack(f"{order}2I", raw)
    if kind >> 16:
        return kind & 0xFFFF, kind >> 16, raw[4 : 4 + (kind >> 16)]
    return kind, size, b""


def _read_element(source: _Source, order: str) -> bytes:
    _, size, inline = _read_tag(source, order)
    if inline:
        return inline
    return source.read(-(-size // 8) * 8)[:size]
