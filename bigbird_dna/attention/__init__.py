"""Attention mechanisms behind one signature.

`bigbird_attention(q, k, v, pattern, *, lengths, layer, dropout, route, relative)` is the sparse attention
of BigBird, and `full_attention` the reference with the same signature. `ATTENTIONS` maps the names that a
configuration may use to these functions. Mechanisms that go by no block pattern, or learn something, are
modules: each joins by a file in `mechanisms`, as `config.mechanisms` says.
"""

from collections.abc import Sequence
from typing import Protocol, TypedDict, Unpack

from torch import Tensor

from bigbird_dna.attention.pattern import Pattern
from bigbird_dna.attention.relative import RelativeKeys, label_count
from bigbird_dna.attention.routes import (
    Choice,
    Route,
    RouteWarning,
    bigbird_attention,
    choose_route,
    full_attention,
    routes_heard,
)

__all__ = [
    "ATTENTIONS",
    "Attention",
    "Choice",
    "Pattern",
    "RelativeKeys",
    "Route",
    "RouteWarning",
    "bigbird_attention",
    "choose_route",
    "full_attention",
    "label_count",
    "routes_heard",
]


class Options(TypedDict, total=False):
    """What an attention takes by name; see `bigbird_attention` for the meaning and what is left out."""

    lengths: Tensor | Sequence[int] | None
    layer: int
    dropout: float
    route: Route
    relative: RelativeKeys | None


class Attention(Protocol):
    """What an entry of `ATTENTIONS` can be called with; see `bigbird_attention` for the contract."""

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, pattern: Pattern, **options: Unpack[Options]
    ) -> Tensor: ...


ATTENTIONS: dict[str, Attention] = {
    **dict.fromkeys(("bigbird", "bigbird_etc", "random", "window", "random_window"), bigbird_attention),
    "full": full_attention,
}
"""Attention functions of a block pattern by their names; each is called as `bigbird_attention`."""
