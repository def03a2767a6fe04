"""Python interface of kernel.cpp: attention, element-wise functions, and complete encoder layers.

A short sequence through a small model consists of many small operations, which take torch longer to dispatch
than to compute. `PackedLayer` runs a layer as one call, for one sequence on one thread, with weights stored
in the order in which its matrix products read them.
"""

import ctypes
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from bigbird_dna.attention.call import Call, empty_output
from bigbird_dna.attention.fast_paths import is_transformed
from bigbird_dna.attention.pattern import Pattern
from bigbird_dna.gpus import limit_threads

# Axes: B batch, H heads, L tokens, K head width, Q blocks of a sequence, S key blocks that a query block
# attends to, D hidden width, I intermediate width.

TYPES = {
    torch.float32: 0,
    torch.bfloat16: 1,
    torch.float16: 2,
}  # the kernel's type numbers


class _Array(ctypes.Structure):
    """`Array` in kernel.cpp."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("batch", "head", "token")),
    ]


class KernelCall(ctypes.Structure):
    """`Problem` in kernel.cpp."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("batch", "heads", "tokens", "width")),
        *((name, ctypes.c_int64) for name in ("block_size", "blocks", "seen")),
        *((name, ctypes.c_int64) for name in ("causal", "type", "threads")),
        *((name, ctypes.c_double) for name in ("scale", "first_bias")),
        *(
            (name, ctypes.c_void_p)
            for name in ("key_blocks", "full", "rows", "lengths")
        ),
        *((name, ctypes.c_void_p) for name in ("launcher", "scratch")),
        *((name, _Array) for name in ("q", "k", "v", "out")),
        ("lse", ctypes.c_void_p),
        *((name, _Array) for name in ("upper", "grad_q", "grad_k", "grad_v")),
    ]


class Kernel:
    """A loaded kernel library.

    Tensors are (B, H, L, K), on the CPU and of one type of `TYPES`. lse (B, H, L) float32 is the binary
    logarithm of the sum in each query's softmax. Results have the memory layout of `empty_output`.
    """

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))
        self._library.scratch_size.restype = ctypes.c_int64
        self._library.layer_room.restype = ctypes.c_int64
        self.has_float16 = bool(self._library.has_float16())
        self.panel_columns = int(self._library.panel_columns())

    def forward(self, call: Call) -> tuple[Tensor, Tensor]:
        """Return (out, lse)."""
        out = _result(call)
        lse = call.q.new_zeros(
            call.q.shape[:3], dtype=torch.float32
        )  # also zero at padding
        self._solve(call, lse, out=out)
        return out, lse

    def backward(
        self, call: Call, upper: Tensor, out: Tensor, lse: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients with respect to q, k and v; `upper` is the gradient with respect to `out`."""
        grads = (_result(call), _result(call), _result(call))
        named = zip(("grad_q", "grad_k", "grad_v"), grads, strict=True)
        self._solve(call, lse, out=out, upper=upper, **dict(named))
        return grads

    # Tensors below are on the CPU, float32 or bfloat16, and contiguous unless specified otherwise.

    def gelu(self, x: Tensor, out: Tensor) -> Tensor:
        """The tanh form of GELU, written into `out`, which may be `x`."""
        self._each("gelu", x, x, out)
        return out

    def gelu_slope(self, x: Tensor, upper: Tensor) -> Tensor:
        """Gradient with respect to `x`; `upper` is the gradient with respect to GELU(`x`)."""
        out = torch.empty_like(x)
        self._each("gelu_slope", x, x, upper, out)
        return out

    def drop(
        self,
        x: Tensor,
        lanes: Tensor,
        least: int,
        scale: float,
        residual: Tensor | None,
        out: Tensor,
    ) -> Tensor:
        """`x` · scale where `lanes` (int16) are at least `least`, else 0; plus `residual` (float32)."""
        problem = KernelCall(
            threads=limit_threads(torch.get_num_threads()), launcher=launcher()
        )
        self._library.drop(
            ctypes.byref(problem),
            *map(ctypes.c_int64, (TYPES[x.dtype], TYPES[out.dtype])),
            *_addresses(x, residual, out, lanes),
            ctypes.c_int64(least),
            ctypes.c_double(scale),
            ctypes.c_int64(x.numel()),
        )
        return out

    def turn(
        self,
        x: Tensor,
        out: Tensor,
        turns: tuple[Tensor, Tensor] | None,
        back: bool = False,
    ) -> Tensor:
        """Rotate rows of `x` (B, H, L, K) by their tokens' angles, cosines and sines (L, K / 2), into `out`.

        Sequences with their own angles have cosines and sines (B, 1, L, K / 2), contiguous. None copies the
        rows. Both tensors may be the same and have any strides except in the last axis.
        """
        batch, heads, tokens, width = x.shape
        problem = KernelCall(
            batch=batch,
            heads=heads,
            tokens=tokens,
            width=width,
            type=TYPES[x.dtype],
            threads=limit_threads(torch.get_num_threads()),
            launcher=launcher(),
            q=_Array(_pointer(x), *x.stride()[:3]),
            out=_Array(_pointer(out), *out.stride()[:3]),
        )
        self._library.turn(
            ctypes.byref(problem),
            ctypes.c_int64(TYPES[out.dtype]),
            *_addresses(*(turns or (None, None))),
            _step(turns),
            ctypes.c_double(-1.0 if back else 1.0),
        )
        return out

    def layer(
        self,
        problem: KernelCall,
        weights: ctypes.Structure,
        x: Tensor,
        turns: tuple[Tensor, Tensor] | None,
    ) -> None:
        """Pass hidden states `x` (B, L, D) through a layer, in place; `problem` describes one sequence."""
        of, library = ctypes.byref(problem), self._library
        sizes = (
            library.scratch_size(of, 0),
            library.layer_room(of, ctypes.byref(weights)),
            problem.tokens * problem.heads,
        )
        memory = torch.empty(sum(sizes), dtype=torch.float32, device="cpu")
        scratch, room, lse = torch.split(memory, list(sizes))
        problem.scratch, problem.lse = _pointer(scratch), _pointer(lse)
        angles, step = _addresses(*(turns or (None, None))), _step(turns)
        count = ctypes.c_int64(len(x))
        library.layer(
            of, ctypes.byref(weights), count, *angles, step, *_addresses(x, room)
        )

    def _each(self, name: str, *tensors: Tensor) -> None:
        """Call an element-wise function on `others`, with the element count and type of the first tensor."""
        first, *others = tensors
        problem = KernelCall(
            threads=limit_threads(torch.get_num_threads()), launcher=launcher()
        )
        self._library[name](
            ctypes.byref(problem),
            ctypes.c_int64(TYPES[first.dtype]),
            *_addresses(*others),
            ctypes.c_int64(first.numel()),
        )

    def _solve(self, call: Call, lse: Tensor, **tensors: Tensor) -> None:
        q, k, v, pattern, lengths, layer, *_ = call
        _, heads, tokens, width = q.shape
        tensors |= {"q": q, "k": k, "v": v}
        kept = {
            name: x if x.stride(3) == 1 or x.shape[3] == 1 else x.contiguous()
            for name, x in tensors.items()
        }
        arrays = {
            name: _Array(_pointer(x), *x.stride()[:3]) for name, x in kept.items()
        }
        backward = "upper" in tensors
        solve = self._library.backward if backward else self._library.forward
        by_blocks: dict[int, list[int]] = {}
        for row, length in enumerate(lengths):
            blocks = pattern.graph_blocks(length, tokens)
            if not (pattern.huggingface or pattern.causal) and pattern.is_full(blocks):
                blocks = 0  # rows with full attention are computed together, each as one block
            by_blocks.setdefault(blocks, []).append(row)
        for blocks, rows in by_blocks.items():
            places, ends = (
                np.array(x, np.int64) for x in (rows, [lengths[row] for row in rows])
            )
            whole = _graph(None, int(ends.max(initial=1)), heads, layer)
            graph = _make_graph(pattern, blocks, heads, layer) if blocks else whole
            problem = graph.problem(
                (len(rows), heads, tokens, width),
                ends,
                rows=places.ctypes.data,
                causal=pattern.causal,
                type=TYPES[q.dtype],
                threads=limit_threads(torch.get_num_threads()),
                lse=_pointer(lse),
                **arrays,
            )
            size = self._library.scratch_size(ctypes.byref(problem), int(backward))
            scratch = torch.empty(size, dtype=torch.float32, device="cpu")
            problem.scratch = _pointer(scratch)
            solve(ctypes.byref(problem))


def _result(call: Call) -> Tensor:
    """Output tensor; zero-filled if there is padding, because the kernel writes true positions only."""
    whole = all(length == call.q.shape[2] for length in call.lengths)
    return empty_output(call.q) if whole else empty_output(call.q).zero_()


def _step(turns: tuple[Tensor, Tensor] | None) -> ctypes.c_int64:
    """Elements between the angles of one sequence and the next; 0 for common ones."""
    return ctypes.c_int64(turns[0].stride(0) if turns and turns[0].dim() > 2 else 0)


def _addresses(*tensors: Tensor | None) -> list[ctypes.c_void_p]:
    return [ctypes.c_void_p(None if x is None else _pointer(x)) for x in tensors]


def _pointer(x: Tensor) -> int:
    """Address of a tensor's memory; the kernel reads and writes it unchecked."""
    if not x.is_cpu:
        raise RuntimeError(
            f"the compiled kernel needs tensors on the CPU, not on {x.device.type}"
        )
    return x.data_ptr()


@lru_cache(maxsize=1)
def launcher() -> int | None:
    """Address of the OpenMP function that starts torch's threads; None makes the kernel start its own.
    torch's threads keep spinning after work and would compete for the cores."""
    try:
        torch_library = ctypes.CDLL(
            str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so")
        )
        return ctypes.cast(torch_library.GOMP_parallel, ctypes.c_void_p).value
    except (OSError, AttributeError):
        return None


class _Weights(ctypes.Structure):
    """`Weights` in kernel.cpp."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("hidden", "inner")),
        ("epsilon", ctypes.c_double),
        *((name, ctypes.c_void_p) for name in ("joined", "joined_bias")),
        *(
            (name, ctypes.c_void_p)
            for name in ("output", "output_bias", "gain", "shift")
        ),
        *((name, ctypes.c_void_p) for name in ("up", "up_bias", "down", "down_bias")),
        *((name, ctypes.c_void_p) for name in ("last_gain", "last_shift")),
    ]


class _Graph(NamedTuple):
    """The attention graph in the kernel's format."""

    block_size: int
    key_blocks: npt.NDArray[np.int32]  # (H, blocks, seen)
    full: npt.NDArray[np.uint8]  # (blocks,)
    first_bias: float = 0.0

    def problem(
        self,
        shape: tuple[int, int, int, int],
        lengths: npt.NDArray[np.int64],
        **others: Any,
    ) -> KernelCall:
        """A call with shape (batch, heads, tokens, width) and the addresses of the graph and of `lengths`."""
        return KernelCall(
            **dict(zip(("batch", "heads", "tokens", "width"), shape, strict=True)),
            block_size=self.block_size,
            blocks=len(self.full),
            seen=self.key_blocks.shape[2],
            scale=shape[3] ** -0.5,
            first_bias=self.first_bias,
            key_blocks=self.key_blocks.ctypes.data,
            full=self.full.ctypes.data,
            lengths=lengths.ctypes.data,
            launcher=launcher(),
            **others,
        )


def _make_graph(pattern: Pattern, blocks: int, heads: int, layer: int) -> _Graph:
    full = np.zeros(blocks, np.uint8)
    full[pattern.full_rows(blocks)] = 1
    key_blocks = np.ascontiguousarray(pattern.key_blocks(blocks, heads, layer))
    return _Graph(
        pattern.block_size, key_blocks, full, float(np.log2(pattern.first_block_count))
    )


class PackedLayer:
    """A layer's weights, copied and packed for the kernel.

    `joined` contains queries, keys and values, (3D, D) and (3D,). `linears` are the layers after attention,
    up to the intermediate width and down again. `norms` are those after attention and at the end. Without
    `pattern`, every token attends to every other.
    """

    def __init__(
        self,
        kernel: Kernel,
        joined: tuple[Tensor, Tensor],
        linears: tuple[nn.Linear, nn.Linear, nn.Linear],
        norms: tuple[nn.LayerNorm, nn.LayerNorm],
        heads: int,
        pattern: Pattern | None,
        index: int,
    ) -> None:
        self.heads, self.pattern, self.index = heads, pattern, index
        self._kernel, columns = kernel, kernel.panel_columns
        (output, up, down), (norm, last) = linears, norms
        self._kept = {
            **{
                "joined": _packed(joined[0], columns),
                "joined_bias": _filled(joined[1], columns),
            },
            **{
                "output": _packed(output.weight, columns),
                "output_bias": _filled(output.bias, columns),
            },
            **{
                "gain": _filled(norm.weight, columns),
                "shift": _filled(norm.bias, columns),
            },
            **{"up": _packed(up.weight, columns), "up_bias": _filled(up.bias, columns)},
            **{
                "down": _packed(down.weight, columns),
                "down_bias": _filled(down.bias, columns),
            },
            **{
                "last_gain": _filled(last.weight, columns),
                "last_shift": _filled(last.bias, columns),
            },
        }
        addresses = {name: _pointer(kept) for name, kept in self._kept.items()}
        self._weights = _Weights(up.in_features, up.out_features, norm.eps, **addresses)

    def __call__(self, x: Tensor, turns: tuple[Tensor, Tensor] | None) -> None:
        """Replace hidden states (B, L, D), float32 and contiguous, by those after the layer."""
        _, tokens, hidden = x.shape
        graph = _graph(self.pattern, tokens, self.heads, self.index)
        length = np.array([tokens], np.int64)
        problem = graph.problem(
            (1, self.heads, tokens, hidden // self.heads), length, threads=1
        )
        self._kernel.layer(problem, self._weights, x, turns)


def can_pack(hidden: int, heads: int) -> bool:
    """Whether hidden states fill whole SIMD vectors on any processor, and head widths are even."""
    return hidden % 16 == 0 and hidden // heads % 2 == 0


class PackedLayers:
    """All layers of an encoder for sequences of at most `longest` tokens, on one thread.

    The hidden states of a sequence depend neither on the others nor on their number, bit for bit.
    """

    def __init__(self, layers: list[PackedLayer], longest: int) -> None:
        self._layers, self._longest = layers, longest

    def take(self, x: Tensor, lengths: Tensor | None) -> bool:
        """Whether the layers can run these embeddings (B, L, D): no padding, one thread, no gradients."""
        tokens = x.shape[1]
        return (
            tokens <= self._longest
            and (lengths is None or bool((lengths == tokens).all()))
            and x.dtype == torch.float32
            and torch.get_num_threads() == 1
            and not torch.is_grad_enabled()
            and not torch.is_autocast_enabled("cpu")
            and not is_transformed(x)
        )

    def run(self, x: Tensor, turns: tuple[Tensor, Tensor] | None) -> Tensor:
        """Hidden states (B, L, D) after all layers; `x` may be overwritten."""
        x = x.contiguous()
        for layer in self._layers:
            layer(x, turns)
        return x


class _Unset(nn.Linear):
    """Weights without values: nothing is drawn from the global generator, and torch does not import sympy."""

    def reset_parameters(self) -> None:
        pass


def layer_agrees(kernel: Kernel) -> bool:
    """Whether the kernel's layer agrees with torch's computation of the same layer."""
    hidden, inner, heads, tokens = 48, 80, 3, 77
    draw = torch.Generator().manual_seed(0)

    def linear(inputs: int, outputs: int) -> nn.Linear:
        made = _Unset(inputs, outputs)
        made.weight.data.normal_(std=inputs**-0.5, generator=draw)
        made.bias.data.normal_(generator=draw)
        return made

    with torch.no_grad():
        joined, output, up = (
            linear(hidden, 3 * hidden),
            linear(hidden, hidden),
            linear(hidden, inner),
        )
        down, norm = linear(inner, hidden), nn.LayerNorm(hidden)
        x = torch.randn(tokens, hidden, generator=draw)
        q, k, v = joined(x).view(tokens, 3, heads, -1).permute(1, 2, 0, 3)
        context = torch.softmax(q @ k.mT * (hidden // heads) ** -0.5, dim=-1) @ v
        middle = norm(x + output(context.transpose(0, 1).flatten(1)))
        expected = norm(
            middle + down(nn.functional.gelu(up(middle), approximate="tanh"))
        )
        weights = joined.weight, joined.bias
        layer = PackedLayer(
            kernel, weights, (output, up, down), (norm, norm), heads, None, 0
        )
        layer(x[None], None)
    return torch.allclose(x, expected, rtol=1e-4, atol=1e-4)


@lru_cache(maxsize=4096)
def _graph(pattern: Pattern | None, tokens: int, heads: int, layer: int) -> _Graph:
    """The graph of a pattern; with full attention, the sequence is one block."""
    blocks = 1 if pattern is None else pattern.blocks(tokens)
    if pattern is None or pattern.is_full(blocks):
        return _Graph(
            tokens, np.full((heads, 1, 1), -1, np.int32), np.ones(1, np.uint8)
        )
    return _make_graph(pattern, blocks, heads, layer)


def _filled(vector: Tensor, columns: int) -> Tensor:
    return nn.functional.pad(vector.detach(), (0, -len(vector) % columns)).contiguous()


def _packed(weight: Tensor, columns: int) -> Tensor:
    """Weights (out, in) as panels (…, in, columns)."""
    wide = nn.functional.pad(weight.detach(), (0, 0, 0, -len(weight) % columns))
    return wide.view(-1, columns, weight.shape[1]).transpose(1, 2).contiguous()
