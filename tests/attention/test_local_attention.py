"""Window attention beside that of the package local-attention (Phil Wang), where both define the same thing.

Theirs is of buckets: a query sees its own and so many before and after it, as a window of blocks does here;
with the exact window size, so many tokens on each side, as Longformer's window does. q, k, v: (B, H, L, K).
"""

import pytest
import torch
from torch import Tensor

from bigbird_dna.attention import Pattern, bigbird_attention
from bigbird_dna.attention.backends import Route
from bigbird_dna.config import LayerShape, find_mechanism

theirs = pytest.importorskip("local_attention")

HEADS, WIDTH = 2, 8
TOLERANCE = {"atol": 1e-9, "rtol": 0.0}


def made(tokens: int) -> list[Tensor]:
    """Queries, keys, values, and a gradient of the result."""
    generator = torch.Generator().manual_seed(tokens)
    shape = (2, HEADS, tokens, WIDTH)
    return [torch.randn(shape, dtype=torch.float64, generator=generator) for _ in range(4)]


def local(window: int, sides: int, *, causal: bool = False, exact: bool = False) -> torch.nn.Module:
    """The package's attention over `sides` buckets beside the own one, without positions."""
    made: torch.nn.Module = theirs.LocalAttention(
        window_size=window,
        look_backward=sides,
        look_forward=0 if causal else sides,
        causal=causal,
        exact_windowsize=exact,
        autopad=True,
        use_rotary_pos_emb=False,
    ).double()
    return made


def with_gradients(attend: object, q: Tensor, k: Tensor, v: Tensor, grad: Tensor) -> list[Tensor]:
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    out = attend(*leaves)  # type: ignore[operator]
    return [out.detach(), *torch.autograd.grad(out, leaves, grad)]


@pytest.mark.parametrize("route", ["dense", "blocked"])
@pytest.mark.parametrize(("tokens", "block", "sides"), [(48, 8, 1), (45, 8, 2), (40, 5, 1), (7, 8, 1)])
def test_a_window_of_blocks_is_theirs(tokens: int, block: int, sides: int, route: Route) -> None:
    """Also where the last block is partial: what they pad with is hidden from all."""
    pattern = Pattern(block, 0, 1 + 2 * sides, 0)
    present = torch.ones(2, tokens, dtype=torch.bool)
    q, k, v, grad = made(tokens)
    attend = local(block, sides)
    ours = with_gradients(lambda *x: bigbird_attention(*x, pattern, route=route), q, k, v, grad)
    for one, other in zip(
        ours, with_gradients(lambda *x: attend(*x, mask=present), q, k, v, grad), strict=True
    ):
        torch.testing.assert_close(one, other, **TOLERANCE)


@pytest.mark.parametrize(("tokens", "block", "sides"), [(48, 8, 1), (45, 8, 2)])
def test_a_causal_window_of_blocks_is_theirs(tokens: int, block: int, sides: int) -> None:
    pattern = Pattern(block, 0, 1 + 2 * sides, 0, causal=True)
    attend, (q, k, v, grad) = local(block, sides, causal=True), made(tokens)
    ours = with_gradients(lambda *x: bigbird_attention(*x, pattern, route="blocked"), q, k, v, grad)
    for one, other in zip(ours, with_gradients(attend, q, k, v, grad), strict=True):
        torch.testing.assert_close(one, other, **TOLERANCE)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("tokens", "window"), [(48, 8), (43, 8), (20, 3)])
def test_a_window_of_tokens_is_theirs(tokens: int, window: int, causal: bool) -> None:
    """Longformer without global tokens sees `window` tokens on each side."""
    options = {"window": window, "global_tokens": 0}
    module = (
        find_mechanism("longformer").make(LayerShape(HEADS, WIDTH, causal=causal), options).double().eval()
    )
    hidden = torch.zeros(2, tokens, HEADS * WIDTH, dtype=torch.float64)
    present = torch.ones(2, tokens, dtype=torch.bool)
    attend, (q, k, v, grad) = local(window, 1, causal=causal, exact=True), made(tokens)
    ours = with_gradients(lambda *x: module(*x, lengths=None, dropout=0.0, hidden=hidden), q, k, v, grad)
    for one, other in zip(
        ours, with_gradients(lambda *x: attend(*x, mask=present), q, k, v, grad), strict=True
    ):
        torch.testing.assert_close(one, other, **TOLERANCE)
    assert not torch.allclose(ours[0], with_gradients(local(window, 2), q, k, v, grad)[0], atol=1e-3)
