"""Simulate a demo genome with known truth: sequence, promoters, tracks and variants, determined by a seed.

Bases are coded A 0, C 1, G 2, T 3, N 4. A consensus is written in IUPAC letters; upper case marks strong
positions, lower case weak ones. The motifs resemble known families but are inventions of this simulation.

The background sequence has isochores, CpG depletion, CpG islands and interspersed repeats. It is a Markov
chain: the probability of base c after b is proportional to weight(c) · dinucleotide(b, c). Repeats are families
of consensus sequences and their diverged copies on either strand.

Loci are made of instances of motifs and placed along a contig without overlap, on either strand. A locus has an
anchor: the TSS of a promoter, the apparent TSS of a decoy, the center of others.

Promoters follow a positional grammar. Decoys have the same elements but violate the grammar. There are two
classes of promoters, each with an ordered set of core elements. Most elements may be missing. All elements of a
promoter are up to 5 bp away from these positions together, because the TSS of an annotation is one of several:

====== ============= ========== ===========
element start vs TSS TATA class DPE class
====== ============= ========== ===========
CAAT    −92 ± 8      25 %       70 %
GCBOX   −64 ± 6      90 %       90 %
TATA    −31 ± 2      100 %      –
INR     −3           100 %      100 %
DPE     +27 ± 1      –          100 %
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

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pysam
from Bio.Data.IUPACData import ambiguous_dna_values
from numpy.typing import NDArray

from bigbird_dna.console import log
from bigbird_dna.disk.atomic import bgzip_writer, quiet_htslib
from bigbird_dna.disk.directories import into_directory
from bigbird_dna.errors import UsageError
from bigbird_dna.genome.sequence import Intervals

# Sizes, densities and difficulty of the simulation; lengths in bp, densities in bp per locus. With these values, a
# 5-mer logistic regression distinguishes promoters (400 bp) from GC-matched windows with an AUROC of about 0.73,
# while the true grammar reaches nearly 1.

MEGABASES_RANGE = (0.1, 100.0)  # supported sizes
# Contigs demo1…demo6 as fractions of the genome. The last two are intended as held-out contigs: demo5 (11
# %) for validation and demo6 (14 %) for testing.
CONTIG_FRACTIONS = (0.26, 0.20, 0.16, 0.13, 0.11, 0.14)

# Composition
GC_WEIGHTS = (0.37, 0.57)
"""weight of G and C in isochores; the GC content is 0.36 to 0.54"""
CPG_ODDS = 0.16
"""odds of G after C; the observed/expected ratio is 1 to 1.7 times this value"""
ISLAND_GC_WEIGHT = 0.60
ISLAND_CPG_ODDS = 0.85
ORPHAN_ISLAND_EVERY = 7_000
GAP_EVERY = 400_000

# Repeats
REPEAT_FAMILIES = 8
REPEAT_DIVERGENCE = (0.05, 0.25)
REPEAT_INDELS = 0.1
"""indels per substitution"""
REPEAT_FRACTION = 0.22
"""fraction of the genome, before later copies, islands and motifs overwrite earlier ones"""

# Promoters and decoys
PROMOTER_EVERY = 900
DECOYS_PER_PROMOTER = 4
CORE_FIDELITY = 0.95
"""probability that a position of a core promoter element matches its consensus"""
TSS_SPREAD = 5
"""largest distance of a TSS from the position that its elements indicate"""
DECOY_SHIFT = (10, 30)
"""change of each spacing in a decoy of the wrong distance"""
PROMOTER_FACTOR_FRACTION = 0.3
"""fraction of promoters with a factor's site upstream of the core"""
ISLAND_FRACTION = 0.35
"""fraction of DPE-class promoters inside a CpG island"""

# Factors' sites and distal elements
SITE_EVERY = 7_000
"""isolated sites of one factor; half of them have a mismatch at a strong position"""
WEAK_FIDELITY = 0.7
ENHANCER_EVERY = 4_000
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

Codes = NDArray[np.uint8]
Flags = NDArray[np.bool_]
Positions = NDArray[np.int64]

N_CODE = 4
LETTERS: Codes = np.frombuffer(b"ACGTN", dtype=np.uint8)
COMPLEMENT: Codes = np.array([3, 2, 1, 0, 4], dtype=np.uint8)


class Motif:
    """A sequence element of `width` bp.

    `allowed` (width, 4) are the bases that its consensus accepts, `strong` the positions that a site must match, and
    `fidelity` the probability of a match at each position.
    """

    def __init__(self, name: str, consensus: str, description: str = "") -> None:
        self.name = name
        self.consensus = consensus
        self.description = description
        self.width = len(consensus)
        accepted = [ambiguous_dna_values[letter.upper()] for letter in consensus]
        self.allowed: Flags = np.array(
            [[base in row for base in "ACGT"] for row in accepted]
        )
        self.strong: Flags = np.array([letter.isupper() for letter in consensus])
        strong_fidelity = 1.0 if description else CORE_FIDELITY
        self.fidelity = np.where(self.strong, strong_fidelity, WEAK_FIDELITY)

    def sample(self, reverse: bool, broken: int, rng: np.random.Generator) -> Codes:
        """Draw an instance, with a mismatch at position `broken` if it is not negative."""
        fidelity = self.fidelity.copy()
        if broken >= 0:
            fidelity[broken] = 0.0

        match = rng.random(self.width) < fidelity
        # The largest of random numbers at the bases that may be chosen.
        candidates = self.allowed == match[:, None]
        bases = (rng.random(candidates.shape) * candidates).argmax(axis=1)
        codes: Codes = bases.astype(np.uint8)
        if reverse:
            codes = COMPLEMENT[codes[::-1]]

        return codes


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
ALFA, BRAVO, CHARLIE, DELTA, ECHO, FOXTROT = FACTORS

OFFSETS: Positions = np.array([-92, -64, -31, -3, 27], dtype=np.int64)
JITTER: Positions = np.array([8, 6, 2, 0, 1], dtype=np.int64)
"""Largest deviation of each core element from its position in the grammar."""
PRESENCE = {
    "promoter-tata": (0.25, 0.90, 1.0, 1.0, 0.0),
    "promoter-dpe": (0.70, 0.90, 0.0, 1.0, 1.0),
}
DECOYS = ("decoy-order", "decoy-distance", "decoy-strand")

TRACKS = {
    factor.name: ("TF", f"{factor.consensus}: {factor.description}")
    for factor in FACTORS
} | {
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
# Peaks of tracks around loci: from and to this offset from the anchor, along the locus's strand.
_near, _far = DISTAL_RANGE
PEAKS = {
    "promoter-tata": [("TBP", -140, 81)],
    "promoter-dpe": [("START", -200, 401)],
    "enhancer-1": [("OPEN1", -200, 201), ("ENHANCER", -400, 401)],
    "enhancer-2": [("OPEN2", -200, 201), ("ENHANCER", -400, 401)],
    "activator": [("ACTIVE", -_far, -_near), ("ACTIVE", _near, _far)],
    "silencer": [("SILENT", -_far, -_near), ("SILENT", _near, _far)],
}


class Locus(NamedTuple):
    """A locus before it is placed; its sites are (motif, offset from the start, reverse, broken position or -1)."""

    kind: str
    width: int
    anchor: int
    sites: list[tuple[Motif, int, bool, int]]


class Site(NamedTuple):
    """A site in a contig, of a locus of this kind."""

    motif: Motif
    start: int
    reverse: bool
    broken: int
    kind: str


def contig_lengths(megabases: float) -> dict[str, int]:
    """Return contig names and lengths; they sum to `megabases`, and no length is a round number."""
    total = round(megabases * 1e6)
    return {
        f"demo{number}": round(fraction * total) + 137 * (number % 2 * 2 - 1)
        for number, fraction in enumerate(CONTIG_FRACTIONS, start=1)
    }


def find_sites(motif: Motif, codes: Codes, reverse: bool = False) -> Positions:
    """Return the starts of all sites, where all strong positions match on the requested strand."""
    # N is not allowed at weak positions either.
    accepted = np.zeros((motif.width, 5), dtype=bool)
    accepted[:, :4] = motif.allowed | ~motif.strong[:, None]
    if reverse:
        accepted = accepted[::-1, COMPLEMENT]

    starts: Positions = np.arange(max(0, len(codes) - motif.width + 1))
    for column, bases in enumerate(accepted):
        starts = starts[bases[codes[starts + column]]]
    return starts


# Rows: previous base A C G T; columns: next base. CpG is set by the parameters.
_DINUCLEOTIDE = np.array(
    [
        [1.15, 0.85, 1.10, 0.90],
        [1.20, 1.10, 1.00, 1.10],
        [1.05, 0.95, 1.10, 0.85],
        [0.75, 1.05, 1.20, 1.15],
    ]
)


def sample_chains(
    gc_weights: NDArray[np.float64],
    cpg_odds: float,
    length: int,
    rng: np.random.Generator,
) -> Codes:
    """Draw sequences (len(gc_weights), length) of Markov chains in parallel."""
    gc = gc_weights[:, None] / 2
    weights = np.concatenate([0.5 - gc, gc, gc, 0.5 - gc], axis=1)
    dinucleotide = _DINUCLEOTIDE.copy()
    dinucleotide[1, 2] = cpg_odds
    odds = weights[:, None] * dinucleotide
    limits = np.cumsum(odds / odds.sum(axis=2, keepdims=True), axis=2)[:, :, :3]

    chains = np.arange(len(gc_weights))
    base = rng.integers(4, size=len(chains))
    codes = np.empty((length, len(chains)), dtype=np.uint8)

    for position in range(length):
        draw = rng.random((len(chains), 1))
        base = (draw >= limits[chains, base]).sum(axis=1)
        codes[position] = base

    return np.ascontiguousarray(codes.T)


def background(length: int, rng: np.random.Generator) -> Codes:
    """Return a contig's background sequence: isochores of 15 to 90 kb with different GC, drawn in blocks of 500 bp."""
    levels: list[float] = []
    while len(levels) * 500 < length:
        levels += [rng.uniform(*GC_WEIGHTS)] * int(rng.integers(30, 181))
    blocks = sample_chains(np.array(levels), CPG_ODDS, 500, rng)
    return blocks.reshape(-1)[:length].copy()


def diverge(
    consensus: Codes, divergence: float, indels: float, rng: np.random.Generator
) -> Codes:
    """Return a copy with substitutions at rate `divergence` and 1-bp indels at `indels` times that rate."""
    copy = consensus.copy()
    changed = np.flatnonzero(rng.random(len(copy)) < divergence)
    copy[changed] = (copy[changed] + rng.integers(1, 4, size=len(changed))) % 4
    rate = divergence * indels / 2
    return np.repeat(copy, rng.choice(3, p=[rate, 1 - 2 * rate, rate], size=len(copy)))


def lay_repeats(
    codes: Codes, families: list[Codes], rng: np.random.Generator
) -> list[tuple[int, int, str, str]]:
    """Write copies into `codes` one after another; return their (start, end, label, strand) in order.

    Copies are truncated at their 5' end, as in retroelements; the remaining fraction is uniform in 20–100 %.
    """
    copies: list[tuple[int, int, str, str]] = []
    remaining = REPEAT_FRACTION * len(codes)
    while remaining > 0:
        family = int(rng.integers(len(families)))
        size = int(len(families[family]) * rng.uniform(0.2, 1.0))
        divergence = rng.uniform(*REPEAT_DIVERGENCE)
        copy = diverge(families[family][-size:], divergence, REPEAT_INDELS, rng)
        strand = "+-"[rng.integers(2)]
        if strand == "-":
            copy = COMPLEMENT[copy[::-1]]

        start = int(rng.integers(len(codes) - len(copy)))
        end = start + len(copy)
        codes[start:end] = copy
        copies.append((start, end, f"repeat-{family + 1}", strand))
        remaining -= len(copy)

    return copies


def draw_promoter(decoy: str | None, rng: np.random.Generator) -> Locus:
    """Draw the elements of a promoter, or of a decoy of one of the kinds `DECOYS`; the anchor is its TSS."""
    kind = "promoter-tata" if rng.random() < 0.5 else "promoter-dpe"
    present = np.flatnonzero(rng.random(len(CORE)) < PRESENCE[kind])
    motifs = [CORE[index] for index in present]
    spread = rng.integers(-TSS_SPREAD, TSS_SPREAD + 1)
    offsets = (OFFSETS + spread + rng.integers(-JITTER, JITTER + 1))[present]
    reverse = np.zeros(len(motifs), dtype=bool)
    if decoy == "decoy-order":
        offsets = np.roll(offsets, rng.integers(1, len(motifs)))
    elif decoy == "decoy-distance":
        # Spacings between adjacent elements increase, or decrease where possible.
        low, high = DECOY_SHIFT
        change = rng.integers(low, high + 1, size=len(motifs) - 1)
        room = np.diff(offsets) - [motif.width for motif in motifs[:-1]]
        narrows = (room >= change) & (rng.random(len(change)) < 0.5)
        offsets[1:] += np.cumsum(np.where(narrows, -change, change))
    elif decoy == "decoy-strand":
        # At least one element is reversed, and at least one is not.
        reverse = rng.random(len(motifs)) < 0.5
        reverse[:2] = True, False
        reverse = rng.permutation(reverse)

    motif_offsets = list(zip(motifs, offsets.tolist(), reverse.tolist(), strict=True))
    if decoy is None and rng.random() < PROMOTER_FACTOR_FRACTION:
        factor = FACTORS[rng.integers(4)]
        upstream = int(rng.integers(-150, -116))
        motif_offsets.append((factor, upstream, bool(rng.integers(2))))

    start = min(0, *(offset for _, offset, _ in motif_offsets))
    end = max(1, *(offset + motif.width for motif, offset, _ in motif_offsets))
    sites = [
        (motif, offset - start, is_reverse, -1)
        for motif, offset, is_reverse in motif_offsets
    ]

    return Locus(decoy or kind, end - start, -start, sites)


def draw_cluster(
    kind: str, motifs: list[Motif], slot: int, rng: np.random.Generator
) -> Locus:
    """Draw a locus of sites, each at random in its slot of `slot` bp and on either strand."""
    sites = []
    for number, motif in enumerate(motifs):
        offset = number * slot + int(rng.integers(slot - motif.width + 1))
        sites.append((motif, offset, bool(rng.integers(2)), -1))
    width = len(motifs) * slot
    return Locus(kind, width, width // 2, sites)


def draw_loci(length: int, rng: np.random.Generator) -> list[Locus]:
    """Return all loci of a contig, in random order."""
    loci = []
    for _ in range(max(1, round(length / GAP_EVERY))):
        width = int(rng.integers(100, max(min(2_000, length // 50), 101)))
        loci.append(Locus("gap", width, width // 2, []))

    for _ in range(max(1, round(length / PROMOTER_EVERY))):
        loci.append(draw_promoter(None, rng))
        for _ in range(DECOYS_PER_PROMOTER):
            loci.append(draw_promoter(DECOYS[rng.integers(3)], rng))

    for _ in range(round(length / ENHANCER_EVERY)):
        # The factor that opens an enhancer has at least two of its five sites.
        number = int(rng.integers(2))
        opener = FACTORS[number]
        factors = (opener, CHARLIE, DELTA)
        motifs = [opener, opener, *(factors[i] for i in rng.integers(3, size=3))]
        motifs = [motifs[i] for i in rng.permutation(5)]
        loci.append(draw_cluster(f"enhancer-{number + 1}", motifs, 60, rng))

    for _ in range(round(length / ACTIVATOR_EVERY)):
        loci.append(draw_cluster("activator", [ECHO] * DISTAL_COPIES, 45, rng))

    for _ in range(round(length / SILENCER_EVERY)):
        loci.append(draw_cluster("silencer", [FOXTROT] * DISTAL_COPIES, 45, rng))

    for factor in (ALFA, BRAVO, CHARLIE, DELTA):
        strong = np.flatnonzero(factor.strong)
        for _ in range(round(length / SITE_EVERY)):
            broken = int(rng.choice(strong)) if rng.integers(2) else -1
            site = (factor, 0, bool(rng.integers(2)), broken)
            loci.append(Locus("site", factor.width, factor.width // 2, [site]))

    return [loci[index] for index in rng.permutation(len(loci))]


def union(intervals: list[tuple[int, int]], length: int) -> Intervals:
    """Return sorted, disjoint intervals inside the contig; those that overlap or touch are joined."""
    starts, ends = np.array(intervals, dtype=np.int64).reshape(-1, 2).clip(0, length).T
    inside = starts < ends
    return Intervals.union(starts[inside], ends[inside])


def draw_variants(
    codes: Codes,
    planted: Flags,
    sites: list[Site],
    matches: dict[str, dict[int, bool]],
    rng: np.random.Generator,
) -> list[tuple[int, str, str, str]]:
    """Draw variants (0-based position, REF, ALT, INFO) of a contig; about half of them have an effect.

    `matches` has the starts of all sites of a factor, broken ones included, with whether they are bound.
    Variants belong to planted sites away from others of their factor, so that no other track uses their
    bases, and not to sites that open an enhancer, because effects on chromatin are not simulated.
    """
    starts_of_factor = {name: np.sort([*starts]) for name, starts in matches.items()}

    number = round(VARIANTS_PER_MEGABASE * len(codes) / 1e6)
    variants: list[tuple[int, str, str, str]] = []
    taken = np.zeros(len(codes), dtype=bool)

    for index in rng.permutation(len(sites)).tolist():
        if len(variants) == number:
            break

        motif, start, reverse, broken, kind = sites[index]
        # DELTA opens nothing, so its sites in enhancers and promoters may be changed. Whether its repaired
        # sites would be bound depends on their chromatin, so its broken sites are excluded.
        if (motif is DELTA and broken >= 0) or (motif is not DELTA and kind != "site"):
            continue

        around = codes[max(0, start - 150) : start + 150]
        limits = (start - ISOLATION, start + ISOLATION + 1)
        first, last = np.searchsorted(starts_of_factor[motif.name], limits)
        if last - first > 1 or len(around) < 300 or N_CODE in around:
            continue

        bound = matches[motif.name][start]
        column = broken if broken >= 0 else int(rng.integers(motif.width))
        position = start + (motif.width - 1 - column if reverse else column)
        flanking = bound and rng.random() < 0.25
        if flanking:
            distance = int(rng.integers(15, 76))
            position = (
                start - distance if rng.integers(2) else start + motif.width + distance
            )
            if planted[position - 12 : position + 12].any():
                continue

        # An SNV, a deletion or an insertion; indels are left-aligned.
        is_snv = broken >= 0 or rng.random() >= INDEL_FRACTION
        size = int(rng.integers(1, 4))
        if is_snv:
            ref = codes[position : position + 1]
            alt = (ref + rng.integers(1, 4)).astype(np.uint8) % 4
        elif rng.integers(2):
            ref = codes[position : position + size]
            alt = codes[:0]
        else:
            ref = codes[:0]
            alt = rng.integers(4, size=size).astype(np.uint8)

        end = position + len(ref)
        if not is_snv and codes[position - 1] == [*ref, *alt][-1]:
            continue

        if not flanking and end > start + motif.width:
            continue

        if taken[position - 10 : end + 10].any():
            continue

        changes = {}
        left = codes[position - 30 : position]
        right = codes[end : end + 30]
        for factor in FACTORS:
            counts = []
            for allele in (ref, alt):
                sequence = np.concatenate([left, allele, right])
                counts.append(
                    sum(
                        len(find_sites(factor, sequence, strand))
                        for strand in (False, True)
                    )
                )

            changes[factor] = counts[1] - counts[0]

        change = changes.pop(motif)
        if any(changes.values()):
            continue

        effect = "none"
        if flanking and change == 0:
            category = "flanking"
        elif broken >= 0 and change == 0:
            category = "failed_repair"
        elif broken >= 0 and change == 1:
            category = "creates_site"
            effect = "gain"
        elif bound and change == -1 and not flanking:
            category = "disrupts_site"
            effect = "loss"
        elif bound and change == 0 and is_snv:
            category = "tolerated"
        elif not bound and change == -1:
            category = "closed_chromatin"
        else:
            continue

        if not is_snv:  # VCF requires an anchoring base
            position -= 1
            anchor = codes[position : position + 1]
            ref = np.concatenate([anchor, ref])
            alt = np.concatenate([anchor, alt])

        taken[position:end] = True
        info = f"EFFECT={effect};TRACK={motif.name};CATEGORY={category};SITE={start + 1};STRAND={'-' if reverse else '+'}"
        letters = [LETTERS[allele].tobytes().decode() for allele in (ref, alt)]
        variants.append((position, *letters, info))

    return sorted(variants)


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


def simulate_contig(
    name: str, length: int, families: list[Codes], rng: np.random.Generator
) -> dict[str, str]:
    """Return what a contig adds to each file, by its name."""
    codes = background(length, rng)
    elements = lay_repeats(codes, families, rng)
    masked = np.zeros(length, dtype=bool)

    for start, end, _, _ in elements:
        masked[start:end] = True

    # Loci are at uniform positions, without overlap.
    loci = draw_loci(length, rng)
    widths = np.array([locus.width for locus in loci])
    anchors = np.array([locus.anchor for locus in loci])
    before = np.sort(rng.integers(length - widths.sum() + 1, size=len(loci)))
    starts = before + np.cumsum(widths) - widths
    ends = starts + widths
    minus = rng.random(len(loci)) < 0.5
    anchors = np.where(minus, ends - 1 - anchors, starts + anchors)
    strands = np.where(minus, "-", "+").tolist()

    # CpG islands: over the TSS of some DPE-class promoters, and orphans at random positions.
    is_dpe = np.array([locus.kind == "promoter-dpe" for locus in loci])
    centers = anchors[is_dpe & (rng.random(len(loci)) < ISLAND_FRACTION)]
    orphans = rng.integers(length, size=round(length / ORPHAN_ISLAND_EVERY))
    centers = np.concatenate([centers, orphans])
    texts = sample_chains(
        np.full(len(centers), ISLAND_GC_WEIGHT), ISLAND_CPG_ODDS, 900, rng
    )
    islands = []
    for center, text in zip(centers.tolist(), texts, strict=True):
        size = int(rng.integers(400, 901))
        start = max(0, center - int(size * rng.uniform(0.3, 0.7)))
        end = min(start + size, length)
        codes[start:end] = text[: end - start]
        masked[start:end] = False
        islands.append((start, end))
        elements.append((start, end, "island", "."))

    intervals: dict[str, list[tuple[int, int]]] = {track: [] for track in TRACKS}
    intervals["OPEN1"] += islands
    intervals["OPEN2"] += islands
    planted = np.zeros(length, dtype=bool)
    sites = []
    tss = []
    for locus, start, end, anchor, strand in zip(
        loci, starts.tolist(), ends.tolist(), anchors.tolist(), strands, strict=True
    ):
        elements.append((start, end, f"{locus.kind};anchor={anchor}", strand))
        if locus.kind == "gap":
            codes[start:end] = N_CODE

        if locus.kind in PRESENCE:
            tss.append((anchor, strand))

        for track, first, last in PEAKS.get(locus.kind, ()):
            left = anchor - last + 1 if strand == "-" else anchor + first
            intervals[track].append((left, left + last - first))

        for motif, offset, reverse, broken in locus.sites:
            site_start = start + offset
            if strand == "-":
                site_start = end - offset - motif.width
                reverse = not reverse

            site_end = site_start + motif.width
            codes[site_start:site_end] = motif.sample(reverse, broken, rng)
            planted[site_start:site_end] = True
            sites.append(Site(motif, site_start, reverse, broken, locus.kind))
            label = f"motif-{motif.name}{';broken' if broken >= 0 else ''}"
            elements.append((site_start, site_end, label, "-" if reverse else "+"))

    opened = union(intervals["OPEN1"] + intervals["OPEN2"], length)
    matches = {}
    for motif in FACTORS:
        both = [find_sites(motif, codes, reverse) for reverse in (False, True)]
        site_starts = np.concatenate(both)
        middle = site_starts + motif.width // 2
        bound = np.ones(len(middle), dtype=bool)
        if motif is DELTA:
            bound = opened.overlap(middle, middle + 1)

        matches[motif.name] = dict(
            zip(site_starts.tolist(), bound.tolist(), strict=True)
        )
        intervals[motif.name] = [(at - 120, at + 121) for at in middle[bound].tolist()]

    for site in sites:
        if site.broken >= 0:
            matches[site.motif.name][site.start] = False

    variants = draw_variants(codes, planted, sites, matches, rng)

    soft_masked = LETTERS[codes] | (masked & (codes < N_CODE)) * np.uint8(32)
    letters = soft_masked.tobytes().decode()
    lines = [letters[at : at + _LINE] for at in range(0, length, _LINE)]
    files = {"genome.fa.gz": "\n".join([f">{name}", *lines, ""])}
    files["promoters.sga"] = "".join(
        f"{name}\tTSS\t{anchor + 1}\t{strand}\t1\t{name.upper()}G{number}_1\n"
        for number, (anchor, strand) in enumerate(tss, start=1)
    )

    for track in TRACKS:
        rows: list[str] = []
        for start, end in zip(*union(intervals[track], length), strict=True):
            label = f"{track}.{name}.{len(rows) + 1}"
            summit = (end - start) // 2
            rows.append(
                f"{name}\t{start}\t{end}\t{label}\t1000\t.\t1\t-1\t-1\t{summit}\n"
            )

        files[f"peaks/{track}.narrowPeak.gz"] = "".join(rows)

    files["loci.bed.gz"] = "".join(
        f"{name}\t{start}\t{end}\t{label}\t0\t{strand}\n"
        for start, end, label, strand in sorted(elements)
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

    rng = np.random.default_rng(seed)

    # Families of repeats are the same for all contigs.
    families = []
    for _ in range(REPEAT_FAMILIES):
        gc_weight = rng.uniform(0.39, 0.57, size=1)
        size = int(rng.integers(300, 1_501))
        families.append(sample_chains(gc_weight, CPG_ODDS, size, rng)[0])

    with into_directory(out_dir) as directory:
        lengths = contig_lengths(megabases)
        contigs = [
            f"##contig=<ID={name},length={size}>\n" for name, size in lengths.items()
        ]
        files = {"variants.vcf.gz": _VCF_HEADER.format(contigs="".join(contigs))}
        for name, length in lengths.items():
            for file, text in simulate_contig(name, length, families, rng).items():
                files[file] = files.get(file, "") + text

            log(f"{name}: {length:,} bp simulated")

        files["tracks.tsv"] = "track\tgroup\tfile\tdescription\n" + "".join(
            f"{track}\t{group}\tpeaks/{track}.narrowPeak.gz\t{description}\n"
            for track, (group, description) in TRACKS.items()
        )

        (directory / "peaks").mkdir()
        for file, text in files.items():
            if file.endswith(".gz"):
                with bgzip_writer(directory / file) as stream:
                    stream.write(text.encode())
            else:
                (directory / file).write_text(text, encoding="utf-8")

        with quiet_htslib():
            pysam.faidx(str(directory / "genome.fa.gz"))
            pysam.tabix_index(
                str(directory / "variants.vcf.gz"), preset="vcf", force=True
            )
