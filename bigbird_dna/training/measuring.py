"""By which kernels a training is computed, and how much memory it takes.

Peaks are resident bytes on a CPU (Linux), allocated bytes on a GPU.
"""

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import torch
from torch import nn

from bigbird_dna.attention import Choice, routes_logged
from bigbird_dna.config import TrainingConfig
from bigbird_dna.console import log
from bigbird_dna.errors import ConfigError
from bigbird_dna.model.inference import compiled_layers
from bigbird_dna.training.distributed import World

STRICT = ("cuda",)
"""Devices where a training that goes by the slow route takes days in which a GPU has little to do."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # as mallopt(3) numbers them
_KEPT_MMAP, _KEPT_TRIM = 1 << 30, (1 << 31) - 1  # bytes; what the functions take is an int
# What the library itself comes to in a program of large buffers.
_USUAL_MMAP, _USUAL_TRIM = 32 << 20, 64 << 20

PROCESS, MACHINE = Path("/proc/self/status"), Path("/proc/meminfo")
CLEAR_REFS = Path("/proc/self/clear_refs")
RESET_PEAK = "5"  # to clear_refs: the highest resident size becomes the present one; man 5 proc


@contextmanager
def chosen_kernels(network: nn.Module, config: TrainingConfig, world: World) -> Iterator[None]:
    """In the block, say on the first process which routes attention takes, each once, and why.

    With `torch_compile` torch compiles the rest of the layers. `ConfigError`: it can't, or on a GPU
    attention would give way to a slower route, and `allow_slow_attention` doesn't allow that.
    """

    def log_choice(choice: Choice) -> None:
        if choice.gave_way and world.device.type in STRICT and not config.allow_slow_attention:
            raise ConfigError(
                f"attention would be computed by the slower route {choice.route}, as {choice.reason}: "
                "allow_slow_attention: true in the section of this training allows it"
            )
        if world.is_first:
            log(str(choice))

    with routes_logged(log_choice), compiled_layers(network) if config.torch_compile else nullcontext():
        yield


@contextmanager
def freed_memory_kept() -> Iterator[None]:
    """Keep memory that a training step frees for the next step; give it back at the end of the block.

    The GNU C library gives large freed buffers back to the system, which clears them page by page when they
    are asked for again: a tenth of a training step on a CPU. Without glibc nothing happens.
    """
    try:
        library = ctypes.CDLL(None)
        adjust, trim = library.mallopt, library.malloc_trim
    except (OSError, AttributeError, TypeError):
        yield
        return
    # Older versions take at most 32 MiB here, and answer 0.
    if not adjust(_MMAP_THRESHOLD, _KEPT_MMAP):
        adjust(_MMAP_THRESHOLD, _USUAL_MMAP)
    adjust(_TRIM_THRESHOLD, _KEPT_TRIM)
    try:
        yield
    finally:
        adjust(_MMAP_THRESHOLD, _USUAL_MMAP)
        adjust(_TRIM_THRESHOLD, _USUAL_TRIM)
        trim(0)


def begin_memory_peak(device: torch.device) -> int | None:
    """Give back what is free, and begin a new measurement of `memory_peak`; bytes in use now, None where the
    system can't say, or can't measure a peak."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        return torch.cuda.memory_allocated(device)
    with suppress(OSError, AttributeError):  # glibc keeps free pages, which hide what a call takes
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    try:
        CLEAR_REFS.write_text(RESET_PEAK)
    except OSError:
        return None
    return _bytes(PROCESS, "VmRSS")


def memory_peak(device: torch.device) -> int | None:
    """Most bytes in use at any time since `begin_memory_peak`."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device)
    return _bytes(PROCESS, "VmHWM")


def available_memory(device: torch.device) -> int | None:
    """Bytes that could still be taken; none where the system can't say."""
    if device.type == "cuda":
        free = torch.cuda.mem_get_info(device)[0]
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return _bytes(MACHINE, "MemAvailable")


def _bytes(path: Path, key: str) -> int | None:
    """A line `key: 123 kB` of one of the system's files."""
    with suppress(OSError):
        for line in path.read_text().splitlines():
            name, _, value = line.partition(":")
            if name == key:
                return int(value.split()[0]) * 1024
    return None
