"""Bits per base of predictors of the same hidden tokens, with intervals over blocks of sequence.

Neighbouring tokens are easy or hard together, so that they are no independent draws. The bootstrap draws
whole blocks of some 10 kb of sequence, with replacement: a rate is the sum of bits over the sum of bases of
what was drawn, the interval goes from its 2.5 to its 97.5 percentile. All predictors are judged on the same
draws, so that the difference of two, which varies much less than either, has an interval of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from bigbird_dna.reporting.metrics.auroc import UNDEFINED, Estimate
from bigbird_dna.reporting.metrics.steps import Floats

BLOCK_BASES = 10_000
RESAMPLES = 2000
FEWEST_BLOCKS = 2  # of fewer nothing can be drawn
_CHUNK = 1 << 22  # draws of blocks that are held at a time: 32 MB


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
    """Bits per base of each predictor, in the order of `bits`.

    Parameters
    ----------
    bits : by predictor, bits (M,) of the hidden tokens.
    bases : bases (M,) that each of them covers.
    blocks : ids (M,) of the blocks of sequence that they are in, any whole numbers.
    model : which of the predictors the others are compared with. Its own difference is not defined.
    seed : of the bootstrap.
    resamples : how often blocks are drawn.

    Notes
    -----
    With one block there are no intervals (NaN); with fewer than some twenty they err on the narrow side.

    Raises
    ------
    ValueError : there is no such model or no token, rows differ in length, or bits aren't finite.
    """
    if model not in bits:
        raise ValueError(f"no predictor {model!r} among {', '.join(bits)}")
    values = {name: np.asarray(row, dtype=np.float64) for name, row in bits.items()}
    covered, ids = np.asarray(bases, dtype=np.float64), np.asarray(blocks)
    for name, row in (*values.items(), ("bases", covered)):
        if row.ndim != 1 or row.shape != ids.shape:
            raise ValueError(f"{name} {row.shape} and blocks {ids.shape} must be two rows of one length")
        if not np.isfinite(row).all():
            raise ValueError(f"{name} has a figure that is not finite")
    if not covered.sum() > 0:
        raise ValueError("bits per base need at least one hidden token")
    rates, drawn = resampled_rates(list(values.values()), covered, ids, seed=seed, resamples=resamples)
    place = [*values].index(model)
    return {
        name: Rate(
            _estimate(rates[index], drawn[:, index]),
            UNDEFINED
            if name == model
            else _estimate(rates[place] - rates[index], drawn[:, place] - drawn[:, index]),
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
    whole = sums.sum(0)
    return whole[:-1] / whole[-1], _drawn(sums, seed, resamples)


def _drawn(sums: Floats, seed: int, resamples: int) -> Floats:
    """Bits per base of resampled blocks, (resamples, predictors); none of fewer than two blocks."""
    count = len(sums)
    rates = [np.zeros((0, sums.shape[1] - 1))]
    generator = np.random.default_rng(seed)
    chunk = max(_CHUNK // count, 1)
    for start in range(0, resamples if count >= FEWEST_BLOCKS else 0, chunk):
        size = min(chunk, resamples - start)
        drawn = generator.integers(count, size=(size, count))
        # How often each block was drawn, for all resamples at once.
        places = (drawn + count * np.arange(size)[:, None]).ravel()
        weights = np.bincount(places, minlength=size * count).reshape(size, count)
        totals = weights @ sums
        rates.append(totals[:, :-1] / totals[:, -1:])
    return np.concatenate(rates)


def _estimate(value: float, samples: Floats) -> Estimate:
    if not len(samples):
        return Estimate(float(value))
    low, high = np.percentile(samples, [2.5, 97.5]).tolist()
    return Estimate(float(value), low, high)
