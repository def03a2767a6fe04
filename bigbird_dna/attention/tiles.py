"""A pattern in FlexAttention's format: lists of the tiles that each row of tiles attends to.

A tile is a square of `size` x `size` scores. For every row of tiles, FlexAttention iterates over a list of
full tiles, used unmasked, and a list of partial tiles, to which it applies a mask function per score. If
tiles equal the pattern's blocks, only the last block of a padded sequence and the diagonal blocks of a causal
one are partial. Otherwise (blocks too small or odd for a kernel, or extra global tokens not in whole blocks),
partly visible tiles are also partial, and the mask function looks up each pair of blocks.

The lists are built from the pattern's blocks, never from scores, but torch needs rectangular tensors: heads x
tiles x tiles integers each, because some rows of tiles see every tile and some tiles are seen by every row.
`Parts` separates these, so that the rest has short lists.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from bigbird_dna.attention.call import Call, copied
from bigbird_dna.attention.pattern import Pattern

# Axes: H heads, T tiles of the sequence, N tokens in whole tiles, P places: one for all extra global tokens,
# then one per block.

KEPT_BYTES = 1 << 30  # total bytes over all layers and lengths

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.integer]


class Lists(NamedTuple):
    """For every row of tiles the number of relevant tiles, (G, H, T), and their indices, (G, H, T, T); G is 1
    if all rows of the batch have one graph, else B."""

    counts: Tensor  # int32
    ids: Tensor  # int32, only the first `counts` of each row are valid


class Tiles(NamedTuple):
    """Tensors that describe a pattern to a kernel, on one device.

    `partial` and `full` list key tiles per row of query tiles; `partial_queries` and `full_queries` list the
    reverse, for the gradient. `seen` is set if a partial tile's pairs of places must be looked up. `rows` and
    `columns` are set if some keys count more than once: their product is added to the scores.
    """

    partial: Lists
    full: Lists
    partial_queries: Lists | None
    full_queries: Lists | None
    places: Tensor | None  # (N,) int32
    seen: Tensor | None  # (H, P, P) bool, or (B, H, P, P)
    rows: Tensor | None  # (N,) float32, for queries
    columns: Tensor | None  # (N,) float32, for keys
    keys: Tensor | None = (
        None  # (M,) int32 positions of the keys; None: all keys in order
    )


class Parts(NamedTuple):
    """Tensors that describe a pattern of long sequences to kernels, on one device; their size is linear in
    the length. Tiles are the pattern's blocks."""

    full_queries: Tensor  # (F,) int64 positions of queries that attend to every key
    global_keys: Tensor  # (G,) int32 positions of keys that every query attends to; causal: every later one
    far: Tiles  # of all queries and the global keys
    near: Tiles  # of the other queries and keys


KEPT_TILES: OrderedDict[tuple[object, ...], Tiles | Parts] = OrderedDict()
T = TypeVar("T", Tiles, Parts)


def _kept(make: Callable[..., T], *arguments: object) -> T:
    """Result of `make`, cached within `KEPT_BYTES` of all."""
    key = make, *arguments
    if key in KEPT_TILES:
        KEPT_TILES.move_to_end(key)
        return cast(T, KEPT_TILES[key])
    with torch.inference_mode(
        False
    ):  # tensors cached during evaluation must also work in training
        KEPT_TILES[key] = made = make(*arguments)
    while (
        len(KEPT_TILES) > 1 and sum(map(tile_bytes, KEPT_TILES.values())) > KEPT_BYTES
    ):
        KEPT_TILES.popitem(last=False)
    return made


def make_tiles(call: Call, size: int, gradients: bool) -> Tiles:
    """Return the tiles of a call, with sides of `size` tokens, without padding common to all rows;
    `gradients` adds the reverse lists. Tiles are cached, because every step reuses them.

    Key tiles past the end of the shortest row are partial, so the mask function can decide by row, unless
    causality hides padding anyway. Rows with different numbers of blocks have different graphs; each row then
    has its own lists, assembled from cached ones.
    """
    pattern, lengths, tokens = call.pattern, call.lengths, call.q.shape[2]
    blocks = [pattern.graph_blocks(length, tokens) for length in lengths]
    most, longest = max(blocks), max(lengths)
    tiles = -(-longest // size)

    def make(blocks: int, shortest: int, longest_row: int) -> Tiles:
        # Where no true query meets padding, all tiles are unmasked.
        hidden = pattern.causal or shortest == longest
        unpadded = tiles if hidden else shortest // size
        sizes = blocks, most, size, tiles, -(-longest_row // size), unpadded
        heads, device = call.q.shape[1], call.q.device
        return _kept(_make, pattern, sizes, heads, call.layer, gradients, device)

    if len({*blocks}) == 1:
        return make(most, min(lengths), longest)
    rows = zip(blocks, lengths, strict=True)
    return _stacked([make(count, length, length) for count, length in rows])


def _stacked(rows: list[Tiles]) -> Tiles:
    """Combine the tiles of rows, all of the same sizes, into those of a batch."""

    def stack(lists: list[Lists | None]) -> Lists | None:
        present = [of_row for of_row in lists if of_row is not None]
        if not present:
            return None
        return Lists(
            torch.cat([of_row.counts for of_row in present]),
            torch.cat([of_row.ids for of_row in present]),
        )

    partial = stack([row.partial for row in rows])
    full = stack([row.full for row in rows])
    assert partial is not None and full is not None
    seen = [row.seen for row in rows if row.seen is not None]
    return rows[0]._replace(
        partial=partial,
        full=full,
        partial_queries=stack([row.partial_queries for row in rows]),
        full_queries=stack([row.full_queries for row in rows]),
        seen=torch.stack(seen) if seen else None,
    )


def mask_function(
    tiles: Tiles, ends: Tensor, causal: bool
) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
    """Mask of scores in partial tiles, by batch row, head, query and key; `ends` is (B,)."""
    places, seen, keys = tiles.places, tiles.seen, tiles.keys

    def mask(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        # A true query of a causal sequence never meets padding.
        place = key if keys is None else keys[key]
        counts = place <= query if causal else place < ends[row]
        if places is not None and seen is not None:
            pair = head, places[query], places[key]
            counts = counts & (seen[row, *pair] if seen.dim() == 4 else seen[pair])
        return counts

    return mask


def score_function(
    tiles: Tiles,
) -> Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor] | None:
    """Function applied to each score of a tile; None if scores stay unchanged."""
    rows, columns = tiles.rows, tiles.columns
    if rows is None or columns is None:
        return None

    def weighted(
        score: Tensor, row: Tensor, head: Tensor, query: Tensor, key: Tensor
    ) -> Tensor:
        return score + rows[query] * columns[key]

    return weighted


def list_bytes(heads: int, tokens: int, size: int) -> int:
    """Bytes of one list."""
    return 4 * heads * int(-(-tokens // size)) ** 2


def aligned(pattern: Pattern, size: int) -> bool:
    """Whether tiles of this size equal the pattern's blocks."""
    return size == pattern.block_size and pattern.num_global_tokens % size == 0


def _make(
    pattern: Pattern,
    sizes: tuple[int, int, int, int, int, int],
    heads: int,
    layer: int,
    gradients: bool,
    device: torch.device,
) -> Tiles:
    """The tiles of rows with a graph of `blocks` blocks, in a batch whose largest graph has `most`.

    `sizes` are `blocks`, `most`, tokens per side of a tile, tiles of the longest row of the batch, tiles that
    contain a token of these rows, and tiles without padding in any of them.
    """
    blocks, most, size, tiles, real, unpadded = sizes
    seen = np.ones((heads, blocks + 1, blocks + 1), dtype=bool)
    seen[:, 1:, 1:] = pattern.block_mask(blocks, heads, layer)
    # Tokens past the graph's last block are never read; they can use any place with the same visibility.
    seen = np.pad(seen, ((0, 0), (0, most - blocks), (0, most - blocks)), mode="edge")
    tiles = max(2, tiles)  # torch would compile a separate kernel for a single tile
    inner = np.arange(tiles * size) - pattern.num_global_tokens
    places = np.where(inner < 0, 0, np.minimum(1 + inner // pattern.block_size, most))
    partial, full = _sorted(seen, places, size)
    if pattern.causal:
        past = np.tri(tiles, k=-1, dtype=bool)
        partial = (partial & past) | ((partial | full) & np.eye(tiles, dtype=bool))
        full = full & past
    partial[:, :, unpadded:] |= full[:, :, unpadded:]
    full[:, :, unpadded:] = False
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
        return None if array is None else copied(torch.from_numpy(array), device)

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


def _sorted(
    seen: Bools, places: npt.NDArray[np.int64], size: int
) -> tuple[Bools, Bools]:
    """Which tiles (H, T, T) are partly visible, and which fully; `seen` is (H, P, P)."""
    first, last = places[::size], places[size - 1 :: size] + 1
    heads, width = seen.shape[:2]
    total = np.zeros((heads, width + 1, width + 1), dtype=np.int32)
    total[:, 1:, 1:] = seen.cumsum(axis=1, dtype=np.int32).cumsum(
        axis=2, dtype=np.int32
    )
    rows = total[:, last] - total[:, first]  # (H, T, P + 1)
    inside = (
        rows[:, :, last] - rows[:, :, first]
    )  # (H, T, T), number of visible pairs of places
    span = last - first
    full: Bools = inside == span[:, None] * span
    partial: Bools = (inside > 0) & ~full
    return partial, full


def _listed(mask: Bools, device: torch.device) -> Lists:
    mask = np.ascontiguousarray(
        mask
    )  # the lists are then contiguous too, as the kernels require
    counts = mask.sum(axis=2, dtype=np.int32)
    # A stable sort on "unseen" puts the visible tiles first, in ascending order.
    ids = np.argsort(~mask, axis=2, kind="stable").astype(np.int32)
    counted, listed = (copied(torch.from_numpy(x)[None], device) for x in (counts, ids))
    return Lists(counted, listed)


def make_parts(call: Call, size: int, gradients: bool) -> Parts:
    """Return the parts of a call whose sequences have the same number of blocks, of `size` tokens each, and
    neither extra global tokens nor HuggingFace arithmetic; arguments otherwise as for `make_tiles`."""
    ends = max(call.lengths), min(call.lengths)
    return _kept(
        _make_parts,
        call.pattern,
        *ends,
        call.q.shape[1],
        call.layer,
        gradients,
        call.q.device,
    )


def _make_parts(
    pattern: Pattern,
    longest: int,
    shortest: int,
    heads: int,
    layer: int,
    gradients: bool,
    device: torch.device,
) -> Parts:
    size, blocks = pattern.block_size, pattern.blocks(longest)
    everywhere, full = pattern.global_ids(blocks), pattern.full_rows(blocks)
    keys = np.sort(pattern.key_blocks(blocks, heads, layer), axis=2)
    head, row, _ = np.nonzero(keys >= 0)
    near = np.stack([head, row, keys[keys >= 0]], axis=1)
    near = near[~np.isin(near[:, 2], everywhere)]
    row, rank = np.indices((blocks, len(everywhere))).reshape(2, -1)
    far = np.stack([np.zeros_like(row), row, rank], axis=1)
    if pattern.causal:
        far = far[everywhere[rank] <= row]

    def tiled(
        pairs: Ints, heads: int, columns: Ints, widths: tuple[int | None, int | None]
    ) -> Tiles:
        """Tiles of pairs (P, 3) of head, row and index of the column; lists of `widths`, or as needed."""
        key = columns[pairs[:, 2]]
        masked = key == pairs[:, 1] if pattern.causal else (key + 1) * size > shortest
        both = pairs[masked], pairs[~masked]
        queries: tuple[Lists | None, Lists | None] = None, None
        if gradients:
            reverse = [of[:, [0, 2, 1]] for of in both]
            queries = _short_lists(reverse, (heads, len(columns)), widths[1], device)
        keys = _short_lists(both, (heads, blocks), widths[0], device)
        return Tiles(*keys, *queries, None, None, None, None)

    def positions(blocks: Ints) -> Tensor:
        places = (blocks[:, None] * size + np.arange(size)).ravel()
        return copied(
            torch.from_numpy(places[places < longest].astype(np.int32)), device
        )

    global_keys = positions(everywhere)
    return Parts(
        positions(full).long(),
        global_keys,
        tiled(far, 1, everywhere, (len(everywhere) + 1, blocks + 1))._replace(
            keys=global_keys
        ),
        tiled(near, heads, np.arange(blocks), (None, None)),
    )


def _short_lists(
    both: Sequence[Ints],
    shape: tuple[int, int],
    width: int | None,
    device: torch.device,
) -> tuple[Lists, Lists]:
    """Lists of pairs (P, 3) of head, row and column, once for partial and once for full tiles.

    torch would compile a kernel again for sizes that become equal, or are no longer equal. The usual width is
    one of few odd numbers, the same for both lists and most layers, and by chance equal to no other size.
    """
    heads, rows = shape
    places = [of[:, 0].astype(np.int64) * rows + of[:, 1] for of in both]
    counts = [np.bincount(place, minlength=heads * rows) for place in places]
    if width is None:
        most = max(int(count.max(initial=0)) for count in counts)
        width = (1 << max(most - 1, 2).bit_length()) + 1
    made = []
    for of, place, count in zip(both, places, counts, strict=True):
        order = np.lexsort((of[:, 2], place))
        rank = np.arange(len(of)) - (np.cumsum(count) - count)[place[order]]
        ids = np.zeros((heads * rows, width), dtype=np.int32)
        ids[place[order], rank] = of[order, 2]
        arrays = (
            count.reshape(1, heads, rows).astype(np.int32),
            ids.reshape(1, heads, rows, width),
        )
        made.append(Lists(*(copied(torch.from_numpy(x), device) for x in arrays)))
    return made[0], made[1]


def tile_bytes(tiles: Tiles | Parts) -> int:
    """Bytes of all tensors."""
    return sum(x.nbytes for x in tree_leaves(tiles) if isinstance(x, Tensor))
