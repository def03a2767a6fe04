"""One GPU per process: locks on the GPUs of this machine, for commands that no scheduler keeps apart.

A lock is a file among the system's temporary files, the same for all users, and freed by the system when its
process ends, however that is. Inside a job of a scheduler GPUs are leased among that job's processes only:
schedulers number a job's GPUs from 0, whichever they are.
"""

import fcntl
import os
import re
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bigbird_dna.console import log
from bigbird_dna.errors import UsageError, shortened

SHARED = "BIGBIRD_DNA_CARDS"
"""Where this environment variable is `shared`, commands lease no GPU and take the first."""

JOBS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID")
PAUSE = 5.0  # seconds between two looks for a free GPU
# Processes that train together don't wait for long, each holding some GPUs, for those of others.
TOGETHER = 60.0
_PERMITTED = 0o666
_REMINDED = 3600.0


@dataclass
class _Lease:
    """What this process has: nothing, or a GPU by its place among the visible ones, and its lock."""

    wanted: bool = False
    gpu: int | None = None
    handle: int | None = None


_lease = _Lease()


def lease_gpus() -> None:
    """From now on `acquire_gpu` leases: for commands, which end; a notebook would keep its GPU for hours."""
    _lease.wanted = True


def acquire_gpu(count: int, local_rank: int = 0, together: int = 1) -> int:
    """The GPU that this process runs on, by its place among the `count` visible ones; the same each time.

    Without leases that is `local_rank`. With them it is the first that nobody has, from `local_rank` on;
    where all are taken, a process by itself waits. Of several that train `together` on this machine, each
    takes a GPU for itself, and finding none within a minute is a `UsageError`.
    """
    if not _lease.wanted or os.environ.get(SHARED) == "shared":
        return local_rank
    if _lease.gpu is None:
        _lease.gpu = _leased(visible_gpus(os.environ, count), local_rank, together)
    return _lease.gpu


def release_gpu() -> None:
    """Give the GPU back before the process ends, and lease none any more."""
    if _lease.handle is not None:
        os.close(_lease.handle)
    _lease.wanted, _lease.gpu, _lease.handle = False, None, None


def visible_gpus(environment: Mapping[str, str], count: int) -> list[str]:
    """The names of the GPUs that a process sees: those in $CUDA_VISIBLE_DEVICES, else their numbers."""
    named = [name.strip() for name in environment.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    named = [name for name in named if name]
    return named[:count] if len(named) >= count else [str(number) for number in range(count)]


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
                f"device cuda: {together} processes need a card each, and all {len(names)} cards are taken "
                f"({_holders(names)}): start fewer jobs at a time, or wait for the end of another"
            )
        if now >= remind:
            log(f"waiting for a card: all {len(names)} are taken ({_holders(names)})")
            remind = now + _REMINDED
        time.sleep(PAUSE)


def _locked(name: str) -> bool:
    """Whether the GPU is this process's now. Where nothing can be locked, the log has a warning."""
    path = _lock_path(name)
    try:
        handle = _opened(path)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(handle)
            raise
    except BlockingIOError:
        return False
    except OSError as error:
        log(f"warning: {path}: can't be locked ({error.strerror}): another job may take the same card")
        return True
    _lease.handle = handle
    text = f"process {os.getpid()} since {time.strftime('%Y-%m-%d %H:%M:%S')}\n".encode()
    with suppress(OSError):  # a full disk, or a file of another user: the lock holds without a text
        os.ftruncate(handle, 0)
        os.pwrite(handle, text, 0)
    return True


def _opened(path: Path) -> int:
    """A handle of the lock's file, which is made, for all users, where it is missing."""
    path.parent.mkdir(exist_ok=True)
    with suppress(OSError):  # another user's directory, who has done the same
        path.parent.chmod(0o1777)
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        # Opened before it is made: in such a directory Linux may refuse O_CREAT for a file of another user.
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
    """Which processes have the GPUs, as far as their files contain it."""
    holders = []
    for name in names[:3]:
        text = ""
        with suppress(OSError):
            text = _lock_path(name).read_text(errors="replace").strip()
        holders.append(f"card {name} by {shortened(text, 60)}" if text else f"card {name}")
    return ", ".join(holders) + (", …" if len(names) > 3 else "")
