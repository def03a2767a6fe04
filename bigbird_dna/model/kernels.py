"""Matrix products, activations and dropout.

On a CPU, torch's dropout draws one random number per element sequentially: a tenth of a training step. Here
four elements use one draw of 64 bits, 16 bits each. Probabilities are rounded to multiples of 2^-16, and kept
values are scaled by the rounded probability, so means are unchanged.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bigbird_dna.attention.fast_paths import check_first_derivative, is_plain
from bigbird_dna.attention.native import pointwise
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
    """The tanh form of GELU; it differs from HuggingFace's explicit "gelu_new" only by rounding."""
    if torch.is_grad_enabled() and pointwise(x) is not None:
        return _Gelu.apply(x)  # type: ignore[no-any-return, no-untyped-call]
    return F.gelu(x, approximate="tanh")


ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "gelu_tanh": gelu_tanh,
    "gelu": F.gelu,
    "relu": F.relu,
}


def row_linear(layer: nn.Linear, x: Tensor) -> Tensor:
    """A layer's output (B, E) for few rows x (B, D).

    On a CPU without gradients, each row is a product of its own, so that its bits do not depend on the others.
    """
    if torch.is_grad_enabled() or x.device.type != "cpu":
        return layer(x)  # type: ignore[no-any-return]

    if not is_plain(layer, Linear):
        return torch.cat([layer(row) for row in torch.split(x, 1)])

    weight = layer.weight.T.expand(len(x), -1, -1)
    return torch.bmm(x[:, None], weight)[:, 0] + layer.bias


def row_sigmoid(logits: Tensor) -> Tensor:
    """Sigmoid of (B, …), whose rounding does not depend on an element's position.

    torch computes the remainder of a vector register differently, with other rounding in float32.
    """
    return logits.double().sigmoid().float()


LEVELS = 1 << 16  # values of an element's 16 bits


class Dropout(nn.Dropout):
    """`nn.Dropout` that can add a residual in the same pass; draws from torch's global generator.

    On a CPU with the compiled kernel, the mask depends only on the generator's state and the number of
    elements, not on the number of threads. Without the kernel, torch's dropout is used.
    """

    def forward(self, input: Tensor, residual: Tensor | None = None) -> Tensor:
        """Drop elements of `input`, then add `residual`, of the same shape."""
        is_wide = residual is None or residual.dtype == torch.float32
        if self.training and self.p and is_wide and pointwise(input) is not None:
            return _Dropped.apply(input, residual, self.p)  # type: ignore[no-any-return, no-untyped-call]
        dropped = super().forward(input)
        return dropped if residual is None else residual + dropped


class _Dropped(torch.autograd.Function):
    """Dropout by the compiled kernel: a step of a small model takes 0.85 of the time with torch's."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, residual: Tensor | None, probability: float
    ) -> Tensor:
        dropped = min(round(probability * LEVELS), LEVELS - 1)
        ctx.threshold = dropped - LEVELS // 2
        ctx.scale = LEVELS / (LEVELS - dropped)
        ctx.dtype = x.dtype
        lanes = draw_lanes(x.numel())
        ctx.save_for_backward(lanes)

        kernel = pointwise(x)
        assert kernel is not None
        out = torch.empty(x.shape, dtype=x.dtype, device="cpu")
        if residual is not None:
            residual, out = residual.contiguous(), out.float()

        return kernel.drop(
            x.contiguous(), lanes, ctx.threshold, ctx.scale, residual, out
        )

    @staticmethod
    def backward(ctx: Any, upper: Tensor) -> tuple[Tensor, Tensor | None, None]:
        kernel = pointwise(upper)
        assert kernel is not None
        (lanes,) = ctx.saved_tensors
        grad = torch.empty(upper.shape, dtype=ctx.dtype, device="cpu")
        kernel.drop(upper.contiguous(), lanes, ctx.threshold, ctx.scale, None, grad)
        return grad, upper if ctx.needs_input_grad[1] else None, None


def draw_lanes(count: int) -> Tensor:
    """`count` independent numbers, uniformly distributed over the range of int16."""
    words = torch.empty(-(-count // 4), dtype=torch.int64, device="cpu")
    words.random_(-(1 << 63), None)
    return words.view(torch.int16)[:count]
