"""Scores of the best local alignments of many pairs of sequences at once.

The score of an alignment is +1 for two equal bases, -1 for two others, -2 for a base without a partner and 0
for a pair with an N; that of a pair of sequences is the highest that parts of both have (Smith and Waterman
1981). It is computed exactly, on whole matrices, one antidiagonal of all pairs after the other.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Scores = npt.NDArray[np.int64]

GAP = 2
_CELLS = 1 << 15  # of a diagonal, over the pairs that are aligned at a time: what a core's cache has room for
_LARGEST_SHORT = 30_000  # bp, up to which scores are whole numbers of 16 bits

# Equal bases have no bit in common that differs; others differ by 2 at least.
_CODES = np.full(256, 8, np.int16)
_CODES[np.frombuffer(b"ACGT", np.uint8)] = (0, 2, 4, 6)
_UNKNOWN, _FIRST_PAD, _SECOND_PAD = 8, 16, 32


def alignment_scores(first: Sequence[str], second: Sequence[str]) -> Scores:
    """The score of each pair `first[i]`, `second[i]` of sequences of A C G T N, (N,)."""
    longest = np.array(
        [max(len(one), len(other)) for one, other in zip(first, second, strict=True)], np.int64
    )
    scores = np.zeros(len(longest), np.int64)
    equal = np.array([one == other for one, other in zip(first, second, strict=True)], np.bool_)
    for place in np.flatnonzero(equal).tolist():
        scores[place] = known_bases(first[place])
    # Pairs of like lengths side by side: the shorter ones of a group are filled up.
    order = np.argsort(longest, kind="stable")
    order = order[~equal[order]]
    start = 0
    while start < len(order):
        stop = start + 1
        while stop < len(order) and (stop + 1 - start) * longest[order[stop]] <= _CELLS:
            stop += 1
        some = order[start:stop]
        scores[some] = _scores([first[place] for place in some], [second[place] for place in some])
        start = stop
    return scores


def known_bases(sequence: str) -> int:
    """How many letters are not N."""
    return len(sequence) - sequence.count("N")


def _scores(first: Sequence[str], second: Sequence[str]) -> npt.NDArray[np.signedinteger]:
    a, b = _table(first, _FIRST_PAD), _table(second, _SECOND_PAD)[::-1]
    rows, columns = len(a), len(b)
    kind = np.int16 if max(rows, columns) <= _LARGEST_SHORT else np.int32
    unknown = bool((a == _UNKNOWN).any() or (b == _UNKNOWN).any())
    shape = (rows + 1, len(first))
    before, last, now, best = (np.zeros(shape, kind) for _ in range(4))
    spare, step = np.empty(shape, kind), np.empty(shape, np.int16)
    for diagonal in range(2, rows + columns + 1):
        low, high = max(1, diagonal - columns), min(rows, diagonal - 1) + 1
        one, other = a[low - 1 : high - 1], b[columns - diagonal + low : columns - diagonal + high]
        moved, cells, open_ = step[low:high], now[low:high], spare[low:high]
        np.bitwise_xor(one, other, out=moved)
        np.minimum(moved, 2, out=moved)
        np.subtract(1, moved, out=moved)
        if unknown:
            moved[(one == _UNKNOWN) | (other == _UNKNOWN)] = 0
        np.add(before[low - 1 : high - 1], moved, out=cells)
        np.maximum(last[low - 1 : high - 1], last[low:high], out=open_)
        np.subtract(open_, GAP, out=open_)
        np.maximum(cells, open_, out=cells)
        np.maximum(cells, 0, out=cells)
        np.maximum(best[low:high], cells, out=best[low:high])
        before, last, now = last, now, before
    return np.asarray(best.max(axis=0))


def _table(sequences: Sequence[str], pad: int) -> npt.NDArray[np.int16]:
    """Codes of sequences, a column each; what is filled up is equal to nothing."""
    table = np.full((max(map(len, sequences)), len(sequences)), pad, np.int16)
    for column, sequence in enumerate(sequences):
        table[: len(sequence), column] = _CODES[np.frombuffer(sequence.encode(), np.uint8)]
    return table
