"""Choices of keys that depend on rounding, kept for the time when a layer is computed once more.

A reversible layer's input is computed from its output, and differs from the first one in the last bits. Where
a mechanism picks keys by the largest of some numbers, another could win. So it picks by `selected`: what was
picked the first time stands. Elsewhere that changes nothing.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

_chosen: ContextVar[tuple[list[Tensor], Iterator[Tensor] | None] | None] = ContextVar("chosen", default=None)


def selected(choose: Callable[[], Tensor], count: int) -> Tensor:
    """What `choose` gives, integers from 0 to `count`; or gave when the same work was done first."""
    chosen = _chosen.get()
    if chosen is None:
        return choose()
    kept, again = chosen
    if again is not None:
        return next(again).long()
    choice = choose()
    kept.append(choice.to(torch.int16 if count < 1 << 15 else torch.int32))
    return choice


@contextmanager
def keeping() -> Iterator[list[Tensor]]:
    """Choices made inside are kept, in a list that fills."""
    kept: list[Tensor] = []
    token = _chosen.set((kept, None))
    try:
        yield kept
    finally:
        _chosen.reset(token)


@contextmanager
def repeating(kept: list[Tensor]) -> Iterator[None]:
    """Choices made inside are those that were kept, in the same order."""
    token = _chosen.set((kept, iter(kept)))
    try:
        yield
    finally:
        _chosen.reset(token)
