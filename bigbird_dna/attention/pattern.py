"""Which key blocks a query block sees: BigBird's graph with existing tokens as global ones (ITC, App. D).

A sequence of n tokens has ceil(n / block_size) blocks; the last one may be partial. Query block j sees

* the global blocks: the first ceil(g / 2) and the last floor(g / 2) blocks of the true sequence,
* a window: the blocks j - (w - 1) / 2 ... j + (w - 1) / 2, clipped at the ends of the sequence,
* r random blocks, drawn uniformly from all that are neither of these; all of them where fewer remain,

and a global block sees, and is seen by, every block. No row is ever empty: with w > 0 a block sees itself,
with g > 0 the global blocks, and with r > 0 alone every block (itself included) is in the urn. The empty
pattern g = w = r = 0 is refused.

The random blocks are a function of (seed, layer, head, number of blocks) alone: not of the batch, the number
of heads, earlier calls or the platform. They are drawn from the raw words of PCG64, whose stream NumPy
keeps stable over its versions, unlike that of `Generator`'s methods.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

# Axes: H heads, Q query blocks, S key blocks that a query block sees, L tokens.
Ints = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]

UNSEEN, GLOBAL, WINDOW, RANDOM = range(4)


@dataclass(frozen=True, slots=True)
class Pattern:
    """Sizes of the three kinds of blocks, and the seed of the random ones.

    Parameters
    ----------
    block_size : tokens in a block.
    global_blocks : g; the first ceil(g / 2) and the last floor(g / 2) blocks of the sequence.
    window_blocks : w; odd, the own block in the middle; 0 for no window.
    random_blocks : r; random blocks of each query block that isn't global.
    seed : of the random blocks.

    Raises
    ------
    ValueError
        A size is negative, the window is even, or no block would ever be seen.
    """

    block_size: int = 64
    global_blocks: int = 2
    window_blocks: int = 3
    random_blocks: int = 3
    seed: int = 0

    def __post_init__(self) -> None:
        if self.block_size < 1:
            raise ValueError(f"block_size must be at least 1, not {self.block_size}")
        for name in ("global_blocks", "window_blocks", "random_blocks", "seed"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}")
        if self.window_blocks and self.window_blocks % 2 == 0:
            raise ValueError(f"window_blocks must be odd (or 0), not {self.window_blocks}")
        if not self.global_blocks + self.window_blocks + self.random_blocks:
            raise ValueError("the pattern is empty: no global, window or random blocks")

    def blocks(self, tokens: int) -> int:
        """Number of blocks of a sequence of `tokens` tokens, a partial last one included."""
        return -(-tokens // self.block_size)

    def global_ids(self, blocks: int) -> Ints:
        """The global blocks of a sequence of `blocks` blocks, ascending; read-only."""
        return _global_ids(self, blocks)

    def is_full(self, blocks: int) -> bool:
        """Whether every query block sees every block, so that the attention is full attention."""
        return _is_full(self, blocks)

    def random_ids(self, blocks: int, heads: int, layer: int = 0) -> Ints:
        """The random blocks of every query block, (H, Q, r), in the order drawn; read-only.

        Unused places hold -1: rows of global blocks, and rows for which fewer than r blocks remain (their
        number is the same for every head).
        """
        return _random_ids(self, blocks, heads, layer)

    def key_blocks(self, blocks: int, heads: int, layer: int = 0) -> Ints:
        """The distinct key blocks that a query block sees, (H, Q, S), -1 padded at the end; read-only.

        Order within a row: global, window, random. Rows of global blocks hold -1 throughout, as they see
        every block (`global_ids`).
        """
        return _key_blocks(self, blocks, heads, layer)

    def kinds(self, blocks: int, heads: int, layer: int = 0) -> npt.NDArray[np.int8]:
        """Why query block i sees key block j, (H, Q, Q): UNSEEN, GLOBAL, WINDOW or RANDOM."""
        # One column more than there are blocks takes the -1 of unused places.
        kinds = np.full((heads, blocks, blocks + 1), UNSEEN, dtype=np.int8)
        random = self.random_ids(blocks, heads, layer).astype(np.int64)
        np.put_along_axis(kinds, random, RANDOM, axis=2)
        window = _fixed(self, blocks)[:, len(self.global_ids(blocks)) :].astype(np.int64)
        for head in kinds:
            np.put_along_axis(head, window, WINDOW, axis=1)
        kinds[:, self.global_ids(blocks)] = GLOBAL
        kinds[:, :, self.global_ids(blocks)] = GLOBAL
        return kinds[:, :, :blocks]

    def block_mask(self, blocks: int, heads: int, layer: int = 0) -> Bools:
        """The pattern block by block, (H, Q, Q): whether query block i sees key block j."""
        seen: Bools = self.kinds(blocks, heads, layer) != UNSEEN
        return seen

    def mask(self, tokens: int, heads: int, layer: int = 0) -> Bools:
        """The pattern token by token, (H, L, L): `mask[h, i, j]` says whether query i sees key j.

        Quadratic in `tokens`: for tests, figures and short sequences.
        """
        seen = self.block_mask(self.blocks(tokens), heads, layer)
        seen = seen.repeat(self.block_size, axis=1).repeat(self.block_size, axis=2)
        return seen[:, :tokens, :tokens]


@lru_cache(maxsize=1024)
def _global_ids(pattern: Pattern, blocks: int) -> Ints:
    first = min(-(-pattern.global_blocks // 2), blocks)
    last = max(blocks - pattern.global_blocks // 2, first)
    return _frozen(np.r_[0:first, last:blocks].astype(np.int32))


@lru_cache(maxsize=64)
def _fixed(pattern: Pattern, blocks: int) -> Ints:
    """Global and window blocks of every query block, (Q, g + w), -1 where there is none or one twice."""
    globals_ = _global_ids(pattern, blocks)
    reach = pattern.window_blocks // 2
    offsets = np.arange(-reach, reach + 1) if pattern.window_blocks else np.arange(0)
    window = np.arange(blocks)[:, None] + offsets
    outside = (window < 0) | (window >= blocks) | np.isin(window, globals_)
    window = np.where(outside, -1, window)
    fixed = np.concatenate([np.tile(globals_, (blocks, 1)), window], axis=1)
    return _frozen(fixed.astype(np.int32))


@lru_cache(maxsize=1024)
def _is_full(pattern: Pattern, blocks: int) -> bool:
    remaining = blocks - (_fixed(pattern, blocks) >= 0).sum(axis=1)
    remaining[_global_ids(pattern, blocks)] = 0
    return bool((remaining <= pattern.random_blocks).all())


@lru_cache(maxsize=1024)
def _random_ids(pattern: Pattern, blocks: int, heads: int, layer: int) -> Ints:
    taken = np.sort(_fixed(pattern, blocks), axis=1)  # (Q, g + w), the -1 first
    remaining = blocks - (taken >= 0).sum(axis=1)
    remaining[_global_ids(pattern, blocks)] = 0
    wanted = np.minimum(remaining, pattern.random_blocks)
    chosen = np.full((heads, blocks, pattern.random_blocks), -1, dtype=np.int32)
    for head in range(heads):
        ranks = _draw(remaining, wanted, pattern.random_blocks, (pattern.seed, layer, head, blocks))
        # A rank counts the blocks that remain; step over the taken ones in ascending order.
        ids = ranks.copy()
        for column in taken.T:
            ids += (column[:, None] >= 0) & (ids >= column[:, None])
        chosen[head] = np.where(ranks >= 0, ids, -1)
    return _frozen(chosen)


def _draw(
    remaining: npt.NDArray[np.int64],
    wanted: npt.NDArray[np.int64],
    width: int,
    key: tuple[int, int, int, int],
) -> npt.NDArray[np.int64]:
    """For each row `wanted` distinct ranks below `remaining`, uniformly (Floyd's algorithm), (Q, width)."""
    seed, *stream = key
    source = np.random.PCG64(np.random.SeedSequence(seed, spawn_key=tuple(stream)))
    words = source.random_raw((width, len(remaining))) >> np.uint64(32)
    ranks = np.full((len(remaining), width), -1, dtype=np.int64)
    for step in range(width):
        last = remaining - wanted + step
        # Scaling 32 random bits by multiplication is uniform to within (last + 1) / 2**32.
        candidate = ((words[step] * (last + 1).astype(np.uint64)) >> np.uint64(32)).astype(np.int64)
        repeated = (ranks[:, :step] == candidate[:, None]).any(axis=1)
        ranks[:, step] = np.where(step < wanted, np.where(repeated, last, candidate), -1)
    return ranks


@lru_cache(maxsize=128)
def _key_blocks(pattern: Pattern, blocks: int, heads: int, layer: int) -> Ints:
    fixed = np.broadcast_to(_fixed(pattern, blocks), (heads, *_fixed(pattern, blocks).shape))
    keys = np.concatenate([fixed, _random_ids(pattern, blocks, heads, layer)], axis=2)
    # A stable sort on "empty" moves the -1 to the end and keeps the order of the rest.
    order = np.argsort(keys < 0, axis=2, kind="stable")
    keys = np.take_along_axis(keys, order, axis=2)
    keys[:, _global_ids(pattern, blocks)] = -1
    width = int((keys >= 0).sum(axis=2).max(initial=0))
    return _frozen(keys[:, :, :width])


def _frozen(array: Ints) -> Ints:
    array.setflags(write=False)
    return array
