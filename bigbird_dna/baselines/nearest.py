"""The baseline that knows nothing but the windows it has learned: the labels of the nearest one.

A window's probability of a label is `s · y + (1 - s) · p`: y is the label of the most similar window learned
from, s their similarity (`bigbird_dna.genome.similarity`) and p the label's share among all windows
learned from. Of several that are as similar, y is the mean; without any, the probability is p.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.baselines.windows import LabeledWindows, Probabilities, blocks
from bigbird_dna.errors import DataError
from bigbird_dna.genome.similarity import Pairs, SequenceWindows, aligned_pairs

# Axes: N windows learned from, n windows predicted, T labels of each.

_AT_ONCE = 65_536  # windows whose labels are in memory


class NearestWindow:
    """Predicts the labels of the nearest window, as surely as that is similar.

    If `balanced`, p is 0.5, however many windows have a label: classes weigh alike.
    """

    def __init__(self, *, balanced: bool = False) -> None:
        self.balanced = balanced
        self._learned: LabeledWindows | None = None
        self._shares: NDArray[np.float64] = np.zeros(0)

    def fit(self, learnt: LabeledWindows, held_out: LabeledWindows | None = None) -> Self:
        """Memorize windows; nothing is chosen, so that those held out aren't looked at.

        `DataError` where there are no windows to learn.
        """
        count, labels = learnt.shape
        if not count:
            raise DataError("nearest: there are no training windows")
        total = np.zeros(labels)
        for rows in blocks(count, _AT_ONCE):
            total += learnt.labels(rows).sum(axis=0)
        self._learned = learnt
        self._shares = np.full(labels, 0.5) if self.balanced else total / count
        return self

    def pairs(self, sequences: Sequence[str]) -> Pairs:
        """The windows learned from that are most like some others."""
        learned = self._windows()
        return aligned_pairs(sequences, SequenceWindows(learned.shape[0], learned.length, learned.sequences))

    def predict(self, sequences: Sequence[str]) -> Probabilities:
        """Probabilities (n, T) of some windows."""
        return self.predict_pairs(self.pairs(sequences), len(sequences))

    def predict_pairs(self, pairs: Pairs, count: int) -> Probabilities:
        """Probabilities (n, T) of `count` windows whose `pairs` are known."""
        learned, near = self._windows(), pairs.as_near()
        owners, rows, similarities = pairs.queries[near], pairs.others[near], pairs.similarities[near]
        found: NDArray[Any] = np.tile(self._shares, (count, 1))
        if not len(owners):
            return found
        starts = np.flatnonzero(np.append(True, owners[1:] != owners[:-1]))
        sizes = np.diff(np.append(starts, len(owners)))
        labels = learned.labels(rows).astype(np.float64)
        means = np.add.reduceat(labels, starts, axis=0) / sizes[:, None]
        weights = similarities[starts][:, None]
        found[owners[starts]] = weights * means + (1 - weights) * self._shares
        return found

    def _windows(self) -> LabeledWindows:
        if self._learned is None:
            raise ValueError("the nearest-window model has not been fitted")
        return self._learned
