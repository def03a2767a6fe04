"""The compiled route: BigBird's attention and its gradients on a CPU, in C++.

The library of `kernel.cpp` comes with a wheel, or is compiled on first use (half a minute) and cached
(`disk.native_library`). On first use it is compared with dense attention in values and gradients. Inputs are
float32, bfloat16 or float16; arithmetic is float32.
Results do not depend on the number of threads. Without a compiler, other routes compute the same result.

Environment variables: BIGBIRD_DNA_NATIVE=0 disables the route, BIGBIRD_DNA_CACHE is the cache directory, and
CXX the compiler.
"""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from threading import Lock
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import gelu

from bigbird_dna.attention.call import (
    Call,
    RouteRequest,
    dense_attention,
    differentiate_by,
)
from bigbird_dna.attention.fast_paths import is_transformed
from bigbird_dna.attention.native_kernel import TYPES, Kernel, layer_agrees
from bigbird_dna.attention.pattern import Pattern
from bigbird_dna.console import log
from bigbird_dna.disk import native_library as native_build

# Axes: B batch, H heads, L tokens, K head width.

TOLERANCE = 1e-4  # of the check; values and gradients are of order 1
TILE = 64  # tokens that the kernel computes together


def native_attention(call: Call) -> Tensor:
    """Attention by the kernel, (B, H, L, K); `RuntimeError` if it is unavailable."""
    q, k, v, pattern, lengths, layer, *_ = call
    if type(q) is Tensor and not (
        torch.is_grad_enabled() or torch.compiler.is_compiling()
    ):
        return _kernel().forward(call)[
            0
        ]  # an operator's first call imports torch._dynamo: a second
    out: Tensor = forward_op(q, k, v, list(lengths), pattern.as_numbers(), layer)[0]
    return out


def one_block(call: Call) -> Pattern:
    """A pattern by which the kernel computes full attention, in half the time of torch's: all tokens are one
    block."""
    tiles = -(-max(call.lengths, default=1) // TILE)
    return Pattern(tiles * TILE, 1, 0, 0, causal=call.pattern.causal)


def unavailable(request: RouteRequest) -> str | None:
    """Why this route cannot serve the request, or None; the first request loads or compiles the kernel."""
    q, pattern, *_ = request
    if q.device.type != "cpu":
        return f"native runs only on CPUs, not on {q.device.type}"
    if pattern.num_global_tokens:
        return "native does not support extra global tokens"
    reason: str | None = request.beyond("native", TYPES) or _missing(
        q.dtype == torch.float16
    )
    return reason


def gelu_tanh_(x: Tensor) -> Tensor:
    """The tanh form of GELU, in place if possible, not differentiable; torch's version takes several times as
    long."""
    kernel = pointwise(x)
    if kernel is None or not x.is_contiguous():
        return gelu(x, approximate="tanh")
    return kernel.gelu(x, x)


def pointwise(*tensors: Tensor) -> Kernel | None:
    """The kernel for element-wise functions of float32 or bfloat16 CPU tensors at memory bandwidth; None: use
    torch, for example under torch.compile or torch.func."""
    fit = all(
        x.device.type == "cpu" and x.dtype in (torch.float32, torch.bfloat16)
        for x in tensors
    )
    if (
        not fit
        or torch.compiler.is_compiling()
        or is_transformed(*tensors)
        or _missing(False) is not None
    ):
        return None
    return _kernel()


class _Loaded(NamedTuple):
    kernel: Kernel | None
    reason: str  # why the kernel is missing


_lock = Lock()
loaded: _Loaded | None = None


def _load() -> _Loaded:
    """The kernel of this process; the first call finds or compiles, checks and loads it."""
    global loaded
    with _lock:
        if loaded is None:
            # A new thread does not inherit the caller's modes: tracing, inference, autocast.
            with ThreadPoolExecutor(1) as pool:
                loaded = pool.submit(_try_to_load).result()
        return loaded


def _try_to_load() -> _Loaded:
    try:
        source = files("bigbird_dna.attention").joinpath("kernel.cpp").read_bytes()
        with native_build.library(source, lambda path: _check(Kernel(path))) as path:
            kernel = Kernel(path)
        _check_sum(kernel)
    except (native_build.BuildError, OSError, AttributeError) as error:
        reason = " ".join(str(error).split())
        log(
            f"attention uses PyTorch (route blocked) instead of the compiled kernel, because {reason}. "
            "PyTorch is slower, and the last digits of scores may differ"
        )
        return _Loaded(None, reason)
    return _Loaded(kernel, "")


def _check(kernel: Kernel) -> None:
    """Compare a new kernel with dense attention in values and gradients; `BuildError` if they differ."""
    generator = torch.Generator().manual_seed(0)
    pattern = Pattern(block_size=24, random_blocks=2)
    for shape, lengths in (((2, 2, 300, 64), (300, 290)), ((1, 3, 235, 20), (235,))):
        q, k, v, upper = (torch.randn(shape, generator=generator) for _ in range(4))
        for leaf in (q, k, v):
            leaf.requires_grad_()
        call = Call(q, k, v, pattern, lengths)
        expected = dense_attention(call)
        # Of a sum: with the argument `grad_outputs`, torch imports sympy, half a second.
        gradients = torch.autograd.grad((expected * upper).sum(), (q, k, v))
        with torch.no_grad():
            out, lse = kernel.forward(call)
            found = kernel.backward(call, upper, out, lse)
        for result, reference in zip(
            (out, *found), (expected, *gradients), strict=True
        ):
            if not (result - reference).abs().max() <= TOLERANCE:
                raise native_build.BuildError(
                    "the compiled kernel does not agree with the reference implementation"
                )


def _check_sum(kernel: Kernel) -> None:
    """Check that a cached kernel runs: with equal keys, attention returns the mean of the values."""
    zeros, v = torch.zeros(1, 1, 40, 8), torch.arange(320.0).reshape(1, 1, 40, 8)
    pattern = Pattern(block_size=8, random_blocks=2)
    out, _ = kernel.forward(Call(zeros, zeros, v, pattern, (40,)))
    means = torch.allclose(out, v.mean(dim=2, keepdim=True))
    if not (means and _pointwise_agrees(kernel) and layer_agrees(kernel)):
        raise native_build.BuildError(
            "the compiled kernel does not agree with the reference implementation"
        )


def _pointwise_agrees(kernel: Kernel) -> bool:
    """Whether the element-wise functions agree with torch."""
    some = torch.linspace(-12, 12, 1003, requires_grad=True)
    curve = gelu(some, approximate="tanh")
    (slope,) = torch.autograd.grad(curve.sum(), some)
    x, least = some.detach(), -300
    lanes = torch.arange(-500, 503, dtype=torch.int16)
    kept = torch.where(lanes >= least, x * 1.25, 0)
    rows = x[:960].view(1, 2, 10, 48)
    angles = torch.linspace(0, 5, 240).view(10, 24)
    pairs = torch.complex(rows[..., :24], rows[..., 24:]) * torch.polar(
        torch.ones(10, 24), angles
    )
    found_and_expected = (
        (kernel.gelu(x, torch.empty_like(x)), curve),
        (kernel.gelu_slope(x, torch.ones_like(x)), slope),
        (kernel.drop(x, lanes, least, 1.25, x, torch.empty_like(x)), x + kept),
        (
            kernel.turn(rows, torch.empty_like(rows), (angles.cos(), angles.sin())),
            torch.cat([pairs.real, pairs.imag], dim=-1),
        ),
    )
    return all(
        torch.allclose(a, b, rtol=1e-5, atol=2e-6) for a, b in found_and_expected
    )


def _missing(float16: bool) -> str | None:
    if os.environ.get("BIGBIRD_DNA_NATIVE") == "0":
        return "BIGBIRD_DNA_NATIVE=0 disables it"
    kernel, reason = _load()
    if kernel is None:
        return reason
    if float16 and not kernel.has_float16:
        return "the compiler does not support 16-bit floats"
    return None


# The mark of torch.compiler.assume_constant_result, which imports torch._dynamo (seconds for every command).
_missing._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _kernel() -> Kernel:
    kernel, reason = _load()
    if kernel is None:
        raise RuntimeError(f"the native route is unavailable: {reason}")
    return kernel


# Custom operators, which torch.compile and torch.export treat as opaque; patterns are passed as integers.


@torch.library.custom_op(
    "bigbird_dna::native_forward", mutates_args=(), device_types="cpu"
)
def forward_op(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    lengths: Sequence[int],
    pattern: Sequence[int],
    layer: int,
) -> tuple[Tensor, Tensor]:
    return _kernel().forward(
        Call(q, k, v, Pattern.from_numbers(pattern), tuple(lengths), layer)
    )


@torch.library.custom_op(
    "bigbird_dna::native_backward", mutates_args=(), device_types="cpu"
)
def backward_op(
    upper: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    lengths: Sequence[int],
    pattern: Sequence[int],
    layer: int,
) -> tuple[Tensor, Tensor, Tensor]:
    call = Call(q, k, v, Pattern.from_numbers(pattern), tuple(lengths), layer)
    return _kernel().backward(call, upper, out, lse)


def _composed(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    lengths: Sequence[int],
    pattern: Sequence[int],
    layer: int,
) -> Tensor:
    return dense_attention(
        Call(q, k, v, Pattern.from_numbers(pattern), tuple(lengths), layer)
    )


differentiate_by(
    forward_op, backward_op, lse_dtype=lambda _: torch.float32, composed=_composed
)
