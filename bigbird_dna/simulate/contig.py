"""One contig from its length and seed: sequence, loci, tracks and variants."""

from dataclasses import dataclass

import numpy as np

from bigbird_dna.simulate.composition import background, lay_islands
from bigbird_dna.simulate.motifs import N_CODE, Codes, Flags
from bigbird_dna.simulate.parameters import Parameters
from bigbird_dna.simulate.plan import Placed, Plan, gaps, join, place, plant
from bigbird_dna.simulate.promoters import decoys, promoters
from bigbird_dna.simulate.regulation import LONE_FACTORS, distal, enhancers, lone_sites
from bigbird_dna.simulate.repeats import lay_repeats
from bigbird_dna.simulate.tracks import Peaks, all_sites, chromatin_peaks, factor_peaks
from bigbird_dna.simulate.variants import Variant, draw_variants


@dataclass(frozen=True)
class Contig:
    """A simulated contig with its truth; `masked` marks soft-masked bases."""

    name: str
    codes: Codes
    masked: Flags
    placed: Placed
    islands: list[tuple[int, int]]
    repeats: list[tuple[int, int, int, bool]]
    peaks: dict[str, Peaks]
    variants: list[Variant]


def simulate_contig(
    name: str, length: int, families: list[Codes], parameters: Parameters, seed: np.random.SeedSequence
) -> Contig:
    """Draw a contig; every stage has a random stream of its own, so changing one leaves the others."""
    streams = [np.random.default_rng(child) for child in seed.spawn(7)]
    planning, sequence, repeating, islanding, planting, peaking, varying = streams

    placed = place(_plan(length, parameters, planning), length, planning)
    codes = background(length, parameters, sequence)
    repeats = lay_repeats(codes, families, parameters, repeating)
    islands = _islands(placed, length, parameters, islanding)
    lay_islands(codes, islands, parameters, islanding)
    masked = np.zeros(length, dtype=bool)
    for start, end, _, _ in repeats:
        masked[start:end] = True
    for start, end in islands:
        masked[start:end] = False
    for locus in placed.of("gap").tolist():
        codes[placed.start[locus] : placed.end[locus]] = N_CODE
        masked[placed.start[locus] : placed.end[locus]] = False
    planted = plant(codes, placed, parameters, planting)

    peaks = chromatin_peaks(placed, islands, length, parameters, peaking)
    sites = all_sites(codes, [peaks["OPEN1"], peaks["OPEN2"]])
    peaks |= factor_peaks(sites, length, peaking)
    variants = draw_variants(codes, placed, planted, sites, parameters, varying)
    return Contig(name, codes, masked, placed, islands, repeats, peaks, variants)


def _plan(length: int, parameters: Parameters, rng: np.random.Generator) -> Plan:
    """All loci of a contig."""
    count = max(1, round(length / parameters.promoter_every))
    runs = max(1, round(length / parameters.gap_every))
    longest = min(parameters.gap_length[1], length // 50)
    lengths = rng.integers(parameters.gap_length[0], max(longest, 101), size=runs)
    return join(
        [
            gaps(lengths),
            promoters(count, parameters, rng),
            decoys(round(count * parameters.decoys_per_promoter), parameters, rng),
            enhancers(round(length / parameters.enhancer_every), parameters, rng),
            distal("activator", round(length / parameters.activator_every), parameters, rng),
            distal("silencer", round(length / parameters.silencer_every), parameters, rng),
            *(
                lone_sites(factor, round(length / parameters.site_every), parameters, rng)
                for factor in LONE_FACTORS
            ),
        ]
    )


def _islands(
    placed: Placed, length: int, parameters: Parameters, rng: np.random.Generator
) -> list[tuple[int, int]]:
    """CpG islands: over the TSS of some DPE-class promoters, and as many again as orphans anywhere."""
    dpe = placed.anchor[placed.of("promoter-dpe")]
    chosen = dpe[rng.random(len(dpe)) < parameters.island_fraction]
    orphans = rng.integers(length, size=round(length / parameters.orphan_island_every))
    centre = np.concatenate((chosen, orphans))
    low, high = parameters.island_length
    size = rng.integers(low, high + 1, size=len(centre))
    start = np.clip(centre - (size * rng.uniform(0.3, 0.7, size=len(centre))).astype(int), 0, None)
    end = np.minimum(start + size, length)
    return list(zip(start.tolist(), end.tolist(), strict=True))
