"""FlexAttention's lists against the pattern by token, what the route refuses, and its kernel on a CPU."""

import inspect
import itertools
import logging
import shutil
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._dynamo import config as limits
from torch._dynamo.utils import counters
from torch.nn.attention.flex_attention import BlockMask
from torch.utils.checkpoint import checkpoint

from bigbird_dna.attention import bigbird_attention, flex, flex_kernel, tiles
from bigbird_dna.attention.call import Call, dense_attention
from bigbird_dna.attention.pattern import Pattern
from tests.attention.reference_implementations import (
    Problem,
    inputs,
    problems,
    value_and_gradients,
)

GENOMICS = Pattern()
PROBLEMS = st.booleans().flatmap(
    lambda one: problems(st.integers(1, 9), most=99, one_graph=one)
)

needs_compiler = pytest.mark.skipif(
    shutil.which("g++") is None or "AVX" not in torch.backends.cpu.get_cpu_capability(),
    reason="flex needs g++ and AVX2",
)


def spread(lists: tiles.Lists, size: int, tokens: int) -> npt.NDArray[np.bool_]:
    """(G, H, N, N): the scores of the listed tiles."""
    counts, ids = lists.counts.numpy(), lists.ids.numpy()
    mask = np.zeros(ids.shape, dtype=bool)
    for place in np.ndindex(*counts.shape):
        mask[(*place, ids[place][: counts[place]])] = True
    return mask.repeat(size, axis=2).repeat(size, axis=3)[:, :, :tokens, :tokens]


def call_of(
    pattern: Pattern,
    lengths: tuple[int, ...],
    heads: int,
    tokens: int = 0,
    layer: int = 0,
) -> Call:
    q = torch.empty(len(lengths), heads, tokens or max(lengths), 1)
    return Call(q, q, q, pattern, lengths, layer)


def indices(
    batch: int, heads: int, tokens: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    row, head, query, key = torch.meshgrid(
        *(torch.arange(n) for n in (batch, heads, tokens, tokens)), indexing="ij"
    )
    return row, head, query, key


@given(PROBLEMS, st.booleans(), st.integers(1, 16))
@settings(max_examples=80, deadline=None)
def test_tiles_hold_the_pattern_token_by_token(
    problem: Problem, own: bool, size: int
) -> None:
    """Read as the kernels read them: full tiles as they are, partial ones under the mask function."""
    pattern, (_, heads, tokens, _), lengths, layer = problem
    size = pattern.block_size if own else size
    longest = max(lengths)
    made = tiles.make_tiles(
        call_of(pattern, lengths, heads, tokens, layer), size, False
    )
    assert (made.seen is None) == tiles.aligned(pattern, size)
    graphs = {pattern.graph_blocks(length, tokens) for length in lengths}
    assert len(made.full.counts) == (1 if len(graphs) == 1 else len(lengths))
    partial, full = (
        spread(lists, size, longest) for lists in (made.partial, made.full)
    )
    assert not (partial & full).any()
    ends = torch.tensor(lengths)
    at = indices(len(lengths), heads, longest)
    allowed = (
        tiles.mask_function(made, ends, pattern.causal)(*at).numpy() & partial
    ) | full
    score = tiles.score_function(made)
    scores = (
        torch.zeros(allowed.shape) if score is None else score(torch.zeros(()), *at)
    )
    for row, length in enumerate(lengths):
        graph = tokens if pattern.huggingface else length
        expected = pattern.counts(graph, heads, layer)[:, :length, :length]
        assert np.array_equal(allowed[row, :, :length, :length], expected > 0)
        assert not allowed[row, :, :length, length:].any()
        counted = scores[row, :, :length, :length].exp().numpy()[expected > 0]
        np.testing.assert_allclose(counted, expected[expected > 0], rtol=1e-6)


def test_no_tile_lies_past_the_end() -> None:
    """The kernels would read keys that aren't there."""
    made = tiles.make_tiles(call_of(GENOMICS, (60, 3), heads=2), 64, True)
    assert made.partial.counts[0, :, 0].tolist() == [1, 1]
    assert made.partial.ids[0, :, 0, 0].tolist() == [0, 0]
    assert not made.full.counts[0, :, 0].any()


@given(PROBLEMS)
@settings(max_examples=20, deadline=None)
def test_reverse_lists_are_torchs(problem: Problem) -> None:
    pattern, (_, heads, tokens, _), lengths, layer = problem
    made = tiles.make_tiles(call_of(pattern, lengths, heads, tokens, layer), 8, True)
    torchs = BlockMask.from_kv_blocks(*made.partial, *made.full, BLOCK_SIZE=8)
    assert made.partial_queries is not None and made.full_queries is not None
    for ours, (counts, ids) in (
        (made.partial_queries, (torchs.q_num_blocks, torchs.q_indices)),
        (made.full_queries, (torchs.full_q_num_blocks, torchs.full_q_indices)),
    ):
        assert counts is not None and ids is not None
        assert torch.equal(ours.counts, counts) and torch.equal(ours.ids, ids)
    for lists in (made.partial, made.full, made.partial_queries, made.full_queries):
        assert lists.counts.is_contiguous() and lists.ids.is_contiguous()
        assert lists.counts.dtype == lists.ids.dtype == torch.int32


def test_tiles_are_kept_within_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "KEPT_TILES", type(tiles.KEPT_TILES)())

    def make(layer: int, shortest: int = 640) -> tiles.Tiles:
        return tiles.make_tiles(
            call_of(GENOMICS, (640, shortest), 2, layer=layer), 64, False
        )

    first = make(0)
    assert (
        make(0) is first and make(0, 639) is not first and make(0, 600) is make(0, 630)
    )
    with torch.inference_mode():
        assert not make(1).full.ids.is_inference()
    one = tiles.tile_bytes(first)
    monkeypatch.setattr(tiles, "KEPT_BYTES", 2 * one)
    for layer in range(2, 6):
        make(layer)
    assert len(tiles.KEPT_TILES) == 2


SHARED = {"V100": 96 << 10, "A100": 163 << 10, "H100": 227 << 10}
"""Bytes of shared memory per block, from NVIDIA's tables of compute capabilities 7.0, 8.0 and 9.0."""


@pytest.mark.parametrize("size", [1, 4, 16, 32, 48, 64, 84, 96, 128, 192, 256])
@pytest.mark.parametrize("extra", [0, 64, 100])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_recipes_fit_a_gpu(size: int, extra: int, dtype: torch.dtype) -> None:
    """What torch's lowering demands: sides that are powers of two from 16 up and divide the tile."""
    pattern = Pattern(size, num_global_tokens=extra)
    for recipe in flex.possible_recipes(pattern, "cuda", True):
        assert recipe.size % 16 == 0
        for width, shared in itertools.product((16, 64, 128, 256), SHARED.values()):
            build = flex_kernel.kernel_build(recipe.size, width, dtype, shared)
            options = flex_kernel.kernel_options(build, dtype)
            sides = [value for name, value in options.items() if "BLOCK" in name]
            assert all(
                side in (16, 32, 64) and recipe.size % side == 0 for side in sides
            )
            assert sides or recipe.size % 128 == 0
    assert len(flex.possible_recipes(pattern, "cuda", False)) == 1
    assert (
        flex.possible_recipes(replace(pattern, num_global_tokens=0), "cpu", False)[
            0
        ].size
        == size
    )


@pytest.mark.parametrize("gpu", SHARED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("width", [32, 64, 128, 256])
def test_tiles_fit_the_shared_memory(gpu: str, dtype: torch.dtype, width: int) -> None:
    """A query tile and its keys and values in every stage, with the larger of the alternatives that fit."""
    options = flex_kernel.kernel_options(
        flex_kernel.kernel_build(64, width, dtype, SHARED[gpu]), dtype
    )

    def bytes_of(side: int, stages: int) -> int:
        return (1 + 2 * stages) * side * width * dtype.itemsize

    side, stages = options["fwd_BLOCK_M"], options.get("fwd_num_stages", 3)
    assert bytes_of(side, stages) < SHARED[gpu]
    assert (side, stages) == (64, 3) or 2 * bytes_of(side, stages) > SHARED[gpu] / 2
    if (width, dtype) == (64, torch.bfloat16):
        assert "fwd_num_stages" not in options, (
            "the measured kernels are torch's default"
        )


def test_without_a_compiler_nothing_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    q = torch.zeros(1, 1, 8, 4)
    reason = flex.unavailable(Call(q, q, q, GENOMICS, (8,)), False)
    assert reason is not None and ("no-such-compiler" in reason or "AVX2" in reason)


class Twisted(torch.autograd.Function):
    """The identity, with a wrong gradient."""

    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: object, grad: Tensor) -> Tensor:
        return 1.1 * grad


def kind(**changes: object) -> flex.Kind:
    q = torch.zeros(2, 2, 8, 4)
    return flex.kind_of(q, Pattern(8), True, False)._replace(**changes)  # type: ignore[arg-type]


@given(
    *(st.integers(1, 64), st.integers(1, 96), st.integers(0, 300), st.integers(1, 40)),
    *(
        st.sampled_from(["one row", "one graph", "by row"]),
        st.integers(0, 5000),
        st.booleans(),
    ),
)
@settings(max_examples=50, deadline=None)
def test_trial_lengths_are_near_the_real_one_and_share_no_size(
    block: int, size: int, extra: int, heads: int, rows: str, tokens: int, parts: bool
) -> None:
    """torch takes sizes that are equal at compilation for equal for ever."""
    pattern, one_row = Pattern(block, num_global_tokens=extra), rows == "one row"
    asked = kind(
        pattern=pattern,
        heads=heads,
        width=16,
        one_row=one_row,
        by_row=rows == "by row",
        parts=parts,
    )
    lengths = flex.trial_lengths(flex_kernel.Recipe(size, False), asked, tokens)
    assert len({pattern.blocks(length) for length in lengths}) == (
        2 if rows == "by row" else 1
    )
    assert (len(lengths) == 1) == one_row
    if tokens >= extra + max(8 * block, 160 + block):
        assert (
            tokens < max(lengths) + block
            and max(lengths) < tokens + (3 + size // block) * 2 * block
        )
    varying = {max(lengths), -(-max(lengths) // size)} | (
        set() if one_row else {len(lengths)}
    )
    assert not varying & {heads, 16} and not (parts and 2 in varying)
    assert one_row or min(lengths) < max(lengths) or block == 1


@pytest.mark.parametrize("rows", ["one_row", "by_row", "one graph"])
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("none", None),
        ("output", "output differs"),
        ("nan", "output differs"),
        ("gradient", "gradient of k differs"),
        ("raises", "failed to compile: ValueError: no kernel"),
    ],
)
def test_a_trial_finds_faults(
    monkeypatch: pytest.MonkeyPatch, fault: str, reason: str | None, rows: str
) -> None:
    def run(recipe: flex_kernel.Recipe, call: Call, gradients: bool) -> Tensor:
        if fault == "raises":
            raise ValueError("\nno kernel\nand more")
        if fault == "gradient":
            call = call._replace(k=Twisted.apply(call.k))  # type: ignore[no-untyped-call]
        out = dense_attention(call)
        return out * {"output": 1.01, "nan": float("nan")}.get(fault, 1.0)

    monkeypatch.setattr(flex, "run", run)
    asked = kind(one_row=rows == "one_row", by_row=rows == "by_row")
    found = flex.find_failure(flex_kernel.Recipe(8, False), asked, 8)
    assert found is None if reason is None else found is not None and reason in found


def test_a_trial_that_fails_leaves_no_lines_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """torch logs hundreds of them for a kernel that cannot be compiled."""

    def run(recipe: flex_kernel.Recipe, call: Call, gradients: bool) -> Tensor:
        logging.getLogger("torch.new").warning("no kernel")
        raise ValueError

    monkeypatch.setattr(flex, "run", run)
    assert flex.find_failure(flex_kernel.Recipe(8, False), kind(), 8) is not None
    assert not caplog.records
    logging.getLogger("torch.new").warning("afterwards")
    assert len(caplog.records) == 1


def test_torch_may_compile_a_graph_for_every_kind_of_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its own limit is 8; some versions count graphs for each compiled function, others for all."""
    given: dict[str, object] = {}
    older = inspect.signature(lambda model, *, dynamic=None, fullgraph=False: None)
    monkeypatch.setattr(inspect, "signature", lambda _: older)
    monkeypatch.setattr(
        torch, "compile", lambda model, **options: given.update(options)
    )
    with limits.patch(recompile_limit=8):
        flex_kernel.compiled_attention.__wrapped__(print, False)
        assert (
            given == {"dynamic": True, "fullgraph": True}
            and limits.recompile_limit == flex_kernel.GRAPHS
        )


def test_a_trial_is_as_long_as_the_call_and_a_short_one_follows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[tuple[int, ...]] = []

    def run(recipe: flex_kernel.Recipe, call: Call, gradients: bool) -> Tensor:
        seen.append(call.lengths)
        return torch.cat(
            [dense_attention(call.take([row])) for row in range(len(call.lengths))]
        )

    monkeypatch.setattr(flex, "run", run)
    for by_row in (False, True):
        seen.clear()
        # Two rows whose lengths are a block apart, each long enough for the linear reference.
        monkeypatch.setattr(flex, "DENSE_TOKENS", 400)
        assert (
            flex.find_failure(flex_kernel.Recipe(8, False), kind(by_row=by_row), 500)
            is None
        )
        long, short = seen
        assert 500 <= max(long) < 520 and max(short) < 200
        assert len({-(-length // 8) for length in long}) == 1 + by_row
    monkeypatch.setattr(flex, "TRIAL_TOKENS", 450)
    assert flex.find_failure(flex_kernel.Recipe(8, False), kind(), 10**6) is None
    assert max(map(max, seen)) < 520


def exactly(recipe: flex_kernel.Recipe, call: Call, gradients: bool) -> Tensor:
    """As the kernel does, whatever autocast says."""
    with torch.autocast("cpu", enabled=False):
        return dense_attention(call)


def test_a_trial_knows_no_autocast(monkeypatch: pytest.MonkeyPatch) -> None:
    """In bfloat16 dense attention would be off by more than a kernel in float32 may be."""
    monkeypatch.setattr(flex, "run", exactly)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert flex.find_failure(flex_kernel.Recipe(8, False), kind(), 8) is None


def test_a_trial_in_the_midst_of_a_layer_that_is_recomputed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a trial saves for its own gradients is not the layer's."""
    monkeypatch.setattr(flex, "run", exactly)
    monkeypatch.setattr(flex, "FOUND_RECIPES", {})
    x = torch.randn(3, requires_grad=True)

    def layer(x: Tensor) -> Tensor:
        assert isinstance(flex.find_recipe(kind(), 8), flex_kernel.Recipe)
        return x.sin().exp()

    checkpoint(layer, x, use_reentrant=False).sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, (x.sin().exp() * x.cos()).detach())


def test_the_first_recipe_that_passes_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    recipes = (
        flex_kernel.Recipe(64, False),
        flex_kernel.Recipe(64, True),
        flex_kernel.Recipe(128, False),
    )
    faults = dict(zip(recipes, ["a", None, "c"], strict=True))
    monkeypatch.setattr(flex, "possible_recipes", lambda *_: recipes)
    monkeypatch.setattr(flex, "find_failure", lambda recipe, *_: faults[recipe])
    monkeypatch.setattr(flex, "FOUND_RECIPES", {})
    assert flex.find_recipe(kind(), 8) == recipes[1]
    faults[recipes[1]] = "b"
    assert flex.find_recipe(kind(), 8) == recipes[1], "tried once"
    flex.FOUND_RECIPES.clear()
    assert flex.find_recipe(kind(), 8) == "a"


def by_flex(monkeypatch: pytest.MonkeyPatch, by_row: bool) -> list[tuple[int, ...]]:
    """Let the flex route be dense attention; gives the lengths of each call, as they come."""
    calls: list[tuple[int, ...]] = []

    def attend(call: Call) -> Tensor:
        calls.append(call.lengths)
        return dense_attention(call)

    monkeypatch.setattr(flex, "unavailable", lambda *_, **__: None)
    monkeypatch.setattr(flex, "serves_by_row", lambda *_, **__: by_row)
    monkeypatch.setattr(flex, "flex_attention", attend)
    return calls


@pytest.mark.parametrize("by_row", [False, True])
def test_rows_of_all_lengths_are_one_call(
    monkeypatch: pytest.MonkeyPatch, by_row: bool
) -> None:
    calls = by_flex(monkeypatch, by_row)
    pattern, lengths = Pattern(4), [200, 7, 131, 196, 130, 61]
    made = inputs(6, 2, 203, 4)

    def attend(route: str) -> list[Tensor]:
        return value_and_gradients(
            lambda q, k, v: bigbird_attention(
                q, k, v, pattern, lengths=lengths, route=route
            ),  # type: ignore[arg-type]
            made,
        )

    got, want = attend("flex"), attend("dense")
    for mine, expected in zip(got, want, strict=True):
        torch.testing.assert_close(mine, expected, rtol=0, atol=1e-12)
    assert calls == (
        [tuple(lengths)] if by_row else [(200,), (7,), (131, 130), (196,), (61,)]
    )


def test_lists_by_row_that_would_fill_the_memory_are_not_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(flex, "cpu_refusal", lambda *_: None)
    monkeypatch.setattr(flex, "find_recipe", lambda *_: flex_kernel.Recipe(64, False))
    for rows, fits in ((300, True), (400, False)):
        q = torch.zeros((), requires_grad=True).expand(rows, 12, 4096, 1)
        assert flex.serves_by_row(Call(q, q, q, GENOMICS, (4096,) * rows)) == fits


def assert_serves(
    pattern: Pattern,
    shape: tuple[int, ...],
    lengths: tuple[int, ...],
    by_row: bool = False,
) -> None:
    q, k, v = (x.detach() for x in inputs(*shape, dtype=torch.float32)[:3])
    call = Call(q, k, v, pattern, lengths, 1)
    if by_row:
        assert flex.serves_by_row(call)
    assert flex.unavailable(call, False) is None
    got = flex.flex_attention(call)
    assert (got - dense_attention(call)).abs().max() < 1e-5
    for row, length in enumerate(lengths):
        assert not got[row, :, length:].any()


@needs_compiler
@pytest.mark.slow
def test_one_kernel_serves_all_lengths_on_a_cpu() -> None:
    before = counters["stats"]["unique_graphs"]
    generator = torch.get_rng_state()
    pattern = Pattern(16, 2, 3, 2, seed=3)
    assert_serves(pattern, (2, 2, 300, 16), (300, 290))
    assert counters["stats"]["unique_graphs"] == before + 1
    assert_serves(pattern, (2, 2, 300, 16), (201, 200))
    assert_serves(
        replace(pattern, seed=4, random_blocks=1), (3, 2, 777, 16), (777, 777, 777)
    )
    assert_serves(pattern, (2, 2, 40, 16), (10, 3))
    assert_serves(pattern, (2, 2, 40, 16), (1, 1))
    assert_serves(replace(pattern, num_global_tokens=32), (2, 2, 300, 16), (300, 291))
    # Another layout of memory, and autocast, neither of which may compile anything.
    made = inputs(2, 300, 2, 16, dtype=torch.float32)
    q, k, v = (x.detach().transpose(1, 2) for x in made[:3])
    call = Call(q, k, v, pattern, (300, 290))
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        got = flex.flex_attention(call)
    assert (got - dense_attention(call)).abs().max() < 1e-5
    assert counters["stats"]["unique_graphs"] == before + 1
    assert torch.equal(torch.get_rng_state(), generator)


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize(
    ("pattern", "shape", "batches", "by_row"),
    [
        (GENOMICS, (2, 3, 1300, 32), [(1300, 1290)], False),
        (GENOMICS, (1, 3, 1300, 32), [(1290,)], False),
        (replace(GENOMICS, causal=True), (2, 3, 1300, 32), [(1300, 1290)], False),
        (replace(GENOMICS, huggingface=True), (2, 3, 1300, 32), [(1000, 400)], False),
        (
            Pattern(84, 2, 3, 0, num_global_tokens=252),
            (2, 3, 1300, 24),
            [(1300, 1290)],
            False,
        ),
        (Pattern(4, causal=True), (2, 3, 300, 5), [(300, 299)], False),
        (Pattern(16, 2, 3, 2), (3, 2, 300, 16), [(300, 111, 17), (40, 33, 299)], True),
        (Pattern(16, 2, 3, 2, causal=True), (3, 2, 300, 16), [(300, 111, 17)], True),
        (
            Pattern(32, 2, 3, 1, num_global_tokens=32),
            (2, 2, 301, 16),
            [(301, 130)],
            True,
        ),
    ],
)
def test_variants_on_a_cpu(
    pattern: Pattern,
    shape: tuple[int, ...],
    batches: list[tuple[int, ...]],
    by_row: bool,
) -> None:
    """One kernel serves rows of all lengths."""
    for inference in (False, True):
        with torch.inference_mode(inference):
            q = torch.empty(shape)
            assert not by_row or flex.serves_by_row(Call(q, q, q, pattern, batches[0]))
            before = counters["stats"]["unique_graphs"]
            for lengths in batches:
                assert_serves(pattern, shape, lengths, by_row)
            assert not by_row or counters["stats"]["unique_graphs"] == before
