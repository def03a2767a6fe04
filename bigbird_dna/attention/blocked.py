"""The exact sparse route that runs anywhere: full rows see all keys, the others gathered key blocks.

Every query block needs all its keys in one softmax, so its key blocks (global, window, random) are gathered
side by side and given to torch's fused attention, which never stores probabilities. Three ways do the
same arithmetic:

* `chunked_attention` on a CPU without dropout: a few heads at a time, nothing gathered is kept;
* `gathered_attention` on GPUs and with dropout: all heads at once, differentiated by autograd;
* the same head by head, computed again in the backward pass, with relative positions: their part of the
  scores can't be fused.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

from bigbird_dna.attention.bias import class_bias, triangle
from bigbird_dna.attention.call import Call
from bigbird_dna.attention.chunked import chunked_attention, sum_dtype
from bigbird_dna.attention.pattern import Pattern
from bigbird_dna.attention.plan import Layout, Plan, QueryClass, make_layout, make_plan
from bigbird_dna.attention.relative import RelativeKeys, label_ids, relative_scores

# Axes: B batch, H heads, L tokens as given, N tokens in whole blocks, K head width, Q blocks of a sequence,
# W block size, F full query blocks, M query blocks of a class, S key blocks that each of these sees.


def blocked_attention(call: Call) -> Tensor:
    """Attention block by block, (B, H, L, K); time and memory are linear in L."""
    q, k, v, pattern, lengths, layer, dropout, relative = call
    blocks = call.blocks
    layout = make_layout(pattern, blocks)
    bias = layout.padding_bias(lengths, q)
    laid = call._replace(q=layout.spread(q), k=layout.spread(k), v=layout.spread(v))
    if q.device.type == "cpu" and not dropout and relative is None:
        out = chunked_attention(*laid[:3], bias, pattern, blocks, layer)
    else:
        plan = make_plan(pattern, blocks, q.shape[1], layer, q.device)
        if relative is None:
            out = gathered_attention(laid, bias, plan)
        else:
            out = _with_relative_keys(laid, bias, plan, layout, relative)
    if bias is not None:
        out = out.masked_fill((bias < 0)[:, None, :, None], 0)
    return layout.collect(out, q.shape[2])


class Relative:
    """Relative keys of some heads, laid out in blocks."""

    def __init__(self, keys: RelativeKeys, extra_globals: int, layout: Layout) -> None:
        self.table, self.radius, self.owners = keys
        self.extra_globals = extra_globals
        self.places = layout.positions(keys.table.device)
        if self.owners is not None:
            short = max(layout.whole - layout.gap - self.owners.shape[1], 0)
            self.owners = torch.nn.functional.pad(self.owners, (0, short), value=-1)

    def scores(self, query: Tensor, queries: Tensor, keys: Tensor) -> Tensor:
        """Scaled scores (B, H, …, M, N) of laid-out positions; query (B, H, …, M, K)."""
        labels = label_ids(
            self.places[queries], self.places[keys], self.radius, self.extra_globals, self.owners
        )
        labels = labels.reshape(labels.shape[0], -1, *query.shape[2:-1], keys.shape[-1])
        return relative_scores(query, self.table, labels) / math.sqrt(query.shape[-1])


def gathered_attention(
    call: Call, bias: Tensor | None, plan: Plan, relative: Relative | None = None
) -> Tensor:
    """Attention of whole blocks on any device, (B, H, N, K) → (B, H, N, K).

    `bias` (B, N) is added to the scores of each key; none: nothing is padded. The call's own relative keys
    are not looked at.
    """
    q, k, v, pattern, _, _, dropout, _ = call
    batch, heads, tokens, width = q.shape
    size = pattern.block_size
    q_blocks = q.reshape(batch, heads, plan.blocks, size, width)
    parts = []
    if len(plan.full):
        query = q_blocks.index_select(2, plan.full).flatten(2, 3)
        mask = None if bias is None else bias[:, None, None, :]
        if relative is not None:
            rows = _token_ids(plan.full, size)
            labelled = relative.scores(query, rows, torch.arange(tokens, device=q.device))
            mask = labelled if mask is None else labelled + mask
        seen = scaled_dot_product_attention(query, k, v, attn_mask=mask, dropout_p=dropout)
        parts.append(seen.reshape(batch, heads, -1, size, width))
    key, value = (x.reshape(batch, heads * plan.blocks, size, width) for x in (k, v))
    head_starts = torch.arange(heads, device=q.device)[:, None, None] * plan.blocks
    others_bias = class_bias(bias, pattern, q)
    for one in plan.classes:
        ids = (one.keys + head_starts).flatten()
        query = q_blocks.index_select(2, one.queries)  # (B, H, M, W, K)
        mask = _class_mask(one, query, others_bias, pattern, relative)
        query = query.flatten(1, 2)
        rows_ = query.shape[1]  # H·M
        seen = scaled_dot_product_attention(
            query,
            _Gather.apply(key, ids).reshape(batch, rows_, -1, width),  # type: ignore[no-untyped-call]
            _Gather.apply(value, ids).reshape(batch, rows_, -1, width),  # type: ignore[no-untyped-call]
            attn_mask=mask,
            dropout_p=dropout,
        )
        parts.append(seen.reshape(batch, heads, -1, size, width))
    return torch.cat(parts, dim=2).index_select(2, plan.restore).flatten(2, 3)


def _token_ids(blocks: Tensor, size: int) -> Tensor:
    """The tokens of blocks (…, S): (…, S · W)."""
    tokens = blocks[..., None] * size + torch.arange(size, device=blocks.device)
    return tokens.flatten(-2)


def _class_mask(
    one: QueryClass, query: Tensor, bias: Tensor | None, pattern: Pattern, relative: Relative | None
) -> Tensor | None:
    """What is added to the scores of a class, (B or 1, H·M, 1 or W, S·W); query (B, H, M, W, K)."""
    size = pattern.block_size
    mask = None
    if bias is not None:
        mask = bias.view(len(bias), -1, size).index_select(1, one.keys.flatten())
        mask = mask.view(len(bias), -1, 1, one.keys.shape[2] * size)
    if pattern.causal:
        own = triangle(size, query)
        own = torch.nn.functional.pad(own, ((one.keys.shape[2] - 1) * size, 0))  # the last block
        mask = own[None, None] if mask is None else mask + own
    if relative is not None:
        rows = _token_ids(one.queries[None, :, None], size)  # (1, M, W)
        keys = _token_ids(one.keys, size)  # (H, M, S·W)
        labelled = relative.scores(query, rows, keys).flatten(1, 2)
        mask = labelled if mask is None else labelled + mask
    return mask


def _with_relative_keys(
    call: Call, bias: Tensor | None, plan: Plan, layout: Layout, relative: RelativeKeys
) -> Tensor:
    """`gathered_attention` head by head: the labels' scores of one head at a time are in memory."""

    def attend(head: int, q: Tensor, k: Tensor, v: Tensor, table: Tensor) -> Tensor:
        one = slice(head, head + 1)
        own = plan._replace(classes=tuple(QueryClass(c.queries, c.keys[one]) for c in plan.classes))
        keys = Relative(relative._replace(table=table), call.pattern.extra_globals, layout)
        return gathered_attention(call._replace(q=q, k=k, v=v), bias, own, keys)

    outs: list[Tensor] = []
    for head in range(call.q.shape[1]):
        one = slice(head, head + 1)
        q, k, v = (x[:, one] for x in call[:3])
        arguments = head, q, k, v, relative.table[one]
        if torch.is_grad_enabled():
            outs.append(checkpoint(attend, *arguments, use_reentrant=False))
        else:
            outs.append(attend(*arguments))
    return torch.cat(outs, dim=1)


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
