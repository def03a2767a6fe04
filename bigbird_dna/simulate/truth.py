"""The labels of a demo genome: three groups of tracks, determined by sequence and loci, and variants.

TF tracks depend only on the sequence: a factor binds where all strong positions of its motif match, on either
strand, at planted sites and at chance matches. DELTA also requires open chromatin. TBP binds the promoters of
the TATA class, so it follows the grammar.

DHS tracks: OPEN1 contains the CpG islands and the enhancers of type 1, OPEN2 the islands and the enhancers of
type 2. START and TBP require the grammar of promoters, the hardest feature to learn in this genome.

HM tracks are broad. ACTIVE and SILENT cover all bases at 1.5–3.5 kb (`Parameters.distal_range`) on either
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

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from bigbird_dna.genome.sequence import Intervals
from bigbird_dna.simulate.plan import KIND, LONE_FACTORS, PlacedLoci
from bigbird_dna.simulate.sequence import (
    COMPLEMENT,
    FACTORS,
    INDEX,
    MOTIFS,
    N_CODE,
    Codes,
    Flags,
    Motif,
    Parameters,
    Positions,
    find_sites,
)

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
OPEN_CHROMATIN_ONLY = ("DELTA",)
Spans = tuple[Positions, Positions, Positions]  # starts, ends, summits
_MIDDLE = {factor.name: factor.width // 2 for factor in FACTORS}
_SCAN = 4_000_000  # bp scanned at once, to limit memory on long contigs


class SimulatedPeaks(NamedTuple):
    """Peaks of one track on one contig: sorted, disjoint; `summit` is a position, `signal` a height."""

    start: Positions
    end: Positions
    summit: Positions
    signal: Positions


class FactorSites(NamedTuple):
    """All sites of one factor on a contig, bound or not, sorted by start."""

    start: Positions
    reverse: Flags
    bound: Flags


def all_sites(
    codes: Codes, open_chromatin: list[SimulatedPeaks]
) -> dict[str, FactorSites]:
    """Return the sites of each factor; `bound` determines the factor's track."""
    sites = {}
    for motif in FACTORS:
        starts, reverses = [], []
        for begin in range(0, len(codes), _SCAN):
            window = codes[begin : begin + _SCAN + motif.width - 1]
            for reverse in (False, True):
                found = find_sites(motif, window, reverse) + begin
                starts.append(found)
                reverses.append(np.full(len(found), reverse))
        start, flags = np.concatenate(starts), np.concatenate(reverses)
        order = np.lexsort((flags, start))
        start, flags = start[order], flags[order]
        bound = np.ones(len(start), dtype=bool)
        if motif.name in OPEN_CHROMATIN_ONLY:
            middle = start + _MIDDLE[motif.name]
            bound = np.logical_or.reduce(
                [
                    Intervals(peaks.start, peaks.end).overlap(middle, middle + 1)
                    for peaks in open_chromatin
                ]
            )
        sites[motif.name] = FactorSites(start, flags, bound)
    return sites


def chromatin_peaks(
    placed: PlacedLoci,
    islands: list[tuple[int, int]],
    size: int,
    parameters: Parameters,
    rng: np.random.Generator,
) -> dict[str, SimulatedPeaks]:
    """Return the peaks of TBP and of the DHS and HM tracks, by the rules above."""
    low, high = parameters.distal_range
    flank = (low + high) // 2
    shores = np.array(islands, dtype=np.int64).reshape(-1, 2)
    island = (shores[:, 0], shores[:, 1], shores.mean(axis=1).astype(np.int64))

    def around(kinds: tuple[str, ...], before: int, after: int, wobble: int) -> Spans:
        """Return intervals and summits around anchors along the locus's strand; ends vary by `wobble`."""
        loci = placed.of(*kinds)
        minus = placed.minus[loci]
        anchor = placed.anchor[loci]
        start = anchor - np.where(minus, after, before)
        end = anchor + np.where(minus, before, after) + 1
        start = start + rng.integers(-wobble, wobble + 1, size=len(loci))
        end = end + rng.integers(-wobble, wobble + 1, size=len(loci))
        return start, end, anchor

    def away_from(kind: str) -> tuple[Spans, Spans]:
        """Return the intervals at the distal range to the left and right of the loci's centers."""
        middle = placed.anchor[placed.of(kind)]
        return (
            (middle - high, middle - low, middle - flank),
            (middle + low, middle + high, middle + flank),
        )

    def peaks(*parts: Spans) -> SimulatedPeaks:
        start, end, summit = (
            np.concatenate(column) for column in zip(*parts, strict=True)
        )
        return _merge(start, end, summit, size, rng)

    return {
        "TBP": peaks(around(("promoter-tata",), 140, 80, 20)),
        "OPEN1": peaks(island, around(("enhancer-1",), 200, 200, 20)),
        "OPEN2": peaks(island, around(("enhancer-2",), 200, 200, 20)),
        "START": peaks(around(("promoter-dpe",), 200, 400, 30)),
        "ENHANCER": peaks(around(("enhancer-1", "enhancer-2"), 400, 400, 30)),
        "ACTIVE": peaks(*away_from("activator")),
        "SILENT": peaks(*away_from("silencer")),
    }


def factor_peaks(
    sites: dict[str, FactorSites], length: int, rng: np.random.Generator
) -> dict[str, SimulatedPeaks]:
    """Return peaks of 200–280 bp around each factor's bound sites, joined where they overlap."""
    peaks = {}
    for name, found in sites.items():
        summit = found.start[found.bound] + _MIDDLE[name]
        start = summit - rng.integers(100, 141, size=len(summit))
        end = summit + rng.integers(100, 141, size=len(summit))
        peaks[name] = _merge(start, end, summit, length, rng)
    return peaks


def _merge(
    start: Positions,
    end: Positions,
    summit: Positions,
    size: int,
    rng: np.random.Generator,
) -> SimulatedPeaks:
    """Clip intervals to the contig, sort them, and join those that overlap or touch.

    A joined peak keeps the first summit and the sum of heights.
    """
    start, end = np.clip(start, 0, size), np.clip(end, 0, size)
    signal = rng.integers(20, 101, size=len(start))
    summit = np.clip(summit, start, end - 1)
    kept = np.flatnonzero(end > start)
    order = kept[np.argsort(start[kept], kind="stable")]
    start, end, summit, signal = start[order], end[order], summit[order], signal[order]
    if not len(start):
        return SimulatedPeaks(start, end, summit, signal)
    reach = np.maximum.accumulate(end)
    first = np.flatnonzero(np.concatenate(([True], start[1:] > reach[:-1])))
    return SimulatedPeaks(
        start=start[first],
        end=np.maximum.reduceat(end, first),
        summit=summit[first],
        signal=np.add.reduceat(signal, first),
    )


_MARGIN = 150  # bp on either side of a site that must be known bases of the contig
_REACH = 30  # bp on either side of a variant that can contain an affected site


class Site(NamedTuple):
    """A site to which a variant can belong."""

    track: str
    start: int
    reverse: bool
    state: str
    """bound, closed or broken"""


class Variant(NamedTuple):
    """A variant with 0-based position; an indel is left-aligned with one anchoring base."""

    position: int
    ref: str
    alt: str
    track: str
    effect: str
    category: str
    site_start: int
    site_reverse: bool


def draw_variants(
    codes: Codes,
    placed: PlacedLoci,
    planted: Flags,
    sites: dict[str, FactorSites],
    parameters: Parameters,
    rng: np.random.Generator,
) -> list[Variant]:
    """Draw the variants of one contig, sorted by position; about half of them have an effect."""
    candidates = _candidates(codes, placed, sites, parameters)
    wanted = round(parameters.variants_per_megabase * len(codes) / 1e6)
    variants: list[Variant] = []
    taken = np.zeros(len(codes) + 1, dtype=bool)
    for index in rng.permutation(len(candidates)).tolist():
        if len(variants) == wanted:
            break
        variant = _mutate(codes, planted, candidates[index], parameters, rng)
        if variant is None:
            continue
        span = slice(
            max(0, variant.position - 10), variant.position + len(variant.ref) + 10
        )
        if taken[span].any():
            continue
        taken[variant.position : variant.position + len(variant.ref)] = True
        variants.append(variant)
    return sorted(variants)


def _candidates(
    codes: Codes,
    placed: PlacedLoci,
    sites: dict[str, FactorSites],
    parameters: Parameters,
) -> list[Site]:
    """Return planted sites away from others of their factor, so that no other track uses their bases.

    Sites that open an enhancer are excluded, because effects on chromatin are not simulated.
    """
    candidates = []
    lone = placed.site_kind == KIND["site"]
    for track in LONE_FACTORS:
        own = placed.motif == INDEX[track]
        found = sites[track]
        bound = dict(zip(found.start.tolist(), found.bound.tolist(), strict=True))
        broken = np.sort(placed.site_start[own & placed.site_broken])
        everything = np.sort(np.concatenate((found.start, broken)))
        apart = (
            np.diff(everything, prepend=-(10**9), append=10**12) > parameters.isolation
        )
        isolated = set(everything[apart[:-1] & apart[1:]].tolist())
        # DELTA opens nothing, so its sites in enhancers and promoters may be changed. Whether its repaired
        # sites would be bound depends on their chromatin, so its broken sites are excluded.
        usable = own & (~placed.site_broken if track == "DELTA" else lone)
        for row in np.flatnonzero(usable).tolist():
            start = int(placed.site_start[row])
            around = codes[max(0, start - _MARGIN) : start + _MARGIN]
            if start not in isolated or len(around) < 2 * _MARGIN or N_CODE in around:
                continue
            intact = "bound" if bound.get(start) else "closed"
            state = "broken" if placed.site_broken[row] else intact
            candidates.append(Site(track, start, bool(placed.site_reverse[row]), state))
    return sorted(candidates)


def _mutate(
    codes: Codes,
    planted: Flags,
    site: Site,
    parameters: Parameters,
    rng: np.random.Generator,
) -> Variant | None:
    """Return a variant of a site, or None if the drawn change does not have the intended effect."""
    motif = MOTIFS[INDEX[site.track]]
    indel = rng.random() < parameters.indel_fraction
    if site.state == "bound":
        category = str(
            rng.choice(["disrupts_site", "tolerated", "flanking"], p=[0.5, 0.2, 0.3])
        )
    elif site.state == "broken":
        category = str(rng.choice(["creates_site", "failed_repair"]))
    else:
        category = "closed_chromatin"
    if category == "flanking":
        change = _flank(codes, planted, site, motif, indel, rng)
    elif indel and category in ("disrupts_site", "closed_chromatin"):
        inside = site.start + int(rng.integers(3, motif.width - 3))
        change = _indel(codes, inside, rng)
    else:
        change = _snv(codes, site, motif, category, rng)
    if change is None:
        return None
    start, end, inserted = change
    effect = {"disrupts_site": "loss", "creates_site": "gain"}.get(category, "none")
    left, right = codes[max(0, start - _REACH) : start], codes[end : end + _REACH]
    middles = codes[start:end], np.array(inserted, dtype=np.uint8)
    before, after = (
        {
            one.name: sum(
                len(find_sites(one, text, turned)) for turned in (False, True)
            )
            for one in FACTORS
        }
        for text in [np.concatenate((left, middle, right)) for middle in middles]
    )
    # A variant removes a closed site, although it is not bound; nothing else may change.
    before[site.track] += (
        -1 if site.state == "closed" else {"loss": -1, "gain": 1, "none": 0}[effect]
    )
    if before != after:
        return None
    position, ref, alt = _record(codes, start, end, inserted)
    return Variant(
        position, ref, alt, site.track, effect, category, site.start, site.reverse
    )


def _snv(
    codes: Codes, site: Site, motif: Motif, category: str, rng: np.random.Generator
) -> tuple[int, int, list[int]] | None:
    """Return a substitution inside a site: (start, end, replacement) in forward-strand codes."""
    oriented = codes[site.start : site.start + motif.width]
    if site.reverse:
        oriented = COMPLEMENT[oriented[::-1]]
    matches = motif.allowed[np.arange(motif.width), oriented]
    if category in ("creates_site", "failed_repair"):
        columns = motif.strong[~matches[motif.strong]]
        if len(columns) != 1:
            return None
    else:
        columns = motif.weak if category == "tolerated" else motif.strong
    column = int(rng.choice(columns))
    options = np.flatnonzero(np.arange(4) != oriented[column])
    if category != "tolerated":
        options = options[
            motif.allowed[column, options] == (category == "creates_site")
        ]
    if not len(options):
        return None
    base = int(rng.choice(options))
    position = site.start + (motif.width - 1 - column if site.reverse else column)
    return position, position + 1, [int(COMPLEMENT[base]) if site.reverse else base]


def _flank(
    codes: Codes,
    planted: Flags,
    site: Site,
    motif: Motif,
    indel: bool,
    rng: np.random.Generator,
) -> tuple[int, int, list[int]] | None:
    """Return a substitution or indel outside the site that changes no planted base."""
    distance = int(rng.integers(15, 76))
    left = bool(rng.integers(2))
    position = site.start - distance if left else site.start + motif.width + distance
    if planted[position - 12 : position + 12].any():
        return None
    if indel:
        return _indel(codes, position, rng)
    base = (int(codes[position]) + int(rng.integers(1, 4))) % 4
    return position, position + 1, [base]


def _indel(
    codes: Codes, position: int, rng: np.random.Generator
) -> tuple[int, int, list[int]]:
    """Return a deletion or insertion of 1–3 bases at a position."""
    size = int(rng.integers(1, 4))
    if rng.random() < 0.5:
        return position, position + size, []
    return position, position, rng.integers(4, size=size).tolist()


def _record(
    codes: Codes, start: int, end: int, inserted: list[int]
) -> tuple[int, str, str]:
    """Return position, REF and ALT; indels are left-aligned as VCF requires."""
    if end - start == len(inserted):
        return start, _text(codes[start:end]), _text(inserted)
    if inserted:
        while inserted[-1] == codes[start - 1]:
            inserted = [inserted[-1], *inserted[:-1]]
            start -= 1
        anchor = _text(codes[start - 1 : start])
        return start - 1, anchor, anchor + _text(inserted)
    while codes[start - 1] == codes[end - 1]:
        start, end = start - 1, end - 1
    return start - 1, _text(codes[start - 1 : end]), _text(codes[start - 1 : start])


def _text(codes: Iterable[int]) -> str:
    return "".join("ACGTN"[code] for code in codes)
