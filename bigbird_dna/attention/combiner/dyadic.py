"""Attention to the own token and its neighbour, and to ever larger blocks through summaries: logsparse.

Level l has blocks of 2^l tokens, and a query sees the other half of its own block of 2^(l + 1). Those of
level 0 are single tokens, seen directly; ⌈log2 L⌉ levels reach every token, for L = 2^m + 1 as well. Axes: B
batch, H heads, L tokens, N blocks of a level, S tokens of each, K head width. Time and memory are L log L.
"""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import pad

from bigbird_dna.attention.combiner.joint import Problem, attended, hide, scores, weigh
from bigbird_dna.attention.combiner.pooling import pool


def dyadic_attention(problem: Problem) -> Tensor:
    """Attention of a sequence, (B, H, L, K) → (B, H, L, K)."""
    tokens = problem.q.shape[2]
    levels = max(1, (tokens - 1).bit_length())
    missing = (1 << levels) - tokens
    if missing:
        problem = problem.map(lambda x: pad(x, (0, 0, 0, missing)))
        problem = problem._replace(there=pad(problem.there, (0, missing)))
    q = problem.q
    columns = [scores(q[..., None, :], problem.k[..., None, :])[..., 0]]  # (B, H, L, 1) each: the own token
    values = [problem.v[..., None, :]]  # (B, H, N, 1, K)
    for key, value, there in _levels(problem, levels):
        blocks = key.shape[2]
        key, value = _siblings(key), _siblings(value)
        seen = _siblings(there[..., None])[..., 0]
        if problem.causal:
            seen = seen & (torch.arange(blocks, device=q.device) % 2 == 1)
        column = scores(torch.unflatten(q, 2, (blocks, -1)), key[..., None, :])  # (B, H, N, S, 1)
        columns.append(hide(column, seen[..., None, None]).flatten(2, 3))
        values.append(value[..., None, :])
    weights = weigh(torch.cat(columns, -1), problem.dropout)
    out = torch.zeros_like(q)
    for weight, value in zip(torch.split(weights, 1, -1), values, strict=True):
        out = out + (torch.unflatten(weight, 2, (value.shape[2], -1)) * value).flatten(2, 3)
    return out[:, :, :tokens]


def _levels(problem: Problem, levels: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Keys and values (B, H, N, K) of the blocks of each level, and which have tokens (B, 1, N)."""
    yield problem.k, problem.v, problem.there
    for level in range(1, levels):
        _, k, v, pooled_q, pooled_k, there, largest, *_ = problem.in_blocks(1 << level)
        query = pool(pooled_q, there, largest)[..., None, :]
        value = attended(query, k, v, there[..., None, :])[..., 0, :]
        yield pool(pooled_k, there, largest), value, there.any(-1)


def _siblings(x: Tensor) -> Tensor:
    """What the other block of each pair has, (B, H, N, …)."""
    return torch.unflatten(x, 2, (-1, 2)).flip(3).flatten(2, 3)
