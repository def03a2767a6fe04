"""Rows ranked by score: curves, average precision, and AUROC with its interval, over rows or blocks.

All metrics depend on the negatives only through the numbers above and tied with each positive. Positives and
negatives are therefore sorted separately (without ordering rows), and further work is on the D distinct
scores of positives. Counts are integers: ties are exact. A curve is a list of corners (false positives, true
positives), from none to all. ROC joins them with lines; precision is stepwise, as in average precision.

DeLong et al. (1988) in O(n log n) time, as in Sun & Xu (2014): the variance is that of each row's fraction of
correctly ranked rows of the other class; ties count one half, as in the Mann–Whitney statistic. The interval
is symmetric on the logit scale, where the normal approximation is better with few positives. For a binormal
AUROC of 0.99, 10 positives and 200 negatives, it covers the truth in 94 % of samples; the interval symmetric
on the AUROC scale, clipped at 1, covers it in 66 %. With fewer positives it is too narrow as well: 78 % for
an AUROC of 0.95, 5 positives and 500 negatives.

Windows and bins that are near each other in the genome are not independent. If their blocks are given, rows
of a block may vary together in any way, and blocks are independent: each row's deviation (DeLong's components
minus the AUROC, over the rows of its class) is added up by block, and the variance is the sum of squares over
blocks, as in Obuchowski (1997), times k / (k - 1). The interval is Student's t with k - 1 degrees of freedom.
A few blocks may have most positives of a track, so k is not the number of blocks, but the effective number
n² / Σ n_b², for n_b rows in block b; that of the class with fewer counts, and 2 at least. Simulations are on
the page docs/results/intervals.md.

DeLong's variance is not usable in three cases. With a single row of a class, it is undefined, and there is no
interval (NaN). If all scores are equal, or the classes are fully separated, it is 0, which does not mean
certainty. Equal scores have no interval either. For separated classes (an AUROC of exactly 0 or 1), the
interval is the exact one (Clopper & Pearson 1934) of k = min(m, n) pairs that share no row: if the AUROC is
A, all k are in order with probability A^k at most, so A >= 0.025^(1/k) cannot be rejected. It is wide (from
0.69 for k = 10), and its coverage is at least the nominal one. With blocks, "row" is replaced by "block" in
these three cases.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit, stdtr, stdtrit

Counts = NDArray[np.int64]
Floats = NDArray[np.float64]
ClassIds = tuple[NDArray[np.intp], NDArray[np.intp]]
"""Block ids of positives (m,) and of negatives (n,), small integers from 0."""

# Two-sided 95 % quantile of the normal distribution, and the probability beyond it on one side.
Z95 = 1.959963984540054
TAIL = 0.025
FALSE_DISCOVERY_RATE = 0.05
FEWEST_UNITS = 2  # rows or blocks of a class needed for an interval
ROUNDING = 1e-12  # fractions of billions of rows differ by more
ENDS = ("", "_low", "_high")
"""Suffixes of the columns that contain a value and its interval."""


class Estimate(NamedTuple):
    """A value with its 95 % interval; NaN if undefined."""

    value: float = math.nan
    low: float = math.nan
    high: float = math.nan


UNDEFINED = Estimate()


class Difference(NamedTuple):
    """The difference of two AUROCs on the same rows, with its two-sided p-value; NaN if undefined."""

    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    p: float = math.nan

    @property
    def estimate(self) -> Estimate:
        """The difference with its interval."""
        return Estimate(*self[:3])


class Spread(NamedTuple):
    """Variation of an AUROC, or of a difference of two, between rows or blocks."""

    error: float  # standard error; NaN if undefined
    units: int  # number of rows, or of blocks, of the rarer class
    freedom: float  # degrees of freedom of Student's t; inf: normal distribution
    deviations: (
        Floats  # of blocks (G,), whose squares add up to the variance; of rows empty
    )


class Ranking(NamedTuple):
    """m positives and n negatives, ranked by score; D distinct scores of positives."""

    positives: Counts  # (m,) in the order of rows: negatives below, twice; ties once
    negatives: Counts  # (n,) in the order of rows: positives below, twice; ties once
    # Counts at the distinct scores of positives, from the highest to the lowest, (D,).
    true: Counts  # positives of at least this score
    above: Counts  # negatives of a higher score
    false: Counts  # negatives of at least this score

    @property
    def area(self) -> float:
        """The AUROC."""
        pairs = len(self.positives) * len(self.negatives)
        return int(self.positives.sum()) / (2 * pairs)

    @property
    def average_precision(self) -> float:
        """The AUPRC, as a step function."""
        return float(average_precision(self.true, self.false))


def rank(positives: NDArray[Any], negatives: NDArray[Any]) -> Ranking:
    """Rank scores (m,) and (n,) without NaN, neither of which is empty."""
    m, n = len(positives), len(negatives)
    (ranked, rows), (others, other_rows) = ascending(positives), ascending(negatives)
    below = np.searchsorted(others, ranked, "left")
    up_to = np.searchsorted(others, ranked, "right")
    of_positives = np.empty(m, np.int64)
    of_positives[rows] = below + up_to
    of_negatives = np.empty(n, np.int64)
    met = np.bincount(np.concatenate([below, up_to]), minlength=n + 1)
    of_negatives[other_rows] = np.cumsum(met[:-1])
    starts = np.flatnonzero(np.append(True, ranked[1:] != ranked[:-1]))[::-1]
    return Ranking(
        of_positives, of_negatives, m - starts, n - up_to[starts], n - below[starts]
    )


def rank_rows(labels: ArrayLike, scores: ArrayLike) -> Ranking | None:
    """Rank rows (N,) with labels 0 and 1; None if a class is missing.

    `ValueError`: the shapes differ or are not 1-D, or a score is NaN.
    """
    y, x = np.asarray(labels).astype(bool), np.asarray(scores)
    if x.dtype != np.float32:
        x = x.astype(np.float64)

    if y.shape != x.shape or y.ndim != 1:
        raise ValueError(
            f"labels {y.shape} and scores {x.shape} must be 1-D of the same length"
        )

    if np.isnan(x).any():
        raise ValueError("scores contain NaN")

    if y.all() or not y.any():
        return None

    return rank(x[y], x[~y])


def ascending(scores: NDArray[Any]) -> tuple[NDArray[Any], Counts]:
    """Scores in ascending order, or whole numbers in their place, and the numbers of their rows, (N,) each.

    float32 scores are sorted together with their row numbers, in half of the time of `argsort`.
    """
    if scores.dtype != np.float32 or len(scores) >= 1 << 32:
        order = np.argsort(scores)
        return scores[order], order

    bits = (scores + np.float32(0)).view(np.int32)  # no −0, which is equal to 0
    bits ^= (bits >> 31) & np.int32(0x7FFFFFFF)  # in the order of the scores
    keys = bits.astype(np.int64)
    keys <<= 32
    keys |= np.arange(len(keys))
    keys.sort()
    order = keys & 0xFFFFFFFF
    keys >>= 32
    return keys, order


def divide(above: NDArray[Any], below: NDArray[Any], undefined: float) -> Floats:
    """Return quotients, and `undefined` where the denominator is 0."""
    quotients = np.full(np.shape(above), undefined)
    np.divide(above, below, out=quotients, where=below > 0)
    return quotients


def average_precision(true: NDArray[Any], false: NDArray[Any]) -> Floats:
    """Return the precision averaged over recall as a step function, with tied scores grouped (AUPRC).

    `true` and `false` (…, D) are the numbers of positives and negatives with at least each score, as in
    `Ranking`, or the sums of their weights. Shape (…), NaN without positives.
    """
    gained = np.diff(true, axis=-1, prepend=0)
    area = (divide(true, true + false, 0.0) * gained).sum(axis=-1)
    return divide(area, true[..., -1], math.nan)


def auroc(
    labels: ArrayLike, scores: ArrayLike, blocks: ArrayLike | None = None
) -> Estimate:
    """Return the AUROC of `scores` (N,) for `labels` (N,) of 0 and 1, with a 95 % interval.

    The interval is over blocks, with ids `blocks` (N,) from 0; None: over rows, DeLong's. Errors as in
    `rank_rows`. All three values are NaN if a class is missing. Rows are assumed independent without blocks:
    if negatives are derived from the positives and have similar scores, the interval is too wide.
    """
    ranking = rank_rows(labels, scores)
    if ranking is None:
        return UNDEFINED

    ids = None if blocks is None else ids_by_class(labels, blocks)
    return auroc_estimate(
        ranking.area, spread_of(ranking.positives, ranking.negatives, ids)
    )


def auroc_estimate(area: float, spread: Spread) -> Estimate:
    """Return an AUROC with its interval."""
    if spread.units < FEWEST_UNITS:
        return Estimate(area)
    least = TAIL ** (1 / spread.units)
    if area == 0:
        return Estimate(area, 0.0, 1 - least)
    if area == 1:
        return Estimate(area, least, 1.0)
    if not spread.error:
        return Estimate(area)
    return logit_interval(area, t_quantile(spread.freedom) * spread.error)


def spread_of(positives: Counts, negatives: Counts, ids: ClassIds | None) -> Spread:
    """Return the variation of an AUROC over the blocks with these ids; None: over rows (DeLong).

    `positives` and `negatives` are those of a `Ranking`. Their differences in two rankings of the same rows
    have the variation of the difference of both AUROCs.
    """
    m, n = len(positives), len(negatives)
    no_deviations: Floats = np.zeros(0)
    if ids is None:
        units = min(m, n)
        if units < FEWEST_UNITS:
            return Spread(math.nan, units, math.inf, no_deviations)

        variance = positives.var(ddof=1) / m / n**2 + negatives.var(ddof=1) / n / m**2
        error = math.sqrt(variance) / 2
        error = error if error > ROUNDING else 0.0
        return Spread(error, units, math.inf, no_deviations)

    length = 1 + max(int(ids[0].max()), int(ids[1].max()))
    sizes = np.stack([np.bincount(of, minlength=length) for of in ids])
    units = int((sizes > 0).sum(axis=1).min())
    if units < FEWEST_UNITS:
        return Spread(math.nan, units, math.inf, no_deviations)

    effective = float(np.min(sizes.sum(axis=1) ** 2 / (sizes**2).sum(axis=1)))
    effective = max(effective, float(FEWEST_UNITS))
    deviations: Any = np.bincount(ids[0], positives, length)
    deviations -= sizes[0] * positives.mean()
    deviations -= np.bincount(ids[1], negatives, length)
    deviations += sizes[1] * negatives.mean()
    deviations *= math.sqrt(effective / (effective - 1)) / (2 * m * n)
    error = math.sqrt(float(deviations @ deviations))
    error = error if error > ROUNDING else 0.0
    return Spread(error, units, effective - 1, deviations)


def auroc_difference(
    labels: ArrayLike,
    first: ArrayLike,
    second: ArrayLike,
    blocks: ArrayLike | None = None,
) -> Difference:
    """Return the AUROC of `first` minus that of `second` on the same rows, with a paired 95 % interval.

    The interval is over `blocks`, as in `auroc`, or DeLong's. It is symmetric about the difference, clipped
    to [-1, 1], and has zero width if both rank all rows in the same way. It is NaN if a class has a single
    row (or is in a single block). It is also NaN if the variance is 0 although the rankings differ, as for
    separated classes and equal scores: such a variance does not mean certainty.
    """
    one, two = rank_rows(labels, first), rank_rows(labels, second)
    if one is None or two is None:
        return Difference()

    ids = None if blocks is None else ids_by_class(labels, blocks)
    return ranking_difference(one, two, (first, second), ids)


def ranking_difference(
    one: Ranking,
    two: Ranking,
    scores: tuple[ArrayLike, ArrayLike],
    ids: ClassIds | None,
) -> Difference:
    """Return `auroc_difference` of two `scores` (N,) from their rankings."""
    positives = one.positives - two.positives
    value = float(positives.mean()) / (2 * len(one.negatives))
    spread = spread_of(positives, one.negatives - two.negatives, ids)
    if spread.units < FEWEST_UNITS:
        return Difference(value)

    if spread.error:
        p = 2 * float(stdtr(spread.freedom, -abs(value) / spread.error))
    else:
        first, second = (np.unique(x, return_inverse=True)[1] for x in scores)
        if not np.array_equal(first, second):
            return Difference(value)

        p = 1.0

    half = t_quantile(spread.freedom) * spread.error
    return Difference(value, max(value - half, -1.0), min(value + half, 1.0), p)


def ids_by_class(labels: ArrayLike, blocks: ArrayLike) -> ClassIds:
    """Return block ids of positives (m,) and of negatives (n,) in the order of rows.

    `ValueError`: the shapes of `labels` and `blocks` differ.
    """
    y, ids = np.asarray(labels).astype(bool), np.asarray(blocks)
    if y.shape != ids.shape:
        raise ValueError(
            f"labels {y.shape} and blocks {ids.shape} must have the same length"
        )
    return ids[y], ids[~y]


def t_quantile(freedom: float) -> float:
    """Return the quantile of Student's t that is exceeded with probability `TAIL`.

    Infinite degrees of freedom: of the normal distribution.
    """
    return float(stdtrit(freedom, 1 - TAIL))


def discoveries(p_values: ArrayLike) -> NDArray[np.bool_]:
    """Return which of many differences with p-values (N,) are significant at a false discovery rate of 5 %.

    Benjamini & Hochberg (1995); a difference without a p-value (NaN) is not significant.
    """
    from scipy.stats import false_discovery_control

    values = np.asarray(p_values, float)
    significant: NDArray[np.bool_] = ~np.isnan(values)
    if significant.any():
        adjusted = false_discovery_control(values[significant])
        significant[significant] = adjusted <= FALSE_DISCOVERY_RATE

    return significant


def logit_interval(area: float, half: float) -> Estimate:
    """Return an AUROC in (0, 1) with an interval on the logit scale of the same width to first order.

    `half` is half the width of the interval that is symmetric about the AUROC.
    """
    middle, shift = logit(area), half / (area * (1 - area))
    return Estimate(area, float(expit(middle - shift)), float(expit(middle + shift)))


def auroc_note(positives: int, negatives: int, area: Estimate) -> str:
    """Return why an AUROC or its interval is missing or of another kind; "" if there is nothing to note."""
    if not positives and not negatives:
        return "no measured row"

    if not positives:
        return "no positives"

    if not negatives:
        return "no negatives"

    if positives == 1:
        return "only one positive: no interval of AUROC"

    if negatives == 1:
        return "only one negative: no interval of AUROC"

    if math.isnan(area.low) and area.value == 0.5:
        return "all scores are equal: no interval of AUROC"

    if math.isnan(area.low):
        return "too few blocks of sequence with positives or negatives: no interval of AUROC"

    if area.value in (0.0, 1.0):
        return "classes fully separated: interval of AUROC from pairs of rows or blocks"

    return ""
