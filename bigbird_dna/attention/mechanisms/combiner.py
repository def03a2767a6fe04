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
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import pad

from bigbird_dna.attention.mechanism import (
    Centroids,
    ClusterChunks,
    ClusterOptions,
    Heads,
    HeadsLayer,
    blocks_of,
    hide,
    in_blocks,
    in_chunks,
    join_blocks,
    masked_attention,
    most_chunks,
    off_diagonal,
    recomputed,
    scores,
    triangle,
    weigh,
)
from bigbird_dna.attention.mechanisms import sparse
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


def block_attention(inputs: Heads, by_column: bool = False) -> Tensor:
    """Attention of blocks, (B, H, N, S, K), `present` (B, 1 or H, N, S) → (B, H, N, S, K).

    Causal queries attend to blocks before their own. With `by_column`, a block's summary for the c-th query
    of another block uses the query of the block's own c-th token.
    """
    q, v, present = inputs.q, inputs.v, inputs.present
    blocks, size = q.shape[2:4]
    span_k, span_v = _summary(
        *inputs[1:7], q if by_column else None
    )  # (B, H, N, K), (B, H, N, 1 or S, K)

    near = sparse.own_block_scores(inputs)
    seen = present.any(-1)[:, :, None] & sparse.other_blocks(
        inputs
    )  # (B, 1 or H, N, N)
    far = torch.unflatten(scores(q.flatten(2, 3), span_k), 2, (blocks, size))
    far = hide(far, seen[..., None, :])  # (B, H, N, S, N)

    weights = weigh(torch.cat([near, far], -1), inputs.dropout)
    near, far = torch.split(weights, [size, blocks], -1)
    if by_column:
        summed = far.transpose(2, 3) @ span_v.transpose(2, 3)  # (B, H, S, N, K)
        return near @ v + summed.transpose(2, 3)
    summed = far.flatten(2, 3) @ span_v[..., 0, :]
    return near @ v + torch.unflatten(summed, 2, (blocks, size))


def _attention_over_columns(inputs: Heads, prefixes: bool) -> Tensor:
    """Attention on the grid, (B, H, R, C, K); spans are columns without the query's row.

    With `prefixes`, the grid is filled row by row, and spans end before the query's row to exclude later
    tokens. Causal grids without `prefixes` are filled by column: columns before the query's own are visible.
    """
    q = inputs.q
    rows, columns = q.shape[2:4]
    span_v: Tensor
    span_k, span_v, exists = recomputed(_summaries, inputs, prefixes)
    along_row, along_column = sparse.row_and_column_scores(inputs)
    aside = off_diagonal(columns, q)
    if inputs.causal and not prefixes:
        aside = triangle(columns, q, -1)
    through = hide(scores(q, span_k), exists[..., None, :] & aside)  # (B, H, R, C, C)
    weights = weigh(torch.cat([along_row, along_column, through], -1), inputs.dropout)
    along_row, along_column, through = torch.split(
        weights, [columns, rows, columns], -1
    )
    return (
        sparse.row_and_column_sum(along_row, along_column, inputs.v) + through @ span_v
    )


def _summaries(inputs: Heads, prefixes: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Keys and values of spans by row and column, (B, H, R, C, K), and which have tokens, (B, 1, R, C)."""
    _, k, v, pooled_q, pooled_k, present, largest, _, _, _ = inputs
    rows = k.shape[2]
    pooled_q, pooled_k, k, v = map(
        sparse.transpose, (pooled_q, pooled_k, k, v)
    )  # (B, H, C, R, K)
    present = sparse.transpose(present)  # (B, 1, C, R)
    if prefixes:  # if a token is present, all earlier rows are full
        before = (pool_up_to(x, largest)[..., :-1, :] for x in (pooled_q, pooled_k))
        span_q, span_k = (pad(x, (0, 0, 1, 0)) for x in before)
        seen = triangle(rows, k, -1)
        exists = (torch.arange(rows, device=k.device) > 0).expand_as(present)
    else:
        span_q, span_k = (
            pool_others(x, present, largest) for x in (pooled_q, pooled_k)
        )
        seen = present[..., None, :] & off_diagonal(rows, k)
        exists = seen.any(-1)
    span_v = masked_attention(span_q, k, v, seen)
    return sparse.transpose(span_k), sparse.transpose(span_v), sparse.transpose(exists)


def summaries(inputs: Heads, count: int) -> Iterator[sparse.Level]:
    """Keys and values (B, H, N, K) of blocks and which exist (B, 1, N), per level, single tokens first."""
    yield inputs.k, inputs.v, inputs.present
    for level in range(1, count):
        blocks = inputs.in_blocks(1 << level)
        key, value = recomputed(_summary, *blocks[1:7])
        yield key, value[..., 0, :], blocks.present.any(-1)


def _summary(
    k: Tensor,
    v: Tensor,
    pooled_q: Tensor,
    pooled_k: Tensor,
    present: Tensor,
    largest: bool,
    queries: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Keys (B, H, N, K) and values (B, H, N, 1, K) of blocks of tokens (B, H, N, S, K).

    With `queries` of the tokens, S values are computed, one per query; missing tokens use the pooled query.
    """
    query = pool(pooled_q, present, largest)[..., None, :]
    if queries is not None:
        query = torch.where(present[..., None], queries, query)
    return pool(pooled_k, present, largest), masked_attention(
        query, k, v, present[..., None, :]
    )


# Clusters. Axes: P chunks, S tokens of a chunk, N blocks of M queries. Time per head is P S (S + P) K, causal
# P S² K + L (S + P + M) K, where P is at most clusters + L / S.

QUERIES = 64
"""Queries per block in causal cluster attention. A block's queries use common summaries of earlier tokens,
and each query adds its own; blocks of about K queries minimize vectors plus scores."""


def _up_to_each(inputs: Heads, laid: Heads, chunks: ClusterChunks) -> Tensor:
    """Attention to the earlier tokens of each chunk: each token has a summary of its chunk up to it."""
    tokens, size = inputs.q.shape[2], chunks.size
    before = triangle(size, laid.q)
    span_q, span_k = (
        pool_up_to(x, laid.largest) for x in (laid.pooled_q, laid.pooled_k)
    )
    span_v = masked_attention(span_q, laid.k, laid.v, before)  # (B, H, P, S, K)
    near = chunks.collect(hide(scores(laid.q, laid.k), before))  # (B, H, L, S)
    count = min(QUERIES, tokens)
    slots, seen = _summaries_up_to_each(chunks, count)

    def attend(
        q: Tensor, near: Tensor, span_k: Tensor, span_v: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Weights of direct keys, (B, H, L, S), and the output through summaries, (B, H, L, K)."""
        far = hide(
            scores(in_blocks(q, count), _taken(span_k, slots)), seen
        )  # (B, H, N, M, P + M)
        weights = weigh(torch.cat([in_blocks(near, count), far], -1), inputs.dropout)
        near, far = torch.split(weights, [size, far.shape[-1]], -1)
        return join_blocks(near, inputs), join_blocks(
            far @ _taken(span_v, slots), inputs
        )

    near, through = recomputed(
        attend, inputs.q, near, span_k.flatten(2, 3), span_v.flatten(2, 3)
    )
    return through + chunks.collect(chunks.spread(near) @ laid.v)  # type: ignore[no-any-return]


def _summaries_up_to_each(chunks: ClusterChunks, count: int) -> tuple[Tensor, Tensor]:
    """Slots of summaries for blocks of M = `count` queries, (B, H, N, P + M), and which each query uses.

    The summaries are, per chunk, that of its last token before the block, and those of the block's tokens.
    Per other chunk, a query uses only the latest summary up to itself: (B, H, N, M, P + M).
    """
    total, size = chunks.total, chunks.size
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


def _taken(x: Tensor, slots: Tensor) -> Tensor:
    """Vectors (B, H, P S, K) at slots (B, H, N, M): (B, H, N, M, K)."""
    index = slots.flatten(2)[..., None].expand(-1, -1, -1, x.shape[3])
    return torch.unflatten(x.gather(2, index), 2, slots.shape[2:])


class _Features(nn.Module):
    """DeepSets: relu(W x) is pooled, with separate W (K, K) for queries and keys."""

    def __init__(self, width: int) -> None:
        super().__init__()
        # Initialized so that features have the magnitude of their inputs (He et al. 2015).
        deviation = (2 / width) ** 0.5
        self.query = nn.Parameter(torch.empty(width, width).normal_(std=deviation))
        self.key = nn.Parameter(torch.empty(width, width).normal_(std=deviation))

    def forward(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return (q @ self.query.to(q.dtype).T).relu(), (
            k @ self.key.to(k.dtype).T
        ).relu()


PlanName = Literal[
    "fixed", "logsparse", "axial_vertical", "axial_horizontal", "axial_rowmajor"
]


class CombinerOptions(Section):
    """Options common to all plans."""

    pooling: Pooling = Field(
        default="max",
        description="pooling of a span's tokens to one key and query; deepsets_*: pools learned features",
    )


class CombinerFixedOptions(CombinerOptions):
    """Options of block plans."""

    span: int = Field(default=64, ge=1, description="tokens per block")


class CombinerAxialOptions(CombinerOptions):
    """Options of grid plans."""

    columns: int = Field(default=64, ge=1, description="tokens per row")


class CombinerMixtureOptions(CombinerFixedOptions, CombinerAxialOptions):
    """Options of a mixture of two plans."""

    first: PlanName = Field(default="axial_vertical", description="first plan")
    second: PlanName = Field(default="axial_horizontal", description="second plan")


class CombinerRoutingOptions(ClusterOptions, CombinerOptions):
    """Options of the cluster plan."""


class Combiner(HeadsLayer):
    """The pooling of a span's tokens to one query and one key; each subclass is a plan for partitioning
    keys."""

    def __init__(self, shape: LayerShape, options: CombinerOptions) -> None:
        super().__init__(shape, options)
        self.largest = options.pooling.endswith("max")
        learned = options.pooling.startswith("deepsets")
        self.features = _Features(shape.width) if learned else None

    def pooled(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Tensors to pool: queries and keys, or learned features of them."""
        return (q, k) if self.features is None else self.features(q, k)


class Fixed(Combiner):
    """Blocks."""

    def size(self, tokens: int) -> tuple[int, int]:
        blocks, size = blocks_of(tokens, self.options.span)
        return blocks * size, size + blocks

    def attend(self, inputs: Heads) -> Tensor:
        blocks = inputs.in_blocks(self.options.span)
        return join_blocks(block_attention(blocks), inputs)


class LogSparse(Combiner):
    """Dyadic blocks."""

    def size(self, tokens: int) -> tuple[int, int]:
        levels = sparse.count_levels(tokens)
        return 1 << levels, 1 + levels

    def attend(self, inputs: Heads) -> Tensor:
        return sparse.sibling_attention(inputs, summaries)


class AxialVertical(Combiner):
    """The columns of a grid."""

    def size(self, tokens: int) -> tuple[int, int]:
        rows, columns = blocks_of(tokens, self.options.columns)
        return rows * columns, rows + 2 * columns

    def attend(self, inputs: Heads) -> Tensor:
        grid = inputs.in_blocks(self.options.columns)
        return join_blocks(_attention_over_columns(grid, grid.causal), inputs)


class AxialHorizontal(Combiner):
    """The rows of a grid."""

    def size(self, tokens: int) -> tuple[int, int]:
        rows, columns = blocks_of(tokens, self.options.columns)
        return rows * columns, 2 * rows + columns

    def attend(self, inputs: Heads) -> Tensor:
        grid = inputs.in_blocks(self.options.columns)
        grid = grid.map(sparse.transpose)._replace(
            present=sparse.transpose(grid.present)
        )
        out = _attention_over_columns(grid, False)
        return join_blocks(sparse.transpose(out), inputs)


class AxialRowMajor(Combiner):
    """The rows of a grid, summarized separately for each column."""

    def size(self, tokens: int) -> tuple[int, int]:
        rows, columns = blocks_of(tokens, self.options.columns)
        return rows * columns, rows + columns

    def attend(self, inputs: Heads) -> Tensor:
        rows = inputs.in_blocks(self.options.columns)
        return join_blocks(block_attention(rows, by_column=True), inputs)


class Routing(Combiner):
    """Clusters of tokens."""

    def __init__(self, shape: LayerShape, options: CombinerRoutingOptions) -> None:
        super().__init__(shape, options)
        self.centroids = Centroids(shape, options.clusters, options.decay)

    def size(self, tokens: int) -> tuple[int, int]:
        chunks, size = most_chunks(tokens, self.options.clusters, self.options.span)
        queries = min(QUERIES, tokens) if self.shape.causal else 0
        return chunks * size, chunks + size + queries

    def attend(self, inputs: Heads) -> Tensor:
        chunks, laid = in_chunks(inputs, self.options)
        if inputs.causal:
            return _up_to_each(inputs, laid, chunks)
        return chunks.collect(block_attention(laid))


PLANS: dict[PlanName, type[Combiner]] = {
    "fixed": Fixed,
    "logsparse": LogSparse,
    "axial_vertical": AxialVertical,
    "axial_horizontal": AxialHorizontal,
    "axial_rowmajor": AxialRowMajor,
}


class Mixture(HeadsLayer):
    """The mean of two plans' outputs."""

    def __init__(self, shape: LayerShape, options: CombinerMixtureOptions) -> None:
        super().__init__(shape, options)
        self.plans = [
            PLANS[options.first](shape, options),
            PLANS[options.second](shape, options),
        ]
        self.parts = nn.ModuleList(self.plans)

    def size(self, tokens: int) -> tuple[int, int]:
        first, second = (plan.size(tokens) for plan in self.plans)
        return max(first[0], second[0]), max(first[1], second[1])

    def attend(self, inputs: Heads) -> Tensor:
        outs = []
        for plan in self.plans:
            pooled_q, pooled_k = plan.pooled(inputs.q, inputs.k)
            own = inputs._replace(
                pooled_q=pooled_q, pooled_k=pooled_k, largest=plan.largest
            )
            outs.append(recomputed(plan.attend, own))
        return (outs[0] + outs[1]) / 2  # type: ignore[no-any-return]


_AXIAL_COST = "L · (K + columns + L / columns)"
MECHANISMS = (
    Mechanism(
        "combiner_fixed", CombinerFixedOptions, Fixed, "L · (K + span + L / span)"
    ),
    Mechanism("combiner_logsparse", CombinerOptions, LogSparse, "L · K · log L"),
    Mechanism(
        "combiner_axial_vertical", CombinerAxialOptions, AxialVertical, _AXIAL_COST
    ),
    Mechanism(
        "combiner_axial_horizontal", CombinerAxialOptions, AxialHorizontal, _AXIAL_COST
    ),
    Mechanism(
        "combiner_axial_rowmajor", CombinerAxialOptions, AxialRowMajor, _AXIAL_COST
    ),
    Mechanism("combiner_mixture", CombinerMixtureOptions, Mixture, "of both plans"),
    Mechanism(
        "combiner_routing",
        CombinerRoutingOptions,
        Routing,
        "(L + clusters · span) · (K + span + clusters + L / span)",
    ),
)
