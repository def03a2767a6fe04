"""Simulate a demo genome with known truth: sequence, promoters, tracks and variants, determined by a seed.

Bases are coded A 0, C 1, G 2, T 3, N 4. A consensus is written in IUPAC letters; upper case marks strong
positions, lower case weak ones. The motifs resemble known families but are inventions of this simulation.

The background sequence has isochores, CpG depletion, CpG islands and interspersed repeats. It is a Markov
chain of order two: the probability of base c after a, b is proportional to pi(c) · dinucleotide(b, c) ·
run(a, b, c). pi is chosen such that the chain's stationary GC content is the requested one. Repeats are
families of consensus sequences and their diverged copies on either strand.

Loci are made of instances of motifs and placed along a contig without overlap. Tables of loci have the
columns `kind`, `width` and `anchor` (offset of the TSS in promoters, of the apparent TSS in decoys, and of
the center in other loci); tables of sites have `locus`, `motif`, `offset` and `reverse` in the locus's
orientation, and `broken`.

Promoters follow a positional grammar. Decoys have the same elements but violate the grammar. There are two
classes of promoters, each with an ordered set of core elements at fixed distances from the TSS. Most
elements may be missing:

====== ============= ========== ===========
element start vs TSS TATA class DPE class
====== ============= ========== ===========
CAAT    −92 ± 8      25 %       70 %
GCBOX   −64 ± 6      90 %       90 %
TATA    −31 ± 2      100 %      –
INR     −3           100 %      100 %
DPE     +27 ± 1      –          95 %
====== ============= ========== ===========

A decoy draws its elements like a promoter. They are then in another order (rotated among the same
positions), at other distances (each spacing changed by at least 10 bp), or on both strands (some reversed).

TF tracks depend only on the sequence: a factor binds where all strong positions of its motif match, on either
strand, at planted sites and at chance matches. DELTA also requires open chromatin. TBP binds the promoters of
the TATA class, so it follows the grammar.

DHS tracks: OPEN1 contains the CpG islands and the enhancers of type 1, OPEN2 the islands and the enhancers of
type 2. START and TBP require the grammar of promoters, the hardest feature to learn in this genome.

HM tracks are broad. ACTIVE and SILENT cover all bases at 1.5–3.5 kb (`DISTAL_RANGE`) on either
side of the center of an activator or a silencer. Their determinants are outside a window of 1,000 bp centered
on the bin, and always inside one of 8,000 bp.

Variants have a known effect on a factor's track; matched variants have no effect. Each variant belongs to one
site of one factor, and each site has at most one variant. The effect is on binding of this factor: `loss` and
`gain` if the site stops or begins to be bound, `none` if nothing changes. Each variant is verified by
searching for all factors' sites in the reference and the alternative sequence around it. Variants change no
planted base except those of their own site, so the other tracks do not change.

================ ===================================================== ======
category         change                                                effect
================ ===================================================== ======
disrupts_site    SNV at a strong position, indel inside a bound site   loss
creates_site     SNV that repairs a site broken at one strong position gain
tolerated        SNV at a weak position of a bound site                none
flanking         SNV or indel 15–90 bp away from a bound site          none
failed_repair    SNV at the broken position that does not repair it    none
closed_chromatin like `disrupts_site`, at a site without binding, in
                 closed chromatin (DELTA)                              none
================ ===================================================== ======
"""

import gzip
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pysam
from numpy.typing import NDArray

from bigbird_dna.console import log
from bigbird_dna.disk.atomic import bgzip_writer, quiet_htslib
from bigbird_dna.disk.directories import into_directory
from bigbird_dna.errors import UsageError
from bigbird_dna.genome.sequence import Intervals

MEGABASES_RANGE = (0.1, 1000.0)  # supported sizes


# Sizes, densities and difficulty of the simulation; lengths in bp, densities in bp per locus. With these values, a
# 5-mer logistic regression distinguishes promoters (400 bp) from GC-matched windows with an AUROC of about 0.73,
# while the true grammar reaches nearly 1.

# Contigs demo1…demo6 as fractions of the genome. The last two are intended as held-out contigs: demo5 (11
# %) for validation and demo6 (14 %) for testing.
CONTIG_FRACTIONS = (0.26, 0.20, 0.16, 0.13, 0.11, 0.14)

# Composition
GC_LEVELS = (0.36, 0.54)
GC_STEPS = 10
ISOCHORE_LENGTH = (15_000, 90_000)
CPG_ODDS = 0.2
"""odds of G after C; the observed/expected ratio is 1 to 1.4 times this value"""
ISLAND_GC = 0.60
ISLAND_CPG_ODDS = 0.85
ISLAND_LENGTH = (400, 900)
ORPHAN_ISLAND_EVERY = 7_000
GAP_EVERY = 400_000
GAP_LENGTH = (100, 2_000)

# Repeats
REPEAT_FAMILIES = 8
REPEAT_LENGTH = (300, 1_500)
REPEAT_DIVERGENCE = (0.05, 0.25)
REPEAT_INDELS = 0.1
"""indels per substitution"""
REPEAT_FRACTION = 0.22
"""fraction of the genome, before later copies, islands and motifs overwrite earlier ones"""

# Promoters and decoys
PROMOTER_EVERY = 900
DECOYS_PER_PROMOTER = 4.0
TATA_FRACTION = 0.5
"""fraction of promoters and decoys; the others are of the DPE class"""
CORE_FIDELITY = 0.95
"""probability that a position of a core promoter element matches its consensus"""
SPACING_JITTER = 1.0
"""scales the jitter of the elements' positions around their position in the grammar"""
DECOY_MIX = (0.35, 0.35, 0.30)
"""fractions of decoys in the wrong order, at the wrong distance, on the wrong strand"""
DECOY_SHIFT = (10, 30)
"""change of each spacing in a decoy of the wrong distance"""
PROMOTER_FACTOR_FRACTION = 0.3
"""fraction of promoters with a factor's site upstream of the core"""
ISLAND_FRACTION = 0.35
"""fraction of DPE-class promoters inside a CpG island"""

# Factors' sites and distal elements
SITE_EVERY = 7_000
"""isolated sites of one factor"""
SITE_INTACT = 0.5
"""fraction of isolated sites without a mismatch at a strong position"""
WEAK_FIDELITY = 0.7
ENHANCER_EVERY = 4_000
ENHANCER_SITES = 5
ACTIVATOR_EVERY = 8_000
SILENCER_EVERY = 14_000
DISTAL_COPIES = 10
"""sites per activator or silencer"""
DISTAL_RANGE = (1_500, 3_500)
"""distance at which activators and silencers act, on either side"""

# Variants
VARIANTS_PER_MEGABASE = 80
INDEL_FRACTION = 0.25
ISOLATION = 400
"""minimum distance of a variant's site from other sites of its factor"""


def contig_lengths(megabases: float) -> dict[str, int]:
    """Return contig names and lengths; they sum to `megabases`, and no length is a round number."""
    total = round(megabases * 1e6)
    return {
        f"demo{number}": round(fraction * total) + 137 * (number % 2 * 2 - 1)
        for number, fraction in enumerate(CONTIG_FRACTIONS, start=1)
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
    description: str = ""

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

    @property
    def fidelity(self) -> NDArray[np.float64]:
        """Fidelity of each position of an intact instance; 1 for strong positions of factors."""
        if self in CORE:
            return np.full(self.width, CORE_FIDELITY)
        values = np.full(self.width, WEAK_FIDELITY)
        values[self.strong] = 1.0
        return values


CORE = (
    Motif("CAAT", "RCCAATCAGC"),
    Motif("GCBOX", "GTGGGCGGAR"),
    Motif("TATA", "CTATAAAAGR"),
    Motif("INR", "YTCAGTTCY"),
    Motif("DPE", "AGACGTGCCK"),
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
WIDTHS: Positions = np.array([motif.width for motif in MOTIFS], dtype=np.int64)


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


def background(length: int, rng: np.random.Generator) -> Codes:
    """Return a contig's background sequence; adjacent isochores have different levels of GC."""
    steps, cpg_odds = GC_STEPS, CPG_ODDS
    contents = np.linspace(*GC_LEVELS, steps)
    tables = np.stack([chain(float(gc), cpg_odds) for gc in contents])
    low, high = (bound // BLOCK for bound in ISOCHORE_LENGTH)
    levels = np.empty(-(-length // BLOCK), dtype=np.int64)
    start, level = 0, -1
    while start < len(levels):
        end = start + int(rng.integers(low, high + 1))
        level = (level + int(rng.integers(1, steps))) % steps
        levels[start:end] = level
        start = end
    return sample_chains(tables, levels, BLOCK, rng).reshape(-1)[:length].copy()


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
    codes: Codes, families: list[Codes], rng: np.random.Generator
) -> list[tuple[int, int, int, bool]]:
    """Write copies into `codes` one after another; return their (start, end, family, reverse) in order.

    Copies are truncated at their 5' end, as in retroelements; the remaining fraction is uniform in 20–100 %.
    """
    copies: list[tuple[int, int, int, bool]] = []
    remaining = REPEAT_FRACTION * len(codes)
    while remaining > 0:
        family = int(rng.integers(len(families)))
        size = int(len(families[family]) * rng.uniform(0.2, 1.0))
        divergence = float(rng.uniform(*REPEAT_DIVERGENCE))
        copy = diverge(families[family][-size:], divergence, REPEAT_INDELS, rng)
        reverse = bool(rng.integers(2))
        if reverse:
            copy = COMPLEMENT[copy[::-1]]
        copy = copy[: len(codes)]
        start = int(rng.integers(len(codes) - len(copy) + 1))
        codes[start : start + len(copy)] = copy
        copies.append((start, start + len(copy), family, reverse))
        remaining -= len(copy)
    return copies


OFFSETS: Positions = np.array([-92, -64, -31, -3, 27], dtype=np.int64)
JITTER: Positions = np.rint(np.array([8, 6, 2, 0, 1]) * SPACING_JITTER).astype(np.int64)
"""Largest deviation of each core element from its position in the grammar."""
PRESENCE = {
    "promoter-tata": (0.25, 0.90, 1.0, 1.0, 0.0),
    "promoter-dpe": (0.70, 0.90, 0.0, 1.0, 0.95),
}
UPSTREAM_SITE = (-150, -116)
LONE_FACTORS = ("ALFA", "BRAVO", "CHARLIE", "DELTA")
SLOT = 60  # bp per site of an enhancer
DISTAL_SLOT = 45  # bp per site of an activator or silencer
# The factor that opens an enhancer has two sites in it; the other sites are drawn.
ENHANCERS = {
    "enhancer-1": ("ALFA", ("ALFA", "CHARLIE", "DELTA")),
    "enhancer-2": ("BRAVO", ("BRAVO", "CHARLIE", "DELTA")),
}
DISTAL = {"activator": "ECHO", "silencer": "FOXTROT"}

Plan = tuple[pd.DataFrame, pd.DataFrame]  # loci, sites


def draw_cores(count: int, rng: np.random.Generator) -> tuple[Flags, Flags, Positions]:
    """Draw the core elements of promoters: DPE class or not (N,), presence and offset from the TSS (N, 5)."""
    dpe = rng.random(count) >= TATA_FRACTION
    presence = np.array(list(PRESENCE.values()))[dpe.astype(np.int64)]
    present = rng.random(presence.shape) < presence
    offset = OFFSETS + rng.integers(-JITTER, JITTER + 1, size=present.shape)
    return dpe, present, offset


def promoters(count: int, rng: np.random.Generator) -> Plan:
    """Return promoters, some with a factor's site upstream of the core."""
    dpe, present, offset = draw_cores(count, rng)
    loci = np.flatnonzero(rng.random(count) < PROMOTER_FACTOR_FRACTION)
    factors = np.array([INDEX[name] for name in LONE_FACTORS])
    upstream = {
        "locus": loci,
        "motif": rng.choice(factors, size=len(loci)),
        "offset": rng.integers(*UPSTREAM_SITE, size=len(loci)),
        "reverse": rng.random(len(loci)) < 0.5,
    }
    kind = np.where(dpe, "promoter-dpe", "promoter-tata")
    return _around_tss(
        kind, present, offset, np.zeros_like(present), pd.DataFrame(upstream)
    )


def decoys(count: int, rng: np.random.Generator) -> Plan:
    """Return decoys, each of one of three kinds."""
    _, present, offset = draw_cores(count, rng)
    reverse = np.zeros_like(present)
    mix = np.cumsum(DECOY_MIX)
    way = np.searchsorted(mix / mix[-1], rng.random(count), side="right")
    # A single element has no order.
    way = np.where(present.sum(axis=1) < 2, 1, way)
    low, high = DECOY_SHIFT
    # Loci with the same elements are processed together.
    for number in range(3):
        of_way = np.flatnonzero(way == number)
        for pattern in np.unique(present[of_way], axis=0):
            rows = of_way[(present[of_way] == pattern).all(axis=1)]
            columns = np.flatnonzero(pattern)
            offsets = offset[np.ix_(rows, columns)]
            if number == 0:
                # Each element moves to the position of another one.
                shifts = rng.integers(1, len(columns), size=len(rows))
                moved = (np.arange(len(columns)) + shifts[:, None]) % len(columns)
                offset[np.ix_(rows, columns)] = np.take_along_axis(
                    offsets, moved, axis=1
                )
            elif number == 1:
                # Spacings between adjacent elements increase, or decrease where possible.
                room = np.diff(offsets, axis=1) - WIDTHS[columns[:-1]]
                wider = rng.integers(low, high + 1, size=room.shape)
                most = np.maximum(np.minimum(room, high), low)
                narrower = rng.integers(low, most + 1)
                narrows = (room >= low) & (rng.random(room.shape) < 0.5)
                change = np.cumsum(np.where(narrows, -narrower, wider), axis=1)
                offset[np.ix_(rows, columns[1:])] = offsets[:, 1:] + change
            else:
                # At least one element is reversed, and at least one is not.
                shuffled = rng.permuted(np.tile(columns, (len(rows), 1)), axis=1)
                flipped = rng.random(shuffled.shape) < 0.5
                flipped[:, 0], flipped[:, 1] = True, False
                reverse[rows[:, None], shuffled] = flipped
    kind = np.array(["decoy-order", "decoy-distance", "decoy-strand"])[way]
    return _around_tss(kind, present, offset, reverse, None)


def _around_tss(
    kind: NDArray[np.str_],
    present: Flags,
    offset: Positions,
    reverse: Flags,
    upstream: pd.DataFrame | None,
) -> Plan:
    """Return core elements (N, 5), and sites `upstream`, as loci that start at their first element."""
    locus, motif = np.nonzero(present)
    elements = {
        "locus": locus,
        "motif": motif,
        "offset": offset[present],
        "reverse": reverse[present],
    }
    sites = pd.concat([pd.DataFrame(elements), upstream], ignore_index=True)
    left = np.zeros(len(kind), dtype=np.int64)
    right = np.ones(len(kind), dtype=np.int64)
    np.minimum.at(left, sites["locus"], sites["offset"])
    np.maximum.at(right, sites["locus"], sites["offset"] + WIDTHS[sites["motif"]])
    loci = pd.DataFrame({"kind": kind, "width": right - left, "anchor": -left})
    offsets = sites["offset"] - left[sites["locus"]]
    return loci, sites.assign(offset=offsets, broken=False)


def _clusters(
    kind: str | NDArray[np.str_],
    motif: Positions,
    slot: int,
    rng: np.random.Generator,
    broken: Flags | bool = False,
) -> Plan:
    """Return loci of (N, S) sites, each at random in its slot of `slot` bp and on either strand."""
    count, copies = motif.shape
    room = slot - WIDTHS[motif]
    offset = np.arange(copies) * slot + rng.integers(0, room + 1)
    loci = pd.DataFrame({"kind": kind, "width": copies * slot}, index=range(count))
    sites = {
        "locus": np.repeat(np.arange(count), copies),
        "motif": motif.reshape(-1),
        "offset": offset.reshape(-1),
        "reverse": rng.random(motif.size) < 0.5,
        "broken": broken,
    }
    return loci.assign(anchor=copies * slot // 2), pd.DataFrame(sites)


def plan_contig(length: int, rng: np.random.Generator) -> Plan:
    """Return all loci of a contig, and their sites."""
    count = max(1, round(length / PROMOTER_EVERY))
    runs = max(1, round(length / GAP_EVERY))
    shortest, longest = GAP_LENGTH
    longest = max(min(longest, length // 50), 101)
    gaps = rng.integers(shortest, longest, size=runs)
    gap_loci = pd.DataFrame({"kind": "gap", "width": gaps, "anchor": gaps // 2})
    plans = [
        promoters(count, rng),
        decoys(round(count * DECOYS_PER_PROMOTER), rng),
    ]

    # Enhancers: clusters of sites of several factors, half of each type.
    number = round(length / ENHANCER_EVERY)
    copies = ENHANCER_SITES
    types = rng.integers(2, size=number)
    motif = np.empty((number, copies), dtype=np.int64)
    for index, (opener, others) in enumerate(ENHANCERS.values()):
        rows = np.flatnonzero(types == index)
        names = [INDEX[name] for name in others]
        cluster = rng.choice(names, size=(len(rows), copies))
        cluster[:, :2] = INDEX[opener]
        motif[rows] = rng.permuted(cluster, axis=1)
    plans.append(_clusters(np.array(list(ENHANCERS))[types], motif, SLOT, rng))

    for name, every in (
        ("activator", ACTIVATOR_EVERY),
        ("silencer", SILENCER_EVERY),
    ):
        shape = round(length / every), DISTAL_COPIES
        motif = np.full(shape, INDEX[DISTAL[name]])
        plans.append(_clusters(name, motif, DISTAL_SLOT, rng))
    for factor in LONE_FACTORS:  # intact, or broken at one strong position
        motif = np.full((round(length / SITE_EVERY), 1), INDEX[factor])
        broken = rng.random(len(motif)) >= SITE_INTACT
        width = int(WIDTHS[INDEX[factor]])
        plans.append(_clusters("site", motif, width, rng, broken))

    all_loci, all_sites = [gap_loci], []
    shift = len(gap_loci)
    for loci, sites in plans:
        all_loci.append(loci)
        all_sites.append(sites.assign(locus=sites["locus"] + shift))
        shift += len(loci)
    return (
        pd.concat(all_loci, ignore_index=True),
        pd.concat(all_sites, ignore_index=True),
    )


def place(
    loci: pd.DataFrame, sites: pd.DataFrame, length: int, rng: np.random.Generator
) -> Plan:
    """Place loci in random order and orientation along a contig, with exponential gaps between them.

    Returns the loci, sorted by position, with `start`, `end`, `anchor` and `minus` on the contig, and the
    sites with `start`, `reverse` and the `kind` of their locus.
    """
    count = len(loci)
    width = loci["width"].to_numpy()
    free = length - int(width.sum())
    if free < 0:
        raise ValueError(
            f"loci of {width.sum()} bp do not fit into a contig of {length} bp"
        )
    order = rng.permutation(count)
    minus = rng.random(count) < 0.5
    shares = np.cumsum(rng.exponential(size=count + 1))
    before = (shares[:-1] / shares[-1] * free).astype(np.int64)
    start = np.empty(count, dtype=np.int64)
    start[order] = before + np.concatenate(([0], np.cumsum(width[order])[:-1]))
    end = start + width
    anchor = np.where(minus, end - 1 - loci["anchor"], start + loci["anchor"])
    locus = sites["locus"].to_numpy()
    on_contig = np.where(
        minus[locus],
        end[locus] - sites["offset"] - WIDTHS[sites["motif"]],
        start[locus] + sites["offset"],
    )
    placed_loci = loci.assign(start=start, end=end, anchor=anchor, minus=minus)
    placed_sites = sites.assign(
        start=on_contig,
        reverse=sites["reverse"].to_numpy() ^ minus[locus],
        kind=loci["kind"].to_numpy()[locus],
    )
    return placed_loci.iloc[order], placed_sites


def plant(codes: Codes, sites: pd.DataFrame, rng: np.random.Generator) -> Flags:
    """Write an instance of each site into `codes`; return flags that mark the written bases."""
    written = np.zeros(len(codes), dtype=bool)
    for index, motif in enumerate(MOTIFS):
        rows = sites[sites["motif"] == index]
        bases = np.empty((len(rows), motif.width), dtype=np.uint8)
        for column, chance in enumerate(motif.fidelity):
            match = np.flatnonzero(motif.allowed[column])
            other = np.flatnonzero(~motif.allowed[column, :4])
            conforms = rng.random(len(rows)) < chance
            bases[:, column] = np.where(
                conforms,
                rng.choice(match, size=len(rows)),
                rng.choice(other, size=len(rows)),
            )
        # A base that does not match, at one strong position.
        broken = np.flatnonzero(rows["broken"])
        columns = rng.choice(motif.strong, size=len(broken))
        for column in motif.strong:
            at_column = broken[columns == column]
            other = np.flatnonzero(~motif.allowed[column, :4])
            bases[at_column, column] = rng.choice(other, size=len(at_column))
        reverse = rows["reverse"].to_numpy()
        bases[reverse] = COMPLEMENT[bases[reverse, ::-1]]
        positions = rows["start"].to_numpy()[:, None] + np.arange(motif.width)
        codes[positions] = bases
        written[positions] = True
    return written


TRACKS = {
    **{
        factor.name: ("TF", f"{factor.consensus}: {factor.description}")
        for factor in FACTORS
    },
    "TBP": ("TF", "promoters of the TATA class"),
    "OPEN1": ("DHS", "CpG islands and enhancers of type 1"),
    "OPEN2": ("DHS", "CpG islands and enhancers of type 2"),
    "START": (
        "HM",
        "from 200 bp before to 400 bp after the TSS of promoters of the DPE class",
    ),
    "ENHANCER": ("HM", "400 bp to either side of the center of enhancers"),
    "ACTIVE": ("HM", "1.5-3.5 kb to either side of an activator"),
    "SILENT": ("HM", "1.5-3.5 kb to either side of a silencer"),
}
_SCAN = 4_000_000  # bp scanned at once, to limit memory on long contigs


def chromatin_peaks(
    loci: pd.DataFrame,
    islands: list[tuple[int, int]],
    size: int,
    rng: np.random.Generator,
) -> dict[str, pd.DataFrame]:
    """Return the peaks of TBP and of the DHS and HM tracks on a contig of `size` bp, by the rules above."""
    low, high = DISTAL_RANGE
    flank = (low + high) // 2
    shores = np.array(islands, dtype=np.int64).reshape(-1, 2)
    island = (shores[:, 0], shores[:, 1], shores.mean(axis=1).astype(np.int64))

    def around(
        kinds: tuple[str, ...], before: int, after: int, wobble: int
    ) -> tuple[Positions, Positions, Positions]:
        """Return intervals and summits around anchors along the locus's strand; ends vary by `wobble`."""
        rows = loci[loci["kind"].isin(kinds)]
        minus, anchor = rows["minus"].to_numpy(), rows["anchor"].to_numpy()
        start = anchor - np.where(minus, after, before)
        end = anchor + np.where(minus, before, after) + 1
        start = start + rng.integers(-wobble, wobble + 1, size=len(rows))
        end = end + rng.integers(-wobble, wobble + 1, size=len(rows))
        return start, end, anchor

    merged = {}
    for track, kinds, before, after, wobble in (
        ("TBP", ("promoter-tata",), 140, 80, 20),
        ("OPEN1", ("enhancer-1",), 200, 200, 20),
        ("OPEN2", ("enhancer-2",), 200, 200, 20),
        ("START", ("promoter-dpe",), 200, 400, 30),
        ("ENHANCER", tuple(ENHANCERS), 400, 400, 30),
    ):
        intervals = [island] if track.startswith("OPEN") else []
        intervals.append(around(kinds, before, after, wobble))
        merged[track] = merge_peaks(intervals, size, rng)
    for track, kind in (("ACTIVE", "activator"), ("SILENT", "silencer")):
        middle = loci.loc[loci["kind"] == kind, "anchor"].to_numpy()
        left = (middle - high, middle - low, middle - flank)
        right = (middle + low, middle + high, middle + flank)
        merged[track] = merge_peaks([left, right], size, rng)
    return merged


def merge_peaks(
    intervals: list[tuple[Positions, Positions, Positions]],
    size: int,
    rng: np.random.Generator,
) -> pd.DataFrame:
    """Return sorted, disjoint peaks of (starts, ends, summits), clipped to the contig of `size` bp.

    Intervals that overlap or touch are joined, with the first summit and the sum of heights (`signal`).
    """
    start, end, summit = map(np.concatenate, zip(*intervals, strict=True))
    start, end = np.clip(start, 0, size), np.clip(end, 0, size)
    peaks = pd.DataFrame(
        {
            "start": start,
            "end": end,
            "summit": np.clip(summit, start, end - 1),
            "signal": rng.integers(20, 101, size=len(start)),
        }
    )
    peaks = peaks[peaks["end"] > peaks["start"]].sort_values("start", kind="stable")
    apart = peaks["start"] > peaks["end"].cummax().shift(fill_value=-1)
    joined = peaks.groupby(apart.cumsum())
    return joined.agg(
        {"start": "first", "end": "max", "summit": "first", "signal": "sum"}
    )


_MARGIN = 150  # bp on either side of a site that must be known bases of the contig
_REACH = 30  # bp on either side of a variant that can contain an affected site


def draw_variants(
    codes: Codes,
    planted: Flags,
    sites: pd.DataFrame,
    found: dict[str, pd.DataFrame],
    rng: np.random.Generator,
) -> list[tuple[int, str, str, str]]:
    """Draw variants (0-based position, REF, ALT, INFO) of a contig; about half of them have an effect.

    `found` are all sites of factors, bound or not. Variants belong to planted sites away from others of their
    factor, so that no other track uses their bases, and not to sites that open an enhancer, because effects
    on chromatin are not simulated.
    """
    candidates: list[tuple[str, int, bool, str]] = []
    for track in LONE_FACTORS:
        own = sites[sites["motif"] == INDEX[track]]
        bound = dict(zip(found[track]["start"], found[track]["bound"], strict=True))
        broken = own.loc[own["broken"], "start"]
        starts = np.sort(np.concatenate((found[track]["start"], broken)))
        gaps = np.diff(starts, prepend=-(10**9), append=10**12)
        apart = gaps > ISOLATION
        isolated = set(starts[apart[:-1] & apart[1:]].tolist())
        # DELTA opens nothing, so its sites in enhancers and promoters may be changed. Whether its repaired
        # sites would be bound depends on their chromatin, so its broken sites are excluded.
        usable = own[~own["broken"] if track == "DELTA" else own["kind"] == "site"]
        for start, reverse, is_broken in zip(
            usable["start"], usable["reverse"], usable["broken"], strict=True
        ):
            around = codes[max(0, start - _MARGIN) : start + _MARGIN]
            if start not in isolated or len(around) < 2 * _MARGIN or N_CODE in around:
                continue
            intact = "bound" if bound.get(start) else "closed"
            state = "broken" if is_broken else intact
            candidates.append((track, start, reverse, state))
    candidates.sort()

    number = round(VARIANTS_PER_MEGABASE * len(codes) / 1e6)
    variants: list[tuple[int, str, str, str]] = []
    taken = np.zeros(len(codes) + 1, dtype=bool)
    for index in rng.permutation(len(candidates)).tolist():
        if len(variants) == number:
            break
        variant = _mutate(rng, codes, planted, *candidates[index])
        if variant is None:
            continue
        position, end = variant[0], variant[0] + len(variant[1])
        if taken[max(0, position - 10) : end + 10].any():
            continue
        taken[position:end] = True
        variants.append(variant)
    return sorted(variants)


def _mutate(
    rng: np.random.Generator,
    codes: Codes,
    planted: Flags,
    track: str,
    site_start: int,
    reverse: bool,
    state: str,
) -> tuple[int, str, str, str] | None:
    """Return a variant of a site that is bound, closed or broken; None if the drawn change does not have the
    intended effect."""
    motif = MOTIFS[INDEX[track]]
    indel = rng.random() < INDEL_FRACTION
    if state == "bound":
        categories = ["disrupts_site", "tolerated", "flanking"]
        category = str(rng.choice(categories, p=[0.5, 0.2, 0.3]))
    elif state == "broken":
        category = str(rng.choice(["creates_site", "failed_repair"]))
    else:
        category = "closed_chromatin"

    if category == "flanking":  # outside the site, changes no planted base
        distance = int(rng.integers(15, 76))
        start = site_start + motif.width + distance
        if rng.integers(2):
            start = site_start - distance
        if planted[start - 12 : start + 12].any():
            return None
        if not indel:
            base = (int(codes[start]) + int(rng.integers(1, 4))) % 4
    elif indel and category in ("disrupts_site", "closed_chromatin"):
        start = site_start + int(rng.integers(3, motif.width - 3))
    else:
        indel = False
        oriented = codes[site_start : site_start + motif.width]
        if reverse:
            oriented = COMPLEMENT[oriented[::-1]]
        columns = motif.weak if category == "tolerated" else motif.strong
        if category in ("creates_site", "failed_repair"):
            matches = motif.allowed[columns, oriented[columns]]
            columns = columns[~matches]
            if len(columns) != 1:
                return None
        column = int(rng.choice(columns))
        options = np.flatnonzero(np.arange(4) != oriented[column])
        if category != "tolerated":
            conforms = motif.allowed[column, options]
            options = options[conforms == (category == "creates_site")]
        if not len(options):
            return None
        base = int(rng.choice(options))
        base = int(COMPLEMENT[base]) if reverse else base
        start = site_start + (motif.width - 1 - column if reverse else column)
    if not indel:
        end, inserted = start + 1, [base]
    else:  # a deletion or insertion of 1–3 bases
        size = int(rng.integers(1, 4))
        if rng.random() < 0.5:
            end, inserted = start + size, []
        else:
            end, inserted = start, rng.integers(4, size=size).tolist()

    effect = {"disrupts_site": "loss", "creates_site": "gain"}.get(category, "none")
    left, right = codes[max(0, start - _REACH) : start], codes[end : end + _REACH]
    middles = codes[start:end], np.array(inserted, dtype=np.uint8)
    before, after = (
        {
            factor.name: sum(
                len(find_sites(factor, text, strand)) for strand in (False, True)
            )
            for factor in FACTORS
        }
        for text in [np.concatenate((left, middle, right)) for middle in middles]
    )
    # A variant removes a closed site, although it is not bound; nothing else may change.
    change = {"loss": -1, "gain": 1, "none": 0}[effect]
    before[track] += -1 if state == "closed" else change
    if before != after:
        return None

    # Indels are left-aligned with one anchoring base, as VCF requires.
    if end == start:
        while inserted[-1] == codes[start - 1]:
            inserted = [inserted[-1], *inserted[:-1]]
            start -= 1
        inserted = [codes[start - 1], *inserted]
        start, end = start - 1, start
    elif not inserted:
        while codes[start - 1] == codes[end - 1]:
            start, end = start - 1, end - 1
        start, inserted = start - 1, [codes[start - 1]]
    ref, alt = (
        "".join("ACGTN"[code] for code in allele)
        for allele in (codes[start:end], inserted)
    )
    info = (
        f"EFFECT={effect};TRACK={track};CATEGORY={category};SITE={site_start + 1};"
        f"STRAND={'-' if reverse else '+'}"
    )
    return start, ref, alt, info


_LINE = 60
_VCF_HEADER = """\
##fileformat=VCFv4.3
##source=bigbird-dna simulate
##reference=genome.fa.gz
{contigs}\
##INFO=<ID=EFFECT,Number=1,Type=String,Description="True effect on TRACK: loss, gain or none">
##INFO=<ID=TRACK,Number=1,Type=String,Description="Transcription factor track that the variant belongs to">
##INFO=<ID=CATEGORY,Number=1,Type=String,Description="Category of the variant">
##INFO=<ID=SITE,Number=1,Type=Integer,Description="First base of the factor's site, 1-based">
##INFO=<ID=STRAND,Number=1,Type=String,Description="Strand of the factor's site">
#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO
"""


def _rows(table: pd.DataFrame) -> Any:
    return table.itertuples()


def simulate_contig(
    name: str, length: int, families: list[Codes], seed: np.random.SeedSequence
) -> dict[str, str]:
    """Return what a contig adds to each file, by its name; each stage has a separate random stream."""
    streams = [np.random.default_rng(child) for child in seed.spawn(7)]
    planning, sequence, repeating, islanding, planting, peaking, varying = streams

    loci, sites = place(*plan_contig(length, planning), length, planning)
    codes = background(length, sequence)
    repeats = lay_repeats(codes, families, repeating)

    # CpG islands: over the TSS of some DPE-class promoters, and orphans at random positions.
    dpe = loci.loc[loci["kind"] == "promoter-dpe", "anchor"].to_numpy()
    dpe = dpe[islanding.random(len(dpe)) < ISLAND_FRACTION]
    orphans = round(length / ORPHAN_ISLAND_EVERY)
    center = np.concatenate((dpe, islanding.integers(length, size=orphans)))
    low, high = ISLAND_LENGTH
    size = islanding.integers(low, high + 1, size=len(center))
    before = (size * islanding.uniform(0.3, 0.7, size=len(center))).astype(int)
    start = np.clip(center - before, 0, None)
    end = np.minimum(start + size, length)
    islands = list(zip(start.tolist(), end.tolist(), strict=True))
    if islands:
        chains = chain(ISLAND_GC, ISLAND_CPG_ODDS)[None]
        rows = np.zeros(len(islands), dtype=np.int64)
        texts = sample_chains(chains, rows, int((end - start).max()), islanding)
        for (start, end), text in zip(islands, texts, strict=True):
            codes[start:end] = text[: end - start]

    masked = np.zeros(length, dtype=bool)
    for start, end, _, _ in repeats:
        masked[start:end] = True
    for start, end in islands:
        masked[start:end] = False
    for gap in _rows(loci[loci["kind"] == "gap"]):
        codes[gap.start : gap.end] = N_CODE
        masked[gap.start : gap.end] = False
    planted = plant(codes, sites, planting)

    peaks = chromatin_peaks(loci, islands, length, peaking)
    found = {}
    for motif in FACTORS:
        tables = []
        for begin in range(0, length, _SCAN):
            window = codes[begin : begin + _SCAN + motif.width - 1]
            for strand in (False, True):
                starts = find_sites(motif, window, strand) + begin
                tables.append(pd.DataFrame({"start": starts, "reverse": strand}))
        table = pd.concat(tables).sort_values(["start", "reverse"], kind="stable")
        middle = table["start"].to_numpy() + motif.width // 2
        bound = np.ones(len(table), dtype=bool)
        if motif.name == "DELTA":  # binds in open chromatin only
            bound[:] = False
            for track in ("OPEN1", "OPEN2"):
                starts, ends = (
                    peaks[track][key].to_numpy() for key in ("start", "end")
                )
                bound |= Intervals(starts, ends).overlap(middle, middle + 1)
        found[motif.name] = table.assign(bound=bound)
        # Peaks of 200–280 bp around bound sites.
        summit = middle[bound]
        first = summit - peaking.integers(100, 141, size=len(summit))
        last = summit + peaking.integers(100, 141, size=len(summit))
        peaks[motif.name] = merge_peaks([(first, last, summit)], length, peaking)
    variants = draw_variants(codes, planted, sites, found, varying)

    soft_masked = (LETTERS[codes] | masked * np.uint8(32)).tobytes().decode()
    lines = [soft_masked[at : at + _LINE] for at in range(0, length, _LINE)]
    files = {"genome.fa.gz": "\n".join([f">{name}", *lines, ""])}
    is_promoter = loci["kind"].isin(list(PRESENCE))
    tss = loci[is_promoter].sort_values("anchor", kind="stable")
    files["promoters.sga"] = "".join(
        f"{name}\tTSS\t{row.anchor + 1}\t{'-' if row.minus else '+'}\t1\t{name.upper()}G{number}_1\n"
        for number, row in enumerate(_rows(tss), start=1)
    )
    for track, table_of_peaks in peaks.items():
        files[f"peaks/{track}.narrowPeak.gz"] = "".join(
            f"{name}\t{row.start}\t{row.end}\t{track}.{name}.{number}\t{min(1000, 10 * row.signal)}\t.\t"
            f"{row.signal}\t-1\t-1\t{row.summit - row.start}\n"
            for number, row in enumerate(_rows(table_of_peaks), start=1)
        )
    planted_elements = [
        (
            row.start,
            row.end,
            f"{row.kind};anchor={row.anchor}",
            "-" if row.minus else "+",
        )
        for row in _rows(loci)
    ]
    for row in _rows(sites):
        motif = MOTIFS[row.motif]
        label = f"motif-{motif.name}{';broken' if row.broken else ''}"
        sign = "-" if row.reverse else "+"
        planted_elements.append((row.start, row.start + motif.width, label, sign))
    planted_elements += [(start, end, "island", ".") for start, end in islands]
    planted_elements += [
        (start, end, f"repeat-{family + 1}", "-" if reverse else "+")
        for start, end, family, reverse in repeats
    ]
    files["loci.bed.gz"] = "".join(
        f"{name}\t{start}\t{end}\t{label}\t0\t{strand}\n"
        for start, end, label, strand in sorted(planted_elements)
    )
    files["variants.vcf.gz"] = "".join(
        f"{name}\t{position + 1}\t{name}v{number}\t{ref}\t{alt}\t.\tPASS\t{info}\n"
        for number, (position, ref, alt, info) in enumerate(variants, start=1)
    )
    return files


def simulate(out_dir: Path, seed: int, megabases: float) -> None:
    """Write a demo genome of `megabases` Mb into `out_dir`; equal arguments give equal bytes.

    Files: `genome.fa.gz` (bgzip, soft-masked, with `.fai` and `.gzi`), `promoters.sga` (EPDnew's format),
    `peaks/{track}.narrowPeak.gz`, `tracks.tsv`, `variants.vcf.gz` (bgzip, with `.tbi`; the true effect in
    INFO) and `loci.bed.gz` (all planted elements, including decoys). They are moved into place when all are
    complete; other files in `out_dir` are kept.

    `UsageError` for a size outside `MEGABASES_RANGE`, a negative seed, or an `out_dir` that cannot be created
    or contains other files of these names.
    """
    low, high = MEGABASES_RANGE
    if not low <= megabases <= high:
        raise UsageError(f"megabases {megabases:g}: must be from {low:g} to {high:g}")
    if seed < 0:
        raise UsageError(f"seed {seed}: must be at least 0")
    lengths = contig_lengths(megabases)
    family_seed, *contig_seeds = np.random.SeedSequence(seed).spawn(1 + len(lengths))
    # Families of repeats are the same for all contigs.
    rng = np.random.default_rng(family_seed)
    low, high = REPEAT_LENGTH
    sizes = rng.integers(low, high + 1, size=REPEAT_FAMILIES)
    contents = rng.uniform(0.38, 0.54, size=REPEAT_FAMILIES)
    families = []
    for gc, size in zip(contents, sizes.tolist(), strict=True):
        table = chain(float(gc), CPG_ODDS)[None]
        families.append(sample_chains(table, np.zeros(1, np.int64), size, rng)[0])

    with into_directory(out_dir) as directory:
        (directory / "peaks").mkdir()
        fasta, vcf = directory / "genome.fa.gz", directory / "variants.vcf.gz"
        with ExitStack() as stack:
            sga = (directory / "promoters.sga").open("wb")
            streams: dict[str, Any] = {"promoters.sga": stack.enter_context(sga)}
            for path in (fasta, vcf):
                streams[path.name] = stack.enter_context(bgzip_writer(path))
            for file in ("loci.bed.gz", *(f"peaks/{t}.narrowPeak.gz" for t in TRACKS)):
                # Without name and time, so that equal text gives equal bytes.
                raw = stack.enter_context((directory / file).open("wb"))
                packed: Any = gzip.GzipFile("", "wb", 6, raw, 0)
                streams[file] = stack.enter_context(packed)
            contigs = "".join(
                f"##contig=<ID={name},length={size}>\n"
                for name, size in lengths.items()
            )
            streams[vcf.name].write(_VCF_HEADER.format(contigs=contigs).encode())
            # One contig at a time is in memory.
            for (name, length), contig_seed in zip(
                lengths.items(), contig_seeds, strict=True
            ):
                files = simulate_contig(name, length, families, contig_seed)
                for file, text in files.items():
                    streams[file].write(text.encode())
                log(f"{name}: {length:,} bp simulated")
        with quiet_htslib():
            pysam.faidx(str(fasta))
            pysam.tabix_index(str(vcf), preset="vcf", force=True)
        rows = [
            f"{track}\t{group}\tpeaks/{track}.narrowPeak.gz\t{description}\n"
            for track, (group, description) in TRACKS.items()
        ]
        (directory / "tracks.tsv").write_text(
            "".join(["track\tgroup\tfile\tdescription\n", *rows]), encoding="utf-8"
        )
