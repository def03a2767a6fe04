"""gkm-SVM (Ghandi et al., PLoS Computational Biology 10:e1003711, 2014): an SVM on exact gapped k-mers.

Gapped k-mers are words of l bases with k informative positions. The kernel of two windows is the number of
matching pairs of their gapped k-mers. Two words of l bases that differ at m positions have C(l − m, k) gapped
k-mers in common. The kernel is thus c′ᵀ B c for the counts c of all 4^l words, where the matrix B depends on
m only. B is a sum of products over the l positions: a character that varies at j positions, a product of
columns of a 4 × 4 Hadamard matrix, is an eigenvector with eigenvalue 4^(l − k) C(l − j, k − j), or 0 if j >
k. The products of the features Λ^½ H c therefore equal the kernel, without listing gapped k-mers or pairs of
windows (the paper counts pairs).

The kernel is normalized to 1 for a window with itself; words have 11 bases with 7 informative positions. The
support vector machine, one per label, is linear in these features, with squared hinge loss and unpenalized
offset. The strength of fitting is chosen on held-out windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse import csr_matrix
from scipy.special import comb, expit

from bigbird_dna.baselines.windows import LabeledWindows, all_labels
from bigbird_dna.console import progress
from bigbird_dna.errors import DataError
from bigbird_dna.genome.sequence import (
    base_codes,
    known_before,
    turned_word,
    words_ending,
)
from bigbird_dna.metrics.auroc import auroc

Floats = NDArray[np.float64]

# Axes: N windows, L bases, W = 4^L words, F features: characters that vary at most at k positions.

STRENGTHS = (0.1, 1.0, 10.0)
"""Weights of the loss per window, relative to half the squared weights."""
MOST = 5000  # most training windows of a class per label
_HADAMARD = np.array([[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]]) / 2


class GkmSvm:
    """gkm-SVM on words of `length` bases with `known` informative positions, of one or both strands.

    A label is fitted to at most `MOST` of its windows and as many other windows, drawn by seed. Labels whose
    training windows are of one class have the score 0. With `both_strands`, the words of a window and of its
    reverse complement count.
    """

    def __init__(
        self,
        length: int = 11,
        known: int = 7,
        *,
        both_strands: bool = False,
        seed: int = 1,
    ) -> None:
        self.length, self.known = length, known
        self.both_strands, self.seed = both_strands, seed

        # Number of positions at which each character varies.
        varying = np.zeros(1, np.int64)
        for _ in range(length):
            varying = (varying + np.array([[0], [1], [1], [1]])).ravel()
        self._characters = np.flatnonzero(varying <= known)  # (F,)
        j = varying[self._characters]
        eigenvalues = 4.0 ** (length - known) * comb(length - j, known - j)
        self._roots = np.sqrt(eigenvalues)

    def normalized_counts(self, sequences: Sequence[str]) -> Any:
        """Return the counts of words without N in windows, (N, W), as a SciPy CSR matrix of float64.

        They are divided by the norm of the window's gapped k-mers.
        """
        common = comb(np.arange(self.length + 1), self.known)  # by matching positions
        counts, columns, ends = [], [], [0]

        for text in sequences:
            codes = base_codes(text)
            words = words_ending(codes, self.length)
            words = words[known_before(codes) >= self.length]
            if self.both_strands:
                words = np.append(words, turned_word(words, self.length))

            words, times = np.unique(words, return_counts=True)
            bases = words[:, None] >> 2 * np.arange(self.length) & 3
            one_hot = np.eye(4)[bases].reshape(len(words), 4 * self.length)
            matches = (one_hot @ one_hot.T).astype(np.intp)
            norm = np.sqrt(times @ common[matches] @ times)
            counts.append(times / norm)
            columns.append(words)
            ends.append(ends[-1] + len(words))

        return csr_matrix(
            (np.concatenate(counts), np.concatenate(columns), ends),
            shape=(len(sequences), 4**self.length),
        )

    def words(self, weights: Floats) -> Floats:
        """Convert weights of features (F,) to weights of words (W,): H Λ^½ w."""
        spread = np.zeros(4**self.length)
        spread[self._characters] = self._roots * weights
        return self._transform(spread)

    def features(self, counts: Floats) -> Floats:
        """Convert counts of words (W,) to features (F,): Λ^½ H c."""
        return np.asarray(self._roots * self._transform(counts)[self._characters])

    def _transform(self, values: Floats) -> Floats:
        """Apply H, a 4 × 4 Hadamard matrix / 2, at each position of words; H is its own inverse."""
        # Two positions per product, which moves them behind all others: the last one restores the order.
        for first in range(0, self.length, 2):
            last = first + 1 == self.length
            factor = _HADAMARD if last else np.kron(_HADAMARD, _HADAMARD)
            values = (values.reshape(len(factor), -1).T @ factor).ravel()
        return values

    def fit(self, learned: LabeledWindows, held_out: LabeledWindows) -> Self:
        """Fit each label, with the strength of the best AUROC on the held-out windows.

        Strengths are tried in increasing order, each from the solution of the previous one. Where the
        held-out windows of a label are of one class, its strength is 1. `DataError` for windows shorter than
        a word, or training windows of one class for all labels.
        """
        truth, held_labels = all_labels(learned), all_labels(held_out)
        if learned.length < self.length:
            raise DataError(
                f"gkm-svm: windows of {learned.length} bp are shorter than words of {self.length} bp"
            )

        rows = np.arange(held_out.shape[0])
        tests = self.normalized_counts(held_out.sequences(rows))
        labels = truth.shape[1]

        # Weights of words, and offset; the score is the weighted sum of a window's words + offset.
        self.weights = np.zeros((labels, 4**self.length), np.float32)
        self.offsets = np.zeros(labels)

        for label in progress(range(labels), "gkm-SVM", labels, "labels"):
            y, y_test = truth[:, label], held_labels[:, label]
            if y.min() == y.max():
                continue

            rng = np.random.default_rng((self.seed, 9, label))
            positive = rng.permutation(np.flatnonzero(y == 1))[:MOST]
            negative = rng.permutation(np.flatnonzero(y == 0))[: len(positive)]
            rows = np.sort(np.append(positive, negative))
            counts = self.normalized_counts(learned.sequences(rows))
            solution, best = np.zeros(len(self._roots) + 1), -np.inf

            for strength in STRENGTHS if 0 < y_test.sum() < len(y_test) else (1.0,):
                solution = self._fit_svm(counts, y[rows] == 1, strength, solution)
                weights = self.words(solution[:-1]).astype(np.float32)
                scores = tests @ weights + solution[-1]
                area = np.nan_to_num(auroc(y_test, scores).value)
                if area > best:
                    best, self.weights[label] = area, weights
                    self.offsets[label] = solution[-1]

        if not self.weights.any():
            raise DataError("gkm-svm: all training windows are of one class")

        return self

    def _fit_svm(
        self, counts: Any, positive: NDArray[np.bool_], strength: float, start: Floats
    ) -> Floats:
        """Minimize ½ |w|² + strength · Σ max(0, 1 − y f(x))²; returns the weights of features and the offset."""
        signs = np.where(positive, 1.0, -1.0)
        transposed = counts.T.tocsr()

        def loss(values: Floats) -> tuple[float, Floats]:
            weights, offset = values[:-1], values[-1]
            scores = counts @ self.words(weights) + offset
            margin = np.maximum(0, 1 - signs * scores)
            slope = -2 * strength * signs * margin  # of the loss in the score
            gradient = weights + self.features(transposed @ slope)
            value = 0.5 * float(weights @ weights) + strength * float(margin @ margin)
            return value, np.append(gradient, slope.sum())

        options = {"maxiter": 200, "ftol": 1e-9, "gtol": 1e-6}
        fit = minimize(loss, start, jac=True, method="L-BFGS-B", options=options)

        return np.asarray(fit.x)

    def predict(self, sequences: Sequence[str]) -> Floats:
        """Return the logistic function of the distances from the margins' center, (n, T): their order, but no
        calibrated probability."""
        scores = self.normalized_counts(sequences) @ self.weights.T + self.offsets
        return np.asarray(expit(scores))
