"""Tracks of three groups and the rules that make their peaks from sequence and loci.

TF tracks follow sequence alone: a factor binds where all strong positions of its motif match, on either
strand, whether the site was planted or arose by chance. DELTA asks for open chromatin besides. TBP sits on
the promoters of the TATA class, so it follows the grammar.

DHS tracks: OPEN1 are the CpG islands and the enhancers of type 1, OPEN2 the islands and the enhancers of
type 2. START and TBP need the grammar of promoters, the hardest thing there is to learn in this genome.

HM tracks are broad. Two of them, ACTIVE and SILENT, cover everything that lies 1.5–3.5 kb
(`Parameters.distal_range`) to either side of the middle of an activator or a silencer: what makes them is
outside a window of 1,000 bp, and always inside one of 8,000 bp, centred on the bin.
"""

from typing import NamedTuple

import numpy as np

from bigbird_dna.genome.sequence import Intervals
from bigbird_dna.simulate.motifs import FACTORS, Codes, Flags, Parameters, Positions, find_sites
from bigbird_dna.simulate.plan import PlacedLoci

TRACKS = {
    **{factor.name: ("TF", f"{factor.consensus}: {factor.description}") for factor in FACTORS},
    "TBP": ("TF", "promoters of the TATA class"),
    "OPEN1": ("DHS", "CpG islands and enhancers of type 1"),
    "OPEN2": ("DHS", "CpG islands and enhancers of type 2"),
    "START": ("HM", "from 200 bp before to 400 bp after the TSS of promoters of the DPE class"),
    "ENHANCER": ("HM", "400 bp to either side of the middle of enhancers"),
    "ACTIVE": ("HM", "1.5-3.5 kb to either side of an activator"),
    "SILENT": ("HM", "1.5-3.5 kb to either side of a silencer"),
}
OPEN_CHROMATIN_ONLY = ("DELTA",)
Spans = tuple[Positions, Positions, Positions]  # starts, ends, summits
_MIDDLE = {factor.name: factor.width // 2 for factor in FACTORS}
_SCAN = 4_000_000  # bp scanned at once, which bounds the memory on long contigs


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


def all_sites(codes: Codes, open_chromatin: list[SimulatedPeaks]) -> dict[str, FactorSites]:
    """Every factor's sites; `bound` is the truth behind its track."""
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
                [Intervals(peaks.start, peaks.end).overlap(middle, middle + 1) for peaks in open_chromatin]
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
    """Peaks of TBP and of the DHS and HM tracks, by the rules above."""
    low, high = parameters.distal_range
    flank = (low + high) // 2
    shores = np.array(islands, dtype=np.int64).reshape(-1, 2)
    island = (shores[:, 0], shores[:, 1], shores.mean(axis=1).astype(np.int64))

    def around(kinds: tuple[str, ...], before: int, after: int, wobble: int) -> Spans:
        """Intervals and summits around anchors, along the locus's strand, ends moved by up to `wobble`."""
        loci = placed.of(*kinds)
        minus = placed.minus[loci]
        anchor = placed.anchor[loci]
        start = anchor - np.where(minus, after, before)
        end = anchor + np.where(minus, before, after) + 1
        start = start + rng.integers(-wobble, wobble + 1, size=len(loci))
        end = end + rng.integers(-wobble, wobble + 1, size=len(loci))
        return start, end, anchor

    def away_from(kind: str) -> tuple[Spans, Spans]:
        """What lies at the distal range to the left and to the right of the loci's middles."""
        middle = placed.anchor[placed.of(kind)]
        return ((middle - high, middle - low, middle - flank), (middle + low, middle + high, middle + flank))

    def peaks(*parts: Spans) -> SimulatedPeaks:
        start, end, summit = (np.concatenate(column) for column in zip(*parts, strict=True))
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
    """Peaks of 200–280 bp around every factor's bound sites, joined where they overlap."""
    peaks = {}
    for name, found in sites.items():
        summit = found.start[found.bound] + _MIDDLE[name]
        start = summit - rng.integers(100, 141, size=len(summit))
        end = summit + rng.integers(100, 141, size=len(summit))
        peaks[name] = _merge(start, end, summit, length, rng)
    return peaks


def _merge(
    start: Positions, end: Positions, summit: Positions, size: int, rng: np.random.Generator
) -> SimulatedPeaks:
    """Cut intervals at the contig's ends, sort them, and join those that overlap or touch.

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
