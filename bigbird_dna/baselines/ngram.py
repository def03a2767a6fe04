"""N-grams over tokens: interpolated modified Kneser–Ney, the SRILM baseline of App. F.

Chen & Goodman (1999), eq. 27 ff. With h' the context h without its oldest token,

    P_k(w | h) = (c(hw) − D(c(hw))) / c(h·) + gamma(h) P_{k−1}(w | h'),    P_0 = 1 / vocabulary

where c counts occurrences at the highest order and distinct left neighbors below it. One boundary symbol
precedes every sequence, and occurs nowhere else; as in SRILM, n-grams that begin with it have no left
neighbor and keep their plain counts. An n-gram's id is its rank among those of its length, in the order of
their keys. Its key is `id of its first n−1 tokens × symbols + last token`: exact, not a hash.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

Ints32 = NDArray[np.int32]

# Axes: M tokens, V vocabulary.

# Used if the counts of counts give no estimate (tiny or saturated orders); KenLM's choice.
FALLBACK_DISCOUNTS = (0.5, 1.0, 1.5)

Ids = NDArray[np.int64]
Tokens = NDArray[np.integer]
Floats = NDArray[np.float64]


class Order(NamedTuple):
    """The n-grams of one length, in the form needed for probabilities."""

    keys: Ids  # (types,) ascending
    counts: Ints32  # (types,) adjusted counts c(hw)
    totals: Ints32  # (contexts,) c(h·), 0 if h was never continued
    backoff: Floats  # (contexts,) gamma(h), 1 if c(h·) is 0
    discounts: Floats  # (4,) for counts 0, 1, 2, and 3 or more


class Types(NamedTuple):
    """The distinct n-grams of one length in a text."""

    keys: Ids  # (types,)
    occurrences: Ints32  # (types,)
    ends: Ints32  # (types,) a position in the text at which the n-gram ends
    at: Ints32  # (text,) id of the n-gram that ends here, −1 if none
    contexts: int  # number of shorter n-grams
    boundary_first: NDArray[np.bool_]  # (types,) whether the boundary is first


def extend(types: Types | None, text: Ints32, symbols: int) -> Types:
    """The n-grams one token longer than `types` (None: single tokens); a boundary can only come first."""
    if types is None:
        positions = np.arange(len(text), dtype=np.int32)
        keys = text.astype(np.int64)
    else:
        valid = text != symbols - 1
        valid[:1] = False
        valid[1:] &= types.at[:-1] >= 0
        positions = np.flatnonzero(valid).astype(np.int32)
        keys = types.at[positions - 1].astype(np.int64) * symbols
        keys += text[positions]
    order = np.argsort(keys, kind="stable").astype(np.int32)
    positions, keys = positions[order], keys[order]
    del order
    new = np.append(np.True_, keys[1:] != keys[:-1])[: len(keys)]
    at = np.full(len(text), -1, dtype=np.int32)
    at[positions] = np.cumsum(new, dtype=np.int32) - 1
    first = np.flatnonzero(new)
    occurrences = np.diff(np.append(first, len(keys))).astype(np.int32)
    keys, ends = keys[first], positions[first]
    if types is None:
        return Types(keys, occurrences, ends, at, 1, keys == symbols - 1)
    boundary_first = types.boundary_first[keys // symbols]
    return Types(keys, occurrences, ends, at, len(types.keys), boundary_first)


def left_neighbors(types: Types, longer: Types) -> Ints32:
    """Number of distinct tokens before each of `types`; plain counts after a boundary."""
    counts = np.bincount(types.at[longer.ends], minlength=len(types.keys))
    return np.where(types.boundary_first, types.occurrences, counts.astype(np.int32))


def finish(types: Types, counts: Ints32, symbols: int) -> Order:
    """Discounts, totals and back-off weights for adjusted counts (types,).

    The boundary is only context: as a token it has count zero.
    """
    if types.contexts == 1:
        counts = np.where(types.keys == symbols - 1, np.int32(0), counts)
    discounts = _discounts(counts)
    contexts, size = types.keys // symbols, types.contexts
    totals = np.bincount(contexts, counts, minlength=size)
    saved = np.bincount(contexts, discounts[np.minimum(counts, 3)], minlength=size)
    backoff = np.divide(saved, totals, out=np.ones(size), where=totals > 0)
    return Order(types.keys, counts, totals.astype(np.int32), backoff, discounts)


def _discounts(counts: Ints32) -> Floats:
    """Discounts of counts 0, 1, 2 and 3 or more, from the numbers of n-grams with 1 to 4 occurrences."""
    number = np.bincount(np.minimum(counts, 5), minlength=6)[1:5].astype(float)
    k = np.arange(1, 4)
    if number[:3].min() > 0:
        ratio = number[0] / (number[0] + 2 * number[1])
        discounts = k - (k + 1) * ratio * number[1:] / number[:3]
        if ((discounts > 0) & (discounts < k)).all():
            return np.append(0.0, discounts)
    return np.array([0.0, *FALLBACK_DISCOUNTS])


class KneserNey:
    """Token probabilities given the `order − 1` preceding tokens; ids are from 0 to `vocabulary − 1`.

    A fitted model needs 24 bytes per distinct n-gram of each order.
    """

    def __init__(self, order: int, vocabulary: int) -> None:
        self.order, self.vocabulary = order, vocabulary
        self._symbols = vocabulary + 1  # the last one is the boundary
        self._orders: list[Order] = []

    def fit(self, sequences: Iterable[Tokens]) -> Self:
        """Count the n-grams of `sequences`, 1-D arrays of ids; none spans two sequences."""
        for model in self.fitted_orders(sequences):
            self._orders = model._orders
        return self

    def fitted_orders(self, sequences: Iterable[Tokens]) -> Iterator[KneserNey]:
        """Yield a fitted model of each order, from 1 to this one's, at the cost of fitting only the longest.

        The models use common data; stopping early avoids the remaining work.
        """
        boundary = np.array([self.vocabulary])
        texts = [np.append(boundary, sequence) for sequence in sequences]
        if not any(len(text) > 1 for text in texts):
            raise ValueError("an n-gram model needs at least one training token")
        text = np.concatenate(texts, dtype=np.int32)
        del texts
        lower: list[Order] = []
        types = extend(None, text, self._symbols)
        for length in range(1, self.order + 1):
            model = KneserNey(length, self.vocabulary)
            model._orders = [*lower, finish(types, types.occurrences, self._symbols)]
            yield model
            if length < self.order:
                longer = extend(types, text, self._symbols)
                counts = left_neighbors(types, longer)
                lower.append(finish(types, counts, self._symbols))
                types = longer

    def log2_probabilities(
        self, sequence: Tokens, positions: Tokens | None = None, *, seen: bool = True
    ) -> Floats:
        """Log2 probability of each token of a document given the preceding ones, or of those at `positions`.

        For `seen` see `contexts`. Always finite: all tokens have positive probability in every context.
        """
        if positions is None:
            positions = np.arange(len(sequence))
        tokens = sequence[positions]
        contexts = self.contexts(sequence, positions, seen=seen).astype(np.int64)
        probabilities = np.full(len(tokens), 1.0 / self.vocabulary)
        for order, context in zip(self._orders, contexts, strict=True):
            rows = np.flatnonzero(context >= 0)
            rows = rows[order.totals[context[rows]] > 0]
            known = context[rows]
            ids = self._find(order, known, tokens[rows])
            counts = np.where(ids >= 0, order.counts[ids], 0)
            rest = counts - order.discounts[np.minimum(counts, 3)]
            lower = order.backoff[known] * probabilities[rows]
            probabilities[rows] = rest / order.totals[known] + lower
        return np.asarray(np.log2(probabilities))

    def contexts(
        self, sequence: Tokens, positions: Tokens, *, seen: bool = True
    ) -> Ints32:
        """Ids of the 0 to `order` − 1 tokens before places (M,) of a document, (order, M); −1: unknown.

        Contexts of several documents can be concatenated. Unless the tokens at `positions` are themselves
        `seen`, a context extends at most to the previous position.
        """
        padded = np.append(np.int64(self.vocabulary), sequence).astype(np.int64)
        contexts = np.zeros((self.order, len(positions)), np.int32)
        ids = np.zeros(len(padded), dtype=np.int64)
        for length in range(1, self.order):
            # ids[i]: the n-gram that ends at i; −1 if it is unseen or would start too early.
            before = np.append(-1 if length > 1 else 0, ids[:-1])
            ids = self._find(self._orders[length - 1], before, padded)
            contexts[length] = ids[:-1][positions]
        if not seen:
            lengths = np.arange(self.order)[:, None]
            contexts[lengths > tokens_between(positions)] = -1
        return contexts

    def chances(self, contexts: Ints32) -> Floats:
        """Probability of every token of the vocabulary in each context (order, M), shape (M, V).

        Needs 8 bytes for each of M × V values, and the same again for matching n-grams. Limit the number of
        contexts per call to the available memory.
        """
        chances = np.full((contexts.shape[1], self.vocabulary), 1.0 / self.vocabulary)
        for order, context in zip(self._orders, contexts.astype(np.int64), strict=True):
            rows = np.flatnonzero(context >= 0)
            rows = rows[order.totals[context[rows]] > 0]
            chances[rows] *= order.backoff[context[rows], None]
            # Tokens after a context are a slice of the keys; each context is looked up once.
            known, which = np.unique(context[rows], return_inverse=True)
            first = np.searchsorted(order.keys, known * self._symbols)
            stop = np.searchsorted(order.keys, (known + 1) * self._symbols - 1)
            groups = np.split(
                rows[np.argsort(which, kind="stable")],
                np.cumsum(np.bincount(which, minlength=len(known)))[:-1],
            )
            for context_id, start, end, of in zip(
                known, first, stop, groups, strict=False
            ):
                counts = order.counts[start:end]
                rest = counts - order.discounts[np.minimum(counts, 3)]
                tokens = order.keys[start:end] % self._symbols
                chances[of[:, None], tokens] += rest / order.totals[context_id]
        return chances

    def _find(self, order: Order, contexts: Ids, tokens: Tokens) -> Ids:
        """Ids of the n-grams `contexts` + `tokens` of an order, −1 if missing."""
        if not len(order.keys):  # no training text is as long as this order
            return np.full(len(tokens), -1, dtype=np.int64)
        keys = contexts * self._symbols + tokens
        ids = np.minimum(np.searchsorted(order.keys, keys), len(order.keys) - 1)
        return np.where((contexts >= 0) & (order.keys[ids] == keys), ids, -1)


def tokens_between(positions: Tokens) -> Ids:
    """Number of tokens between each of the ascending positions (M,) of a document and the previous one, (M,).

    The boundary before the first token also counts as a token.
    """
    previous = np.append(-2, positions[:-1])
    return np.asarray(positions - previous - 1, np.int64)
