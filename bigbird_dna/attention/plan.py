"""A pattern as index tensors: which blocks are gathered for which queries, and where positions lie.

Extra globals are laid out as blocks of their own in front of the sequence, the last of them padded, so that
nothing below needs to know them apart from other blocks. Query blocks that don't see everything are sorted
into classes by the number of key blocks they see, so that each class is a rectangle and needs no mask. Almost
all blocks are in one class; those near the ends of the sequence, whose window is clipped or meets a global
block, make up one or two small ones.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import pad

from bigbird_dna.attention.call import numbers_on
from bigbird_dna.attention.pattern import Pattern

# Axes: B batch, H heads, L tokens as given, N tokens in whole blocks, K head width, Q blocks, M query blocks
# of a class, S key blocks of each, W block size.


class QueryClass(NamedTuple):
    """Query blocks that see equally many key blocks."""

    queries: Tensor  # (M,) int64, block numbers
    keys: Tensor  # (H, M, S) int64, block numbers; the own block last, in a causal pattern


class Plan(NamedTuple):
    """Index tensors of one pattern, number of blocks, number of heads and layer, on one device.

    Block numbers count from the first block of extra globals.
    """

    blocks: int  # those of extra globals included
    full: Tensor  # (F,) int64: query blocks that see every block
    classes: tuple[QueryClass, ...]
    restore: Tensor  # (Q,) int64: puts [full, class, class …] back into the order of the sequence


class Layout(NamedTuple):
    """Where the positions of a sequence go when it is laid out in whole blocks."""

    extra: int  # extra globals, tokens
    gap: int  # padding after them, tokens
    whole: int  # N, tokens of the layout

    def spread(self, x: Tensor) -> Tensor:
        """(B, H, L, K) → (B, H, N, K), zero where nothing comes from; no copy where nothing changes."""
        if self.gap:
            x = torch.cat([pad(x[:, :, : self.extra], (0, 0, 0, self.gap)), x[:, :, self.extra :]], 2)
        missing = self.whole - x.shape[2]
        return pad(x, (0, 0, 0, missing)) if missing > 0 else x[:, :, : self.whole]

    def collect(self, x: Tensor, tokens: int) -> Tensor:
        """The way back: (B, H, N, K) → (B, H, L, K), zero at positions that `spread` left out."""
        if self.gap:
            x = torch.cat([x[:, :, : self.extra], x[:, :, self.extra + self.gap :]], 2)
        missing = tokens - x.shape[2]
        return pad(x, (0, 0, 0, missing)) if missing > 0 else x[:, :, :tokens]

    def positions(self, device: torch.device) -> Tensor:
        """(N,) the position in the sequence that stands in each place (padding has some number as well)."""
        places = torch.arange(self.whole, device=device)
        return torch.where(places < self.extra + self.gap, places, places - self.gap)

    def padding_bias(self, lengths: tuple[int, ...], like: Tensor) -> Tensor | None:
        """(B, N), 0 at true positions and very negative at padded ones; none where nothing is padded.

        Finite, because a fused kernel may meet a stretch of padded keys before the first true one, and
        exp(-inf + inf) would be NaN there.
        """
        if not self.gap and all(length == self.whole for length in lengths):
            return None
        places = torch.arange(self.whole, device=like.device)
        ends = numbers_on(like.device, lengths)[:, None] + self.gap
        padded = (places >= ends) | ((places >= self.extra) & (places < self.extra + self.gap))
        bias = like.new_zeros(len(lengths), self.whole)
        return bias.masked_fill(padded, torch.finfo(like.dtype).min / 2)


def make_layout(pattern: Pattern, blocks: int) -> Layout:
    """The layout of sequences of `blocks` blocks."""
    extra = pattern.extra_globals
    gap = -extra % pattern.block_size
    return Layout(extra, gap, extra + gap + blocks * pattern.block_size)


@lru_cache(maxsize=512)
@torch.inference_mode(False)  # a plan first made in evaluation must serve training as well
def make_plan(pattern: Pattern, blocks: int, heads: int, layer: int, device: torch.device) -> Plan:
    """The plan for sequences of `blocks` blocks; cached, as it is the same in every step."""
    front = -(-pattern.extra_globals // pattern.block_size)  # blocks of extra globals
    keys = pattern.key_blocks(blocks, heads, layer).astype(np.int64)
    seen = (keys[0] >= 0).sum(axis=1)  # the same for every head
    if pattern.causal:
        keys = _own_block_last(keys, seen)
    keys = np.concatenate([np.broadcast_to(np.arange(front), (heads, blocks, front)), keys + front], axis=2)
    full = np.r_[np.arange(front), pattern.full_rows(blocks) + front].astype(np.int64)
    classes = []
    order = [full]
    for width in np.unique(seen[seen > 0]):
        queries = np.flatnonzero(seen == width)
        order.append(queries + front)
        classes.append(
            QueryClass(
                torch.from_numpy(queries + front).to(device, non_blocking=True),
                torch.from_numpy(keys[:, queries, : front + width]).to(device, non_blocking=True),
            )
        )
    restore = np.argsort(np.concatenate(order))
    return Plan(
        front + blocks,
        torch.from_numpy(full).to(device, non_blocking=True),
        tuple(classes),
        torch.from_numpy(restore).to(device, non_blocking=True),
    )


def _own_block_last(keys: npt.NDArray[np.int64], seen: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Key blocks (H, Q, S) with each row's own block exchanged for its last one."""
    keys = keys.copy()
    rows = np.arange(keys.shape[1])
    for head in keys:
        place = (head == rows[:, None]).argmax(axis=1)
        head[rows, place] = head[rows, seen - 1]
        head[rows, seen - 1] = rows
    return keys
