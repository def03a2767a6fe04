"""Combiner's attention as modules that a layer owns, with what they learn; see `config.mechanisms`."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from bigbird_dna.attention.centroids import Centroids
from bigbird_dna.attention.combiner.clusters import QUERIES, cluster_attention
from bigbird_dna.attention.combiner.pooling import Pooling
from bigbird_dna.attention.joint import Problem, recomputed
from bigbird_dna.attention.pieces import most_pieces
from bigbird_dna.attention.planned import Plan, Planned
from bigbird_dna.config import LayerShape

# Axes: B batch, H heads, L tokens, K head width.


class Combiner(Planned):
    """One plan.

    Parameters
    ----------
    plan
        How keys are parted. `RoutingCombiner` has its own.
    pooling
        How a span's tokens become one query and one key.

    Examples
    --------
    >>> from bigbird_dna.attention.combiner.plans import fixed
    >>> attention = Combiner(LayerShape(heads=2, width=4), fixed(span=3), "max")
    >>> q, k, v = torch.randn(3, 1, 2, 10, 4)
    >>> attention(q, k, v).shape
    torch.Size([1, 2, 10, 4])
    """

    def __init__(self, shape: LayerShape, plan: Plan, pooling: Pooling) -> None:
        super().__init__(shape, plan)
        self.largest = pooling.endswith("max")
        self.features = _Features(shape.width) if pooling.startswith("deepsets") else None

    def pooled(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """What summaries are pooled of: queries and keys, or learnt features of them."""
        return (q, k) if self.features is None else self.features(q, k)


class _Features(nn.Module):
    """DeepSets: what is pooled is relu(W x), W (K, K) for queries and another one for keys."""

    def __init__(self, width: int) -> None:
        super().__init__()
        # Drawn so that the features are of the size of what they are made from (He et al. 2015).
        deviation = (2 / width) ** 0.5
        self.query = nn.Parameter(torch.empty(width, width).normal_(std=deviation))
        self.key = nn.Parameter(torch.empty(width, width).normal_(std=deviation))

    def forward(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return (q @ self.query.to(q.dtype).T).relu(), (k @ self.key.to(k.dtype).T).relu()


class RoutingCombiner(Combiner):
    """The plan goes by learnt clusters of tokens, cut into pieces of `span`."""

    def __init__(self, shape: LayerShape, pooling: Pooling, clusters: int, span: int, decay: float) -> None:
        def attend(problem: Problem) -> Tensor:
            return cluster_attention(problem, clusters, span)

        def scores(tokens: int) -> int:
            beside = min(QUERIES, tokens) if shape.causal else 0
            return sum(most_pieces(tokens, clusters, span)) + beside

        def places(tokens: int) -> int:
            return math.prod(most_pieces(tokens, clusters, span))

        super().__init__(shape, Plan(attend, scores, places), pooling)
        self.centroids = Centroids(shape, clusters, decay)

    def clusters(self, q: Tensor, k: Tensor, there: Tensor) -> Tensor | None:
        """The number of the nearest direction, (B, H, L)."""
        return self.centroids(q, k, there)  # type: ignore[no-any-return]


class Mixture(Planned):
    """The mean of several plans."""

    def __init__(self, shape: LayerShape, parts: Sequence[Combiner]) -> None:
        def attend(problem: Problem) -> Tensor:
            outs = []
            for part in parts:
                pooled_q, pooled_k = part.pooled(problem.q, problem.k)
                own = problem._replace(pooled_q=pooled_q, pooled_k=pooled_k, largest=part.largest)
                outs.append(recomputed(part.plan.attend, own))
            return sum(outs[1:], outs[0]) / len(outs)  # type: ignore[no-any-return]

        def scores(tokens: int) -> int:
            return max(part.plan.scores(tokens) for part in parts)

        def places(tokens: int) -> int:
            return max(part.plan.places(tokens) for part in parts)

        super().__init__(shape, Plan(attend, scores, places))
        self.parts = nn.ModuleList(parts)
