"""Intervals over blocks of the genome, over tracks, and over seeds of models.

The difference between two sets of trained models on the same test rows depends on two random draws: the test
examples, and the seeds of the models. The variance of the first is that over blocks of the genome
(`metrics.auroc`), or for medians over tracks a bootstrap: tracks are drawn with replacement, the same for all
models. The variance of the second is that of the seeds' differences. There are too few seeds to resample
them: with three seeds, one resample in nine has a single distinct seed, and their spread is underestimated by
a fifth. Each variance has its own Student's t interval, and the squares of their halves are added (Howe
1974). One t interval with Satterthwaite's degrees of freedom would be too narrow: with three seeds and
similar variances, it covers the truth in 92 % of studies instead of 95 %. The interaction of seeds and test
data is counted in both.

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
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from bigbird_dna.metrics.auroc import (
    FEWEST_UNITS,
    UNDEFINED,
    Counts,
    Estimate,
    Floats,
    Placements,
    Steps,
    auroc,
    auroc_note,
    auroc_of,
    average_precision,
    by_class,
    ids_by_class,
    logit_interval,
    t_quantile,
)

RESAMPLES = 2000
BLOCK_BASES = 10_000
FEWEST_TRACKS = 5  # with fewer tracks, resampled medians are not informative
_ROUNDING = 1e-12  # tolerance for metrics of resamples to count as equal
# Most weights (rows × resamples) in memory at a time (float64: 32 MB).
CHUNK = 4_000_000

# Axes: N rows, M models, S seeds, R resamples, T tracks.


def sequence_blocks(contigs: ArrayLike, starts: ArrayLike) -> Counts:
    """Return ids (N,), from 0 without gaps, of the blocks of `BLOCK_BASES` bp in which intervals start.

    Intervals are on `contigs` (N,), from `starts` (N,) in bp.
    """
    names = np.unique(np.asarray(contigs).astype(str), return_inverse=True)[1]
    numbers = np.asarray(starts).astype(np.int64) // BLOCK_BASES
    places = names * (numbers.max(initial=0) + 1) + numbers
    return np.asarray(np.unique(places, return_inverse=True)[1], np.int64)


def joined(blocks: Counts, groups: Counts) -> Counts:
    """Return ids (N,), from 0 without gaps, of the smallest blocks that divide neither a block nor a group.

    Rows with the same number in `blocks` (N,), or in `groups` (N,), have the same id.
    """
    first, second = (np.unique(one, return_inverse=True)[1] for one in (blocks, groups))
    nodes = 2 * len(blocks)  # more than both together
    edges = coo_matrix(
        (np.ones(len(blocks)), (first, len(blocks) + second)), shape=(nodes, nodes)
    )
    labels = connected_components(edges, directed=False)[1][first]
    return np.asarray(np.unique(labels, return_inverse=True)[1], np.int64)


def draws(
    generator: np.random.Generator, size: int, resamples: int, width: int
) -> Iterator[Counts]:
    """Yield random integers below `size`, `size` of them per resample, as arrays (some resamples, size).

    Arrays are as large as `CHUNK` allows if a resample needs `width` values; the draws do not depend on it.
    """
    chunk = max(CHUNK // max(width, 1), 1)
    for start in range(0, resamples, chunk):
        yield generator.integers(size, size=(min(chunk, resamples - start), size))


def draw_counts(
    generator: np.random.Generator, size: int, resamples: int, width: int
) -> Iterator[Counts]:
    """Yield how often each of `size` blocks is drawn, as arrays (some resamples, size); see `draws`."""
    for drawn in draws(generator, size, resamples, width):
        places = (drawn + size * np.arange(len(drawn))[:, None]).ravel()
        yield np.bincount(places, minlength=drawn.size).reshape(drawn.shape)


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
        known = resampled if resampled.shape[1] > 1 else resampled[:, :0]
        centered = known - known.mean(axis=1, keepdims=True) if known.size else known
        return cls(
            np.asarray(values, np.float64),
            centered / math.sqrt(max(known.shape[1], 1)),
            freedom,
        )

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
    """Return AUROCs of M models with scores (M, N), with the deviations of blocks (`Placements.spread`).

    Labels (N,) are 0 and 1, of both classes; ids of `blocks` (N,) count from 0. Deviations are unknown if a
    class is in a single block.
    """
    ids = ids_by_class(labels, blocks)
    found = [
        Placements.with_steps(*by_class(labels, row)) for row in np.asarray(scores)
    ]
    spreads = [placed.spread(ids) for placed, _ in found]
    values = [
        auroc_of(steps, spread).value
        for (_, steps), spread in zip(found, spreads, strict=True)
    ]
    return SampledMetrics(
        np.array(values),
        np.stack([one.deviations for one in spreads]),
        spreads[0].freedom,
    )


def resampled_medians(
    values: ArrayLike, seed: int = 0, resamples: int = RESAMPLES
) -> Floats:
    """Return medians (M, R) of M models' metrics (M, T) over resampled tracks, the same for all models.

    Fewer than `FEWEST_TRACKS` tracks are not resampled: R is 0.
    """
    table = np.asarray(values, np.float64)
    tracks = table.shape[1]
    found = [np.empty((len(table), 0))]
    if tracks >= FEWEST_TRACKS:
        for drawn in draws(np.random.default_rng((seed, 2)), tracks, resamples, tracks):
            found.append(np.stack([np.median(row[drawn], axis=1) for row in table]))
    return np.concatenate(found, axis=1)


def mean_over_seeds(
    found: SampledMetrics, bounds: tuple[float, float] = (-1.0, 1.0)
) -> Estimate:
    """Return the mean of a metric, or of differences, over models that differ by seed, with a 95 % interval.

    The interval is over test data and seeds (over test data alone for one seed), clipped to `bounds`. It is
    NaN if the variation with the data is unknown, and has zero width without variation (see `with_width`).
    """
    value, half = _half(found)
    if half is None:
        return Estimate(value)
    return Estimate(value, max(value - half, bounds[0]), min(value + half, bounds[1]))


def mean_auroc(found: SampledMetrics, apart: Sequence[int]) -> Estimate:
    """Return the mean of AUROCs as `mean_over_seeds`, with an interval on the logit scale.

    `apart` is as in `uncertain`.
    """
    value, half = _half(found)
    if not half or value in (0.0, 1.0):
        return uncertain(Estimate(value), apart)
    return logit_interval(value, half)


def uncertain(value: Estimate, apart: Sequence[int]) -> Estimate:
    """Return an AUROC whose resamples are all equal (which is not certainty), with the interval of `auroc`.

    For separated classes, that interval is based on pairs that share no block. `apart` has the numbers of
    blocks with positives and with negatives.
    """
    if value.value in (0.0, 1.0):
        labels = np.repeat([1, 0], apart)
        return auroc(labels, labels if value.value else -labels)
    return with_width(value)


def with_width(value: Estimate) -> Estimate:
    """Return the estimate without its interval if the interval has zero width."""
    return Estimate(value.value) if value.low == value.high else value


def _half(found: SampledMetrics) -> tuple[float, float | None]:
    """Return the mean of metrics of models that differ by seed, and half the width of its interval.

    The half width is None if the variation with the data is unknown, and 0 without variance.
    """
    value, seeds = float(found.values.mean()), len(found.values)
    mean = found.deviations.mean(axis=0)
    if not mean.size:
        return value, None
    of_data = float(mean @ mean) if np.ptp(mean) > _ROUNDING else 0.0
    of_seeds = float(found.values.var(ddof=1)) / seeds if seeds > 1 else 0.0
    if max(of_data, of_seeds) <= _ROUNDING**2:
        return value, 0.0
    halves = t_quantile(found.freedom) ** 2 * of_data
    if of_seeds:
        halves += t_quantile(seeds - 1) ** 2 * of_seeds
    return value, math.sqrt(halves)


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
    `ValueError`: unknown model, no token, different lengths, or non-finite bits.
    """
    if model not in bits:
        raise ValueError(f"no predictor {model!r} (found: {', '.join(bits)})")
    values = {name: np.asarray(row, dtype=np.float64) for name, row in bits.items()}
    covered, ids = np.asarray(bases, dtype=np.float64), np.asarray(blocks)
    for name, row in (*values.items(), ("bases", covered)):
        if row.ndim != 1 or row.shape != ids.shape:
            raise ValueError(
                f"{name} {row.shape} and blocks {ids.shape} must be 1-D of the same length"
            )
        if not np.isfinite(row).all():
            raise ValueError(f"{name} has a value that is not finite")
    if not covered.sum() > 0:
        raise ValueError("bits per base need at least one masked token")
    rates, own = (
        sampled_rates(list(values.values()), covered, ids),
        [*values].index(model),
    )
    return {
        name: Rate(
            mean_over_seeds(rates.of([place]), (0.0, math.inf)),
            UNDEFINED
            if name == model
            else mean_over_seeds(
                rates.of([own]).minus(rates.of([place])), (-math.inf, math.inf)
            ),
        )
        for place, name in enumerate(values)
    }


def sampled_rates(
    bits: Sequence[ArrayLike], bases: ArrayLike, blocks: ArrayLike
) -> SampledMetrics:
    """Return bits per base of M predictors, with the deviations of blocks; see `bits_per_base`.

    `bits` has M rows of masked tokens. Deviations are unknown with a single block.
    """
    which = np.unique(np.asarray(blocks), return_inverse=True)[1]
    by_block = np.stack(
        [np.bincount(which, np.asarray(row, np.float64)) for row in (*bits, bases)]
    )
    total = by_block[-1].sum()
    covered, rates = by_block[-1] / total, by_block[:-1].sum(axis=1) / total
    deviations = by_block[:-1] / total - rates[:, None] * covered
    if len(covered) < FEWEST_UNITS:
        return SampledMetrics(rates, deviations[:, :0])
    freedom = max(1 / float(covered @ covered), FEWEST_UNITS) - 1
    return SampledMetrics(
        rates, deviations * math.sqrt((freedom + 1) / freedom), freedom
    )


THRESHOLD = 0.5


class BinaryMetrics(NamedTuple):
    """Metrics with 95 % intervals; NaN if undefined, with the reason in `note`."""

    n: int
    positives: int
    auroc: float
    auroc_low: float
    auroc_high: float
    auprc: float
    auprc_low: float
    auprc_high: float
    f1: float
    f1_low: float
    f1_high: float
    mcc: float
    mcc_low: float
    mcc_high: float
    note: str


def binary_metrics(
    labels: ArrayLike,
    probabilities: ArrayLike,
    seed: int = 0,
    *,
    blocks: ArrayLike | None = None,
    resamples: int = 1000,
) -> BinaryMetrics:
    """Evaluate `probabilities` (N,) with `labels` (N,) of 0 and 1.

    The interval of AUROC is that of `auroc`; the others are percentiles of a bootstrap. Rows with the same id
    in `blocks` (N,) may vary together and are drawn together; None: rows are independent. AUPRC is average
    precision. F1 and MCC call rows from 0.5 on positive; both are 0 without such rows. `ValueError`: shapes
    differ, a label is not 0 or 1, or a probability is NaN.
    """
    y, p = np.asarray(labels), np.asarray(probabilities, dtype=np.float64)
    if not np.isin(y, (0, 1)).all():
        raise ValueError("labels must be 0 or 1")
    steps = Steps.of_rows(y, p)
    n, positives = len(y), int(y.sum())
    if steps is None:
        note = auroc_note(positives, n - positives, UNDEFINED)
        return BinaryMetrics(
            n, positives, *UNDEFINED, *UNDEFINED, *UNDEFINED, *UNDEFINED, note
        )
    names = np.arange(n) if blocks is None else np.asarray(blocks)
    if names.shape != (n,):
        raise ValueError(
            f"blocks must have one id per row, shape ({n},), found {names.shape}"
        )
    ids = np.unique(names, return_inverse=True)[1]
    rows, called = WeightedRows.of(y, p, steps), p >= THRESHOLD
    whole = weighted_metrics(rows, called, np.ones((1, n)))[:, 0]
    drawn = [np.zeros((3, 0))]
    for counts in draw_counts(
        np.random.default_rng(seed), int(ids.max()) + 1, resamples, n
    ):
        drawn.append(weighted_metrics(rows, called, counts[:, ids].astype(np.float64)))
    precision, f1, mcc = map(
        percentile_interval, whole.tolist(), np.concatenate(drawn, axis=1)
    )
    spread = (
        None
        if blocks is None
        else Placements.of(*by_class(y, p)).spread(ids_by_class(y, ids))
    )
    area = auroc_of(steps, spread)
    note = auroc_note(positives, n - positives, area)
    return BinaryMetrics(n, positives, *area, *precision, *f1, *mcc, note)


class WeightedRows(NamedTuple):
    """Rows of two classes, prepared for counting under many weights at once."""

    steps: Steps
    positives: NDArray[np.intp]  # (m,) row indices by decreasing score
    negatives: NDArray[np.intp]  # (n,) row indices by decreasing score

    @classmethod
    def of(cls, labels: ArrayLike, scores: ArrayLike, steps: Steps) -> WeightedRows:
        """Prepare rows (N,) with their steps."""
        y, order = (
            np.asarray(labels).astype(bool),
            np.argsort(-np.asarray(scores, np.float64), kind="stable"),
        )
        return cls(steps, order[y[order]], order[~y[order]])

    def counts(self, weights: Floats) -> tuple[Floats, Floats, Floats]:
        """Return `true`, `above` and `false` of the steps, (R, D), for rows under `weights` (R, N)."""
        true = np.cumsum(weights[:, self.positives], axis=1)[:, self.steps.true - 1]
        passed = np.pad(np.cumsum(weights[:, self.negatives], axis=1), ((0, 0), (1, 0)))
        return true, passed[:, self.steps.above], passed[:, self.steps.false]


def weighted_metrics(
    rows: WeightedRows, called: NDArray[np.bool_], weights: Floats
) -> Floats:
    """Return average precision, F1 and MCC, (3, R), of rows under `weights` (R, N).

    `called` (N,) marks rows called positive. NaN where the weights leave no positive; F1 and MCC also where
    they leave no negative.
    """
    true, _, false = rows.counts(weights)
    y = np.isin(np.arange(len(called)), rows.positives)
    cells = np.stack([y & called, ~y & called, y & ~called, ~y & ~called], axis=1)
    tp, fp, fn, tn = (weights @ cells.astype(np.float64)).T
    f1 = _ratio(2 * tp, 2 * tp + fp + fn)
    mcc = _ratio(
        tp * tn - fp * fn, np.sqrt((tp + fp) * (fn + tn) * (tp + fn) * (fp + tn))
    )
    both = (tp + fn > 0) & (fp + tn > 0)
    return np.stack(
        [
            average_precision(true, false),
            *(np.where(both, v, np.nan) for v in (f1, mcc)),
        ]
    )


def _ratio(above: Floats, below: Floats) -> Floats:
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)
