"""Rotary positions: queries and keys are turned by angles that grow with their position.

RoFormer (Su et al. 2021, arXiv 2104.09864, section 3.2): at position p the component pair f of a head's
vectors turns by p · base^(-2f / K), so that q · k depends on the two positions by their distance alone. There
is no table of positions to learn, and nothing that ends at some length.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bigbird_dna.attention.native import pointwise

# Axes: B batch, H heads, L tokens, K head width.

_KEPT_TOKENS = 2048


class Rotation(NamedTuple):
    """Cosine and sine of every position's angles, float32."""

    cos: Tensor  # (L, K / 2)
    sin: Tensor  # (L, K / 2)


def rates(width: int, base: float, device: torch.device | None = None) -> Tensor:
    """What the pairs of heads of `width` components turn by, radians a token, (K / 2,) float64."""
    pairs = torch.arange(0, width, 2, device=device, dtype=torch.float64) / width
    return base**-pairs


def rotation(
    tokens: int, width: int, base: float, scale: float, device: torch.device | None = None
) -> Rotation:
    """The angles of positions 0 … L - 1 for heads of `width` components (even).

    Wavelengths run from 2π to almost 2π · base, in tokens; positions are divided by `scale`: position
    interpolation (Chen et al. 2023, arXiv 2306.15595). Angles are float64: at position 131,072 the nearest
    float32 is up to 0.004 rad off, and q · k would depend on the two absolute positions. Those of short
    inputs on CPUs are kept: making them costs as much as a layer of a small model.
    """
    cpu = device is None or device.type == "cpu"
    if cpu and tokens <= _KEPT_TOKENS and not torch.compiler.is_compiling():
        return _kept_rotation(tokens, width, base, scale)
    return _rotation(tokens, width, base, scale, device)


@lru_cache(maxsize=512)
@torch.inference_mode(False)  # what inference makes first must serve training as well
@torch.no_grad()
def _kept_rotation(tokens: int, width: int, base: float, scale: float) -> Rotation:
    return _rotation(tokens, width, base, scale, None)


def _rotation(tokens: int, width: int, base: float, scale: float, device: torch.device | None) -> Rotation:
    positions = torch.arange(tokens, device=device, dtype=torch.float64) / scale
    angles = positions[:, None] * rates(width, base, device)  # (L, K / 2)
    return Rotation(angles.cos().float(), angles.sin().float())


def rotate(x: Tensor, turns: Rotation) -> Tensor:
    """Turn queries or keys, (B, H, L, K) → (B, H, L, K), of the type of `x`; computed in float32 at least.

    Component f is paired with component f + K / 2 (the layout of GPT-NeoX and Llama), not with its neighbor
    as in RoFormer: the same up to the order of components, which the projections learn, and two plain halves.
    """
    first, second = x.chunk(2, dim=-1)
    cos, sin = turns
    # bfloat16 × float32 is float32.
    turned = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
    return turned.to(x.dtype)


def split_heads(
    joined: Tensor, heads: int, turns: Rotation | None, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values that lie side by side, (B, L, 3D) → (B, H, L, K) each, of `dtype`.

    Queries and keys are turned by `turns`, if there are any, on their way. For CPUs: one pass over memory,
    and one back, which turns by the opposite angles. Where no gradient is asked for, `joined` may be
    overwritten.
    """
    if torch.is_grad_enabled():
        return _SplitHeads.apply(joined, heads, turns, dtype)  # type: ignore[no-any-return, no-untyped-call]
    q, k, v = _parts(joined, heads)
    if turns is not None:
        place = joined if joined.dtype == dtype else torch.empty_like(joined, dtype=dtype)
        q, k = (_turned(x, y, turns) for x, y in zip((q, k), _parts(place, heads), strict=False))
    return q.to(dtype), k.to(dtype), v.to(dtype)


class _SplitHeads(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, joined: Tensor, heads: int, turns: Rotation | None, dtype: torch.dtype
    ) -> tuple[Tensor, ...]:
        ctx.shape, ctx.dtype, ctx.of = joined.shape, joined.dtype, (turns, turns, None)
        parts = _parts(joined, heads)
        # In the memory order (B, L, H, K), from which gradients and outputs are joined without a copy.
        room = joined.new_empty((3, *joined.shape[:2], heads, parts[0].shape[3]), dtype=dtype).transpose(2, 3)
        return tuple(_turned(x, out, own) for x, out, own in zip(parts, room, ctx.of, strict=True))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *uppers: Tensor) -> tuple[Tensor | None, ...]:
        grad = torch.empty(ctx.shape, dtype=ctx.dtype)
        for upper, out, own in zip(uppers, _parts(grad, uppers[0].shape[1]), ctx.of, strict=True):
            _turned(upper, out, own, back=True)
        return grad, None, None, None


def _parts(joined: Tensor, heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """Views (B, H, L, K) of queries, keys and values in (B, L, 3D)."""
    q, k, v = joined.view(*joined.shape[:2], 3, heads, -1).permute(2, 0, 3, 1, 4)
    return q, k, v


def _turned(x: Tensor, out: Tensor, turns: Rotation | None, back: bool = False) -> Tensor:
    """`out` (B, H, L, K), which may be `x`, becomes `x` turned, or turned back."""
    kernel = pointwise(x, out)
    if kernel is not None:
        return kernel.turn(x if x.stride(3) == 1 else x.contiguous(), out, turns, back)
    if turns is None:
        return out.copy_(x)
    (first, second), (cos, sin) = x.chunk(2, dim=-1), turns
    sin = -sin if back else sin
    front, rear = out.chunk(2, dim=-1)
    turned = first * cos
    turned.addcmul_(second.to(turned.dtype), sin, value=-1)
    rear.copy_((second * cos).addcmul_(first.to(turned.dtype), sin))
    front.copy_(turned)
    return out
