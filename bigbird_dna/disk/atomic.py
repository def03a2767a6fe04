"""Files that appear whole or not at all, and checksums.

They are written to temporary directories, which are removed after use, and by the next run where their
process was killed. Their names have their maker: machine, process, and when that process began. A
directory whose process is known to be dead is litter; one of another machine is left alone, as nobody here
can know.
"""

import errno
import hashlib
import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bigbird_dna.errors import BigBirdDnaError, DataError, UsageError, error_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

PREFIX = ".bigbird-dna-"
swept: set[Path] = set()
_left: dict[Path, int] = {}  # directories that haven't been removed, and the process that made them
_made: dict[Path, int] = {}  # likewise those that results go to, the outer before the inner


@contextmanager
def scratch_directory(parent: Path | None = None, target: Path | None = None) -> Iterator[Path]:
    """An empty directory in `parent`, or among the system's temporary files; removed after use.

    What killed processes of this user left in `parent` is removed first. Where nothing can be written to it,
    the `UsageError` names `target`, or the parent itself.
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
    """Remove what this process left, when it ends, and directories for results that weren't written."""
    for directory, process in list(_left.items()):
        if process == os.getpid():
            shutil.rmtree(directory, ignore_errors=True)
    for directory, process in reversed(_made.items()):
        if process == os.getpid():
            with suppress(OSError):  # isn't empty, or never came to be
                directory.rmdir()


def sweep(parent: Path) -> None:
    """Remove what dead processes of this user left in a directory; once a process and directory."""
    parent = Path(parent)
    if parent in swept:
        return
    swept.add(parent)
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
    """The machine, and its space of process ids."""
    space = ""
    with suppress(OSError):
        space = str(Path("/proc/self/ns/pid").readlink())
    return hashlib.sha256(f"{os.uname().nodename} {space}".encode()).hexdigest()[:8]


_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS})
_PROBE_BYTES = 1 << 18
# Values in memory take some twenty times the bytes of their text.
_LARGEST_JSON = 1 << 25


def check_writable(path: Path) -> None:
    """Make the directory of `path`; `UsageError` if it can't become a file there.

    Long work begins with it.
    """
    with _beside(path):
        pass


@contextmanager
def _beside(path: Path) -> Iterator[Path]:
    """A scratch directory beside a file that is to be written; errors as of `check_writable`."""
    if path.is_dir():
        raise UsageError(f"{path}: is a directory, a file is to be written")
    make_parent(path)
    with scratch_directory(path.parent, path) as directory:
        yield directory


def make_parent(path: Path) -> None:
    """Make the directory of a result, which `remove_left` removes if it is empty; `UsageError` if not."""
    try:
        missing = [one for one in path.parents if not one.exists()]
        _made.update((one.absolute(), os.getpid()) for one in reversed(missing))
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{path}: can't be written: {error.strerror}") from None


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Give a temporary path beside `path`; rename it to `path` if the block ends without an error.

    It has the name of `path`, since writers look at names. A disk that is full is a `DataError`, whatever the
    writer raised.
    """
    path = Path(path)
    with _beside(path) as directory, full_disk_reported(path, directory):
        temporary = directory / path.name
        yield temporary
        temporary.replace(path)


@contextmanager
def full_disk_reported(path: Path, directory: Path) -> Iterator[None]:
    """Raise `DataError` for an error in the block if nothing more can be written to `directory`.

    Many libraries have errors of their own for a full disk: that it is full is seen by trying.
    """
    try:
        yield
    except BigBirdDnaError:
        raise
    except Exception as error:
        found = error if getattr(error, "errno", None) in _NO_ROOM else _write_error(directory)
        if isinstance(found, OSError) and found.errno in _NO_ROOM:
            raise DataError(f"{path}: can't be written: {found.strerror}") from None
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
    """In the block HTSlib prints nothing of what goes wrong: pysam raises it."""
    import pysam

    before = pysam.set_verbosity(0)
    try:
        yield
    finally:
        pysam.set_verbosity(before)


@contextmanager
def bgzip_writer(path: Path, mode: Any = "wb") -> Iterator[Any]:
    """A new bgzip file to write bytes to."""
    with quiet_htslib():
        import pysam

        stream = pysam.BGZFile(str(path), mode, None)
        try:
            with stream:
                yield stream
        except BaseException:
            with suppress(OSError):  # what couldn't be flushed is still open, and would be reported later
                stream.close()
            raise


def write_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON, whole or not at all."""
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def write_array(path: Path, values: "NDArray[Any]") -> None:
    """Write an array as `.npy`, whole or not at all."""
    import numpy as np

    with atomic_path(path) as temporary, temporary.open("wb") as stream:
        np.save(stream, values)


@contextmanager
def reading(path: str | Path, fault: str, *errors: type[Exception]) -> Iterator[None]:
    """Make a `DataError` that names file and `fault` of the system's errors, and of a library's `errors`.

    What a library raises on a damaged file is often not documented: `Exception` stands for all of it, in a
    block of nothing but calls of that library.
    """
    expected: tuple[type[Exception], ...] = (OSError, *errors)
    try:
        yield
    except (BigBirdDnaError, MemoryError):
        raise
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except RecursionError:
        raise DataError(f"{path}: {fault}: it is nested too deeply") from None
    except expected as error:
        raise DataError(f"{path}: {fault}: {error_text(error)}") from None


def read_json(path: Path) -> Any:
    """Read a JSON file; a missing or malformed one raises `DataError` with its name."""
    path = Path(path)
    # Neither UTF-8 nor JSON, or a number of thousands of digits: all are values that won't do.
    with reading(path, "not readable as JSON", ValueError):
        if path.stat().st_size > _LARGEST_JSON:
            raise DataError(f"{path}: has more than {_LARGEST_JSON >> 20} MB, no description of ours has")
        return json.loads(path.read_text(encoding="utf-8"))


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON file that must hold an object."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise DataError(f"{path}: holds no JSON object")
    return value


def checksum(path: Path, algorithm: str = "sha256") -> str:
    """Hexadecimal digest of a file's bytes."""
    with Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, algorithm).hexdigest()
