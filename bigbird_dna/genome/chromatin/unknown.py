"""Where a reference is unknown (N), and how much of a window isn't."""

import numpy as np

from bigbird_dna.genome.chromatin.bins import covered_bases
from bigbird_dna.genome.chromatin.peaks import Intervals, Positions, merge
from bigbird_dna.genome.intervals import Interval
from bigbird_dna.genome.reference import Reference

_PIECE = 16_000_000  # bp of a contig looked at at a time


def unknown_bases(reference: Reference, contig: str) -> Intervals:
    """The runs of N of a contig."""
    length = reference.contigs[contig]
    starts, ends = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for begin in range(0, length, _PIECE):
        sequence = reference.fetch(Interval(contig, begin, min(begin + _PIECE, length)))
        unknown = np.frombuffer(sequence.encode(), np.uint8) == ord("N")
        edges = np.diff(unknown.view(np.int8), prepend=0, append=0)
        starts.append(np.flatnonzero(edges == 1) + begin)
        ends.append(np.flatnonzero(edges == -1) + begin)
    return merge(np.concatenate(starts), np.concatenate(ends))


def known_bases(unknown: Intervals, opens: Positions, window: int, length: int) -> Positions:
    """How many bp of the windows that open at `opens` are bases of the contig other than N."""
    first, last = np.clip(opens, 0, length), np.clip(opens + window, 0, length)
    known: Positions = last - first - covered_bases(unknown, first, last)
    return known
