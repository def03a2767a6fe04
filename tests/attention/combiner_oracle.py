"""Combiner by its definition: sets of keys for each query, and the effective matrix by explicit sums."""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

# Axes: L queries or keys, R spans of a query, K components.


class Parts(NamedTuple):
    """What one query sees."""

    direct: set[int]
    spans: list[set[int]]


Plan = Callable[[int, int, int], Parts]  # query, tokens, size


def fixed(i: int, tokens: int, size: int) -> Parts:
    blocks = [{j for j in range(tokens) if j // size == b} for b in range(-(-tokens // size))]
    return Parts(blocks[i // size], [block for b, block in enumerate(blocks) if b != i // size])


def logsparse(i: int, tokens: int, size: int) -> Parts:
    spans = [{j for j in range(tokens) if j >> level == (i >> level) ^ 1} for level in range(1, 12)]
    return Parts({i, i ^ 1} & set(range(tokens)), spans)


def _own(i: int, tokens: int, size: int) -> set[int]:
    return {j for j in range(tokens) if j // size == i // size or j % size == i % size}


def axial_vertical(i: int, tokens: int, size: int) -> Parts:
    columns = [{j for j in range(tokens) if j % size == c and j // size != i // size} for c in range(size)]
    return Parts(_own(i, tokens, size), [column for c, column in enumerate(columns) if c != i % size])


def axial_horizontal(i: int, tokens: int, size: int) -> Parts:
    rows = [{j for j in range(tokens) if j // size == r and j % size != i % size} for r in range(tokens)]
    return Parts(_own(i, tokens, size), [row for r, row in enumerate(rows) if r != i // size])


PLANS: dict[str, Plan] = {
    "fixed": fixed,
    "logsparse": logsparse,
    "axial_vertical": axial_vertical,
    "axial_horizontal": axial_horizontal,
    "axial_rowmajor": fixed,
}


@cache
def parts(plan: str, tokens: int, size: int, causal: bool) -> list[Parts]:
    """What every query sees.

    Causal spans of axial-vertical are cut before the query's row; of the other plans' spans those that hold a
    later token are left out.
    """
    found = []
    for i in range(tokens):
        direct, spans = PLANS[plan](i, tokens, size)
        if causal:
            direct = {j for j in direct if j <= i}
            if plan == "axial_vertical":
                spans = [{j for j in span if j // size < i // size} for span in spans]
            else:
                spans = [span for span in spans if all(j <= i for j in span)]
        found.append(Parts(direct, [span for span in spans if span]))
    return found


def cluster_parts(clusters: list[int], size: int, causal: bool) -> list[Parts]:
    """Of routing: clusters, cut in the order of their tokens into pieces of `size`."""
    pieces: dict[tuple[int, int], set[int]] = {}
    piece_of = []
    for j, cluster in enumerate(clusters):
        piece = (cluster, sum(other == cluster for other in clusters[:j]) // size)
        pieces.setdefault(piece, set()).add(j)
        piece_of.append(piece)
    found = []
    for i, own in enumerate(piece_of):
        seen = set(range(i + 1 if causal else len(clusters)))
        spans = [tokens & seen for piece, tokens in pieces.items() if piece != own]
        found.append(Parts(pieces[own] & seen, [span for span in spans if span]))
    return found


def matrix(
    q: Tensor,
    k: Tensor,
    of: list[Parts],
    pooling: str,
    features: tuple[Tensor, Tensor] | None = None,
    columns: int = 0,
) -> Tensor:
    """The effective matrix (L, L) of one head, q and k (L, K).

    `features` are DeepSets' weights of queries and keys. With `columns` the query of a span is that of its
    token in the own column, if there is one (rowmajor).
    """
    tokens, width = q.shape
    most = max(len(one.spans) for one in of)
    direct = torch.zeros(tokens, tokens, dtype=torch.bool)
    member = torch.zeros(tokens, most, tokens, dtype=torch.bool)
    for i, one in enumerate(of):
        direct[i, sorted(one.direct)] = True
        for r, span in enumerate(one.spans):
            member[i, r, sorted(span)] = True
    there = member.any(-1)

    def pooled(x: Tensor) -> Tensor:
        x = x.expand(tokens, most, tokens, width)
        if pooling.endswith("max"):
            return x.masked_fill(~member[..., None], -torch.inf).amax(2).masked_fill(~there[..., None], 0)
        return (x * member[..., None]).sum(2) / member.sum(-1, keepdim=True).clamp(min=1)

    of_q, of_k = q, k
    if features is not None:
        of_q, of_k = ((x @ w.T).relu() for x, w in zip((q, k), features, strict=True))
    span_q, span_k = pooled(of_q), pooled(of_k)
    if columns:
        for i, one in enumerate(of):
            for r, span in enumerate(one.spans):
                own = [j for j in span if j % columns == i % columns]
                if own:
                    span_q = span_q.index_put((torch.tensor(i), torch.tensor(r)), q[own[0]])

    def e(a: Tensor, b: Tensor) -> Tensor:
        return ((a * b).sum(-1) / width**0.5).exp()

    near = e(q[:, None], k) * direct
    far = e(q[:, None], span_k) * there
    total = near.sum(1) + far.sum(1)
    local = e(span_q[:, :, None], k) * member  # (L, R, L)
    local = local / local.sum(-1, keepdim=True).masked_fill(~there[..., None], 1)
    return near / total[:, None] + torch.einsum("ir,irj->ij", far / total[:, None], local)
