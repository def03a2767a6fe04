"""How many pairs of a query and a key attention scores, over all heads of a sequence.

Operations are what a result is made of, matrix products alone, an addition and a multiplication as two: four
times its width for each pair of a head. Nothing is counted for softmax, normalization or the optimizer, nor
for scores that a backward pass computes a second time. Axes: H heads, Q query blocks, S blocks of keys.
"""

import numpy as np

from bigbird_dna.attention import Pattern

BACKWARD = 2  # products for each of a forward pass: one for each of its two arguments


def sparse_pairs(pattern: Pattern, tokens: int, heads: int, layer: int = 0) -> int:
    """Pairs of a plain pattern (no variant)."""
    blocks = pattern.blocks(tokens)
    sizes = np.full(blocks + 1, pattern.block_size, dtype=np.int64)
    sizes[-2] = tokens - (blocks - 1) * pattern.block_size
    sizes[-1] = 0  # the -1 of unused places
    keys = pattern.key_blocks(blocks, heads, layer).astype(np.int64)  # (H, Q, S)
    seen = sizes[keys].sum(axis=2)  # (H, Q)
    seen[:, pattern.full_rows(blocks)] = tokens
    return int((seen * sizes[:-1]).sum())


def huggingface_pairs(tokens: int, heads: int, block_size: int, random_blocks: int) -> int:
    """Pairs that HuggingFace's block-sparse attention scores, repeated ones included."""
    blocks = tokens // block_size
    inner = (blocks - 4) * (5 + random_blocks) + 2 * (4 + random_blocks)
    return heads * block_size**2 * (2 * blocks + inner)
