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

Counts = NDArray[np.int64]
Floats = NDArray[np.float64]
Scores = NDArray[np.floating[Any]]
ClassIds = tuple[NDArray[np.intp], NDArray[np.intp]]
"""Block ids of positives (m,) and of negatives (n,), small integers from 0."""


class Steps(NamedTuple):
    """Counts at the distinct scores of positives, from the highest score to the lowest, each (D,)."""

    positives: int
    negatives: int
    true: Counts  # positives of at least this score
    above: Counts  # negatives of a higher score
    false: Counts  # negatives of at least this score

    @classmethod
    def counted(
        cls, ascending: NDArray[Any], negatives: int, below: Counts, up_to: Counts
    ) -> Steps:
        """Count from ascending positives (m,) and the numbers of negatives below, or not above, each."""
        starts = np.flatnonzero(
            np.append(True, ascending[1:] != ascending[:-1])
        )  # the first of equal ones
        sides = (negatives - counts[starts][::-1] for counts in (up_to, below))
        return cls(len(ascending), negatives, (len(ascending) - starts)[::-1], *sides)

    @classmethod
    def of_rows(cls, labels: ArrayLike, scores: ArrayLike) -> Steps | None:
        """Count from rows as in `by_class`; None if a class is missing."""
        positives, negatives = by_class(labels, scores)
        if not len(positives) or not len(negatives):
            return None
        positives.sort()
        negatives.sort()
        return cls.counted(positives, len(negatives), *_below(positives, negatives))


def _below(scores: NDArray[Any], ascending: NDArray[Any]) -> tuple[Counts, Counts]:
    """Number of values below each score, and not above it."""
    return np.searchsorted(ascending, scores, "left"), np.searchsorted(
        ascending, scores, "right"
    )


def by_class(labels: ArrayLike, scores: ArrayLike) -> tuple[Scores, Scores]:
    """Return copies of the scores of positives (m,) and of negatives (n,), each in the order of rows (N,).

    float32 scores stay float32; others become float64. `ValueError`: the shapes differ or are not 1-D, or a
    score is NaN.
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
    return x[y], x[~y]


def average_precision(true: NDArray[Any], false: NDArray[Any]) -> Floats:
    """Return the precision averaged over recall as a step function, with tied scores grouped (AUPRC).

    `true` and `false` (…, D) are the numbers of positives and negatives with at least each score, as in
    `Steps`, or the sums of their weights. Shape (…), NaN without positives.
    """
    called = true + false
    precision = np.divide(true, called, out=np.zeros(called.shape), where=called > 0)
    gained = np.diff(true, axis=-1, prepend=0)
    area, whole = (precision * gained).sum(axis=-1), true[..., -1]
    found: Floats = np.full(area.shape, np.nan)
    np.divide(area, whole, out=found, where=whole > 0)
    return found


# Two-sided 95 % quantile of the normal distribution, and the probability beyond it on one side.
Z95 = 1.959963984540054
FALSE_DISCOVERY_RATE = 0.05
TAIL = 0.025
FEWEST_UNITS = 2  # rows or blocks of a class needed for an interval
NO_DEVIATIONS = np.zeros(0)
_ROUNDING = 1e-12  # tolerance of fractions of rows; fractions of billions of rows differ by more
# Suffixes of the columns that contain a value and its interval.
ENDS = ("", "_low", "_high")


class Estimate(NamedTuple):
    """A value with its 95 % interval; NaN if undefined."""

    value: float = math.nan
    low: float = math.nan
    high: float = math.nan


UNDEFINED = Estimate()


class Spread(NamedTuple):
    """Variation of an AUROC, or of a difference of two, between rows or blocks."""

    error: float  # standard error; NaN if undefined
    units: int  # number of rows, or of blocks, of the rarer class
    freedom: float = (
        math.inf
    )  # degrees of freedom of Student's t; inf: normal distribution
    deviations: Floats = (
        NO_DEVIATIONS  # of blocks (G,), whose squares add up to the variance
    )

    @property
    def half(self) -> float:
        """Half the width of the 95 % interval that is symmetric about the value."""
        return t_quantile(self.freedom) * self.error

    def chance(self, value: float) -> float:
        """Return the p-value of a value: the chance of one as far from 0 if the expected value is 0."""
        if not self.error:
            return math.nan if value else 1.0
        from scipy.special import ndtr, stdtr

        tail = -abs(value) / self.error
        return 2 * float(
            ndtr(tail) if math.isinf(self.freedom) else stdtr(self.freedom, tail)
        )


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


def auroc(
    labels: ArrayLike, scores: ArrayLike, blocks: ArrayLike | None = None
) -> Estimate:
    """Return the AUROC of `scores` (N,) for `labels` (N,) of 0 and 1, with a 95 % interval.

    The interval is over blocks, with ids `blocks` (N,) from 0; None: over rows, DeLong's. Errors as in
    `by_class`. All three values are NaN if a class is missing. Rows are assumed independent without blocks:
    if negatives are derived from the positives and have similar scores, the interval is too wide.
    """
    positives, negatives = by_class(labels, scores)
    if not len(positives) or not len(negatives):
        return UNDEFINED
    placed, steps = Placements.with_steps(positives, negatives)
    return auroc_of(
        steps, None if blocks is None else placed.spread(ids_by_class(labels, blocks))
    )


def auroc_of(
    steps: Steps, spread: Spread | None = None, tail: float = TAIL
) -> Estimate:
    """Return the AUROC of ranked rows, with the interval of `spread` over blocks; None: DeLong's.

    `tail` is the probability beyond each end of the interval.
    """
    gained = np.diff(steps.true, prepend=0)
    twice = 2 * steps.negatives - steps.above - steps.false
    area = int(gained @ twice) / (2 * steps.positives * steps.negatives)
    spread = spread or _delong(steps, area)
    if spread.units < FEWEST_UNITS:
        return Estimate(area)
    if area in (0.0, 1.0):
        least = tail ** (1 / spread.units)
        return Estimate(area, least, 1.0) if area else Estimate(area, 0.0, 1 - least)
    half = t_quantile(spread.freedom, tail) * spread.error
    return logit_interval(area, half) if half else Estimate(area)


def _delong(steps: Steps, area: float) -> Spread:
    """Return DeLong's variation over ranked rows."""
    m, n = steps.positives, steps.negatives
    if min(m, n) < FEWEST_UNITS:
        return Spread(math.nan, min(m, n))
    gained = np.diff(steps.true, prepend=0)
    twice = 2 * n - steps.above - steps.false
    variance = float(gained @ (twice / (2 * n) - area) ** 2) / ((m - 1) * m)
    # Negatives between two scores of positives, then those tied with a positive.
    before = np.append(0, steps.true)
    between = np.append(steps.above, n) - np.append(0, steps.false)
    spread = between @ (before / m - area) ** 2
    level = steps.false - steps.above
    spread += level @ ((before[:-1] + steps.true) / (2 * m) - area) ** 2
    variance += float(spread) / ((n - 1) * n)
    return Spread(math.sqrt(variance), min(m, n))


class Placements(NamedTuple):
    """Twice the number of rows of the other class below each row, in the order of rows; ties count once."""

    positives: Counts  # (m,)
    negatives: Counts  # (n,)

    @classmethod
    def of(cls, positives: Scores, negatives: Scores) -> Placements:
        """Count from scores without NaN."""
        return cls.with_steps(positives, negatives)[0]

    @classmethod
    def with_steps(
        cls, positives: Scores, negatives: Scores
    ) -> tuple[Placements, Steps]:
        """Count from scores without NaN, which are sorted once, a fifth of the time of a search per row."""
        (ranked, own), (others, order) = ascending(positives), ascending(negatives)
        below, up_to = _below(ranked, others)
        twice = np.bincount(np.concatenate([below, up_to]), minlength=len(order) + 1)
        found = cls(np.empty(len(own), np.int64), np.empty(len(order), np.int64))
        found.positives[own] = below + up_to
        found.negatives[order] = np.cumsum(twice[:-1], out=twice[:-1])
        return found, Steps.counted(ranked, len(order), below, up_to)

    def spread(self, ids: ClassIds | None) -> Spread:
        """Return the variation of the AUROC over the blocks with these ids, which adds up whole numbers.

        None: over rows. Differences of two placements have that of the difference of their AUROCs.
        """
        m, n = map(len, self)
        counts: list[Counts] = [np.bincount(one) for one in ids or ()]
        units = min((int(np.count_nonzero(one)) for one in counts), default=min(m, n))
        if units < FEWEST_UNITS:
            return Spread(math.nan, units)
        if ids is None:
            freedom = math.inf
            deviations = np.concatenate(
                [
                    (own - own.mean()) * math.sqrt(len(own) / (len(own) - 1))
                    for own in self
                ]
            )
        else:
            effective = max(
                min(float(one.sum() ** 2 / (one @ one)) for one in counts),
                float(FEWEST_UNITS),
            )
            freedom, deviations = effective - 1, np.zeros(max(map(len, counts)))
            for own, of, count, sign in zip(self, ids, counts, (1, -1), strict=True):
                deviations[: len(count)] += sign * (
                    np.bincount(of, weights=own) - count * own.mean()
                )
            deviations *= math.sqrt(effective / freedom)
        deviations /= 2 * m * n
        error = math.sqrt(float(deviations @ deviations))
        return Spread(error if error > _ROUNDING else 0.0, units, freedom, deviations)


def ascending(scores: Scores) -> tuple[NDArray[Any], Counts]:
    """Scores in ascending order, or whole numbers in their place, and the numbers of their rows, (N,) each.

    float32 scores are sorted together with their row numbers, in half of the time of `argsort`.
    """
    if scores.dtype != np.float32 or len(scores) >= 1 << 32:
        order = np.argsort(scores)
        return scores[order], order
    bits = (scores + np.float32(0)).view(np.int32)  # no −0, which is equal to 0
    bits ^= (bits >> 31) & np.int32(
        0x7FFFFFFF
    )  # the same order as the scores, of either sign
    keys = bits.astype(np.int64)
    keys <<= 32
    keys |= np.arange(len(keys))
    keys.sort()
    order = keys & 0xFFFFFFFF
    keys >>= 32
    return keys, order


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
    one, two = by_class(labels, first), by_class(labels, second)
    if not all(map(len, one)):
        return Difference()
    ids = None if blocks is None else ids_by_class(labels, blocks)
    return placed_difference(
        Placements.of(*one), Placements.of(*two), (first, second), ids
    )


def placed_difference(
    one: Placements,
    two: Placements,
    scores: tuple[ArrayLike, ArrayLike],
    ids: ClassIds | None,
) -> Difference:
    """Return `auroc_difference` of two `scores` (N,) from their placements."""
    lead = Placements(one.positives - two.positives, one.negatives - two.negatives)
    value = float(lead.positives.mean()) / (2 * len(lead.negatives))
    spread = lead.spread(ids)
    if spread.units < FEWEST_UNITS:
        return Difference(value)
    if not spread.error:
        ranks = (np.unique(np.asarray(one), return_inverse=True)[1] for one in scores)
        if not np.array_equal(next(ranks), next(ranks)):
            return Difference(value)
    half = spread.half
    return Difference(
        value, max(value - half, -1.0), min(value + half, 1.0), spread.chance(value)
    )


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


def t_quantile(freedom: float, tail: float = TAIL) -> float:
    """Return the quantile of Student's t that is exceeded with probability `tail`.

    Infinite degrees of freedom: of the normal distribution.
    """
    if math.isinf(freedom) and tail == TAIL:
        return Z95
    from scipy.special import ndtri, stdtrit

    return float(-ndtri(tail) if math.isinf(freedom) else stdtrit(freedom, 1 - tail))


def discoveries(p_values: ArrayLike) -> NDArray[np.bool_]:
    """Return which of many differences with p-values (N,) are significant at a false discovery rate of 5 %.

    Benjamini & Hochberg (1995); a difference without a p-value (NaN) is not significant.
    """
    from scipy.stats import false_discovery_control

    values = np.asarray(p_values, float)
    known: NDArray[np.bool_] = ~np.isnan(values)
    known[known] = (
        false_discovery_control(values[known]) <= FALSE_DISCOVERY_RATE
        if known.any()
        else []
    )
    return known


def logit_interval(area: float, half: float) -> Estimate:
    """Return an AUROC in (0, 1) with an interval on the logit scale of the same width to first order.

    `half` is half the width of the interval that is symmetric about the AUROC.
    """
    middle = math.log(area / (1 - area))
    shift = half / (area * (1 - area))
    return Estimate(area, _logistic(middle - shift), _logistic(middle + shift))


def auroc_note(positives: int, negatives: int, area: Estimate) -> str:
    """Return why an AUROC or its interval is missing or of another kind; "" if there is nothing to note."""
    if not positives or not negatives:
        return (
            "no negatives"
            if positives
            else "no positives"
            if negatives
            else "no measured row"
        )
    if min(positives, negatives) == 1:
        return f"only one {'positive' if positives == 1 else 'negative'}: no interval of AUROC"
    if math.isnan(area.low):
        few = "too few blocks of sequence with positives or negatives"
        kind = "all scores are equal" if area.value == 0.5 else few
        return f"{kind}: no interval of AUROC"
    if area.value in (0.0, 1.0):
        return "classes fully separated: interval of AUROC from pairs of rows or blocks"
    return ""


def _logistic(value: float) -> float:
    shrunk = math.exp(-abs(value))
    return (1 if value > 0 else shrunk) / (1 + shrunk)
