"""Summaries of dyadic blocks, which a query sees beside its own token: logsparse.

Each is made of all its tokens, so that of a level there are L. Axes: B batch, H heads, N blocks, K head
width.
"""

from collections.abc import Iterator

from bigbird_dna.attention.combiner.pooling import pool
from bigbird_dna.attention.joint import Problem, attended
from bigbird_dna.attention.sparse.dyadic import Level


def summaries(problem: Problem, levels: int) -> Iterator[Level]:
    """Keys and values (B, H, N, K) of the blocks of each level, and which have tokens (B, 1, N).

    Those of level 0 are single tokens.
    """
    yield problem.k, problem.v, problem.there
    for level in range(1, levels):
        _, k, v, pooled_q, pooled_k, there, largest, *_ = problem.in_blocks(1 << level)
        query = pool(pooled_q, there, largest)[..., None, :]
        value = attended(query, k, v, there[..., None, :])[..., 0, :]
        yield pool(pooled_k, there, largest), value, there.any(-1)
