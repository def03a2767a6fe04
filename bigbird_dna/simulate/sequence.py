"""Parameters of a demo genome, and its motifs: consensus, instances, weights and exact matches.

Bases are coded A 0, C 1, G 2, T 3, N 4. A consensus is written in IUPAC letters; upper case marks strong
positions, lower case weak ones. The motifs resemble known families but are inventions of this simulation.

The background sequence has isochores, CpG depletion, CpG islands and interspersed repeats. It is a Markov
chain of order two: the probability of base c after a, b is proportional to pi(c) · dinucleotide(b, c) ·
run(a, b, c). pi is chosen such that the chain's stationary GC content is the requested one. Repeats are
families of consensus sequences and their diverged copies on either strand.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

MEGABASES_RANGE = (0.1, 1000.0)  # supported sizes


@dataclass(frozen=True)
class Parameters:
    """Sizes, densities and difficulty of the simulation; lengths in bp, densities in bp per locus.

    With the defaults, a 5-mer logistic regression distinguishes promoters (400 bp) from GC-matched windows
    with an AUROC of about 0.73, while the true grammar reaches nearly 1.
    """

    # Contigs demo1…demo6 as fractions of the genome. The last two are intended as held-out contigs: demo5 (11
    # %) for validation and demo6 (14 %) for testing.
    contig_fractions: tuple[float, ...] = (0.26, 0.20, 0.16, 0.13, 0.11, 0.14)

    # Composition
    gc_levels: tuple[float, float] = (0.36, 0.54)
    gc_steps: int = 10
    isochore_length: tuple[int, int] = (15_000, 90_000)
    cpg_odds: float = 0.2
    """odds of G after C; the observed/expected ratio is 1 to 1.4 times this value"""
    island_gc: float = 0.60
    island_cpg_odds: float = 0.85
    island_length: tuple[int, int] = (400, 900)
    orphan_island_every: int = 7_000
    gap_every: int = 400_000
    gap_length: tuple[int, int] = (100, 2_000)

    # Repeats
    repeat_families: int = 8
    repeat_length: tuple[int, int] = (300, 1_500)
    repeat_divergence: tuple[float, float] = (0.05, 0.25)
    repeat_indels: float = 0.1
    """indels per substitution"""
    repeat_fraction: float = 0.22
    """fraction of the genome, before later copies, islands and motifs overwrite earlier ones"""

    # Promoters and decoys
    promoter_every: int = 900
    decoys_per_promoter: float = 4.0
    tata_fraction: float = 0.5
    """fraction of promoters and decoys; the others are of the DPE class"""
    core_fidelity: float = 0.95
    """probability that a position of a core promoter element matches its consensus"""
    spacing_jitter: float = 1.0
    """scales the jitter of the elements' positions around their position in the grammar"""
    decoy_mix: tuple[float, float, float] = (0.35, 0.35, 0.30)
    """fractions of decoys in the wrong order, at the wrong distance, on the wrong strand"""
    decoy_shift: tuple[int, int] = (10, 30)
    """change of each spacing in a decoy of the wrong distance"""
    promoter_factor_fraction: float = 0.3
    """fraction of promoters with a factor's site upstream of the core"""
    island_fraction: float = 0.35
    """fraction of DPE-class promoters inside a CpG island"""

    # Factors' sites and distal elements
    site_every: int = 7_000
    """isolated sites of one factor"""
    site_intact: float = 0.5
    """fraction of isolated sites without a mismatch at a strong position"""
    weak_fidelity: float = 0.7
    enhancer_every: int = 4_000
    enhancer_sites: int = 5
    activator_every: int = 8_000
    silencer_every: int = 14_000
    distal_copies: int = 10
    """sites per activator or silencer"""
    distal_range: tuple[int, int] = (1_500, 3_500)
    """distance at which activators and silencers act, on either side"""

    # Variants
    variants_per_megabase: int = 80
    indel_fraction: float = 0.25
    isolation: int = 400
    """minimum distance of a variant's site from other sites of its factor"""


def contig_lengths(megabases: float, parameters: Parameters) -> dict[str, int]:
    """Return contig names and lengths; they sum to `megabases`, and no length is a round number."""
    total = round(megabases * 1e6)
    return {
        f"demo{number}": round(fraction * total) + 137 * (number % 2 * 2 - 1)
        for number, fraction in enumerate(parameters.contig_fractions, start=1)
    }


Codes = NDArray[np.uint8]
Flags = NDArray[np.bool_]
Positions = NDArray[np.int64]

N_CODE = 4
LETTERS: Codes = np.frombuffer(b"ACGTN", dtype=np.uint8)
COMPLEMENT: Codes = np.array([3, 2, 1, 0, 4], dtype=np.uint8)

_IUPAC = {
    "A": "A", "C": "C", "G": "G", "T": "T", "R": "AG", "Y": "CT", "S": "CG", "W": "AT", "K": "GT", "M": "AC",
}  # fmt: skip


@dataclass(frozen=True)
class Motif:
    """A sequence element."""

    name: str
    consensus: str
    description: str

    @property
    def width(self) -> int:
        """Length in bp."""
        return len(self.consensus)

    @cached_property
    def allowed(self) -> Flags:
        """(width, 5): bases that the consensus accepts; never N."""
        flags = np.zeros((self.width, 5), dtype=bool)
        for row, letter in enumerate(self.consensus.upper()):
            flags[row, ["ACGT".index(base) for base in _IUPAC[letter]]] = True
        return flags

    @cached_property
    def strong(self) -> Positions:
        """Positions that a site must match."""
        return np.flatnonzero([letter.isupper() for letter in self.consensus])

    @cached_property
    def weak(self) -> Positions:
        """Positions that a site usually matches."""
        return np.flatnonzero([letter.islower() for letter in self.consensus])


CORE = (
    Motif("CAAT", "RCCAATCAGC", "upstream box"),
    Motif("GCBOX", "GTGGGCGGAR", "proximal box"),
    Motif("TATA", "CTATAAAAGR", "core element of the TATA class"),
    Motif("INR", "YTCAGTTCY", "initiator; its fourth base is the TSS"),
    Motif("DPE", "AGACGTGCCK", "downstream element of the DPE class"),
)
FACTORS = (
    Motif("ALFA", "aCTTGATAAGyc", "binds every site; opens enhancers of type 1"),
    Motif("BRAVO", "gTGACTCATCaw", "binds every site; opens enhancers of type 2"),
    Motif("CHARLIE", "tCACGTGGATyr", "binds every site"),
    Motif("DELTA", "rCAGGAAGTGat", "binds sites in open chromatin only"),
    Motif("ECHO", "cTGTGGTTACaa", "clusters of its sites are activators"),
    Motif("FOXTROT", "aGCCATCTTGyg", "clusters of its sites are silencers"),
)
MOTIFS = CORE + FACTORS
INDEX = {motif.name: index for index, motif in enumerate(MOTIFS)}


def sample_sites(
    motif: Motif, parameters: Parameters, rng: np.random.Generator, count: int
) -> Codes:
    """Draw (count, width) intact instances; each position matches the consensus with its fidelity."""
    chance = fidelity(motif, parameters)
    sites = np.empty((count, motif.width), dtype=np.uint8)
    for column in range(motif.width):
        match = np.flatnonzero(motif.allowed[column])
        other = np.flatnonzero(~motif.allowed[column, :4])
        conforms = rng.random(count) < chance[column]
        sites[:, column] = np.where(
            conforms, rng.choice(match, size=count), rng.choice(other, size=count)
        )
    return sites


def fidelity(motif: Motif, parameters: Parameters) -> NDArray[np.float64]:
    """Return the fidelity of each position of an intact instance; 1 for strong positions of factors."""
    if motif in CORE:
        return np.full(motif.width, parameters.core_fidelity)
    values = np.full(motif.width, parameters.weak_fidelity)
    values[motif.strong] = 1.0
    return values


def break_sites(motif: Motif, sites: Codes, rng: np.random.Generator) -> Codes:
    """Put a base that does not match the consensus at one strong position of each site."""
    broken = sites.copy()
    columns = rng.choice(motif.strong, size=len(sites))
    for column in motif.strong:
        rows = np.flatnonzero(columns == column)
        refused = np.flatnonzero(~motif.allowed[column, :4])
        broken[rows, column] = rng.choice(refused, size=len(rows))
    return broken


def weights(motif: Motif, parameters: Parameters) -> NDArray[np.float64]:
    """Return the (width, 4) probability of each base in an intact instance."""
    allowed = motif.allowed[:, :4]
    match = allowed / allowed.sum(axis=1, keepdims=True)
    other = ~allowed / (~allowed).sum(axis=1, keepdims=True)
    conforms = fidelity(motif, parameters)[:, None]
    return np.asarray(conforms * match + (1 - conforms) * other)


def find_sites(motif: Motif, codes: Codes, reverse: bool = False) -> Positions:
    """Return the starts of all sites, where all strong positions match on the requested strand."""
    allowed, strong, weak = motif.allowed, motif.strong, motif.weak
    if reverse:
        allowed = allowed[::-1, COMPLEMENT]
        strong, weak = motif.width - 1 - strong[::-1], motif.width - 1 - weak
    starts: Positions = np.arange(max(0, len(codes) - motif.width + 1))
    for column in strong:
        starts = starts[allowed[column][codes[starts + column]]]
    # N at a weak position is not allowed.
    for column in weak:
        starts = starts[codes[starts + column] != N_CODE]
    return starts


BLOCK = 500  # bp; isochores change between blocks, and blocks are drawn in parallel

# Rows: previous base A C G T; columns: next base. CpG is set by the parameters.
_DINUCLEOTIDE = np.array(
    [
        [1.15, 0.85, 1.10, 0.90],
        [1.20, 1.10, 1.00, 1.10],
        [1.05, 0.95, 1.10, 0.85],
        [0.75, 1.05, 1.20, 1.15],
    ]
)
_RUN = 1.15  # odds of extending a run of two equal bases


def chain(gc: float, cpg_odds: float) -> NDArray[np.float64]:
    """Return (16, 4) transition probabilities from the last two bases, with stationary GC content `gc`."""
    dinucleotide = _DINUCLEOTIDE.copy()
    dinucleotide[1, 2] = cpg_odds
    low, high = 0.0, 1.0
    for _ in range(30):
        middle = (low + high) / 2
        odds = np.tile(
            np.array([1 - middle, middle, middle, 1 - middle]) / 2 * dinucleotide,
            (4, 1),
        )
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
    """Draw (len(rows), length) sequences in parallel; row i uses `tables[rows[i]]` of (K, 16, 4)."""
    limits = np.cumsum(tables, axis=2)[:, :, :3].astype(np.float32).reshape(-1, 3)
    state = rng.integers(16, size=len(rows))
    base = rows * 16
    out = np.empty((length, len(rows)), dtype=np.uint8)
    # The first steps are discarded to remove the effect of the initial state.
    for step in range(-4, length):
        draw = rng.random(len(rows), dtype=np.float32)
        code = (draw[:, None] >= limits[base + state]).sum(axis=1)
        state = (state * 4 + code) & 15
        if step >= 0:
            out[step] = code
    return np.ascontiguousarray(out.T)


def isochores(
    length: int, parameters: Parameters, rng: np.random.Generator
) -> Positions:
    """Return the GC level (0…gc_steps−1) of each block of a contig; adjacent runs have different levels."""
    blocks = -(-length // BLOCK)
    low, high = (bound // BLOCK for bound in parameters.isochore_length)
    levels = np.empty(blocks, dtype=np.int64)
    start, level = 0, -1
    while start < blocks:
        end = start + int(rng.integers(low, high + 1))
        level = (
            level + int(rng.integers(1, parameters.gc_steps))
        ) % parameters.gc_steps
        levels[start:end] = level
        start = end
    return levels


def background(length: int, parameters: Parameters, rng: np.random.Generator) -> Codes:
    """Return a contig's background sequence."""
    tables = np.stack(
        [
            chain(float(gc), parameters.cpg_odds)
            for gc in np.linspace(*parameters.gc_levels, parameters.gc_steps)
        ]
    )
    levels = isochores(length, parameters, rng)
    return sample_chains(tables, levels, BLOCK, rng).reshape(-1)[:length].copy()


def lay_islands(
    codes: Codes,
    spans: Sequence[tuple[int, int]],
    parameters: Parameters,
    rng: np.random.Generator,
) -> None:
    """Overwrite each span of `codes` with the sequence of a CpG island."""
    if not spans:
        return
    table = chain(parameters.island_gc, parameters.island_cpg_odds)[None]
    longest = max(end - start for start, end in spans)
    rows = np.zeros(len(spans), dtype=np.int64)
    for (start, end), island in zip(
        spans, sample_chains(table, rows, longest, rng), strict=True
    ):
        codes[start:end] = island[: end - start]


def families(parameters: Parameters, rng: np.random.Generator) -> list[Codes]:
    """Return the consensus sequences, which are the same for all contigs of a genome."""
    low, high = parameters.repeat_length
    lengths = rng.integers(low, high + 1, size=parameters.repeat_families)
    contents = rng.uniform(0.38, 0.54, size=parameters.repeat_families)
    return [
        sample_chains(
            chain(float(gc), parameters.cpg_odds)[None],
            np.zeros(1, dtype=np.int64),
            length,
            rng,
        )[0]
        for gc, length in zip(contents, lengths.tolist(), strict=True)
    ]


def diverge(
    consensus: Codes, divergence: float, indels: float, rng: np.random.Generator
) -> Codes:
    """Return a copy with substitutions at rate `divergence` and 1-bp indels at `indels` times that rate."""
    copy = consensus.copy()
    changed = np.flatnonzero(rng.random(len(copy)) < divergence)
    copy[changed] = (copy[changed] + rng.integers(1, 4, size=len(changed))) % 4
    events = rng.random(len(copy))
    repeats = np.ones(len(copy), dtype=np.int64)
    repeats[events < divergence * indels / 2] = 0
    repeats[events > 1 - divergence * indels / 2] = 2
    return np.repeat(copy, repeats)


def lay_repeats(
    codes: Codes,
    consensus: list[Codes],
    parameters: Parameters,
    rng: np.random.Generator,
) -> list[tuple[int, int, int, bool]]:
    """Write copies into `codes` one after another; return their (start, end, family, reverse) in order.

    Copies are truncated at their 5' end, as in retroelements; the remaining fraction is uniform in 20–100 %.
    """
    copies: list[tuple[int, int, int, bool]] = []
    wanted = parameters.repeat_fraction * len(codes)
    while wanted > 0:
        family = int(rng.integers(len(consensus)))
        kept = int(len(consensus[family]) * rng.uniform(0.2, 1.0))
        divergence = float(rng.uniform(*parameters.repeat_divergence))
        copy = diverge(
            consensus[family][-kept:], divergence, parameters.repeat_indels, rng
        )
        reverse = bool(rng.integers(2))
        if reverse:
            copy = COMPLEMENT[copy[::-1]]
        copy = copy[: len(codes)]
        start = int(rng.integers(len(codes) - len(copy) + 1))
        codes[start : start + len(copy)] = copy
        copies.append((start, start + len(copy), family, reverse))
        wanted -= len(copy)
    return copies
