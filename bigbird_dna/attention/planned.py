"""Attention by a plan, as a module that a layer owns; see `config.mechanisms` for what is asked of it."""

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from bigbird_dna.attention.joint import Part, Problem, blocks_of, by_parts
from bigbird_dna.attention.layer import AttentionLayer
from bigbird_dna.config import LayerShape

# Axes: B batch, H heads, L tokens, K head width.

_TEMPORARIES = 8  # vectors of a place that a plan makes, about


def no_more(tokens: int) -> int:
    """Places of so many tokens where nothing is filled up."""
    return tokens


class Plan(NamedTuple):
    """Which keys a query sees, directly or through summaries, and how that is computed."""

    attend: Callable[[Problem], Tensor]  # (B, H, L, K), of any content where there is padding
    scores: Callable[[int], int]  # that a query has, of L tokens
    places: Callable[[int], int] = no_more  # for L tokens, where blocks are filled up more than L


def plan_of_blocks(attend: Callable[[Problem], Tensor], size: int, scores: Callable[[int, int], int]) -> Plan:
    """A plan of blocks of `size` tokens; `scores` of how many there are, and of how many tokens each."""

    def places(tokens: int) -> int:
        blocks, own = blocks_of(tokens, size)
        return blocks * own

    return Plan(attend, lambda tokens: scores(*blocks_of(tokens, size)), places)


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

        each = self.plan.places(tokens) * (self.plan.scores(tokens) + _TEMPORARIES * width)
        return by_parts(attend, (q, k, v), each)

    def pooled(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """What summaries are pooled of, (B, H, L, K) each, where a plan has some."""
        return q, k

    def clusters(self, q: Tensor, k: Tensor, there: Tensor) -> Tensor | None:
        """Numbers of tokens (B, H, L) that the plan goes by; none here. `there` (B, 1, L): not padding."""
        return None
