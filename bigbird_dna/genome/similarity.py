"""Find the most similar windows of another set by local alignment.

The similarity of a window to another is the score of the best local alignment of either strand, as a fraction
of the window's known bases. It is 1 if the other contains a copy, and 0.5 if the other contains half of the
window, or if three quarters of all bases are the same. Unrelated windows score a few hundredths, short ones
more: about 0.05 for 400 bp.

Only pairs with many common seeds are aligned, four per window. The similarity of an aligned pair is exact and
depends only on this pair. A similar window with hardly any common seed may be missed.

Seeds are the distinct minimizers of a window; a k-mer and its reverse complement are one seed. The weight of
a pair is the number of bases that its common seeds cover on neighboring diagonals (which one alignment can
join) of one strand. Of the seeds in more than 256 queries, only the 32 rarest per query are used. Families of
any size are therefore found, and repeats in all windows do not multiply the work.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
import numpy.typing as npt

from bigbird_dna.console import progress
from bigbird_dna.genome.sequence import UNKNOWN, base_codes, reverse_complement

Codes = npt.NDArray[np.uint32]
Flags = npt.NDArray[np.bool_]

LONGEST = 16
"""Maximum length of a k-mer, with two bits per base."""


class Kmers(NamedTuple):
    """K-mers of concatenated sequences with an N in between, one per position of this text."""

    codes: Codes  # the smaller code of both strands
    turned: Flags  # whether this is the code of the reverse complement
    known: Flags  # without N, within one sequence
    directed: Flags  # known k-mers that differ from their reverse complement
    rows: npt.NDArray[np.int64]  # index of the sequence


def kmers_of(sequences: Sequence[str], k: int) -> Kmers:
    """Return all k-mers of sequences of A C G T N, with k at most 16."""
    letters = base_codes("N".join(sequences))
    count = max(len(letters) - k + 1, 0)
    # Two bits per base, with N as A; the reverse complement's last base pairs with the first base.
    forward, backward = np.zeros((2, count), np.uint32)
    bases = (letters & 3).astype(np.uint32)
    for place in range(k):
        base = bases[place : place + count]
        forward = (forward << np.uint32(2)) | base
        backward |= (base ^ np.uint32(3)) << np.uint32(2 * place)
    unknown = np.concatenate([[0], np.cumsum(letters == UNKNOWN)])
    known = np.asarray(unknown[k : k + count] == unknown[:count])
    rows = np.repeat(
        np.arange(len(sequences)), [len(sequence) + 1 for sequence in sequences]
    )[:count]
    codes, turned = np.minimum(forward, backward), backward < forward
    return Kmers(codes, turned, known, known & (forward != backward), rows)


def minimizers(kmers: Kmers, width: int) -> Flags:
    """Return which directed k-mers are the minimum of `width` consecutive positions (Roberts et al. 2004).

    The minimum is by a hash that is distinct for each code. Both strands select the same positions. `width`
    is at most k, so `width` positions never have k-mers of two sequences.
    """
    if width == 1:
        return kmers.directed
    from scipy.ndimage import grey_opening

    highest = np.uint32(0xFFFFFFFF)
    hashed = (kmers.codes ^ (kmers.codes >> np.uint32(15))) * np.uint32(0x2C1B3C6D)
    hashed = (hashed ^ (hashed >> np.uint32(12))) * np.uint32(0x297A2D39)
    hashed = np.where(kmers.directed, hashed ^ (hashed >> np.uint32(15)), highest)
    # The maximum of the minima of all runs with a position is its own hash if that is one of these minima.
    opened = grey_opening(np.pad(hashed, width - 1, constant_values=highest), width)
    return np.asarray(kmers.directed & (opened[width - 1 :][: len(hashed)] == hashed))


Numbers = npt.NDArray[np.int64]

SHORTEST = 7
_SPARSE, _SPARSEST = (
    2000,
    5,
)  # bp of a window per additional minimizer position; maximum width
FREQUENT, _ALWAYS = 256, 32
_DIAGONALS = 32  # per band; seeds in two adjacent bands count together
BATCH = 1 << 21  # bases per batch for finding seeds
HITS = 1 << 22  # common seeds per batch for counting


def run_starts(ordered: npt.NDArray[np.integer]) -> Numbers:
    """Return the positions where a new number begins in a sorted array."""
    return np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)])


def run_sizes(ordered: npt.NDArray[np.integer]) -> Numbers:
    """Return how often each number occurs in a sorted array."""
    return np.diff(np.append(run_starts(ordered), len(ordered)))


def within_runs(sizes: Numbers) -> Numbers:
    """Return the position of each number in its run, for consecutive runs of these sizes."""
    return np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)


Columns = TypeVar("Columns", bound=NamedTuple)


def take(table: Columns, rows: npt.NDArray[np.integer]) -> Columns:
    """Return rows of a table."""
    return type(table)(*(column[rows] for column in table))


class Seeds(NamedTuple):
    """The distinct seeds (S,) of windows, in the order of their codes, then of the windows."""

    codes: npt.NDArray[np.uint32]  # with the strand as the lowest bit
    rows: Numbers
    starts: Numbers  # first position of the seed in its window


class Sketch(NamedTuple):
    """Parameters that select the seeds of a window: the minimizers of `width` consecutive k-mers."""

    k: int
    width: int

    @classmethod
    def fitting(cls, bases: int, length: int) -> Self:
        """Return parameters for windows of about `length` bp, each compared with `bases` bases in total.

        k is the largest value for which all k-mers still occur by chance.
        """
        k = int(math.log(max(bases, 1), 4))
        return cls(
            min(max(k, SHORTEST), LONGEST - 1), min(1 + length // _SPARSE, _SPARSEST)
        )

    def seeds(self, sequences: Sequence[str]) -> Seeds:
        """Return the seeds of sequences."""
        sizes = np.array([len(sequence) + 1 for sequence in sequences], np.int64)
        begins = (
            np.cumsum(sizes) - sizes
        )  # in the concatenated text with one letter between sequences
        parts = [np.zeros(0, np.uint64)]
        for first, last in batches([len(sequence) for sequence in sequences]):
            kmers = kmers_of(sequences[first:last], self.k)
            chosen = np.flatnonzero(minimizers(kmers, self.width))
            codes = (
                kmers.codes[chosen].astype(np.uint64) << np.uint64(1)
            ) | kmers.turned[chosen]
            parts.append(
                (codes << np.uint64(32)) | (chosen + begins[first]).astype(np.uint64)
            )
        keys = np.concatenate(parts)
        keys.sort()
        codes = (keys >> np.uint64(32)).astype(np.uint32)
        places = (keys & np.uint64(0xFFFFFFFF)).astype(np.int64)
        rows = np.searchsorted(begins, places, "right") - 1
        new = np.append(True, (codes[1:] != codes[:-1]) | (rows[1:] != rows[:-1]))[
            : len(keys)
        ]
        return take(Seeds(codes, rows, places - begins[rows]), new)


def batches(sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Divide rows into ranges (first, last plus one) with two million in total size, or a single row."""
    found, first, total = [], 0, 0
    for place, size in enumerate(sizes):
        if total + size > BATCH and place > first:
            found.append((first, place))
            first, total = place, 0
        total += size
    return [*found, (first, len(sizes))] if len(sizes) else []


class SeedPairs(NamedTuple):
    """Pairs (P,) of windows with common seeds."""

    queries: Numbers
    others: Numbers
    turned: Flags  # whether the reverse complement of the query is similar
    weights: Numbers

    def joined(self, other: Self) -> Self:
        """Return these pairs followed by the others."""
        return type(self)(
            *(np.concatenate(both) for both in zip(self, other, strict=True))
        )

    def heaviest(self, count: int, *, of_queries: bool = True) -> Self:
        """Return the `count` pairs of the largest weight per query, or per other window; ties: the first."""
        groups, ties = (
            (self.queries, self.others) if of_queries else (self.others, self.queries)
        )
        order = np.lexsort((self.turned, ties, -self.weights, groups))
        return take(self, np.sort(order[within_runs(run_sizes(groups[order])) < count]))


_NONE: Numbers = np.zeros(0, np.int64)
NO_PAIRS = SeedPairs(_NONE, _NONE, _NONE > 0, _NONE)


class SeedIndex:
    """Index of the seeds of N queries."""

    def __init__(self, queries: Sequence[str], sketch: Sketch) -> None:
        self.sketch, self.count = sketch, len(queries)
        self._longest = max(map(len, queries), default=0)
        seeds = sketch.seeds(queries)
        frequencies = run_sizes(seeds.codes)
        frequencies = np.repeat(frequencies, frequencies)
        # All seeds that are not frequent, and per query the rarest of the frequent ones; ties are by code.
        chosen = frequencies <= FREQUENT
        often = np.flatnonzero(~chosen)
        order = often[np.lexsort((frequencies[often], seeds.rows[often]))]
        sizes = np.bincount(seeds.rows[often], minlength=self.count)
        chosen[order[within_runs(sizes) < _ALWAYS]] = True
        kept = np.flatnonzero(chosen)
        self._seeds = take(seeds, kept)
        self._first = np.append(
            run_starts(self._seeds.codes), len(kept)
        )  # first row of each code
        self._codes = self._seeds.codes[self._first[:-1]]

    def share(self, others: Sequence[str], first: int) -> Iterator[SeedPairs]:
        """Yield the pairs with windows numbered from `first` on; all pairs of a window come together."""
        seeds = self.sketch.seeds(others)
        if not len(self._codes):
            return
        lengths = np.array([len(other) for other in others], np.int64)
        parts = []
        for strand in (0, 1):
            # A reverse complement has the seeds of the other strand, counted from its other end.
            wanted = seeds.codes ^ np.uint32(strand)
            places = np.minimum(
                np.searchsorted(self._codes, wanted), len(self._codes) - 1
            )
            known = np.flatnonzero(self._codes[places] == wanted)
            own, begins = seeds.rows[known], seeds.starts[known]
            starts = lengths[own] - self.sketch.k - begins if strand else begins
            parts.append(Seeds(places[known], 2 * own + strand, starts))
        hits = Seeds(*map(np.concatenate, zip(*parts, strict=True)))
        hits = take(hits, np.argsort(hits.rows, kind="stable"))
        work = np.cumsum(np.diff(self._first)[hits.codes])
        ends = np.searchsorted(
            hits.rows, 2 * np.arange(len(others) + 1)
        )  # end of each window's hits
        start = 0
        while start < len(others):
            before = int(work[ends[start] - 1]) if ends[start] else 0
            most = int(np.searchsorted(work, before + HITS, "right"))
            stop = max(int(np.searchsorted(ends, most, "right")) - 1, start + 1)
            yield self._pairs(take(hits, np.arange(ends[start], ends[stop])), first)
            start = stop

    def _pairs(self, hits: Seeds, first: int) -> SeedPairs:
        """Return the pairs and weights for seeds of windows, whose codes are indices of query seeds."""
        sizes = np.diff(self._first)[hits.codes]
        if not sizes.sum():
            return NO_PAIRS
        hit = np.repeat(np.arange(len(sizes)), sizes)
        place = within_runs(sizes) + np.repeat(self._first[hits.codes], sizes)
        band = (
            hits.starts[hit] - self._seeds.starts[place] + self._longest
        ) // _DIAGONALS
        pair = (hits.rows[hit] - hits.rows[0]) * self.count + self._seeds.rows[place]
        # Pair, band and position in the query as one number, with as few bits as windows of this length need.
        places, bands = self._longest.bit_length(), int(band.max() + 1).bit_length()
        keys = (((pair << bands) | band) << places) | self._seeds.starts[place]
        keys.sort()
        starts = run_starts(keys >> places)
        found = keys[starts] >> places
        # Bases that a seed covers beyond the previous seed.
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
    """Return the score of each pair `first[i]`, `second[i]` of sequences of A C G T N, (N,).

    It is the score of the best local alignment (Smith and Waterman 1981): +1 for a match, -1 for a mismatch,
    -2 for each gap position and 0 for a pair with an N.
    """
    from Bio.Align import PairwiseAligner  # slow to import

    aligner: Any = PairwiseAligner(  # type: ignore[no-untyped-call]
        mode="local", match_score=1, mismatch_score=-1, gap_score=-2
    )
    aligner.wildcard = "N"
    return np.array(
        [
            len(one) - one.count("N")
            if one == other
            else aligner.score(one, other)
            if one and other
            else 0
            for one, other in zip(first, second, strict=True)
        ],
        np.int64,
    )


Rows = npt.NDArray[np.intp]

ALIGNED = 4
"""Number of pairs with the most common seeds that are aligned per window."""

_COVERED = 1 / 8  # minimum fraction of the identical bases that common seeds cover
PAIRS = 1024  # aligned between two updates of the progress
_READ = 1 << 21  # bases per read


class SequenceWindows(NamedTuple):
    """N windows of A C G T N that are read on demand."""

    number: int
    length: int  # bp of a window, exact or approximate
    read: Callable[[Rows], list[str]]

    @classmethod
    def of(cls, sequences: Sequence[str]) -> Self:
        """Return windows that are in memory."""
        length = max(map(len, sequences), default=0)
        return cls(
            len(sequences),
            length,
            lambda rows: [sequences[row] for row in rows.tolist()],
        )


class Pairs(NamedTuple):
    """Aligned pairs (P,) by query, the most similar first; ties are in the order of the windows."""

    queries: Rows
    others: Rows
    turned: npt.NDArray[
        np.bool_
    ]  # whether the reverse complement of the query is similar
    similarities: npt.NDArray[np.float64]  # above 0

    def nearest(self, count: int) -> "Nearest":
        """Return the first pair of each of `count` queries."""
        rows = np.full(count, -1, np.intp)
        turned, similarities = np.zeros(count, np.bool_), np.zeros(count)
        first = run_starts(self.queries)
        owners = self.queries[first]
        rows[owners], turned[owners] = self.others[first], self.turned[first]
        similarities[owners] = self.similarities[first]
        return Nearest(rows, turned, similarities)

    def as_near(self) -> npt.NDArray[np.bool_]:
        """Return which pairs (P,) are as similar as the first pair of their query."""
        starts = run_starts(self.queries)
        best = np.repeat(self.similarities[starts], run_sizes(self.queries))
        return np.asarray(self.similarities == best)


class Nearest(NamedTuple):
    """The most similar window of each query, (N,)."""

    rows: Rows  # -1 without a common seed
    turned: npt.NDArray[np.bool_]
    similarities: npt.NDArray[np.float64]  # 0 without a similar window


def aligned_pairs(
    queries: Sequence[str],
    others: SequenceWindows,
    *,
    threshold: float | None = None,
    asked: npt.NDArray[np.bool_] | None = None,
) -> Pairs:
    """Return the pairs of queries and other windows with most common seeds, and their similarity.

    Four pairs per query are aligned. With a threshold, also four pairs per other window among those that may
    reach it: their seeds cover an eighth of the bases that the threshold requires. The other windows are read
    in batches, twice. Memory grows with the queries' bases and, with a threshold, with the number of such
    pairs. Only pairs of the queries in `asked`, (N,), are aligned; None aligns all.
    """
    least = math.inf if threshold is None else threshold * others.length * _COVERED
    sketch = Sketch.fitting(
        others.number * others.length, max(map(len, queries), default=0)
    )
    index = SeedIndex(queries, sketch)
    found = likewise = NO_PAIRS
    runs = batches([others.length] * others.number)
    for first, last in progress(runs, "finding similar windows", len(runs), "parts"):
        for here in index.share(others.read(np.arange(first, last)), first):
            found = found.joined(here.heaviest(ALIGNED)).heaviest(ALIGNED)
            near = take(here, np.flatnonzero(here.weights >= least))
            likewise = likewise.joined(near.heaviest(ALIGNED, of_queries=False))
    pairs = found.joined(likewise)
    if asked is not None:
        pairs = take(pairs, np.flatnonzero(asked[pairs.queries]))
    keys = np.stack(
        [pairs.others, pairs.queries, pairs.turned.astype(np.int64)], axis=1
    )
    pairs = take(pairs, np.unique(keys, axis=0, return_index=True)[1])
    scores = _pair_scores(queries, others, pairs)
    known = np.array([len(query) - query.count("N") for query in queries], np.int64)
    similarities = scores / np.maximum(known[pairs.queries], 1)
    order = np.lexsort((pairs.turned, pairs.others, -similarities, pairs.queries))
    order = order[scores[order] > 0]
    return Pairs(
        pairs.queries[order],
        pairs.others[order],
        pairs.turned[order],
        similarities[order],
    )


def _pair_scores(
    queries: Sequence[str], others: SequenceWindows, pairs: SeedPairs
) -> npt.NDArray[np.int64]:
    """Return the score of each pair; pairs are in the order of the other windows, which are read in turn."""
    scores = np.zeros(len(pairs.queries), np.int64)
    size = max(min(PAIRS, _READ // max(others.length, 1)), 1)
    parts = [slice(first, first + size) for first in range(0, len(scores), size)]
    for some in progress(parts, "aligning", len(parts), "parts"):
        rows, place = np.unique(pairs.others[some], return_inverse=True)
        texts = others.read(rows)
        theirs = [texts[number] for number in place.tolist()]
        ours = [queries[row] for row in pairs.queries[some].tolist()]
        turned = pairs.turned[some].tolist()
        ours = [
            reverse_complement(one) if turn else one
            for one, turn in zip(ours, turned, strict=True)
        ]
        scores[some] = alignment_scores(ours, theirs)
    return scores
