"""Matrix products, dropout, and gradients of layers that are computed again."""

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from bigbird_dna.config.mechanisms import known_mechanisms
from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.model import kernels
from bigbird_dna.model.encoder import Encoder
from bigbird_dna.model.kernels import Dropout
from tests.attention.reference_implementations import SMALL as SIZES
from tests.attention.reference_implementations import quick
from tests.toys import small_encoder, uneven_loss

NAMES = ["bigbird", "full", *sorted(known_mechanisms())]
IDS, LENGTHS = (
    torch.randint(5, 40, (2, 50), generator=torch.Generator().manual_seed(0)),
    torch.tensor([50, 31]),
)


def config(attention: str = "bigbird", **changes: Any) -> EncoderConfig:
    """A small encoder's, with small sizes for its mechanism."""
    options = {**SIZES, "combiner_routing": SIZES["routing"]}.get(attention, {})
    changes = {"attention": attention, "attention_options": options, **changes}
    return small_encoder(**{"layers": 3, **changes})


def drops(name: str) -> bool:
    return name not in known_mechanisms() or known_mechanisms()[name].drops


def assert_same(
    mine: list[Tensor | None], theirs: list[Tensor | None], **tolerance: float
) -> None:
    for one, other in zip(mine, theirs, strict=True):
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            torch.testing.assert_close(one, other, **tolerance)
    assert sum(one is not None and one.abs().max() > 1e-2 for one in mine) > 10, (
        "a constant has none"
    )


def gradients(encoder: Encoder, passes: int = 2) -> list[Tensor | None]:
    """Of all parameters, after some passes in training, and the output in front."""
    torch.manual_seed(3)
    for _ in range(passes):
        encoder.zero_grad()
        out = encoder(IDS, LENGTHS)
        uneven_loss(out[0]).add(uneven_loss(out[1, :31])).backward()
    return [out.detach()[1, :31], *(p.grad for p in encoder.parameters())]


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("position", ["learned", "rotary"])
@pytest.mark.parametrize(
    "name", quick(NAMES, "bigbird", "combiner_routing", "performer", "reformer")
)
def test_gradient_checkpointing_changes_no_gradient(
    name: str, position: str, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dropout draws the same numbers again in a layer that is recomputed; what selects keys may change
    between the passes, never within one."""
    if not compiled:
        monkeypatch.setattr(kernels, "pointwise", lambda *_: None)
    results = []
    for again in (False, True):
        torch.manual_seed(0)
        own = {
            "dropout": 0.2,
            "attention_dropout": 0.1 * drops(name),
            "position_encoding": position,
        }
        encoder = Encoder(config(name, gradient_checkpointing=again, **own)).train()
        results.append([*gradients(encoder), *encoder.buffers()])
    assert_same(*results)


needs_kernel = pytest.mark.skipif(
    kernels.pointwise(torch.zeros(1)) is None, reason="needs a C++ compiler"
)

# Dropout: its rate, its mean, what seeds it, and that gradients pass where values did


@pytest.fixture(params=["compiled", "torch"])
def kernel(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """Both ways of computing it: by the compiled kernel where there is one, and by torch."""
    if request.param == "torch":
        monkeypatch.setattr(kernels, "pointwise", lambda *_: None)
    return request.param


def dropped(
    x: Tensor, probability: float, seed: int = 0, residual: Tensor | None = None
) -> Tensor:
    torch.manual_seed(seed)
    return Dropout(probability)(x, residual)


@needs_kernel
@pytest.mark.parametrize("probability", [0.01, 0.1, 0.5, 0.93])
def test_rate_and_mean(probability: float) -> None:
    count = 400_003
    out = dropped(torch.ones(count), probability)
    rate = (out == 0).double().mean().item()
    assert (
        abs(rate - probability)
        < 5 * math.sqrt(probability * (1 - probability) / count) + 2**-17
    )
    kept = out[out != 0]
    assert len(kept.unique()) == 1
    # What is kept times the exact probability of being kept is 1.
    assert kept[0] * (65536 - round(probability * 65536)) / 65536 == pytest.approx(
        1, rel=1e-6
    )


def test_elements_are_independent() -> None:
    """The four elements of a draw, too: no lag is correlated beyond chance."""
    kept = (dropped(torch.ones(1 << 20), 0.3) != 0).double() - 0.7
    for lag in (1, 2, 3, 4, 8, 1024):
        correlation = (kept[lag:] * kept[:-lag]).mean() / 0.21
        assert abs(correlation) < 5 / 1024


def test_every_level_is_drawn() -> None:
    torch.manual_seed(0)
    counts = (kernels.draw_lanes(1 << 22).int() + 32768).bincount(minlength=65536)
    assert len(counts) == 65536
    chi_square = ((counts - 64.0).square() / 64).sum()
    assert abs(chi_square - 65535) < 5 * math.sqrt(2 * 65535)


def test_the_seed_alone_decides(kernel: str) -> None:
    x = torch.randn(7, 33)
    assert torch.equal(dropped(x, 0.4, 5), dropped(x, 0.4, 5))
    assert not torch.equal(dropped(x, 0.4, 5), dropped(x, 0.4, 6))
    torch.manual_seed(5)
    state = torch.get_rng_state()
    layer = Dropout(0.4)
    first, second = layer(x), layer(x)
    assert not torch.equal(first, second)
    torch.set_rng_state(state)
    assert torch.equal(layer(x), first)


@needs_kernel
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_values_and_gradients_pass_the_same_places(dtype: torch.dtype) -> None:
    x = torch.randn(5, 1003).to(dtype).requires_grad_()
    residual = torch.randn(5, 1003, requires_grad=True)
    scale = 65536 / (65536 - round(0.25 * 65536))
    mask = (dropped(torch.ones_like(x), 0.25) != 0).double() * scale
    for given in (None, residual):
        out = dropped(x, 0.25, residual=given)
        assert out.dtype == (
            dtype if given is None else torch.promote_types(dtype, torch.float32)
        )
        expected = x.double() * mask + (0 if given is None else given)
        torch.testing.assert_close(out, expected.to(out.dtype))
        upper = (
            torch.randn_like(out).T.contiguous().T
        )  # as it may come, in another order of memory
        grads = torch.autograd.grad(out, [x] if given is None else [x, given], upper)
        torch.testing.assert_close(grads[0], (upper.double() * mask).to(dtype))
        if given is not None:
            assert torch.equal(grads[1], upper.to(given.dtype))


def test_nothing_is_dropped_or_drawn_outside_training(kernel: str) -> None:
    x, residual = torch.randn(2, 4, 5)
    torch.manual_seed(0)
    state = torch.get_rng_state()
    for layer in (Dropout(0.5).eval(), Dropout(0.0)):
        assert torch.equal(layer(x), x)
        assert torch.equal(layer(x, residual), residual + x)
    assert torch.equal(torch.get_rng_state(), state)


# ---- matrix products -------------------------------------------------------------------------------------


@pytest.fixture(params=[False, True])
def other_product(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch's usual product, and the other one that it contains."""
    monkeypatch.setattr(kernels, "mkl_is_slow", lambda: request.param)
    monkeypatch.setattr(kernels, "LEAST_WEIGHTS", 1)


@pytest.mark.usefixtures("other_product")
@pytest.mark.parametrize("shape", [(7,), (1, 7), (3, 5, 7), (0, 7), (2, 300, 7)])
def test_products_equal_those_in_double(shape: tuple[int, ...]) -> None:
    layer = kernels.Linear(7, 11)
    x = torch.randn(shape)
    gaps = torch.stack([x, x], dim=-1)[..., 0]
    with torch.no_grad():
        expected = F.linear(x.double(), layer.weight.double(), layer.bias.double())
        for given in (x, gaps):
            torch.testing.assert_close(
                layer(given).double(), expected, rtol=1e-5, atol=1e-5
            )
        bare = kernels.linear(x, layer.weight, None).double()
        torch.testing.assert_close(
            bare, expected - layer.bias.double(), rtol=1e-5, atol=1e-5
        )
    with torch.inference_mode():
        torch.testing.assert_close(layer(x).double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("inputs", "outputs"), [(128, 512), (768, 96), (1536, 64)])
def test_a_row_is_independent_of_the_others(
    inputs: int, outputs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By oneDNN, from 8 rows on, the least that models multiply."""
    monkeypatch.setattr(kernels, "mkl_is_slow", lambda: True)
    layer, x = kernels.Linear(inputs, outputs), torch.randn(700, inputs)
    with torch.no_grad():
        whole = layer(x)
        for rows in (8, 9, 31, 64, 100, 333, 512):
            assert torch.equal(layer(x[:rows]), whole[:rows])


@pytest.mark.usefixtures("other_product")
@pytest.mark.parametrize("shape", [(50, 70), (1, 70), (3, 9, 70)])
@pytest.mark.parametrize(
    "wants", [(True, True, True), (False, True, True), (True, False, False)]
)
def test_gradients_of_products_equal_those_in_double(
    shape: tuple[int, ...], wants: tuple[bool, bool, bool]
) -> None:
    made = [torch.randn(size) for size in (shape, (30, 70), (30,))]
    upper = torch.randn(30).expand(*shape[:-1], 30)  # as the gradient of a sum

    def gradients(dtype: torch.dtype) -> list[Tensor]:
        leaves = [
            x.to(dtype).requires_grad_(want)
            for x, want in zip(made, wants, strict=True)
        ]
        wanted = [x for x in leaves if x.requires_grad]
        return list(
            torch.autograd.grad(kernels.linear(*leaves), wanted, upper.to(dtype))
        )

    for one, other in zip(
        gradients(torch.float32), gradients(torch.float64), strict=True
    ):
        torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=1e-4)


@pytest.mark.usefixtures("other_product")
def test_narrow_types_use_the_usual_product() -> None:
    layer, x = kernels.Linear(70, 30), torch.randn(50, 70)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer(x).dtype == torch.bfloat16
    assert layer.double()(x.double()).dtype == torch.float64
