"""What torch compiles for the flex route: FlexAttention over lists of tiles, and how it is called.

torch compiles one kernel for all lengths, layers and seeds only if nothing else changes between calls: the
layout of memory, autocast, gradient mode. Here it is seen to that they don't.
"""

import inspect
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from torch.nn.functional import pad

from bigbird_dna.attention.call import Call, numbers_on
from bigbird_dna.attention.tiles import Tiles, make_tiles

GRAPHS = 64  # compiled at most; torch counts them and refuses more


class Recipe(NamedTuple):
    """How a kernel is built."""

    size: int  # tokens along a side of a tile
    search: bool  # let torch try many kernels: some of its versions offer none for small tiles otherwise


def run(recipe: Recipe, call: Call, gradients: bool) -> Tensor:
    """Attention by the kernel of `recipe`, (B, H, L, K), compiled at the first call of its kind."""
    tokens, longest = call.q.shape[2], max(call.lengths)
    if longest == 1:  # a lone token attends to itself; torch would compile it anew
        return pad(call.v[:, :, :1], (0, 0, 0, tokens - 1))
    tiles = make_tiles(call, recipe.size, gradients)
    q, k, v = (_plain(x, gradients) for x in call.cut()[:3])
    ends = _ends(call.lengths, q.device)
    with torch.autocast(q.device.type, enabled=False), torch.set_grad_enabled(gradients):
        attend = _compiled(recipe.search)
        out = attend(q, k, v, tiles, ends, str(recipe.size), call.pattern.causal)
    return call.uncut(out)


def _plain(x: Tensor, gradients: bool) -> Tensor:
    """Contiguous and no view of another tensor, on whose shape torch would make the kernel depend."""
    x = x.contiguous()
    if not x._is_view():
        return x
    return x.clone() if gradients else x.data


@lru_cache(maxsize=64)
@torch.inference_mode(False)  # what evaluation makes first must serve training as well
def _ends(lengths: tuple[int, ...], device: torch.device) -> Tensor:
    return numbers_on(device, lengths, torch.int32)


@lru_cache(maxsize=2)
def _compiled(search: bool) -> Callable[..., Tensor]:
    options: dict[str, Any] = {"dynamic": True, "fullgraph": True}
    if search:
        options["options"] = {"max_autotune": True}
    # Where torch can, it counts these graphs apart from other ones; its usual limit is 8.
    if "isolate_recompiles" in inspect.signature(torch.compile).parameters:
        options |= {"isolate_recompiles": True, "recompile_limit": GRAPHS}
    return torch.compile(_attend, **options)


def _attend(q: Tensor, k: Tensor, v: Tensor, tiles: Tiles, ends: Tensor, size: str, causal: bool) -> Tensor:
    """What is compiled. `size` is text because torch would make an integer a variable of the kernel."""
    queries, full_queries = tiles.partial_queries, tiles.full_queries
    block_mask = BlockMask(
        (q.shape[2], k.shape[2]),
        kv_num_blocks=tiles.partial.counts,
        kv_indices=tiles.partial.ids,
        full_kv_num_blocks=tiles.full.counts,
        full_kv_indices=tiles.full.ids,
        q_num_blocks=None if queries is None else queries.counts,
        q_indices=None if queries is None else queries.ids,
        full_q_num_blocks=None if full_queries is None else full_queries.counts,
        full_q_indices=None if full_queries is None else full_queries.ids,
        BLOCK_SIZE=(int(size), int(size)),
        mask_mod=mask_function(tiles, ends, causal),
    )
    out = flex_attention(
        q,
        k,
        v,
        score_function(tiles),
        block_mask,
        kernel_options=_kernel_options(int(size), q.dtype) if q.is_cuda else None,
    )
    assert isinstance(out, Tensor)
    return out


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


def _kernel_options(size: int, dtype: torch.dtype) -> Any:
    """Sides of the squares that a GPU multiplies; they must divide a tile, and torch's own divide 128."""
    options: dict[str, int | bool] = {"FORCE_USE_FLEX_ATTENTION": True}
    if size % 128 == 0:
        return options
    side = min(size & -size, 64)
    options |= {"fwd_BLOCK_M": side, "fwd_BLOCK_N": side}
    if dtype != torch.float32:  # for which torch's gradient kernels take 16
        options |= {f"bwd_BLOCK_{name}": side for name in ("M1", "N1", "M2", "N2")}
    return options
