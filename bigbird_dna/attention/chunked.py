"""Sparse attention on a CPU, a few heads at a time, with torch's fused kernels, forward and backward.

The gathered keys of a chunk fit in cache, and memory does not grow with heads or layers. Only q, k, v, the
output and the log-sum-exp of every row are kept; the backward pass gathers the keys again.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from bigbird_dna.attention.blocked import (
    GatheredBlocks,
    class_bias,
    class_mask,
    composed_attention,
    gathered_attention,
    make_gathered_blocks,
    make_layout,
    sum_dtype,
    with_relative_keys,
)
from bigbird_dna.attention.call import Call, differentiate_by, empty_output
from bigbird_dna.attention.pattern import Pattern

# Axes: B batch, H heads, N tokens in whole blocks, K head width, Q blocks per sequence, W block size, M query
# blocks of a class, S key blocks per query block of the class.

# Elements of keys gathered at once per thread: 1 MiB in float32. Larger temporaries exceed the core's cache
# and are mapped again at every call (4,096 tokens: 1.4 times the time at 8 MiB).
CHUNK_ELEMENTS = 1 << 18


def blocked_attention(call: Call) -> Tensor:
    """Compute attention block by block, (B, H, L, K); time and memory are linear in L."""
    q, k, v, pattern, lengths, layer, dropout, relative = call
    blocks = call.blocks
    layout = make_layout(pattern, blocks)
    bias = layout.padding_bias(lengths, q)
    laid = call._replace(q=layout.spread(q), k=layout.spread(k), v=layout.spread(v))
    if (
        q.device.type == "cpu"
        and not dropout
        and relative is None
        and not call.transformed
    ):
        out = _forward(*laid[:3], bias, pattern.as_numbers(), blocks, layer)[0]
    else:
        gathered = make_gathered_blocks(pattern, blocks, q.shape[1], layer, q.device)
        if relative is None:
            out = gathered_attention(laid, bias, gathered)
        else:
            out = with_relative_keys(laid, bias, gathered, layout, relative)
    if bias is not None:
        out = out.masked_fill((bias < 0)[:, None, :, None], 0)
    return layout.collect(out, q.shape[2])


# Custom operators rather than an autograd function, so torch.compile and torch.export can trace over them.
# Patterns are passed as integers because operators accept no other objects.


@torch.library.custom_op("bigbird_dna::chunked_forward", mutates_args=())
def _forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    pattern: Sequence[int],
    blocks: int,
    layer: int,
) -> tuple[Tensor, Tensor]:
    """The output and the log-sum-exp of every row (B, H, N)."""
    work = _Work(Pattern.from_numbers(pattern), blocks, layer, q, bias)
    out, lse = empty_output(q), q.new_empty(q.shape[:3], dtype=sum_dtype(q))
    for chunk in work.chunks():
        query, key, value = (_blocks(x[chunk.part], work.gathered) for x in (q, k, v))
        seen = torch.empty_like(query)
        seen_lse = lse.new_empty(query.shape[:2])
        for batch in work.batches(chunk):
            result, result_lse = (
                torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
                    batch.take_queries(query),
                    batch.take_keys(key),
                    batch.take_keys(value),
                    attn_mask=batch.mask,
                )
            )
            seen.index_copy_(0, batch.queries, result.reshape(-1, *seen.shape[1:]))
            seen_lse.index_copy_(
                0, batch.queries, result_lse.reshape(-1, seen.shape[1])
            )
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
    grads = (empty_output(q), empty_output(k), empty_output(v))
    for chunk in work.chunks():
        part = chunk.part
        query, key, value, seen, upper = (
            _blocks(x[part], work.gathered) for x in (q, k, v, out, grad)
        )
        seen_lse = lse[part].reshape(query.shape[:2])
        # Many queries attend to each key block: their gradients are summed in at least float32.
        sums = [
            torch.zeros(query.shape, dtype=lse.dtype, device=query.device)
            for _ in range(3)
        ]
        for batch in work.batches(chunk):
            to_query, *to_keys = (
                torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
                    batch.take_queries(upper),
                    batch.take_queries(query),
                    batch.take_keys(key),
                    batch.take_keys(value),
                    batch.take_queries(seen),
                    seen_lse.index_select(0, batch.queries).view(batch.problems, 1, -1),
                    0.0,
                    False,
                    attn_mask=batch.mask,
                )
            )
            ids = (batch.queries, batch.keys, batch.keys)
            for total, where, addend in zip(
                sums, ids, (to_query, *to_keys), strict=True
            ):
                addend = addend.reshape(-1, *total.shape[1:]).to(total.dtype)
                if where is None:
                    total += addend
                else:
                    total.index_add_(0, where, addend)
        for target, total in zip(grads, sums, strict=True):
            target[part] = total.view(chunk.shape)
    return grads


def _composed(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    pattern: Sequence[int],
    blocks: int,
    layer: int,
) -> Tensor:
    of = Pattern.from_numbers(pattern)
    gathered = make_gathered_blocks(of, blocks, q.shape[1], layer, q.device)
    with composed_attention():
        return gathered_attention(Call(q, k, v, of, (), layer), bias, gathered)


differentiate_by(_forward, _backward, lse_dtype=sum_dtype, composed=_composed)


class _HeadChunk(NamedTuple):
    """Several sequences with all heads, or one sequence with several heads."""

    part: tuple[slice, slice]  # slices of the axes B and H
    shape: tuple[int, int, int, int]  # (sequences, heads, N, K)


class _BlockBatch(NamedTuple):
    """Attention problems of equal size; blocks are numbered across all sequences and heads of the chunk."""

    problems: int
    queries: Tensor  # (problems · query blocks of each,)
    keys: Tensor | None  # (problems · key blocks of each,); None: all blocks in order
    mask: Tensor | None  # (problems, 1, queries, keys) additive

    def take_queries(self, blocks: Tensor) -> Tensor:
        """The blocks (·, W, K) of the queries as (problems, 1, tokens, K)."""
        return blocks.index_select(0, self.queries).view(
            self.problems, 1, -1, blocks.shape[2]
        )

    def take_keys(self, blocks: Tensor) -> Tensor:
        """The blocks (·, W, K) of the keys as (problems, 1, tokens, K)."""
        if self.keys is not None:
            blocks = blocks.index_select(0, self.keys)
        return blocks.view(self.problems, 1, -1, blocks.shape[2])


def _blocks(x: Tensor, gathered: GatheredBlocks) -> Tensor:
    """(sequences, heads, N, K) → (sequences · heads · Q, W, K), contiguous."""
    return x.reshape(-1, x.shape[2] // gathered.blocks, x.shape[3])


def _budget() -> int:
    """Number of elements gathered at once."""
    return CHUNK_ELEMENTS * torch.get_num_threads()


class _Work:
    """The attention of one layer, divided into batches that fit in cache."""

    def __init__(
        self, pattern: Pattern, blocks: int, layer: int, q: Tensor, bias: Tensor | None
    ) -> None:
        self.shape = q.shape
        self.size = pattern.block_size
        self.gathered = make_gathered_blocks(
            pattern, blocks, q.shape[1], layer, q.device
        )
        self.bias = bias
        others = class_bias(bias, pattern, q)  # a single row if no sequence is padded
        self.others_bias = None if others is None else others.expand(q.shape[0], -1)
        self.pattern, self.like = pattern, q

    def chunks(self) -> Iterator[_HeadChunk]:
        """Split sequences × heads into chunks that gather about `_budget()` elements at once."""
        batch, heads, tokens, width = self.shape
        most = max(
            (c.keys.shape[1] * c.keys.shape[2] for c in self.gathered.classes),
            default=self.gathered.blocks,
        )
        fit = max(1, _budget() // (most * self.size * width))  # heads
        rows, columns = (min(batch, fit // heads), heads) if fit >= heads else (1, fit)
        for row in range(0, batch, rows):
            for head in range(0, heads, columns):
                part = (slice(row, row + rows), slice(head, head + columns))
                shape = (
                    min(rows, batch - row),
                    min(columns, heads - head),
                    tokens,
                    width,
                )
                yield _HeadChunk(part, shape)

    def batches(self, chunk: _HeadChunk) -> Iterator[_BlockBatch]:
        """Yield the full rows of a chunk, then the others by class, as many blocks at once as fit."""
        rows, heads, tokens, width = chunk.shape
        gathered, size = self.gathered, self.size
        starts = (
            torch.arange(rows * heads, device="cpu").view(rows, heads, 1, 1)
            * gathered.blocks
        )
        if len(gathered.full):
            mask = None
            if self.bias is not None:
                length = len(gathered.full) * size
                mask = self.bias[chunk.part[0]].view(rows, 1, 1, tokens)
                mask = mask.repeat_interleave(heads, dim=0).expand(-1, -1, length, -1)
            yield _BlockBatch(
                rows * heads, (starts[..., 0] + gathered.full).flatten(), None, mask
            )
        bias = None if self.others_bias is None else self.others_bias[chunk.part[0]]
        for queries, keys in gathered.classes:
            seen = keys.shape[2]
            step = max(1, _budget() // (rows * heads * seen * size * width))
            for some in range(0, len(queries), step):
                some_keys = keys[chunk.part[1], some : some + step]  # (heads, M, S)
                problems = rows * heads * some_keys.shape[1]
                mask = class_mask(some_keys, bias, self.pattern, self.like)
                if mask is not None:
                    mask = mask.expand(rows, problems // rows, size, -1).reshape(
                        problems, 1, size, -1
                    )
                yield _BlockBatch(
                    problems,
                    (starts[..., 0] + queries[some : some + step]).flatten(),
                    (starts + some_keys).flatten(),
                    mask,
                )
