"""Promoter baselines: logistic regressions on k-mers, bases, open reading frames and composition.

They read a sequence in the given direction: a window on the minus strand is the reverse complement of the
reference.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bigbird_dna.baselines.kmers import (
    base_codes,
    fit_regression,
    kmer_frequencies,
    other_strand,
)
from bigbird_dna.errors import DataError
from bigbird_dna.genome.sequence import UNKNOWN

# Axes: N windows, L bases of a window, F features.

_STOPS = ((3, 0, 0), (3, 0, 2), (3, 2, 0))  # TAA, TAG, TGA


def position_features(sequences: Sequence[str]) -> Any:
    """One-hot bases at each position: a float32 CSR matrix (N, 4 L).

    Column `4 p + c` is base c at position p with A, C, G, T = 0, 1, 2, 3; an N has only zeros. `DataError`
    for sequences of different lengths.
    """
    from scipy.sparse import csr_matrix

    lengths = {len(sequence) for sequence in sequences}
    if len(lengths) > 1:
        raise DataError(
            f"windows of {min(lengths):,} and of {max(lengths):,} bp: the baseline 'position' needs windows "
            "of equal length"
        )
    codes = base_codes(sequences)
    known = codes != UNKNOWN
    columns = UNKNOWN * np.arange(codes.shape[1], dtype=np.int32) + codes
    ends = np.concatenate([[0], np.cumsum(known.sum(axis=1, dtype=np.int64))])
    ones = np.ones(ends[-1], np.float32)
    return csr_matrix(
        (ones, columns[known], ends), shape=(len(codes), UNKNOWN * codes.shape[1])
    )


def longest_open_frames(sequences: Sequence[str]) -> NDArray[np.float32]:
    """Length of the longest open reading frame of each sequence, in bp, on either strand; (N,).

    An open reading frame is a run of codons without a stop codon in one of the six frames. It needs no start
    codon, as a window can begin within a gene. A codon with an N ends it.
    """
    codes = _padded_codes(sequences)
    longest = np.zeros(len(codes), np.int64)
    for strand in (codes, other_strand(codes)):
        words = [strand[:, place : strand.shape[1] - 2 + place] for place in range(3)]
        ends = np.any([word == UNKNOWN for word in words], axis=0)
        for stop in _STOPS:
            ends |= np.all(
                [word == base for word, base in zip(words, stop, strict=True)], axis=0
            )
        for frame in range(3):
            longest = np.maximum(longest, _longest_run(~ends[:, frame::3]))
    return (3 * longest).astype(np.float32)


def composition_features(sequences: Sequence[str]) -> NDArray[np.float32]:
    """Fraction of G and C, observed over expected CpG, and bp of the longest run of A and T; (N, 3).

    The expected number of CpG is C × G / known bases (Gardiner-Garden & Frommer 1987). Without a known base,
    or without C or G, the first two are 0.
    """
    codes = _padded_codes(sequences)
    known, c, g = ((codes != UNKNOWN).sum(1), (codes == 1).sum(1), (codes == 2).sum(1))
    pairs = ((codes[:, :-1] == 1) & (codes[:, 1:] == 2)).sum(1)
    columns = (
        (c + g) / known.clip(1),
        pairs * known / (c * g).clip(1),
        _longest_run(np.isin(codes, (0, 3))),
    )
    return np.stack(columns, axis=1).astype(np.float32)


def _padded_codes(sequences: Sequence[str]) -> NDArray[np.uint8]:
    """Codes (N, L) of sequences, of which the shorter ones end with N; L is at least a codon's."""
    longest = max(3, *map(len, sequences), 0)
    return base_codes([sequence.ljust(longest, "N") for sequence in sequences]).reshape(
        -1, longest
    )


def _longest_run(values: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Length of the longest run of true values in each row, (N,)."""
    places = np.arange(1, values.shape[1] + 1)
    ended = np.maximum.accumulate(np.where(values, 0, places), axis=1)
    return np.asarray((places - ended).max(axis=1, initial=0), np.int64)


class LogisticBaseline(ABC):
    """Logistic regression with an L2 penalty on `features` of each sequence.

    The penalty is the one of `penalties` with the lowest log loss on a fifth of the training rows, drawn with
    `seed`; the model is then fitted to all training rows. The same input and seed give the same result. Both
    classes have the same total weight, regardless of their numbers of rows, so that 0.5 is the threshold.
    """

    name: str
    """Name of the features in messages."""
    penalties: ClassVar[tuple[float, ...]]
    """Inverse strengths of the L2 penalty to choose from, as scikit-learn's C."""
    standardized: ClassVar[bool]
    """Whether features are scaled to unit variance, and centered unless the matrix is sparse."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.penalty = float("nan")
        self._pipeline: Any = None

    @abstractmethod
    def features(self, sequences: Sequence[str]) -> Any:
        """Features (N, F), a float32 array or a SciPy CSR matrix."""

    def settings(self) -> dict[str, Any]:
        """Parameters of the features, as JSON values."""
        return {}

    def fit(self, sequences: Sequence[str], labels: ArrayLike) -> Self:
        """Fit to `sequences` with `labels` (N,) of 0 and 1, both of which must occur."""
        y = np.asarray(labels).astype(np.int64)
        x = self.features(sequences)
        if x.shape[0] != len(y):
            raise ValueError(
                f"expected one label per sequence, found {len(y)} for {x.shape[0]} sequences"
            )
        if set(np.unique(y)) != {0, 1}:
            raise ValueError(
                f"labels must contain both 0 and 1, not {sorted(set(y.tolist()))}"
            )
        self.penalty = self._choose_penalty(x, y)
        self._pipeline = self._fitted(x, y, self.penalty)
        return self

    def predict(self, sequences: Sequence[str]) -> NDArray[np.float64]:
        """Return the probabilities of label 1, (N,)."""
        x = self._features_for(sequences)
        return np.asarray(
            self._pipeline.predict_proba(x)[:, 1] if x.shape[0] else [], np.float64
        )

    def logits(self, sequences: Sequence[str]) -> NDArray[np.float64]:
        """Return the log-odds of label 1, (N,); `predict` is their logistic function."""
        x = self._features_for(sequences)
        return np.asarray(
            self._pipeline.decision_function(x) if x.shape[0] else [], np.float64
        )

    def _regression(self) -> Any:
        if self._pipeline is None:
            raise ValueError(f"the {self.name} model has not been fitted")
        return self._pipeline[-1]

    def _features_for(self, sequences: Sequence[str]) -> Any:
        """Features (N, F) for a fitted model, else `ValueError`."""
        self._regression()
        return self.features(sequences)

    def _choose_penalty(self, x: Any, y: NDArray[np.int64]) -> float:
        held_out = np.zeros(len(y), dtype=bool)
        generator = np.random.default_rng(self.seed)
        for label in (0, 1):
            rows = np.flatnonzero(y == label)
            held_out[generator.permutation(rows)[: len(rows) // 5]] = True
        if len(np.unique(y[held_out])) < 2:
            return self.penalties[len(self.penalties) // 2]
        fits = [self._fitted(x[~held_out], y[~held_out], c) for c in self.penalties]
        losses = [
            balanced_log_loss(one.decision_function(x[held_out]), y[held_out])
            for one in fits
        ]
        return self.penalties[int(np.argmin(losses))]

    def _fitted(self, x: Any, y: NDArray[np.int64], penalty: float) -> Any:
        from scipy.sparse import issparse
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        scaling = (
            [StandardScaler(with_mean=not issparse(x))] if self.standardized else []
        )
        pipeline = make_pipeline(
            *scaling,
            LogisticRegression(
                C=penalty,
                class_weight="balanced",
                max_iter=1000,
                random_state=self.seed,
            ),
        )
        fit_regression(pipeline, x, y, f"{self.name} regression with C={penalty:g}")
        return pipeline


class KmerLogistic(LogisticBaseline):
    """Logistic regression on standardized k-mer frequencies."""

    penalties: ClassVar = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
    standardized = True

    def __init__(self, k: int, seed: int) -> None:
        super().__init__(seed)
        self.k = k
        self.name = f"{k}-mer"

    def features(self, sequences: Iterable[str]) -> Any:
        return kmer_frequencies(sequences, self.k)

    @property
    def coefficients(self) -> NDArray[np.float64]:
        """Log-odds per frequency of each k-mer, (4^k,)."""
        scaler = self._scaler()
        return np.asarray(self._regression().coef_[0] / scaler.scale_, np.float64)

    @property
    def intercept(self) -> float:
        """Log-odds of a window without k-mers."""
        scaler = (
            self._scaler()
        )  # does not center a sparse matrix, but may know its mean
        offset = float(self.coefficients @ scaler.mean_) if scaler.with_mean else 0.0
        return float(self._regression().intercept_[0]) - offset

    def _scaler(self) -> Any:
        self._regression()
        return self._pipeline[0]

    def settings(self) -> dict[str, Any]:
        return {"k": self.k}


class OpenFrameLogistic(LogisticBaseline):
    """Logistic regression on the length of the longest open reading frame: is a window coding sequence?"""

    name = "orf"
    penalties: ClassVar = (1.0,)
    standardized = True

    def features(self, sequences: Sequence[str]) -> Any:
        return longest_open_frames(sequences)[:, None]


class CompositionLogistic(LogisticBaseline):
    """Logistic regression on GC content, CpG, and the longest run of A and T."""

    name = "composition"
    penalties: ClassVar = KmerLogistic.penalties
    standardized = True

    def features(self, sequences: Sequence[str]) -> Any:
        return composition_features(sequences)


class PositionLogistic(LogisticBaseline):
    """Logistic regression on the base at each position of windows of equal length.

    It is a position weight matrix as long as the window. Windows must be aligned, such as those around a
    transcription start site. It does not model dependencies between bases.
    """

    name = "position"
    penalties: ClassVar = (1e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)
    # Scaling the one-hot columns did not improve validation AUROC on yeast promoters.
    standardized = False

    def features(self, sequences: Sequence[str]) -> Any:
        return position_features(sequences)

    def _features_for(self, sequences: Sequence[str]) -> Any:
        """`DataError` for windows with another length than in training."""
        x = super()._features_for(sequences)
        if x.shape[0] and x.shape[1] != self.coefficients.size:
            raise DataError(
                f"windows of {x.shape[1] // UNKNOWN:,} bp: the baseline 'position' was trained on windows of "
                f"{len(self.coefficients):,} bp"
            )
        return x

    @property
    def coefficients(self) -> NDArray[np.float64]:
        """Log-odds added by each base at each position, (L, 4) with columns A, C, G, T."""
        return np.asarray(self._regression().coef_, np.float64).reshape(-1, UNKNOWN)

    @property
    def intercept(self) -> float:
        """Log-odds of a window of only N."""
        return float(self._regression().intercept_[0])


def promoter_regression(name: str, k: int, seed: int) -> LogisticBaseline:
    """Return the regression `position`, `orf` or `composition`; by any other name that on k-mers."""
    kinds = (PositionLogistic, OpenFrameLogistic, CompositionLogistic)
    return next(
        (kind(seed) for kind in kinds if kind.name == name), KmerLogistic(k, seed)
    )


def balanced_log_loss(logits: ArrayLike, labels: NDArray[np.integer[Any]]) -> float:
    """Mean log loss of log-odds (N,) of label 1, both classes weighted equally; nats."""
    losses = np.logaddexp(
        0, np.where(labels == 1, -1, 1) * np.asarray(logits, np.float64)
    )
    return float(np.mean([losses[labels == label].mean() for label in (0, 1)]))
