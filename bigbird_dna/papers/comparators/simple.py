"""Predictors that need no network: GC content, k-mers, positions, and the nearest window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.baselines.kmers import (
    KmerLogistic,
    KmerTracks,
    LogisticBaseline,
    PositionLogistic,
    base_codes,
    window_features,
)
from bigbird_dna.baselines.windows import LabeledWindows, NearestWindow, Probabilities, all_labels, blocks
from bigbird_dna.errors import DataError
from bigbird_dna.genome.sequence import UNKNOWN
from bigbird_dna.papers.comparators.interface import GC, KMERS, NEAREST, Comparator, ComparatorRequest

_AT_ONCE = 4096  # windows
_KMERS_AT_ONCE = 512  # windows whose k-mers are counted together


class GcContent(Comparator):
    """A regression for each label on the GC content of the middle `sizes` bp of a window.

    GC content is the share of G and C among the bases that are known; without any it is 0.5. With `balanced`
    the classes weigh alike, however many windows they have, so that 0.5 is the threshold between them.
    """

    def __init__(self, sizes: Sequence[int], *, balanced: bool = False) -> None:
        self.sizes, self.balanced = tuple(sizes), balanced
        self.model = KmerTracks()
        self._odds: NDArray[np.float64] = np.ones(0)  # of each label among the windows learnt from

    def fit(self, learnt: LabeledWindows, held_out: LabeledWindows) -> Self:
        if not learnt.shape[0] or not held_out.shape[0]:
            raise DataError(f"gc: there are no {'held-out' if learnt.shape[0] else 'training'} windows")
        labels = all_labels(learnt)
        positives = labels.sum(axis=0, dtype=np.int64)
        self._odds = positives.clip(1) / (len(labels) - positives).clip(1)
        self.model.fit(self._of(learnt), labels, self._of(held_out), all_labels(held_out))
        return self

    def predict(self, sequences: Sequence[str]) -> Probabilities:
        chances = self.model.predict(self._features(sequences))
        if not self.balanced:
            return chances
        # As if there were as many windows of either class.
        against = (1 - chances.astype(np.float64)) * self._odds
        return (chances / (chances + against)).astype(np.float32)

    def chosen(self) -> dict[str, Any]:
        return {"bases": list(self.sizes)}

    def _of(self, windows: LabeledWindows) -> NDArray[np.float32]:
        parts = blocks(windows.shape[0], _AT_ONCE)
        return np.concatenate([self._features(windows.sequences(rows)) for rows in parts])

    def _features(self, sequences: Sequence[str]) -> NDArray[np.float32]:
        codes = base_codes(sequences)
        columns = []
        for size in self.sizes:
            middle = codes[:, (codes.shape[1] - size) // 2 :][:, :size]
            known = (middle != UNKNOWN).sum(axis=1)
            strong = ((middle == 1) | (middle == 2)).sum(axis=1)
            columns.append(np.where(known, strong / known.clip(1), 0.5))
        return np.stack(columns, axis=1).astype(np.float32)


class PromoterLogistic(Comparator):
    """A `LogisticBaseline`, for windows with a strand and one label; its penalty is chosen in training."""

    def __init__(self, model: LogisticBaseline) -> None:
        self.model = model

    def fit(self, learnt: LabeledWindows, held_out: LabeledWindows) -> Self:
        labels = all_labels(learnt)
        if labels.shape[1] != 1:
            raise ValueError(f"one label is learnt, not {labels.shape[1]}")
        if len(np.unique(labels)) < 2:
            raise DataError(f"{self.model.name}: the training windows are not of both classes")
        self.model.fit(learnt.sequences(np.arange(len(labels))), labels[:, 0])
        return self

    def predict(self, sequences: Sequence[str]) -> Probabilities:
        return self.model.predict(sequences)[:, None]

    def chosen(self) -> dict[str, Any]:
        return {**self.model.settings(), "inverse_penalty": self.model.penalty}


class TrackKmers(Comparator):
    """`KmerTracks` on the k-mers of the middle `sizes` bp of each window, both strands together."""

    def __init__(self, k: int, sizes: Sequence[int]) -> None:
        self.k, self.sizes = k, tuple(sizes)
        self.model = KmerTracks()

    def fit(self, learnt: LabeledWindows, held_out: LabeledWindows) -> Self:
        if not held_out.shape[0]:
            raise DataError("k-mers: there are no held-out windows to choose the penalty on")
        self.model.fit(self._of(learnt), all_labels(learnt), self._of(held_out), all_labels(held_out))
        return self

    def predict(self, sequences: Sequence[str]) -> Probabilities:
        return self.model.predict(self._features(sequences))

    def chosen(self) -> dict[str, Any]:
        return {"k": self.k, "bases": list(self.sizes)}

    def _of(self, windows: LabeledWindows) -> NDArray[np.float32]:
        parts = blocks(windows.shape[0], _KMERS_AT_ONCE)
        return np.concatenate([self._features(windows.sequences(rows)) for rows in parts])

    def _features(self, sequences: Sequence[str]) -> NDArray[np.float32]:
        return window_features(sequences, self.sizes, self.k)


class NearestComparator(NearestWindow, Comparator):
    """The labels of the nearest window learnt from."""


def make(request: ComparatorRequest) -> Comparator:
    seed, directed = request.settings.seed, request.directed
    if request.name == NEAREST:
        return NearestComparator(balanced=directed)
    if request.name == GC:
        return GcContent(request.sizes, balanced=directed)
    if directed:
        model = KmerLogistic(request.kmer, seed) if request.name == KMERS else PositionLogistic(seed)
        return PromoterLogistic(model)
    return TrackKmers(request.kmer, request.sizes)
