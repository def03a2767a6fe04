"""The compiled route: BigBird's attention and its gradients on a CPU, in C++.

The library of `kernel.cpp` comes with a wheel, or is compiled on first use (half a minute) and cached
(`disk.native_library`). A new library is compared with dense attention in values and gradients. Inputs are
float32, bfloat16 or float16; arithmetic is float32.
Results do not depend on the number of threads. Without a compiler, other routes compute the same result.

Environment variables: BIGBIRD_DNA_NATIVE=0 disables the route, BIGBIRD_DNA_CACHE is the cache directory, and
CXX the compiler.
"""

import ctypes
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from threading import Lock

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

from bigbird_dna.attention.call import Call, dense_attention, differentiate_by
from bigbird_dna.attention.fast_paths import is_transformed
from bigbird_dna.attention.native_kernel import TYPES, Kernel, PackedLayer, PackedLayers
from bigbird_dna.attention.pattern import Pattern
from bigbird_dna.console import log
from bigbird_dna.disk.native_library import BuildError, load_library

# Axes: B batch, H heads, L tokens, K head width.

DISAGREES = "the compiled kernel does not agree with the reference implementation"
TOLERANCE = 1e-4  # of the check; values and gradients are of order 1
TILE = 64  # tokens that the kernel computes together


def native_attention(call: Call) -> Tensor:
    """Attention by the kernel, (B, H, L, K); `RuntimeError` if it is unavailable."""
    q, k, v, pattern, lengths, layer, *_ = call
    if type(q) is Tensor and not (
        torch.is_grad_enabled() or torch.compiler.is_compiling()
    ):
        # An operator's first call imports torch._dynamo, which takes a second.
        return _kernel().forward(call)[0]
    out: Tensor = forward_op(q, k, v, list(lengths), pattern.as_numbers(), layer)[0]
    return out


def one_block(call: Call) -> Pattern:
    """A pattern by which the kernel computes full attention, in half the time of torch's: all tokens are one
    block."""
    tiles = -(-max(call.lengths, default=1) // TILE)
    return Pattern(tiles * TILE, 1, 0, 0, causal=call.pattern.causal)


def unavailable(call: Call) -> str | None:
    """Why this route cannot serve the call, or None; the first call loads or compiles the kernel."""
    if call.q.device.type != "cpu":
        return f"native runs only on CPUs, not on {call.q.device.type}"
    if call.pattern.num_global_tokens:
        return "native does not support extra global tokens"
    return call.find_limit("native", TYPES) or _missing(call.q.dtype == torch.float16)


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
    for x in tensors:
        if x.device.type != "cpu" or x.dtype not in (torch.float32, torch.bfloat16):
            return None
    if torch.compiler.is_compiling() or is_transformed(*tensors):
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
    """Compare a new kernel with dense attention, in values and gradients, and with other functions of torch;
    `BuildError` if they differ."""
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
    check_functions(kernel)
    check_layer(kernel)


@torch.enable_grad()
def check_functions(kernel: Kernel) -> None:
    """Compare the element-wise functions with torch's; `BuildError` if they differ."""
    curve_at = torch.linspace(-12, 12, 960, requires_grad=True)
    curve = gelu(curve_at, approximate="tanh")
    (slope,) = torch.autograd.grad(curve.sum(), curve_at)
    x = curve_at.detach()
    lanes = torch.arange(-500, 460, dtype=torch.int16)
    dropped = x + torch.where(lanes >= -300, x * 1.25, 0)
    heads = x.view(1, 2, 10, 48)
    angles = torch.linspace(0, 5, 240).view(10, 24)
    turned = torch.complex(heads[..., :24], heads[..., 24:]) * torch.polar(
        torch.ones(10, 24), angles
    )
    rotation = angles.cos(), angles.sin()
    for result, reference in (
        (kernel.gelu(x, torch.empty_like(x)), curve),
        (kernel.gelu_slope(x, torch.ones_like(x)), slope),
        (kernel.drop(x, lanes, -300, 1.25, x, torch.empty_like(x)), dropped),
        (
            kernel.turn(heads, torch.empty_like(heads), rotation),
            torch.cat([turned.real, turned.imag], dim=-1),
        ),
    ):
        if not torch.allclose(result, reference, rtol=1e-5, atol=2e-6):
            raise BuildError(DISAGREES)


@torch.no_grad()
def check_layer(kernel: Kernel) -> None:
    """Compare an encoder layer of the kernel with torch's; `BuildError` if they differ."""
    hidden, inner, heads, tokens = 48, 80, 3, 77
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        joined = nn.Linear(hidden, 3 * hidden)
        output, up = nn.Linear(hidden, hidden), nn.Linear(hidden, inner)
        down, norm = nn.Linear(inner, hidden), nn.LayerNorm(hidden)
        x = torch.randn(1, tokens, hidden)
    q, k, v = joined(x).view(tokens, 3, heads, -1).permute(1, 2, 0, 3)
    context = torch.softmax(q @ k.mT * (hidden // heads) ** -0.5, dim=-1) @ v
    middle = norm(x + output(context.transpose(0, 1).flatten(1)))
    expected = norm(middle + down(gelu(up(middle), approximate="tanh")))
    layer = PackedLayer(
        kernel,
        (joined.weight, joined.bias),
        (output, up, down),
        (norm, norm),
        heads,
        pattern=None,
        index=0,
    )
    result = PackedLayers([layer], tokens).run(x, None)
    if not torch.allclose(result, expected, rtol=1e-4, atol=1e-4):
        raise BuildError(DISAGREES)


def _missing(float16: bool) -> str | None:
    kernel, reason = load_kernel()
    if kernel is None:
        return reason
    if float16 and not kernel.has_float16:
        return "the compiler does not support 16-bit floats"
    return None


# The mark of torch.compiler.assume_constant_result, which imports torch._dynamo (seconds for every command).
_missing._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _kernel() -> Kernel:
    kernel, reason = load_kernel()
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
