"""Arrays in HDF5 files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bigbird_dna.reporting.tables import reading
from bigbird_dna.reporting.tracks.arrays.array import TrackArray, Values, row_step
from bigbird_dna.reporting.tracks.arrays.members import NAMES, choose_array, track_names

_ERRORS = (KeyError, RuntimeError)


class Hdf5Array(TrackArray):
    """One data set of an HDF5 file."""

    def __init__(self, path: Path, name: str, kind: str) -> None:
        import h5py

        self._file = path
        with reading(path, "not readable as HDF5", *_ERRORS), h5py.File(path, "r") as stored:
            found: dict[str, int] = {}

            def look(key: str, item: Any) -> None:
                if isinstance(item, h5py.Dataset) and item.dtype.kind in "fiub":
                    found[key] = item.ndim

            stored.visititems(look)
            self._name = choose_array(path, name.strip("/"), kind, found)
            data = stored[self._name]
            super().__init__(f"{path}::{self._name}", data.dtype, data.shape)
            # Whole chunks of the file, so that none is decompressed twice in one reading.
            height = data.chunks[0] if data.chunks else 1
            step = row_step(self.tracks, self.dtype)
            self._step = -(-step // height) * height
            names = data.attrs.get(NAMES)
            if names is None and isinstance(stored.get(NAMES), h5py.Dataset):
                names = stored[NAMES][()]
        self.names = track_names(self.path, names, self.tracks)

    def chunks(self, first: int, last: int) -> Iterator[Values]:
        import h5py

        with reading(self.path, "damaged", *_ERRORS), h5py.File(self._file, "r") as stored:
            data = stored[self._name]
            for start in range(0, self.rows, self._step):
                yield data[start : start + self._step, first:last]
