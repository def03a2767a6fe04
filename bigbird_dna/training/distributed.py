"""Distributed training with `torchrun`, numerical precision, and stopping in time."""

import datetime
import math
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Literal, Self, TypeVar

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch import Tensor

from bigbird_dna.errors import BigBirdDnaError, ConfigError, UsageError, error_text
from bigbird_dna.model.inference import NO_BFLOAT16, choose_device, has_bfloat16

T = TypeVar("T")
S = TypeVar("S")
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
        # Older releases lack this function; float32 is then the safe choice.
        capabilities: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
        native = bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))
    return "bfloat16" if native else "float32"


@dataclass(frozen=True)
class World:
    """This process among all processes of a training; `at_end` is always executed when it leaves them.

    Training must finish before the time `ends` (seconds since 1970): see `Stopping`.
    """

    rank: int
    size: int
    device: torch.device
    ends: float = math.inf
    at_end: ExitStack = field(default_factory=ExitStack, compare=False, repr=False)

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
        """Return the first process's result of `call` on every process; its user errors are raised on all.

        Any other error is raised on the first process; the others raise `RuntimeError`.
        """
        if self.size == 1:
            return call()
        result: list[Any] = [None, None]
        failure: Exception | None = None
        if self.is_first:
            try:
                result[0] = call()
            except BigBirdDnaError as error:
                result[1] = error
            except (
                Exception
            ) as error:  # otherwise the other processes would wait until this one ends
                failure = error
                result[1] = RuntimeError(
                    f"the first process failed: {error_text(error)}"
                )
        dist.broadcast_object_list(result, src=0)
        if failure is not None:
            raise failure
        if result[1] is not None:
            raise result[1]
        return result[0]  # type: ignore[no-any-return]

    def overwrite(self, tensors: Iterable[Tensor]) -> None:
        """Set each tensor, of equal shape on every process, to the first process's values."""
        if self.size > 1:
            for tensor in tensors:
                dist.broadcast(tensor, 0)

    def gather(self, value: T) -> list[T]:
        """The values of all processes, by rank, on every process."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def divide(
        self, items: Sequence[S], work: Callable[[Sequence[S]], npt.NDArray[N]]
    ) -> npt.NDArray[N]:
        """Distribute items over processes; every process returns all rows of `work`, in the items' order."""
        if self.size == 1:
            return work(items)
        results = self.gather(work(items[self.rank :: self.size]))
        filled = next(
            (part for part in results if len(part)), results[0]
        )  # an empty part has an unknown shape
        rows = np.empty((len(items), *filled.shape[1:]), filled.dtype)
        for rank, part in enumerate(results):
            if len(part):
                rows[rank :: self.size] = part
        return rows

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
def world(device_name: str = "auto", ends: float = math.inf) -> Iterator[World]:
    """Join the processes started by `torchrun` (NCCL on GPUs, gloo on CPUs), or be the only process."""
    device = choose_device(device_name)
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        with ExitStack() as at_end:
            yield World(0, 1, device, ends, at_end)
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=WAITS)
    try:
        with ExitStack() as at_end:
            yield World(dist.get_rank(), size, device, ends, at_end)
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


# Further SIGTERMs within this number of seconds belong to the same request: a scheduler signals all processes
# of a job, and torchrun and Snakemake forward signals to their children.
TOGETHER = 5.0
# Seconds reserved for work before the first step and after the last: imports, reading, exit.
_SPARE = 60.0
_SLURM_END = "SLURM_JOB_END_TIME"  # seconds since 1970
_TIME = re.compile(r"(?:(\d{1,4})-)?(\d{1,4}):(\d\d):(\d\d)", re.ASCII)


def time_of_end(limit: str | None) -> float:
    """Latest end of this process, in seconds since 1970; infinity without a limit.

    `limit` is the allowed run time, [D-]HH:MM:SS, else `UsageError`; None: until the Slurm job's end.
    """
    if limit is None:
        known = os.environ.get(_SLURM_END, "")
        end = float(known) if known.isascii() and known.isdecimal() else 0.0
        return (
            end if end > time.time() else math.inf
        )  # arbitrary for a job without a limit
    match = _TIME.fullmatch(limit)
    if match is None or int(match[3]) > 59 or int(match[4]) > 59:
        raise UsageError(
            f"--time-limit {limit!r}: expected [D-]HH:MM:SS, such as 23:30:00 or 2-12:00:00"
        )
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return time.time() + ((days * 24 + hours) * 60 + minutes) * 60 + seconds


class Stopping:
    """Context that handles SIGTERM and the time limit `ends`; `step` must be called before each step.

    The first SIGTERM is only recorded as a request to stop. One that arrives more than `TOGETHER` seconds
    later has its previous effect.
    """

    def __init__(self, ends: float = math.inf) -> None:
        self.ends = ends
        self._asked: float | None = None
        self._before: Any = None
        self._steps, self._last, self._longest = 0, 0.0, 0.0

    def __enter__(self) -> Self:
        before = signal.getsignal(signal.SIGTERM)
        # Python allows handlers only in the main thread; an ignored SIGTERM stays ignored.
        ours = threading.current_thread() is threading.main_thread()
        if ours and before is not None and before is not signal.SIG_IGN:
            self._before = before
            signal.signal(signal.SIGTERM, self._receive)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGTERM, self._before)

    @property
    def terminated(self) -> bool:
        """Whether SIGTERM was received."""
        return self._asked is not None

    @property
    def late(self) -> bool:
        """Whether another step, as long as the longest so far, might exceed the time limit."""
        return time.time() + _SPARE + 2 * self._longest >= self.ends

    def step(self) -> None:
        """Measure the duration of the previous step, including all work after it."""
        now = time.monotonic()
        if self._steps > 1:  # the first step may include compilation
            self._longest = max(self._longest, now - self._last)
        self._steps += 1
        self._last = now

    def _receive(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._asked is None:
            self._asked = now
        if now - self._asked < TOGETHER:
            return
        signal.signal(signal.SIGTERM, self._before)
        os.kill(os.getpid(), number)
