"""Sparse attention on a CPU, a few heads at a time, with torch's fused kernels in both directions.

The gathered keys of a chunk stay in cache, and memory grows neither with heads nor with layers: only q, k,
v, the output and the log-sum-exp of every row are kept, and the backward pass gathers again.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bigbird_dna.attention.bias import class_bias, triangle
from bigbird_dna.attention.pattern import Pattern
from bigbird_dna.attention.plan import Plan, make_plan

# Axes: B batch, H heads, N tokens in whole blocks, K head width, Q blocks of a sequence, W block size,
# M query blocks of a class, S key blocks that each of these sees.

# Elements of keys gathered at once, for each thread: 1 MiB in float32. Larger temporaries leave the
# core's cache and are mapped anew at every call (4,096 tokens: 1.4 times the time at 8 MiB).
CHUNK_ELEMENTS = 1 << 18


def chunked_attention(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, pattern: Pattern, blocks: int, layer: int
) -> Tensor:
    """Attention of whole blocks on a CPU, differentiable once; (B, H, N, K) → (B, H, N, K).

    `bias` (B, N) is added to the scores of each key; none: nothing is padded. `blocks` are the pattern's,
    N is that of `make_layout`.
    """
    out: Tensor = _forward(q, k, v, bias, pattern.as_numbers(), blocks, layer)[0]
    return out


def sum_dtype(x: Tensor) -> torch.dtype:
    """The type in which gradients of a key that many queries see are added up."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


# Operators rather than an autograd function, so that torch.compile and torch.export can pass over them. They
# take a pattern as integers, because operators take no other objects.


@torch.library.custom_op("bigbird_dna::chunked_forward", mutates_args=())
def _forward(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, pattern: Sequence[int], blocks: int, layer: int
) -> tuple[Tensor, Tensor]:
    """The output and the log-sum-exp of every row (B, H, N)."""
    work = _Work(Pattern.from_numbers(pattern), blocks, layer, q, bias)
    out, lse = _empty_outputs(q)
    for chunk in work.chunks():
        query, key, value = (_blocks(x[chunk.part], work.plan) for x in (q, k, v))
        seen = torch.empty_like(query)
        seen_lse = lse.new_empty(query.shape[:2])
        for piece in work.pieces(chunk):
            result, result_lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
                piece.take_queries(query), piece.take_keys(key), piece.take_keys(value), attn_mask=piece.mask
            )
            seen.index_copy_(0, piece.queries, result.reshape(-1, *seen.shape[1:]))
            seen_lse.index_copy_(0, piece.queries, result_lse.reshape(-1, seen.shape[1]))
        out[chunk.part] = seen.view(chunk.shape)
        lse[chunk.part] = seen_lse.view(chunk.shape[:3])
    return out, lse


@torch.library.custom_op("bigbird_dna::chunked_backward", mutates_args=())
def _backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    bias: Tensor | None,
    pattern: Sequence[int],
    blocks: int,
    layer: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of q, k and v."""
    work = _Work(Pattern.from_numbers(pattern), blocks, layer, q, bias)
    grads = (_empty_outputs(q)[0], _empty_outputs(k)[0], _empty_outputs(v)[0])
    for chunk in work.chunks():
        part = chunk.part
        query, key, value, seen, upper = (_blocks(x[part], work.plan) for x in (q, k, v, out, grad))
        seen_lse = lse[part].reshape(query.shape[:2])
        # Every key block is seen by many queries: their gradients add up in at least float32.
        sums = [torch.zeros(query.shape, dtype=lse.dtype) for _ in range(3)]
        for piece in work.pieces(chunk):
            to_query, *to_keys = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
                piece.take_queries(upper),
                piece.take_queries(query),
                piece.take_keys(key),
                piece.take_keys(value),
                piece.take_queries(seen),
                seen_lse.index_select(0, piece.queries).view(piece.problems, 1, -1),
                0.0,
                False,
                attn_mask=piece.mask,
            )
            ids = (piece.queries, piece.keys, piece.keys)
            for total, where, addend in zip(sums, ids, (to_query, *to_keys), strict=True):
                addend = addend.reshape(-1, *total.shape[1:]).to(total.dtype)
                if where is None:
                    total += addend
                else:
                    total.index_add_(0, where, addend)
        for target, total in zip(grads, sums, strict=True):
            target[part] = total.view(chunk.shape)
    return grads


def _empty_outputs(q: Tensor) -> tuple[Tensor, Tensor]:
    """Room for an output (B, H, N, K) and for the log-sum-exp (B, H, N).

    The heads of a token lie side by side in memory, as the next layer wants them.
    """
    batch, heads, tokens, width = q.shape
    out = q.new_empty(batch, tokens, heads, width).transpose(1, 2)
    return out, q.new_empty(batch, heads, tokens, dtype=sum_dtype(q))


@_forward.register_fake
def _(q: Tensor, *_rest: Any) -> tuple[Tensor, Tensor]:
    return _empty_outputs(q)


@_backward.register_fake
def _(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, *_rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    return _empty_outputs(q)[0], _empty_outputs(k)[0], _empty_outputs(v)[0]


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, bias, *ctx.rest = inputs
    ctx.save_for_backward(q, k, v, *output, bias)


def _differentiate(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    q, k, v, out, lse, bias = ctx.saved_tensors
    return (*_backward(grad, q, k, v, out, lse, bias, *ctx.rest), None, None, None, None)


_forward.register_autograd(_differentiate, setup_context=_keep)


class _Chunk(NamedTuple):
    """Some sequences with all heads, or one sequence with some heads."""

    part: tuple[slice, slice]  # of the axes B and H
    shape: tuple[int, int, int, int]  # (sequences, heads, N, K)


class _Piece(NamedTuple):
    """Attention problems of equal size: `problems` sets of query blocks, each with its own key blocks.

    Block numbers count through all sequences and heads of the chunk.
    """

    problems: int
    queries: Tensor  # (problems · query blocks of each,)
    keys: Tensor | None  # (problems · key blocks of each,); none: all blocks in order
    mask: Tensor | None  # (problems, 1, queries, keys) additive

    def take_queries(self, blocks: Tensor) -> Tensor:
        """The blocks (·, W, K) of the queries as (problems, 1, tokens, K)."""
        return blocks.index_select(0, self.queries).view(self.problems, 1, -1, blocks.shape[2])

    def take_keys(self, blocks: Tensor) -> Tensor:
        """The blocks (·, W, K) of the keys as (problems, 1, tokens, K)."""
        if self.keys is not None:
            blocks = blocks.index_select(0, self.keys)
        return blocks.view(self.problems, 1, -1, blocks.shape[2])


def _blocks(x: Tensor, plan: Plan) -> Tensor:
    """(sequences, heads, N, K) → (sequences · heads · Q, W, K), contiguous."""
    return x.reshape(-1, x.shape[2] // plan.blocks, x.shape[3])


def _budget() -> int:
    """Elements gathered at once."""
    return CHUNK_ELEMENTS * torch.get_num_threads()


class _Work:
    """The attention of one layer, cut into pieces that fit in cache."""

    def __init__(self, pattern: Pattern, blocks: int, layer: int, q: Tensor, bias: Tensor | None) -> None:
        self.shape = q.shape
        self.size = pattern.block_size
        self.plan = make_plan(pattern, blocks, q.shape[1], layer, q.device)
        self.bias = bias
        others = class_bias(bias, pattern, q)  # one row for all sequences where none is padded
        self.others_bias = None if others is None else others.expand(q.shape[0], -1)
        self.triangle = triangle(pattern.block_size, q) if pattern.causal else None

    def chunks(self) -> Iterator[_Chunk]:
        """Cut sequences × heads so that what is gathered at once has about `_budget()` elements."""
        batch, heads, tokens, width = self.shape
        gathered = max(
            (c.keys.shape[1] * c.keys.shape[2] for c in self.plan.classes), default=self.plan.blocks
        )
        fit = max(1, _budget() // (gathered * self.size * width))  # heads
        rows, columns = (min(batch, fit // heads), heads) if fit >= heads else (1, fit)
        for row in range(0, batch, rows):
            for head in range(0, heads, columns):
                part = (slice(row, row + rows), slice(head, head + columns))
                shape = (min(rows, batch - row), min(columns, heads - head), tokens, width)
                yield _Chunk(part, shape)

    def pieces(self, chunk: _Chunk) -> Iterator[_Piece]:
        """The full rows of a chunk, then the others class by class, as many blocks at once as fit."""
        rows, heads, tokens, width = chunk.shape
        plan, size = self.plan, self.size
        starts = torch.arange(rows * heads).view(rows, heads, 1, 1) * plan.blocks
        if len(plan.full):
            mask = None
            if self.bias is not None:
                length = len(plan.full) * size
                mask = self.bias[chunk.part[0]].view(rows, 1, 1, tokens)
                mask = mask.repeat_interleave(heads, dim=0).expand(-1, -1, length, -1)
            yield _Piece(rows * heads, (starts[..., 0] + plan.full).flatten(), None, mask)
        bias = None
        if self.others_bias is not None:
            bias = self.others_bias[chunk.part[0]].view(-1, plan.blocks, size)
        for queries, keys in plan.classes:
            seen = keys.shape[2]
            step = max(1, _budget() // (rows * heads * seen * size * width))
            for some in range(0, len(queries), step):
                some_keys = keys[chunk.part[1], some : some + step]  # (heads, M, S)
                problems = rows * heads * some_keys.shape[1]
                mask = None
                if bias is not None:
                    mask = bias[:, some_keys].expand(rows, -1, -1, -1, -1)
                    mask = mask.reshape(problems, 1, 1, seen * size).expand(-1, -1, size, -1)
                if self.triangle is not None:
                    if mask is None:
                        mask = self.triangle.new_zeros(1, 1, size, seen * size)
                    mask = mask.contiguous()
                    mask[..., -size:] += self.triangle  # the own block is the last one
                    mask = mask.expand(problems, -1, -1, -1)
                yield _Piece(
                    problems,
                    (starts[..., 0] + queries[some : some + step]).flatten(),
                    (starts + some_keys).flatten(),
                    mask,
                )
