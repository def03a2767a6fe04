"""The promoter baseline on counts: k-mer logistic regression.

It sees a sequence as it is given: a window on the minus strand is its reverse complement.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bigbird_dna.baselines.codes import base_codes
from bigbird_dna.console import log
from bigbird_dna.genome.sequence import UNKNOWN

# Inverse strengths of the L2 penalty that `KmerLogistic` chooses from.
PENALTIES = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
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


class KmerLogistic:
    """Logistic regression with an L2 penalty on standardised k-mer frequencies.

    The penalty is the one of `PENALTIES` with the least log loss on a fifth of the training rows,
    drawn with `seed`; the model is then fitted to all of them. Same input and seed, same result.
    Both classes weigh alike, however many rows they have, so that 0.5 is the threshold between them.
    """

    def __init__(self, k: int, seed: int) -> None:
        self.k = k
        self.seed = seed
        self.penalty = float("nan")
        self._pipeline: Any = None

    def fit(self, sequences: Iterable[str], labels: ArrayLike) -> Self:
        """Learn from `sequences` with `labels` (N,) of 0 and 1, both of which must occur."""
        y = np.asarray(labels).astype(np.int64)
        x = kmer_frequencies(sequences, self.k)
        if x.shape[0] != len(y):
            raise ValueError(f"{x.shape[0]} sequences but {len(y)} labels")
        if set(np.unique(y)) != {0, 1}:
            raise ValueError(f"labels must hold both 0 and 1, not {sorted(set(y.tolist()))}")
        self.penalty = self._choose_penalty(x, y)
        self._pipeline = self._fitted(x, y, self.penalty)
        return self

    def predict(self, sequences: Iterable[str]) -> NDArray[np.float64]:
        """Probability of label 1, shape (N,)."""
        if self._pipeline is None:
            raise ValueError("the k-mer model has not been fitted")
        x = kmer_frequencies(sequences, self.k)
        if not x.shape[0]:
            return np.zeros(0)
        return np.asarray(self._pipeline.predict_proba(x)[:, 1], dtype=np.float64)

    def _choose_penalty(self, x: Any, y: NDArray[np.int64]) -> float:
        held_out = np.zeros(len(y), dtype=bool)
        generator = np.random.default_rng(self.seed)
        for label in (0, 1):
            rows = np.flatnonzero(y == label)
            held_out[generator.permutation(rows)[: len(rows) // 5]] = True
        if len(np.unique(y[held_out])) < 2:
            return PENALTIES[len(PENALTIES) // 2]
        losses = [
            _log_loss(self._fitted(x[~held_out], y[~held_out], c), x[held_out], y[held_out])
            for c in PENALTIES
        ]
        return PENALTIES[int(np.argmin(losses))]

    def _fitted(self, x: Any, y: NDArray[np.int64], penalty: float) -> Any:
        from scipy.sparse import issparse
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        pipeline = make_pipeline(
            StandardScaler(with_mean=not issparse(x)),
            LogisticRegression(C=penalty, class_weight="balanced", max_iter=1000, random_state=self.seed),
        )
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ConvergenceWarning)
            pipeline.fit(x, y)
        if any(issubclass(warning.category, ConvergenceWarning) for warning in caught):
            log(f"{self.k}-mer regression with C={penalty:g} stopped before it had converged")
        return pipeline


def _log_loss(pipeline: Any, x: Any, y: NDArray[np.int64]) -> float:
    chosen = pipeline.predict_proba(x)[np.arange(len(y)), y]
    # A saturated probability of the wrong class is a large loss, not an infinite one.
    losses = -np.log(np.maximum(chosen, 1e-12))
    return float(np.mean([losses[y == label].mean() for label in (0, 1)]))


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
