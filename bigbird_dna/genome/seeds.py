"""K-mers, minimizers, and pairs of sequences that share them: candidates for alignment.

A k-mer and its reverse complement are one. Seeds are the distinct minimizers of a window. A pair is worth the
bases that its shared seeds cover on neighboring diagonals, those that one alignment can join, on one strand.
Of the seeds that more than 256 queries have, only the 32 rarest of each query are looked at: families of any
size are found, and what repeats in all windows doesn't multiply the work.

The queries are held in memory. The other windows pass by, and what is found doesn't depend on how many of
them come at a time.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from bigbird_dna.genome.sequence import UNKNOWN, base_codes

Codes = npt.NDArray[np.uint32]
Flags = npt.NDArray[np.bool_]

LONGEST = 16
"""Of a k-mer, two bits a base."""


class Kmers(NamedTuple):
    """Those of sequences one after the other, one for each place of their text with an N between two."""

    codes: Codes  # the smaller one of both strands'
    turned: Flags  # whether that is the reverse complement's
    known: Flags  # without N, and of one sequence
    directed: Flags  # of these, those that aren't their own reverse complement
    rows: npt.NDArray[np.int64]  # which sequence


def kmers_of(sequences: Sequence[str], k: int) -> Kmers:
    """All k-mers of sequences of A C G T N, k at most 16."""
    letters = base_codes("N".join(sequences))
    count = max(len(letters) - k + 1, 0)
    # Two bits a base, and N as A; the reverse complement's last base is the first one's partner.
    forward, backward = np.zeros((2, count), np.uint32)
    bases = (letters & 3).astype(np.uint32)
    for place in range(k):
        base = bases[place : place + count]
        forward = (forward << np.uint32(2)) | base
        backward |= (base ^ np.uint32(3)) << np.uint32(2 * place)
    unknown = np.concatenate([[0], np.cumsum(letters == UNKNOWN)])
    known = np.asarray(unknown[k : k + count] == unknown[:count])
    rows = np.repeat(np.arange(len(sequences)), [len(sequence) + 1 for sequence in sequences])[:count]
    codes, turned = np.minimum(forward, backward), backward < forward
    return Kmers(codes, turned, known, known & (forward != backward), rows)


def mixed(codes: Codes) -> Codes:
    """Codes in an order that has nothing to do with their bases: each has one number, and no two the same."""
    hashed = (codes ^ (codes >> np.uint32(15))) * np.uint32(0x2C1B3C6D)
    hashed = (hashed ^ (hashed >> np.uint32(12))) * np.uint32(0x297A2D39)
    return np.asarray(hashed ^ (hashed >> np.uint32(15)), np.uint32)


def minimizers(kmers: Kmers, width: int) -> Flags:
    """Which directed k-mers are the least by `mixed` of some `width` places in a row (Roberts et al. 2004).

    The same places are chosen on both strands. `width` is at most k, so that sequences don't mind their
    neighbours: no `width` places have k-mers of two.
    """
    if width == 1:
        return kmers.directed
    highest = np.uint32(0xFFFFFFFF)
    hashed = np.where(kmers.directed, mixed(kmers.codes), highest)
    edge = np.full(width - 1, highest)
    padded = np.concatenate([edge, hashed, edge])
    count = len(hashed) + width - 1
    least = padded[:count].copy()
    for offset in range(1, width):
        np.minimum(least, padded[offset : offset + count], out=least)
    chosen = np.zeros(len(hashed), np.bool_)
    for offset in range(width):
        chosen |= hashed == least[offset : offset + len(hashed)]
    return chosen & kmers.directed


Numbers = npt.NDArray[np.int64]

SHORTEST = 7
_SPARSE, _SPARSEST = 2000, 5  # bp of a window for one more place to choose a minimizer from, up to so many
FREQUENT, _ALWAYS = 256, 32
_DIAGONALS = 32  # of a band; seeds count together in two bands side by side
BATCH = 1 << 21  # bases whose seeds are found at a time
HITS = 1 << 22  # shared seeds that are counted at a time


def run_starts(ordered: npt.NDArray[np.integer]) -> Numbers:
    """Where a new number begins in an ordered row of them."""
    return np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)])


def run_sizes(ordered: npt.NDArray[np.integer]) -> Numbers:
    """How often each number stands in an ordered row of them."""
    return np.diff(np.append(run_starts(ordered), len(ordered)))


def within_runs(sizes: Numbers) -> Numbers:
    """The position of each number in its run, for runs of these sizes side by side."""
    return np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)


class Seeds(NamedTuple):
    """The distinct seeds (S,) of windows, in the order of their codes, then of the windows."""

    codes: npt.NDArray[np.uint32]  # with a bit for the strand at the end
    rows: Numbers
    starts: Numbers  # where the seed is first in its window

    def take(self, places: npt.NDArray[np.integer]) -> Self:
        """Some of the seeds."""
        return type(self)(*(column[places] for column in self))


class Sketch(NamedTuple):
    """Which seeds a window has: the minimizers of `width` k-mers in a row."""

    k: int
    width: int

    @classmethod
    def fitting(cls, bases: int, length: int) -> Self:
        """For windows of about `length` bp, of which one is compared with `bases` bases in all.

        k is as large as k-mers can be that all turn up by chance.
        """
        k = int(math.log(max(bases, 1), 4))
        return cls(min(max(k, SHORTEST), LONGEST - 1), min(1 + length // _SPARSE, _SPARSEST))

    def seeds(self, sequences: Sequence[str]) -> Seeds:
        """The seeds of some sequences."""
        sizes = np.array([len(sequence) + 1 for sequence in sequences], np.int64)
        begins = np.cumsum(sizes) - sizes  # in a text of all of them with a letter between two
        parts = [np.zeros(0, np.uint64)]
        for first, last in batches([len(sequence) for sequence in sequences]):
            kmers = kmers_of(sequences[first:last], self.k)
            chosen = np.flatnonzero(minimizers(kmers, self.width))
            codes = (kmers.codes[chosen].astype(np.uint64) << np.uint64(1)) | kmers.turned[chosen]
            parts.append((codes << np.uint64(32)) | (chosen + begins[first]).astype(np.uint64))
        keys = np.concatenate(parts)
        keys.sort()
        codes = (keys >> np.uint64(32)).astype(np.uint32)
        places = (keys & np.uint64(0xFFFFFFFF)).astype(np.int64)
        rows = np.searchsorted(begins, places, "right") - 1
        new = np.ones(len(keys), np.bool_)
        new[1:] = (codes[1:] != codes[:-1]) | (rows[1:] != rows[:-1])
        return Seeds(codes[new], rows[new], (places - begins[rows])[new])


def batches(sizes: Sequence[int]) -> list[tuple[int, int]]:
    """First and last plus one of rows of some sizes, so many that they have two million in all, or one."""
    found, first, total = [], 0, 0
    for place, size in enumerate(sizes):
        if total + size > BATCH and place > first:
            found.append((first, place))
            first, total = place, 0
        total += size
    return [*found, (first, len(sizes))] if len(sizes) else []


class SeedPairs(NamedTuple):
    """Pairs (P,) that share seeds."""

    queries: Numbers
    others: Numbers
    turned: Flags  # whether it is the reverse complement of one that is like the other
    weights: Numbers

    @classmethod
    def none(cls) -> Self:
        """No pair."""
        empty = np.zeros(0, np.int64)
        return cls(empty, empty, empty > 0, empty)

    def take(self, rows: npt.NDArray[np.integer]) -> Self:
        """Some of the pairs."""
        return type(self)(*(column[rows] for column in self))

    def joined(self, other: Self) -> Self:
        """These pairs, then others."""
        return type(self)(*(np.concatenate(both) for both in zip(self, other, strict=True)))

    def heaviest(self, count: int, *, of_queries: bool = True) -> Self:
        """Of each query, or of each of the other windows, the `count` pairs of the largest weight; of equal
        ones the first."""
        groups, ties = (self.queries, self.others) if of_queries else (self.others, self.queries)
        order = np.lexsort((self.turned, ties, -self.weights, groups))
        return self.take(np.sort(order[within_runs(run_sizes(groups[order])) < count]))


class SeedIndex:
    """The seeds of N queries, to be looked up."""

    def __init__(self, queries: Sequence[str], sketch: Sketch) -> None:
        self.sketch, self.count = sketch, len(queries)
        self._longest = max(map(len, queries), default=0)
        seeds = sketch.seeds(queries)
        frequencies = run_sizes(seeds.codes)
        frequencies = np.repeat(frequencies, frequencies)
        kept = np.flatnonzero(self._looked_at(seeds.rows, frequencies))
        self._seeds = seeds.take(kept)
        self._first = np.append(run_starts(self._seeds.codes), len(kept))  # of each code's queries
        self._codes = self._seeds.codes[self._first[:-1]]

    def _looked_at(self, rows: Numbers, frequencies: Numbers) -> Flags:
        """Which of the queries' seeds: all that aren't frequent, and of each query some that are."""
        chosen = frequencies <= FREQUENT
        often = np.flatnonzero(~chosen)
        order = often[np.lexsort((frequencies[often], rows[often]))]  # of equally rare ones by their codes
        sizes = np.bincount(rows[often], minlength=self.count)
        chosen[order[within_runs(sizes) < _ALWAYS]] = True
        return chosen

    def share(self, others: Sequence[str], first: int) -> Iterator[SeedPairs]:
        """The pairs with some windows, which are numbered from `first` on; all of a window's at a time."""
        seeds = self.sketch.seeds(others)
        if not len(self._codes):
            return
        lengths = np.array([len(other) for other in others], np.int64)
        rows, starts, codes = [], [], []
        for strand in (0, 1):
            # A window that is turned has the seeds of the other strand, from its other end.
            wanted = seeds.codes ^ np.uint32(strand)
            places = np.minimum(np.searchsorted(self._codes, wanted), len(self._codes) - 1)
            known = np.flatnonzero(self._codes[places] == wanted)
            own, begins = seeds.rows[known], seeds.starts[known]
            rows.append(2 * own + strand)
            starts.append(lengths[own] - self.sketch.k - begins if strand else begins)
            codes.append(places[known])
        hits = Seeds(np.concatenate(codes), np.concatenate(rows), np.concatenate(starts))
        hits = hits.take(np.argsort(hits.rows, kind="stable"))
        work = np.cumsum(np.diff(self._first)[hits.codes])
        ends = np.searchsorted(hits.rows, 2 * np.arange(len(others) + 1))  # of each window's hits
        start = 0
        while start < len(others):
            before = int(work[ends[start] - 1]) if ends[start] else 0
            most = int(np.searchsorted(work, before + HITS, "right"))
            stop = max(int(np.searchsorted(ends, most, "right")) - 1, start + 1)
            yield self._pairs(hits.take(np.arange(ends[start], ends[stop])), first)
            start = stop

    def _pairs(self, hits: Seeds, first: int) -> SeedPairs:
        """What pairs are worth by some windows' seeds that queries have: their codes are places of these."""
        sizes = np.diff(self._first)[hits.codes]
        if not sizes.sum():
            return SeedPairs.none()
        hit = np.repeat(np.arange(len(sizes)), sizes)
        place = within_runs(sizes) + np.repeat(self._first[hits.codes], sizes)
        band = (hits.starts[hit] - self._seeds.starts[place] + self._longest) // _DIAGONALS
        pair = (hits.rows[hit] - hits.rows[0]) * self.count + self._seeds.rows[place]
        # Pair, band and place in the query as one number, in as few bits as windows of this length need.
        places, bands = self._longest.bit_length(), int(band.max() + 1).bit_length()
        keys = (((pair << bands) | band) << places) | self._seeds.starts[place]
        keys.sort()
        starts = run_starts(keys >> places)
        found = keys[starts] >> places
        # What a seed covers beyond the one before it.
        covered = np.minimum(np.diff(keys, prepend=keys[0]), self.sketch.k)
        covered[starts] = self.sketch.k
        weights = np.add.reduceat(covered, starts)
        beside = np.append(np.where(found[1:] == found[:-1] + 1, weights[1:], 0), 0)
        pairs = found >> bands
        starts = run_starts(pairs)
        others = pairs[starts] // self.count + hits.rows[0]
        return SeedPairs(
            pairs[starts] % self.count,
            first + others // 2,
            others % 2 == 1,
            np.maximum.reduceat(weights + beside, starts),
        )
