"""Ensembles of a trained network with regressions fitted to the same windows: `position`, and k-mers.

Regressions are fitted to the network's training windows; the members' weights, and an intercept, to the
validation windows. All are part of the network's weights: an ensemble is saved and used like a network alone.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch

from bigbird_dna.baselines.promoters import (
    LogisticBaseline,
    kmer_regression,
    position_regression,
)
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

        The latter are what the model predicts, not the weighted sum of the former.
        """
        values = {
            name: label_metric(kind, outputs, labels)
            for name, outputs in {**members, ENSEMBLE: ensemble}.items()
        }
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
    from scipy.special import expit, log_softmax

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
    row_weights = np.ones_like(y)
    if kind == "multiclass":
        class_weights = 1 / np.maximum(y.sum(axis=0), 1)
        row_weights *= (y @ class_weights)[:, None]
    elif kind != "regression":
        if positive_weight is None:
            positive_weight = float(1 / np.nanmean(y) - 1)

        row_weights[y == 1] = positive_weight

    row_weights = (row_weights / row_weights.mean()).ravel()
    if not known.all():
        row_weights, y = np.where(known.ravel(), row_weights, 0), np.where(known, y, 0)
        row_weights *= known.sum() / row_weights.sum()

    prior = np.array([*members.weights.values(), 0.0])
    penalized = prior > 0  # not the intercept

    def loss(values: npt.NDArray[np.float64]) -> tuple[float, npt.NDArray[np.float64]]:
        distances = penalized * (values - prior)
        total = (x @ values).reshape(y.shape)
        if kind == "regression":
            losses, slopes = (total - y) ** 2 / 2, total - y
        elif kind == "multiclass":
            logs = log_softmax(total, axis=1)
            losses, slopes = -y * logs, np.exp(logs) - y
        else:
            losses, slopes = np.logaddexp(0, total) - y * total, expit(total) - y

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


def add_members(
    ensemble: EnsembleSum,
    regressions: Mapping[str, tuple[Floats, Any]],
    members: Members,
) -> None:
    """Add regressions to the network of an ensemble, with the members' weights. Each is given by its
    log-odds of each feature and output, and of a sequence without features, a number or (T,)."""
    ensemble.weight.fill_(members.weights[NETWORK])
    intercept: Any = members.intercept
    for name, (_, of_regression) in regressions.items():
        intercept = intercept + members.weights[name] * np.asarray(of_regression)
    ensemble.intercept.copy_(torch.as_tensor(intercept))
    for name, module in ((POSITION, ensemble.position), (KMERS, ensemble.kmers)):
        if module is not None:
            module.set_weights(members.weights[name] * regressions[name][0])


def shifted(texts: Sequence[str], most: int, seed: int) -> list[str]:
    """Return each text shifted at random by up to `most` bp in either direction, with N in place of bases
    that are not in it."""
    rng = np.random.default_rng((seed, 10))
    starts = rng.integers(0, 2 * most + 1, len(texts)).tolist()
    padding = "N" * most
    return [
        (padding + text + padding)[start : start + len(text)]
        for text, start in zip(texts, starts, strict=True)
    ]


def add_promoter_members(
    ensemble: EnsembleSum,
    train: Any,
    valid: Any,
    alone: Floats,
    seed: int,
    shift_bp: int = 0,
) -> tuple[Members, dict[str, Floats]]:
    """Fit the regressions of a promoter network to its training windows, and the members' weights to
    validation windows, for which `alone` (N,) are the probabilities of the network; return the weights, and
    the log-odds (N, 1) of each member for the validation windows.

    Windows have `sequences` and `labels` (N, 1). Without validation windows (None) all weights are equal. For
    the regression on positions, each training window is shifted by up to `shift_bp`.
    """
    fitted: dict[str, LogisticBaseline] = {}
    if ensemble.position is not None:
        fitted[POSITION] = position_regression(seed)

    if ensemble.kmers is not None:
        fitted[KMERS] = kmer_regression(ensemble.kmers.k, seed)

    for name, regression in fitted.items():
        texts = train.sequences
        if name == POSITION and shift_bp:
            texts = shifted(texts, shift_bp, seed)

        regression.fit(texts, train.labels[:, 0])

    members, logits = Members.equal((NETWORK, *fitted)), dict[str, Floats]()
    if valid is not None:
        logits[NETWORK] = log_odds(alone)[:, None]
        for name, regression in fitted.items():
            logits[name] = regression.logits(valid.sequences)[:, None]

        members = fit_members(logits, valid.labels, kind="binary")

    parts = {name: one.coefficients() for name, one in fitted.items()}
    add_members(ensemble, parts, members)
    return members, logits
