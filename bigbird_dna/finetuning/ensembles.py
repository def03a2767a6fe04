"""Ensembles of a trained network with regressions fitted to the same windows: `position`, and k-mers.

Regressions are fitted to the network's training windows; the members' weights, and an intercept, to the
validation windows. All are part of the network's weights: an ensemble is saved and used like a network alone.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt
import torch

from bigbird_dna.baselines.promoters import KmerLogistic, PositionLogistic
from bigbird_dna.baselines.sequences import Labeled
from bigbird_dna.calibration.maps import log_odds
from bigbird_dna.config.section import LabelKind
from bigbird_dna.console import log
from bigbird_dna.data.predictions import NETWORK, POSITION
from bigbird_dna.finetuning.evaluation import without_nan
from bigbird_dna.model.ensemble import EnsembleSum
from bigbird_dna.training.losses import label_metric

# Axes: N windows or bins, T tracks; 1 for promoters.

KMERS, ENSEMBLE = "kmers", "ensemble"  # further names of members: `NETWORK`, `POSITION`

Floats = npt.NDArray[np.floating]
Labels = npt.NDArray[np.floating] | npt.NDArray[np.integer]


@dataclass(frozen=True)
class Members:
    """Weights of the members' log-odds by name, the intercept of their weighted sum, and metrics of each
    member and the ensemble (`label_metric`: AUROC or correlation) for validation rows."""

    weights: Mapping[str, float]
    intercept: float = 0.0
    metrics: Mapping[str, Mapping[str, float | None]] = field(default_factory=dict)

    @classmethod
    def equal(cls, names: Collection[str]) -> Self:
        """Return weights for the mean of the members' log-odds."""
        return cls(dict.fromkeys(names, 1 / len(names)))

    def stored(self) -> dict[str, Any]:
        """Return the members as JSON values."""
        weights = dict(self.weights)
        return {"weights": weights, "intercept": self.intercept, **self.metrics}

    def measured(
        self,
        members: Mapping[str, Floats],
        ensemble: Floats,
        labels: Labels,
        kind: LabelKind,
    ) -> Self:
        """Return these weights with metrics of the members' outputs and of the finished model's (N, T).

        The latter are what the model predicts, not the weighted sum of the former. Also logs them.
        """
        values = {
            name: label_metric(kind, outputs, labels)
            for name, outputs in {**members, ENSEMBLE: ensemble}.items()
        }
        texts = {
            name: "not defined" if math.isnan(value) else f"{value:.4f}"
            for name, value in values.items()
        }
        terms = [
            f"{weight:.3f} × {name} ({texts[name]})"
            for name, weight in self.weights.items()
        ]
        what = "outputs (correlation)" if kind == "regression" else "log-odds (AUROC)"
        log(f"validation, {what}: {' + '.join(terms)} ({texts[ENSEMBLE]} together)")
        key = "valid_pearson" if kind == "regression" else "valid_auroc"
        return replace(self, metrics={key: without_nan(values)})


def fit_members(
    logits: Mapping[str, Floats],
    labels: Labels,
    positive_weight: float | None = None,
    kind: LabelKind = "multilabel",
) -> Members:
    """Fit nonnegative weights of the members' log-odds (N, T) by a regression on labels (N, T).

    A positive label has `positive_weight` times the weight of a negative one; None: both classes, or all
    classes of a multiclass label, have the same weight in total. Labels of a regression are standardized. A
    penalty as large as the loss of about one label draws weights to equal ones, which are also used without
    different labels, or if no weight would be above 0. NaN are missing labels, which count nothing.
    """
    from scipy.optimize import minimize

    members, y = Members.equal(logits), labels.astype(np.float64)
    known = ~np.isnan(y)
    if not known.any() or y[known].min() == y[known].max():
        log(
            "warning: all validation labels are equal: the members of the ensemble have equal weights"
        )
        return members
    x = np.stack(
        [*(one.ravel() for one in logits.values()), np.ones(y.size)], axis=1
    ).astype(np.float64)
    row_weights = _row_weights(y, positive_weight, kind).ravel()
    if not known.all():
        row_weights, y = np.where(known.ravel(), row_weights, 0), np.where(known, y, 0)
        row_weights *= known.sum() / row_weights.sum()
    prior = np.array([*members.weights.values(), 0.0])
    penalized = prior > 0  # not the intercept

    def loss(values: npt.NDArray[np.float64]) -> tuple[float, npt.NDArray[np.float64]]:
        distances = penalized * (values - prior)
        losses, slopes = _terms((x @ values).reshape(y.shape), y, kind)
        gradient = x.T @ (row_weights * slopes.ravel()) + distances
        penalty = distances @ distances / 2
        return float(row_weights @ losses.ravel() + penalty), gradient

    bounds = [(0.0, None)] * len(logits) + [(None, None)]
    *weights, intercept = minimize(
        loss, prior, jac=True, method="L-BFGS-B", bounds=bounds
    ).x.tolist()
    if any(weights):
        return Members(dict(zip(logits, weights, strict=True)), intercept)
    return members


def _row_weights(y: Floats, positive_weight: float | None, kind: LabelKind) -> Floats:
    """Return weights (N, T) of labels, with the mean 1."""
    if kind == "regression":
        return np.ones_like(y)
    if kind == "multiclass":
        class_weights = 1 / np.maximum(y.sum(axis=0), 1)
        weights = np.repeat((y @ class_weights)[:, None], y.shape[1], axis=1)
    else:
        if positive_weight is None:
            positive_weight = float(1 / np.nanmean(y) - 1)
        weights = np.where(y == 1, positive_weight, 1.0)
    return np.asarray(weights / weights.mean())


def _terms(total: Floats, y: Floats, kind: LabelKind) -> tuple[Floats, Floats]:
    """Return the losses of outputs (N, T) and their derivatives."""
    from scipy.special import expit, log_softmax

    if kind == "regression":
        return (total - y) ** 2 / 2, total - y
    if kind == "multiclass":
        logs = log_softmax(total, axis=1)
        return -y * logs, np.exp(logs) - y
    return np.logaddexp(0, total) - y * total, expit(total) - y


class Regression(Protocol):
    """A regression fitted to sequences, as an ensemble's member: log-odds of each feature and output, and of
    a sequence without features, a number or (T,)."""

    @property
    def coefficients(self) -> npt.NDArray[np.floating]: ...

    @property
    def intercept(self) -> Any: ...


class Linear(NamedTuple):
    """A regression by its numbers."""

    coefficients: npt.NDArray[np.floating]
    intercept: npt.NDArray[np.floating]


def add_members(
    ensemble: EnsembleSum, fitted: Mapping[str, Regression], members: Members
) -> None:
    """Add fitted regressions to the network of an ensemble, with the members' weights."""
    ensemble.weight.fill_(members.weights[NETWORK])
    intercepts = [
        members.weights[name] * np.asarray(regression.intercept)
        for name, regression in fitted.items()
    ]
    ensemble.intercept.copy_(
        torch.as_tensor(members.intercept + np.sum(intercepts, axis=0))
    )
    for name, module in ((POSITION, ensemble.position), (KMERS, ensemble.kmers)):
        if module is not None:
            module.set_weights(members.weights[name] * fitted[name].coefficients)


def add_promoter_members(
    ensemble: EnsembleSum,
    learned: Labeled,
    valid: Labeled | None,
    alone: Floats,
    seed: int,
) -> tuple[Members, dict[str, Floats]]:
    """Fit an ensemble's regressions to the training windows of its network, and the members' weights to
    validation windows, for which `alone` (N,) are the probabilities of the network; return the weights, and
    the log-odds (N, 1) of each member for the validation windows.

    Without validation windows all weights are equal. `seed` determines the choice of the penalties.
    """
    fitted: dict[str, PositionLogistic | KmerLogistic] = {}
    if ensemble.position is not None:
        fitted[POSITION] = PositionLogistic(seed)
    if ensemble.kmers is not None:
        fitted[KMERS] = KmerLogistic(ensemble.kmers.k, seed)
    for regression in fitted.values():
        regression.fit(learned.sequences, learned.labels[:, 0])
    members, logits = Members.equal((NETWORK, *fitted)), dict[str, Floats]()
    if valid is not None:
        logits = {NETWORK: log_odds(alone)[:, None]}
        for name, regression in fitted.items():
            logits[name] = regression.logits(valid.sequences)[:, None]
        members = fit_members(logits, valid.labels, kind="binary")
    add_members(ensemble, fitted, members)
    return members, logits
