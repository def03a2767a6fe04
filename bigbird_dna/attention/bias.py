"""What is added to scores besides padding: how often a key counts, and a causal block's triangle."""

import math
from functools import lru_cache

import torch
from torch import Tensor

from bigbird_dna.attention.pattern import Pattern

# Axes: B batch, N tokens in whole blocks, W block size.


def class_bias(bias: Tensor | None, pattern: Pattern, like: Tensor) -> Tensor | None:
    """The bias (B or 1, N) of each key for query blocks that aren't full; `bias` (B, N) is padding's."""
    if pattern.first_block_count == 1:
        return bias
    if bias is None:
        bias = like.new_zeros(1, like.shape[2])
    counted = bias.clone()
    counted[:, : pattern.block_size] += math.log(pattern.first_block_count)
    return counted


def triangle(size: int, like: Tensor) -> Tensor:
    """(W, W), 0 up to the own token and very negative after it; finite as padding's bias is."""
    return _triangle(size, like.dtype, like.device)


@lru_cache(maxsize=16)
@torch.inference_mode(False)  # what evaluation makes first must serve training as well
def _triangle(size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    lowest = torch.finfo(dtype).min / 4  # adds to a padded key's bias without becoming infinite
    return torch.full((size, size), lowest, dtype=dtype, device=device).triu(1)
