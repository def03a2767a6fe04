"""Samples, real sequence and Markov chains of the same size, each compared with the same held-out genome."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from bigbird_dna.errors import DataError
from bigbird_dna.reporting.samples.chains import ORDERS, chain_samples, shortened_counts
from bigbird_dna.reporting.samples.spectra import (
    Codes,
    Counts,
    Floats,
    divergence,
    gc,
    gc_of_windows,
    spectrum,
)

SAMPLES, REAL, CHAIN = "samples", "held-out sequence", "Markov chain of order"
DRAWS = 20
"""Times that sequence is drawn from the held-out contigs."""
_INTERVAL = (2.5, 97.5)  # percentiles over draws


class Divergence(NamedTuple):
    """Of a spectrum from the held-out one, bits: the mean over draws, and where 95 % of them lie."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, draws: Sequence[float]) -> Divergence:
        """Of draws, NaN where there was nothing to compare: these don't count. NaN if there is no other."""
        values = [one for one in draws if not math.isnan(one)]
        if not values:
            return cls(math.nan, math.nan, math.nan)
        return cls(float(np.mean(values)), *np.percentile(values, _INTERVAL))


class Content(NamedTuple):
    """How much sequence there is, and its GC."""

    bases: int
    gc: float
    windows: Floats  # GC of stretches

    @classmethod
    def of(cls, sequences: Sequence[Codes]) -> Content:
        """Of some sequences."""
        return cls(sum(map(len, sequences)), gc(sequences), gc_of_windows(sequences))


class Compared(NamedTuple):
    """What was found, by what is compared."""

    divergences: Mapping[str, Mapping[int, Divergence]]  # by k
    contents: Mapping[str, Content]


def compare_samples(
    samples: Sequence[Codes], held_out: Sequence[Codes], counts: Counts, longest: int, seed: int
) -> Compared:
    """Compare samples with held-out contigs.

    In each of `DRAWS` draws, stretches of the samples' lengths are taken out of the contigs, at even
    distances on average; what is left of them is what samples, chains and those stretches themselves are
    compared with. A draw in which these, or what is left, have no known run of k bases says nothing of k; NaN
    is a divergence of which no draw says anything.

    Parameters
    ----------
    counts
        Of runs of 6 bases in sequence that chains learn from.
    longest
        k from 1 to this.

    Raises
    ------
    DataError
        The samples are more than half of the contigs.
    """
    rng = np.random.default_rng(seed)
    lengths = [len(one) for one in samples]
    whole = sum(map(len, held_out))
    if 2 * sum(lengths) > whole:
        raise DataError(
            f"the samples have {sum(lengths):,} bp, the contigs {whole:,}: samples may be half of that at "
            "most, as they are compared with as much real sequence"
        )
    sizes = range(1, longest + 1)
    given: dict[str, Sequence[Codes]] = {SAMPLES: samples}
    of_order = shortened_counts(counts, ORDERS[-1] + 1)
    for order in ORDERS:
        given[f"{CHAIN} {order}"] = chain_samples(of_order[order], order, sum(lengths), rng)
    spectra = {(name, k): spectrum(own, k) for name, own in given.items() for k in sizes}
    total = {k: spectrum(held_out, k) for k in sizes}
    found: dict[str, dict[int, list[float]]] = {
        name: {k: [] for k in sizes} for name in (SAMPLES, REAL, *given)
    }
    for _ in range(DRAWS):
        drawn = _stretches(held_out, lengths, rng)
        for k in sizes:
            own = spectrum(drawn, k)
            rest = total[k] - own
            found[REAL][k].append(divergence(own, rest))
            for name in given:
                found[name][k].append(divergence(spectra[name, k], rest))
    divergences = {name: {k: Divergence.of(values) for k, values in by.items()} for name, by in found.items()}
    contents = {SAMPLES: Content.of(samples), REAL: Content.of(held_out)}
    contents |= {name: Content.of(own) for name, own in given.items() if name != SAMPLES}
    return Compared(divergences, contents)


def _stretches(contigs: Sequence[Codes], lengths: Sequence[int], rng: np.random.Generator) -> list[Codes]:
    """Stretches of these lengths, no two of which share a base; one may be cut by a contig's end."""
    ends = np.cumsum([len(codes) for codes in contigs])
    order = rng.permutation(len(lengths))
    free = int(ends[-1]) - sum(lengths)
    gaps = np.sort(rng.integers(0, free + 1, len(lengths)))
    found, taken = [], 0
    for gap, number in zip(gaps.tolist(), order.tolist(), strict=True):
        start, stop = gap + taken, gap + taken + lengths[number]
        taken += lengths[number]
        for codes, end in zip(contigs, ends.tolist(), strict=True):
            first = end - len(codes)
            if start < end and stop > first:
                found.append(codes[max(start - first, 0) : stop - first])
    return found
