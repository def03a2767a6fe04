"""Negative sets of promoter windows.

Negatives for promoter windows: derived from a positive, or found elsewhere in the genome.

Oubounyt et al. (2019) cut a positive into 20 parts, keep 8 in place and "substitute" 12. Two readings
circulate and are different tasks: `substituted` fills the 12 parts with random bases, `permuted` shuffles
the 12 parts among themselves. `genomic` takes windows elsewhere on the same split with the same GC content,
as a scan of a genome meets them: beside promoters too, but not with a TSS where the window looks for it.
`intergenic` takes such windows that have no coding base and are, with all their bases, away from every TSS.
`dinucleotide_shuffled` and `upstream` are in modules of their own.

A sequence in another order that has the same dinucleotides, each exactly as often.

A sequence is a walk along edges from letter to letter, and any walk that uses the same edges has the same
dinucleotides, first and last letter. Altschul & Erickson (Molecular Biology and Evolution 2:526, 1985): draw
for each letter the edge that leaves it last, until these edges lead from every letter to the last one; put
the other edges of each letter into random order; walk. All such sequences are equally likely.

Negatives from upstream of promoters: the same neighbourhood, and no promoter.

A negative is as long as its promoter's window and is read in the same direction. It is the nearest window
upstream of that which shares no base with the window of any promoter, on either strand, nor with a negative
that was found before, and which lies in the promoter's split.
"""

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from bigbird_dna.genome.sequence import Interval

PARTS = 20
CHANGED = 12
GC_BINS = 50
CANDIDATES_PER_NEGATIVE = 20

_BASES = np.frombuffer(b"ACGT", dtype=np.uint8)


def substitute(sequence: str, rng: np.random.Generator) -> str:
    """Fill 12 of the 20 parts, chosen at random, with random bases (DeePromoter's reading)."""
    letters, parts = _parts(sequence)
    for part in rng.choice(PARTS, CHANGED, replace=False):
        parts[part] = _BASES[rng.integers(0, 4, parts.shape[1])]
    return letters.tobytes().decode()


def permute(sequence: str, rng: np.random.Generator) -> str:
    """Shuffle 12 of the 20 parts, chosen at random, among their places (GENA-LM's reading)."""
    letters, parts = _parts(sequence)
    places = rng.choice(PARTS, CHANGED, replace=False)
    origins = rng.permutation(places)
    while np.array_equal(origins, places):
        origins = rng.permutation(places)
    parts[places] = parts[origins]
    return letters.tobytes().decode()


def _parts(sequence: str) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """The sequence as bytes, and a view of its parts (20, length); up to 19 bases at the end are in none."""
    if len(sequence) < PARTS:
        raise ValueError(f"a window of {len(sequence)} bp can't be cut into {PARTS} parts")
    letters = np.frombuffer(sequence.encode(), dtype=np.uint8).copy()
    size = len(sequence) // PARTS
    return letters, letters[: PARTS * size].reshape(PARTS, size)


def gc_fraction(sequence: str) -> float:
    """Share of G and C among all letters of a sequence."""
    return (sequence.count("G") + sequence.count("C")) / len(sequence)


@dataclass(frozen=True)
class FreeStarts:
    """Where windows of one length can start in a stretch, as runs of positions counted from its start."""

    firsts: npt.NDArray[np.int64]  # (R,) the first start of each run, ascending
    ends: npt.NDArray[np.int64]  # (R,) one beyond the last start of each run

    def __len__(self) -> int:
        """The number of starts."""
        return int((self.ends - self.firsts).sum())

    @classmethod
    def between(
        cls, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], length: int, size: int
    ) -> Self:
        """All starts of windows of `size` bp in a stretch of `length` bp that share no base with intervals.

        Parameters
        ----------
        starts, ends
            The intervals `[starts[i], ends[i])`, counted from the start of the stretch. They may overlap and
            reach beyond it.
        """
        order = np.argsort(starts, kind="stable")
        # Gaps lie between the furthest end so far and the next start; the stretch's edges count as both.
        ends = np.maximum.accumulate(np.concatenate([[0], ends[order]]))
        firsts, beyond = ends, np.append(starts[order], length) - size + 1
        beyond = np.minimum(beyond, length - size + 1)
        kept = beyond > firsts
        return cls(firsts[kept], beyond[kept])

    def draw(self, count: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
        """`count` of the starts, ascending, each at most once; all of them where there are no more."""
        sums, total = np.cumsum(self.ends - self.firsts), len(self)
        ranks = np.sort(rng.choice(total, min(count, total), replace=False))
        runs = np.searchsorted(sums, ranks, side="right")
        return np.asarray(self.ends[runs] - (sums[runs] - ranks), np.int64)


class NegativeRegions(NamedTuple):
    """Windows that may serve as negatives, and their GC fractions."""

    windows: list[Interval]
    gc: npt.NDArray[np.float64]


def draw_candidates(
    contig: str,
    sequence: str,
    positions: npt.NDArray[np.int64],
    *,
    start: int = 0,
    upstream: int,
    downstream: int,
    distance: int,
    count: int,
    rng: np.random.Generator,
    free: FreeStarts | None = None,
) -> NegativeRegions:
    """Up to `count` windows at random places of a stretch of a contig, on random strands.

    The stretch begins at `start` and has this `sequence`. Left out are windows that hold an N and those
    whose own TSS position (the base after `upstream` bp) lies less than `distance` bp from one of the
    promoters' TSS `positions` on either strand.

    With `free` windows start there alone, and as many are found as there are, up to `count`.
    """
    letters = np.frombuffer(sequence.encode(), dtype=np.uint8)
    size = upstream + downstream
    if len(letters) < size or count == 0:
        return NegativeRegions([], np.empty(0))
    masked = _prefix_sum(letters == ord("N"))
    if free is not None:
        starts = free.draw(count, rng)
    elif _is_sparse(sequence):
        places = np.flatnonzero(masked[size:] == masked[:-size])
        starts = np.unique(rng.choice(places, count)) if len(places) else places
    else:
        starts = np.unique(rng.integers(0, len(letters) - size + 1, count))
    forward = rng.integers(0, 2, len(starts)).astype(bool)
    tss = starts + np.where(forward, upstream, downstream - 1)
    kept = (masked[starts + size] == masked[starts]) & (_gap(start + tss, positions) >= distance)
    starts, forward = starts[kept], forward[kept]
    strong = _prefix_sum((letters == ord("G")) | (letters == ord("C")))
    windows = [
        Interval(contig, start + first, start + first + size, "+" if plus else "-")
        for first, plus in zip(starts.tolist(), forward.tolist(), strict=True)
    ]
    return NegativeRegions(windows, (strong[starts + size] - strong[starts]) / size)


def find_free_starts(
    sequence: str,
    coding: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]],
    positions: npt.NDArray[np.int64],
    *,
    size: int,
    distance: int,
) -> FreeStarts:
    """Starts of windows of `size` bp that hold no N and no coding base and lie away from every TSS.

    Every base of such a window is at least `distance` bp from each of the TSS `positions`, and none is a
    TSS. `positions` and the starts and ends of the `coding` intervals are counted from the start of the
    stretch that has this `sequence`.
    """
    unknown = np.frombuffer(sequence.encode(), dtype=np.uint8) == ord("N")
    edges = np.flatnonzero(np.diff(np.concatenate([[False], unknown, [False]])))
    away = max(distance, 1) - 1
    return FreeStarts.between(
        np.concatenate([edges[::2], coding[0], positions - away]),
        np.concatenate([edges[1::2], coding[1], positions + away + 1]),
        len(sequence),
        size,
    )


def room(sequence: str) -> int:
    """bp of a stretch that count for how many of the candidates are drawn there."""
    return len(sequence) - sequence.count("N") if _is_sparse(sequence) else len(sequence)


def _is_sparse(sequence: str) -> bool:
    """Whether most of a stretch is N, as around its pieces: places drawn anywhere would mostly be lost."""
    return 2 * sequence.count("N") > len(sequence)


def _gap(places: npt.NDArray[np.int64], positions: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Distance of each place to the nearest position; infinite where there is none."""
    edges = np.concatenate([[-np.inf], np.sort(positions), [np.inf]])
    after = np.searchsorted(edges, places)
    gaps: npt.NDArray[np.float64] = np.minimum(places - edges[after - 1], edges[after] - places)
    return gaps


def _prefix_sum(mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.int32]:
    sums = np.zeros(len(mask) + 1, dtype=np.int32)
    np.cumsum(mask, out=sums[1:])
    return sums


def match_gc(
    wanted: npt.NDArray[np.float64], offered: npt.NDArray[np.float64], rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    """For each wanted GC fraction the index of an offered one in the same of 50 bins, none used twice.

    Where a bin runs out the nearest bin with something left serves; −1 where nothing is left at all.
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


def shuffle_dinucleotides(sequence: str, rng: np.random.Generator) -> str:
    """Another sequence with the same dinucleotides, first and last letter; N is a letter like the others.

    It may be the same one: where its dinucleotides leave no other, always.
    """
    if len(sequence) < 3:
        return sequence
    letters, codes = np.unique(np.frombuffer(sequence.encode("ascii"), np.uint8), return_inverse=True)
    following = [codes[1:][codes[:-1] == letter] for letter in range(len(letters))]
    last = _last_edges(following, int(codes[-1]), rng)
    edges = []
    for letter, targets in enumerate(following):
        if letter in last:
            place = last[letter]
            others = rng.permutation(np.delete(targets, place))
            targets = np.append(others, targets[place])
        else:
            targets = rng.permutation(targets)
        edges.append(iter(targets.tolist()))
    here = int(codes[0])
    walk = [here]
    for _ in range(len(sequence) - 1):
        here = next(edges[here])
        walk.append(here)
    return letters[walk].tobytes().decode("ascii")


def _last_edges(
    following: list[npt.NDArray[np.integer]], end: int, rng: np.random.Generator
) -> dict[int, int]:
    """For each letter that is left, but `end`, the number of its last edge; all of them lead to `end`."""
    while True:
        last = {
            letter: int(rng.integers(len(targets)))
            for letter, targets in enumerate(following)
            if letter != end and len(targets)
        }
        if all(_leads(letter, last, following, end) for letter in last):
            return last


def _leads(start: int, last: dict[int, int], following: list[npt.NDArray[np.integer]], end: int) -> bool:
    here = start
    for _ in range(len(following)):
        if here == end:
            return True
        here = int(following[here][last[here]])
    return here == end


FURTHEST = 100_000
"""bp between the windows of a promoter and its negative: beyond that it is no neighbourhood."""


class _Taken:
    """Stretches of contigs that don't overlap each other once they are put together."""

    def __init__(self, windows: Iterable[Interval]) -> None:
        self._starts: defaultdict[str, list[int]] = defaultdict(list)
        self._ends: defaultdict[str, dict[int, int]] = defaultdict(dict)
        for window in sorted(windows):
            self.add(window)

    def add(self, window: Interval) -> None:
        """Take a window, which may overlap the stretch that begins before it, but none after it."""
        starts, ends = self._starts[window.contig], self._ends[window.contig]
        place = bisect_right(starts, window.start) - 1
        if place >= 0 and ends[starts[place]] >= window.start:
            ends[starts[place]] = max(ends[starts[place]], window.end)
        else:
            insort(starts, window.start)
            ends[window.start] = window.end

    def across(self, window: Interval) -> tuple[int, int] | None:
        """The first stretch, its start and end, that shares a base with a window."""
        starts, ends = self._starts[window.contig], self._ends[window.contig]
        place = bisect_right(starts, window.start) - 1
        for start in starts[max(place, 0) : place + 2]:
            if start < window.end and window.start < ends[start]:
                return start, ends[start]
        return None


def find_upstream(
    owners: Sequence[Interval], promoters: Iterable[Interval], usable: Callable[[Interval, Interval], bool]
) -> list[Interval | None]:
    """For each owner, a promoter's window, its negative; None where there is none within `FURTHEST`.

    Parameters
    ----------
    owners
        In the order in which they choose; one that stands there twice gets two.
    promoters
        The windows of all promoters, those of no data set too.
    usable
        Whether a negative (the second) may serve an owner (the first): by its contig, split and letters.
    """
    taken = _Taken(promoters)
    found: list[Interval | None] = []
    for owner in owners:
        negative = next((one for one in _free(owner, taken) if usable(owner, one)), None)
        if negative is not None:
            taken.add(negative)
        found.append(negative)
    return found


def _free(owner: Interval, taken: _Taken) -> Iterable[Interval]:
    """Windows upstream of an owner that share no base with what is taken, the nearest first."""
    size, window = len(owner), owner
    forward = owner.strand == "+"
    edge = owner.start if forward else owner.end
    while abs((window.end if forward else window.start) - edge) <= FURTHEST:
        start = window.start - size if forward else window.end
        window = Interval(owner.contig, start, start + size, owner.strand)
        while blocked := taken.across(window):
            start = blocked[0] - size if forward else blocked[1]
            window = Interval(owner.contig, start, start + size, owner.strand)
        if abs((window.end if forward else window.start) - edge) <= FURTHEST:
            yield window
