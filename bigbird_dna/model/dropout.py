"""Dropout of hidden states, with the residual that it is added to.

On a CPU torch draws a number of its generator for each element, one after the other: a tenth of a training
step. Here four elements share one draw of 64 bits, of which each has 16. Probabilities are rounded to
multiples of 2^-16, and what is kept is divided by the rounded one, so that means stay what they were.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from bigbird_dna.attention.native import pointwise

LEVELS = 1 << 16  # values of the 16 bits of an element
_LOWEST, _LOWEST_WORD = -(LEVELS // 2), -(1 << 63)


class Dropout(nn.Dropout):
    """`nn.Dropout` that can add a residual in the same pass. It draws from torch's global generator.

    The mask is a function of the generator's state and the number of elements alone: neither the number of
    threads nor the compiled kernel's absence changes it. On GPUs, and where torch compiles, it is torch's.
    """

    def forward(self, input: Tensor, residual: Tensor | None = None) -> Tensor:
        """Drop elements of `input`, then add `residual`, of the same shape."""
        if not self.training or not self.p:
            return input if residual is None else residual + input
        if input.device.type != "cpu" or torch.compiler.is_compiling():
            dropped = super().forward(input)
            return dropped if residual is None else residual + dropped
        return _Dropped.apply(input, residual, self.p)  # type: ignore[no-any-return, no-untyped-call]


class _Dropped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, residual: Tensor | None, probability: float) -> Tensor:
        dropped = min(round(probability * LEVELS), LEVELS - 1)
        ctx.least, ctx.scale = _LOWEST + dropped, LEVELS / (LEVELS - dropped)
        ctx.types = x.dtype, None if residual is None else residual.dtype
        lanes = _draw(x.numel())
        ctx.save_for_backward(lanes)
        dtype = x.dtype if residual is None else torch.result_type(x, residual)
        return _kept(x, lanes, ctx.least, ctx.scale, residual, dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upper: Tensor) -> tuple[Tensor, Tensor | None, None]:
        (lanes,), (dtype, other) = ctx.saved_tensors, ctx.types
        grad = _kept(upper, lanes, ctx.least, ctx.scale, None, dtype)
        return grad, None if other is None else upper.to(other), None


def _draw(count: int) -> Tensor:
    """`count` independent numbers, evenly distributed over all of int16."""
    words = torch.empty(-(-count // 4), dtype=torch.int64).random_(_LOWEST_WORD, None)
    return words.view(torch.int16)[:count]


def _kept(
    x: Tensor, lanes: Tensor, least: int, scale: float, residual: Tensor | None, dtype: torch.dtype
) -> Tensor:
    """`x` · scale where `lanes` are at least `least`, else 0, plus `residual`; of `dtype`."""
    out = torch.empty(x.shape, dtype=dtype)
    if residual is None or residual.dtype == torch.float32:
        kernel = pointwise(x, out)
        if kernel is not None:
            residual = None if residual is None else residual.contiguous()
            return kernel.drop(x.contiguous(), lanes, least, scale, residual, out)
    wide = torch.promote_types(x.dtype, torch.float32)  # in bfloat16 the scale would be off by 0.2 %
    mask = (lanes >= least).view(x.shape).to(wide).mul_(scale)
    result = x * mask if residual is None else torch.addcmul(residual.to(wide), x.to(wide), mask)
    return result.to(dtype)
