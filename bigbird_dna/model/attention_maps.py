"""Attention weights of a layer: the effective matrix of its attention, of any mechanism and pattern.

Memory is quadratic in the number of tokens.
"""

from typing import Any

import torch
from torch import Tensor

from bigbird_dna.attention.call import effective_matrix
from bigbird_dna.model.encoder import Layer
from bigbird_dna.model.mechanism import matrix_of


def layer_weights(
    layer: Layer,
    x: Tensor,
    lengths: Tensor | None,
    turns: Any = None,
    owners: Tensor | None = None,
) -> Tensor:
    """Return the attention weights (B, H, L, L) of a layer for its arguments, without padding."""
    with torch.no_grad():
        x = layer.attention_norm(x) if layer.pre_norm else x
        q, k, *_ = layer.queries_keys_values(x, turns)
        if layer.mechanism is not None:
            return matrix_of(layer.mechanism, q, k, x)
        return effective_matrix(
            lambda q, k, v: layer.attend_by_pattern(q, k, v, lengths, owners=owners),
            q,
            k,
        )
