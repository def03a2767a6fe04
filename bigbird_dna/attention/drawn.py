"""Random numbers that a mechanism draws anew while training: the same for the same seed, on any device."""

import numpy as np
import torch
from torch import Tensor, nn


class Redrawn(nn.Module):
    """A buffer `drawn` of random numbers, which changes every `every` passes in training; 0: never.

    The numbers are a function of (seed, layer, how often they were drawn): of neither torch's global
    generator nor the device, so that all processes of a training have the same ones. Whoever inherits says in
    `draw` what they are.
    """

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
