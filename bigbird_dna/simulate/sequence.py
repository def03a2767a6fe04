"""The sequence under everything planted: isochores, CpG depletion, CpG islands, interspersed repeats.

A chain of order two: the chance of base c after a, b is proportional to pi(c) · dinucleotide(b, c) · run(a,
b, c), with pi chosen so that the chain's stationary GC is the one asked for. Repeats are families of
consensus sequences and their diverged copies on either strand.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.simulate.motifs import COMPLEMENT, Codes, Parameters, Positions

BLOCK = 500  # bp; isochores change between blocks, and blocks are drawn side by side

# Rows: previous base A C G T; columns: next base. CpG is set by the parameters.
_DINUCLEOTIDE = np.array(
    [[1.15, 0.85, 1.10, 0.90], [1.20, 1.10, 1.00, 1.10], [1.05, 0.95, 1.10, 0.85], [0.75, 1.05, 1.20, 1.15]]
)
_RUN = 1.15  # odds of lengthening a run of two equal bases


def chain(gc: float, cpg_odds: float) -> NDArray[np.float64]:
    """(16, 4) transition probabilities from the last two bases, with stationary GC `gc`."""
    dinucleotide = _DINUCLEOTIDE.copy()
    dinucleotide[1, 2] = cpg_odds
    low, high = 0.0, 1.0
    for _ in range(30):
        middle = (low + high) / 2
        odds = np.tile(np.array([1 - middle, middle, middle, 1 - middle]) / 2 * dinucleotide, (4, 1))
        for code in range(4):
            odds[5 * code, code] *= _RUN
        table = np.asarray(odds / odds.sum(axis=1, keepdims=True))
        states = np.full(16, 1 / 16)
        for _ in range(60):
            states = (states[:, None] * table).reshape(4, 16).sum(axis=0)
        if states.reshape(4, 4).sum(axis=0)[1:3].sum() < gc:
            low = middle
        else:
            high = middle
    return table


def sample_chains(
    tables: NDArray[np.float64], rows: Positions, length: int, rng: np.random.Generator
) -> Codes:
    """(len(rows), length) sequences side by side, each from its own of the (K, 16, 4) `tables`."""
    limits = np.cumsum(tables, axis=2)[:, :, :3].astype(np.float32).reshape(-1, 3)
    state = rng.integers(16, size=len(rows))
    base = rows * 16
    out = np.empty((length, len(rows)), dtype=np.uint8)
    # A few steps are thrown away so that the start doesn't show.
    for step in range(-4, length):
        draw = rng.random(len(rows), dtype=np.float32)
        code = (draw[:, None] >= limits[base + state]).sum(axis=1)
        state = (state * 4 + code) & 15
        if step >= 0:
            out[step] = code
    return np.ascontiguousarray(out.T)


def isochores(length: int, parameters: Parameters, rng: np.random.Generator) -> Positions:
    """GC level (0…gc_steps−1) of every block of a contig; runs of one level, neighbors differ."""
    blocks = -(-length // BLOCK)
    low, high = (bound // BLOCK for bound in parameters.isochore_length)
    levels = np.empty(blocks, dtype=np.int64)
    start, level = 0, -1
    while start < blocks:
        end = start + int(rng.integers(low, high + 1))
        level = (level + int(rng.integers(1, parameters.gc_steps))) % parameters.gc_steps
        levels[start:end] = level
        start = end
    return levels


def background(length: int, parameters: Parameters, rng: np.random.Generator) -> Codes:
    """A contig's sequence before anything is laid on it."""
    tables = np.stack(
        [
            chain(float(gc), parameters.cpg_odds)
            for gc in np.linspace(*parameters.gc_levels, parameters.gc_steps)
        ]
    )
    levels = isochores(length, parameters, rng)
    return sample_chains(tables, levels, BLOCK, rng).reshape(-1)[:length].copy()


def lay_islands(
    codes: Codes, spans: Sequence[tuple[int, int]], parameters: Parameters, rng: np.random.Generator
) -> None:
    """Overwrite every span of `codes` with the sequence of a CpG island."""
    if not spans:
        return
    table = chain(parameters.island_gc, parameters.island_cpg_odds)[None]
    longest = max(end - start for start, end in spans)
    rows = np.zeros(len(spans), dtype=np.int64)
    for (start, end), island in zip(spans, sample_chains(table, rows, longest, rng), strict=True):
        codes[start:end] = island[: end - start]


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
