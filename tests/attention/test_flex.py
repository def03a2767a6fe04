"""FlexAttention's lists against the pattern by token, what the route refuses, and its kernel on a CPU."""

import logging
import shutil
from collections.abc import Callable
from dataclasses import replace
from typing import Any

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

from bigbird_dna.attention import bigbird_attention, flex
from bigbird_dna.attention.call import Call, dense_attention
from bigbird_dna.attention.pattern import Pattern
from tests.attention.reference_implementations import (
    Problem,
    inputs,
    problems,
)

GENOMICS = Pattern()
PROBLEMS = (
    st.booleans()
    .flatmap(lambda one: problems(st.integers(1, 9), most=99, one_graph=one))
    .filter(lambda problem: not problem[0].num_global_tokens % problem[0].block_size)
)

needs_compiler = pytest.mark.skipif(
    shutil.which("g++") is None or "AVX" not in torch.backends.cpu.get_cpu_capability(),
    reason="flex needs g++ and AVX2",
)


X = torch.zeros(2, 2, 8, 4, requires_grad=True)
CALL = Call(X, X, X, Pattern(8), (8, 3))


def spread(
    counts: Tensor, ids: Tensor, size: int, tokens: int
) -> npt.NDArray[np.bool_]:
    """(B, H, N, N): the scores of the listed tiles."""
    mask = np.zeros(ids.shape, dtype=bool)
    for place in np.ndindex(*counts.shape):
        mask[(*place, ids[place][: counts[place]].numpy())] = True
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


def captured(
    lists: flex.Lists, weights: flex.Weights, call: Call
) -> tuple[BlockMask, Callable[..., Tensor] | None]:
    """The block mask and score function that the kernel gets."""
    found: list[Any] = []

    def keep(
        q: Tensor, k: Tensor, v: Tensor, score: Any, mask: BlockMask, **_: Any
    ) -> Tensor:
        found.extend([mask, score])
        return q

    ends = torch.tensor(call.lengths)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flex, "torch_flex_attention", keep)
        build = f"{call.pattern.block_size} 0"
        flex.attend_to_lists(
            *call.cut()[:3], lists, weights, ends, build, call.pattern.causal
        )
    return found[0], found[1]


@given(PROBLEMS)
@settings(max_examples=80, deadline=None)
def test_lists_hold_the_pattern_token_by_token(problem: Problem) -> None:
    """Read as the kernels read them: full blocks as they are, partial ones under the mask function."""
    pattern, (_, heads, tokens, _), lengths, layer = problem
    size = pattern.block_size
    longest = max(lengths)
    call = call_of(pattern, lengths, heads, tokens, layer)
    lists, weights = flex.make_lists(call, False)
    assert len(lists) == 4 and len(lists[0]) == len(lengths)
    partial = spread(*lists[:2], size, longest)
    full = spread(*lists[2:], size, longest)
    assert not (partial & full).any()
    block_mask, score = captured(lists, weights, call)
    at = indices(len(lengths), heads, longest)
    allowed = (block_mask.mask_mod(*at).numpy() & partial) | full
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


def test_no_block_lies_past_the_end() -> None:
    """The kernels would read keys that aren't there."""
    lists, _ = flex.make_lists(call_of(GENOMICS, (60, 3), heads=2), True)
    counts, ids, full_counts, _ = lists[:4]
    assert counts[:, :, 0].tolist() == [[0, 0], [1, 1]]
    assert full_counts[:, :, 0].tolist() == [[1, 1], [0, 0]]
    assert not ids[1, :, 0, 0].any()


@given(PROBLEMS)
@settings(max_examples=20, deadline=None)
def test_reverse_lists_are_torchs(problem: Problem) -> None:
    pattern, (_, heads, tokens, _), lengths, layer = problem
    lists, _ = flex.make_lists(call_of(pattern, lengths, heads, tokens, layer), True)
    torchs = BlockMask.from_kv_blocks(*lists[:4], BLOCK_SIZE=8)
    reverse = (
        torchs.q_num_blocks,
        torchs.q_indices,
        torchs.full_q_num_blocks,
        torchs.full_q_indices,
    )
    for ours, theirs in zip(lists[4:], reverse, strict=True):
        assert theirs is not None and torch.equal(ours, theirs)
    for array in lists:
        assert array.is_contiguous() and array.dtype == torch.int32


def test_lists_are_cached_within_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flex, "_cached", type(flex._cached)())
    first, _ = flex.make_lists(call_of(GENOMICS, (640,), 2), False)
    again, _ = flex.make_lists(call_of(GENOMICS, (640,), 2), False)
    assert again is first
    with torch.inference_mode():
        lists, _ = flex.make_lists(call_of(GENOMICS, (640,), 2, layer=1), False)
    assert not lists[1].is_inference()
    monkeypatch.setattr(flex, "CACHED_BYTES", 2 * sum(x.nbytes for x in lists))
    for layer in range(2, 6):
        flex.make_lists(call_of(GENOMICS, (640,), 2, layer=layer), False)
    assert len(flex._cached) == 2


def test_rows_of_all_lengths_are_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, ...]] = []

    def attend(call: Call) -> Tensor:
        calls.append(call.lengths)
        return dense_attention(call)

    monkeypatch.setattr(flex, "unavailable", lambda _: None)
    monkeypatch.setattr(flex, "flex_attention", attend)
    pattern, lengths = Pattern(4), [200, 7, 131, 196, 130, 61]
    q, k, v, _ = inputs(6, 2, 203, 4)
    out = bigbird_attention(q, k, v, pattern, lengths=lengths, route="flex")
    exact = bigbird_attention(q, k, v, pattern, lengths=lengths, route="dense")
    torch.testing.assert_close(out, exact, rtol=0, atol=1e-12)
    assert calls == [tuple(lengths)]


@pytest.mark.parametrize("rows", [1, 2])
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
    monkeypatch: pytest.MonkeyPatch, fault: str, reason: str | None, rows: int
) -> None:
    def run(search: bool, call: Call, gradients: bool) -> Tensor:
        if fault == "raises":
            raise ValueError("\nno kernel\nand more")
        if fault == "gradient":
            call = call._replace(k=Twisted.apply(call.k))  # type: ignore[no-untyped-call]
        out = dense_attention(call)
        return out * {"output": 1.01, "nan": float("nan")}.get(fault, 1.0)

    monkeypatch.setattr(flex, "run", run)
    x = X[:rows].detach().requires_grad_()
    call = Call(x, x, x, Pattern(8), (8, 3)[:rows])
    found = flex.find_failure(False, call)
    assert found is None if reason is None else found is not None and reason in found


def test_torch_searches_only_if_its_first_kernel_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    faults: dict[bool, str | None] = {False: "a", True: None}
    monkeypatch.setattr(flex, "find_failure", lambda search, _: faults[search])
    monkeypatch.setattr(flex, "TESTED", {})
    assert flex.find_kernel(CALL) is True
    faults[True] = "b"
    assert flex.find_kernel(CALL) is True, "tried once"
    flex.TESTED.clear()
    assert flex.find_kernel(CALL) == "a"
    flex.TESTED.clear()
    faults[False] = None
    assert flex.find_kernel(CALL) is False


def assert_serves(
    pattern: Pattern, shape: tuple[int, ...], lengths: tuple[int, ...]
) -> None:
    q, k, v = (x.detach() for x in inputs(*shape, dtype=torch.float32)[:3])
    call = Call(q, k, v, pattern, lengths, 1)
    assert flex.unavailable(call) is None
    got = flex.flex_attention(call)
    assert (got - dense_attention(call)).abs().max() < 1e-5
    for row, length in enumerate(lengths):
        assert not got[row, :, length:].any()


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize(
    ("pattern", "shape", "batches"),
    [
        (GENOMICS, (2, 3, 1300, 32), [(1300, 1290), (700, 1300)]),
        (GENOMICS, (1, 3, 1300, 32), [(1290,)]),
        (replace(GENOMICS, causal=True), (2, 3, 1300, 32), [(1300, 1290)]),
        (replace(GENOMICS, huggingface=True), (2, 3, 1300, 32), [(1000, 400)]),
        (Pattern(84, 2, 3, 0, num_global_tokens=252), (2, 3, 1300, 24), [(1300, 1290)]),
        (Pattern(4, causal=True), (2, 3, 300, 5), [(300, 299)]),
        (Pattern(16, 2, 3, 2), (3, 2, 300, 16), [(300, 111, 17), (40, 33, 299)]),
        (Pattern(16, 2, 3, 2, causal=True), (3, 2, 300, 16), [(300, 111, 17)]),
        (Pattern(32, 2, 3, 1, num_global_tokens=32), (2, 2, 301, 16), [(301, 130)]),
    ],
)
def test_variants_on_a_cpu(
    pattern: Pattern, shape: tuple[int, ...], batches: list[tuple[int, ...]]
) -> None:
    for inference in (False, True):
        with torch.inference_mode(inference):
            for lengths in batches:
                assert_serves(pattern, shape, lengths)


SHARED = {"V100": 96 << 10, "A100": 163 << 10, "H100": 227 << 10}
"""Bytes of shared memory per block, from NVIDIA's tables of compute capabilities 7.0, 8.0 and 9.0."""


@pytest.mark.parametrize("gpu", SHARED)
@pytest.mark.parametrize("size", [16, 32, 48, 64, 96, 128, 192, 256])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("width", [16, 32, 64, 128, 256])
def test_matrices_fit_a_gpu(
    gpu: str, size: int, dtype: torch.dtype, width: int
) -> None:
    """Sides that are powers of two from 16 up and divide the block, and fit with keys and values in three stages."""
    build = flex.kernel_build(size, width, dtype, SHARED[gpu])
    options = flex.kernel_options(build, dtype)
    sides = {value for name, value in options.items() if "BLOCK" in name}
    if size % 128 == 0:
        assert not sides
        return
    (side,) = sides
    assert side in (16, 32, 64) and size % side == 0
    needed = (1 + 2 * 3) * side * width * dtype.itemsize
    assert needed < SHARED[gpu] or side == 16
    if (size, width, dtype) == (64, 64, torch.bfloat16):
        assert side == 64, "the measured kernels"


class Twisted(torch.autograd.Function):
    """The identity, with a wrong gradient."""

    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: object, grad: Tensor) -> Tensor:
        return 1.1 * grad


def test_a_trial_that_fails_leaves_no_lines_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """torch logs hundreds of them for a kernel that cannot be compiled."""

    def run(search: bool, call: Call, gradients: bool) -> Tensor:
        logging.getLogger("torch.new").warning("no kernel")
        raise ValueError

    monkeypatch.setattr(flex, "run", run)
    assert flex.find_failure(False, CALL) is not None
    assert not caplog.records
    logging.getLogger("torch.new").warning("afterwards")
    assert len(caplog.records) == 1


def test_torch_may_compile_a_graph_for_every_kind_of_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its own limit is 8."""
    monkeypatch.setattr(torch, "compile", lambda model, **options: None)
    with limits.patch(recompile_limit=8):
        flex.compiled_attention.__wrapped__(False)
        assert limits.recompile_limit == flex.GRAPHS


def exactly(search: bool, call: Call, gradients: bool) -> Tensor:
    """As the kernel does, whatever autocast says."""
    with torch.autocast("cpu", enabled=False):
        return dense_attention(call)


def test_a_trial_knows_no_autocast(monkeypatch: pytest.MonkeyPatch) -> None:
    """In bfloat16 dense attention would be off by more than a kernel in float32 may be."""
    monkeypatch.setattr(flex, "run", exactly)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert flex.find_failure(False, CALL) is None


def test_a_trial_in_the_midst_of_a_layer_that_is_recomputed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a trial saves for its own gradients is not the layer's."""
    monkeypatch.setattr(flex, "run", exactly)
    monkeypatch.setattr(flex, "TESTED", {})
    x = torch.randn(3, requires_grad=True)

    def layer(x: Tensor) -> Tensor:
        assert flex.find_kernel(CALL) is False
        return x.sin().exp()

    checkpoint(layer, x, use_reentrant=False).sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, (x.sin().exp() * x.cos()).detach())


@needs_compiler
@pytest.mark.slow
def test_one_kernel_serves_all_lengths_on_a_cpu() -> None:
    generator = torch.get_rng_state()
    pattern = Pattern(16, 2, 3, 2, seed=3)
    assert_serves(pattern, (2, 2, 300, 16), (300, 290))
    before = counters["stats"]["unique_graphs"]
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
    assert counters["stats"]["unique_graphs"] == before
    assert torch.equal(torch.get_rng_state(), generator)
