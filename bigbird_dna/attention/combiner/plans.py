"""The plans by name, and how much room each takes."""

from torch import Tensor

from bigbird_dna.attention.combiner.blocks import block_attention
from bigbird_dna.attention.combiner.dyadic import summaries
from bigbird_dna.attention.combiner.grid import grid_attention
from bigbird_dna.attention.joint import Problem, joined
from bigbird_dna.attention.planned import Plan, plan_of_blocks
from bigbird_dna.attention.sparse.dyadic import levels, sibling_attention


def fixed(span: int) -> Plan:
    """Blocks of `span` tokens."""

    def attend(problem: Problem) -> Tensor:
        return joined(block_attention(problem.in_blocks(span)), problem)

    return plan_of_blocks(attend, span, lambda blocks, size: size + blocks)


def rowmajor(columns: int) -> Plan:
    """Rows of a grid of `columns` columns, summarised for each column."""

    def attend(problem: Problem) -> Tensor:
        return joined(block_attention(problem.in_blocks(columns), by_column=True), problem)

    return plan_of_blocks(attend, columns, lambda rows, row: row + rows)


def axial(columns: int, vertical: bool) -> Plan:
    """Own row and column of a grid of `columns` columns; the spans are columns, or rows."""

    def attend(problem: Problem) -> Tensor:
        return joined(grid_attention(problem.in_blocks(columns), vertical), problem)

    def scores(rows: int, row: int) -> int:
        return 2 * row + rows if vertical else row + 2 * rows

    return plan_of_blocks(attend, columns, scores)


def logsparse() -> Plan:
    """Halves of dyadic blocks."""

    def attend(problem: Problem) -> Tensor:
        return sibling_attention(problem, summaries)

    return Plan(attend, lambda tokens: 1 + levels(tokens), lambda tokens: 1 << levels(tokens))
