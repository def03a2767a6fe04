"""Files that appear whole or not at all, and checksums."""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bigbird_dna.errors import DataError, UsageError

if TYPE_CHECKING:  # slow to import: inside the function
    from numpy.typing import NDArray


def check_writable(path: Path, *, directory: bool = False) -> None:
    """Make the directory that `path` is to stand in; `UsageError` if it can't become a file there.

    With `directory`, if it can't become a directory. Long work calls this before it begins.
    """
    if path.exists() and path.is_dir() != directory:
        is_, wanted = ("file", "directory") if directory else ("directory", "file")
        raise UsageError(f"{path}: is a {is_}, a {wanted} is to be written")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise UsageError(f"{path}: can't be written: {error.strerror}") from None


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Give a temporary path beside `path`; rename it to `path` if the block ends without an error.

    The temporary name keeps the suffixes of `path`, so that writers that look at them do the same as
    for the final name. Anything left under the temporary name after an error is removed.
    """
    path = Path(path)
    check_writable(path)
    temporary = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def atomic_directory(path: Path) -> Iterator[Path]:
    """Give an empty directory beside `path`; it takes the place of `path` if the block ends well."""
    path = Path(path)
    check_writable(path, directory=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    temporary.chmod(0o755)
    try:
        yield temporary
        if path.exists():
            outgoing = temporary.with_name(temporary.name + ".old")
            path.rename(outgoing)
            temporary.rename(path)
            shutil.rmtree(outgoing)
        else:
            temporary.rename(path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON, whole or not at all."""
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def write_array(path: Path, values: "NDArray[Any]") -> None:
    """Write an array as `.npy`, whole or not at all."""
    import numpy as np

    with atomic_path(path) as temporary, temporary.open("wb") as stream:
        np.save(stream, values)


def read_json(path: Path) -> Any:
    """Read a JSON file; a missing or malformed one raises `DataError` with its name."""
    try:
        return json.loads(Path(path).read_text())
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise DataError(f"{path}: not readable as JSON: {error}") from None


def checksum(path: Path, algorithm: str = "sha256") -> str:
    """Hexadecimal digest of a file's bytes."""
    with Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, algorithm).hexdigest()
