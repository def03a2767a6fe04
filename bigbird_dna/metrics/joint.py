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
    Counts,
    Estimate,
    Floats,
    Placements,
    Spread,
    auroc_of,
    by_class,
    ids_by_class,
    logit_interval,
    t_quantile,
)

_ROUNDING = 1e-9  # of standard errors of correlations

# Axes: N rows, T outputs, G groups.

Values = NDArray[np.floating[Any] | np.integer[Any] | np.bool_]


class JointEstimates(NamedTuple):
    """A metric of T outputs, whose intervals hold together, and the mean of those that have an interval."""

    outputs: list[Estimate]
    mean: Estimate  # that of the output, if it is the only one


def joint_aurocs(labels: Values, scores: Values, groups: Counts) -> JointEstimates:
    """Return the AUROCs of scores (N, T) for labels (N, T) of 0 and 1; rows with NaN do not count.

    Ids of `groups` (N,) count from 0. The AUROC of an output without positives or negatives is NaN.
    """
    found, spreads = [], []
    for y, x in zip(labels.T, scores.T, strict=True):
        known = ~np.isnan(y)
        classes = by_class(y[known], x[known])
        if not all(map(len, classes)):
            found.append(Estimate())
            continue
        placed, steps = Placements.with_steps(*classes)
        spread = placed.spread(ids_by_class(y[known], groups[known]))
        found.append(auroc_of(steps, spread, TAIL / labels.shape[1]))
        spreads.append((found[-1], spread))
    return _joint(found, spreads, fisher=False)


def joint_correlations(
    labels: Values, predictions: Values, groups: Counts
) -> JointEstimates:
    """Return Spearman's correlations of predictions (N, T) with labels (N, T); NaN if one is constant.

    Rows with NaN as label do not count. Ids of `groups` (N,) count from 0.
    """
    found, spreads = [], []
    for y, x in zip(labels.T, predictions.T, strict=True):
        known = ~np.isnan(y)
        value, spread = _correlation(y[known], x[known], groups[known])
        found.append(_correlation_interval(value, spread, TAIL / labels.shape[1]))
        spreads.append((found[-1], spread))
    return _joint(found, spreads, fisher=True)


def _joint(
    found: list[Estimate], spreads: list[tuple[Estimate, Spread]], fisher: bool
) -> JointEstimates:
    """Return the estimates with that of the mean of outputs; `fisher`: of correlations, else of AUROCs."""
    known = [
        (estimate, spread)
        for estimate, spread in spreads
        if not math.isnan(estimate.low)
    ]
    if len(found) == 1 or not known:
        return JointEstimates(found, found[0])
    values = np.array([estimate for estimate, _ in known]).mean(axis=0)
    mean = Estimate(
        *values.tolist()
    )  # its ends are those of the intervals that hold together
    deviations = np.zeros(max(len(spread.deviations) for _, spread in known))
    for _, spread in known:
        deviations[: len(spread.deviations)] += spread.deviations / len(known)
    variance = float(deviations @ deviations)
    if math.sqrt(variance) > _ROUNDING and mean.value < 1:
        # As many groups of normally distributed deviations have these second and fourth moments.
        groups = 3 * variance**2 / float((deviations**2) @ (deviations**2))
        half = t_quantile(max(groups - 1, 1.0)) * math.sqrt(variance)
        mean = (
            _fisher_interval(mean.value, half)
            if fisher
            else logit_interval(mean.value, half)
        )
    return JointEstimates(found, mean)


def _correlation(
    labels: Values, predictions: Values, groups: Counts
) -> tuple[float, Spread]:
    """Return Spearman's correlation and its variation over groups; NaN if labels or predictions are equal."""
    sizes = np.bincount(groups)
    units = int(np.count_nonzero(sizes))
    levels = [
        np.unique(values, return_inverse=True)[1] for values in (labels, predictions)
    ]
    if units < FEWEST_UNITS or min(int(level.max()) for level in levels) == 0:
        return math.nan, Spread(math.nan, units)
    u, v = (0.5 - _above(level, np.ones(len(level))) for level in levels)

    def covariance(one: int, other: int) -> tuple[float, Floats]:
        """Covariance of ranks, with the influence (N,) of each row on it."""
        ranks = u, v
        value = float(ranks[one] @ ranks[other]) / len(u)
        compared = _above(levels[one], ranks[other]) + _above(levels[other], ranks[one])
        return value, ranks[one] * ranks[other] + compared - 3 * value

    (both, of_both), (first, of_first), (second, of_second) = map(
        covariance, (0, 0, 1), (1, 0, 1)
    )
    value = both / math.sqrt(first * second)
    influence = of_both / math.sqrt(first * second) - value / 2 * (
        of_first / first + of_second / second
    )
    effective = max(len(u) ** 2 / float(sizes @ sizes), float(FEWEST_UNITS))
    deviations = (
        np.bincount(groups, influence) / len(u) * math.sqrt(effective / (effective - 1))
    )
    error = math.sqrt(float(deviations @ deviations))
    value = min(max(value, -1.0), 1.0)
    return value, Spread(
        error if error > _ROUNDING else 0.0, units, effective - 1, deviations
    )


def _above(levels: NDArray[np.intp], values: Floats) -> Floats:
    """Return sums (N,) of `values` (N,) over rows of a higher level, and half of the own one, over N."""
    sums = np.bincount(levels, values)
    found: Floats = ((sums.sum() - np.cumsum(sums) + sums / 2) / len(levels))[levels]
    return found


def _correlation_interval(value: float, spread: Spread, tail: float) -> Estimate:
    if math.isnan(value):
        return Estimate()
    if spread.error:
        return _fisher_interval(value, t_quantile(spread.freedom, tail) * spread.error)
    if abs(value) < 1 - _ROUNDING:
        return Estimate(value)
    least = max((3 * (2 * tail ** (1 / max(spread.units // 2, 1)) - 1) - 1) / 2, -1.0)
    return Estimate(value, least, 1.0) if value > 0 else Estimate(value, -1.0, -least)


def _fisher_interval(value: float, half: float) -> Estimate:
    """Return a correlation with an interval on Fisher's scale, of the same width to first order."""
    middle, shift = math.atanh(value), half / (1 - value**2)
    return Estimate(value, math.tanh(middle - shift), math.tanh(middle + shift))
