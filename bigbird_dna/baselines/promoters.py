"""Promoter baselines: logistic regressions on k-mers, on bases by position and on composition.

They read a sequence in the given direction: a window on the minus strand is the reverse complement of the
reference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_matrix, issparse
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, PredefinedSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.class_weight import compute_sample_weight

from bigbird_dna.baselines.kmers import (
    base_codes,
    both_strand_frequencies,
    kmer_frequencies,
)
from bigbird_dna.errors import DataError
from bigbird_dna.genome.sequence import UNKNOWN

Floats32 = NDArray[np.float32]
Floats = NDArray[np.float64]

# Axes: N windows, L bases of a window, F features.

PENALTIES = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)


def position_features(sequences: Sequence[str]) -> Any:
    """One-hot bases at each position: a float32 CSR matrix (N, 4 L).

    Column `4 p + c` is base c at position p with A, C, G, T = 0, 1, 2, 3; an N has only zeros. `DataError`
    for sequences of different lengths.
    """
    lengths = {len(sequence) for sequence in sequences}
    if len(lengths) > 1:
        raise DataError(
            f"windows of {min(lengths):,} and of {max(lengths):,} bp: the baseline 'position' needs windows "
            "of equal length"
        )

    codes = base_codes(sequences)
    one_hot = codes[:, :, None] == np.arange(UNKNOWN, dtype=np.uint8)
    shape = len(codes), UNKNOWN * codes.shape[1]
    return csr_matrix(one_hot.reshape(shape), dtype=np.float32)


def composition_features(sequences: Sequence[str]) -> Floats32:
    """Fraction of G and C, observed over expected CpG, and the logarithm of the length; (N, 3).

    The expected number of CpG is C × G / known bases (Gardiner-Garden & Frommer 1987). Without a known base,
    or without C or G, the first two are 0.
    """
    rows = np.zeros((len(sequences), 3), np.float32)
    for row, text in zip(rows, sequences, strict=True):
        c, g = text.count("C"), text.count("G")
        known = len(text) - text.count("N")
        row[0] = (c + g) / max(known, 1)
        row[1] = text.count("CG") * known / max(c * g, 1)
        row[2] = np.log(max(len(text), 1))

    return rows


class LogisticBaseline:
    """Logistic regression with an L2 penalty on `features` of each sequence, (N, F), dense or SciPy CSR.

    The penalty is the one of `penalties` (scikit-learn's C) with the lowest log loss on a fifth of the
    training rows, drawn with `seed`; the model is then fitted to all training rows. The same input and seed
    give the same result. Both classes have the same total weight, regardless of their numbers of rows, so
    that 0.5 is the threshold. With `standardized`, features are scaled to unit variance, and centered unless
    the matrix is sparse.
    """

    def __init__(
        self,
        features: Callable[[Sequence[str]], Any],
        seed: int,
        *,
        penalties: Sequence[float] = PENALTIES,
        standardized: bool = True,
    ) -> None:
        self.features, self.seed = features, seed
        self.penalties, self.standardized = penalties, standardized
        self.pipeline: Any = None

    def fit(self, sequences: Sequence[str], labels: ArrayLike) -> Self:
        """Fit to `sequences` with `labels` (N,) of 0 and 1, both of which must occur more than once."""
        y = np.asarray(labels).astype(np.int64)
        x = self.features(sequences)
        scaler = StandardScaler(with_mean=not issparse(x), with_std=self.standardized)
        regression = LogisticRegression(
            class_weight="balanced", max_iter=1000, random_state=self.seed
        )
        held_out = np.full(len(y), -1)
        generator = np.random.default_rng(self.seed)
        for label in (0, 1):
            rows = generator.permutation(np.flatnonzero(y == label))
            held_out[rows[: max(len(rows) // 5, 1)]] = 0

        search = GridSearchCV(
            make_pipeline(scaler, regression),
            {"logisticregression__C": self.penalties},
            scoring=_balanced_log_likelihood,
            cv=PredefinedSplit(held_out),
        )
        self.pipeline = search.fit(x, y).best_estimator_
        return self

    def predict(self, sequences: Sequence[str]) -> Floats:
        """Return the probabilities of label 1, (N,)."""
        if not len(sequences):
            return np.zeros(0)
        probabilities = self.pipeline.predict_proba(self.features(sequences))
        return np.asarray(probabilities[:, 1], np.float64)

    def logits(self, sequences: Sequence[str]) -> Floats:
        """Return the log-odds of label 1, (N,); `predict` is their logistic function."""
        if not len(sequences):
            return np.zeros(0)
        logits = self.pipeline.decision_function(self.features(sequences))
        return np.asarray(logits, np.float64)

    def coefficients(self) -> tuple[Floats, float]:
        """Return the log-odds per unit of each feature (F,), and those of a sequence without any."""
        scaler, regression = self.pipeline
        weight = regression.coef_[0].astype(np.float64)
        if scaler.with_std:
            weight = weight / scaler.scale_
        offset = weight @ scaler.mean_ if scaler.with_mean else 0.0
        return weight, float(regression.intercept_[0] - offset)


def _balanced_log_likelihood(model: Any, x: Any, y: NDArray[np.int64]) -> float:
    weights = compute_sample_weight("balanced", y)
    return -float(log_loss(y, model.predict_proba(x), sample_weight=weights))


def kmer_regression(
    k: int, seed: int, *, both_strands: bool = False
) -> LogisticBaseline:
    """Return a regression on standardized k-mer frequencies, on the given strand or on both."""
    count = both_strand_frequencies if both_strands else kmer_frequencies
    return LogisticBaseline(lambda texts: count(texts, k), seed)


def position_regression(seed: int) -> LogisticBaseline:
    """Return a regression on the base at each position of windows of equal length.

    It is a position weight matrix as long as the window. Windows must be aligned, such as those around a
    transcription start site. It does not model dependencies between bases. Scaling the one-hot columns did
    not improve validation AUROC on yeast promoters.
    """
    penalties = (1e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)
    return LogisticBaseline(
        position_features, seed, penalties=penalties, standardized=False
    )


def promoter_regression(name: str, k: int, seed: int) -> LogisticBaseline:
    """Return the regression `position` or `composition`; by any other name that on k-mers."""
    if name == "position":
        return position_regression(seed)
    if name == "composition":
        return LogisticBaseline(composition_features, seed)
    return kmer_regression(k, seed)
