"""Comparators without a trained network: regressions on GC content, k-mers and positions, and the nearest
window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.baselines.dyads import TrackWords
from bigbird_dna.baselines.kmers import (
    KmerTracks,
    base_codes,
    probabilities,
)
from bigbird_dna.baselines.promoters import LogisticBaseline
from bigbird_dna.baselines.windows import (
    LabeledWindows,
    Probabilities,
    all_labels,
    blocks,
)
from bigbird_dna.genome.sequence import UNKNOWN
from bigbird_dna.genome.similarity import nearest
from bigbird_dna.papers.comparators.interface import Comparator

Features = NDArray[np.float32]

_AT_ONCE = 1024  # windows whose sequences are in memory at a time


class GcContent(Comparator):
    """A regression per label on GC content, the fraction of G and C among known bases (0.5 without any), in
    the central `sizes` bp of a window. With `balanced`, both classes have equal weight, independent of their
    numbers of windows."""

    def __init__(self, sizes: Sequence[int], *, balanced: bool = False) -> None:
        self.sizes, self.balanced = tuple(sizes), balanced
        self.model = KmerTracks()
        # Odds of each label in the training windows.
        self._odds: NDArray[np.float64] = np.ones(0)

    def fit(self, learned: LabeledWindows, held_out: LabeledWindows) -> Self:
        y = all_labels(learned)
        self.model.fit(self._of(learned), y, self._of(held_out), all_labels(held_out))
        positives = y.sum(axis=0, dtype=np.int64)
        self._odds = positives.clip(1) / (len(y) - positives).clip(1)
        return self

    def _of(self, windows: LabeledWindows) -> Features:
        parts = [
            self.features(windows.sequences(rows))
            for rows in blocks(windows.shape[0], _AT_ONCE)
        ]
        return np.concatenate(parts)

    def predict(self, sequences: Sequence[str]) -> Probabilities:
        chances = self.model.predict(self.features(sequences))
        if not self.balanced:
            return chances
        # Adjust probabilities to equal numbers of windows of both classes.
        against = (1 - chances.astype(np.float64)) * self._odds
        return (chances / (chances + against)).astype(np.float32)

    def features(self, sequences: Sequence[str]) -> Features:
        """GC content (n, sizes)."""
        codes = base_codes(sequences)
        columns = []
        for size in self.sizes:
            middle = codes[:, (codes.shape[1] - size) // 2 :][:, :size]
            known = (middle != UNKNOWN).sum(axis=1)
            strong = ((middle == 1) | (middle == 2)).sum(axis=1)
            columns.append(np.where(known, strong / known.clip(1), 0.5))
        return np.stack(columns, axis=1).astype(np.float32)

    def chosen(self) -> dict[str, Any]:
        return {"bases": list(self.sizes)}


class TrackKmers(TrackWords, Comparator):
    """Regressions on k-mers, counted on both strands together, and on dyads."""

    def predict(self, sequences: Sequence[str]) -> Probabilities:
        return probabilities(self.log_odds(sequences)[1])

    def chosen(self) -> dict[str, Any]:
        return {"k": self.k, "dyads": self.each, "bases": list(self.sizes)}


class PromoterLogistic(Comparator):
    """A `LogisticBaseline` for stranded windows with one label; its penalty is chosen in training."""

    def __init__(self, model: LogisticBaseline) -> None:
        self.model = model

    def fit(self, learned: LabeledWindows, held_out: LabeledWindows) -> Self:
        labels = all_labels(learned)[:, 0]
        self.model.fit(learned.sequences(np.arange(len(labels))), labels)
        return self

    def predict(self, sequences: Sequence[str]) -> Probabilities:
        return self.model.predict(sequences)[:, None]

    def chosen(self) -> dict[str, Any]:
        return {**self.model.settings, "inverse_penalty": self.model.penalty}


class NearestWindow(Comparator):
    """The labels of the training window with the most common k-mers (`nearest`), weighted by the fraction of
    common k-mers; the rest is the label frequency p. With `balanced`, p is 0.5: classes have equal weight."""

    def __init__(self, *, balanced: bool = False) -> None:
        self.balanced = balanced

    def fit(self, learned: LabeledWindows, held_out: LabeledWindows) -> Self:
        count, labels = learned.shape
        self.learned, self.frequencies = learned, np.full(labels, 0.5)
        if not self.balanced:
            total = np.zeros(labels)
            for rows in blocks(count, _AT_ONCE):
                total += learned.labels(rows).sum(axis=0)
            self.frequencies = total / count
        return self

    def predict(self, sequences: Sequence[str]) -> Probabilities:
        parts = (
            self.learned.sequences(rows)
            for rows in blocks(self.learned.shape[0], _AT_ONCE)
        )
        rows, similarity = nearest(sequences, parts)
        weights = similarity[:, None]
        mixed = weights * self.learned.labels(rows) + (1 - weights) * self.frequencies
        return np.asarray(mixed)
