"""The route through torch's FlexAttention: one fused kernel that walks the pattern's blocks.

On a GPU it serves training and inference, on a CPU inference alone. The kernel is compiled at the first call
of its kind (which takes seconds to a minute) for all lengths, layers and seeds at once: what makes a new
kind is listed in `Kind`. Nothing is trusted before it is tried: the first call of a kind compares outputs,
and gradients where they are wanted, with the dense oracle on a small problem, and if that fails, or
compiling does, the route says so and stays away.
"""

import inspect
import os
import shutil
import warnings
from collections.abc import Callable
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask
from torch.nn.attention.flex_attention import flex_attention as torch_flex
from torch.nn.functional import pad

from bigbird_dna.attention.dense import dense_attention
from bigbird_dna.attention.masked import real_positions
from bigbird_dna.attention.pattern import Pattern
from bigbird_dna.attention.tiles import Tiles, aligned, list_bytes, make_tiles

# Axes: B batch, H heads, L tokens as given, N tokens of the longest sequence, K head width.

LARGEST_BLOCK = 256  # tokens; larger ones would make the trial against the oracle costly
LIST_BYTES = 64 << 20  # of one list of tiles, of which a layer has two, in training four
GRAPHS = 64  # compiled at most; torch counts them and refuses more

# Largest deviation from the oracle that a trial forgives, relative to the largest value.
TOLERANCE = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}
TOLERANCE_TF32 = 1e-2


class Kind(NamedTuple):
    """All that a compiled kernel depends on; another kind is compiled and tried anew."""

    device: torch.device
    dtype: torch.dtype
    heads: int
    width: int
    one_row: bool  # torch always compiles a batch of one row by itself
    gradients: bool
    inference: bool
    threads: int  # of the CPU: a kernel's scratch space is laid out for so many
    block_size: int
    causal: bool
    extra_globals: int
    huggingface: bool


class Recipe(NamedTuple):
    """How a kernel is built."""

    size: int  # tokens along a side of a tile
    search: bool  # let torch try many kernels: some of its versions offer none for small tiles otherwise


def unavailable(
    q: Tensor, pattern: Pattern, *, dropout: float, gradients: bool, relative: bool
) -> str | None:
    """Why this route can't serve such a call, in one clause, or None.

    The first question of a kind compiles and tries the kernel.
    """
    reason = _refusal(q, pattern, dropout, gradients, relative)
    if reason is not None:
        return reason
    found = _recipe(_kind(q, pattern, gradients))
    return found if isinstance(found, str) else None


def flex_attention(
    q: Tensor, k: Tensor, v: Tensor, pattern: Pattern, lengths: tuple[int, ...], layer: int = 0
) -> Tensor:
    """Equal to `dense_attention` up to rounding; (B, H, L, K) → (B, H, L, K), zero at padded positions.

    All rows have the same `pattern.graph_blocks(length, L)`.

    Raises
    ------
    RuntimeError
        The kernel failed its trial; `unavailable` tells beforehand.
    """
    gradients = torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v))
    recipe = _recipe(_kind(q, pattern, gradients))
    if isinstance(recipe, str):
        raise RuntimeError(f"the flex route is not available: {recipe}")
    return _run(recipe, q, k, v, pattern, lengths, layer, gradients)


def _refusal(
    q: Tensor, pattern: Pattern, dropout: float, gradients: bool, relative: bool
) -> str | None:
    """What can be told without compiling anything."""
    if dropout:
        return "flex has no dropout"
    if relative:
        return "flex has no relative position labels"
    if q.dtype not in TOLERANCE:
        return f"flex does not compute in {str(q.dtype).removeprefix('torch.')}"
    if torch.compiler.is_compiling():
        return "flex is compiled by itself, not within another torch.compile"
    if pattern.block_size > LARGEST_BLOCK:
        return f"flex serves blocks of up to {LARGEST_BLOCK} tokens, not {pattern.block_size}"
    size = _recipes(pattern, q.device.type, False)[0].size
    if list_bytes(q.shape[1], q.shape[2], size) > LIST_BYTES:
        return f"flex would need lists of more than {LIST_BYTES >> 20} MiB for {q.shape[2]} tokens"
    if q.device.type == "cpu":
        return _cpu_refusal(pattern, gradients)
    if q.device.type == "cuda":
        return _cuda_refusal(q)
    return f"flex is not used on {q.device.type}"


def _cpu_refusal(pattern: Pattern, gradients: bool) -> str | None:
    if gradients:
        return "flex has no gradients on a CPU"
    if not aligned(
        pattern, pattern.block_size
    ):  # torch writes C++ that doesn't compile for the lookup
        return "flex needs extra_globals to be whole blocks on a CPU"
    if "AVX" not in torch.backends.cpu.get_cpu_capability().replace("NO AVX", ""):
        return "flex needs a CPU with AVX2"
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        return f"flex needs a C++ compiler, and {compiler} is not found"
    return None


def _cuda_refusal(q: Tensor) -> str | None:
    if find_spec("triton") is None:
        return "flex needs triton"
    capability = torch.cuda.get_device_capability(q.device)
    if capability < ((8, 0) if q.dtype == torch.bfloat16 else (7, 0)):
        return f"flex needs a newer GPU than one of compute capability {capability}"
    if q.shape[3] < 16:
        return f"flex needs heads at least 16 wide, not {q.shape[3]}"
    return None


def _kind(q: Tensor, pattern: Pattern, gradients: bool) -> Kind:
    return Kind(
        device=q.device,
        dtype=q.dtype,
        heads=q.shape[1],
        width=q.shape[3],
        one_row=q.shape[0] == 1,
        gradients=gradients,
        inference=q.is_inference(),
        threads=torch.get_num_threads() if q.device.type == "cpu" else 0,
        block_size=pattern.block_size,
        causal=pattern.causal,
        extra_globals=pattern.extra_globals,
        huggingface=pattern.huggingface,
    )


def _recipes(pattern: Pattern, device: str, gradients: bool) -> tuple[Recipe, ...]:
    """Ways to build a kernel, the best one first."""
    size = pattern.block_size
    # A GPU multiplies squares whose side is a power of two from 16 up; a CPU takes any.
    if device == "cuda" and (size & -size < 16 or not aligned(pattern, size)):
        size = 64
    if not (gradients and size % 128):
        return (Recipe(size, False),)
    # Some versions of torch offer only gradient kernels of 128 tokens on some GPUs, whatever one asks for.
    return Recipe(size, False), Recipe(size, True), Recipe(128, False)


@lru_cache(maxsize=256)
def _recipe(kind: Kind) -> Recipe | str:
    """The first recipe that passes its trial, or why the first one doesn't."""
    pattern = _trial_pattern(kind)
    reasons = []
    for recipe in _recipes(pattern, kind.device.type, kind.gradients):
        reason = _failure(recipe, kind, pattern)
        if reason is None:
            return recipe
        reasons.append(reason)
    return reasons[0]


def _trial_pattern(kind: Kind) -> Pattern:
    return Pattern(
        kind.block_size,
        global_blocks=2,
        window_blocks=3,
        random_blocks=1,
        causal=kind.causal,
        extra_globals=kind.extra_globals,
        huggingface=kind.huggingface,
    )


def _trial_lengths(recipe: Recipe, kind: Kind) -> tuple[int, ...]:
    """Of sequences with one graph, the last block partial, all but the first as long as can be."""
    fixed = (kind.heads, kind.width)
    rows = 1 if kind.one_row else next(n for n in (2, 3, 4) if n not in fixed)
    # Some versions of torch compile fewer than 128 queries for themselves.
    blocks = max(8, 160 // kind.block_size)
    while True:
        # What varies must not happen to equal what doesn't: torch would take it for the same size for good.
        whole = kind.extra_globals + blocks * kind.block_size
        longest = whole + kind.block_size // 2 + 1
        if not {longest, -(-longest // recipe.size)} & {*fixed, rows}:
            return (longest,) if rows == 1 else (whole + 1,) + (longest,) * (rows - 1)
        blocks += 1


def _failure(recipe: Recipe, kind: Kind, pattern: Pattern) -> str | None:
    """What is wrong with a kernel on a small problem of its kind, which has padding and a partial block."""
    lengths = _trial_lengths(recipe, kind)
    source = torch.Generator().manual_seed(0)
    shape = (len(lengths), kind.heads, max(lengths), kind.width)
    with torch.inference_mode(kind.inference), torch.set_grad_enabled(kind.gradients):
        made = [torch.randn(shape, generator=source).to(kind.device, kind.dtype) for _ in range(4)]
        exact = [x.float() for x in made]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what torch tells itself while it compiles
                got = _with_gradients(
                    lambda q, k, v: _run(recipe, q, k, v, pattern, lengths, 0, kind.gradients),
                    made,
                    kind.gradients,
                )
        except Exception as error:  # a compiler's failure comes in many classes
            return f"flex failed to compile: {type(error).__name__}: {_first_line(error)}"
        want = _with_gradients(
            lambda q, k, v: dense_attention(q, k, v, pattern, lengths), exact, kind.gradients
        )
    tolerance = TOLERANCE[kind.dtype]
    if kind.device.type == "cuda":
        tolerance = max(tolerance, TOLERANCE_TF32)
    names = ("output", "gradient of q", "gradient of k", "gradient of v")
    for name, a, b in zip(names, got, want, strict=False):
        deviation = ((a.float() - b).abs().max() / b.abs().max()).item()
        if not deviation <= tolerance:  # NaN fails too
            return f"flex's {name} differs from the oracle's by {deviation:.1e} on this machine"
    return None


def _with_gradients(
    attend: Callable[[Tensor, Tensor, Tensor], Tensor], made: list[Tensor], gradients: bool
) -> list[Tensor]:
    """The output, and the gradients of q, k and v if wanted; `made` is q, k, v and the output's gradient."""
    q, k, v = (x.detach().requires_grad_(gradients) for x in made[:3])
    out = attend(q, k, v)
    return [out, *torch.autograd.grad(out, (q, k, v), made[3])] if gradients else [out]


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "no message")


def _run(
    recipe: Recipe,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pattern: Pattern,
    lengths: tuple[int, ...],
    layer: int,
    gradients: bool,
) -> Tensor:
    heads, tokens = q.shape[1:3]
    longest = max(lengths)
    if longest == 1:  # a lone token attends to itself; torch would compile it anew
        return pad(v[:, :, :1], (0, 0, 0, tokens - 1))
    tiles = make_tiles(
        pattern,
        pattern.graph_blocks(longest, tokens),
        heads,
        layer,
        size=recipe.size,
        tokens=longest,
        certain=min(lengths),
        gradients=gradients,
        device=q.device,
    )
    # Another layout of memory, autocast or gradient mode would be compiled anew.
    q, k, v = (_plain(x[:, :, :longest], gradients) for x in (q, k, v))
    ends = _ends(lengths, q.device)
    with torch.autocast(q.device.type, enabled=False), torch.set_grad_enabled(gradients):
        attend = _compiled(recipe.search)
        out = attend(q, k, v, tiles, ends, str(recipe.size), pattern.causal)
    if min(lengths) < longest:
        out = out.masked_fill(~real_positions(lengths, longest, q.device)[:, None, :, None], 0)
    return pad(out, (0, 0, 0, tokens - longest)) if longest < tokens else out


def _plain(x: Tensor, gradients: bool) -> Tensor:
    """Contiguous and no view of another tensor, on whose shape torch would make the kernel depend."""
    x = x.contiguous()
    if not x._is_view():
        return x
    return x.clone() if gradients else x.data


@lru_cache(maxsize=64)
@torch.inference_mode(False)  # what evaluation makes first must serve training as well
def _ends(lengths: tuple[int, ...], device: torch.device) -> Tensor:
    return torch.tensor(lengths, dtype=torch.int32, device=device)


@lru_cache(maxsize=2)
def _compiled(search: bool) -> Callable[..., Tensor]:
    options: dict[str, Any] = {"dynamic": True, "fullgraph": True}
    if search:
        options["options"] = {"max_autotune": True}
    # Where torch can, it counts these graphs apart from other ones; its usual limit is 8.
    if "isolate_recompiles" in inspect.signature(torch.compile).parameters:
        options |= {"isolate_recompiles": True, "recompile_limit": GRAPHS}
    return torch.compile(_attend, **options)


def _attend(
    q: Tensor, k: Tensor, v: Tensor, tiles: Tiles, ends: Tensor, size: str, causal: bool
) -> Tensor:
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
    out = torch_flex(
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
            counts = counts & seen[head, places[query], places[key]]
        return counts

    return mask


def score_function(
    tiles: Tiles,
) -> Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor] | None:
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
