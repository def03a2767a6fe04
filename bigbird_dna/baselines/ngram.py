"""Interpolated modified Kneser–Ney n-gram over token ids: the SRILM baseline of the paper's App. F.

Chen & Goodman (1999), eq. 27 ff. With h' the context h without its oldest token,

    P_k(w | h) = (c(hw) − D(c(hw))) / c(h·) + gamma(h) P_{k−1}(w | h'),    P_0 = 1 / vocabulary

where c counts occurrences at the highest order and distinct left neighbours below it. One boundary
symbol stands in front of every sequence; as in SRILM, n-grams that begin with it have no left
neighbour and keep their plain counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

# Where the counts of counts give no estimate (tiny or saturated orders); KenLM's choice.
FALLBACK_DISCOUNTS = (0.5, 1.0, 1.5)

Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Order:
    """The n-grams of one length; ids of n-grams are positions in `keys`.

    An n-gram's key is `id of its first n−1 tokens × symbols + last token`: exact, no hash.
    """

    keys: Ids  # (types,) ascending
    counts: NDArray[np.int32]  # (types,) adjusted counts c(hw)
    totals: NDArray[np.int32]  # (contexts,) c(h·), 0 where h was never continued
    backoff: NDArray[np.float64]  # (contexts,) gamma(h), 1 where c(h·) is 0
    discounts: NDArray[np.float64]  # (4,) by count 0, 1, 2, 3 and more


class KneserNey:
    """Token probabilities from the `order − 1` tokens before.

    Parameters
    ----------
    order : length of the longest n-gram, at least 1.
    vocabulary : number of token ids; every sequence holds ids from 0 to `vocabulary − 1`.

    Notes
    -----
    A fitted model keeps 24 bytes for each distinct n-gram of each order.
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
        self._orders: list[_Order] = []

    def fit(self, sequences: Iterable[NDArray[np.integer]]) -> Self:
        """Count the n-grams of `sequences`, 1-D arrays of ids; none spans two of them."""
        text = self._join(sequences)
        self._orders = []
        types = _extend(None, text, self._symbols)
        for length in range(1, self.order + 1):
            longer = _extend(types, text, self._symbols) if length < self.order else None
            counts = types.occurrences if longer is None else _left_neighbours(types, longer)
            if length == 1:
                # The boundary is context only; it is never predicted.
                counts[types.last == self._boundary] = 0
            self._orders.append(_finish(types, counts))
            if longer is not None:
                types = longer
        return self

    def log2_probabilities(self, sequence: NDArray[np.integer]) -> NDArray[np.float64]:
        """Log2 of the probability of each token of a document given its predecessors.

        Shape (len(sequence),). Always finite: every token has some probability in every context.
        """
        tokens = self._checked(sequence)
        padded = np.concatenate([[self._boundary], tokens])
        contexts = [np.zeros(len(tokens), dtype=np.int64)]
        ids = np.zeros(len(padded), dtype=np.int64)
        for length in range(1, self.order):
            # ids[i]: the n-gram that ends at i; −1 where it is unseen or would start too early.
            before = np.concatenate([[-1 if length > 1 else 0], ids[:-1]])
            ids = self._find(length, before, padded)
            contexts.append(ids[:-1])
        return np.log2(self._interpolate(contexts, tokens))

    def _join(self, sequences: Iterable[NDArray[np.integer]]) -> Ids:
        parts: list[NDArray[np.integer]] = []
        boundary = np.array([self._boundary], dtype=np.int64)
        for sequence in sequences:
            parts += [boundary, self._checked(sequence)]
        text = np.concatenate(parts).astype(np.int64) if parts else np.zeros(0, dtype=np.int64)
        if not (text != self._boundary).any():
            raise ValueError("an n-gram model needs at least one token to learn from")
        if len(text) > np.iinfo(np.int32).max:
            raise ValueError(f"{len(text)} tokens are more than an n-gram model counts; sample them")
        return text

    def _checked(self, sequence: NDArray[np.integer]) -> Ids:
        tokens = np.asarray(sequence)
        if tokens.ndim != 1 or not (np.issubdtype(tokens.dtype, np.integer) or not tokens.size):
            raise ValueError(f"a sequence is a 1-D array of integers, not {tokens.ndim}-D {tokens.dtype}")
        outside = np.flatnonzero((tokens < 0) | (tokens >= self.vocabulary))
        if outside.size:
            raise ValueError(
                f"token {tokens[outside[0]]} at {outside[0]} is outside the vocabulary of {self.vocabulary}"
            )
        return tokens.astype(np.int64)

    def _find(self, length: int, contexts: Ids, tokens: Ids) -> Ids:
        """Ids of the n-grams `contexts` + `tokens` of the given length, −1 where there is none."""
        keys, wanted = self._orders[length - 1].keys, contexts * self._symbols + tokens
        if not len(keys):  # no training text is as long as this order
            return np.full(len(wanted), -1, dtype=np.int64)
        places = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        return np.where((contexts >= 0) & (keys[places] == wanted), places, -1)

    def _interpolate(self, contexts: Sequence[Ids], tokens: Ids) -> NDArray[np.float64]:
        """P(token | context); `contexts[k]` holds ids of the k tokens before, −1 where unknown."""
        if not self._orders:
            raise ValueError("the n-gram model has not been fitted")
        probabilities = np.full(len(tokens), 1.0 / self.vocabulary)
        for length, (order, context) in enumerate(zip(self._orders, contexts, strict=True), start=1):
            seen = np.flatnonzero(context >= 0)
            seen = seen[order.totals[context[seen]] > 0]
            known, found = context[seen], self._find(length, context[seen], tokens[seen])
            counts = np.where(found >= 0, order.counts[found], 0)
            kept = counts - order.discounts[np.minimum(counts, 3)]
            probabilities[seen] = kept / order.totals[known] + order.backoff[known] * probabilities[seen]
        return probabilities


@dataclass(frozen=True, slots=True)
class _Types:
    """The distinct n-grams of one length in the training text, in the order of their keys."""

    keys: Ids  # (types,)
    contexts: Ids  # (types,) id of the first n−1 tokens
    last: Ids  # (types,) last token
    occurrences: NDArray[np.int64]  # (types,)
    ends: Ids  # (types,) a position in the text at which the n-gram ends
    at: NDArray[np.int32]  # (text,) id of the n-gram that ends here, −1 where none does
    number_of_contexts: int
    boundary_first: NDArray[np.bool_]  # (types,) begins with the boundary


def _extend(types: _Types | None, text: Ids, symbols: int) -> _Types:
    """The n-grams one token longer than `types` (None: single tokens); a boundary is only ever in front."""
    if types is None:
        contexts, valid = np.zeros(len(text), dtype=np.int32), np.ones(len(text), dtype=bool)
    else:
        contexts = np.concatenate([np.array([-1], dtype=np.int32), types.at[:-1]])
        valid = (contexts >= 0) & (text != symbols - 1)
    positions = np.flatnonzero(valid)
    keys, first, inverse, occurrences = np.unique(
        contexts[positions].astype(np.int64) * symbols + text[positions],
        return_index=True,
        return_inverse=True,
        return_counts=True,
    )
    at = np.full(len(text), -1, dtype=np.int32)
    at[positions] = inverse
    prefix, last = keys // symbols, keys % symbols
    number_of_contexts = 1 if types is None else len(types.keys)
    begins = last == symbols - 1 if types is None else types.boundary_first[prefix]
    return _Types(keys, prefix, last, occurrences, positions[first], at, number_of_contexts, begins)


def _left_neighbours(types: _Types, longer: _Types) -> NDArray[np.int64]:
    """How many distinct tokens stand before each of `types`; plain counts after a boundary."""
    counts = np.bincount(types.at[longer.ends], minlength=len(types.keys))
    return np.where(types.boundary_first, types.occurrences, counts)


def _finish(types: _Types, counts: NDArray[np.int64]) -> _Order:
    discounts = _discounts(counts)
    totals = np.zeros(types.number_of_contexts, dtype=np.int64)
    np.add.at(totals, types.contexts, counts)
    held_back = np.zeros(types.number_of_contexts)
    np.add.at(held_back, types.contexts, discounts[np.minimum(counts, 3)])
    backoff = np.divide(held_back, totals, out=np.ones_like(held_back), where=totals > 0)
    return _Order(types.keys, counts.astype(np.int32), totals.astype(np.int32), backoff, discounts)


def _discounts(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Discounts of counts 0, 1, 2 and 3 or more, from the numbers of n-grams seen 1 to 4 times."""
    seen = np.bincount(np.minimum(counts, 5), minlength=6).astype(float)
    n1, n2, n3, n4 = seen[1:5]
    if min(n1, n2, n3) > 0:
        share = n1 / (n1 + 2 * n2)
        discounts = 1 - 2 * share * n2 / n1, 2 - 3 * share * n3 / n2, 3 - 4 * share * n4 / n3
        if all(0 < discount < count for count, discount in enumerate(discounts, start=1)):
            return np.array([0.0, *discounts])
    return np.array([0.0, *FALLBACK_DISCOUNTS])
