"""Arrays and tables in files that others may have made: NumPy, HDF5, Parquet.

What a file claims is checked before it is read: no more memory is taken than its values need, and nothing in
it is run. Of HDF5, values come from the file itself: a data set whose values lie in another file, or are put
together from others, is not read, nor is what a link leads to.
"""

from __future__ import annotations

import ast
import math
import mmap
import re
import struct
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.disk.atomic import reading
from bigbird_dna.errors import DataError, shortened

if TYPE_CHECKING:
    import pandas as pd

_SUFFIX = ".npy"
_LENGTHS = {(1, 0): "<H", (2, 0): "<I"}  # of the header, by the format's version
_LONGEST_HEADER = 10_000
_PACKING = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
# Deflate makes nothing smaller than by this factor, but for a start and an end.
LARGEST_RATIO, _ENDS = 1032, 1024
_ENCRYPTED = 0x1


class Header(NamedTuple):
    """The array of a `.npy` file as its header has it."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        """Bytes of the values."""
        return math.prod(self.shape) * self.dtype.itemsize


def read_header(stream: IO[bytes]) -> Header:
    """The header of a `.npy` file; the values come next in `stream`.

    `ValueError`: it is none, or one of an array of Python's objects. NumPy raises others too.
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
    with suppress(Exception, MemoryError):  # the latter is raised for too deep an expression
        values = ast.literal_eval(text)
        shape, fortran = values["shape"], values["fortran_order"]
        whole = isinstance(shape, tuple) and all(type(axis) is int for axis in shape)
        if len(values) == 3 and whole and type(fortran) is bool:
            header = Header(shape, fortran, np.lib.format.descr_to_dtype(values["descr"]))
    if header is None:
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

    @property
    def names(self) -> list[str]:
        """Of the arrays, in the file's order."""
        return list(self._members)

    def header(self, name: str) -> Header:
        """The header of an array; `KeyError` if there is no such."""
        with self.open(name) as (header, _):
            return header

    @contextmanager
    def open(self, name: str) -> Iterator[tuple[Header, IO[bytes]]]:
        """The header of an array, and the stream of its values in the order of that."""
        if name not in self._members:
            raise KeyError(f"it has no array {name!r}")
        member = self._members[name]
        if member.flag_bits & _ENCRYPTED:
            raise ValueError(f"array {name!r} is encrypted")
        if member.compress_type not in _PACKING:
            raise ValueError(f"array {name!r} is packed in a way that is not read")
        with self._archive.open(member) as stream:
            header = read_header(stream)
            needed = stream.tell() + header.nbytes
            if needed != member.file_size or needed > LARGEST_RATIO * member.compress_size + _ENDS:
                raise ValueError(f"array {name!r} is truncated: its header promises {needed:,} bytes")
            yield header, stream

    def read(self, name: str) -> NDArray[Any]:
        """The whole array."""
        with self.open(name) as (header, stream):
            data = stream.read(header.nbytes)
        values = np.frombuffer(bytearray(data), header.dtype)
        return values.reshape(header.shape, order="F" if header.fortran else "C")


@contextmanager
def open_npz(path: Path) -> Iterator[Npz]:
    """Open a `.npz` file, in a block of `atomic.reading`: errors of a damaged one are of many kinds."""
    with path.open("rb") as stream, zipfile.ZipFile(stream) as archive:
        yield Npz(archive)


# A collection of texts: its sign, version and reserved bytes; then its size, then its objects.
_COLLECTION = b"GCOL\x01\x00\x00\x00"
_LARGEST_CHUNK = 1 << 29  # bytes, unpacked whole


@contextmanager
def open_hdf5(path: Path) -> Iterator[Any]:
    """Open a file as `h5py.File`; `DataError` where it is damaged, also if the block fails to read it."""
    import h5py

    with reading(path, "not readable as HDF5", Exception), h5py.File(path, "r") as stored:
        yield stored


def own_arrays(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """The data sets of numbers or text below a group, with their names; links are not followed."""
    import h5py

    seen = set()
    left = [(before, group)]
    while left:
        prefix, parent = left.pop()
        for name in parent:
            if not isinstance(parent.get(name, getlink=True), h5py.HardLink):
                continue
            item = parent[name]
            place = h5py.h5o.get_info(item.id).addr
            if isinstance(item, h5py.Group) and place not in seen:
                seen.add(place)
                left.append((f"{prefix}{name}/", item))
            elif isinstance(item, h5py.Dataset):
                yield f"{prefix}{name}", item


def check_array(path: Path, name: str, data: Any) -> None:
    """Refuse a data set (`h5py.Dataset`) that can't hold what it claims, or is not in its file."""
    if data.external or data.is_virtual:
        raise DataError(f"{path}: {name}: its values lie in other files, which are not read")
    size = path.stat().st_size
    claimed = math.prod(data.shape) * data.dtype.itemsize
    if claimed > LARGEST_RATIO * size:
        raise DataError(f"{path}: {name}: {data.shape} is more than a file of {size:,} bytes can hold")
    chunk = math.prod(data.chunks) * data.dtype.itemsize if data.chunks else 0
    if chunk > min(_LARGEST_CHUNK, LARGEST_RATIO * size):
        raise DataError(f"{path}: {name}: chunks of {data.chunks} are too large to be read")


def read_text(path: Path, where: Any, name: str = "") -> Any:
    """A data set of text, or the attribute `name` of one; None if there is no such attribute.

    The library looks for ever for the end of texts whose collection is damaged: they are looked at first.
    """
    if name and name not in where.attrs:
        return None
    stored = where.attrs.get_id(name) if name else where
    if stored.dtype.hasobject:
        _check_collections(path)
    return where.attrs[name] if name else where[()]


def _check_collections(path: Path) -> None:
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        start = data.find(_COLLECTION)
        while start >= 0:
            place, end = start + 16, start + int.from_bytes(data[start + 8 : start + 16], "little")
            while place + 16 <= min(end, len(data)):
                index, size = struct.unpack("<H6xQ", data[place : place + 16])
                place += 16 + -(-size // 8) * 8 if index else size  # the free space counts its own head
                if not index and size < 16:
                    raise DataError(f"{path}: damaged: a collection of texts at byte {start:,} has no end")
            start = data.find(_COLLECTION, start + 8)


_LARGEST = 2**31 - 1


@contextmanager
def open_parquet(path: Path) -> Iterator[Any]:
    """Open a file as `pyarrow.parquet.ParquetFile`; `DataError` where it is damaged, as of `open_hdf5`."""
    import pyarrow.parquet as pq

    with reading(path, "not readable as Parquet", Exception), pq.ParquetFile(path) as stored:
        rows, size = stored.metadata.num_rows, path.stat().st_size
        if not 0 <= rows <= LARGEST_RATIO * size:
            raise DataError(f"{path}: {rows:,} rows are more than a file of {size:,} bytes can hold")
        yield stored


def read_frame(path: Path, columns: Sequence[str] | None = None) -> pd.DataFrame:
    """Read a table, or some columns of it, without what pandas itself wrote into the file about them."""
    with open_parquet(path) as stored:
        table = stored.read(columns=None if columns is None else list(columns))
        table.validate(full=True)  # pandas finds text that is none as late as it is read
        frame: pd.DataFrame = table.replace_schema_metadata(None).to_pandas()
        return frame


def check_cells(path: Path, frame: pd.DataFrame, text: Sequence[str] = (), whole: Sequence[str] = ()) -> None:
    """Refuse columns of text that hold anything else, and of whole numbers from 0 to 2^31 likewise."""
    for name in text:
        if not _is_text(frame[name]):
            raise DataError(f"{path}: column {name!r} holds {frame[name].dtype}, not text in every row")
    for name in whole:
        column = frame[name]
        if column.dtype.kind not in "iu" or column.isna().any():
            raise DataError(f"{path}: column {name!r} holds {column.dtype}, not a whole number in every row")
        wrong = (column < 0) | (column > _LARGEST)
        if wrong.any():
            row = int(wrong.to_numpy().argmax())
            raise DataError(
                f"{path}: row {row + 1:,}: {name} {column.iloc[row]} is not a number from 0 to {_LARGEST:,}"
            )


def _is_text(column: pd.Series[Any]) -> bool:
    import pandas as pd

    if column.isna().any():
        return False
    if isinstance(column.dtype, pd.CategoricalDtype):
        return all(isinstance(name, str) for name in column.cat.categories)
    return pd.api.types.infer_dtype(column, skipna=False) in ("string", "empty")
