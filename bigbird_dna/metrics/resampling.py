"""Bootstrap methods: over blocks of the genome, over rows, and over models.

The difference between two sets of trained models on the same test rows has an interval over rows and seeds.

Such a difference depends on two random draws: the test examples, and the seeds of the models. The variance of
the first is estimated by a bootstrap: groups of rows (a promoter and its negatives) or tracks are drawn with
replacement, the same for all models, and the AUROC of each resample is exact, including ties. The variance of
the second is that of the seeds' differences. There are too few seeds to resample them: with three seeds, one
resample in nine has a single distinct seed, and their spread is underestimated by a fifth. The interval is
Student's t on the sum of both variances, with Satterthwaite's (1946) degrees of freedom: about two if three
seeds dominate, many if the rows dominate. The interaction of seeds and test rows is counted in both.

In simulations, the interval covers the truth in 92 to 99 % of 200 studies each (100 or 400 pairs of rows, two
to five seeds; standard deviation of seed effects 0 to 0.2 times that of the scores). Percentiles of resampled
rows and seeds cover it in 88 to 100 %, less often the more the seeds differ.

If resamples and seeds are all equal, the estimated variance is 0. AUROCs and medians are not certain then, so
they and their gains have no interval (`with_width`). Medians of fewer than `FEWEST_TRACKS` tracks have none.

The interval of an AUROC is on the logit scale, with this width to first order, as in DeLong's method
(`metrics.auroc`). For separated classes, it is the exact interval for groups that share no row.

Neighboring tokens are similarly hard to predict, so bits per base are resampled in blocks of about 10 kb of
sequence. A rate is the sum of bits over the sum of bases of the drawn blocks; the interval is from the 2.5th
to the 97.5th percentile. All predictors use the same draws, so the difference of two predictors, which varies
much less than each rate, has its own paired interval.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bigbird_dna.metrics.auroc import (
    TAIL,
    UNDEFINED,
    Z95,
    Counts,
    Estimate,
    Floats,
    Steps,
    WeightedRows,
    auroc,
    auroc_note,
    auroc_of,
    average_precision,
    logit_interval,
)

RESAMPLES = 2000
BLOCK_BASES = 10_000
FEWEST_BLOCKS = 2  # needed for resampling
FEWEST_TRACKS = 5  # with fewer tracks, resampled medians are not informative
_ROUNDING = 1e-12  # tolerance for metrics of resamples to count as equal
# Most weights (rows × resamples) in memory at a time (float64: 32 MB).
CHUNK = 4_000_000

# Axes: N rows, M models, S seeds, R resamples, T tracks.


def draws(generator: np.random.Generator, size: int, resamples: int, width: int) -> Iterator[Counts]:
    """Yield random integers below `size`, `size` of them per resample, as arrays (some resamples, size).

    Arrays are as large as `CHUNK` allows if a resample needs `width` values; the draws do not depend on it.
    """
    chunk = max(CHUNK // max(width, 1), 1)
    for start in range(0, resamples, chunk):
        yield generator.integers(size, size=(min(chunk, resamples - start), size))


def draw_counts(generator: np.random.Generator, size: int, resamples: int, width: int) -> Iterator[Counts]:
    """Yield how often each of `size` groups is drawn, as arrays (some resamples, size); see `draws`."""
    for drawn in draws(generator, size, resamples, width):
        places = (drawn + size * np.arange(len(drawn))[:, None]).ravel()
        yield np.bincount(places, minlength=drawn.size).reshape(drawn.shape)


def percentile_interval(value: float, samples: Floats) -> Estimate:
    """Return a metric with its interval: the 2.5th to 97.5th percentile of the defined `samples` (R,)."""
    defined = samples[~np.isnan(samples)]
    if not defined.size:
        return Estimate(float(value))
    return Estimate(float(value), *np.percentile(defined, [2.5, 97.5]).tolist())


def resampled_aurocs(
    labels: ArrayLike, scores: ArrayLike, groups: ArrayLike, seed: int = 0, resamples: int = RESAMPLES
) -> Floats:
    """Return AUROCs (M, R) of M models with scores (M, N) on resampled groups, the same for all models.

    Rows with the same id in `groups` (N,) are drawn together; labels (N,) are 0 and 1.
    """
    table = np.asarray(scores)
    steps = [Steps.of_rows(labels, row) for row in table]
    if None in steps:  # a class is missing, for every model
        return np.full((len(table), resamples), np.nan)
    ranked = [WeightedRows.of(labels, row, one) for row, one in zip(table, steps, strict=True) if one]
    names, codes = np.unique(np.asarray(groups), return_inverse=True)
    generator = np.random.default_rng((seed, 1))
    found = [np.empty((len(ranked), 0))]
    for counts in draw_counts(generator, len(names), resamples, len(codes)):
        weights = counts[:, codes].astype(np.float64)
        found.append(np.stack([rows.aurocs(weights) for rows in ranked]))
    return np.concatenate(found, axis=1)


def resampled_medians(values: ArrayLike, seed: int = 0, resamples: int = RESAMPLES) -> Floats:
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


def gain(
    first: ArrayLike,
    second: ArrayLike,
    first_resampled: Floats,
    second_resampled: Floats,
    bounds: tuple[float, float] = (-1.0, 1.0),
) -> Estimate:
    """Return the mean of `first` minus `second` (S,), metrics of models of the same seeds, with interval.

    The 95 % interval is over test examples and seeds (over test examples alone for one seed), clipped to
    `bounds`. Resampled metrics are (S, R). The interval is NaN if no resample is defined, and has zero width
    if neither resamples nor seeds differ (see `with_width`).
    """
    differences = np.asarray(first, np.float64) - np.asarray(second, np.float64)
    return mean_over_seeds(differences, first_resampled - second_resampled, bounds)


def mean_over_seeds(values: ArrayLike, resampled: Floats, bounds: tuple[float, float]) -> Estimate:
    """Return the mean over seeds of metrics (S,), with an interval as in `gain`.

    `resampled` has the metrics on resampled test examples (S, R).
    """
    value, half = _half(np.asarray(values, np.float64), resampled.mean(axis=0))
    if half is None:
        return Estimate(value)
    return Estimate(value, max(value - half, bounds[0]), min(value + half, bounds[1]))


def mean_auroc(values: ArrayLike, resampled: Floats, apart: Sequence[int]) -> Estimate:
    """Return the mean over seeds of AUROCs (S,), with a 95 % interval over rows and seeds on the logit scale.

    `resampled` has the AUROCs on resampled groups, (S, R); `apart` is as in `uncertain`.
    """
    value, half = _half(np.asarray(values, np.float64), resampled.mean(axis=0))
    if not half or value in (0.0, 1.0):
        return uncertain(Estimate(value), apart)
    return logit_interval(value, half)


def uncertain(value: Estimate, apart: Sequence[int]) -> Estimate:
    """Return an AUROC whose resamples are all equal (which is not certainty), with the interval of `auroc`.

    For separated classes, that interval is based on pairs that share no row; here, no group. `apart` has the
    numbers of groups with positives and with negatives.
    """
    if value.value in (0.0, 1.0):
        labels = np.repeat([1, 0], apart)
        return auroc(labels, labels if value.value else -labels)
    return with_width(value)


def with_width(value: Estimate) -> Estimate:
    """Return the estimate without its interval if the interval has zero width."""
    return Estimate(value.value) if value.low == value.high else value


def _half(values: Floats, resampled: Floats) -> tuple[float, float | None]:
    """Return the mean of seeds' metrics (S,), and half the width of its interval, from resamples (R,).

    The half width is None with fewer than two resamples, and 0 without variance.
    """
    value, seeds = float(values.mean()), len(values)
    moved = resampled[~np.isnan(resampled)]
    if len(moved) < 2:
        return value, None
    of_rows = float(moved.var()) if np.ptp(moved) > _ROUNDING else 0.0
    of_seeds = float(values.var(ddof=1)) / seeds if seeds > 1 else 0.0
    if max(of_rows, of_seeds) <= _ROUNDING**2:
        return value, 0.0
    quantile = Z95
    if of_seeds:  # Student's t, because the variance is from few seeds
        from scipy.special import stdtrit

        quantile = float(stdtrit((seeds - 1) * ((of_rows + of_seeds) / of_seeds) ** 2, 1 - TAIL))
    return value, quantile * math.sqrt(of_rows + of_seeds)


class Rate(NamedTuple):
    """Bits per base of a predictor, and the model's bits per base minus these, with 95 % intervals."""

    bits_per_base: Estimate
    difference: Estimate


def bits_per_base(
    bits: Mapping[str, ArrayLike],
    bases: ArrayLike,
    blocks: ArrayLike,
    model: str,
    *,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> dict[str, Rate]:
    """Return bits per base of each predictor from `bits` (N,) of masked tokens, which cover `bases` (N,).

    `blocks` (N,) are the ids of the tokens' blocks of sequence. Differences are relative to `model`, one of
    the predictors, whose own difference is undefined. With one block there are no intervals (NaN); with fewer
    than about twenty, they are too narrow. `ValueError`: unknown model, no token, different lengths, or
    non-finite bits.
    """
    if model not in bits:
        raise ValueError(f"no predictor {model!r} (found: {', '.join(bits)})")
    values = {name: np.asarray(row, dtype=np.float64) for name, row in bits.items()}
    covered, ids = np.asarray(bases, dtype=np.float64), np.asarray(blocks)
    for name, row in (*values.items(), ("bases", covered)):
        if row.ndim != 1 or row.shape != ids.shape:
            raise ValueError(f"{name} {row.shape} and blocks {ids.shape} must be 1-D of the same length")
        if not np.isfinite(row).all():
            raise ValueError(f"{name} has a value that is not finite")
    if not covered.sum() > 0:
        raise ValueError("bits per base need at least one masked token")
    rates, drawn = resampled_rates(list(values.values()), covered, ids, seed=seed, resamples=resamples)
    place = [*values].index(model)
    return {
        name: Rate(
            percentile_interval(rates[index], drawn[:, index]),
            UNDEFINED
            if name == model
            else percentile_interval(rates[place] - rates[index], drawn[:, place] - drawn[:, index]),
        )
        for index, name in enumerate(values)
    }


def resampled_rates(
    bits: Sequence[ArrayLike],
    bases: ArrayLike,
    blocks: ArrayLike,
    *,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> tuple[Floats, Floats]:
    """Return bits per base (M,) of M predictors, and those on resampled blocks (R, M), with the same draws.

    A single block cannot be resampled: R is 0. `bits` has M rows of masked tokens; see `bits_per_base`.
    """
    found, which = np.unique(np.asarray(blocks), return_inverse=True)
    columns = [np.bincount(which, row, minlength=len(found)) for row in (*bits, bases)]
    sums = np.stack(columns, axis=1).astype(np.float64)  # (blocks, predictors + 1)
    whole, count = sums.sum(0), len(sums)
    rates = [np.zeros((0, len(whole) - 1))]
    resamples = resamples if count >= FEWEST_BLOCKS else 0
    for weights in draw_counts(np.random.default_rng(seed), count, resamples, count):
        totals = weights @ sums
        rates.append(totals[:, :-1] / totals[:, -1:])
    return whole[:-1] / whole[-1], np.concatenate(rates)


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
    groups: ArrayLike | None = None,
    resamples: int = 1000,
) -> BinaryMetrics:
    """Evaluate `probabilities` (N,) with `labels` (N,) of 0 and 1.

    The interval of AUROC is DeLong's; the others are percentiles of a bootstrap. Rows with the same id in
    `groups` (N,), such as a promoter and the negative derived from it, are drawn together. AUPRC is average
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
        return BinaryMetrics(n, positives, *UNDEFINED, *UNDEFINED, *UNDEFINED, *UNDEFINED, note)
    names = np.arange(n) if groups is None else np.asarray(groups)
    if names.shape != (n,):
        raise ValueError(f"groups must have one id per row, shape ({n},), found {names.shape}")
    ids = np.unique(names, return_inverse=True)[1]
    rows, called = WeightedRows.of(y, p, steps), p >= THRESHOLD
    whole = weighted_metrics(rows, called, np.ones((1, n)))[:, 0]
    drawn = [np.zeros((3, 0))]
    for counts in draw_counts(np.random.default_rng(seed), int(ids.max()) + 1, resamples, n):
        drawn.append(weighted_metrics(rows, called, counts[:, ids].astype(np.float64)))
    precision, f1, mcc = map(percentile_interval, whole.tolist(), np.concatenate(drawn, axis=1))
    area = auroc_of(steps)
    note = auroc_note(positives, n - positives, area)
    return BinaryMetrics(n, positives, *area, *precision, *f1, *mcc, note)


def weighted_metrics(rows: WeightedRows, called: NDArray[np.bool_], weights: Floats) -> Floats:
    """Return average precision, F1 and MCC, (3, R), of rows under `weights` (R, N).

    `called` (N,) marks rows called positive. NaN where the weights leave no positive; F1 and MCC also where
    they leave no negative.
    """
    true, _, false = rows.counts(weights)
    y = np.isin(np.arange(len(called)), rows.positives)
    cells = np.stack([y & called, ~y & called, y & ~called, ~y & ~called], axis=1)
    tp, fp, fn, tn = (weights @ cells.astype(np.float64)).T
    f1 = _ratio(2 * tp, 2 * tp + fp + fn)
    mcc = _ratio(tp * tn - fp * fn, np.sqrt((tp + fp) * (fn + tn) * (tp + fn) * (fp + tn)))
    both = (tp + fn > 0) & (fp + tn > 0)
    return np.stack([average_precision(true, false), *(np.where(both, v, np.nan) for v in (f1, mcc))])


def _ratio(above: Floats, below: Floats) -> Floats:
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)
