"""A pattern as FlexAttention reads it: lists of the tiles that each row of tiles sees.

A tile is a square of `size` x `size` scores. FlexAttention walks, for every row of tiles, a list of full
tiles, which it takes as they are, and one of partial tiles, to which it applies a mask function by score.
Where tiles are the pattern's blocks, only the last block of a padded sequence and a causal block's
triangle are partial. Where they aren't (blocks too small or odd for a kernel, extra globals that are no whole
blocks), tiles that are seen in part are partial too, and the mask function looks each pair of blocks up.

The lists are built from the pattern's blocks, never from scores, but they are rectangles, as torch wants
them: heads x tiles x tiles integers each.
"""

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bigbird_dna.attention.call import Call
from bigbird_dna.attention.pattern import Pattern

# Axes: H heads, T tiles of the sequence, N tokens in whole tiles, P places: one for all extra globals, then
# one for each block.

KEPT_BYTES = 1 << 30  # of lists, over all layers and lengths

Bools = npt.NDArray[np.bool_]


class Lists(NamedTuple):
    """For every row of tiles how many tiles it has to do with, (G, H, T), and which, (G, H, T, T); G is 1
    where all rows of the batch have one graph, else B."""

    counts: Tensor  # int32
    ids: Tensor  # int32, the first `counts` of each row hold


class Tiles(NamedTuple):
    """What a kernel needs to know of a pattern, on one device.

    `partial` and `full` list key tiles for each row of query tiles; `partial_queries` and `full_queries` the
    reverse, for the gradient. `seen` is given if a partial tile's pairs of places must be looked up;
    `rows` and `columns` if some keys count more than once: their product is added to the scores.
    """

    partial: Lists
    full: Lists
    partial_queries: Lists | None
    full_queries: Lists | None
    places: Tensor | None  # (N,) int32
    seen: Tensor | None  # (H, P, P) bool, or (B, H, P, P)
    rows: Tensor | None  # (N,) float32, of queries
    columns: Tensor | None  # (N,) float32, of keys


KEPT_TILES: OrderedDict[tuple[object, ...], Tiles] = OrderedDict()


def make_tiles(call: Call, size: int, gradients: bool) -> Tiles:
    """The tiles of a call, `size` tokens a side, without the padding that all rows have, and with `gradients`
    the reverse lists; kept, as they are the same in every step.

    Key tiles past the end of the shortest row are partial (unless causality hides padding anyway), so that
    the mask function can decide by row. Rows of different numbers of blocks have different graphs: then each
    row has lists of its own, put together from those that are kept.
    """
    pattern, lengths, tokens = call.pattern, call.lengths, call.q.shape[2]
    blocks = [pattern.graph_blocks(length, tokens) for length in lengths]
    most, tiles = max(blocks), -(-max(lengths) // size)

    def made(blocks: int, shortest: int, longest: int) -> Tiles:
        hidden = pattern.causal or shortest == max(lengths)  # no true query meets padding
        whole = tiles if hidden else shortest // size
        sizes = _Sizes(blocks, most, size, tiles, -(-longest // size), whole)
        key = (pattern, sizes, call.q.shape[1], call.layer, gradients, call.q.device)
        if key in KEPT_TILES:
            KEPT_TILES.move_to_end(key)
            return KEPT_TILES[key]
        # What evaluation makes first must serve training as well.
        with torch.inference_mode(False):
            KEPT_TILES[key] = new = _make(*key)
        while len(KEPT_TILES) > 1 and sum(map(tile_bytes, KEPT_TILES.values())) > KEPT_BYTES:
            KEPT_TILES.popitem(last=False)
        return new

    if len({*blocks}) == 1:
        return made(most, min(lengths), max(lengths))
    return _stacked([made(own, length, length) for own, length in zip(blocks, lengths, strict=True)])


class _Sizes(NamedTuple):
    """Of the tiles of some rows of a batch."""

    blocks: int  # of their graph
    most: int  # blocks of any row's
    side: int  # tokens along a side of a tile
    tiles: int  # of the longest row of the batch
    real: int  # tiles that have a token of theirs
    whole: int  # tiles that have no padding in any of them


def _stacked(rows: list[Tiles]) -> Tiles:
    """One batch's tiles of those of its rows, all of the same sizes."""

    def joined(parts: list[Lists | None]) -> Lists | None:
        given = [part for part in parts if part is not None]
        return Lists(*(torch.cat(tensors) for tensors in zip(*given, strict=True))) if given else None

    partial, full = joined([row.partial for row in rows]), joined([row.full for row in rows])
    assert partial is not None and full is not None
    seen = [row.seen for row in rows if row.seen is not None]
    return rows[0]._replace(
        partial=partial,
        full=full,
        partial_queries=joined([row.partial_queries for row in rows]),
        full_queries=joined([row.full_queries for row in rows]),
        seen=torch.stack(seen) if seen else None,
    )


def mask_function(
    tiles: Tiles, ends: Tensor, causal: bool
) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
    """Which scores of a partial tile count, by row of the batch, head, query and key; `ends` is (B,)."""
    places, seen = tiles.places, tiles.seen

    def mask(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        # A true query of a causal sequence never meets padding.
        counts = key <= query if causal else key < ends[row]
        if places is not None and seen is not None:
            pair = head, places[query], places[key]
            counts = counts & (seen[row, *pair] if seen.dim() == 4 else seen[pair])
        return counts

    return mask


def score_function(tiles: Tiles) -> Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor] | None:
    """What is done to each score of a tile that is seen; none: nothing."""
    rows, columns = tiles.rows, tiles.columns
    if rows is None or columns is None:
        return None

    def weighted(score: Tensor, row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return score + rows[query] * columns[key]

    return weighted


def list_bytes(heads: int, tokens: int, size: int) -> int:
    """Bytes of one list."""
    return 4 * heads * int(-(-tokens // size)) ** 2


def aligned(pattern: Pattern, size: int) -> bool:
    """Whether tiles of this size are the pattern's blocks."""
    return size == pattern.block_size and pattern.num_global_tokens % size == 0


def _make(
    pattern: Pattern, sizes: _Sizes, heads: int, layer: int, gradients: bool, device: torch.device
) -> Tiles:
    blocks, most, size, tiles, real, whole = sizes
    seen = np.ones((heads, blocks + 1, blocks + 1), dtype=bool)
    seen[:, 1:, 1:] = pattern.block_mask(blocks, heads, layer)
    # Tokens past the graph's last block are never read; any place will do, as that they see what it sees.
    seen = np.pad(seen, ((0, 0), (0, most - blocks), (0, most - blocks)), mode="edge")
    tiles = max(2, tiles)  # torch would compile a lone tile anew
    inner = np.arange(tiles * size) - pattern.num_global_tokens
    places = np.where(inner < 0, 0, np.minimum(1 + inner // pattern.block_size, most))
    partial, full = _sorted(seen, places, size)
    if pattern.causal:
        past = np.tri(tiles, k=-1, dtype=bool)
        partial = (partial & past) | ((partial | full) & np.eye(tiles, dtype=bool))
        full = full & past
    partial[:, :, whole:] |= full[:, :, whole:]
    full[:, :, whole:] = False
    for tiled in (partial, full):
        tiled[:, :, real:] = tiled[:, real:] = False
    rows = columns = None
    if pattern.first_block_count > 1:
        often = np.ones(most + 1, dtype=bool)
        often[0] = often[1 + pattern.full_rows(blocks)] = False
        rows = often[places] * np.float32(math.log(pattern.first_block_count))
        columns = (places == 1).astype(np.float32)
    exact = aligned(pattern, size)

    def moved(array: npt.NDArray[np.generic] | None) -> Tensor | None:
        return None if array is None else torch.from_numpy(array).to(device, non_blocking=True)

    return Tiles(
        _listed(partial, device),
        _listed(full, device),
        _listed(partial.swapaxes(1, 2), device) if gradients else None,
        _listed(full.swapaxes(1, 2), device) if gradients else None,
        None if exact else moved(places.astype(np.int32)),
        None if exact else moved(seen),
        moved(rows),
        moved(columns),
    )


def _sorted(seen: Bools, places: npt.NDArray[np.int64], size: int) -> tuple[Bools, Bools]:
    """Which tiles (H, T, T) are seen in part, and which as a whole; `seen` is (H, P, P)."""
    first, last = places[::size], places[size - 1 :: size] + 1
    heads, width = seen.shape[:2]
    total = np.zeros((heads, width + 1, width + 1), dtype=np.int32)
    total[:, 1:, 1:] = seen.cumsum(axis=1, dtype=np.int32).cumsum(axis=2, dtype=np.int32)
    rows = total[:, last] - total[:, first]  # (H, T, P + 1)
    inside = rows[:, :, last] - rows[:, :, first]  # (H, T, T), pairs of places seen
    span = last - first
    full: Bools = inside == span[:, None] * span
    partial: Bools = (inside > 0) & ~full
    return partial, full


def _listed(mask: Bools, device: torch.device) -> Lists:
    mask = np.ascontiguousarray(mask)  # so are the lists then, and the kernels take it for granted
    counts = mask.sum(axis=2, dtype=np.int32)
    # A stable sort on "unseen" puts the seen tiles first, in ascending order.
    ids = np.argsort(~mask, axis=2, kind="stable").astype(np.int32)
    counted, listed = (torch.from_numpy(x)[None].to(device, non_blocking=True) for x in (counts, ids))
    return Lists(counted, listed)


def tile_bytes(tiles: Tiles) -> int:
    lists = (tiles.partial, tiles.full, tiles.partial_queries, tiles.full_queries)
    return sum(made.counts.nbytes + made.ids.nbytes for made in lists if made is not None)
