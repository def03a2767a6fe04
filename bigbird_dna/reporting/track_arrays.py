"""Arrays of rows × tracks on disk, read a few rows at a time: .npy, .npz, .h5, .parquet and .tsv[.gz].

N rows, T tracks. A file with several arrays is given as `FILE::NAME`. Column names come from a
table's header, or from an array or attribute of strings called `tracks` beside the values.
"""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

# Values of this many bytes are read at a time: they stay in a processor's cache while they are spread.
_CHUNK = 2 << 20
NAMES = "tracks"
Values = NDArray[Any]


class TrackArray(Protocol):
    """Values (N, T) that are read in row order."""

    @property
    def path(self) -> str:
        """What messages call it."""

    @property
    def rows(self) -> int: ...

    @property
    def tracks(self) -> int: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...

    @property
    def names(self) -> tuple[str, ...] | None:
        """Of the tracks; `None` where the file has none."""

    @property
    def places(self) -> pd.DataFrame | None:
        """Columns that say which interval a row is, where the file has any."""

    def chunks(self, first: int, last: int) -> Iterator[Values]:
        """Tracks `first` to `last` - 1 of all rows, (some rows, last - first) at a time, in order."""


def open_array(source: str | Path | Values, kind: str) -> TrackArray:
    """Look at an array's size and names; the values are read later.

    Parameters
    ----------
    source
        `FILE`, `FILE::NAME` or an array in memory.
    kind
        "predictions" or "labels": the array that is taken from a file with several, and what
        messages call an array in memory.

    Raises
    ------
    DataError
        The file is missing, damaged, of an unknown kind, or holds no numbers of rows × tracks.
    """
    if isinstance(source, np.ndarray):
        return MemoryArray(kind, _checked(kind, source))
    text, _, name = str(source).partition("::")
    path = Path(text)
    if path.is_dir():
        raise DataError(f"{path}: is a directory, not a file")
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    if not path.stat().st_size:
        raise DataError(f"{path}: the file is empty")
    from bigbird_dna.reporting import track_array_tables as tables

    suffixes = path.name.lower()
    if suffixes.endswith(".npy"):
        return _NpyArray(path)
    if suffixes.endswith(".npz"):
        return _open_npz(path, name, kind)
    if suffixes.endswith((".h5", ".hdf5")):
        return _Hdf5Array(path, name, kind)
    if suffixes.endswith(".parquet"):
        return tables.ParquetArray(path)
    if suffixes.endswith((".tsv", ".tsv.gz", ".txt", ".txt.gz")):
        return tables.read_table(path)
    raise DataError(f"{path}: its name ends in none of .npy, .npz, .h5, .parquet, .tsv and .tsv.gz")


class MemoryArray:
    """An array that is in memory already."""

    def __init__(
        self,
        path: str,
        values: Values,
        names: tuple[str, ...] | None = None,
        places: pd.DataFrame | None = None,
    ) -> None:
        self.path, self.names, self.places = path, names, places
        self.rows, self.tracks = values.shape
        self.dtype: np.dtype[Any] = values.dtype
        self._values = values

    def chunks(self, first: int, last: int) -> Iterator[Values]:
        step = row_step(self.tracks, self.dtype)
        for start in range(0, self.rows, step):
            yield self._values[start : start + step, first:last]


def row_step(tracks: int, dtype: np.dtype[Any]) -> int:
    """Rows to read at a time."""
    return max(_CHUNK // max(tracks * dtype.itemsize, 1), 64)


def check_numbers(path: str, dtype: np.dtype[Any], shape: Sequence[int]) -> None:
    """Refuse whatever isn't numbers of rows × tracks."""
    if dtype.kind not in "fiub":
        raise DataError(f"{path}: holds {dtype}, not numbers")
    if len(shape) != 2:
        raise DataError(f"{path}: an array of shape {tuple(shape)}, expected rows × tracks")
    if not shape[0] or not shape[1]:
        raise DataError(f"{path}: {shape[0]} rows × {shape[1]} tracks: nothing to judge")


def _checked(path: str, values: Values) -> Values:
    check_numbers(path, values.dtype, values.shape)
    return values


class _NpyArray:
    """A .npy file, read by rows; a file in Fortran order is mapped into memory."""

    def __init__(self, path: Path) -> None:
        self.path, self.names, self.places = str(path), None, None
        try:
            with path.open("rb") as stream:
                shape, self._fortran, self.dtype = _npy_header(stream)
                self._offset = stream.tell()
        except (OSError, ValueError) as error:
            raise DataError(f"{path}: not readable as .npy: {_one_line(error)}") from None
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


def _open_npz(path: Path, name: str, kind: str) -> TrackArray:
    try:
        with zipfile.ZipFile(path) as archive:
            members = [m.removesuffix(".npy") for m in archive.namelist() if m.endswith(".npy")]
        if {"packed", NAMES} <= set(members) and not name:
            with np.load(path) as stored:
                return _PackedArray(path, stored["packed"], stored[NAMES])
        chosen = _choose(path, name, kind, _npz_shapes(path, members))
        if NAMES in members and chosen != NAMES:
            with np.load(path) as stored:
                names: Values | None = stored[NAMES]
        else:
            names = None
        array = _NpzArray(path, chosen)
        array.names = _names(array.path, names, array.tracks)
        return array
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path}: not readable as .npz: {_one_line(error)}") from None


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


class _NpzArray:
    """One array of a .npz file, decompressed as it is read."""

    def __init__(self, path: Path, member: str) -> None:
        self.path = f"{path}::{member}"
        self.names: tuple[str, ...] | None = None
        self.places = None
        self._file, self._member = path, f"{member}.npy"
        with zipfile.ZipFile(path) as archive, archive.open(self._member) as stream:
            shape, self._fortran, self.dtype = _npy_header(stream)
        check_numbers(self.path, self.dtype, shape)
        self.rows, self.tracks = shape

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
            raise DataError(f"{self.path}: damaged: {_one_line(error)}") from None


class _PackedArray:
    """Labels of a chromatin data set: one bit each, the lowest bit of a byte first."""

    def __init__(self, path: Path, packed: Values, tracks: Values) -> None:
        self.path, self.names, self.places = str(path), None, None
        self.dtype = np.dtype(np.uint8)
        if tracks.ndim or tracks.dtype.kind not in "iu":
            raise DataError(f"{path}: packed labels whose 'tracks' is no whole number")
        self.tracks = int(tracks)
        width = -(-self.tracks // 8)
        if packed.dtype != np.uint8 or packed.ndim != 2 or packed.shape[1] != width:
            raise DataError(
                f"{path}: packed labels of {self.tracks} tracks are bytes, {width} a row, "
                f"not {packed.dtype} {packed.shape}"
            )
        self.rows = len(packed)
        check_numbers(self.path, self.dtype, (self.rows, self.tracks))
        spare = self.tracks % 8
        if spare and (packed[:, -1] >> spare).any():
            raise DataError(f"{path}: damaged: bits are set beyond track {self.tracks}")
        self._packed = packed

    def chunks(self, first: int, last: int) -> Iterator[Values]:
        low, high = first // 8, -(-last // 8)
        step = row_step(8 * (high - low), self.dtype)
        for start in range(0, self.rows, step):
            packed = self._packed[start : start + step, low:high]
            dense = np.unpackbits(packed, axis=1, bitorder="little")
            yield dense[:, first - 8 * low : last - 8 * low]


class _Hdf5Array:
    """One data set of an HDF5 file."""

    def __init__(self, path: Path, name: str, kind: str) -> None:
        import h5py

        self.places = None
        self._file = path
        try:
            with h5py.File(path, "r") as stored:
                found: dict[str, int] = {}

                def look(key: str, item: Any) -> None:
                    if isinstance(item, h5py.Dataset) and item.dtype.kind in "fiub":
                        found[key] = item.ndim

                stored.visititems(look)
                self._name = _choose(path, name.strip("/"), kind, found)
                data = stored[self._name]
                self.path = f"{path}::{self._name}"
                self.dtype: np.dtype[Any] = data.dtype
                check_numbers(self.path, self.dtype, data.shape)
                self.rows, self.tracks = map(int, data.shape)
                # Whole chunks of the file, so that none is decompressed twice in one reading.
                height = data.chunks[0] if data.chunks else 1
                step = row_step(self.tracks, self.dtype)
                self._step = -(-step // height) * height
                names = data.attrs.get(NAMES)
                if names is None and isinstance(stored.get(NAMES), h5py.Dataset):
                    names = stored[NAMES][()]
        except (OSError, KeyError, RuntimeError) as error:
            raise DataError(f"{path}: not readable as HDF5: {_one_line(error)}") from None
        self.names = _names(self.path, names, self.tracks)

    def chunks(self, first: int, last: int) -> Iterator[Values]:
        import h5py

        try:
            with h5py.File(self._file, "r") as stored:
                data = stored[self._name]
                for start in range(0, self.rows, self._step):
                    yield data[start : start + self._step, first:last]
        except (OSError, KeyError, RuntimeError) as error:
            raise DataError(f"{self.path}: damaged: {_one_line(error)}") from None


def _choose(path: Path, name: str, kind: str, found: dict[str, int]) -> str:
    """The array of a file that is meant: the named, that called as `kind`, or the only one."""
    listed = ", ".join(sorted(found)) or "none"
    if name:
        if name not in found:
            raise DataError(f"{path}: no array {name!r} of numbers (found: {listed})")
        return name
    flat = [key for key, axes in found.items() if axes == 2]
    if kind in flat:
        return kind
    if len(flat) == 1:
        return flat[0]
    raise DataError(
        f"{path}: {len(flat)} arrays of rows × tracks (found: {listed}); name one as {path}::NAME"
    )


def _names(path: str, values: Any, tracks: int) -> tuple[str, ...] | None:
    """Names of tracks as text; anything that isn't a list of text counts as none."""
    if values is None:
        return None
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype.kind not in "SUOT":
        return None
    names = tuple(v.decode() if isinstance(v, bytes) else str(v) for v in array.tolist())
    if len(names) != tracks:
        raise DataError(f"{path}: {len(names)} names of tracks beside {tracks} columns")
    return names


def _npy_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(stream)
    if version == (2, 0):
        return np.lib.format.read_array_header_2_0(stream)
    raise ValueError(f"version {version} of the format is not known")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
