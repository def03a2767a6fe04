"""Scores as probabilities that keep their order."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.calibration.fitting import smoothed

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
    from sklearn.linear_model import LogisticRegression

    mean, spread = float(scores.mean()), max(float(scores.std()), 1e-12)
    standard = (scores - mean) / spread
    # Platt's targets, a bit less than sure: what is told apart without error has a slope as well.
    target = smoothed(labels == 1)
    x, y = np.concatenate([standard, standard])[:, None], np.repeat([1, 0], len(labels))
    model = LogisticRegression(C=1e3).fit(x, y, sample_weight=np.concatenate([target, 1 - target]))
    slope = float(model.coef_[0, 0])
    offset = float(model.intercept_[0])
    if slope < _LEAST_SLOPE:
        slope, share = _LEAST_SLOPE, float(target.mean())
        offset = float(np.log(share / (1 - share)))
    return Sigmoid(slope / spread, offset - slope * mean / spread)
