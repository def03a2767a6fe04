"""Rotary positions: queries and keys are turned by angles that grow with their position.

RoFormer (Su et al. 2021, arXiv 2104.09864, section 3.2): at position p the component pair f of a head's
vectors turns by p · base^(-2f / K), so that q · k depends on the two positions by their distance alone. There
is no table of positions to learn, and nothing that ends at some length.
"""

from typing import NamedTuple

import torch
from torch import Tensor

# Axes: B batch, H heads, L tokens, K head width.


class Rotation(NamedTuple):
    """Cosine and sine of every position's angles, float32."""

    cos: Tensor  # (L, K / 2)
    sin: Tensor  # (L, K / 2)


def rates(width: int, base: float, device: torch.device | None = None) -> Tensor:
    """What the pairs of heads of `width` components turn by, radians a token, (K / 2,) float64."""
    pairs = torch.arange(0, width, 2, device=device, dtype=torch.float64) / width
    return base**-pairs


def rotation(
    tokens: int, width: int, base: float, scale: float, device: torch.device | None = None
) -> Rotation:
    """The turns of positions 0 … L - 1 for heads of `width` components (even).

    Parameters
    ----------
    base
        Wavelengths run from 2π to almost 2π · base, in tokens.
    scale
        Positions are divided by it: position interpolation (Chen et al. 2023, arXiv 2306.15595).

    Notes
    -----
    Angles are float64: at position 131,072 the nearest float32 is up to 0.004 rad off, and q · k would depend
    on where the two tokens stand.
    """
    positions = torch.arange(tokens, device=device, dtype=torch.float64) / scale
    angles = positions[:, None] * rates(width, base, device)  # (L, K / 2)
    return Rotation(angles.cos().float(), angles.sin().float())


def rotate(x: Tensor, turns: Rotation) -> Tensor:
    """Turn queries or keys, (B, H, L, K) → (B, H, L, K), of the type of `x`; computed in float32 at least.

    Component f is paired with component f + K / 2 (the layout of GPT-NeoX and Llama), not with its neighbour
    as in RoFormer: the same up to the order of components, which the projections learn, and two plain halves.
    """
    first, second = x.chunk(2, dim=-1)
    cos, sin = turns
    # bfloat16 × float32 is float32.
    turned = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
    return turned.to(x.dtype)
