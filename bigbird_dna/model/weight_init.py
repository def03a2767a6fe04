"""Heads that begin by looking at neighbouring tokens.

Masked-token training from random weights stays for a long time at what the tokens' frequencies tell: no head
looks at any token in particular, so none carries what stands beside a hidden one, and nothing is gained by
looking. Heads that look at one offset each from the first step on leave that plateau at once. They are
ordinary weights and biases, learnt like the rest: the architecture stays the paper's. Mimetic initialisation
(Trockman & Kolter 2023, arXiv 2305.09828) starts attention from such structure too, there that of trained
networks.

A head's logits at the start are, up to the random weights' share, a sum of cosines of the distance from its
offset. `MARGIN` says by how much the offset exceeds the places beside it; from it follows the gain of the
weights, whatever a head's width and its rates are.
"""

import math
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from bigbird_dna.config import EncoderConfig
from bigbird_dna.model.input_embeddings import position_rates
from bigbird_dna.model.rotary import rates

# Axes: K head width, D hidden width, F pairs of components that turn together.

MARGIN = 1.0
"""Of a head's logits, in nats: its offset above the places beside it. Chosen by bits per base on yeast, see
docs/results.md."""

PAIRS = 16
"""Sines and cosines of learnt positions that heads look at, at most."""


class Projections(Protocol):
    """What a layer makes queries and keys by."""

    query: nn.Linear
    key: nn.Linear | None  # none: queries are the keys


def watch_neighbours(config: EncoderConfig, layers: Sequence[Projections], token: nn.Embedding) -> None:
    """Let the heads of an encoder's first layer begin by looking at neighbouring tokens.

    The weights must be as `initialise` and `initialise_positions` leave them. An only layer stays as it is:
    heads that look nearby have nothing to tell [CLS], and there is no other layer that does. So do layers
    whose queries are the keys: such a head looks at its own token first.
    """
    first = layers[0]
    places = offsets(config.heads, config.causal)
    if token.weight.is_meta or len(layers) == 1 or first.key is None:  # of meta tensors shapes alone matter
        return
    if config.position_encoding == "rotary":
        width = config.hidden // config.heads
        turn_rates = (rates(width, config.rotary_base) / config.rotary_scale).float()
        watch_by_rotation(first.query, first.key, places, turn_rates)
    else:
        watch_by_positions(first.query, first.key, token, places)


def offsets(heads: int, causal: bool = False) -> list[int]:
    """What the heads look at, in tokens from their own: -1, +1, -2, +2, and so on; causal: -1, -2, …"""
    if causal:
        return [-number - 1 for number in range(heads)]
    return [(number // 2 + 1) * (1 if number % 2 else -1) for number in range(heads)]


def watch_by_rotation(query: nn.Linear, key: nn.Linear, places: Sequence[int], turn_rates: Tensor) -> None:
    """Set the biases of the first layer with rotary positions.

    With q = g (cos ωδ, sin ωδ) and k = g (1, 0) for every pair of components, ω its rate and δ the head's
    offset, the turned q at p and k at j have the product g² Σ cos ω (p + δ - j), largest at j = p + δ.

    Parameters
    ----------
    places
        The offset δ of each head, in tokens.
    turn_rates
        ω of each pair (K / 2,), radians a token.
    """
    width = 2 * len(turn_rates)
    gain = _gain(turn_rates, width)
    angles = torch.tensor([*places])[:, None] * turn_rates  # (H, K / 2)
    still = torch.cat([torch.ones(len(turn_rates)), torch.zeros(len(turn_rates))])
    with torch.no_grad():
        query.bias.copy_(gain * torch.cat([angles.cos(), angles.sin()], dim=1).flatten())
        key.bias.copy_(gain * still.repeat(len(places)))


def watch_by_positions(query: nn.Linear, key: nn.Linear, token: nn.Embedding, places: Sequence[int]) -> None:
    """Set the first layer's weights where positions are learnt and begin as sinusoids.

    Keys select some of the sines and cosines, queries the same ones turned by the head's offset. What tokens
    have there would drown them: token embeddings begin at zero in those components.

    Notes
    -----
    The sizes of the sinusoids behind the embeddings' LayerNorm are those of its expected variance.
    """
    hidden = token.embedding_dim
    width = hidden // len(places)
    chosen = position_pairs(hidden, width)
    count = len(chosen)
    turn_rates = position_rates(hidden)[chosen]
    # Of a sine's variance σ² the token's and the segment's part are as much again, but for the cleared ones.
    variance = 3 - 2 * count / hidden
    gain = _gain(turn_rates, width) / math.sqrt(2 / variance)
    sines, cosines = 2 * chosen, 2 * chosen + 1
    with torch.no_grad():
        for weight, turned in ((query.weight, places), (key.weight, [0] * len(places))):
            for head, offset in enumerate(turned):
                rows = head * width + torch.arange(count)
                angles = turn_rates * offset
                weight[head * width : head * width + 2 * count] = 0
                # sin ω(p + δ) and cos ω(p + δ) from sin ωp and cos ωp
                weight[rows, sines], weight[rows, cosines] = gain * angles.cos(), gain * angles.sin()
                weight[rows + count, sines] = -gain * angles.sin()
                weight[rows + count, cosines] = gain * angles.cos()
        token.weight[:, torch.cat([sines, cosines])] = 0


def position_pairs(hidden: int, width: int) -> Tensor:
    """The pairs that heads look at: rates from 1 down to about 0.1, evenly spaced (F,).

    Slower ones don't tell neighbours apart; rates that lie close together would find the offset again a
    wavelength further on.
    """
    fast = max(1, hidden // 8)  # pairs above 0.1
    count = min(PAIRS, fast, width // 2)
    return torch.arange(count) * fast // max(count, 1)


def _gain(turn_rates: Tensor, width: int) -> float:
    """What makes the logits at an offset exceed those beside it by `MARGIN`."""
    beside = (1 - turn_rates.cos()).sum().item() / math.sqrt(width)
    return math.sqrt(MARGIN / max(beside, 1e-3))
