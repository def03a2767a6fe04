"""Attention mechanisms behind one signature.

`bigbird_attention(q, k, v, pattern, *, lengths, layer, dropout, route, relative)` is the sparse attention
of BigBird, and `full_attention` the reference with the same signature. Mechanisms that go by no block
pattern, or learn something, are modules: each joins by a file in `mechanisms`, as `config.mechanisms`
describes. `ATTENTIONS` has all of them by the names that a configuration may use.
"""

from collections.abc import Callable, Iterator, Mapping

from torch import Tensor

from bigbird_dna.attention.backends import (
    Choice,
    Route,
    RouteWarning,
    bigbird_attention,
    choose_route,
    full_attention,
    routes_logged,
)
from bigbird_dna.attention.call import RelativeKeys, label_count
from bigbird_dna.attention.pattern import Pattern
from bigbird_dna.config.mechanisms import OF_PATTERNS, Mechanism, known_mechanisms

__all__ = [
    "ATTENTIONS",
    "PATTERN_ATTENTIONS",
    "Choice",
    "Pattern",
    "PatternAttention",
    "RelativeKeys",
    "Route",
    "RouteWarning",
    "bigbird_attention",
    "choose_route",
    "full_attention",
    "label_count",
    "routes_logged",
]


PatternAttention = Callable[..., Tensor]
"""Attention of a block pattern, called as `bigbird_attention`, which has the contract."""
PATTERN_ATTENTIONS: Mapping[str, PatternAttention] = {
    name: full_attention if name == "full" else bigbird_attention for name in OF_PATTERNS
}
"""Attention functions of a block pattern by their names."""


class _Attentions(Mapping[str, PatternAttention | Mechanism]):
    """Every name that `encoder.attention` takes, installed mechanisms of other packages included.

    Names of block patterns have functions that are called as `bigbird_attention`. Every other name has its
    `Mechanism`: `ATTENTIONS["axial"].make(LayerShape(heads=12, width=64), {"columns": 32})` is a module for a
    layer. Mechanisms are looked for when one is asked for, not when this is imported.
    """

    def __getitem__(self, name: str) -> PatternAttention | Mechanism:
        return PATTERN_ATTENTIONS[name] if name in PATTERN_ATTENTIONS else known_mechanisms()[name]

    def __iter__(self) -> Iterator[str]:
        return iter((*PATTERN_ATTENTIONS, *sorted(known_mechanisms())))

    def __len__(self) -> int:
        return len(PATTERN_ATTENTIONS) + len(known_mechanisms())


ATTENTIONS = _Attentions()
