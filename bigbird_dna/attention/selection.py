"""What a mechanism computed with, kept for the time when a layer is computed once more for its gradients.

A reversible layer's input is computed from its output, and differs from the first one in the last bits. Where
a mechanism picks keys by the largest of some numbers, another could win. So it picks by `selected`: what was
picked the first time stands. Random numbers that are drawn anew between passes it takes by `standing`, as
another pass may have begun before the gradients of this one are computed. Elsewhere neither changes anything.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar, Token

import torch
from torch import Tensor

_Chosen = tuple[list[Tensor], Iterator[Tensor] | None]  # what is kept, and where it is read again
_chosen: ContextVar[_Chosen | None] = ContextVar("chosen", default=None)


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


def standing(numbers: Tensor) -> Tensor:
    """`numbers`, a buffer that may be replaced; or what it was when the same work was done first."""
    chosen = _chosen.get()
    if chosen is None:
        return numbers
    kept, again = chosen
    if again is not None:
        return next(again)
    kept.append(numbers)
    return numbers


@contextmanager
def keeping(kept: list[Tensor]) -> Iterator[None]:
    """Choices made inside are added to `kept`."""
    token = _chosen.set((kept, None))
    try:
        yield
    finally:
        _chosen.reset(token)


class Repeating(AbstractContextManager[None]):
    """Choices made inside are those that were kept, in the same order, however often it is entered."""

    def __init__(self, kept: list[Tensor]) -> None:
        self._kept = kept
        self._tokens: list[Token[_Chosen | None]] = []

    def __enter__(self) -> None:
        self._tokens.append(_chosen.set((self._kept, iter(self._kept))))

    def __exit__(self, *_: object) -> None:
        _chosen.reset(self._tokens.pop())


def both_times() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """For the first computation of a layer and for all others, as `torch.utils.checkpoint` wants them."""
    kept: list[Tensor] = []
    return keeping(kept), Repeating(kept)
