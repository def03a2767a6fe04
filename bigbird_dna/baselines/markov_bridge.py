"""The exact probability of a stretch of bases given those on both sides, under a Markov model of order k.

For a stretch x of L bases between l (k bases) and r (k bases):

    P(x | l, r) = P(x r | l) / Σ_y P(y r | l),    P(x r | l) = Π_i P_k(base i | the k before it)

The sum over all 4 ** L stretches y goes along the sequence (forward algorithm). A state is the last k bases,
of which only those inside the stretch vary: there are 4 ** min(L, k) of them at most. Each base that enters
multiplies the states by four, up to that many; each base that falls out of the last k is summed over.

Shapes: M stretches that have L and the numbers of known bases around them in common, S states.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.baselines.markov_counts import Codes, Words, known_before, words_ending

# Longer stretches are judged with at most this order: 4 ** 8 states take some milliseconds each.
LONGEST_STATE = 8
_STATES = 1 << 17  # of all stretches at a time: 1 MB, about a cache's size
_STEPS = 8  # after which the sums are scaled back, so that they stay in the range of numbers

Floats = NDArray[np.float64]
Tables = list[NDArray[np.float32]]  # P_k(x | c), (4 ** k, 4), by k


def bridge_bits(
    tables: Tables,
    codes: Codes,
    starts: Words,
    ends: Words,
    order: int,
    seen_before: NDArray[np.integer] | None = None,
    seen_behind: NDArray[np.integer] | None = None,
) -> Floats:
    """Bits (M,) of the known bases [start, end) of `codes` given up to `order` on either side.

    Bases on a side count up to the first N or the sequence's end, or as many as are said to be seen. If
    only d < k are known before a base, its probability is that of order d. Stretches of more than
    `LONGEST_STATE` bases are judged with that order at most.
    """
    lengths = ends - starts
    orders = np.where(lengths > LONGEST_STATE, min(order, LONGEST_STATE), order)
    before, behind = known_before(codes), known_before(codes[::-1])[::-1]
    left = np.where(starts > 0, before[starts - 1], 0)
    right = np.where(ends < len(codes), behind[np.minimum(ends, len(codes) - 1)], 0)
    if seen_before is not None:
        left = np.minimum(left, seen_before)
    if seen_behind is not None:
        right = np.minimum(right, seen_behind)
    shapes = np.stack([lengths, orders, np.minimum(left, orders), np.minimum(right, orders)], axis=1)
    words = words_ending(codes, max(order, 1))
    bits = np.zeros(len(starts))
    kinds, which = np.unique(shapes, axis=0, return_inverse=True)
    which = which.ravel()
    for number, kind in enumerate(kinds.tolist()):
        shape = _Shape(*kind)
        members = np.flatnonzero(which == number)
        chunk = max(_STATES // 4 ** min(shape.length, shape.order), 1)
        for first in range(0, len(members), chunk):
            chosen = members[first : first + chunk]
            context = words[starts[chosen] - 1] % 4**shape.left
            path = codes[starts[chosen][:, None] + np.arange(shape.length + shape.right)].astype(np.int64)
            own, whole = _path(tables, shape, context, path), _all_paths(tables, shape, context, path)
            bits[chosen] = np.maximum(whole - own, 0.0)  # rounding alone makes it negative
    return bits


class _Shape(NamedTuple):
    """What stretches have in common that are judged together."""

    length: int
    order: int
    left: int  # known bases before, at most `order`
    right: int  # known bases behind, at most `order`


def _path(tables: Tables, shape: _Shape, context: Words, path: Words) -> Floats:
    """Log2 of the probability of `path`, (M, length + right), after `context`, (M,)."""
    bits = np.zeros(len(path))
    for step, base in enumerate(path.T):
        depth = min(shape.left + step, shape.order)
        word = context * 4 + base
        bits += np.log2(tables[depth].ravel()[word].astype(np.float64))
        context = word % 4 ** min(depth + 1, shape.order)
    return bits


def _all_paths(tables: Tables, shape: _Shape, context: Words, path: Words) -> Floats:
    """Log2 of the sum, over all stretches, of their probability and that of the bases behind, (M,)."""
    length, order, left, right = shape
    bits = np.zeros(len(path))
    sums = np.ones((len(path), 1))  # (M, S)
    states = context[:, None]  # (M, S), the last `depth` bases
    inside = 0  # of them are the stretch's, the oldest first: S = 4 ** inside
    for step in range(length):
        depth = min(left + step, order)
        if inside == order == depth:  # the states are all words of that length, in order
            sums = (sums[:, :, None] * tables[depth]).reshape(len(path), 4, -1).sum(1)
        else:
            sums = (sums[:, :, None] * tables[depth][states]).reshape(len(path), -1)
            states = states[:, :, None] * 4 + np.arange(4)
            states = states.reshape(len(path), -1) % 4 ** min(depth + 1, order)
            inside += 1
        sums, bits = _scaled(sums, bits, step)
    for step in range(right):
        depth = min(left + length + step, order)
        words = states * 4 + path[:, length + step, None]
        sums = sums * tables[depth].ravel()[words]
        states = words % 4 ** min(depth + 1, order)
        if inside > order - step - 1:  # the stretch's oldest base isn't among the last `order` any more
            inside -= 1
            sums = sums.reshape(len(path), 4, -1).sum(1)
            states = states[:, : sums.shape[1]]
        sums, bits = _scaled(sums, bits, step)
    whole: Floats = bits + np.log2(sums.sum(1))
    return whole


def _scaled(sums: Floats, bits: Floats, step: int) -> tuple[Floats, Floats]:
    if step % _STEPS < _STEPS - 1:
        return sums, bits
    scale: Floats = sums.sum(1)
    return sums / scale[:, None], bits + np.log2(scale)
