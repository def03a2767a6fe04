"""Attention by whole blocks on any device: key blocks are gathered for each query block.

Extra global tokens are laid out as separate blocks in front of the sequence, with padding in the last of
them, so all later code treats them as ordinary blocks. Query blocks that do not attend to everything are
sorted into classes by their number of key blocks. Each class is thus a rectangle and needs no mask. Almost
all blocks are in one class. Blocks near the sequence ends, whose window is clipped or meets a global block,
form one or two small classes.

Each query block needs all its keys in one softmax. Its key blocks (global, window, random) are therefore
gathered contiguously and passed to torch's fused attention, which never stores probabilities. On a CPU, and
with relative positions, this is done head by head, and again in the backward pass: the gathered keys of a
head fit in cache, and memory does not grow with the number of heads or layers.
"""

import math
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

from bigbird_dna.attention.call import (
    Call,
    copied,
    label_ids,
    numbers_on,
    relative_scores,
)
from bigbird_dna.attention.pattern import Pattern

# Axes: B batch, H heads, L input tokens, N tokens in whole blocks, K head width, Q blocks per sequence, W
# block size, M query blocks of a class, S key blocks per query block of the class.


@lru_cache(maxsize=512)
@torch.inference_mode(False)  # tensors cached in evaluation also work in training
def gather_blocks(
    pattern: Pattern, blocks: int, heads: int, layer: int, device: torch.device
) -> tuple[list[tuple[Tensor, Tensor | None]], Tensor]:
    """Return the classes of query blocks of sequences of `blocks` blocks, and (Q,) their order in the sequence.

    A class has its query blocks (M,) and their key blocks (H, M, S), None for all. In a causal pattern the
    query's own block is last. Blocks of extra global tokens come first. Cached because every step reuses
    them.
    """
    front = -(-pattern.num_global_tokens // pattern.block_size)
    keys = pattern.key_blocks(blocks, heads, layer).astype(np.int64)
    counts = (keys[0] >= 0).sum(axis=1)  # the same for every head
    if pattern.causal:
        # Swap each row's own block with its last one.
        keys = keys.copy()
        rows = np.arange(blocks)[:, None]
        position = (keys == rows).argmax(axis=2)[..., None]
        last = np.broadcast_to(counts[:, None] - 1, position.shape)
        last_keys = np.take_along_axis(keys, last, axis=2)
        np.put_along_axis(keys, position, last_keys, axis=2)
        np.put_along_axis(keys, last, np.broadcast_to(rows, last.shape), axis=2)

    front_keys = np.broadcast_to(np.arange(front), (heads, blocks, front))
    keys = np.concatenate([front_keys, keys + front], axis=2)
    full = np.r_[np.arange(front), pattern.full_rows(blocks) + front].astype(np.int64)
    classes: list[tuple[Tensor, Tensor | None]] = []
    order = []
    if len(full):
        order.append(full)
        classes.append((copied(torch.from_numpy(full), device), None))

    for count in np.unique(counts[counts > 0]):
        queries = np.flatnonzero(counts == count)
        order.append(queries + front)
        class_queries = torch.from_numpy(queries + front)
        class_keys = torch.from_numpy(keys[:, queries, : front + count])
        classes.append((copied(class_queries, device), copied(class_keys, device)))

    restore = torch.from_numpy(np.argsort(np.concatenate(order)))
    return classes, copied(restore, device)


def blocked_attention(call: Call) -> Tensor:
    """Compute attention block by block, (B, H, L, K), of rows with equal numbers of blocks.

    Time and memory are linear in L.
    """
    q, _, _, pattern, lengths, layer, dropout, relative = call
    batch, heads, tokens, width = q.shape
    device = q.device
    size = pattern.block_size
    blocks = pattern.graph_blocks(lengths[0], tokens)
    extra = pattern.num_global_tokens
    gap = -extra % size  # padding after the extra global tokens
    padded = extra + gap + blocks * size
    all_blocks = padded // size
    classes, restore = gather_blocks(pattern, blocks, heads, layer, device)

    def spread(x: Tensor) -> Tensor:
        """(B, H, L, K) → (B, H, N, K), zero at padding."""
        if gap:
            front = pad(x[:, :, :extra], (0, 0, 0, gap))
            x = torch.cat([front, x[:, :, extra:]], 2)
        missing = padded - x.shape[2]
        return pad(x, (0, 0, 0, missing)) if missing > 0 else x[:, :, :padded]

    q = spread(q)
    k = spread(call.k)
    v = spread(call.v)

    # (B, N) bias: 0 at true positions, very negative at padding. It is finite because a fused kernel that
    # meets padded keys first would compute exp(-inf + inf) = NaN.
    bias = None
    if gap or any(length < padded for length in lengths):
        positions = torch.arange(padded, device=device)
        ends = numbers_on(device, lengths)[:, None] + gap
        in_gap = (positions >= extra) & (positions < extra + gap)
        bias = q.new_zeros(batch, padded)
        bias = bias.masked_fill(
            (positions >= ends) | in_gap, torch.finfo(q.dtype).min / 2
        )

    # The bias of keys for query blocks that are not full.
    class_bias = bias
    if pattern.first_block_count > 1:
        class_bias = q.new_zeros(1, padded) if bias is None else bias.clone()
        class_bias[:, :size] += math.log(pattern.first_block_count)

    future = None
    if pattern.causal:  # its sum with the bias stays finite
        lowest = torch.finfo(q.dtype).min / 4
        future = torch.full((size, size), lowest, dtype=q.dtype, device=device).triu(1)

    def add_labels(
        mask: Tensor | None,
        query: Tensor,
        table: Tensor | None,
        queries: Tensor,
        keys: Tensor,
    ) -> Tensor | None:
        """The mask with the scores of relative positions.

        Shapes: query (B, H, …, tokens, K), table (H, R, K); `queries` and `keys` are numbers of blocks.
        """
        if relative is None or table is None:
            return mask

        positions = torch.arange(padded, device=device)
        positions[extra + gap :] -= gap
        owners = relative.owners
        if owners is not None:
            short = max(padded - gap - owners.shape[1], 0)
            owners = pad(owners, (0, short), value=-1)

        in_block = torch.arange(size, device=device)
        query_tokens = (queries[..., None] * size + in_block).flatten(-2)
        key_tokens = (keys[..., None] * size + in_block).flatten(-2)
        labels = label_ids(
            positions[query_tokens],
            positions[key_tokens],
            relative.radius,
            extra,
            owners,
        )
        labels = labels.reshape(len(labels), -1, *query.shape[2:-1], labels.shape[-1])
        scores = relative_scores(query, table, labels) / math.sqrt(width)
        scores = scores.flatten(1, 2) if scores.dim() == 5 else scores

        return scores if mask is None else scores + mask

    def attend(
        first: int, q: Tensor, k: Tensor, v: Tensor, table: Tensor | None
    ) -> Tensor:
        """Attention of some heads from number `first` on, (B, H, N, K)."""
        count = q.shape[1]
        q_blocks = q.reshape(batch, count, all_blocks, size, width)
        k_blocks = k.reshape(batch, count * all_blocks, size, width)
        v_blocks = v.reshape(batch, count * all_blocks, size, width)
        starts = torch.arange(count, device=device)[:, None, None] * all_blocks
        outs = []
        for queries, class_keys in classes:
            query = q_blocks.index_select(2, queries)  # (B, H, M, W, K)
            if class_keys is None:
                query = query.flatten(2, 3)
                key = k
                value = v
                mask = None if bias is None else bias[:, None, None, :]
                everywhere = torch.arange(all_blocks, device=device)
                mask = add_labels(mask, query, table, queries, everywhere)
            else:
                keys = class_keys[first : first + count]  # (H, M, S)
                mask = None
                if class_bias is not None:
                    mask = class_bias.reshape(len(class_bias), -1, size)
                    mask = mask.index_select(1, keys.flatten())
                    mask = mask.view(len(mask), -1, 1, keys.shape[2] * size)

                if future is not None:  # the last block is the query's own
                    ahead = pad(future, ((keys.shape[2] - 1) * size, 0))[None, None]
                    mask = ahead if mask is None else mask + ahead

                mask = add_labels(mask, query, table, queries[None, :, None], keys)
                query = query.flatten(1, 2)  # (B, H·M, W, K)
                ids = (keys + starts).flatten()
                key, value = (
                    _Gather.apply(x, ids).reshape(batch, query.shape[1], -1, width)  # type: ignore[no-untyped-call]
                    for x in (k_blocks, v_blocks)
                )

            out = scaled_dot_product_attention(query, key, value, mask, dropout)
            outs.append(out.reshape(batch, count, -1, size, width))

        return torch.cat(outs, dim=2).index_select(2, restore).flatten(2, 3)

    table = None if relative is None else relative.table
    if device.type != "cpu" and relative is None:
        out = attend(0, q, k, v, None)
    else:
        of_heads = []
        for head in range(heads):
            here = slice(head, head + 1)
            of_table = None if table is None else table[here]
            arguments = head, q[:, here], k[:, here], v[:, here], of_table
            if torch.is_grad_enabled():
                of_heads.append(checkpoint(attend, *arguments, use_reentrant=False))
            else:
                of_heads.append(attend(*arguments))

        out = torch.cat(of_heads, dim=1)

    if gap:
        out = torch.cat([out[:, :, :extra], out[:, :, extra + gap :]], 2)

    missing = tokens - out.shape[2]
    out = pad(out, (0, 0, 0, missing)) if missing > 0 else out[:, :, :tokens]

    return call.uncut(out)


class _Gather(torch.autograd.Function):
    """`x.index_select(1, ids)` with gradients summed in at least float32: a global block is gathered Q
    times."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, ids: Tensor) -> Tensor:
        ctx.save_for_backward(ids)
        ctx.shape = x.shape
        return x.index_select(1, ids)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (ids,) = ctx.saved_tensors
        wide = torch.promote_types(grad.dtype, torch.float32)
        total = grad.new_zeros(ctx.shape, dtype=wide)
        return total.index_add_(1, ids, grad.to(wide)).to(grad.dtype), None
