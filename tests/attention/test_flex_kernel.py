"""Long sequences in parts: lists against the pattern, values and gradients against dense attention, and size.

FlexAttention has log-sum-exps and gradients on GPUs only. Here its kernel is replaced by one that reads the
same lists in plain torch.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import pad
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from bigbird_dna.attention import flex, flex_kernel
from bigbird_dna.attention.blocked import blocked_attention
from bigbird_dna.attention.call import Call, dense_attention
from bigbird_dna.attention.pattern import Pattern
from bigbird_dna.attention.tiles import Lists, Parts, Tiles, make_parts, mask_function
from tests.attention.reference_implementations import inputs, value_and_gradients

PARTS = flex_kernel.Recipe(0, False, True)


def by_lists(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    tiles: Tiles,
    ends: Tensor,
    build: str,
    causal: bool,
) -> tuple[Tensor, Tensor]:
    """What a kernel computes, and how it reads the lists."""
    side, (batch, heads, tokens, width), end = (
        int(build.split()[0]),
        q.shape,
        k.shape[2],
    )
    rows = tiles.full.ids.shape[2]
    ids = (
        torch.cat([tiles.partial.ids, tiles.full.ids], -1)[0]
        .expand(heads, -1, -1)
        .long()
    )  # (H, T, S)
    sizes = [lists.ids.shape[-1] for lists in (tiles.partial, tiles.full)]
    counts = torch.cat(
        [
            torch.arange(length) < lists.counts[0, ..., None]
            for length, lists in zip(sizes, (tiles.partial, tiles.full), strict=True)
        ],
        -1,
    )
    masked = torch.arange(sum(sizes)) < sizes[0]
    query = pad(q, (0, 0, 0, rows * side - tokens)).view(
        batch, heads, rows, side, width
    )
    keys = (ids[..., None] * side + torch.arange(side)).flatten(2)  # (H, T, S · W)
    at = keys.clamp(max=end - 1)
    head = torch.arange(heads)[:, None, None]
    key, value = (x[:, head, at] for x in (k, v))  # (B, H, T, S · W, K)
    places = (torch.arange(rows)[:, None] * side + torch.arange(side))[
        None, None, :, :, None
    ]
    row = torch.arange(batch)[:, None, None, None, None]
    rule = mask_function(tiles, ends, causal)(
        row, head[None, ..., None], places, at[None, :, :, None]
    )
    free = (counts & ~masked).repeat_interleave(side, -1)[None, :, :, None]
    ruled = (counts & masked).repeat_interleave(side, -1)[None, :, :, None]
    seen = (free | ruled & rule) & (keys < end)[None, :, :, None]
    scores = (query @ key.transpose(-1, -2) / width**0.5).masked_fill(
        ~seen, float("-inf")
    )
    none = ~seen.any(-1, keepdim=True)
    weights = torch.softmax(scores.masked_fill(none, 0), -1).masked_fill(none, 0)
    lse = torch.logsumexp(scores.masked_fill(none, 0), -1).masked_fill(
        none[..., 0], float("-inf")
    )
    return (weights @ value).flatten(2, 3)[:, :, :tokens], lse.flatten(2, 3)[
        :, :, :tokens
    ]


@pytest.fixture
def parts_on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        flex_kernel, "compiled_attention", lambda attend, search: attend
    )
    monkeypatch.setattr(flex_kernel, "attend_to_tiles", by_lists)
    monkeypatch.setattr(flex, "PARTS_DEVICES", ("cpu",))


@st.composite
def calls(draw: st.DrawFn) -> tuple[Pattern, tuple[int, ...], int]:
    """A pattern with a global block, lengths of sequences with the same number of blocks, and a layer."""
    size = draw(st.integers(1, 6))
    pattern = Pattern(
        size,
        draw(st.integers(1, 3)),
        draw(st.sampled_from([0, 1, 3, 5])),
        draw(st.integers(0, 3)),
        seed=draw(st.integers(0, 9)),
        causal=draw(st.booleans()),
    )
    blocks = draw(st.integers(2, 14))
    lengths = draw(
        st.lists(
            st.integers((blocks - 1) * size + 1, blocks * size), min_size=1, max_size=3
        )
    )
    return pattern, tuple(lengths), draw(st.integers(0, 2))


def marked(lists: Lists, columns: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """(H, rows, columns) the listed tiles, none of which may be listed twice."""
    counts, ids = lists.counts[0].numpy(), lists.ids[0].numpy()
    found = np.zeros((*counts.shape, columns), dtype=int)
    for place in np.ndindex(*counts.shape):
        np.add.at(found[place], ids[place][: counts[place]], 1)
    assert found.max(initial=0) <= 1
    return found > 0


def tensors(parts: Parts) -> Iterator[Tensor]:
    yield from (x for x in tree_leaves(parts) if isinstance(x, Tensor))


@given(calls())
@settings(max_examples=50, deadline=None)
def test_parts_hold_every_pair_of_blocks_once(
    call: tuple[Pattern, tuple[int, ...], int],
) -> None:
    pattern, lengths, layer = call
    heads, longest, size = 2, max(lengths), pattern.block_size
    q = torch.empty(len(lengths), heads, longest, 1)
    made = make_parts(Call(q, q, q, pattern, lengths, layer), size, True)
    blocks = pattern.blocks(longest)
    everywhere = pattern.global_ids(blocks)
    found = np.zeros((heads, blocks, blocks), dtype=int)
    for tiles, columns in ((made.far, everywhere), (made.near, np.arange(blocks))):
        for lists, reverse in (
            (tiles.partial, tiles.partial_queries),
            (tiles.full, tiles.full_queries),
        ):
            assert reverse is not None
            mark = marked(lists, len(columns))
            assert np.array_equal(marked(reverse, blocks), mark.swapaxes(1, 2))
            found[:, :, columns] += mark
    expected = pattern.block_mask(blocks, heads, layer).astype(int)
    full = pattern.full_rows(blocks)
    expected[:, full] = np.isin(
        np.arange(blocks), everywhere
    )  # the rest by full attention
    assert np.array_equal(found, expected)
    assert made.full_queries.tolist() == [
        i for i in range(longest) if i // size in full
    ]
    assert all(x.is_contiguous() for x in tensors(made))


@given(calls())
@settings(max_examples=25, deadline=None)
@pytest.mark.usefixtures("parts_on_cpu")
def test_parts_have_the_values_and_gradients_of_dense_attention(
    call: tuple[Pattern, tuple[int, ...], int],
) -> None:
    pattern, lengths, layer = call
    tokens = max(lengths) + 2
    recipe = PARTS._replace(size=pattern.block_size)
    made = inputs(len(lengths), 2, tokens, 4)
    got, want = (
        value_and_gradients(
            lambda q, k, v, by=by: by(Call(q, k, v, pattern, lengths, layer)), made
        )  # type: ignore[misc]
        for by in (lambda call: flex_kernel.run(recipe, call, True), dense_attention)
    )
    for mine, expected in zip(got, want, strict=True):
        torch.testing.assert_close(mine, expected, rtol=0, atol=1e-12)


def drawn_rows(call: Call, rows: Tensor) -> Tensor:
    """Dense attention of queries `rows` (R,) of one sequence, (1, H, R, K)."""
    pattern, size = call.pattern, call.pattern.block_size
    blocks = pattern.blocks(call.lengths[0])
    seen = torch.from_numpy(pattern.block_mask(blocks, call.q.shape[1], call.layer))[
        :, rows // size
    ]
    seen = seen.repeat_interleave(size, -1)[None, ..., : call.lengths[0]]
    scores = call.q[:, :, rows] @ call.k.transpose(2, 3) / call.q.shape[3] ** 0.5
    return torch.softmax(scores.masked_fill(~seen, float("-inf")), -1) @ call.v


@pytest.mark.usefixtures("parts_on_cpu")
@pytest.mark.parametrize(
    "route", ["flex", pytest.param("blocked", marks=pytest.mark.slow)]
)
def test_values_and_gradients_of_drawn_rows_of_16384_tokens(route: str) -> None:
    length, pattern = 16384 - 21, Pattern()
    made = inputs(1, 1, length, 16, dtype=torch.float32)
    rows = torch.randint(length, (50,), generator=torch.Generator().manual_seed(1))
    rows = torch.cat([rows, torch.tensor([0, 63, 64, length - 65, length - 1])])
    upper = made[3][:, :, rows]

    def derived(out: Tensor, q: Tensor, k: Tensor, v: Tensor) -> list[Tensor]:
        return [out, *torch.autograd.grad(out, (q, k, v), upper)]

    q, k, v = made[:3]
    call = Call(q, k, v, pattern, (length,))
    whole = (
        flex_kernel.run(PARTS._replace(size=64), call, True)
        if route == "flex"
        else blocked_attention(call)
    )
    got, want = (
        derived(out, q, k, v) for out in (whole[:, :, rows], drawn_rows(call, rows))
    )
    for mine, expected in zip(got, want, strict=True):
        torch.testing.assert_close(mine, expected, rtol=1e-4, atol=1e-5)


class Largest(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Number of elements of the largest tensor that any operator returns."""

    elements = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        self.elements = max(
            [
                self.elements,
                *(x.numel() for x in tree_leaves(made) if isinstance(x, Tensor)),
            ]
        )
        return made


def without_scores(
    q: Tensor, k: Tensor, v: Tensor, *_: object
) -> tuple[Tensor, Tensor]:
    """Results with the shapes and derivatives of a kernel's; a kernel itself needs no more memory."""
    lse = (q.sum(-1) + k.sum() + v.sum()).float()
    return q * lse[..., None].to(q.dtype), lse


@pytest.mark.usefixtures("parts_on_cpu")
def test_nothing_of_131072_tokens_is_quadratic(monkeypatch: pytest.MonkeyPatch) -> None:
    """The paper's layer, forward and backward: nothing is larger than the queries, and lists are small."""
    monkeypatch.setattr(flex_kernel, "attend_to_tiles", without_scores)
    sizes = {}
    for tokens in (65536, 131072):
        with FakeTensorMode(allow_non_fake_inputs=True), Largest() as largest:  # type: ignore[no-untyped-call]
            q, k, v = (
                torch.empty(1, 12, tokens, 64, dtype=torch.bfloat16, requires_grad=True)
                for _ in range(3)
            )
            call = Call(q, k, v, Pattern(), (tokens,))
            flex_kernel.run(PARTS._replace(size=64), call, True).sum().backward()  # type: ignore[no-untyped-call]
        assert q.grad is not None and largest.elements == q.numel()
        sizes[tokens] = sum(x.nbytes for x in tensors(make_parts(call, 64, True)))
    assert sizes[131072] < 12 << 20 and 1.9 < sizes[131072] / sizes[65536] < 2.2


@pytest.mark.parametrize(
    ("pattern", "tokens", "parts"),
    [
        (Pattern(), 16384, False),
        (Pattern(), 131072, True),
        (Pattern(causal=True), 131072, True),
        (Pattern(huggingface=True), 131072, False),
        (Pattern(num_global_tokens=64), 131072, False),
        (Pattern(global_blocks=0), 131072, False),
        (Pattern(block_size=72), 131072, False),
    ],
)
def test_long_sequences_are_computed_in_parts(
    monkeypatch: pytest.MonkeyPatch, pattern: Pattern, tokens: int, parts: bool
) -> None:
    """Where they cannot be, and the lists of one kernel are too large, the route is refused."""
    monkeypatch.setattr(flex, "PARTS_DEVICES", ("cpu",))
    monkeypatch.setattr(flex, "cpu_refusal", lambda *_: None)
    monkeypatch.setattr(flex, "find_recipe", lambda *_: PARTS)
    q = torch.zeros((), requires_grad=True).expand(2, 12, tokens, 64)
    call = Call(q, q, q, pattern, (tokens, tokens))
    assert (
        flex.in_parts(q, pattern)
        == flex.kind_of(q, pattern, True, False).parts
        == parts
    )
    assert (flex.unavailable(call, True) is None) == (parts or tokens < 75_000)
    assert flex.serves_by_row(call) == (not parts and tokens < 30_000)
    recipes = flex.possible_recipes(pattern, "cuda", True, parts)
    assert all(recipe.parts == parts for recipe in recipes)
    assert not parts or {recipe.size for recipe in recipes} == {pattern.block_size}
