"""Clusters of tokens: learned directions that tokens are sorted by, and the tokens of a cluster side by side.

Online spherical k-means (Roy et al. 2021, arXiv 2003.05997): a token's direction is that of its normalized
query and key together, so that it has one cluster and sees itself.

The tokens of a cluster are cut into chunks of at most S; a larger cluster has several. Chunks are numbered by
their first token, and a token's place in its chunk by those before it, so that where a token goes depends on
none after it. Nothing is dropped. Axes: B batch, H heads, L tokens, K head width, C clusters, P chunks, S
tokens of a chunk; `most_chunks` gives the largest possible number of chunks.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import normalize

from bigbird_dna.attention.mechanism import Heads, HeadSlice, PlannedAttention, by_parts
from bigbird_dna.attention.recompute import selected
from bigbird_dna.config import LayerShape, Section


class ClusterOptions(Section):
    """Of clusters."""

    clusters: int = Field(default=32, ge=1, description="directions that tokens are sorted by, for each head")
    span: int = Field(default=128, ge=1, description="tokens of a chunk; a larger cluster has several")
    decay: float = Field(
        default=0.999, ge=0, le=1, description="share of a cluster's direction that a training step keeps"
    )


class Centroids(nn.Module):
    """Numbers of the nearest of `clusters` directions for each head, which follow their tokens while
    training, `decay` of them staying at each pass; no gradient reaches them."""

    directions: Tensor  # (H, C, K)
    seen: Tensor  # (H, C, K): of the last pass in training, each cluster's tokens added up

    def __init__(self, shape: LayerShape, clusters: int, decay: float) -> None:
        super().__init__()
        self.decay = decay
        drawn = torch.empty(shape.heads, clusters, shape.width).normal_()
        self.register_buffer("directions", normalize(drawn, dim=-1))
        self.register_buffer("seen", torch.zeros_like(drawn))

    @torch.no_grad()
    def forward(self, q: Tensor, k: Tensor, present: Tensor) -> Tensor:
        """The number of the nearest direction, (B, H, L); notes the tokens of each while training."""
        token = normalize(q.detach(), dim=-1) + normalize(k.detach(), dim=-1)

        count = self.directions.shape[1]

        def choose(part: HeadSlice, some: Tensor) -> Tensor:
            return (some @ self.directions[part[1]].to(some.dtype).mT).argmax(-1)

        # Some heads at a time: there is a number for each direction on the way.
        nearest = selected(lambda: by_parts(choose, (token,), token.shape[2] * count), count)
        if self.training:
            token = token.masked_fill(~present[..., None], 0).to(self.seen.dtype)
            seen = torch.zeros_like(self.seen)
            index = nearest.transpose(0, 1).flatten(1)[..., None].expand(-1, -1, token.shape[3])
            seen.scatter_add_(1, index, token.transpose(0, 1).flatten(1, 2))
            self.seen.copy_(seen)
        return nearest

    @torch.no_grad()
    def begin_pass(self) -> None:
        """Let the directions follow the tokens of the last pass in training."""
        moved = self.decay * self.directions + (1 - self.decay) * normalize(self.seen, dim=-1)
        empty = (self.seen == 0).all(-1, keepdim=True)
        self.directions.copy_(torch.where(empty, self.directions, normalize(moved, dim=-1)))
        self.seen.zero_()


class ClusterChunks(NamedTuple):
    """Where tokens go."""

    number: Tensor  # (B, H, L) of each token's chunk; P, which is none, for padding
    place: Tensor  # (B, H, L) in its chunk
    before: Tensor  # (B, H, P), the chunk of the same cluster before each; P, which is none, for a first one
    total: int  # P
    size: int  # S

    @property
    def slots(self) -> Tensor:
        """Place and chunk as one number, (B, H, L, 1)."""
        return (self.number * self.size + self.place)[..., None]

    def used(self) -> "ClusterChunks":
        """Without the chunks, and places, that no sequence or head has a token in; these depend on all."""
        none = self.number == self.total
        total, size = int(self.number.masked_fill(none, 0).max()) + 1, int(self.place.max()) + 1
        before = self.before[..., :total].clamp(max=total)
        return ClusterChunks(self.number.masked_fill(none, total), self.place, before, total, size)

    def spread(self, x: Tensor) -> Tensor:
        """(B, H, L, K) → (B, H, P, S, K), zero where there is no token."""
        room = x.new_zeros(*x.shape[:2], self.total * self.size + 1, x.shape[3])
        spread = room.scatter(2, self.slots.expand_as(x), x)
        return torch.unflatten(spread[:, :, :-1], 2, (self.total, self.size))

    def collect(self, x: Tensor) -> Tensor:
        """The way back, (B, H, P, S, K) → (B, H, L, K); of padding some token's."""
        slots = self.slots.clamp(max=self.total * self.size - 1)
        return x.flatten(2, 3).gather(2, slots.expand(-1, -1, -1, x.shape[4]))


def most_chunks(tokens: int, count: int, size: int) -> tuple[int, int]:
    """P and S of `count` clusters: the most that so many tokens can take, by their number alone, as what is
    causal must not see later tokens by it; neither is above it, however much is asked for."""
    size = min(size, tokens)
    return min(count + tokens // size, tokens), size


def make_chunks(clusters: Tensor, present: Tensor, count: int, size: int) -> ClusterChunks:
    """The chunks of tokens with numbers `clusters` (B, H, L), below `count`, where `present` (B, 1, L)."""
    tokens = clusters.shape[2]
    chunks, size = most_chunks(tokens, count, size)
    clusters = clusters.masked_fill(~present, count)
    order = clusters.argsort(dim=2, stable=True)
    ordered = clusters.gather(2, order)
    everywhere = torch.arange(tokens, device=clusters.device).expand_as(clusters)
    new = torch.ones_like(ordered, dtype=torch.bool)
    new[..., 1:] = ordered[..., 1:] != ordered[..., :-1]
    begin = everywhere.masked_fill(~new, 0).cummax(2).values  # of the token's cluster, in order
    rank = everywhere - begin
    first = everywhere - rank % size  # in order, the token that begins the chunk
    last = order.gather(2, (first - 1).clamp(min=0))  # the one that ends the chunk before
    last = last.masked_fill(rank < size, -1)
    first = order.gather(2, first)
    rank, first, last = (torch.empty_like(x).scatter_(2, order, x) for x in (rank, first, last))
    begins = (first == everywhere) & present
    number = (begins.cumsum(2) - 1).gather(2, first)
    number, place = number.masked_fill(~present, chunks), (rank % size).masked_fill(~present, 0)
    previous = number.gather(2, last.clamp(min=0)).masked_fill(last < 0, chunks)
    before = number.new_full((*number.shape[:2], chunks + 1), chunks).scatter(2, number, previous)
    return ClusterChunks(number, place, before[..., :chunks], chunks, size)


def in_chunks(inputs: Heads, options: ClusterOptions) -> tuple[ClusterChunks, Heads]:
    """The chunks of `inputs.clusters`, and what lies in them, (B, H, P, S, K), `present` (B, H, P, S)."""
    assert inputs.clusters is not None
    chunks = make_chunks(inputs.clusters, inputs.present, options.clusters, options.span)
    chunks = chunks if inputs.causal else chunks.used()
    here = inputs.present.expand_as(inputs.clusters)[..., None].to(inputs.q.dtype)
    return chunks, inputs.map(chunks.spread)._replace(present=chunks.spread(here)[..., 0] > 0)


def plan_of_clusters(
    attend: Callable[[Heads, ClusterOptions], Tensor],
    options: ClusterOptions,
    scores: Callable[[int, int, int], int],
) -> PlannedAttention:
    """A plan of chunks; `scores` that a query has are a function of L, P and S."""

    def sizes(tokens: int) -> tuple[int, int]:
        return most_chunks(tokens, options.clusters, options.span)

    return PlannedAttention(
        lambda inputs: attend(inputs, options),
        lambda tokens: scores(tokens, *sizes(tokens)),
        lambda tokens: math.prod(sizes(tokens)),
    )
