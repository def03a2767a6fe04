"""Trainings that have diverged: their weights, losses and figures are no numbers any more."""

import math
from collections.abc import Mapping

import torch
from torch import nn

from bigbird_dna.errors import DataError
from bigbird_dna.training.distributed import World

# How held-out figures begin that are numbers whatever the data are; others, as an AUROC, need two classes.
_NUMBERS = ("loss", "bits")


def diverged(step: int, what: str) -> DataError:
    """The error of a training in which something is no number after a step."""
    return DataError(
        f"step {step}: {what}: training has diverged; a lower learning_rate or a longer warm-up may help"
    )


def check_weights(network: nn.Module, step: int, world: World) -> None:
    """`DataError` on every process if, after a step, weights on one of them are NaN or infinite."""
    finite = all(bool(torch.isfinite(parameter).all()) for parameter in network.parameters())
    if world.sum({"broken": float(not finite)})["broken"]:
        raise diverged(step, "the weights are not finite numbers")


def check_figures(figures: Mapping[str, float], step: int) -> None:
    """`DataError` if a held-out loss, or number of bits, is NaN or infinite."""
    for name, value in figures.items():
        if name.startswith(_NUMBERS) and not math.isfinite(value):
            raise diverged(step, f"the held-out {name} is {value}")
