"""Promoter baselines: logistic regressions on k-mers, bases, open reading frames and composition.

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
    other_strand,
)
from bigbird_dna.errors import DataError
from bigbird_dna.genome.sequence import UNKNOWN

Floats32 = NDArray[np.float32]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Axes: N windows, L bases of a window, F features.

_STOPS = ((3, 0, 0), (3, 0, 2), (3, 2, 0))  # TAA, TAG, TGA
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


def longest_open_frames(sequences: Sequence[str]) -> Floats32:
    """Length of the longest open reading frame of each sequence, in bp, on either strand; (N,).

    An open reading frame is a run of codons without a stop codon in one of the six frames. It needs no start
    codon, as a window can begin within a gene. A codon with an N ends it.
    """
    codes = _padded_codes(sequences)
    longest = np.zeros(len(codes), np.int64)
    for strand in (codes, other_strand(codes)):
        codons = np.stack([strand[:, :-2], strand[:, 1:-1], strand[:, 2:]], axis=2)
        ends = (codons == UNKNOWN).any(axis=2)
        for stop in _STOPS:
            ends |= (codons == stop).all(axis=2)
        for frame in range(3):
            longest = np.maximum(longest, _longest_run(~ends[:, frame::3]))
    return (3 * longest).astype(np.float32)


def composition_features(sequences: Sequence[str]) -> Floats32:
    """Fraction of G and C, observed over expected CpG, and bp of the longest run of A and T; (N, 3).

    The expected number of CpG is C × G / known bases (Gardiner-Garden & Frommer 1987). Without a known base,
    or without C or G, the first two are 0.
    """
    codes = _padded_codes(sequences)
    known, c, g = ((codes != UNKNOWN).sum(1), (codes == 1).sum(1), (codes == 2).sum(1))
    cpg = ((codes[:, :-1] == 1) & (codes[:, 1:] == 2)).sum(1)
    gc_content = (c + g) / known.clip(1)
    ratio = cpg * known / (c * g).clip(1)
    run = _longest_run(np.isin(codes, (0, 3)))
    return np.stack([gc_content, ratio, run], axis=1).astype(np.float32)


def composition_and_length(sequences: Sequence[str]) -> Floats32:
    """Features of `composition_features`, and the logarithm of the length; (N, 4)."""
    lengths = np.array([max(len(sequence), 1) for sequence in sequences])
    features = composition_features(sequences)
    return np.column_stack([features, np.log(lengths)]).astype(np.float32)


def _padded_codes(sequences: Sequence[str]) -> NDArray[np.uint8]:
    """Codes (N, L) of sequences, of which the shorter ones end with N; L is at least a codon's."""
    longest = max(3, *map(len, sequences), 0)
    padded = [sequence.ljust(longest, "N") for sequence in sequences]
    return base_codes(padded).reshape(-1, longest)


def _longest_run(values: NDArray[np.bool_]) -> Ints:
    """Length of the longest run of true values in each row, (N,)."""
    places = np.arange(1, values.shape[1] + 1)
    ended = np.maximum.accumulate(np.where(values, 0, places), axis=1)
    return np.asarray((places - ended).max(axis=1, initial=0), np.int64)


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
        """Fit to `sequences` with `labels` (N,) of 0 and 1, both of which must occur."""
        self.pipeline = None
        y = np.asarray(labels).astype(np.int64)
        x = self.features(sequences)
        regression = LogisticRegression(
            class_weight="balanced", max_iter=1000, random_state=self.seed
        )
        pipeline = make_pipeline(regression)
        if self.standardized:
            scaler = StandardScaler(with_mean=not issparse(x))
            pipeline = make_pipeline(scaler, regression)
        held_out = np.zeros(len(y), dtype=bool)
        generator = np.random.default_rng(self.seed)
        for label in (0, 1):
            rows = np.flatnonzero(y == label)
            held_out[generator.permutation(rows)[: len(rows) // 5]] = True
        penalties = self.penalties
        if len(np.unique(y[held_out])) < 2:
            middle = penalties[len(penalties) // 2]
            pipeline.set_params(logisticregression__C=middle)
            self.pipeline = pipeline.fit(x, y)
            return self
        search = GridSearchCV(
            pipeline,
            {"logisticregression__C": penalties},
            scoring=_balanced_log_likelihood,
            cv=PredefinedSplit(np.where(held_out, 0, -1)),
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


def _balanced_log_likelihood(model: Any, x: Any, y: Ints) -> float:
    weights = compute_sample_weight("balanced", y)
    return -float(log_loss(y, model.predict_proba(x), sample_weight=weights))


class KmerLogistic(LogisticBaseline):
    """Logistic regression on standardized k-mer frequencies, on the given strand or on both."""

    def __init__(self, k: int, seed: int, *, both_strands: bool = False) -> None:
        count = both_strand_frequencies if both_strands else kmer_frequencies
        super().__init__(lambda texts: count(texts, k), seed)
        self.k = k

    @property
    def coefficients(self) -> Floats:
        """Log-odds per frequency of each k-mer, (4^k,)."""
        scaler, regression = self.pipeline
        return np.asarray(regression.coef_[0] / scaler.scale_, np.float64)

    @property
    def intercept(self) -> float:
        """Log-odds of a window without k-mers."""
        scaler, regression = self.pipeline
        # The scaler does not center a sparse matrix, but may know its mean.
        offset = float(self.coefficients @ scaler.mean_) if scaler.with_mean else 0.0
        return float(regression.intercept_[0]) - offset


class PositionLogistic(LogisticBaseline):
    """Logistic regression on the base at each position of windows of equal length.

    It is a position weight matrix as long as the window. Windows must be aligned, such as those around a
    transcription start site. It does not model dependencies between bases. Scaling the one-hot columns did
    not improve validation AUROC on yeast promoters.
    """

    def __init__(self, seed: int) -> None:
        penalties = (1e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)
        super().__init__(self._features, seed, penalties=penalties, standardized=False)

    def _features(self, sequences: Sequence[str]) -> Any:
        """`DataError` for windows with another length than in training."""
        x = position_features(sequences)
        if self.pipeline is not None and x.shape[1] != self.coefficients.size:
            raise DataError(
                f"windows of {x.shape[1] // UNKNOWN:,} bp: the baseline 'position' was trained on windows of "
                f"{len(self.coefficients):,} bp"
            )
        return x

    @property
    def coefficients(self) -> Floats:
        """Log-odds added by each base at each position, (L, 4) with columns A, C, G, T."""
        return np.asarray(self.pipeline[-1].coef_, np.float64).reshape(-1, UNKNOWN)

    @property
    def intercept(self) -> float:
        """Log-odds of a window of only N."""
        return float(self.pipeline[-1].intercept_[0])


def promoter_regression(name: str, k: int, seed: int) -> LogisticBaseline:
    """Return the regression `position`, `orf` or `composition`; by any other name that on k-mers."""
    if name == "position":
        return PositionLogistic(seed)
    if name == "orf":
        return LogisticBaseline(
            lambda texts: longest_open_frames(texts)[:, None],
            seed,
            penalties=(1,),
        )
    if name == "composition":
        return LogisticBaseline(composition_features, seed)
    return KmerLogistic(k, seed)
