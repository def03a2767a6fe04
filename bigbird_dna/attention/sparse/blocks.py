"""The own block, and the last tokens of every other one: sparse_fixed.

Axes: B batch, H heads, N blocks, S tokens of a block, C of them at its end, K head width. Time for a head is
N S (S + N C) K: L √L for blocks of √L tokens.
"""

import torch
from torch import Tensor

from bigbird_dna.attention.joint import Problem, hide, others, scores, triangle, weigh


def last_tokens_attention(problem: Problem, last: int) -> Tensor:
    """Attention of blocks, (B, H, N, S, K), `there` (B, 1, N, S) → (B, H, N, S, K)."""
    q, k, v, *_ = problem
    blocks, size = q.shape[2:4]
    last = min(last, size)
    last_k, last_v = (x[:, :, :, size - last :].flatten(2, 3) for x in (k, v))  # (B, H, N C, K)
    near = own_block_scores(problem)
    further = other_blocks(problem)
    seen = problem.there[:, :, None, :, size - last :] & further[..., None]  # (B, 1, N, N, C)
    far = torch.unflatten(scores(q.flatten(2, 3), last_k), 2, (blocks, size))
    far = hide(far, seen.flatten(3)[..., None, :])  # (B, H, N, S, N C)
    weights = weigh(torch.cat([near, far], -1), problem.dropout)
    near, far = torch.split(weights, [size, blocks * last], -1)
    return near @ v + torch.unflatten(far.flatten(2, 3) @ last_v, 2, (blocks, size))


def own_block_scores(problem: Problem) -> Tensor:
    """Scores of the keys in the own block, (B, H, N, S, S)."""
    seen = problem.there[..., None, :]
    if problem.causal:
        seen = seen & triangle(problem.q.shape[3], problem.q)
    return hide(scores(problem.q, problem.k), seen)


def other_blocks(problem: Problem) -> Tensor:
    """Which blocks a block sees beside itself, (N, N): all, or those before it."""
    blocks = problem.q.shape[2]
    return triangle(blocks, problem.q, -1) if problem.causal else others(blocks, problem.q)
