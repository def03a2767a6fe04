"""Keep a reference's bases in memory once they were read: two bits per base, 0.8 GB for a human genome.

Training reads each base hundreds of times, and reading windows from a compressed file is slow.
"""

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import Interval, base_codes, reverse_complement

Letters = NDArray[np.uint8]
"""Bases as the bytes of their letters, A C G T N."""

BLOCK = 1 << 18  # bp per read, a multiple of 4

_N = ord("N")
# Row b contains the four letters of byte b as one 32-bit number.
_CODES = np.arange(256)[:, None] >> np.array([0, 2, 4, 6]) & 3
_QUADRUPLES = np.frombuffer(b"ACGT", np.uint8)[_CODES].view(np.uint32).reshape(-1)
_COMPLEMENT = np.frombuffer(bytes.maketrans(b"ACGT", b"TGCA"), np.uint8)


class _PackedBlock:
    """Consecutive bases; a mask of N is stored only if there are any."""

    def __init__(self, sequence: str) -> None:
        letters = np.frombuffer(sequence.encode("ascii"), np.uint8)
        codes = np.zeros((-(-len(letters) // 4), 4), np.uint8)
        codes.reshape(-1)[: len(letters)] = base_codes(sequence) & 3
        self._bases = (codes << np.array([0, 2, 4, 6], np.uint8)).sum(
            axis=1, dtype=np.uint8
        )
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
    """The bases of a `Reference`; a block is read when one of its bases is first needed, and then kept.

    All bases come from the content that the reference had when it was opened. Several threads may use it.
    """

    def __init__(self, reference: Reference) -> None:
        self.reference = reference
        self.contigs = reference.contigs
        self._blocks: dict[tuple[str, int], _PackedBlock] = {}

    def fetch(self, interval: Interval) -> str:
        """Return the bases of an interval, as `Reference.fetch` does, with the same errors."""
        letters = np.empty(len(interval), np.uint8)
        self._read(interval.contig, interval.start, letters)
        sequence = letters.tobytes().decode("ascii")
        return reverse_complement(sequence) if interval.strand == "-" else sequence

    def windows(self, contigs: list[str], starts: list[int], length: int) -> Letters:
        """Return the forward strand of n windows of `length` bp, (n, length); N outside the contig."""
        found = np.empty((len(contigs), length), np.uint8)
        for contig, start, row in zip(contigs, starts, found, strict=True):
            self._read(contig, start, row)
        return found

    def _read(self, contig: str, start: int, into: Letters) -> None:
        if contig not in self.contigs:
            self.reference.fetch(
                Interval(contig, 0, 0)
            )  # raises the error for an unknown contig
        first, last = max(start, 0), min(start + len(into), self.contigs[contig])
        if last - first < len(into):
            into[:] = _N
        while first < last:
            number = first // BLOCK
            end = min(last, (number + 1) * BLOCK)
            if (contig, number) not in self._blocks:
                whole = Interval(
                    contig,
                    number * BLOCK,
                    min((number + 1) * BLOCK, self.contigs[contig]),
                )
                self._blocks[contig, number] = _PackedBlock(self.reference.fetch(whole))
            block = self._blocks[contig, number]
            block.read(
                first - number * BLOCK,
                end - number * BLOCK,
                into[first - start : end - start],
            )
            first = end


def turn(letters: Letters) -> Letters:
    """Return the reverse complement of windows (n, length)."""
    return _COMPLEMENT[letters[:, ::-1]]


def texts(letters: Letters) -> list[str]:
    """Return windows (n, length) as strings."""
    whole, length = letters.tobytes().decode("ascii"), letters.shape[1]
    return [whole[start : start + length] for start in range(0, letters.size, length)]
