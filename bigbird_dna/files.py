"""Files that appear whole or not at all, and checksums."""

import errno
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bigbird_dna.errors import BigBirdDnaError, DataError, UsageError, error_text
from bigbird_dna.scratch import scratch_directory

if TYPE_CHECKING:  # slow to import: inside the function
    from numpy.typing import NDArray

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS})
_PROBE_BYTES = 1 << 18
# Values in memory take some twenty times the bytes of their text.
_LARGEST_JSON = 1 << 25


def check_writable(path: Path) -> None:
    """Make the directory that `path` is to stand in; `UsageError` if it can't become a file there.

    Long work calls this before it begins.
    """
    if path.is_dir():
        raise UsageError(f"{path}: is a directory, a file is to be written")
    make_parent(path)
    with scratch_directory(path.parent, path):
        pass


def make_parent(path: Path) -> None:
    """Make the directory that `path` is to stand in; `UsageError` if it can't be made."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{path}: can't be written: {error.strerror}") from None


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Give a temporary path beside `path`; rename it to `path` if the block ends without an error.

    The temporary file has the name of `path`, in a directory of its own, so that writers that look at
    names do the same as for the final one. That directory is removed, whatever happens; a disk that
    is full is a `DataError`, whatever the writer raised.
    """
    path = Path(path)
    if path.is_dir():
        raise UsageError(f"{path}: is a directory, a file is to be written")
    make_parent(path)
    with scratch_directory(path.parent, path) as directory, full_disk_told(path, directory):
        temporary = directory / path.name
        yield temporary
        temporary.replace(path)


@contextmanager
def full_disk_told(path: Path, directory: Path) -> Iterator[None]:
    """Raise `DataError` for an error in the block if nothing more can be written to `directory`.

    Many libraries have errors of their own for a full disk: that it is full is seen by trying.
    """
    try:
        yield
    except BigBirdDnaError:
        raise
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise DataError(f"{path}: can't be written: {error.strerror}") from None
        _raise_if_full(path, directory)
        raise
    except Exception:
        _raise_if_full(path, directory)
        raise


def _raise_if_full(path: Path, directory: Path) -> None:
    try:
        with (directory / ".probe").open("wb") as stream:
            stream.write(bytes(_PROBE_BYTES))
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise DataError(f"{path}: can't be written: {error.strerror}") from None


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

    What a library raises on a damaged file is often not told: `Exception` stands for all of it, and the
    block then holds nothing but calls of that library.
    """
    told: tuple[type[Exception], ...] = (OSError, *errors)
    try:
        yield
    except (BigBirdDnaError, MemoryError):
        raise
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except RecursionError:
        raise DataError(f"{path}: {fault}: it is nested too deeply") from None
    except told as error:
        raise DataError(f"{path}: {fault}: {error_text(error)}") from None


def read_json(path: Path) -> Any:
    """Read a JSON file; a missing or malformed one raises `DataError` with its name."""
    path = Path(path)
    # Neither UTF-8 nor JSON, or a number of thousands of digits: all are values that won't do.
    with reading(path, "not readable as JSON", ValueError):
        if path.stat().st_size > _LARGEST_JSON:
            raise DataError(f"{path}: has more than {_LARGEST_JSON >> 20} MB, no description of ours has")
        return json.loads(path.read_text(encoding="utf-8"))


def checksum(path: Path, algorithm: str = "sha256") -> str:
    """Hexadecimal digest of a file's bytes."""
    with Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, algorithm).hexdigest()
