"""Labeled windows of equal length, to which predictors are fitted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

Bytes = NDArray[np.uint8]

# Axes: N windows, L bases of a window, T labels per window: its tracks, or one for promoters.

Rows = NDArray[np.intp]
Probabilities = NDArray[np.floating[Any]]


class LabeledWindows(Protocol):
    """Windows with their labels, read on demand; most predictors need equal lengths."""

    @property
    def shape(self) -> tuple[int, int]:
        """(N, T)."""

    @property
    def length(self) -> int:
        """L, bp."""

    def sequences(self, rows: Rows) -> list[str]:
        """The sequences of selected windows, in letters A C G T N."""

    def labels(self, rows: Rows) -> Bytes:
        """The labels of selected windows, 0 and 1, (n, T)."""


class TextWindows:
    """Windows in memory: N sequences with labels (N, T), or (N,) for T = 1."""

    def __init__(self, sequences: Sequence[str], labels: ArrayLike) -> None:
        table = np.asarray(labels)
        table = table.astype(np.uint8) if table.dtype.kind in "bi" else table
        self._sequences = list(sequences)
        self._labels = table[:, None] if table.ndim == 1 else table
        self.shape: tuple[int, int] = (len(self._labels), self._labels.shape[1])
        self.length = max(map(len, self._sequences), default=0)  # bp of the longest

    def sequences(self, rows: Rows) -> list[str]:
        return [self._sequences[row] for row in rows.tolist()]

    def labels(self, rows: Rows) -> Bytes:
        return self._labels[rows]


def blocks(count: int, size: int) -> Iterator[Rows]:
    """The numbers from 0 to `count`, exclusive, in blocks of `size`."""
    for first in range(0, count, size):
        yield np.arange(first, min(first + size, count))


def all_labels(windows: LabeledWindows) -> Bytes:
    """The labels (N, T) of all windows."""
    return windows.labels(np.arange(windows.shape[0]))
