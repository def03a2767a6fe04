"""Direct attention within clusters of tokens, and to each other cluster through its summary: routing.

Tokens of a cluster stand side by side in pieces, see `pieces`. Axes: B batch, H heads, L tokens, P pieces, S
tokens of a piece, N blocks of M queries, K head width. Time for a head is P S (S + P) K, causal P S² K +
L (S + P + M) K, and P is at most clusters + L / S.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from bigbird_dna.attention.combiner.blocks import block_attention
from bigbird_dna.attention.combiner.pooling import pool_up_to
from bigbird_dna.attention.joint import (
    Problem,
    attended,
    hide,
    in_blocks,
    joined,
    recomputed,
    scores,
    triangle,
    weigh,
)
from bigbird_dna.attention.pieces import Pieces, make_pieces

QUERIES = 64
"""Of a block of a causal problem, which shares the summaries of what stands before it.

Each adds a summary of its own; so blocks of about K queries have the fewest vectors and scores together.
"""


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
    tokens, size = problem.q.shape[2], pieces.size
    before = triangle(size, laid.q)
    span_q, span_k = (pool_up_to(x, laid.largest) for x in (laid.pooled_q, laid.pooled_k))
    span_v = attended(span_q, laid.k, laid.v, before)  # (B, H, P, S, K)
    near = pieces.collect(hide(scores(laid.q, laid.k), before))  # (B, H, L, S)
    count = min(QUERIES, tokens)
    slots, seen = _summaries_up_to_each(pieces, count)

    def attend(q: Tensor, near: Tensor, span_k: Tensor, span_v: Tensor) -> tuple[Tensor, Tensor]:
        """Weights of direct keys, (B, H, L, S), and what comes through summaries, (B, H, L, K)."""
        far = hide(scores(in_blocks(q, count), _taken(span_k, slots)), seen)  # (B, H, N, M, P + M)
        weights = weigh(torch.cat([in_blocks(near, count), far], -1), problem.dropout)
        near, far = torch.split(weights, [size, far.shape[-1]], -1)
        return joined(near, problem), joined(far @ _taken(span_v, slots), problem)

    near, through = recomputed(attend, problem.q, near, span_k.flatten(2, 3), span_v.flatten(2, 3))
    return through + pieces.collect(pieces.spread(near) @ laid.v)  # type: ignore[no-any-return]


def _summaries_up_to_each(pieces: Pieces, count: int) -> tuple[Tensor, Tensor]:
    """Slots whose summaries blocks of M = `count` queries need, (B, H, N, P + M), and which each query sees.

    These are, of each piece, that of its last token before the block, and those of the block's own tokens. Of
    a piece beside its own a query sees one, the latest up to itself: (B, H, N, M, P + M).
    """
    total, size = pieces.total, pieces.size
    missing = (0, -pieces.number.shape[2] % count)
    number = pad(pieces.number, missing, value=total)
    slot = torch.unflatten(pad(pieces.slots[..., 0], missing, value=total * size), 2, (-1, count))
    every = torch.arange(total, device=number.device)
    own = number[..., None] == every
    met = torch.unflatten(own.cumsum(2), 2, (-1, count))  # tokens of each piece up to each query
    number, own = (torch.unflatten(x, 2, (-1, count)) for x in (number, own))
    held = (met - own.long())[:, :, :, :1]  # before the block, (B, H, N, 1, P)
    earlier = (met == held) & (held > 0) & ~own
    piece = number.clamp(max=total - 1)[..., None, :].expand(-1, -1, -1, count, -1)
    latest = (met - 1).gather(4, piece) + piece * size  # slots, (B, H, N, M, M)
    later = (latest == slot[..., None, :]) & (number[..., None] != number[..., None, :])
    slots = torch.cat([(every * size + held[:, :, :, 0] - 1).clamp(min=0), slot], 3)
    return slots.clamp(max=total * size - 1), torch.cat([earlier, later], 4)


def _taken(x: Tensor, slots: Tensor) -> Tensor:
    """Vectors (B, H, P S, K) of slots (B, H, N, M): (B, H, N, M, K)."""
    index = slots.flatten(2)[..., None].expand(-1, -1, -1, x.shape[3])
    return torch.unflatten(x.gather(2, index), 2, slots.shape[2:])
