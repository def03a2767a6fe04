"""The head of chromatin models: pooling of a bin's tokens, and layers across the bins of a window."""

import pytest
import torch

from bigbird_dna.config import EncoderConfig
from bigbird_dna.model.chromatin_network import BinLayers, ChromatinNetwork, _pool_bins
from bigbird_dna.model.settings import BinPooling

ENCODER = EncoderConfig(vocabulary=20, layers=1, hidden=16, heads=2, positions=400, dropout=0.0, block_size=4)
LENGTH, BINS = 240, 12


def spans() -> torch.Tensor:
    """Twelve bins of twenty tokens: (1, K, 2)."""
    starts = torch.arange(BINS) * 20
    return torch.stack([starts, starts + 20], dim=-1)[None]


def test_pooling_is_the_mean_and_the_maximum_of_each_range() -> None:
    torch.manual_seed(0)
    hidden = torch.randn(2, 30, 5, dtype=torch.float64)
    ranges = torch.tensor([[[0, 7], [7, 8], [3, 30]], [[1, 2], [2, 3], [0, 1]]])
    found = _pool_bins(hidden, ranges)
    for b in range(2):
        for k, (first, end) in enumerate(ranges[b].tolist()):
            part = hidden[b, first:end]
            torch.testing.assert_close(found[b, k], torch.cat([part.mean(0), part.amax(0)]))


def test_pooling_has_the_gradient_of_its_parts() -> None:
    torch.manual_seed(0)
    hidden = torch.randn(1, 12, 3, dtype=torch.float64, requires_grad=True)
    ranges = torch.tensor([[[0, 4], [2, 12]]])
    assert torch.autograd.gradcheck(lambda h: _pool_bins(h, ranges), (hidden,))


@pytest.mark.parametrize("bin_layers", [0, 1])
def test_far_tokens_reach_a_bin_through_bin_layers_alone(bin_layers: int) -> None:
    """Without random and global blocks and with one layer the encoder sees a few tokens around each."""
    torch.manual_seed(0)
    narrow = ENCODER.model_copy(update={"random_blocks": 0, "global_blocks": 0})
    network = ChromatinNetwork(narrow, 3, "bin", bin_layers).eval()
    ids = torch.randint(5, 20, (1, LENGTH))
    changed = ids.clone()
    changed[0, 25:35] = torch.randint(5, 20, (10,))  # in the second bin
    lengths = torch.tensor([LENGTH])
    with torch.inference_mode():
        one, other = (network(x, lengths, spans())[0] for x in (ids, changed))
    differs = (one - other).abs().amax(1) > 1e-6
    assert differs[1]
    assert differs[5:].all() if bin_layers else not differs[5:].any()


@pytest.mark.parametrize(("pooling", "width"), [("cls", 1), ("bin", 2)])
def test_a_linear_head_is_one_layer_on_the_pooled_vector(pooling: BinPooling, width: int) -> None:
    torch.manual_seed(0)
    network = ChromatinNetwork(ENCODER, 3, pooling, head="linear").eval()
    head = {name: value for name, value in network.state_dict().items() if not name.startswith("encoder.")}
    shapes = {"output.weight": (3, width * ENCODER.hidden), "output.bias": (3,)}
    assert {name: tuple(value.shape) for name, value in head.items()} == shapes
    ids, lengths = torch.randint(5, 20, (1, LENGTH)), torch.tensor([LENGTH])
    with torch.inference_mode():
        hidden = network.encoder(ids, lengths)
        pooled = hidden[:, :1] if pooling == "cls" else _pool_bins(hidden, spans())
        expected = pooled @ head["output.weight"].T + head["output.bias"]
        torch.testing.assert_close(network(ids, lengths, spans()), expected)


def test_bin_layers_know_distances() -> None:
    """One bin is unlike the others, which are alike: what they make of it tells how far away it is."""
    torch.manual_seed(0)
    layers = BinLayers(ENCODER, 1).eval()
    bins = torch.randn(16).repeat(1, 9, 1)
    bins[0, 2] = torch.randn(16)
    with torch.inference_mode():
        found = layers(bins)[0]
    assert (found[3] - found[8]).abs().max() > 1e-4


def test_bin_layers_take_nothing_of_the_encoder_s_sparse_attention() -> None:
    etc = ENCODER.model_copy(update={"num_global_tokens": 4, "relative_max_distance": 3})
    names = set(BinLayers(etc, 2).state_dict())
    assert names == set(BinLayers(ENCODER, 2).state_dict())
    assert not any("relative" in name for name in names)
