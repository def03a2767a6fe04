"""CPU cores and freed memory of this process; and one GPU per process, with locks, without a scheduler.

A lock is a file in the system's temporary directory, shared by all users; the system releases it when the
process ends for any reason. Inside a scheduler job, GPUs are leased only among the processes of the job,
because schedulers number the GPUs of every job from 0.
"""

import ctypes
import os
import re
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from bigbird_dna.console import log
from bigbird_dna.disk.atomic import lock_file
from bigbird_dna.errors import UsageError, shortened

SHARED = "BIGBIRD_DNA_CARDS"
"""If this environment variable is `shared`, commands do not lease a GPU and use the first."""

JOBS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID")
PAUSE = 5.0  # seconds between attempts to find a free GPU
# Seconds: processes that train together must not hold some GPUs and wait long for GPUs of others.
TOGETHER = 60.0
_PERMITTED = 0o666
_REMINDED = 3600.0
_SAME = "another job may use the same GPU"
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # numbers as in mallopt(3)
_KEPT_MMAP, _KEPT_TRIM = 1 << 30, (1 << 31) - 1  # bytes; the functions take an int
# Values that the library itself reaches in programs with large buffers.
_USUAL_MMAP, _USUAL_TRIM = 32 << 20, 64 << 20


@dataclass
class _Lease:
    """The lease of this process: none, or the index of a GPU among the visible ones, and its lock."""

    wanted: bool = False
    gpu: int | None = None
    handle: int | None = None


_lease = _Lease()


def keep_kernels(directory: str | Path | None) -> None:
    """Let torch keep the kernels that it compiles in a directory; values of the environment are kept."""
    if directory is not None:
        for key, name in (
            ("TORCHINDUCTOR_CACHE_DIR", "torch"),
            ("TRITON_CACHE_DIR", "triton"),
        ):
            os.environ.setdefault(key, str(Path(directory).absolute() / name))


def available_cores() -> int:
    """Return the number of CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1  # macOS does not restrict processes to cores


MOST_THREADS = 64  # on a machine with fewer cores


def limit_threads(threads: int) -> int:
    """At most as many threads as this process may use CPU cores, or `MOST_THREADS` on a smaller machine.

    Thousands of threads exceed the system's limits, and libraries crash where they cannot start one.
    """
    return (
        threads
        if threads <= MOST_THREADS
        else min(threads, max(available_cores(), MOST_THREADS))
    )


def checked_threads(threads: int) -> int:
    """The threads of `limit_threads` for the option `--threads`; the log says if they are fewer."""
    if (limited := limit_threads(threads)) < threads:
        log(
            f"warning: --threads {threads}: {limited} threads are used, for {available_cores()} CPU cores"
        )
    return limited


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


def lease_gpus() -> None:
    """Enable leases in `acquire_gpu`, for commands only: a notebook would keep its GPU for hours."""
    _lease.wanted = True


def acquire_gpu(count: int, local_rank: int = 0, together: int = 1) -> int:
    """Return the index of this process's GPU among the `count` visible ones; the same in every call.

    Without leases, this is `local_rank`. With leases, it is the first free GPU from `local_rank` on; a single
    process waits if all are in use. Several processes that train `together` on this machine lease one GPU
    each; `UsageError` if none is free within a minute.
    """
    if not _lease.wanted or os.environ.get(SHARED) == "shared":
        return local_rank
    if _lease.gpu is None:
        _lease.gpu = _leased(visible_gpus(os.environ, count), local_rank, together)
    return _lease.gpu


def release_gpu() -> None:
    """Release the GPU before the process ends, and disable leases."""
    if _lease.handle is not None:
        os.close(_lease.handle)
    _lease.wanted, _lease.gpu, _lease.handle = False, None, None


def visible_gpus(environment: Mapping[str, str], count: int) -> list[str]:
    """Return the names of the visible GPUs: those in $CUDA_VISIBLE_DEVICES, else their indices."""
    named = [
        name.strip() for name in environment.get("CUDA_VISIBLE_DEVICES", "").split(",")
    ]
    named = [name for name in named if name]
    return (
        named[:count]
        if len(named) >= count
        else [str(number) for number in range(count)]
    )


def _leased(names: list[str], first: int, together: int) -> int:
    places = list(range(len(names)))
    began = remind = time.monotonic()
    while True:
        for place in places[first:] + places[:first]:
            if _locked(names[place]):
                return place
        now = time.monotonic()
        if together > 1 and now - began >= TOGETHER:
            raise UsageError(
                f"--device cuda: {together} processes need {together} GPUs, but all {len(names)} GPUs are in "
                f"use ({_holders(names)}): start fewer jobs at a time, or wait until another job ends"
            )
        if now >= remind:
            log(f"waiting for a GPU: all {len(names)} are in use ({_holders(names)})")
            remind = now + _REMINDED
        time.sleep(PAUSE)


def _locked(name: str) -> bool:
    """Lock a GPU; return whether this succeeds. If locking is impossible, log a warning and return True."""
    path = _lock_path(name)
    try:
        handle = _opened(path)
    except OSError as error:
        log(f"warning: {path}: cannot be locked ({error.strerror}): {_SAME}")
        return True
    if not lock_file(handle, path, _SAME):
        os.close(handle)
        return False
    _lease.handle = handle
    text = (
        f"process {os.getpid()} since {time.strftime('%Y-%m-%d %H:%M:%S')}\n".encode()
    )
    with suppress(
        OSError
    ):  # full disk, or file of another user: the lock works without this text
        os.ftruncate(handle, 0)
        os.pwrite(handle, text, 0)
    return True


def _opened(path: Path) -> int:
    """Open the lock file and return its handle; create the file, for all users, if it is missing."""
    path.parent.mkdir(exist_ok=True)
    with suppress(OSError):  # directory of another user, who has set the same mode
        path.parent.chmod(0o1777)
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        # Open before create: in a sticky directory, Linux may reject O_CREAT for a file of another user.
        with suppress(FileNotFoundError):
            return os.open(path, flags)
        with suppress(FileExistsError):
            handle = os.open(path, flags | os.O_CREAT | os.O_EXCL, _PERMITTED)
            os.fchmod(handle, _PERMITTED)
            return handle


def _lock_path(name: str) -> Path:
    job = next((f"{key}={os.environ[key]}" for key in JOBS if os.environ.get(key)), "")
    words = (os.uname().nodename, job, "card", name)
    file = "-".join(re.sub(r"[^\w.=-]", "_", word) for word in words if word)
    return Path(tempfile.gettempdir()) / "bigbird-dna-cards" / file


def _holders(names: list[str]) -> str:
    """Describe the processes that hold the GPUs, as far as the lock files contain them."""
    holders = []
    for name in names[:3]:
        text = ""
        with suppress(OSError):
            text = (
                _lock_path(name).read_text(encoding="utf-8", errors="replace").strip()
            )
        holders.append(
            f"GPU {name} by {shortened(text, 60)}" if text else f"GPU {name}"
        )
    return ", ".join(holders) + (", …" if len(names) > 3 else "")
