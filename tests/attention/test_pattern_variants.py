"""Causal patterns and ETC: what the equality of the routes does not show by itself."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from bigbird_dna.attention import (
    Pattern,
    RelativeKeys,
    RouteWarning,
    bigbird_attention,
    choose_route,
    label_count,
)
from bigbird_dna.attention.relative import label_ids
from tests.attention import problems
from tests.golden.messages import fails

CAUSAL = Pattern(block_size=8, global_blocks=1, window_blocks=3, random_blocks=2, seed=1, causal=True)
ETC = Pattern(block_size=8, global_blocks=0, window_blocks=3, random_blocks=0, num_global_tokens=5)


def inputs(*shape: int) -> list[Tensor]:
    return [x.detach() for x in problems.inputs(*shape)[:3]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("route", ["auto", "blocked", "dense"])
@pytest.mark.parametrize("tokens", [20, 100, 700])
def test_the_past_is_bitwise_independent_of_the_future(tokens: int, route: str, dtype: torch.dtype) -> None:
    """20 tokens: full attention; 100: masked; 700: blocked."""
    q, k, v = (x.to(dtype) for x in inputs(1, 2, tokens, 16))
    for cut in (1, 8, tokens // 2, tokens - 1):
        changed = [x.clone() for x in (q, k, v)]
        for x in changed:
            x[:, :, cut:] = 1e3 * torch.randn_like(x[:, :, cut:])
        outs = [
            bigbird_attention(*part, CAUSAL, layer=1, route=route)[:, :, :cut]  # type: ignore[arg-type]
            for part in ((q, k, v), changed)
        ]
        assert torch.equal(*outs)


@pytest.mark.parametrize("tokens", [20, 100, 700])
def test_no_gradient_reaches_the_future(tokens: int) -> None:
    made = [x.requires_grad_() for x in inputs(1, 2, tokens, 16)]
    cut = tokens // 2
    bigbird_attention(*made, CAUSAL)[:, :, :cut].square().sum().backward()
    for x in made:
        assert x.grad is not None and (x.grad[:, :, cut:] == 0).all()
        assert (x.grad[:, :, :cut] != 0).any()


@given(
    st.sampled_from([ETC, CAUSAL, Pattern(4, seed=2), Pattern(8, 2, 3, 1, num_global_tokens=8)]),
    st.integers(10, 90),
    st.integers(0, 4),
    st.booleans(),
    st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_relative_positions_agree_with_the_oracle(
    pattern: Pattern, tokens: int, radius: int, owned: bool, padded: bool
) -> None:
    q, k, v = (x.requires_grad_() for x in inputs(2, 2, tokens, 4))
    table = torch.randn(2, label_count(radius), 4, dtype=torch.float64).requires_grad_()
    owners = None
    if owned:
        owners = torch.randint(-1, max(pattern.num_global_tokens, 1), (2, tokens))
        owners[:, : pattern.num_global_tokens] = -1
    lengths = [tokens, max(tokens - 7, pattern.num_global_tokens + 1)] if padded else None
    results = []
    for route in ("dense", "blocked", "auto"):
        out = bigbird_attention(
            q,
            k,
            v,
            pattern,
            lengths=lengths,
            route=route,  # type: ignore[arg-type]
            relative=RelativeKeys(table, radius, owners),
        )
        results.append([out, *torch.autograd.grad(out.sin().sum(), (q, k, v, table))])
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


def test_labels_by_definition() -> None:
    """Every pair of 3 extra globals and 9 tokens, radius 2, against the rules one by one."""
    owners = torch.tensor([[-1, -1, -1, 0, 0, 0, 1, 1, 1, 2, 2, -1]])
    places = torch.arange(12)
    labels = label_ids(places, places, 2, 3, owners)[0]
    for i in range(12):
        for j in range(12):
            distance = max(-2, min(2, j - i)) + 2
            if i >= 3 and j >= 3:
                expected = distance
            elif i < 3 and j < 3:
                expected = 5 + distance
            elif i >= 3:
                expected = 10 + int(owners[0, i] == j)
            else:
                expected = 12 + int(owners[0, j] == i)
            assert labels[i, j] == expected
    assert label_count(2) == 14


def test_relative_positions_alone_can_point_at_a_neighbour() -> None:
    """With q = 1 and a large key for distance -1 every token takes its left neighbour's value."""
    tokens, radius = 40, 3
    ones = torch.ones(1, 1, tokens, 4)
    v = torch.arange(tokens, dtype=torch.float32).view(1, 1, tokens, 1).expand(-1, -1, -1, 4)
    table = torch.zeros(1, label_count(radius), 4)
    table[0, radius - 1] = 50
    out = bigbird_attention(ones, 0 * ones, v, Pattern(8, 0, 3, 0), relative=RelativeKeys(table, radius))
    torch.testing.assert_close(out[0, 0, 1:, 0], v[0, 0, :-1, 0])


def test_extra_globals_reach_everything_in_one_layer() -> None:
    q, k, v = inputs(1, 1, 85, 4)

    def reached(token: int) -> Tensor:
        other = v.clone()
        other[:, :, token] += 1
        before, after = (bigbird_attention(q, k, x, ETC) for x in (v, other))
        return (before != after).any(dim=3)[0, 0]

    assert reached(2).all()
    assert reached(60)[:5].all()
    window = torch.zeros(80, dtype=torch.bool)
    window[40:72] = True  # the token is the 56th of the sequence, in block 6 of 48 … 56
    assert not (reached(60)[5:] & ~window).any()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda x: bigbird_attention(x, x, x, ETC, lengths=[5]),
            "lengths must be above the 5 extra globals, got 5",
        ),
        (
            lambda x: bigbird_attention(x, x, x, ETC, relative=RelativeKeys(torch.zeros(1, 3, 4), 2)),
            r"relative.table must have the shape \(2, 14, 4\)",
        ),
        (
            lambda x: bigbird_attention(
                x, x, x, ETC, relative=RelativeKeys(torch.zeros(2, 14, 4), 2, torch.zeros(1, 3))
            ),
            r"relative.owners must have the shape \(1, 20\)",
        ),
    ],
)
def test_bad_arguments_are_named(call: Callable[[Tensor], Tensor], message: str) -> None:
    with fails(ValueError):
        call(torch.zeros(1, 2, 20, 4))


def test_a_route_that_cannot_serve_says_why_and_gives_way() -> None:
    q, k, v = inputs(1, 2, 100, 4)
    with pytest.warns(RouteWarning, match=r"route native: .*; using blocked"):
        out = bigbird_attention(q, k, v, CAUSAL, route="native", dropout=0.5)
    assert out.shape == q.shape
    choice = choose_route(q, CAUSAL, 700, dropout=0.5)
    assert choice.route == "blocked" and choice.reason.startswith("native: ")
    assert choose_route(q, CAUSAL, 16).route == "full"
    assert choose_route(q, CAUSAL, 60).route == "masked"
