"""Interspersed repeats: families of consensus sequences and their diverged copies on either strand."""

import numpy as np

from bigbird_dna.simulate.composition import chain, sample_chains
from bigbird_dna.simulate.motifs import COMPLEMENT, Codes
from bigbird_dna.simulate.parameters import Parameters


def families(parameters: Parameters, rng: np.random.Generator) -> list[Codes]:
    """Consensus sequences, the same for all contigs of a genome."""
    low, high = parameters.repeat_length
    lengths = rng.integers(low, high + 1, size=parameters.repeat_families)
    contents = rng.uniform(0.38, 0.54, size=parameters.repeat_families)
    return [
        sample_chains(chain(float(gc), parameters.cpg_odds)[None], np.zeros(1, dtype=np.int64), length, rng)[
            0
        ]
        for gc, length in zip(contents, lengths.tolist(), strict=True)
    ]


def diverge(consensus: Codes, divergence: float, indels: float, rng: np.random.Generator) -> Codes:
    """A copy with substitutions at rate `divergence` and single-base indels at `indels` times that rate."""
    copy = consensus.copy()
    changed = np.flatnonzero(rng.random(len(copy)) < divergence)
    copy[changed] = (copy[changed] + rng.integers(1, 4, size=len(changed))) % 4
    events = rng.random(len(copy))
    repeats = np.ones(len(copy), dtype=np.int64)
    repeats[events < divergence * indels / 2] = 0
    repeats[events > 1 - divergence * indels / 2] = 2
    return np.repeat(copy, repeats)


def lay_repeats(
    codes: Codes, consensus: list[Codes], parameters: Parameters, rng: np.random.Generator
) -> list[tuple[int, int, int, bool]]:
    """Lay copies over `codes`, later ones over earlier ones; (start, end, family, reverse) in that order.

    Copies lose their beginning as those of retroelements do: what is left is uniform in 20–100 %.
    """
    copies: list[tuple[int, int, int, bool]] = []
    wanted = parameters.repeat_fraction * len(codes)
    while wanted > 0:
        family = int(rng.integers(len(consensus)))
        kept = int(len(consensus[family]) * rng.uniform(0.2, 1.0))
        divergence = float(rng.uniform(*parameters.repeat_divergence))
        copy = diverge(consensus[family][-kept:], divergence, parameters.repeat_indels, rng)
        reverse = bool(rng.integers(2))
        if reverse:
            copy = COMPLEMENT[copy[::-1]]
        copy = copy[: len(codes)]
        start = int(rng.integers(len(codes) - len(copy) + 1))
        codes[start : start + len(copy)] = copy
        copies.append((start, start + len(copy), family, reverse))
        wanted -= len(copy)
    return copies
