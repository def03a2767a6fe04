"""The ensemble of a promoter network and the `position` baseline: their log-odds are added.

The baseline is fitted to the training windows by itself. Two weights and an intercept, fitted to the
validation windows, bring both members' log-odds to one scale; they become part of the network's weights.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from bigbird_dna.baselines.kmers import PositionLogistic, balanced_log_loss
from bigbird_dna.calibration.fitting import LEAST
from bigbird_dna.calibration.maps import log_odds
from bigbird_dna.console import log
from bigbird_dna.model.heads import Classifier
from bigbird_dna.model.promoter import LoadedPromoterModel


class LabelledWindows(NamedTuple):
    """Windows of one split, in file order."""

    sequences: list[str]
    labels: npt.NDArray[np.uint8]  # (N,), what is learned: drawn at random in the control
    promoter: npt.NDArray[np.bool_]  # (N,), what the window is
    variants: npt.NDArray[np.int64]  # (N,), number among the negatives of one promoter

    def take(self, rows: npt.NDArray[np.integer]) -> "LabelledWindows":
        """Some of the windows."""
        sequences = [self.sequences[index] for index in rows]
        return LabelledWindows(sequences, self.labels[rows], self.promoter[rows], self.variants[rows])


class Members(NamedTuple):
    """Weights of the members' log-odds, and what is added to their sum."""

    network: float
    position: float
    intercept: float


EQUAL = Members(1.0, 1.0, 0.0)
"""Where there are no validation windows to fit weights to."""


def add_position_member(
    model: LoadedPromoterModel,
    learned: LabelledWindows,
    valid: LabelledWindows | None,
    predict: Callable[[list[str]], npt.NDArray[np.floating]],
    seed: int,
) -> Members:
    """Fit the `position` baseline to the windows the network learned from, and add it to the network.

    Parameters
    ----------
    valid
        The validation windows with their true labels, for the members' weights; none, or fewer than 10 of a
        class: both members have weight 1.
    predict
        Probabilities (N,) of the network alone.
    seed
        Of the choice of the baseline's penalty.
    """
    network = model.network
    assert isinstance(network, Classifier) and network.position_member is not None
    baseline = PositionLogistic(seed).fit(learned.sequences, learned.labels)
    members = EQUAL
    if valid is not None and min(np.bincount(valid.labels, minlength=2)) >= LEAST:
        alone = log_odds(predict(valid.sequences))
        members = fit_members(alone, baseline.logits(valid.sequences), valid.labels)
    with torch.no_grad():
        network.output.weight.mul_(members.network)
        network.output.bias.mul_(members.network)
        network.output.bias.add_(members.position * baseline.intercept + members.intercept)
        network.position_member.set_weights(members.position * baseline.coefficients)
    log(f"log-odds: {members.network:.3f} × network + {members.position:.3f} × position baseline")
    return members


def fit_members(
    network: npt.NDArray[np.floating], position: npt.NDArray[np.floating], labels: npt.NDArray[np.integer]
) -> Members:
    """Weights of the members' log-odds (N,) by a logistic regression on labels (N,); none is below 0.

    Where one of them would be below 0, the better member stays alone. Where no member tells the classes
    apart, both have weight 1.
    """
    x = np.stack([network, position], axis=1).astype(np.float64)
    fits = [_regression(x, columns, labels) for columns in ((0, 1), (0,), (1,))]
    fitting = [found for found in fits if min(found[:2]) >= 0 < max(found[:2])]
    if not fitting:
        return EQUAL
    return min(fitting, key=lambda m: balanced_log_loss(x @ m[:2] + m.intercept, labels))


def _regression(
    x: npt.NDArray[np.float64], columns: Sequence[int], labels: npt.NDArray[np.integer]
) -> Members:
    from sklearn.linear_model import LogisticRegression

    fitted = LogisticRegression(C=1e6, class_weight="balanced", max_iter=1000).fit(x[:, columns], labels)
    weights = np.zeros(2)
    weights[list(columns)] = fitted.coef_[0]
    return Members(float(weights[0]), float(weights[1]), float(fitted.intercept_[0]))
