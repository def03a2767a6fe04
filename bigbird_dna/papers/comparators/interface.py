"""Comparators: predictors of labeled windows without a fine-tuned language model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Self, get_args

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.baselines.windows import LabeledWindows, Probabilities, blocks
from bigbird_dna.calibration.fitting import fit_line
from bigbird_dna.config.experiments import NetworkComparator as NetworkName

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

# Axes: N windows, T labels per window: tracks, or a single promoter label.

NETWORK_NAMES: tuple[str, ...] = get_args(NetworkName)
DESCRIPTION = "comparator.json"


class Comparator(ABC):
    """A predictor of windows. The same windows and seed give the same predictions."""

    @abstractmethod
    def fit(self, learned: LabeledWindows, held_out: LabeledWindows) -> Self:
        """Fit to windows; choices are made on the held-out windows. `DataError` if the windows are not
        suitable."""

    @abstractmethod
    def predict(self, sequences: Sequence[str]) -> Probabilities:
        """Return probabilities (n, T) of windows of the trained length; NaN for labels not in `covered`."""

    def covered(self, labels: int) -> Flags:
        """Return which of the T labels can be predicted, (T,)."""
        return np.ones(labels, np.bool_)

    def chosen(self) -> dict[str, Any]:
        """Return the choices and results of `fit` as JSON values, which are stored with the predictions."""
        return {}


def fit_sigmoid(scores: Floats, labels: NDArray[np.uint8]) -> tuple[float, float]:
    """Fit Platt scaling (1999) to scores and labels (N,), also of one class: the probability of a score is
    1 / (1 + exp(−slope · score − offset)). Return the slope, above 0, and the offset."""
    mean, spread = float(scores.mean()), max(float(scores.std()), 1e-12)
    # The least slope keeps probabilities increasing with scores.
    slope, offset = fit_line((scores - mean) / spread, labels == 1, 0.01)
    return slope / spread, offset - slope * mean / spread


class ScoringComparator(Comparator):
    """A comparator with a score per label, which `fit` maps to probabilities by Platt scaling."""

    AT_ONCE: ClassVar = 1024  # windows

    def __init__(self) -> None:
        self.sigmoids = np.empty((0, 2))  # (T, 2) slope and offset; NaN: not covered

    @abstractmethod
    def scores(self, sequences: Sequence[str]) -> Floats:
        """Return the scores (n, T) of windows; NaN for labels that are not covered."""

    def predict(self, sequences: Sequence[str]) -> Probabilities:
        from scipy.special import expit

        slopes, offsets = self.sigmoids.T
        probabilities = np.full((len(sequences), len(slopes)), np.nan, np.float32)
        for rows in blocks(len(sequences), self.AT_ONCE):
            scores = self.scores([sequences[row] for row in rows])
            probabilities[rows] = expit(slopes * scores + offsets)
        return probabilities

    def covered(self, labels: int) -> Flags:
        return ~np.isnan(self.sigmoids[:, 0])
