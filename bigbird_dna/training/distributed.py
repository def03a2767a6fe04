"""Distributed training with `torchrun`, numerical precision, and stopping in time."""

import datetime
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from types import FrameType
from typing import Any, Literal, Self, TypeVar

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch import Tensor

from bigbird_dna.errors import BigBirdDnaError, ConfigError
from bigbird_dna.model.inference import NO_BFLOAT16, choose_device, has_bfloat16

T = TypeVar("T")
N = TypeVar("N", bound=np.generic)
Precision = Literal["auto", "float32", "bfloat16"]
WAITS = datetime.timedelta(hours=3)
"""How long processes wait for one another: the first reads and verifies data alone, for which the ten minutes
of NCCL are too short."""


def autocast(device: torch.device, precision: Precision) -> AbstractContextManager[Any]:
    """Autocast to bfloat16 if requested or, with `auto`, natively supported by the device."""
    if chosen_precision(device, precision) == "bfloat16":
        return torch.autocast(device.type, dtype=torch.bfloat16)
    return nullcontext()


def chosen_precision(device: torch.device, precision: Precision) -> Precision:
    """The precision of a training on a device; `auto` is bfloat16 if natively supported, else float32.

    `ConfigError`: bfloat16 on a GPU that does not support it.
    """
    if precision == "bfloat16" and device.type == "cuda" and not has_bfloat16(device):
        raise ConfigError(
            f"precision: bfloat16: {NO_BFLOAT16}; set precision: float32 in its section"
        )

    if precision != "auto":
        return precision

    if device.type == "cuda":
        native = has_bfloat16(device)
    else:
        capabilities = torch.cpu.get_capabilities()
        native = bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))

    return "bfloat16" if native else "float32"


@dataclass(frozen=True)
class World:
    """This process among all processes of a training."""

    rank: int
    size: int
    device: torch.device

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and logs."""
        return self.rank == 0

    def sum(self, values: dict[str, float]) -> dict[str, float]:
        """Sum each value over all processes."""
        if self.size == 1:
            return values
        tensor = torch.tensor(
            list(values.values()), dtype=torch.float64, device=self.device
        )
        dist.all_reduce(tensor)
        return dict(zip(values, tensor.tolist(), strict=True))

    def first(self, call: Callable[[], T]) -> T:
        """Return the first process's result of `call` on every process; its user errors are raised on all."""
        if self.size == 1:
            return call()

        result: list[Any] = [None, None]
        if self.is_first:
            try:
                result[0] = call()
            except BigBirdDnaError as error:
                result[1] = error

        dist.broadcast_object_list(result, src=0)
        if result[1] is not None:
            raise result[1]

        return result[0]  # type: ignore[no-any-return]

    def overwrite(self, tensors: Iterable[Tensor]) -> None:
        """Set each tensor, of equal shape on every process, to the first process's values."""
        if self.size > 1:
            for tensor in tensors:
                dist.broadcast(tensor, 0)

    def divide(
        self, items: Any, work: Callable[[Any], npt.NDArray[N]]
    ) -> npt.NDArray[N]:
        """Distribute a sequence over processes; every process returns all rows of `work`, in the items' order."""
        if self.size == 1:
            return work(items)
        first, end = (
            len(items) * rank // self.size for rank in (self.rank, self.rank + 1)
        )
        results: list[Any] = [None] * self.size
        dist.all_gather_object(results, work(items[first:end]))
        # The result for no items may have another shape.
        return np.concatenate([rows for rows in results if len(rows)] or results[:1])

    def wait(self) -> None:
        """Wait until all processes reach this call."""
        if self.size > 1:
            dist.barrier()

    def leave(self) -> None:
        """Leave the process group together, before the first process alone writes results."""
        if dist.is_initialized():
            dist.barrier()
            dist.destroy_process_group()


@contextmanager
def world(device_name: str = "auto") -> Iterator[World]:
    """Join the processes started by `torchrun` (NCCL on GPUs, gloo on CPUs), or be the only process."""
    device = choose_device(device_name)
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield World(0, 1, device)
        return

    if device.type == "cuda":
        torch.cuda.set_device(device)

    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=WAITS)
    try:
        yield World(dist.get_rank(), size, device)
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


SPARE = 60.0
"""Seconds reserved for the checkpoint and the exit of a training before the end of its Slurm job."""


def job_end() -> float:
    """Return the end of this process's Slurm job, in seconds since 1970; infinity for none."""
    return float(os.environ.get("SLURM_JOB_END_TIME") or math.inf)


class Stopping:
    """Context that records SIGTERM, and knows the end of the Slurm job; `is_due` must be called in each step."""

    def __init__(self) -> None:
        self.reason = ""
        self.ends = job_end()
        self._handler: Any = None
        self._last: float | None = None
        self._longest = 0.0

    def __enter__(self) -> Self:
        # Python allows handlers only in the main thread.
        if threading.current_thread() is threading.main_thread():
            self._handler = signal.signal(signal.SIGTERM, self._receive)
        return self

    def __exit__(self, *_: object) -> None:
        if self._handler is not None:
            signal.signal(signal.SIGTERM, self._handler)

    def is_due(self) -> bool:
        """Whether SIGTERM was received, or another step, twice as long as the longest so far, would be too long."""
        now = time.monotonic()
        if self._last is not None:  # the first step may include compilation
            self._longest = max(self._longest, now - self._last)
        self._last = now
        if time.time() + SPARE + 2 * self._longest >= self.ends:
            self.reason = self.reason or "the Slurm job ends soon"
        return bool(self.reason)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.reason = "SIGTERM"
