"""Labeled windows of equal length, to which predictors are fitted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bigbird_dna.errors import DataError
from bigbird_dna.genome.similarity import Pairs, SequenceWindows, aligned_pairs

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


# The nearest-window baseline: predicts the labels of the most similar training window.


# Axes: N training windows, n predicted windows, T labels per window.

_AT_ONCE = 65_536  # windows whose labels are in memory at once


class NearestWindow:
    """Predict the nearest window's labels, weighted by similarity; the rest is the label frequency p.

    With `balanced`, p is 0.5 regardless of the label counts: classes have equal weight.
    """

    def __init__(self, *, balanced: bool = False) -> None:
        self.balanced = balanced

    def fit(
        self, learned: LabeledWindows, held_out: LabeledWindows | None = None
    ) -> Self:
        """Memorize windows; nothing is chosen, so held-out windows are not used.

        `DataError` if there are no training windows.
        """
        count, labels = learned.shape
        if not count:
            raise DataError("nearest: no training windows")
        total = np.zeros(labels)
        for rows in blocks(count, _AT_ONCE):
            total += learned.labels(rows).sum(axis=0)
        self.learned = learned
        self.frequencies = np.full(labels, 0.5) if self.balanced else total / count
        return self

    def pairs(self, sequences: Sequence[str]) -> Pairs:
        """The training windows most similar to the given sequences."""
        learned = self.learned
        windows = SequenceWindows(learned.shape[0], learned.length, learned.sequences)
        return aligned_pairs(sequences, windows)

    def predict(self, sequences: Sequence[str]) -> Probabilities:
        """Probabilities (n, T) of the given windows."""
        return self.predict_pairs(self.pairs(sequences), len(sequences))

    def predict_pairs(self, pairs: Pairs, count: int) -> Probabilities:
        """Probabilities (n, T) of `count` windows with known `pairs`."""
        near = pairs.as_near()
        probabilities: NDArray[Any] = np.tile(self.frequencies, (count, 1))
        queries, first, sizes = np.unique(
            pairs.queries[near], return_index=True, return_counts=True
        )
        if not len(queries):
            return probabilities
        labels = self.learned.labels(pairs.others[near]).astype(np.float64)
        means = np.add.reduceat(labels, first, axis=0) / sizes[:, None]
        weights = pairs.similarities[near][first][:, None]
        mixed = weights * means + (1 - weights) * self.frequencies
        probabilities[queries] = mixed
        return probabilities
