"""Scores as probabilities that keep their order."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.calibration.fitting import fit_line

_LEAST_SLOPE = 0.01  # in standard deviations of the scores: a higher score is never a lower probability


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
