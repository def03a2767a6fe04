"""Where this process runs: device, precision, and its place among the processes of `torchrun`."""

import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch import Tensor

from bigbird_dna.errors import BigBirdDnaError, error_text
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
