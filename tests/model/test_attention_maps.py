"""Attention weights of trained layers against dense softmax, their products, and the plot of them."""

import math
from typing import Any

import pytest
import torch

from bigbird_dna.model.attention_maps import (
    layer_weights,
)
from bigbird_dna.model.encoder import Encoder
from bigbird_dna.model.settings import PretrainingSettings
from tests.toys import small_encoder

SETTINGS = PretrainingSettings(next_sentence=False)
SPARSE: dict[str, Any] = {"block_size": 4, "random_blocks": 1, "layers": 2}
CASES: list[dict[str, Any]] = [
    SPARSE,
    SPARSE | {"position_encoding": "rotary", "norm": "pre"},
    SPARSE | {"causal": True},
    SPARSE | {"num_global_tokens": 5, "relative_max_distance": 3},
    {"attention": "full", "layers": 2},
    {"attention": "performer"},
    {"attention": "combiner_fixed"},
    {"attention": "reformer"},
    {
        "attention": "full",
        "layers": 2,
        "local_window": 6,
        "global_every": 2,
        "position_encoding": "rotary",
    },
]


def passes(encoder: Encoder, tokens: int) -> list[tuple[Any, tuple[Any, ...]]]:
    """Each layer with the arguments that it is called with, for random ids."""
    found: list[tuple[Any, tuple[Any, ...]]] = []
    for layer in encoder.layers:
        layer.register_forward_pre_hook(
            lambda layer, arguments: found.append((layer, arguments))
        )
    encoder(
        torch.randint(5, 40, (1, tokens), generator=torch.Generator().manual_seed(1))
    )
    return found


@pytest.mark.parametrize("changes", CASES, ids=str)
@torch.no_grad()
def test_weights_times_values_are_the_output_of_attention(
    changes: dict[str, Any],
) -> None:
    torch.manual_seed(0)
    encoder = Encoder(small_encoder(**changes)).double().eval()
    for layer, (x, lengths, turns, owners) in passes(encoder, 61):
        weights = layer_weights(layer, x, lengths, turns, owners)
        given = layer.attention_norm(x) if layer.pre_norm else x
        q, k, v, _ = layer.queries_keys_values(given, turns)
        torch.testing.assert_close(
            weights @ v, layer.attended(given, lengths, turns, owners)
        )
        torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
        if layer.mechanism is None:
            mask = torch.from_numpy(
                layer.pattern.mask(x.shape[1], layer.heads, layer.index)
            )
            if changes.get("attention") == "full":
                mask = torch.ones_like(mask)
            assert not weights[0, ~mask].any() and weights[0, mask].all()
            if layer.relative is None:
                scores = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(
                    ~mask, -torch.inf
                )
                torch.testing.assert_close(weights, scores.softmax(-1))
