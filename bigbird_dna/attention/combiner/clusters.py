"""Direct attention within clusters of tokens, and to each other cluster through its summary: routing.

Tokens of a cluster stand side by side in pieces of at most S tokens; a larger cluster has several. Pieces are
numbered by their first token, and a token's place in its piece by those before it, so that where a token goes
depends on none after it. Nothing is dropped. Axes: B batch, H heads, L tokens, P pieces, S tokens of a piece,
K head width. Time and memory for a head are L (S + P), and P is at most clusters + L / S.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from bigbird_dna.attention.combiner.blocks import block_attention
from bigbird_dna.attention.combiner.joint import Problem, attended, hide, recomputed, scores, triangle, weigh
from bigbird_dna.attention.combiner.pooling import pool_up_to

QUERIES = 256
"""Of a causal problem that summaries are gathered for at once."""


class Pieces(NamedTuple):
    """Where tokens go."""

    number: Tensor  # (B, H, L) of each token's piece; P, which is none, for padding
    place: Tensor  # (B, H, L) in its piece
    total: int  # P
    size: int  # S

    @property
    def slots(self) -> Tensor:
        """Place and piece as one number, (B, H, L, 1)."""
        return (self.number * self.size + self.place)[..., None]

    def used(self) -> "Pieces":
        """Without the pieces that no sequence or head has a token in; how many that are depends on all."""
        none = self.number == self.total
        total = int(self.number.masked_fill(none, 0).max()) + 1
        return self._replace(number=self.number.masked_fill(none, total), total=total)

    def spread(self, x: Tensor) -> Tensor:
        """(B, H, L, K) → (B, H, P, S, K), zero where there is no token."""
        room = x.new_zeros(*x.shape[:2], self.total * self.size + 1, x.shape[3])
        spread = room.scatter(2, self.slots.expand_as(x), x)
        return torch.unflatten(spread[:, :, :-1], 2, (self.total, self.size))

    def collect(self, x: Tensor) -> Tensor:
        """The way back, (B, H, P, S, K) → (B, H, L, K); of padding some token's."""
        slots = self.slots.clamp(max=self.total * self.size - 1)
        return x.flatten(2, 3).gather(2, slots.expand(-1, -1, -1, x.shape[4]))


def make_pieces(clusters: Tensor, there: Tensor, count: int, size: int) -> Pieces:
    """The pieces of tokens with the numbers `clusters` (B, H, L), below `count`, where `there` (B, 1, L)."""
    tokens = clusters.shape[2]
    clusters = clusters.masked_fill(~there, count)
    order = clusters.argsort(dim=2, stable=True)
    ordered = clusters.gather(2, order)
    everywhere = torch.arange(tokens, device=clusters.device).expand_as(clusters)
    new = torch.ones_like(ordered, dtype=torch.bool)
    new[..., 1:] = ordered[..., 1:] != ordered[..., :-1]
    begin = everywhere.masked_fill(~new, 0).cummax(2).values  # of the token's cluster, in order
    rank = everywhere - begin
    first = order.gather(2, everywhere - rank % size)  # the token that begins the piece
    rank, first = (torch.empty_like(x).scatter_(2, order, x) for x in (rank, first))
    begins = (first == everywhere) & there
    number = (begins.cumsum(2) - 1).gather(2, first)
    pieces = count + tokens // size
    number, place = number.masked_fill(~there, pieces), (rank % size).masked_fill(~there, 0)
    return Pieces(number, place, pieces, size)


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
