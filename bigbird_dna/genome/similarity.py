"""The nearest window of another set, by local alignment.

The similarity of a window to another is the score of their best local alignment, of the window or of its
reverse complement, as a share of the window's known bases: 1 where the other holds a copy, and 0.5 where half
of it lies there, or where three quarters of all its bases are the same. Windows that have nothing to do with
each other score a few hundredths, short ones more: some 0.05 of 400 bp.

Only pairs that share many seeds are aligned, four for each window. The figure of a pair is exact all the
same, and depends on these two alone. What may be missed is a window that shares hardly a seed.

Seeds are the distinct minimizers of a window; a k-mer and its reverse complement are one. A pair is worth the
bases that its shared seeds cover on neighboring diagonals, those that one alignment can join, on one strand.
Of the seeds that more than 256 queries have, only the 32 rarest of each query are looked at: families of any
size are found, and what repeats in all windows doesn't multiply the work.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
import numpy.typing as npt
from scipy.ndimage import grey_opening

from bigbird_dna.console import progress
from bigbird_dna.genome.sequence import UNKNOWN, base_codes, reverse_complement

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


def minimizers(kmers: Kmers, width: int) -> Flags:
    """Which directed k-mers are the least of some `width` places in a row (Roberts et al. 2004).

    Least by a hash, so that each code has one number and no two the same. The same places are chosen on both
    strands. `width` is at most k: no `width` places have k-mers of two sequences.
    """
    if width == 1:
        return kmers.directed
    highest = np.uint32(0xFFFFFFFF)
    hashed = (kmers.codes ^ (kmers.codes >> np.uint32(15))) * np.uint32(0x2C1B3C6D)
    hashed = (hashed ^ (hashed >> np.uint32(12))) * np.uint32(0x297A2D39)
    hashed = np.where(kmers.directed, hashed ^ (hashed >> np.uint32(15)), highest)
    # The largest of the least of all rows that a place is in: its own where it is one of these least.
    opened = grey_opening(np.pad(hashed, width - 1, constant_values=highest), width)
    return np.asarray(kmers.directed & (opened[width - 1 :][: len(hashed)] == hashed))


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


Columns = TypeVar("Columns", bound=NamedTuple)


def take(table: Columns, rows: npt.NDArray[np.integer]) -> Columns:
    """Some rows of a table."""
    return type(table)(*(column[rows] for column in table))


class Seeds(NamedTuple):
    """The distinct seeds (S,) of windows, in the order of their codes, then of the windows."""

    codes: npt.NDArray[np.uint32]  # with a bit for the strand at the end
    rows: Numbers
    starts: Numbers  # where the seed is first in its window


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
        new = np.append(True, (codes[1:] != codes[:-1]) | (rows[1:] != rows[:-1]))[: len(keys)]
        return take(Seeds(codes, rows, places - begins[rows]), new)


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

    def joined(self, other: Self) -> Self:
        """These pairs, then others."""
        return type(self)(*(np.concatenate(both) for both in zip(self, other, strict=True)))

    def heaviest(self, count: int, *, of_queries: bool = True) -> Self:
        """Of each query, or of each of the other windows, the `count` pairs of the largest weight; of equal
        ones the first."""
        groups, ties = (self.queries, self.others) if of_queries else (self.others, self.queries)
        order = np.lexsort((self.turned, ties, -self.weights, groups))
        return take(self, np.sort(order[within_runs(run_sizes(groups[order])) < count]))


_NONE: Numbers = np.zeros(0, np.int64)
NO_PAIRS = SeedPairs(_NONE, _NONE, _NONE > 0, _NONE)


class SeedIndex:
    """The seeds of N queries, to be looked up."""

    def __init__(self, queries: Sequence[str], sketch: Sketch) -> None:
        self.sketch, self.count = sketch, len(queries)
        self._longest = max(map(len, queries), default=0)
        seeds = sketch.seeds(queries)
        frequencies = run_sizes(seeds.codes)
        frequencies = np.repeat(frequencies, frequencies)
        # All that aren't frequent, and of each query some that are: the rarest, of equal ones by their codes.
        chosen = frequencies <= FREQUENT
        often = np.flatnonzero(~chosen)
        order = often[np.lexsort((frequencies[often], seeds.rows[often]))]
        sizes = np.bincount(seeds.rows[often], minlength=self.count)
        chosen[order[within_runs(sizes) < _ALWAYS]] = True
        kept = np.flatnonzero(chosen)
        self._seeds = take(seeds, kept)
        self._first = np.append(run_starts(self._seeds.codes), len(kept))  # of each code's queries
        self._codes = self._seeds.codes[self._first[:-1]]

    def share(self, others: Sequence[str], first: int) -> Iterator[SeedPairs]:
        """The pairs with some windows, which are numbered from `first` on; all of a window's at a time."""
        seeds = self.sketch.seeds(others)
        if not len(self._codes):
            return
        lengths = np.array([len(other) for other in others], np.int64)
        parts = []
        for strand in (0, 1):
            # A window that is turned has the seeds of the other strand, from its other end.
            wanted = seeds.codes ^ np.uint32(strand)
            places = np.minimum(np.searchsorted(self._codes, wanted), len(self._codes) - 1)
            known = np.flatnonzero(self._codes[places] == wanted)
            own, begins = seeds.rows[known], seeds.starts[known]
            starts = lengths[own] - self.sketch.k - begins if strand else begins
            parts.append(Seeds(places[known], 2 * own + strand, starts))
        hits = Seeds(*map(np.concatenate, zip(*parts, strict=True)))
        hits = take(hits, np.argsort(hits.rows, kind="stable"))
        work = np.cumsum(np.diff(self._first)[hits.codes])
        ends = np.searchsorted(hits.rows, 2 * np.arange(len(others) + 1))  # of each window's hits
        start = 0
        while start < len(others):
            before = int(work[ends[start] - 1]) if ends[start] else 0
            most = int(np.searchsorted(work, before + HITS, "right"))
            stop = max(int(np.searchsorted(ends, most, "right")) - 1, start + 1)
            yield self._pairs(take(hits, np.arange(ends[start], ends[stop])), first)
            start = stop

    def _pairs(self, hits: Seeds, first: int) -> SeedPairs:
        """What pairs are worth by some windows' seeds that queries have: their codes are places of these."""
        sizes = np.diff(self._first)[hits.codes]
        if not sizes.sum():
            return NO_PAIRS
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


def alignment_scores(first: Sequence[str], second: Sequence[str]) -> Numbers:
    """The score of each pair `first[i]`, `second[i]` of sequences of A C G T N, (N,).

    It is that of the best local alignment (Smith and Waterman 1981): +1 for two equal bases, -1 for two
    others, -2 for a base without a partner and 0 for a pair with an N.
    """
    from Bio.Align import PairwiseAligner  # slow to import

    aligner: Any = PairwiseAligner(  # type: ignore[no-untyped-call]
        mode="local", match_score=1, mismatch_score=-1, gap_score=-2
    )
    aligner.wildcard = "N"
    return np.array(
        [
            len(one) - one.count("N") if one == other else aligner.score(one, other) if one and other else 0
            for one, other in zip(first, second, strict=True)
        ],
        np.int64,
    )


Rows = npt.NDArray[np.intp]

ALIGNED = 4
"""Pairs that are aligned for a window, those that share most."""

_COVERED = 1 / 8  # of the bases that are the same, those that shared seeds cover at least
PAIRS = 1024  # aligned between two looks at the clock
_READ = 1 << 21  # bases that are read at a time


class SequenceWindows(NamedTuple):
    """N windows of A C G T N, read when they are asked for."""

    number: int
    length: int  # bp of one, or about
    read: Callable[[Rows], list[str]]

    @classmethod
    def of(cls, sequences: Sequence[str]) -> Self:
        """Windows that are in memory."""
        length = max(map(len, sequences), default=0)
        return cls(len(sequences), length, lambda rows: [sequences[row] for row in rows.tolist()])


class Pairs(NamedTuple):
    """Aligned pairs (P,): by query, the most similar first, and of equal ones the first window."""

    queries: Rows
    others: Rows
    turned: npt.NDArray[np.bool_]  # whether it is the reverse complement that is like the other
    similarities: npt.NDArray[np.float64]  # above 0

    def nearest(self, count: int) -> "Nearest":
        """The first pair of each of `count` queries."""
        rows = np.full(count, -1, np.intp)
        turned, similarities = np.zeros(count, np.bool_), np.zeros(count)
        first = run_starts(self.queries)
        owners = self.queries[first]
        rows[owners], turned[owners] = self.others[first], self.turned[first]
        similarities[owners] = self.similarities[first]
        return Nearest(rows, turned, similarities)

    def as_near(self) -> npt.NDArray[np.bool_]:
        """Which pairs (P,) are as similar as the first of their query."""
        starts = run_starts(self.queries)
        best = np.repeat(self.similarities[starts], run_sizes(self.queries))
        return np.asarray(self.similarities == best)


class Nearest(NamedTuple):
    """The most similar window of each query, (N,)."""

    rows: Rows  # -1: none shares a seed
    turned: npt.NDArray[np.bool_]
    similarities: npt.NDArray[np.float64]  # 0 where there is none


def aligned_pairs(
    queries: Sequence[str],
    others: SequenceWindows,
    *,
    threshold: float | None = None,
    asked: npt.NDArray[np.bool_] | None = None,
) -> Pairs:
    """The pairs of queries and other windows that share most seeds, with their similarity.

    Four of each query; with a threshold also four of each other window, of the pairs that may be so similar:
    those whose seeds cover an eighth of what that takes. The other windows are read some at a time, twice;
    memory goes with the queries' bases, and with a threshold with the number of such pairs. Only pairs of the
    queries that are `asked` for, (N,), are aligned; None: all.
    """
    least = math.inf if threshold is None else threshold * others.length * _COVERED
    sketch = Sketch.fitting(others.number * others.length, max(map(len, queries), default=0))
    index = SeedIndex(queries, sketch)
    found = likewise = NO_PAIRS
    runs = batches([others.length] * others.number)
    for first, last in progress(runs, "looking for similar windows", len(runs), "parts"):
        for here in index.share(others.read(np.arange(first, last)), first):
            found = found.joined(here.heaviest(ALIGNED)).heaviest(ALIGNED)
            near = take(here, np.flatnonzero(here.weights >= least))
            likewise = likewise.joined(near.heaviest(ALIGNED, of_queries=False))
    pairs = found.joined(likewise)
    if asked is not None:
        pairs = take(pairs, np.flatnonzero(asked[pairs.queries]))
    keys = np.stack([pairs.others, pairs.queries, pairs.turned.astype(np.int64)], axis=1)
    pairs = take(pairs, np.unique(keys, axis=0, return_index=True)[1])
    scores = _pair_scores(queries, others, pairs)
    known = np.array([len(query) - query.count("N") for query in queries], np.int64)
    similarities = scores / np.maximum(known[pairs.queries], 1)
    order = np.lexsort((pairs.turned, pairs.others, -similarities, pairs.queries))
    order = order[scores[order] > 0]
    return Pairs(pairs.queries[order], pairs.others[order], pairs.turned[order], similarities[order])


def _pair_scores(queries: Sequence[str], others: SequenceWindows, pairs: SeedPairs) -> npt.NDArray[np.int64]:
    """The score of each pair; pairs are in the order of the other windows, which are read as they come."""
    scores = np.zeros(len(pairs.queries), np.int64)
    size = max(min(PAIRS, _READ // max(others.length, 1)), 1)
    parts = [slice(first, first + size) for first in range(0, len(scores), size)]
    for some in progress(parts, "aligning", len(parts), "parts"):
        rows, place = np.unique(pairs.others[some], return_inverse=True)
        texts = others.read(rows)
        theirs = [texts[number] for number in place.tolist()]
        ours = [queries[row] for row in pairs.queries[some].tolist()]
        turned = pairs.turned[some].tolist()
        ours = [reverse_complement(one) if turn else one for one, turn in zip(ours, turned, strict=True)]
        scores[some] = alignment_scores(ours, theirs)
    return scores
