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

from bigbird_dna.baselines.kmers import other_strand
from bigbird_dna.genome.sequence import known_before, words_ending

Floats32 = NDArray[np.float32]

# Axes: M spans, those of one `_Shape` computed together; S states.

LARGEST_ORDER = 12
# Longer spans are evaluated with at most this order: 4 ** 8 states take several milliseconds each.
LONGEST_STATE = 8
# Lower limit of probabilities, so that products along a path do not underflow.
SMALLEST = 1e-9
_COARSE = 2.0 ** np.arange(-2, 23)
_FINE = 2.0 ** np.linspace(-0.75, 0.75, 7)
STATES = 1 << 17  # of all spans computed at a time: 1 MB, about the size of a cache
STEPS = 8  # steps after which sums are rescaled to avoid underflow

Codes = NDArray[np.integer]  # base codes 0 to 4
Words = NDArray[np.int64]
Floats = NDArray[np.float64]


class Markov:
    """Probabilities of bases given the `order` (0 to 12) preceding bases, or those on both sides.

    Order 12 needs 0.7 GB for counts during fitting (briefly twice that), and 0.36 GB afterwards.
    """

    def __init__(
        self, order: int = LARGEST_ORDER, *, both_strands: bool = True
    ) -> None:
        self.order, self.both_strands = order, both_strands
        self.strengths: list[float] = []  # a_0 to a_order, once chosen
        self.tables: list[Floats32] = []  # P_k, (4 ** k, 4), by k
        self._counts: list[Words] = []

    def fit(self, sequences: Iterable[Codes]) -> Self:
        """Count in `sequences`, 1-D arrays of base codes: A 0, C 1, G 2, T 3, N 4; each is read once.

        Words never include an N or span two sequences.
        """
        self._counts = count_words(
            sequences, self.order + 1, both_strands=self.both_strands
        )
        if not self._counts[0].any():
            raise ValueError("a Markov model needs at least one training base")
        return self

    def mix(self, sequences: Iterable[Codes]) -> Self:
        """Choose the strengths, lowest order first, by the bits of all bases of `sequences`.

        This needs 100 bytes per base: a few megabases suffice.
        """
        words, runs = [], []
        for codes in sequences:
            run = known_before(codes)
            words.append(words_ending(codes, self.order + 1)[run > 0])
            runs.append(np.minimum(run[run > 0], self.order + 1).astype(np.int8))
        ending, known = np.concatenate(words), np.concatenate(runs)
        probabilities = np.full(len(ending), 0.25)
        strengths = []
        for order, counts in enumerate(self._counts):
            rows = np.flatnonzero(known > order)
            word = ending[rows] & (4 ** (order + 1) - 1)
            count = counts[word].astype(np.float64)
            total = counts.reshape(-1, 4)[word >> 2].sum(1).astype(np.float64)
            lower = probabilities[rows]
            strength = _best_strength(count, total, lower)
            probabilities[rows] = (count + strength * lower) / (total + strength)
            strengths.append(strength)
        return self.smooth(strengths)

    def smooth(self, strengths: Sequence[float]) -> Self:
        """Convert the counts, which are discarded, to probabilities with given strengths a_0 to a_order."""
        lower = np.full((1, 4), 0.25, np.float32)
        self.tables, self.strengths = [], [*map(float, strengths)]
        for strength in np.array(strengths, np.float32):
            counts = self._counts.pop(0).reshape(-1, *lower.shape)
            table = np.empty(counts.shape, np.float32)
            for part, source in zip(table, counts, strict=True):  # by the oldest base
                totals = source.sum(1, keepdims=True).astype(np.float32)
                part[:] = (source + strength * lower) / (totals + strength)
            lower = np.maximum(table.reshape(-1, 4), np.float32(SMALLEST))
            self.tables.append(lower)
        return self

    def one_sided(
        self,
        codes: Codes,
        starts: Words,
        ends: Words,
        order: int | None = None,
        before: Words | None = None,
    ) -> Floats:
        """Bits (M,) of the known bases [start, end) of a sequence, given the preceding bases.

        If fewer than `order` bases (None: the model's order) before a base are known, up to an N or the
        sequence's start, the order is their number. `before` (M,) limits the bases used before each span,
        None: no limit.
        """
        if not len(starts):
            return np.zeros(0)
        order = self.order if order is None else order
        lengths = ends - starts
        offsets = np.cumsum(lengths) - lengths
        positions = np.repeat(starts - offsets, lengths) + np.arange(lengths.sum())
        known = np.minimum(known_before(codes)[positions] - 1, order)
        if before is not None:
            limit = np.repeat(before - starts, lengths) + positions
            known = np.minimum(known, limit)
        words = words_ending(codes, order + 1)[positions]
        bits = np.zeros(len(positions))
        for depth in np.unique(known):
            rows = known == depth
            table = self.tables[depth].ravel()
            chances = table[words[rows] % 4 ** (depth + 1)]
            bits[rows] = -np.log2(chances.astype(np.float64))
        return np.add.reduceat(bits, offsets)

    def two_sided(
        self,
        codes: Codes,
        starts: Words,
        ends: Words,
        order: int | None = None,
        before: Words | None = None,
        behind: Words | None = None,
    ) -> Floats:
        """Bits (M,) of the known bases [start, end) of a sequence, given the bases on *both* sides.

        Bases on a side are used up to the first N or the sequence's end, or as many as `before` and `behind`
        (M,) allow. If only d < k bases before a base are known, its probability is that of order d. Spans of
        more than `LONGEST_STATE` bases use at most that order, because the sum over paths needs time and
        memory proportional to 4 ** order.
        """
        order = self.order if order is None else order
        lengths = ends - starts
        orders = np.where(lengths > LONGEST_STATE, min(order, LONGEST_STATE), order)
        left = np.append(known_before(codes), 0)[starts - 1]  # 0 at the start
        right = np.append(known_before(codes[::-1])[::-1], 0)[ends]
        left = left if before is None else np.minimum(left, before)
        right = right if behind is None else np.minimum(right, behind)
        left, right = np.minimum(left, orders), np.minimum(right, orders)
        words = words_ending(codes, max(order, 1))
        bits = np.zeros(len(starts))
        kinds, which = np.unique(
            np.stack([lengths, orders, left, right], axis=1),
            axis=0,
            return_inverse=True,
        )
        for number, kind in enumerate(kinds.tolist()):
            shape = _Shape(*kind)
            members = np.flatnonzero(which.ravel() == number)
            size = max(STATES // 4 ** min(shape.length, shape.order), 1)
            for first in range(0, len(members), size):
                rows = members[first : first + size]
                context = words[starts[rows] - 1] % 4**shape.left
                offsets = np.arange(shape.length + shape.right)
                path = codes[starts[rows, None] + offsets].astype(np.int64)
                total = _all_paths(self.tables, shape, context, path)
                difference = total - _path(self.tables, shape, context, path)
                bits[rows] = np.maximum(difference, 0.0)  # negative only by rounding
        return bits


def _best_strength(count: Floats, total: Floats, lower: Floats) -> float:
    """The strength with the lowest cost: the best power of two, then the best of values around it."""

    def cost(strength: float) -> float:
        return -float(np.log((count + strength * lower) / (total + strength)).sum())

    if not len(count):
        return 1.0
    coarse = min(_COARSE.tolist(), key=cost)
    return float(min((coarse * _FINE).tolist(), key=cost))


def count_words(
    sequences: Iterable[Codes], longest: int, *, both_strands: bool
) -> list[Words]:
    """Tables of counts by number of bases, from one to `longest`: table n − 1, (4 ** n,), counts words of n.

    Every known base is counted once in table n with the n − 1 preceding bases, if these are known. With both
    strands, each sequence's reverse complement is also counted.
    """
    tables = [np.zeros(4**n, np.int64) for n in range(1, longest + 1)]
    for codes in sequences:
        words, known = words_ending(codes, longest), known_before(codes)
        np.add.at(tables[-1], words[known >= longest], 1)
        _count_starts(tables, words, known)
        if both_strands:
            reverse = other_strand(codes)
            _count_starts(tables, words_ending(reverse, longest), known_before(reverse))
    if both_strands:
        # The reverse complement of a word has the opposite digits in the opposite order.
        digits = tables[-1].reshape((4,) * longest)
        tables[-1] += digits.transpose().ravel()[::-1]
    # So far each base is counted only in the longest word that ends there; add the shorter words.
    for shorter, longer in zip(reversed(tables[:-1]), reversed(tables), strict=False):
        shorter += longer.reshape(4, -1).sum(0)
    return tables


def _count_starts(tables: list[Words], words: Words, known: Words) -> None:
    """Count the words that end in the first bases after an N, which have fewer bases than the last table's."""
    for bases, table in enumerate(tables[:-1], start=1):
        np.add.at(table, words[known == bases] % 4**bases, 1)


class _Shape(NamedTuple):
    """Common properties of spans that are evaluated together."""

    length: int
    order: int
    left: int  # known bases to the left, at most `order`
    right: int  # known bases to the right, at most `order`


def _path(tables: list[Floats32], shape: _Shape, context: Words, path: Words) -> Floats:
    """Log2 of the probability of `path`, (M, length + right), after `context`, (M,)."""
    bits = np.zeros(len(path))
    for step, base in enumerate(path.T):
        depth = min(shape.left + step, shape.order)
        word = context * 4 + base
        bits += np.log2(tables[depth].ravel()[word].astype(np.float64))
        context = word % 4 ** min(depth + 1, shape.order)
    return bits


def _all_paths(
    tables: list[Floats32], shape: _Shape, context: Words, path: Words
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
    return np.asarray(bits + np.log2(sums.sum(1)))
