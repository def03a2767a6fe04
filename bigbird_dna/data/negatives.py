"""Find negatives of promoters elsewhere on the genome.

`genomic` negatives are windows elsewhere in the same split with the same GC content, as in a genome scan.
They may be close to promoters, but must not have a TSS at the position where a promoter window has it.
`intergenic` negatives are such windows without coding bases and with all bases at a distance from every TSS.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from bigbird_dna.config.promoters import PLACED_SETS, PromoterWindowsConfig
from bigbird_dna.data.predictions import CODING, HALF, POSITIVE
from bigbird_dna.errors import DataError
from bigbird_dna.genome.annotation import read_coding
from bigbird_dna.genome.assembly import Assembly, warn_of_dropped
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import (
    NO_INTERVALS,
    Interval,
    Intervals,
    Locus,
    Positions,
    unknown_runs,
)
from bigbird_dna.genome.splits import SPLITS, Split, Splits

Coding = Mapping[str, Intervals]
"""Coding bases of a reference by contig, sorted and disjoint; contigs without coding bases may be missing."""


def coding_fractions(coding: Coding, rows: pd.DataFrame) -> npt.NDArray[np.float32]:
    """Return the coding fraction (N,) of each row of a table with columns contig, start and end."""
    found = np.zeros(len(rows), np.float32)
    starts, ends = (rows[name].to_numpy(np.int64) for name in ("start", "end"))
    for contig, places in rows.groupby("contig", observed=True).indices.items():
        start, end = starts[places], ends[places]
        found[places] = coding.get(str(contig), NO_INTERVALS).covered(start, end) / (
            end - start
        )
    return found


def open_coding(path: Path, contigs: Mapping[str, int], assembly: Assembly) -> Coding:
    """Read the coding bases of an annotation and place them on a reference.

    The annotation is GFF3 or GTF, plain or gzip; `contigs` are the lengths of the reference's contigs in bp.
    CDS on other contigs, and parts beyond the end of a contig, are skipped and counted in a warning.
    """
    path = Path(path)
    parts: list[tuple[str, Intervals]] = []
    absent: Counter[str] = Counter()
    beyond: Counter[str] = Counter()
    read = read_coding(path)
    for name, (starts, ends) in read.items():
        contig = assembly.match(name, contigs)
        if contig is None:
            absent[name] += len(starts)
            continue
        length = contigs[contig]
        if outside := int(np.count_nonzero(ends > length)):
            beyond[name] += outside
        on_contig = starts < length
        if on_contig.any():
            parts.append(
                (
                    contig,
                    Intervals(starts[on_contig], np.minimum(ends[on_contig], length)),
                )
            )
    if not parts:
        raise DataError(
            f"{path}: no CDS is on the reference: {assembly.explain_none(read, contigs)}"
        )
    where = str(path), "CDS", sum(len(starts) for starts, _ in read.values())
    warn_of_dropped(
        *where, absent, "are skipped: their contigs are not in the reference"
    )
    warn_of_dropped(
        *where, beyond, "extend beyond the end of their contig and are clipped"
    )
    return Intervals.joined(parts)


def coding_counts(rows: pd.DataFrame) -> dict[str, int]:
    """Count promoters, and negatives of each set with its own locations, that are more than half coding."""
    counts = {}
    for name in (POSITIVE, *PLACED_SETS):
        own = rows[rows["negative_set"] == name]
        if len(own):
            what = "promoters" if name == POSITIVE else f"{name} negatives"
            counts[f"{what} more than half coding"] = int((own[CODING] > HALF).sum())
    return counts


GC_BINS = 50
CANDIDATES_PER_NEGATIVE = 20
MAX_N = 0.1
"""Maximum fraction of N in a window."""


def draw_candidates(
    segment: Interval,
    sequence: str,
    positions: Positions,
    free: Intervals | None,
    config: PromoterWindowsConfig,
    count: int,
    rng: np.random.Generator,
) -> tuple[list[Interval], npt.NDArray[np.float64]]:
    """Draw up to `count` windows at random positions and strands of a segment with this `sequence`.

    Returns the windows and their GC fractions. Windows with an N are excluded. So are windows whose TSS
    position is closer than the configured minimum distance to one of the promoters' TSS `positions` on the
    contig, on either strand. With `free`, windows start only there, and as many as possible are drawn, up to
    `count`.
    """
    letters = np.frombuffer(sequence.encode(), dtype=np.uint8)
    upstream, downstream = config.sides
    size = upstream + downstream
    if len(letters) < size or count == 0:
        return [], np.empty(0)
    masked = _prefix_sum(letters == ord("N"))
    if free is not None:
        starts = free.draw(count, rng)
    elif _is_sparse(sequence):
        places = np.flatnonzero(masked[size:] == masked[:-size])
        starts = np.unique(rng.choice(places, count)) if len(places) else places
    else:
        starts = np.unique(rng.integers(0, len(letters) - size + 1, count))
    forward = rng.integers(0, 2, len(starts)).astype(bool)
    tss = segment.start + starts + np.where(forward, upstream, downstream - 1)
    # The distance to the nearest position is infinite if there are no positions.
    edges = np.concatenate([[-np.inf], np.sort(positions), [np.inf]])
    after = np.searchsorted(edges, tss)
    gaps = np.minimum(tss - edges[after - 1], edges[after] - tss)
    kept = (masked[starts + size] == masked[starts]) & (gaps >= config.min_tss_distance)
    starts, forward = starts[kept], forward[kept]
    strong = _prefix_sum((letters == ord("G")) | (letters == ord("C")))
    windows = [
        Interval(
            segment.contig,
            segment.start + first,
            segment.start + first + size,
            "+" if plus else "-",
        )
        for first, plus in zip(starts.tolist(), forward.tolist(), strict=True)
    ]
    return windows, (strong[starts + size] - strong[starts]) / size


def find_free_starts(
    sequence: str, coding: Intervals, positions: Positions, *, size: int, distance: int
) -> Intervals:
    """Return runs of starts of windows of `size` bp without N and coding bases, and away from every TSS.

    Each base of such a window is at least `distance` bp from each of the TSS `positions`, and no base is a
    TSS. All positions, and the `coding` intervals, are relative to the start of the sequence.
    """
    unknown = unknown_runs(sequence)
    away = max(distance, 1) - 1
    blocked = Intervals.union(
        np.concatenate([unknown.starts, coding.starts, positions - away]),
        np.concatenate([unknown.ends, coding.ends, positions + away + 1]),
    )
    firsts = np.maximum(np.append(0, blocked.ends), 0)
    ends = (
        np.minimum(np.append(blocked.starts, len(sequence)), len(sequence)) - size + 1
    )
    kept = ends > firsts
    return Intervals(firsts[kept], ends[kept])


def _is_sparse(sequence: str) -> bool:
    """Return whether a segment is mostly N, so that most random positions in it would be lost."""
    return 2 * sequence.count("N") > len(sequence)


def _prefix_sum(mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.int32]:
    sums = np.zeros(len(mask) + 1, dtype=np.int32)
    np.cumsum(mask, out=sums[1:])
    return sums


def gc_fraction(sequence: str) -> float:
    """Return the fraction of G and C among all letters of a sequence."""
    return (sequence.count("G") + sequence.count("C")) / len(sequence)


def match_gc(
    wanted: npt.NDArray[np.float64],
    offered: npt.NDArray[np.float64],
    rng: np.random.Generator,
) -> Positions:
    """Return, per wanted GC fraction, the index of an offered one in the same of 50 bins; none repeats.

    If a bin is empty, the nearest nonempty bin is used; −1 if all are empty.
    """
    shelves: list[list[int]] = [[] for _ in range(GC_BINS + 1)]
    for index in rng.permutation(len(offered)):
        shelves[int(offered[index] * GC_BINS)].append(int(index))
    chosen = np.full(len(wanted), -1, dtype=np.int64)
    for row in rng.permutation(len(wanted)):
        bin_ = int(wanted[row] * GC_BINS)
        filled = [b for b in range(GC_BINS + 1) if shelves[b]]
        if filled:
            chosen[row] = shelves[min(filled, key=lambda b: abs(b - bin_))].pop()
    return chosen


def find_negatives(
    reference: Reference,
    loci: Sequence[Locus],
    windows: Sequence[Interval],
    window_splits: Sequence[Split],
    splits: Splits,
    config: PromoterWindowsConfig,
    owners: Sequence[int],
    seed: tuple[int, int],
    coding: Coding | None = None,
) -> list[Interval | None]:
    """Return, for each owner, a window of similar GC content elsewhere in its split; None where none is found.

    `loci` are all promoters, including those without a window; `windows` and `window_splits` are those of
    promoters with a window, and owners are their indices. No window is used twice. With
    `coding`, windows are intergenic.
    """
    size, distance = config.length, config.min_tss_distance
    tss: defaultdict[str, list[int]] = defaultdict(list)
    for locus in loci:
        tss[locus.contig].append(locus.position)

    def read(segment: Interval) -> tuple[str, Positions, Intervals | None]:
        """Return a segment's sequence, TSS positions on its contig, and starts for intergenic windows."""
        sequence = reference.fetch(segment)
        positions = np.array(tss[segment.contig], np.int64)
        if coding is None:
            return sequence, positions, None
        here = coding.get(segment.contig, NO_INTERVALS).within(
            Intervals(np.array([segment.start]), np.array([segment.end]))
        )
        here = Intervals(here.starts - segment.start, here.ends - segment.start)
        free = find_free_starts(
            sequence, here, positions - segment.start, size=size, distance=distance
        )
        return sequence, positions, free

    found: list[Interval | None] = [None] * len(owners)
    for number, split in enumerate(SPLITS):
        rng = np.random.default_rng((*seed, number))
        members = [
            index for index, pair in enumerate(owners) if window_splits[pair] == split
        ]
        # Sequences are read twice, here and below, rather than kept in memory to save 20 s.
        bases: dict[Interval, int] = {}
        for segment in splits.intervals(split):
            sequence, _, free = read(segment)
            if free is not None:
                bases[segment] = free.bases
            else:
                unknown = sequence.count("N") if _is_sparse(sequence) else 0
                bases[segment] = len(sequence) - unknown
        total = sum(bases.values()) or 1  # a split without promoters may be all N
        candidates: list[Interval] = []
        gc = [np.empty(0)]
        for segment, count in bases.items():
            count = ceil(len(members) * CANDIDATES_PER_NEGATIVE * count / total)
            drawn, drawn_gc = draw_candidates(
                segment, *read(segment), config, count, rng
            )
            candidates += drawn
            gc.append(drawn_gc)
        pair_gc = {
            pair: gc_fraction(reference.fetch(windows[pair]))
            for pair in {owners[index] for index in members}
        }
        expected_gc = np.array([pair_gc[owners[index]] for index in members])
        chosen = match_gc(expected_gc, np.concatenate(gc), rng)
        for index, choice in zip(members, chosen.tolist(), strict=True):
            if choice >= 0:
                found[index] = candidates[choice]
    return found
