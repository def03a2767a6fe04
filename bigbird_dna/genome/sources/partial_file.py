"""The bytes of a download so far: kept when it is cut, and written by one process at a time."""

import errno
import fcntl
import json
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from bigbird_dna.console import log
from bigbird_dna.disk.atomic import write_json
from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.genome.sources.http_response import Version, is_mark

SUFFIX = ".fetch.part"
_LONGEST_MARKS = 1 << 16  # bytes


class Marks(NamedTuple):
    """Where the bytes of a part come from."""

    whole: str  # which file they are to become
    url: str
    mark: str | None  # of the version at that address,
    total: int | None  # and its bytes


class Part:
    """`FILE.fetch.part`, and beside it a `.json` with its `Marks`; this process has them locked."""

    def __init__(self, path: Path, descriptor: int, whole: str) -> None:
        self.path = path
        self.size = os.fstat(descriptor).st_size
        self._descriptor = descriptor
        self._whole = whole

    def resume(self, url: str, *, any_server: bool) -> tuple[int, Version]:
        """How many bytes an attempt can go on from, and of which version at this address they are.

        With `any_server` bytes from another address will do.
        """
        marks = read_marks(_marks_path(self.path))
        if not self.size or marks is None or marks.whole != self._whole:
            return 0, Version()
        version = Version(marks.mark, marks.total) if marks.url == url else Version()
        return (self.size, version) if any_server or version.mark is not None else (0, Version())

    def begin(self, have: int, url: str, version: Version) -> None:
        """Get ready for the bytes after the first `have`, which stay."""
        with self._faults():
            # First the bytes: those of one version never stand beside the mark of another.
            os.ftruncate(self._descriptor, have)
            os.lseek(self._descriptor, have, os.SEEK_SET)
            self.size = have
        write_json(_marks_path(self.path), Marks(self._whole, url, *version)._asdict())

    def write(self, chunk: bytes) -> None:
        """Append bytes; a disk that takes no more is a `DataError`."""
        left = memoryview(chunk)
        with self._faults():
            while left:
                written = os.write(self._descriptor, left)
                self.size += written
                left = left[written:]

    def clear(self) -> None:
        """Forget all bytes."""
        with self._faults():
            os.ftruncate(self._descriptor, 0)
            os.lseek(self._descriptor, 0, os.SEEK_SET)
        self.size = 0

    def finish(self, output: Path) -> None:
        """Give the file its final name."""
        with self._faults():
            os.fsync(self._descriptor)
            if not _is_at(self.path, self._descriptor):
                raise DataError(f"{self.path}: was removed or replaced while it was written")
            self.path.replace(output)
        _marks_path(self.path).unlink(missing_ok=True)

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            left = f"; the {self.size:,} bytes in it stay, and the next fetch goes on from there"
            raise DataError(
                f"{self.path}: can't be written: {error.strerror}{left if self.size else ''}"
            ) from None


def check_room(output: Path, size: int) -> None:
    """`DataError` if so many bytes more don't fit on the disk of `output`."""
    usage = shutil.disk_usage(output.parent)
    if usage.total and size > usage.free:
        raise DataError(
            f"{output}: {size / 1e6:,.1f} MB are to come, and its disk has {usage.free / 1e6:,.1f} MB free"
        )


@contextmanager
def open_part(output: Path, whole: str) -> Iterator[Part]:
    """The part file of an output, with what an earlier download of the file `whole` left in it.

    An empty one is removed in the end; what has come stays, whatever happens. `DataError` if another process
    is writing it.
    """
    path = output.with_name(f"{output.name}{SUFFIX}")
    descriptor = _lock(path)
    try:
        part = Part(path, descriptor, whole)
        yield part
    finally:
        # Under the lock, or it might be another process's by now.
        with suppress(OSError):
            if os.fstat(descriptor).st_size == 0 and _is_at(path, descriptor):
                path.unlink()
                _marks_path(path).unlink(missing_ok=True)
        os.close(descriptor)


def _lock(path: Path) -> int:
    """Open and lock the file of this name, which another process may rename or remove meanwhile."""
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
                raise UsageError(f"{path}: is not a file that an earlier fetch left; move it away") from None
            raise UsageError(f"{path}: can't be written: {error.strerror}") from None
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise UsageError(f"{path}: is not a file that an earlier fetch left; move it away")
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise DataError(
                    f"{path}: another process is fetching this file; wait until it is done"
                ) from None
            except OSError as error:
                log(f"{path}: can't be locked ({error.strerror}): don't fetch this file twice at once")
            if _is_at(path, descriptor):
                return descriptor
            os.close(descriptor)
        except BaseException:
            os.close(descriptor)
            raise


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _marks_path(part: Path) -> Path:
    return part.with_name(f"{part.name}.json")


def read_marks(path: Path) -> Marks | None:
    """The marks of a part; `None` where there are none that can be used."""
    try:
        with path.open("rb") as stream:
            marks = Marks(**json.loads(stream.read(_LONGEST_MARKS)))
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    good = (
        isinstance(marks.whole, str)
        and isinstance(marks.url, str)
        and (marks.mark is None or (isinstance(marks.mark, str) and is_mark(marks.mark)))
        and (marks.total is None or type(marks.total) is int)
    )
    return marks if good else None
