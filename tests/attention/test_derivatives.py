"""Derivatives other than a backward pass: forward-mode, transforms of torch.func, and second derivatives."""

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

from bigbird_dna.attention import (
    Pattern,
    RelativeKeys,
    bigbird_attention,
    full_attention,
    label_count,
)
from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.model.encoder import Encoder

# torch.func imports it.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")

PATTERN = Pattern(block_size=8, random_blocks=1)
LENGTHS = [128, 101]
SHAPE = (2, 100, 32)  # of what is added to embeddings
Attend = Callable[[Tensor], Tensor]


def attention(route: str) -> Attend:
    """Attention as a function of q, (2, 2, 128, 8), of two rows with different numbers of blocks."""
    k, v, table = drawn(2), drawn(3), drawn(4, (2, label_count(4), 8))
    options: dict[str, Any] = {"lengths": LENGTHS}
    if route == "full":
        return lambda q: full_attention(q, k, v, **options)
    if route == "masked":
        short = Pattern(block_size=32, random_blocks=1)
        return lambda q: bigbird_attention(q, k, v, short, **options)
    if route == "relative":
        relative = RelativeKeys(table, 4)
        return lambda q: bigbird_attention(
            q, k, v, PATTERN, relative=relative, **options
        )
    if route == "causal":
        causal = Pattern(block_size=8, random_blocks=1, causal=True)
        return lambda q: bigbird_attention(q, k, v, causal, **options)
    return lambda q: bigbird_attention(q, k, v, PATTERN, route=route, **options)  # type: ignore[arg-type]


def drawn(seed: int, shape: tuple[int, ...] = (2, 2, 128, 8)) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """A requested route that does not serve a transformed call gives way with a warning."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="route (native|flex)")
        yield


@pytest.mark.parametrize(
    "route",
    [
        "dense",
        "blocked",
        "native",
        pytest.param("flex", marks=pytest.mark.slow),  # compiles a kernel
        "auto",
        "full",
        "masked",
        "relative",
        "causal",
    ],
)
def test_attention_has_all_derivatives(
    route: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The derivative along a direction is that of differences of values, and of the gradient."""
    if route == "masked":  # for short sequences without the compiled kernel
        monkeypatch.setenv("BIGBIRD_DNA_NATIVE", "0")
    attend, q, along, weights = attention(route), drawn(1), drawn(5), 10 * drawn(6)
    step = 1e-2
    expected = (
        weights * (attend(q + step * along) - attend(q - step * along)) / (2 * step)
    ).sum()
    assert expected.abs() > 0.2

    def loss(q: Tensor) -> Tensor:
        return (weights * attend(q)).sum()

    for context in (torch.enable_grad(), torch.no_grad()):
        with context:
            assert (torch.func.jvp(loss, (q,), (along,))[1] - expected).abs() < 2e-2
            with forward_ad.dual_level():
                found = forward_ad.unpack_dual(
                    loss(forward_ad.make_dual(q.clone(), along.clone()))
                ).tangent
            assert (found - expected).abs() < 2e-2
    gradient = torch.func.grad(loss)(q)
    assert ((gradient * along).sum() - expected).abs() < 2e-2
    both = torch.stack([q, along])
    values = torch.func.vmap(attend)(both)
    for value, one in zip(values, both, strict=True):
        assert (value - attend(one)).abs().max() < 1e-5

    # Second derivatives: by forward mode over the gradient, and by differentiating the gradient again.
    x = q.clone().requires_grad_()
    forward = torch.func.jvp(torch.func.grad(loss), (q,), (along,))[1]
    (slope,) = torch.autograd.grad(loss(x), x, create_graph=True)
    assert (slope - gradient).abs().max() < 1e-4
    if route == "masked":  # torch's own kernel
        with pytest.raises(RuntimeError, match="not implemented"):
            torch.autograd.grad((slope * along).sum(), x)
        return
    (second,) = torch.autograd.grad((slope * along).sum(), x)
    assert forward.abs().max() > 0.1 and (second - forward).abs().max() < 1e-3


ENCODERS: dict[str, dict[str, Any]] = {
    "bigbird": {"attention": "bigbird"},
    "rotary": {
        "attention": "bigbird",
        "position_encoding": "rotary",
        "gradient_checkpointing": True,
    },
    "full": {"attention": "full"},
    "gated": {"norm": "pre", "feed_forward": "gated"},
    "global tokens": {
        "attention": "bigbird_etc",
        "num_global_tokens": 3,
        "relative_max_distance": 4,
    },
    "reversible": {"attention": "bigbird", "reversible": True},
    "longformer": {"attention": "longformer"},
    "performer": {"attention": "performer"},
    "reformer": {"attention": "reformer"},
    "combiner": {"attention": "combiner_fixed"},
    "axial": {"attention": "axial"},
    "logsparse": {"attention": "logsparse"},
    "routing": {"attention": "routing"},
}


def encoder_of(name: str, **options: Any) -> Encoder:
    torch.manual_seed(0)
    sizes = {
        "vocabulary": 32,
        "layers": 2,
        "hidden": 32,
        "heads": 2,
        "max_length": 128,
        "block_size": 8,
    }
    return Encoder(EncoderConfig(**{**sizes, **options, **ENCODERS[name]}))


def encoder_loss(encoder: Encoder) -> Callable[..., Tensor]:
    """A function of vectors (2, 100, 32) that are added to the embeddings."""
    generator = torch.Generator().manual_seed(2)
    ids, weights = torch.randint(5, 32, (2, 100), generator=generator), drawn(6, SHAPE)

    def loss(added: Tensor, of: dict[str, Tensor] | None = None) -> Tensor:
        torch.manual_seed(1)  # of dropout
        found = torch.func.functional_call(encoder, of or {}, (ids,), {"added": added})
        return (weights * found).sum() / 10

    return loss


@pytest.mark.parametrize("name", ENCODERS)
def test_encoders_have_all_derivatives(name: str) -> None:
    """Of their inputs and of their weights: forward-mode agrees with a backward pass."""
    encoder = encoder_of(name).eval()
    loss = encoder_loss(encoder)
    added, along = drawn(1, SHAPE), drawn(5, SHAPE)
    x = added.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(x), x)
    wanted = (gradient * along).sum()
    assert wanted.abs() > 0.01
    for context in (torch.enable_grad(), torch.no_grad()):
        with context:
            assert (torch.func.jvp(loss, (added,), (along,))[1] - wanted).abs() < 1e-3
    assert (torch.func.grad(loss)(added) - gradient).abs().max() < 1e-4

    weights = {key: value.detach() for key, value in encoder.named_parameters()}
    encoder.zero_grad()
    loss(added).backward()
    slopes = [one.grad.sum() for one in encoder.parameters() if one.grad is not None]
    assert len(slopes) > 20

    def of_weights(weights: dict[str, Tensor]) -> Tensor:
        return loss(added, weights)

    ones = {key: torch.ones_like(value) for key, value in weights.items()}
    found = torch.func.jvp(of_weights, (weights,), (ones,))[1]
    assert (found - torch.stack(slopes).sum()).abs() < 1e-2

    forward = torch.func.jvp(torch.func.grad(loss), (added,), (along,))[1]
    assert forward.abs().max() > 1e-3
    if name == "reversible":
        with pytest.raises(
            RuntimeError, match="reversible layers have no second derivatives"
        ):
            torch.autograd.grad(loss(x), x, create_graph=True)
        return
    (slope,) = torch.autograd.grad(loss(x), x, create_graph=True)
    (second,) = torch.autograd.grad((slope * along).sum(), x)
    assert (second - forward).abs().max() < 1e-4


@pytest.mark.parametrize("name", ["rotary", "global tokens"])
def test_second_derivatives_pass_dropout(name: str) -> None:
    """They are differences of gradients with the same random numbers."""
    encoder = encoder_of(name, dropout=0.2).train()
    loss = encoder_loss(encoder)
    added, along = drawn(1, SHAPE), drawn(5, SHAPE)

    def slope(x: Tensor, **options: bool) -> tuple[Tensor, Tensor]:
        x = x.clone().requires_grad_()
        return torch.autograd.grad(loss(x), x, **options)[0], x

    step = 1e-2
    wanted = (slope(added + step * along)[0] - slope(added - step * along)[0]) / (
        2 * step
    )
    first, x = slope(added, create_graph=True)
    (second,) = torch.autograd.grad((first * along).sum(), x)
    assert (second - wanted).abs().max() < 0.02 * wanted.abs().max()
