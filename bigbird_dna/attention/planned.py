"""Attention by a plan, as a module that a layer owns; see `config.mechanisms` for what is asked of it."""

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from bigbird_dna.attention.joint import Part, Problem, by_parts
from bigbird_dna.attention.layer import AttentionLayer
from bigbird_dna.config import LayerShape

# Axes: B batch, H heads, L tokens, K head width.

_TEMPORARIES = 8  # vectors of a token that a plan makes, about


class Plan(NamedTuple):
    """Which keys a query sees, directly or through summaries, and how that is computed."""

    attend: Callable[[Problem], Tensor]  # (B, H, L, K), of any content where there is padding
    scores: Callable[[int], int]  # that a query has, of L tokens


class Planned(AttentionLayer):
    """Attention that is told by its plan alone."""

    largest = False

    def __init__(self, shape: LayerShape, plan: Plan) -> None:
        super().__init__()
        self.shape, self.plan = shape, plan

    def attended(self, q: Tensor, k: Tensor, v: Tensor, there: Tensor, dropout: float) -> Tensor:
        """Attention by the plan, a few heads at a time."""
        tokens, width = q.shape[2:]
        clusters = self.clusters(q, k, there)

        def attend(part: Part, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            own = None if clusters is None else clusters[part]
            vectors = (query, key, value, *self.pooled(query, key))
            rest = (there[part[0]], self.largest, self.shape.causal, dropout, own)
            return self.plan.attend(Problem(*vectors, *rest))

        each = tokens * (self.plan.scores(tokens) + _TEMPORARIES * width)
        return by_parts(attend, (q, k, v), each)

    def pooled(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """What summaries are pooled of, (B, H, L, K) each, where a plan has some."""
        return q, k

    def clusters(self, q: Tensor, k: Tensor, there: Tensor) -> Tensor | None:
        """Numbers of tokens (B, H, L) that the plan goes by; none here. `there` (B, 1, L): not padding."""
        return None
