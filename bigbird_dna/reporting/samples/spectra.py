"""How often each run of k bases stands in sequences, and how far two such spectra are apart.

Codes are A 0, C 1, G 2, T 3, N 4; runs with an N are not counted. Strands are as they stand.
"""

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.genome.sequence import UNKNOWN

GC_WINDOW = 200
"""bp that GC is looked at in."""
_SLICE = 1 << 22  # bases counted at a time

Codes = NDArray[np.uint8]
Counts = NDArray[np.int64]
Floats = NDArray[np.float64]


def spectrum(sequences: Iterable[Codes], k: int) -> Counts:
    """Counts (4 ** k,) of the runs of k bases of sequences, a run as a number in base 4."""
    counts = np.zeros(4**k, np.int64)
    for codes in sequences:
        for start in range(0, len(codes) - k + 1, _SLICE):
            counts += np.bincount(_runs(codes[start : start + _SLICE + k - 1], k), minlength=4**k)
    return counts


def divergence(one: Counts, other: Counts) -> float:
    """The Jensen-Shannon divergence of two spectra, in bits: 0 for the same shares, 1 for none in common.

    NaN where one of them has no run, and so no shares.
    """
    if not one.any() or not other.any():
        return math.nan
    p, q = one / one.sum(), other / other.sum()
    middle = (p + q) / 2
    return max(0.0, float(_relative(p, middle) + _relative(q, middle)) / 2)


def gc_of_windows(sequences: Sequence[Codes]) -> Floats:
    """G and C's share in each stretch of `GC_WINDOW` bp without N; of a shorter sequence in all of it."""
    shares: list[Floats] = [np.zeros(0)]
    for codes in sequences:
        width = min(GC_WINDOW, len(codes))
        whole = codes[: len(codes) // width * width].reshape(-1, width)
        known = whole[(whole != UNKNOWN).all(1)]
        shares.append(((known == 1) | (known == 2)).mean(1))
    return np.concatenate(shares)


def gc(sequences: Sequence[Codes]) -> float:
    """The share of G and C among all known bases."""
    counts = spectrum(sequences, 1)
    return float((counts[1] + counts[2]) / max(counts.sum(), 1))


def _runs(codes: Codes, k: int) -> NDArray[np.int64]:
    count = len(codes) - k + 1
    runs = np.zeros(count, np.int64)
    known = np.ones(count, bool)
    for place in range(k):
        part = codes[place : place + count]
        runs = 4 * runs + part
        known &= part != UNKNOWN
    return runs[known]


def _relative(p: Floats, q: Floats) -> float:
    there = p > 0
    return float((p[there] * np.log2(p[there] / q[there])).sum())
