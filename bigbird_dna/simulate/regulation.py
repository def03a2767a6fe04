"""Sites of the factors away from promoters: enhancers, activators, silencers and lone sites."""

import numpy as np

from bigbird_dna.simulate.motifs import INDEX, Flags, Positions
from bigbird_dna.simulate.parameters import Parameters
from bigbird_dna.simulate.plan import KIND, WIDTHS, Plan

SLOT = 60  # bp an enhancer gives each of its sites
DISTAL_SLOT = 45  # bp an activator or silencer gives each of its sites
LONE_FACTORS = ("ALFA", "BRAVO", "CHARLIE", "DELTA")
# The factor that opens an enhancer has two sites in it; the others are drawn.
ENHANCERS = {
    "enhancer-1": ("ALFA", ("ALFA", "CHARLIE", "DELTA")),
    "enhancer-2": ("BRAVO", ("BRAVO", "CHARLIE", "DELTA")),
}
DISTAL = {"activator": "ECHO", "silencer": "FOXTROT"}


def enhancers(count: int, parameters: Parameters, rng: np.random.Generator) -> Plan:
    """Clusters of sites of several factors, half of either type."""
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


def distal(name: str, count: int, parameters: Parameters, rng: np.random.Generator) -> Plan:
    """Activators or silencers: several sites of one factor."""
    motif = np.full((count, parameters.distal_copies), INDEX[DISTAL[name]])
    return _clusters(np.full(count, KIND[name]), motif, DISTAL_SLOT, rng)


def lone_sites(factor: str, count: int, parameters: Parameters, rng: np.random.Generator) -> Plan:
    """Single sites of one factor, intact or broken at one strong position."""
    motif = np.full((count, 1), INDEX[factor])
    width = int(WIDTHS[INDEX[factor]])
    broken = rng.random(count) >= parameters.site_intact
    return _clusters(np.full(count, KIND["site"]), motif, width, rng, broken)


def _clusters(
    kind: Positions, motif: Positions, slot: int, rng: np.random.Generator, broken: Flags | None = None
) -> Plan:
    """Loci of (n, s) sites, each at random in its slot of `slot` bp and on either strand."""
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
