"""BigBird's attention graph in blocks of tokens (paper section 2, App. D): the keys that a query attends to.

A sequence of n tokens has ceil(n / block_size) blocks; the last one may be partial. Query block j attends to

* the global blocks: the first ceil(g / 2) and the last floor(g / 2) blocks of the true sequence,
* a window: the blocks j - (w - 1) / 2 ... j + (w - 1) / 2, clipped at the ends of the sequence,
* r random blocks, drawn uniformly from all other blocks; all of them if at most r remain,

and global blocks attend to all blocks and all blocks attend to them. No row is empty. With w > 0 a block
attends to itself, and with g > 0 to the global blocks. With r > 0 alone, it draws from all blocks including
itself. The empty pattern g = w = r = 0 raises an error. With two of the three sizes 0, the building blocks of
the paper's Table 1 remain: R, W and G alone.

This is the internal transformer construction (ITC). Three variants change it:

* `num_global_tokens` (extended construction, ETC): this number of tokens in front of the sequence attend to
  everything and are attended to by everything; blocks are counted from the first token after them.
* `causal`, for decoders: a query attends only to keys up to its own. All g global blocks come first, and no
  block attends to later blocks. The window is the query's own block (always included, even with w = 0) and
  the (w - 1) / 2 blocks before it; random blocks are drawn from earlier blocks. No row depends on anything
  after it, including the sequence length.
* `huggingface`: the graph that HuggingFace's BigBird uses in evaluation: no random blocks, key block 0 counts
  1 + r times in every non-global row, and up to 5 + 2 r blocks attend to each other in full.

Random blocks depend only on (seed, layer, head, number of blocks), or (seed, layer, head, row) in a causal
pattern: not on the batch, the number of heads, earlier calls or the platform. They are drawn from the raw
words of PCG64, whose stream is stable across NumPy versions, unlike that of `Generator` methods.
"""

from dataclasses import dataclass, fields
from functools import lru_cache

import numpy as np
import numpy.typing as npt

# Axes: H heads, Q query blocks, S key blocks of a query block, L tokens.
Ints = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]


_cached = lru_cache  # caches on methods: patterns are values, and few exist


@dataclass(frozen=True, slots=True)
class Pattern:
    """Sizes of the three kinds of blocks, the seed of the random blocks, and the variant.

    `ValueError`: a size is negative, the seed exceeds 63 bits, the window is even, all sizes are 0, or
    variants exclude each other.
    """

    block_size: int = 64  # tokens
    global_blocks: int = (
        2  # g; the first ceil(g / 2) and the last floor(g / 2) blocks of the sequence
    )
    window_blocks: int = 3  # w; odd, centered on the query's own block; 0 for no window
    random_blocks: int = 3  # r; per query block that is not global
    seed: int = 0  # of the random blocks
    causal: bool = False  # no query attends to later keys
    num_global_tokens: int = (
        0  # tokens in front of the sequence with attention to and from all tokens
    )
    huggingface: bool = False  # HuggingFace arithmetic in evaluation: the graph is that of the padded length

    def __post_init__(self) -> None:
        if self.block_size < 1:
            raise ValueError(f"block_size must be at least 1, not {self.block_size}")

        for field in fields(self):
            value = getattr(self, field.name)
            if value < 0:
                raise ValueError(f"{field.name} must not be negative, got {value}")

        if self.seed >= 1 << 63:  # operators take 64-bit integers
            raise ValueError(f"seed must be below 2^63, got {self.seed}")

        if self.window_blocks and self.window_blocks % 2 == 0:
            raise ValueError(
                f"window_blocks must be odd (or 0), not {self.window_blocks}"
            )

        if not self.global_blocks + self.window_blocks + self.random_blocks:
            raise ValueError("the pattern is empty: no global, window or random blocks")

        if self.causal + (self.num_global_tokens > 0) + self.huggingface > 1:
            raise ValueError(
                "causal, num_global_tokens and huggingface are mutually exclusive"
            )

        if self.huggingface and (self.global_blocks, self.window_blocks) != (2, 3):
            raise ValueError(
                "huggingface needs 2 global and 3 window blocks, "
                f"not {self.global_blocks} and {self.window_blocks}"
            )

    @property
    def first_block_count(self) -> int:
        """How often a row that is not full counts key block 0: its logarithm is added to the scores."""
        return 1 + self.random_blocks if self.huggingface else 1

    def blocks(self, tokens: int) -> int:
        """Number of blocks of `tokens` tokens, including a partial last one, without extra global tokens."""
        return -(-max(tokens - self.num_global_tokens, 0) // self.block_size)

    def graph_blocks(self, length: int, tokens: int) -> int:
        """Number of blocks in the graph of a sequence of true `length` that is padded to `tokens`."""
        return self.blocks(tokens if self.huggingface else length)

    @_cached(1024)
    def global_ids(self, blocks: int) -> Ints:
        """Blocks that all blocks (if causal, all later blocks) attend to, ascending."""
        if self.causal:  # which block is last depends on later tokens
            return np.arange(min(self.global_blocks, blocks), dtype=np.int32)
        first = min(-(-self.global_blocks // 2), blocks)
        last = max(blocks - self.global_blocks // 2, first)
        ids: Ints = np.r_[0:first, last:blocks].astype(np.int32)
        return ids

    @_cached(1024)
    def full_rows(self, blocks: int) -> Ints:
        """Query blocks that attend to every block, ascending. Empty in a causal pattern."""
        if self.causal:
            return np.arange(0, dtype=np.int32)
        if self.huggingface and blocks <= 5 + 2 * self.random_blocks:
            return np.arange(blocks, dtype=np.int32)
        return self.global_ids(blocks)

    @_cached(1024)
    def is_full(self, blocks: int) -> bool:
        """Whether every query block attends to every block (up to its own, if causal): full attention."""
        drawn = 0 if self.huggingface else self.random_blocks
        return bool((self._remaining(blocks) <= drawn).all())

    @_cached(1024)
    def random_ids(self, blocks: int, heads: int, layer: int = 0) -> Ints:
        """The random blocks of every query block, (H, Q, r), in the order drawn. Unused entries,
        the same number for every head, are -1: where fewer than r blocks remain, and in full rows."""
        width = 0 if self.huggingface else self.random_blocks
        chosen = np.full((heads, blocks, width), -1, dtype=np.int32)
        if width == 0:
            return chosen

        remaining = self._remaining(blocks)
        count = np.minimum(remaining, width)
        taken = np.sort(self._fixed(blocks), axis=1)  # (Q, g + w), with -1 first

        for head in range(heads):
            # The words of a causal row do not depend on the number of later rows.
            stream = (layer, head) if self.causal else (layer, head, blocks)
            seed = np.random.SeedSequence(self.seed, spawn_key=stream)
            shape = (blocks, width) if self.causal else (width, blocks)
            words = np.random.PCG64(seed).random_raw(shape) >> np.uint64(32)
            words = words.T if self.causal else words
            # Floyd's algorithm draws `count` distinct ranks below `remaining`, uniformly.
            ranks = np.full((blocks, width), -1, dtype=np.int64)
            for step in range(width):
                last = remaining - count + step
                # Scaling 32 random bits by multiplication is uniform to within (last + 1) / 2**32.
                scaled = words[step] * (last + 1).astype(np.uint64)
                candidate = (scaled >> np.uint64(32)).astype(np.int64)
                repeated = (ranks[:, :step] == candidate[:, None]).any(axis=1)
                drawn = np.where(repeated, last, candidate)
                ranks[:, step] = np.where(step < count, drawn, -1)

            # A rank counts remaining blocks; skip the taken ones in ascending order.
            ids = ranks.copy()
            for column in taken.T:
                ids += (column[:, None] >= 0) & (ids >= column[:, None])

            chosen[head] = np.where(ranks >= 0, ids, -1)

        return chosen

    @_cached(128)
    def key_blocks(self, blocks: int, heads: int, layer: int = 0) -> Ints:
        """The distinct key blocks of each query block, (H, Q, S), padded with -1 at the end.

        Order within a row: global, window, random. Full rows contain only -1, as they attend to every block
        (`full_rows`). A causal row always includes its own block and no later block.
        """
        fixed = np.broadcast_to(
            self._fixed(blocks), (heads, *self._fixed(blocks).shape)
        )
        keys = np.concatenate([fixed, self.random_ids(blocks, heads, layer)], axis=2)

        # A stable sort on "empty" moves -1 to the end and preserves the order of the rest.
        order = np.argsort(keys < 0, axis=2, kind="stable")
        keys = np.take_along_axis(keys, order, axis=2)
        keys[:, self.full_rows(blocks)] = -1
        width = int((keys >= 0).sum(axis=2).max(initial=0))

        return keys[:, :, :width]

    @_cached(64)
    def _fixed(self, blocks: int) -> Ints:
        """Global and window blocks of each query block, (Q, g + w); -1 for missing or duplicate blocks."""
        globals_ = self.global_ids(blocks)
        rows = np.arange(blocks)[:, None]
        reach = self.window_blocks // 2
        after = 0 if self.causal else reach
        offsets = np.arange(-reach, after + 1)
        if not self.window_blocks and not self.causal:  # not even the own block
            offsets = offsets[:0]

        window = rows + offsets
        outside = (window < 0) | (window >= blocks) | np.isin(window, globals_)
        window = np.where(outside, -1, window)
        seen = np.tile(globals_, (blocks, 1))
        if self.causal:
            seen = np.where(seen <= rows, seen, -1)

        return np.concatenate([seen, window], axis=1).astype(np.int32)

    def _remaining(self, blocks: int) -> npt.NDArray[np.int64]:
        """Number of blocks from which the random blocks of each row are drawn, (Q,)."""
        visible = np.arange(1, blocks + 1) if self.causal else np.full(blocks, blocks)
        remaining: npt.NDArray[np.int64] = visible - (self._fixed(blocks) >= 0).sum(
            axis=1
        )
        remaining[self.full_rows(blocks)] = 0
        return remaining

    def block_mask(self, blocks: int, heads: int, layer: int = 0) -> Bools:
        """The pattern by block, (H, Q, Q): whether query block i attends to any key of block j."""
        # One extra column receives the -1 entries of unused places.
        seen = np.zeros((heads, blocks, blocks + 1), dtype=bool)
        keys = self.key_blocks(blocks, heads, layer).astype(np.int64)
        np.put_along_axis(seen, keys, True, axis=2)
        seen[:, self.full_rows(blocks)] = True
        return seen[:, :, :blocks]

    def mask(self, tokens: int, heads: int, layer: int = 0) -> Bools:
        """The pattern by token, (H, L, L): `mask[h, i, j]` is whether query i attends to key j; extra global
        tokens come first. Quadratic in `tokens`: for tests, plots and short sequences."""
        extra = min(self.num_global_tokens, tokens)
        inner = tokens - extra
        mask = np.ones((heads, tokens, tokens), dtype=bool)
        seen = self.block_mask(self.blocks(tokens), heads, layer)
        seen = seen.repeat(self.block_size, axis=1).repeat(self.block_size, axis=2)
        mask[:, extra:, extra:] = seen[:, :inner, :inner]
        return np.tril(mask) if self.causal else mask

    def counts(self, tokens: int, heads: int, layer: int = 0) -> npt.NDArray[np.uint8]:
        """How often query i counts key j, (H, L, L): 0 if masked, 1, or `first_block_count`."""
        counts = self.mask(tokens, heads, layer).astype(np.uint8)
        if self.first_block_count > 1:
            rows = np.ones(self.blocks(tokens), dtype=bool)
            rows[self.full_rows(len(rows))] = False
            repeated = rows.repeat(self.block_size)[:tokens]
            counts[:, repeated, : self.block_size] *= self.first_block_count
        return counts
