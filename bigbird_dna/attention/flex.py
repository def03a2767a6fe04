"""The route through torch's FlexAttention: one fused kernel that iterates over the pattern's blocks.

On a GPU it serves training and inference, on a CPU inference only. The kernel is compiled at the first call
of each kind (seconds to a minute), for all lengths, layers and seeds at once; `Kind` lists what defines a
kind. torch compiles one kernel for all of these only if nothing else changes between calls: memory layout,
autocast and gradient mode. `flex_kernel.run` ensures that they do not change.

Every kernel is tested before use. The first call of a kind compares outputs, and gradients if needed, with
other routes: on sequences as long as that call's, for which torch also tunes the kernel, and on short
sequences with the reference implementation. If compilation or a test fails, the route reports the reason and
is not used.
"""

import logging
import os
import shutil
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from bigbird_dna.attention.blocked import blocked_attention
from bigbird_dna.attention.call import Call, dense_attention
from bigbird_dna.attention.flex_kernel import Recipe, run
from bigbird_dna.attention.pattern import Pattern
from bigbird_dna.attention.tiles import aligned, list_bytes

# Axes: B batch, H heads, L input tokens, N tokens of the longest sequence, K head width.

LARGEST_BLOCK = (
    256  # tokens; larger blocks would make the test against dense attention costly
)
LIST_BYTES = 64 << 20  # of one list of tiles; a layer has two lists, in training four
PARTS_BYTES = (
    8 << 20
)  # of one list: longer sequences are computed in parts, else 24 layers exceed the tiles' cache
TRIAL_TOKENS = (
    1 << 14
)  # of the longest test, whose gradients by another route take gigabytes
DENSE_TOKENS = 2048  # longer tests compare with the blocked route: dense scores would exhaust memory

# Largest deviation that a test accepts, relative to the largest value.
TOLERANCE = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}
TOLERANCE_TF32 = 1e-2
PARTS_DEVICES = (
    "cuda",
)  # devices where FlexAttention has log-sum-exps and their derivatives


class Kind(NamedTuple):
    """Everything that a compiled kernel depends on; every other kind is compiled and tested again."""

    device: torch.device
    dtype: torch.dtype
    heads: int
    width: int
    one_row: bool  # torch always compiles a separate kernel for a batch of one row
    by_row: bool  # whether each row has its own graph
    parts: bool  # whether the sequences are so long that they are computed in parts
    gradients: bool
    inference: bool
    threads: (
        int  # CPU threads: the size of a kernel's scratch space depends on their number
    )
    pattern: Pattern  # pattern of the test: that of the calls except for numbers of blocks and seed


def unavailable(call: Call, gradients: bool) -> str | None:
    """Why this route cannot serve the call, or None; the first call of a kind tests the kernel."""
    reason = _refusal(call, gradients)
    if reason is not None:
        return reason
    kind = kind_of(call.q, call.pattern, gradients, False)
    recipe = find_recipe(kind, call.q.shape[2])
    return recipe if isinstance(recipe, str) else None


def serves_by_row(call: Call) -> bool:
    """Whether one call can have rows with different, and also equal, numbers of blocks."""
    q, pattern, gradients = call.q, call.pattern, call.gradients
    if _refusal(call, gradients) is not None or in_parts(q, pattern):
        return False
    batch, heads, tokens, _ = q.shape
    size = possible_recipes(pattern, q.device.type, gradients)[0].size
    if batch * list_bytes(heads, tokens, size) > LIST_BYTES:
        return False
    recipe = find_recipe(kind_of(q, pattern, gradients, True), tokens)
    return isinstance(recipe, Recipe)


def flex_attention(call: Call) -> Tensor:
    """Attention by a compiled kernel, (B, H, L, K); `RuntimeError` if the kernel failed the test of
    `unavailable`, or of `serves_by_row` for rows with different numbers of blocks."""
    gradients, tokens = call.gradients, call.q.shape[2]
    several = (
        len({call.pattern.graph_blocks(length, tokens) for length in call.lengths}) > 1
    )
    recipe = find_recipe(kind_of(call.q, call.pattern, gradients, several), tokens)
    if isinstance(recipe, str):
        raise RuntimeError(f"the flex route is not available: {recipe}")
    return run(recipe, call, gradients)


def _refusal(call: Call, gradients: bool) -> str | None:
    """Reason known without compiling anything, or None."""
    q, pattern = call.q, call.pattern
    limit = call.find_limit("flex", TOLERANCE)
    if limit is not None:
        return limit
    if torch.compiler.is_compiling():
        return "flex cannot be compiled within another torch.compile"
    if pattern.block_size > LARGEST_BLOCK:
        return f"flex supports blocks of up to {LARGEST_BLOCK} tokens, not {pattern.block_size}"
    size = possible_recipes(pattern, q.device.type, False)[0].size
    if list_bytes(q.shape[1], q.shape[2], size) > LIST_BYTES and not in_parts(
        q, pattern
    ):
        return f"flex would need lists of more than {LIST_BYTES >> 20} MiB for {q.shape[2]} tokens"
    if q.device.type == "cpu":
        return cpu_refusal(pattern, gradients)
    if q.device.type == "cuda":
        return _cuda_refusal(q)
    return f"flex is not used on {q.device.type}"


def cpu_refusal(pattern: Pattern, gradients: bool) -> str | None:
    if gradients:
        return "flex does not support gradients on a CPU"
    if not aligned(
        pattern, pattern.block_size
    ):  # torch generates C++ for the lookup that does not compile
        return "flex on a CPU needs num_global_tokens in whole blocks"
    if "AVX" not in torch.backends.cpu.get_cpu_capability().replace("NO AVX", ""):
        return "flex needs a CPU with AVX2"
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        return f"flex needs a C++ compiler; {compiler} not found"
    return None


def _cuda_refusal(q: Tensor) -> str | None:
    if find_spec("triton") is None:
        return "flex needs triton"
    capability = torch.cuda.get_device_capability(q.device)
    if capability < ((8, 0) if q.dtype == torch.bfloat16 else (7, 0)):
        return f"flex needs a newer GPU; this one has compute capability {capability}"
    if q.shape[3] < 16:
        return f"flex needs a head width of at least 16, not {q.shape[3]}"
    return None


def in_parts(q: Tensor, pattern: Pattern) -> bool:
    """Whether a sequence of `q` is computed in parts, because one kernel's lists would be too large."""
    size = pattern.block_size
    ordinary = pattern.global_blocks > 0 and not (
        pattern.huggingface or pattern.num_global_tokens
    )
    if not ordinary or size & -size < 16 or q.device.type not in PARTS_DEVICES:
        return False
    return list_bytes(q.shape[1], q.shape[2], size) > PARTS_BYTES


def kind_of(q: Tensor, pattern: Pattern, gradients: bool, by_row: bool) -> Kind:
    return Kind(
        device=q.device,
        dtype=q.dtype,
        heads=q.shape[1],
        width=q.shape[3],
        one_row=q.shape[0] == 1,
        by_row=by_row,
        parts=in_parts(q, pattern),
        gradients=gradients,
        inference=q.is_inference(),
        threads=torch.get_num_threads() if q.device.type == "cpu" else 0,
        pattern=replace(
            pattern, global_blocks=2, window_blocks=3, random_blocks=1, seed=0
        ),
    )


def possible_recipes(
    pattern: Pattern, device: str, gradients: bool, parts: bool = False
) -> tuple[Recipe, ...]:
    """Possible build options of a kernel, the best first."""
    size = pattern.block_size
    # A GPU multiplies tiles whose side is a power of two from 16 up; a CPU accepts any size.
    if device == "cuda" and (size & -size < 16 or not aligned(pattern, size)):
        size = 64
    if not (gradients and size % 128):
        return (Recipe(size, False, parts),)
    # For some GPUs, some torch versions offer only gradient kernels of 128 tokens, regardless of the request.
    larger = (
        () if parts else (Recipe(128, False),)
    )  # parts consist of the pattern's own blocks
    return Recipe(size, False, parts), Recipe(size, True, parts), *larger


FOUND_RECIPES: dict[Kind, Recipe | str] = {}
_trying = threading.Lock()


def find_recipe(kind: Kind, tokens: int) -> Recipe | str:
    """The first recipe that passes its tests, or the reason why the first one fails; found once per kind,
    with the length of the first call."""
    with _trying:
        if kind not in FOUND_RECIPES:
            pattern, device = kind.pattern, kind.device.type
            reasons = []
            for recipe in possible_recipes(pattern, device, kind.gradients, kind.parts):
                reason = find_failure(recipe, kind, tokens)
                if reason is None:
                    FOUND_RECIPES[kind] = recipe
                    break
                reasons.append(reason)
            else:
                FOUND_RECIPES[kind] = reasons[0]
        return FOUND_RECIPES[kind]


def trial_lengths(recipe: Recipe, kind: Kind, tokens: int = 0) -> tuple[int, ...]:
    """Lengths of test sequences of at least `tokens` tokens, each with a partial last block.

    All but the first have the maximum length; the first has one block fewer if each row has its own graph.
    """
    global_blocks = (
        (kind.pattern.global_blocks,) if kind.parts else ()
    )  # a size of lists
    fixed = (kind.heads, kind.width, *global_blocks)
    rows = 1 if kind.one_row else next(n for n in (2, 3, 4, 5) if n not in fixed)
    # Some torch versions compile a separate kernel for fewer than 128 queries.
    size, extra = kind.pattern.block_size, kind.pattern.num_global_tokens
    blocks = max(8, 160 // size, (tokens - extra) // size)
    while True:
        # Variable sizes must not equal fixed sizes by chance: torch would treat both as one fixed size.
        whole = extra + blocks * size
        longest = whole + size // 2 + 1
        if not {longest, -(-longest // recipe.size)} & {*fixed, rows}:
            first = whole + 1 - size * kind.by_row
            return (longest,) if rows == 1 else (first,) + (longest,) * (rows - 1)
        blocks += 1


def find_failure(recipe: Recipe, kind: Kind, tokens: int) -> str | None:
    """Failure of a kernel on test problems of its kind, with padding and a partial block, or None.

    The first test is as long as the kernel's calls: torch searches for the fastest kernel of that length.
    """
    long, short = (
        trial_lengths(recipe, kind, size) for size in (min(tokens, TRIAL_TOKENS), 0)
    )
    # Autocast would compute the reference in half precision. With gradient checkpointing, the saved tensors
    # of the test would be taken for those of the first layer.
    with (
        torch.autocast(kind.device.type, enabled=False),
        saved_tensors_hooks(_same, _same),
    ):
        reason = _deviation(recipe, kind, long)
        return reason if reason or long == short else _deviation(recipe, kind, short)


def _same(x: Tensor) -> Tensor:
    return x


def _deviation(recipe: Recipe, kind: Kind, lengths: tuple[int, ...]) -> str | None:
    """Deviation or failure of a kernel on sequences of these lengths, or None."""
    pattern = kind.pattern
    source = torch.Generator().manual_seed(0)
    shape = (len(lengths), kind.heads, max(lengths), kind.width)
    with torch.inference_mode(kind.inference), torch.set_grad_enabled(kind.gradients):
        made = [
            torch.randn(shape, generator=source, device="cpu").to(
                kind.device, kind.dtype
            )
            for _ in range(4)
        ]
        exact = [x.float() for x in made]
        try:
            with warnings.catch_warnings(), _torch_silent():
                warnings.simplefilter("ignore")  # torch's own compilation warnings
                got = _with_gradients(
                    lambda q, k, v: run(
                        recipe, Call(q, k, v, pattern, lengths), kind.gradients
                    ),
                    made,
                    kind.gradients,
                )
        except Exception as error:  # compilation errors have many classes
            return (
                f"flex failed to compile: {type(error).__name__}: {_first_line(error)}"
            )
        want = _with_gradients(
            lambda q, k, v: _reference(Call(q, k, v, pattern, lengths)),
            exact,
            kind.gradients,
        )
    tolerance = TOLERANCE[kind.dtype]
    if kind.device.type == "cuda":
        tolerance = max(tolerance, TOLERANCE_TF32)
    names = ("output", "gradient of q", "gradient of k", "gradient of v")
    for name, a, b in zip(names, got, want, strict=False):
        deviation = ((a.float() - b).abs().max() / b.abs().max()).item()
        if not deviation <= tolerance:  # also true for NaN
            return (
                f"{name} differs from the reference by {deviation:.1e} on this machine"
            )
    return None


@contextmanager
def _torch_silent() -> Iterator[None]:
    """Without torch's log lines: hundreds for a kernel that cannot be compiled, a usual result here."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


def _reference(call: Call) -> Tensor:
    """Dense attention, or for long sequences a memory-saving route that is tested against it."""
    if call.q.shape[2] <= DENSE_TOKENS:
        return dense_attention(call)
    return torch.cat(
        [blocked_attention(call.take([row])) for row in range(len(call.lengths))]
    )


def _with_gradients(
    attend: Callable[[Tensor, Tensor, Tensor], Tensor],
    made: list[Tensor],
    gradients: bool,
) -> list[Tensor]:
    """The output, and optionally the gradients of q, k and v; `made` is q, k, v and the output's gradient."""
    q, k, v = (x.detach().requires_grad_(gradients) for x in made[:3])
    out = attend(q, k, v)
    return [out, *torch.autograd.grad(out, (q, k, v), made[3])] if gradients else [out]


def _first_line(error: Exception) -> str:
    return next(
        (line.strip() for line in str(error).splitlines() if line.strip()), "no message"
    )
