"""Attention mechanisms with a common signature.

`bigbird_attention(q, k, v, pattern, *, lengths, layer, dropout, route, relative)` is BigBird's sparse
attention. `full_attention` is full attention with the same signature. Mechanisms without a block pattern, or
with learned parameters, are modules. Each is added by a file in `mechanisms`, as `config.mechanisms`
describes. `ATTENTIONS` contains all mechanisms by the names that a configuration may use.
"""

from collections.abc import Callable, Iterator, Mapping

from torch import Tensor

from bigbird_dna.attention.backends import (
    Choice,
    Route,
    RouteWarning,
    bigbird_attention,
    full_attention,
    report_route,
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
    "full_attention",
    "label_count",
    "report_route",
    "routes_logged",
]


PatternAttention = Callable[..., Tensor]
"""Attention function of a block pattern, with the contract of `bigbird_attention`."""
PATTERN_ATTENTIONS: Mapping[str, PatternAttention] = {
    **dict.fromkeys(OF_PATTERNS, bigbird_attention),
    "full": full_attention,
}
"""Attention functions of block patterns, by name."""


class _Attentions(Mapping[str, PatternAttention | Mechanism]):
    """Every name that `encoder.attention` accepts, including mechanisms installed by other packages.

    Names of block patterns map to functions with the signature of `bigbird_attention`. Every other name maps
    to its `Mechanism`: `ATTENTIONS["axial"].make(LayerShape(heads=12, width=64), {"columns": 32})` creates a
    module for one layer. Mechanisms are looked up on access, not when this module is imported.
    """

    def __getitem__(self, name: str) -> PatternAttention | Mechanism:
        if name in PATTERN_ATTENTIONS:
            return PATTERN_ATTENTIONS[name]
        return known_mechanisms()[name]

    def __iter__(self) -> Iterator[str]:
        return iter((*PATTERN_ATTENTIONS, *sorted(known_mechanisms())))

    def __len__(self) -> int:
        return len(PATTERN_ATTENTIONS) + len(known_mechanisms())


ATTENTIONS = _Attentions()
