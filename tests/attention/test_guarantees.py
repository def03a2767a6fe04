"""What every mechanism promises: it is its definition, whatever stands beside it or after."""

import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from bigbird_dna.attention import Pattern, bigbird_attention, full_attention
from bigbird_dna.attention.mechanisms import combiner, performer
from bigbird_dna.config.mechanisms import LayerShape, find_mechanism, known_mechanisms
from tests.attention.reference_implementations import (
    CASES,
    HEADS,
    LOCAL_ROWS,
    MATRICES,
    SPANS,
    WIDTH,
    build,
    cluster_numbers,
    effective_matrix,
    expected,
    inputs,
    longformer_matrix,
    matrix,
    parts,
    quick,
    small,
    up_to,
)
from tests.golden.messages import fails

NAMES = tuple(known_mechanisms())
POOLINGS = ("max", "mean", "deepsets_max", "deepsets_mean")
SIZES = ("span", "columns", "window", "chunk")
WHOLE: dict[str, Any] = {"allow_unused": True, "materialize_grads": True}
each_case = pytest.mark.parametrize(("name", "causal"), CASES)


ROUTES = ("auto", "blocked", "dense", "full")
PATTERN = Pattern(
    block_size=4, global_blocks=2, window_blocks=3, random_blocks=3, seed=1
)


def attention(name: str, causal: bool = False, **options: Any) -> Callable[..., Tensor]:
    """A small mechanism, or attention of a pattern by a route, called alike."""
    if name not in ROUTES:
        return small(name, causal, **options)  # type: ignore[no-any-return]

    def by_route(
        q: Tensor, k: Tensor, v: Tensor, hidden: Tensor, **call: Any
    ) -> Tensor:
        attend, route = (
            (full_attention, "auto") if name == "full" else (bigbird_attention, name)
        )
        return attend(q, k, v, PATTERN, layer=2, route=route, **call)  # type: ignore[arg-type]

    return by_route


def made_for(
    name: str, *shape: int, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, ...]:
    """q, k, v, the layer's input, which all want gradients, and the output's gradient; k may be q."""
    q, k, v, upper = inputs(*shape, dtype=dtype)
    batch, heads, tokens, width = shape
    generator = torch.Generator().manual_seed(9)
    hidden = torch.randn(
        batch, tokens, heads * width, generator=generator, dtype=dtype
    ).requires_grad_()
    return (
        q,
        q if name not in ROUTES and find_mechanism(name).shares_keys else k,
        v,
        hidden,
        upper,
    )


def detached(
    name: str, *shape: int, dtype: torch.dtype = torch.float64
) -> list[Tensor]:
    return [x.detach() for x in made_for(name, *shape, dtype=dtype)[:4]]


def test_every_mechanism_has_a_reference_implementation() -> None:
    assert set(known_mechanisms()) == set(MATRICES)


@each_case
@given(
    lengths=st.lists(st.integers(1, 21), min_size=1, max_size=2),
    size=st.integers(1, 7),
    more=st.integers(1, 3),
    pooling=st.sampled_from(POOLINGS),
)
@example(lengths=[17, 9], size=4, more=1, pooling="deepsets_mean")
@example(lengths=[12, 19], size=3, more=2, pooling="max")
@settings(max_examples=3, deadline=None)
def test_output_and_gradients_are_those_of_the_definition(
    name: str,
    causal: bool,
    lengths: list[int],
    size: int,
    more: int,
    pooling: str,
) -> None:
    """Any length, and padded rows."""
    values = {
        **dict.fromkeys(SIZES, size),
        **{
            "dilation": more,
            "rounds": more,
            "global_tokens": more - 1,
            "last": more,
            "pooling": pooling,
        },
    }
    known = find_mechanism(name).options.model_fields
    options = {key: value for key, value in values.items() if key in known}
    module = small(name, causal, **options)
    *leaves, upper = made_for(name, len(lengths), HEADS, max(lengths) + 2, WIDTH)
    wanted = [*leaves, *module.parameters()]
    theirs = expected(name, module, options, tuple(leaves), lengths, causal)
    their_gradients = torch.autograd.grad(theirs, wanted, upper, **WHOLE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(performer, "CHUNK", 4)
        patch.setattr(combiner, "QUERIES", 5)
        out = module(*leaves[:3], lengths=torch.tensor(lengths), hidden=leaves[3])
        gradients = torch.autograd.grad(out, wanted, upper, **WHOLE)
    for mine, other in zip((out, *gradients), (theirs, *their_gradients), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("plan", SPANS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("tokens", [1, 2, 3, 5, 9, 16, 17, 33])
def test_combiners_definition_parts_what_a_query_may_see(
    plan: str, causal: bool, tokens: int
) -> None:
    for size in (1, 3, 4, 50):
        for i, (direct, spans) in enumerate(parts(plan, tokens, size, causal)):
            seen = sorted([*direct, *(j for span in spans for j in span)])
            assert seen == list(range(i + 1 if causal else tokens)) and i in direct


@each_case
def test_rows_of_the_matrix_sum_to_one_over_the_keys_of_the_definition(
    name: str, causal: bool
) -> None:
    """Lengths of one more than a power of two, a block or a row among them; of Combiner all keys."""
    for tokens in (1, 2, 5, 17, 33):
        module = small(name, causal)
        q, k, _, hidden = detached(name, 1, HEADS, tokens, WIDTH)
        found = (
            longformer_matrix(module, q, k, hidden)
            if name in LOCAL_ROWS
            else effective_matrix(module, q, k)
        )
        torch.testing.assert_close(found.sum(-1), torch.ones(1, HEADS, tokens).double())
        seen = matrix(name, module, {}, q[0], k[0], causal) > 0
        if name in LOCAL_ROWS:
            seen[:, :2] = up_to(tokens, causal)[:2]
        elif name.startswith("combiner"):
            assert torch.equal(seen, up_to(tokens, causal).expand_as(seen))
        assert torch.equal(found[0] > 0, seen)


@pytest.mark.parametrize(
    ("name", "causal", "length"),
    [
        *((*case, 30) for case in CASES),
        *((name, False, n) for name in ROUTES for n in (5, 30, 61, 90)),
    ],
)
def test_a_row_depends_on_neither_padding_nor_company(
    name: str, causal: bool, length: int
) -> None:
    """By "auto" 30 tokens have full attention, others blocked: 32 tokens are the pattern's size."""
    options = {"pooling": "deepsets_max"} if name.startswith("combiner") else {}
    module, exact = (
        attention(name, causal, **options),
        1e-12 if name in ROUTES else 1e-9,
    )
    *made, upper = made_for(name, 3, HEADS, 2 * length, WIDTH)
    with torch.no_grad():
        for x in {id(x): x for x in made[:3]}.values():
            x[1, :, length:] = 1e3  # finite rubbish
        made[3][1, length:] = 1e3
    cut = [x[1:2, :, :length] if x.dim() == 4 else x[1:2, :length] for x in made]
    alone = [x.detach().clone().requires_grad_() for x in cut]
    if made[1] is made[0]:
        alone[1] = alone[0]
    together = module(
        *made[:3],
        lengths=torch.tensor([2 * length, length, length + 4]),
        hidden=made[3],
    )
    single = module(*alone[:3], hidden=alone[3])
    torch.testing.assert_close(
        together[1:2, :, :length], single, rtol=0, atol=min(exact, 1e-11)
    )
    assert (together[1, :, length:] == 0).all()
    grads = torch.autograd.grad(together, made, upper, **WHOLE)
    others = torch.autograd.grad(single, alone, upper[1:2, :, :length], **WHOLE)
    for grad, other in zip(grads, others, strict=True):
        by_token = grad[1].movedim(-2, 0)
        torch.testing.assert_close(
            by_token[:length], other[0].movedim(-2, 0), rtol=exact, atol=exact
        )
        assert (by_token[length:] == 0).all()


DROPPING = quick(
    (name for name in NAMES if known_mechanisms()[name].drops),
    *("longformer", "reformer", "combiner_axial_vertical", "combiner_routing"),
)


@pytest.mark.parametrize("name", [*DROPPING, "auto", "blocked", "full"])
def test_dropout_is_reproducible_and_unbiased_with_exact_gradients(
    name: str,
) -> None:
    """The weights that the forward pass drops are those that the backward pass drops."""
    module, tokens = attention(name), 60 if name in ROUTES else 11
    q, k, v, hidden = detached(name, 1, HEADS, tokens, WIDTH)

    def dropped(count: int, seed: int) -> Tensor:
        torch.manual_seed(seed)
        many = [x.expand(count, *x.shape[1:]) for x in (q, k, v, hidden)]
        return module(
            *many[:3],
            lengths=torch.tensor([tokens - 1] * count),
            dropout=0.3,
            hidden=many[3],
        )

    first = dropped(1, 5)
    assert torch.equal(first, dropped(1, 5)) and not torch.equal(first, dropped(1, 6))
    many = dropped(1000, 7)
    error = (
        many.mean(0)
        - module(q, k, v, lengths=torch.tensor([tokens - 1]), hidden=hidden)[0]
    )
    sigma = many.std(0) / len(many) ** 0.5
    assert (many[:, :, -1] == 0).all() and (error.abs() < 5.5 * sigma + 1e-12).all()
    if name.startswith("combiner") or name == "blocked":
        q, k, v = (x.requires_grad_() for x in (q, k, v))
        assert torch.autograd.gradcheck(
            lambda *_: dropped(1, 5), (q, k, v), fast_mode=True
        )


@pytest.mark.parametrize("name", NAMES)
def test_bfloat16_stays_near_single_precision(name: str) -> None:
    module = small(name, width=8).float()
    q, k, v, hidden = detached(name, 2, HEADS, 50, 8, dtype=torch.float32)
    lengths = torch.tensor([50, 33])
    clean = module(q, k, v, lengths=lengths, hidden=hidden)
    narrow = module(
        *(x.bfloat16() for x in (q, k, v)), lengths=lengths, hidden=hidden.bfloat16()
    )
    with torch.autocast("cpu"):
        automatic = module(q, k, v, lengths=lengths, hidden=hidden)
    assert narrow.dtype == automatic.dtype == torch.bfloat16
    if name not in (
        "routing",
        "reformer",
        "combiner_routing",
    ):  # a token between two may go to the other
        assert (narrow.float() - clean).abs().max() < 0.08
        assert (automatic.float() - clean).abs().max() < 0.08


@pytest.mark.parametrize("name", NAMES)
def test_arguments_that_contradict_one_another_are_refused(name: str) -> None:
    module = small(name)
    q, k, v, hidden = detached(name, 1, HEADS, 5, WIDTH)
    with fails(ValueError, "6"):
        module(q, k, v, lengths=[6], hidden=hidden)
    with fails(ValueError, "(1, 2, 3, 4)"):
        module(q, k[:, :, :3], v, hidden=hidden)


def test_what_has_no_causal_form_is_refused_in_a_sentence() -> None:
    assert [name for name, one in known_mechanisms().items() if not one.causal] == [
        "reformer"
    ]
    with fails(ValueError, "reformer"):
        find_mechanism("reformer").make(LayerShape(2, 4, causal=True), {})


# How large what a mechanism makes is, by its stated cost, its options and the memory that is allowed


TOKENS, FAR, FURTHER = 20, 3000, 5000
LENGTHS = torch.tensor([TOKENS, 13])
SIZED: list[tuple[str, tuple[str, ...], dict[str, int]]] = [
    ("sparse_fixed", ("span",), {"last": 3}),
    ("sparse_fixed", ("span", "last"), {}),
    ("axial", ("columns",), {}),
    ("longformer", ("window",), {"global_tokens": 2}),
    ("longformer", ("window",), {"dilation": 3}),
    ("longformer", ("dilation",), {"window": 8}),
    ("longformer", ("window", "dilation"), {}),
    ("longformer", ("global_tokens",), {"window": 3}),
    ("routing", ("span",), {"clusters": 3}),
    ("reformer", ("chunk",), {"buckets": 4, "rounds": 3}),
    ("combiner_fixed", ("span",), {}),
    ("combiner_axial_vertical", ("columns",), {}),
    ("combiner_axial_horizontal", ("columns",), {}),
    ("combiner_axial_rowmajor", ("columns",), {}),
    ("combiner_mixture", ("columns", "span"), {"first": "fixed"}),
    ("combiner_routing", ("span",), {"clusters": 3}),
]
"""Options that have the same meaning at the length and above it, and others that are held."""
FACTOR = 30
"""Numbers that are made for each that a cost states, at most, for a head of width 16."""
ROUTED = ("routing", "combiner_routing")
COUNTED = [name for name in known_mechanisms() if name != "combiner_mixture"]
COSTLY = (
    "span",
    "columns",
    "window",
    "chunk",
    "clusters",
    "buckets",
    "features",
    "global_tokens",
)
"""Sizes that costs go with."""
HELD: dict[tuple[str, str], dict[str, int]] = {
    ("longformer", "global_tokens"): {"window": 16},
    ("routing", "clusters"): {"span": 4},
    ("routing", "span"): {"clusters": 16},
    **{
        ("reformer", size): {"buckets": 16, "chunk": 16, "rounds": 1}
        for size in ("buckets", "chunk")
    },
    **{
        ("combiner_routing", size): {"clusters": 16, "span": 16}
        for size in ("clusters", "span")
    },
}
"""Others that are held while a size grows alone."""
QUICK = [
    ("axial", False),
    ("performer", False),
    ("reformer", False),
    ("combiner_routing", True),
]
each_routed = pytest.mark.parametrize(
    ("name", "causal"), [*itertools.product(ROUTED, (False, True))]
)


class Sizes(TorchDispatchMode):
    """Numbers of the largest tensor that an operation gives, and of all of them, views apart."""

    largest = total = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        for x in out if isinstance(out, tuple | list) else [out]:
            if isinstance(x, Tensor):
                self.largest = max(self.largest, x.numel())
        given = {x.untyped_storage().data_ptr() for x in args if isinstance(x, Tensor)}
        if isinstance(out, Tensor) and out.untyped_storage().data_ptr() not in given:
            self.total += out.numel()
        return out


def known(name: str, **sizes: Any) -> dict[str, Any]:
    """Those of the options that a mechanism has."""
    return {
        key: size
        for key, size in sizes.items()
        if key in find_mechanism(name).options.model_fields
    }


def forms(name: str) -> list[bool]:
    return [causal for other, causal in CASES if other == name]


def run(
    name: str, module: Any, *shape: int, lengths: Tensor | None = None
) -> tuple[list[Tensor], int]:
    """The output and gradients, and how many numbers the largest tensor of both passes has."""
    q, k, v, upper = inputs(
        *shape, dtype=next(iter(module.state_dict().values()), torch.ones(1)).dtype
    )
    k = q if find_mechanism(name).shares_keys else k
    hidden = v.detach().transpose(1, 2).flatten(2)
    with Sizes() as sizes:
        out = module(q, k, v, hidden=hidden, lengths=lengths)
        gradients = torch.autograd.grad(out, [q, v], upper)
    return [out.detach(), *gradients], sizes.largest


def test_no_size_is_left_out() -> None:
    options = {
        (name, key)
        for name, one in known_mechanisms().items()
        for key in one.options.model_fields
    }
    mine = {(name, key) for name, keys, _ in SIZED for key in keys} | {
        (name, "clusters") for name in ROUTED
    }
    made = ("window", "span", "columns", "chunk", "clusters", "dilation")
    assert {(name, key) for name, key in options if key in made} <= mine


@each_case
def test_nothing_is_as_large_as_all_pairs(name: str, causal: bool) -> None:
    tokens, size = 4096, 64
    options = known(
        name,
        **dict.fromkeys(
            ("span", "columns", "window", "chunk", "clusters", "buckets"), size
        ),
    )
    module = build(name, causal, 1, 8, **options).float()
    _, largest = run(name, module, 1, 1, tokens, 8)
    assert largest <= 8 * tokens * size, f"{largest / tokens:.0f} numbers a token"


def made_and_stated(
    name: str, causal: bool, tokens: int, options: dict[str, Any]
) -> tuple[float, float]:
    """The logarithms, to base 2, of how many numbers are made for a head, and of what the cost says."""
    mechanism, width = find_mechanism(name), 16
    module = build(name, causal, 1, width, **options).float()
    q, k, v, _ = (x.detach() for x in inputs(1, 1, tokens, width, dtype=torch.float32))
    hidden = v[:, 0]
    with torch.no_grad(), Sizes() as counted:
        module(q, q if mechanism.shares_keys else k, v, hidden=hidden)
    formula = mechanism.cost.replace("·", "*").replace("log L", "log2(L)")
    names = {
        "L": tokens,
        "K": width,
        "log2": math.log2,
        **dict(mechanism.checked(options)),
    }
    return math.log2(counted.total), math.log2(eval(formula, {}, names))


def slopes(sizes: Sequence[int], logs: Sequence[tuple[float, float]]) -> list[float]:
    """By which powers of the sizes both grow."""
    powers = [math.log2(size) for size in sizes]
    return [
        statistics.linear_regression(powers, of).slope for of in zip(*logs, strict=True)
    ]


@pytest.mark.parametrize(
    ("name", "causal"),
    [
        case if case in QUICK else pytest.param(*case, marks=pytest.mark.slow)
        for case in CASES
        if case[0] in COUNTED
    ],
)
def test_the_numbers_that_are_made_grow_as_the_stated_cost(
    name: str, causal: bool
) -> None:
    """By powers of the length from 512 to 4,096 tokens, sizes being √L; never faster by more than 0.15.

    They may grow more slowly: formulas leave out how many vectors of width K there are for each score.
    """
    lengths, logs = (512, 1024, 2048, 4096), []
    for tokens in lengths:
        root = math.isqrt(tokens)
        options = known(
            name, span=root, columns=root, clusters=root, buckets=root // 2 * 2
        )
        logs.append(made_and_stated(name, causal, tokens, options))
    made, stated = slopes(lengths, logs)
    assert -0.25 < made - stated < 0.15, (made, stated)


@pytest.mark.parametrize(
    ("name", "causal", "option", "others"),
    [
        (name, causal, option, HELD.get((name, option), {}))
        for name in COUNTED
        for option in known(name, **dict.fromkeys(COSTLY))
        for causal in forms(name)
    ],
)
def test_they_grow_no_faster_than_the_stated_cost_with_each_size_alone(
    name: str, causal: bool, option: str, others: dict[str, int]
) -> None:
    """So no term is left out of it, the choice of buckets and clusters among them."""
    sizes = (32, 128, 512, 1024)
    logs = [
        made_and_stated(name, causal, 2048, {**others, option: size}) for size in sizes
    ]
    made, stated = slopes(sizes, logs)
    assert made - stated < 0.15, (made, stated)
    assert all(made - stated < math.log2(FACTOR) for made, stated in logs), logs


@pytest.mark.parametrize(
    ("name", "causal", "sizes", "others"),
    [
        (name, causal, sizes, others)
        for name, sizes, others in SIZED
        for causal in forms(name)
    ],
)
def test_above_the_length_it_is_what_it_is_at_the_length(
    name: str, causal: bool, sizes: tuple[str, ...], others: dict[str, Any]
) -> None:
    """In value and gradients, with a padded row; and it makes nothing that is larger."""
    found = []
    for size in (TOKENS, FAR, FURTHER):
        module = build(name, causal, **{**others, **dict.fromkeys(sizes, size)})
        found.append(run(name, module, 2, HEADS, TOKENS, WIDTH, lengths=LENGTHS))
    for made, largest in found[1:]:
        for mine, other in zip(made, found[0][0], strict=True):
            torch.testing.assert_close(mine, other, rtol=0, atol=1e-13)
        assert largest <= found[0][1]


@each_routed
def test_clusters_above_the_length_keep_the_definition(name: str, causal: bool) -> None:
    """Some clusters have several chunks, most have none; nothing but the choice has a number for each."""
    options = {"clusters": FAR, "span": 4}
    module = build(name, causal, **options)
    q, k, v, _ = (x.detach() for x in inputs(1, HEADS, TOKENS, WIDTH))
    q[:, :, 3:], k[:, :, 3:] = q[:, :, 2:3], k[:, :, 2:3]  # one cluster of 18
    q[:, :, 5], k[:, :, 5] = q[:, :, 0], k[:, :, 0]
    for row in cluster_numbers(module, q[0], k[0]):
        assert max(row) >= TOKENS and len(set(row)) in (2, 3)
    weights = matrix(name, module, options, q[0], k[0], causal)
    torch.testing.assert_close(module(q, k, v)[0], weights @ v[0], rtol=0, atol=1e-12)
    for clusters in (FAR, FURTHER):
        module = build(name, causal, clusters=clusters, span=FAR)
        _, largest = run(name, module, 1, HEADS, TOKENS, WIDTH)
        assert largest <= HEADS * TOKENS * clusters
