"""K-mer frequencies, logistic regressions on them for tracks, and linear probes of vectors.

Tracks have no strand: they count a k-mer and its reverse complement as one feature.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from bigbird_dna.console import log
from bigbird_dna.genome import sequence
from bigbird_dna.genome.sequence import (
    UNKNOWN,
    canonical_kmers,
    known_before,
    words_ending,
)
from bigbird_dna.training.losses import LabelLoss

# Axes: N windows, L bases of a window, F features, T tracks.

# Above this k, most k-mers are absent from a window of a few kb, and a sparse matrix is smaller.
LARGEST_DENSE_K = 6
# Strengths of the L2 penalty (on standardized features, loss in nats per label), strongest first.
TRACK_PENALTIES = (1e-2, 1e-3, 1e-4, 1e-5)
ITERATIONS = 60  # L-BFGS iterations per penalty
# Inverse strengths of the L2 penalty to choose from for a probe, strongest first.
PROBE_PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)

_OTHER_STRAND = np.array([3, 2, 1, 0, UNKNOWN], np.uint8)

Matrix = NDArray[np.floating[Any]]


def base_codes(sequences: Sequence[str]) -> NDArray[np.uint8]:
    """Codes (N, L) of sequences with the same length; letters other than A, C, G and T are N."""
    if not sequences:
        return np.zeros((0, 0), np.uint8)
    return sequence.base_codes("".join(sequences)).reshape(len(sequences), -1)


def other_strand(codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the reverse complements of windows, (N, L)."""
    return np.ascontiguousarray(_OTHER_STRAND[codes[:, ::-1]])


def kmer_frequencies(sequences: Iterable[str], k: int) -> Any:
    """Frequency of each k-mer among a sequence's k-mers without N, on the given strand.

    Float32 (N, 4^k), a SciPy CSR matrix above k = 6; column `4^(k−1) c_0 + … + c_{k−1}` with A, C, G, T = 0,
    1, 2, 3. A sequence without any such k-mer has a row of zeros.
    """
    if not 1 <= k <= 12:
        raise ValueError(f"k must be from 1 to 12, not {k}")
    coded = map(sequence.base_codes, sequences)
    counted = (
        np.bincount(words_ending(c, k)[known_before(c) >= k], minlength=4**k)
        for c in coded
    )
    shares = ((counts / max(counts.sum(), 1)).astype(np.float32) for counts in counted)
    empty = np.zeros((0, 4**k), dtype=np.float32)
    if k <= LARGEST_DENSE_K:
        return np.vstack([empty, *shares])
    from scipy.sparse import csr_matrix, vstack

    return vstack([csr_matrix(empty), *map(csr_matrix, shares)], format="csr")


def window_features(
    windows: Sequence[str], sizes: Sequence[int], k: int
) -> NDArray[np.float32]:
    """Frequencies of k-mers, both strands combined, in the central `sizes` bp of each window; (N, F)."""
    cuts = (
        [window[(len(window) - size) // 2 :][:size] for window in windows]
        for size in sizes
    )
    return np.concatenate([both_strand_frequencies(cut, k) for cut in cuts], axis=1)


def both_strand_frequencies(sequences: Sequence[str], k: int) -> NDArray[np.float32]:
    """Frequency of each k-mer or its reverse complement, `canonical_kmers`; (N, F)."""
    canonical, counts = canonical_kmers(k), kmer_frequencies(sequences, k)
    folded = np.zeros((len(sequences), canonical.max() + 1), np.float32)
    for kmer, column in enumerate(canonical):
        folded[:, column] += counts[:, kmer]
    return folded


def probabilities(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the probabilities of log-odds."""
    return torch.sigmoid(torch.from_numpy(logits)).numpy()


class KmerTracks:
    """Regressions with an L2 penalty on standardized features, one per output, fitted simultaneously.

    By default, outputs are the log-odds of tracks; `loss` sets another kind of labels. The penalty of each
    output (of all classes together) is the one of `TRACK_PENALTIES` with the lowest loss on validation
    windows (the strongest, if a track has no positives there). NaN are missing labels.
    """

    def __init__(self, loss: LabelLoss = LabelLoss()) -> None:  # noqa: B008 - immutable
        self.loss = loss
        self.penalties: NDArray[np.float64] = np.empty(0)
        self.mean = self.scale = self.weight = self.bias = torch.empty(0)

    @torch.inference_mode(
        False
    )  # a fit within inference, after a training, also needs gradients
    @torch.enable_grad()
    def fit(
        self,
        x: NDArray[np.float32],
        y: ArrayLike,
        x_valid: NDArray[np.float32],
        y_valid: ArrayLike,
    ) -> Self:
        """Fit to features (N, F) and labels (N, T); the penalty is chosen on the second pair."""
        features, held_out = torch.from_numpy(x), torch.from_numpy(x_valid)
        labels, valid = (
            torch.from_numpy(np.asarray(one, np.float32)) for one in (y, y_valid)
        )
        kind = self.loss.kind
        self.mean, self.scale = features.mean(0), features.std(0).clamp_min(1e-8)
        features = (features - self.mean) / self.scale
        held_out = (held_out - self.mean) / self.scale
        tracks = labels.shape[1]
        weight = torch.zeros(features.shape[1], tracks)
        bias = torch.zeros(tracks)
        if kind != "regression":
            bias = torch.logit(labels.nanmean(0).clamp(1e-6, 1 - 1e-6))
        best = torch.full((tracks,), torch.inf)
        self.weight, self.bias = weight.clone(), bias.clone()
        self.penalties = np.full(tracks, TRACK_PENALTIES[0])
        for penalty in (
            TRACK_PENALTIES
        ):  # strongest first; each fit is initialized with the previous one
            weight, bias = _fitted_tracks(
                features, labels, weight, bias, penalty, self.loss
            )
            loss = (
                (self.loss.terms(held_out @ weight + bias, valid) * _scales(valid))
                .mean(0)
                .expand(tracks)
            )
            if kind == "multilabel":
                loss = torch.where(valid.nansum(0) > 0, loss, torch.inf)
            better = loss < best
            if penalty == TRACK_PENALTIES[0]:
                better |= torch.isinf(loss)
            best = torch.where(better, loss, best)
            self.weight[:, better], self.bias[better] = weight[:, better], bias[better]
            self.penalties[better.numpy()] = penalty
        return self

    def logits(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return log-odds (N, T)."""
        return (
            (torch.from_numpy(x) - self.mean) / self.scale @ self.weight + self.bias
        ).numpy()

    def predict(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return probabilities (N, T)."""
        return probabilities(self.logits(x))

    def coefficients(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the log-odds (F, T) per unit of each feature, and those of a window without any (T,)."""
        weight = self.weight / self.scale[:, None]
        return weight.numpy(), (self.bias - self.mean @ weight).numpy()


def _fitted_tracks(
    x: Tensor,
    y: Tensor,
    weight: Tensor,
    bias: Tensor,
    penalty: float,
    losses: LabelLoss,
) -> tuple[Tensor, Tensor]:
    weight = weight.clone().requires_grad_()
    bias = bias.clone().requires_grad_()
    optimizer = torch.optim.LBFGS(
        [weight, bias],
        max_iter=ITERATIONS,
        history_size=8,
        line_search_fn="strong_wolfe",
    )

    scales = _scales(y)

    def loss() -> Tensor:
        optimizer.zero_grad()
        fit = (losses.terms(x @ weight + bias, y) * scales).sum() / len(x)
        total = fit + penalty / 2 * weight.square().sum()
        total.backward()  # type: ignore[no-untyped-call]
        return total

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    return weight.detach(), bias.detach()


def _scales(labels: Tensor) -> Tensor:
    """Factors (1, T) that make a mean over N rows, with 0 for missing labels, one over the known labels; all
    1 of several classes, whose losses are (N, 1)."""
    known = labels.isfinite().sum(0, keepdim=True)
    if bool((known == len(labels)).all()):
        return torch.ones(1, 1)
    return len(labels) / known.clamp_min(1)


class Probe(NamedTuple):
    """A fitted linear probe: probability of label 1 = logistic(vector @ weights + bias)."""

    weights: NDArray[np.float64]  # (D,)
    bias: float
    penalty: float  # the chosen inverse strength

    def predict(self, vectors: Matrix) -> NDArray[np.float64]:
        """Return the probabilities of label 1 (N,) for vectors (N, D)."""
        from scipy.special import expit

        return np.asarray(expit(vectors @ self.weights + self.bias), np.float64)


def fit_probe(
    vectors: Matrix,
    labels: NDArray[Any],
    held_out: Matrix,
    held_out_labels: NDArray[Any],
) -> Probe:
    """Fit a logistic regression on standardized vectors (N, D), for labels of 0 and 1 (N,).

    Both classes have equal weight. The penalty is the one of `PROBE_PENALTIES` with the lowest log loss on
    the held-out rows, which are not used for fitting. The same input gives the same result.
    """
    from sklearn.linear_model import LogisticRegression

    middle, spread = (
        vectors.mean(axis=0, dtype=np.float64),
        vectors.std(axis=0, dtype=np.float64),
    )
    spread[spread <= 1e-7 * np.abs(middle)] = 1.0  # only rounding errors
    x = (vectors - middle) / spread
    probes = []
    # Strongest penalty first, each fit initialized with the previous one: weak penalties would take longest.
    model = LogisticRegression(class_weight="balanced", max_iter=1000, warm_start=True)
    for penalty in PROBE_PENALTIES:
        fit_regression(
            model.set_params(C=penalty), x, labels, f"linear probe with C={penalty:g}"
        )
        weights = model.coef_[0] / spread
        probes.append(
            Probe(weights, float(model.intercept_[0] - middle @ weights), penalty)
        )

    def loss(probe: Probe) -> float:
        """Mean log loss, both classes weighted equally."""
        found = probe.predict(held_out)
        losses = -np.log(
            np.maximum(np.where(held_out_labels == 1, found, 1 - found), 1e-12)
        )
        return float(
            np.mean([losses[held_out_labels == label].mean() for label in (0, 1)])
        )

    return min(probes, key=loss)


def fit_regression(model: Any, x: Any, labels: NDArray[Any], what: str) -> None:
    """Fit a scikit-learn model; early stops are logged."""
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        model.fit(x, labels)
    if any(issubclass(warning.category, ConvergenceWarning) for warning in caught):
        log(f"{what} stopped before convergence")
