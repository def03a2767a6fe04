"""The distinct n-grams of a text, one length after the other, and their adjusted counts.

An n-gram's id is its place among those of its length, in the order of their keys; its key is
`id of its first n−1 tokens × symbols + last token`: exact, no hash. One symbol, the boundary, stands in front
of every sequence: it begins n-grams, and none goes over it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Where the counts of counts give no estimate (tiny or saturated orders); KenLM's choice.
FALLBACK_DISCOUNTS = (0.5, 1.0, 1.5)
# Memory, in bytes a token, where all n-grams differ: of each order from two on, and of what is at work. As
# measured with tokens drawn at random from 32,000.
KEPT_BYTES, WORKING_BYTES = 24, 48

Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Order:
    """The n-grams of one length, as probabilities need them."""

    keys: Ids  # (types,) ascending
    counts: NDArray[np.int32]  # (types,) adjusted counts c(hw)
    totals: NDArray[np.int32]  # (contexts,) c(h·), 0 where h was never continued
    backoff: NDArray[np.float64]  # (contexts,) gamma(h), 1 where c(h·) is 0
    discounts: NDArray[np.float64]  # (4,) by count 0, 1, 2, 3 and more


@dataclass(frozen=True, slots=True)
class Types:
    """The distinct n-grams of one length in a text."""

    keys: Ids  # (types,)
    occurrences: NDArray[np.int32]  # (types,)
    ends: NDArray[np.int32]  # (types,) a position in the text at which the n-gram ends
    at: NDArray[np.int32]  # (text,) id of the n-gram that ends here, −1 where none does
    number_of_contexts: int
    boundary_first: NDArray[np.bool_]  # (types,) begins with the boundary


def extend(types: Types | None, text: NDArray[np.int32], symbols: int) -> Types:
    """The n-grams one token longer than `types` (None: single tokens); a boundary is only ever in front."""
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
    return Types(keys, occurrences, ends, at, len(types.keys), types.boundary_first[keys // symbols])


def left_neighbours(types: Types, longer: Types) -> NDArray[np.int32]:
    """How many distinct tokens stand before each of `types`; plain counts after a boundary."""
    counts = np.bincount(types.at[longer.ends], minlength=len(types.keys)).astype(np.int32)
    return np.where(types.boundary_first, types.occurrences, counts)


def finish(types: Types, counts: NDArray[np.int32], symbols: int) -> Order:
    """Discounts, totals and back-off weights for adjusted counts (types,).

    The boundary is context only: as a token of its own it counts nothing.
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
    """Discounts of counts 0, 1, 2 and 3 or more, from the numbers of n-grams seen 1 to 4 times."""
    seen = np.bincount(np.minimum(counts, 5), minlength=6).astype(float)
    n1, n2, n3, n4 = seen[1:5]
    if min(n1, n2, n3) > 0:
        share = n1 / (n1 + 2 * n2)
        discounts = 1 - 2 * share * n2 / n1, 2 - 3 * share * n3 / n2, 3 - 4 * share * n4 / n3
        if all(0 < discount < count for count, discount in enumerate(discounts, start=1)):
            return np.array([0.0, *discounts])
    return np.array([0.0, *FALLBACK_DISCOUNTS])
