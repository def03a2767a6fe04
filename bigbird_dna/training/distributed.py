"""Where this process runs, among those of `torchrun`; in which precision, and when it has to stop."""

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

from bigbird_dna.errors import BigBirdDnaError, UsageError, error_text
from bigbird_dna.model.inference import choose_device

T = TypeVar("T")
S = TypeVar("S")
N = TypeVar("N", bound=np.generic)
Precision = Literal["auto", "float32", "bfloat16"]


def autocast(device: torch.device, precision: Precision) -> AbstractContextManager[Any]:
    """Autocast to bfloat16 if asked for, or by `auto` where the device computes in it natively."""
    if chosen_precision(device, precision) == "bfloat16":
        return torch.autocast(device.type, dtype=torch.bfloat16)
    return nullcontext()


def chosen_precision(device: torch.device, precision: Precision) -> Precision:
    """What `auto` stands for on a device: bfloat16 where it computes in it natively, or else float32."""
    if precision != "auto":
        return precision
    if device.type == "cuda":
        native = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        # It is absent from older releases; without it float32 is the safe choice.
        capabilities: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
        native = bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))
    return "bfloat16" if native else "float32"


@dataclass(frozen=True)
class World:
    """This process among all that train together; `at_end` is done when it leaves them, whatever happens.

    It has to be done before the time `ends` (seconds since 1970): see `Stopping`.
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
        tensor = torch.tensor(list(values.values()), dtype=torch.float64, device=self.device)
        dist.all_reduce(tensor)
        return dict(zip(values, tensor.tolist(), strict=True))

    def first(self, call: Callable[[], T]) -> T:
        """What `call` gives on the first process, on every process; a user's error of it is raised on all.

        Any other error is the first process's own; the others raise `RuntimeError`.
        """
        if self.size == 1:
            return call()
        found: list[Any] = [None, None]
        own: Exception | None = None
        if self.is_first:
            try:
                found[0] = call()
            except BigBirdDnaError as error:
                found[1] = error
            except Exception as error:  # the others would wait for as long as this process lives
                own = error
                found[1] = RuntimeError(f"the first process failed: {error_text(error)}")
        dist.broadcast_object_list(found, src=0)
        if own is not None:
            raise own
        if found[1] is not None:
            raise found[1]
        return found[0]  # type: ignore[no-any-return]

    def overwrite(self, tensors: Iterable[Tensor]) -> None:
        """Give each tensor, of the same shape on every process, the first one's values."""
        if self.size > 1:
            for tensor in tensors:
                dist.broadcast(tensor, 0)

    def gather(self, value: T) -> list[T]:
        """The value of each process, by rank, on every process."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def divide(self, items: Sequence[S], work: Callable[[Sequence[S]], npt.NDArray[N]]) -> npt.NDArray[N]:
        """What `work` makes of items, a row each in their order, on every process; each does a part."""
        if self.size == 1:
            return work(items)
        parts = self.gather(work(items[self.rank :: self.size]))
        filled = next((part for part in parts if len(part)), parts[0])  # the form of no rows isn't known
        whole = np.empty((len(items), *filled.shape[1:]), filled.dtype)
        for rank, part in enumerate(parts):
            if len(part):
                whole[rank :: self.size] = part
        return whole

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
def world(device_name: str = "auto", ends: float = math.inf) -> Iterator[World]:
    """Join the processes that `torchrun` started (NCCL on GPUs, gloo on CPUs), or be alone without it."""
    device = choose_device(device_name)
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        with ExitStack() as at_end:
            yield World(0, 1, device, ends, at_end)
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        with ExitStack() as at_end:
            yield World(dist.get_rank(), size, device, ends, at_end)
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


# Seconds in which further SIGTERMs are the same wish: a scheduler tells all processes of a job, and torchrun
# and Snakemake pass on to theirs what they are told.
TOGETHER = 5.0
# Seconds kept for what comes before the first step and after the last: imports, reading, leaving.
_SPARE = 60.0
_SLURM_END = "SLURM_JOB_END_TIME"  # seconds since 1970
_TIME = re.compile(r"(?:(\d{1,4})-)?(\d{1,4}):(\d\d):(\d\d)", re.ASCII)


def time_of_end(limit: str | None) -> float:
    """When this process must have ended, in seconds since 1970; infinity: there is no limit.

    `limit` is how long it may run from now on, [D-]HH:MM:SS, else `UsageError`; None: to the Slurm job's end.
    """
    if limit is None:
        known = os.environ.get(_SLURM_END, "")
        end = float(known) if known.isascii() and known.isdecimal() else 0.0
        return end if end > time.time() else math.inf  # of a job without a limit it may be anything
    match = _TIME.fullmatch(limit)
    if match is None or int(match[3]) > 59 or int(match[4]) > 59:
        raise UsageError(f"--time-limit {limit!r}: expected [D-]HH:MM:SS, as 23:30:00 or 2-12:00:00")
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return time.time() + ((days * 24 + hours) * 60 + minutes) * 60 + seconds


class Stopping:
    """Minds SIGTERM and the time `ends` in a `with` block, in which `step` is called before each step.

    The first SIGTERM is a wish, and no more than noted. One that comes later than `TOGETHER` seconds after
    it does what it did before the block.
    """

    def __init__(self, ends: float = math.inf) -> None:
        self.ends = ends
        self._asked: float | None = None
        self._before: Any = None
        self._steps, self._last, self._longest = 0, 0.0, 0.0

    def __enter__(self) -> Self:
        before = signal.getsignal(signal.SIGTERM)
        # Python allows it in the main thread alone; whoever has it ignored wants it ignored.
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
        """Whether SIGTERM has come."""
        return self._asked is not None

    @property
    def late(self) -> bool:
        """Whether another step, as long as the longest so far, might not be done in time."""
        return time.time() + _SPARE + 2 * self._longest >= self.ends

    def step(self) -> None:
        """Measure how long the step before took, with all that came after it."""
        now = time.monotonic()
        if self._steps > 1:  # the first one may have compiled
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
