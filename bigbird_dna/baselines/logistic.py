"""Logistic regression on features of a sequence: what the promoter baselines have in common.

A baseline reads a sequence in the direction in which it is given: a window on the minus strand is the reverse
complement of the reference.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bigbird_dna.console import log

# Axes: N sequences, F features.

Logits = NDArray[np.float64]


class LogisticBaseline(ABC):
    """Logistic regression with an L2 penalty on `features` of each sequence.

    The penalty is the one of `penalties` with the lowest log loss on a fifth of the training rows, drawn
    with `seed`; the model is then fitted to all training rows. The same input and seed give the same result.
    Both classes have the same total weight, however many rows they have, so that 0.5 is the threshold.
    """

    name: str
    """What messages call the features."""
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
        """What defines the features, fit for JSON."""
        return {}

    def fit(self, sequences: Sequence[str], labels: ArrayLike) -> Self:
        """Learn from `sequences` with `labels` (N,) of 0 and 1, both of which must occur."""
        y = np.asarray(labels).astype(np.int64)
        x = self.features(sequences)
        if x.shape[0] != len(y):
            raise ValueError(f"{x.shape[0]} sequences but {len(y)} labels")
        if set(np.unique(y)) != {0, 1}:
            raise ValueError(f"labels must hold both 0 and 1, not {sorted(set(y.tolist()))}")
        self.penalty = self._choose_penalty(x, y)
        self._pipeline = self._fitted(x, y, self.penalty)
        return self

    def predict(self, sequences: Sequence[str]) -> NDArray[np.float64]:
        """Probability of label 1, shape (N,)."""
        x = self.fitted_features(sequences)
        if not x.shape[0]:
            return np.zeros(0)
        return np.asarray(self._pipeline.predict_proba(x)[:, 1], dtype=np.float64)

    def logits(self, sequences: Sequence[str]) -> Logits:
        """Log-odds of label 1, shape (N,): `predict` is their logistic function."""
        x = self.fitted_features(sequences)
        if not x.shape[0]:
            return np.zeros(0)
        return np.asarray(self._pipeline.decision_function(x), dtype=np.float64)

    def fitted_features(self, sequences: Sequence[str]) -> Any:
        """Features (N, F) for a model that has been fitted, else `ValueError`."""
        if self._pipeline is None:
            raise ValueError(f"the {self.name} model has not been fitted")
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
        losses = [balanced_log_loss(one.decision_function(x[held_out]), y[held_out]) for one in fits]
        return self.penalties[int(np.argmin(losses))]

    def _fitted(self, x: Any, y: NDArray[np.int64], penalty: float) -> Any:
        from scipy.sparse import issparse
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        scaling = [StandardScaler(with_mean=not issparse(x))] if self.standardized else []
        pipeline = make_pipeline(
            *scaling,
            LogisticRegression(C=penalty, class_weight="balanced", max_iter=1000, random_state=self.seed),
        )
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ConvergenceWarning)
            pipeline.fit(x, y)
        if any(issubclass(warning.category, ConvergenceWarning) for warning in caught):
            log(f"{self.name} regression with C={penalty:g} stopped before it had converged")
        return pipeline


def balanced_log_loss(logits: ArrayLike, labels: NDArray[np.integer[Any]]) -> float:
    """Mean log loss of log-odds (N,) of label 1, both classes with the same weight; nats."""
    losses = np.logaddexp(0, np.where(labels == 1, -1, 1) * np.asarray(logits, np.float64))
    return float(np.mean([losses[labels == label].mean() for label in (0, 1)]))
