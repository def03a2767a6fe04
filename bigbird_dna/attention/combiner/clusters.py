"""Direct attention within clusters of tokens, and to each other cluster through its summary: routing.

Tokens of a cluster stand side by side in pieces, see `pieces`. Axes: B batch, H heads, L tokens, P pieces, S
tokens of a piece, K head width. Time for a head is L (S + P) K, and P is at most clusters + L / S.
"""

import math

import torch
from torch import Tensor

from bigbird_dna.attention.combiner.blocks import block_attention
from bigbird_dna.attention.combiner.pooling import pool_up_to
from bigbird_dna.attention.joint import Problem, attended, hide, recomputed, scores, triangle, weigh
from bigbird_dna.attention.pieces import Pieces, make_pieces

QUERIES = 256
"""Of a causal problem that summaries are gathered for at once."""


def cluster_attention(problem: Problem, count: int, size: int) -> Tensor:
    """Attention by the numbers below `count` of `problem.clusters`, (B, H, L, K) → (B, H, L, K)."""
    assert problem.clusters is not None
    pieces = make_pieces(problem.clusters, problem.there, count, size)
    pieces = pieces if problem.causal else pieces.used()
    laid = problem.map(pieces.spread)
    here = problem.there.expand_as(problem.clusters)[..., None].to(problem.q.dtype)
    laid = laid._replace(there=pieces.spread(here)[..., 0] > 0)
    if problem.causal:
        return _up_to_each(problem, laid, pieces)
    return pieces.collect(block_attention(laid))


def _up_to_each(problem: Problem, laid: Problem, pieces: Pieces) -> Tensor:
    """A query sees of each piece what stands before it: a summary for each token, of its piece up to it."""
    size, width = pieces.size, problem.q.shape[3]
    before = triangle(size, laid.q)
    span_q, span_k = (pool_up_to(x, laid.largest) for x in (laid.pooled_q, laid.pooled_k))
    span_v = attended(span_q, laid.k, laid.v, before)  # (B, H, P, S, K)
    near = pieces.collect(hide(scores(laid.q, laid.k), before))  # (B, H, L, S)
    span_k, span_v = span_k.flatten(2, 3), span_v.flatten(2, 3)
    own = pieces.number[..., None] == torch.arange(pieces.total, device=span_k.device)  # (B, H, L, P)
    met = own.cumsum(2)  # tokens of each piece up to each query
    latest = torch.arange(pieces.total, device=span_k.device) * size + met - 1  # slots
    aside = (met > 0) & ~own

    def attend(q: Tensor, near: Tensor, some: slice) -> Tensor:
        """Weights of direct keys and what comes through summaries, (B, H, M, S + K)."""
        slots = latest[:, :, some].clamp(min=0)
        far = (_taken(span_k, slots) @ q[..., None])[..., 0] / math.sqrt(width)
        far = hide(far, aside[:, :, some])
        weights = weigh(torch.cat([near, far], -1), problem.dropout)
        near, far = torch.split(weights, [size, pieces.total], -1)
        through = far[..., None, :] @ _taken(span_v, slots)
        return torch.cat([near, through[..., 0, :]], -1)

    parts = []
    for start in range(0, problem.q.shape[2], QUERIES):
        some = slice(start, start + QUERIES)
        parts.append(recomputed(attend, problem.q[:, :, some], near[:, :, some], some))
    near, through = torch.split(torch.cat(parts, 2), [size, width], -1)
    return through + pieces.collect(pieces.spread(near) @ laid.v)


def _taken(x: Tensor, places: Tensor) -> Tensor:
    """Vectors (B, H, ·, K) at places (B, H, M, N): (B, H, M, N, K)."""
    index = places.flatten(2)[..., None].expand(-1, -1, -1, x.shape[3])
    return torch.unflatten(x.gather(2, index), 2, places.shape[2:])
