"""Promoters with a positional grammar, and decoys that have the same elements but break it.

Two classes, each an ordered set of core elements at set distances from the TSS; most elements may be missing:

====== ============= ========== ===========
element start vs TSS TATA class DPE class
====== ============= ========== ===========
CAAT    −92 ± 8      25 %       70 %
GCBOX   −64 ± 6      90 %       90 %
TATA    −31 ± 2      100 %      –
INR     −3           100 %      100 %
DPE     +27 ± 1      –          95 %
====== ============= ========== ===========

A decoy draws its elements like a promoter and then has them in another order (rotated over the same
places), at other distances (every spacing changed by at least 10 bp), or on both strands (some, not all,
turned round).
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from bigbird_dna.simulate.motifs import CORE, INDEX, Flags, Parameters, Positions
from bigbird_dna.simulate.plan import KIND, WIDTHS, Plan

OFFSETS: Positions = np.array([-92, -64, -31, -3, 27], dtype=np.int64)
JITTER: Positions = np.array([8, 6, 2, 0, 1], dtype=np.int64)
PRESENCE = {"promoter-tata": (0.25, 0.90, 1.0, 1.0, 0.0), "promoter-dpe": (0.70, 0.90, 0.0, 1.0, 0.95)}
UPSTREAM_SITE = (-150, -116)
UPSTREAM_FACTORS = ("ALFA", "BRAVO", "CHARLIE", "DELTA")

_Change = Callable[["Cores", Positions, Positions, np.random.Generator], None]
"""Breaks the grammar of some loci (rows) that have the same elements (columns), in place."""

_CORE_WIDTHS = WIDTHS[: len(CORE)]


class Cores(NamedTuple):
    """Core elements of n loci: DPE class or not; (n, 5) presence, offset from the TSS, orientation."""

    dpe: Flags
    present: Flags
    offset: Positions
    reverse: Flags


def jitter(parameters: Parameters) -> Positions:
    """Largest deviation of each element from its place."""
    return np.asarray(np.rint(JITTER * parameters.spacing_jitter), np.int64)


def draw_cores(count: int, parameters: Parameters, rng: np.random.Generator) -> Cores:
    """Elements of `count` promoters."""
    dpe = rng.random(count) >= parameters.tata_fraction
    presence = np.array(list(PRESENCE.values()))[dpe.astype(np.int64)]
    present = rng.random(presence.shape) < presence
    spread = jitter(parameters)
    offset = OFFSETS + rng.integers(-spread, spread + 1, size=present.shape)
    return Cores(dpe, present, offset, np.zeros_like(present))


def promoters(count: int, parameters: Parameters, rng: np.random.Generator) -> Plan:
    """A plan of `count` promoters, some with a factor's site upstream of the core."""
    cores = draw_cores(count, parameters, rng)
    kind = np.where(cores.dpe, KIND["promoter-dpe"], KIND["promoter-tata"])
    owners = np.flatnonzero(rng.random(count) < parameters.promoter_factor_fraction)
    factors = np.array([INDEX[name] for name in UPSTREAM_FACTORS])
    motif = rng.choice(factors, size=len(owners))
    offset = rng.integers(*UPSTREAM_SITE, size=len(owners))
    reverse = rng.random(len(owners)) < 0.5
    return _plan(kind, cores, owners, motif, offset, reverse)


def decoys(count: int, parameters: Parameters, rng: np.random.Generator) -> Plan:
    """A plan of `count` decoys, each of one of three kinds."""
    cores = draw_cores(count, parameters, rng)
    mix = np.cumsum(parameters.decoy_mix)
    way = np.searchsorted(mix / mix[-1], rng.random(count), side="right")
    way = np.where(cores.present.sum(axis=1) < 2, 1, way)  # a lone element has no order
    changes: list[_Change] = [_rotate, partial(_respace, parameters.decoy_shift), _turn]
    # Loci with the same elements are changed together.
    for number, change in enumerate(changes):
        rows = np.flatnonzero(way == number)
        for pattern in np.unique(cores.present[rows], axis=0):
            alike = rows[(cores.present[rows] == pattern).all(axis=1)]
            change(cores, alike, np.flatnonzero(pattern), rng)
    kind = np.array([KIND["decoy-order"], KIND["decoy-distance"], KIND["decoy-strand"]])[way]
    none: Positions = np.empty(0, dtype=np.int64)
    return _plan(kind, cores, none, none, none, none.astype(bool))


def _rotate(cores: Cores, rows: Positions, columns: Positions, rng: np.random.Generator) -> None:
    """Move every element to another one's place."""
    places = cores.offset[np.ix_(rows, columns)]
    turns = rng.integers(1, len(columns), size=len(rows))
    moved = (np.arange(len(columns)) + turns[:, None]) % len(columns)
    cores.offset[np.ix_(rows, columns)] = np.take_along_axis(places, moved, axis=1)


def _respace(
    shift: tuple[int, int], cores: Cores, rows: Positions, columns: Positions, rng: np.random.Generator
) -> None:
    """Widen, or narrow where there is room, every spacing between neighbours."""
    low, high = shift
    places = cores.offset[np.ix_(rows, columns)]
    room = np.diff(places, axis=1) - _CORE_WIDTHS[columns[:-1]]
    wider = rng.integers(low, high + 1, size=room.shape)
    narrower = rng.integers(low, np.maximum(np.minimum(room, high), low) + 1)
    narrows = (room >= low) & (rng.random(room.shape) < 0.5)
    change = np.where(narrows, -narrower, wider)
    cores.offset[np.ix_(rows, columns[1:])] = places[:, 1:] + np.cumsum(change, axis=1)


def _turn(cores: Cores, rows: Positions, columns: Positions, rng: np.random.Generator) -> None:
    """Turn round at least one element and leave at least one."""
    shuffled = rng.permuted(np.tile(columns, (len(rows), 1)), axis=1)
    turned = rng.random(shuffled.shape) < 0.5
    turned[:, 0], turned[:, 1] = True, False
    cores.reverse[rows[:, None], shuffled] = turned


def _plan(
    kind: Positions, cores: Cores, owners: Positions, motif: Positions, offset: Positions, reverse: Flags
) -> Plan:
    """Core elements and further ones (of `owners`) as loci that begin at their first element."""
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
