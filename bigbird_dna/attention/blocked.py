"""The fast exact route: global rows see all keys; the other query blocks see gathered key blocks.

Every query block needs all its keys in one softmax, so its key blocks (global, window, random) are gathered
side by side and given to torch's fused attention, which never stores probabilities. Two ways do
the same arithmetic:

* `chunked_attention` on a CPU without dropout: a few heads at a time, nothing gathered is kept;
* `gathered_attention` everywhere else: all heads at once, differentiated by autograd.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad, scaled_dot_product_attention

from bigbird_dna.attention.chunked import chunked_attention, sum_dtype
from bigbird_dna.attention.pattern import Pattern
from bigbird_dna.attention.plan import Plan, make_plan

# Axes: B batch, H heads, L tokens as given, N tokens in whole blocks, K head width, Q blocks of a sequence,
# W block size, G global blocks, M query blocks of a class, S key blocks that each of these sees.


def blocked_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pattern: Pattern,
    lengths: tuple[int, ...],
    layer: int = 0,
    dropout: float = 0.0,
) -> Tensor:
    """Block-sparse attention of sequences that have equally many blocks; (B, H, L, K) → (B, H, L, K).

    Equal to `dense_attention` up to rounding; positions from a row's length on are zero. Time and memory are
    linear in L. All of `lengths` must give the same number of blocks.
    """
    heads, tokens = q.shape[1:3]
    counts = {pattern.blocks(length) for length in lengths}
    if len(counts) != 1:
        raise ValueError(f"sequences have different numbers of blocks: {sorted(counts)}")
    blocks = counts.pop()
    whole = blocks * pattern.block_size
    plan = make_plan(pattern, blocks, heads, layer, q.device)
    bias = _padding_bias(q, lengths, whole)
    q, k, v = (_resize(x, whole) for x in (q, k, v))
    if q.device.type == "cpu" and not dropout:
        out = chunked_attention(q, k, v, plan, bias)
    else:
        out = gathered_attention(q, k, v, plan, bias, dropout)
    if bias is not None:
        out = out.masked_fill((bias < 0)[:, None, :, None], 0)
    return _resize(out, tokens)


def _resize(x: Tensor, tokens: int) -> Tensor:
    missing = tokens - x.shape[2]
    return pad(x, (0, 0, 0, missing)) if missing > 0 else x[:, :, :tokens]


def _padding_bias(q: Tensor, lengths: tuple[int, ...], tokens: int) -> Tensor | None:
    """(B, N), 0 at true positions and very negative at padded ones; none where nothing is padded.

    Finite, because a fused kernel may meet a stretch of padded keys before the first true one, and
    exp(-inf + inf) would be NaN there.
    """
    if all(length == tokens for length in lengths):
        return None
    ends = torch.tensor(lengths, device=q.device)[:, None]
    padded = torch.arange(tokens, device=q.device) >= ends
    return q.new_zeros(len(lengths), tokens).masked_fill(padded, torch.finfo(q.dtype).min / 2)


def gathered_attention(
    q: Tensor, k: Tensor, v: Tensor, plan: Plan, bias: Tensor | None, dropout: float
) -> Tensor:
    """Attention of whole blocks on any device, (B, H, N, K) → (B, H, N, K).

    `bias` (B, N) is added to the scores of each key; none: nothing is padded.
    """
    batch, heads, tokens, width = q.shape
    size = tokens // plan.blocks
    q_blocks = q.reshape(batch, heads, plan.blocks, size, width)
    parts = []
    if len(plan.globals):
        query = q_blocks.index_select(2, plan.globals).flatten(2, 3)
        mask = None if bias is None else bias[:, None, None, :]
        seen = scaled_dot_product_attention(query, k, v, attn_mask=mask, dropout_p=dropout)
        parts.append(seen.reshape(batch, heads, -1, size, width))
    key, value = (x.reshape(batch, heads * plan.blocks, size, width) for x in (k, v))
    head_starts = torch.arange(heads, device=q.device)[:, None, None] * plan.blocks
    for queries, keys in plan.classes:
        ids = (keys + head_starts).flatten()
        query = q_blocks.index_select(2, queries).flatten(1, 2)
        rows = query.shape[1]  # H·M
        mask = None
        if bias is not None:
            mask = bias.view(batch, plan.blocks, size).index_select(1, keys.flatten())
            mask = mask.view(batch, rows, 1, -1)
        seen = scaled_dot_product_attention(
            query,
            _Gather.apply(key, ids).reshape(batch, rows, -1, width),  # type: ignore[no-untyped-call]
            _Gather.apply(value, ids).reshape(batch, rows, -1, width),  # type: ignore[no-untyped-call]
            attn_mask=mask,
            dropout_p=dropout,
        )
        parts.append(seen.reshape(batch, heads, -1, size, width))
    return torch.cat(parts, dim=2).index_select(2, plan.restore).flatten(2, 3)


class _Gather(torch.autograd.Function):
    """`x.index_select(1, ids)` whose gradient adds up in float32: a global block is gathered Q times."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, ids: Tensor) -> Tensor:
        ctx.save_for_backward(ids)
        ctx.shape = x.shape
        return x.index_select(1, ids)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (ids,) = ctx.saved_tensors
        total = grad.new_zeros(ctx.shape, dtype=sum_dtype(grad))
        return total.index_add_(1, ids, grad.to(total.dtype)).to(grad.dtype), None
