"""Read large arrays of MATLAB files, version 5 (SciPy) and 7.3 (HDF5).

Shapes are MATLAB's: (rows, …), with rows as the fastest axis of the file. HDF5 has the same bytes with the
axes reversed, (…, rows). Values must be 0 or 1, of any numeric type. HDF5 is read in chunks. An array of
version 5 has at most 4 GB and is read as a whole; the largest, the windows of `test.mat`, has 1.8 GB.
"""

import struct
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import numpy.typing as npt
import scipy.io

from bigbird_dna.disk.atomic import reading
from bigbird_dna.errors import DataError
from bigbird_dna.genome.chromatin.labels import Bytes

BUDGET = 1 << 26  # bytes of an HDF5 array in memory at a time
_NUMERIC = {"double", "single", "logical"} | {
    f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)
}


_DAMAGED = "truncated or damaged MATLAB file"


class MatArray(NamedTuple):
    """A numeric array of a MATLAB file."""

    path: Path
    name: str
    shape: tuple[int, ...]
    dataset: h5py.Dataset | None  # None for version 5

    def open(self) -> Any:
        """Return the values, axes reversed; HDF5 is read when indexed."""
        if self.dataset is not None:
            return self.dataset
        with _reading(self.path):
            values = scipy.io.loadmat(self.path, variable_names=[self.name])
            return np.asarray(values[self.name].reshape(self.shape)).transpose()

    def pick(self, rows: npt.NDArray[np.intp]) -> Bytes:
        """Return rows, given in ascending order, (n, *shape[1:]); each chunk is read once."""
        dataset = self.open()
        with _reading(self.path):
            values = dataset[..., rows]
        return self._binary(values).transpose()

    def parts(self, rows: int) -> Iterator[tuple[int, int, Bytes]]:
        """Yield first track, first row and values of the parts (tracks, rows) of an array (rows, tracks).

        Only the first `rows` rows are read. Parts consist of complete chunks, so no chunk is read twice.
        """
        dataset = self.open()
        tracks = dataset.shape[0]
        height, width = getattr(dataset, "chunks", None) or (1, 1)
        budget = BUDGET // dataset.dtype.itemsize
        height = max(1, min(tracks, max(1, budget // (height * width)) * height))
        width *= max(1, budget // (height * width))
        for row in range(0, rows, width):
            for track in range(0, tracks, height):
                with _reading(self.path):
                    values = dataset[
                        track : track + height, row : min(row + width, rows)
                    ]
                yield track, row, self._binary(values)

    def _binary(self, values: npt.NDArray[Any]) -> Bytes:
        if not np.isin(values, (0, 1)).all():
            raise DataError(
                f"{self.path}: {self.name} contains values other than 0 and 1"
            )
        return values.astype(np.uint8)


@contextmanager
def open_mat(path: Path) -> Iterator[dict[str, MatArray]]:
    """Open a MATLAB file and yield its numeric arrays by name.

    A truncated or damaged file, or another file type, is a `DataError`, also later while arrays are read.
    """
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    if h5py.is_hdf5(path):
        with reading(path, _DAMAGED), h5py.File(path, "r") as file:
            with _reading(path):
                arrays = {
                    name: MatArray(path, name, item.shape[::-1], item)
                    for name, item in file.items()
                    if isinstance(item, h5py.Dataset) and item.dtype.kind in "buif"
                }
            yield arrays
        return
    with _reading(path):
        _check_elements(path)
        listed = scipy.io.whosmat(path)
    yield {
        name: MatArray(path, name, shape, None)
        for name, shape, kind in listed
        if kind in _NUMERIC
    }


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Convert all exceptions and warnings of a parser on a damaged file to `DataError`."""
    with reading(path, _DAMAGED, Exception), warnings.catch_warnings():
        # SciPy warns and returns text for an array that it cannot read.
        warnings.simplefilter("error")
        yield


def _check_elements(path: Path) -> None:
    """Raise for a truncated file: SciPy omits an array that is cut by the end of the file."""
    with path.open("rb") as stream:
        header = stream.read(128)
        order = {b"IM": "<", b"MI": ">"}.get(header[126:])
        if order is None or 0 in header[:4]:  # SciPy takes a zero here for version 4
            raise DataError(f"{path}: not a MATLAB file of version 5 or 7.3")
        end = stream.seek(0, 2)
        position = 128
        while position < end:
            stream.seek(position + 4)
            (size,) = struct.unpack(f"{order}I", stream.read(4))
            position += 8 + size
    if position != end:
        raise EOFError(f"the file ends at byte {end:,}, an array at byte {position:,}")
