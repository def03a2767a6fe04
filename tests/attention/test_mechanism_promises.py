"""What mechanisms beside Combiner promise: each is its definition, whatever stands beside it or after."""

import itertools
import math
import statistics
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from bigbird_dna.attention import mechanism as shared
from bigbird_dna.attention.dense import effective_matrix
from bigbird_dna.attention.mechanisms import performer
from bigbird_dna.config import LayerShape, find_mechanism, known_mechanisms
from tests.attention.problems import inputs
from tests.attention.reference_implementations import (
    HEADS,
    REFERENCES,
    SMALL,
    WIDTH,
    build,
    expected,
    matrix,
    quick,
)
from tests.attention.sizes import Largest, Total
from tests.golden.messages import fails

NAMES = tuple(SMALL)
CASES = [(name, causal) for name in NAMES for causal in (False, True) if name != "reformer" or not causal]
COUNTED = [name for name in known_mechanisms() if name != "combiner_mixture"]
QUICK = [("axial", False), ("performer", False), ("reformer", False), ("combiner_routing", True)]
ALONE: list[tuple[str, str, dict[str, int]]] = [
    ("sparse_fixed", "span", {}),
    ("axial", "columns", {}),
    ("longformer", "window", {}),
    ("longformer", "global_tokens", {"window": 16}),
    ("routing", "clusters", {"span": 4}),
    ("routing", "span", {"clusters": 16}),
    ("performer", "features", {}),
    ("reformer", "buckets", {"chunk": 16, "rounds": 1}),
    ("reformer", "chunk", {"buckets": 16, "rounds": 1}),
    ("combiner_fixed", "span", {}),
    ("combiner_axial_vertical", "columns", {}),
    ("combiner_axial_horizontal", "columns", {}),
    ("combiner_axial_rowmajor", "columns", {}),
    ("combiner_routing", "clusters", {"span": 16}),
    ("combiner_routing", "span", {"clusters": 16}),
]
"""Sizes that costs go with, and others that are held."""
FACTOR = 30
"""Numbers that are made for each that a cost states, at most, for a head of width 16."""
SIZES = ("span", "columns", "window", "chunk")
each_case = pytest.mark.parametrize(("name", "causal"), CASES)


def made_for(name: str, *shape: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, ...]:
    """q, k, v, the layer's input, which all want gradients, and the output's gradient; k may be q."""
    q, k, v, upper = inputs(*shape, dtype=dtype)
    batch, heads, tokens, width = shape
    generator = torch.Generator().manual_seed(9)
    hidden = torch.randn(batch, tokens, heads * width, generator=generator, dtype=dtype).requires_grad_()
    return q, q if find_mechanism(name).shares_keys else k, v, hidden, upper


def test_every_mechanism_has_a_reference_implementation() -> None:
    assert set(known_mechanisms()) == REFERENCES


@each_case
@given(
    lengths=st.lists(st.integers(1, 19), min_size=1, max_size=2),
    size=st.integers(1, 6),
    more=st.integers(1, 3),
    elements=st.sampled_from([1, 1 << 22]),
)
@example(lengths=[17, 9], size=4, more=1, elements=1)
@example(lengths=[12, 19], size=3, more=2, elements=1 << 22)
@settings(max_examples=3, deadline=None)
def test_output_and_gradients_are_those_of_the_definition(
    name: str, causal: bool, lengths: list[int], size: int, more: int, elements: int
) -> None:
    """Any length, padded rows, all at once or head by head, which are computed again for the gradients."""
    known = find_mechanism(name).options.model_fields
    options: dict[str, Any] = {key: size for key in SIZES if key in known}
    options |= {key: more for key in ("dilation", "rounds") if key in known}
    if name == "longformer":
        options["global_tokens"] = more - 1
    elif name == "sparse_fixed":
        options["last"] = more
    module = build(name, causal, **options)
    *leaves, upper = made_for(name, len(lengths), HEADS, max(lengths) + 2, WIDTH)
    wanted = [*leaves, *module.parameters()]
    whole: dict[str, Any] = {"allow_unused": True, "materialize_grads": True}
    theirs = expected(name, module, options, tuple(leaves), lengths, causal)
    their_gradients = torch.autograd.grad(theirs, wanted, upper, **whole)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(shared.ELEMENTS, "cpu", elements)
        patch.setattr(performer, "CHUNK", 4)
        patch.setattr(performer, "TOGETHER", 5)
        out = module(*leaves[:3], lengths=torch.tensor(lengths), hidden=leaves[3])
        gradients = torch.autograd.grad(out, wanted, upper, **whole)
    for mine, other in zip((out, *gradients), (theirs, *their_gradients), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-9, atol=1e-9)


@each_case
def test_rows_of_the_matrix_sum_to_one_over_the_keys_of_the_definition(name: str, causal: bool) -> None:
    for tokens in (1, 2, 17, 33):
        module = build(name, causal)
        q, k, _, hidden, _ = (x.detach() for x in made_for(name, 1, HEADS, tokens, WIDTH))
        own: Any = module if name == "longformer" else None
        found = own.matrix(q, k, hidden) if own else effective_matrix(module, q, k)
        torch.testing.assert_close(found.sum(-1), torch.ones(1, HEADS, tokens).double())
        seen = matrix(name, module, {}, q[0], k[0], causal) > 0
        if name == "longformer":
            seen[:, :2] = torch.ones(tokens, tokens, dtype=torch.bool).tril(0 if causal else tokens)[:2]
        assert torch.equal(found[0] > 0, seen)


@each_case
def test_a_row_depends_on_neither_padding_nor_company(name: str, causal: bool) -> None:
    module = build(name, causal)
    *made, upper = made_for(name, 3, HEADS, 60, WIDTH)
    with torch.no_grad():
        for x in {id(x): x for x in made[:3]}.values():
            x[1, :, 30:] = 1e3  # finite rubbish
        made[3][1, 30:] = 1e3
    q, v, hidden = (made[i][1:2].detach() for i in (0, 2, 3))
    alone = [q[:, :, :30], made[1][1:2, :, :30].detach(), v[:, :, :30], hidden[:, :30]]
    alone = [x.clone().requires_grad_() for x in alone]
    if made[1] is made[0]:
        alone[1] = alone[0]
    together = module(*made[:3], lengths=torch.tensor([60, 30, 44]), hidden=made[3])
    single = module(*alone[:3], hidden=alone[3])
    torch.testing.assert_close(together[1:2, :, :30], single, rtol=0, atol=1e-11)
    assert (together[1, :, 30:] == 0).all()
    whole: dict[str, Any] = {"allow_unused": True, "materialize_grads": True}
    grads = torch.autograd.grad(together, made, upper, **whole)
    for grad, other in zip(
        grads, torch.autograd.grad(single, alone, upper[1:2, :, :30], **whole), strict=True
    ):
        ours, padded = (
            (grad[1:2, :, :30], grad[1, :, 30:]) if grad.dim() == 4 else (grad[1:2, :30], grad[1, 30:])
        )
        torch.testing.assert_close(ours, other, rtol=1e-9, atol=1e-9)
        assert (padded == 0).all()


@pytest.mark.parametrize("name", [name for name, causal in CASES if causal])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_no_bit_of_the_past_depends_on_the_future(name: str, dtype: torch.dtype) -> None:
    module = build(name, True, width=8).to(dtype)
    q, k, v, hidden, _ = made_for(name, 2, HEADS, 150, 8, dtype=dtype)
    out = module(q, k, v, hidden=hidden)
    for now in (1, 40, 71, 149):
        changed = [x.detach().clone() for x in (q, k, v, hidden)]
        generator = torch.Generator().manual_seed(now)
        for x in changed:
            future = x[:, now:] if x.dim() == 3 else x[:, :, now:]
            future.copy_(300 * torch.randn(future.shape, generator=generator, dtype=dtype))
        assert torch.equal(module(*changed[:3], hidden=changed[3])[:, :, :now], out[:, :, :now])
        whole: dict[str, Any] = {"allow_unused": True, "materialize_grads": True, "retain_graph": True}
        grads = torch.autograd.grad(out[:, :, :now].square().sum(), (q, k, v, hidden), **whole)
        assert all((grad[:, :, now:] == 0).all() for grad in grads[:3]) and (grads[3][:, now:] == 0).all()
        assert (grads[2][:, :, now - 1] != 0).any() or name == "longformer"


def test_what_has_no_causal_form_is_refused_in_a_sentence() -> None:
    assert [name for name, one in known_mechanisms().items() if not one.causal] == ["reformer"]
    with fails(ValueError):
        find_mechanism("reformer").make(LayerShape(2, 4, causal=True), {})


@each_case
def test_nothing_is_as_large_as_all_pairs(name: str, causal: bool) -> None:
    tokens, size = 4096, 64
    known = find_mechanism(name).options.model_fields
    options = {key: size for key in (*SIZES, "clusters", "buckets") if key in known}
    module = build(name, causal, heads=1, width=8, **options).float()
    q, k, v, hidden, upper = made_for(name, 1, 1, tokens, 8, dtype=torch.float32)
    with Largest() as largest:
        torch.autograd.grad(module(q, k, v, hidden=hidden), (q, v), upper)
    assert largest.numbers <= 8 * tokens * size, f"{largest.numbers / tokens:.0f} numbers a token"


@pytest.mark.parametrize(
    "name", quick((name for name in NAMES if name != "performer"), "longformer", "reformer")
)
def test_dropout_is_reproducible_and_unbiased(name: str) -> None:
    module = build(name)
    q, k, v, hidden, _ = (x.detach() for x in made_for(name, 1, HEADS, 11, WIDTH))

    def dropped(count: int, seed: int) -> Tensor:
        torch.manual_seed(seed)
        many = [x.expand(count, *x.shape[1:]) for x in (q, k, v, hidden)]
        return module(*many[:3], lengths=torch.tensor([10] * count), dropout=0.3, hidden=many[3])  # type: ignore[no-any-return]

    first = dropped(1, 5)
    assert torch.equal(first, dropped(1, 5)) and not torch.equal(first, dropped(1, 6))
    many = dropped(1000, 7)
    error = many.mean(0) - module(q, k, v, lengths=torch.tensor([10]), hidden=hidden)[0]
    sigma = many.std(0) / len(many) ** 0.5
    assert (many[:, :, 10] == 0).all() and (error.abs() < 5.5 * sigma + 1e-12).all()


@pytest.mark.parametrize("name", NAMES)
def test_bfloat16_stays_near_single_precision(name: str) -> None:
    module = build(name, width=8).float()
    q, k, v, hidden, _ = (x.detach() for x in made_for(name, 2, HEADS, 50, 8, dtype=torch.float32))
    lengths = torch.tensor([50, 33])
    clean = module(q, k, v, lengths=lengths, hidden=hidden)
    narrow = module(*(x.bfloat16() for x in (q, k, v)), lengths=lengths, hidden=hidden.bfloat16())
    with torch.autocast("cpu"):
        automatic = module(q, k, v, lengths=lengths, hidden=hidden)
    assert narrow.dtype == automatic.dtype == torch.bfloat16
    if name not in ("routing", "reformer"):  # a token between two clusters may go to the other
        assert (narrow.float() - clean).abs().max() < 0.08
        assert (automatic.float() - clean).abs().max() < 0.08


def made_and_stated(name: str, causal: bool, tokens: int, options: dict[str, Any]) -> tuple[float, float]:
    """The logarithms, to base 2, of how many numbers are made for a head, and of what the cost says."""
    mechanism, width = find_mechanism(name), 16
    torch.manual_seed(0)
    module = mechanism.make(LayerShape(1, width, causal=causal), options).eval()
    q, k, v, hidden, _ = made_for(name, 1, 1, tokens, width, dtype=torch.float32)
    with torch.no_grad(), Total() as counted:
        module(q, k, v, hidden=hidden)
    formula = mechanism.cost.replace("·", "*").replace("log L", "log2(L)")
    known = {"L": tokens, "K": width, "log2": math.log2, **dict(mechanism.checked(options))}
    return math.log2(counted.total), math.log2(eval(formula, {}, known))


def slopes(sizes: Sequence[int], logs: Sequence[tuple[float, float]]) -> list[float]:
    """By which powers of the sizes both grow."""
    known = [math.log2(size) for size in sizes]
    return [statistics.linear_regression(known, of).slope for of in zip(*logs, strict=True)]


@pytest.mark.parametrize(
    ("name", "causal"),
    [
        case if case in QUICK else pytest.param(*case, marks=pytest.mark.slow)
        for case in itertools.product(COUNTED, (False, True))
        if find_mechanism(case[0]).causal or not case[1]
    ],
)
def test_the_numbers_that_are_made_grow_as_the_stated_cost(name: str, causal: bool) -> None:
    """By powers of the length from 512 to 4,096 tokens, sizes being √L; never faster by more than 0.15.

    They may grow more slowly: formulas leave out how many vectors of width K there are for each score.
    """
    lengths, logs = (512, 1024, 2048, 4096), []
    for tokens in lengths:
        sizes = {key: math.isqrt(tokens) for key in ("span", "columns", "clusters")}
        sizes["buckets"] = math.isqrt(tokens) // 2 * 2
        options = {
            key: size for key, size in sizes.items() if key in find_mechanism(name).options.model_fields
        }
        logs.append(made_and_stated(name, causal, tokens, options))
    made, stated = slopes(lengths, logs)
    assert -0.25 < made - stated < 0.15, (made, stated)


@pytest.mark.parametrize(
    ("name", "causal", "option", "others"),
    [
        (name, causal, option, others)
        for name, option, others in ALONE
        for causal in (False, True)
        if find_mechanism(name).causal or not causal
    ],
)
def test_they_grow_no_faster_than_the_stated_cost_with_each_size_alone(
    name: str, causal: bool, option: str, others: dict[str, int]
) -> None:
    """So no term is left out of it, the choice of buckets and clusters among them."""
    sizes = (32, 128, 512, 1024)
    logs = [made_and_stated(name, causal, 2048, {option: size, **others}) for size in sizes]
    made, stated = slopes(sizes, logs)
    assert made - stated < 0.15, (made, stated)
    assert all(made - stated < math.log2(FACTOR) for made, stated in logs), logs


def test_every_size_is_varied_alone_in_some_test() -> None:
    known = {
        (name, option) for name in COUNTED for option in find_mechanism(name).options.model_fields
    } & set(itertools.product(COUNTED, (*SIZES, "clusters", "buckets", "features", "global_tokens")))
    assert known == {(name, option) for name, option, _ in ALONE}
