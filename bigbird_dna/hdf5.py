"""HDF5 files that others may have made: what they claim is checked before it is read.

Values come from the file itself: a data set whose values lie in another file, or are put together from
others, is not read, nor is what a link leads to.
"""

import math
import mmap
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bigbird_dna.errors import DataError
from bigbird_dna.files import reading

# Deflate makes nothing smaller than by this factor; a file that claims more would be read for ever.
_SMALLEST = 1032
# A collection of texts: its sign, version and reserved bytes; then its size, then its objects.
_COLLECTION = b"GCOL\x01\x00\x00\x00"
_LARGEST_CHUNK = 1 << 29  # bytes, unpacked whole


@contextmanager
def open_hdf5(path: Path) -> Iterator[Any]:
    """Open a file as `h5py.File`.

    Raises
    ------
    DataError
        It is missing, no HDF5, or damaged; also where the block's reading of it fails.
    """
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
    if claimed > _SMALLEST * size:
        raise DataError(f"{path}: {name}: {data.shape} is more than a file of {size:,} bytes can hold")
    chunk = math.prod(data.chunks) * data.dtype.itemsize if data.chunks else 0
    if chunk > min(_LARGEST_CHUNK, _SMALLEST * size):
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
