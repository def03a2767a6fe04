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
from bigbird_dna.errors import first_fault, meant, one_of, shortened

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
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
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

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or self.name in OF_PATTERNS:
            raise ValueError(
                f"invalid mechanism name {self.name!r}: a name has lower-case letters, digits, '_', starts "
                f"with a letter and is not {' or '.join(OF_PATTERNS)}"
            )

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
            fault = first_fault(error)
        key = fault.key
        if fault.kind == "extra_forbidden":
            raise ValueError(
                f"{self.name} has no option {key!r}: {one_of(key, self.options.model_fields)}"
            )
        value = "" if isinstance(fault.value, dict) else f", got {fault.value!r}"
        raise ValueError(f"{key}: {fault.reason}{value}" if key else fault.reason)


def find_mechanism(name: str) -> Mechanism:
    """Return the mechanism of a name; `ValueError` for an unknown name has the nearest or all known names."""
    found = known_mechanisms()
    if name in found:
        return found[name]
    known = (*OF_PATTERNS, *found)
    short = sorted({re.sub("^combiner_.*", "combiner_…", one) for one in known})
    hint = (
        meant(name, known) or f"; install its package, or use one of {', '.join(short)}"
    )
    raise ValueError(f"unknown mechanism {shortened(repr(name))}{hint}")


@cache
def known_mechanisms() -> Mapping[str, Mechanism]:
    """Return all installed mechanisms by name; `ValueError` for repeated names or files that fail to load."""
    found: dict[str, tuple[Mechanism, str]] = {}
    for module in _modules():
        for one in _mechanisms(module):
            if one.name in found:
                raise ValueError(
                    f"{found[one.name][1]} and {module} both define a mechanism {one.name!r}"
                )
            found[one.name] = one, module
    return {name: one for name, (one, _) in found.items()}


def _mechanisms(module: str) -> tuple[Mechanism, ...]:
    try:
        return tuple(import_module(module).MECHANISMS)
    except Exception as error:  # a custom file may raise any error
        raise ValueError(
            f"the mechanisms of {module} cannot be loaded: {shortened(str(error))}"
        ) from error


def _modules() -> Iterator[str]:
    for info in iter_modules(import_module(FOLDER).__path__):
        yield f"{FOLDER}.{info.name}"
    for point in entry_points(group=ENTRY_POINTS):
        yield point.module
