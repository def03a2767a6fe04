"""Losses of networks and regressions by the kind of their labels, and metrics on held-out labels."""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from bigbird_dna.calibration.maps import log_odds
from bigbird_dna.config.section import LabelKind
from bigbird_dna.metrics.auroc import auroc

# Axes: N rows, T outputs; labels of `multiclass` are 1 for the class and 0 for the others. With several
# labels, NaN is a missing one: it counts neither in the loss nor in a metric.

Floats = npt.NDArray[np.floating]
Labels = npt.NDArray[np.floating] | npt.NDArray[np.integer]

LEAST_OF_CLASS = (
    5  # positives, and negatives, that a column needs to count in a median AUROC
)


@dataclass(frozen=True)
class LabelLoss:
    """The loss of outputs: cross-entropy of log-odds in nats, or squared errors of standardized numbers.

    `weights` are those of rows by the class of a binary or multiclass label; empty: all are 1.
    `positive_weight` is that of a label 1 of several labels. `means` and `deviations` (T,) standardize the
    labels of a regression.
    """

    kind: LabelKind = "multilabel"
    weights: tuple[float, ...] = ()
    positive_weight: float = 1.0
    means: tuple[float, ...] = ()
    deviations: tuple[float, ...] = ()

    @classmethod
    def of(cls, kind: LabelKind, labels: Floats, balanced: bool) -> Self:
        """Return the loss for training labels (N, T); `balanced`: classes have the same total weight."""
        if kind == "regression":
            exact = labels.astype(
                np.float64
            )  # nanstd subtracts the mean in the type of its input
            means, deviations = np.nanmean(exact, axis=0), np.nanstd(exact, axis=0)
            return cls(
                kind, means=(*means.tolist(),), deviations=(*deviations.tolist(),)
            )

        if kind == "multilabel" or not balanced:
            return cls(kind)

        ones = labels.sum(axis=0, dtype=np.float64)
        counts = np.append(len(labels) - ones, ones) if kind == "binary" else ones
        return cls(kind, (*(len(labels) / (len(counts) * counts)).tolist(),))

    @property
    def metric(self) -> str:
        """The metric of held-out labels: the median AUROC, or the mean correlation, of the outputs.

        NaN if it is not defined for any output.
        """
        return "pearson" if self.kind == "regression" else "auroc"

    def standardized(self, labels: Tensor) -> Tensor:
        """Return the labels (N, T) of a regression in standard deviations from the mean; others unchanged."""
        if self.kind != "regression":
            return labels
        means = _constant(self.means, labels.device, labels.dtype)
        deviations = _constant(self.deviations, labels.device, labels.dtype)
        return (labels - means) / deviations

    def terms(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the unweighted losses (N, T) of outputs, 0 for missing labels; (N, 1) of one of several
        classes."""
        if self.kind == "multiclass":
            return -(labels * logits.log_softmax(1)).sum(1, keepdim=True)

        missing = labels.isnan()
        if self.kind == "regression":
            squares = (logits - self.standardized(labels).masked_fill(missing, 0)) ** 2
            return squares.masked_fill(missing, 0)

        weight = logits.new_full((), self.positive_weight)
        known = labels.masked_fill(missing, 0)
        losses = F.binary_cross_entropy_with_logits(
            logits, known, pos_weight=weight, reduction="none"
        )
        return losses.masked_fill(missing, 0)

    def count(self, labels: Tensor) -> float:
        """Return the number of rows with labels (N, T) by which sums of `rows` are divided: one whose labels
        are missing in part counts in part, so that the mean loss is that of the known labels."""
        return float(labels.isfinite().double().mean(1).sum())

    def rows(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the losses (N,) of rows: sums over the outputs, divided by T."""
        losses = self.terms(logits, labels).mean(1)
        if not self.weights:
            return losses
        classes = labels.argmax(1) if self.kind == "multiclass" else labels[:, 0].long()
        return losses * _constant(self.weights, losses.device, losses.dtype)[classes]

    def constant(self, shares: Floats) -> Tensor:
        """Return the outputs (T,) of the best constant prediction, given the fractions of positives (T,).

        It is 0 for standardized labels, and for classes of the same total weight.
        """
        if self.weights or self.kind == "regression":
            return torch.zeros(len(shares))
        odds = self.positive_weight * shares / (1 - shares).clip(1e-6)
        return torch.as_tensor(odds, dtype=torch.float32).clamp(1e-6).log()

    def predictions(self, logits: Floats) -> Floats:
        """Return the predictions of outputs (N, T): probabilities, or the labels of a regression."""
        from scipy.special import expit, softmax

        if self.kind == "regression":
            return np.asarray(logits * np.array(self.deviations) + np.array(self.means))
        return np.asarray(
            softmax(logits, axis=1) if self.kind == "multiclass" else expit(logits)
        )

    def logits(self, predictions: Floats) -> Floats:
        """Return outputs (N, T) that have the `predictions`."""
        if self.kind == "regression":
            return np.asarray(
                (predictions - np.array(self.means)) / np.array(self.deviations)
            )
        return (
            np.log(predictions.clip(1e-30))
            if self.kind == "multiclass"
            else log_odds(predictions)
        )

    def metrics(self, logits: Floats, labels: Labels) -> dict[str, float]:
        """Return loss and metric (`metric`) of outputs (N, T); NaN for outputs that are not finite."""
        loss = self._mean(
            np.asarray(logits, np.float32), np.asarray(labels, np.float32)
        )
        # NaN cannot be ranked.
        defined = math.isfinite(loss)
        value = label_metric(self.kind, logits, labels) if defined else math.nan
        return {"loss": loss, self.metric: value}

    def prediction_metrics(
        self, predictions: Floats, labels: Labels
    ) -> dict[str, float]:
        """Return `metrics` of predictions (N, T), as they are written, in double precision."""
        logits = self.logits(predictions.astype(np.float64))
        loss = self._mean(
            np.asarray(logits, np.float64), np.asarray(labels, np.float64)
        )
        value = label_metric(self.kind, predictions, labels)
        return {"loss": loss, self.metric: value}

    def _mean(self, logits: Floats, labels: Floats) -> float:
        y = torch.from_numpy(labels)
        losses = self.rows(torch.from_numpy(logits), y)
        return float(losses.sum()) / (self.count(y) or math.nan)


@lru_cache(maxsize=64)  # a copy to a GPU in every step would synchronize it
def _constant(
    values: tuple[float, ...], device: torch.device, dtype: torch.dtype
) -> Tensor:
    with torch.inference_mode(False):
        return torch.tensor(values, device=device, dtype=dtype)


def label_metric(kind: LabelKind, outputs: Floats, labels: Labels) -> float:
    """Return the metric (`metric`) of outputs (N, T), which may be log-odds, probabilities or numbers.

    AUROCs of several outputs count with at least `LEAST_OF_CLASS` positives and negatives, that of a single
    one with any. NaN if no output counts, or if all labels, or predictions, of each are equal.
    """
    labels = np.asarray(labels, float)
    least = 1 if labels.shape[1] == 1 else LEAST_OF_CLASS
    values = []
    for output, column in zip(np.asarray(outputs).T, labels.T, strict=True):
        known = ~np.isnan(column)
        output, column = output[known], column[known]
        if kind != "regression":
            positives = int(column.sum())
            if least <= positives <= len(column) - least:
                values.append(auroc(column, output).value)
        elif len(column) > 1 and np.ptp(output) and np.ptp(column):
            values.append(float(np.corrcoef(output.astype(float), column)[0, 1]))

    defined = [value for value in values if not math.isnan(value)]
    if not defined:
        return math.nan

    return float(np.mean(defined) if kind == "regression" else np.median(defined))
