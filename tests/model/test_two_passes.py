"""Two forward passes before one backward pass, as of a loss on pairs: gradients are those of both alone."""

from typing import Any

import pytest
import torch

from bigbird_dna.config import EncoderConfig
from bigbird_dna.model.encoder import Encoder
from tests.toys import uneven_loss

FIRST, SECOND = torch.randint(5, 40, (2, 2, 50), generator=torch.Generator().manual_seed(0))
CLUSTERS = {"clusters": 4, "span": 8, "decay": 0.5}
OPTIONS: dict[str, dict[str, Any]] = {
    "performer": {"features": 16, "redraw": 1},
    "reformer": {"buckets": 4, "chunk": 8, "redraw": 1},
    "routing": CLUSTERS,
    "combiner_routing": CLUSTERS,
    "axial": {"columns": 8},
}


def gradients(together: bool, **settings: Any) -> torch.Tensor:
    torch.manual_seed(0)
    sizes = {"vocabulary": 40, "layers": 2, "hidden": 16, "heads": 2, "positions": 64, "dropout": 0.0}
    encoder = Encoder(EncoderConfig(**{**sizes, **settings})).double().train()
    for ids in () if together else (FIRST, SECOND):
        uneven_loss(encoder(ids)).backward()
    if together:
        (uneven_loss(encoder(FIRST)) + uneven_loss(encoder(SECOND))).backward()
    return torch.cat([x.grad.flatten() for x in encoder.parameters() if x.grad is not None])


@pytest.mark.parametrize("kind", [{}, {"gradient_checkpointing": True}, {"reversible": True}], ids=str)
@pytest.mark.parametrize("name", sorted(OPTIONS))
def test_gradients_are_those_of_the_passes_alone(name: str, kind: dict[str, bool]) -> None:
    settings = {"attention": name, "attention_options": OPTIONS[name], **kind}
    torch.testing.assert_close(
        gradients(True, **settings), gradients(False, **settings), rtol=1e-9, atol=1e-9
    )


def test_a_pass_is_differentiated_twice() -> None:
    """What was chosen serves every further computation of a layer."""
    settings = {"attention": "reformer", "attention_options": OPTIONS["reformer"]}
    torch.manual_seed(0)
    sizes = {"vocabulary": 40, "layers": 2, "hidden": 16, "heads": 2, "positions": 64, "dropout": 0.0}
    encoder = Encoder(EncoderConfig(**sizes, **settings, gradient_checkpointing=True)).double().train()
    loss = uneven_loss(encoder(FIRST))
    weight = encoder.layers[0].value.weight
    (once,) = torch.autograd.grad(loss, weight, retain_graph=True)
    encoder(SECOND)
    (twice,) = torch.autograd.grad(loss, weight)
    assert torch.equal(once, twice)
