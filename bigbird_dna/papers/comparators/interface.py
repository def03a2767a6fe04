"""What all comparators have in common: they are fitted to windows with labels, and predict windows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.baselines.windows import LabeledWindows, Probabilities
from bigbird_dna.calibration.fitting import fit_line

# Axes: N windows, T labels of each: its tracks, or one of promoters.

_LEAST_SLOPE = 0.01  # in standard deviations of the scores: a higher score is never a lower probability


class Comparator(ABC):
    """A predictor of windows. Same windows and seed, same predictions."""

    @abstractmethod
    def fit(self, learnt: LabeledWindows, held_out: LabeledWindows) -> Self:
        """Learn from windows; whatever is chosen is chosen on those that are held out for it.

        `DataError`: the windows can't be learnt from.
        """

    @abstractmethod
    def predict(self, sequences: Sequence[str]) -> Probabilities:
        """Probabilities (n, T) of windows of the length that was learnt from, after `fit`.

        Columns of labels that can't be predicted are NaN; `covered` says of which labels they aren't.
        """

    def covered(self, labels: int) -> NDArray[np.bool_]:
        """Which of the T labels can be predicted, (T,)."""
        return np.ones(labels, np.bool_)

    def chosen(self) -> dict[str, Any]:
        """What `fit` has chosen and found, for the files beside the predictions; values fit for JSON."""
        return {}

    def files(self) -> dict[str, Path]:
        """Files that `fit` has written and that are worth keeping, by the name they shall have."""
        return {}

    def finish(self) -> None:  # noqa: B027 (most have nothing to delete)
        """The predictions are stored: what a repeated `fit` would have gone on from is deleted."""


class Sigmoid(NamedTuple):
    """Probability 1 / (1 + exp(−slope · score − offset)), with a slope above 0."""

    slope: float
    offset: float

    def __call__(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Probabilities of scores, of any shape."""
        from scipy.special import expit

        return np.asarray(expit(self.slope * scores + self.offset))


def fit_sigmoid(scores: NDArray[np.float64], labels: NDArray[np.uint8]) -> Sigmoid:
    """Platt's scaling (Advances in Large Margin Classifiers, 1999) of scores (N,) with labels (N,).

    The labels may be all of one class. The slope is kept above 0, also where higher scores mean fewer
    positives.
    """
    mean, spread = float(scores.mean()), max(float(scores.std()), 1e-12)
    slope, offset = fit_line((scores - mean) / spread, labels == 1, _LEAST_SLOPE)
    return Sigmoid(slope / spread, offset - slope * mean / spread)
