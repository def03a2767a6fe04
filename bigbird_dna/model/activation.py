"""The activation functions that a configuration can name, and how much of them is computed at once."""

from collections.abc import Callable, Iterator
from typing import Any, Literal

import torch
from torch import Tensor
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
