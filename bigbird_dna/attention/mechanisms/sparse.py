"""Token-level sparse attention: softmax(QKᵀ / √K) V over the keys j that a query i attends to.

With blocks of s tokens, b(i) = i div s; on a grid of m columns, row = i div m, col = i mod m; all 0-based.

| name | i attends to j (causal: and j ≤ i) | source |
| --- | --- | --- |
| sparse_fixed | b(j) = b(i), or j mod s ≥ s - c | Child et al. 2019, arXiv 1904.10509 |
| axial | same row or same column | Ho et al. 2019, arXiv 1912.12180 |
| logsparse | itself, and the nearest token of each sibling of its dyadic blocks | Ren et al. 2021 |
| logsparse_powers | itself and i ± 2^t for t = 0, 1, … | Li et al. 2019, arXiv 1907.00235 |
| routing | the same chunk of the same cluster, or the previous one | Roy et al. 2021, arXiv 2003.05997 |

Causal logsparse is defined in Combiner's paper (arXiv 2107.05768) as {i} and the suffix sums of the bits of i
- 1. With 0-based i these are the last tokens of the dyadic blocks that tile the tokens before i. The paper
defines its non-causal form for summaries only, through all blocks' siblings; here the nearest token
represents a sibling. `logsparse_powers` is the other meaning of the name, and a different graph.

Cost is proportional to the number of visible keys; no mask of all pairs is created. Blocks or rows of √L
tokens cost L √L.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import pad

from bigbird_dna.attention.mechanism import (
    Centroids,
    ClusterOptions,
    Heads,
    HeadsLayer,
    blocks_of,
    hide,
    in_chunks,
    join_blocks,
    most_chunks,
    off_diagonal,
    recomputed,
    scores,
    triangle,
    weigh,
)
from bigbird_dna.config.mechanisms import LayerShape, Mechanism
from bigbird_dna.config.section import Section


def last_tokens_attention(inputs: Heads, last: int) -> Tensor:
    """Attention of blocks, (B, H, N, S, K), `present` (B, 1, N, S) → (B, H, N, S, K)."""
    q, k, v, *_ = inputs
    blocks, size = q.shape[2:4]
    last = min(last, size)
    last_k, last_v = (
        x[:, :, :, size - last :].flatten(2, 3) for x in (k, v)
    )  # (B, H, N C, K)
    near = own_block_scores(inputs)
    further = other_blocks(inputs)
    seen = (
        inputs.present[:, :, None, :, size - last :] & further[..., None]
    )  # (B, 1, N, N, C)
    far = torch.unflatten(scores(q.flatten(2, 3), last_k), 2, (blocks, size))
    far = hide(far, seen.flatten(3)[..., None, :])  # (B, H, N, S, N C)
    weights = weigh(torch.cat([near, far], -1), inputs.dropout)
    near, far = torch.split(weights, [size, blocks * last], -1)
    return near @ v + torch.unflatten(far.flatten(2, 3) @ last_v, 2, (blocks, size))


def own_block_scores(inputs: Heads) -> Tensor:
    """Scores of the keys in a query's own block, (B, H, N, S, S)."""
    seen = inputs.present[..., None, :]
    if inputs.causal:
        seen = seen & triangle(inputs.q.shape[3], inputs.q)
    return hide(scores(inputs.q, inputs.k), seen)


def other_blocks(inputs: Heads) -> Tensor:
    """Other blocks that a block attends to, (N, N): all, or the earlier ones."""
    blocks = inputs.q.shape[2]
    return (
        triangle(blocks, inputs.q, -1)
        if inputs.causal
        else off_diagonal(blocks, inputs.q)
    )


def row_and_column_attention(inputs: Heads) -> Tensor:
    """Attention on a grid filled row by row, (B, H, R, C, K) → the same."""
    along_row, along_column = row_and_column_scores(inputs)
    sizes = [along_row.shape[-1], along_column.shape[-1]]
    weights = weigh(torch.cat([along_row, along_column], -1), inputs.dropout)
    along_row, along_column = torch.split(weights, sizes, -1)
    return row_and_column_sum(along_row, along_column, inputs.v)


def row_and_column_scores(inputs: Heads) -> tuple[Tensor, Tensor]:
    """Scores of keys in the own row, including the own token, (B, H, R, C, C), and column, (B, H, R, C,
    R)."""
    q, k, present = inputs.q, inputs.k, inputs.present
    rows, columns = q.shape[2:4]
    in_row, in_column = (
        present[..., None, :],
        transpose(present)[..., None, :] & off_diagonal(rows, q),
    )
    if inputs.causal:
        in_row = in_row & triangle(columns, q)
        in_column = in_column & triangle(rows, q)
    along_row = hide(scores(q, k), in_row)
    return along_row, transpose(hide(scores(transpose(q), transpose(k)), in_column))


def row_and_column_sum(along_row: Tensor, along_column: Tensor, v: Tensor) -> Tensor:
    """Values of the own row and column, summed with their weights, (B, H, R, C, K)."""
    return along_row @ v + transpose(transpose(along_column) @ transpose(v))


def transpose(x: Tensor) -> Tensor:
    """A grid by columns, (B, H, R, C, …) → (B, H, C, R, …)."""
    return x.transpose(2, 3)


Level = tuple[
    Tensor, Tensor, Tensor
]  # keys and values (B, H, N, K) of blocks, and which exist (B, 1, N)
OfLevels = Callable[
    [Heads, int], Iterable[Level]
]  # returns the given number of levels, from 0 on


def count_levels(tokens: int) -> int:
    """Number of levels that covers every token; sequences are padded to 2 to this power."""
    return max(1, (tokens - 1).bit_length())


def sibling_attention(inputs: Heads, of_levels: OfLevels) -> Tensor:
    """Attention of a sequence, (B, H, L, K) → (B, H, L, K)."""
    tokens = inputs.q.shape[2]
    count = count_levels(tokens)
    missing = (1 << count) - tokens
    if missing:
        inputs = inputs.map(lambda x: pad(x, (0, 0, 0, missing)))
        inputs = inputs._replace(present=pad(inputs.present, (0, missing)))
    q = inputs.q
    columns = [
        _products(q, inputs.k / math.sqrt(q.shape[3]))
    ]  # (B, H, L, 1) each: the query's own token
    values = [inputs.v]  # (B, H, N, K)
    for key, value, present in of_levels(inputs, count):
        blocks = key.shape[2]
        key, value = _siblings(key), _siblings(value)
        seen = _siblings(present[..., None])[..., 0]
        if inputs.causal:
            seen = seen & (torch.arange(blocks, device=q.device) % 2 == 1)
        # Scale the keys, which are fewer than the queries: scaled tensors are kept for the gradients.
        key = key[..., None, :] / math.sqrt(q.shape[3])
        column = _products(torch.unflatten(q, 2, (blocks, -1)), key)  # (B, H, N, S, 1)
        columns.append(hide(column, seen[..., None, None]).flatten(2, 3))
        values.append(value)
    return _summed(columns, values, inputs.dropout)[:, :, :tokens]


def nearest_tokens(inputs: Heads, count: int) -> Iterator[Level]:
    """For each block the token nearest to its sibling: the last of a left block, the first of a right one."""
    present = inputs.present[..., None]
    first = last = [inputs.k, inputs.v, present]
    for _ in range(count):
        first, last = (
            [torch.unflatten(x, 2, (-1, 2)) for x in ends] for ends in (first, last)
        )
        pairs = zip(first, last, strict=True)
        key, value, found = (
            torch.stack([y[:, :, :, 0], x[:, :, :, 1]], 3).flatten(2, 3)
            for x, y in pairs
        )
        yield key, value, found[..., 0]
        first, last = [x[:, :, :, 0] for x in first], [y[:, :, :, 1] for y in last]


def power_attention(inputs: Heads) -> Tensor:
    """Attention to i and i ± 2^t (causal: only earlier ones), (B, H, L, K) → (B, H, L, K)."""
    q, k, v = inputs.q, inputs.k / math.sqrt(inputs.q.shape[3]), inputs.v
    distances = [1 << t for t in range((q.shape[2] - 1).bit_length())]
    back = (
        distances
        if inputs.causal
        else [*distances, *(-distance for distance in distances)]
    )
    columns = [_products(q, k)]
    for distance in back:
        seen = _moved(inputs.present[..., None], distance)
        columns.append(
            hide(
                recomputed(
                    lambda q, k, by: _products(q, _moved(k, by)), q, k, distance
                ),
                seen,
            )
        )
    weights = torch.split(weigh(torch.cat(columns, -1), inputs.dropout), 1, -1)
    out = weights[0] * v
    for weight, distance in zip(weights[1:], back, strict=True):
        out = out + recomputed(
            lambda weight, v, by: weight * _moved(v, by), weight, v, distance
        )
    return out


def _products(q: Tensor, k: Tensor) -> Tensor:
    """q · k per token, (…, 1); batches of such small matrix products are several times slower."""
    return (q * k).sum(-1, keepdim=True)


def _moved(x: Tensor, distance: int) -> Tensor:
    """The tensor shifted by `distance` tokens, (B, H, L, …); zero where no token precedes."""
    if distance < 0:
        return pad(x[:, :, -distance:], (0, 0, 0, -distance))
    return pad(x[:, :, : x.shape[2] - distance], (0, 0, distance, 0))


def _summed(
    columns: Sequence[Tensor], values: Sequence[Tensor], dropout: float
) -> Tensor:
    """Values (B, H, N, K), weighted by the softmax of scores (B, H, L, 1); each covers L / N tokens."""
    weights = weigh(torch.cat(list(columns), -1), dropout)
    out: Tensor | None = None
    for weight, value in zip(torch.split(weights, 1, -1), values, strict=True):
        part = (
            torch.unflatten(weight, 2, (value.shape[2], -1)) * value[..., None, :]
        ).flatten(2, 3)
        out = part if out is None else out + part
    assert out is not None
    return out


def _siblings(x: Tensor) -> Tensor:
    """The vectors of each block's sibling, (B, H, N, …)."""
    return torch.unflatten(x, 2, (-1, 2)).flip(3).flatten(2, 3)


class SparseFixedOptions(Section):
    """Options of sparse_fixed."""

    span: int = Field(default=64, ge=1, description="tokens per block")
    last: int = Field(
        default=1, ge=1, description="last tokens per block that all tokens attend to"
    )


class SparseFixed(HeadsLayer):
    """Attention to the own block, and to the last tokens of every other one."""

    def size(self, tokens: int) -> tuple[int, int]:
        blocks, size = blocks_of(tokens, self.options.span)
        return blocks * size, size + min(self.options.last, size) * blocks

    def attend(self, inputs: Heads) -> Tensor:
        blocks = inputs.in_blocks(self.options.span)
        return join_blocks(last_tokens_attention(blocks, self.options.last), inputs)


class AxialOptions(Section):
    """Options of the grid."""

    columns: int = Field(default=64, ge=1, description="tokens per row")


class Axial(HeadsLayer):
    """Attention to the own row and column of a grid."""

    def size(self, tokens: int) -> tuple[int, int]:
        rows, columns = blocks_of(tokens, self.options.columns)
        return rows * columns, rows + columns

    def attend(self, inputs: Heads) -> Tensor:
        grid = inputs.in_blocks(self.options.columns)
        return join_blocks(row_and_column_attention(grid), inputs)


class LogSparse(HeadsLayer):
    """Attention to the nearest token of each sibling of the dyadic blocks that contain a token."""

    def size(self, tokens: int) -> tuple[int, int]:
        levels = count_levels(tokens)
        return 1 << levels, 1 + levels

    def attend(self, inputs: Heads) -> Tensor:
        return sibling_attention(inputs, nearest_tokens)


class LogSparsePowers(HeadsLayer):
    """Attention at distances that are powers of two."""

    def size(self, tokens: int) -> tuple[int, int]:
        return tokens, 2 * tokens.bit_length()

    def attend(self, inputs: Heads) -> Tensor:
        return power_attention(inputs)


class Routing(HeadsLayer):
    """Attention within clusters of tokens: to the own chunk of the cluster and the previous one."""

    def __init__(self, shape: LayerShape, options: ClusterOptions) -> None:
        super().__init__(shape, options)
        self.centroids = Centroids(shape, options.clusters, options.decay)

    def size(self, tokens: int) -> tuple[int, int]:
        chunks, size = most_chunks(tokens, self.options.clusters, self.options.span)
        return chunks * size, 4 * size

    def attend(self, inputs: Heads) -> Tensor:
        chunks, laid = in_chunks(inputs, self.options)
        q, size = laid.q, chunks.size

        def with_before(x: Tensor) -> Tensor:
            """(B, H, P, S, …) → (B, H, P, 2 S, …), previous chunk first, zero if there is none."""
            flat = pad(x.flatten(3), (0, 0, 0, 1))
            index = chunks.before[..., None].expand(-1, -1, -1, flat.shape[3])
            before = torch.unflatten(flat.gather(2, index), 3, tuple(x.shape[3:]))
            return torch.cat([before, x], 3)

        seen = with_before(laid.present)[..., None, :]
        if inputs.causal:
            in_chunk = torch.arange(2 * size, device=q.device) >= size
            seen = seen & (~in_chunk | pad(triangle(size, q), (size, 0)))
        weights = weigh(hide(scores(q, with_before(laid.k)), seen), inputs.dropout)
        return chunks.collect(weights @ with_before(laid.v))


MECHANISMS = (
    Mechanism(
        "sparse_fixed",
        SparseFixedOptions,
        SparseFixed,
        "L · (K + span + last · L / span)",
    ),
    Mechanism("axial", AxialOptions, Axial, "L · (K + columns + L / columns)"),
    Mechanism("logsparse", Section, LogSparse, "L · K · log L"),
    Mechanism("logsparse_powers", Section, LogSparsePowers, "L · K · log L"),
    Mechanism(
        "routing",
        ClusterOptions,
        Routing,
        "(L + clusters · span) · (K + span) + L · clusters",
    ),
)
