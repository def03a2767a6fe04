"""Blocks, windows, chunks and clusters that are far larger than a sequence cost no more than its length."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bigbird_dna.attention import mechanism as shared
from bigbird_dna.config import LayerShape, find_mechanism, known_mechanisms
from tests.attention.problems import inputs
from tests.attention.reference_implementations import (
    HEADS,
    WIDTH,
    cluster_graph,
    cluster_parts,
    masked_softmax,
    matrix_of_parts,
)
from tests.attention.sizes import Largest

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
ROUTED = ("routing", "combiner_routing")
MADE = ("window", "span", "columns", "chunk", "clusters", "dilation")


def forms(name: str) -> list[bool]:
    return [False, True] if find_mechanism(name).causal else [False]


each_size = pytest.mark.parametrize(
    ("name", "causal", "sizes", "others"),
    [(name, causal, sizes, others) for name, sizes, others in SIZED for causal in forms(name)],
)
each_form = pytest.mark.parametrize(
    ("name", "causal"), [(name, causal) for name in known_mechanisms() for causal in forms(name)]
)
each_routed = pytest.mark.parametrize(
    ("name", "causal"), [(name, causal) for name in ROUTED for causal in (False, True)]
)


def build(
    name: str, causal: bool, options: dict[str, Any], heads: int = HEADS, width: int = WIDTH
) -> nn.Module:
    torch.manual_seed(0)
    module: nn.Module = find_mechanism(name).make(LayerShape(heads, width, causal=causal), options)
    return module.eval()


def run(name: str, module: nn.Module, *shape: int, lengths: Tensor | None = None) -> tuple[list[Tensor], int]:
    """The output and gradients, and how many numbers the largest tensor of both passes has."""
    q, k, v, upper = inputs(*shape, dtype=next(iter(module.state_dict().values()), torch.ones(1)).dtype)
    k = q if find_mechanism(name).shares_keys else k
    hidden = v.detach().transpose(1, 2).flatten(2)
    with Largest() as largest:
        out = module(q, k, v, hidden=hidden, lengths=lengths)
        gradients = torch.autograd.grad(out, [q, v], upper)
    return [out.detach(), *gradients], largest.numbers


def test_no_such_option_is_left_out() -> None:
    known = {(name, key) for name, one in known_mechanisms().items() for key in one.options.model_fields}
    mine = {(name, key) for name, keys, _ in SIZED for key in keys}
    assert {(name, key) for name, key in known if key in MADE} - {
        (name, "clusters") for name in ROUTED
    } <= mine


@each_size
def test_it_is_what_it_is_at_the_length(
    name: str, causal: bool, sizes: tuple[str, ...], others: dict[str, Any]
) -> None:
    """In value and gradients, with a padded row; and it makes nothing that is larger."""
    found = []
    for size in (TOKENS, FAR, FURTHER):
        module = build(name, causal, {**others, **dict.fromkeys(sizes, size)}).double()
        found.append(run(name, module, 2, HEADS, TOKENS, WIDTH, lengths=LENGTHS))
    for made, largest in found[1:]:
        for mine, other in zip(made, found[0][0], strict=True):
            torch.testing.assert_close(mine, other, rtol=0, atol=1e-13)
        assert largest <= found[0][1]


@each_routed
def test_clusters_above_the_length_keep_the_definition(name: str, causal: bool) -> None:
    """Some clusters have several pieces, most have none."""
    module = build(name, causal, {"clusters": FAR, "span": 4}).double()
    q, k, v, _ = (x.detach() for x in inputs(1, HEADS, TOKENS, WIDTH))
    with torch.no_grad():
        q[:, :, 3:], k[:, :, 3:] = q[:, :, 2:3], k[:, :, 2:3]  # one cluster of 18
        q[:, :, 5], k[:, :, 5] = q[:, :, 0], k[:, :, 0]
    numbers = module.clusters(q, k, torch.ones(1, 1, TOKENS, dtype=torch.bool))[0].tolist()  # type: ignore[operator]
    past = torch.ones(TOKENS, TOKENS, dtype=torch.bool)
    past = past.tril() if causal else past
    for head, row in enumerate(numbers):
        assert max(row) >= TOKENS and len(set(row)) in (2, 3)
        query, key = q[0, head], k[0, head]
        if name == "routing":
            matrix = masked_softmax(query @ key.T / math.sqrt(WIDTH), cluster_graph(row, 4) & past)
        else:
            matrix = matrix_of_parts(query, key, cluster_parts(row, 4, causal), "max")
        torch.testing.assert_close(module(q, k, v)[0, head], matrix @ v[0, head], rtol=0, atol=1e-12)


@each_routed
def test_clusters_above_the_length_make_nothing_beside_their_choice(name: str, causal: bool) -> None:
    """A number for each token and direction, of which there are so many; no piece for each."""
    for clusters in (FAR, FURTHER):
        module = build(name, causal, {"clusters": clusters, "span": FAR})
        _, largest = run(name, module, 1, HEADS, TOKENS, WIDTH)
        assert largest <= HEADS * TOKENS * clusters


@each_form
def test_many_short_sequences_are_worked_on_a_few_heads_at_a_time(name: str, causal: bool) -> None:
    """With the options as they come, whose blocks are larger than 16 tokens."""
    _, largest = run(name, build(name, causal, {}, 12, 64), 4, 12, 16, 64)
    assert largest <= shared.ELEMENTS["cpu"]


@each_form
def test_no_tensor_is_larger_than_the_memory_that_is_allowed(
    name: str, causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The choice of many buckets and clusters, which is made before all else, is cut as well."""
    shape, width, allowed = (4, 8, 130), 16, 1 << 18
    sizes = {"span": 8, "columns": 8, "chunk": 8, "clusters": 256, "buckets": 256}
    known = find_mechanism(name).options.model_fields
    options = {key: size for key, size in sizes.items() if key in known}
    module = build(name, causal, options, shape[1], width)
    whole, _ = run(name, module, *shape, width)
    monkeypatch.setitem(shared.ELEMENTS, "cpu", allowed)
    parts, largest = run(name, module, *shape, width)
    assert largest <= allowed
    for mine, other in zip(parts, whole, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", [*ROUTED, "reformer"])
def test_what_is_chosen_some_heads_at_a_time_is_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = build(name, False, {}, 3, 16)
    q, k, *_ = (x.detach() for x in inputs(2, 3, 70, 16, dtype=torch.float32))
    there = torch.ones(2, 1, 70, dtype=torch.bool)
    found = []
    for elements in (1 << 22, 10000, 1):
        monkeypatch.setitem(shared.ELEMENTS, "cpu", elements)
        found.append(module._hashed(q) if name == "reformer" else module.clusters(q, k, there))
    assert all(torch.equal(found[0], other) for other in found[1:]) and found[0].unique().numel() > 8
