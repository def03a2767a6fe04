"""Heads of fresh weights that look at neighbouring tokens, and the convolution in front of the layers."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bigbird_dna.config import EncoderConfig, parse_config
from bigbird_dna.errors import ConfigError
from bigbird_dna.model.encoder import Encoder, Layer
from bigbird_dna.model.input_embeddings import initial_deviation
from bigbird_dna.model.rotary import rotate
from bigbird_dna.model.weight_init import MARGIN, offsets
from tests.golden.messages import fails

LENGTH = 160
SHAPES = [(64, 4), (128, 4), (256, 8), (768, 12)]


def made(position: str, hidden: int, heads: int, **changes: object) -> Encoder:
    torch.manual_seed(0)
    values = {"vocabulary": 256, "layers": 2, "positions": 256, "position": position, "dropout": 0.0}
    return Encoder(EncoderConfig(**values | {"hidden": hidden, "heads": heads} | changes)).eval()


def logits(encoder: Encoder, layer: int) -> torch.Tensor:
    """Of a layer's heads for random tokens, (H, L, L): what attention's softmax is taken of."""
    ids = torch.randint(5, 256, (1, LENGTH), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        x, turns = encoder.embeddings(ids, None), None
        turns = encoder._turns(x)
        for before in list(encoder.layers)[:layer]:
            x = before(x, None, turns)
        own = encoder.layers[layer]
        assert isinstance(own, Layer)
        q, k = own._split(own.query(x)), own._split(own.key(x))
        if turns is not None:
            q, k = rotate(q, turns), rotate(k, turns)
        return (q @ k.mT)[0] / q.shape[-1] ** 0.5


def watched(found: torch.Tensor) -> list[int]:
    """The offset at which each head's logits are largest, as most rows away from the ends have it."""
    middle = torch.arange(LENGTH // 4, LENGTH - LENGTH // 4)
    return (found[:, middle].argmax(-1) - middle).mode(-1).values.tolist()


@given(st.integers(1, 16))
def test_offsets_are_all_different_and_the_nearest(heads: int) -> None:
    found = offsets(heads)
    assert found == sorted(found, key=lambda offset: (abs(offset), offset))
    assert len(set(found)) == heads and 0 not in found
    assert max(map(abs, found)) == -(-heads // 2)


@pytest.mark.parametrize(("hidden", "heads"), SHAPES)
def test_rotary_heads_begin_at_their_offsets(hidden: int, heads: int) -> None:
    for base in (1000.0, 10_000.0):
        encoder = made("rotary", hidden, heads, rotary_base=base)
        assert watched(logits(encoder, 0)) == offsets(heads)
        assert watched(logits(encoder, 1)) != offsets(heads)


@pytest.mark.parametrize("position", ["learned", "rotary"])
def test_an_only_layer_begins_as_it_would_without(position: str) -> None:
    """Its heads must gather from everywhere what [CLS] tells."""
    one, other = (made(position, 64, 4, layers=1, head_init=start) for start in ("neighbours", "random"))
    for ours, theirs in zip(one.parameters(), other.parameters(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize(("hidden", "heads"), SHAPES)
def test_heads_of_learnt_positions_begin_at_their_offsets(hidden: int, heads: int) -> None:
    assert watched(logits(made("learned", hidden, heads), 0)) == offsets(heads)


@pytest.mark.parametrize("position", ["learned", "rotary"])
def test_random_heads_watch_nothing(position: str) -> None:
    found = logits(made(position, 128, 4, head_init="random"), 0)
    assert watched(found) != offsets(4)
    assert found.std() < 1


@pytest.mark.parametrize(("hidden", "heads"), [(128, 4), (256, 8), (768, 12)])
@pytest.mark.parametrize("position", ["learned", "rotary"])
def test_the_margin_is_that_above_the_places_beside(position: str, hidden: int, heads: int) -> None:
    """Whatever the heads' width: exactly so without the random weights, about so where tokens scale it."""
    encoder, tolerance = made(position, hidden, heads), 0.2
    if position == "rotary":
        tolerance = 1e-4
        with torch.no_grad():
            for part in (encoder.layers[0].query, encoder.layers[0].key):
                part.weight.zero_()
    found = logits(encoder, 0).double().numpy()
    middle = np.arange(20, LENGTH - 20)
    for head, offset in zip(found, offsets(heads), strict=True):
        best, *beside = (head[middle, middle + offset + aside].mean() for aside in (0, -1, 1))
        for value in beside:
            assert best - value == pytest.approx(MARGIN, rel=tolerance)


def test_the_other_weights_are_as_they_were() -> None:
    for position, changed in (("learned", 3), ("rotary", 2)):
        neighbours, random = made(position, 128, 4), made(position, 128, 4, head_init="random")
        pairs = zip(neighbours.named_parameters(), random.parameters(), strict=True)
        different = [name for (name, one), other in pairs if not torch.equal(one, other)]
        assert len(different) == changed, different
    token = made("learned", 128, 4).embeddings.token.weight
    cleared = (token == 0).all(0)
    assert cleared.sum() == 32
    assert token[:, ~cleared].std().item() == pytest.approx(initial_deviation(128), rel=0.05)


def test_a_convolution_is_its_definition_and_doesn_t_see_padding() -> None:
    encoder = made("rotary", 16, 2, convolution=5, block_size=4)
    convolution = encoder.embeddings.convolution
    assert convolution is not None
    x = torch.randn(2, 9, 16)
    with torch.inference_mode():
        got = convolution(x, torch.tensor([9, 6]))
        for row, length in ((0, 9), (1, 6)):
            for place in range(length):
                expected = sum(
                    x[row, place + aside] * convolution.weight[aside + 2]
                    for aside in range(-2, 3)
                    if 0 <= place + aside < length
                )
                torch.testing.assert_close(got[row, place], expected)
        ids = torch.randint(5, 256, (2, 60))
        together = encoder(ids, torch.tensor([60, 41]))
        alone = encoder(ids[1:, :41], torch.tensor([41]))
        torch.testing.assert_close(together[1, :41], alone[0], atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"convolution": 4}, "convolution must be odd"),
        ({"compatibility": "huggingface", "convolution": 5}, "needs learned positions and no convolution"),
        ({"head_init": "neighbors"}, "head_init"),
    ],
)
def test_wrong_settings_are_refused(values: dict[str, object], text: str) -> None:
    with fails(ConfigError):
        parse_config({"encoder": values})
