"""Common to attention mechanisms: base classes, scores, joint softmax, computation by heads, clusters."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import dropout, normalize, pad
from torch.utils.checkpoint import checkpoint

from bigbird_dna.attention.call import checked_call, real_positions
from bigbird_dna.attention.fast_paths import is_transformed
from bigbird_dna.attention.pattern import Pattern
from bigbird_dna.attention.recompute import selected
from bigbird_dna.config.mechanisms import LayerShape
from bigbird_dna.config.section import Section

# Axes: B batch, H heads, L tokens, K head width, S tokens of a block, N blocks.

# Approximate number of elements that one part of the computation holds at once: 16 MiB in float32 on a CPU,
# which fit in or near its cache. On other devices this only bounds the memory.
ELEMENTS = {"cpu": 1 << 22}
ELEMENTS_ELSEWHERE = 1 << 28


class Heads(NamedTuple):
    """Inputs of attention for several sequences and heads; all tensors but `present` are (B, H, L, K)."""

    q: Tensor
    k: Tensor
    v: Tensor
    pooled_q: Tensor  # summaries are pooled from these queries and keys
    pooled_k: Tensor
    present: Tensor  # (B, 1, L): not padding
    largest: bool  # pooling by maximum, else by mean
    causal: bool
    dropout: float
    clusters: Tensor | None = (
        None  # (B, H, L) cluster numbers, for plans based on clusters
    )

    def map(self, change: Callable[[Tensor], Tensor]) -> "Heads":
        """Return a copy with `change` applied once to each distinct tensor among the first five."""
        changed = {id(x): change(x) for x in {id(x): x for x in self[:5]}.values()}
        q, k, v, pooled_q, pooled_k = (changed[id(x)] for x in self[:5])
        return self._replace(q=q, k=k, v=v, pooled_q=pooled_q, pooled_k=pooled_k)

    def in_blocks(self, size: int) -> "Heads":
        """Split into blocks, (B, H, N, S, K) and `present` (B, 1, N, S), padding the last block.

        S is at most L: a single block with all tokens gives the same result for any larger block size.
        """
        size = min(size, self.q.shape[2])
        return self.map(lambda x: in_blocks(x, size))._replace(
            present=in_blocks(self.present[..., None], size)[..., 0]
        )


def in_blocks(x: Tensor, size: int) -> Tensor:
    """(B, H, L, K) → (B, H, N, S, K), zero at padding."""
    missing = -x.shape[2] % size
    x = pad(x, (0, 0, 0, missing)) if missing else x
    return torch.unflatten(x, 2, (-1, size))


def blocks_of(tokens: int, size: int) -> tuple[int, int]:
    """N and S of `tokens` tokens in blocks of `size`, see `Heads.in_blocks`."""
    size = min(size, tokens)
    return -(-tokens // size), size


def join_blocks(out: Tensor, inputs: Heads) -> Tensor:
    """Concatenate the tokens of blocks, (B, H, N, S, K) → (B, H, L, K)."""
    return out.flatten(2, 3)[:, :, : inputs.q.shape[2]]


def scores(q: Tensor, k: Tensor) -> Tensor:
    """q · k / √K, (…, M, K) and (…, N, K) → (…, M, N)."""
    return (q / math.sqrt(q.shape[-1])) @ k.mT


def hide(scores: Tensor, seen: Tensor) -> Tensor:
    """Mask scores in place so that their weight is exactly 0 where not `seen`; arbitrary in rows without any
    seen key."""
    return scores.masked_fill_(~seen, torch.finfo(scores.dtype).min)


def weigh(scores: Tensor, probability: float = 0.0) -> Tensor:
    """Softmax over the last axis in at least float32, with dropout of weights."""
    wide = torch.promote_types(scores.dtype, torch.float32)
    weights = scores.softmax(-1, dtype=wide).to(scores.dtype)
    return dropout(weights, probability) if probability else weights


def masked_attention(q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> Tensor:
    """Masked attention that computes the values of summaries, (…, M, K)."""
    return weigh(hide(scores(q, k), seen)) @ v


def triangle(size: int, like: Tensor, diagonal: int = 0) -> Tensor:
    """(S, S), true from the first column up to `diagonal` columns after the row's own."""
    return torch.ones(size, size, dtype=torch.bool, device=like.device).tril(diagonal)


def off_diagonal(size: int, like: Tensor) -> Tensor:
    """(S, S), true except on the diagonal."""
    return ~torch.eye(size, dtype=torch.bool, device=like.device)


def recomputed(attend: Callable[..., Any], *arguments: object) -> Any:
    """Result of a function that is called again in the backward pass instead of storing its intermediates."""
    if torch.is_grad_enabled() and not is_transformed():
        return checkpoint(attend, *arguments, use_reentrant=False)
    return attend(*arguments)


HeadSlice = tuple[slice, slice]  # slices of batch and heads


def by_heads(
    attend: Callable[..., Tensor], vectors: Sequence[Tensor], each: int
) -> Tensor:
    """Concatenate the results of `attend(part, *vectors)` over parts of batch and heads. Vectors are (B, H,
    L, K), and `attend` holds about `each` elements per head of a sequence."""
    batch, heads, *_ = vectors[0].shape
    fit = max(1, ELEMENTS.get(vectors[0].device.type, ELEMENTS_ELSEWHERE) // each)
    if fit >= batch * heads:
        return attend((slice(0, batch), slice(0, heads)), *vectors)
    rows = max(1, fit // heads)
    outs = []
    # Split instead of sliced: the gradient of a slice is as large as the tensor that it was cut from.
    split_rows = zip(*(torch.split(x, rows) for x in vectors), strict=True)
    for first_row, some in zip(range(0, batch, rows), split_rows, strict=True):
        some_rows = slice(first_row, min(first_row + rows, batch))
        split_heads = zip(*(torch.split(x, fit, 1) for x in some), strict=True)
        of_heads = []
        for head, some_vectors in zip(range(0, heads, fit), split_heads, strict=True):
            part = some_rows, slice(head, min(head + fit, heads))
            of_heads.append(recomputed(attend, part, *some_vectors))
        outs.append(torch.cat(of_heads, 1))
    return torch.cat(outs) if len(outs) > 1 else outs[0]


class AttentionLayer(nn.Module):
    """Check a call, remove its padding and pass the rest to `attended`, which subclasses implement."""

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


_TEMPORARIES = 8  # approximate number of vectors that `attend` creates per token


class HeadsLayer(AttentionLayer):
    """Attention that depends only on queries, keys and values, a few heads at a time."""

    largest = False

    def __init__(self, shape: LayerShape, options: Any) -> None:
        super().__init__()
        self.shape, self.options = shape, options
        self.centroids: Centroids | None = None  # assigns tokens to clusters

    def attend(self, inputs: Heads) -> Tensor:
        """Attention of several heads, (B, H, L, K) → (B, H, L, K), arbitrary at padding."""
        raise NotImplementedError

    def size(self, tokens: int) -> tuple[int, int]:
        """For sequences of `tokens` tokens: the tokens including padding of blocks, and scores per token."""
        raise NotImplementedError

    def pooled(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Tensors from which summaries are pooled, (B, H, L, K) each."""
        return q, k

    def compute(
        self, q: Tensor, k: Tensor, v: Tensor, present: Tensor, dropout: float
    ) -> Tensor:
        """Attention by `attend`."""
        tokens, width = q.shape[2:]
        clusters = None if self.centroids is None else self.centroids(q, k, present)

        def attend(
            part: HeadSlice, query: Tensor, key: Tensor, value: Tensor
        ) -> Tensor:
            vectors = query, key, value, *self.pooled(query, key)
            some = None if clusters is None else clusters[part]
            rest = present[part[0]], self.largest, self.shape.causal, dropout, some
            return self.attend(Heads(*vectors, *rest))

        padded, scores = self.size(tokens)
        return by_heads(attend, (q, k, v), padded * (scores + _TEMPORARIES * width))


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

        count = self.directions.shape[1]

        def choose(part: HeadSlice, some: Tensor) -> Tensor:
            return (some @ self.directions[part[1]].to(some.dtype).mT).argmax(-1)

        # A few heads at a time: the intermediate products have one element per direction.
        nearest = selected(
            lambda: by_heads(choose, (token,), token.shape[2] * count), count
        )
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

    def used(self) -> "ClusterChunks":
        """Without chunks and places that are empty in all sequences and heads; depends on all tokens."""
        none = self.number == self.total
        total, size = (
            int(self.number.masked_fill(none, 0).max()) + 1,
            int(self.place.max()) + 1,
        )
        before = self.before[..., :total].clamp(max=total)
        return ClusterChunks(
            self.number.masked_fill(none, total), self.place, before, total, size
        )

    def spread(self, x: Tensor) -> Tensor:
        """(B, H, L, K) → (B, H, P, S, K), zero at empty slots."""
        room = x.new_zeros(*x.shape[:2], self.total * self.size + 1, x.shape[3])
        spread = room.scatter(2, self.slots.expand_as(x), x)
        return torch.unflatten(spread[:, :, :-1], 2, (self.total, self.size))

    def collect(self, x: Tensor) -> Tensor:
        """Inverse of `spread`, (B, H, P, S, K) → (B, H, L, K); padding gets arbitrary values."""
        slots = self.slots.clamp(max=self.total * self.size - 1)
        return x.flatten(2, 3).gather(2, slots.expand(-1, -1, -1, x.shape[4]))


def most_chunks(tokens: int, count: int, size: int) -> tuple[int, int]:
    """P and S of `count` clusters: the maximum that `tokens` tokens can need. It depends only on their
    number, because causal attention must not depend on later tokens; both are at most `tokens`."""
    size = min(size, tokens)
    return min(count + tokens // size, tokens), size


def make_chunks(
    clusters: Tensor, present: Tensor, count: int, size: int
) -> ClusterChunks:
    """Chunks of tokens with cluster indices `clusters` (B, H, L) below `count`, where `present` (B, 1, L)."""
    tokens = clusters.shape[2]
    chunks, size = most_chunks(tokens, count, size)
    clusters = clusters.masked_fill(~present, count)
    order = clusters.argsort(dim=2, stable=True)
    ordered = clusters.gather(2, order)
    everywhere = torch.arange(tokens, device=clusters.device).expand_as(clusters)
    new = torch.ones_like(ordered, dtype=torch.bool)
    new[..., 1:] = ordered[..., 1:] != ordered[..., :-1]
    begin = (
        everywhere.masked_fill(~new, 0).cummax(2).values
    )  # of the token's cluster, in sorted order
    rank = everywhere - begin
    first = everywhere - rank % size  # in sorted order, the first token of the chunk
    last = order.gather(2, (first - 1).clamp(min=0))  # last token of the previous chunk
    last = last.masked_fill(rank < size, -1)
    first = order.gather(2, first)
    rank, first, last = (
        torch.empty_like(x).scatter_(2, order, x) for x in (rank, first, last)
    )
    begins = (first == everywhere) & present
    number = (begins.cumsum(2) - 1).gather(2, first)
    number, place = (
        number.masked_fill(~present, chunks),
        (rank % size).masked_fill(~present, 0),
    )
    previous = number.gather(2, last.clamp(min=0)).masked_fill(last < 0, chunks)
    before = number.new_full((*number.shape[:2], chunks + 1), chunks).scatter(
        2, number, previous
    )
    return ClusterChunks(number, place, before[..., :chunks], chunks, size)


def in_chunks(inputs: Heads, options: ClusterOptions) -> tuple[ClusterChunks, Heads]:
    """The chunks of `inputs.clusters`, and the inputs in chunks, (B, H, P, S, K), `present` (B, H, P, S)."""
    assert inputs.clusters is not None
    chunks = make_chunks(
        inputs.clusters, inputs.present, options.clusters, options.span
    )
    chunks = chunks if inputs.causal else chunks.used()
    here = inputs.present.expand_as(inputs.clusters)[..., None].to(inputs.q.dtype)
    return chunks, inputs.map(chunks.spread)._replace(
        present=chunks.spread(here)[..., 0] > 0
    )
