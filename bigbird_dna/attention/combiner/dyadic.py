"""Summaries of dyadic blocks, which a query sees beside its own token: logsparse.

Each is made of all its tokens, so that of a level there are L. Axes: B batch, H heads, N blocks, K head
width.
"""

from collections.abc import Iterator

from torch import Tensor

from bigbird_dna.attention.combiner.pooling import pool
from bigbird_dna.attention.joint import Problem, attended, recomputed
from bigbird_dna.attention.sparse.dyadic import Level


def summaries(problem: Problem, count: int) -> Iterator[Level]:
    """Keys and values (B, H, N, K) of the blocks of each level, and which have tokens (B, 1, N).

    Those of level 0 are single tokens.
    """
    yield problem.k, problem.v, problem.there
    for level in range(1, count):
        _, k, v, pooled_q, pooled_k, there, largest, *_ = problem.in_blocks(1 << level)
        key, value = recomputed(_summary, k, v, pooled_q, pooled_k, there, largest)
        yield key, value, there.any(-1)


def _summary(
    k: Tensor, v: Tensor, pooled_q: Tensor, pooled_k: Tensor, there: Tensor, largest: bool
) -> tuple[Tensor, Tensor]:
    """One key and value for each block, (B, H, N, K), of its tokens' (B, H, N, S, K)."""
    query = pool(pooled_q, there, largest)[..., None, :]
    value = attended(query, k, v, there[..., None, :])[..., 0, :]
    return pool(pooled_k, there, largest), value
