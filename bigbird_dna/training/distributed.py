"""Where this process runs: device, precision, and its place among the processes of `torchrun`."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import torch
import torch.distributed as dist

from bigbird_dna.model.device import choose_device

T = TypeVar("T")
Precision = Literal["auto", "float32", "bfloat16"]


def autocast(device: torch.device, precision: Precision) -> AbstractContextManager[Any]:
    """Autocast to bfloat16 if asked for, or by `auto` where the device computes in it natively."""
    if device.type == "cuda":
        native = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        native = _cpu_has_bfloat16()
    if precision == "bfloat16" or (precision == "auto" and native):
        return torch.autocast(device.type, dtype=torch.bfloat16)
    return nullcontext()


def _cpu_has_bfloat16() -> bool:
    # torch.cpu.get_capabilities() is absent from older releases; without it float32 is the safe choice.
    capabilities: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))


@dataclass(frozen=True)
class World:
    """This process among all that train together; `at_end` is done when it leaves them, whatever happens."""

    rank: int
    size: int
    device: torch.device
    at_end: ExitStack = field(default_factory=ExitStack, compare=False, repr=False)

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and logs."""
        return self.rank == 0

    def sum(self, values: dict[str, float]) -> dict[str, float]:
        """Sum each value over all processes."""
        if self.size == 1:
            return values
        tensor = torch.tensor(list(values.values()), dtype=torch.float64, device=self.device)
        dist.all_reduce(tensor)
        return dict(zip(values, tensor.tolist(), strict=True))

    def gather(self, value: T) -> list[T]:
        """The value of each process, by rank, on every process."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def wait(self) -> None:
        """Wait until every process is here."""
        if self.size > 1:
            dist.barrier()

    def leave(self) -> None:
        """Take leave of the others together, before the first process goes on alone to publish."""
        if dist.is_initialized():
            dist.barrier()
            dist.destroy_process_group()


@contextmanager
def world(device_name: str = "auto") -> Iterator[World]:
    """Join the processes that `torchrun` started (NCCL on GPUs, gloo on CPUs), or be alone without it."""
    device = choose_device(device_name)
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        with ExitStack() as at_end:
            yield World(0, 1, device, at_end)
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        with ExitStack() as at_end:
            yield World(dist.get_rank(), size, device, at_end)
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
