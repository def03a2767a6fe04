"""A pattern as index tensors: which blocks are gathered for which queries.

Query blocks that aren't global are sorted into classes by the number of key blocks they see, so that each
class is a rectangle and needs no mask. Almost all blocks are in one class; those near the ends of the
sequence, whose window is clipped or meets a global block, make up one or two small ones.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from bigbird_dna.attention.pattern import Pattern

# Axes: H heads, Q blocks of the sequence, G global blocks, M query blocks of a class, S key blocks of each.


class QueryClass(NamedTuple):
    """Query blocks that see equally many key blocks."""

    queries: Tensor  # (M,) int64, block numbers
    keys: Tensor  # (H, M, S) int64, block numbers


class Plan(NamedTuple):
    """Index tensors of one pattern, number of blocks, number of heads and layer, on one device."""

    blocks: int
    globals: Tensor  # (G,) int64
    classes: tuple[QueryClass, ...]
    restore: (
        Tensor  # (Q,) int64: puts [globals, class, class …] back into the order of the sequence
    )


@lru_cache(maxsize=512)
@torch.inference_mode(False)  # a plan first made in evaluation must serve training as well
def make_plan(pattern: Pattern, blocks: int, heads: int, layer: int, device: torch.device) -> Plan:
    """The plan for sequences of `blocks` blocks; cached, as it is the same in every step."""
    keys = pattern.key_blocks(blocks, heads, layer).astype(np.int64)
    globals_ = pattern.global_ids(blocks).astype(np.int64)
    seen = (keys[0] >= 0).sum(axis=1)  # the same for every head
    classes = []
    order = [globals_]
    for width in np.unique(seen[seen > 0]):
        queries = np.flatnonzero(seen == width)
        order.append(queries)
        classes.append(
            QueryClass(
                torch.from_numpy(queries).to(device),
                torch.from_numpy(keys[:, queries, :width]).to(device),
            )
        )
    restore = np.argsort(np.concatenate(order))
    return Plan(
        blocks,
        torch.from_numpy(globals_).to(device),
        tuple(classes),
        torch.from_numpy(restore).to(device),
    )
