"""Linear probes: what a logistic regression reads from vectors that were made without it."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.console import log

# Inverse strengths of the L2 penalty that a probe chooses from, from the strongest on.
PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)

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
    for penalty in PENALTIES:
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
