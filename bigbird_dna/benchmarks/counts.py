"""How many floating-point operations a pass needs: an addition and a multiplication count as two.

Counted is what the result is made of, matrix products alone: nothing for softmax, normalisation or the
optimiser, and nothing for scores that a backward pass computes a second time.
"""

import numpy as np

from bigbird_dna.attention.pattern import Pattern

# Axes: H heads, Q query blocks, S key blocks that each of these sees.

BACKWARD = 2  # of a matrix product: one product for each of its two arguments


def sparse_pairs(pattern: Pattern, tokens: int, heads: int, layer: int = 0) -> int:
    """Pairs of a query and a key that it sees, over all heads, of a plain pattern (no variant)."""
    blocks = pattern.blocks(tokens)
    sizes = np.full(blocks + 1, pattern.block_size, dtype=np.int64)
    sizes[-2] = tokens - (blocks - 1) * pattern.block_size
    sizes[-1] = 0  # the -1 of unused places
    keys = pattern.key_blocks(blocks, heads, layer).astype(np.int64)
    seen = sizes[keys].sum(axis=2)  # (H, Q)
    seen[:, pattern.full_rows(blocks)] = tokens
    return int((seen * sizes[:-1]).sum())


def full_pairs(tokens: int, heads: int) -> int:
    """Pairs of full attention over all heads."""
    return heads * tokens**2


def huggingface_pairs(tokens: int, heads: int, block_size: int, random_blocks: int) -> int:
    """Pairs that HuggingFace's block-sparse attention scores, repeated ones included, over all heads."""
    blocks = tokens // block_size
    inner = (blocks - 4) * (5 + random_blocks) + 2 * (4 + random_blocks)
    return heads * block_size**2 * (2 * blocks + inner)


def attention_operations(pairs: int, width: int, *, trains: bool) -> int:
    """Operations of attention over `pairs`: a score and a weighted value of `width` numbers for each."""
    return 4 * width * pairs * (1 + BACKWARD * trains)


def encoder_operations(
    *,
    tokens: int,
    predicted: int,
    layers: int,
    hidden: int,
    intermediate: int,
    vocabulary: int,
    pairs: int,
    trains: bool,
) -> int:
    """Operations of an encoder with its masked-token head.

    `tokens` and `predicted` (positions whose vocabulary is scored) count through the whole batch, as do
    `pairs`, which are one layer's times the width of a head, such as `sparse_pairs(…) · hidden / heads`.
    """
    linear = 2 * tokens * layers * (4 * hidden**2 + 2 * hidden * intermediate)
    head = 2 * predicted * (hidden**2 + hidden * vocabulary)
    return (linear + head + 4 * pairs * layers) * (1 + BACKWARD * trains)
