"""Area under the ROC curve with DeLong's interval, and the difference of two on the same rows.

DeLong et al. (1988) in O(n log n) time, as Sun & Xu (2014): the structural components come from
counts in the sorted other class, ties count one half, as in the Mann–Whitney statistic.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

# Two-sided 95 % quantile of the normal distribution.
Z95 = 1.959963984540054

Floats = NDArray[np.float64]


class Estimate(NamedTuple):
    """A figure with its 95 % interval; NaN where it is not defined."""

    value: float
    low: float
    high: float


UNDEFINED = Estimate(math.nan, math.nan, math.nan)


def auroc(labels: ArrayLike, scores: ArrayLike) -> Estimate:
    """AUROC of `scores` (N,) for `labels` (N,) of 0 and 1; DeLong's 95 % interval, cut to [0, 1].

    All three are NaN where a class is missing; the interval is NaN where a class has one row only.
    Rows count as independent: with negatives made from the positives and scored like them the
    interval errs on the wide side. A perfect separation has no spread, its interval no width.
    """
    components = _Components.of(labels, scores)
    if components is None:
        return UNDEFINED
    return _estimate(components.area, components.variance(), 0.0, 1.0)


def auroc_difference(labels: ArrayLike, first: ArrayLike, second: ArrayLike) -> Estimate:
    """AUROC of `first` minus that of `second` on the same rows, with DeLong's paired interval."""
    one, two = _Components.of(labels, first), _Components.of(labels, second)
    if one is None or two is None:
        return UNDEFINED
    return _estimate(one.area - two.area, one.minus(two).variance(), -1.0, 1.0)


class _Components(NamedTuple):
    """Structural components: the share of the other class a row is ranked rightly against."""

    area: float
    positives: Floats  # (m,)
    negatives: Floats  # (n,)

    @classmethod
    def of(cls, labels: ArrayLike, scores: ArrayLike) -> _Components | None:
        y, x = np.asarray(labels).astype(bool), np.asarray(scores)
        if x.dtype != np.float32:
            x = x.astype(np.float64)
        if y.shape != x.shape or y.ndim != 1:
            raise ValueError(f"labels {y.shape} and scores {x.shape} must be 1-D of one length")
        if np.isnan(x).any():
            raise ValueError("scores hold NaN")
        positives, negatives = x[y], x[~y]
        if not len(positives) or not len(negatives):
            return None
        right_of_positives = _share_below(positives, negatives)
        return cls(
            float(right_of_positives.mean()),
            right_of_positives,
            1 - _share_below(negatives, positives),
        )

    def minus(self, other: _Components) -> _Components:
        return _Components(
            self.area - other.area,
            self.positives - other.positives,
            self.negatives - other.negatives,
        )

    def variance(self) -> float:
        m, n = len(self.positives), len(self.negatives)
        if m < 2 or n < 2:
            return math.nan
        return float(self.positives.var(ddof=1) / m + self.negatives.var(ddof=1) / n)


def _share_below(values: NDArray[Any], others: NDArray[Any]) -> Floats:
    """The share of `others` below each value, those level with it counted half."""
    ascending = np.sort(others)
    below = np.searchsorted(ascending, values, "left")
    return (below + np.searchsorted(ascending, values, "right")) / (2 * len(others))


def _estimate(value: float, variance: float, lowest: float, highest: float) -> Estimate:
    if math.isnan(variance):
        return Estimate(value, math.nan, math.nan)
    half = Z95 * math.sqrt(variance)
    return Estimate(value, max(value - half, lowest), min(value + half, highest))
