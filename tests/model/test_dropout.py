"""Dropout: its rate, its mean, what seeds it, and that gradients pass where values did."""

import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from bigbird_dna.model import kernels as module
from bigbird_dna.model.kernels import Dropout


@pytest.fixture(params=["compiled", "torch"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Both ways of computing it: by the compiled kernel where there is one, and by torch."""
    if request.param == "torch":
        monkeypatch.setattr(module, "pointwise", lambda *_: None)
    return request.param


def dropped(x: Tensor, probability: float, seed: int = 0, residual: Tensor | None = None) -> Tensor:
    torch.manual_seed(seed)
    return Dropout(probability)(x, residual)


@pytest.mark.parametrize("probability", [0.01, 0.1, 0.5, 0.93])
def test_rate_and_mean(kernel: str, probability: float) -> None:
    count = 400_003
    out = dropped(torch.ones(count), probability)
    rate = (out == 0).double().mean().item()
    assert abs(rate - probability) < 5 * math.sqrt(probability * (1 - probability) / count) + 2**-17
    kept = out[out != 0]
    assert len(kept.unique()) == 1
    # What is kept times the exact probability of being kept is 1.
    assert kept[0] * (65536 - round(probability * 65536)) / 65536 == pytest.approx(1, rel=1e-6)


def test_elements_are_independent() -> None:
    """The four elements of a draw, too: no lag is correlated beyond chance."""
    kept = (dropped(torch.ones(1 << 20), 0.3) != 0).double() - 0.7
    for lag in (1, 2, 3, 4, 8, 1024):
        correlation = (kept[lag:] * kept[:-lag]).mean() / 0.21
        assert abs(correlation) < 5 / 1024


def test_every_level_is_drawn() -> None:
    torch.manual_seed(0)
    counts = (module.draw_lanes(1 << 22).int() + 32768).bincount(minlength=65536)
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


def test_the_kernel_drops_what_torch_drops(monkeypatch: pytest.MonkeyPatch) -> None:
    x, residual = torch.randn(2, 301, 17)
    fast = dropped(x, 0.2), dropped(x, 0.2, residual=residual)
    monkeypatch.setattr(module, "pointwise", lambda *_: None)
    slow = dropped(x, 0.2), dropped(x, 0.2, residual=residual)
    for one, other in zip(fast, slow, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_values_and_gradients_pass_the_same_places(kernel: str, dtype: torch.dtype) -> None:
    x = torch.randn(5, 1003).to(dtype).requires_grad_()
    residual = torch.randn(5, 1003, requires_grad=True)
    scale = 65536 / (65536 - round(0.25 * 65536))
    mask = (dropped(torch.ones_like(x), 0.25) != 0).double() * scale
    for given in (None, residual):
        out = dropped(x, 0.25, residual=given)
        assert out.dtype == (dtype if given is None else torch.promote_types(dtype, torch.float32))
        expected = x.double() * mask + (0 if given is None else given)
        torch.testing.assert_close(out, expected.to(out.dtype))
        upper = torch.randn_like(out).T.contiguous().T  # as it may come, in another order of memory
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
