"""Arrays in `.npy` and `.npz` files that others may have made: what they claim is checked before it is read.

No more memory is taken than a file's values need, and nothing in it is run.
"""

import ast
import math
import re
import struct
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.errors import shortened

_SUFFIX = ".npy"
_LENGTHS = {(1, 0): "<H", (2, 0): "<I"}  # of the header, by the format's version
_LONGEST_HEADER = 10_000
_PACKING = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
# Deflate makes nothing smaller than by this factor, but for a start and an end.
_SMALLEST, _ENDS = 1032, 1024
_ENCRYPTED = 0x1


class Header(NamedTuple):
    """What a `.npy` file says of its array."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        """Bytes of the values."""
        return math.prod(self.shape) * self.dtype.itemsize


def read_header(stream: IO[bytes]) -> Header:
    """The header of a `.npy` file; the values come next in `stream`.

    Raises
    ------
    ValueError
        It is none, or one of an array of Python's objects. NumPy raises others too.
    """
    version = np.lib.format.read_magic(stream)
    if version not in _LENGTHS:
        raise ValueError(f"version {version} of the format is not known")
    length = struct.calcsize(_LENGTHS[version])
    size = struct.unpack(_LENGTHS[version], _all(stream, length))[0]
    if size > _LONGEST_HEADER:
        raise ValueError(f"its header has {size:,} bytes")
    # NumPy's own parser works for long on a damaged header. Python 2 wrote whole numbers as 3L.
    text = re.sub(r"(\d)L\b", r"\1", _all(stream, size).decode("latin1").strip())
    header = None
    with suppress(Exception, MemoryError):  # the latter is what Python says of too deep an expression
        values = ast.literal_eval(text)
        if len(values) == 3:
            dtype = np.lib.format.descr_to_dtype(values["descr"])
            header = Header(values["shape"], values["fortran_order"], dtype)
    if header is None:
        raise ValueError(f"its header can't be read: {shortened(text)}")
    whole = isinstance(header.shape, tuple) and all(type(axis) is int for axis in header.shape)
    if not whole or type(header.fortran) is not bool:
        raise ValueError(f"its header can't be read: {shortened(text)}")
    if header.dtype.hasobject:
        raise ValueError("it holds Python's objects, not values")
    if any(size < 0 for size in header.shape):
        raise ValueError(f"an array of shape {header.shape}")
    return header


def _all(stream: IO[bytes], size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise EOFError("it ends within its header")
    return data


class Npz:
    """The arrays of an open `.npz` file, by name."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        members = [member for member in archive.infolist() if member.filename.endswith(_SUFFIX)]
        self._archive = archive
        self._members = {member.filename.removesuffix(_SUFFIX): member for member in members}
        if len(self._members) < len(members):
            raise ValueError("two of its arrays have one name")
        self._headers: dict[str, Header] = {}

    @property
    def names(self) -> list[str]:
        """Of the arrays, in the file's order."""
        return list(self._members)

    def header(self, name: str) -> Header:
        """What the array says of itself; `KeyError` if there is no such."""
        if name not in self._headers:
            with self.open(name):
                pass
        return self._headers[name]

    @contextmanager
    def open(self, name: str) -> Iterator[IO[bytes]]:
        """A stream of an array's values, in the order of its header."""
        if name not in self._members:
            raise KeyError(f"it has no array {name!r}")
        member = self._members[name]
        if member.flag_bits & _ENCRYPTED:
            raise ValueError(f"array {name!r} is encrypted")
        if member.compress_type not in _PACKING:
            raise ValueError(f"array {name!r} is packed in a way that is not read")
        with self._archive.open(member) as stream:
            header = self._headers[name] = read_header(stream)
            needed = stream.tell() + header.nbytes
            if needed != member.file_size or needed > _SMALLEST * member.compress_size + _ENDS:
                raise ValueError(f"array {name!r} is truncated: its header promises {needed:,} bytes")
            yield stream

    def read(self, name: str) -> NDArray[Any]:
        """The whole array."""
        with self.open(name) as stream:
            header = self._headers[name]
            data = stream.read(header.nbytes)
        values = np.frombuffer(bytearray(data), header.dtype)
        return values.reshape(header.shape, order="F" if header.fortran else "C")


@contextmanager
def open_npz(path: Path) -> Iterator[Npz]:
    """Open a `.npz` file. What is raised of a damaged one is of many kinds; `files.reading` tells it."""
    with path.open("rb") as stream, zipfile.ZipFile(stream) as archive:
        yield Npz(archive)
