"""Ensembles of a trained network with regressions fitted to the same windows: `position`, and k-mers.

Regressions are fitted to the network's training windows; the members' weights, and an intercept, to the
validation windows. All are part of the network's weights: an ensemble is saved and used like a network alone.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt
import torch

from bigbird_dna.baselines.kmer_model import KmerModel
from bigbird_dna.baselines.promoters import KmerLogistic, PositionLogistic
from bigbird_dna.baselines.sequences import Labeled
from bigbird_dna.calibration.maps import log_odds
from bigbird_dna.config import LabelKind
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
    """Weights of the members' log-odds by name, the intercept of their weighted sum, and the metric of each
    member and the ensemble (`label_metric`: AUROC or correlation) for validation rows."""

    weights: Mapping[str, float]
    intercept: float = 0.0
    valid_auroc: Mapping[str, float] = field(default_factory=dict)
    valid_pearson: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def equal(cls, names: Collection[str]) -> Self:
        """Return weights for the mean of the members' log-odds."""
        return cls(dict.fromkeys(names, 1 / len(names)))

    def stored(self) -> dict[str, Any]:
        """Return the members as JSON values, without metrics of another kind of labels; None if undefined."""
        metrics = {"valid_auroc": self.valid_auroc, "valid_pearson": self.valid_pearson}
        stored = {
            name: without_nan(dict(value)) for name, value in metrics.items() if value
        }
        return {"weights": dict(self.weights), "intercept": self.intercept, **stored}

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
        outputs = {**members, ENSEMBLE: ensemble}
        found = {name: label_metric(kind, one, labels) for name, one in outputs.items()}
        shown = {
            name: "not defined" if value != value else f"{value:.4f}"
            for name, value in found.items()
        }
        terms = (
            f"{weight:.3f} × {name} ({shown[name]})"
            for name, weight in self.weights.items()
        )
        what = "outputs (correlation)" if kind == "regression" else "log-odds (AUROC)"
        log(f"validation, {what}: {' + '.join(terms)} ({shown[ENSEMBLE]} together)")
        if kind == "regression":
            return replace(self, valid_pearson=found)
        return replace(self, valid_auroc=found)


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
    of_rows = _row_weights(y, positive_weight, kind).ravel()
    if not known.all():
        of_rows, y = np.where(known.ravel(), of_rows, 0), np.where(known, y, 0)
        of_rows *= known.sum() / of_rows.sum()
    prior = np.array([*members.weights.values(), 0.0])
    drawn = prior > 0  # not the intercept

    def loss(values: npt.NDArray[np.float64]) -> tuple[float, npt.NDArray[np.float64]]:
        total, apart = x @ values, drawn * (values - prior)
        losses, slopes = _terms(total.reshape(y.shape), y, kind)
        gradient = x.T @ (of_rows * slopes.ravel()) + apart
        return float(of_rows @ losses.ravel() + apart @ apart / 2), gradient

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
        of_classes = 1 / np.maximum(y.sum(axis=0), 1)
        of_rows = np.repeat((y @ of_classes)[:, None], y.shape[1], axis=1)
    else:
        of_rows = np.where(
            y == 1,
            (1 / np.nanmean(y) - 1) if positive_weight is None else positive_weight,
            1.0,
        )
    return np.asarray(of_rows / of_rows.mean())


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
    """A regression fitted to sequences, as an ensemble's member."""

    @property
    def coefficients(self) -> npt.NDArray[np.floating]:
        """Log-odds of each feature, and of each output."""

    @property
    def intercept(self) -> Any:
        """Log-odds of a sequence without features, a number or (T,)."""


def add_members(
    ensemble: EnsembleSum, fitted: Mapping[str, Regression], members: Members
) -> None:
    """Add fitted regressions to the network of an ensemble, with the members' weights."""
    ensemble.weight.fill_(members.weights[NETWORK])
    own = [
        members.weights[name] * np.asarray(one.intercept)
        for name, one in fitted.items()
    ]
    ensemble.intercept.copy_(torch.as_tensor(members.intercept + np.sum(own, axis=0)))
    for name, part in ((POSITION, ensemble.position), (KMERS, ensemble.kmers)):
        if part is not None:
            part.set_weights(members.weights[name] * fitted[name].coefficients)


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
        fitted[POSITION] = PositionLogistic(seed).fit(
            learned.sequences, learned.labels[:, 0]
        )
    if ensemble.kmers is not None:
        fitted[KMERS] = KmerLogistic(ensemble.kmers.k, seed).fit(
            learned.sequences, learned.labels[:, 0]
        )
    members, logits = Members.equal((NETWORK, *fitted)), dict[str, Floats]()
    if valid is not None:
        logits = {NETWORK: log_odds(alone)[:, None]}
        logits |= {
            name: one.logits(valid.sequences)[:, None] for name, one in fitted.items()
        }
        members = fit_members(logits, valid.labels, kind="binary")
    add_members(ensemble, fitted, members)
    return members, logits


def add_track_member(
    ensemble: EnsembleSum,
    baseline: KmerModel,
    logits: Mapping[str, Floats],
    labels: npt.NDArray[np.integer],
    positive_weight: float,
) -> Members:
    """Add the k-mer and dyad regressions to an ensemble, and fit the members' weights, which are the same for
    all tracks, to the members' log-odds and the labels (N, T) of validation bins.

    Positive labels have the weight of the network's training, so that log-odds keep their meaning.
    """
    assert ensemble.kmers is not None
    coefficients, bias = baseline.words.kmers.coefficients()
    dyads, members = baseline.words.dyads, fit_members(logits, labels, positive_weight)
    weight = members.weights[KMERS]
    ensemble.weight.fill_(members.weights[NETWORK])
    ensemble.intercept.copy_(
        torch.from_numpy(members.intercept + weight * (bias + dyads.bias))
    )
    ensemble.kmers.set_weights(weight * coefficients)
    if ensemble.dyads is not None:
        ensemble.dyads.set_weights(dyads.words, weight * dyads.weight)
    return members
