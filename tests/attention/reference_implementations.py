"""Mechanisms by their definitions: which keys a query sees, and dense matrices of weights.

Combiner is given by sets of keys for each query, and its effective matrix by explicit sums.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from bigbird_dna.attention.mechanisms.combiner import Combiner, Mixture
from bigbird_dna.attention.mechanisms.combiner_routing import RoutingCombiner
from bigbird_dna.config import LayerShape, find_mechanism

# Axes: H heads, L queries or keys, R spans of a query, K components, D hidden width.

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
"""Those beside Combiner, with sizes for short sequences."""
FIRST, SECOND = "axial_vertical", "axial_horizontal"  # of a mixture, by default


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


class Parts(NamedTuple):
    """What one query sees."""

    direct: set[int]
    spans: list[set[int]]


SpansOf = Callable[[int, int, int], Parts]  # query, tokens, size


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


SPANS: dict[str, SpansOf] = {
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
        direct, spans = SPANS[plan](i, tokens, size)
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


def matrix_of_parts(
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


def combiner_matrix(module: nn.Module, plan: str, q: Tensor, k: Tensor, size: int) -> Tensor:
    """The effective matrix (H, L, L) of one sequence; q and k (H, L, K)."""
    if isinstance(module, Mixture):
        both = zip(module.parts, (FIRST, SECOND), strict=True)
        return sum(combiner_matrix(part, name, q, k, size) for part, name in both) / 2
    assert isinstance(module, Combiner)
    causal = module.shape.causal
    pooling = "max" if module.largest else "mean"
    features = module.features and (module.features.query, module.features.key)
    heads = []
    numbers = None
    if isinstance(module, RoutingCombiner):
        there = torch.ones(1, 1, q.shape[1], dtype=torch.bool)
        numbers = module.clusters(q[None], k[None], there)[0].tolist()
    for head in range(len(q)):
        if numbers is None:
            of = parts(plan, q.shape[1], size, causal)
        else:
            of = cluster_parts(numbers[head], size, causal)
        columns = size if plan == "axial_rowmajor" else 0
        heads.append(matrix_of_parts(q[head], k[head], of, pooling, features, columns))
    return torch.stack(heads)


PLANS = (*SPANS, "routing", "mixture")
REFERENCES = {*SMALL, *(f"combiner_{plan}" for plan in PLANS)}
"""Mechanisms that have a reference implementation here."""
