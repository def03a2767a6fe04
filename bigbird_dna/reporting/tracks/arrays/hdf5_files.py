"""Arrays in HDF5 files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bigbird_dna.errors import DataError, error_text
from bigbird_dna.reporting.tracks.arrays.array import Values, check_numbers, row_step
from bigbird_dna.reporting.tracks.arrays.members import NAMES, choose_array, track_names


class Hdf5Array:
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
                self._name = choose_array(path, name.strip("/"), kind, found)
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
            raise DataError(f"{path}: not readable as HDF5: {error_text(error)}") from None
        self.names = track_names(self.path, names, self.tracks)

    def chunks(self, first: int, last: int) -> Iterator[Values]:
        import h5py

        try:
            with h5py.File(self._file, "r") as stored:
                data = stored[self._name]
                for start in range(0, self.rows, self._step):
                    yield data[start : start + self._step, first:last]
        except (OSError, KeyError, RuntimeError) as error:
            raise DataError(f"{self.path}: damaged: {error_text(error)}") from None
