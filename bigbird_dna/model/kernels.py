"""Activations and dropout, and how much of a feed-forward part is computed at once.

On a CPU torch draws a number of its generator for each element that dropout sees, one after the other: a
tenth of a training step. Here four elements share one draw of 64 bits, of which each has 16. Probabilities
are rounded to multiples of 2^-16, and what is kept is divided by the rounded one, so that means are
unchanged.
"""

from collections.abc import Callable, Iterator
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from bigbird_dna.attention.native import gelu_tanh_, pointwise

Activation = Literal["gelu_tanh", "gelu", "relu"]


class _Gelu(torch.autograd.Function):
    """The tanh GELU by the compiled kernel: a fifth of the time of torch's, forward and backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        kernel = pointwise(x)
        assert kernel is not None
        x = x.contiguous()
        ctx.save_for_backward(x)
        return kernel.gelu(x, torch.empty_like(x))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upper: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        kernel = pointwise(x)
        assert kernel is not None
        return kernel.gelu_slope(x, upper.contiguous())


def gelu_tanh(x: Tensor) -> Tensor:
    """The tanh form of GELU. Where no gradient is asked for it is torch's own: see `infer_activation`.

    It differs from the one HuggingFace spells out as "gelu_new" by rounding alone.
    """
    if torch.is_grad_enabled() and pointwise(x) is not None:
        return _Gelu.apply(x)  # type: ignore[no-any-return, no-untyped-call]
    return F.gelu(x, approximate="tanh")


# Elements of the feed-forward's inner states computed at once in inference. On a CPU 12 MiB in float32, which
# malloc reuses where it would map larger buffers anew at every call (4,096 tokens, width 768: 0.87 of the
# time). On other devices only a bound of memory: launching many small kernels costs time.
INNER_ELEMENTS = {"cpu": 3 << 20}
INNER_ELEMENTS_ELSEWHERE = 1 << 28

ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "gelu_tanh": gelu_tanh,
    "gelu": F.gelu,
    "relu": F.relu,
}


WHOLE = 64
"""Elements that fill the vector registers of any machine, several times."""


def row_sigmoid(logits: Tensor) -> Tensor:
    """Sigmoid of (B, …), where an element's bits don't depend on its place.

    torch computes what is left over of a vector register in another way, which rounds otherwise: here nothing
    is left over of any row.
    """
    flat = logits.flatten(1)
    count = flat.shape[1]
    return F.pad(flat, (0, -count % WHOLE)).sigmoid()[:, :count].reshape(logits.shape)


def infer_activation(name: Activation, x: Tensor) -> Tensor:
    """An activation where no gradient is asked for; it may overwrite `x`."""
    if name == "gelu_tanh":
        return gelu_tanh_(x)
    return ACTIVATIONS[name](x)


def inner_tiles(x: Tensor, inner: int) -> Iterator[tuple[slice, slice]]:
    """Cut (B, L, D) into sequences × tokens, so that `inner` elements a token don't exceed the bound."""
    batch, length = x.shape[:2]
    fit = max(1, inner_bound(x) // inner)  # tokens
    rows, tokens = max(1, fit // length), min(fit, length)
    for row in range(0, batch, rows):
        for start in range(0, length, tokens):
            yield slice(row, row + rows), slice(start, start + tokens)


def inner_bound(x: Tensor) -> int:
    """Elements of inner states that are computed at once for an input (…) without gradients."""
    return INNER_ELEMENTS.get(x.device.type, INNER_ELEMENTS_ELSEWHERE)


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
        lanes = draw_lanes(x.numel())
        ctx.save_for_backward(lanes)
        dtype = x.dtype if residual is None else torch.result_type(x, residual)
        return _kept(x, lanes, ctx.least, ctx.scale, residual, dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upper: Tensor) -> tuple[Tensor, Tensor | None, None]:
        (lanes,), (dtype, other) = ctx.saved_tensors, ctx.types
        grad = _kept(upper, lanes, ctx.least, ctx.scale, None, dtype)
        return grad, None if other is None else upper.to(other), None


def draw_lanes(count: int) -> Tensor:
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
