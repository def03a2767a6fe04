"""Gapped k-mers, exactly: words of l bases of which k count, at any places.

The kernel of two windows is the number of pairs of their gapped k-mers that agree. Two words of l bases that
differ at m places share C(l − m, k) gapped k-mers, so that with the counts c of all 4^l words it is c′ᵀ B c
for a matrix B that knows m alone. B is a sum of products over the l places: a character that varies at j
places, a product of columns of a 4 × 4 Hadamard matrix, is an eigenvector with eigenvalue
4^(l − k) C(l − j, k − j), or 0 where j > k. So Λ^½ H c are features whose products are the kernel, and
neither gapped k-mers nor pairs of windows are ever listed (Ghandi et al., PLoS Computational Biology
10:e1003711, 2014, count pairs).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.baselines.kmers import base_codes, other_strand
from bigbird_dna.genome.sequence import UNKNOWN

# Axes: N windows, L bases, F features: characters that vary at k places at most.

LONGEST_WORD = 11

_ONE_PLACE = np.array([[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]]) / 2
_TWO_PLACES = np.kron(_ONE_PLACE, _ONE_PLACE)


class GappedKmers:
    """The gapped k-mers of words of `length` bases, `known` of which count."""

    def __init__(self, length: int, known: int) -> None:
        if not 1 <= known <= length <= LONGEST_WORD:
            raise ValueError(
                f"gapped k-mers of {known} of {length} bases: at least 1, and at most {LONGEST_WORD}"
            )
        self.length, self.known = length, known
        digits = np.zeros(1, np.int64)  # of each character, at how many places it varies
        for _ in range(length):
            digits = (digits + np.array([[0], [1], [1], [1]])).ravel()
        self._characters = np.flatnonzero(digits <= known)
        values = [4.0 ** (length - known) * comb(length - j, known - j) for j in range(known + 1)]
        self._roots = np.sqrt(values)[digits[self._characters]]  # (F,)

    @property
    def features(self) -> int:
        """F."""
        return len(self._characters)

    def words(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Weights of features (F,) as weights of words (4^length,): H Λ^½ w."""
        spread = np.zeros(4**self.length)
        spread[self._characters] = self._roots * weights
        return _transformed(spread, self.length)

    def of_words(self, sums: NDArray[np.float64]) -> NDArray[np.float64]:
        """Features (F,) of counts of words (4^length,): Λ^½ H c."""
        return np.asarray(self._roots * _transformed(sums, self.length)[self._characters])

    def count(self, sequences: Sequence[str], *, both_strands: bool) -> Any:
        """Counts of the words without N in windows, (N, 4^length), as a SciPy CSR matrix of float64."""
        from scipy.sparse import csr_matrix

        codes = base_codes(sequences)
        strands = (codes, other_strand(codes)) if both_strands else (codes,)
        parts = [self._numbers(one) for one in strands]
        numbers, known = (np.concatenate(column, axis=1) for column in zip(*parts, strict=True))
        ends = np.concatenate([[0], np.cumsum(known.sum(axis=1))])
        shape = (len(codes), 4**self.length)
        matrix = csr_matrix((np.ones(ends[-1]), numbers[known], ends), shape=shape)
        matrix.sum_duplicates()
        return matrix

    def norms(self, counts: Any) -> NDArray[np.float64]:
        """The length (N,) of each window's vector of gapped k-mers; 1 where it has none."""
        shared = np.array([comb(max(self.length - m, 0), self.known) for m in range(self.length + 1)], float)
        low_bits = int("01" * self.length, 2)
        found = np.ones(counts.shape[0])
        for row in range(counts.shape[0]):
            part = slice(counts.indptr[row], counts.indptr[row + 1])
            words, times = counts.indices[part].astype(np.int32), counts.data[part]
            differing = words[:, None] ^ words
            places = np.bitwise_count((differing | differing >> 1) & low_bits)
            square = float(times @ shared[places] @ times)
            if square > 0:
                found[row] = np.sqrt(square)
        return found

    def _numbers(self, codes: NDArray[np.uint8]) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
        """The word at each place, (N, L − length + 1), and whether it has no N."""
        places = max(codes.shape[1] - self.length + 1, 0)
        numbers = np.zeros((len(codes), places), np.int32)
        known = np.ones((len(codes), places), np.bool_)
        for offset in range(self.length):
            column = codes[:, offset : offset + places]
            numbers = numbers * 4 + (column & 3)
            known &= column != UNKNOWN
        return numbers, known


def _transformed(values: NDArray[np.float64], places: int) -> NDArray[np.float64]:
    """H, a 4 × 4 Hadamard matrix halved, at each of the places of words, (4^places,); its own inverse."""
    # Two places at a time, as a product with a matrix; each product moves its places behind all others, so
    # that after the last one they stand in their order again.
    for first in range(0, places, 2):
        factor = _ONE_PLACE if first + 1 == places else _TWO_PLACES
        values = (values.reshape(len(factor), -1).T @ factor).ravel()
    return values
