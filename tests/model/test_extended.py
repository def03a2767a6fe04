"""The encoder with ETC's extra global tokens and relative positions."""

import pytest
import torch

from bigbird_dna.attention.relative import token_owners
from bigbird_dna.config import EncoderConfig
from bigbird_dna.model.encoder import Encoder

SMALL = {
    "vocabulary": 20,
    "layers": 1,
    "hidden": 16,
    "heads": 2,
    "positions": 200,
    "block_size": 8,
    "global_blocks": 0,
    "random_blocks": 0,
}


def made(**changes: object) -> Encoder:
    torch.manual_seed(0)
    return Encoder(EncoderConfig(**SMALL | changes)).double().eval()


@pytest.mark.parametrize("position", ["learned", "rotary"])
@pytest.mark.parametrize(("extra", "radius"), [(5, 0), (5, 3), (0, 3), (8, 1)])
def test_a_row_depends_on_neither_padding_nor_company(extra: int, radius: int, position: str) -> None:
    encoder = made(num_global_tokens=extra, relative_max_distance=radius, position=position)
    ids = torch.randint(0, 20, (2, 150))
    with torch.no_grad():
        together = encoder(ids, torch.tensor([150, 90]))
        alone = encoder(ids[1:, :90])
    assert together.shape == (2, 150, 16)
    torch.testing.assert_close(together[1:, :90], alone, rtol=0, atol=1e-12)


@pytest.mark.parametrize("radius", [0, 2])
def test_extra_globals_carry_a_change_across_the_sequence_in_two_layers(radius: int) -> None:
    """With a window alone a change moves by a block a layer; by a global token it gets everywhere."""
    ids = torch.randint(0, 20, (1, 150))
    other = ids.clone()
    other[0, 3] = (other[0, 3] + 1) % 20
    reached = {}
    for extra in (0, 4):
        encoder = made(layers=2, num_global_tokens=extra, relative_max_distance=radius)
        with torch.no_grad():
            reached[extra] = (encoder(ids) != encoder(other)).any(dim=2)[0]
    assert reached[4].all()
    assert not reached[0][40:].any()


def test_everything_that_is_learnt_gets_a_gradient() -> None:
    encoder = made(layers=2, num_global_tokens=4, relative_max_distance=2)
    out = encoder(torch.randint(0, 20, (2, 100)), torch.tensor([100, 77]))
    (out * torch.randn_like(out)).sum().backward()
    assert all(x.grad is not None for x in encoder.parameters())
    relative = encoder.layers[0].relative.grad
    assert (relative.abs().sum(dim=2) > 0).all(), "each label occurs"


def test_a_sequence_is_divided_evenly_among_its_globals() -> None:
    owners = token_owners(torch.tensor([8, 5]), 2, 8, 2)
    assert owners.tolist() == [[-1, -1, 0, 0, 0, 0, 1, 1, 1, 1], [-1, -1, 0, 0, 0, 1, 1, -1, -1, -1]]
