"""Direct attention within blocks, and to each other block through its summary: fixed, rowmajor, routing.

Axes: B batch, H heads, N blocks, S tokens of a block, K head width. Time and memory for a head are
N S (S + N): L √L for blocks of √L tokens.
"""

import torch
from torch import Tensor

from bigbird_dna.attention.combiner.pooling import pool
from bigbird_dna.attention.joint import Problem, attended, hide, scores, weigh
from bigbird_dna.attention.sparse.blocks import other_blocks, own_block_scores


def block_attention(problem: Problem, by_column: bool = False) -> Tensor:
    """Attention of blocks, (B, H, N, S, K), `there` (B, 1 or H, N, S) → (B, H, N, S, K).

    A causal problem's queries see blocks before their own. With `by_column` a block's summary for the c-th
    query of another block is that under the query of the block's own c-th token.
    """
    q, k, v, pooled_q, pooled_k, there, largest, _, dropout, _ = problem
    blocks, size = q.shape[2:4]
    span_q = pool(pooled_q, there, largest)[..., None, :]  # (B, H, N, 1, K)
    span_k = pool(pooled_k, there, largest)  # (B, H, N, K)
    if by_column:
        span_q = torch.where(there[..., None], q, span_q)
    span_v = attended(span_q, k, v, there[..., None, :])  # (B, H, N, 1 or S, K)

    near = own_block_scores(problem)
    seen = there.any(-1)[:, :, None] & other_blocks(problem)  # (B, 1 or H, N, N)
    far = torch.unflatten(scores(q.flatten(2, 3), span_k), 2, (blocks, size))
    far = hide(far, seen[..., None, :])  # (B, H, N, S, N)

    weights = weigh(torch.cat([near, far], -1), dropout)
    near, far = torch.split(weights, [size, blocks], -1)
    if by_column:
        summed = far.transpose(2, 3) @ span_v.transpose(2, 3)  # (B, H, S, N, K)
        return near @ v + summed.transpose(2, 3)
    summed = far.flatten(2, 3) @ span_v[..., 0, :]
    return near @ v + torch.unflatten(summed, 2, (blocks, size))
