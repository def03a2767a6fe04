"""FlexAttention's lists against the pattern by token, what the route refuses, and its kernel on a CPU."""

import shutil
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._dynamo.utils import counters
from torch.nn.attention.flex_attention import BlockMask

from bigbird_dna.attention import flex, tiles
from bigbird_dna.attention.dense import dense_attention
from bigbird_dna.attention.pattern import Pattern

CPU = torch.device("cpu")
GENOMICS = Pattern()

needs_compiler = pytest.mark.skipif(
    shutil.which("g++") is None or "AVX" not in torch.backends.cpu.get_cpu_capability(),
    reason="flex needs g++ and AVX2",
)


@st.composite
def patterns(draw: st.DrawFn) -> Pattern:
    kind = draw(st.sampled_from(["plain", "causal", "extra", "huggingface"]))
    size, seed = draw(st.integers(1, 9)), draw(st.integers(0, 99))
    if kind == "huggingface":
        return Pattern(size, 2, 3, draw(st.integers(1, 3)), seed=seed, huggingface=True)
    counts = st.tuples(st.integers(0, 4), st.sampled_from([0, 1, 3, 5]), st.integers(0, 3))
    return Pattern(
        size,
        *draw(counts.filter(any)),
        seed=seed,
        causal=kind == "causal",
        extra_globals=draw(st.integers(1, 20)) if kind == "extra" else 0,
    )


@st.composite
def problems(draw: st.DrawFn) -> tuple[Pattern, int, tuple[int, ...]]:
    """A pattern, the padded length, and true lengths that have one graph."""
    pattern = draw(patterns())
    tokens = draw(st.integers(2, 90))
    longest = draw(st.integers(2, tokens))
    blocks = pattern.graph_blocks(longest, tokens)
    same = [n for n in range(1, longest + 1) if pattern.graph_blocks(n, tokens) == blocks]
    others = draw(st.lists(st.sampled_from(same), max_size=2))
    return pattern, tokens, (longest, *others)


def spread(lists: tiles.Lists, size: int, tokens: int) -> npt.NDArray[np.bool_]:
    """(H, N, N): the scores of the listed tiles."""
    counts, ids = lists.counts[0].numpy(), lists.ids[0].numpy()
    mask = np.zeros(ids.shape, dtype=bool)
    for head, row in np.ndindex(*counts.shape):
        mask[head, row, ids[head, row, : counts[head, row]]] = True
    return mask.repeat(size, axis=1).repeat(size, axis=2)[:, :tokens, :tokens]


def indices(batch: int, heads: int, tokens: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    row, head, query, key = torch.meshgrid(
        *(torch.arange(n) for n in (batch, heads, tokens, tokens)), indexing="ij"
    )
    return row, head, query, key


@given(problems(), st.booleans(), st.integers(1, 16), st.integers(0, 3))
@settings(max_examples=150, deadline=None)
def test_tiles_hold_the_pattern_token_by_token(
    problem: tuple[Pattern, int, tuple[int, ...]], own: bool, size: int, layer: int
) -> None:
    """Read as the kernels read them: full tiles as they are, partial ones under the mask function."""
    pattern, tokens, lengths = problem
    size = pattern.block_size if own else size
    longest, heads = max(lengths), 2
    made = tiles.make_tiles(
        pattern,
        pattern.graph_blocks(longest, tokens),
        heads,
        layer,
        size=size,
        tokens=longest,
        certain=min(lengths),
        gradients=False,
        device=CPU,
    )
    assert (made.seen is None) == tiles.aligned(pattern, size)
    partial, full = (spread(lists, size, longest) for lists in (made.partial, made.full))
    assert not (partial & full).any()
    ends = torch.tensor(lengths)
    at = indices(len(lengths), heads, longest)
    allowed = (flex.mask_function(made, ends, pattern.causal)(*at).numpy() & partial) | full
    score = flex.score_function(made)
    scores = torch.zeros(allowed.shape) if score is None else score(torch.zeros(()), *at)
    for row, length in enumerate(lengths):
        graph = tokens if pattern.huggingface else length
        expected = pattern.counts(graph, heads, layer)[:, :length, :length]
        assert np.array_equal(allowed[row, :, :length, :length], expected > 0)
        assert not allowed[row, :, :length, length:].any()
        counted = scores[row, :, :length, :length].exp().numpy()[expected > 0]
        np.testing.assert_allclose(counted, expected[expected > 0], rtol=1e-6)


def test_no_tile_lies_past_the_end() -> None:
    """The kernels would read keys that aren't there."""
    made = tiles.make_tiles(
        GENOMICS, 1, 2, 0, size=64, tokens=60, certain=3, gradients=True, device=CPU
    )
    assert made.partial.counts[0, :, 0].tolist() == [1, 1]
    assert made.partial.ids[0, :, 0, 0].tolist() == [0, 0]
    assert not made.full.counts[0, :, 0].any()


@given(patterns(), st.integers(2, 90))
@settings(max_examples=30, deadline=None)
def test_reverse_lists_are_torchs(pattern: Pattern, tokens: int) -> None:
    made = tiles.make_tiles(
        pattern,
        pattern.blocks(tokens),
        3,
        1,
        size=8,
        tokens=tokens,
        certain=max(1, tokens // 2),
        gradients=True,
        device=CPU,
    )
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
    monkeypatch.setattr(tiles, "_kept", type(tiles._kept)())

    def make(layer: int, certain: int = 640) -> tiles.Tiles:
        return tiles.make_tiles(
            GENOMICS,
            10,
            2,
            layer,
            size=64,
            tokens=640,
            certain=certain,
            gradients=False,
            device=CPU,
        )

    first = make(0)
    assert make(0) is first and make(0, 639) is not first and make(0, 600) is make(0, 630)
    with torch.inference_mode():
        assert not make(1).full.ids.is_inference()
    one = tiles._bytes(first)
    monkeypatch.setattr(tiles, "KEPT_BYTES", 2 * one)
    for layer in range(2, 6):
        make(layer)
    assert len(tiles._kept) == 2


@pytest.mark.parametrize("size", [1, 4, 16, 32, 48, 64, 84, 96, 128, 192, 256])
@pytest.mark.parametrize("extra", [0, 64, 100])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_recipes_fit_a_gpu(size: int, extra: int, dtype: torch.dtype) -> None:
    """What torch's lowering demands: sides that are powers of two from 16 up and divide the tile."""
    pattern = Pattern(size, extra_globals=extra)
    for recipe in flex._recipes(pattern, "cuda", True):
        assert recipe.size % 16 == 0
        options = flex._kernel_options(recipe.size, dtype)
        sides = [value for name, value in options.items() if "BLOCK" in name]
        assert all(side in (16, 32, 64) and recipe.size % side == 0 for side in sides)
        assert sides or recipe.size % 128 == 0
    assert len(flex._recipes(pattern, "cuda", False)) == 1
    assert flex._recipes(replace(pattern, extra_globals=0), "cpu", False)[0].size == size


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"dropout": 0.1}, "dropout"),
        ({"relative": True}, "relative"),
        ({"gradients": True}, "gradients on a CPU"),
        ({"q": torch.zeros(1, 1, 8, 4, dtype=torch.float64)}, "float64"),
        ({"q": torch.zeros(1, 1, 8, 4, device="meta")}, "meta"),
        ({"q": torch.zeros(()).expand(1, 12, 1 << 20, 1)}, "MiB"),
        ({"pattern": Pattern(512)}, "512"),
        ({"pattern": Pattern(64, extra_globals=100)}, "whole blocks"),
    ],
)
def test_refusals_name_the_reason(change: dict[str, object], part: str) -> None:
    asked = {
        "q": torch.zeros(1, 1, 8, 4),
        "pattern": GENOMICS,
        "dropout": 0.0,
        "gradients": False,
        "relative": False,
    } | change
    reason = flex.unavailable(**asked)  # type: ignore[arg-type]
    assert reason is not None and part in reason


def test_without_a_compiler_nothing_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    q = torch.zeros(1, 1, 8, 4)
    reason = flex.unavailable(q, GENOMICS, dropout=0.0, gradients=False, relative=False)
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
    return flex._kind(q, Pattern(8), gradients=True)._replace(**changes)  # type: ignore[arg-type]


@given(
    st.integers(1, 64), st.integers(1, 96), st.integers(0, 300), st.integers(1, 40), st.booleans()
)
@settings(max_examples=100, deadline=None)
def test_trial_lengths_share_a_graph_and_no_size(
    block: int, size: int, extra: int, heads: int, one_row: bool
) -> None:
    """torch takes sizes that are equal at compilation for equal for ever."""
    asked = kind(block_size=block, extra_globals=extra, heads=heads, width=16, one_row=one_row)
    lengths = flex._trial_lengths(flex.Recipe(size, False), asked)
    pattern = flex._trial_pattern(asked)
    assert len({pattern.blocks(length) for length in lengths}) == 1
    assert (len(lengths) == 1) == one_row
    varying = {max(lengths), -(-max(lengths) // size)} | (set() if one_row else {len(lengths)})
    assert not varying & {heads, 16}
    assert one_row or min(lengths) < max(lengths) or block == 1


@pytest.mark.parametrize("one_row", [False, True])
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
    monkeypatch: pytest.MonkeyPatch, fault: str, reason: str | None, one_row: bool
) -> None:
    def run(recipe: flex.Recipe, q: Tensor, k: Tensor, v: Tensor, *rest: object) -> Tensor:
        if fault == "raises":
            raise ValueError("\nno kernel\nand more")
        if fault == "gradient":
            k = Twisted.apply(k)  # type: ignore[no-untyped-call]
        pattern, lengths, layer, _ = rest
        out = dense_attention(q, k, v, pattern, lengths, layer)  # type: ignore[arg-type]
        return out * {"output": 1.01, "nan": float("nan")}.get(fault, 1.0)

    monkeypatch.setattr(flex, "_run", run)
    asked = kind(one_row=one_row)
    found = flex._failure(flex.Recipe(8, False), asked, flex._trial_pattern(asked))
    assert found is None if reason is None else found is not None and reason in found


def test_the_first_recipe_that_passes_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    recipes = (flex.Recipe(64, False), flex.Recipe(64, True), flex.Recipe(128, False))
    faults = dict(zip(recipes, ["a", None, "c"], strict=True))
    monkeypatch.setattr(flex, "_recipes", lambda *_: recipes)
    monkeypatch.setattr(flex, "_failure", lambda recipe, *_: faults[recipe])
    assert flex._recipe.__wrapped__(kind()) == recipes[1]
    faults[recipes[1]] = "b"
    assert flex._recipe.__wrapped__(kind()) == "a"


def draw_inputs(*shape: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    source = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(shape, generator=source) for _ in range(3))
    return q, k, v


def assert_serves(pattern: Pattern, shape: tuple[int, ...], lengths: tuple[int, ...]) -> None:
    q, k, v = draw_inputs(*shape)
    reason = flex.unavailable(q, pattern, dropout=0.0, gradients=False, relative=False)
    assert reason is None, reason
    got = flex.flex_attention(q, k, v, pattern, lengths, 1)
    want = dense_attention(q, k, v, pattern, lengths, 1)
    assert (got - want).abs().max() < 1e-5
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
    assert_serves(replace(pattern, seed=4, random_blocks=1), (3, 2, 777, 16), (777, 777, 777))
    assert_serves(pattern, (2, 2, 40, 16), (10, 3))
    assert_serves(pattern, (2, 2, 40, 16), (1, 1))
    assert_serves(replace(pattern, extra_globals=32), (2, 2, 300, 16), (300, 291))
    # Another layout of memory, and autocast, neither of which may compile anything.
    q, k, v = (x.transpose(1, 2) for x in draw_inputs(2, 300, 2, 16))
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        got = flex.flex_attention(q, k, v, pattern, (300, 290))
    assert (got - dense_attention(q, k, v, pattern, (300, 290))).abs().max() < 1e-5
    assert counters["stats"]["unique_graphs"] == before + 1
    assert torch.equal(torch.get_rng_state(), generator)


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize(
    ("pattern", "shape", "lengths"),
    [
        (GENOMICS, (2, 3, 1300, 32), (1300, 1290)),
        (GENOMICS, (1, 3, 1300, 32), (1290,)),
        (replace(GENOMICS, causal=True), (2, 3, 1300, 32), (1300, 1290)),
        (replace(GENOMICS, huggingface=True), (2, 3, 1300, 32), (1000, 400)),
        (Pattern(84, 2, 3, 0, extra_globals=252), (2, 3, 1300, 24), (1300, 1290)),
        (Pattern(4, causal=True), (2, 3, 300, 5), (300, 299)),
    ],
)
def test_variants_on_a_cpu(
    pattern: Pattern, shape: tuple[int, ...], lengths: tuple[int, ...]
) -> None:
    assert_serves(pattern, shape, lengths)
    with torch.inference_mode():
        assert_serves(pattern, shape, lengths)
