"""The compiled kernels of the route "flex": FlexAttention over a pattern's tiles, in one part or several.

One kernel for everything needs lists in which each row has room for every tile (`tiles`): their size grows
with the square of the length. Long sequences are computed in parts, whose lists grow linearly:

* the queries that attend to every key, by torch's fused full attention;
* all queries with the keys that every query attends to, and with the other keys of their lists, by a kernel
  each.

The last two are joined: with the log-sum-exps a and b of a query's scores in the two parts, and the outputs x
and y, attention is x + sigmoid(b - a) (y - x). Gradients follow from the derivatives of outputs and
log-sum-exps, which FlexAttention has on GPUs.
"""

import inspect
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import AuxRequest, BlockMask
from torch.nn.attention.flex_attention import flex_attention as torch_flex_attention
from torch.nn.functional import pad, scaled_dot_product_attention

from bigbird_dna.attention.call import Call, numbers_on
from bigbird_dna.attention.tiles import (
    Parts,
    Tiles,
    make_parts,
    make_tiles,
    mask_function,
    score_function,
)

# Axes: B batch, H heads, L input tokens, N tokens of the longest sequence, K head width.

GRAPHS = 64  # maximum number of compiled graphs; torch counts them and compiles no more
STAGES = 3  # of loading, at most: torch's default, or its default for gradients plus 1
RESERVED = 1 << 12  # bytes of shared memory for other data of a kernel


class Recipe(NamedTuple):
    """Build options of a kernel."""

    size: int  # tokens per side of a tile
    search: bool  # let torch try many kernels: without it, some torch versions offer none for small tiles
    parts: bool = False  # compute long sequences in parts


def run(recipe: Recipe, call: Call, gradients: bool) -> Tensor:
    """Attention by the kernel of `recipe`, (B, H, L, K), compiled at the first call of its kind."""
    tokens, longest = call.q.shape[2], max(call.lengths)
    if (
        longest == 1
    ):  # a single token attends to itself; torch would recompile the kernel for it
        return pad(call.v[:, :, :1], (0, 0, 0, tokens - 1))
    q, k, v = (_plain(x, gradients) for x in call.cut()[:3])
    shared = _shared_memory(q.device) if q.is_cuda else None
    build = kernel_build(recipe.size, q.shape[3], q.dtype, shared)
    ends, form = _ends(call.lengths, q.device), (build, call.pattern.causal)
    with (
        torch.autocast(q.device.type, enabled=False),
        torch.set_grad_enabled(gradients),
    ):
        if recipe.parts:
            parts = make_parts(call, recipe.size, gradients)
            joined = compiled_attention(attend_in_parts, recipe.search)
            out = with_full_queries(
                joined(q, k, v, parts, ends, *form), q, k, v, parts, call.lengths
            )
        else:
            tiles = make_tiles(call, recipe.size, gradients)
            out = compiled_attention(attend_at_once, recipe.search)(
                q, k, v, tiles, ends, *form
            )
    return call.uncut(out)


def _plain(x: Tensor, gradients: bool) -> Tensor:
    """A contiguous tensor that is not a view: torch would make the kernel depend on a view's shape."""
    x = x.contiguous()
    if not x._is_view():
        return x
    return x.clone() if gradients else x.data


@lru_cache(maxsize=64)
@torch.inference_mode(
    False
)  # tensors cached during evaluation must also work in training
def _ends(lengths: tuple[int, ...], device: torch.device) -> Tensor:
    return numbers_on(device, lengths, torch.int32)


@lru_cache(maxsize=4)
def compiled_attention(
    attend: Callable[..., Tensor], search: bool
) -> Callable[..., Tensor]:
    """The function compiled for all sizes, with torch's search for the fastest kernel if `search`."""
    options: dict[str, Any] = {"dynamic": True, "fullgraph": True}
    if search:
        options["options"] = {"max_autotune": True}
    # If supported, torch counts these graphs separately from others; its usual limit of 8 is too low
    # for a model whose calls are of several kinds.
    if "isolate_recompiles" in inspect.signature(torch.compile).parameters:
        options |= {"isolate_recompiles": True, "recompile_limit": GRAPHS}
    else:
        dynamo = torch._dynamo.config
        dynamo.recompile_limit = max(dynamo.recompile_limit, GRAPHS)
    return torch.compile(attend, **options)


def attend_at_once(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    tiles: Tiles,
    ends: Tensor,
    build: str,
    causal: bool,
) -> Tensor:
    """The function to compile."""
    out = _over_tiles(q, k, v, tiles, ends, build, causal)
    assert isinstance(out, Tensor)
    return out


def attend_in_parts(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    parts: Parts,
    ends: Tensor,
    build: str,
    causal: bool,
) -> Tensor:
    """The function to compile for long sequences, (B, H, N, K); queries that attend to every key excepted."""
    keys, values = (x.index_select(2, parts.global_keys) for x in (k, v))
    far, far_lse = attend_to_tiles(q, keys, values, parts.far, ends, build, causal)
    near, near_lse = attend_to_tiles(q, k, v, parts.near, ends, build, causal)
    # A query may have no near keys, with a log-sum-exp of -inf: its weight is 0.
    return far + (near - far) * torch.sigmoid(near_lse - far_lse)[..., None].to(
        far.dtype
    )


def with_full_queries(
    out: Tensor, q: Tensor, k: Tensor, v: Tensor, parts: Parts, lengths: tuple[int, ...]
) -> Tensor:
    """The output (B, H, N, K) with that of queries that attend to every key, by full attention."""
    if not len(parts.full_queries):
        return out
    query = q.index_select(2, parts.full_queries)
    if len({*lengths}) == 1:
        full = scaled_dot_product_attention(query, k, v)
    else:  # a mask would exclude the fastest kernel
        rows = [
            scaled_dot_product_attention(
                query[row, None], k[row, None, :, :end], v[row, None, :, :end]
            )
            for row, end in enumerate(lengths)
        ]
        full = torch.cat(rows)
    return out.index_copy(2, parts.full_queries, full.to(out.dtype))


def attend_to_tiles(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    tiles: Tiles,
    ends: Tensor,
    build: str,
    causal: bool,
) -> tuple[Tensor, Tensor]:
    """Output (B, H, N, K) and the scores' log-sum-exps (B, H, N) over the keys in the tiles' lists; 0 and
    -inf for queries without keys."""
    out, more = _over_tiles(
        q, k, v, tiles, ends, build, causal, return_aux=AuxRequest(lse=True)
    )
    return out, more.lse


def _over_tiles(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    tiles: Tiles,
    ends: Tensor,
    build: str,
    causal: bool,
    **results: Any,
) -> Any:
    queries, full_queries = tiles.partial_queries, tiles.full_queries
    size = int(build.split()[0])
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
        BLOCK_SIZE=(size, size),
        mask_mod=mask_function(tiles, ends, causal),
    )
    options = kernel_options(build, q.dtype) if q.is_cuda else None
    return torch_flex_attention(
        q, k, v, score_function(tiles), block_mask, kernel_options=options, **results
    )


@lru_cache(maxsize=8)
def _shared_memory(device: torch.device) -> int:
    """Bytes of a multiprocessor's shared memory that one program of a kernel may use."""
    properties = torch.cuda.get_device_properties(device)
    return int(
        getattr(
            properties,
            "shared_memory_per_block_optin",
            properties.shared_memory_per_block,
        )
    )


def kernel_build(size: int, width: int, dtype: torch.dtype, shared: int | None) -> str:
    """The side of a tile, the side of the matrices that a GPU multiplies, and the stages of loading.

    Text, because torch would make integers variables of the kernel; 0 means torch's default. Matrix sides
    must divide a tile; torch's defaults divide 128. Two matrices with a head's `width`, and two more per
    stage, must fit in `shared` bytes.
    """
    if size % 128 == 0 or shared is None:
        return f"{size} 0 0"
    sides = [side for side in (64, 32, 16) if size % side == 0] or [size & -size]
    builds = [(side, stages) for side in sides for stages in range(STAGES, 0, -1)]
    row = 2 * width * dtype.itemsize
    fits = (
        build
        for build in builds
        if (1 + build[1]) * build[0] * row <= shared - RESERVED
    )
    side, stages = next(fits, builds[-1])
    return f"{size} {side} {0 if stages == STAGES else stages}"


def kernel_options(build: str, dtype: torch.dtype) -> Any:
    """FlexAttention's options for a GPU, from `kernel_build`."""
    _, side, stages = map(int, build.split())
    options: dict[str, int | bool] = {"FORCE_USE_FLEX_ATTENTION": True}
    if side:
        options |= {"fwd_BLOCK_M": side, "fwd_BLOCK_N": side}
        if dtype != torch.float32:  # torch's gradient kernels use 16 for float32
            options |= {f"bwd_BLOCK_{name}": side for name in ("M1", "N1", "M2", "N2")}
    if stages:
        options |= {"fwd_num_stages": stages, "bwd_num_stages": stages}
    return options
