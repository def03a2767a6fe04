"""Markov models over bases: the simplest baselines of a DNA language model, tuned to be as strong as
possible.

The probability of a base given the k preceding bases, with each order smoothed by the next lower one:

    P_k(x | c) = (n(cx) + a_k P_{k−1}(x | c')) / (n(c·) + a_k),    P_{−1} = 1/4

n are counts in the training sequences (of both strands, unless specified otherwise), c' is c without its
oldest base, and the strengths a_k are chosen on validation sequences.

**Advantages of these baselines.** Strengths and orders are chosen on validation sequences; if these are also
the evaluated ones, the choice is post hoc. All bases around a span are known, including those hidden from a
masked-token model, unless `before` and `behind` limit their number. `two_sided` uses the span's length,
whereas a masked-token model must predict a token among those of all lengths. In turn, the masked-token model
receives the boundaries of the surrounding tokens.

A word is a run of n bases as a number in base 4 (A 0, C 1, G 2, T 3), oldest base first. Words contain no N
and do not extend beyond an end.

The probability of a span x of L bases between l and r (k bases each) under a model of order k is exact:

    P(x | l, r) = P(x r | l) / Σ_y P(y r | l),    P(x r | l) = Π_i P_k(base i | its k preceding bases)

The sum over all 4 ** L spans y runs along the sequence (forward algorithm). A state is the last k bases, of
which only those inside the span vary: at most 4 ** min(L, k) states. Each base that enters multiplies the
states by four, up to this number; each base that leaves the last k is summed over.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.genome.sequence import UNKNOWN, known_before, turned_word, words_ending

# Axes: M spans, those of one `_Shape` computed together; S states.

LARGEST_ORDER = 12
# Longer spans are evaluated with at most this order: 4 ** 8 states take several milliseconds each.
LONGEST_STATE = 8
# Lower limit of probabilities, so that products along a path do not underflow.
SMALLEST = 1e-9
_COARSE = 2.0 ** np.arange(-2, 23)
_FINE = 2.0 ** np.linspace(-0.75, 0.75, 7)
SLICE = 1 << 22  # bases counted at a time
STATES = 1 << 17  # of all spans computed at a time: 1 MB, about the size of a cache
STEPS = 8  # steps after which sums are rescaled to avoid underflow

Codes = NDArray[np.integer]  # base codes 0 to 4
Words = NDArray[np.int64]
Counts = NDArray[np.signedinteger]
Floats = NDArray[np.float64]


class Markov:
    """Probabilities of bases given the `order` (0 to 12) preceding bases, or those on both sides.

    Order 12 needs 0.36 GB for counts during fitting (0.7 for 1 Gb and more; briefly twice that), and 0.36 GB
    afterwards.
    """

    def __init__(
        self, order: int = LARGEST_ORDER, *, both_strands: bool = True
    ) -> None:
        if not 0 <= order <= LARGEST_ORDER:
            raise ValueError(f"order must be from 0 to {LARGEST_ORDER}, not {order}")
        self.order = order
        self.both_strands = both_strands
        self.strengths: list[float] = []  # a_0 to a_order, once chosen
        self.validation: list[
            float
        ] = []  # bits per base by order, on the data for choosing strengths
        self._counts: list[Counts] = []
        self.tables: list[NDArray[np.float32]] = []  # P_k, (4 ** k, 4), by k

    def fit(self, sequences: Iterable[Codes]) -> Self:
        """Count in `sequences`, 1-D arrays of base codes: A 0, C 1, G 2, T 3, N 4; each is read once.

        Words never include an N or span two sequences.
        """
        self._counts = count_words(
            sequences, self.order + 1, both_strands=self.both_strands
        )
        self.tables, self.strengths, self.validation = [], [], []
        if not self._counts[0].any():
            raise ValueError("a Markov model needs at least one training base")
        return self

    def mix(self, sequences: Iterable[Codes]) -> Self:
        """Choose the strengths, lowest order first, by the bits of all bases of `sequences`.

        This needs 100 bytes per base: a few megabases suffice.
        """
        self._require_counts()
        parts, runs = [np.zeros(0, np.int64)], [np.zeros(0, np.int8)]
        for sequence in sequences:
            codes = checked_codes(sequence)
            run = known_before(codes)
            parts.append(words_ending(codes, self.order + 1)[run > 0])
            runs.append(np.minimum(run[run > 0], self.order + 1).astype(np.int8))
        ending, known = np.concatenate(parts), np.concatenate(runs)
        if not len(ending):
            raise ValueError("choosing strengths needs at least one known base")
        probabilities = np.full(len(ending), 0.25)
        strengths = []
        self.validation = []
        for order, counts in enumerate(self._counts):
            found = np.flatnonzero(known > order)
            words = ending[found] & (4 ** (order + 1) - 1)
            own = counts[words].astype(np.float64)
            total = counts.reshape(-1, 4)[words >> 2].sum(1, dtype=np.float64)
            strength = _best_strength(own, total, probabilities[found])
            probabilities[found] = (own + strength * probabilities[found]) / (
                total + strength
            )
            strengths.append(strength)
            self.validation.append(float(-np.log2(probabilities).mean()))
        return self.smooth(strengths)

    def smooth(self, strengths: Sequence[float]) -> Self:
        """Convert the counts, which are discarded, to probabilities with given strengths a_0 to a_order."""
        self._require_counts()
        if len(strengths) != self.order + 1 or not min(strengths) > 0:
            raise ValueError(
                f"expected {self.order + 1} strengths above 0, got {[*strengths]}"
            )
        lower = np.full((1, 4), 0.25, np.float32)
        tables: list[NDArray[np.float32]] = []
        while self._counts:
            strength = np.float32(strengths[len(tables)])
            counts = self._counts.pop(0).reshape(-1, *lower.shape)
            table = np.empty(counts.shape, np.float32)
            for part, source in zip(table, counts, strict=True):  # by the oldest base
                totals = source.sum(1, keepdims=True, dtype=np.int64).astype(np.float32)
                part[:] = (source + strength * lower) / (totals + strength)
            lower = np.maximum(table.reshape(-1, 4), np.float32(SMALLEST))
            tables.append(lower)
        self.tables, self.strengths = tables, [*map(float, strengths)]
        return self

    def one_sided(
        self,
        sequence: Codes,
        starts: NDArray[np.integer],
        ends: NDArray[np.integer],
        order: int | None = None,
        before: NDArray[np.integer] | None = None,
    ) -> Floats:
        """Bits (M,) of the bases [start, end) of a sequence, given the preceding bases.

        If fewer than `order` bases (None: the model's order) before a base are known, up to an N or the
        sequence's start, the order is their number. `before` (M,) limits the bases used before each span,
        None: no limit. `ValueError` for a span that is empty, exceeds an end, or contains an N.
        """
        codes, first, last, order = self._checked(sequence, starts, ends, order)
        lengths = last - first
        places = np.repeat(first - np.cumsum(lengths) + lengths, lengths) + np.arange(
            lengths.sum()
        )
        known = np.minimum(known_before(codes)[places] - 1, order)
        if before is not None:
            known = np.minimum(known, np.repeat(before - first, lengths) + places)
        words = words_ending(codes, order + 1)[places]
        bits = np.zeros(len(places))
        for depth in np.unique(known):
            of = known == depth
            bits[of] = -np.log2(
                self.tables[depth]
                .ravel()[words[of] % 4 ** (depth + 1)]
                .astype(np.float64)
            )
        return (
            np.add.reduceat(bits, np.cumsum(lengths) - lengths)
            if len(lengths)
            else np.zeros(0)
        )

    def two_sided(
        self,
        sequence: Codes,
        starts: NDArray[np.integer],
        ends: NDArray[np.integer],
        order: int | None = None,
        before: NDArray[np.integer] | None = None,
        behind: NDArray[np.integer] | None = None,
    ) -> Floats:
        """Bits (M,) of the bases [start, end) of a sequence, given the bases on *both* sides.

        Bases on a side are used up to the first N or the sequence's end, or as many as `before` and `behind`
        (M,) allow. If only d < k bases before a base are known, its probability is that of order d. Spans of
        more than `LONGEST_STATE` bases use at most that order, because the sum over paths needs time and
        memory proportional to 4 ** order. `ValueError` as in `one_sided`.
        """
        codes, first, last, order = self._checked(sequence, starts, ends, order)
        lengths = last - first
        orders = np.where(lengths > LONGEST_STATE, min(order, LONGEST_STATE), order)
        left = np.where(first > 0, known_before(codes)[first - 1], 0)
        reverse = known_before(codes[::-1])[::-1]
        right = np.where(
            last < len(codes), reverse[np.minimum(last, len(codes) - 1)], 0
        )
        left = left if before is None else np.minimum(left, before)
        right = right if behind is None else np.minimum(right, behind)
        shapes = np.stack(
            [lengths, orders, np.minimum(left, orders), np.minimum(right, orders)],
            axis=1,
        )
        words = words_ending(codes, max(order, 1))
        bits = np.zeros(len(first))
        kinds, which = np.unique(shapes, axis=0, return_inverse=True)
        for number, kind in enumerate(kinds.tolist()):
            shape = _Shape(*kind)
            members = np.flatnonzero(which.ravel() == number)
            chunk = max(STATES // 4 ** min(shape.length, shape.order), 1)
            for start in range(0, len(members), chunk):
                chosen = first[members[start : start + chunk]]
                context = words[chosen - 1] % 4**shape.left
                path = codes[
                    chosen[:, None] + np.arange(shape.length + shape.right)
                ].astype(np.int64)
                own = _path(self.tables, shape, context, path)
                whole = _all_paths(self.tables, shape, context, path)
                # Negative only by rounding.
                bits[members[start : start + chunk]] = np.maximum(whole - own, 0.0)
        return bits

    def _require_counts(self) -> None:
        if not self._counts:
            raise ValueError("the Markov model has no counts; call fit first")

    def _checked(
        self,
        sequence: Codes,
        starts: NDArray[np.integer],
        ends: NDArray[np.integer],
        order: int | None,
    ) -> tuple[Codes, Words, Words, int]:
        """A valid sequence, starts and ends (M,) of spans of known bases, and order; else `ValueError`."""
        if not self.tables:
            raise ValueError(
                "the Markov model has no probabilities; call fit and mix first"
            )
        if order is not None and not 0 <= order <= self.order:
            raise ValueError(f"order must be from 0 to {self.order}, not {order}")
        codes = checked_codes(sequence)
        first, last = (
            np.asarray(starts, dtype=np.int64),
            np.asarray(ends, dtype=np.int64),
        )
        if first.ndim != 1 or first.shape != last.shape:
            raise ValueError(
                f"starts {first.shape} and ends {last.shape} must be 1-D with equal lengths"
            )
        wrong = np.flatnonzero((first < 0) | (first >= last) | (last > len(codes)))
        if not wrong.size:
            unknown = np.append(0, np.cumsum(codes >= UNKNOWN))
            wrong = np.flatnonzero(unknown[last] > unknown[first])
        if wrong.size:
            start, end = first[wrong[0]], last[wrong[0]]
            raise ValueError(
                f"{start} to {end} is not a span of known bases in a sequence of {len(codes)}"
            )
        return codes, first, last, self.order if order is None else order


def _best_strength(own: Floats, total: Floats, lower: Floats) -> float:
    """The strength with the lowest cost: the best power of two, then the best of values around it."""

    def cost(strength: float) -> float:
        return -float(np.log((own + strength * lower) / (total + strength)).sum())

    if not len(own):
        return 1.0
    coarse = min(_COARSE.tolist(), key=cost)
    return float(min((coarse * _FINE).tolist(), key=cost))


def count_words(
    sequences: Iterable[Codes], longest: int, *, both_strands: bool
) -> list[Counts]:
    """Tables of counts by number of bases, from one to `longest`: table n − 1, (4 ** n,), counts words of n.

    Every known base is counted once in table n with the n − 1 preceding bases, if these are known. With both
    strands, each sequence's reverse complement is also counted. Counts have 4 bytes, or 8 from 1 Gb of both
    strands on, to avoid overflow.
    """
    tables: list[Counts] = [np.zeros(4**n, np.int32) for n in range(1, longest + 1)]
    places = 0
    for sequence in sequences:
        codes = checked_codes(sequence)
        places += len(codes) * (1 + both_strands)
        if places > np.iinfo(np.int32).max and tables[0].dtype == np.int32:
            tables = [table.astype(np.int64) for table in tables]
        for start in range(0, len(codes), SLICE):
            _count_slice(tables, codes, start, both_strands)
    if both_strands:
        tables[-1] += _turned(tables[-1])
    # So far each place is counted only in the longest word that ends there; add the shorter words.
    for shorter, longer in zip(reversed(tables[:-1]), reversed(tables), strict=False):
        shorter += longer.reshape(4, -1).sum(0, dtype=longer.dtype)
    return tables


def checked_codes(sequence: Codes) -> Codes:
    """`sequence` itself; `ValueError` unless it is 1-D with integers from 0 to 4."""
    codes = np.asarray(sequence)
    if codes.ndim != 1 or not (
        np.issubdtype(codes.dtype, np.integer) or not codes.size
    ):
        raise ValueError(
            f"bases must be a 1-D array of integers, not {codes.ndim}-D {codes.dtype}"
        )
    if codes.size and not 0 <= codes.min() <= codes.max() <= UNKNOWN:
        raise ValueError(
            f"base codes must be from 0 to {UNKNOWN}, found {codes.min()} to {codes.max()}"
        )
    return codes


def _count_slice(
    tables: list[Counts], codes: Codes, start: int, both_strands: bool
) -> None:
    """Count the longest word, up to that of the last table, that ends at each place of a slice.

    On the other strand, only words at the ends of a run are counted here; the rest is derived from the table.
    """
    longest = len(tables)
    first, stop = max(start - longest + 1, 0), min(start + SLICE, len(codes))
    words = words_ending(codes[first:stop], longest)[start - first :]
    known = known_before(codes[first:stop])[start - first :]
    full = known >= longest
    np.add.at(
        tables[-1], words if full.all() else words[full], tables[-1].dtype.type(1)
    )
    for place in np.flatnonzero((known > 0) & ~full):
        bases = int(known[place])
        tables[bases - 1][words[place] % 4**bases] += 1
    if not both_strands:
        return
    follows = stop < len(codes) and codes[stop] < UNKNOWN
    for place in np.flatnonzero((known > 0) & (np.append(known[1:], follows) == 0)):
        for bases in range(1, min(longest - 1, int(known[place])) + 1):
            tables[bases - 1][turned_word(words[place] % 4**bases, bases)] += 1


def _turned(table: Counts) -> Counts:
    """The table (4 ** n,) of the reverse complements: the count of word w is at w's reverse complement."""
    bases = (len(table).bit_length() - 1) // 2
    front = bases // 2
    back = bases - front
    grid = table.reshape(4**front, 4**back)
    rows = turned_word(np.arange(4**front), front)
    columns = turned_word(np.arange(4**back), back)
    # The complement of the back comes first; the number of rows at a time fits in the cache.
    found = np.empty((4**back, 4**front), table.dtype)
    for start in range(0, len(found), 64):
        found[start : start + 64] = grid[:, columns[start : start + 64]].T[:, rows]
    return found.ravel()


class _Shape(NamedTuple):
    """Common properties of spans that are evaluated together."""

    length: int
    order: int
    left: int  # known bases to the left, at most `order`
    right: int  # known bases to the right, at most `order`


def _path(
    tables: list[NDArray[np.float32]], shape: _Shape, context: Words, path: Words
) -> Floats:
    """Log2 of the probability of `path`, (M, length + right), after `context`, (M,)."""
    bits = np.zeros(len(path))
    for step, base in enumerate(path.T):
        depth = min(shape.left + step, shape.order)
        word = context * 4 + base
        bits += np.log2(tables[depth].ravel()[word].astype(np.float64))
        context = word % 4 ** min(depth + 1, shape.order)
    return bits


def _all_paths(
    tables: list[NDArray[np.float32]], shape: _Shape, context: Words, path: Words
) -> Floats:
    """Log2 of the sum, over all spans, of the probability of the span and the bases to its right, (M,).

    A state is the last bases: `fixed` ones left of the span, `inside` ones of the span, which are all words
    of this length in order, and `behind` ones right of it. So the probabilities of a base after all states
    are a slice of a table.
    """
    length, order, fixed, right = shape
    spans = len(path)
    bits = np.zeros(spans)
    sums = np.ones((spans, 1))  # (M, 4 ** inside)
    inside = behind = 0
    word = np.zeros(spans, np.int64)  # the `behind` bases
    for step in range(length + right):
        depth = fixed + inside + behind
        table = tables[depth].reshape(4**fixed, 4**inside, -1)
        if step < length:
            sums = (sums[:, :, None] * table[context]).reshape(spans, -1)
            inside += 1
        else:
            behind += 1
            word = word * 4 + path[:, step]
            sums = sums * table[context, :, word]
        if depth == order:  # the oldest base of the state leaves
            if fixed:
                fixed -= 1
                context = context % 4**fixed
            elif inside:
                inside -= 1
                sums = sums.reshape(spans, 4, -1).sum(1)
            else:
                behind -= 1
                word = word % 4**behind
        if (step if step < length else step - length) % STEPS == STEPS - 1:
            scale = sums.sum(1)
            sums, bits = sums / scale[:, None], bits + np.log2(scale)
    whole: Floats = bits + np.log2(sums.sum(1))
    return whole
