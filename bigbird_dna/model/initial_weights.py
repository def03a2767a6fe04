"""What weights begin as: BERT's normal ones, and sinusoids for learnt positions."""

import math

import torch
from torch import Tensor, nn

BERT_HIDDEN, BERT_STANDARD_DEVIATION = 768, 0.02


def initialise_positions(weight: Tensor) -> None:
    """Start position embeddings (P, D) as sinusoids, of the standard deviation of the other weights.

    They are learnt like the rest. With random ones a small model spends most of its training on finding out
    which positions are neighbours; in sinusoids that is a linear map from the start.
    """
    positions, width = weight.shape
    angles = torch.arange(positions)[:, None] * position_rates(width)  # (P, ⌈D / 2⌉)
    waves = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :width]
    with torch.no_grad():
        weight.copy_(waves * initial_deviation(width) * math.sqrt(2))


def initial_deviation(hidden: int) -> float:
    """Standard deviation of fresh weights: BERT's 0.02 at width 768, 0.02 √(768 / hidden) at others.

    That leaves the size of what a layer adds to its input the same: with 0.02 a narrow network begins next to
    the identity and learns slowly.
    """
    return BERT_STANDARD_DEVIATION * math.sqrt(BERT_HIDDEN / hidden)


def initialise(module: nn.Module, hidden: int) -> None:
    """BERT's initial weights, scaled to the width `hidden`: normal, biases zero."""
    deviation = initial_deviation(hidden)
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            nn.init.normal_(part.weight, std=deviation)
        if isinstance(part, nn.Linear):
            nn.init.zeros_(part.bias)


def position_rates(hidden: int) -> Tensor:
    """ω of the sinusoids that learnt positions begin as, by pair (⌈D / 2⌉,), radians a token."""
    return torch.exp(torch.arange(0, hidden, 2) * (-math.log(10_000) / hidden))
