"""Bases of a reference that stay in memory once they were read: two bits each, 0.8 GB for a human genome.

A training sees every base hundreds of times, and to read a window from a compressed file takes its time.
"""

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import Interval, base_codes, reverse_complement

Letters = NDArray[np.uint8]
"""Bases as the bytes of their letters, A C G T N."""

BLOCK = 1 << 18  # bp read at a time, a multiple of 4

_N = ord("N")
# The four letters that a byte stands for, as one number whose bytes they are.
_CODES = np.arange(256)[:, None] >> np.array([0, 2, 4, 6]) & 3
_QUADRUPLES = np.frombuffer(b"ACGT", np.uint8)[_CODES].view(np.uint32).reshape(-1)
_COMPLEMENT = np.frombuffer(bytes.maketrans(b"ACGT", b"TGCA"), np.uint8)


class _PackedBlock:
    """Some bases in a row; which of them are N is kept where there are any."""

    def __init__(self, sequence: str) -> None:
        letters = np.frombuffer(sequence.encode("ascii"), np.uint8)
        codes = np.zeros((-(-len(letters) // 4), 4), np.uint8)
        codes.reshape(-1)[: len(letters)] = base_codes(sequence) & 3
        self._bases = (codes << np.array([0, 2, 4, 6], np.uint8)).sum(axis=1, dtype=np.uint8)
        unknown = letters == _N
        self._unknown = np.packbits(unknown) if unknown.any() else None

    def read(self, start: int, end: int, into: Letters) -> None:
        first = start // 4
        found = _QUADRUPLES[self._bases[first : -(-end // 4)]].view(np.uint8)
        into[:] = found[start - 4 * first : end - 4 * first]
        if self._unknown is not None:
            first = start // 8
            unknown = np.unpackbits(self._unknown[first : -(-end // 8)])
            into[unknown[start - 8 * first : end - 8 * first].view(bool)] = _N


class PackedReference:
    """The bases of a `Reference`: those of a block are read, and kept, when one of them is asked for first.

    All are of the content that the reference had when it was opened. May be used by several threads.
    """

    def __init__(self, reference: Reference) -> None:
        self.reference = reference
        self.contigs = reference.contigs
        self._blocks: dict[tuple[str, int], _PackedBlock] = {}

    def fetch(self, interval: Interval) -> str:
        """What `Reference.fetch` returns, and raises."""
        letters = np.empty(len(interval), np.uint8)
        self._read(interval.contig, interval.start, letters)
        sequence = letters.tobytes().decode("ascii")
        return reverse_complement(sequence) if interval.strand == "-" else sequence

    def windows(self, contigs: list[str], starts: list[int], length: int) -> Letters:
        """The forward strand of windows (n) of `length` bp, (n, length); what lies outside a contig is N."""
        found = np.empty((len(contigs), length), np.uint8)
        for contig, start, row in zip(contigs, starts, found, strict=True):
            self._read(contig, start, row)
        return found

    def _read(self, contig: str, start: int, into: Letters) -> None:
        if contig not in self.contigs:
            self.reference.fetch(Interval(contig, 0, 0))  # says so
        first, last = max(start, 0), min(start + len(into), self.contigs[contig])
        if last - first < len(into):
            into[:] = _N
        while first < last:
            number = first // BLOCK
            end = min(last, (number + 1) * BLOCK)
            if (contig, number) not in self._blocks:
                whole = Interval(contig, number * BLOCK, min((number + 1) * BLOCK, self.contigs[contig]))
                self._blocks[contig, number] = _PackedBlock(self.reference.fetch(whole))
            block = self._blocks[contig, number]
            block.read(first - number * BLOCK, end - number * BLOCK, into[first - start : end - start])
            first = end


def turn(letters: Letters) -> Letters:
    """The other strand of windows (n, length), each read in its own direction."""
    return _COMPLEMENT[letters[:, ::-1]]


def texts(letters: Letters) -> list[str]:
    """Windows (n, length) as texts."""
    whole, length = letters.tobytes().decode("ascii"), letters.shape[1]
    return [whole[start : start + length] for start in range(0, letters.size, length)]
