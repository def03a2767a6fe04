"""Peak memory of this process: resident bytes on a CPU (Linux), allocated bytes on a GPU."""

import ctypes
import gc
from pathlib import Path

import torch

STATUS, CLEAR_REFS = Path("/proc/self/status"), Path("/proc/self/clear_refs")
RESET_PEAK = "5"  # to clear_refs: the highest resident size becomes the present one; man 5 proc


def in_use(device: torch.device) -> int | None:
    """Bytes in use now, after giving back what is free; none where the system can't say."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.empty_cache()
        return torch.cuda.memory_allocated(device)
    _trim()
    return _status("VmRSS")


def reset_peak(device: torch.device) -> bool:
    """Begin a new measurement of `peak`; false where that can't be."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return True
    try:
        CLEAR_REFS.write_text(RESET_PEAK)
    except OSError:
        return False
    return True


def peak(device: torch.device) -> int | None:
    """Most bytes in use at any time since `reset_peak`."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device)
    return _status("VmHWM")


def available(device: torch.device) -> int | None:
    """Bytes that could still be taken; none where the system can't say."""
    if device.type == "cuda":
        free = torch.cuda.mem_get_info(device)[0]
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return _kilobytes(Path("/proc/meminfo"), "MemAvailable")


def _trim() -> None:
    """Let glibc give free pages back, so that they don't hide what a call takes."""
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    except (OSError, AttributeError):
        return


def _status(key: str) -> int | None:
    return _kilobytes(STATUS, key)


def _kilobytes(path: Path, key: str) -> int | None:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, value = line.partition(":")
        if name == key:
            return int(value.split()[0]) * 1024
    return None
