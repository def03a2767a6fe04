"""Calibration metrics: reliability curve, expected calibration error, and Brier score with its interval.

The **expected calibration error** is the mean over rows of |fraction of positives − mean probability| in the
row's bin. There are 15 bins with about equal numbers of rows (Nguyen & O'Connor 2015; Guo et al. 2017 use 15
bins of equal width). Rows of equal probability are never split, because their order would affect the error.
With few rows, this error is too large: in a bin of 80 rows, half of them positive, the fraction is off by
0.04 on average, even for perfect probabilities. `ece_expected_if_calibrated` is the error that the same
probabilities would show on average if they were perfectly calibrated.

The **Brier score**, the mean squared error of the probabilities, is exactly `miscalibration − discrimination
+ uncertainty`, without bins (CORP decomposition: Dimitriadis, Gneiting & Jordan 2021). These are the decrease
by an isotonic fit, the gain of that fit over the constant prevalence, and the score of the prevalence.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import isotonic_regression

from bigbird_dna.metrics.auroc import Z95, Counts, Estimate, Floats

BINS = 15

# Axes: N rows, B bins.


class Reliability(NamedTuple):
    """Rows binned by their probability, each (B,); no bin is empty."""

    rows: Floats  # number of rows
    probability: Floats  # mean probability
    fraction: Floats  # fraction of positives
    spread: Floats  # standard deviation of the fraction: binomial, with one pseudo-row at the mean probability


class CalibrationMetrics(NamedTuple):
    """Calibration metrics; NaN without rows, and intervals are NaN for a single row or block."""

    ece: float
    ece_expected_if_calibrated: float
    brier: float
    brier_low: float
    brier_high: float
    miscalibration: float
    discrimination: float
    uncertainty: float
    mean_probability: float
    share_positive: float


def calibration_metrics(
    labels: ArrayLike,
    probabilities: ArrayLike,
    *,
    blocks: ArrayLike | None = None,
    bins: int = BINS,
) -> CalibrationMetrics:
    """Evaluate the calibration of `probabilities` (N,) with `labels` (N,) of 0 and 1.

    Rows with the same id in `blocks` (N,) vary together
    in the interval of the Brier score. `ValueError`: shapes differ, a label is not 0 or 1, or a probability
    is not in [0, 1].
    """
    y, p = np.asarray(labels, np.float64), np.asarray(probabilities, np.float64)
    if y.shape != p.shape or not np.isin(y, (0, 1)).all():
        raise ValueError("labels must be 0 or 1, one per probability")
    if not ((p >= 0) & (p <= 1)).all():  # false for NaN too
        raise ValueError("probabilities must be from 0 to 1")
    if not len(y):
        return CalibrationMetrics(*[math.nan] * len(CalibrationMetrics._fields))
    curve = reliability(y, p, bins)
    error = float(curve.rows @ np.abs(curve.fraction - curve.probability)) / len(y)
    # Expected error in bins of calibrated probabilities, for normally distributed errors of the fractions.
    spreads = np.sqrt(np.bincount(_bins(p, bins), p * (1 - p)))
    expected_error = float(spreads.sum()) / len(y) * math.sqrt(2 / math.pi)

    brier = _mean((p - y) ** 2, blocks)
    fitted = rising_curve(y, p)
    best = float(((fitted - y) ** 2).mean())
    fraction = float(y.mean())
    uncertainty = fraction * (1 - fraction)
    return CalibrationMetrics(
        error,
        expected_error,
        *brier,
        brier.value - best,
        uncertainty - best,
        uncertainty,
        float(p.mean()),
        fraction,
    )


def reliability(
    labels: ArrayLike,
    probabilities: ArrayLike,
    bins: int = BINS,
) -> Reliability:
    """Bin rows by probability into at most `bins` bins of about equal numbers of rows; no rows, no bins."""
    y, p = np.asarray(labels, np.float64), np.asarray(probabilities, np.float64)
    ids = _bins(p, bins)
    rows = np.bincount(ids).astype(np.float64)
    probability = np.bincount(ids, p) / rows
    fraction = np.bincount(ids, y) / rows
    smooth = (rows * fraction + probability) / (rows + 1)
    spread = np.sqrt(smooth * (1 - smooth) / rows)
    return Reliability(rows, probability, fraction, spread)


def rising_curve(labels: ArrayLike, probabilities: ArrayLike) -> Floats:
    """Return the isotonic (non-decreasing) least-squares fit of the labels to the probabilities (N,).

    This is the reliability curve without bins (Dimitriadis et al. 2021).
    """
    y = np.asarray(labels, np.float64)
    _, levels = np.unique(np.asarray(probabilities, float), return_inverse=True)
    sizes = np.bincount(levels)
    means = np.bincount(levels, y) / sizes
    fitted: Floats = isotonic_regression(means, weights=sizes).x[levels]
    return fitted


def _bins(p: Floats, bins: int) -> Counts:
    """Return the bin of each row (N,), numbered from 0 without gaps; ties are in the bin of their center."""
    _, levels = np.unique(p, return_inverse=True)
    sizes = np.bincount(levels)
    middle = np.cumsum(sizes) - sizes / 2
    ids = np.minimum((middle * bins / sizes.sum()).astype(np.int64), bins - 1)
    dense: Counts = np.unique(ids, return_inverse=True)[1][levels]
    return dense


def _mean(values: Floats, blocks: ArrayLike | None) -> Estimate:
    """Return the mean of rows with its 95 % interval, clustered by `blocks` (normal approximation)."""
    value = float(values.mean())
    ids = np.arange(len(values))
    if blocks is not None:
        ids = np.unique(np.asarray(blocks), return_inverse=True)[1]
    deviations = np.bincount(ids, values - value)
    count = len(deviations)
    if count < 2:
        return Estimate(value)
    error = math.sqrt(float(deviations @ deviations) * count / (count - 1)) / len(
        values
    )
    return Estimate(value, max(value - Z95 * error, 0.0), min(value + Z95 * error, 1.0))
