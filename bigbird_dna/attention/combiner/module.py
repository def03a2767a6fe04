"""Combiner's attention as modules that a layer owns, with what they learn; see `config.mechanisms`."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from bigbird_dna.attention.call import checked_call, real_positions
from bigbird_dna.attention.combiner.clusters import cluster_attention
from bigbird_dna.attention.combiner.joint import Part, Problem, by_parts
from bigbird_dna.attention.combiner.plans import Plan
from bigbird_dna.attention.combiner.pooling import Pooling
from bigbird_dna.attention.pattern import Pattern
from bigbird_dna.config import LayerShape

# Axes: B batch, H heads, L tokens, K head width, D hidden width, C clusters.

_TEMPORARIES = 8  # vectors of a token that a plan makes, about


class Combiner(nn.Module):
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
        super().__init__()
        self.shape, self.plan = shape, plan
        self.largest = pooling.endswith("max")
        self.features = _Features(shape.width) if pooling.startswith("deepsets") else None

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        lengths: Tensor | Sequence[int] | None = None,
        dropout: float = 0.0,
        hidden: Tensor | None = None,
    ) -> Tensor:
        """Attention of q, k, v (B, H, L, K) → (B, H, L, K), zero at padding; as `config.mechanisms` says.

        `hidden` is of no use here. `ValueError`: shapes, types, lengths or dropout are not as there.
        """
        call = checked_call(q, k, v, Pattern(), lengths, 0, dropout)
        if not call.lengths:
            return torch.zeros_like(call.v)
        cut = call.cut()
        q, k, v = cut.q, cut.k, cut.v
        tokens, width = q.shape[2:]
        there = real_positions(call.lengths, tokens, q.device)[:, None]  # (B, 1, L)
        clusters = self.clusters(q, k, there)

        def attend(part: Part, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            pooled_q, pooled_k = (query, key) if self.features is None else self.features(query, key)
            own = None if clusters is None else clusters[part]
            return self.plan.attend(
                Problem(
                    query,
                    key,
                    value,
                    pooled_q,
                    pooled_k,
                    there[part[0]],
                    self.largest,
                    self.shape.causal,
                    dropout,
                    own,
                )
            )

        each = tokens * (self.plan.scores(tokens) + _TEMPORARIES * width)
        return call.uncut(by_parts(attend, (q, k, v), each))

    def clusters(self, q: Tensor, k: Tensor, there: Tensor) -> Tensor | None:
        """Numbers of tokens (B, H, L) that the plan goes by; none here."""
        return None


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
    """Clusters by the nearest of `clusters` directions for each head, those that tokens themselves have.

    A token's direction is that of its normalised query and key together. The directions that clusters stand
    for follow their tokens' while training (online spherical k-means; Roy et al. 2021, arXiv 2003.05997),
    `decay` of them staying at each step. No gradient reaches them.
    """

    directions: Tensor  # (H, C, K)
    seen: Tensor  # (H, C, K): of the last pass in training, each cluster's tokens added up

    def __init__(self, shape: LayerShape, pooling: Pooling, clusters: int, span: int, decay: float) -> None:
        def attend(problem: Problem) -> Tensor:
            return cluster_attention(problem, clusters, span)

        super().__init__(shape, Plan(attend, lambda tokens: span + clusters + tokens // span), pooling)
        self.decay = decay
        drawn = torch.empty(shape.heads, clusters, shape.width).normal_()
        self.register_buffer("directions", normalize(drawn, dim=-1))
        self.register_buffer("seen", torch.zeros_like(drawn))

    @torch.no_grad()
    def clusters(self, q: Tensor, k: Tensor, there: Tensor) -> Tensor:
        """The number of the nearest direction, (B, H, L); notes the tokens of each while training."""
        token = normalize(q.detach(), dim=-1) + normalize(k.detach(), dim=-1)
        nearest = (token @ self.directions.to(token.dtype).mT).argmax(-1)
        if self.training:
            token = token.masked_fill(~there[..., None], 0).to(self.seen.dtype)
            seen = torch.zeros_like(self.seen)
            index = nearest.transpose(0, 1).flatten(1)[..., None].expand(-1, -1, token.shape[3])
            seen.scatter_add_(1, index, token.transpose(0, 1).flatten(1, 2))
            self.seen.copy_(seen)
        return nearest

    @torch.no_grad()
    def begin_pass(self) -> None:
        """Let the directions follow the tokens of the last pass in training."""
        moved = self.decay * self.directions + (1 - self.decay) * normalize(self.seen, dim=-1)
        empty = (self.seen == 0).all(-1, keepdim=True)
        self.directions.copy_(torch.where(empty, self.directions, normalize(moved, dim=-1)))
        self.seen.zero_()


class Mixture(nn.Module):
    """The mean of several plans."""

    def __init__(self, parts: Iterable[Combiner]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        lengths: Tensor | Sequence[int] | None = None,
        dropout: float = 0.0,
        hidden: Tensor | None = None,
    ) -> Tensor:
        """As of `Combiner`."""
        outs = [part(q, k, v, lengths=lengths, dropout=dropout) for part in self.parts]
        return sum(outs[1:], outs[0]) / len(outs)  # type: ignore[no-any-return]
