"""Calibration metrics: reliability curve, calibration error with its interval, and Brier score.

The **expected calibration error** is the mean over rows of |fraction of positives − mean probability| in the
row's bin. There are 15 bins with about equal numbers of rows (Nguyen & O'Connor 2015; Guo et al. 2017 use 15
bins of equal width). Rows of equal probability are never split, because their order would affect the error.

With few rows, this error is too large: in a bin of 80 rows, half of them positive, the fraction is off by
0.04 on average, even for perfect probabilities. Two further metrics are therefore reported.

* `ece_expected_if_calibrated`, the error that the same probabilities would show on average if they were
  perfectly calibrated.
* `ece_debiased`, the true error for which the expected value of `ece` equals the observed one. The true error
  in each bin is assumed to be the same multiple λ of the binomial standard deviation s_b of the fraction. The
  metric is Σ w_b s_b λ with the bins' weights w_b, where λ solves Σ w_b s_b E|N(λ, 1)| = ece (folded mean of
  the normal distribution). Errors are small near 0 or 1, like errors of log-odds. The metric is 0 if `ece` is
  not above its expected value for λ = 0, and equal to `ece` if the error is large compared with the noise.
  Its 95 % interval contains the λ for which `ece` is within 1.96 standard deviations of its mean. On
  simulated rows (400 or 1,500 rows, three strengths of evidence, errors of 0 to 0.13), it covers the error in
  89 to 99 % of samples. With one negative per promoter, fractions vary slightly less than binomially.

Negatives may weigh less than positives (`negative_weight` w instead of 1) if they were oversampled relative
to the intended prevalence. Bins then have equal weight. The variance of a fraction s with weight n in its bin
is s (1 − s) ((1 − s) + s w) / n, the first-order variance of a ratio of sums over rows.

The **Brier score**, the mean squared error of the probabilities, is exactly `miscalibration − discrimination
+ uncertainty`, without bins (CORP decomposition: Dimitriadis, Gneiting & Jordan 2021). These are the decrease
by an isotonic fit, the gain of that fit over the constant prevalence, and the score of the prevalence.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq, isotonic_regression

from bigbird_dna.metrics.auroc import Z95, Counts, Estimate, Floats

BINS = 15
FEWEST = 2
"""Least number of rows for an interval."""

# Axes: N rows, B bins.


class Reliability(NamedTuple):
    """Rows binned by their probability, each (B,); no bin is empty."""

    rows: Floats  # number of rows, weighted
    probability: Floats  # mean probability
    fraction: Floats  # fraction of positives
    negative_weight: float = 1.0

    @property
    def spread(self) -> Floats:
        """Standard deviation of the fraction: binomial, with one pseudo-row at the mean probability."""
        fraction = (self.rows * self.fraction + self.probability) / (self.rows + 1)
        of_row = fraction * (1 - fraction)
        return np.sqrt(
            of_row * (1 - fraction + fraction * self.negative_weight) / self.rows
        )

    @property
    def error(self) -> float:
        """The expected calibration error, without correction."""
        gap = np.abs(self.fraction - self.probability)
        return float(self.rows @ gap / self.rows.sum())


class CalibrationMetrics(NamedTuple):
    """Calibration metrics; NaN without rows, and intervals are NaN for a single row."""

    ece: float
    ece_debiased: float
    ece_debiased_low: float
    ece_debiased_high: float
    ece_expected_if_calibrated: float
    brier: float
    brier_low: float
    brier_high: float
    miscalibration: float
    discrimination: float
    uncertainty: float
    mean_probability: float
    share_positive: float


NO_ROWS = CalibrationMetrics(*[math.nan] * len(CalibrationMetrics._fields))


def calibration_metrics(
    labels: ArrayLike,
    probabilities: ArrayLike,
    *,
    blocks: ArrayLike | None = None,
    bins: int = BINS,
    negative_weight: float = 1.0,
) -> CalibrationMetrics:
    """Evaluate the calibration of `probabilities` (N,) with `labels` (N,) of 0 and 1.

    A negative has the weight `negative_weight`, above 0. Rows with the same id in `blocks` (N,) vary together
    in the interval of the Brier score. `ValueError`: shapes differ, a label is not 0 or 1, or a probability
    is not in [0, 1].
    """
    y, p = np.asarray(labels, np.float64), np.asarray(probabilities, np.float64)
    if y.shape != p.shape or not np.isin(y, (0, 1)).all():
        raise ValueError("labels must be 0 or 1, one per probability")
    if not ((p >= 0) & (p <= 1)).all():  # false for NaN too
        raise ValueError("probabilities must be from 0 to 1")
    if not len(y):
        return NO_ROWS
    weights = np.where(y == 1, 1.0, negative_weight)
    total = float(weights.sum())
    curve = reliability(y, p, bins, negative_weight)
    brier = _mean((p - y) ** 2, weights, blocks)
    fitted = rising_curve(y, p, negative_weight)
    best = float(weights @ (fitted - y) ** 2) / total
    fraction = float(weights @ y) / total
    uncertainty = fraction * (1 - fraction)
    # Expected error in bins of calibrated probabilities, for normally distributed errors of the fractions.
    variance = weights * p * (1 - p) * (1 - p + p * negative_weight)
    spreads = np.sqrt(np.bincount(_bins(p, weights, bins), variance))
    return CalibrationMetrics(
        curve.error,
        *debiased_error(curve),
        float(spreads.sum()) / total * math.sqrt(2 / math.pi),
        *brier,
        brier.value - best,
        uncertainty - best,
        uncertainty,
        float(weights @ p) / total,
        fraction,
    )


def reliability(
    labels: ArrayLike,
    probabilities: ArrayLike,
    bins: int = BINS,
    negative_weight: float = 1.0,
) -> Reliability:
    """Bin rows by probability into at most `bins` bins of about equal numbers of rows; no rows, no bins."""
    y, p = np.asarray(labels, np.float64), np.asarray(probabilities, np.float64)
    weights = np.where(y == 1, 1.0, negative_weight)
    ids = _bins(p, weights, bins)
    rows = np.bincount(ids, weights).astype(np.float64)
    probability = np.bincount(ids, weights * p) / rows
    fraction = np.bincount(ids, weights * y) / rows
    return Reliability(rows, probability, fraction, negative_weight)


def debiased_error(curve: Reliability) -> Estimate:
    """Return `ece_debiased` with its 95 % interval; see the module's docstring."""
    weights, spread = curve.rows / curve.rows.sum(), curve.spread
    scale = float(weights @ spread)
    if not scale:  # fractions without variance: the error is exact
        return Estimate(curve.error, curve.error, curve.error)
    deviation = math.sqrt(weights**2 @ spread**2) / scale
    sides = (0.0,) if curve.rows.sum() < FEWEST else (0.0, Z95, -Z95)
    multiples = [_multiple(curve.error / scale, side * deviation) for side in sides]
    return Estimate(*(min(scale * multiple, 1.0) for multiple in multiples))


def _multiple(error: float, deviations: float) -> float:
    """Return the λ >= 0 for which the mean of |N(λ, 1)|, plus `deviations` standard deviations, is `error`."""

    def excess(value: float) -> float:
        mean = math.sqrt(2 / math.pi) * math.exp(-(value**2) / 2)
        mean += value * math.erf(value / math.sqrt(2))
        variance = max(1 + value**2 - mean**2, 0.0)
        return mean + deviations * math.sqrt(variance) - error

    if excess(0.0) >= 0:
        return 0.0
    return float(brentq(excess, 0.0, error + abs(deviations) + 1, xtol=1e-14))


def rising_curve(
    labels: ArrayLike, probabilities: ArrayLike, negative_weight: float = 1.0
) -> Floats:
    """Return the isotonic (non-decreasing) least-squares fit of the labels to the probabilities (N,).

    This is the reliability curve without bins (Dimitriadis et al. 2021).
    """
    y = np.asarray(labels, np.float64)
    weights = np.where(y == 1, 1.0, negative_weight)
    _, levels = np.unique(np.asarray(probabilities, float), return_inverse=True)
    sizes = np.bincount(levels, weights)
    means = np.bincount(levels, weights * y) / sizes
    fitted: Floats = isotonic_regression(means, weights=sizes).x[levels]
    return fitted


def _bins(p: Floats, weights: Floats, bins: int) -> Counts:
    """Return the bin of each row (N,), numbered from 0 without gaps; ties are in the bin of their center."""
    _, levels = np.unique(p, return_inverse=True)
    sizes = np.bincount(levels, weights)
    middle = np.cumsum(sizes) - sizes / 2
    ids = np.minimum((middle * bins / sizes.sum()).astype(np.int64), bins - 1)
    dense: Counts = np.unique(ids, return_inverse=True)[1][levels]
    return dense


def _mean(values: Floats, weights: Floats, blocks: ArrayLike | None) -> Estimate:
    """Return the mean of rows with its 95 % interval, clustered by `blocks` (normal approximation)."""
    total = float(weights.sum())
    value = float(weights @ values) / total
    ids = np.arange(len(values))
    if blocks is not None:
        ids = np.unique(np.asarray(blocks), return_inverse=True)[1]
    deviations = np.bincount(ids, weights * (values - value))
    count = len(deviations)
    if count < FEWEST:
        return Estimate(value)
    error = math.sqrt(float(deviations @ deviations) * count / (count - 1)) / total
    return Estimate(value, max(value - Z95 * error, 0.0), min(value + Z95 * error, 1.0))
