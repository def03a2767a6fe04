"""Sparse attention of a pattern of tokens; see `attention.sparse` for who sees whom."""

import math
from typing import Any

from pydantic import Field
from torch import Tensor, nn

from bigbird_dna.attention.centroids import Centroids
from bigbird_dna.attention.joint import Problem, joined
from bigbird_dna.attention.pieces import most_pieces
from bigbird_dna.attention.planned import Plan, Planned, plan_of_blocks
from bigbird_dna.attention.sparse.blocks import last_tokens_attention
from bigbird_dna.attention.sparse.clusters import cluster_attention
from bigbird_dna.attention.sparse.dyadic import levels, nearest_tokens, power_attention, sibling_attention
from bigbird_dna.attention.sparse.grid import row_and_column_attention
from bigbird_dna.config import LayerShape, Mechanism, Section


class FixedOptions(Section):
    """Of blocks."""

    span: int = Field(default=64, ge=1, description="tokens of a block")
    last: int = Field(default=1, ge=1, description="tokens at each block's end that all see")


class AxialOptions(Section):
    """Of a grid."""

    columns: int = Field(default=64, ge=1, description="tokens of a row")


class LogsparseOptions(Section):
    """There are none."""


class RoutingOptions(Section):
    """Of clusters."""

    clusters: int = Field(default=32, ge=1, description="directions that tokens are sorted by, for each head")
    span: int = Field(default=128, ge=1, description="tokens of a piece; a larger cluster has several")
    decay: float = Field(
        default=0.999, ge=0, le=1, description="share of a cluster's direction that a training step keeps"
    )


class Routing(Planned):
    """Attention within learnt clusters; `directions` are those that tokens are sorted by."""

    def __init__(self, shape: LayerShape, options: RoutingOptions) -> None:
        def attend(problem: Problem) -> Tensor:
            return cluster_attention(problem, options.clusters, options.span)

        def scores(tokens: int) -> int:
            return 4 * most_pieces(tokens, options.clusters, options.span)[1]

        def places(tokens: int) -> int:
            return math.prod(most_pieces(tokens, options.clusters, options.span))

        super().__init__(shape, Plan(attend, scores, places))
        self.centroids = Centroids(shape, options.clusters, options.decay)

    def clusters(self, q: Tensor, k: Tensor, there: Tensor) -> Tensor | None:
        """The number of the nearest direction, (B, H, L)."""
        return self.centroids(q, k, there)  # type: ignore[no-any-return]


def _fixed(shape: LayerShape, options: FixedOptions) -> nn.Module:
    def attend(problem: Problem) -> Tensor:
        return joined(last_tokens_attention(problem.in_blocks(options.span), options.last), problem)

    def scores(blocks: int, size: int) -> int:
        return size + min(options.last, size) * blocks

    return Planned(shape, plan_of_blocks(attend, options.span, scores))


def _axial(shape: LayerShape, options: AxialOptions) -> nn.Module:
    def attend(problem: Problem) -> Tensor:
        return joined(row_and_column_attention(problem.in_blocks(options.columns)), problem)

    return Planned(shape, plan_of_blocks(attend, options.columns, lambda rows, row: row + rows))


def _logsparse(shape: LayerShape, options: Any) -> nn.Module:
    def attend(problem: Problem) -> Tensor:
        return sibling_attention(problem, nearest_tokens)

    return Planned(shape, Plan(attend, lambda tokens: 1 + levels(tokens), lambda tokens: 1 << levels(tokens)))


def _powers(shape: LayerShape, options: Any) -> nn.Module:
    return Planned(shape, Plan(power_attention, lambda tokens: 2 * tokens.bit_length()))


MECHANISMS = (
    Mechanism("sparse_fixed", FixedOptions, _fixed, "L · (K + span + last · L / span)"),
    Mechanism("axial", AxialOptions, _axial, "L · (K + columns + L / columns)"),
    Mechanism("logsparse", LogsparseOptions, _logsparse, "L · K · log L"),
    Mechanism("logsparse_powers", LogsparseOptions, _powers, "L · K · log L"),
    Mechanism("routing", RoutingOptions, Routing, "(L + clusters · span) · (K + span) + L · clusters"),
)
