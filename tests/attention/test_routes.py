"""Every route against the dense oracle, in value and gradient, and the promises about padding and batches."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

from bigbird_dna.attention import PATTERN_ATTENTIONS, Pattern, bigbird_attention, chunked, full_attention
from bigbird_dna.attention.blocked import (
    attention_mask,
    gathered_attention,
    is_short,
    make_gathered_blocks,
    make_layout,
    masked_attention,
)
from bigbird_dna.attention.call import Call
from bigbird_dna.attention.chunked import blocked_attention
from bigbird_dna.attention.dense import dense_attention
from bigbird_dna.config.mechanisms import OF_PATTERNS
from tests.attention.problems import inputs, patterns, results, value_and_gradients
from tests.golden.messages import fails

GENOMICS_SMALL = Pattern(block_size=4, global_blocks=2, window_blocks=3, random_blocks=3, seed=1)


def assert_same(left: list[Tensor], right: list[Tensor], tolerance: float) -> None:
    for name, a, b in zip(("output", "q", "k", "v"), left, right, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        error = (a - b).abs().max().item()
        assert error <= tolerance, f"{name}: {error}"


Problem = tuple[Pattern, tuple[int, int, int, int], list[int] | None, int]


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    pattern = draw(patterns(st.sampled_from([1, 2, 3, 4, 8])))
    batch, heads = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    least = 1 + pattern.num_global_tokens
    tokens, width = draw(st.integers(least, 70)), draw(st.sampled_from([1, 4, 5]))
    some_lengths = st.lists(st.integers(least, tokens), min_size=batch, max_size=batch)
    lengths = draw(st.none() | some_lengths)
    return pattern, (batch, heads, tokens, width), lengths, draw(st.integers(0, 4))


@given(problems(), st.sampled_from([1, 300, 1 << 18]))
@settings(max_examples=60, deadline=None)
def test_routes_equal_the_oracle_in_double(problem: Problem, chunk: int) -> None:
    """Random patterns, lengths no multiple of the block or below the pattern's size, small chunks."""
    pattern, shape, lengths, layer = problem
    made = inputs(*shape)

    def attend(route: str) -> list[Tensor]:
        def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return bigbird_attention(
                q,
                k,
                v,
                pattern,
                lengths=lengths,
                layer=layer,
                route=route,  # type: ignore[arg-type]
            )

        return value_and_gradients(call, made)

    expected = attend("dense")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunked, "CHUNK_ELEMENTS", chunk)
        assert_same(attend("blocked"), expected, 1e-10)
        assert_same(attend("auto"), expected, 1e-10)


@given(problems())
@settings(max_examples=30, deadline=None)
def test_each_implementation_equals_the_oracle(problem: Problem) -> None:
    """What `auto` would not choose for so small a problem, and what runs on GPUs, called directly."""
    pattern, shape, given_lengths, layer = problem
    lengths = tuple(given_lengths or [shape[2]] * shape[0])
    made = inputs(*shape, seed=1)

    rest = (pattern, lengths, layer)
    if not pattern.huggingface:  # a boolean mask can't count a key twice
        assert_same(results(masked_attention, made, *rest), results(dense_attention, made, *rest), 1e-10)

    blocks = pattern.blocks(shape[2])
    layout = make_layout(pattern, blocks)
    plan = make_gathered_blocks(pattern, blocks, shape[1], layer, torch.device("cpu"))
    bias = layout.padding_bias((shape[2],) * shape[0], made[0])

    def gathered(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        laid = (layout.spread(x) for x in (q, k, v))
        out = gathered_attention(Call(*laid, pattern, lengths), bias, plan)
        return layout.collect(out, shape[2])

    whole = (pattern, (shape[2],) * shape[0], layer)
    assert_same(value_and_gradients(gathered, made), results(dense_attention, made, *whole), 1e-10)


VARIANTS = {
    "itc": {},
    "etc": {"num_global_tokens": 70},
    "causal": {"causal": True},
    "huggingface": {"huggingface": True},
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("lengths", [None, [1024] * 3, [1024, 705, 1000]])
def test_batches_of_a_models_size(
    variant: str, lengths: list[int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several sequences of 16 blocks of 64 tokens: chunks of some heads, of one and of all sequences."""
    pattern = Pattern(64, 2, 3, 3, **VARIANTS[variant])  # type: ignore[arg-type]
    made = inputs(3, 12, 1024, 64, dtype=torch.float32)

    def attend(route: str) -> list[Tensor]:
        return value_and_gradients(
            lambda q, k, v: bigbird_attention(q, k, v, pattern, lengths=lengths, route=route),  # type: ignore[arg-type]
            made,
        )

    expected = attend("dense")
    for chunk in (1 << 14, 1 << 18, 1 << 22):
        monkeypatch.setattr(chunked, "CHUNK_ELEMENTS", chunk)
        assert_same(attend("blocked"), expected, 1e-5)


@pytest.mark.parametrize("lengths", [None, [300, 287, 64]])
def test_blocked_equals_the_oracle_in_single_precision(lengths: list[int] | None) -> None:
    pattern = Pattern(block_size=16, seed=3)
    made = inputs(3, 4, 300, 16, dtype=torch.float32)
    results = [
        value_and_gradients(
            lambda q, k, v, r=route: bigbird_attention(q, k, v, pattern, lengths=lengths, route=r), made
        )
        for route in ("blocked", "dense")
    ]
    assert_same(*results, 1e-5)


def test_gradients_agree_with_finite_differences() -> None:
    q, k, v, _ = inputs(1, 2, 22, 2)
    pattern = Pattern(block_size=2, global_blocks=2, window_blocks=1, random_blocks=1)
    assert torch.autograd.gradcheck(
        lambda *x: bigbird_attention(*x, pattern, lengths=[21], route="blocked"), (q, k, v)
    )


def test_strided_inputs_as_an_encoder_gives_them() -> None:
    """(B, L, H, K) transposed, and slices of one fused projection."""
    fused = torch.randn(2, 40, 3, 2, 4, dtype=torch.float64, requires_grad=True)
    q, k, v = (x.transpose(1, 2) for x in fused.unbind(2))
    outs = [
        bigbird_attention(q, k, v, GENOMICS_SMALL, lengths=[37, 40], route=route)
        for route in ("blocked", "dense")
    ]
    grads = [torch.autograd.grad(out.square().sum(), fused)[0] for out in outs]
    torch.testing.assert_close(outs[0], outs[1], rtol=0, atol=1e-12)
    torch.testing.assert_close(grads[0], grads[1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("route", ["auto", "dense", "blocked"])
@pytest.mark.parametrize("length", [5, 30, 61, 90])
def test_a_row_depends_on_neither_padding_nor_company(route: str, length: int) -> None:
    """30 tokens: full attention; 61: masked; 90: blocked (32 tokens are the pattern's size)."""
    q, k, v, upper = inputs(4, 2, 120, 4)
    with torch.no_grad():
        for x in (q, k, v, upper):
            x[1, :, length:] = 1e3  # finite rubbish
    made = (q, k, v)
    alone = [x[1:2, :, :length].detach().clone().requires_grad_() for x in made]
    kwargs = {"layer": 2, "route": route}
    together = bigbird_attention(*made, GENOMICS_SMALL, lengths=[120, length, 120, 120], **kwargs)
    single = bigbird_attention(*alone, GENOMICS_SMALL, **kwargs)
    torch.testing.assert_close(together[1:2, :, :length], single, rtol=0, atol=1e-12)
    assert (together[1, :, length:] == 0).all()
    grads = torch.autograd.grad(together, made, upper)
    expected = torch.autograd.grad(single, alone, upper[1:2, :, :length])
    for grad, other in zip(grads, expected, strict=True):
        torch.testing.assert_close(grad[1:2, :, :length], other, rtol=0, atol=1e-12)
        assert (grad[1, :, length:] == 0).all()


def test_last_true_block_is_global_under_padding() -> None:
    """A change of the last true token reaches every query, one of a middle token does not."""
    q, k, v, _ = (x.detach() for x in inputs(1, 1, 120, 4))
    pattern = Pattern(block_size=4, random_blocks=0)

    def changed_by(token: int) -> Tensor:
        other = v.clone()
        other[:, :, token] += 1
        outs = [bigbird_attention(q, k, x, pattern, lengths=[90]) for x in (v, other)]
        return (outs[0] != outs[1]).any(dim=3)[0, 0, :90]

    assert changed_by(89).all()
    assert not changed_by(44).all()


@pytest.mark.parametrize("lengths", [None, [20, 7]])
def test_a_pattern_that_covers_everything_is_full_attention(lengths: list[int] | None) -> None:
    q, k, v, _ = inputs(2, 3, 20, 4)
    pattern = Pattern(block_size=4)
    assert pattern.is_full(pattern.blocks(20))
    expected = full_attention(q, k, v, lengths=lengths)
    for route in ("auto", "dense", "blocked"):
        out = bigbird_attention(q, k, v, pattern, lengths=lengths, route=route)
        torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)
    for row, length in enumerate(lengths or [20, 20]):
        alone = scaled_dot_product_attention(*(x[row, :, :length] for x in (q, k, v)))
        torch.testing.assert_close(expected[row, :, :length], alone, rtol=0, atol=1e-12)
        assert (expected[row, :, length:] == 0).all()


def test_layers_and_heads_use_different_random_blocks() -> None:
    """The same q, k, v in every head: heads and layers differ only by the pattern."""
    q, k, v, _ = (x.detach().expand(1, 2, 120, 4) for x in inputs(1, 1, 120, 4))
    first, second = (bigbird_attention(q, k, v, GENOMICS_SMALL, layer=layer) for layer in (0, 1))
    assert not torch.equal(first, second)
    assert not torch.equal(first[:, 0], first[:, 1])
    globals_only = slice(0, 4)  # global rows see everything in every head and layer
    torch.testing.assert_close(first[:, 0, globals_only], second[:, 1, globals_only])


@pytest.mark.parametrize(("tokens", "route"), [(30, "auto"), (60, "auto"), (96, "blocked"), (96, "dense")])
def test_dropout_is_reproducible_and_unbiased(tokens: int, route: str) -> None:
    q, k, v, _ = (x.detach() for x in inputs(1, 2, tokens, 4))
    lengths = [tokens - 1]
    kwargs = {"lengths": lengths, "route": route}
    torch.manual_seed(5)
    first = bigbird_attention(q, k, v, GENOMICS_SMALL, dropout=0.3, **kwargs)
    torch.manual_seed(5)
    again = bigbird_attention(q, k, v, GENOMICS_SMALL, dropout=0.3, **kwargs)
    assert torch.equal(first, again)
    draws = 300
    many = [part.expand(draws, -1, -1, -1) for part in (q, k, v)]
    kwargs["lengths"] = lengths * draws
    out = bigbird_attention(*many, GENOMICS_SMALL, dropout=0.3, **kwargs)
    assert (out[:, :, -1] == 0).all()
    clean = bigbird_attention(q, k, v, GENOMICS_SMALL, lengths=lengths, route="dense")
    error = out.mean(dim=0) - clean[0]
    sigma = out.std(dim=0) / draws**0.5
    real = sigma > 0
    assert real[:, :-1].float().mean() > 0.99, "dropout did something"
    z = (error[real] / sigma[real]).numpy()
    assert np.abs(z).max() < 6 and abs(z.mean()) < 0.5


def test_dropout_has_exact_gradients() -> None:
    """The mask drawn in the forward pass is the one of the backward pass."""
    q, k, v, _ = inputs(1, 1, 22, 2)
    pattern = Pattern(block_size=2, global_blocks=2, window_blocks=1, random_blocks=1)

    def call(*x: Tensor) -> Tensor:
        torch.manual_seed(0)
        return bigbird_attention(*x, pattern, dropout=0.4, route="blocked")

    assert torch.autograd.gradcheck(call, (q, k, v))


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_gradient_checkpointing_changes_nothing(dropout: float) -> None:
    q, k, v, upper = inputs(2, 2, 100, 4)

    def call(*x: Tensor) -> Tensor:
        scaled = (2 * part for part in x)
        return bigbird_attention(*scaled, GENOMICS_SMALL, lengths=[100, 60], dropout=dropout)

    results = []
    for wrapped in (call, lambda *x: checkpoint(call, *x, use_reentrant=False)):
        torch.manual_seed(3)
        results.append(value_and_gradients(wrapped, (q, k, v, upper)))
    for plain, recomputed in zip(*results, strict=True):
        assert torch.equal(plain, recomputed)


@pytest.mark.parametrize("tokens", [30, 60, 200])
@pytest.mark.parametrize("route", ["auto", "blocked", "dense"])
def test_autocast_computes_in_bfloat16(tokens: int, route: str) -> None:
    made = inputs(2, 2, tokens, 8, dtype=torch.float32)
    lengths = [tokens, tokens - 5]

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return bigbird_attention(q, k, v, GENOMICS_SMALL, lengths=lengths, route=route)

    expected = value_and_gradients(call, made)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = call(*made[:3])
    assert out.dtype == torch.bfloat16
    grads = torch.autograd.grad(out, made[:3], made[3].bfloat16())
    assert all(grad.dtype == torch.float32 for grad in grads)
    assert_same([out.float(), *grads], expected, 0.1)


def test_global_keys_add_their_gradients_in_single_precision() -> None:
    """In bfloat16 a sum over many query blocks would stop growing after 256 equal terms."""
    pattern = Pattern(block_size=1, global_blocks=1, window_blocks=1, random_blocks=0)
    zeros = torch.zeros(1, 1, 2048, 8, dtype=torch.bfloat16)
    v = zeros.clone().requires_grad_()
    out = bigbird_attention(zeros, zeros, v, pattern, route="blocked")
    (grad,) = torch.autograd.grad(out.sum(), v)
    assert grad[0, 0, 0, 0].item() == pytest.approx(2047 / 2, rel=0.01)


def test_route_is_chosen_by_the_length_of_the_sequence() -> None:
    pattern = Pattern(block_size=16)
    assert pattern.is_full(7) and not pattern.is_full(8)
    assert is_short(pattern, 240) and not is_short(pattern, 241)
    assert not is_short(Pattern(block_size=64), 513)


def test_no_query_is_without_a_key_under_the_mask() -> None:
    """Not even at padded positions, where some kernels would give NaN and hand it on to gradients."""
    q = torch.zeros(2, 2, 60, 4)
    assert attention_mask(GENOMICS_SMALL, (60, 3), q, 0).any(dim=3).all()


def test_inputs_are_left_alone_and_inference_mode_works() -> None:
    q, k, v, _ = (x.detach() for x in inputs(1, 2, 100, 4))
    before = [x.clone() for x in (q, k, v)]
    with torch.inference_mode():
        out = bigbird_attention(q, k, v, GENOMICS_SMALL, lengths=[99])
    assert out.shape == q.shape
    assert all(torch.equal(x, y) for x, y in zip((q, k, v), before, strict=True))


def test_an_empty_batch_gives_an_empty_result() -> None:
    q = torch.zeros(0, 2, 8, 4)
    for attend in PATTERN_ATTENTIONS.values():
        assert attend(q, q, q, Pattern()).shape == q.shape


def test_registry_names_callables_of_one_signature() -> None:
    q, k, v, _ = inputs(2, 2, 24, 4)
    assert set(PATTERN_ATTENTIONS) == set(OF_PATTERNS) >= {"bigbird", "full"}
    for attend in PATTERN_ATTENTIONS.values():
        out = attend(q, k, v, GENOMICS_SMALL, lengths=torch.tensor([24, 9]), layer=1, dropout=0.0)
        assert out.shape == q.shape and (out[1, :, 9:] == 0).all()


@pytest.mark.parametrize("attend", [bigbird_attention, full_attention])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": torch.zeros(1, 2, 9, 4)}, r"q, k, v must have one shape .* \(1, 2, 9, 4\)"),
        ({"q": torch.zeros(2, 8, 4)}, "q, k, v must have one shape"),
        ({"v": torch.zeros(1, 2, 8, 4).double()}, "one floating type, got .* and torch.float64"),
        ({"layer": -1}, "layer must not be negative, got -1"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1, got 1.0"),
        ({"lengths": [9]}, r"lengths must be 1 integers from 1 to 8, got \[9\]"),
        ({"lengths": [0]}, r"lengths must be 1 integers from 1 to 8, got \[0\]"),
        ({"lengths": [4, 4]}, "lengths must be 1 integers"),
        ({"lengths": torch.tensor([4.0])}, "lengths must be a vector of integers, got torch.float32"),
        ({"route": "fast"}, "route must be one of auto, dense, blocked, native, flex, not 'fast'"),
    ],
)
def test_bad_arguments_are_named(
    attend: Callable[..., Tensor], change: dict[str, object], message: str
) -> None:
    x = torch.zeros(1, 2, 8, 4)
    arguments = {"q": x, "k": x, "v": x, "pattern": Pattern()} | change
    with fails(ValueError):
        attend(**arguments)


def test_blocked_refuses_sequences_of_different_numbers_of_blocks() -> None:
    x = torch.zeros(2, 1, 8, 4)
    with fails(ValueError):
        blocked_attention(Call(x, x, x, Pattern(block_size=4), (4, 8)))


def test_what_inference_caches_serves_training() -> None:
    """A plan or mask first made for inference must not be one that autograd refuses to keep."""
    for block_size, tokens in ((8, 900), (8, 100), (8, 30)):
        pattern = Pattern(block_size=block_size, seed=tokens)
        q, k, v = (torch.randn(2, 2, tokens, 4) for _ in range(3))
        with torch.inference_mode():
            bigbird_attention(q, k, v, pattern, lengths=[tokens, tokens - 3])
        q.requires_grad_()
        out = bigbird_attention(q, k, v, pattern, lengths=[tokens, tokens - 3], dropout=0.1)
        out.sum().backward()
        assert q.grad is not None and torch.isfinite(q.grad).all()
