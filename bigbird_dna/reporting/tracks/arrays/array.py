"""What an array of rows × tracks is to its readers, and what every kind of file needs for it.

N rows, T tracks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

# Values of this many bytes are read at a time: they stay in a processor's cache while they are spread.
CHUNK = 2 << 20
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
    return max(CHUNK // max(tracks * dtype.itemsize, 1), 64)


def check_numbers(path: str, dtype: np.dtype[Any], shape: Sequence[int]) -> None:
    """Refuse whatever isn't numbers of rows × tracks."""
    if dtype.kind not in "fiub":
        raise DataError(f"{path}: holds {dtype}, not numbers")
    if len(shape) != 2:
        raise DataError(f"{path}: an array of shape {tuple(shape)}, expected rows × tracks")
    if not shape[0] or not shape[1]:
        raise DataError(f"{path}: {shape[0]} rows × {shape[1]} tracks: nothing to judge")
