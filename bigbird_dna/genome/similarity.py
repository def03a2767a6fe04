"""The nearest window of another set, by local alignment.

The similarity of a window to another is the score of their best local alignment, of the window or of its
reverse complement, as a share of the window's known bases: 1 where the other holds a copy, and 0.5 where half
of it lies there, or where three quarters of all its bases are the same. Windows that have nothing to do with
each other score a few hundredths, short ones more: some 0.05 of 400 bp.

Only pairs that share many seeds are aligned (`seeds`), four for each window. The figure of a pair is exact
all the same, and depends on these two alone. What may be missed is a window that shares hardly a seed.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from bigbird_dna.console import progress
from bigbird_dna.genome.seeds import SeedIndex, SeedPairs, Sketch, batches, run_sizes, run_starts
from bigbird_dna.genome.sequence import reverse_complement

Scores = npt.NDArray[np.int64]


def alignment_scores(first: Sequence[str], second: Sequence[str]) -> Scores:
    """The score of each pair `first[i]`, `second[i]` of sequences of A C G T N, (N,).

    It is that of the best local alignment (Smith and Waterman 1981): +1 for two equal bases, -1 for two
    others, -2 for a base without a partner and 0 for a pair with an N.
    """
    from Bio.Align import PairwiseAligner  # slow to import

    aligner: Any = PairwiseAligner(  # type: ignore[no-untyped-call]
        mode="local", match_score=1, mismatch_score=-1, gap_score=-2
    )
    aligner.wildcard = "N"
    return np.array(
        [
            known_bases(one) if one == other else aligner.score(one, other) if one and other else 0
            for one, other in zip(first, second, strict=True)
        ],
        np.int64,
    )


def known_bases(sequence: str) -> int:
    """How many letters are not N."""
    return len(sequence) - sequence.count("N")


Rows = npt.NDArray[np.intp]

ALIGNED = 4
"""Pairs that are aligned for a window, those that share most."""

_COVERED = 1 / 8  # of the bases that are the same, those that shared seeds cover at least
PAIRS = 1024  # aligned between two looks at the clock
_READ = 1 << 21  # bases that are read at a time


class SequenceWindows(NamedTuple):
    """N windows of A C G T N, read when they are asked for."""

    number: int
    length: int  # bp of one, or about
    read: Callable[[Rows], list[str]]

    @classmethod
    def of(cls, sequences: Sequence[str]) -> Self:
        """Windows that are in memory."""
        length = max(map(len, sequences), default=0)
        return cls(len(sequences), length, lambda rows: [sequences[row] for row in rows.tolist()])


class Pairs(NamedTuple):
    """Aligned pairs (P,): by query, the most similar first, and of equal ones the first window."""

    queries: Rows
    others: Rows
    turned: npt.NDArray[np.bool_]  # whether it is the reverse complement that is like the other
    similarities: npt.NDArray[np.float64]  # above 0

    def nearest(self, count: int) -> "Nearest":
        """The first pair of each of `count` queries."""
        rows = np.full(count, -1, np.intp)
        turned, similarities = np.zeros(count, np.bool_), np.zeros(count)
        first = run_starts(self.queries)
        owners = self.queries[first]
        rows[owners], turned[owners] = self.others[first], self.turned[first]
        similarities[owners] = self.similarities[first]
        return Nearest(rows, turned, similarities)

    def as_near(self) -> npt.NDArray[np.bool_]:
        """Which pairs (P,) are as similar as the first of their query."""
        starts = run_starts(self.queries)
        best = np.repeat(self.similarities[starts], run_sizes(self.queries))
        return np.asarray(self.similarities == best)


class Nearest(NamedTuple):
    """The most similar window of each query, (N,)."""

    rows: Rows  # -1: none shares a seed
    turned: npt.NDArray[np.bool_]
    similarities: npt.NDArray[np.float64]  # 0 where there is none


def aligned_pairs(
    queries: Sequence[str],
    others: SequenceWindows,
    *,
    threshold: float | None = None,
    asked: npt.NDArray[np.bool_] | None = None,
) -> Pairs:
    """The pairs of queries and other windows that share most seeds, with their similarity.

    Four of each query; with a threshold also four of each other window, of the pairs that may be so similar:
    those whose seeds cover an eighth of what that takes. The other windows are read some at a time, twice;
    memory goes with the queries' bases, and with a threshold with the number of such pairs. Only pairs of the
    queries that are `asked` for, (N,), are aligned; None: all.
    """
    least = math.inf if threshold is None else threshold * others.length * _COVERED
    sketch = Sketch.fitting(others.number * others.length, max(map(len, queries), default=0))
    index = SeedIndex(queries, sketch)
    found, likewise = SeedPairs.none(), SeedPairs.none()
    runs = batches([others.length] * others.number)
    for first, last in progress(runs, "looking for similar windows", len(runs), "parts"):
        for here in index.share(others.read(np.arange(first, last)), first):
            found = found.joined(here.heaviest(ALIGNED)).heaviest(ALIGNED)
            near = here.take(np.flatnonzero(here.weights >= least))
            likewise = likewise.joined(near.heaviest(ALIGNED, of_queries=False))
    pairs = found.joined(likewise)
    if asked is not None:
        pairs = pairs.take(np.flatnonzero(asked[pairs.queries]))
    keys = np.stack([pairs.others, pairs.queries, pairs.turned.astype(np.int64)], axis=1)
    pairs = pairs.take(np.unique(keys, axis=0, return_index=True)[1])
    scores = _pair_scores(queries, others, pairs)
    known = np.array([known_bases(query) for query in queries], np.int64)
    similarities = scores / np.maximum(known[pairs.queries], 1)
    order = np.lexsort((pairs.turned, pairs.others, -similarities, pairs.queries))
    order = order[scores[order] > 0]
    return Pairs(pairs.queries[order], pairs.others[order], pairs.turned[order], similarities[order])


def _pair_scores(queries: Sequence[str], others: SequenceWindows, pairs: SeedPairs) -> npt.NDArray[np.int64]:
    """The score of each pair; pairs are in the order of the other windows, which are read as they come."""
    scores = np.zeros(len(pairs.queries), np.int64)
    size = max(min(PAIRS, _READ // max(others.length, 1)), 1)
    parts = [slice(first, first + size) for first in range(0, len(scores), size)]
    for some in progress(parts, "aligning", len(parts), "parts"):
        rows, place = np.unique(pairs.others[some], return_inverse=True)
        texts = others.read(rows)
        theirs = [texts[number] for number in place.tolist()]
        ours = [queries[row] for row in pairs.queries[some].tolist()]
        turned = pairs.turned[some].tolist()
        ours = [reverse_complement(one) if turn else one for one, turn in zip(ours, turned, strict=True)]
        scores[some] = alignment_scores(ours, theirs)
    return scores
