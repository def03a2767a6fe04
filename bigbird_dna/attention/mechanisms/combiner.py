"""Combiner: every token attends to every other, to near tokens directly and to distal ones through summaries.

Ren et al. 2021, arXiv 2107.05768. For each query i, the visible keys (all, or those up to i if causal) are
partitioned into Ω⁰ and spans Ω¹ … Ωⁿ. With e(a, b) = exp(a · b / √K) and, for each span, one key k_Ω and one
query q_Ω pooled over its tokens,

    Z_i = Σ_{j ∈ Ω⁰} e(q_i, k_j) + Σ_r e(q_i, k_Ωr)
    A_ij = e(q_i, k_j) / Z_i                                               for j in Ω⁰, directly
    A_ij = e(q_i, k_Ωr) / Z_i · e(q_Ωr, k_j) / Σ_{l ∈ Ωr} e(q_Ωr, k_l)     for j in Ωr, through its summary

so each row of the effective matrix A sums to 1 and no entry is 0. A is never materialized. A query's scores
for its direct keys and its spans' keys share one softmax. A span's value is the attention of q_Ω to the
span's tokens. A span without tokens is ignored.

With tokens in blocks of s, b(i) = i div s; or on a grid of m columns, row = i div m, col = i mod m:

| plan | Ω⁰ (causal: up to i) | spans | causal spans |
| --- | --- | --- | --- |
| fixed | own block | other blocks | earlier blocks |
| logsparse | i, i xor 1 | the other half of every dyadic block that contains i | those to the left |
| axial vertical | own row and column | other columns without own row | their earlier rows |
| axial horizontal | own row and column | other rows without own column | earlier rows without own column |
| axial rowmajor | own row | other rows, queried by their token in the own column | earlier rows |
| routing | own cluster | other clusters | other clusters up to i |

Rowmajor's summaries differ by column through q_Ω, the query of the span's token in the own column (pooled, as
elsewhere, if the last row lacks that token); k_Ω is pooled. Routing's clusters are cut into chunks, so the
cost does not depend on cluster sizes. A mixture is the mean of two plans' outputs.

Pooling takes the maximum or mean of each component of the tokens' queries and keys. DeepSets pools relu(W x)
instead, with learned W, one for queries and one for keys, common to all heads of a layer. Dropout applies to
the joint softmax.
"""

import math
from collections.abc import Iterator
from functools import partial
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import pad

from bigbird_dna.attention.mechanism import (
    AttentionLayer,
    Centroids,
    ClusterChunks,
    ClusterOptions,
    hide,
    in_blocks,
    join_blocks,
    make_chunks,
    masked_attention,
    off_diagonal,
    scores,
    take,
    triangle,
    weigh_together,
)
from bigbird_dna.attention.mechanisms import sparse
from bigbird_dna.attention.mechanisms.sparse import AxialOptions, transpose
from bigbird_dna.config.mechanisms import LayerShape, Mechanism
from bigbird_dna.config.section import Section

Pooling = Literal["max", "mean", "deepsets_max", "deepsets_mean"]


def pool(x: Tensor, present: Tensor, largest: bool) -> Tensor:
    """Maximum, or mean, over present tokens, (…, S, K) → (…, K)."""
    if largest:
        return _filled(x.masked_fill(~present[..., None], -math.inf).amax(-2))
    return x.masked_fill(~present[..., None], 0).sum(-2) / present.sum(
        -1, keepdim=True
    ).clamp(min=1)


def pool_others(x: Tensor, present: Tensor, largest: bool) -> Tensor:
    """For each token the maximum, or mean, over the other present tokens, (…, S, K) → (…, S, K)."""
    if not largest:
        x = x.masked_fill(~present[..., None], 0)
        others = present.sum(-1, keepdim=True) - present.long()
        return (x.sum(-2, keepdim=True) - x) / others.clamp(min=1)[..., None]
    x = x.masked_fill(~present[..., None], -math.inf)
    first, place = x.max(-2, keepdim=True)
    own = place == torch.arange(x.shape[-2], device=x.device)[:, None]
    second = x.masked_fill(own, -math.inf).amax(-2, keepdim=True)
    return _filled(torch.where(own, second, first))


def pool_up_to(x: Tensor, largest: bool) -> Tensor:
    """For each token the maximum, or mean, over tokens up to itself, (…, S, K) → (…, S, K)."""
    if largest:
        return x.cummax(-2).values
    return x.cumsum(-2) / torch.arange(1, x.shape[-2] + 1, device=x.device)[:, None]


def _filled(x: Tensor) -> Tensor:
    """Replace -∞ by zero where no token was present."""
    return x.masked_fill(x == -math.inf, 0)


class CombinerOptions(Section):
    """Options common to all plans."""

    pooling: Pooling = Field(
        default="max",
        description="pooling of a span's tokens to one key and query; deepsets_*: pools learned features",
    )


class CombinerFixedOptions(CombinerOptions):
    """Options of block plans."""

    span: int = Field(default=64, ge=1, description="tokens per block")


class CombinerAxialOptions(AxialOptions, CombinerOptions):
    """Options of grid plans."""


PlanName = Literal[
    "fixed", "logsparse", "axial_vertical", "axial_horizontal", "axial_rowmajor"
]


class CombinerMixtureOptions(CombinerFixedOptions, CombinerAxialOptions):
    """Options of a mixture of two plans."""

    first: PlanName = Field(default="axial_vertical", description="first plan")
    second: PlanName = Field(default="axial_horizontal", description="second plan")


class CombinerRoutingOptions(ClusterOptions, CombinerOptions):
    """Options of the cluster plan."""


class Combiner(AttentionLayer):
    """Attention by a plan for partitioning keys."""

    def __init__(
        self, shape: LayerShape, options: CombinerOptions, plan: PlanName | None = None
    ) -> None:
        super().__init__(shape, options)
        self.plan = plan
        self.largest = options.pooling.endswith("max")
        self.learned = options.pooling.startswith("deepsets")
        if self.learned:
            # Initialized so that features have the magnitude of their inputs (He et al. 2015).
            deviation = (2 / shape.width) ** 0.5
            weights = torch.empty(2, shape.width, shape.width)
            self.features = nn.Parameter(weights.normal_(std=deviation))

    def compute(
        self, q: Tensor, k: Tensor, v: Tensor, present: Tensor, dropout: float
    ) -> Tensor:
        tokens = q.shape[2]
        if self.plan == "logsparse":
            q, k, v, present = map(sparse.to_power_of_two, (q, k, v, present))
            levels = self.dyadic_summaries(q, k, v, present)
            causal = self.shape.causal
            out = sparse.sibling_attention(q, k, v, levels, causal, dropout)
            return out[:, :, :tokens]

        size = self.options.span if self.plan == "fixed" else self.options.columns
        q, k, v, present = (in_blocks(x, size) for x in (q, k, v, present))
        if self.plan == "axial_vertical":
            out = self.attend_to_columns(q, k, v, present, dropout, self.shape.causal)
        elif self.plan == "axial_horizontal":
            q, k, v, present = map(transpose, (q, k, v, present))
            out = self.attend_to_columns(q, k, v, present, dropout, False)
            out = transpose(out)
        else:
            by_column = self.plan == "axial_rowmajor"
            out = self.attend_to_blocks(q, k, v, present, dropout, by_column)

        return join_blocks(out, tokens)

    def dyadic_summaries(
        self, q: Tensor, k: Tensor, v: Tensor, present: Tensor
    ) -> Iterator[sparse.Level]:
        """Summaries of blocks of one token, two, four and so on, up to half of all."""
        yield k, v, present
        size = 2
        while size < q.shape[2]:
            block_q, block_k, block_v = (in_blocks(x, size) for x in (q, k, v))
            here = in_blocks(present, size)
            key, value = self.summary(block_q, block_k, block_v, here)
            yield key[..., 0, :], value[..., 0, :], here.any(-1)
            size *= 2

    def pooled(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Tensors to pool: queries and keys, or with DeepSets relu(W x) of them."""
        if not self.learned:
            return q, k
        of_queries, of_keys = self.features.to(q.dtype)
        return (q @ of_queries.T).relu(), (k @ of_keys.T).relu()

    def summary(
        self, q: Tensor, k: Tensor, v: Tensor, present: Tensor, by_column: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Keys and values (B, H, N, 1, K) of blocks of tokens (B, H, N, S, K).

        With `by_column`, S values are computed, one per query; missing tokens use the pooled query.
        """
        pooled_q, pooled_k = self.pooled(q, k)
        query = pool(pooled_q, present, self.largest)[..., None, :]
        if by_column:
            query = torch.where(present[..., None], q, query)
        value = masked_attention(query, k, v, present[..., None, :])
        return pool(pooled_k, present, self.largest)[..., None, :], value

    def attend_to_blocks(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        present: Tensor,
        dropout: float,
        by_column: bool = False,
    ) -> Tensor:
        """Attention of blocks, (B, H, N, S, K), `present` (B, 1 or H, N, S) → (B, H, N, S, K).

        With `by_column`, a block's summary for the c-th query of another block uses the query of the block's
        own c-th token.
        """
        span_k, span_v = self.summary(q, k, v, present, by_column)
        exists = present.any(-1, keepdim=True)
        causal = self.shape.causal
        return sparse.attend_to_blocks(
            q, k, v, present, span_k, span_v, exists, causal, dropout
        )

    def attend_to_columns(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        present: Tensor,
        dropout: float,
        prefixes: bool,
    ) -> Tensor:
        """Attention on the grid, (B, H, R, C, K); spans are columns without the query's row.

        With `prefixes`, the grid is filled row by row, and spans end before the query's row to exclude later
        tokens. Causal grids without `prefixes` are filled by column: columns before the query's own are
        visible.
        """
        rows, columns = q.shape[2:4]
        parts = sparse.row_and_column_scores(q, k, present, self.shape.causal)
        # Summaries of columns, (B, H, C, R, K), for each row, and which have tokens, (B, 1, C, R).
        pooled = [transpose(x) for x in self.pooled(q, k)]
        column_k = transpose(k)
        column_v = transpose(v)
        here = transpose(present)
        if prefixes:  # if a token is present, all earlier rows are full
            pooled = [pool_up_to(x, self.largest)[..., :-1, :] for x in pooled]
            span_q, span_k = (pad(x, (0, 0, 1, 0)) for x in pooled)
            seen = triangle(rows, k, -1)
            exists = (torch.arange(rows, device=k.device) > 0).expand_as(here)
        else:
            span_q, span_k = (pool_others(x, here, self.largest) for x in pooled)
            seen = here[..., None, :] & off_diagonal(rows, k)
            exists = seen.any(-1)

        span_v = masked_attention(span_q, column_k, column_v, seen)
        span_k, span_v, exists = map(transpose, (span_k, span_v, exists))

        aside = off_diagonal(columns, q)
        if self.shape.causal and not prefixes:
            aside = triangle(columns, q, -1)

        through = hide(scores(q, span_k), exists[..., None, :] & aside)
        weights = weigh_together([*parts, through], dropout)
        direct = sparse.row_and_column_sum(weights[0], weights[1], v)

        return direct + weights[2] @ span_v


# Clusters. Axes: P chunks, S tokens of a chunk, N blocks of M queries. Time per head is P S (S + P) K, causal
# P S² K + L (S + P + M) K, where P is at most clusters + L / S.

QUERIES = 64
"""Queries per block in causal cluster attention. A block's queries use common summaries of earlier tokens,
and each query adds its own; blocks of about K queries minimize vectors plus scores."""


class Routing(Combiner):
    """Clusters of tokens."""

    def __init__(self, shape: LayerShape, options: CombinerRoutingOptions) -> None:
        super().__init__(shape, options)
        self.centroids = Centroids(shape, options.clusters, options.decay)

    def compute(
        self, q: Tensor, k: Tensor, v: Tensor, present: Tensor, dropout: float
    ) -> Tensor:
        clusters = self.centroids(q, k, present)
        causal = self.shape.causal
        count = self.options.clusters
        span = self.options.span
        chunks = make_chunks(clusters, present, count, span, causal)
        chunk_q, chunk_k, chunk_v = map(chunks.spread, (q, k, v))  # (B, H, P, S, K)
        if not causal:
            here = present.expand_as(clusters)[..., None].to(q.dtype)
            in_chunk = chunks.spread(here)[..., 0] > 0
            return chunks.collect(
                self.attend_to_blocks(chunk_q, chunk_k, chunk_v, in_chunk, dropout)
            )

        # Each token has a summary of its chunk up to it; queries use the latest of each other chunk.
        tokens = q.shape[2]
        before = triangle(chunks.size, q)
        pooled = self.pooled(chunk_q, chunk_k)
        span_q, span_k = (pool_up_to(x, self.largest) for x in pooled)
        span_v = masked_attention(span_q, chunk_k, chunk_v, before)
        near = chunks.collect(hide(scores(chunk_q, chunk_k), before))  # (B, H, L, S)
        slots, seen = _summaries_up_to_each(chunks, min(QUERIES, tokens))
        span_k, span_v = (take(x.flatten(2, 3), slots) for x in (span_k, span_v))
        far = hide(scores(in_blocks(q, QUERIES), span_k), seen)  # (B, H, N, M, P + M)
        near, far = weigh_together([in_blocks(near, QUERIES), far], dropout)
        direct = chunks.spread(join_blocks(near, tokens)) @ chunk_v

        return join_blocks(far @ span_v, tokens) + chunks.collect(direct)


def _summaries_up_to_each(chunks: ClusterChunks, count: int) -> tuple[Tensor, Tensor]:
    """Slots of summaries for blocks of M = `count` queries, (B, H, N, P + M), and which each query uses.

    The summaries are, per chunk, that of its last token before the block, and those of the block's tokens.
    Per other chunk, a query uses only the latest summary up to itself: (B, H, N, M, P + M).
    """
    total = chunks.total
    size = chunks.size
    missing = (0, -chunks.number.shape[2] % count)
    number = pad(chunks.number, missing, value=total)
    slot = torch.unflatten(
        pad(chunks.slots[..., 0], missing, value=total * size), 2, (-1, count)
    )
    every = torch.arange(total, device=number.device)
    own = number[..., None] == every
    met = torch.unflatten(
        own.cumsum(2), 2, (-1, count)
    )  # tokens of each chunk up to each query
    number, own = (torch.unflatten(x, 2, (-1, count)) for x in (number, own))
    earlier_count = (met - own.long())[:, :, :, :1]  # before the block, (B, H, N, 1, P)
    earlier = (met == earlier_count) & (earlier_count > 0) & ~own
    chunk = number.clamp(max=total - 1)[..., None, :].expand(-1, -1, -1, count, -1)
    latest = (met - 1).gather(4, chunk) + chunk * size  # slots, (B, H, N, M, M)
    later = (latest == slot[..., None, :]) & (number[..., None] != number[..., None, :])
    slots = torch.cat(
        [(every * size + earlier_count[:, :, :, 0] - 1).clamp(min=0), slot], 3
    )

    return slots.clamp(max=total * size - 1), torch.cat([earlier, later], 4)


class Mixture(AttentionLayer):
    """The mean of two plans' outputs."""

    def __init__(self, shape: LayerShape, options: CombinerMixtureOptions) -> None:
        super().__init__(shape, options)
        plans: tuple[PlanName, PlanName] = (options.first, options.second)
        self.plans = nn.ModuleList(Combiner(shape, options, plan) for plan in plans)

    def compute(
        self, q: Tensor, k: Tensor, v: Tensor, present: Tensor, dropout: float
    ) -> Tensor:
        first, second = (
            plan.compute(q, k, v, present, dropout)  # type: ignore[operator]
            for plan in self.plans
        )
        return (first + second) / 2  # type: ignore[no-any-return]


_FIXED_COST = "L · (K + span + L / span)"
_AXIAL_COST = "L · (K + columns + L / columns)"
_PLANS: tuple[tuple[PlanName, type[CombinerOptions], str], ...] = (
    ("fixed", CombinerFixedOptions, _FIXED_COST),
    ("logsparse", CombinerOptions, "L · K · log L"),
    ("axial_vertical", CombinerAxialOptions, _AXIAL_COST),
    ("axial_horizontal", CombinerAxialOptions, _AXIAL_COST),
    ("axial_rowmajor", CombinerAxialOptions, _AXIAL_COST),
)
_ROUTING_COST = "(L + clusters · span) · (K + span + clusters + L / span)"
MECHANISMS = (
    *(
        Mechanism(f"combiner_{plan}", options, partial(Combiner, plan=plan), cost)
        for plan, options, cost in _PLANS
    ),
    Mechanism("combiner_mixture", CombinerMixtureOptions, Mixture, "of both plans"),
    Mechanism("combiner_routing", CombinerRoutingOptions, Routing, _ROUTING_COST),
)
