"""The layout of a demo genome: loci made of motif instances, placed along a contig without overlap.

A locus has a width and elements at offsets inside it, in its own orientation. `place` assigns each locus a
position on the contig, and `plant` writes the instances of the elements into the sequence.

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
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.simulate.sequence import (
    COMPLEMENT,
    CORE,
    INDEX,
    MOTIFS,
    Codes,
    Flags,
    Parameters,
    Positions,
    break_sites,
    sample_sites,
)

KINDS = (
    "promoter-tata",
    "promoter-dpe",
    "decoy-order",
    "decoy-distance",
    "decoy-strand",
    "enhancer-1",
    "enhancer-2",
    "activator",
    "silencer",
    "site",
    "gap",
)
KIND = {name: index for index, name in enumerate(KINDS)}

_NONE: Positions = np.empty(0, np.int64)
WIDTHS: Positions = np.array([motif.width for motif in MOTIFS], dtype=np.int64)


class Plan(NamedTuple):
    """Loci (arrays of one length) and their elements (arrays of another); offsets are from the locus's start.

    `anchor` is the offset of the TSS in promoters, of the apparent TSS in decoys, and of the center in other
    loci. `locus` is an element's index into the loci; `reverse` and `offset` are in the locus's orientation.
    """

    kind: Positions
    width: Positions
    anchor: Positions
    locus: Positions = _NONE
    motif: Positions = _NONE
    offset: Positions = _NONE
    reverse: Flags = _NONE > 0
    broken: Flags = _NONE > 0


class PlacedLoci(NamedTuple):
    """A plan on a contig in forward-strand coordinates; loci are sorted, elements (`site_…`) are not."""

    kind: Positions
    start: Positions
    end: Positions
    anchor: Positions
    minus: Flags
    motif: Positions
    site_start: Positions
    site_reverse: Flags
    site_broken: Flags
    site_kind: Positions

    def of(self, *kinds: str) -> NDArray[np.int64]:
        """Return the indices of the loci of the given kinds."""
        return np.flatnonzero(np.isin(self.kind, [KIND[name] for name in kinds]))


def gaps(lengths: Positions) -> Plan:
    """Return loci without elements, for runs of N."""
    return Plan(np.full(len(lengths), KIND["gap"]), lengths, lengths // 2)


def place(plan: Plan, length: int, rng: np.random.Generator) -> PlacedLoci:
    """Place the loci in random order and orientation along a contig, with exponential gaps between them."""
    count = len(plan.kind)
    free = length - int(plan.width.sum())
    if free < 0:
        raise ValueError(
            f"loci of {plan.width.sum()} bp do not fit into a contig of {length} bp"
        )
    order = rng.permutation(count)
    minus = rng.random(count) < 0.5
    shares = np.cumsum(rng.exponential(size=count + 1))
    before = (shares[:-1] / shares[-1] * free).astype(np.int64)
    taken = np.concatenate(([0], np.cumsum(plan.width[order])[:-1]))
    start = np.empty(count, dtype=np.int64)
    start[order] = before + taken
    end = start + plan.width
    anchor = np.where(minus, end - 1 - plan.anchor, start + plan.anchor)

    owner_minus = minus[plan.locus]
    width = WIDTHS[plan.motif]
    site_start = np.where(
        owner_minus,
        end[plan.locus] - plan.offset - width,
        start[plan.locus] + plan.offset,
    )
    return PlacedLoci(
        kind=plan.kind[order],
        start=start[order],
        end=end[order],
        anchor=anchor[order],
        minus=minus[order],
        motif=plan.motif,
        site_start=site_start,
        site_reverse=plan.reverse ^ owner_minus,
        site_broken=plan.broken,
        site_kind=plan.kind[plan.locus],
    )


def plant(
    codes: Codes, placed: PlacedLoci, parameters: Parameters, rng: np.random.Generator
) -> Flags:
    """Write an instance of each element into `codes`; return flags that mark the written bases."""
    written = np.zeros(len(codes), dtype=bool)
    for index, motif in enumerate(MOTIFS):
        rows = np.flatnonzero(placed.motif == index)
        sites = sample_sites(motif, parameters, rng, len(rows))
        broken = placed.site_broken[rows]
        sites[broken] = break_sites(motif, sites[broken], rng)
        reverse = placed.site_reverse[rows]
        sites[reverse] = COMPLEMENT[sites[reverse, ::-1]]
        where = placed.site_start[rows, None] + np.arange(motif.width)
        codes[where] = sites
        written[where] = True
    return written


SLOT = 60  # bp per site of an enhancer
DISTAL_SLOT = 45  # bp per site of an activator or silencer
LONE_FACTORS = ("ALFA", "BRAVO", "CHARLIE", "DELTA")
# The factor that opens an enhancer has two sites in it; the other sites are drawn.
ENHANCERS = {
    "enhancer-1": ("ALFA", ("ALFA", "CHARLIE", "DELTA")),
    "enhancer-2": ("BRAVO", ("BRAVO", "CHARLIE", "DELTA")),
}
DISTAL = {"activator": "ECHO", "silencer": "FOXTROT"}


def enhancers(count: int, parameters: Parameters, rng: np.random.Generator) -> Plan:
    """Return clusters of sites of several factors, half of each type."""
    sites = parameters.enhancer_sites
    kinds = rng.integers(2, size=count)
    motif = np.empty((count, sites), dtype=np.int64)
    for index, (opener, others) in enumerate(ENHANCERS.values()):
        rows = np.flatnonzero(kinds == index)
        drawn = rng.choice([INDEX[name] for name in others], size=(len(rows), sites))
        drawn[:, :2] = INDEX[opener]
        motif[rows] = rng.permuted(drawn, axis=1)
    kind = np.array([KIND[name] for name in ENHANCERS])[kinds]
    return _clusters(kind, motif, SLOT, rng)


def distal(
    name: str, count: int, parameters: Parameters, rng: np.random.Generator
) -> Plan:
    """Return activators or silencers: several sites of one factor."""
    motif = np.full((count, parameters.distal_copies), INDEX[DISTAL[name]])
    return _clusters(np.full(count, KIND[name]), motif, DISTAL_SLOT, rng)


def lone_sites(
    factor: str, count: int, parameters: Parameters, rng: np.random.Generator
) -> Plan:
    """Return isolated sites of one factor, intact or broken at one strong position."""
    motif = np.full((count, 1), INDEX[factor])
    width = int(WIDTHS[INDEX[factor]])
    broken = rng.random(count) >= parameters.site_intact
    return _clusters(np.full(count, KIND["site"]), motif, width, rng, broken)


def _clusters(
    kind: Positions,
    motif: Positions,
    slot: int,
    rng: np.random.Generator,
    broken: Flags | None = None,
) -> Plan:
    """Return loci of (n, s) sites, each at random in its slot of `slot` bp and on either strand."""
    count, sites = motif.shape
    room = slot - WIDTHS[motif]
    offset = np.arange(sites) * slot + rng.integers(0, room + 1)
    flat = motif.reshape(-1)
    return Plan(
        kind=kind,
        width=np.full(count, sites * slot),
        anchor=np.full(count, sites * slot // 2),
        locus=np.repeat(np.arange(count), sites),
        motif=flat,
        offset=offset.reshape(-1),
        reverse=rng.random(len(flat)) < 0.5,
        broken=np.zeros(len(flat), dtype=bool) if broken is None else broken,
    )


OFFSETS: Positions = np.array([-92, -64, -31, -3, 27], dtype=np.int64)
JITTER: Positions = np.array([8, 6, 2, 0, 1], dtype=np.int64)
PRESENCE = {
    "promoter-tata": (0.25, 0.90, 1.0, 1.0, 0.0),
    "promoter-dpe": (0.70, 0.90, 0.0, 1.0, 0.95),
}
UPSTREAM_SITE = (-150, -116)
UPSTREAM_FACTORS = ("ALFA", "BRAVO", "CHARLIE", "DELTA")

_CORE_WIDTHS = WIDTHS[: len(CORE)]


class Cores(NamedTuple):
    """Core elements of n loci: DPE class or not; (n, 5) presence, offset from the TSS, orientation."""

    dpe: Flags
    present: Flags
    offset: Positions
    reverse: Flags


def jitter(parameters: Parameters) -> Positions:
    """Return the largest deviation of each element from its position in the grammar."""
    return np.asarray(np.rint(JITTER * parameters.spacing_jitter), np.int64)


def draw_cores(count: int, parameters: Parameters, rng: np.random.Generator) -> Cores:
    """Draw the elements of `count` promoters."""
    dpe = rng.random(count) >= parameters.tata_fraction
    presence = np.array(list(PRESENCE.values()))[dpe.astype(np.int64)]
    present = rng.random(presence.shape) < presence
    spread = jitter(parameters)
    offset = OFFSETS + rng.integers(-spread, spread + 1, size=present.shape)
    return Cores(dpe, present, offset, np.zeros_like(present))


def promoters(count: int, parameters: Parameters, rng: np.random.Generator) -> Plan:
    """Return a plan of `count` promoters, some with a factor's site upstream of the core."""
    cores = draw_cores(count, parameters, rng)
    kind = np.where(cores.dpe, KIND["promoter-dpe"], KIND["promoter-tata"])
    owners = np.flatnonzero(rng.random(count) < parameters.promoter_factor_fraction)
    factors = np.array([INDEX[name] for name in UPSTREAM_FACTORS])
    motif = rng.choice(factors, size=len(owners))
    offset = rng.integers(*UPSTREAM_SITE, size=len(owners))
    reverse = rng.random(len(owners)) < 0.5
    return _plan(kind, cores, owners, motif, offset, reverse)


def decoys(count: int, parameters: Parameters, rng: np.random.Generator) -> Plan:
    """Return a plan of `count` decoys, each of one of three kinds."""
    cores = draw_cores(count, parameters, rng)
    mix = np.cumsum(parameters.decoy_mix)
    way = np.searchsorted(mix / mix[-1], rng.random(count), side="right")
    way = np.where(
        cores.present.sum(axis=1) < 2, 1, way
    )  # a single element has no order
    # Loci with the same elements are processed together.
    for number in range(3):
        rows = np.flatnonzero(way == number)
        for pattern in np.unique(cores.present[rows], axis=0):
            alike = rows[(cores.present[rows] == pattern).all(axis=1)]
            columns = np.flatnonzero(pattern)
            if number == 0:
                _rotate(cores, alike, columns, rng)
            elif number == 1:
                _respace(cores, alike, columns, parameters.decoy_shift, rng)
            else:
                _turn(cores, alike, columns, rng)
    kind = np.array(
        [KIND["decoy-order"], KIND["decoy-distance"], KIND["decoy-strand"]]
    )[way]
    return _plan(kind, cores)


def _rotate(
    cores: Cores, rows: Positions, columns: Positions, rng: np.random.Generator
) -> None:
    """Move each element to the position of another one."""
    places = cores.offset[np.ix_(rows, columns)]
    turns = rng.integers(1, len(columns), size=len(rows))
    moved = (np.arange(len(columns)) + turns[:, None]) % len(columns)
    cores.offset[np.ix_(rows, columns)] = np.take_along_axis(places, moved, axis=1)


def _respace(
    cores: Cores,
    rows: Positions,
    columns: Positions,
    shift: tuple[int, int],
    rng: np.random.Generator,
) -> None:
    """Increase, or decrease where possible, each spacing between adjacent elements."""
    low, high = shift
    places = cores.offset[np.ix_(rows, columns)]
    room = np.diff(places, axis=1) - _CORE_WIDTHS[columns[:-1]]
    wider = rng.integers(low, high + 1, size=room.shape)
    narrower = rng.integers(low, np.maximum(np.minimum(room, high), low) + 1)
    narrows = (room >= low) & (rng.random(room.shape) < 0.5)
    change = np.where(narrows, -narrower, wider)
    cores.offset[np.ix_(rows, columns[1:])] = places[:, 1:] + np.cumsum(change, axis=1)


def _turn(
    cores: Cores, rows: Positions, columns: Positions, rng: np.random.Generator
) -> None:
    """Reverse at least one element, and keep at least one."""
    shuffled = rng.permuted(np.tile(columns, (len(rows), 1)), axis=1)
    turned = rng.random(shuffled.shape) < 0.5
    turned[:, 0], turned[:, 1] = True, False
    cores.reverse[rows[:, None], shuffled] = turned


def _plan(
    kind: Positions,
    cores: Cores,
    owners: Positions = _NONE,
    motif: Positions = _NONE,
    offset: Positions = _NONE,
    reverse: Flags = _NONE > 0,
) -> Plan:
    """Return core elements and additional ones (of `owners`) as loci that start at their first element."""
    count = len(kind)
    locus, column = np.nonzero(cores.present)
    locus = np.concatenate((locus, owners))
    motifs = np.concatenate((column, motif))
    offsets = np.concatenate((cores.offset[cores.present], offset))
    left = np.zeros(count, dtype=np.int64)
    right = np.ones(count, dtype=np.int64)
    np.minimum.at(left, locus, offsets)
    np.maximum.at(right, locus, offsets + WIDTHS[motifs])
    return Plan(
        kind=kind,
        width=right - left,
        anchor=-left,
        locus=locus,
        motif=motifs,
        offset=offsets - left[locus],
        reverse=np.concatenate((cores.reverse[cores.present], reverse)),
        broken=np.zeros(len(locus), dtype=bool),
    )


def plan_contig(length: int, parameters: Parameters, rng: np.random.Generator) -> Plan:
    """Return all loci of a contig."""
    count = max(1, round(length / parameters.promoter_every))
    runs = max(1, round(length / parameters.gap_every))
    longest = max(min(parameters.gap_length[1], length // 50), 101)
    sites = round(length / parameters.site_every)
    plans = [
        gaps(rng.integers(parameters.gap_length[0], longest, size=runs)),
        promoters(count, parameters, rng),
        decoys(round(count * parameters.decoys_per_promoter), parameters, rng),
        enhancers(round(length / parameters.enhancer_every), parameters, rng),
        distal(
            "activator", round(length / parameters.activator_every), parameters, rng
        ),
        distal("silencer", round(length / parameters.silencer_every), parameters, rng),
        *(lone_sites(factor, sites, parameters, rng) for factor in LONE_FACTORS),
    ]
    shifts = np.cumsum([0] + [len(plan.kind) for plan in plans[:-1]])
    moved = [
        plan._replace(locus=plan.locus + shift)
        for plan, shift in zip(plans, shifts, strict=True)
    ]
    return Plan(*map(np.concatenate, zip(*moved, strict=True)))


def draw_islands(
    placed: PlacedLoci, length: int, parameters: Parameters, rng: np.random.Generator
) -> list[tuple[int, int]]:
    """Return CpG islands: over the TSS of some DPE-class promoters, and orphans at random positions."""
    dpe = placed.anchor[placed.of("promoter-dpe")]
    chosen = dpe[rng.random(len(dpe)) < parameters.island_fraction]
    orphans = rng.integers(length, size=round(length / parameters.orphan_island_every))
    center = np.concatenate((chosen, orphans))
    low, high = parameters.island_length
    size = rng.integers(low, high + 1, size=len(center))
    start = np.clip(
        center - (size * rng.uniform(0.3, 0.7, size=len(center))).astype(int), 0, None
    )
    end = np.minimum(start + size, length)
    return list(zip(start.tolist(), end.tolist(), strict=True))
