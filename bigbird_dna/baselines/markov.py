"""Markov models over bases: the plainest rivals of a DNA language model, made as strong as they get.

The probability of a base given the k before it, each order smoothed by the one below:

    P_k(x | c) = (n(cx) + a_k P_{k−1}(x | c')) / (n(c·) + a_k),    P_{−1} = 1/4

n counts in the training sequences (of both strands, unless told otherwise), c' is c without its oldest base,
and the strengths a_k are chosen on validation sequences.

**What favours these baselines.** Strengths and orders are chosen on validation sequences; where those are
also the ones that are judged, that is a choice after the fact. The bases around a stretch are all seen, also
those that are hidden from a masked-token model, unless `before` and `behind` say how many may be. And the
length of the stretch is known to `two_sided`, where the masked-token model has to guess a piece among those
of all lengths. In turn the masked-token model knows where the pieces around it begin and end.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.baselines.markov_counts import (
    Codes,
    Counts,
    Words,
    bridge_bits,
    checked_codes,
    count_words,
    known_before,
    words_ending,
)

LARGEST_ORDER = 12
# No probability is smaller, so that products along a path stay in the range of numbers.
SMALLEST = 1e-9
_COARSE = 2.0 ** np.arange(-2, 23)
_FINE = 2.0 ** np.linspace(-0.75, 0.75, 7)

Bits = NDArray[np.float64]


class Markov:
    """Probabilities of bases from the `order` bases before them, and from those on both sides.

    Parameters
    ----------
    order : the largest number of bases before, 0 to 12.
    both_strands : count the reverse complement of the training sequences as well.

    Attributes
    ----------
    strengths : a_0 to a_order, once they are chosen.
    validation : bits per base by order, on the sequences that the strengths were chosen on.

    Notes
    -----
    Order 12 takes 0.36 GB of counts while it is fitted (0.7 for 1 Gb and more; twice that for a moment), and
    0.36 GB afterwards.
    """

    def __init__(self, order: int = LARGEST_ORDER, *, both_strands: bool = True) -> None:
        if not 0 <= order <= LARGEST_ORDER:
            raise ValueError(f"order must be from 0 to {LARGEST_ORDER}, not {order}")
        self.order = order
        self.both_strands = both_strands
        self.strengths: list[float] = []
        self.validation: list[float] = []
        self._counts: list[Counts] = []
        self.tables: list[NDArray[np.float32]] = []  # P_k, (4 ** k, 4), by k

    def fit(self, sequences: Iterable[Codes]) -> Self:
        """Count in `sequences`, 1-D arrays of base codes: A 0, C 1, G 2, T 3, N 4; each is read once.

        Nothing is counted over an N or from one sequence to the next.
        """
        self._counts = count_words(sequences, self.order + 1, both_strands=self.both_strands)
        self.tables, self.strengths, self.validation = [], [], []
        if not self._counts[0].any():
            raise ValueError("a Markov model needs at least one base to learn from")
        return self

    def mix(self, sequences: Iterable[Codes]) -> Self:
        """Choose the strengths, the lowest order first, by the bits of all bases of `sequences`.

        That takes 100 bytes a base: give it some megabases.
        """
        self._require_counts()
        bases = _gather(sequences, self.order + 1)
        probabilities = np.full(len(bases.words), 0.25)
        strengths = []
        self.validation = []
        for order, counts in enumerate(self._counts):
            found = np.flatnonzero(bases.known > order)
            words = bases.words[found] & (4 ** (order + 1) - 1)
            own = counts[words].astype(np.float64)
            total = counts.reshape(-1, 4)[words >> 2].sum(1, dtype=np.float64)
            strength = _best_strength(own, total, probabilities[found])
            probabilities[found] = (own + strength * probabilities[found]) / (total + strength)
            strengths.append(strength)
            self.validation.append(float(-np.log2(probabilities).mean()))
        return self.smooth(strengths)

    def smooth(self, strengths: Sequence[float]) -> Self:
        """Turn the counts, which are used up, into probabilities with given strengths a_0 to a_order."""
        self._require_counts()
        if len(strengths) != self.order + 1 or not min(strengths) > 0:
            raise ValueError(f"{self.order + 1} strengths above 0 are needed, not {[*strengths]}")
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
    ) -> Bits:
        """Bits (M,) of the bases [start, end) of a sequence, given those before them.

        Where fewer than `order` bases (None: the model's) are known before a base, up to an N or to the
        sequence's start, the order is that number. `before` (M,) are the bases that may be seen before
        each stretch, None: all.

        Raises
        ------
        ValueError : a stretch is empty, reaches over an end, or holds an N.
        """
        order = self._checked_order(order)
        codes = checked_codes(sequence)
        first, last = checked_stretches(codes, starts, ends)
        lengths = last - first
        places = np.repeat(first - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())
        known = np.minimum(known_before(codes)[places] - 1, order)
        if before is not None:
            known = np.minimum(known, np.repeat(before - first, lengths) + places)
        words = words_ending(codes, order + 1)[places]
        bits = np.zeros(len(places))
        for depth in np.unique(known):
            of = known == depth
            bits[of] = -np.log2(self.tables[depth].ravel()[words[of] % 4 ** (depth + 1)].astype(np.float64))
        return np.add.reduceat(bits, np.cumsum(lengths) - lengths) if len(lengths) else np.zeros(0)

    def two_sided(
        self,
        sequence: Codes,
        starts: NDArray[np.integer],
        ends: NDArray[np.integer],
        order: int | None = None,
        before: NDArray[np.integer] | None = None,
        behind: NDArray[np.integer] | None = None,
    ) -> Bits:
        """Bits (M,) of the bases [start, end) of a sequence, given those before *and* behind them.

        It is the Markov model's exact conditional probability: that of the path through the stretch and the
        `order` bases behind it, given the `order` before, as a share of all 4 ** L such paths. Where fewer
        are known, up to an N or an end of the sequence, those are all that is given. Stretches of more than
        eight bases are judged by order eight at most: the sum over paths takes time and memory of 4 ** order.
        `before` and `behind` (M,) are the bases that may be seen on either side, None: all.

        Raises
        ------
        ValueError : a stretch is empty, reaches over an end, or holds an N.
        """
        order = self._checked_order(order)
        codes = checked_codes(sequence)
        stretches = checked_stretches(codes, starts, ends)
        return bridge_bits(self.tables, codes, *stretches, order, before, behind)

    def _require_counts(self) -> None:
        if not self._counts:
            raise ValueError("the Markov model has no counts: fit it first")

    def _checked_order(self, order: int | None) -> int:
        if not self.tables:
            raise ValueError("the Markov model has no probabilities: fit and mix it first")
        if order is not None and not 0 <= order <= self.order:
            raise ValueError(f"order must be from 0 to {self.order}, not {order}")
        return self.order if order is None else order


def checked_stretches(
    codes: Codes, starts: NDArray[np.integer], ends: NDArray[np.integer]
) -> tuple[Words, Words]:
    """Starts and ends (M,) of stretches of known bases; `ValueError` for others."""
    first, last = np.asarray(starts, dtype=np.int64), np.asarray(ends, dtype=np.int64)
    if first.ndim != 1 or first.shape != last.shape:
        raise ValueError(f"starts {first.shape} and ends {last.shape} must be two rows of the same length")
    wrong = np.flatnonzero((first < 0) | (first >= last) | (last > len(codes)))
    if not wrong.size:
        unknown = np.append(0, np.cumsum(codes >= 4))
        wrong = np.flatnonzero(unknown[last] > unknown[first])
    if wrong.size:
        start, end = first[wrong[0]], last[wrong[0]]
        raise ValueError(f"{start} to {end} is not a stretch of known bases of a sequence of {len(codes)}")
    return first, last


class _Bases(NamedTuple):
    """The known bases of sequences."""

    words: Words  # (N,) the word that ends at the base
    known: NDArray[np.int8]  # (N,) known bases up to it, at most the word's length


def _gather(sequences: Iterable[Codes], longest: int) -> _Bases:
    words, known = [np.zeros(0, np.int64)], [np.zeros(0, np.int8)]
    for sequence in sequences:
        codes = checked_codes(sequence)
        run = known_before(codes)
        words.append(words_ending(codes, longest)[run > 0])
        known.append(np.minimum(run[run > 0], longest).astype(np.int8))
    found = _Bases(np.concatenate(words), np.concatenate(known))
    if not len(found.words):
        raise ValueError("strengths are chosen on at least one known base")
    return found


def _best_strength(own: Bits, total: Bits, lower: Bits) -> float:
    """The strength at which the bases cost least: the best of powers of two, then of values around it."""

    def cost(strength: float) -> float:
        return -float(np.log((own + strength * lower) / (total + strength)).sum())

    if not len(own):
        return 1.0
    coarse = min(_COARSE.tolist(), key=cost)
    return float(min((coarse * _FINE).tolist(), key=cost))
