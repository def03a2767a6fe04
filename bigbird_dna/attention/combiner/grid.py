"""Direct attention along the own row and column of a grid, and through summaries: axial vertical, horizontal.

The grid is laid so that spans run along its first axis: horizontal turns it. Axes: B batch, H heads, R rows
and C columns of the grid as laid, K head width. Time and memory for a head are R C (R + 2 C), as are those of
the summaries, of which there is one for each token: a span is a column as seen from one row.
"""

import torch
from torch import Tensor

from bigbird_dna.attention.combiner.pooling import pool_others, pool_up_to, shifted
from bigbird_dna.attention.joint import Problem, attended, hide, others, recomputed, scores, triangle, weigh
from bigbird_dna.attention.sparse.grid import row_and_column_scores, row_and_column_sum, turned


def grid_attention(problem: Problem, vertical: bool) -> Tensor:
    """Attention on a grid filled row by row, (B, H, rows, columns, K) → the same."""
    if vertical:
        return _attention_over_columns(problem, problem.causal)
    columns = problem.map(turned)._replace(there=turned(problem.there))
    return turned(_attention_over_columns(columns, False))


def _attention_over_columns(problem: Problem, prefixes: bool) -> Tensor:
    """Attention on the grid as laid, (B, H, R, C, K); spans are columns without the query's row.

    With `prefixes` they end before it: the grid was filled row by row, and what comes later is not to be
    seen. A causal problem without it was filled column by column: columns before the own one are seen whole.
    """
    q = problem.q
    rows, columns = q.shape[2:4]
    span_k: Tensor
    span_v: Tensor
    span_k, span_v, exists = recomputed(_summaries, problem, prefixes)
    along_row, along_column = row_and_column_scores(problem)
    aside = others(columns, q)
    if problem.causal and not prefixes:
        aside = triangle(columns, q, -1)
    through = hide(scores(q, span_k), exists[..., None, :] & aside)  # (B, H, R, C, C)
    weights = weigh(torch.cat([along_row, along_column, through], -1), problem.dropout)
    along_row, along_column, through = torch.split(weights, [columns, rows, columns], -1)
    return row_and_column_sum(along_row, along_column, problem.v) + through @ span_v


def _summaries(problem: Problem, prefixes: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Keys and values of spans by row and column, (B, H, R, C, K), and which have tokens, (B, 1, R, C)."""
    _, k, v, pooled_q, pooled_k, there, largest, _, _, _ = problem
    rows = k.shape[2]
    pooled_q, pooled_k, k, v = map(turned, (pooled_q, pooled_k, k, v))  # (B, H, C, R, K)
    there = turned(there)  # (B, 1, C, R)
    if prefixes:  # rows before a token are filled if its own is
        span_q, span_k = (shifted(pool_up_to(x, largest)) for x in (pooled_q, pooled_k))
        seen = triangle(rows, k, -1)
        exists = (torch.arange(rows, device=k.device) > 0).expand_as(there)
    else:
        span_q, span_k = (pool_others(x, there, largest) for x in (pooled_q, pooled_k))
        seen = there[..., None, :] & others(rows, k)
        exists = seen.any(-1)
    span_v = attended(span_q, k, v, seen)
    return turned(span_k), turned(span_v), turned(exists)
