"""What an array of rows × tracks is to its readers, and what every kind of file needs for it.

N rows, T tracks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

# Values of this many bytes are read at a time: they stay in a processor's cache while they are spread.
CHUNK = 2 << 20
Values = NDArray[Any]


class TrackArray(ABC):
    """Values (N, T) that are read in row order; `path` is what messages call them."""

    names: tuple[str, ...] | None = None
    """Of the tracks; `None` where the file has none."""
    places: pd.DataFrame | None = None
    """Columns that say which interval a row is, where the file has any."""

    def __init__(self, path: str, dtype: np.dtype[Any], shape: Sequence[int]) -> None:
        """Refuse whatever isn't numbers of rows × tracks; an array of one axis has one track."""
        if dtype.kind not in "fiub":
            raise DataError(f"{path}: holds {dtype}, not numbers")
        if len(shape) not in (1, 2):
            raise DataError(f"{path}: an array of shape {tuple(shape)}, expected rows × tracks")
        rows, tracks = (*shape, 1)[:2]
        if not rows or not tracks:
            raise DataError(f"{path}: {rows} rows × {tracks} tracks: nothing to judge")
        self.path, self.dtype = path, dtype
        self.rows, self.tracks = rows, tracks

    @abstractmethod
    def chunks(self, first: int, last: int) -> Iterator[Values]:
        """Tracks `first` to `last` - 1 of all rows, (some rows, last - first) at a time, in order."""


class MemoryArray(TrackArray):
    """An array that is in memory already."""

    def __init__(
        self,
        path: str,
        values: Values,
        names: tuple[str, ...] | None = None,
        places: pd.DataFrame | None = None,
    ) -> None:
        super().__init__(path, values.dtype, values.shape)
        self.names, self.places = names, places
        self._values = as_rows(values)

    def chunks(self, first: int, last: int) -> Iterator[Values]:
        step = row_step(self.tracks, self.dtype)
        for start in range(0, self.rows, step):
            yield self._values[start : start + step, first:last]


def as_rows(values: Values) -> Values:
    """An array of one axis as rows of one track; another as it is."""
    return values[:, None] if values.ndim == 1 else values


def row_step(tracks: int, dtype: np.dtype[Any]) -> int:
    """Rows to read at a time."""
    return max(CHUNK // max(tracks * dtype.itemsize, 1), 64)
