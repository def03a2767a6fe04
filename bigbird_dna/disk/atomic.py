"""Write files so that an interrupted command leaves the old ones whole; read JSON; name faults of files."""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bigbird_dna.errors import BigBirdDnaError, DataError, UsageError, error_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

PREFIX = ".bigbird-dna-"


@contextmanager
def scratch_directory(
    parent: Path | None = None, target: Path | None = None
) -> Iterator[Path]:
    """Yield an empty directory in `parent`, or in the system's temporary directory; remove it after use.

    If `parent` is not writable, the `UsageError` names `target`, or else the parent.
    """
    try:
        directory = tempfile.TemporaryDirectory(
            prefix=PREFIX, dir=parent, ignore_cleanup_errors=True
        )
    except OSError as error:
        raise UsageError(
            f"{target or parent}: cannot write: {error.strerror}"
        ) from None

    with directory as name:
        yield Path(name)


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path; rename it to `path` if the block ends without an error.

    Every output file is written by this function. Through a symbolic link, the file that it leads to is
    replaced, and the link stays. A pipe or device receives the bytes of the complete file. The temporary file
    has the same name as `path`, since writers use the suffix.
    """
    path = Path(path)
    target = link_target(path)
    special = is_special(path)
    if not special:
        if path.is_dir():
            raise UsageError(f"{path}: must be a file, not a directory")

        make_parent(target)

    with scratch_directory(None if special else target.parent, path) as directory:
        temporary = directory / path.name
        yield temporary
        if special:
            with temporary.open("rb") as content, path.open("wb") as stream:
                shutil.copyfileobj(content, stream)
        else:
            temporary.replace(target)


def check_writable(path: Path) -> None:
    """Create the directory of `path`; `UsageError` if `path` cannot be written as a file.

    Call it before long work.
    """
    if is_special(path):
        return

    if path.is_dir():
        raise UsageError(f"{path}: must be a file, not a directory")

    target = link_target(path)
    make_parent(target)
    with scratch_directory(target.parent, path):
        pass


def make_parent(path: Path) -> None:
    """Create the directory of a result; `UsageError` on failure."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{path}: cannot write the file: {error.strerror}") from None


def link_target(path: Path) -> Path:
    """Return the file that a symbolic link leads to, which may not exist yet, or else `path`."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def is_special(path: Path) -> bool:
    """Return whether a path is a pipe or a device, which is written to and never replaced."""
    return path.exists() and not path.is_file() and not path.is_dir()


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
    import pysam

    with quiet_htslib():
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
