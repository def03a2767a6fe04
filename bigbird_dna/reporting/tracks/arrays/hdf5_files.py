"""Arrays in HDF5 files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bigbird_dna.disk.foreign import check_array, open_hdf5, own_arrays, read_text
from bigbird_dna.reporting.tracks.arrays.array import TrackArray, Values, as_rows, row_step
from bigbird_dna.reporting.tracks.arrays.members import NAMES, choose_array, track_names


class Hdf5Array(TrackArray):
    """One data set of an HDF5 file."""

    def __init__(self, path: Path, name: str, kind: str) -> None:

        self._file = path
        with open_hdf5(path) as stored:
            arrays = dict(own_arrays(stored))
            numbers = {key: item.ndim for key, item in arrays.items() if item.dtype.kind in "fiub"}
            self._name = choose_array(path, name.strip("/"), kind, numbers)
            data = arrays[self._name]
            super().__init__(f"{path}::{self._name}", data.dtype, data.shape)
            check_array(path, self._name, data)
            # Whole chunks of the file, so that none is decompressed twice in one reading.
            height = data.chunks[0] if data.chunks else 1
            step = row_step(self.tracks, self.dtype)
            self._step = -(-step // height) * height
            names = read_text(path, data, NAMES)
            if names is None and NAMES in arrays:
                check_array(path, NAMES, arrays[NAMES])
                names = read_text(path, arrays[NAMES])
        self.names = track_names(self.path, names, self.tracks)

    def chunks(self, first: int, last: int) -> Iterator[Values]:
        with open_hdf5(self._file) as stored:
            data = stored[self._name]
            columns = () if data.ndim == 1 else (slice(first, last),)
            for start in range(0, self.rows, self._step):
                yield as_rows(data[(slice(start, start + self._step), *columns)])
