"""The baselines of the models, logistic regressions on k-mers or positions, behind the common interface."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.baselines.comparators.interface import Comparator, Probabilities, Windows, all_labels, blocks
from bigbird_dna.baselines.kmers import KmerTracks, window_features
from bigbird_dna.baselines.logistic import LogisticBaseline
from bigbird_dna.errors import DataError

_AT_ONCE = 512  # windows whose k-mers are counted together


class PromoterLogistic(Comparator):
    """A `LogisticBaseline`, for windows with a strand and one label; its penalty is chosen in training."""

    def __init__(self, model: LogisticBaseline) -> None:
        self.model = model

    def fit(self, learnt: Windows, held_out: Windows) -> Self:
        """Learn from windows of one label; nothing is chosen on those held out."""
        labels = all_labels(learnt)
        if labels.shape[1] != 1:
            raise ValueError(f"one label is learnt, not {labels.shape[1]}")
        if len(np.unique(labels)) < 2:
            raise DataError(f"{self.model.name}: the training windows are not of both classes")
        self.model.fit(learnt.sequences(np.arange(len(labels))), labels[:, 0])
        return self

    def predict(self, sequences: Sequence[str]) -> Probabilities:
        """Probabilities (n, 1)."""
        return self.model.predict(sequences)[:, None]

    def chosen(self) -> dict[str, Any]:
        """The settings of the features, such as k, and the penalty."""
        return {**self.model.settings(), "inverse_penalty": self.model.penalty}


class TrackKmers(Comparator):
    """`KmerTracks` on the k-mers of the middle `sizes` bp of each window, both strands together."""

    def __init__(self, k: int, sizes: Sequence[int]) -> None:
        self.k, self.sizes = k, tuple(sizes)
        self.model = KmerTracks()

    def fit(self, learnt: Windows, held_out: Windows) -> Self:
        """Learn from windows; the penalty of each label is chosen on those held out."""
        if not held_out.shape[0]:
            raise DataError("k-mers: there are no held-out windows to choose the penalty on")
        self.model.fit(self._of(learnt), all_labels(learnt), self._of(held_out), all_labels(held_out))
        return self

    def predict(self, sequences: Sequence[str]) -> Probabilities:
        """Probabilities (n, T)."""
        return self.model.predict(self._features(sequences))

    def chosen(self) -> dict[str, Any]:
        """k and the part of a window that is looked at."""
        return {"k": self.k, "bases": list(self.sizes)}

    def _of(self, windows: Windows) -> NDArray[np.float32]:
        parts = blocks(windows.shape[0], _AT_ONCE)
        return np.concatenate([self._features(windows.sequences(rows)) for rows in parts])

    def _features(self, sequences: Sequence[str]) -> NDArray[np.float32]:
        return window_features(sequences, self.sizes, self.k)
