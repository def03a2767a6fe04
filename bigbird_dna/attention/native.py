"""The compiled route: BigBird's attention and its gradients on a CPU, in C++.

The library of `kernel.cpp` comes with a wheel, or is compiled on first use (half a minute) and cached
(`disk.native_library`). A new library is compared with dense attention in values and gradients. Inputs are
float32 or bfloat16; arithmetic is float32.
Results do not depend on the number of threads. Without a compiler, other routes compute the same result.

Environment variables: BIGBIRD_DNA_NATIVE=0 disables the route, BIGBIRD_DNA_CACHE is the cache directory, and
CXX the compiler.
"""

import ctypes
import os
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from threading import Lock
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import gelu

from bigbird_dna.attention.call import Call, dense_attention
from bigbird_dna.attention.fast_paths import check_first_derivative
from bigbird_dna.attention.native_kernel import TYPES, Kernel
from bigbird_dna.attention.pattern import Pattern
from bigbird_dna.console import log
from bigbird_dna.disk.native_library import BuildError, load_library

# Axes: B batch, H heads, L tokens, K head width.

DISAGREES = "the compiled kernel does not agree with the reference implementation"
TOLERANCE = 1e-4  # of the check; values and gradients are of order 1


def native_attention(call: Call) -> Tensor:
    """Attention by the kernel, (B, H, L, K); `RuntimeError` if it is unavailable."""
    q, k, v, pattern, lengths, layer, *_ = call
    return _Attention.apply(q, k, v, pattern, lengths, layer)  # type: ignore[no-any-return, no-untyped-call]


def unavailable(call: Call) -> str | None:
    """Why this route cannot serve the call, or None; the first call loads or compiles the kernel."""
    if call.q.device.type != "cpu":
        return f"native runs only on CPUs, not on {call.q.device.type}"
    if call.pattern.num_global_tokens:
        return "native does not support extra global tokens"
    limit = call.find_limit("native", TYPES)
    if limit is not None:
        return limit
    kernel, reason = load_kernel()
    return reason if kernel is None else None


def gelu_tanh_(x: Tensor) -> Tensor:
    """The tanh form of GELU, in place if possible, not differentiable; torch's version takes several times as
    long."""
    kernel = pointwise(x)
    if kernel is None or not x.is_contiguous():
        return gelu(x, approximate="tanh")
    return kernel.gelu(x, x)


def pointwise(*tensors: Tensor) -> Kernel | None:
    """The kernel for element-wise functions of float32 or bfloat16 CPU tensors at memory bandwidth; None: use
    torch, for example under torch.compile."""
    for x in tensors:
        if x.device.type != "cpu" or x.dtype not in (torch.float32, torch.bfloat16):
            return None
    if torch.compiler.is_compiling():
        return None
    return load_kernel()[0]


# ---- loading ---------------------------------------------------------------------------------------------

_lock = Lock()
loaded: tuple[Kernel | None, str] | None = None


def load_kernel() -> tuple[Kernel | None, str]:
    """The kernel of this process, or the reason why it is missing; the first call finds or compiles it."""
    global loaded
    if os.environ.get("BIGBIRD_DNA_NATIVE") == "0":
        return None, "BIGBIRD_DNA_NATIVE=0 disables it"
    with _lock:
        if loaded is None:
            # A new thread does not inherit the caller's modes: tracing, inference, autocast.
            with ThreadPoolExecutor(1) as pool:
                loaded = pool.submit(_find_kernel).result()
        return loaded


def _find_kernel() -> tuple[Kernel | None, str]:
    source = files("bigbird_dna.attention").joinpath("kernel.cpp").read_bytes()
    try:
        return Kernel(load_library(source, check_library)), ""
    except (BuildError, OSError, AttributeError) as error:
        reason = " ".join(str(error).split())
        log(
            f"attention uses PyTorch (route blocked) instead of the compiled kernel, because {reason}. "
            "PyTorch is slower, and the last digits of scores may differ"
        )
        return None, reason


def check_library(library: ctypes.CDLL) -> None:
    """Compare a new kernel with dense attention, in values and gradients; `BuildError` if they differ."""
    kernel = Kernel(library)
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
            results = out, *kernel.backward(call, upper, out, lse)

        for result, reference in zip(results, (expected, *gradients), strict=True):
            if not (result - reference).abs().max() <= TOLERANCE:
                raise BuildError(DISAGREES)


class _Attention(torch.autograd.Function):
    """Attention by the kernel, with gradients."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        pattern: Pattern,
        lengths: tuple[int, ...],
        layer: int,
    ) -> Tensor:
        kernel, reason = load_kernel()
        if kernel is None:
            raise RuntimeError(f"the native route is unavailable: {reason}")
        out, lse = kernel.forward(Call(q, k, v, pattern, lengths, layer))
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.kernel = kernel
        ctx.rest = (pattern, lengths, layer)

        return out

    @staticmethod
    def backward(ctx: Any, upper: Tensor) -> tuple[Tensor | None, ...]:
        check_first_derivative()
        q, k, v, out, lse = ctx.saved_tensors
        call = Call(q, k, v, *ctx.rest)
        return *ctx.kernel.backward(call, upper, out, lse), None, None, None
