"""K-mer frequencies, and logistic regressions on them for tracks.

Tracks have no strand: they count a k-mer and its reverse complement as one feature.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_matrix, vstack
from torch import Tensor

from bigbird_dna.genome import sequence
from bigbird_dna.genome.sequence import (
    UNKNOWN,
    canonical_kmers,
    known_before,
    words_ending,
)
from bigbird_dna.training.losses import LabelLoss

Floats32 = NDArray[np.float32]
Floats = NDArray[np.float64]
Bytes = NDArray[np.uint8]

# Axes: N windows, L bases of a window, F features, T tracks.

# Above this k, most k-mers are absent from a window of a few kb, and a sparse matrix is smaller.
LARGEST_DENSE_K = 6
# Strengths of the L2 penalty (on standardized features, loss in nats per label), strongest first.
TRACK_PENALTIES = (1e-2, 1e-3, 1e-4, 1e-5)
ITERATIONS = 60  # L-BFGS iterations per penalty

_OTHER_STRAND = np.array([3, 2, 1, 0, UNKNOWN], np.uint8)


def base_codes(sequences: Sequence[str]) -> Bytes:
    """Codes (N, L) of sequences with the same length; letters other than A, C, G and T are N."""
    if not sequences:
        return np.zeros((0, 0), np.uint8)
    return sequence.base_codes("".join(sequences)).reshape(len(sequences), -1)


def other_strand(codes: NDArray[np.integer]) -> Bytes:
    """Return the reverse complements of codes (…, L)."""
    return np.ascontiguousarray(_OTHER_STRAND[codes[..., ::-1]])


def kmer_frequencies(sequences: Iterable[str], k: int) -> Any:
    """Frequency of each k-mer among a sequence's k-mers without N, on the given strand.

    Float32 (N, 4^k), a SciPy CSR matrix above k = 6; column `4^(k−1) c_0 + … + c_{k−1}` with A, C, G, T = 0,
    1, 2, 3. A sequence without any such k-mer has a row of zeros.
    """
    rows = [np.zeros((0, 4**k), np.float32)]
    for text in sequences:
        codes = sequence.base_codes(text)
        words = words_ending(codes, k)[known_before(codes) >= k]
        counts = np.bincount(words, minlength=4**k) / max(len(words), 1)
        row = counts.astype(np.float32)[None]
        rows.append(row if k <= LARGEST_DENSE_K else csr_matrix(row))

    if k <= LARGEST_DENSE_K:
        return np.concatenate(rows)

    return vstack(rows, format="csr")


def window_features(windows: Sequence[str], sizes: Sequence[int], k: int) -> Floats32:
    """Frequencies of k-mers, both strands combined, in the central `sizes` bp of each window; (N, F)."""
    features = []
    for size in sizes:
        middles = [window[(len(window) - size) // 2 :][:size] for window in windows]
        features.append(both_strand_frequencies(middles, k))
    return np.concatenate(features, axis=1)


def both_strand_frequencies(sequences: Sequence[str], k: int) -> Floats32:
    """Frequency of each k-mer or its reverse complement, `canonical_kmers`; (N, F)."""
    canonical, counts = canonical_kmers(k), kmer_frequencies(sequences, k)
    folded = np.zeros((len(sequences), canonical.max() + 1), np.float32)
    for kmer, column in enumerate(canonical):
        folded[:, column] += counts[:, kmer]
    return folded


class KmerTracks:
    """Regressions with an L2 penalty on standardized features, one per output, fitted simultaneously.

    By default, outputs are the log-odds of tracks; `loss` sets another kind of labels. The penalty of each
    output (of all classes together) is the one of `TRACK_PENALTIES` with the lowest loss on validation
    windows (the strongest, if a track has no positives there). NaN are missing labels.
    """

    def __init__(self, loss: LabelLoss = LabelLoss()) -> None:  # noqa: B008 - immutable
        self.loss = loss
        self.penalties: Floats = np.empty(0)
        self.mean = self.scale = self.weight = self.bias = torch.empty(0)

    # A fit within inference, after a training, also needs gradients.
    @torch.inference_mode(False)
    @torch.enable_grad()
    def fit(
        self, x: Floats32, y: ArrayLike, x_valid: Floats32, y_valid: ArrayLike
    ) -> Self:
        """Fit to features (N, F) and labels (N, T); the penalty is chosen on the second pair."""
        labels = torch.from_numpy(np.asarray(y, np.float32))
        valid = torch.from_numpy(np.asarray(y_valid, np.float32))
        features = torch.from_numpy(x)
        self.mean, self.scale = features.mean(0), features.std(0).clamp_min(1e-8)
        features = (features - self.mean) / self.scale
        valid_features = (torch.from_numpy(x_valid) - self.mean) / self.scale

        tracks = labels.shape[1]
        weight, bias = torch.zeros(features.shape[1], tracks), torch.zeros(tracks)
        if self.loss.kind != "regression":
            bias = torch.logit(labels.nanmean(0).clamp(1e-6, 1 - 1e-6))

        self.weight, self.bias = weight.clone(), bias.clone()
        self.penalties = np.full(tracks, TRACK_PENALTIES[0])
        best = torch.full((tracks,), torch.inf)
        parameters = [weight.requires_grad_(), bias.requires_grad_()]
        for penalty in TRACK_PENALTIES:  # each fit starts from the previous one
            optimizer = torch.optim.LBFGS(
                parameters,
                max_iter=ITERATIONS,
                history_size=8,
                line_search_fn="strong_wolfe",
            )

            def loss() -> Tensor:
                optimizer.zero_grad()  # noqa: B023
                total = self._losses(features @ weight + bias, labels).sum()
                total = total + penalty / 2 * weight.square().sum()  # noqa: B023
                total.backward()  # type: ignore[no-untyped-call]
                return total

            optimizer.step(loss)  # type: ignore[no-untyped-call]
            with torch.no_grad():
                losses = self._losses(valid_features @ weight + bias, valid)

            losses = losses.expand(tracks)
            if self.loss.kind == "multilabel":
                losses = torch.where(valid.nansum(0) > 0, losses, torch.inf)

            better = losses < best
            if penalty == TRACK_PENALTIES[0]:
                better |= torch.isinf(losses)

            best = torch.where(better, losses, best)
            self.weight[:, better] = weight.detach()[:, better]
            self.bias[better] = bias.detach()[better]
            self.penalties[better.numpy()] = penalty

        return self

    def _losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Mean losses (T,) of the known labels of each output; of several classes, one (1,)."""
        losses = self.loss.terms(logits, labels)
        if losses.shape[1] < labels.shape[1]:
            return losses.mean(0)
        return losses.sum(0) / labels.isfinite().sum(0).clamp_min(1)

    def logits(self, x: Floats32) -> Floats32:
        """Return log-odds (N, T)."""
        standardized = (torch.from_numpy(x) - self.mean) / self.scale
        return (standardized @ self.weight + self.bias).numpy()

    def coefficients(self) -> tuple[Floats32, Floats32]:
        """Return the log-odds (F, T) per unit of each feature, and those of a window without any (T,)."""
        weight = self.weight / self.scale[:, None]
        return weight.numpy(), (self.bias - self.mean @ weight).numpy()
