"""Memory that a training step frees is kept for the next step.

The GNU C library gives every freed buffer of 32 MiB and more, and what is free at the end of its heap, back
to the system, which clears it page by page when it is asked for again: a tenth of a training step on a CPU.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # as mallopt(3) numbers them
_KEPT_MMAP, _KEPT_TRIM = 1 << 30, (1 << 31) - 1  # bytes; what the functions take is an int
# What the library itself comes to in a program of large buffers.
_USUAL_MMAP, _USUAL_TRIM = 32 << 20, 64 << 20


@contextmanager
def freed_memory_kept() -> Iterator[None]:
    """Keep freed memory in the block, and give it back at its end. Without glibc nothing happens."""
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
