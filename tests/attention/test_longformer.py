"""Longformer against HuggingFace's, where that is installed."""

import pytest
import torch
from torch import Tensor, nn

from bigbird_dna.config import LayerShape, find_mechanism

HEADS, WIDTH = 2, 4


@pytest.mark.parametrize("globals_", [0, 1, 3])
def test_it_agrees_with_huggingface(globals_: int) -> None:
    """Their layer and ours with the same weights, and a padded row, in single precision."""
    theirs = pytest.importorskip("transformers.models.longformer.modeling_longformer")
    configuration = pytest.importorskip("transformers").LongformerConfig(
        hidden_size=HEADS * WIDTH,
        num_attention_heads=HEADS,
        attention_window=[8],
        attention_probs_dropout_prob=0.0,
        num_hidden_layers=1,
    )
    torch.manual_seed(0)
    layer = theirs.LongformerSelfAttention(configuration, 0).eval()
    options = {"window": 4, "global_tokens": globals_}
    module: nn.Module = find_mechanism("longformer").make(LayerShape(HEADS, WIDTH), options)
    x = torch.randn(2, 48, HEADS * WIDTH)
    lengths = torch.tensor([48, 37])
    mask = torch.zeros(2, 48)
    mask[:, :globals_] = 10000
    mask[1, 37:] = -10000

    def split(part: nn.Linear) -> Tensor:
        return part(x).unflatten(2, (HEADS, -1)).transpose(1, 2)

    with torch.no_grad():
        if globals_:
            pairs = ((module.query, layer.query_global), (module.key, layer.key_global))
            for ours, other in (*pairs, (module.value, layer.value_global)):
                ours.load_state_dict(other.state_dict())
        q, k, v = (split(part) for part in (layer.query, layer.key, layer.value))
        out = module(q, k, v, lengths=lengths, hidden=x).transpose(1, 2).flatten(2)
        expected = layer(
            x,
            attention_mask=mask,
            is_index_masked=mask < 0,
            is_index_global_attn=mask > 0,
            is_global_attn=bool(globals_),
        )[0]
    for row, length in enumerate(lengths):
        torch.testing.assert_close(out[row, :length], expected[row, :length], atol=2e-6, rtol=2e-5)
