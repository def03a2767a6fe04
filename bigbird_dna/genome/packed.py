"""Keep a reference's bases in memory once they were read: one byte per base, 3 GB for a human genome.

Training reads each base hundreds of times, and reading windows from a compressed file is slow.
"""

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import Interval

Letters = NDArray[np.uint8]
"""Bases as the bytes of their letters, A C G T N."""

BLOCK = 1 << 18  # bp per read

_N = ord("N")
_COMPLEMENT = np.frombuffer(bytes.maketrans(b"ACGT", b"TGCA"), np.uint8)


class PackedReference:
    """The bases of a `Reference`; a block is read when one of its bases is first needed, and then kept.

    All bases come from the content that the reference had when it was opened. Several threads may use it.
    """

    def __init__(self, reference: Reference) -> None:
        self.reference = reference
        self.contigs = reference.contigs
        self._blocks: dict[tuple[str, int], Letters] = {}

    def windows(self, contigs: list[str], starts: list[int], length: int) -> Letters:
        """Return the forward strand of n windows of `length` bp, (n, length); N outside the contig."""
        windows = np.full((len(contigs), length), _N, np.uint8)
        for contig, start, row in zip(contigs, starts, windows, strict=True):
            if contig not in self.contigs:
                self.reference.fetch(Interval(contig, 0, 0))  # raises the error
            first = max(start, 0)
            last = min(start + length, self.contigs[contig])
            if first >= last:
                continue  # outside the contig
            for number in range(first // BLOCK, -(-last // BLOCK)):
                offset = number * BLOCK
                left, right = max(first, offset), min(last, offset + BLOCK)
                block = self._block(contig, number)
                row[left - start : right - start] = block[
                    left - offset : right - offset
                ]
        return windows

    def _block(self, contig: str, number: int) -> Letters:
        block = self._blocks.get((contig, number))
        if block is None:
            end = min((number + 1) * BLOCK, self.contigs[contig])
            sequence = self.reference.fetch(Interval(contig, number * BLOCK, end))
            block = np.frombuffer(sequence.encode("ascii"), np.uint8)
            self._blocks[contig, number] = block
        return block


def turn(letters: Letters) -> Letters:
    """Return the reverse complement of windows (n, length)."""
    return _COMPLEMENT[letters[:, ::-1]]


def texts(letters: Letters) -> list[str]:
    """Return windows (n, length) as strings."""
    return [row.tobytes().decode("ascii") for row in letters]
