"""How many pairs of a query and a key attention scores, over all heads of a sequence.

Operations are what a result is made of, matrix products alone, an addition and a multiplication as two: four
times its width for each pair of a head. Nothing is counted for softmax, normalization or the optimizer, nor
for scores that a backward pass computes a second time. A Fourier transform of N complex numbers counts as
5 N log2 N operations, one of real numbers as half.

Bytes are the least that must be moved between memory and processor: of attention its inputs and results, each
once; of an encoder its weights once per pass, and the inputs and results of every product of a layer. Caches
spare some of the latter.

Axes: H heads, Q query blocks, S blocks of keys.
"""

import math

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


def huggingface_pairs(
    tokens: int, heads: int, block_size: int, random_blocks: int
) -> int:
    """Pairs that HuggingFace's block-sparse attention scores, repeated ones included."""
    blocks = tokens // block_size
    inner = (blocks - 4) * (5 + random_blocks) + 2 * (4 + random_blocks)
    return heads * block_size**2 * (2 * blocks + inner)


def convolution_operations(tokens: int, channels: int) -> int:
    """Of a gated long convolution by Fourier transforms of twice the length."""
    double = 2 * tokens
    transforms = (
        3 * 2.5 * double * math.log2(double)
    )  # of the input, of the filter, and back
    return round(channels * (transforms + 6 * (tokens + 1) + 4 * tokens))


def attention_bytes(numbers: int, trains: bool, size: int = 4) -> int:
    """Of attention whose queries have so many numbers of `size` bytes.

    Forward: queries, keys, values, and the result. Backward: these, the gradient, and three gradients.
    """
    return size * numbers * (4 + 8 * trains)


def encoder_operations(layers: int, hidden: int, tokens: int, keys: float) -> int:
    """Of the layers of an encoder for so many tokens, each of which attends to so many keys."""
    return round(tokens * layers * (24 * hidden**2 + 4 * keys * hidden))


def encoder_bytes(
    weights: int, layers: int, hidden: int, tokens: int, trains: bool, size: int = 4
) -> int:
    """Of a pass of an encoder with so many weights over so many tokens, in a step with AdamW if it trains.

    A layer's products take and give 20 numbers per token and unit of width. A step reads the weights again,
    writes their gradients, and reads and writes gradients, weights and two moments.
    """
    return size * (
        weights * (1 + 9 * trains)
        + 20 * layers * hidden * tokens * (1 + BACKWARD * trains)
    )
