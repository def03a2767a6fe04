"""Temporary directories that are removed after use, and by the next run where their process was killed.

Their names say who made them: machine, process, and when that process began. A directory whose process is
known to be dead is litter; one of another machine is left alone, as nobody here can know.
"""

import hashlib
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from bigbird_dna.errors import UsageError

PREFIX = ".bigbird-dna-"
_swept: set[Path] = set()
_left: dict[Path, int] = {}  # directories that haven't been removed, and the process that made them


@contextmanager
def scratch_directory(parent: Path | None = None, target: Path | None = None) -> Iterator[Path]:
    """An empty directory in `parent`, or among the system's temporary files; removed after use.

    What killed processes of this user left in `parent` is removed first.

    Parameters
    ----------
    target
        What it is for, named in the error; None: the parent itself.

    Raises
    ------
    UsageError
        Nothing can be written to `parent`.
    """
    directory = make_scratch(parent, target)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        _left.pop(directory, None)


def make_scratch(parent: Path | None = None, target: Path | None = None) -> Path:
    """A directory as `scratch_directory` gives it, for the caller to remove."""
    parent = Path(tempfile.gettempdir()) if parent is None else Path(parent)
    sweep(parent)
    directory = parent / f"{PREFIX}{_place()}-{os.getpid()}-{_began(os.getpid())}-{secrets.token_hex(4)}"
    _left[directory] = os.getpid()
    try:
        directory.mkdir(mode=0o700)
    except OSError as error:
        raise UsageError(f"{target or parent}: can't be written: {error.strerror}") from None
    return directory


def remove_left() -> None:
    """Remove what this process left, when it ends: a signal may have come in the middle of removing."""
    for directory, process in list(_left.items()):
        if process == os.getpid():
            shutil.rmtree(directory, ignore_errors=True)


def sweep(parent: Path) -> None:
    """Remove what dead processes of this user left in a directory; once a process and directory."""
    parent = Path(parent)
    if parent in _swept:
        return
    _swept.add(parent)
    with suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX) and _is_litter(entry):
                shutil.rmtree(entry.path, ignore_errors=True)


def _is_litter(entry: os.DirEntry[str]) -> bool:
    """Whether it is a directory of this module's, of this user, whose process was here and is dead."""
    parts = entry.name.removeprefix(PREFIX).split("-")
    if len(parts) != 4 or parts[0] != _place() or not parts[1].isdecimal() or not parts[2].isdecimal():
        return False
    try:
        mine = entry.stat(follow_symlinks=False).st_uid == os.geteuid()
        return mine and entry.is_dir(follow_symlinks=False) and not _lives(int(parts[1]), int(parts[2]))
    except OSError:
        return False


def _lives(process: int, began: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # another user's: its number was given out anew, or it changed users
        return True
    # Ended, and nobody has asked how: it is listed, but writes no more.
    return _status(process)[0] != "Z" and (not began or _began(process) in (0, began))


def _began(process: int) -> int:
    """When a process began, in the system's ticks; 0 where that isn't known."""
    return int(_status(process)[19])


def _status(process: int) -> list[str]:
    """The state of a process, and what follows it in /proc/PID/stat; zeros where there is none."""
    try:
        # The second field, the command's name in brackets, may hold anything.
        text = Path(f"/proc/{process}/stat").read_text(errors="replace").rpartition(")")[2]
    except OSError:
        text = ""
    return text.split() if text else ["0"] * 20


@cache
def _place() -> str:
    """Where numbers of processes mean what they mean here: the machine, and its space of processes."""
    space = ""
    with suppress(OSError):
        space = str(Path("/proc/self/ns/pid").readlink())
    return hashlib.sha256(f"{os.uname().nodename} {space}".encode()).hexdigest()[:8]
