"""Logistic regression on k-mers, for windows, tracks and tokens.

Sequences as numbers: A C G T are 0 1 2 3, and N is 4.

The promoter baseline on counts: k-mer logistic regression.

It sees a sequence as it is given: a window on the minus strand is its reverse complement.

Baseline of chromatin models: one logistic regression on k-mers for each track, all fitted at once.

A k-mer and its reverse complement count as one, as a track has no strand.

Linear probes: what a logistic regression reads from vectors that were made without it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.nn import functional as F

from bigbird_dna.baselines.logistic import LogisticBaseline
from bigbird_dna.console import log
from bigbird_dna.genome import sequence
from bigbird_dna.genome.sequence import UNKNOWN

# Axes: N windows, L bases.

_OTHER_STRAND = np.array([3, 2, 1, 0, UNKNOWN], np.uint8)


def base_codes(sequences: Sequence[str]) -> NDArray[np.uint8]:
    """Codes (N, L) of sequences of one length; whatever isn't A, C, G or T is an N."""
    if not sequences:
        return np.zeros((0, 0), np.uint8)
    return sequence.base_codes("".join(sequences)).reshape(len(sequences), -1)


def other_strand(codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The reverse complements of windows, (N, L)."""
    return np.ascontiguousarray(_OTHER_STRAND[codes[:, ::-1]])


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


# Axes: N windows, F features, T tracks.

# Strengths of the L2 penalty (on standardised features, loss in nats a label), strongest first.
TRACK_PENALTIES = (1e-2, 1e-3, 1e-4, 1e-5)
ITERATIONS = 60  # of L-BFGS for each penalty


def window_features(windows: Sequence[str], sizes: Sequence[int], k: int) -> NDArray[np.float32]:
    """Frequencies of k-mers, both strands together, in the middle `sizes` bp of each window; (N, F)."""
    canonical = _canonical(k)
    parts = []
    for size in sizes:
        cut = [window[(len(window) - size) // 2 :][:size] for window in windows]
        counts = kmer_frequencies(cut, k)
        folded = np.zeros((len(cut), canonical.max() + 1), np.float32)
        for kmer, column in enumerate(canonical):
            folded[:, column] += counts[:, kmer]
        parts.append(folded)
    return np.concatenate(parts, axis=1)


class KmerTracks:
    """Logistic regressions with an L2 penalty on standardised features, one a track.

    The penalty of each track is the one of `PENALTIES` with the least loss on validation windows (the
    strongest, where it has no positive there).
    """

    def __init__(self) -> None:
        self.penalties: NDArray[np.float64] = np.empty(0)
        self._mean = self._scale = self._weight = self._bias = torch.empty(0)

    def fit(
        self, x: NDArray[np.float32], y: ArrayLike, x_valid: NDArray[np.float32], y_valid: ArrayLike
    ) -> Self:
        """Learn from features (N, F) and labels (N, T); the penalty is chosen on the second pair."""
        features, held_out = torch.from_numpy(x), torch.from_numpy(x_valid)
        labels = torch.from_numpy(np.asarray(y, np.float32))
        valid = torch.from_numpy(np.asarray(y_valid, np.float32))
        self._mean, self._scale = features.mean(0), features.std(0).clamp_min(1e-8)
        features = (features - self._mean) / self._scale
        held_out = (held_out - self._mean) / self._scale
        tracks = labels.shape[1]
        weight = torch.zeros(features.shape[1], tracks)
        rate = labels.mean(0).clamp(1e-6, 1 - 1e-6)
        bias = torch.logit(rate)
        best = torch.full((tracks,), torch.inf)
        self._weight, self._bias = weight.clone(), bias.clone()
        self.penalties = np.full(tracks, TRACK_PENALTIES[0])
        for penalty in TRACK_PENALTIES:  # from the strongest on, each fit starts where the last one ended
            weight, bias = _fitted(features, labels, weight, bias, penalty)
            logits = held_out @ weight + bias
            loss = F.binary_cross_entropy_with_logits(logits, valid, reduction="none").mean(0)
            loss = torch.where(valid.sum(0) > 0, loss, torch.inf)
            better = loss < best
            if penalty == TRACK_PENALTIES[0]:
                better |= torch.isinf(loss)
            best = torch.where(better, loss, best)
            self._weight[:, better], self._bias[better] = weight[:, better], bias[better]
            self.penalties[better.numpy()] = penalty
        return self

    def predict(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """Probabilities (N, T)."""
        features = (torch.from_numpy(x) - self._mean) / self._scale
        return torch.sigmoid(features @ self._weight + self._bias).numpy()


def _fitted(x: Tensor, y: Tensor, weight: Tensor, bias: Tensor, penalty: float) -> tuple[Tensor, Tensor]:
    weight = weight.clone().requires_grad_()
    bias = bias.clone().requires_grad_()
    optimizer = torch.optim.LBFGS(
        [weight, bias], max_iter=ITERATIONS, history_size=8, line_search_fn="strong_wolfe"
    )

    def loss() -> Tensor:
        optimizer.zero_grad()
        fit = F.binary_cross_entropy_with_logits(x @ weight + bias, y, reduction="sum") / len(x)
        total = fit + penalty / 2 * weight.square().sum()
        total.backward()  # type: ignore[no-untyped-call]
        return total

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    return weight.detach(), bias.detach()


def _canonical(k: int) -> NDArray[np.int64]:
    """The column of each k-mer (4^k,), the same for a k-mer and its reverse complement."""
    numbers = np.arange(4**k)
    digits = numbers[:, None] // 4 ** np.arange(k) % 4  # the last base first
    complement = ((3 - digits) * 4 ** np.arange(k)[::-1]).sum(axis=1)
    return np.unique(np.minimum(numbers, complement), return_inverse=True)[1]


# Inverse strengths of the L2 penalty that a probe chooses from, from the strongest on.
PROBE_PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)

Matrix = NDArray[np.floating[Any]]


class Probe(NamedTuple):
    """A fitted probe: probability of label 1 = logistic(vector @ weights + bias)."""

    weights: NDArray[np.float64]  # (D,)
    bias: float
    penalty: float  # the inverse strength that was chosen

    def predict(self, vectors: Matrix) -> NDArray[np.float64]:
        """Probability of label 1 (N,) for vectors (N, D)."""
        from scipy.special import expit

        return np.asarray(expit(vectors @ self.weights + self.bias), np.float64)


def fit_probe(
    vectors: Matrix, labels: NDArray[Any], held_out: Matrix, held_out_labels: NDArray[Any]
) -> Probe:
    """Fit a logistic regression on standardised vectors (N, D), for labels of 0 and 1 (N,).

    Both classes weigh alike. The penalty is the one of `PENALTIES` with the least log loss on the held-out
    rows, which nothing is fitted to. Same input, same result.
    """
    from sklearn.linear_model import LogisticRegression

    middle, spread = vectors.mean(axis=0, dtype=np.float64), vectors.std(axis=0, dtype=np.float64)
    spread[spread <= 1e-7 * np.abs(middle)] = 1.0  # nothing but rounding
    x = (vectors - middle) / spread
    best: tuple[float, Probe] | None = None
    # From the strongest penalty on, each fit from the one before: the weak ones would take longest.
    model = LogisticRegression(class_weight="balanced", max_iter=1000, warm_start=True)
    for penalty in PROBE_PENALTIES:
        _fit(model.set_params(C=penalty), x, labels)
        weights = model.coef_[0] / spread
        probe = Probe(weights, float(model.intercept_[0] - middle @ weights), penalty)
        loss = _loss(probe.predict(held_out), held_out_labels)
        if best is None or loss < best[0]:
            best = loss, probe
    assert best is not None
    return best[1]


def _fit(model: Any, x: Matrix, labels: NDArray[Any]) -> None:
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        model.fit(x, labels)
    if any(issubclass(warning.category, ConvergenceWarning) for warning in caught):
        log(f"linear probe with C={model.C:g} stopped before it had converged")


def _loss(probabilities: NDArray[np.float64], labels: NDArray[Any]) -> float:
    """Mean log loss, both classes alike."""
    right = np.where(labels == 1, probabilities, 1 - probabilities)
    losses = -np.log(np.maximum(right, 1e-12))
    return float(np.mean([losses[labels == label].mean() for label in (0, 1)]))
