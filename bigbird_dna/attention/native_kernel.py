"""Python interface of kernel.cpp: attention, element-wise functions, and complete encoder layers.

A short sequence through a small model consists of many small operations, which take torch longer to dispatch
than to compute. `PackedLayers` runs each layer as one call, for one sequence on one thread, with weights
stored in the order in which its matrix products read them.
"""

import ctypes
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import pad

from bigbird_dna.attention.call import Call
from bigbird_dna.attention.pattern import Pattern

# Axes: B batch, H heads, L tokens, K head width, Q blocks of a sequence, S key blocks that a query block
# attends to, D hidden width, I intermediate width.

TYPES = {torch.float32: 0, torch.bfloat16: 1}  # the kernel's type numbers

Rotation = tuple[Tensor, Tensor]
"""Cosines and sines of every position's angles: (L, K / 2), or (B, 1, L, K / 2) for each row."""

INT = ctypes.c_int64
DOUBLE = ctypes.c_double
POINTER = ctypes.c_void_p


def address(x: Tensor) -> int:
    """Address of a tensor's memory, which the kernel reads and writes unchecked."""
    if not x.is_cpu:
        raise RuntimeError(
            f"the compiled kernel needs tensors on the CPU, not on {x.device.type}"
        )
    return x.data_ptr()


def _fields(kind: Any, names: str) -> list[tuple[str, Any]]:
    return list(product(names.split(), [kind]))


class _Array(ctypes.Structure):
    """`Array` in kernel.cpp."""

    _fields_ = [("data", POINTER), ("batch", INT), ("head", INT), ("token", INT)]


class KernelCall(ctypes.Structure):
    """`Problem` in kernel.cpp."""

    _fields_ = [
        *_fields(INT, "batch heads tokens width block_size blocks seen"),
        *_fields(INT, "causal type threads"),
        *_fields(DOUBLE, "scale first_bias"),
        *_fields(POINTER, "key_blocks full rows lengths launcher scratch"),
        *_fields(_Array, "q k v out"),
        ("lse", POINTER),
        *_fields(_Array, "upper grad_q grad_k grad_v"),
    ]


class _Weights(ctypes.Structure):
    """`Weights` in kernel.cpp."""

    _fields_ = [
        *_fields(INT, "hidden inner"),
        ("epsilon", DOUBLE),
        *_fields(POINTER, "joined joined_bias output output_bias gain shift"),
        *_fields(POINTER, "up up_bias down down_bias last_gain last_shift"),
    ]


_CALL = ctypes.POINTER(KernelCall)
_WEIGHTS = ctypes.POINTER(_Weights)
SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "panel_columns": (INT, []),
    "scratch_size": (INT, [_CALL, ctypes.c_int]),
    "layer_room": (INT, [_CALL, _WEIGHTS]),
    "forward": (None, [_CALL]),
    "backward": (None, [_CALL]),
    "gelu": (None, [_CALL, INT, POINTER, POINTER, INT]),
    "gelu_slope": (None, [_CALL, INT, POINTER, POINTER, POINTER, INT]),
    "drop": (
        None,
        [_CALL, INT, INT, POINTER, POINTER, POINTER, POINTER, INT, DOUBLE, INT],
    ),
    "turn": (None, [_CALL, INT, POINTER, POINTER, INT, DOUBLE]),
    "layer": (
        None,
        [_CALL, _WEIGHTS, INT, POINTER, POINTER, INT, POINTER, POINTER],
    ),
}
"""Result and arguments of each function in kernel.cpp."""


class Kernel:
    """A loaded kernel library.

    Tensors are (B, H, L, K), on the CPU and of one type of `TYPES`. lse (B, H, L) float32 is the binary
    logarithm of the sum in each query's softmax. Results have the memory order (B, L, H, K).
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library: Any = library
        for name, (result, arguments) in SIGNATURES.items():
            function = getattr(library, name)
            function.restype = result
            function.argtypes = arguments
        self.panel_columns = int(self.library.panel_columns())

    def forward(self, call: Call) -> tuple[Tensor, Tensor]:
        """Return (out, lse)."""
        out = _empty_result(call)
        # Also zero at padding.
        lse = call.q.new_zeros(call.q.shape[:3], dtype=torch.float32)
        self._solve(call, lse, out=out)
        return out, lse

    def backward(
        self, call: Call, upper: Tensor, out: Tensor, lse: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients with respect to q, k and v; `upper` is the gradient with respect to `out`."""
        q, k, v = (_empty_result(call) for _ in range(3))
        self._solve(call, lse, out=out, upper=upper, grad_q=q, grad_k=k, grad_v=v)
        return q, k, v

    def _solve(self, call: Call, lse: Tensor, **tensors: Tensor) -> None:
        pattern = call.pattern
        lengths = call.lengths
        _, heads, tokens, width = call.q.shape
        tensors |= {"q": call.q, "k": call.k, "v": call.v}

        for name, x in tensors.items():
            if x.stride(3) != 1 and width > 1:
                tensors[name] = x.contiguous()

        arrays = {
            name: _Array(address(x), *x.stride()[:3]) for name, x in tensors.items()
        }
        backward = "upper" in tensors

        # Rows with as many blocks are computed together, and all rows with full attention, each as one block.
        by_blocks: dict[int, list[int]] = {}
        for row, length in enumerate(lengths):
            blocks = pattern.graph_blocks(length, tokens)
            if not (pattern.huggingface or pattern.causal) and pattern.is_full(blocks):
                blocks = 0

            by_blocks.setdefault(blocks, []).append(row)

        for blocks, rows in by_blocks.items():
            numbers = np.array(rows, np.int64)
            ends = np.array([lengths[row] for row in rows], np.int64)
            if blocks:
                graph = make_graph(pattern, blocks, heads, call.layer)
            else:
                graph = make_graph(None, int(ends.max()), heads, 0)

            problem = graph_call(
                graph,
                (len(rows), heads, tokens, width),
                ends,
                rows=numbers.ctypes.data,
                causal=pattern.causal,
                type=TYPES[call.q.dtype],
                threads=torch.get_num_threads(),
                lse=address(lse),
                **arrays,
            )
            size = self.library.scratch_size(problem, backward)
            scratch = torch.empty(size, dtype=torch.float32, device="cpu")
            problem.scratch = address(scratch)
            solve = self.library.backward if backward else self.library.forward
            solve(problem)

    # Tensors below are on the CPU, float32 or bfloat16, and contiguous unless specified otherwise.

    def gelu(self, x: Tensor, out: Tensor) -> Tensor:
        """The tanh form of GELU, written into `out`, which may be `x`."""
        self.library.gelu(
            parallel(), TYPES[x.dtype], address(x), address(out), x.numel()
        )
        return out

    def gelu_slope(self, x: Tensor, upper: Tensor) -> Tensor:
        """Gradient with respect to `x`; `upper` is the gradient with respect to GELU(`x`)."""
        out = torch.empty_like(x)
        data = address(x), address(upper), address(out)
        self.library.gelu_slope(parallel(), TYPES[x.dtype], *data, x.numel())
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
        self.library.drop(
            parallel(),
            TYPES[x.dtype],
            TYPES[out.dtype],
            address(x),
            None if residual is None else address(residual),
            address(out),
            address(lanes),
            least,
            scale,
            x.numel(),
        )
        return out

    def turn(
        self, x: Tensor, out: Tensor, turns: Rotation | None, back: bool = False
    ) -> Tensor:
        """Rotate rows of `x` (B, H, L, K) by their tokens' angles into `out`, or `back` by the opposite ones.

        Without `turns`, rows are copied. Both tensors may be the same and have any strides except in the last
        axis; cosines and sines are contiguous.
        """
        batch, heads, tokens, width = x.shape
        problem = parallel(
            batch=batch,
            heads=heads,
            tokens=tokens,
            width=width,
            type=TYPES[x.dtype],
            q=_Array(address(x), *x.stride()[:3]),
            out=_Array(address(out), *out.stride()[:3]),
        )
        sign = -1.0 if back else 1.0
        self.library.turn(problem, TYPES[out.dtype], *_angles(turns), sign)

        return out


def parallel(**fields: Any) -> KernelCall:
    """A call that runs on torch's number of threads."""
    threads = torch.get_num_threads()
    return KernelCall(threads=threads, launcher=launcher(), **fields)


def _angles(turns: Rotation | None) -> tuple[int | None, int | None, int]:
    """Addresses of cosines and sines, and elements between those of one sequence and the next; 0 for common
    ones."""
    if turns is None:
        return None, None, 0
    cos, sin = turns
    return address(cos), address(sin), cos.stride(0) if cos.dim() > 2 else 0


def _empty_result(call: Call) -> Tensor:
    """(B, H, L, K) in the memory order (B, L, H, K), in which heads are joined without a copy.

    It is zero-filled if there is padding, because the kernel writes true positions only.
    """
    batch, heads, tokens, width = call.q.shape
    out = call.q.new_empty(batch, tokens, heads, width)
    if any(length < tokens for length in call.lengths):
        out.zero_()
    return out.transpose(1, 2)


@lru_cache(maxsize=1)
def launcher() -> int | None:
    """Address of the OpenMP function that starts torch's threads; None makes the kernel start its own.
    torch's threads keep spinning after work and would compete for the cores."""
    path = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    try:
        start = ctypes.CDLL(str(path)).GOMP_parallel
    except (OSError, AttributeError):
        return None
    return ctypes.cast(start, POINTER).value


# ---- attention graphs in the kernel's format -------------------------------------------------------------


class _Graph(NamedTuple):
    """The attention graph in the kernel's format."""

    block_size: int
    key_blocks: npt.NDArray[np.int32]  # (H, blocks, seen)
    full: npt.NDArray[np.uint8]  # (blocks,)
    first_bias: float = 0.0


@lru_cache(maxsize=4096)
def make_graph(pattern: Pattern | None, count: int, heads: int, layer: int) -> _Graph:
    """The graph of a pattern for `count` blocks; without one, full attention of `count` tokens as one block."""
    if pattern is None:
        no_keys = np.full((heads, 1, 1), -1, np.int32)
        return _Graph(count, no_keys, np.ones(1, np.uint8))
    full = np.zeros(count, np.uint8)
    full[pattern.full_rows(count)] = 1
    key_blocks = np.ascontiguousarray(pattern.key_blocks(count, heads, layer))
    first_bias = float(np.log2(pattern.first_block_count))
    return _Graph(pattern.block_size, key_blocks, full, first_bias)


def graph_call(
    graph: _Graph,
    shape: tuple[int, ...],
    lengths: npt.NDArray[np.int64],
    **fields: Any,
) -> KernelCall:
    """A call with shape (batch, heads, tokens, width); it has the addresses of the graph and of `lengths`,
    which must exist as long as the call."""
    batch, heads, tokens, width = shape
    return KernelCall(
        batch=batch,
        heads=heads,
        tokens=tokens,
        width=width,
        block_size=graph.block_size,
        blocks=len(graph.full),
        seen=graph.key_blocks.shape[2],
        scale=width**-0.5,
        first_bias=graph.first_bias,
        key_blocks=graph.key_blocks.ctypes.data,
        full=graph.full.ctypes.data,
        lengths=lengths.ctypes.data,
        launcher=launcher(),
        **fields,
    )


# ---- complete encoder layers -----------------------------------------------------------------------------


def can_pack(hidden: int, heads: int) -> bool:
    """Whether hidden states fill whole SIMD vectors on any processor, and head widths are even."""
    return hidden % 16 == 0 and hidden // heads % 2 == 0


class PackedLayer:
    """An encoder layer's weights, copied and packed for the kernel.

    Without `pattern`, every token attends to every other.
    """

    def __init__(self, kernel: Kernel, layer: Any, pattern: Pattern | None) -> None:
        self.library = kernel.library
        self.heads = layer.heads
        self.pattern = pattern
        self.index = layer.index
        output = layer.attention_output
        up = layer.intermediate
        down = layer.output
        norm = layer.attention_norm
        last = layer.output_norm
        tensors = {
            "joined": layer.joined[0],  # of queries, keys and values, (3D, D)
            "joined_bias": layer.joined[1],
            "output": output.weight,
            "output_bias": output.bias,
            "gain": norm.weight,
            "shift": norm.bias,
            "up": up.weight,
            "up_bias": up.bias,
            "down": down.weight,
            "down_bias": down.bias,
            "last_gain": last.weight,
            "last_shift": last.bias,
        }
        columns = kernel.panel_columns
        self.weights = _Weights(up.in_features, up.out_features, norm.eps)
        self.tensors = []
        for name, x in tensors.items():
            missing = -len(x) % columns
            x = pad(x.detach(), (*(0, 0) * (x.dim() - 1), 0, missing))
            if x.dim() == 2:  # (out, in) as panels (…, in, columns)
                x = x.view(-1, columns, x.shape[1]).transpose(1, 2)

            x = x.contiguous()
            self.tensors.append(x)
            setattr(self.weights, name, address(x))


class PackedLayers(NamedTuple):
    """All layers of an encoder for sequences of at most `longest` tokens, on one thread.

    The hidden states of a sequence depend neither on the others nor on their number, bit for bit.
    """

    layers: list[PackedLayer]
    longest: int

    def take(self, x: Tensor, lengths: Tensor | None) -> bool:
        """Whether the layers can run these embeddings (B, L, D): no padding, one thread, no gradients."""
        tokens = x.shape[1]
        return (
            tokens <= self.longest
            and (lengths is None or bool((lengths == tokens).all()))
            and x.dtype == torch.float32
            and torch.get_num_threads() == 1
            and not torch.is_grad_enabled()
            and not torch.is_autocast_enabled("cpu")
        )

    def run(self, x: Tensor, turns: Rotation | None) -> Tensor:
        """Hidden states (B, L, D) after all layers; `x` may be overwritten."""
        x = x.contiguous()
        batch, tokens, hidden = x.shape
        length = np.array([tokens], np.int64)
        angles = _angles(turns)

        for layer in self.layers:
            heads = layer.heads
            pattern = layer.pattern
            library = layer.library
            if pattern is None or pattern.is_full(pattern.blocks(tokens)):
                graph = make_graph(None, tokens, heads, 0)
            else:
                blocks = pattern.blocks(tokens)
                graph = make_graph(pattern, blocks, heads, layer.index)

            shape = (1, heads, tokens, hidden // heads)
            problem = graph_call(graph, shape, length, threads=1)
            sizes = [
                library.scratch_size(problem, 0),
                library.layer_room(problem, layer.weights),
                tokens * heads,
            ]
            memory = torch.empty(sum(sizes), dtype=torch.float32, device="cpu")
            scratch, room, lse = torch.split(memory, sizes)
            problem.scratch = address(scratch)
            problem.lse = address(lse)
            data = address(x), address(room)
            library.layer(problem, layer.weights, batch, *angles, *data)

        return x
