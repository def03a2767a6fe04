"""Calibration metrics: reliability curve, expected calibration error, and Brier score with its interval.

The **expected calibration error** is the mean over rows of |fraction of positives − mean probability| in the
row's bin. There are 15 bins with about equal numbers of rows (Nguyen & O'Connor 2015; Guo et al. 2017 use 15
bins of equal width). Rows of equal probability are never split, because their order would affect the error.
With few rows, this error is too large: in a bin of 80 rows, half of them positive, the fraction is off by
0.04 on average, even for perfect probabilities. `ece_expected_if_calibrated` is the error that the same
probabilities would show on average if they were perfectly calibrated.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.stats import rankdata

from bigbird_dna.metrics.auroc import Z95

BINS = 15

# Axes: N rows.


class CalibrationMetrics(NamedTuple):
    """Calibration metrics; NaN without rows, and intervals are NaN for a single row or block."""

    ece: float
    ece_expected_if_calibrated: float
    brier: float
    brier_low: float
    brier_high: float
    mean_probability: float
    share_positive: float


def calibration_metrics(
    labels: ArrayLike, probabilities: ArrayLike, *, blocks: ArrayLike | None = None
) -> CalibrationMetrics:
    """Evaluate the calibration of `probabilities` (N,) with `labels` (N,) of 0 and 1.

    Rows with the same id in `blocks` (N,) vary together in the interval of the Brier score (normal
    approximation). `ValueError`: shapes differ, a label is not 0 or 1, or a probability is not in [0, 1].
    """
    y, p = np.asarray(labels, np.float64), np.asarray(probabilities, np.float64)
    if y.shape != p.shape or not np.isin(y, (0, 1)).all():
        raise ValueError("labels must be 0 or 1, one per probability")

    if not ((p >= 0) & (p <= 1)).all():  # false for NaN too
        raise ValueError("probabilities must be from 0 to 1")

    if not len(y):
        return CalibrationMetrics(*[math.nan] * len(CalibrationMetrics._fields))

    curve = reliability(y, p)
    gaps = (curve["fraction"] - curve["probability"]).abs()
    error = float((curve["rows"] * gaps).sum()) / len(y)
    # Errors of the fractions of calibrated probabilities are about normally distributed.
    spread = float(np.sqrt(curve["variance"]).sum())
    expected = spread / len(y) * math.sqrt(2 / math.pi)

    squares = (p - y) ** 2
    brier = float(squares.mean())
    ids = np.arange(len(y)) if blocks is None else np.asarray(blocks)
    deviations = pd.Series(squares - brier).groupby(ids).sum().to_numpy()
    low = high = math.nan
    if len(deviations) > 1:
        scale = len(deviations) / (len(deviations) - 1)
        half = Z95 * math.sqrt(scale * float(deviations @ deviations)) / len(y)
        low, high = max(brier - half, 0.0), min(brier + half, 1.0)

    return CalibrationMetrics(
        error, expected, brier, low, high, float(p.mean()), float(y.mean())
    )


def reliability(labels: ArrayLike, probabilities: ArrayLike) -> pd.DataFrame:
    """Bin rows (N,) by probability into at most `BINS` bins of about equal numbers of rows.

    Columns are the number of `rows`, the mean `probability`, the `fraction` of positives, `spread`, its
    standard deviation (binomial, with one pseudo-row at the mean probability), and `variance`, that of the
    number of positives if probabilities are calibrated.
    """
    y, p = np.asarray(labels, np.float64), np.asarray(probabilities, np.float64)
    # Equal probabilities have the mean of their ranks.
    bins = np.minimum(((rankdata(p) - 0.5) * BINS / len(p)).astype(int), BINS - 1)
    table = pd.DataFrame({"probability": p, "fraction": y, "variance": p * (1 - p)})
    by_bin = table.groupby(bins)
    curve = by_bin[["probability", "fraction"]].mean()
    curve["rows"] = by_bin.size()
    curve["variance"] = by_bin["variance"].sum()
    smooth = curve["rows"] * curve["fraction"] + curve["probability"]
    smooth /= curve["rows"] + 1
    curve["spread"] = np.sqrt(smooth * (1 - smooth) / curve["rows"])
    return curve
