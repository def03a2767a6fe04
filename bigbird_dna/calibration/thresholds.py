"""Thresholds of calibrated probabilities for a wanted false-discovery rate.

The false-discovery rate of a threshold is the fraction of negatives among the rows at or above it, where a
fraction `prior` of all rows is positive. It is estimated in two ways from validation rows:

* **expected**, from the calibrated probabilities alone: a row whose probability is q where a fraction π is
  positive stands for q / π positives and (1 − q) / (1 − π) negatives of a population with as many of both, of
  which `prior` and 1 − `prior` are taken. It never rises with the threshold; where few negatives are left to
  be counted, it rests on the calibration's shape.
* **empirical**, from labels: (1 − prior) F / ((1 − prior) F + prior T), of the fractions F of negatives and T
  of positives at or above the threshold. Its interval is that of F (Clopper & Pearson 1934), with T as it is.

A threshold is compared with scores as scoring writes them: float32 in Python and Parquet, six digits in text.
So it is the lowest of its rows' scores rounded down, and above all lower scores, written either way. Scores
that are equal in text are one step of the curve.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bigbird_dna.calibration.maps import Floats, Floats32, as_scored

TAIL = 0.025
DIGITS = 6
"""Of scores in tables of text, after the point."""
_MOST_DIGITS = 15
FEW = 10
"""Negatives at or above a threshold, below which the expected rate rests on the calibration's shape."""


class Threshold(NamedTuple):
    """From which calibrated probability on rows are called, and what that means; see above."""

    threshold: float
    expected: float  # false-discovery rate
    empirical: float
    empirical_low: float
    empirical_high: float
    recall: float  # share of the positives at or above
    positives: int  # validation rows at or above
    negatives: int

    @property
    def printed(self) -> str:
        """The threshold in as many digits as give this number, and no more."""
        return np.format_float_positional(self.threshold, trim="-")


class ThresholdCurve(NamedTuple):
    """All thresholds that differ, from the highest down, each (D,), at a share `prior` of positives."""

    prior: float
    thresholds: Floats  # of scores; see above
    expected: Floats  # not falling
    positives: NDArray[np.int64]  # rows at or above
    negatives: NDArray[np.int64]

    def choose(self, rate: float) -> Threshold | None:
        """The lowest threshold whose expected rate is at most `rate`; None where the highest has more."""
        reached = int(np.searchsorted(self.expected, rate, "right"))
        return self.at(reached - 1) if reached else None

    def at(self, place: int) -> Threshold:
        """The threshold at a place, with its empirical rate."""
        from scipy.special import betaincinv

        above, false = int(self.positives[place]), int(self.negatives[place])
        all_positives, all_negatives = int(self.positives[-1]), int(self.negatives[-1])
        recall = above / all_positives
        low = float(betaincinv(false, all_negatives - false + 1, TAIL)) if false else 0.0
        high = float(betaincinv(false + 1, all_negatives - false, 1 - TAIL)) if false < all_negatives else 1.0
        return Threshold(
            float(self.thresholds[place]),
            float(self.expected[place]),
            self._rate(false / all_negatives, recall),
            self._rate(low, recall),
            self._rate(high, recall),
            recall,
            above,
            false,
        )

    def _rate(self, false: float, true: float) -> float:
        found, missed = (1 - self.prior) * false, self.prior * true
        return found / (found + missed) if found + missed else 0.0


def threshold_curve(
    labels: ArrayLike, probabilities: ArrayLike, fitted: float, prior: float | None = None
) -> ThresholdCurve:
    """The curve of validation rows (N,) with labels 0 and 1, of both at least one.

    Probabilities are calibrated, as they hold where a fraction `fitted` is positive; thresholds are for a
    fraction `prior`, None: the same.
    """
    y, q = np.asarray(labels).astype(bool), np.asarray(probabilities, np.float64)
    scores = as_scored(q, fitted, prior)
    prior = fitted if prior is None else prior
    order = np.argsort(-scores, kind="stable")
    y, q, scores = y[order], q[order], scores[order]
    true, false = prior * q / fitted, (1 - prior) * (1 - q) / (1 - fitted)
    written = _written(scores)
    last = np.flatnonzero(np.append(written[1:] != written[:-1], True))  # of equal scores
    wrong = np.cumsum(false)[last]
    expected = wrong / (wrong + np.cumsum(true)[last])
    counts = np.cumsum(y)[last]
    # What lies above all scores but those up to each of `last`, with few digits.
    least, text = scores[last].astype(np.float64), _written(scores[last])
    below = np.append(scores[last[:-1] + 1], np.float32(-1))
    found = np.minimum(least, text)
    for digits in range(_MOST_DIGITS, DIGITS - 1, -1):
        rounded = np.floor(least * 10.0**digits) / 10.0**digits
        # Who compares float32 with a number may round that first.
        above = rounded.astype(np.float32) > below
        right = above & (rounded > np.append(text[1:], -1)) & (rounded <= np.minimum(least, text))
        found = np.where(right, rounded, found)
    return ThresholdCurve(prior, found, np.maximum.accumulate(expected), counts, last + 1 - counts)


def _written(scores: Floats32) -> Floats:
    """Scores as text has them: exact, as float32 times 10^6 has no more digits than float64."""
    found: Floats = np.rint(scores.astype(np.float64) * 10**DIGITS) / 10**DIGITS
    return found
