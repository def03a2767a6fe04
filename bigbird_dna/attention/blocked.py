"""Attention by whole blocks: block layout, gathered key blocks on any device, and masks for short sequences.

Extra global tokens are laid out as separate blocks in front of the sequence, with padding in the last of
them, so all later code treats them as ordinary blocks. Query blocks that do not attend to everything are
sorted into classes by their number of key blocks. Each class is thus a rectangle and needs no mask. Almost
all blocks are in one class. Blocks near the sequence ends, whose window is clipped or meets a global block,
form one or two small classes.

Each query block needs all its keys in one softmax. Its key blocks (global, window, random) are therefore
gathered contiguously and passed to torch's fused attention, which never stores probabilities. `chunked` does
the same on a CPU with little memory.

Short sequences use torch's fused full attention with the pattern's boolean mask. While a query attends to
about half of all blocks or more, computing every score costs no more than gathering blocks. On a CPU the
costs are equal at twice as many blocks as a query attends to (measured with blocks of 16, 32 and 64 tokens,
forward and backward). The limit on tokens keeps the masks small.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
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
    label_ids,
    numbers_on,
    real_positions,
    relative_scores,
)
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
    whole: int  # N, tokens of the layout

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
        missing = self.whole - x.shape[2]
        return pad(x, (0, 0, 0, missing)) if missing > 0 else x[:, :, : self.whole]

    def collect(self, x: Tensor, tokens: int) -> Tensor:
        """Inverse of `spread`: (B, H, N, K) → (B, H, L, K), zero at positions that `spread` dropped."""
        if self.gap:
            x = torch.cat([x[:, :, : self.extra], x[:, :, self.extra + self.gap :]], 2)
        missing = tokens - x.shape[2]
        return pad(x, (0, 0, 0, missing)) if missing > 0 else x[:, :, :tokens]

    def positions(self, device: torch.device) -> Tensor:
        """(N,) sequence position of each layout position; padding has arbitrary values."""
        places = torch.arange(self.whole, device=device)
        return torch.where(places < self.extra + self.gap, places, places - self.gap)

    def padding_bias(self, lengths: tuple[int, ...], like: Tensor) -> Tensor | None:
        """(B, N) bias: 0 at true positions, very negative at padding; None if nothing is padded. It is finite
        because a fused kernel that meets padded keys first would compute exp(-inf + inf) = NaN."""
        if not self.gap and all(length == self.whole for length in lengths):
            return None
        places = torch.arange(self.whole, device=like.device)
        ends = numbers_on(like.device, lengths)[:, None] + self.gap
        padded = (places >= ends) | (
            (places >= self.extra) & (places < self.extra + self.gap)
        )
        bias = like.new_zeros(len(lengths), self.whole)
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
    rows = np.arange(keys.shape[1])
    for head in keys:
        place = (head == rows[:, None]).argmax(axis=1)
        head[rows, place] = head[rows, seen - 1]
        head[rows, seen - 1] = rows
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


def triangle(size: int, like: Tensor) -> Tensor:
    """(W, W), 0 up to the query's own token, very negative after it; finite, as the padding bias."""
    return _triangle(size, like.dtype, like.device)


@lru_cache(maxsize=16)
@torch.inference_mode(
    False
)  # tensors cached during evaluation must also work in training
def _triangle(size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    lowest = torch.finfo(dtype).min / 4  # its sum with a padded key's bias stays finite
    return torch.full((size, size), lowest, dtype=dtype, device=device).triu(1)


class RelativeBlocks:
    """Relative keys of selected heads, laid out in blocks."""

    def __init__(
        self, keys: RelativeKeys, num_global_tokens: int, layout: BlockLayout
    ) -> None:
        self.table, self.radius, self.owners = keys
        self.num_global_tokens = num_global_tokens
        self.places = layout.positions(keys.table.device)
        if self.owners is not None:
            short = max(layout.whole - layout.gap - self.owners.shape[1], 0)
            self.owners = pad(self.owners, (0, short), value=-1)

    def scores(self, query: Tensor, queries: Tensor, keys: Tensor) -> Tensor:
        """Scaled scores (B, H, …, M, N) at layout positions; query (B, H, …, M, K)."""
        labels = label_ids(
            self.places[queries],
            self.places[keys],
            self.radius,
            self.num_global_tokens,
            self.owners,
        )
        labels = labels.reshape(labels.shape[0], -1, *query.shape[2:-1], keys.shape[-1])
        return relative_scores(query, self.table, labels) / math.sqrt(query.shape[-1])


def gathered_attention(
    call: Call,
    bias: Tensor | None,
    gathered: GatheredBlocks,
    relative: RelativeBlocks | None = None,
) -> Tensor:
    """Attention over whole blocks, (B, H, N, K) in and out; `bias` (B, N) is added to each key's scores."""
    q, k, v, pattern, _, _, dropout, _ = call
    batch, heads, tokens, width = q.shape
    size = pattern.block_size
    q_blocks = q.reshape(batch, heads, gathered.blocks, size, width)
    parts = []
    if len(gathered.full):
        query = q_blocks.index_select(2, gathered.full).flatten(2, 3)
        mask = None if bias is None else bias[:, None, None, :]
        if relative is not None:
            rows = _token_ids(gathered.full, size)
            labeled = relative.scores(
                query, rows, torch.arange(tokens, device=q.device)
            )
            mask = labeled if mask is None else labeled + mask
        seen = scaled_dot_product_attention(
            query, k, v, attn_mask=mask, dropout_p=dropout
        )
        parts.append(seen.reshape(batch, heads, -1, size, width))
    key, value = (
        x.reshape(batch, heads * gathered.blocks, size, width) for x in (k, v)
    )
    head_starts = torch.arange(heads, device=q.device)[:, None, None] * gathered.blocks
    others_bias = class_bias(bias, pattern, q)
    for one in gathered.classes:
        ids = (one.keys + head_starts).flatten()
        query = q_blocks.index_select(2, one.queries)  # (B, H, M, W, K)
        mask = class_mask(one.keys, others_bias, pattern, q)
        if relative is not None:
            rows = _token_ids(one.queries[None, :, None], size)  # (1, M, W)
            labeled = relative.scores(query, rows, _token_ids(one.keys, size)).flatten(
                1, 2
            )
            mask = labeled if mask is None else labeled + mask
        query = query.flatten(1, 2)
        rows_ = query.shape[1]  # H·M
        seen = scaled_dot_product_attention(
            query,
            _gathered(key, ids).reshape(batch, rows_, -1, width),
            _gathered(value, ids).reshape(batch, rows_, -1, width),
            attn_mask=mask,
            dropout_p=dropout,
        )
        parts.append(seen.reshape(batch, heads, -1, size, width))
    return torch.cat(parts, dim=2).index_select(2, gathered.restore).flatten(2, 3)


def _token_ids(blocks: Tensor, size: int) -> Tensor:
    """Token positions of blocks (…, S): (…, S · W)."""
    tokens = blocks[..., None] * size + torch.arange(size, device=blocks.device)
    return tokens.flatten(-2)


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
        own = pad(
            triangle(size, like), ((keys.shape[2] - 1) * size, 0)
        )  # the last block
        mask = own[None, None] if mask is None else mask + own
    return mask


def with_relative_keys(
    call: Call,
    bias: Tensor | None,
    gathered: GatheredBlocks,
    layout: BlockLayout,
    relative: RelativeKeys,
) -> Tensor:
    """`gathered_attention` head by head, so only one head's label scores are in memory at a time."""

    def attend(head: int, q: Tensor, k: Tensor, v: Tensor, table: Tensor) -> Tensor:
        one = slice(head, head + 1)
        own = gathered._replace(
            classes=tuple(QueryClass(c.queries, c.keys[one]) for c in gathered.classes)
        )
        keys = RelativeBlocks(
            relative._replace(table=table), call.pattern.num_global_tokens, layout
        )
        return gathered_attention(call._replace(q=q, k=k, v=v), bias, own, keys)

    outs: list[Tensor] = []
    for head in range(call.q.shape[1]):
        one = slice(head, head + 1)
        q, k, v = (x[:, one] for x in call[:3])
        arguments = head, q, k, v, relative.table[one]
        if torch.is_grad_enabled() and not call.transformed:
            outs.append(checkpoint(attend, *arguments, use_reentrant=False))
        else:
            outs.append(attend(*arguments))
    return torch.cat(outs, dim=1)


def sum_dtype(x: Tensor) -> torch.dtype:
    """The type in which gradients of a key are summed over the queries that attend to it."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


_composed: ContextVar[bool] = ContextVar("_composed", default=False)


@contextmanager
def composed_attention() -> Iterator[None]:
    """Compute attention by operations of which torch has all derivatives, within the context."""
    token = _composed.set(True)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        _composed.reset(token)


def _gathered(x: Tensor, ids: Tensor) -> Tensor:
    """`x.index_select(1, ids)`."""
    if _composed.get():
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
