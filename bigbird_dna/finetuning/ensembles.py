"""Ensembles of a trained network with regressions fitted to the same windows: `position`, and k-mers.

Regressions are fitted to the network's training windows. The members' weights, and an intercept, are fitted
to the validation windows and merged into the weights: an ensemble is saved and used like a network alone.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt
import torch

from bigbird_dna.baselines.kmers import KmerTracks
from bigbird_dna.baselines.promoters import KmerLogistic, PositionLogistic
from bigbird_dna.baselines.windows import blocks
from bigbird_dna.calibration.maps import log_odds
from bigbird_dna.console import log
from bigbird_dna.metrics.auroc import median_auroc
from bigbird_dna.model.batching import BinRows, pad
from bigbird_dna.model.heads import ChromatinNetwork, Classifier
from bigbird_dna.model.kmers import KmerMember

# Axes: N windows or bins, F frequencies of k-mers, T tracks; 1 for promoters.

_AT_ONCE = 64  # windows whose k-mers are counted at once
NETWORK, POSITION, KMERS, ENSEMBLE = "network", "position", "kmers", "ensemble"

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
    network: Classifier,
    learned: LabeledSequences,
    valid: LabeledSequences | None,
    predict: Callable[[list[str]], Floats],
    seed: int,
) -> Members:
    """Fit a promoter classifier's members to its training windows, and their weights to validation windows.

    Without validation windows all weights are equal. `predict` returns the probabilities (N,) of the network
    alone; `seed` determines the choice of the regressions' penalties.
    """
    fitted: dict[str, PositionLogistic | KmerLogistic] = {}
    if network.position_member is not None:
        fitted[POSITION] = PositionLogistic(seed).fit(learned.sequences, learned.labels)
    if network.kmer_member is not None:
        fitted[KMERS] = KmerLogistic(network.kmer_member.k, seed).fit(learned.sequences, learned.labels)
    members = Members.equal((NETWORK, *fitted))
    if valid is not None:
        logits = {NETWORK: log_odds(predict(valid.sequences))[:, None]}
        logits |= {name: one.logits(valid.sequences)[:, None] for name, one in fitted.items()}
        members = fit_members(logits, valid.labels[:, None])
    offset = sum(members.weights[name] * one.intercept for name, one in fitted.items())
    _scale(network, members.weights[NETWORK], np.array([members.intercept + offset]))
    for name, part in ((POSITION, network.position_member), (KMERS, network.kmer_member)):
        if part is not None:
            part.set_weights(members.weights[name] * fitted[name].coefficients)
    return members


class BinSample(NamedTuple):
    """Tokens of windows around bins, and the labels (N, T) of the bins."""

    rows: BinRows  # one bin each
    labels: npt.NDArray[np.uint8]


def add_track_member(
    network: ChromatinNetwork,
    learned: BinSample,
    valid: BinSample,
    alone: Floats,
    positive_weight: float,
    pad_id: int,
) -> Members:
    """Fit a chromatin network's k-mer regressions to training bins, and the members' weights, which are the
    same for all tracks, to validation bins. `alone` are the log-odds (N, T) of the network for them.

    Positive labels have the weight of the network's training, so that log-odds keep their meaning.
    """
    member = network.kmer_member
    assert member is not None
    held_out = _frequencies(member, valid.rows, pad_id)
    features = _frequencies(member, learned.rows, pad_id)
    regressions = KmerTracks().fit(features, learned.labels, held_out, valid.labels)
    coefficients, bias = regressions.coefficients()
    predicted = held_out @ coefficients + bias
    members = fit_members({NETWORK: alone, KMERS: predicted}, valid.labels, positive_weight)
    _scale(network, members.weights[NETWORK], members.intercept + members.weights[KMERS] * bias)
    member.set_weights(members.weights[KMERS] * coefficients)
    return members


def _scale(network: Classifier | ChromatinNetwork, weight: float, offset: Floats) -> None:
    with torch.no_grad():
        bias = network.output.bias
        network.output.weight.mul_(weight)
        bias.mul_(weight).add_(torch.from_numpy(offset.astype(np.float32)).to(bias.device))


def _frequencies(member: KmerMember, rows: BinRows, pad_id: int) -> npt.NDArray[np.float32]:
    """Frequencies (N, F) of k-mers in the regions of each window's bin."""
    count, device = member.table_rows, next(member.buffers()).device
    found = np.zeros((len(rows.ids), len(member.margins), count - 1), np.float32)
    for some in blocks(len(rows.ids), _AT_ONCE):
        ids, _ = pad([rows.ids[number] for number in some], pad_id)
        regions = member.regions(ids.to(device), torch.from_numpy(rows.spans[some]))
        for region, (kmers, starts) in enumerate(regions):
            sizes = np.diff(starts.cpu().numpy(), append=len(kmers))
            lines = np.repeat(np.arange(len(some)) * count, sizes) + kmers.cpu().numpy()
            counts = np.bincount(lines, minlength=len(some) * count).reshape(-1, count)[:, 1:]
            found[some, region] = counts / counts.sum(1, keepdims=True).clip(1)
    return found.reshape(len(found), -1)
