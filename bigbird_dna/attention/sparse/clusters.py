"""Attention within clusters of tokens, wherever they stand: routing.

A query sees the tokens of its piece of a cluster and of the piece before it (see `pieces`): the whole cluster
where that has at most S + 1 tokens, else at least the S nearest before it. So the cost holds whatever the
clusters are, nothing is dropped, and no token is seen or left out because of a later one. Axes: B batch, H
heads, L tokens, P pieces, S tokens of a piece, K head width. Time for a head is P S² K, P at most clusters +
L / S.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from bigbird_dna.attention.joint import Problem, hide, scores, triangle, weigh
from bigbird_dna.attention.pieces import make_pieces


def cluster_attention(problem: Problem, count: int, size: int) -> Tensor:
    """Attention by the numbers below `count` of `problem.clusters`, (B, H, L, K) → (B, H, L, K)."""
    assert problem.clusters is not None
    pieces = make_pieces(problem.clusters, problem.there, count, size)
    pieces = pieces if problem.causal else pieces.used()
    size = pieces.size
    q, k, v = (pieces.spread(x) for x in (problem.q, problem.k, problem.v))
    here = problem.there.expand_as(problem.clusters)[..., None].to(q.dtype)
    there = pieces.spread(here)[..., 0] > 0  # (B, H, P, S)

    def with_before(x: Tensor) -> Tensor:
        """(B, H, P, S, …) → (B, H, P, 2 S, …), first the piece before, zero where there is none."""
        flat = pad(x.flatten(3), (0, 0, 0, 1))
        before = flat.gather(2, pieces.before[..., None].expand(-1, -1, -1, flat.shape[3]))
        return torch.cat([torch.unflatten(before, 3, tuple(x.shape[3:])), x], 3)

    seen = with_before(there)[..., None, :]
    if problem.causal:
        own = torch.arange(2 * size, device=q.device) >= size
        seen = seen & (~own | pad(triangle(size, q), (size, 0)))
    weights = weigh(hide(scores(q, with_before(k)), seen), problem.dropout)
    return pieces.collect(weights @ with_before(v))
