"""Peak memory of this process: resident bytes on a CPU (Linux), allocated bytes on a GPU."""

import ctypes
import gc
from contextlib import suppress
from pathlib import Path

import torch

PROCESS, MACHINE = Path("/proc/self/status"), Path("/proc/meminfo")
CLEAR_REFS = Path("/proc/self/clear_refs")
RESET_PEAK = "5"  # to clear_refs: the highest resident size becomes the present one; man 5 proc


def begin(device: torch.device) -> int | None:
    """Give back what is free, and begin a new measurement of `peak`.

    Returns
    -------
    Bytes in use now; none where the system can't say, or can't measure a peak.
    """
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


def peak(device: torch.device) -> int | None:
    """Most bytes in use at any time since `begin`."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device)
    return _bytes(PROCESS, "VmHWM")


def available(device: torch.device) -> int | None:
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
