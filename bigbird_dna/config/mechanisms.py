"""Attention mechanisms by the names accepted by `encoder.attention`, in addition to block patterns.

`OF_PATTERNS` lists functions of a block pattern, whose keys are in the section `encoder`. A `Mechanism`
describes every other mechanism: its name, its options with defaults, and how it is built for a layer. Each
file in the directory `bigbird_dna/attention/mechanisms` defines mechanisms in `MECHANISMS`, as does each
module listed by an installed package in the entry points `bigbird_dna.attention`. To add a mechanism, add
such a file; no other list is needed. They are imported only if a configuration uses a name not listed here,
so that reading other configurations does not import torch. A model directory contains the name and options of
a mechanism, never code.

A mechanism builds a module owned by a layer (`LayerShape` describes the layer), called as

    module(q, k, v, lengths=lengths, dropout=dropout, hidden=hidden)

with q, k, v (B, H, L, K), after rotary positions if any, and `hidden` (B, L, D) the input of the layer; it
returns (B, H, L, K). `docs/extending.md` has all requirements.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pkgutil import iter_modules
from typing import Any, NamedTuple

from pydantic import ValidationError

from bigbird_dna.config.safe_yaml import fault_text
from bigbird_dna.config.section import Section
from bigbird_dna.errors import one_of, shortened

OF_PATTERNS: Mapping[str, tuple[str, ...]] = {
    "bigbird": ("global_blocks", "window_blocks", "random_blocks"),
    "bigbird_etc": ("global_blocks", "window_blocks", "random_blocks"),
    "random": ("random_blocks",),
    "window": ("window_blocks",),
    "random_window": ("window_blocks", "random_blocks"),
    "full": (),
}
"""Attention by block pattern → the kinds of blocks in its pattern."""
FOLDER = "bigbird_dna.attention.mechanisms"
ENTRY_POINTS = "bigbird_dna.attention"
Option = bool | int | float | str


class LayerShape(NamedTuple):
    """The layer for which a mechanism is built."""

    heads: int
    width: int  # width of a head
    layer: int = 0  # index of the layer
    causal: bool = False

    @property
    def hidden(self) -> int:
        """Width of the layer's input."""
        return self.heads * self.width


@dataclass(frozen=True)
class Mechanism:
    """A named mechanism; the docstring of the module describes the result of `build`.

    `cost` is the asymptotic number of values (vectors and scores) that a head of width K computes for L
    tokens, which determines its time: a formula in L, K and the options. `options` is a section with the
    keys of `encoder.attention_options`, all with defaults: booleans, numbers and strings. `causal`: it has a
    causal form; `shares_keys`: its keys are its queries; `drops`: it has weights to drop.
    """

    name: str
    options: type[Section]
    build: Callable[[LayerShape, Any], Any]
    cost: str
    causal: bool = True
    shares_keys: bool = False
    drops: bool = True

    def make(self, shape: LayerShape, options: Mapping[str, Option]) -> Any:
        """Return the initialized module for a layer; `ValueError` for invalid options."""
        if shape.causal and not self.causal:
            raise ValueError(
                f"{self.name} has no causal form: outputs depend on later tokens"
            )
        return self.build(shape, self.checked(options))

    def checked(self, options: Mapping[str, Option]) -> Any:
        """Return the options as the mechanism's section; `ValueError` for the first invalid option."""
        try:
            return self.options.model_validate(dict(options))
        except ValidationError as error:
            reason = fault_text(error, options, self.options.model_fields)
            raise ValueError(f"{self.name}: {reason}") from None


def find_mechanism(name: str) -> Mechanism:
    """Return the mechanism of a name; `ValueError` for an unknown name has all known names."""
    mechanisms = known_mechanisms()
    if name not in mechanisms:
        known = [*OF_PATTERNS, *mechanisms]
        raise ValueError(f"attention {shortened(repr(name))}: {one_of(name, known)}")
    return mechanisms[name]


@cache
def known_mechanisms() -> Mapping[str, Mechanism]:
    """Return all installed mechanisms by name."""
    folder = import_module(FOLDER).__path__
    modules = [f"{FOLDER}.{info.name}" for info in iter_modules(folder)]
    modules += [point.module for point in entry_points(group=ENTRY_POINTS)]
    mechanisms = {}
    for module in modules:
        for mechanism in import_module(module).MECHANISMS:
            mechanisms[mechanism.name] = mechanism
    return mechanisms
