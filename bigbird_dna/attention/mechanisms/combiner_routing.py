"""Combiner by learned clusters: direct attention within the own one, and to each other through its summary.

Ren et al. 2021, arXiv 2107.05768; `combiner` has the equations. Clusters are those of the nearest of learned
directions; one of more than `span` tokens is cut into chunks, in the order of its tokens, so that the cost
holds whatever the clusters are. Tokens of a chunk stand side by side, see `attention.mechanism`.

Axes: B batch, H heads, L tokens, P chunks, S tokens of a chunk, N blocks of M queries, K head width. Time for
a head is P S (S + P) K, causal P S² K + L (S + P + M) K, and P is at most clusters + L / S.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from bigbird_dna.attention.mechanism import (
    Centroids,
    ClusterChunks,
    ClusterOptions,
    Heads,
    attended,
    hide,
    in_blocks,
    in_chunks,
    joined,
    plan_of_clusters,
    recomputed,
    scores,
    triangle,
    weigh,
)
from bigbird_dna.attention.mechanisms.combiner import Combiner, CombinerOptions, block_attention, pool_up_to
from bigbird_dna.config import LayerShape, Mechanism

QUERIES = 64
"""Of a block of a causal problem, which shares the summaries of what stands before it.

Each adds a summary of its own; so blocks of about K queries have the fewest vectors and scores together.
"""


def cluster_attention(inputs: Heads, options: ClusterOptions) -> Tensor:
    """Attention by `inputs.clusters`, (B, H, L, K) → (B, H, L, K)."""
    chunks, laid = in_chunks(inputs, options)
    if inputs.causal:
        return _up_to_each(inputs, laid, chunks)
    return chunks.collect(block_attention(laid))


def _up_to_each(inputs: Heads, laid: Heads, chunks: ClusterChunks) -> Tensor:
    """A query sees of each chunk what stands before it: a summary for each token, of its chunk up to it."""
    tokens, size = inputs.q.shape[2], chunks.size
    before = triangle(size, laid.q)
    span_q, span_k = (pool_up_to(x, laid.largest) for x in (laid.pooled_q, laid.pooled_k))
    span_v = attended(span_q, laid.k, laid.v, before)  # (B, H, P, S, K)
    near = chunks.collect(hide(scores(laid.q, laid.k), before))  # (B, H, L, S)
    count = min(QUERIES, tokens)
    slots, seen = _summaries_up_to_each(chunks, count)

    def attend(q: Tensor, near: Tensor, span_k: Tensor, span_v: Tensor) -> tuple[Tensor, Tensor]:
        """Weights of direct keys, (B, H, L, S), and what comes through summaries, (B, H, L, K)."""
        far = hide(scores(in_blocks(q, count), _taken(span_k, slots)), seen)  # (B, H, N, M, P + M)
        weights = weigh(torch.cat([in_blocks(near, count), far], -1), inputs.dropout)
        near, far = torch.split(weights, [size, far.shape[-1]], -1)
        return joined(near, inputs), joined(far @ _taken(span_v, slots), inputs)

    near, through = recomputed(attend, inputs.q, near, span_k.flatten(2, 3), span_v.flatten(2, 3))
    return through + chunks.collect(chunks.spread(near) @ laid.v)  # type: ignore[no-any-return]


def _summaries_up_to_each(chunks: ClusterChunks, count: int) -> tuple[Tensor, Tensor]:
    """Slots whose summaries blocks of M = `count` queries need, (B, H, N, P + M), and which each query sees.

    These are, of each chunk, that of its last token before the block, and those of the block's own tokens. Of
    a chunk beside its own a query sees one, the latest up to itself: (B, H, N, M, P + M).
    """
    total, size = chunks.total, chunks.size
    missing = (0, -chunks.number.shape[2] % count)
    number = pad(chunks.number, missing, value=total)
    slot = torch.unflatten(pad(chunks.slots[..., 0], missing, value=total * size), 2, (-1, count))
    every = torch.arange(total, device=number.device)
    own = number[..., None] == every
    met = torch.unflatten(own.cumsum(2), 2, (-1, count))  # tokens of each chunk up to each query
    number, own = (torch.unflatten(x, 2, (-1, count)) for x in (number, own))
    held = (met - own.long())[:, :, :, :1]  # before the block, (B, H, N, 1, P)
    earlier = (met == held) & (held > 0) & ~own
    chunk = number.clamp(max=total - 1)[..., None, :].expand(-1, -1, -1, count, -1)
    latest = (met - 1).gather(4, chunk) + chunk * size  # slots, (B, H, N, M, M)
    later = (latest == slot[..., None, :]) & (number[..., None] != number[..., None, :])
    slots = torch.cat([(every * size + held[:, :, :, 0] - 1).clamp(min=0), slot], 3)
    return slots.clamp(max=total * size - 1), torch.cat([earlier, later], 4)


def _taken(x: Tensor, slots: Tensor) -> Tensor:
    """Vectors (B, H, P S, K) of slots (B, H, N, M): (B, H, N, M, K)."""
    index = slots.flatten(2)[..., None].expand(-1, -1, -1, x.shape[3])
    return torch.unflatten(x.gather(2, index), 2, slots.shape[2:])


class CombinerRoutingOptions(ClusterOptions, CombinerOptions):
    """Of clusters."""


def _routing(shape: LayerShape, options: CombinerRoutingOptions) -> nn.Module:
    def scores(tokens: int, chunks: int, size: int) -> int:
        return chunks + size + (min(QUERIES, tokens) if shape.causal else 0)

    layer = Combiner(shape, plan_of_clusters(cluster_attention, options, scores), options.pooling)
    layer.centroids = Centroids(shape, options.clusters, options.decay)  # drawn after the features
    return layer


_COST = "(L + clusters · span) · (K + span + clusters + L / span)"
MECHANISMS = (Mechanism("combiner_routing", CombinerRoutingOptions, _routing, _COST),)
