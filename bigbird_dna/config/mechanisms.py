"""Attention mechanisms by the names that `encoder.attention` takes, apart from those of a block pattern.

Those of `OF_PATTERNS` are functions of a block pattern, whose keys are in the encoder's section. Every other
mechanism is described by a `Mechanism`: its name, its options with their defaults, and how it is built for a
layer. A file of the folder `bigbird_dna/attention/mechanisms` has one or several of these in `MECHANISMS`; so
has a module that another installed package names in the entry points `bigbird_dna.attention`. To add one,
write such a file: no other list names them. They are looked for only when a configuration asks for a name
that isn't known here: reading other configurations needs no torch. A model directory names a mechanism
and its options, never code.

What is built is a module that every layer owns (`LayerShape` describes the layer), called as

    module(q, k, v, lengths=lengths, dropout=dropout, hidden=hidden)

with q, k, v (B, H, L, K), after rotary positions where there are any; `lengths` (B,) the true lengths of rows
padded on the right, or None; `dropout` the probability of dropping an attention weight, 0 in evaluation;
`hidden` (B, L, D) the layer's input. It gives (B, H, L, K), a row's values independent of its padding and of
the other rows. In evaluation it is a pure function of its arguments, parameters and buffers.

* Parameters and buffers are of floating point and stored with the model; integers and buffers that aren't
  stored are not possible, as a network is built without numbers and then filled.
* Projections of its own (such as Longformer's for global tokens) are made from `hidden`.
* What selects keys at random or learns during training (Performer's redrawn features, Routing's centroids)
  changes in `begin_pass()`, if the module has one, which the encoder calls once before each pass in training,
  and nowhere else. What is redrawn is another tensor, and is read by `attention.recompute.standing`: a layer
  may be computed a second time (gradient checkpointing, reversible layers) when another pass has begun.
* Where keys are the queries (Reformer), `shares_keys` leaves out the layer's projection of keys; k is q.
* `causal` in `LayerShape` asks for a mechanism in which no bit of a token's result depends on what later
  tokens are; sequences of other lengths may differ by rounding. One without such a form has `causal=False` in
  its `Mechanism`: a causal layer of it is an error.
* One that has no weights to drop (Performer) has `drops=False`: `encoder.attention_dropout` is an error then.
* One whose result isn't linear in v (Longformer, whose global tokens have values of their own) has a method
  `matrix(q, k, hidden)`, its effective matrix (B, H, L, L), for plots and tests.
* Keys that it picks by the largest of some numbers it picks by `attention.recompute.selected`: a layer that
  is computed a second time then picks the same, though its inputs may have other rounding.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pkgutil import iter_modules
from typing import Any, NamedTuple

from pydantic import ValidationError

from bigbird_dna.config.section import Section
from bigbird_dna.errors import shortened

OF_PATTERNS: Mapping[str, tuple[str, ...]] = {
    "bigbird": ("global_blocks", "window_blocks", "random_blocks"),
    "bigbird_etc": ("global_blocks", "window_blocks", "random_blocks"),
    "random": ("random_blocks",),
    "window": ("window_blocks",),
    "random_window": ("window_blocks", "random_blocks"),
    "full": (),
}
"""Functions of a block pattern, with the kinds of blocks that they have."""
FOLDER = "bigbird_dna.attention.mechanisms"
ENTRY_POINTS = "bigbird_dna.attention"
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
Option = bool | int | float | str


class LayerShape(NamedTuple):
    """The layer that a mechanism is built for."""

    heads: int
    width: int  # of a head
    layer: int = 0  # its number
    causal: bool = False

    @property
    def hidden(self) -> int:
        """Width of the layer's input."""
        return self.heads * self.width


@dataclass(frozen=True)
class Mechanism:
    """What a name means; the module's docstring describes what `build` gives.

    `cost` is the order of the numbers that a head of width K makes for L tokens, vectors and scores, with
    which its time goes; a formula in L, K and the options. `options` is a section whose keys, all with
    defaults, are what `encoder.attention_options` may have: truth values, numbers and texts. `causal`:
    whether it has a causal form; `shares_keys`: whether its keys are its queries; `drops`: whether it has
    weights to drop.
    """

    name: str
    options: type[Section]
    build: Callable[[LayerShape, Any], Any]
    cost: str
    causal: bool = True
    shares_keys: bool = False
    drops: bool = True

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or self.name in OF_PATTERNS:
            raise ValueError(
                f"{self.name!r} can't name a mechanism: a name has small letters, digits and '_', begins "
                f"with a letter and isn't {' or '.join(OF_PATTERNS)}"
            )

    def make(self, shape: LayerShape, options: Mapping[str, Option]) -> Any:
        """The module for a layer, its parameters drawn; `ValueError`: there is none with these options."""
        if shape.causal and not self.causal:
            raise ValueError(f"{self.name} has no causal form: what a token sees depends on later ones")
        return self.build(shape, self.checked(options))

    def checked(self, options: Mapping[str, Option]) -> Any:
        """The options as a section of the mechanism's; `ValueError` names the first fault."""
        try:
            return self.options.model_validate(dict(options))
        except ValidationError as error:
            first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        if first["type"] == "extra_forbidden":
            known = ", ".join(self.options.model_fields) or "none"
            raise ValueError(f"{self.name} has no option {key!r}; it has: {known}")
        message = first["msg"].removeprefix("Value error, ")
        value = "" if isinstance(first["input"], dict) else f", got {first['input']!r}"
        raise ValueError(f"{key}: {message}{value}" if key else message)


def find_mechanism(name: str) -> Mechanism:
    """The mechanism of a name; `ValueError` has the names that exist."""
    found = known_mechanisms()
    if name not in found:
        raise ValueError(f"{name!r} is not one of {', '.join((*OF_PATTERNS, *sorted(found)))}")
    return found[name]


@cache
def known_mechanisms() -> Mapping[str, Mechanism]:
    """All that are installed, by name; `ValueError` if two have the same one, or a file can't be loaded."""
    found: dict[str, tuple[Mechanism, str]] = {}
    for module in _modules():
        for one in _mechanisms(module):
            if one.name in found:
                raise ValueError(f"{found[one.name][1]} and {module} both have a mechanism {one.name!r}")
            found[one.name] = one, module
    return {name: one for name, (one, _) in found.items()}


def _mechanisms(module: str) -> tuple[Mechanism, ...]:
    try:
        return tuple(import_module(module).MECHANISMS)
    except Exception as error:  # whatever is wrong with a custom file
        raise ValueError(f"the mechanisms of {module} can't be loaded: {shortened(str(error))}") from error


def _modules() -> Iterator[str]:
    for info in iter_modules(import_module(FOLDER).__path__):
        yield f"{FOLDER}.{info.name}"
    for point in entry_points(group=ENTRY_POINTS):
        yield point.module
