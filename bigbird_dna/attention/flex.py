"""The route through torch's FlexAttention: one fused kernel that iterates over the pattern's blocks.

On a GPU it serves training and inference, on a CPU inference only. The kernel is compiled at the first call
of each kind (seconds to a minute), for all lengths, layers and seeds at once. torch compiles one kernel for
all of these only if nothing else changes between calls: memory layout, autocast and gradient mode. Before
its first use, a kernel's outputs, and gradients if needed, are compared with the blocked route on sequences
as long as that call's, for which torch also tunes the kernel. If compilation or the test fails, the route
reports the reason and is not used.

A kernel computes scores block by block. For every row of blocks it reads which blocks to compute: full blocks
without a mask, and partial ones, with padding or on the diagonal of a causal pattern, with one. The lists are
built from the pattern, never from scores. They are rectangles of heads x blocks x blocks integers, because
some rows of blocks see every block.
"""

import logging
import math
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.attention.flex_attention import BlockMask
from torch.nn.attention.flex_attention import flex_attention as torch_flex_attention
from torch.nn.functional import pad

from bigbird_dna.attention.blocked import blocked_attention
from bigbird_dna.attention.call import Call, copied, numbers_on
from bigbird_dna.attention.pattern import Pattern

# Axes: B batch, H heads, T blocks, N tokens in whole blocks.

LIST_BYTES = 64 << 20  # of one list of blocks; a layer has two lists, in training four
CACHED_BYTES = 1 << 30  # of all lists, over layers and lengths
TEST_TOKENS = 1 << 14  # of the longest test
# Largest deviation that a test accepts, relative to the largest value.
TOLERANCE = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}
TOLERANCE_TF32 = 1e-2
GRAPHS = 64  # maximum number of compiled graphs; torch counts them and compiles no more
RESERVED = 1 << 12  # bytes of shared memory for other data of a kernel

TESTED: dict[tuple[object, ...], bool | str] = {}
"""For each kind of call whether torch has to search among many kernels, or the reason why there is none."""
_testing = threading.Lock()


def unavailable(call: Call) -> str | None:
    """Why this route cannot serve the call, or None; the first call of a kind tests the kernel."""
    q = call.q
    size = call.pattern.block_size
    reason = call.find_limit("flex", TOLERANCE)
    if reason is not None:
        return reason

    if call.pattern.num_global_tokens % size:
        return "flex needs num_global_tokens in whole blocks"

    lists = 4 * q.shape[0] * q.shape[1] * (-(-q.shape[2] // size)) ** 2
    if lists > LIST_BYTES:
        return f"flex would need lists of {lists >> 20} MiB for {q.shape[2]} tokens"

    if q.device.type not in ("cpu", "cuda"):
        return f"flex is not used on {q.device.type}"

    if q.is_cpu and call.gradients:
        return "flex does not support gradients on a CPU"

    # What a GPU lacks (Triton, a type, small matrices) is found by the test.
    search = find_kernel(call)
    return search if isinstance(search, str) else None


def flex_attention(call: Call) -> Tensor:
    """Attention by a compiled kernel, (B, H, L, K); `RuntimeError` if the kernel failed its test."""
    search = find_kernel(call)
    if isinstance(search, str):
        raise RuntimeError(f"the flex route is not available: {search}")
    return run(search, call, call.gradients)


def find_kernel(call: Call) -> bool | str:
    """Whether torch has to search for a kernel, or why none passes its test; once per kind of call."""
    q = call.q
    gradients = call.gradients
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
            call = call._replace(pattern=pattern)
            reason = find_failure(False, call)
            TESTED[kind] = reason or False
            # For small blocks, some torch versions find gradient kernels of some GPUs only by a search.
            if reason and gradients and find_failure(True, call) is None:
                TESTED[kind] = True

        return TESTED[kind]


def find_failure(search: bool, call: Call) -> str | None:
    """Failure of a kernel on random sequences like the call's, with padding and a partial block, or None."""
    q = call.q
    pattern = call.pattern
    gradients = call.gradients
    size = pattern.block_size
    # torch compiles a separate kernel for fewer than 128 queries.
    blocks = max(8, 160 // size, min(q.shape[2], TEST_TOKENS) // size)
    longest = blocks * size + size // 2 + 1
    lengths: tuple[int, ...] = (longest,)
    if q.shape[0] > 1:
        # torch would take the number of rows for that of heads if both were 2.
        lengths = (longest - size,) + (longest,) * (2 if q.shape[1] == 2 else 1)

    shape = len(lengths), q.shape[1], longest, q.shape[3]
    generator = torch.Generator().manual_seed(0)
    q, k, v, upper = (
        torch.randn(shape, generator=generator, device="cpu").to(q.device, q.dtype)
        for _ in range(4)
    )

    def compute(attend: Callable[[Call], Tensor], dtype: torch.dtype) -> list[Tensor]:
        """The output, and if needed the gradients of q, k and v."""
        leaves = [x.to(dtype, copy=True).requires_grad_(gradients) for x in (q, k, v)]
        out = attend(Call(leaves[0], leaves[1], leaves[2], pattern, lengths))
        if not gradients:
            return [out]
        return [out.detach(), *torch.autograd.grad(out, leaves, upper.to(dtype))]

    def blocked(call: Call) -> Tensor:
        rows = [blocked_attention(call.take([row])) for row in range(len(lengths))]
        return torch.cat(rows)

    disabled = logging.root.manager.disable
    # torch logs hundreds of lines for a kernel that cannot be compiled. Autocast would compute the reference
    # in half precision. With gradient checkpointing, the saved tensors of the test would be taken for those
    # of the first layer.
    logging.disable(logging.WARNING)

    try:
        with (
            torch.autocast(q.device.type, enabled=False),
            saved_tensors_hooks(lambda x: x, lambda x: x),
            torch.inference_mode(call.q.is_inference()),
            torch.set_grad_enabled(gradients),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            results = compute(lambda x: run(search, x, gradients), q.dtype)
            expected = compute(blocked, torch.float32)
    except Exception as error:  # compilation errors have many classes
        reason = str(error).strip().partition("\n")[0]
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


def run(search: bool, call: Call, gradients: bool) -> Tensor:
    """Attention by the kernel, (B, H, L, K), compiled at the first call of its kind."""
    tokens = call.q.shape[2]
    longest = max(call.lengths)
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

    build = kernel_build(call.pattern.block_size, q.shape[3], q.dtype, shared)
    with (
        torch.autocast(q.device.type, enabled=False),
        torch.set_grad_enabled(gradients),
    ):
        lists, weights = make_lists(call, gradients)
        ends = numbers_on(q.device, call.lengths, torch.int32)
        attend = compiled_attention(search)
        out = attend(*vectors, lists, weights, ends, build, call.pattern.causal)

    return call.uncut(out)


@lru_cache(maxsize=2)
def compiled_attention(search: bool) -> Callable[..., Tensor]:
    """`attend_to_lists` compiled for all sizes, with torch's search for the fastest kernel if `search`."""
    # torch's usual limit of 8 is too low for a model whose calls are of several kinds.
    dynamo = torch._dynamo.config
    dynamo.recompile_limit = max(dynamo.recompile_limit, GRAPHS)
    options: Any = {"max_autotune": True} if search else None
    return torch.compile(attend_to_lists, dynamic=True, fullgraph=True, options=options)


def kernel_build(size: int, width: int, dtype: torch.dtype, shared: int | None) -> str:
    """Tokens per block, and the side of the matrices that a GPU multiplies, or 0 for torch's default.

    Text, because torch would make integers variables of the kernel. Sides must divide a block; torch's
    default divides 128. Eight matrices of a head's `width` must fit in `shared` bytes: queries, and keys and
    values in three stages of loading.
    """
    side = 0
    if size % 128 and shared is not None:
        side = min(64, size & -size)
        row = 8 * width * dtype.itemsize
        while side > 16 and side * row > shared - RESERVED:
            side //= 2

    return f"{size} {side}"


def kernel_options(build: str, dtype: torch.dtype) -> Any:
    """FlexAttention's options for a GPU, from `kernel_build`."""
    side = int(build.split()[1])
    options: dict[str, int | bool] = {"FORCE_USE_FLEX_ATTENTION": True}
    if side:
        options |= {"fwd_BLOCK_M": side, "fwd_BLOCK_N": side}
        if dtype != torch.float32:  # torch's gradient kernels use 16 for float32
            options |= {f"bwd_BLOCK_{name}": side for name in ("M1", "N1", "M2", "N2")}
    return options


# ---- lists of a pattern's blocks -------------------------------------------------------------------------

Lists = tuple[Tensor, ...]
"""int32, in pairs: for every row of blocks the number of its blocks (B, H, T), and their indices (B, H, T, T),
of which only the first are valid. The first pairs are the partial and the full key blocks of query blocks, and
two more the reverse, for gradients."""
Weights = tuple[Tensor, Tensor] | None
"""If some keys count more than once, (N,) float32 for queries and for keys; their product is added to scores."""


def attend_to_lists(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    lists: Lists,
    weights: Weights,
    ends: Tensor,
    build: str,
    causal: bool,
) -> Tensor:
    """The function to compile; `ends` (B,) are the lengths of the sequences."""

    def mask(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        # A true query of a causal sequence never meets padding.
        return key <= query if causal else key < ends[row]

    def weighted(
        score: Tensor, row: Tensor, head: Tensor, query: Tensor, key: Tensor
    ) -> Tensor:
        return score + weights[0][query] * weights[1][key]  # type: ignore[index]

    reverse: Any = lists[4:] or [None] * 4
    size = int(build.split()[0])
    block_mask = BlockMask(
        (q.shape[2], k.shape[2]),
        kv_num_blocks=lists[0],
        kv_indices=lists[1],
        full_kv_num_blocks=lists[2],
        full_kv_indices=lists[3],
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
        None if weights is None else weighted,
        block_mask,
        kernel_options=kernel_options(build, q.dtype) if q.is_cuda else None,
    )
    assert isinstance(out, Tensor)

    return out


_cached: OrderedDict[tuple[object, ...], Lists] = OrderedDict()


def make_lists(call: Call, gradients: bool) -> tuple[Lists, Weights]:
    """Return the lists of a call, without padding common to all rows, and its weights.

    `gradients` adds the reverse lists. Each row of the batch has its own lists, which are cached, because
    every step reuses them.
    """
    pattern = call.pattern
    lengths = call.lengths
    device = call.q.device
    heads, tokens = call.q.shape[1:3]
    size = pattern.block_size
    longest = max(lengths)
    blocks = -(-longest // size)

    rows = []
    for length in lengths:
        # Where no true query meets padding, all blocks are unmasked.
        unmasked = pattern.causal or length == longest
        key = (
            pattern,
            pattern.graph_blocks(length, tokens),
            max(2, blocks),  # torch would compile a separate kernel for a single block
            -(-length // size),
            blocks if unmasked else length // size,
            heads,
            call.layer,
            gradients,
            device,
        )
        if key not in _cached:
            # Tensors cached in evaluation must also work in training.
            with torch.inference_mode(False):
                _cached[key] = row_lists(*key)

        _cached.move_to_end(key)
        rows.append(_cached[key])

    while sum(x.nbytes for row in _cached.values() for x in row) > CACHED_BYTES:
        _cached.popitem(last=False)

    weights = None
    if pattern.first_block_count > 1:
        graph = pattern.graph_blocks(longest, tokens)
        queries, keys = torch.zeros(2, graph, size, device="cpu")
        queries += math.log(pattern.first_block_count)
        queries[pattern.full_rows(graph)] = 0
        keys[0] = 1
        weights = copied(queries.flatten(), device), copied(keys.flatten(), device)

    lists = rows[0]
    if len(rows) > 1:
        lists = tuple(torch.cat(of_rows) for of_rows in zip(*rows, strict=True))

    return lists, weights


def row_lists(
    pattern: Pattern,
    graph: int,
    blocks: int,
    real: int,
    unmasked: int,
    heads: int,
    layer: int,
    gradients: bool,
    device: torch.device,
) -> Lists:
    """The lists of a sequence in a batch whose longest row has `blocks` blocks, those of global tokens included.

    The pattern's graph has `graph` blocks, `real` blocks contain a token of this row, and `unmasked` none of
    its padding.
    """
    front = pattern.num_global_tokens // pattern.block_size
    seen = np.ones((heads, front + graph, front + graph), dtype=bool)
    seen[:, front:, front:] = pattern.block_mask(graph, heads, layer)
    visible = np.zeros((heads, blocks, blocks), dtype=bool)
    visible[:, :real, :real] = seen[:, :real, :real]
    partial = visible.copy()
    if pattern.causal:
        partial &= np.eye(blocks, dtype=bool)
    else:
        partial[:, :, :unmasked] = False

    masks = [partial, visible & ~partial]
    if gradients:
        masks += [mask.swapaxes(1, 2) for mask in masks]

    lists = []
    for mask in masks:
        # A stable sort on "unseen" puts the visible blocks first, in ascending order.
        ids = np.argsort(~mask, axis=2, kind="stable").astype(np.int32)
        for array in (mask.sum(axis=2, dtype=np.int32), ids):
            contiguous = torch.from_numpy(np.ascontiguousarray(array))
            lists.append(copied(contiguous[None], device))

    return tuple(lists)
