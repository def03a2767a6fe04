"""The own row and the own column of a grid: axial, and what Combiner's axial plans see directly.

Axes: B batch, H heads, R rows, C columns, K head width. Time for a head is R C (R + C) K.
"""

import torch
from torch import Tensor

from bigbird_dna.attention.joint import Problem, hide, others, scores, triangle, weigh


def row_and_column_attention(problem: Problem) -> Tensor:
    """Attention on a grid filled row by row, (B, H, R, C, K) → the same."""
    along_row, along_column = row_and_column_scores(problem)
    sizes = [along_row.shape[-1], along_column.shape[-1]]
    weights = weigh(torch.cat([along_row, along_column], -1), problem.dropout)
    along_row, along_column = torch.split(weights, sizes, -1)
    return row_and_column_sum(along_row, along_column, problem.v)


def row_and_column_scores(problem: Problem) -> tuple[Tensor, Tensor]:
    """Scores of the keys in the own row, (B, H, R, C, C), and in the own column, (B, H, R, C, R).

    The own token counts in its row.
    """
    q, k, there = problem.q, problem.k, problem.there
    rows, columns = q.shape[2:4]
    in_row, in_column = there[..., None, :], turned(there)[..., None, :] & others(rows, q)
    if problem.causal:
        in_row = in_row & triangle(columns, q)
        in_column = in_column & triangle(rows, q)
    along_row = hide(scores(q, k), in_row)
    return along_row, turned(hide(scores(turned(q), turned(k)), in_column))


def row_and_column_sum(along_row: Tensor, along_column: Tensor, v: Tensor) -> Tensor:
    """Values of the own row and column by their weights, (B, H, R, C, K)."""
    return along_row @ v + turned(turned(along_column) @ turned(v))


def turned(x: Tensor) -> Tensor:
    """(B, H, R, C, …) → (B, H, C, R, …)."""
    return x.transpose(2, 3)
