"""A Markov model over bases that predicts spans of bases from both sides.

The probability of a base given the k preceding bases, with each order smoothed by the next lower one:

    P_k(x | c) = (n(cx) + a_k P_{k−1}(x | c')) / (n(c·) + a_k),    P_{−1} = 1/4

n are counts in the training sequences, c' is c without its oldest base, and the strengths a_k are chosen on
validation sequences. An N, or an unknown base, ends a context: the probability is that of the bases after it.

The probability of a span x between l and r (`ORDER` bases each) is exact:

    P(x | l, r) = P(x r | l) / Σ_y P(y r | l),    P(x r | l) = Π_i P(base i | its preceding bases)

The sum over all spans y of the same length runs along the sequence (forward algorithm). The model knows the
span's length, whereas a masked-token model must predict a token among those of all lengths. In turn, the
masked-token model receives the boundaries of the surrounding tokens.

A context is a number in base 5 (A 0, C 1, G 2, T 3, N 4), oldest base first.
"""

from collections.abc import Iterable
from typing import Self

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from bigbird_dna.baselines.kmers import other_strand
from bigbird_dna.genome.sequence import UNKNOWN

Codes = NDArray[np.integer]  # base codes 0 to 4
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

# Axes: M spans; S states, the words that a span can have so far.

ORDER = 8
SYMBOLS = UNKNOWN + 1
CHOOSING_BASES = 1_000_000
STATES = 1 << 17  # of all spans computed at a time: 1 MB, about the size of a cache


class Markov:
    """Probabilities of spans of bases given `order` bases on both sides, fewer where some are unknown."""

    def __init__(self, order: int = ORDER) -> None:
        self.order = order
        self.strengths: list[float] = []  # a_0 to a_order
        self.table: Floats = np.ones((SYMBOLS**order, SYMBOLS))  # an N has 1

    def fit(
        self,
        training: Iterable[Codes],
        validation: Iterable[Codes],
        both_strands: bool = True,
    ) -> Self:
        """Count in training sequences, and choose the strengths on validation sequences.

        Parameters
        ----------
        training
            Base codes (n,) of sequences, each read once; contexts never span two sequences.
        validation
            As `training`; at most `CHOOSING_BASES` evenly spaced bases are used.
        both_strands
            Count reverse complements of the training sequences too.

        Raises
        ------
        ValueError
            There is no known training base.
        """
        counts = np.zeros(SYMBOLS ** (self.order + 1), np.int64)
        for codes in training:
            np.add.at(counts, self._words(codes), 1)
            if both_strands:
                np.add.at(counts, self._words(other_strand(codes)), 1)

        if not counts.reshape(-1, SYMBOLS)[:, :UNKNOWN].any():
            raise ValueError("a Markov model needs at least one training base")

        words = np.concatenate([self._words(codes) for codes in validation])
        words = words[words % SYMBOLS < UNKNOWN]
        words = words[:: 1 + len(words) // CHOOSING_BASES]
        contexts, bases = words // SYMBOLS, words % SYMBOLS

        self.strengths = []
        probs = np.full((1, UNKNOWN), 0.25)
        known = np.ones(1, bool)
        for order in range(self.order + 1):
            size = SYMBOLS**order
            if order:
                probs = np.tile(probs, (SYMBOLS, 1))
                known = np.append(
                    np.tile(known, UNKNOWN), np.zeros(size // SYMBOLS, bool)
                )

            count = counts.reshape(-1, size, SYMBOLS).sum(0)[:, :UNKNOWN]
            total = count.sum(1, keepdims=True)
            context = contexts % size

            base = bases[known[context]]
            context = context[known[context]]
            n, n_context = count[context, base], total[context, 0]
            lower = probs[context, base]

            def cost(exponent: float) -> float:
                strength = 2.0**exponent
                smoothed = (n + strength * lower) / (n_context + strength)  # noqa: B023
                return -float(np.log(smoothed).sum())

            best = minimize_scalar(cost, bounds=(-3, 23), method="bounded")
            strength = float(2.0**best.x)
            self.strengths.append(strength)
            smoothed = (count + strength * probs) / (total + strength)
            probs = np.where(known[:, None], smoothed, probs)

        self.table[:, :UNKNOWN] = probs
        return self

    def _words(self, codes: Codes) -> Ints:
        """The last `order` + 1 bases at each base as numbers (n,); before a sequence are Ns."""
        padded = np.append(np.full(self.order, UNKNOWN, np.int64), codes)
        digits = sliding_window_view(padded, self.order + 1)
        return digits @ SYMBOLS ** np.arange(self.order, -1, -1)

    def two_sided(self, left: Codes, spans: Codes, right: Codes) -> Floats:
        """Return the bits (M,) of spans, given the bases on both sides.

        Parameters
        ----------
        left, right
            The `order` bases on each side of a span, (M, order), in the direction of the sequence; 4 if
            unknown.
        spans
            The known bases of spans of one length, (M, L).
        """
        length = spans.shape[1]
        bits = [np.zeros(0)]
        rows = max(STATES // UNKNOWN ** min(length, self.order), 1)
        for first in range(0, len(spans), rows):
            part = slice(first, first + rows)
            text = np.concatenate([left[part], spans[part], right[part]], axis=1)
            bits.append(self._bits(text.astype(np.int64), length))

        # Negative only by rounding.
        return np.maximum(np.concatenate(bits), 0.0)

    def _bits(self, text: Ints, length: int) -> Floats:
        order, size = self.order, len(self.table)
        # The context of the true span, and those of all spans (M, S).
        context = text[:, :order] @ SYMBOLS ** np.arange(order - 1, -1, -1)
        contexts = context[:, None]
        path = np.zeros(len(text))
        sums = np.ones((len(text), 1))  # (M, S)
        total = np.zeros(len(text))
        for step, base in enumerate(text[:, order:].T):
            path += np.log2(self.table[context, base])
            context = (context * SYMBOLS + base) % size

            if step < length:
                sums = sums[:, :, None] * self.table[contexts, :UNKNOWN]
                sums = sums.reshape(len(text), -1)
                contexts = contexts[:, :, None] * SYMBOLS + np.arange(UNKNOWN)
                contexts = contexts.reshape(len(text), -1) % size
            else:
                sums = sums * self.table[contexts, base[:, None]]
                contexts = (contexts * SYMBOLS + base[:, None]) % size

            if order <= step < order + length:
                # The oldest base of the span has left all contexts.
                sums = sums.reshape(len(text), UNKNOWN, -1).sum(1)
                contexts = contexts.reshape(len(text), UNKNOWN, -1)[:, 0]

            scale = sums.sum(1)
            total += np.log2(scale)
            sums = sums / scale[:, None]

        return total - path
