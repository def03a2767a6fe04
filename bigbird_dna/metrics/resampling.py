"""Every bootstrap: over blocks of the genome, over rows, and over models.

The difference of two sets of trained models on the same test rows, with an interval over rows and seeds.

What such a difference is worth depends on two draws: which test examples there are, and which seeds the
models were trained from. The variance of the first is a bootstrap's: groups of rows (a promoter and its
negatives) or tracks are drawn with replacement, the same for all models, and the AUROC of each resample is
exact, ties included. Of the second it is that of the seeds' differences. Seeds are too few to be resampled:
of three, every ninth resample has a single one, and their spread comes out a fifth too small. The interval is
Student's t on the sum of both, with Satterthwaite's (1946) degrees of freedom: about two where three seeds
decide, many where the rows do. What a seed and the test rows do together counts in both.

On simulated models of 100 or 400 pairs of rows and two to five seeds, whose lifts deviate by 0 to 0.2 of the
scores' deviation, it covers the truth in 92 to 99 % of 200 studies each; percentiles of rows and seeds that
are both resampled do in 88 to 100 %, the fewer the more the seeds differ.

Where resamples and seeds are all alike there is no variance. That is no certainty of AUROCs and medians: they
and their gains have no interval then (`with_width`). Of a handful of tracks there is none either.

An AUROC's own interval is that long on the logit scale, to first order, as DeLong's is (`metrics.auroc`), and
the exact one of groups that share no row where the classes are separated.

Neighboring tokens are easy or hard together, so that bits per base are resampled by whole blocks of some 10
kb of sequence: a rate is the sum of bits over the sum of bases of what was drawn, the interval goes from its
2.5 to its 97.5 percentile. All predictors have the same draws, so that the difference of two, which varies
much less than either, has an interval of its own.
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
FEWEST_BLOCKS = 2  # of fewer nothing can be drawn
FEWEST_TRACKS = 5  # of fewer the resampled medians are none to go by
_ROUNDING = 1e-12  # of metrics of resamples that are alike
# Weights of this many rows × resamples are held at a time (float64: 32 MB).
CHUNK = 4_000_000

# Axes: N rows, M models, S seeds, R resamples, T tracks.


def draws(generator: np.random.Generator, size: int, resamples: int, width: int) -> Iterator[Counts]:
    """Numbers below `size`, `size` of them for each resample, (some resamples, size) at a time.

    As many as keep `CHUNK` values of which a resample takes `width`: what is drawn doesn't depend on it.
    """
    chunk = max(CHUNK // max(width, 1), 1)
    for start in range(0, resamples, chunk):
        yield generator.integers(size, size=(min(chunk, resamples - start), size))


def draw_counts(generator: np.random.Generator, size: int, resamples: int, width: int) -> Iterator[Counts]:
    """How often each of `size` groups is drawn, (some resamples, size) at a time, as `draws` has it."""
    for drawn in draws(generator, size, resamples, width):
        places = (drawn + size * np.arange(len(drawn))[:, None]).ravel()
        yield np.bincount(places, minlength=drawn.size).reshape(drawn.shape)


def percentile_interval(value: float, samples: Floats) -> Estimate:
    """A metric with its interval: the 2.5 and 97.5 percentiles of the defined ones of `samples` (R,)."""
    defined = samples[~np.isnan(samples)]
    if not defined.size:
        return Estimate(float(value))
    return Estimate(float(value), *np.percentile(defined, [2.5, 97.5]).tolist())


def resampled_aurocs(
    labels: ArrayLike, scores: ArrayLike, groups: ArrayLike, seed: int = 0, resamples: int = RESAMPLES
) -> Floats:
    """AUROC of M models with scores (M, N) on resampled groups of rows, (M, R), the same for all models.

    Rows of one id in `groups` (N,) are drawn together; labels (N,) are 0 and 1.
    """
    table = np.asarray(scores)
    steps = [Steps.of_rows(labels, row) for row in table]
    if None in steps:  # a class is missing, of every model
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
    """Medians of M models' metrics (M, T) over resampled tracks, (M, R), the same tracks for all models.

    Fewer than `FEWEST_TRACKS` aren't resampled: R is 0.
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
    """Mean of `first` minus `second` (S,), metrics of models of the same seeds, with its 95 % interval.

    It is over test examples and seeds, over test examples alone of one seed, and ends at the `bounds`. The
    same on resampled test examples is (S, R): the interval is NaN where none of these is defined, and has no
    width where neither they nor the seeds differ (see `with_width`).
    """
    differences = np.asarray(first, np.float64) - np.asarray(second, np.float64)
    return mean_over_seeds(differences, first_resampled - second_resampled, bounds)


def mean_over_seeds(values: ArrayLike, resampled: Floats, bounds: tuple[float, float]) -> Estimate:
    """Mean over seeds of metrics (S,), with its interval as `gain` has it.

    On resampled test examples (S, R).
    """
    value, half = _half(np.asarray(values, np.float64), resampled.mean(axis=0))
    if half is None:
        return Estimate(value)
    return Estimate(value, max(value - half, bounds[0]), min(value + half, bounds[1]))


def mean_auroc(values: ArrayLike, resampled: Floats, apart: Sequence[int]) -> Estimate:
    """Mean over seeds of AUROCs (S,), with its 95 % interval over test rows and seeds on the logit scale.

    `resampled` are the same on resampled groups, (S, R); `apart` is as of `uncertain`.
    """
    value, half = _half(np.asarray(values, np.float64), resampled.mean(axis=0))
    if not half or value in (0.0, 1.0):
        return uncertain(Estimate(value), apart)
    return logit_interval(value, half)


def uncertain(value: Estimate, apart: Sequence[int]) -> Estimate:
    """An AUROC whose resamples are all alike, which is no certainty, with the interval that `auroc` gives.

    That of separated classes goes by pairs which share no row, here no group: `apart` are the groups with
    positives, and with negatives.
    """
    if value.value in (0.0, 1.0):
        labels = np.repeat([1, 0], apart)
        return auroc(labels, labels if value.value else -labels)
    return with_width(value)


def with_width(value: Estimate) -> Estimate:
    """An estimate without an interval of no width."""
    return Estimate(value.value) if value.low == value.high else value


def _half(values: Floats, resampled: Floats) -> tuple[float, float | None]:
    """The mean of seeds' metrics (S,), and half of its interval's width, by means of resamples (R,).

    None where there are no two resamples, 0 where there is no variance.
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
    if of_seeds:  # Student's, where the variance over few seeds counts
        from scipy.special import stdtrit

        quantile = float(stdtrit((seeds - 1) * ((of_rows + of_seeds) / of_seeds) ** 2, 1 - TAIL))
    return value, quantile * math.sqrt(of_rows + of_seeds)


class Rate(NamedTuple):
    """Bits per base of a predictor, and those of the model minus them, with 95 % intervals."""

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
    """Bits per base of each predictor from its `bits` (N,) of hidden tokens, which cover `bases` (N,).

    `blocks` (N,) are ids of the blocks of sequence that they are in. Differences are those of `model`, one of
    the predictors, whose own is not defined. With one block there are no intervals (NaN); with fewer than
    some twenty they err on the narrow side. `ValueError`: there is no such model or no token, rows differ in
    length, or bits aren't finite.
    """
    if model not in bits:
        raise ValueError(f"no predictor {model!r} among {', '.join(bits)}")
    values = {name: np.asarray(row, dtype=np.float64) for name, row in bits.items()}
    covered, ids = np.asarray(bases, dtype=np.float64), np.asarray(blocks)
    for name, row in (*values.items(), ("bases", covered)):
        if row.ndim != 1 or row.shape != ids.shape:
            raise ValueError(f"{name} {row.shape} and blocks {ids.shape} must be two rows of one length")
        if not np.isfinite(row).all():
            raise ValueError(f"{name} has a value that is not finite")
    if not covered.sum() > 0:
        raise ValueError("bits per base need at least one hidden token")
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
    """Bits per base (M,) of M predictors, and on resampled blocks (R, M), the same draws for all.

    Of one block nothing is drawn: R is 0. `bits` are M rows of the hidden tokens; see `bits_per_base`.
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
    """Metrics with 95 % intervals; NaN, and the reason in `note`, where they are not defined."""

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
    """Evaluate `probabilities` (N,) by `labels` (N,) of 0 and 1.

    AUROC's interval is DeLong's; others are percentiles of a bootstrap in which rows of one id in `groups`
    (N,), a promoter and the negative derived from it, are drawn together. AUPRC is average precision. F1 and
    MCC call a row positive from 0.5 on; both are 0 where nothing is called positive. `ValueError`: shapes
    differ, a label is neither 0 nor 1, or a probability is NaN.
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
        raise ValueError(f"groups {names.shape} must be one a row ({n})")
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
    """Average precision, F1 and MCC, (3, R), of rows under `weights` (R, N).

    `called` positive (N,). NaN where the weights leave no positive; F1 and MCC also where they leave no
    negative.
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
