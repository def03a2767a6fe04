"""AUROC and rank correlation of several outputs, with intervals that hold together, and of their mean.

Intervals are over groups of rows, in closed form. Those of T outputs contain all T true values at once with a
probability of 95 %: each has 0.025 / T beyond either end (Bonferroni). With 50 labels, the largest of 50
intervals is thus as reliable as one interval of one label.

Spearman's correlation is that of ranks, which are fractions of rows below a row, minus one half; rows of the
same value count one half. A row changes it by its own product of ranks and, as one of the rows that others
are compared with, by their ranks. The variance is the sum of squares over groups of these deviations, as for
the AUROC (`metrics.auroc`). The interval is symmetric on Fisher's scale (arctanh). If all rows are in order,
the deviations are 0, which does not mean certainty. Then all k pairs of rows that share no group are in
order, a probability below 0.025^(1/k) of a pair in order can be rejected, and with it a Kendall's correlation
of τ = 2 · 0.025^(1/k) - 1; Spearman's correlation is at least (3 τ - 1) / 2 (Daniels 1950).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.metrics.auroc import (
    FEWEST_UNITS,
    TAIL,
    UNDEFINED,
    Counts,
    Estimate,
    Floats,
    Spread,
    auroc_estimate,
    ids_by_class,
    logit_interval,
    rank_rows,
    spread_of,
    t_quantile,
)

_ROUNDING = 1e-9  # of standard errors of correlations
_UNDEFINED = UNDEFINED, Spread(math.nan, 0, math.inf, np.zeros(0))

# Axes: N rows, T outputs, G groups.

Values = NDArray[np.floating[Any] | np.integer[Any] | np.bool_]


class JointEstimates(NamedTuple):
    """A metric of T outputs, whose intervals hold together, and the mean of those that have an interval."""

    outputs: list[Estimate]
    mean: Estimate  # that of the output, if it is the only one


def joint_estimates(
    labels: Values, scores: Values, groups: Counts, *, spearman: bool
) -> JointEstimates:
    """Return the AUROCs of scores (N, T) for labels (N, T) of 0 and 1, or Spearman's correlations of numbers.

    Rows with NaN as label do not count. Ids of `groups` (N,) count from 0. The AUROC of an output without
    positives or negatives is NaN, and a correlation if labels or scores are constant.
    """
    metric = _correlation if spearman else _area
    pairs = []
    for y, x in zip(labels.T, scores.T, strict=True):
        rows = ~np.isnan(y)
        pairs.append(metric(y[rows], x[rows], groups[rows], TAIL / labels.shape[1]))
    outputs = [estimate for estimate, _ in pairs]
    pairs = [pair for pair in pairs if not math.isnan(pair[0].low)]
    if len(outputs) == 1 or not pairs:
        return JointEstimates(outputs, outputs[0])
    # Without variance, the ends of the mean are those of the intervals that hold together.
    mean = Estimate(*np.mean([estimate for estimate, _ in pairs], axis=0).tolist())
    deviations = np.zeros(int(groups.max()) + 1)
    for _, spread in pairs:
        deviations[: len(spread.deviations)] += spread.deviations / len(pairs)
    variance = float(deviations @ deviations)
    if math.sqrt(variance) > _ROUNDING and mean.value < 1:
        # As many groups of normally distributed deviations have these second and fourth moments.
        units = 3 * variance**2 / float((deviations**2) @ (deviations**2))
        half = t_quantile(max(units - 1, 1.0)) * math.sqrt(variance)
        interval = _fisher_interval if spearman else logit_interval
        mean = interval(mean.value, half)
    return JointEstimates(outputs, mean)


def _area(
    labels: Values, scores: Values, groups: Counts, tail: float
) -> tuple[Estimate, Spread]:
    """Return the AUROC with its variation over groups."""
    ranking = rank_rows(labels, scores)
    if ranking is None:
        return _UNDEFINED
    ids = ids_by_class(labels, groups)
    spread = spread_of(ranking.positives, ranking.negatives, ids)
    return auroc_estimate(ranking.area, spread, tail), spread


def _correlation(
    labels: Values, scores: Values, groups: Counts, tail: float
) -> tuple[Estimate, Spread]:
    """Return Spearman's correlation with its variation over groups; NaN if labels or scores are equal."""
    sizes = np.bincount(groups)
    units = int(np.count_nonzero(sizes))
    n, a, b = len(labels), _levels(labels), _levels(scores)
    if units < FEWEST_UNITS or not a.any() or not b.any():
        return _UNDEFINED
    both, of_both = _covariance(a, b)
    first, of_first = _covariance(a, a)
    second, of_second = _covariance(b, b)
    value = both / math.sqrt(first * second)
    influence = of_both / math.sqrt(first * second)
    influence -= value / 2 * (of_first / first + of_second / second)
    effective = max(n**2 / float(sizes @ sizes), float(FEWEST_UNITS))
    scale = math.sqrt(effective / (effective - 1)) / n
    deviations = np.asarray(np.bincount(groups, influence) * scale, np.float64)
    error = math.sqrt(float(deviations @ deviations))
    value = min(max(value, -1.0), 1.0)
    spread = Spread(error, units, effective - 1, deviations)
    if error > _ROUNDING:
        return _fisher_interval(value, t_quantile(effective - 1, tail) * error), spread
    if abs(value) < 1 - _ROUNDING:
        return Estimate(value), spread
    least = (3 * (2 * tail ** (1 / max(units // 2, 1)) - 1) - 1) / 2
    least = max(least, -1.0)
    if value > 0:
        return Estimate(value, least, 1.0), spread
    return Estimate(value, -1.0, -least), spread


def _levels(values: Values) -> NDArray[np.intp]:
    return np.unique(values, return_inverse=True)[1]


def _covariance(a: NDArray[np.intp], b: NDArray[np.intp]) -> tuple[float, Floats]:
    """Return the covariance of the ranks of levels (N,), with the influence (N,) of each row on it."""
    ones = np.ones(len(a))
    u, v = 0.5 - _sums_above(a, ones), 0.5 - _sums_above(b, ones)
    value = float(u @ v) / len(a)
    return value, u * v + _sums_above(a, v) + _sums_above(b, u) - 3 * value


def _sums_above(levels: NDArray[np.intp], values: Floats) -> Floats:
    """Return sums (N,) of `values` (N,) over rows of a higher level, and half of those of its own, over N."""
    sums = np.bincount(levels, values)
    above: Floats = (sums.sum() - np.cumsum(sums) + sums / 2) / len(levels)
    return above[levels]


def _fisher_interval(value: float, half: float) -> Estimate:
    """Return a correlation with an interval on Fisher's scale, of the same width to first order."""
    middle, shift = math.atanh(value), half / (1 - value**2)
    return Estimate(value, math.tanh(middle - shift), math.tanh(middle + shift))
