"""The route through torch's FlexAttention: one fused kernel that iterates over the pattern's blocks.

On a GPU it serves training and inference, on a CPU inference only. The kernel is compiled at the first call
of each kind (seconds to a minute), for all lengths, layers and seeds at once. torch compiles one kernel for
all of these only if nothing else changes between calls: memory layout, autocast and gradient mode. Before
its first use, a kernel's outputs, and gradients if needed, are compared with another route on sequences as
long as that call's, for which torch also tunes the kernel. If compilation or the test fails, the route
reports the reason and is not used.

A kernel computes scores in square tiles. For every row of tiles it reads which tiles to compute: full tiles
without a mask, partial tiles with one. Usually a tile is a block of the pattern, and only tiles with padding
or the diagonal of a causal pattern are partial. If tiles differ from blocks (block sizes unsuitable for the
kernel, or extra global tokens not in whole blocks), partly visible tiles are also partial, and the mask looks
up each pair of blocks. The lists are built from the pattern, never from scores. They are rectangles of heads
x tiles x tiles integers, because some rows of tiles see every tile.
"""

import inspect
import logging
import math
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.attention.flex_attention import BlockMask
from torch.nn.attention.flex_attention import flex_attention as torch_flex_attention
from torch.nn.functional import pad

from bigbird_dna.attention.blocked import blocked_attention
from bigbird_dna.attention.call import Call, copied, dense_attention, numbers_on
from bigbird_dna.attention.pattern import Pattern

# Axes: B batch, H heads, T tiles of the sequence, N tokens in whole tiles, P places: one for all extra global
# tokens, then one per block.

Bools = npt.NDArray[np.bool_]

LIST_BYTES = 64 << 20  # of one list of tiles; a layer has two lists, in training four
CACHED_BYTES = 1 << 30  # of all lists, over layers and lengths
TEST_TOKENS = 1 << 14  # of the longest test
DENSE_TOKENS = 2048  # longer tests compare with the blocked route: dense scores would exhaust memory
# Largest deviation that a test accepts, relative to the largest value.
TOLERANCE = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}
TOLERANCE_TF32 = 1e-2
GRAPHS = 64  # maximum number of compiled graphs; torch counts them and compiles no more
STAGES = 3  # of loading, at most: torch's default, or its default for gradients plus 1
RESERVED = 1 << 12  # bytes of shared memory for other data of a kernel


class Recipe(NamedTuple):
    """Build options of a kernel."""

    size: int  # tokens per side of a tile
    search: bool  # let torch try many kernels: some versions offer none for small tiles otherwise


TESTED: dict[tuple[object, ...], Recipe | str] = {}
"""The recipe for each kind of call, or the reason why there is none."""
_testing = threading.Lock()


def unavailable(call: Call) -> str | None:
    """Why this route cannot serve the call, or None; the first call of a kind tests the kernel."""
    q, pattern = call.q, call.pattern
    reason = call.find_limit("flex", TOLERANCE)
    if reason is not None:
        return reason
    size = possible_recipes(pattern, q.device.type, False)[0].size
    lists = 4 * q.shape[0] * q.shape[1] * (-(-q.shape[2] // size)) ** 2
    if lists > LIST_BYTES:
        return f"flex would need lists of {lists >> 20} MiB for {q.shape[2]} tokens"
    if q.device.type == "cpu":
        if call.gradients:
            return "flex does not support gradients on a CPU"
        if pattern.num_global_tokens % pattern.block_size:
            # torch generates C++ for the lookup that does not compile
            return "flex on a CPU needs num_global_tokens in whole blocks"
    elif q.device.type == "cuda":
        if find_spec("triton") is None:
            return "flex needs triton"
        capability = torch.cuda.get_device_capability(q.device)
        if capability < ((8, 0) if q.dtype == torch.bfloat16 else (7, 0)):
            return (
                f"flex needs a newer GPU; this one has compute capability {capability}"
            )
        if q.shape[3] < 16:
            return f"flex needs a head width of at least 16, not {q.shape[3]}"
    else:
        return f"flex is not used on {q.device.type}"
    recipe = find_recipe(call)
    return recipe if isinstance(recipe, str) else None


def flex_attention(call: Call) -> Tensor:
    """Attention by a compiled kernel, (B, H, L, K); `RuntimeError` if the kernel failed its test."""
    recipe = find_recipe(call)
    if isinstance(recipe, str):
        raise RuntimeError(f"the flex route is not available: {recipe}")
    return run(recipe, call, call.gradients)


def possible_recipes(
    pattern: Pattern, device: str, gradients: bool
) -> tuple[Recipe, ...]:
    """Possible build options of a kernel, the best first."""
    size = pattern.block_size
    # A GPU multiplies tiles whose side is a power of two from 16 up; a CPU accepts any size.
    unaligned = size & -size < 16 or pattern.num_global_tokens % size
    if device == "cuda" and unaligned:
        size = 64
    if not gradients or size % 128 == 0:
        return (Recipe(size, False),)
    # For some GPUs, some torch versions offer only gradient kernels of 128 tokens, regardless of the request.
    return Recipe(size, False), Recipe(size, True), Recipe(128, False)


def find_recipe(call: Call) -> Recipe | str:
    """The first recipe that passes its test, or the reason why the first one fails; once per kind of call."""
    q, gradients = call.q, call.gradients
    # Sizes and seeds other than these are variables of the kernel.
    pattern = replace(
        call.pattern, global_blocks=2, window_blocks=3, random_blocks=1, seed=0
    )
    kind = (
        q.device,
        q.dtype,
        q.shape[1],
        q.shape[3],
        q.shape[0] == 1,  # torch compiles a separate kernel for a batch of one row
        gradients,
        q.is_inference(),
        torch.get_num_threads() if q.is_cpu else 0,
        pattern,
    )
    with _testing:
        if kind not in TESTED:
            failures = []
            for recipe in possible_recipes(pattern, q.device.type, gradients):
                failure = find_failure(recipe, call._replace(pattern=pattern))
                if failure is None:
                    TESTED[kind] = recipe
                    break
                failures.append(failure)
            else:
                TESTED[kind] = failures[0]
        return TESTED[kind]


def find_failure(recipe: Recipe, call: Call) -> str | None:
    """Failure of a kernel on random sequences like the call's, with padding and a partial block, or None."""
    q, pattern, gradients = call.q, call.pattern, call.gradients
    size, extra = pattern.block_size, pattern.num_global_tokens
    # torch compiles a separate kernel for fewer than 128 queries.
    fewest = max(8, 160 // size)
    blocks = max(fewest, (min(q.shape[2], TEST_TOKENS) - extra) // size)
    longest = extra + blocks * size + size // 2 + 1
    lengths: tuple[int, ...] = (longest,)
    if q.shape[0] > 1:
        # torch would take the number of rows for that of heads if both were 2.
        lengths = (longest - size,) + (longest,) * (2 if q.shape[1] == 2 else 1)
    shape = len(lengths), q.shape[1], longest, q.shape[3]
    generator = torch.Generator().manual_seed(0)
    tensors = [
        torch.randn(shape, generator=generator, device="cpu").to(q.device, q.dtype)
        for _ in range(4)
    ]

    def with_gradients(
        attend: Callable[[Call], Tensor], dtype: torch.dtype
    ) -> list[Tensor]:
        """The output, and if needed the gradients of q, k and v."""
        q, k, v, upper = (x.detach().to(dtype, copy=True) for x in tensors)
        for leaf in (q, k, v):
            leaf.requires_grad_(gradients)
        out = attend(Call(q, k, v, pattern, lengths))
        if not gradients:
            return [out]
        return [out.detach(), *torch.autograd.grad(out, (q, k, v), upper)]

    def reference(call: Call) -> Tensor:
        if longest <= DENSE_TOKENS:
            return dense_attention(call)
        rows = range(len(lengths))
        return torch.cat([blocked_attention(call.take([row])) for row in rows])

    disabled = logging.root.manager.disable
    # torch logs hundreds of lines for a kernel that cannot be compiled. Autocast would compute the reference
    # in half precision. With gradient checkpointing, the saved tensors of the test would be taken for those
    # of the first layer.
    logging.disable(logging.WARNING)
    try:
        with (
            torch.autocast(q.device.type, enabled=False),
            saved_tensors_hooks(lambda x: x, lambda x: x),
            torch.inference_mode(q.is_inference()),
            torch.set_grad_enabled(gradients),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            results = with_gradients(lambda x: run(recipe, x, gradients), q.dtype)
            expected = with_gradients(reference, torch.float32)
    except Exception as error:  # compilation errors have many classes
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = lines[0] if lines else "no message"
        return f"flex failed to compile: {type(error).__name__}: {reason}"
    finally:
        logging.disable(disabled)
    tolerance = TOLERANCE[q.dtype]
    if q.is_cuda:
        tolerance = max(tolerance, TOLERANCE_TF32)
    names = ("output", "gradient of q", "gradient of k", "gradient of v")
    for name, result, exact in zip(names, results, expected, strict=False):
        deviation = ((result.float() - exact).abs().max() / exact.abs().max()).item()
        if not deviation <= tolerance:  # also true for NaN
            return (
                f"{name} differs from the reference by {deviation:.1e} on this machine"
            )
    return None


# ---- the kernel ------------------------------------------------------------------------------------------


def run(recipe: Recipe, call: Call, gradients: bool) -> Tensor:
    """Attention by the kernel of `recipe`, (B, H, L, K), compiled at the first call of its kind."""
    tokens, longest = call.q.shape[2], max(call.lengths)
    if longest == 1:  # torch would compile the kernel again for a single token
        return pad(call.v[:, :, :1], (0, 0, 0, tokens - 1))
    vectors = []
    for x in call.cut()[:3]:
        x = x.contiguous()
        if x._is_view():  # torch would make the kernel depend on a view's shape
            x = x.clone() if gradients else x.data
        vectors.append(x)
    q = vectors[0]
    shared = None
    if q.is_cuda:
        properties = torch.cuda.get_device_properties(q.device)
        usual = properties.shared_memory_per_block
        shared = int(getattr(properties, "shared_memory_per_block_optin", usual))
    build = kernel_build(recipe.size, q.shape[3], q.dtype, shared)
    with (
        torch.autocast(q.device.type, enabled=False),
        torch.set_grad_enabled(gradients),
    ):
        tiles = make_tiles(call, recipe.size, gradients)
        ends = numbers_on(q.device, call.lengths, torch.int32)
        attend = compiled_attention(recipe.search)
        out = attend(*vectors, tiles, ends, build, call.pattern.causal)
    return call.uncut(out)


@lru_cache(maxsize=2)
def compiled_attention(search: bool) -> Callable[..., Tensor]:
    """`attend_to_tiles` compiled for all sizes, with torch's search for the fastest kernel if `search`."""
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
    return torch.compile(attend_to_tiles, **options)


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
    for side, stages in builds:
        if (1 + stages) * side * row <= shared - RESERVED:
            break
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


# ---- tiles of a pattern ----------------------------------------------------------------------------------


class Tiles(NamedTuple):
    """Tensors that describe a pattern to a kernel, on one device.

    `lists` are pairs: for every row of tiles the number of relevant tiles (B, H, T), and their indices
    (B, H, T, T), of which only the first are valid. The first pairs are the partial and the full key tiles of
    query tiles, and two more the reverse, for gradients. `places` and `seen` are set if pairs of places in
    partial tiles must be looked up. `rows` and `columns` are set if some keys count more than once: their
    product is added to the scores.
    """

    lists: tuple[Tensor, ...]  # int32
    places: Tensor | None  # (N,) int32
    seen: Tensor | None  # (B, H, P, P) bool
    rows: Tensor | None  # (N,) float32, for queries
    columns: Tensor | None  # (N,) float32, for keys


def attend_to_tiles(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    tiles: Tiles,
    ends: Tensor,
    build: str,
    causal: bool,
) -> Tensor:
    """The function to compile; `ends` (B,) are the lengths of the sequences."""
    places, seen, rows, columns = tiles[1:]

    def mask(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        # A true query of a causal sequence never meets padding.
        visible = key <= query if causal else key < ends[row]
        if places is not None and seen is not None:
            visible = visible & seen[row, head, places[query], places[key]]
        return visible

    def weighted(
        score: Tensor, row: Tensor, head: Tensor, query: Tensor, key: Tensor
    ) -> Tensor:
        return score + rows[query] * columns[key]  # type: ignore[index]

    reverse: Any = tiles.lists[4:] or [None] * 4
    size = int(build.split()[0])
    block_mask = BlockMask(
        (q.shape[2], k.shape[2]),
        kv_num_blocks=tiles.lists[0],
        kv_indices=tiles.lists[1],
        full_kv_num_blocks=tiles.lists[2],
        full_kv_indices=tiles.lists[3],
        q_num_blocks=reverse[0],
        q_indices=reverse[1],
        full_q_num_blocks=reverse[2],
        full_q_indices=reverse[3],
        BLOCK_SIZE=(size, size),
        mask_mod=mask,
    )
    out = torch_flex_attention(
        q,
        k,
        v,
        None if rows is None else weighted,
        block_mask,
        kernel_options=kernel_options(build, q.dtype) if q.is_cuda else None,
    )
    assert isinstance(out, Tensor)
    return out


_cached: OrderedDict[tuple[object, ...], Tiles] = OrderedDict()


def make_tiles(call: Call, size: int, gradients: bool) -> Tiles:
    """Return the tiles of a call, with sides of `size` tokens, without padding common to all rows.

    `gradients` adds the reverse lists. Each row of the batch has its own lists, which are cached, because
    every step reuses them.
    """
    pattern, lengths = call.pattern, call.lengths
    heads, tokens = call.q.shape[1:3]
    blocks = [pattern.graph_blocks(length, tokens) for length in lengths]
    longest = max(lengths)
    tiles = -(-longest // size)
    rows = []
    for length, count in zip(lengths, blocks, strict=True):
        # Where no true query meets padding, all tiles are unmasked.
        hidden = pattern.causal or length == longest
        unpadded = tiles if hidden else length // size
        sizes = count, max(blocks), size, tiles, -(-length // size), unpadded
        key = (pattern, sizes, heads, call.layer, gradients, call.q.device)
        if key not in _cached:
            # Tensors cached in evaluation must also work in training.
            with torch.inference_mode(False):
                _cached[key] = row_tiles(*key)
        _cached.move_to_end(key)
        rows.append(_cached[key])
    while len(_cached) > 1:
        lists = [x for row in _cached.values() for x in row.lists]
        if sum(x.nbytes for x in lists) <= CACHED_BYTES:
            break
        _cached.popitem(last=False)
    if len(rows) == 1:
        return rows[0]
    lists = [
        torch.cat(parts) for parts in zip(*(row.lists for row in rows), strict=True)
    ]
    seen = [row.seen for row in rows if row.seen is not None]
    return rows[0]._replace(lists=tuple(lists), seen=torch.cat(seen) if seen else None)


def row_tiles(
    pattern: Pattern,
    sizes: tuple[int, int, int, int, int, int],
    heads: int,
    layer: int,
    gradients: bool,
    device: torch.device,
) -> Tiles:
    """The tiles of a sequence with a graph of `blocks` blocks, in a batch whose largest graph has `most`.

    `sizes` are `blocks`, `most`, tokens per side of a tile, tiles of the longest row of the batch, tiles that
    contain a token of this row, and tiles without its padding.
    """
    blocks, most, size, tiles, real, unpadded = sizes
    seen = np.ones((heads, blocks + 1, blocks + 1), dtype=bool)
    seen[:, 1:, 1:] = pattern.block_mask(blocks, heads, layer)
    # Tokens past the graph's last block are never read; they can use any place with the same visibility.
    seen = np.pad(seen, ((0, 0), (0, most - blocks), (0, most - blocks)), mode="edge")
    tiles = max(2, tiles)  # torch would compile a separate kernel for a single tile
    inner = np.arange(tiles * size) - pattern.num_global_tokens
    places = np.where(inner < 0, 0, np.minimum(1 + inner // pattern.block_size, most))

    # The number of visible pairs of places in each tile, (H, T, T), from cumulative sums.
    first, last = places[::size], places[size - 1 :: size] + 1
    total = np.zeros((heads, most + 2, most + 2), dtype=np.int32)
    total[:, 1:, 1:] = seen.cumsum(axis=1).cumsum(axis=2)
    pairs = total[:, last] - total[:, first]  # (H, T, P + 1)
    pairs = pairs[:, :, last] - pairs[:, :, first]
    span = last - first
    full: Bools = pairs == span[:, None] * span
    partial: Bools = (pairs > 0) & ~full

    if pattern.causal:
        past = np.tri(tiles, k=-1, dtype=bool)
        partial = (partial & past) | ((partial | full) & np.eye(tiles, dtype=bool))
        full = full & past
    partial[:, :, unpadded:] |= full[:, :, unpadded:]
    full[:, :, unpadded:] = False
    for tiled in (partial, full):
        tiled[:, :, real:] = False
        tiled[:, real:] = False

    masks = [partial, full]
    if gradients:
        masks += [partial.swapaxes(1, 2), full.swapaxes(1, 2)]
    lists = []
    for mask in masks:
        mask = np.ascontiguousarray(mask)
        # A stable sort on "unseen" puts the visible tiles first, in ascending order.
        ids = np.argsort(~mask, axis=2, kind="stable").astype(np.int32)
        for array in (mask.sum(axis=2, dtype=np.int32), ids):
            lists.append(copied(torch.from_numpy(array)[None], device))
    rows = columns = None
    if pattern.first_block_count > 1:
        often = np.ones(most + 1, dtype=bool)
        often[0] = False
        often[1 + pattern.full_rows(blocks)] = False
        weights = often[places] * np.float32(math.log(pattern.first_block_count))
        rows = copied(torch.from_numpy(weights), device)
        columns = copied(torch.from_numpy((places == 1).astype(np.float32)), device)
    if size == pattern.block_size and pattern.num_global_tokens % size == 0:
        return Tiles(tuple(lists), None, None, rows, columns)
    return Tiles(
        tuple(lists),
        copied(torch.from_numpy(places.astype(np.int32)), device),
        copied(torch.from_numpy(seen[None]), device),
        rows,
        columns,
    )
