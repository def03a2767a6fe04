"""Thresholds of calibrated probabilities for a target false-discovery rate.

The false-discovery rate of a threshold is the fraction of negatives among the rows at or above it, if the
prevalence of positives is `prior`. It is estimated in two ways from validation rows:

* **expected**, from the calibrated probabilities alone. A row with probability q at prevalence π represents q
  / π positives and (1 − q) / (1 − π) negatives of a balanced population, weighted by `prior` and 1 − `prior`.
  The rate never increases with the threshold; with few negatives left, it depends on the calibration's shape.
* **empirical**, from labels: (1 − prior) F / ((1 − prior) F + prior T), with fractions F of negatives and T
  of positives at or above the threshold. Its interval is that of F (Clopper & Pearson 1934), with T fixed.

Thresholds are compared with scores as written: float32 in Python and Parquet, six digits in text. A threshold
is therefore the lowest score of its rows, rounded down, and above all lower scores in either format. Scores
that are equal in text are one step of the curve.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import binomtest

from bigbird_dna.calibration.maps import Floats, Floats32, as_scored

Ints = NDArray[np.int64]

DIGITS = 6
"""Decimals of scores in text tables."""
_MOST_DIGITS = 15
FEW = 10
"""With fewer negatives at or above a threshold, the expected rate depends on the calibration's shape."""


class Threshold(NamedTuple):
    """A threshold for calling rows by calibrated probability, and its estimated rates; see above."""

    threshold: float
    expected: float  # false-discovery rate
    empirical: float
    empirical_low: float
    empirical_high: float
    recall: float  # fraction of the positives at or above
    positives: int  # number of validation rows at or above
    negatives: int

    @property
    def printed(self) -> str:
        """The threshold with the fewest digits that give this number."""
        return np.format_float_positional(self.threshold, trim="-")


class ThresholdCurve(NamedTuple):
    """All distinct thresholds, from the highest to the lowest, each (D,), at prevalence `prior`."""

    prior: float
    thresholds: Floats  # thresholds of scores; see above
    expected: Floats  # non-decreasing
    positives: Ints  # number of rows at or above
    negatives: Ints

    def choose(self, rate: float) -> Threshold | None:
        """Return the lowest threshold with an expected rate of at most `rate`; None if there is none."""
        reached = int(np.searchsorted(self.expected, rate, "right"))
        return self.at(reached - 1) if reached else None

    def at(self, index: int) -> Threshold:
        """Return the threshold at an index, with its empirical rate."""
        positives, negatives = int(self.positives[index]), int(self.negatives[index])
        recall = positives / int(self.positives[-1])
        false = binomtest(negatives, int(self.negatives[-1]))
        low, high = false.proportion_ci()  # Clopper and Pearson
        return Threshold(
            float(self.thresholds[index]),
            float(self.expected[index]),
            self._rate(false.statistic, recall),
            self._rate(low, recall),
            self._rate(high, recall),
            recall,
            positives,
            negatives,
        )

    def _rate(self, false: float, true: float) -> float:
        negatives, positives = (1 - self.prior) * false, self.prior * true
        called = negatives + positives
        return negatives / called if called else 0.0


def threshold_curve(
    labels: ArrayLike,
    probabilities: ArrayLike,
    fitted: float,
    prior: float | None = None,
) -> ThresholdCurve:
    """Return the curve of validation rows (N,) with labels 0 and 1, with at least one row of each.

    Probabilities are calibrated for the prevalence `fitted`; thresholds are for the prevalence `prior` (None:
    the same).
    """
    y, q = np.asarray(labels).astype(bool), np.asarray(probabilities, np.float64)
    scores = as_scored(q, fitted, prior)
    prior = fitted if prior is None else prior
    order = np.argsort(-scores, kind="stable")
    y, q, scores = y[order], q[order], scores[order]
    true, false = prior * q / fitted, (1 - prior) * (1 - q) / (1 - fitted)
    written = _written(scores)
    last = np.flatnonzero(
        np.append(written[1:] != written[:-1], True)
    )  # last rows of equal scores
    wrong = np.cumsum(false)[last]
    expected = wrong / (wrong + np.cumsum(true)[last])
    counts = np.cumsum(y)[last]
    # Find thresholds with few digits, at most the least score of each step and above all lower scores.
    text = _written(scores[last])
    most = np.minimum(scores[last].astype(np.float64), text)
    below = np.append(scores[last[:-1] + 1], np.float32(-1))
    thresholds = most
    for digits in range(_MOST_DIGITS, DIGITS - 1, -1):
        rounded = (
            np.floor(scores[last].astype(np.float64) * 10.0**digits) / 10.0**digits
        )
        # A comparison of float32 with a Python number may round the number to float32 first.
        above = rounded.astype(np.float32) > below
        above &= rounded > np.append(text[1:], -1)
        thresholds = np.where(above & (rounded <= most), rounded, thresholds)
    return ThresholdCurve(
        prior, thresholds, np.maximum.accumulate(expected), counts, last + 1 - counts
    )


def _written(scores: Floats32) -> Floats:
    """Return scores as in text; exact, because float32 times 10^6 needs no more digits than float64."""
    return np.asarray(np.rint(scores.astype(np.float64) * 10**DIGITS) / 10**DIGITS)
