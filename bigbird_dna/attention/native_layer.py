"""Whole layers of an encoder by the compiled kernel: one sequence at a time, on one thread.

A short sequence through a small model is many small calls. torch takes longer to arrange them than to compute
them; here a layer is one call, and its weights lie as its products read them.
"""

import ctypes
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from bigbird_dna.attention.native_kernel import Kernel, Problem, launcher
from bigbird_dna.attention.pattern import Pattern

# Axes: L tokens, H heads, K head width, D hidden width, I intermediate width.


class _Weights(ctypes.Structure):
    """`Weights` in kernel.cpp."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("hidden", "inner")),
        ("epsilon", ctypes.c_double),
        *((name, ctypes.c_void_p) for name in ("joined", "joined_bias")),
        *((name, ctypes.c_void_p) for name in ("output", "output_bias", "gain", "shift")),
        *((name, ctypes.c_void_p) for name in ("up", "up_bias", "down", "down_bias")),
        *((name, ctypes.c_void_p) for name in ("last_gain", "last_shift")),
    ]


class _Graph(NamedTuple):
    """Who sees whom, as the kernel is told."""

    block_size: int
    key_blocks: npt.NDArray[np.int32]  # (H, blocks, seen)
    full: npt.NDArray[np.uint8]  # (blocks,)


class PackedLayer:
    """A layer's weights, copied and packed for the kernel.

    Parameters
    ----------
    joined
        Queries, keys and values, (3D, D) and (3D,).
    linears
        After attention, up to the intermediate width, and down again.
    norms
        After attention and at the end.
    pattern
        None: every token sees every other.
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
            **{"joined": _packed(joined[0], columns), "joined_bias": _filled(joined[1], columns)},
            **{"output": _packed(output.weight, columns), "output_bias": _filled(output.bias, columns)},
            **{"gain": _filled(norm.weight, columns), "shift": _filled(norm.bias, columns)},
            **{"up": _packed(up.weight, columns), "up_bias": _filled(up.bias, columns)},
            **{"down": _packed(down.weight, columns), "down_bias": _filled(down.bias, columns)},
            **{"last_gain": _filled(last.weight, columns), "last_shift": _filled(last.bias, columns)},
        }
        addresses = {name: kept.data_ptr() for name, kept in self._kept.items()}
        self._weights = _Weights(up.in_features, up.out_features, norm.eps, **addresses)

    def __call__(self, x: Tensor, turns: tuple[Tensor, Tensor] | None) -> None:
        """Hidden states (L, D), float32 and contiguous, are replaced by those after the layer."""
        tokens = len(x)
        graph = _graph(self.pattern, tokens, self.heads, self.index)
        length = np.array([tokens], np.int64)
        problem = Problem(
            batch=1,
            heads=self.heads,
            tokens=tokens,
            width=x.shape[1] // self.heads,
            block_size=graph.block_size,
            blocks=len(graph.full),
            seen=graph.key_blocks.shape[2],
            threads=1,
            scale=(x.shape[1] // self.heads) ** -0.5,
            first_bias=0.0 if self.pattern is None else np.log2(self.pattern.first_block_count),
            key_blocks=graph.key_blocks.ctypes.data,
            full=graph.full.ctypes.data,
            lengths=length.ctypes.data,
            launcher=launcher(),
        )
        self._kernel.layer(problem, self._weights, x, turns)


def can_pack(hidden: int, heads: int) -> bool:
    """Whether rows of hidden states are whole vectors of any processor, and heads of pairs."""
    return hidden % 16 == 0 and hidden // heads % 2 == 0


def run_layers(layers: Sequence[PackedLayer], x: Tensor, turns: tuple[Tensor, Tensor] | None) -> Tensor:
    """Hidden states (1, L, D) after all layers; `x` may be overwritten."""
    x = x.contiguous()
    for layer in layers:
        layer(x[0], turns)
    return x


def layer_agrees(kernel: Kernel) -> bool:
    """Whether a layer by the kernel is the layer of which torch computes part by part."""
    hidden, inner, heads, tokens = 48, 80, 3, 77
    draw = torch.Generator().manual_seed(0)

    def linear(inputs: int, outputs: int) -> nn.Linear:
        # nn.Linear itself would draw from the global generator.
        made: nn.Linear = nn.utils.skip_init(nn.Linear, inputs, outputs)  # type: ignore[no-untyped-call]
        made.weight.data.normal_(std=inputs**-0.5, generator=draw)
        made.bias.data.normal_(generator=draw)
        return made

    with torch.no_grad():
        joined, output, up = linear(hidden, 3 * hidden), linear(hidden, hidden), linear(hidden, inner)
        down, norm = linear(inner, hidden), nn.LayerNorm(hidden)
        x = torch.randn(tokens, hidden, generator=draw)
        q, k, v = joined(x).view(tokens, 3, heads, -1).permute(1, 2, 0, 3)
        context = torch.softmax(q @ k.mT * (hidden // heads) ** -0.5, dim=-1) @ v
        middle = norm(x + output(context.transpose(0, 1).flatten(1)))
        expected = norm(middle + down(nn.functional.gelu(up(middle), approximate="tanh")))
        weights = joined.weight, joined.bias
        layer = PackedLayer(kernel, weights, (output, up, down), (norm, norm), heads, None, 0)
        layer(x, None)
    return torch.allclose(x, expected, rtol=1e-4, atol=1e-4)


@lru_cache(maxsize=4096)
def _graph(pattern: Pattern | None, tokens: int, heads: int, layer: int) -> _Graph:
    """Of a pattern; where every token sees every other, the sequence is one block."""
    blocks = 1 if pattern is None else pattern.blocks(tokens)
    if pattern is None or pattern.is_full(blocks):
        return _Graph(tokens, np.full((heads, 1, 1), -1, np.int32), np.ones(1, np.uint8))
    full = np.zeros(blocks, np.uint8)
    full[pattern.full_rows(blocks)] = 1
    key_blocks = np.ascontiguousarray(pattern.key_blocks(blocks, heads, layer))
    return _Graph(pattern.block_size, key_blocks, full)


def _filled(vector: Tensor, columns: int) -> Tensor:
    return nn.functional.pad(vector.detach(), (0, -len(vector) % columns)).contiguous()


def _packed(weight: Tensor, columns: int) -> Tensor:
    """Weights (out, in) as panels (…, in, columns)."""
    wide = nn.functional.pad(weight.detach(), (0, 0, 0, -len(weight) % columns))
    return wide.view(-1, columns, weight.shape[1]).transpose(1, 2).contiguous()
