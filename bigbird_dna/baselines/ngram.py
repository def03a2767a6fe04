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
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

# Axes: M tokens, V vocabulary.

# Used if the counts of counts give no estimate (tiny or saturated orders); KenLM's choice.
FALLBACK_DISCOUNTS = (0.5, 1.0, 1.5)
# Memory in bytes per token if all n-grams differ: for each order from two on, and for temporary data.
# Measured with tokens drawn at random from 32,000.
KEPT_BYTES, WORKING_BYTES = 24, 48

Ids = NDArray[np.int64]
Tokens = NDArray[np.integer]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Order:
    """The n-grams of one length, in the form needed for probabilities."""

    keys: Ids  # (types,) ascending
    counts: NDArray[np.int32]  # (types,) adjusted counts c(hw)
    totals: NDArray[np.int32]  # (contexts,) c(h·), 0 if h was never continued
    backoff: NDArray[np.float64]  # (contexts,) gamma(h), 1 if c(h·) is 0
    discounts: NDArray[np.float64]  # (4,) for counts 0, 1, 2, and 3 or more


@dataclass(frozen=True, slots=True)
class Types:
    """The distinct n-grams of one length in a text."""

    keys: Ids  # (types,)
    occurrences: NDArray[np.int32]  # (types,)
    ends: NDArray[np.int32]  # (types,) a position in the text at which the n-gram ends
    at: NDArray[np.int32]  # (text,) id of the n-gram that ends here, −1 if none
    number_of_contexts: int
    boundary_first: NDArray[
        np.bool_
    ]  # (types,) whether the first token is the boundary


def extend(types: Types | None, text: NDArray[np.int32], symbols: int) -> Types:
    """The n-grams one token longer than `types` (None: single tokens); a boundary can only come first."""
    at = np.full(len(text), -1, dtype=np.int32)
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
    at[positions] = np.cumsum(new, dtype=np.int32) - 1
    first = np.flatnonzero(new)
    occurrences = np.diff(np.append(first, len(keys))).astype(np.int32)
    keys, ends = keys[first], positions[first]
    if types is None:
        return Types(keys, occurrences, ends, at, 1, keys == symbols - 1)
    return Types(
        keys,
        occurrences,
        ends,
        at,
        len(types.keys),
        types.boundary_first[keys // symbols],
    )


def left_neighbors(types: Types, longer: Types) -> NDArray[np.int32]:
    """Number of distinct tokens before each of `types`; plain counts after a boundary."""
    counts = np.bincount(types.at[longer.ends], minlength=len(types.keys)).astype(
        np.int32
    )
    return np.where(types.boundary_first, types.occurrences, counts)


def finish(types: Types, counts: NDArray[np.int32], symbols: int) -> Order:
    """Discounts, totals and back-off weights for adjusted counts (types,).

    The boundary is only context: as a token it has count zero.
    """
    if types.number_of_contexts == 1:
        counts = np.where(types.keys == symbols - 1, np.int32(0), counts)
    discounts = _discounts(counts)
    contexts, size = types.keys // symbols, types.number_of_contexts
    totals = np.bincount(contexts, counts, minlength=size)
    held_back = np.bincount(contexts, discounts[np.minimum(counts, 3)], minlength=size)
    backoff = np.divide(held_back, totals, out=np.ones(size), where=totals > 0)
    return Order(types.keys, counts, totals.astype(np.int32), backoff, discounts)


def _discounts(counts: NDArray[np.int32]) -> NDArray[np.float64]:
    """Discounts of counts 0, 1, 2 and 3 or more, from the numbers of n-grams with 1 to 4 occurrences."""
    seen = np.bincount(np.minimum(counts, 5), minlength=6).astype(float)
    n1, n2, n3, n4 = seen[1:5]
    if min(n1, n2, n3) > 0:
        share = n1 / (n1 + 2 * n2)
        discounts = (
            1 - 2 * share * n2 / n1,
            2 - 3 * share * n3 / n2,
            3 - 4 * share * n4 / n3,
        )
        if all(
            0 < discount < count for count, discount in enumerate(discounts, start=1)
        ):
            return np.array([0.0, *discounts])
    return np.array([0.0, *FALLBACK_DISCOUNTS])


class KneserNey:
    """Token probabilities given the `order − 1` preceding tokens; ids are from 0 to `vocabulary − 1`.

    A fitted model needs 24 bytes per distinct n-gram of each order (`affordable_tokens`).
    """

    def __init__(self, order: int, vocabulary: int) -> None:
        if order < 1:
            raise ValueError(f"order must be at least 1, not {order}")
        if vocabulary < 1:
            raise ValueError(f"vocabulary must be at least 1, not {vocabulary}")
        self.order = order
        self.vocabulary = vocabulary
        self._symbols = vocabulary + 1
        self._boundary = vocabulary
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
        text = self._join(sequences)
        lower: list[Order] = []
        types = extend(None, text, self._symbols)
        for length in range(1, self.order + 1):
            model = KneserNey(length, self.vocabulary)
            model._orders = [*lower, finish(types, types.occurrences, self._symbols)]
            yield model
            if length < self.order:
                longer = extend(types, text, self._symbols)
                lower.append(
                    finish(types, left_neighbors(types, longer), self._symbols)
                )
                types = longer

    def log2_probabilities(
        self, sequence: Tokens, positions: Tokens | None = None, *, seen: bool = True
    ) -> Floats:
        """Log2 probability of each token of a document given the preceding ones, or of those at `positions`.

        For `seen` see `contexts`. Always finite: all tokens have positive probability in every context.
        """
        places = np.arange(len(sequence)) if positions is None else positions
        contexts, tokens = (
            self.contexts(sequence, places, seen=seen),
            np.asarray(sequence)[places],
        )
        probabilities = np.full(len(tokens), 1.0 / self.vocabulary)
        for length, (order, context) in enumerate(
            zip(self._orders, contexts.astype(np.int64), strict=True), start=1
        ):
            rows = np.flatnonzero(context >= 0)
            rows = rows[order.totals[context[rows]] > 0]
            known, found = (
                context[rows],
                self._find(length, context[rows], tokens[rows]),
            )
            counts = np.where(found >= 0, order.counts[found], 0)
            kept = counts - order.discounts[np.minimum(counts, 3)]
            probabilities[rows] = (
                kept / order.totals[known] + order.backoff[known] * probabilities[rows]
            )
        logs: Floats = np.log2(probabilities)
        return logs

    def contexts(
        self, sequence: Tokens, positions: Tokens, *, seen: bool = True
    ) -> NDArray[np.int32]:
        """Ids of the 0 to `order` − 1 tokens before places (M,) of a document, (order, M); −1: unknown.

        Contexts of several documents can be concatenated. Unless the tokens at `positions` are themselves
        `seen`, a context extends at most to the previous position.
        """
        tokens = self._checked(sequence)
        self._require_fitted()
        padded = np.concatenate([[self._boundary], tokens.astype(np.int64)])
        found = np.zeros((self.order, len(positions)), np.int32)
        ids = np.zeros(len(padded), dtype=np.int64)
        for length in range(1, self.order):
            # ids[i]: the n-gram that ends at i; −1 if it is unseen or would start too early.
            before = np.concatenate([[-1 if length > 1 else 0], ids[:-1]])
            ids = self._find(length, before, padded)
            found[length] = ids[:-1][positions]
        if not seen:
            found[np.arange(self.order)[:, None] > tokens_between(positions)] = -1
        return found

    def chances(self, contexts: NDArray[np.int32]) -> Floats:
        """Probability of every token of the vocabulary in each context (order, M), shape (M, V).

        Needs 8 bytes for each of M × V values, and the same again for matching n-grams. Limit the number of
        contexts per call to the available memory.
        """
        self._require_fitted()
        found = np.full((contexts.shape[1], self.vocabulary), 1.0 / self.vocabulary)
        for order, context in zip(self._orders, contexts.astype(np.int64), strict=True):
            rows = np.flatnonzero(context >= 0)
            rows = rows[order.totals[context[rows]] > 0]
            known, which = np.unique(context[rows], return_inverse=True)
            scale = np.ones(len(found))
            scale[rows] = order.backoff[context[rows]]
            found *= scale[:, None]
            # Tokens after a context are a slice of the keys; each context is looked up once.
            first = np.searchsorted(order.keys, known * self._symbols)
            stop = np.searchsorted(order.keys, known * self._symbols + self._boundary)
            rows = rows[np.argsort(which, kind="stable")]
            bounds = np.append(0, np.cumsum(np.bincount(which, minlength=len(known))))
            for number, context_id in enumerate(known):
                part = slice(first[number], stop[number])
                counts = order.counts[part]
                kept = (counts - order.discounts[np.minimum(counts, 3)]) / order.totals[
                    context_id
                ]
                of = rows[bounds[number] : bounds[number + 1], None]
                found[of, order.keys[part] % self._symbols] += kept
        return found

    def _join(self, sequences: Iterable[Tokens]) -> NDArray[np.int32]:
        parts: list[NDArray[np.int32]] = []
        boundary = np.array([self._boundary], dtype=np.int32)
        for sequence in sequences:
            parts += [boundary, self._checked(sequence).astype(np.int32)]
        text = np.concatenate(parts) if parts else np.zeros(0, dtype=np.int32)
        if not (text != self._boundary).any():
            raise ValueError("an n-gram model needs at least one training token")
        if len(text) > np.iinfo(np.int32).max:
            raise ValueError(
                f"{len(text)} tokens exceed the maximum of an n-gram model; use a sample"
            )
        return text

    def _checked(self, sequence: Tokens) -> Tokens:
        tokens = np.asarray(sequence)
        if tokens.ndim != 1 or not (
            np.issubdtype(tokens.dtype, np.integer) or not tokens.size
        ):
            raise ValueError(
                f"a sequence must be a 1-D integer array, not {tokens.ndim}-D {tokens.dtype}"
            )
        outside = np.flatnonzero((tokens < 0) | (tokens >= self.vocabulary))
        if outside.size:
            raise ValueError(
                f"token {tokens[outside[0]]} at {outside[0]} is outside the vocabulary of {self.vocabulary}"
            )
        return tokens

    def _require_fitted(self) -> None:
        if not self._orders:
            raise ValueError("the n-gram model has not been fitted")

    def _find(self, length: int, contexts: Ids, tokens: Tokens) -> Ids:
        """Ids of the n-grams `contexts` + `tokens` of the given length, −1 if missing."""
        keys, wanted = self._orders[length - 1].keys, contexts * self._symbols + tokens
        if not len(keys):  # no training text is as long as this order
            return np.full(len(wanted), -1, dtype=np.int64)
        places = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        return np.where((contexts >= 0) & (keys[places] == wanted), places, -1)


def tokens_between(positions: Tokens) -> NDArray[np.int64]:
    """Number of tokens between each of the ascending positions (M,) of a document and the previous one, (M,).

    The boundary before the first token also counts as a token.
    """
    padded = np.append(np.int64(-2), positions.astype(np.int64))
    return padded[1:] - padded[:-1] - 1


def affordable_tokens(memory: int, order: int, models: int = 1) -> int:
    """Number of tokens for each of `models` n-gram models of this order in `memory` bytes.

    This is the worst case, in which no n-gram occurs twice; small vocabularies need a fraction of it.
    """
    return memory // (models * (KEPT_BYTES * (order - 1) + WORKING_BYTES))
