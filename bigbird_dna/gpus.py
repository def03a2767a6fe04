"""CPU cores and freed memory of this process."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # numbers as in mallopt(3)
_KEPT_MMAP, _KEPT_TRIM = 1 << 30, (1 << 31) - 1  # bytes; the functions take an int
# Values that the library itself reaches in programs with large buffers.
_USUAL_MMAP, _USUAL_TRIM = 32 << 20, 64 << 20


def available_cores() -> int:
    """Return the number of CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1  # macOS does not restrict processes to cores


@contextmanager
def freed_memory_kept() -> Iterator[None]:
    """Keep freed memory for the next step or table column; return it at the end of the context.

    The GNU C library returns large freed buffers to the system, which clears them page by page when they are
    allocated again: a tenth of a training step on a CPU, a third of a report of tracks. Without glibc nothing
    happens.
    """
    try:
        library = ctypes.CDLL(None)
        adjust, trim = library.mallopt, library.malloc_trim
    except (OSError, AttributeError, TypeError):
        yield
        return

    # Older versions accept at most 32 MiB here, and return 0.
    if not adjust(_MMAP_THRESHOLD, _KEPT_MMAP):
        adjust(_MMAP_THRESHOLD, _USUAL_MMAP)

    adjust(_TRIM_THRESHOLD, _KEPT_TRIM)
    try:
        yield
    finally:
        adjust(_MMAP_THRESHOLD, _USUAL_MMAP)
        adjust(_TRIM_THRESHOLD, _USUAL_TRIM)
        trim(0)
