"""Baseline of chromatin models: one logistic regression on k-mers for each track, all fitted at once.

A k-mer and its reverse complement count as one, as a track has no strand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.nn import functional as F

from bigbird_dna.baselines.kmer import kmer_frequencies

# Axes: N windows, F features, T tracks.

# Strengths of the L2 penalty (on standardised features, loss in nats a label), strongest first.
PENALTIES = (1e-2, 1e-3, 1e-4, 1e-5)
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
        self.penalties = np.full(tracks, PENALTIES[0])
        for penalty in PENALTIES:  # from the strongest on, each fit starts where the last one ended
            weight, bias = _fitted(features, labels, weight, bias, penalty)
            logits = held_out @ weight + bias
            loss = F.binary_cross_entropy_with_logits(logits, valid, reduction="none").mean(0)
            loss = torch.where(valid.sum(0) > 0, loss, torch.inf)
            better = loss < best
            if penalty == PENALTIES[0]:
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
