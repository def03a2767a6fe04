"""Token-level sparse attention: softmax(QKᵀ / √K) V over the keys j that a query i attends to.

With blocks of s tokens, b(i) = i div s; on a grid of m columns, row = i div m, col = i mod m; all 0-based.

| name | i attends to j (causal: and j ≤ i) | source |
| --- | --- | --- |
| sparse_fixed | b(j) = b(i), or j mod s ≥ s - c | Child et al. 2019, arXiv 1904.10509 |
| axial | same row or same column | Ho et al. 2019, arXiv 1912.12180 |
| logsparse | itself, and the nearest token of each sibling of its dyadic blocks | Ren et al. 2021 |
| routing | the same chunk of the same cluster, or the previous one | Roy et al. 2021, arXiv 2003.05997 |

Causal logsparse is defined in Combiner's paper (arXiv 2107.05768) as {i} and the suffix sums of the bits of i
- 1. With 0-based i these are the last tokens of the dyadic blocks that tile the tokens before i. The paper
defines its non-causal form for summaries only, through all blocks' siblings; here the nearest token
represents a sibling. Li et al. 2019 (arXiv 1907.00235) give the name to another graph, i and i ± 2^t.

Cost is proportional to the number of visible keys; no mask of all pairs is created. Blocks or rows of √L
tokens cost L √L.

Axes: B batch, H heads, L tokens, K head width, N blocks of S tokens, R rows and C columns of a grid.
"""

import math
from collections.abc import Iterable, Iterator

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import pad

from bigbird_dna.attention.mechanism import (
    AttentionLayer,
    Centroids,
    ClusterOptions,
    hide,
    in_blocks,
    join_blocks,
    make_chunks,
    off_diagonal,
    scores,
    take,
    triangle,
    weigh,
    weigh_together,
)
from bigbird_dna.config.mechanisms import LayerShape, Mechanism
from bigbird_dna.config.section import Section


class SparseFixedOptions(Section):
    """Options of sparse_fixed."""

    span: int = Field(default=64, ge=1, description="tokens per block")
    last: int = Field(
        default=1, ge=1, description="last tokens per block that all tokens attend to"
    )


class SparseFixed(AttentionLayer):
    """Attention to the own block, and to the last tokens of every other one."""

    def compute(
        self, q: Tensor, k: Tensor, v: Tensor, present: Tensor, dropout: float
    ) -> Tensor:
        tokens = q.shape[2]
        causal = self.shape.causal
        q, k, v, present = (in_blocks(x, self.options.span) for x in (q, k, v, present))
        last = min(self.options.last, q.shape[3])
        far_k, far_v, far_present = (x[:, :, :, -last:] for x in (k, v, present))
        out = attend_to_blocks(
            q, k, v, present, far_k, far_v, far_present, causal, dropout
        )
        return join_blocks(out, tokens)


def attend_to_blocks(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    present: Tensor,
    far_k: Tensor,
    far_v: Tensor,
    far_present: Tensor,
    causal: bool,
    dropout: float,
) -> Tensor:
    """Attention to the own block of tokens, (B, H, N, S, K), and to vectors of other blocks, (B, H, N, S, K).

    `present` (B, 1 or H, N, S). `far_k` and `far_v` (B, H, N, C, K) are the keys and values of each block for
    other blocks, where `far_present` (B, 1 or H, N, C). If `far_v` is (B, H, N, S, K), with one key, each
    query uses the value at its own position in its block. Causal queries attend to blocks before their own.
    """
    blocks, size = q.shape[2:4]
    others = triangle(blocks, q, -1) if causal else off_diagonal(blocks, q)
    seen = far_present[:, :, None] & others[..., None]  # (B, 1 or H, N, N, C)
    far = scores(q.flatten(2, 3), far_k.flatten(2, 3))
    far = torch.unflatten(far, 2, (blocks, size))
    far = hide(far, seen.flatten(3)[..., None, :])  # (B, H, N, S, N C)
    in_block = present[..., None, :]
    if causal:
        in_block = in_block & triangle(size, q)

    near = hide(scores(q, k), in_block)

    near, far = weigh_together([near, far], dropout)
    if far_v.shape[3] == far_k.shape[3]:
        through = far.flatten(2, 3) @ far_v.flatten(2, 3)
        return near @ v + torch.unflatten(through, 2, (blocks, size))

    by_position = far.transpose(2, 3) @ far_v.transpose(2, 3)  # (B, H, S, N, K)

    return near @ v + by_position.transpose(2, 3)


class AxialOptions(Section):
    """Options of the grid."""

    columns: int = Field(default=64, ge=1, description="tokens per row")


class Axial(AttentionLayer):
    """Attention to the own row and column of a grid."""

    def compute(
        self, q: Tensor, k: Tensor, v: Tensor, present: Tensor, dropout: float
    ) -> Tensor:
        tokens = q.shape[2]
        columns = self.options.columns
        q, k, v, present = (in_blocks(x, columns) for x in (q, k, v, present))
        parts = row_and_column_scores(q, k, present, self.shape.causal)
        along_row, along_column = weigh_together(parts, dropout)
        return join_blocks(row_and_column_sum(along_row, along_column, v), tokens)


def row_and_column_scores(
    q: Tensor, k: Tensor, present: Tensor, causal: bool
) -> tuple[Tensor, Tensor]:
    """Scores of keys in the own row, including the own token, (B, H, R, C, C), and column, (B, H, R, C, R)."""
    rows, columns = q.shape[2:4]
    in_row = present[..., None, :]
    in_column = transpose(present)[..., None, :] & off_diagonal(rows, q)
    if causal:
        in_row = in_row & triangle(columns, q)
        in_column = in_column & triangle(rows, q)
    along_row = hide(scores(q, k), in_row)
    along_column = hide(scores(transpose(q), transpose(k)), in_column)
    return along_row, transpose(along_column)


def row_and_column_sum(along_row: Tensor, along_column: Tensor, v: Tensor) -> Tensor:
    """Values of the own row and column, summed with their weights, (B, H, R, C, K)."""
    return along_row @ v + transpose(transpose(along_column) @ transpose(v))


def transpose(x: Tensor) -> Tensor:
    """A grid by columns, (B, H, R, C, …) → (B, H, C, R, …)."""
    return x.transpose(2, 3)


Level = tuple[Tensor, Tensor, Tensor]
"""Keys and values (B, H, N, K) of blocks, and which exist (B, 1, N)."""


class LogSparse(AttentionLayer):
    """Attention to the nearest token of each sibling of the dyadic blocks that contain a token."""

    def compute(
        self, q: Tensor, k: Tensor, v: Tensor, present: Tensor, dropout: float
    ) -> Tensor:
        tokens = q.shape[2]
        q, k, v, present = map(to_power_of_two, (q, k, v, present))
        levels = nearest_tokens(k, v, present)
        return sibling_attention(q, k, v, levels, self.shape.causal, dropout)[
            :, :, :tokens
        ]


def to_power_of_two(x: Tensor) -> Tensor:
    """Pad tokens (B, H, L, …) to the next power of two, at least 2."""
    tokens = x.shape[2]
    padded = 1 << max(1, (tokens - 1).bit_length())
    return pad(x, (*(0, 0) * (x.dim() - 3), 0, padded - tokens))


def nearest_tokens(k: Tensor, v: Tensor, present: Tensor) -> Iterator[Level]:
    """For each block the token nearest to its sibling: the last of a left block, the first of a right one.

    Blocks of one token come first, then those of two, four and so on, except all tokens.
    """
    tokens = k.shape[2]
    size = 1
    while size < tokens:
        block = torch.arange(tokens // size, device=k.device)
        token = block * size + (size - 1) * (block % 2 == 0)
        yield (
            k.index_select(2, token),
            v.index_select(2, token),
            present.index_select(2, token),
        )
        size *= 2


def sibling_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    levels: Iterable[Level],
    causal: bool,
    dropout: float,
) -> Tensor:
    """Attention of each token to itself and to the siblings of its blocks, by level, (B, H, L, K)."""
    # Sums of products, because batches of such small matrix products are several times slower.
    columns = [(q * k / math.sqrt(q.shape[3])).sum(-1, keepdim=True)]
    values = [v]
    for level_k, level_v, present in levels:
        blocks = level_k.shape[2]
        siblings = [
            torch.unflatten(x, 2, (-1, 2)).flip(3).flatten(2, 3)
            for x in (level_k, level_v, present[..., None])
        ]
        seen = siblings[2][..., 0]
        if causal:
            seen = seen & (torch.arange(blocks, device=q.device) % 2 == 1)

        key = siblings[0][..., None, :] / math.sqrt(q.shape[3])
        column = torch.unflatten(q, 2, (blocks, -1)) * key
        column = hide(column.sum(-1, keepdim=True), seen[..., None, None])
        columns.append(column.flatten(2, 3))  # (B, H, L, 1)
        values.append(siblings[1])  # (B, H, N, K)

    out = torch.zeros_like(v)
    weights = weigh_together(columns, dropout)
    for weight, value in zip(weights, values, strict=True):
        by_block = torch.unflatten(weight, 2, (value.shape[2], -1))
        out = out + (by_block * value[..., None, :]).flatten(2, 3)

    return out


class Routing(AttentionLayer):
    """Attention within clusters of tokens: to the own chunk of the cluster and the previous one."""

    def __init__(self, shape: LayerShape, options: ClusterOptions) -> None:
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

        def with_before(x: Tensor) -> Tensor:
            """(B, H, P, S, K) → (B, H, P, 2 S, K), previous chunk first, zero if there is none."""
            flat = pad(x.flatten(3), (0, 0, 0, 1))
            before = take(flat, chunks.before)
            before = torch.unflatten(before, 3, tuple(x.shape[3:]))
            return torch.cat([before, x], 3)

        here = present.expand_as(clusters)[..., None].to(q.dtype)
        seen = with_before(chunks.spread(here))[..., 0] > 0
        seen = seen[..., None, :]
        if causal:
            size = chunks.size
            in_chunk = torch.arange(2 * size, device=q.device) >= size
            seen = seen & (~in_chunk | pad(triangle(size, q), (size, 0)))

        keys = with_before(chunks.spread(k))
        values = with_before(chunks.spread(v))
        weights = weigh(hide(scores(chunks.spread(q), keys), seen), dropout)
        return chunks.collect(weights @ values)


MECHANISMS = (
    Mechanism(
        "sparse_fixed",
        SparseFixedOptions,
        SparseFixed,
        "L · (K + span + last · L / span)",
    ),
    Mechanism("axial", AxialOptions, Axial, "L · (K + columns + L / columns)"),
    Mechanism("logsparse", Section, LogSparse, "L · K · log L"),
    Mechanism(
        "routing",
        ClusterOptions,
        Routing,
        "(L + clusters · span) · (K + span) + L · clusters",
    ),
)
