"""The plans by name, and how much room each takes."""

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from bigbird_dna.attention.combiner.blocks import block_attention
from bigbird_dna.attention.combiner.dyadic import dyadic_attention
from bigbird_dna.attention.combiner.grid import grid_attention
from bigbird_dna.attention.combiner.joint import Problem


class Plan(NamedTuple):
    """How keys are parted into those seen directly and spans."""

    attend: Callable[[Problem], Tensor]  # (B, H, L, K), of any content where there is padding
    scores: Callable[[int], int]  # that a query has, directly and of spans, for L tokens


def fixed(span: int) -> Plan:
    """Blocks of `span` tokens."""

    def attend(problem: Problem) -> Tensor:
        return _joined(block_attention(problem.in_blocks(span)), problem)

    return Plan(attend, lambda tokens: span + -(-tokens // span))


def rowmajor(columns: int) -> Plan:
    """Rows of a grid of `columns` columns, summarised for each column."""

    def attend(problem: Problem) -> Tensor:
        return _joined(block_attention(problem.in_blocks(columns), by_column=True), problem)

    return Plan(attend, lambda tokens: columns + -(-tokens // columns))


def axial(columns: int, vertical: bool) -> Plan:
    """Own row and column of a grid of `columns` columns; the spans are columns, or rows."""

    def attend(problem: Problem) -> Tensor:
        return _joined(grid_attention(problem.in_blocks(columns), vertical), problem)

    def scores(tokens: int) -> int:
        rows = -(-tokens // columns)
        return 2 * columns + rows if vertical else columns + 2 * rows

    return Plan(attend, scores)


def logsparse() -> Plan:
    """Halves of dyadic blocks."""
    return Plan(dyadic_attention, lambda tokens: 1 + max(1, (tokens - 1).bit_length()))


def _joined(out: Tensor, problem: Problem) -> Tensor:
    """(B, H, N, S, K) → (B, H, L, K)."""
    return out.flatten(2, 3)[:, :, : problem.q.shape[2]]
