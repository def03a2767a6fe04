"""Common to attention mechanisms: their base class, scores, softmax, blocks, random numbers, clusters."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import dropout as drop
from torch.nn.functional import normalize, pad

from bigbird_dna.attention.call import checked_call, real_positions
from bigbird_dna.attention.pattern import Pattern
from bigbird_dna.config.mechanisms import LayerShape
from bigbird_dna.config.section import Section

# Axes: B batch, H heads, L tokens, K head width, S tokens of a block, N blocks.


class AttentionLayer(nn.Module):
    """Check a call, remove its padding and pass the rest to `compute`, which subclasses implement."""

    def __init__(self, shape: LayerShape, options: Any) -> None:
        super().__init__()
        self.shape = shape
        self.options = options

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        lengths: Tensor | Sequence[int] | None = None,
        dropout: float = 0.0,
        hidden: Tensor | None = None,
    ) -> Tensor:
        """Attention of q, k, v (B, H, L, K) → (B, H, L, K), zero at padding; see `config.mechanisms`.

        `hidden` is ignored. `ValueError`: shapes, types, lengths or dropout are invalid.
        """
        call = checked_call(q, k, v, Pattern(), lengths, 0, dropout)
        if not call.lengths:
            return torch.zeros_like(call.v)
        cut = call.cut()
        present = real_positions(call.lengths, cut.q.shape[2], q.device)[:, None]

        return call.uncut(self.compute(cut.q, cut.k, cut.v, present, dropout))

    def compute(
        self, q: Tensor, k: Tensor, v: Tensor, present: Tensor, dropout: float
    ) -> Tensor:
        """`forward` for valid arguments; `present` (B, 1, L) marks tokens, and padding may get any values."""
        raise NotImplementedError


def in_blocks(x: Tensor, size: int) -> Tensor:
    """(B, H, L, …) → (B, H, N, S, …), zero at padding; one block is enough for any larger size."""
    size = min(size, x.shape[2])
    missing = -x.shape[2] % size
    if missing:
        x = pad(x, (*(0, 0) * (x.dim() - 3), 0, missing))
    return torch.unflatten(x, 2, (-1, size))


def join_blocks(x: Tensor, tokens: int) -> Tensor:
    """Concatenate the tokens of blocks, (B, H, N, S, K) → (B, H, L, K)."""
    return x.flatten(2, 3)[:, :, :tokens]


def take(x: Tensor, index: Tensor) -> Tensor:
    """Vectors of `x` (B, H, L, K) at positions `index` (B, H, …): (B, H, …, K)."""
    flat = index.flatten(2)[..., None].expand(-1, -1, -1, x.shape[3])
    return torch.unflatten(x.gather(2, flat), 2, index.shape[2:])


def scores(q: Tensor, k: Tensor) -> Tensor:
    """q · k / √K, (…, M, K) and (…, N, K) → (…, M, N)."""
    return (q / math.sqrt(q.shape[-1])) @ k.mT


def hide(scores: Tensor, seen: Tensor) -> Tensor:
    """Mask scores in place so that their weight is exactly 0 where not `seen`; arbitrary in rows without any
    seen key."""
    return scores.masked_fill_(~seen, torch.finfo(scores.dtype).min)


def weigh(scores: Tensor, dropout: float = 0.0) -> Tensor:
    """Softmax over the last axis in at least float32, with dropout of weights."""
    wide = torch.promote_types(scores.dtype, torch.float32)
    weights = scores.softmax(-1, dtype=wide).to(scores.dtype)
    return drop(weights, dropout) if dropout else weights


def weigh_together(scores: Sequence[Tensor], dropout: float) -> tuple[Tensor, ...]:
    """`weigh` by one softmax of several scores (…, M) of the same queries."""
    weights = weigh(torch.cat(list(scores), -1), dropout)
    return torch.split(weights, [x.shape[-1] for x in scores], -1)


def masked_attention(q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> Tensor:
    """Masked attention that computes the values of summaries, (…, M, K)."""
    return weigh(hide(scores(q, k), seen)) @ v


def triangle(size: int, like: Tensor, diagonal: int = 0) -> Tensor:
    """(S, S), true from the first column up to `diagonal` columns after the row's own."""
    return torch.ones(size, size, dtype=torch.bool, device=like.device).tril(diagonal)


def off_diagonal(size: int, like: Tensor) -> Tensor:
    """(S, S), true except on the diagonal."""
    return ~torch.eye(size, dtype=torch.bool, device=like.device)


class Redrawn(nn.Module):
    """A buffer `drawn` of random numbers, redrawn every `every` training passes; 0: never. They depend only
    on seed, layer and number of draws, so all processes of a training run have the same numbers."""

    drawn: Tensor
    passes: Tensor  # (1,): training passes so far

    def __init__(
        self, shape: tuple[int, ...], seed: int, layer: int, every: int
    ) -> None:
        super().__init__()
        self.seed = seed
        self.layer = layer
        self.every = every
        self.register_buffer("drawn", torch.empty(shape))
        self.register_buffer("passes", torch.zeros(1))
        self._redraw(0)

    def draw(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Independent standard normal numbers; mechanisms may override this."""
        return torch.randn(shape, generator=generator, device="cpu")

    @torch.no_grad()
    def begin_pass(self) -> None:
        """Count a training pass and redraw when due."""
        self.passes += 1
        passes = int(self.passes)
        if self.every and passes % self.every == 0:
            self._redraw(passes // self.every)

    def _redraw(self, number: int) -> None:
        if self.drawn.is_meta:  # a network without values, which are filled in later
            return
        sequence = np.random.SeedSequence((self.seed, self.layer, number))
        (word,) = sequence.generate_state(1, np.uint64)
        generator = torch.Generator().manual_seed(int(word >> np.uint64(1)))
        # A new tensor: gradients of an earlier pass may still need the previous one.
        self.drawn = self.draw(tuple(self.drawn.shape), generator).to(self.drawn)


# Clusters of tokens: learned directions by which tokens are sorted, and the tokens of each cluster stored
# contiguously. Online spherical k-means (Roy et al. 2021, arXiv 2003.05997): a token's direction is that of
# its normalized query plus its normalized key, so it has one cluster and attends to itself. The tokens of a
# cluster are cut into chunks of at most S; a larger cluster has several chunks. Chunks are numbered by their
# first token, and a token's place in its chunk by the tokens before it, so neither depends on later tokens.
# No token is dropped.
# Axes: B batch, H heads, L tokens, K head width, C clusters, P chunks (`most_chunks`), S tokens of a chunk.


class ClusterOptions(Section):
    """Options of token clusters."""

    clusters: int = Field(default=32, ge=1, description="number of clusters per head")
    span: int = Field(
        default=128,
        ge=1,
        description="tokens per chunk; larger clusters have several chunks",
    )
    decay: float = Field(
        default=0.999,
        ge=0,
        le=1,
        description="fraction of a cluster's direction kept per training step",
    )


class Centroids(nn.Module):
    """Index of the nearest of `clusters` directions per head. In training, directions follow their tokens,
    with weight `decay` for the old direction at each pass; they get no gradients."""

    directions: Tensor  # (H, C, K)
    seen: Tensor  # (H, C, K): sum of each cluster's tokens in the last training pass

    def __init__(self, shape: LayerShape, clusters: int, decay: float) -> None:
        super().__init__()
        self.decay = decay
        drawn = torch.empty(shape.heads, clusters, shape.width).normal_()
        self.register_buffer("directions", normalize(drawn, dim=-1))
        self.register_buffer("seen", torch.zeros_like(drawn))

    @torch.no_grad()
    def forward(self, q: Tensor, k: Tensor, present: Tensor) -> Tensor:
        """Index of the nearest direction, (B, H, L); in training, sums of tokens per cluster are recorded."""
        token = normalize(q.detach(), dim=-1) + normalize(k.detach(), dim=-1)

        nearest = (token @ self.directions.to(token.dtype).mT).argmax(-1)
        if self.training:
            token = token.masked_fill(~present[..., None], 0).to(self.seen.dtype)
            seen = torch.zeros_like(self.seen)
            index = (
                nearest.transpose(0, 1)
                .flatten(1)[..., None]
                .expand(-1, -1, token.shape[3])
            )
            seen.scatter_add_(1, index, token.transpose(0, 1).flatten(1, 2))
            self.seen.copy_(seen)

        return nearest

    @torch.no_grad()
    def begin_pass(self) -> None:
        """Move the directions toward the tokens of the last training pass."""
        moved = self.decay * self.directions + (1 - self.decay) * normalize(
            self.seen, dim=-1
        )
        empty = (self.seen == 0).all(-1, keepdim=True)
        self.directions.copy_(
            torch.where(empty, self.directions, normalize(moved, dim=-1))
        )
        self.seen.zero_()


class ClusterChunks(NamedTuple):
    """Assignment of tokens to chunks."""

    number: Tensor  # (B, H, L) chunk number of each token; P (no chunk) for padding
    place: Tensor  # (B, H, L) position in its chunk
    before: Tensor  # (B, H, P) the previous chunk of the same cluster; P (no chunk) for a first chunk
    total: int  # P
    size: int  # S

    @property
    def slots(self) -> Tensor:
        """Place and chunk as one index, (B, H, L, 1)."""
        return (self.number * self.size + self.place)[..., None]

    def spread(self, x: Tensor) -> Tensor:
        """(B, H, L, K) → (B, H, P, S, K), zero at empty slots."""
        room = x.new_zeros(*x.shape[:2], self.total * self.size + 1, x.shape[3])
        spread = room.scatter(2, self.slots.expand_as(x), x)
        return torch.unflatten(spread[:, :, :-1], 2, (self.total, self.size))

    def collect(self, x: Tensor) -> Tensor:
        """Inverse of `spread`, (B, H, P, S, K) → (B, H, L, K); padding gets arbitrary values."""
        slots = self.slots.clamp(max=self.total * self.size - 1)
        return take(x.flatten(2, 3), slots[..., 0])


def make_chunks(
    clusters: Tensor, present: Tensor, count: int, size: int, causal: bool
) -> ClusterChunks:
    """Chunks of tokens with cluster indices `clusters` (B, H, L) below `count`, where `present` (B, 1, L).

    If `causal`, P and S are the maximum that so many tokens can need, because they must not depend on later
    tokens; otherwise those that are used in any sequence and head.
    """
    batch, heads, tokens = clusters.shape
    size = min(size, tokens)
    # A token's rank in its cluster.
    every = torch.arange(count, device=clusters.device)[:, None]
    own = (clusters[:, :, None] == every) & present[:, :, None]  # (B, H, C, L)
    met = own.cumsum(3, dtype=torch.int32)
    rank = met.gather(2, clusters[:, :, None])[:, :, 0].long() - 1
    place = (rank % size).masked_fill(~present, 0)
    begins = (place == 0) & present

    # Chunk numbers, first by cluster and chunk of the cluster; the last entry is for other tokens.
    most = count * (tokens // size + 1)
    chunk = clusters * (tokens // size + 1) + rank.clamp(min=0) // size
    total = min(count + tokens // size, tokens)
    if not causal:
        total = int(begins.sum(2).max())

    table = clusters.new_full((batch, heads, most + 1), total)
    table.scatter_(2, chunk.masked_fill(~begins, most), begins.cumsum(2) - 1)
    number = table.gather(2, chunk).masked_fill(~present, total)
    previous = table.gather(2, (chunk - 1).clamp(min=0)).masked_fill(rank < size, total)
    before = clusters.new_full((batch, heads, total + 1), total)
    before = before.scatter(2, number, previous)
    if not causal:
        size = int(place.max()) + 1

    return ClusterChunks(number, place, before[..., :total], total, size)
