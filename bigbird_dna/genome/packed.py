"""Keep a reference's bases in memory once they were read: one byte per base, 3 GB for a human genome.

Training reads each base hundreds of times, and reading windows from a compressed file is slow.
"""

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import Interval

Letters = NDArray[np.uint8]
"""Bases as the bytes of their letters, A C G T N."""

_COMPLEMENT = np.frombuffer(bytes.maketrans(b"ACGT", b"TGCA"), np.uint8)


class PackedReference:
    """The bases of a `Reference`; a contig is read when it is first needed, and then kept.

    All bases come from the content that the reference had when it was opened. Several threads may use it.
    """

    def __init__(self, reference: Reference) -> None:
        self.reference = reference
        self._contigs: dict[str, Letters] = {}

    def windows(self, contigs: list[str], starts: list[int], length: int) -> Letters:
        """Return the forward strand of n windows of `length` bp, (n, length); N outside the contig."""
        windows = np.full((len(contigs), length), ord("N"), np.uint8)
        for contig, start, row in zip(contigs, starts, windows, strict=True):
            if contig not in self._contigs:
                size = self.reference.contigs.get(contig, 0)
                sequence = self.reference.fetch(Interval(contig, 0, size))
                self._contigs[contig] = np.frombuffer(sequence.encode(), np.uint8)
            inside = self._contigs[contig][max(start, 0) : max(start + length, 0)]
            first = max(-start, 0)
            row[first : first + len(inside)] = inside
        return windows


def turn(letters: Letters) -> Letters:
    """Return the reverse complement of windows (n, length)."""
    return _COMPLEMENT[letters[:, ::-1]]


def texts(letters: Letters) -> list[str]:
    """Return windows (n, length) as strings."""
    return [row.tobytes().decode("ascii") for row in letters]
