"""Mechanisms beside Combiner by their definitions: which keys a query sees, and dense matrices of weights."""

from collections.abc import Iterable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bigbird_dna.config import LayerShape, find_mechanism

# Axes: H heads, L queries or keys, K components, D hidden width.

HEADS, WIDTH = 2, 4
SMALL: dict[str, dict[str, Any]] = {
    "sparse_fixed": {"span": 4, "last": 1},
    "axial": {"columns": 5},
    "logsparse": {},
    "logsparse_powers": {},
    "longformer": {"window": 3, "dilation": 2, "global_tokens": 2},
    "routing": {"clusters": 3, "span": 4},
    "performer": {"features": 6},
    "reformer": {"buckets": 4, "chunk": 3, "rounds": 3},
}
"""All of them, with sizes for short sequences."""


def quick(names: Iterable[str], *kept: str) -> list[Any]:
    """Names as parameters of a test, all but `kept` of which are for the slow suite."""
    return [name if name in kept else pytest.param(name, marks=pytest.mark.slow) for name in names]


def build(
    name: str, causal: bool = False, heads: int = HEADS, width: int = WIDTH, **options: Any
) -> nn.Module:
    """A mechanism's module in double precision, in evaluation."""
    torch.manual_seed(0)
    shape = LayerShape(heads, width, causal=causal)
    module: nn.Module = find_mechanism(name).make(shape, {**SMALL[name], **options})
    return module.double().eval()


def sees(name: str, of: Mapping[str, Any], i: int, j: int) -> bool:
    """Whether query i sees key j by a graph that is always the same, apart from what causality hides."""
    apart = abs(i - j)
    if name == "sparse_fixed":
        return i // of["span"] == j // of["span"] or j % of["span"] >= of["span"] - of["last"]
    if name == "axial":
        return i // of["columns"] == j // of["columns"] or i % of["columns"] == j % of["columns"]
    if name == "logsparse":
        size = 1 << max(0, (i ^ j).bit_length() - 1)  # of the dyadic blocks that part them
        return i == j or (j % size == size - 1 if j < i else j % size == 0)
    if name == "logsparse_powers":
        return apart & (apart - 1) == 0
    assert name == "longformer"
    near = apart <= of["window"] * of["dilation"] and apart % of["dilation"] == 0
    return near or j < of["global_tokens"]


def cluster_graph(clusters: list[int], size: int) -> Tensor:
    """Of routing: tokens of a cluster in the same piece of `size`, or in the one before."""
    piece = [sum(other == own for other in clusters[:i]) // size for i, own in enumerate(clusters)]
    tokens = range(len(clusters))
    return torch.tensor(
        [[clusters[i] == clusters[j] and piece[i] - piece[j] in (0, 1) for j in tokens] for i in tokens]
    )


def hash_graph(q: Tensor, rotations: Tensor, size: int) -> Tensor:
    """Of reformer: what any round lets a token see, (L, L); q (L, K), rotations (R, K, buckets / 2)."""
    tokens = range(len(q))
    seen = torch.zeros(len(q), len(q), dtype=torch.bool)
    for rotation in rotations:
        bucket = torch.cat([q @ rotation, -q @ rotation], 1).argmax(1).tolist()
        ranked = sorted(tokens, key=lambda i: (bucket[i], i))
        chunk = {i: rank // size for rank, i in enumerate(ranked)}
        for i in tokens:
            for j in tokens:
                seen[i, j] |= bucket[i] == bucket[j] and chunk[i] - chunk[j] in (0, 1)
    return seen


def masked_softmax(scores: Tensor, seen: Tensor) -> Tensor:
    return scores.masked_fill(~seen, -torch.inf).softmax(-1)


def matrix(name: str, module: Any, options: Mapping[str, Any], q: Tensor, k: Tensor, causal: bool) -> Tensor:
    """The effective matrix (H, L, L) of one sequence, q and k (H, L, K); of Longformer its local rows."""
    tokens, width = q.shape[1:]
    of = {**SMALL[name], **options}
    past = torch.ones(tokens, tokens, dtype=torch.bool)
    past = past.tril() if causal else past
    if name == "performer":
        return features_matrix(q, k, module.directions.drawn.to(q.dtype), past)
    if name == "reformer":
        rows = []
        for query, rotations in zip(q, module.rotations.drawn.to(q.dtype), strict=True):
            scores = query @ (query / query.norm(dim=1, keepdim=True)).T
            scores = scores.masked_fill(torch.eye(tokens, dtype=torch.bool), -1e5)
            rows.append(masked_softmax(scores, hash_graph(query, rotations, of["chunk"])))
        return torch.stack(rows)
    if name == "routing":
        there = torch.ones(1, 1, tokens, dtype=torch.bool)
        numbers = module.clusters(q[None], k[None], there)[0].tolist()
        seen = torch.stack([cluster_graph(row, of["span"]) for row in numbers])
    else:
        seen = torch.tensor([[sees(name, of, i, j) for j in range(tokens)] for i in range(tokens)])
    return masked_softmax(q @ k.mT / width**0.5, seen & past)


def features_matrix(q: Tensor, k: Tensor, directions: Tensor, past: Tensor) -> Tensor:
    """Performer's: products of positive features, each row divided by its sum; directions (H, F, K)."""

    def features(x: Tensor) -> Tensor:
        x = x / x.shape[2] ** 0.25
        return (x @ directions.mT - (x * x).sum(2, keepdim=True) / 2).exp()

    products = (features(q) @ features(k).mT) * past
    return products / products.sum(2, keepdim=True)


def global_rows(module: Any, hidden: Tensor, count: int, causal: bool) -> tuple[Tensor, Tensor]:
    """Longformer's global tokens of one sequence, hidden (L, D): weights (H, G, L) and values (H, L, K)."""
    heads = [
        x.unflatten(1, (HEADS, -1)).transpose(0, 1)
        for x in (part(hidden) for part in (module.query, module.key, module.value))
    ]
    q, k, v = heads
    seen = torch.ones(len(hidden), len(hidden), dtype=torch.bool)
    seen = seen.tril() if causal else seen
    return masked_softmax(q[:, :count] @ k.mT / WIDTH**0.5, seen[:count]), v


def expected(
    name: str,
    module: Any,
    options: Mapping[str, Any],
    made: tuple[Tensor, ...],
    lengths: list[int],
    causal: bool,
) -> Tensor:
    """The output (B, H, L, K) by the definition; `made` are q, k, v (B, H, L, K) and the input (B, L, D)."""
    rows = []
    for row, length in enumerate(lengths):
        q, k, v = (x[row, :, :length] for x in made[:3])
        out = matrix(name, module, options, q, k, causal) @ v
        if name == "longformer":
            count = min({**SMALL[name], **options}["global_tokens"], length)
            if count:
                weights, values = global_rows(module, made[3][row, :length], count, causal)
                out = torch.cat([weights @ values, out[:, count:]], 1)
        rows.append(nn.functional.pad(out, (0, 0, 0, made[0].shape[2] - length)))
    return torch.stack(rows)
