"""Computing something a second time, for its gradients, as it was the first time."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor


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
