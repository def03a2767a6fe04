"""Rotary positions: scores depend on distances alone, and the encoder knows its tokens' order by them."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bigbird_dna.model import rotary
from bigbird_dna.model.encoder import Encoder
from bigbird_dna.model.rotary import Rotation, rotate, rotation, split_heads
from tests.golden.messages import fails
from tests.model.test_encoder import SMALL

ROTARY = SMALL.model_copy(update={"position": "rotary"})


def _at(turns: Rotation, position: int) -> Rotation:
    return Rotation(turns.cos[position, None], turns.sin[position, None])


def test_pairs_turn_like_complex_numbers() -> None:
    """Component f + i · component (f + K / 2), times exp(i p θ_f)."""
    x = torch.randn(2, 3, 7, 8, dtype=torch.float64)
    pairs = torch.complex(x[..., :4], x[..., 4:])
    rates = torch.tensor([100.0 ** (-2 * f / 8) for f in range(4)], dtype=torch.float64)
    angles = torch.arange(7)[:, None] / 2 * rates
    turned = pairs * torch.polar(torch.ones_like(angles), angles)
    expected = torch.cat([turned.real, turned.imag], dim=-1)
    torch.testing.assert_close(rotate(x, rotation(7, 8, 100.0, 2.0)), expected, atol=1e-6, rtol=0)


TURNS = rotation(131_072, 16, 10_000.0, 1.0)


@given(st.integers(0, 1000), st.integers(0, 1000), st.integers(0, 131_072 - 1001), st.integers(0))
def test_scores_depend_on_the_distance_alone(i: int, j: int, shift: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed % 2**63)
    q, k = torch.randn(2, 1, 1, 1, 16, generator=generator)
    here, there = ((rotate(q, _at(TURNS, i + s)) * rotate(k, _at(TURNS, j + s))).sum() for s in (0, shift))
    assert abs(here - there) < 2e-5 * q.norm() * k.norm()


def test_the_origin_stays_and_lengths_are_kept() -> None:
    x = torch.randn(1, 2, 300, 16)
    turned = rotate(x, rotation(300, 16, 10_000.0, 1.0))
    assert torch.equal(turned[:, :, 0], x[:, :, 0])
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1))
    assert (turned[:, :, 1:] - x[:, :, 1:]).abs().amax(dim=-1).min() > 1e-3


def test_bfloat16_is_turned_in_float32() -> None:
    """Position 60,001 is no bfloat16 number: angles or products in that type would be off by radians."""
    x = torch.randn(1, 1, 1, 16).bfloat16()
    turns = _at(TURNS, 60_001)
    turned = rotate(x, turns)
    assert turned.dtype == torch.bfloat16
    assert torch.equal(turned, rotate(x.float(), turns).bfloat16())


@pytest.mark.parametrize("position", ["learned", "rotary"])
def test_equal_stretches_look_equal_wherever_they_stand(position: str) -> None:
    """Blocks that see themselves alone: with rotary positions their states can't depend on their place."""
    alone = {"global_blocks": 0, "random_blocks": 0, "window_blocks": 1, "position": position}
    encoder = Encoder(SMALL.model_copy(update=alone)).eval()
    generator = torch.Generator().manual_seed(2)
    block = torch.randint(5, 40, (4,), generator=generator)
    with torch.inference_mode():
        states = encoder(block.repeat(24)[None])[0].view(24, 4, -1)
    assert torch.allclose(states[0], states[17], atol=1e-5) == (position == "rotary")
    # … but on the order within the block it does.
    with torch.inference_mode():
        turned = encoder(block.flip(0)[None])[0].flip(0)
    assert not torch.allclose(states[0], turned, atol=1e-3)


def test_there_is_no_table_and_the_limit_stands() -> None:
    encoder = Encoder(ROTARY)
    assert encoder.embeddings.position is None
    assert not any("position" in name for name in encoder.state_dict())
    with fails(ValueError):
        encoder(torch.zeros(1, 97, dtype=torch.long))


def test_wavelengths_run_from_two_pi_to_two_pi_times_the_base() -> None:
    turns = rotation(200, 64, 50.0, 1.0)
    slowest = math.acos(float(turns.cos[1, -1]))
    assert math.isclose(float(turns.sin[1, 0]), math.sin(1), rel_tol=1e-6)
    assert 1 / 50 < slowest < 1 / 40


def _apart(joined: torch.Tensor, heads: int, turns: Rotation | None) -> tuple[torch.Tensor, ...]:
    """What `split_heads` gives, part by part."""
    q, k, v = (part.unflatten(2, (heads, -1)).transpose(1, 2) for part in joined.chunk(3, dim=-1))
    return (q, k, v) if turns is None else (rotate(q, turns), rotate(k, turns), v)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("width", [2, 6, 16, 32, 64, 72])
@pytest.mark.parametrize("turned", [True, False])
def test_heads_are_split_and_turned_in_one_pass(
    compiled: bool, width: int, turned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not compiled:
        monkeypatch.setattr(rotary, "pointwise", lambda *_: None)
    heads, tokens = 3, 131
    generator = torch.Generator().manual_seed(width)
    exact = torch.randn(2, tokens, 3 * heads * width, generator=generator, dtype=torch.float64)
    turns = rotation(tokens, width, 100.0, 1.0) if turned else None
    for dtype, result, tolerance in (
        (torch.float64, torch.float64, 1e-12),
        (torch.float32, torch.float32, 2e-6),
        (torch.bfloat16, torch.float32, 2e-6),
        (torch.bfloat16, torch.bfloat16, 1e-2),
    ):
        joined = exact.to(dtype).requires_grad_()
        wide = joined.detach().double().requires_grad_()
        found, expected = split_heads(joined, heads, turns, result), _apart(wide, heads, turns)
        uppers = [torch.randn(part.shape, generator=generator).to(result) for part in expected]
        (slope,) = torch.autograd.grad(found, joined, uppers)
        (exact_slope,) = torch.autograd.grad(expected, wide, [upper.double() for upper in uppers])
        with torch.inference_mode():
            inferred = split_heads(joined.detach().clone(), heads, turns, result)
        for one, other, third in zip(found, inferred, expected, strict=True):
            assert one.dtype == result
            torch.testing.assert_close(one.double(), third, atol=tolerance, rtol=tolerance)
            torch.testing.assert_close(other.double(), third, atol=tolerance, rtol=tolerance)
        rounding = tolerance if dtype == result else 1e-2
        torch.testing.assert_close(slope.double(), exact_slope, atol=rounding, rtol=rounding)


def test_gradients_of_turned_heads() -> None:
    joined = torch.randn(1, 5, 24, dtype=torch.float64, requires_grad=True)
    turns = rotation(5, 4, 50.0, 1.0)
    assert torch.autograd.gradcheck(lambda x: split_heads(x, 2, turns, torch.float64), joined)
    # Gradients that came as views of one number, as from a sum.
    split_heads(joined.float(), 2, turns, torch.float32)[0].sum().backward()
    expected = torch.autograd.grad(_apart(joined, 2, turns)[0].sum(), joined)[0]
    torch.testing.assert_close(joined.grad, expected, atol=1e-6, rtol=1e-6)
