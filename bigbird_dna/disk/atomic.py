"""Write files so that an interrupted command leaves the old ones whole; read JSON; name faults of files."""

import errno
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from bigbird_dna.errors import BigBirdDnaError, DataError, UsageError, error_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

PREFIX = ".bigbird-dna-"

_STANDARD_STREAMS = {"/dev/stdout": 1, "/dev/stderr": 2}
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)
_PROBE_BYTES = 1 << 18


@contextmanager
def scratch_directory(
    parent: Path | None = None, target: Path | None = None
) -> Iterator[Path]:
    """Yield an empty directory in `parent`, or in the system's temporary directory; remove it after use.

    If `parent` is not writable, the `UsageError` names `target`, or else the parent.
    """
    try:
        directory = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
    except OSError as error:
        raise UsageError(
            f"{target or parent}: cannot write: {error.strerror}"
        ) from None
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


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
            temporary.replace(link_target(path))


@contextmanager
def _beside(path: Path) -> Iterator[Path]:
    """Yield a scratch directory next to an output file, or to the target of a link to it."""
    if path.is_dir():
        raise UsageError(f"{path}: must be a file, not a directory")
    target = link_target(path)
    make_parent(target)
    with scratch_directory(target.parent, path) as directory:
        yield directory


def check_writable(path: Path) -> None:
    """Create the directory of `path`; `UsageError` if `path` cannot be written as a file.

    Call it before long work.
    """
    if not is_special(path):
        with _beside(path):
            pass


def make_parent(path: Path) -> None:
    """Create the directory of a result; `UsageError` on failure."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{path}: cannot write the file: {error.strerror}") from None


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
    pattern = rf"/(?:dev|proc/(?:self|{os.getpid()}))/fd/(\d{{1,9}})"
    for _ in range(40):  # links; more are a loop
        if str(path) in _STANDARD_STREAMS:
            return _STANDARD_STREAMS[str(path)]
        if found := re.fullmatch(pattern, str(path)):
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
        found = error
        if getattr(error, "errno", None) not in _NO_ROOM:
            try:
                (directory / ".probe").write_bytes(bytes(_PROBE_BYTES))
            except OSError as probe:
                found = probe
        if isinstance(found, OSError) and found.errno in _NO_ROOM:
            raise DataError(
                f"{path}: cannot write the file: {found.strerror}"
            ) from None
        raise


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
            # Unflushed data would otherwise be reported again later.
            with suppress(OSError):
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
    except expected as error:
        raise DataError(f"{path}: {fault}: {error_text(error)}") from None


def read_json(path: Path) -> Any:
    """Read a JSON file; `DataError` if it is missing or malformed."""
    # `ValueError` includes invalid UTF-8.
    with reading(path, "not readable as JSON", ValueError, RecursionError):
        return json.loads(Path(path).read_text(encoding="utf-8"))


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
