"""Logistic regression on the share of G and C, of which a reader knows at once how little it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.baselines.comparators.interface import Comparator, Probabilities, Windows, all_labels, blocks
from bigbird_dna.baselines.kmers import KmerTracks, base_codes
from bigbird_dna.errors import DataError
from bigbird_dna.genome.sequence import UNKNOWN

_AT_ONCE = 4096  # windows


class GcContent(Comparator):
    """A regression for each label on the GC content of the middle `sizes` bp of a window.

    GC content is the share of G and C among the bases that are known; without any it is 0.5. With `balanced`
    the classes weigh alike, however many windows they have, so that 0.5 is the threshold between them.
    """

    def __init__(self, sizes: Sequence[int], *, balanced: bool = False) -> None:
        self.sizes, self.balanced = tuple(sizes), balanced
        self.model = KmerTracks()
        self._odds: NDArray[np.float64] = np.ones(0)  # of each label among the windows learnt from

    def fit(self, learnt: Windows, held_out: Windows) -> Self:
        """Learn from windows; the penalty of each label is chosen on those held out."""
        if not learnt.shape[0] or not held_out.shape[0]:
            raise DataError(f"gc: there are no {'held-out' if learnt.shape[0] else 'training'} windows")
        labels = all_labels(learnt)
        positives = labels.sum(axis=0, dtype=np.int64)
        self._odds = positives.clip(1) / (len(labels) - positives).clip(1)
        self.model.fit(self._of(learnt), labels, self._of(held_out), all_labels(held_out))
        return self

    def predict(self, sequences: Sequence[str]) -> Probabilities:
        """Probabilities (n, T)."""
        chances = self.model.predict(self._features(sequences))
        if not self.balanced:
            return chances
        # As if there were as many windows of either class.
        against = (1 - chances.astype(np.float64)) * self._odds
        return (chances / (chances + against)).astype(np.float32)

    def chosen(self) -> dict[str, Any]:
        """The parts of a window that are looked at."""
        return {"bases": list(self.sizes)}

    def _of(self, windows: Windows) -> NDArray[np.float32]:
        parts = blocks(windows.shape[0], _AT_ONCE)
        return np.concatenate([self._features(windows.sequences(rows)) for rows in parts])

    def _features(self, sequences: Sequence[str]) -> NDArray[np.float32]:
        """(n, S) for S sizes."""
        codes = base_codes(sequences)
        columns = []
        for size in self.sizes:
            middle = codes[:, (codes.shape[1] - size) // 2 :][:, :size]
            known = (middle != UNKNOWN).sum(axis=1)
            strong = ((middle == 1) | (middle == 2)).sum(axis=1)
            columns.append(np.where(known, strong / known.clip(1), 0.5))
        return np.stack(columns, axis=1).astype(np.float32)
