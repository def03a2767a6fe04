"""Matrix products, activations and dropout, and tiling of the feed-forward part.

On a CPU, torch's dropout draws one random number per element sequentially: a tenth of a training step. Here
four elements use one draw of 64 bits, 16 bits each. Probabilities are rounded to multiples of 2^-16, and kept
values are scaled by the rounded probability, so means are unchanged.
"""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bigbird_dna.attention.fast_paths import check_first_derivative, is_plain
from bigbird_dna.attention.native import gelu_tanh_, pointwise
from bigbird_dna.disk.native_library import processor

Activation = Literal["gelu_tanh", "gelu", "relu"]


@cache
def mkl_is_slow() -> bool:
    """Whether torch's float32 products on this CPU, MKL's, are slower than those of oneDNN, which torch also
    contains: on AMD's processors MKL does not use AVX-512, with which oneDNN takes 0.45 of the time. Without
    AVX-512, MKL is at least as fast: on small inputs, and in sums over many rows, up to a third faster."""
    wide = torch.backends.cpu.get_cpu_capability() == "AVX512"
    return (
        wide
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
        and "AuthenticAMD" in processor()
    )


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """`F.linear` by oneDNN, not differentiable."""
    out: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return out


class _Product(torch.autograd.Function):
    """`_product` with gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _product(x, weight, bias)

    @staticmethod
    def backward(
        ctx: Any, upper: Tensor
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        (x, weight), (wants_x, wants_weight, wants_bias) = (
            ctx.saved_tensors,
            ctx.needs_input_grad,
        )
        check_first_derivative()
        flat, of_x, of_weight = upper.flatten(0, -2), None, None
        if wants_x:
            of_x = _product(upper, weight.t(), None)
        if wants_weight:
            of_weight = _product(flat.t(), x.flatten(0, -2).t(), None)
        return of_x, of_weight, flat.sum(0) if wants_bias else None


# oneDNN needs 10 µs more per product, which small heads would notice. The weights alone decide, because the
# bits of a row must not depend on the number of rows.
LEAST_WEIGHTS = 1 << 15


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """(…, D) times weights (E, D), plus bias (E,) → (…, E), with the fastest product of the device."""
    usable = (
        x.device.type == "cpu"
        and x.dtype == weight.dtype == torch.float32
        and x.dim() > 1
        and x.numel()
    )
    usual = weight.numel() < LEAST_WEIGHTS or torch.is_autocast_enabled("cpu")
    if not usable or usual or torch.compiler.is_compiling() or not mkl_is_slow():
        return F.linear(x, weight, bias)
    if torch.is_grad_enabled():
        return _Product.apply(x, weight, bias)  # type: ignore[no-any-return, no-untyped-call]
    return _product(x, weight, bias)


class Linear(nn.Linear):
    """`nn.Linear` by `linear`."""

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight, self.bias)


class _Gelu(torch.autograd.Function):
    """The tanh GELU by the compiled kernel: a fifth of torch's time, forward and backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        kernel = pointwise(x)
        assert kernel is not None
        ctx.save_for_backward(x)
        x = x.contiguous()
        return kernel.gelu(x, torch.empty_like(x))

    @staticmethod
    def backward(ctx: Any, upper: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        check_first_derivative()
        kernel = pointwise(x)
        assert kernel is not None
        return kernel.gelu_slope(x.contiguous(), upper.contiguous())


def gelu_tanh(x: Tensor) -> Tensor:
    """The tanh form of GELU; without gradients torch's own, see `infer_activation`.

    It differs from HuggingFace's explicit "gelu_new" only by rounding.
    """
    if torch.is_grad_enabled() and pointwise(x) is not None:
        return _Gelu.apply(x)  # type: ignore[no-any-return, no-untyped-call]
    return F.gelu(x, approximate="tanh")


# Elements of the feed-forward's inner states computed at once in inference. On a CPU 12 MiB in float32, which
# malloc reuses, whereas it maps larger buffers again at every call (4,096 tokens, width 768: 0.87 of the
# time). On other devices this only bounds memory: launching many small kernels costs time.
INNER_ELEMENTS = {"cpu": 3 << 20}
INNER_ELEMENTS_ELSEWHERE = 1 << 28

ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "gelu_tanh": gelu_tanh,
    "gelu": F.gelu,
    "relu": F.relu,
}


SUMMED_ELEMENTS = 1 << 20
"""Maximum number of products of `row_linear` in memory."""


def row_linear(layer: nn.Linear, x: Tensor) -> Tensor:
    """A layer's output (B, E) for few rows x (B, D).

    On a CPU without gradients, the bits of a row do not depend on the others. BLAS rounds products of few
    rows differently from those of many.
    """
    training = torch.is_grad_enabled() or torch.compiler.is_compiling()
    if training or x.device.type != "cpu" or not is_plain(layer, Linear, nn.Linear):
        return layer(x)  # type: ignore[no-any-return]
    few = max(1, SUMMED_ELEMENTS // layer.weight.numel())
    return torch.cat(
        [
            (some[:, None] * layer.weight).sum(2) + layer.bias
            for some in torch.split(x, few)
        ]
    )


WHOLE = 64
"""A number of elements that fills the vector registers of any machine several times."""


def row_sigmoid(logits: Tensor) -> Tensor:
    """Sigmoid of (B, …), whose rounding does not depend on an element's position."""
    return elementwise(torch.sigmoid, logits)


def elementwise(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """`function` of each element of (B, …), whose rounding does not depend on the element's position.

    torch computes the remainder of a vector register differently, with other rounding; padding leaves no
    remainder in any row.
    """
    flat = x.flatten(1)
    count = flat.shape[1]
    return function(F.pad(flat, (0, -count % WHOLE)))[:, :count].reshape(x.shape)


def infer_activation(name: Activation, x: Tensor) -> Tensor:
    """An activation without gradients; may overwrite `x`."""
    if name == "gelu_tanh":
        return gelu_tanh_(x)
    return ACTIVATIONS[name](x)


def inner_tiles(x: Tensor, inner: int) -> Iterator[tuple[slice, slice]]:
    """Split (B, L, D) into sequences × tokens, so that `inner` elements per token stay within the bound."""
    batch, length = x.shape[:2]
    fit = max(1, inner_bound(x) // inner)  # tokens
    rows, tokens = max(1, fit // length), min(fit, length)
    for row in range(0, batch, rows):
        for start in range(0, length, tokens):
            yield slice(row, row + rows), slice(start, start + tokens)


def inner_bound(x: Tensor) -> int:
    """Maximum number of inner elements computed at once for an input (…) without gradients."""
    return INNER_ELEMENTS.get(x.device.type, INNER_ELEMENTS_ELSEWHERE)


LEVELS = 1 << 16  # values of an element's 16 bits
_LOWEST, _LOWEST_WORD = -(LEVELS // 2), -(1 << 63)


class Dropout(nn.Dropout):
    """`nn.Dropout` that can add a residual in the same pass; draws from torch's global generator.

    The mask depends only on the generator's state and the number of elements, not on the number of threads or
    the compiled kernel. On GPUs, and when torch compiles, torch's dropout is used.
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
    def forward(
        ctx: Any, x: Tensor, residual: Tensor | None, probability: float
    ) -> Tensor:
        dropped = min(round(probability * LEVELS), LEVELS - 1)
        ctx.least, ctx.scale = _LOWEST + dropped, LEVELS / (LEVELS - dropped)
        ctx.types = x.dtype, None if residual is None else residual.dtype
        lanes = draw_lanes(x.numel())
        ctx.save_for_backward(lanes)
        dtype = x.dtype if residual is None else torch.result_type(x, residual)
        return _kept(x, lanes, ctx.least, ctx.scale, residual, dtype)

    @staticmethod
    def backward(ctx: Any, upper: Tensor) -> tuple[Tensor, Tensor | None, None]:
        (lanes,), (dtype, other) = ctx.saved_tensors, ctx.types
        grad = _kept(upper, lanes, ctx.least, ctx.scale, None, dtype)
        return grad, None if other is None else upper.to(other), None


def draw_lanes(count: int) -> Tensor:
    """`count` independent numbers, uniformly distributed over the range of int16."""
    words = torch.empty(-(-count // 4), dtype=torch.int64, device="cpu").random_(
        _LOWEST_WORD, None
    )
    return words.view(torch.int16)[:count]


def _kept(
    x: Tensor,
    lanes: Tensor,
    least: int,
    scale: float,
    residual: Tensor | None,
    dtype: torch.dtype,
) -> Tensor:
    """`x` · scale where `lanes` are at least `least`, else 0, plus `residual`; in `dtype`."""
    out = torch.empty(x.shape, dtype=dtype, device=x.device)
    if residual is None or residual.dtype == torch.float32:
        kernel = pointwise(x, out)
        if kernel is not None:
            residual = None if residual is None else residual.contiguous()
            return kernel.drop(x.contiguous(), lanes, least, scale, residual, out)
    wide = torch.promote_types(
        x.dtype, torch.float32
    )  # in bfloat16 the scale would be off by 0.2 %
    mask = (lanes >= least).view(x.shape).to(wide).mul_(scale)
    result = (
        x * mask
        if residual is None
        else torch.addcmul(residual.to(wide), x.to(wide), mask)
    )
    return result.to(dtype)
