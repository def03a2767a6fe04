"""Read arrays and tables from untrusted files: NumPy, HDF5, Parquet.

The claims of a file are checked before it is read, so memory is limited to what its values need, and no code
in it is executed. HDF5 values come from the file itself: data sets that refer to other files or combine other
data sets are not read, and links are not followed.
"""

from __future__ import annotations

import ast
import math
import mmap
import re
import struct
import threading
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
_LENGTHS = {(1, 0): "<H", (2, 0): "<I"}  # format of the header's length, by version
_LONGEST_HEADER = 10_000
# Up to version 3.11.7, Python's parser sometimes fails in a thread if another thread parses.
_PARSING = threading.Lock()
_PACKING = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
# Maximum compression factor of deflate, except for a constant number of bytes at the start and end.
LARGEST_RATIO, _ENDS = 1032, 1024
_ENCRYPTED = 0x1


class Header(NamedTuple):
    """Header of an array in a `.npy` file."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        """Size of the values in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


def read_header(stream: IO[bytes]) -> Header:
    """Read the header of a `.npy` file; the values follow in `stream`.

    `ValueError` for an invalid header or an array of Python objects. NumPy can raise other exceptions.
    """
    version = np.lib.format.read_magic(stream)
    if version not in _LENGTHS:
        raise ValueError(f"format version {version} is unknown")
    length = struct.calcsize(_LENGTHS[version])
    size = struct.unpack(_LENGTHS[version], _all(stream, length))[0]
    if size > _LONGEST_HEADER:
        raise ValueError(
            f"the header has {size:,} bytes, more than {_LONGEST_HEADER:,}"
        )
    # NumPy's parser is slow for damaged headers. Python 2 wrote whole numbers as 3L.
    text = re.sub(r"(\d)L\b", r"\1", _all(stream, size).decode("latin1").strip())
    header = None
    # `MemoryError` is raised for deeply nested expressions.
    with suppress(Exception, MemoryError), _PARSING:
        values = ast.literal_eval(text)
        shape, fortran = values["shape"], values["fortran_order"]
        whole = isinstance(shape, tuple) and all(type(axis) is int for axis in shape)
        if len(values) == 3 and whole and type(fortran) is bool:
            header = Header(
                shape, fortran, np.lib.format.descr_to_dtype(values["descr"])
            )
    if header is None:
        raise ValueError(f"invalid header: {shortened(text)}")
    if header.dtype.hasobject:
        raise ValueError("the array contains Python objects, not values")
    if any(size < 0 for size in header.shape):
        raise ValueError(f"invalid shape {header.shape}")
    return header


def _all(stream: IO[bytes], size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise EOFError("the file ends within the header")
    return data


class Npz:
    """The arrays of an open `.npz` file, by name."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        members = [
            member for member in archive.infolist() if member.filename.endswith(_SUFFIX)
        ]
        self._archive = archive
        self._members = {
            member.filename.removesuffix(_SUFFIX): member for member in members
        }
        if len(self._members) < len(members):
            raise ValueError("two arrays have the same name")

    @property
    def names(self) -> list[str]:
        """Names of the arrays, in the file's order."""
        return list(self._members)

    def header(self, name: str) -> Header:
        """Return the header of an array; `KeyError` if it does not exist."""
        with self.open(name) as (header, _):
            return header

    @contextmanager
    def open(self, name: str) -> Iterator[tuple[Header, IO[bytes]]]:
        """Yield the header of an array, and the stream of its values in the header's memory order."""
        if name not in self._members:
            raise KeyError(f"no array {name!r} in the file")
        member = self._members[name]
        if member.flag_bits & _ENCRYPTED:
            raise ValueError(f"array {name!r} is encrypted")
        if member.compress_type not in _PACKING:
            raise ValueError(f"array {name!r} has an unsupported compression")
        with self._archive.open(member) as stream:
            header = read_header(stream)
            needed = stream.tell() + header.nbytes
            if (
                needed != member.file_size
                or needed > LARGEST_RATIO * member.compress_size + _ENDS
            ):
                raise ValueError(
                    f"array {name!r} is truncated: its header specifies {needed:,} bytes"
                )
            yield header, stream

    def read(self, name: str) -> NDArray[Any]:
        """Return the whole array."""
        with self.open(name) as (header, stream):
            data = stream.read(header.nbytes)
        values = np.frombuffer(bytearray(data), header.dtype)
        return values.reshape(header.shape, order="F" if header.fortran else "C")


@contextmanager
def open_npz(path: Path) -> Iterator[Npz]:
    """Open a `.npz` file; use it inside `atomic.reading`, as damaged files raise many exceptions."""
    with path.open("rb") as stream, zipfile.ZipFile(stream) as archive:
        yield Npz(archive)


# A collection of texts: signature, version and reserved bytes; then its size and its objects.
_COLLECTION = b"GCOL\x01\x00\x00\x00"
_LARGEST_CHUNK = 1 << 29  # bytes; a chunk is unpacked as a whole


@contextmanager
def open_hdf5(path: Path) -> Iterator[Any]:
    """Open a file as `h5py.File`; `DataError` if it is damaged, also while the block reads it."""
    import h5py

    with (
        reading(path, "not readable as HDF5", Exception),
        h5py.File(path, "r") as stored,
    ):
        yield stored


def own_arrays(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield names and data sets of numbers or text below a group; links are not followed."""
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
    """Raise `DataError` for an `h5py.Dataset` that is too large for its file or not stored in it."""
    if data.external or data.is_virtual:
        raise DataError(
            f"{path}: {name}: its values are in other files, which is not supported"
        )
    size = path.stat().st_size
    claimed = math.prod(data.shape) * data.dtype.itemsize
    if claimed > LARGEST_RATIO * size:
        raise DataError(
            f"{path}: {name}: a file of {size:,} bytes cannot contain {data.shape} values"
        )
    chunk = math.prod(data.chunks) * data.dtype.itemsize if data.chunks else 0
    if chunk > min(_LARGEST_CHUNK, LARGEST_RATIO * size):
        raise DataError(f"{path}: {name}: chunks of {data.chunks} are too large")


def read_text(path: Path, where: Any, name: str = "") -> Any:
    """Return a data set of text, or its attribute `name`; None if the attribute does not exist.

    The library searches forever in a damaged collection of texts, so collections are checked first.
    """
    if name and name not in where.attrs:
        return None
    stored = where.attrs.get_id(name) if name else where
    if stored.dtype.hasobject:
        _check_collections(path)
    return where.attrs[name] if name else where[()]


def _check_collections(path: Path) -> None:
    with (
        path.open("rb") as stream,
        mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        start = data.find(_COLLECTION)
        while start >= 0:
            place, end = (
                start + 16,
                start + int.from_bytes(data[start + 8 : start + 16], "little"),
            )
            while place + 16 <= min(end, len(data)):
                index, size = struct.unpack("<H6xQ", data[place : place + 16])
                place += (
                    16 + -(-size // 8) * 8 if index else size
                )  # size of free space with its header
                if not index and size < 16:
                    raise DataError(
                        f"{path}: damaged: a text collection at byte {start:,} has no end"
                    )
            start = data.find(_COLLECTION, start + 8)


_LARGEST = 2**31 - 1
_PARQUET_BYTES = 1 << 16


@contextmanager
def open_parquet(path: Path) -> Iterator[Any]:
    """Open a file as `pyarrow.parquet.ParquetFile`; `DataError` if it is damaged, as in `open_hdf5`."""
    import pyarrow.parquet as pq

    # By default, a column is read for all rows of a row group, often a million, at once.
    buffered: Any = {"buffer_size": _PARQUET_BYTES, "pre_buffer": False}
    with (
        reading(path, "not readable as Parquet", Exception),
        pq.ParquetFile(path, **buffered) as stored,
    ):
        rows, size = stored.metadata.num_rows, path.stat().st_size
        if not 0 <= rows <= LARGEST_RATIO * size:
            raise DataError(
                f"{path}: a file of {size:,} bytes cannot contain {rows:,} rows"
            )
        yield stored


def read_frame(path: Path, columns: Sequence[str] | None = None) -> pd.DataFrame:
    """Read a table, or some of its columns, and ignore pandas metadata in the file."""
    with open_parquet(path) as stored:
        table = stored.read(columns=None if columns is None else list(columns))
        table.validate(full=True)  # pandas detects invalid text only on access
        frame: pd.DataFrame = table.replace_schema_metadata(None).to_pandas()
        return frame


def check_cells(
    path: Path, frame: pd.DataFrame, text: Sequence[str] = (), whole: Sequence[str] = ()
) -> None:
    """Raise `DataError` unless columns contain only text, or only whole numbers from 0 to 2^31 - 1."""
    for name in text:
        if not _is_text(frame[name]):
            raise DataError(
                f"{path}: column {name!r} contains {frame[name].dtype}, expected text"
            )
    for name in whole:
        column = frame[name]
        if column.dtype.kind not in "iu" or column.isna().any():
            raise DataError(
                f"{path}: column {name!r} contains {column.dtype}, expected whole numbers"
            )
        wrong = (column < 0) | (column > _LARGEST)
        if wrong.any():
            row = int(wrong.to_numpy().argmax())
            raise DataError(
                f"{path}: row {row + 1:,}: {name} {column.iloc[row]} is not between 0 and {_LARGEST:,}"
            )


def _is_text(column: pd.Series[Any]) -> bool:
    import pandas as pd

    if column.isna().any():
        return False
    if isinstance(column.dtype, pd.CategoricalDtype):
        return all(isinstance(name, str) for name in column.cat.categories)
    return pd.api.types.infer_dtype(column, skipna=False) in ("string", "empty")
