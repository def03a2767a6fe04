"""What a layer needs to be computed a second time, for its gradients, as it was the first time.

A reversible layer's input is computed from its output, and differs from the first one in the last bits. Where
a mechanism picks keys by the largest of some numbers, another could win: so it picks by `selected`. Random
numbers that are drawn anew between passes (`Redrawn`) it takes by `standing`, as another pass may have begun
before the gradients of this one are computed. Elsewhere neither changes anything.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar, Token
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn


class Circumstances(NamedTuple):
    """What a computation depends on beside its arguments: random generators and autocast."""

    device: torch.device
    states: tuple[Tensor, ...]  # of the CPU's generator and, if it is another, the device's
    dtype: torch.dtype
    enabled: bool

    @classmethod
    def now(cls, device: torch.device) -> "Circumstances":
        """Those of this moment."""
        states = [torch.get_rng_state()]
        if device.type != "cpu":
            states.append(torch.get_device_module(device).get_rng_state(device))
        kind = device.type
        narrow = torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind)
        return cls(device, tuple(states), *narrow)

    @contextmanager
    def again(self) -> Iterator[None]:
        """The same inside, with gradients; afterwards all is as before."""
        kind = self.device.type
        devices = [self.device] if kind != "cpu" else []
        with (
            torch.random.fork_rng(devices, device_type=kind),
            torch.autocast(kind, self.dtype, self.enabled),
            torch.enable_grad(),
        ):
            torch.set_rng_state(self.states[0])
            if devices:
                torch.get_device_module(self.device).set_rng_state(self.states[1], self.device)
            yield


_Chosen = tuple[list[Tensor], Iterator[Tensor] | None]  # what is kept, and where it is read again
_chosen: ContextVar[_Chosen | None] = ContextVar("chosen", default=None)


def selected(choose: Callable[[], Tensor], count: int) -> Tensor:
    """What `choose` gives, integers from 0 to `count`; or gave when the same work was done first."""
    return _kept(choose, torch.int16 if count < 1 << 15 else torch.int32)


def standing(numbers: Tensor) -> Tensor:
    """`numbers`, a buffer that may be replaced; or what it was when the same work was done first."""
    return _kept(lambda: numbers)


def _kept(make: Callable[[], Tensor], narrow: torch.dtype | None = None) -> Tensor:
    """What is made, kept as integers of a `narrow` type; or was kept."""
    chosen = _chosen.get()
    if chosen is None:
        return make()
    kept, again = chosen
    if again is not None:
        return next(again) if narrow is None else next(again).long()
    made = make()
    kept.append(made if narrow is None else made.to(narrow))
    return made


class Choices(AbstractContextManager[None]):
    """Choices made inside are added to `kept`, or are those that were, however often it is entered again."""

    def __init__(self, kept: list[Tensor], *, again: bool = False) -> None:
        self._kept, self._again = kept, again
        self._tokens: list[Token[_Chosen | None]] = []

    def __enter__(self) -> None:
        self._tokens.append(_chosen.set((self._kept, iter(self._kept) if self._again else None)))

    def __exit__(self, *_: object) -> None:
        _chosen.reset(self._tokens.pop())


def both_times() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """For the first computation of a layer and for all others, as `torch.utils.checkpoint` wants them."""
    kept: list[Tensor] = []
    return Choices(kept), Choices(kept, again=True)


class Redrawn(nn.Module):
    """A buffer `drawn` of random numbers, which changes every `every` passes in training; 0: never. They
    follow from seed, layer and how often they were drawn alone, so that all processes of a training have the
    same."""

    drawn: Tensor
    passes: Tensor  # (1,): passes in training so far

    def __init__(self, shape: tuple[int, ...], seed: int, layer: int, every: int) -> None:
        super().__init__()
        self.seed, self.layer, self.every = seed, layer, every
        self.register_buffer("drawn", torch.empty(shape))
        self.register_buffer("passes", torch.zeros(1))
        self._redraw(0)

    def draw(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Independent normal ones; a mechanism may have others."""
        return torch.randn(shape, generator=generator, device="cpu")

    @torch.no_grad()
    def begin_pass(self) -> None:
        """Count a pass in training; draw where it is time to."""
        self.passes += 1
        passes = int(self.passes)
        if self.every and passes % self.every == 0:
            self._redraw(passes // self.every)

    def _redraw(self, number: int) -> None:
        if self.drawn.is_meta:  # a network without numbers: they will be filled in
            return
        (word,) = np.random.SeedSequence((self.seed, self.layer, number)).generate_state(1, np.uint64)
        generator = torch.Generator().manual_seed(int(word >> np.uint64(1)))
        # Another tensor, as gradients of an earlier pass may still need the one that there was.
        self.drawn = self.draw(tuple(self.drawn.shape), generator).to(self.drawn)
