"""Windows of one length with labels, which predictors are fitted to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

# Axes: N windows, L bases of a window, T labels of each: its tracks, or one of promoters.

Rows = NDArray[np.intp]
Probabilities = NDArray[np.floating[Any]]


class LabeledWindows(Protocol):
    """Windows with their labels, read when they are asked for; those of most predictors are of one length."""

    @property
    def shape(self) -> tuple[int, int]:
        """(N, T)."""

    @property
    def length(self) -> int:
        """L, bp."""

    def sequences(self, rows: Rows) -> list[str]:
        """The sequences of some windows, in letters A C G T N."""

    def labels(self, rows: Rows) -> NDArray[np.uint8]:
        """Their labels of 0 and 1, (n, T)."""


class TextWindows:
    """Windows that are in memory: N sequences with labels (N, T), or (N,) for T = 1."""

    def __init__(self, sequences: Sequence[str], labels: ArrayLike) -> None:
        table = np.asarray(labels).astype(np.uint8)
        self._sequences = list(sequences)
        self._labels = table[:, None] if table.ndim == 1 else table
        if len(self._labels) != len(self._sequences):
            raise ValueError(f"{len(self._sequences)} sequences but labels of {len(self._labels)}")
        self.shape: tuple[int, int] = (len(self._labels), self._labels.shape[1])
        self.length = max(map(len, self._sequences), default=0)  # bp of the longest

    def sequences(self, rows: Rows) -> list[str]:
        return [self._sequences[row] for row in rows.tolist()]

    def labels(self, rows: Rows) -> NDArray[np.uint8]:
        return self._labels[rows]


def blocks(count: int, size: int) -> Iterator[Rows]:
    """The numbers 0 … count, some at a time."""
    for first in range(0, count, size):
        yield np.arange(first, min(first + size, count))


def all_labels(windows: LabeledWindows) -> NDArray[np.uint8]:
    """The labels (N, T) of all windows."""
    return windows.labels(np.arange(windows.shape[0]))
