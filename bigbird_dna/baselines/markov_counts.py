"""How often each run of bases occurs in sequences, in tables whose size doesn't grow with them.

A word is a run of n bases as a number in base 4 (A 0, C 1, G 2, T 3), the oldest base first. Places of an
N or beyond an end are in no word.
"""

from collections.abc import Iterable

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
