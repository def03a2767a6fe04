"""The promoter baseline on counts: k-mer logistic regression.

It sees a sequence as it is given: a window on the minus strand is its reverse complement.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.baselines.codes import base_codes
from bigbird_dna.baselines.logistic import LogisticBaseline
from bigbird_dna.genome.sequence import UNKNOWN

# Above this k, most k-mers of a window of a few kb are absent and a sparse matrix is smaller.
LARGEST_DENSE_K = 6


def kmer_frequencies(sequences: Iterable[str], k: int) -> Any:
    """Share of each k-mer among the k-mers without N of each sequence.

    Strand-specific; column `4^(k−1) c_0 + … + c_{k−1}` with A, C, G, T = 0, 1, 2, 3.

    Returns
    -------
    Array float32 (sequences, 4^k) up to k = 6, a SciPy CSR matrix above. A sequence without any
    such k-mer gives a row of zeros.
    """
    if not 1 <= k <= 12:
        raise ValueError(f"k must be from 1 to 12, not {k}")
    counted = (_count(sequence, k) for sequence in sequences)
    shares = ((counts / max(counts.sum(), 1)).astype(np.float32) for counts in counted)
    empty = np.zeros((0, 4**k), dtype=np.float32)
    if k <= LARGEST_DENSE_K:
        return np.vstack([empty, *shares])
    from scipy.sparse import csr_matrix, vstack

    return vstack([csr_matrix(empty), *map(csr_matrix, shares)], format="csr")


class KmerLogistic(LogisticBaseline):
    """Logistic regression on standardized k-mer frequencies."""

    penalties: ClassVar = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
    standardized = True

    def __init__(self, k: int, seed: int) -> None:
        super().__init__(seed)
        self.k = k
        self.name = f"{k}-mer"

    def features(self, sequences: Iterable[str]) -> Any:
        """Shares of the k-mers, as `kmer_frequencies` gives them."""
        return kmer_frequencies(sequences, self.k)

    def settings(self) -> dict[str, Any]:
        """k."""
        return {"k": self.k}


def _count(sequence: str, k: int) -> NDArray[np.int64]:
    """How often each k-mer without N occurs; shape (4^k,)."""
    codes = base_codes([sequence])[0]
    length = max(len(codes) - k + 1, 0)
    index = np.zeros(length, dtype=np.int32)
    for offset in range(k):
        index *= 4
        index += codes[offset : offset + length] & 3
    unknown = np.flatnonzero(codes == UNKNOWN)
    if unknown.size:
        # A k-mer is dropped when any of its positions is unknown: differences of a running count.
        before = np.concatenate([[0], np.cumsum(codes == UNKNOWN)])
        index = index[before[k : k + length] == before[:length]]
    return np.bincount(index, minlength=4**k)
