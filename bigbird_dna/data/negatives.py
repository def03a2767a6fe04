"""Find negatives of promoters elsewhere on the genome.

`genomic` negatives are windows elsewhere in the same split with the same GC content, as in a genome scan.
They may be close to promoters, but must not have a TSS at the position where a promoter window has it.
"""

from collections import defaultdict
from collections.abc import Sequence
from math import ceil

import numpy as np
import numpy.typing as npt

from bigbird_dna.config.promoters import PromoterWindowsConfig
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import Interval, Locus, Strand
from bigbird_dna.genome.splits import SPLITS, Split, Splits

GC_BINS = 50
CANDIDATES_PER_NEGATIVE = 20
MAX_N = 0.1
"""Maximum fraction of N in a window."""


def find_negatives(
    reference: Reference,
    loci: Sequence[Locus],
    windows: Sequence[Interval],
    window_splits: Sequence[Split],
    splits: Splits,
    config: PromoterWindowsConfig,
    owners: Sequence[int],
    seed: tuple[int, int],
) -> list[Interval | None]:
    """Return, for each owner, a window of similar GC content elsewhere in its split; None if there is none.

    `loci` are all promoters, including those without a window; `windows` and `window_splits` are those of
    promoters with a window, and owners are their indices. No window is used twice.
    """
    positions: defaultdict[str, list[int]] = defaultdict(list)
    for locus in loci:
        positions[locus.contig].append(locus.position)

    negatives: list[Interval | None] = [None] * len(owners)
    for number, split in enumerate(SPLITS):
        rng = np.random.default_rng((*seed, number))
        segments = splits.intervals(split)
        members = [
            index for index, pair in enumerate(owners) if window_splits[pair] == split
        ]

        # Sequences are read twice rather than kept in memory.
        bases = []
        for segment in segments:
            unknown = reference.fetch(segment).count("N")
            is_sparse = 2 * unknown > len(segment)
            bases.append(len(segment) - unknown if is_sparse else len(segment))

        total = sum(bases) or 1  # a split without promoters may be all N

        candidates: list[Interval] = []
        gc = [np.empty(0)]
        for segment, size in zip(segments, bases, strict=True):
            count = ceil(len(members) * CANDIDATES_PER_NEGATIVE * size / total)
            tss = np.array(positions[segment.contig], np.int64)
            some, some_gc = draw_candidates(
                segment, reference.fetch(segment), tss, config, count, rng
            )
            candidates += some
            gc.append(some_gc)

        expected_gc = []
        for index in members:
            sequence = reference.fetch(windows[owners[index]])
            strong = sequence.count("G") + sequence.count("C")
            expected_gc.append(strong / len(sequence))

        chosen = match_gc(np.array(expected_gc), np.concatenate(gc), rng)
        for index, choice in zip(members, chosen.tolist(), strict=True):
            if choice >= 0:
                negatives[index] = candidates[choice]

    return negatives


def draw_candidates(
    segment: Interval,
    sequence: str,
    tss: npt.NDArray[np.int64],
    config: PromoterWindowsConfig,
    count: int,
    rng: np.random.Generator,
) -> tuple[list[Interval], npt.NDArray[np.float64]]:
    """Draw up to `count` windows at random positions and strands of a segment with this `sequence`.

    Returns the windows and their GC fractions. Windows with an N are excluded, and windows whose TSS position
    is closer than the configured minimum distance to one of the positions `tss` on the contig, on either
    strand.
    """
    upstream, downstream = config.sides
    size = upstream + downstream
    if len(sequence) < size or count == 0:
        return [], np.empty(0)

    letters = np.frombuffer(sequence.encode(), dtype=np.uint8)
    unknown_before = _counts_before(letters == ord("N"))
    strong_before = _counts_before((letters == ord("G")) | (letters == ord("C")))

    if 2 * unknown_before[-1] > len(letters):  # most random positions would be lost
        starts = np.flatnonzero(unknown_before[size:] == unknown_before[:-size])
        if len(starts):
            starts = np.unique(rng.choice(starts, count))
    else:
        starts = np.unique(rng.integers(0, len(letters) - size + 1, count))

    is_forward = rng.integers(0, 2, len(starts)).astype(bool)

    # The distance to the nearest TSS is infinite if there are none.
    positions = segment.start + starts + np.where(is_forward, upstream, downstream - 1)
    edges = np.concatenate([[-np.inf], np.sort(tss), [np.inf]])
    after = np.searchsorted(edges, positions)
    gaps = np.minimum(positions - edges[after - 1], edges[after] - positions)
    is_known = unknown_before[starts + size] == unknown_before[starts]
    chosen = is_known & (gaps >= config.min_tss_distance)
    starts, is_forward = starts[chosen], is_forward[chosen]

    windows = []
    for start, forward in zip(starts.tolist(), is_forward.tolist(), strict=True):
        first = segment.start + start
        strand: Strand = "+" if forward else "-"
        windows.append(Interval(segment.contig, first, first + size, strand))

    return windows, (strong_before[starts + size] - strong_before[starts]) / size


def _counts_before(mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.int32]:
    """Return the number of true values before each position, and before the end, (L + 1,)."""
    return np.concatenate([[0], np.cumsum(mask)]).astype(np.int32)


def match_gc(
    wanted: npt.NDArray[np.float64],
    offered: npt.NDArray[np.float64],
    rng: np.random.Generator,
) -> npt.NDArray[np.int64]:
    """Return, per wanted GC fraction, the index of an offered one in the same of 50 bins; none repeats.

    If a bin is empty, the nearest nonempty bin is used; −1 if all are empty.
    """
    bins: list[list[int]] = [[] for _ in range(GC_BINS + 1)]
    for index in rng.permutation(len(offered)):
        bins[int(offered[index] * GC_BINS)].append(int(index))

    chosen = np.full(len(wanted), -1, dtype=np.int64)
    for row in rng.permutation(len(wanted)):
        target = int(wanted[row] * GC_BINS)
        filled = [number for number in range(GC_BINS + 1) if bins[number]]
        if filled:
            nearest = min(filled, key=lambda number: abs(number - target))
            chosen[row] = bins[nearest].pop()

    return chosen
