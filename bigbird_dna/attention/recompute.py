"""Exact recomputation of a layer for its gradients.

The input of a reversible layer is computed from its output and differs from the first one in the last bits.
Where a mechanism selects keys by the largest of several numbers, another key could win, so `selected` replays
the selection. Random numbers that are redrawn between passes (`Redrawn`) are read by `standing`, because
another pass may have begun before the gradients of this one are computed. Other layers are not affected.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar, Token
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn


class Circumstances(NamedTuple):
    """External state of a computation: random generators and autocast."""

    device: torch.device
    states: tuple[
        Tensor, ...
    ]  # of the CPU generator and, if different, of the device's
    dtype: torch.dtype
    enabled: bool

    @classmethod
    def now(cls, device: torch.device) -> "Circumstances":
        """The current state."""
        states = [torch.get_rng_state()]
        if device.type != "cpu":
            states.append(torch.get_device_module(device).get_rng_state(device))
        kind = device.type
        narrow = torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind)
        return cls(device, tuple(states), *narrow)

    @contextmanager
    def again(self) -> Iterator[None]:
        """Restore this state in the context, with gradients enabled; then the previous state returns."""
        kind = self.device.type
        devices = [self.device] if kind != "cpu" else []
        with (
            torch.random.fork_rng(devices, device_type=kind),
            torch.autocast(kind, self.dtype, self.enabled),
            torch.enable_grad(),
        ):
            torch.set_rng_state(self.states[0])
            if devices:
                torch.get_device_module(self.device).set_rng_state(
                    self.states[1], self.device
                )
            yield


_Chosen = tuple[
    list[Tensor], Iterator[Tensor] | None
]  # stored tensors, and the iterator that replays them
_chosen: ContextVar[_Chosen | None] = ContextVar("chosen", default=None)


def selected(choose: Callable[[], Tensor], count: int) -> Tensor:
    """Result of `choose`, integers from 0 to `count`; in a recomputation, its result of the first time."""
    return _kept(choose, torch.int16 if count < 1 << 15 else torch.int32)


def standing(numbers: Tensor) -> Tensor:
    """`numbers`, a buffer that may be replaced; in a recomputation, its value of the first time."""
    return _kept(lambda: numbers)


def _kept(make: Callable[[], Tensor], narrow: torch.dtype | None = None) -> Tensor:
    """Result of `make`, stored as integers of a `narrow` type; in a recomputation, the stored result."""
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
    """Context that appends choices to `kept` or, with `again`, replays them at each entry."""

    def __init__(self, kept: list[Tensor], *, again: bool = False) -> None:
        self._kept, self._again = kept, again
        self._tokens: list[Token[_Chosen | None]] = []

    def __enter__(self) -> None:
        self._tokens.append(
            _chosen.set((self._kept, iter(self._kept) if self._again else None))
        )

    def __exit__(self, *_: object) -> None:
        _chosen.reset(self._tokens.pop())


def both_times() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """Contexts for the first and all later computations of a layer, for `torch.utils.checkpoint`."""
    kept: list[Tensor] = []
    return Choices(kept), Choices(kept, again=True)


class Redrawn(nn.Module):
    """A buffer `drawn` of random numbers, redrawn every `every` training passes; 0: never. They depend only
    on seed, layer and number of draws, so all processes of a training run have the same numbers."""

    drawn: Tensor
    passes: Tensor  # (1,): training passes so far

    def __init__(
        self, shape: tuple[int, ...], seed: int, layer: int, every: int
    ) -> None:
        super().__init__()
        self.seed, self.layer, self.every = seed, layer, every
        self.register_buffer("drawn", torch.empty(shape))
        self.register_buffer("passes", torch.zeros(1))
        self._redraw(0)

    def draw(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Independent standard normal numbers; mechanisms may override this."""
        return torch.randn(shape, generator=generator, device="cpu")

    @torch.no_grad()
    def begin_pass(self) -> None:
        """Count a training pass and redraw when due."""
        self.passes += 1
        passes = int(self.passes)
        if self.every and passes % self.every == 0:
            self._redraw(passes // self.every)

    def _redraw(self, number: int) -> None:
        if (
            self.drawn.is_meta
        ):  # a meta-device network, whose values are filled in later
            return
        (word,) = np.random.SeedSequence(
            (self.seed, self.layer, number)
        ).generate_state(1, np.uint64)
        generator = torch.Generator().manual_seed(int(word >> np.uint64(1)))
        # A new tensor: gradients of an earlier pass may still need the previous one.
        self.drawn = self.draw(tuple(self.drawn.shape), generator).to(self.drawn)
