"""Extended positions: what each method promises, for networks in memory and for model directories."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bigbird_dna.errors import ModelError
from bigbird_dna.model import input_embeddings
from bigbird_dna.model.directory import extend_positions
from bigbird_dna.model.encoder import Encoder, Layer
from bigbird_dna.model.input_embeddings import (
    MARGIN,
    Rotation,
    initial_deviation,
    offsets,
    rotate,
    rotation,
    split_heads,
)
from tests.golden.messages import fails
from tests.model.test_encoder import SMALL
from tests.toys import small_encoder, uneven_loss

IDS = torch.randint(5, 40, (2, 96), generator=torch.Generator().manual_seed(1))


def _encoder(**changes: object) -> Encoder:
    torch.manual_seed(0)
    return Encoder(SMALL.model_copy(update=changes)).eval()


def test_tiling_changes_nothing_for_what_was_short_enough() -> None:
    encoder = _encoder()
    with torch.inference_mode():
        before = encoder(IDS)
        extend_positions(encoder, 250)
        assert torch.equal(encoder(IDS), before)
        table = encoder.embeddings.position.weight
        assert torch.equal(table, table[torch.arange(250) % 96])
        assert encoder(IDS.repeat(1, 3)[:, :250]).isfinite().all()
    assert encoder.config.max_length == 250
    with fails(ValueError):
        encoder(torch.zeros(1, 251, dtype=torch.long))


def test_an_extended_table_is_trained_like_any_other() -> None:
    encoder = _encoder()
    state = torch.random.get_rng_state()
    extend_positions(encoder, 200)
    assert torch.equal(torch.random.get_rng_state(), state)
    uneven_loss(encoder(IDS.repeat(1, 2))).backward()
    table = dict(encoder.named_parameters())["embeddings.position.weight"]
    assert table.shape == (200, 16) and table.grad is not None
    assert table.grad[:192].abs().sum(dim=1).min() > 1e-4 and not table.grad[192:].any()


@pytest.mark.parametrize("position", ["learned", "rotary"])
def test_fewer_positions_are_refused(position: str) -> None:
    encoder = _encoder(position_encoding=position)
    with fails(ModelError):
        extend_positions(encoder, 95)
    extend_positions(encoder, 200)
    assert encoder.config.max_length == 200


# Rotary positions, and heads that are initialized to attend to adjacent tokens


def _at(turns: Rotation, position: int) -> Rotation:
    return Rotation(turns.cos[position, None], turns.sin[position, None])


def test_pairs_turn_like_complex_numbers() -> None:
    """Component f + i · component (f + K / 2), times exp(i p θ_f)."""
    x = torch.randn(2, 3, 7, 8, dtype=torch.float64)
    pairs = torch.complex(x[..., :4], x[..., 4:])
    rates = torch.tensor([100.0 ** (-2 * f / 8) for f in range(4)], dtype=torch.float64)
    angles = torch.arange(7)[:, None] * rates
    turned = pairs * torch.polar(torch.ones_like(angles), angles)
    expected = torch.cat([turned.real, turned.imag], dim=-1)
    torch.testing.assert_close(
        rotate(x, rotation(7, 8, 100.0)), expected, atol=1e-6, rtol=0
    )


TURNS = rotation(131_072, 16, 10_000.0)


@given(
    st.integers(0, 1000),
    st.integers(0, 1000),
    st.integers(0, 131_072 - 1001),
    st.integers(0),
)
def test_scores_depend_on_the_distance_alone(
    i: int, j: int, shift: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed % 2**63)
    q, k = torch.randn(2, 1, 1, 1, 16, generator=generator)
    here, there = (
        (rotate(q, _at(TURNS, i + s)) * rotate(k, _at(TURNS, j + s))).sum()
        for s in (0, shift)
    )
    assert abs(here - there) < 2e-5 * q.norm() * k.norm()


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
    alone = {
        "global_blocks": 0,
        "random_blocks": 0,
        "window_blocks": 1,
        "position_encoding": position,
    }
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


def _apart(
    joined: torch.Tensor, heads: int, turns: Rotation | None
) -> tuple[torch.Tensor, ...]:
    """What `split_heads` gives, part by part."""
    q, k, v = (
        part.unflatten(2, (heads, -1)).transpose(1, 2)
        for part in joined.chunk(3, dim=-1)
    )
    return (q, k, v) if turns is None else (rotate(q, turns), rotate(k, turns), v)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("width", [2, 6, 16, 32, 64, 72])
@pytest.mark.parametrize("turned", [True, False])
def test_heads_are_split_and_turned_in_one_pass(
    compiled: bool, width: int, turned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not compiled:
        monkeypatch.setattr(input_embeddings, "pointwise", lambda *_: None)
    heads, tokens = 3, 131
    generator = torch.Generator().manual_seed(width)
    exact = torch.randn(
        2, tokens, 3 * heads * width, generator=generator, dtype=torch.float64
    )
    turns = rotation(tokens, width, 100.0) if turned else None
    for dtype, result, tolerance in (
        (torch.float64, torch.float64, 1e-12),
        (torch.float32, torch.float32, 2e-6),
        (torch.bfloat16, torch.float32, 2e-6),
        (torch.bfloat16, torch.bfloat16, 1e-2),
    ):
        joined = exact.to(dtype).requires_grad_()
        wide = joined.detach().double().requires_grad_()
        found, expected = (
            split_heads(joined, heads, turns, result),
            _apart(wide, heads, turns),
        )
        uppers = [
            torch.randn(part.shape, generator=generator).to(result) for part in expected
        ]
        (slope,) = torch.autograd.grad(found, joined, uppers)
        (exact_slope,) = torch.autograd.grad(
            expected, wide, [upper.double() for upper in uppers]
        )
        with torch.inference_mode():
            inferred = split_heads(joined.detach().clone(), heads, turns, result)
        for one, other, third in zip(found, inferred, expected, strict=True):
            assert one.dtype == result
            torch.testing.assert_close(
                one.double(), third, atol=tolerance, rtol=tolerance
            )
            torch.testing.assert_close(
                other.double(), third, atol=tolerance, rtol=tolerance
            )
        rounding = tolerance if dtype == result else 2e-2
        torch.testing.assert_close(
            slope.double(), exact_slope, atol=rounding, rtol=rounding
        )


def test_gradients_of_turned_heads() -> None:
    joined = torch.randn(1, 5, 24, dtype=torch.float64, requires_grad=True)
    turns = rotation(5, 4, 50.0)
    assert torch.autograd.gradcheck(
        lambda x: split_heads(x, 2, turns, torch.float64), joined
    )
    # Gradients that came as views of one number, as from a sum.
    split_heads(joined.float(), 2, turns, torch.float32)[0].sum().backward()
    expected = torch.autograd.grad(_apart(joined, 2, turns)[0].sum(), joined)[0]
    torch.testing.assert_close(joined.grad, expected, atol=1e-6, rtol=1e-6)


LENGTH = 160
SHAPES = [(64, 4), (128, 4), (256, 8), (768, 12)]


def made(position: str, hidden: int, heads: int, **changes: object) -> Encoder:
    torch.manual_seed(0)
    sizes = {
        "layers": 2,
        "max_length": 256,
        "block_size": 64,
        "dropout": 0.0,
        **changes,
    }
    config = small_encoder(
        256, hidden=hidden, heads=heads, position_encoding=position, **sizes
    )
    return Encoder(config).eval()


def logits(encoder: Encoder, layer: int) -> torch.Tensor:
    """Of a layer's heads for random tokens, (H, L, L): what attention's softmax is taken of."""
    ids = torch.randint(5, 256, (1, LENGTH), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        x, turns = encoder.embeddings(ids, None), None
        turns = encoder.turns(x.shape[1], x.device)
        for before in list(encoder.layers)[:layer]:
            x = before(x, None, turns)
        own = encoder.layers[layer]
        assert isinstance(own, Layer)
        q, k = (
            part(x).unflatten(2, (own.heads, -1)).transpose(1, 2)
            for part in (own.query, own.key)
        )
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


@pytest.mark.parametrize(
    ("position", "changes"),
    [
        *(("learned", {}), ("rotary", {}), ("rotary", {"rotary_base": 1000.0})),
        *((position, {"causal": True}) for position in ("learned", "rotary")),
    ],
)
@pytest.mark.parametrize(("hidden", "heads"), SHAPES)
def test_heads_of_the_first_layer_begin_at_their_offsets(
    position: str, changes: dict[str, Any], hidden: int, heads: int
) -> None:
    expected = offsets(heads, "causal" in changes)
    encoder = made(position, hidden, heads, **changes)
    assert watched(logits(encoder, 0)) == expected != watched(logits(encoder, 1))
    random = logits(made(position, hidden, heads, **changes, head_init="random"), 0)
    assert watched(random) != expected and random.std() < 1


@pytest.mark.parametrize("position", ["learned", "rotary"])
def test_an_only_layer_begins_as_it_would_without(position: str) -> None:
    """Its heads must gather from everywhere what [CLS] tells."""
    one, other = (
        made(position, 64, 4, layers=1, head_init=start)
        for start in ("local", "random")
    )
    for ours, theirs in zip(one.parameters(), other.parameters(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize(("hidden", "heads"), [(128, 4), (256, 8), (768, 12)])
@pytest.mark.parametrize("position", ["learned", "rotary"])
def test_the_margin_is_that_above_the_places_beside(
    position: str, hidden: int, heads: int
) -> None:
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
        best, *beside = (
            head[middle, middle + offset + aside].mean() for aside in (0, -1, 1)
        )
        for value in beside:
            assert best - value == pytest.approx(MARGIN, rel=tolerance)


def test_the_other_weights_are_as_they_were() -> None:
    for position, changed in (("learned", 3), ("rotary", 2)):
        neighbors, random = (
            made(position, 128, 4),
            made(position, 128, 4, head_init="random"),
        )
        pairs = zip(neighbors.named_parameters(), random.parameters(), strict=True)
        different = [
            name for (name, one), other in pairs if not torch.equal(one, other)
        ]
        assert len(different) == changed, different
    token = made("learned", 128, 4).embeddings.token.weight
    cleared = (token == 0).all(0)
    assert cleared.sum() == 32
    assert token[:, ~cleared].std().item() == pytest.approx(
        initial_deviation(128), rel=0.05
    )
