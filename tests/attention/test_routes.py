"""Every route against the dense oracle, in value and gradient, and the promises about padding and batches."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from bigbird_dna.attention import (
    PATTERN_ATTENTIONS,
    Pattern,
    RelativeKeys,
    Route,
    RouteWarning,
    bigbird_attention,
    flex,
    full_attention,
    label_count,
    native,
)
from bigbird_dna.attention.backends import choose_route
from bigbird_dna.attention.call import Call, label_ids
from bigbird_dna.config.mechanisms import OF_PATTERNS
from tests.attention.reference_implementations import (
    Made,
    Problem,
    inputs,
    problems,
    value_and_gradients,
    vectors,
)
from tests.golden.messages import fails

CAUSAL = Pattern(
    block_size=8, global_blocks=1, window_blocks=3, random_blocks=2, seed=1, causal=True
)
ETC = Pattern(
    block_size=8, global_blocks=0, window_blocks=3, random_blocks=0, num_global_tokens=5
)
GENOMICS_SMALL = Pattern(
    block_size=4, global_blocks=2, window_blocks=3, random_blocks=3, seed=1
)


def assert_same(left: list[Tensor], right: list[Tensor], tolerance: float) -> None:
    for name, a, b in zip(("output", "q", "k", "v"), left, right, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        error = (a - b).abs().max().item()
        assert error <= tolerance, f"{name}: {error}"


def by_route(route: str, made: Made, pattern: Pattern, **options: Any) -> list[Tensor]:
    """Value and gradients of the public function."""
    return value_and_gradients(
        lambda *x: bigbird_attention(*x, pattern, route=route, **options), made
    )


PROBLEMS = problems(st.sampled_from([1, 2, 3, 4, 8]), most=70)


@given(PROBLEMS)
@settings(max_examples=40, deadline=None)
def test_routes_equal_the_oracle_in_double(problem: Problem) -> None:
    """Random patterns, lengths no multiple of the block or below the pattern's size."""
    pattern, shape, lengths, layer = problem
    made = inputs(*shape)

    expected = by_route("dense", made, pattern, lengths=lengths, layer=layer)
    for route in ("blocked", "auto"):
        assert_same(
            by_route(route, made, pattern, lengths=lengths, layer=layer),
            expected,
            1e-10,
        )


@pytest.mark.parametrize("tokens", [30, 60, 200])
@pytest.mark.parametrize("route", ["auto", "blocked", "dense"])
def test_autocast_computes_in_bfloat16(tokens: int, route: str) -> None:
    made = inputs(2, 2, tokens, 8, dtype=torch.float32)
    lengths = [tokens, tokens - 5]

    expected = by_route(route, made, GENOMICS_SMALL, lengths=lengths)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = bigbird_attention(*made[:3], GENOMICS_SMALL, lengths=lengths, route=route)
    assert out.dtype == torch.bfloat16
    grads = torch.autograd.grad(out, made[:3], made[3].bfloat16())
    assert all(grad.dtype == torch.float32 for grad in grads)
    assert_same([out.float(), *grads], expected, 0.1)


@pytest.mark.parametrize("route", ["blocked", "auto"])
def test_global_keys_add_their_gradients_in_single_precision(route: Route) -> None:
    """In bfloat16 a sum over many query blocks would stop growing after 256 equal terms."""
    pattern = Pattern(block_size=1, global_blocks=1, window_blocks=1, random_blocks=0)
    zeros = torch.zeros(1, 1, 2048, 8, dtype=torch.bfloat16)
    v = zeros.clone().requires_grad_()
    out = bigbird_attention(zeros, zeros, v, pattern, route=route)
    (grad,) = torch.autograd.grad(out.sum(), v)
    assert grad[0, 0, 0, 0].item() == pytest.approx(2047 / 2, rel=0.01)


@pytest.mark.skipif(
    native.pointwise(torch.zeros(1)) is None, reason="the kernel can't be had here"
)
def test_rows_of_full_and_of_sparse_attention_are_one_call_of_the_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pattern, lengths = Pattern(block_size=8, random_blocks=3), (56, 64, 9, 63)
    draw = torch.Generator().manual_seed(0)
    leaves = [
        torch.randn(4, 2, 64, 16, generator=draw).requires_grad_() for _ in range(3)
    ]
    upper = torch.randn(4, 2, 64, 16, generator=draw)
    q = leaves[0]
    assert [pattern.is_full(pattern.blocks(n)) for n in lengths] == [True, False] * 2
    assert choose_route(Call(q, q, q, pattern, lengths)).route == "native"
    expected = [
        bigbird_attention(*(x[row : row + 1, :, :length] for x in leaves), pattern)
        for row, length in enumerate(lengths)
    ]
    of_rows = [
        torch.autograd.grad(
            one, leaves, upper[[row], :, : lengths[row]], allow_unused=True
        )
        for row, one in enumerate(expected)
    ]
    monkeypatch.setattr(Call, "take", lambda *_: pytest.fail("rows are copied"))
    out = bigbird_attention(*leaves, pattern, lengths=lengths)
    found = torch.autograd.grad(out, leaves, upper)
    for row, length in enumerate(lengths):
        assert (
            torch.equal(out[[row], :, :length], expected[row])
            and not out[row, :, length:].any()
        )
        for x, alone in zip(found, of_rows[row], strict=True):
            assert torch.equal(x[row], alone[row])


def test_registry_names_callables_of_one_signature() -> None:
    q, k, v, _ = inputs(2, 2, 24, 4)
    assert set(PATTERN_ATTENTIONS) == set(OF_PATTERNS) >= {"bigbird", "full"}
    for attend in PATTERN_ATTENTIONS.values():
        out = attend(
            q, k, v, GENOMICS_SMALL, lengths=torch.tensor([24, 9]), layer=1, dropout=0.0
        )
        assert out.shape == q.shape and (out[1, :, 9:] == 0).all()
        assert attend(q[:0], k[:0], v[:0], Pattern()).shape == (0, 2, 24, 4)


@pytest.mark.parametrize("attend", [bigbird_attention, full_attention])
@pytest.mark.parametrize(
    ("name", "value", "named"),
    [
        ("k", torch.zeros(1, 2, 9, 4), "(1, 2, 9, 4)"),
        ("q", torch.zeros(2, 8, 4), "(2, 8, 4)"),
        ("v", torch.zeros(1, 2, 8, 4).double(), "torch.float64"),
        ("layer", -1, "got -1"),
        ("dropout", 1.0, "got 1.0"),
        ("lengths", [9], "got [9]"),
        ("lengths", [0], "got [0]"),
        ("lengths", [4, 4], "got [4, 4]"),
        ("lengths", torch.tensor([4.0]), "torch.float32"),
        ("route", "fast", "'fast'"),
    ],
)
def test_bad_arguments_are_named(
    attend: Callable[..., Tensor], name: str, value: Any, named: str
) -> None:
    x = torch.zeros(1, 2, 8, 4)
    arguments: dict[str, Any] = {"q": x, "k": x, "v": x, "pattern": Pattern()}
    with fails(ValueError, name, named):
        attend(**arguments | {name: value})


def test_what_inference_caches_serves_training() -> None:
    """A plan or mask first made for inference must not be one that autograd refuses to keep."""
    for block_size, tokens in ((8, 900), (8, 100), (8, 30)):
        pattern = Pattern(block_size=block_size, seed=tokens)
        q, k, v = (torch.randn(2, 2, tokens, 4) for _ in range(3))
        before = [x.clone() for x in (q, k, v)]
        with torch.inference_mode():
            bigbird_attention(q, k, v, pattern, lengths=[tokens, tokens - 3])
        assert all(map(torch.equal, (q, k, v), before)), "inputs are left alone"
        q.requires_grad_()
        out = bigbird_attention(
            q, k, v, pattern, lengths=[tokens, tokens - 3], dropout=0.1
        )
        out.sum().backward()
        assert q.grad is not None and torch.isfinite(q.grad).all()


# Causal patterns and ETC: what the equality of the routes does not show by itself.


@pytest.mark.filterwarnings(
    "ignore::bigbird_dna.attention.RouteWarning"
)  # where there is no compiler
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("route", ["auto", "blocked", "dense", "native"])
@pytest.mark.parametrize(("tokens", "size"), [(20, 8), (100, 8), (600, 8), (600, 100)])
def test_the_past_is_bitwise_independent_of_the_future(
    tokens: int, size: int, route: Route, dtype: torch.dtype
) -> None:
    """By "auto", of blocks of 8: full attention of 20 tokens."""
    pattern = replace(CAUSAL, block_size=size)
    q, k, v = (x.to(dtype) for x in vectors(1, 2, tokens, 16))
    for cut in (1, 8, tokens // 2, tokens - 1):
        changed = [x.clone() for x in (q, k, v)]
        for x in changed:
            x[:, :, cut:] = 1e3 * torch.randn_like(x[:, :, cut:])
        outs = [
            bigbird_attention(*part, pattern, layer=1, route=route)[:, :, :cut]
            for part in ((q, k, v), changed)
        ]
        assert torch.equal(*outs)
        if (
            route == "native"
            and choose_route(Call(q, k, v, pattern, (tokens,)), "native").route
            == "native"
        ):
            alone = [
                x[:, :, :cut] for x in (q, k, v)
            ]  # nor does it depend on how many there are
            assert torch.equal(
                bigbird_attention(*alone, pattern, layer=1, route=route), outs[0]
            )
        past = bigbird_attention(
            *(x.requires_grad_() for x in changed), pattern, route=route
        )[:, :, :cut]
        for grad in torch.autograd.grad(past.float().square().sum(), changed):
            assert (grad[:, :, cut:] == 0).all() and (
                (grad[:, :, :cut] != 0).any() or cut == 1
            )


@given(
    st.sampled_from(
        [ETC, CAUSAL, Pattern(4, seed=2), Pattern(8, 2, 3, 1, num_global_tokens=8)]
    ),
    st.integers(10, 90),
    st.integers(0, 4),
    st.booleans(),
    st.booleans(),
)
@settings(max_examples=20, deadline=None)
def test_relative_positions_agree_with_the_oracle(
    pattern: Pattern, tokens: int, radius: int, owned: bool, padded: bool
) -> None:
    q, k, v, _ = inputs(2, 2, tokens, 4)
    table = torch.randn(2, label_count(radius), 4, dtype=torch.float64).requires_grad_()
    owners = None
    if owned:
        owners = torch.randint(-1, max(pattern.num_global_tokens, 1), (2, tokens))
        owners[:, : pattern.num_global_tokens] = -1
    lengths = (
        [tokens, max(tokens - 7, pattern.num_global_tokens + 1)] if padded else None
    )
    results = []
    keys = RelativeKeys(table, radius, owners)
    routes: tuple[Route, ...] = ("dense", "blocked", "auto")
    for route in routes:
        out = bigbird_attention(
            q, k, v, pattern, lengths=lengths, route=route, relative=keys
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


def test_relative_positions_alone_can_point_at_a_neighbor() -> None:
    """With q = 1 and a large key for distance -1 every token takes its left neighbor's value."""
    tokens, radius = 40, 3
    ones = torch.ones(1, 1, tokens, 4)
    v = (
        torch.arange(tokens, dtype=torch.float32)
        .view(1, 1, tokens, 1)
        .expand(-1, -1, -1, 4)
    )
    table = torch.zeros(1, label_count(radius), 4)
    table[0, radius - 1] = 50
    out = bigbird_attention(
        ones, 0 * ones, v, Pattern(8, 0, 3, 0), relative=RelativeKeys(table, radius)
    )
    torch.testing.assert_close(out[0, 0, 1:, 0], v[0, 0, :-1, 0])


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"lengths": [5]}, "got 5"),
        ({"relative": RelativeKeys(torch.zeros(1, 3, 4), 2)}, "(2, 14, 4)"),
        (
            {"relative": RelativeKeys(torch.zeros(2, 14, 4), 2, torch.zeros(1, 3))},
            "(1, 20)",
        ),
    ],
)
def test_bad_arguments_of_etc_are_named(options: dict[str, Any], named: str) -> None:
    x = torch.zeros(1, 2, 20, 4)
    with fails(ValueError, named):
        bigbird_attention(x, x, x, ETC, **options)


def test_a_route_that_cannot_serve_says_why_and_gives_way() -> None:
    q, k, v = vectors(1, 2, 100, 4)
    with pytest.warns(RouteWarning, match=r"route native: .*; using blocked"):
        out = bigbird_attention(q, k, v, CAUSAL, route="native", dropout=0.5)
    assert out.shape == q.shape
    choice = choose_route(Call(q, k, v, CAUSAL, (100,), dropout=0.5))
    assert choice.route == "blocked" and choice.reason.startswith("native: ")


X = torch.zeros(1, 1, 8, 4)
BEYOND: list[tuple[dict[str, Any], str]] = [
    ({"dropout": 0.1}, "dropout"),
    ({"relative": RelativeKeys(X, 0)}, "relative"),
    ({"q": X.double()}, "float64"),
    ({"q": torch.zeros(1, 1, 8, 4, device="meta")}, "meta"),
]


@pytest.mark.parametrize(
    ("route", "change", "named"),
    [
        *((route, *case) for route in (native, flex) for case in BEYOND),
        (native, {"pattern": Pattern(num_global_tokens=3)}, "extra global"),
        (flex, {"q": X.requires_grad_()}, "gradients on a CPU"),
        (flex, {"q": torch.zeros(()).expand(1, 12, 1 << 20, 1)}, "MiB"),
        (flex, {"pattern": Pattern(64, num_global_tokens=100)}, "whole blocks"),
    ],
)
def test_refusals_of_routes_name_the_reason(
    route: Any, change: dict[str, Any], named: str
) -> None:
    x = X.detach()
    call = Call(x, x, x, Pattern(), (8,))._replace(**change)
    assert named in route.unavailable(call)
