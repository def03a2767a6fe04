"""Counts of a Markov model, and bases predicted from both sides.

How often each run of bases occurs in sequences, in tables whose size doesn't grow with them.

A word is a run of n bases as a number in base 4 (A 0, C 1, G 2, T 3), the oldest base first. Places of an
N or beyond an end are in no word.

The exact probability of a stretch of bases given those on both sides, under a Markov model of order k.

For a stretch x of L bases between l (k bases) and r (k bases):

    P(x | l, r) = P(x r | l) / Σ_y P(y r | l),    P(x r | l) = Π_i P_k(base i | the k before it)

The sum over all 4 ** L stretches y goes along the sequence (forward algorithm). A state is the last k bases,
of which only those inside the stretch vary: there are 4 ** min(L, k) of them at most. Each base that enters
multiplies the states by four, up to that many; each base that falls out of the last k is summed over.

Shapes: M stretches that have L and the numbers of known bases around them in common, S states.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

UNKNOWN = 4  # N, in sequences of base codes
_SLICE = 1 << 22  # bases counted at a time

Codes = NDArray[np.integer]  # base codes 0 to 4
Words = NDArray[np.int64]
Counts = NDArray[np.signedinteger]


def count_words(sequences: Iterable[Codes], longest: int, *, both_strands: bool) -> list[Counts]:
    """Tables of counts by number of bases, from one to `longest`: table n − 1, (4 ** n,), has words of n.

    Every known base is counted once in table n: with the n − 1 bases before it, if that many are known. With
    both strands the reverse complement of each sequence counts as well.

    Notes
    -----
    Takes 4 ** (longest + 1) / 3 counts of 4 bytes (8 from 1 Gb of both strands on, where they might
    overflow), twice that for a moment: 13 bases take 0.36 GB, and 0.7 GB for a moment.
    """
    tables: list[Counts] = [np.zeros(4**n, np.int32) for n in range(1, longest + 1)]
    places = 0
    for sequence in sequences:
        codes = checked_codes(sequence)
        places += len(codes) * (1 + both_strands)
        if places > np.iinfo(np.int32).max and tables[0].dtype == np.int32:
            tables = [table.astype(np.int64) for table in tables]
        for start in range(0, len(codes), _SLICE):
            _count_slice(tables, codes, start, both_strands)
    if both_strands:
        tables[-1] += _turned(tables[-1])
    # So far a place is in the longest word only that it ends: what the longer ones end with is counted too.
    for shorter, longer in zip(reversed(tables[:-1]), reversed(tables), strict=False):
        shorter += longer.reshape(4, -1).sum(0, dtype=longer.dtype)
    return tables


def checked_codes(sequence: Codes) -> Codes:
    """`sequence` itself; `ValueError` unless it is 1-D, of whole numbers from 0 to 4."""
    codes = np.asarray(sequence)
    if codes.ndim != 1 or not (np.issubdtype(codes.dtype, np.integer) or not codes.size):
        raise ValueError(f"bases are a 1-D array of whole numbers, not {codes.ndim}-D {codes.dtype}")
    if codes.size and not 0 <= codes.min() <= codes.max() <= UNKNOWN:
        raise ValueError(f"base codes go from 0 to {UNKNOWN}, found {codes.min()} to {codes.max()}")
    return codes


def words_ending(codes: Codes, bases: int) -> Words:
    """The word of `bases` that ends at each place, (N,); what is unknown or before the start reads as A."""
    if bases == 1:
        return np.where(codes < UNKNOWN, codes, 0).astype(np.int64)
    half = words_ending(codes, bases // 2)
    return _joined(_joined(half, half, bases // 2), words_ending(codes, 1), 1) if bases % 2 else _joined(
        half, half, bases // 2
    )  # fmt: skip


def known_before(codes: Codes) -> NDArray[np.int64]:
    """How many known bases in a row end at each place, (N,), its own among them; 0 at an N."""
    places = np.arange(len(codes))
    unknown = np.where(codes < UNKNOWN, -1, places)
    return places - np.maximum.accumulate(unknown) if len(codes) else places


def turned_word(words: Words, bases: int) -> Words:
    """The reverse complement of words of `bases`."""
    found = np.zeros_like(words)
    for _ in range(bases):
        found = found * 4 + 3 - words % 4
        words = words // 4
    return found


def _joined(older: Words, newer: Words, bases: int) -> Words:
    """At each place the word `newer`, of `bases`, behind the word `older` that ends just before it."""
    found = newer.copy()
    found[bases:] += older[: len(older) - bases] << 2 * bases
    return found


def _count_slice(tables: list[Counts], codes: Codes, start: int, both_strands: bool) -> None:
    """Count the longest word, up to that of the last table, that ends at each place of a slice.

    On the other strand only words at the ends of a run are counted here: the rest follows from the table.
    """
    longest = len(tables)
    first, stop = max(start - longest + 1, 0), min(start + _SLICE, len(codes))
    words = words_ending(codes[first:stop], longest)[start - first :]
    known = known_before(codes[first:stop])[start - first :]
    one = tables[-1].dtype.type(1)
    full = known >= longest
    np.add.at(tables[-1], words if full.all() else words[full], one)
    for place in np.flatnonzero((known > 0) & ~full):
        bases = int(known[place])
        tables[bases - 1][words[place] % 4**bases] += 1
    if not both_strands:
        return
    follows = stop < len(codes) and codes[stop] < UNKNOWN
    for place in np.flatnonzero((known > 0) & (np.append(known[1:], follows) == 0)):
        for bases in range(1, min(longest - 1, int(known[place])) + 1):
            tables[bases - 1][turned_word(words[place] % 4**bases, bases)] += 1


def _turned(table: Counts) -> Counts:
    """The table (4 ** n,) of the reverse complements: that of word w stands at w's reverse complement."""
    bases = (len(table).bit_length() - 1) // 2
    front = bases // 2
    back = bases - front
    grid = table.reshape(4**front, 4**back)
    rows = turned_word(np.arange(4**front), front)
    columns = turned_word(np.arange(4**back), back)
    # The complement of the back comes first: as many rows at a time as stay in the cache.
    found = np.empty((4**back, 4**front), table.dtype)
    for start in range(0, len(found), 64):
        part = grid[:, columns[start : start + 64]]
        found[start : start + 64] = part.T[:, rows]
    return found.ravel()


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
