"""N-grams over tokens: interpolated modified Kneser–Ney, the SRILM baseline of App. F.

Chen & Goodman (1999), eq. 27 ff. With h' the context h without its oldest token,

    P_k(w | h) = (c(hw) − D(c(hw))) / c(h·) + gamma(h) P_{k−1}(w | h'),    P_0 = 1 / vocabulary

where c counts occurrences at the highest order and distinct left neighbors below it. One boundary symbol
precedes every sequence, and occurs nowhere else; as in SRILM, n-grams that begin with it have no left
neighbor and keep their plain counts. An n-gram's id is its rank among those of its length, in the order of
their keys. Its key is `id of its first n−1 tokens × symbols + last token`: exact, not a hash.

A two-sided n-gram is the normalized product of a forward and a backward n-gram:

    P(w | l, r) ∝ P_1(w) (P_f(w | l) / P_1(w))^a (P_b(w | r) / P_1(w))^b

with P_1 the frequency of w. If both sides were independent given w, a = b = 1 would be exact; the exponents
are those with the fewest bits on validation tokens. A hidden neighbor is no context.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import log_softmax

Ids = NDArray[np.int64]
Tokens = NDArray[np.integer]
Floats = NDArray[np.float64]

# Axes: M tokens, V vocabulary, C candidates (tokens that may be hidden).

# Used if the counts of counts give no estimate (tiny or saturated orders); KenLM's choice.
FALLBACK_DISCOUNTS = (0.5, 1.0, 1.5)
# Most tokens on which exponents are chosen, and most probabilities in memory.
CHOOSING_TOKENS = 4000
CELLS = 1 << 23
EMPTY: Ids = np.zeros((1, 1), np.int64)
"""The context of a model of order 1."""


class MaskedTokens(NamedTuple):
    """Documents, and which of their tokens are hidden."""

    documents: Sequence[Tokens]  # token ids of complete documents, each (n,)
    hidden: Sequence[Tokens]  # positions of hidden tokens in each, ascending


class Order(NamedTuple):
    """The n-grams of one length, in the form needed for probabilities."""

    keys: Ids  # (types,) ascending
    counts: Ids  # (types,) adjusted counts c(hw)
    totals: Ids  # (contexts,) c(h·), 0 if h was never continued
    backoff: Floats  # (contexts,) gamma(h), 1 if c(h·) is 0
    discounts: Floats  # (4,) for counts 0, 1, 2, and 3 or more


class KneserNey:
    """Token probabilities given the `order − 1` preceding tokens; ids are from 0 to `vocabulary − 1`.

    Other ids (-1) are unknown tokens: they cannot be predicted, and are no context.
    """

    def __init__(self, order: int, vocabulary: int) -> None:
        self.order = order
        self.vocabulary = vocabulary
        self._symbols = vocabulary + 1  # the last one is the boundary
        self._orders: list[Order] = []

    def fit(self, sequences: Iterable[Tokens]) -> Self:
        """Count the n-grams of `sequences`, 1-D arrays of ids; none spans two sequences.

        `ValueError` without any token.
        """
        boundary = self.vocabulary
        texts = [np.append(np.int64(boundary), sequence) for sequence in sequences]
        if not any(len(text) > 1 for text in texts):
            raise ValueError("an n-gram model needs at least one training token")
        text = np.concatenate(texts).astype(np.int64)
        self._orders = []
        shorter = np.zeros(len(text), np.int64)  # id of the n-gram ending here, or -1
        size = 1  # number of shorter n-grams
        positions = np.arange(len(text))
        keys = counts = contexts = np.zeros(len(text), np.int64)
        at_start = text == boundary
        for length in range(1, self.order + 1):
            if length > 1:
                # A boundary can only come first.
                extended = (shorter[:-1] >= 0) & (text[1:] != boundary)
                positions = np.flatnonzero(extended) + 1
                contexts = shorter[positions - 1]

            types, first, ids, occurrences = np.unique(
                contexts * self._symbols + text[positions],
                return_index=True,
                return_inverse=True,
                return_counts=True,
            )

            if length > 1:
                # Each distinct n-gram is another left neighbor of its last n−1 tokens.
                neighbors = np.bincount(shorter[positions[first]], minlength=len(keys))
                adjusted = np.where(at_start, counts, neighbors)
                self._orders.append(self._finish(keys, adjusted, size))
                at_start = at_start[types // self._symbols]
                size = len(keys)
            else:
                at_start = types == boundary

            keys, counts = types, occurrences
            shorter = np.full(len(text), -1, np.int64)
            shorter[positions] = ids
        self._orders.append(self._finish(keys, counts, size))
        return self

    def _finish(self, keys: Ids, counts: Ids, contexts: int) -> Order:
        """Discounts, totals and back-off weights for adjusted counts (types,)."""
        if contexts == 1:
            # The boundary is only context: as a token it has count zero.
            counts = np.where(keys == self.vocabulary, 0, counts)

        # Discounts from the numbers of n-grams with 1 to 4 occurrences.
        discounts = np.array([0.0, *FALLBACK_DISCOUNTS])
        number = np.bincount(np.minimum(counts, 5), minlength=6)[1:5].astype(float)
        if number[:3].min() > 0:
            k = np.arange(1, 4)
            ratio = number[0] / (number[0] + 2 * number[1])
            estimates = k - (k + 1) * ratio * number[1:] / number[:3]
            if ((estimates > 0) & (estimates < k)).all():
                discounts[1:] = estimates

        context = keys // self._symbols
        saved = discounts[np.minimum(counts, 3)]
        totals = np.bincount(context, counts, minlength=contexts)
        rest = np.bincount(context, saved, minlength=contexts)
        backoff = np.where(totals > 0, rest / np.maximum(totals, 1), 1.0)
        return Order(keys, counts, totals.astype(np.int64), backoff, discounts)

    def contexts(self, sequence: Tokens) -> Ids:
        """Ids of the 0 to `order` − 1 tokens before each token of a document (M,), (order, M); −1: unknown.

        Contexts of several documents can be concatenated.
        """
        padded = np.append(np.int64(self.vocabulary), sequence).astype(np.int64)
        contexts = np.zeros((self.order, len(sequence)), np.int64)
        ids = np.zeros(len(padded), np.int64)
        for length in range(1, self.order):
            # ids[i]: the n-gram that ends at i; −1 if it is unseen or would start too early.
            before = np.append(-1 if length > 1 else 0, ids[:-1])
            ids = self._find(self._orders[length - 1], before, padded)
            contexts[length] = ids[:-1]
        return contexts

    def probabilities(self, contexts: Ids) -> Floats:
        """Probability of every token of the vocabulary in each context (order, M), shape (M, V)."""
        probs = np.full((contexts.shape[1], self.vocabulary), 1.0 / self.vocabulary)
        for order, context in zip(self._orders, contexts, strict=True):
            rows = np.flatnonzero(context >= 0)
            rows = rows[order.totals[context[rows]] > 0]
            probs[rows] *= order.backoff[context[rows], None]

            # Tokens after a context are a slice of the keys.
            starts = np.searchsorted(order.keys, context[rows] * self._symbols)
            stops = np.searchsorted(order.keys, (context[rows] + 1) * self._symbols - 1)
            for row, start, stop in zip(rows, starts, stops, strict=True):
                counts = order.counts[start:stop]
                rest = counts - order.discounts[np.minimum(counts, 3)]
                tokens = order.keys[start:stop] % self._symbols
                probs[row, tokens] += rest / order.totals[context[row]]
        return probs

    def _find(self, order: Order, contexts: Ids, tokens: Tokens) -> Ids:
        """Ids of the n-grams `contexts` + `tokens` of an order, −1 if missing."""
        if not len(order.keys):  # no training text is as long as this order
            return np.full(len(tokens), -1, np.int64)
        keys = contexts * self._symbols + tokens
        ids = np.minimum(np.searchsorted(order.keys, keys), len(order.keys) - 1)
        matches = (contexts >= 0) & (tokens >= 0) & (order.keys[ids] == keys)
        return np.where(matches, ids, -1)


class TwoSidedNgram:
    """Probabilities of hidden tokens given the `order − 1` known tokens on each side, among `candidates` (C,)."""

    def __init__(self, order: int, vocabulary: int, candidates: Tokens) -> None:
        self.candidates = candidates
        self.unigram = KneserNey(1, vocabulary)
        self.forward = KneserNey(order, vocabulary)
        self.backward = KneserNey(order, vocabulary)
        self.exponents = np.ones(2)  # a and b
        self.nats = np.inf  # mean of the tokens on which exponents were chosen

    def fit(self, sequences: Sequence[Tokens], validation: MaskedTokens) -> Self:
        """Count n-grams of sequences, and choose the exponents on hidden validation tokens.

        Parameters
        ----------
        sequences
            Token ids, each (n,); `ValueError` if there are none.
        validation
            Documents with hidden tokens, of which at most `CHOOSING_TOKENS` evenly spaced ones are used.
        """
        self.unigram.fit(sequences)
        self.forward.fit(sequences)
        self.backward.fit(sequence[::-1] for sequence in sequences)

        targets, forward, backward = self._look_up(validation)
        count = min(len(targets), CHOOSING_TOKENS, 1 + CELLS // len(self.candidates))
        chosen = np.linspace(0, len(targets) - 1, count).astype(np.int64)
        targets, rows = targets[chosen], np.arange(count)
        base, ratios = self._factors(forward[:, chosen], backward[:, chosen])

        def cost(exponents: Floats) -> tuple[float, Floats]:
            logs = log_softmax(base + np.tensordot(exponents, ratios, 1), axis=1)
            expected = np.einsum("mc,fmc->f", np.exp(logs), ratios)
            gradient = expected - ratios[:, rows, targets].sum(1)
            return -float(logs[rows, targets].mean()), gradient / count

        result = minimize(cost, self.exponents, jac=True, method="L-BFGS-B")
        self.exponents, self.nats = result.x, float(result.fun)
        return self

    def bits(self, masked: MaskedTokens) -> Floats:
        """Return the bits (M,) of the hidden tokens, document by document.

        Contexts on both sides end at the nearest hidden token, or the end of the document.
        """
        targets, forward, backward = self._look_up(masked)
        bits = np.zeros(len(targets))
        size = 1 + CELLS // len(self.candidates)
        for first in range(0, len(targets), size):
            part = slice(first, first + size)
            base, ratios = self._factors(forward[:, part], backward[:, part])
            logs = log_softmax(base + np.tensordot(self.exponents, ratios, 1), axis=1)
            bits[part] = -logs[np.arange(len(logs)), targets[part]] / np.log(2)
        return bits

    def _look_up(self, masked: MaskedTokens) -> tuple[Ids, Ids, Ids]:
        """The hidden tokens (M,) as indices of candidates, and their contexts (order, M) on both sides."""
        targets = [np.zeros(0, np.int64)]
        forward = [np.zeros((self.forward.order, 0), np.int64)]
        backward = [np.zeros((self.forward.order, 0), np.int64)]
        for document, positions in zip(*masked, strict=True):
            known = document.astype(np.int64)
            targets.append(np.searchsorted(self.candidates, known[positions]))
            known[positions] = -1
            forward.append(self.forward.contexts(known)[:, positions])
            behind = self.backward.contexts(known[::-1])[:, ::-1]
            backward.append(behind[:, positions])
        return (
            np.concatenate(targets),
            np.concatenate(forward, axis=1),
            np.concatenate(backward, axis=1),
        )

    def _factors(self, forward: Ids, backward: Ids) -> tuple[Floats, Floats]:
        """Log P_1 (C,), and what both sides add to it (2, M, C)."""
        anywhere = self.unigram.probabilities(EMPTY)
        base = np.log(anywhere[0, self.candidates])
        left = np.log(self.forward.probabilities(forward)[:, self.candidates])
        right = np.log(self.backward.probabilities(backward)[:, self.candidates])
        return base, np.stack([left - base, right - base])
