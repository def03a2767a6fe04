"""Write files atomically, lock them, and compute checksums.

Files are written to temporary directories that are removed after use, or by the next run if their process was
killed. The names of these directories contain the machine, the process, and the start time of the process.
Directories of dead processes are removed. Those of other machines are kept because their state is unknown.

A result that has its final name is on disk, so that no crash of a machine or of a shared disk loses it.

The system releases a lock when its process ends for any reason. On a shared disk, the lock of a machine that
failed remains until the server gives it up: after about 90 seconds with NFS 4, otherwise possibly never.
Therefore no lock is waited for without limit.
"""

import errno
import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from bigbird_dna.console import log
from bigbird_dna.errors import BigBirdDnaError, DataError, UsageError, error_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

PREFIX = ".bigbird-dna-"
PAUSE = 0.2  # seconds between attempts
NOTICE = 5.0  # seconds until a wait is logged
_STANDARD_STREAMS = {"/dev/stdout": 1, "/dev/stderr": 2}
swept: set[Path] = set()
_left: dict[
    Path, int
] = {}  # directories that are not removed yet, and the process that made them
_made: dict[
    Path, int
] = {}  # directories created for results, outer before inner, and their process


@contextmanager
def scratch_directory(
    parent: Path | None = None, target: Path | None = None
) -> Iterator[Path]:
    """Yield an empty directory in `parent`, or in the system's temporary directory; remove it after use.

    Directories that killed processes of this user left in `parent` are removed first. If `parent` is not
    writable, the `UsageError` names `target`, or else the parent.
    """
    directory = make_scratch(parent, target)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        _left.pop(directory, None)


def make_scratch(parent: Path | None = None, target: Path | None = None) -> Path:
    """Return a directory as in `scratch_directory`; the caller removes it."""
    parent = Path(tempfile.gettempdir()) if parent is None else Path(parent)
    sweep(parent)
    directory = (
        parent
        / f"{PREFIX}{_place()}-{os.getpid()}-{_began(os.getpid())}-{secrets.token_hex(4)}"
    )
    _left[directory] = os.getpid()
    try:
        directory.mkdir(mode=0o700)
    except OSError as error:
        raise UsageError(
            f"{target or parent}: cannot write: {error.strerror}"
        ) from None
    return directory


def remove_left() -> None:
    """Remove temporary directories of this process at its end, and empty directories created for results."""
    for directory, process in list(_left.items()):
        if process == os.getpid():
            shutil.rmtree(directory, ignore_errors=True)
    for directory, process in reversed(_made.items()):
        if process == os.getpid():
            with suppress(OSError):  # not empty, or never created
                directory.rmdir()


def sweep(parent: Path) -> None:
    """Remove the directories that dead processes of this user left; once per process and directory."""
    parent = Path(parent)
    if parent in swept:
        return
    swept.add(parent)
    with suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX) and _is_litter(entry):
                shutil.rmtree(entry.path, ignore_errors=True)


def _is_litter(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry is a temporary directory of a dead process of this user and machine."""
    parts = entry.name.removeprefix(PREFIX).split("-")
    if (
        len(parts) != 4
        or parts[0] != _place()
        or not parts[1].isdecimal()
        or not parts[2].isdecimal()
    ):
        return False
    try:
        mine = entry.stat(follow_symlinks=False).st_uid == os.geteuid()
        return (
            mine
            and entry.is_dir(follow_symlinks=False)
            and not _lives(int(parts[1]), int(parts[2]))
        )
    except OSError:
        return False


def _lives(process: int, began: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (
        OSError,
        OverflowError,
    ):  # of another user: the process id was reused, or the user was changed
        return True
    # A zombie process is still listed but writes no more.
    return _status(process)[0] != "Z" and (not began or _began(process) in (0, began))


def _began(process: int) -> int:
    """Return the start time of a process in the system's ticks; 0 if unknown."""
    return int(_status(process)[19])


def _status(process: int) -> list[str]:
    """Return the state of a process and the following fields of /proc/PID/stat; zeros if none."""
    try:
        # The second field, the command's name in brackets, may contain any character.
        text = (
            Path(f"/proc/{process}/stat")
            .read_text(encoding="utf-8", errors="replace")
            .rpartition(")")[2]
        )
    except OSError:
        text = ""
    return text.split() if text else ["0"] * 20


@cache
def _place() -> str:
    """Return an identifier of the machine and its process id namespace."""
    space = ""
    with suppress(OSError):
        space = str(Path("/proc/self/ns/pid").readlink())
    return hashlib.sha256(f"{os.uname().nodename} {space}".encode()).hexdigest()[:8]


_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS})
# File systems that do not support fsync, or not of directories; directories that may not be read.
_NO_SYNC = frozenset(
    {
        errno.EINVAL,
        errno.ENOTSUP,
        errno.ENOSYS,
        errno.EBADF,
        errno.EISDIR,
        errno.EACCES,
        errno.EPERM,
    }
)
_PROBE_BYTES = 1 << 18
# Values in memory take about twenty times the bytes of their JSON text.
_LARGEST_JSON = 1 << 25


def check_writable(path: Path) -> None:
    """Create the directory of `path`; `UsageError` if `path` cannot be written as a file.

    Call it before long work.
    """
    if not is_special(path):
        with _beside(path):
            pass


@contextmanager
def _beside(path: Path) -> Iterator[Path]:
    """Yield a scratch directory next to an output file, or to the target of a link to it.

    Errors are those of `check_writable`.
    """
    if path.is_dir():
        raise UsageError(f"{path}: must be a file, not a directory")
    target = link_target(path)
    make_parent(target)
    with scratch_directory(target.parent, path) as directory:
        yield directory


def link_target(path: Path) -> Path:
    """Return the file that a symbolic link leads to, which may not exist yet, or else `path`."""
    if not path.is_symlink():
        return path
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        raise UsageError(f"{path}: the symbolic link leads to itself") from None


def is_special(path: Path) -> bool:
    """Return whether a path is a pipe, a device or an open file of this process.

    These are written to and never replaced.
    """
    return open_descriptor(path) is not None or (
        path.exists() and not path.is_file() and not path.is_dir()
    )


def open_descriptor(path: Path) -> int | None:
    """Return N if a path is a name of this process's open file N, such as /dev/stdout or /dev/fd/63."""
    for _ in range(40):
        text = str(path)
        if text in _STANDARD_STREAMS:
            return _STANDARD_STREAMS[text]
        if found := re.fullmatch(
            rf"/(?:dev|proc/(?:self|{os.getpid()}))/fd/(\d{{1,9}})", text
        ):
            return int(found[1])
        if not path.is_symlink():
            return None
        path = path.parent / path.readlink()
    return None


def open_special(path: Path) -> IO[bytes]:
    """Open a pipe, a device or an open file of this process for writing bytes.

    Opening the name of an open file would truncate it, and a shell may have written to it before.
    """
    number = open_descriptor(path)
    if number is None:
        return path.open("wb")
    if number == 1:
        sys.stdout.flush()
    return os.fdopen(os.dup(number), "wb")


def make_parent(path: Path) -> None:
    """Create the directory of a result, which `remove_left` removes if empty; `UsageError` on failure."""
    try:
        missing = [one for one in path.parents if not one.exists()]
        _made.update((one.absolute(), os.getpid()) for one in reversed(missing))
        path.parent.mkdir(parents=True, exist_ok=True)
        for one in missing:
            sync(one.parent)
    except OSError as error:
        raise UsageError(f"{path}: cannot write the file: {error.strerror}") from None


def move(source: Path, target: Path) -> None:
    """Rename a file or directory that is complete; when this returns, `target` is on disk.

    The content is on disk before the rename: otherwise a crash could leave an empty file of the final name.
    """
    sync_content(source)
    source.replace(target)
    sync(target.parent)


def sync_content(path: Path) -> None:
    """Wait until a file, or a directory with all its files, is on disk."""
    for found, _, names in os.walk(path):
        for name in names:
            sync(Path(found, name))
        sync(Path(found))
    if not path.is_dir():
        sync(path)


def sync(path: Path) -> None:
    """Wait until a file's content, or a directory's list of names, is on disk, where supported."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path; rename it to `path` if the block ends without an error.

    Every output file is written by this function. Through a symbolic link, the file that it leads to is
    replaced, and the link stays. A pipe, a device, or an open file such as /dev/stdout is never replaced: it
    receives the bytes of the complete file. The temporary file has the same name as `path`, since writers use
    the suffix. A full disk is a `DataError`, independent of the writer's exception.
    """
    path = Path(path)
    special = is_special(path)
    with (
        scratch_directory() if special else _beside(path) as directory,
        full_disk_reported(path, directory),
    ):
        temporary = directory / path.name
        yield temporary
        if special:
            with temporary.open("rb") as complete, open_special(path) as stream:
                shutil.copyfileobj(complete, stream)
        else:
            move(temporary, link_target(path))


@contextmanager
def full_disk_reported(path: Path, directory: Path) -> Iterator[None]:
    """Convert an error of the block to `DataError` if nothing more can be written to `directory`.

    Many libraries raise their own errors for a full disk, so a test write determines whether it is full.
    """
    try:
        yield
    except BigBirdDnaError:
        raise
    except Exception as error:
        found = (
            error
            if getattr(error, "errno", None) in _NO_ROOM
            else _write_error(directory)
        )
        if isinstance(found, OSError) and found.errno in _NO_ROOM:
            raise DataError(
                f"{path}: cannot write the file: {found.strerror}"
            ) from None
        raise


def _write_error(directory: Path) -> OSError | None:
    try:
        with (directory / ".probe").open("wb") as stream:
            stream.write(bytes(_PROBE_BYTES))
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        return error
    return None


@contextmanager
def quiet_htslib() -> Iterator[None]:
    """Suppress HTSlib's error output in the block; pysam raises the errors."""
    import pysam

    before = pysam.set_verbosity(0)
    try:
        yield
    finally:
        pysam.set_verbosity(before)


@contextmanager
def bgzip_writer(path: Path, mode: Any = "wb") -> Iterator[Any]:
    """Open a new bgzip file for writing bytes."""
    with quiet_htslib():
        import pysam

        stream = pysam.BGZFile(str(path), mode, None)
        try:
            with stream:
                yield stream
        except BaseException:
            with suppress(
                OSError
            ):  # unflushed data would otherwise be reported again later
                stream.close()
            raise


def write_json(path: Path, value: Any) -> None:
    """Write `value` atomically as indented JSON."""
    with atomic_path(path) as temporary:
        text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
        temporary.write_text(f"{text}\n", encoding="utf-8")


def write_array(path: Path, values: "NDArray[Any]") -> None:
    """Write an array atomically as `.npy`."""
    import numpy as np

    with atomic_path(path) as temporary, temporary.open("wb") as stream:
        np.save(stream, values)


@contextmanager
def reading(path: str | Path, fault: str, *errors: type[Exception]) -> Iterator[None]:
    """Convert system errors and a library's `errors` to a `DataError` that names the file and `fault`.

    Libraries often do not document their exceptions for damaged files. Use `Exception` for these, in a block
    that contains only calls of the library.
    """
    expected: tuple[type[Exception], ...] = (OSError, *errors)
    try:
        yield
    except (BigBirdDnaError, MemoryError):
        raise
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except RecursionError:
        raise DataError(f"{path}: {fault}: nested too deeply") from None
    except expected as error:
        raise DataError(f"{path}: {fault}: {error_text(error)}") from None


def read_json(path: Path) -> Any:
    """Read a JSON file; `DataError` if it is missing or malformed."""
    path = Path(path)
    # `ValueError` includes invalid UTF-8, invalid JSON, and numbers with thousands of digits.
    with reading(path, "not readable as JSON", ValueError):
        if path.stat().st_size > _LARGEST_JSON:
            raise DataError(
                f"{path}: larger than the maximum of {_LARGEST_JSON >> 20} MB"
            )
        return json.loads(path.read_text(encoding="utf-8"))


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON file that must contain an object."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise DataError(f"{path}: must contain a JSON object")
    return value


def checksum(path: Path, algorithm: str = "sha256") -> str:
    """Return the hexadecimal digest of a file's bytes."""
    with Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, algorithm).hexdigest()


def lock_file(
    handle: int, path: Path, consequence: str = "", seconds: float = 0.0
) -> bool:
    """Lock the open file `path` until it is closed; return whether this succeeds within `seconds`.

    Where locks are not supported, no process is excluded and the result is True. A warning states the
    `consequence`, if there is one.
    """
    began = time.monotonic()
    logged = False
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waited = time.monotonic() - began
            if waited >= seconds:
                return False
            if waited >= NOTICE and not logged:
                log(
                    f"waiting up to {seconds:.0f} s for another process that has locked {path}"
                )
                logged = True
            time.sleep(PAUSE)
            continue
        except OSError as error:
            if consequence:
                log(
                    f"warning: {path}: cannot be locked ({error.strerror}): {consequence}"
                )
        return True
