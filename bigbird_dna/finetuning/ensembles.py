"""Ensembles of a trained network with regressions fitted to the same windows: `position`, and k-mers.

Regressions are fitted to the network's training windows; the members' weights, and an intercept, to the
validation windows. All are part of the network's weights: an ensemble is saved and used like a network alone.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt
import torch

from bigbird_dna.baselines.kmer_model import KmerModel
from bigbird_dna.baselines.promoters import KmerLogistic, PositionLogistic
from bigbird_dna.calibration.maps import log_odds
from bigbird_dna.console import log
from bigbird_dna.data.predictions import NETWORK, POSITION
from bigbird_dna.metrics.auroc import median_auroc
from bigbird_dna.model.ensemble import EnsembleSum

# Axes: N windows or bins, T tracks; 1 for promoters.

KMERS, ENSEMBLE = "kmers", "ensemble"  # further names of members: `NETWORK`, `POSITION`

Floats = npt.NDArray[np.floating]


@dataclass(frozen=True)
class Members:
    """Weights of the members' log-odds by name, the intercept of their weighted sum, and the AUROC, or median
    AUROC over tracks, of each member and the ensemble for the rows the weights were fitted to."""

    weights: Mapping[str, float]
    intercept: float = 0.0
    valid_auroc: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def equal(cls, names: Collection[str]) -> Self:
        """Return weights for the mean of the members' log-odds."""
        return cls(dict.fromkeys(names, 1 / len(names)))

    def measured(self, logits: Mapping[str, Floats], labels: npt.NDArray[np.integer]) -> Self:
        """Return these weights with the AUROC for log-odds and labels (N, T); also log them."""
        both = np.sum([weight * logits[name] for name, weight in self.weights.items()], axis=0)
        found = {name: median_auroc(labels, one) for name, one in {**logits, ENSEMBLE: both}.items()}
        terms = (f"{weight:.3f} × {name} ({found[name]:.4f})" for name, weight in self.weights.items())
        log(f"log-odds (AUROC): {' + '.join(terms)} ({found[ENSEMBLE]:.4f} together)")
        return replace(self, valid_auroc=found)


def fit_members(
    logits: Mapping[str, Floats], labels: npt.NDArray[np.integer], positive_weight: float | None = None
) -> Members:
    """Fit nonnegative weights of the members' log-odds (N, T) by a logistic regression on labels (N, T).

    A positive label has `positive_weight` times the weight of a negative one; None: both classes have the
    same weight in total. A penalty as large as the loss of about one label draws weights to equal ones, which
    are also used without labels of both classes, or if no weight would be above 0.
    """
    from scipy.optimize import minimize
    from scipy.special import expit

    members, y = Members.equal(logits), labels.ravel().astype(np.float64)
    if not len(y) or y.min() == y.max():
        return members
    x = np.stack([*(one.ravel() for one in logits.values()), np.ones(len(y))], axis=1).astype(np.float64)
    of_rows = np.where(y == 1, (1 / y.mean() - 1) if positive_weight is None else positive_weight, 1.0)
    of_rows /= of_rows.mean()
    prior = np.array([*members.weights.values(), 0.0])
    drawn = prior > 0  # not the intercept

    def loss(values: npt.NDArray[np.float64]) -> tuple[float, npt.NDArray[np.float64]]:
        total, apart = x @ values, drawn * (values - prior)
        losses = np.logaddexp(0, total) - y * total
        gradient = x.T @ (of_rows * (expit(total) - y)) + apart
        return float(of_rows @ losses + apart @ apart / 2), gradient

    bounds = [(0.0, None)] * len(logits) + [(None, None)]
    *weights, intercept = minimize(loss, prior, jac=True, method="L-BFGS-B", bounds=bounds).x.tolist()
    if any(weights):
        members = Members(dict(zip(logits, weights, strict=True)), intercept)
    return members.measured(logits, labels)


class LabeledSequences(Protocol):
    """Promoter windows with labels (N,)."""

    @property
    def sequences(self) -> list[str]: ...

    @property
    def labels(self) -> npt.NDArray[np.uint8]: ...


def add_promoter_members(
    ensemble: EnsembleSum, learned: LabeledSequences, valid: LabeledSequences | None, alone: Floats, seed: int
) -> Members:
    """Fit an ensemble's regressions to the training windows of its network, and the members' weights to
    validation windows, for which `alone` (N,) are the probabilities of the network.

    Without validation windows all weights are equal. `seed` determines the choice of the penalties.
    """
    fitted: dict[str, PositionLogistic | KmerLogistic] = {}
    if ensemble.position is not None:
        fitted[POSITION] = PositionLogistic(seed).fit(learned.sequences, learned.labels)
    if ensemble.kmers is not None:
        fitted[KMERS] = KmerLogistic(ensemble.kmers.k, seed).fit(learned.sequences, learned.labels)
    members = Members.equal((NETWORK, *fitted))
    if valid is not None:
        logits = {NETWORK: log_odds(alone)[:, None]}
        logits |= {name: one.logits(valid.sequences)[:, None] for name, one in fitted.items()}
        members = fit_members(logits, valid.labels[:, None])
    ensemble.weight.fill_(members.weights[NETWORK])
    ensemble.intercept.fill_(
        members.intercept + sum(members.weights[name] * one.intercept for name, one in fitted.items())
    )
    for name, part in ((POSITION, ensemble.position), (KMERS, ensemble.kmers)):
        if part is not None:
            part.set_weights(members.weights[name] * fitted[name].coefficients)
    return members


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
    ensemble.intercept.copy_(torch.from_numpy(members.intercept + weight * (bias + dyads.bias)))
    ensemble.kmers.set_weights(weight * coefficients)
    if ensemble.dyads is not None:
        ensemble.dyads.set_weights(dyads.words, weight * dyads.weight)
    return members
