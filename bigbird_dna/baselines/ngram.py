"""Bigrams over tokens: interpolated modified Kneser–Ney, the SRILM baseline of App. F.

Chen & Goodman (1999), eq. 27 ff.:

    P(w | h) = (c(hw) − D(c(hw))) / c(h·) + gamma(h) P_1(w)

where P_1 counts the distinct left neighbors of w, and is smoothed likewise with 1 / vocabulary. One boundary
symbol precedes every sequence, and occurs nowhere else. Longer n-grams predicted no better on any genome.

A two-sided bigram is the normalized product of a forward and a backward one:

    P(w | l, r) ∝ P_0(w) (P_f(w | l) / P_0(w))^a (P_b(w | r) / P_0(w))^b

with P_0 the frequency of w. If both sides were independent given w, a = b = 1 would be exact; the exponents
are those with the fewest bits on validation tokens. A hidden neighbor is no context.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse import csr_matrix
from scipy.special import log_softmax

Ids = NDArray[np.int64]
Tokens = NDArray[np.integer]
Floats = NDArray[np.float64]

# Axes: M tokens, V vocabulary, C candidates (tokens that may be hidden).

# Used if the counts of counts give no estimate (few or saturated counts); KenLM's choice.
FALLBACK_DISCOUNTS = (0.5, 1.0, 1.5)
# Most tokens on which exponents are chosen, and most probabilities in memory.
CHOOSING_TOKENS = 4000
CELLS = 1 << 23


class MaskedTokens(NamedTuple):
    """Documents, and which of their tokens are hidden."""

    documents: Sequence[Tokens]  # token ids of complete documents, each (n,)
    hidden: Sequence[Tokens]  # positions of hidden tokens in each, ascending


def discounts(counts: Ids) -> Floats:
    """What Kneser–Ney takes off each count, estimated from how many counts are 1 to 4."""
    values = np.array([0.0, *FALLBACK_DISCOUNTS])
    number = np.bincount(np.minimum(counts, 5), minlength=6)[1:5].astype(float)
    if number[:3].min() > 0:
        k = np.arange(1, 4)
        ratio = number[0] / (number[0] + 2 * number[1])
        estimates = k - (k + 1) * ratio * number[1:] / number[:3]
        if ((estimates > 0) & (estimates < k)).all():
            values[1:] = estimates
    return values[np.minimum(counts, 3)]


def smoothed(counts: Ids) -> Floats:
    """Probabilities (V,) of tokens by their counts, with the discounts spread over all tokens."""
    saved = discounts(counts)
    return np.asarray((counts - saved + saved.sum() / len(counts)) / counts.sum())


class Bigram:
    """Token probabilities given the preceding token; ids are from 0 to `vocabulary − 1`."""

    def __init__(self, vocabulary: int) -> None:
        self.vocabulary = vocabulary

    def fit(self, sequences: Sequence[Tokens]) -> Self:
        """Count the pairs of `sequences`, 1-D arrays of ids; none spans two sequences.

        `ValueError` without any token.
        """
        boundary = np.array([self.vocabulary])
        text = np.concatenate(
            [part for sequence in sequences for part in (boundary, sequence)]
        ).astype(np.int64)
        inside = text[1:] != self.vocabulary
        left, right = text[:-1][inside], text[1:][inside]
        if not len(right):
            raise ValueError("an n-gram model needs at least one training token")

        # The rows of contexts: tokens, the boundary, and an unknown token, which never occurs.
        shape = (self.vocabulary + 2, self.vocabulary)
        pairs = csr_matrix((np.ones(len(left), np.int64), (left, right)), shape=shape)
        pairs.sum_duplicates()
        self.unigram = smoothed(np.bincount(pairs.indices, minlength=shape[1]))

        saved = pairs.copy().astype(np.float64)
        saved.data = discounts(pairs.data)
        totals = np.asarray(pairs.sum(1)).ravel()
        scale = 1 / np.maximum(totals, 1)
        rest = np.asarray(saved.sum(1)).ravel()
        self.backoff = np.where(totals > 0, rest * scale, 1.0)
        self.pairs = csr_matrix((pairs - saved).multiply(scale[:, None]))
        return self

    def probabilities(self, contexts: Ids) -> Floats:
        """Return the probability of every token after each context, (M, V).

        `contexts` (M,) are ids, `vocabulary` for the beginning of a sequence, or −1 for an unknown token.
        """
        rows = self.pairs[contexts % len(self.backoff)].toarray()
        return np.asarray(rows + self.backoff[contexts, None] * self.unigram)


class TwoSidedBigram:
    """Probabilities of hidden tokens given the known token on each side, among `candidates` (C,)."""

    def __init__(self, vocabulary: int, candidates: Tokens) -> None:
        self.vocabulary, self.candidates = vocabulary, candidates
        self.forward, self.backward = Bigram(vocabulary), Bigram(vocabulary)
        self.exponents = np.ones(2)  # a and b

    def fit(self, sequences: Sequence[Tokens], validation: MaskedTokens) -> Self:
        """Count bigrams of sequences, and choose the exponents on hidden validation tokens.

        Parameters
        ----------
        sequences
            Token ids, each (n,); `ValueError` if there are none.
        validation
            Documents with hidden tokens, of which at most `CHOOSING_TOKENS` evenly spaced ones are used.
        """
        self.forward.fit(sequences)
        self.backward.fit([sequence[::-1] for sequence in sequences])
        counts = np.bincount(np.concatenate(sequences), minlength=self.vocabulary)
        self.frequencies = smoothed(counts)

        targets, left, right = self._look_up(validation)
        count = min(len(targets), CHOOSING_TOKENS, 1 + CELLS // len(self.candidates))
        chosen = np.linspace(0, len(targets) - 1, count).astype(np.int64)
        targets, rows = targets[chosen], np.arange(count)
        base, ratios = self._factors(left[chosen], right[chosen])

        def cost(exponents: Floats) -> tuple[float, Floats]:
            logs = log_softmax(base + np.tensordot(exponents, ratios, 1), axis=1)
            expected = np.einsum("mc,fmc->f", np.exp(logs), ratios)
            gradient = expected - ratios[:, rows, targets].sum(1)
            return -float(logs[rows, targets].mean()), gradient / count

        self.exponents = minimize(cost, np.ones(2), jac=True, method="L-BFGS-B").x
        return self

    def bits(self, masked: MaskedTokens) -> Floats:
        """Return the bits (M,) of the hidden tokens, document by document."""
        targets, left, right = self._look_up(masked)
        bits = np.zeros(len(targets))
        size = 1 + CELLS // len(self.candidates)
        for first in range(0, len(targets), size):
            part = slice(first, first + size)
            base, ratios = self._factors(left[part], right[part])
            logs = log_softmax(base + np.tensordot(self.exponents, ratios, 1), axis=1)
            bits[part] = -logs[np.arange(len(logs)), targets[part]] / np.log(2)
        return bits

    def _look_up(self, masked: MaskedTokens) -> tuple[Ids, Ids, Ids]:
        """The hidden tokens (M,) as indices of candidates, and their neighbors (M,); −1: hidden too."""
        columns = [np.zeros((3, 0), np.int64)]
        for document, positions in zip(*masked, strict=True):
            known = np.pad(
                document.astype(np.int64), 1, constant_values=self.vocabulary
            )
            targets = np.searchsorted(self.candidates, known[positions + 1])
            known[positions + 1] = -1
            columns.append(np.stack([targets, known[positions], known[positions + 2]]))
        targets, left, right = np.concatenate(columns, axis=1)
        return targets, left, right

    def _factors(self, left: Ids, right: Ids) -> tuple[Floats, Floats]:
        """Log P_0 (C,), and what both sides add to it (2, M, C)."""
        base = np.log(self.frequencies[self.candidates])
        sides = [
            np.log(self.forward.probabilities(left)[:, self.candidates]) - base,
            np.log(self.backward.probabilities(right)[:, self.candidates]) - base,
        ]
        return base, np.stack(sides)
