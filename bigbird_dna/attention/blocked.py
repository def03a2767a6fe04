"""Attention by whole blocks: block layout, gathered key blocks on any device, and masks for short sequences.

Extra global tokens are laid out as separate blocks in front of the sequence, with padding in the last of
them, so all later code treats them as ordinary blocks. Query blocks that do not attend to everything are
sorted into classes by their number of key blocks. Each class is thus a rectangle and needs no mask. Almost
all blocks are in one class. Blocks near the sequence ends, whose window is clipped or meets a global block,
form one or two small classes.

Each query block needs all its keys in one softmax. Its key blocks (global, window, random) are therefore
gathered contiguously and passed to torch's fused attention, which never stores probabilities.

On a CPU this is done a few heads at a time, forward and backward. The gathered keys fit in cache, and memory
does not grow with heads or layers: only q, k, v, the output and the log-sum-exp of every row are stored, and
the backward pass gathers the keys again.

Short sequences use torch's fused full attention with the pattern's boolean mask. While a query attends to
about half of all blocks or more, computing every score costs no more than gathering blocks. On a CPU the
costs are equal at twice as many blocks as a query attends to (measured with blocks of 16, 32 and 64 tokens,
forward and backward). The limit on tokens keeps the masks small.
"""

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import pad, scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

from bigbird_dna.attention.call import (
    Call,
    RelativeKeys,
    copied,
    differentiate_by,
    empty_output,
    label_ids,
    numbers_on,
    real_positions,
    relative_scores,
)
from bigbird_dna.attention.fast_paths import is_transformed
from bigbird_dna.attention.pattern import Pattern

# Axes: B batch, H heads, L input tokens, N tokens in whole blocks (under a mask: of the longest sequence), K
# head width, Q blocks per sequence, W block size, F full query blocks, M query blocks of a class, S key
# blocks per query block of the class.


class QueryClass(NamedTuple):
    """Query blocks with the same number of key blocks."""

    queries: Tensor  # (M,) int64, block numbers
    keys: Tensor  # (H, M, S) int64, block numbers; in a causal pattern the query's own block is last


class GatheredBlocks(NamedTuple):
    """Index tensors of one pattern, head count, layer and device; blocks of extra global tokens first."""

    blocks: int  # including those of extra global tokens
    full: Tensor  # (F,) int64: query blocks that attend to every block
    classes: tuple[QueryClass, ...]
    restore: Tensor  # (Q,) int64: reorders [full, class, class …] to the order of the sequence


class BlockLayout(NamedTuple):
    """Mapping between sequence positions and a layout in whole blocks."""

    extra: int  # extra global tokens
    gap: int  # padding tokens after them
    padded: int  # N, tokens of the layout

    def spread(self, x: Tensor) -> Tensor:
        """(B, H, L, K) → (B, H, N, K), zero at padding; no copy if nothing changes."""
        if self.gap:
            x = torch.cat(
                [
                    pad(x[:, :, : self.extra], (0, 0, 0, self.gap)),
                    x[:, :, self.extra :],
                ],
                2,
            )
        missing = self.padded - x.shape[2]
        return pad(x, (0, 0, 0, missing)) if missing > 0 else x[:, :, : self.padded]

    def collect(self, x: Tensor, tokens: int) -> Tensor:
        """Inverse of `spread`: (B, H, N, K) → (B, H, L, K), zero at positions that `spread` dropped."""
        if self.gap:
            x = torch.cat([x[:, :, : self.extra], x[:, :, self.extra + self.gap :]], 2)
        missing = tokens - x.shape[2]
        return pad(x, (0, 0, 0, missing)) if missing > 0 else x[:, :, :tokens]

    def labels(self, relative: RelativeKeys, queries: Tensor, keys: Tensor) -> Tensor:
        """`label_ids` of layout positions; those of padding are arbitrary."""
        positions = torch.arange(self.padded, device=relative.table.device)
        positions[self.extra + self.gap :] -= self.gap
        owners = relative.owners
        if owners is not None:
            short = max(self.padded - self.gap - owners.shape[1], 0)
            owners = pad(owners, (0, short), value=-1)
        return label_ids(
            positions[queries], positions[keys], relative.radius, self.extra, owners
        )

    def padding_bias(self, lengths: tuple[int, ...], like: Tensor) -> Tensor | None:
        """(B, N) bias: 0 at true positions, very negative at padding; None if nothing is padded. It is finite
        because a fused kernel that meets padded keys first would compute exp(-inf + inf) = NaN."""
        if not self.gap and all(length == self.padded for length in lengths):
            return None
        positions = torch.arange(self.padded, device=like.device)
        ends = numbers_on(like.device, lengths)[:, None] + self.gap
        padded = (positions >= ends) | (
            (positions >= self.extra) & (positions < self.extra + self.gap)
        )
        bias = like.new_zeros(len(lengths), self.padded)
        return bias.masked_fill(padded, torch.finfo(like.dtype).min / 2)


def make_layout(pattern: Pattern, blocks: int) -> BlockLayout:
    """The layout of sequences of `blocks` blocks."""
    extra = pattern.num_global_tokens
    gap = -extra % pattern.block_size
    return BlockLayout(extra, gap, extra + gap + blocks * pattern.block_size)


@lru_cache(maxsize=512)
@torch.inference_mode(
    False
)  # tensors cached during evaluation must also work in training
def make_gathered_blocks(
    pattern: Pattern, blocks: int, heads: int, layer: int, device: torch.device
) -> GatheredBlocks:
    """Return the gathered blocks of sequences of `blocks` blocks; cached because every step reuses them."""
    front = -(
        -pattern.num_global_tokens // pattern.block_size
    )  # blocks of extra global tokens
    keys = pattern.key_blocks(blocks, heads, layer).astype(np.int64)
    seen = (keys[0] >= 0).sum(axis=1)  # the same for every head
    if pattern.causal:
        keys = _own_block_last(keys, seen)
    keys = np.concatenate(
        [np.broadcast_to(np.arange(front), (heads, blocks, front)), keys + front],
        axis=2,
    )
    full = np.r_[np.arange(front), pattern.full_rows(blocks) + front].astype(np.int64)
    classes = []
    order = [full]
    for width in np.unique(seen[seen > 0]):
        queries = np.flatnonzero(seen == width)
        order.append(queries + front)
        classes.append(
            QueryClass(
                copied(torch.from_numpy(queries + front), device),
                copied(torch.from_numpy(keys[:, queries, : front + width]), device),
            )
        )
    restore = np.argsort(np.concatenate(order))
    return GatheredBlocks(
        front + blocks,
        copied(torch.from_numpy(full), device),
        tuple(classes),
        copied(torch.from_numpy(restore), device),
    )


def _own_block_last(
    keys: npt.NDArray[np.int64], seen: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Key blocks (H, Q, S) with each row's own block swapped with its last one."""
    keys = keys.copy()
    rows = np.arange(keys.shape[1])[:, None]
    own = (keys == rows).argmax(axis=2)[..., None]
    last = np.broadcast_to(seen[:, None] - 1, own.shape)
    np.put_along_axis(keys, own, np.take_along_axis(keys, last, axis=2), axis=2)
    np.put_along_axis(keys, last, np.broadcast_to(rows, own.shape), axis=2)
    return keys


def class_bias(bias: Tensor | None, pattern: Pattern, like: Tensor) -> Tensor | None:
    """Bias (B or 1, N) of each key for query blocks that are not full; `bias` (B, N) masks padding."""
    if pattern.first_block_count == 1:
        return bias
    if bias is None:
        bias = like.new_zeros(1, like.shape[2])
    counted = bias.clone()
    counted[:, : pattern.block_size] += math.log(pattern.first_block_count)
    return counted


@lru_cache(maxsize=16)
@torch.inference_mode(
    False
)  # tensors cached during evaluation must also work in training
def triangle(size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """(W, W), 0 up to the query's own token, very negative after it; finite, as the padding bias."""
    lowest = torch.finfo(dtype).min / 4  # its sum with a padded key's bias stays finite
    return torch.full((size, size), lowest, dtype=dtype, device=device).triu(1)


def class_mask(
    keys: Tensor, bias: Tensor | None, pattern: Pattern, like: Tensor
) -> Tensor | None:
    """The additive mask of query blocks that attend to `keys` (H, M, S), (B or 1, H·M, 1 or W, S·W)."""
    size = pattern.block_size
    mask = None
    if bias is not None:
        mask = bias.reshape(len(bias), -1, size).index_select(1, keys.flatten())
        mask = mask.view(len(bias), -1, 1, keys.shape[2] * size)
    if pattern.causal:
        future = triangle(size, like.dtype, like.device)  # in the last block
        future = pad(future, ((keys.shape[2] - 1) * size, 0))
        mask = future[None, None] if mask is None else mask + future
    return mask


def gathered_attention(
    call: Call,
    bias: Tensor | None,
    gathered: GatheredBlocks,
    layout: BlockLayout | None = None,
) -> Tensor:
    """Attention over whole blocks, (B, H, N, K) in and out; `bias` (B, N) is added to each key's scores.

    Relative positions need the `layout`.
    """
    q, k, v, pattern, _, _, dropout, relative = call
    batch, heads, _, width = q.shape
    size = pattern.block_size

    def add_labels(
        mask: Tensor | None, query: Tensor, queries: Tensor, keys: Tensor
    ) -> Tensor | None:
        """The mask with the scores of relative positions; query (B, H, …, tokens, K), `queries` and `keys`
        are block numbers."""
        if relative is None or layout is None:
            return mask
        labels = layout.labels(
            relative, token_ids(queries, size), token_ids(keys, size)
        )
        labels = labels.reshape(len(labels), -1, *query.shape[2:-1], labels.shape[-1])
        scores = relative_scores(query, relative.table, labels) / math.sqrt(width)
        scores = scores.flatten(1, 2) if scores.dim() == 5 else scores
        return scores if mask is None else scores + mask

    q_blocks = q.reshape(batch, heads, gathered.blocks, size, width)
    outs = []
    if len(gathered.full):
        query = q_blocks.index_select(2, gathered.full).flatten(2, 3)
        mask = None if bias is None else bias[:, None, None, :]
        everywhere = torch.arange(gathered.blocks, device=q.device)
        mask = add_labels(mask, query, gathered.full, everywhere)
        out = scaled_dot_product_attention(
            query, k, v, attn_mask=mask, dropout_p=dropout
        )
        outs.append(out.reshape(batch, heads, -1, size, width))
    k_blocks, v_blocks = (
        x.reshape(batch, heads * gathered.blocks, size, width) for x in (k, v)
    )
    head_starts = torch.arange(heads, device=q.device)[:, None, None] * gathered.blocks
    bias = class_bias(bias, pattern, q)
    for queries, keys in gathered.classes:
        query = q_blocks.index_select(2, queries)  # (B, H, M, W, K)
        mask = class_mask(keys, bias, pattern, q)
        mask = add_labels(mask, query, queries[None, :, None], keys)
        query = query.flatten(1, 2)  # (B, H·M, W, K)
        ids = (keys + head_starts).flatten()
        key, value = (
            _gathered(x, ids).reshape(batch, query.shape[1], -1, width)
            for x in (k_blocks, v_blocks)
        )
        out = scaled_dot_product_attention(
            query, key, value, attn_mask=mask, dropout_p=dropout
        )
        outs.append(out.reshape(batch, heads, -1, size, width))
    return torch.cat(outs, dim=2).index_select(2, gathered.restore).flatten(2, 3)


def token_ids(blocks: Tensor, size: int) -> Tensor:
    """Token positions of blocks (…, S): (…, S · W)."""
    tokens = blocks[..., None] * size + torch.arange(size, device=blocks.device)
    return tokens.flatten(-2)


def relative_attention(
    call: Call, bias: Tensor | None, gathered: GatheredBlocks, layout: BlockLayout
) -> Tensor:
    """`gathered_attention` head by head, so only one head's label scores are in memory at a time."""
    relative = call.relative
    assert relative is not None

    def attend(head: int, q: Tensor, k: Tensor, v: Tensor, table: Tensor) -> Tensor:
        classes = tuple(
            QueryClass(queries, keys[head : head + 1])
            for queries, keys in gathered.classes
        )
        one_head = call._replace(q=q, k=k, v=v, relative=relative._replace(table=table))
        return gathered_attention(
            one_head, bias, gathered._replace(classes=classes), layout
        )

    outs: list[Tensor] = []
    for head in range(call.q.shape[1]):
        here = slice(head, head + 1)
        q, k, v, table = (
            call.q[:, here],
            call.k[:, here],
            call.v[:, here],
            relative.table[here],
        )
        if torch.is_grad_enabled() and not call.transformed:
            out = checkpoint(attend, head, q, k, v, table, use_reentrant=False)
        else:
            out = attend(head, q, k, v, table)
        outs.append(out)
    return torch.cat(outs, dim=1)


def sum_dtype(x: Tensor) -> torch.dtype:
    """The type in which gradients of a key are summed over the queries that attend to it."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def _gathered(x: Tensor, ids: Tensor) -> Tensor:
    """`x.index_select(1, ids)`, with gradients summed in at least float32."""
    if is_transformed(x):
        return x.index_select(1, ids)
    return _Gather.apply(x, ids)  # type: ignore[no-any-return, no-untyped-call]


class _Gather(torch.autograd.Function):
    """`x.index_select(1, ids)` with gradients summed in float32: a global block is gathered Q times."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, ids: Tensor) -> Tensor:
        ctx.save_for_backward(ids)
        ctx.shape = x.shape
        return x.index_select(1, ids)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (ids,) = ctx.saved_tensors
        total = grad.new_zeros(ctx.shape, dtype=sum_dtype(grad))
        return total.index_add_(1, ids, grad.to(total.dtype)).to(grad.dtype), None


LONGEST = 512  # tokens
MASK_ELEMENTS = 1 << 24  # per call; the fused kernel converts the mask to floats


def is_short(pattern: Pattern, tokens: int) -> bool:
    """Whether masked attention suits a sequence of `tokens` tokens; depends on its own length only."""
    if pattern.huggingface:  # counts some keys several times
        return False
    seen = pattern.global_blocks + pattern.window_blocks + pattern.random_blocks
    return tokens <= LONGEST and pattern.blocks(tokens) < 2 * seen


def masked_attention(call: Call) -> Tensor:
    """Attention under a boolean mask, (B, H, L, K); time is quadratic in the longest length."""
    q, k, v, pattern, lengths, layer, dropout, _ = call.cut()
    if len(set(lengths)) == 1:
        mask = attention_mask(pattern, lengths[:1], q, layer)
        return call.uncut(
            scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout)
        )
    some = max(1, MASK_ELEMENTS // (q.shape[1] * q.shape[2] ** 2))
    parts = []
    for row in range(0, len(lengths), some):
        rows = slice(row, row + some)
        mask = attention_mask(pattern, lengths[rows], q, layer)
        parts.append(
            scaled_dot_product_attention(
                q[rows], k[rows], v[rows], attn_mask=mask, dropout_p=dropout
            )
        )
    return call.uncut(torch.cat(parts))


def attention_mask(
    pattern: Pattern, lengths: tuple[int, ...], q: Tensor, layer: int
) -> Tensor:
    """(rows, H, N, N), true where a query attends to a key; a query past the end attends to some true key."""
    heads, tokens = q.shape[1:3]
    extra = pattern.num_global_tokens
    width = pattern.blocks(tokens)
    blocks = [
        _block_mask(pattern, pattern.blocks(length), width, heads, layer, q.device)
        for length in lengths
    ]
    mask = torch.stack(blocks)
    mask = mask.repeat_interleave(pattern.block_size, 2).repeat_interleave(
        pattern.block_size, 3
    )
    mask = pad(
        mask[:, :, : tokens - extra, : tokens - extra], (extra, 0, extra, 0), value=True
    )
    if pattern.causal:
        mask = mask.tril()
    return mask & real_positions(lengths, tokens, q.device)[:, None, None, :]


@lru_cache(maxsize=1024)
@torch.inference_mode(
    False
)  # tensors cached during evaluation must also work in training
def _block_mask(
    pattern: Pattern,
    blocks: int,
    width: int,
    heads: int,
    layer: int,
    device: torch.device,
) -> Tensor:
    """The pattern in the corner of (H, width, width). Query blocks past the end attend to everything: some
    kernels return NaN for a query without keys, and NaN would reach the gradients of the other queries."""
    mask = torch.ones(heads, width, width, dtype=torch.bool, device="cpu")
    mask[:, :blocks, :blocks] = torch.from_numpy(
        pattern.block_mask(blocks, heads, layer)
    )
    return copied(mask, device)


# ---- a few heads at a time, on a CPU ---------------------------------------------------------------------

# Elements of keys gathered at once per thread: 1 MiB in float32. Larger temporaries exceed the core's cache
# and are mapped again at every call (4,096 tokens: 1.4 times the time at 8 MiB).
CHUNK_ELEMENTS = 1 << 18


class _Chunk(NamedTuple):
    """Several sequences with all heads, or one sequence with several heads."""

    part: tuple[slice, slice]  # slices of the axes B and H
    batches: Iterator["_BlockBatch"]

    def blocks(self, x: Tensor, size: int) -> Tensor:
        """Blocks of this part of `x` (B, H, N, K): (sequences · heads · Q, W, K), contiguous."""
        return x[self.part].reshape(-1, size, x.shape[3])


class _BlockBatch(NamedTuple):
    """Attention problems of equal size; blocks are numbered across all sequences and heads of the chunk."""

    problems: int
    queries: Tensor  # (problems · query blocks of each,)
    keys: Tensor | None  # (problems · key blocks of each,); None: all blocks in order
    mask: Tensor | None  # (problems, 1, queries, keys) additive

    def take_queries(self, blocks: Tensor) -> Tensor:
        """The blocks (·, W, K) of the queries as (problems, 1, tokens, K)."""
        blocks = blocks.index_select(0, self.queries)
        return blocks.view(self.problems, 1, -1, blocks.shape[2])

    def take_keys(self, blocks: Tensor) -> Tensor:
        """The blocks (·, W, K) of the keys as (problems, 1, tokens, K)."""
        if self.keys is not None:
            blocks = blocks.index_select(0, self.keys)
        return blocks.view(self.problems, 1, -1, blocks.shape[2])


def _chunks(
    q: Tensor, bias: Tensor | None, pattern: Pattern, blocks: int, layer: int
) -> Iterator[_Chunk]:
    """Split sequences × heads into chunks that gather about `CHUNK_ELEMENTS` elements per thread at once."""
    batch, heads, _, width = q.shape
    gathered = make_gathered_blocks(pattern, blocks, heads, layer, q.device)
    budget = CHUNK_ELEMENTS * torch.get_num_threads()
    most = max(
        (keys.shape[1] * keys.shape[2] for _, keys in gathered.classes),
        default=gathered.blocks,
    )
    fit = max(1, budget // (most * pattern.block_size * width))  # heads
    rows, columns = (min(batch, fit // heads), heads) if fit >= heads else (1, fit)
    for row in range(0, batch, rows):
        for head in range(0, heads, columns):
            part = slice(row, row + rows), slice(head, head + columns)
            yield _Chunk(part, _batches(q[part], bias, part, pattern, gathered, budget))


def _batches(
    q: Tensor,
    bias: Tensor | None,
    part: tuple[slice, slice],
    pattern: Pattern,
    gathered: GatheredBlocks,
    budget: int,
) -> Iterator[_BlockBatch]:
    """Yield the full rows of a chunk `q`, then the others by class, as many blocks at once as fit."""
    rows, heads, tokens, width = q.shape
    size = pattern.block_size
    numbers = torch.arange(rows * heads, device="cpu").view(rows, heads, 1, 1)
    starts = numbers * gathered.blocks
    if len(gathered.full):
        mask = None
        if bias is not None:
            mask = bias[part[0]].view(rows, 1, 1, tokens)
            mask = mask.repeat_interleave(heads, dim=0)
            mask = mask.expand(-1, -1, len(gathered.full) * size, -1)
        queries = (starts[..., 0] + gathered.full).flatten()
        yield _BlockBatch(rows * heads, queries, None, mask)
    bias = class_bias(bias, pattern, q)  # a single row if no sequence is padded
    if bias is not None and len(bias) > 1:
        bias = bias[part[0]]
    for queries, keys in gathered.classes:
        step = max(1, budget // (rows * heads * keys.shape[2] * size * width))
        for first in range(0, len(queries), step):
            some_keys = keys[part[1], first : first + step]  # (heads, M, S)
            some_queries = starts[..., 0] + queries[first : first + step]
            problems = some_queries.numel()
            mask = class_mask(some_keys, bias, pattern, q)
            if mask is not None:
                mask = mask.expand(rows, problems // rows, size, -1)
                mask = mask.reshape(problems, 1, size, -1)
            yield _BlockBatch(
                problems, some_queries.flatten(), (starts + some_keys).flatten(), mask
            )


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
    graph = Pattern.from_numbers(pattern)
    out, lse = empty_output(q), q.new_empty(q.shape[:3], dtype=sum_dtype(q))
    for chunk in _chunks(q, bias, graph, blocks, layer):
        query, key, value = (chunk.blocks(x, graph.block_size) for x in (q, k, v))
        rows = torch.empty_like(query)
        rows_lse = lse.new_empty(query.shape[:2])
        for batch in chunk.batches:
            result, result_lse = (
                torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
                    batch.take_queries(query),
                    batch.take_keys(key),
                    batch.take_keys(value),
                    attn_mask=batch.mask,
                )
            )
            rows.index_copy_(0, batch.queries, result.reshape(-1, *rows.shape[1:]))
            rows_lse.index_copy_(
                0, batch.queries, result_lse.reshape(-1, rows.shape[1])
            )
        out[chunk.part] = rows.view(out[chunk.part].shape)
        lse[chunk.part] = rows_lse.view(lse[chunk.part].shape)
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
    graph = Pattern.from_numbers(pattern)
    grads = (empty_output(q), empty_output(k), empty_output(v))
    for chunk in _chunks(q, bias, graph, blocks, layer):
        query, key, value, result, upper = (
            chunk.blocks(x, graph.block_size) for x in (q, k, v, out, grad)
        )
        result_lse = lse[chunk.part].reshape(query.shape[:2])
        # Many queries attend to each key block: their gradients are summed in at least float32.
        sums = [query.new_zeros(query.shape, dtype=lse.dtype) for _ in range(3)]
        for batch in chunk.batches:
            addends = (
                torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
                    batch.take_queries(upper),
                    batch.take_queries(query),
                    batch.take_keys(key),
                    batch.take_keys(value),
                    batch.take_queries(result),
                    result_lse.index_select(0, batch.queries).view(
                        batch.problems, 1, -1
                    ),
                    0.0,
                    False,
                    attn_mask=batch.mask,
                )
            )
            ids = batch.queries, batch.keys, batch.keys
            for total, where, addend in zip(sums, ids, addends, strict=True):
                addend = addend.reshape(-1, *total.shape[1:]).to(total.dtype)
                if where is None:
                    total += addend
                else:
                    total.index_add_(0, where, addend)
        for target, total in zip(grads, sums, strict=True):
            target[chunk.part] = total.view(target[chunk.part].shape)
    return grads


def _by_torch(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    pattern: Sequence[int],
    blocks: int,
    layer: int,
) -> Tensor:
    """The output of `_forward` by operations of which torch has all derivatives."""
    graph = Pattern.from_numbers(pattern)
    gathered = make_gathered_blocks(graph, blocks, q.shape[1], layer, q.device)
    with sdpa_kernel(SDPBackend.MATH):
        return gathered_attention(Call(q, k, v, graph, (), layer), bias, gathered)


differentiate_by(_forward, _backward, lse_dtype=sum_dtype, composed=_by_torch)


def blocked_attention(call: Call) -> Tensor:
    """Compute attention block by block, (B, H, L, K); time and memory are linear in L."""
    q, k, v, pattern, lengths, layer, dropout, relative = call
    blocks = call.blocks
    layout = make_layout(pattern, blocks)
    bias = layout.padding_bias(lengths, q)
    q, k, v = layout.spread(q), layout.spread(k), layout.spread(v)
    by_torch = q.device.type != "cpu" or dropout or relative or call.transformed
    if not by_torch:
        out = _forward(q, k, v, bias, pattern.as_numbers(), blocks, layer)[0]
    else:
        gathered = make_gathered_blocks(pattern, blocks, q.shape[1], layer, q.device)
        attend = gathered_attention if relative is None else relative_attention
        out = attend(call._replace(q=q, k=k, v=v), bias, gathered, layout)
    if bias is not None:
        out = out.masked_fill((bias < 0)[:, None, :, None], 0)
    return layout.collect(out, call.q.shape[2])
