"""Variants whose effect on a factor's track is known, beside matched ones without effect.

Each variant belongs to one site of one factor, and no site takes two. The effect is that on the factor's own
binding: `loss` and `gain` when the site stops or begins to be bound, `none` when nothing changes. What a
variant claims is checked by looking for all factors' sites in the reference and the alternative sequence
around it. Variants touch no planted base but those of their own site, so the other tracks stay as they are.

=========== ====================================================== ======
place       change                                                 effect
=========== ====================================================== ======
strong      SNV at a strong position, indel inside a bound site    loss
repair      SNV that mends a site broken at one strong position    gain
weak        SNV at a weak position of a bound site                 none
flank       SNV or indel 15–90 bp away from a bound site           none
unrepaired  SNV at the broken position that doesn't mend it        none
closed      as `strong`, of a site without binding, in closed
            chromatin (DELTA)                                      none
=========== ====================================================== ======
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from bigbird_dna.simulate.motifs import (
    COMPLEMENT,
    FACTORS,
    INDEX,
    MOTIFS,
    N_CODE,
    Codes,
    Flags,
    Motif,
    Parameters,
    find_sites,
)
from bigbird_dna.simulate.plan import KIND, LONE_FACTORS, PlacedLoci
from bigbird_dna.simulate.tracks import FactorSites

_MARGIN = 150  # bp either side of a site that must be on the contig and known
_REACH = 30  # bp either side of a variant that can hold a site it touches


class Site(NamedTuple):
    """One site a variant may belong to."""

    track: str
    start: int
    reverse: bool
    state: str
    """bound, closed or broken"""


class Variant(NamedTuple):
    """A variant with 0-based position, left-aligned with one anchoring base if it is an indel."""

    position: int
    ref: str
    alt: str
    track: str
    effect: str
    place: str
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
    """Variants of one contig, sorted by position; about half of them have an effect."""
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
        span = slice(max(0, variant.position - 10), variant.position + len(variant.ref) + 10)
        if taken[span].any():
            continue
        taken[variant.position : variant.position + len(variant.ref)] = True
        variants.append(variant)
    return sorted(variants)


def _candidates(
    codes: Codes, placed: PlacedLoci, sites: dict[str, FactorSites], parameters: Parameters
) -> list[Site]:
    """Sites away from others of their factor: planted ones, so that nothing else depends on their bases.

    Sites that open an enhancer are left out: what becomes of its chromatin isn't simulated.
    """
    candidates = []
    lone = placed.site_kind == KIND["site"]
    for track in LONE_FACTORS:
        own = placed.motif == INDEX[track]
        found = sites[track]
        bound = dict(zip(found.start.tolist(), found.bound.tolist(), strict=True))
        broken = np.sort(placed.site_start[own & placed.site_broken])
        everything = np.sort(np.concatenate((found.start, broken)))
        apart = np.diff(everything, prepend=-(10**9), append=10**12) > parameters.isolation
        isolated = set(everything[apart[:-1] & apart[1:]].tolist())
        # DELTA opens nothing, so its sites in enhancers and promoters may be touched; but whether its
        # mended sites would be bound depends on their chromatin, so its broken ones are left alone.
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
    codes: Codes, planted: Flags, site: Site, parameters: Parameters, rng: np.random.Generator
) -> Variant | None:
    """One variant of a site, or None where the draw doesn't do what it should."""
    motif = MOTIFS[INDEX[site.track]]
    indel = rng.random() < parameters.indel_fraction
    if site.state == "bound":
        place = str(rng.choice(["strong", "weak", "flank"], p=[0.5, 0.2, 0.3]))
    elif site.state == "broken":
        place = str(rng.choice(["repair", "unrepaired"]))
    else:
        place = "closed"
    if place == "flank":
        change = _flank(codes, planted, site, motif, indel, rng)
    elif indel and place in ("strong", "closed"):
        inside = site.start + int(rng.integers(3, motif.width - 3))
        change = _indel(codes, inside, rng)
    else:
        change = _snv(codes, site, motif, place, rng)
    if change is None:
        return None
    start, end, inserted = change
    effect = {"strong": "loss", "repair": "gain"}.get(place, "none")
    before, after = _site_counts(codes, start, end, inserted)
    # Bound or not, a closed site itself goes; nothing else may change.
    before[site.track] += -1 if site.state == "closed" else {"loss": -1, "gain": 1, "none": 0}[effect]
    if before != after:
        return None
    position, ref, alt = _record(codes, start, end, inserted)
    return Variant(position, ref, alt, site.track, effect, place, site.start, site.reverse)


def _snv(
    codes: Codes, site: Site, motif: Motif, place: str, rng: np.random.Generator
) -> tuple[int, int, list[int]] | None:
    """A substitution inside a site: (start, end, replacement) in forward-strand codes."""
    oriented = codes[site.start : site.start + motif.width]
    if site.reverse:
        oriented = COMPLEMENT[oriented[::-1]]
    matches = motif.allowed[np.arange(motif.width), oriented]
    if place in ("repair", "unrepaired"):
        columns = motif.strong[~matches[motif.strong]]
        if len(columns) != 1:
            return None
    else:
        columns = motif.weak if place == "weak" else motif.strong
    column = int(rng.choice(columns))
    options = np.flatnonzero(np.arange(4) != oriented[column])
    if place != "weak":
        options = options[motif.allowed[column, options] == (place == "repair")]
    if not len(options):
        return None
    base = int(rng.choice(options))
    position = site.start + (motif.width - 1 - column if site.reverse else column)
    return position, position + 1, [int(COMPLEMENT[base]) if site.reverse else base]


def _flank(
    codes: Codes, planted: Flags, site: Site, motif: Motif, indel: bool, rng: np.random.Generator
) -> tuple[int, int, list[int]] | None:
    """A substitution or indel outside the site that touches no planted base."""
    distance = int(rng.integers(15, 76))
    left = bool(rng.integers(2))
    position = site.start - distance if left else site.start + motif.width + distance
    if planted[position - 12 : position + 12].any():
        return None
    if indel:
        return _indel(codes, position, rng)
    base = (int(codes[position]) + int(rng.integers(1, 4))) % 4
    return position, position + 1, [base]


def _indel(codes: Codes, position: int, rng: np.random.Generator) -> tuple[int, int, list[int]]:
    """A deletion or insertion of 1–3 bases at a position."""
    size = int(rng.integers(1, 4))
    if rng.random() < 0.5:
        return position, position + size, []
    return position, position, rng.integers(4, size=size).tolist()


def _site_counts(
    codes: Codes, start: int, end: int, inserted: list[int]
) -> tuple[dict[str, int], dict[str, int]]:
    """How many sites each factor has around a variant, without and with it."""
    left, right = codes[max(0, start - _REACH) : start], codes[end : end + _REACH]
    counts = []
    for middle in (codes[start:end], np.array(inserted, dtype=np.uint8)):
        sequence = np.concatenate((left, middle, right))
        counts.append(
            {
                motif.name: len(find_sites(motif, sequence)) + len(find_sites(motif, sequence, True))
                for motif in FACTORS
            }
        )
    return counts[0], counts[1]


def _record(codes: Codes, start: int, end: int, inserted: list[int]) -> tuple[int, str, str]:
    """Position, REF and ALT; indels are left-aligned as VCF asks."""
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
