"""Intervals over blocks of the genome, over tracks, and over seeds of models.

The difference between two sets of trained models on the same test rows depends on two random draws: the test
examples, and the seeds of the models. The variance of the first is that over blocks of the genome
(`metrics.auroc`), or for medians over tracks a bootstrap: tracks are drawn with replacement, the same for all
models. The variance of the second is that of the seeds' differences, minus its part that is due to the test
data (the interaction of both, which the first contains). There are too few seeds to resample them: with three
seeds, one resample in nine has a single distinct seed. The half of the interval is that of one t interval
with Satterthwaite's degrees of freedom, which is too narrow if the seeds vary much; or its mean with the root
of the sum of the squared halves of both t intervals (Howe 1974), which is too wide, if that is larger.

If resamples and seeds are all equal, the estimated variance is 0. AUROCs and medians are not certain then, so
they and their gains have no interval (`with_width`). Medians of fewer than `FEWEST_TRACKS` tracks have none.

The interval of an AUROC is on the logit scale, with this width to first order, as in DeLong's method
(`metrics.auroc`). For separated classes, it is the exact interval for blocks.

Neighboring tokens are similarly hard to predict, so the interval of bits per base is over blocks of about 10
kb of sequence too. A rate is a sum of bits over a sum of bases; the deviation of a block is that of its bits
from the rate times its bases. The difference of two predictors on the same tokens varies much less.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from bigbird_dna.metrics.auroc import (
    FEWEST_UNITS,
    ROUNDING,
    UNDEFINED,
    Counts,
    Estimate,
    Floats,
    auroc,
    ids_by_class,
    logit_interval,
    rank_rows,
    spread_of,
    t_quantile,
)

RESAMPLES = 2000
BLOCK_BASES = 10_000
FEWEST_TRACKS = 5  # with fewer tracks, resampled medians are not informative
# Most weights (rows × resamples) in memory at a time (float64: 32 MB).
CHUNK = 4_000_000

# Axes: N rows, M models, R resamples, T tracks.


def sequence_blocks(contigs: ArrayLike, starts: ArrayLike) -> Counts:
    """Return ids (N,), from 0 without gaps, of the blocks of `BLOCK_BASES` bp in which intervals start.

    Intervals are on `contigs` (N,), from `starts` (N,) in bp.
    """
    names = np.unique(np.asarray(contigs).astype(str), return_inverse=True)[1]
    numbers = np.asarray(starts).astype(np.int64) // BLOCK_BASES
    ids = names * (numbers.max(initial=0) + 1) + numbers
    return np.asarray(np.unique(ids, return_inverse=True)[1], np.int64)


def joined(blocks: Counts, groups: Counts) -> Counts:
    """Return ids (N,), from 0 without gaps, of the smallest blocks that divide neither a block nor a group.

    Rows with the same number in `blocks` (N,), or in `groups` (N,), have the same id.
    """
    rows = len(blocks)
    first = np.unique(blocks, return_inverse=True)[1]
    second = np.unique(groups, return_inverse=True)[1] + rows
    edges = coo_matrix((np.ones(rows), (first, second)), shape=(2 * rows, 2 * rows))
    labels = connected_components(edges, directed=False)[1][first]
    return np.asarray(np.unique(labels, return_inverse=True)[1], np.int64)


def draw_counts(
    generator: np.random.Generator, size: int, resamples: int, width: int
) -> Iterator[Counts]:
    """Yield how often each of `size` blocks is drawn, as arrays (some resamples, size).

    Arrays are as large as `CHUNK` allows if a resample needs `width` values; the draws do not depend on it.
    """
    chunk = max(CHUNK // max(width, 1), 1)
    for start in range(0, resamples, chunk):
        count = min(chunk, resamples - start)
        cells = generator.integers(size, size=(count, size))
        cells += size * np.arange(count)[:, None]
        yield np.bincount(cells.ravel(), minlength=cells.size).reshape(cells.shape)


def percentile_interval(value: float, samples: Floats) -> Estimate:
    """Return a metric with its interval: the 2.5th to 97.5th percentile of the defined `samples` (R,)."""
    defined = samples[~np.isnan(samples)]
    if not defined.size:
        return Estimate(float(value))
    return Estimate(float(value), *np.percentile(defined, [2.5, 97.5]).tolist())


class SampledMetrics(NamedTuple):
    """A metric of M models on the same test data, such as one per seed, and its variation with the data.

    The squares of deviations, of a model or of a mean or difference of models, add up to its variance.
    """

    values: Floats  # (M,)
    deviations: Floats  # (M, U); U = 0: unknown
    freedom: float = math.inf  # degrees of freedom of this variance

    @classmethod
    def of_resamples(
        cls, values: ArrayLike, resampled: Floats, freedom: float = math.inf
    ) -> Self:
        """Return metrics (M,) with their values on resampled data, (M, R)."""
        count = resampled.shape[1]
        deviations = np.empty((len(resampled), 0))
        if count > 1:
            deviations = resampled - resampled.mean(axis=1, keepdims=True)
            deviations /= math.sqrt(count)
        return cls(np.asarray(values, np.float64), deviations, freedom)

    def of(self, models: Sequence[int]) -> Self:
        """Return the metrics of some models."""
        return self._replace(
            values=self.values[models], deviations=self.deviations[models]
        )

    def minus(self, other: Self) -> Self:
        """Return the differences to as many models, on the same data."""
        return self._replace(
            values=self.values - other.values,
            deviations=self.deviations - other.deviations,
        )


def sampled_aurocs(
    labels: ArrayLike, scores: ArrayLike, blocks: ArrayLike
) -> SampledMetrics:
    """Return AUROCs of M models with scores (M, N), with the deviations of blocks (`spread_of`).

    Labels (N,) are 0 and 1, of both classes; ids of `blocks` (N,) count from 0. Deviations are unknown if a
    class is in a single block.
    """
    ids = ids_by_class(labels, blocks)
    areas, spreads = [], []
    for row in np.asarray(scores):
        ranking = rank_rows(labels, row)
        assert ranking is not None
        areas.append(ranking.area)
        spreads.append(spread_of(ranking.positives, ranking.negatives, ids))

    deviations = np.stack([spread.deviations for spread in spreads])
    return SampledMetrics(np.array(areas), deviations, spreads[0].freedom)


def resampled_medians(values: ArrayLike, resamples: int = RESAMPLES) -> Floats:
    """Return medians (M, R) of M models' metrics (M, T) over resampled tracks, the same for all models.

    Fewer than `FEWEST_TRACKS` tracks are not resampled: R is 0.
    """
    table = np.asarray(values, np.float64)
    models, tracks = table.shape
    if tracks < FEWEST_TRACKS:
        return np.empty((models, 0))
    generator = np.random.default_rng((0, 2))
    samples = generator.integers(tracks, size=(resamples, tracks))
    return np.stack([np.median(row[samples], axis=1) for row in table])


def mean_over_seeds(
    metrics: SampledMetrics, bounds: tuple[float, float] = (-1.0, 1.0)
) -> Estimate:
    """Return the mean of a metric, or of differences, over models that differ by seed, with a 95 % interval.

    The interval is over test data and seeds (over test data alone for one seed), clipped to `bounds`. It is
    NaN if the variation with the data is unknown, and has zero width without variation (see `with_width`).
    """
    value, half = float(metrics.values.mean()), _half_width(metrics)
    if half is None:
        return Estimate(value)
    return Estimate(value, max(value - half, bounds[0]), min(value + half, bounds[1]))


def mean_auroc(metrics: SampledMetrics, class_blocks: Sequence[int]) -> Estimate:
    """Return the mean of AUROCs as `mean_over_seeds`, with an interval on the logit scale.

    Without variation, which is not certainty, separated classes have the interval of `auroc` of pairs that
    share no block: `class_blocks` has the numbers of blocks with positives and with negatives.
    """
    value, half = float(metrics.values.mean()), _half_width(metrics)
    if value in (0.0, 1.0):
        labels = np.repeat([1, 0], class_blocks)
        return auroc(labels, labels if value else -labels)
    return logit_interval(value, half) if half else Estimate(value)


def with_width(value: Estimate) -> Estimate:
    """Return the estimate without its interval if the interval has zero width."""
    return Estimate(value.value) if value.low == value.high else value


def _half_width(metrics: SampledMetrics) -> float | None:
    """Return half the width of the interval of the mean of metrics of models that differ by seed.

    None if the variation with the data is unknown, and 0 without variance. See the module's docstring.
    """
    seeds = len(metrics.values)
    mean = metrics.deviations.mean(axis=0)
    if not mean.size:
        return None

    of_data = float(mean @ mean) if np.ptp(mean) > ROUNDING else 0.0
    of_seeds = excess = 0.0
    if seeds > 1:
        of_seeds = float(metrics.values.var(ddof=1)) / seeds
        apart = metrics.deviations - mean
        interaction = float((apart * apart).sum()) / (seeds - 1) / seeds
        excess = max(of_seeds - interaction, 0.0)

    variance = of_data + excess
    if variance <= ROUNDING**2:
        return 0.0

    wide = t_quantile(metrics.freedom) ** 2 * of_data
    if not of_seeds:
        return math.sqrt(wide)

    wide += t_quantile(seeds - 1) ** 2 * excess
    uncertainty = of_data**2 / metrics.freedom + of_seeds**2 / (seeds - 1)
    narrow = t_quantile(variance**2 / uncertainty) ** 2 * variance
    return (math.sqrt(max(wide, narrow)) + math.sqrt(narrow)) / 2


class Rate(NamedTuple):
    """Bits per base of a predictor, and the model's bits per base minus these, with 95 % intervals."""

    bits_per_base: Estimate
    difference: Estimate


def bits_per_base(
    bits: Mapping[str, ArrayLike], bases: ArrayLike, blocks: ArrayLike, model: str
) -> dict[str, Rate]:
    """Return bits per base of each predictor from `bits` (N,) of masked tokens, which cover `bases` (N,).

    `blocks` (N,) are the ids of the tokens' blocks of sequence. Differences are relative to `model`, one of
    the predictors, whose own difference is undefined. With one block there are no intervals (NaN).
    """
    rates = sampled_rates([*bits.values()], bases, blocks)
    of_model = rates.of([[*bits].index(model)])
    table = {}
    for number, name in enumerate(bits):
        rate = rates.of([number])
        difference = UNDEFINED
        if name != model:
            difference = mean_over_seeds(of_model.minus(rate), (-math.inf, math.inf))

        table[name] = Rate(mean_over_seeds(rate, (0.0, math.inf)), difference)

    return table


def sampled_rates(
    bits: Sequence[ArrayLike], bases: ArrayLike, blocks: ArrayLike
) -> SampledMetrics:
    """Return bits per base of M predictors, with the deviations of blocks; see `bits_per_base`.

    `bits` has M rows of masked tokens. Deviations are unknown with a single block.
    """
    ids = np.unique(np.asarray(blocks), return_inverse=True)[1]
    covered = np.bincount(ids, np.asarray(bases, np.float64))
    by_block = np.stack([np.bincount(ids, np.asarray(row, float)) for row in bits])
    total = covered.sum()
    rates = by_block.sum(axis=1) / total
    deviations = (by_block - rates[:, None] * covered) / total
    if len(covered) < FEWEST_UNITS:
        return SampledMetrics(rates, deviations[:, :0])

    freedom = max(float(total**2 / (covered @ covered)), FEWEST_UNITS) - 1
    return SampledMetrics(
        rates, deviations * math.sqrt((freedom + 1) / freedom), freedom
    )
