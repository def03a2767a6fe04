"""The plans by name, and how much room each takes."""

from torch import Tensor

from bigbird_dna.attention.combiner.blocks import block_attention
from bigbird_dna.attention.combiner.dyadic import summaries
from bigbird_dna.attention.combiner.grid import grid_attention
from bigbird_dna.attention.joint import Problem, joined
from bigbird_dna.attention.planned import Plan
from bigbird_dna.attention.sparse.dyadic import sibling_attention


def fixed(span: int) -> Plan:
    """Blocks of `span` tokens."""

    def attend(problem: Problem) -> Tensor:
        return joined(block_attention(problem.in_blocks(span)), problem)

    return Plan(attend, lambda tokens: span + -(-tokens // span))


def rowmajor(columns: int) -> Plan:
    """Rows of a grid of `columns` columns, summarised for each column."""

    def attend(problem: Problem) -> Tensor:
        return joined(block_attention(problem.in_blocks(columns), by_column=True), problem)

    return Plan(attend, lambda tokens: columns + -(-tokens // columns))


def axial(columns: int, vertical: bool) -> Plan:
    """Own row and column of a grid of `columns` columns; the spans are columns, or rows."""

    def attend(problem: Problem) -> Tensor:
        return joined(grid_attention(problem.in_blocks(columns), vertical), problem)

    def scores(tokens: int) -> int:
        rows = -(-tokens // columns)
        return 2 * columns + rows if vertical else columns + 2 * rows

    return Plan(attend, scores)


def logsparse() -> Plan:
    """Halves of dyadic blocks."""

    def attend(problem: Problem) -> Tensor:
        return sibling_attention(problem, summaries)

    return Plan(attend, lambda tokens: 1 + max(1, (tokens - 1).bit_length()))
