"""What a server answered, believed only where it can be true, and the bytes of a download so far.

They are kept when it is cut, and written by one process at a time.
"""

import email.utils
import errno
import fcntl
import json
import os
import re
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from email.message import Message
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple

from bigbird_dna.console import log
from bigbird_dna.disk.atomic import checksum, write_json
from bigbird_dna.disk.compression import open_bytes
from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.genome.sources.http_request import Cut, DownloadError, HttpResponse, one_line, refused

_NUMBER = re.compile(r"[0-9]{1,15}")
_RANGE = re.compile(r"bytes ([0-9]{1,15})-([0-9]{1,15})/([0-9]{1,15}|\*)")
_LONGEST_MARK = 1000
_PAGE = re.compile(rb"(\xef\xbb\xbf)?\s*(<!doctype\s+html|<html|<head|<\?xml)", re.IGNORECASE)
GZIP_NAMES = (".gz", ".tgz", ".bgz")


class Version(NamedTuple):
    """What a server says of its file; `None` where it says nothing."""

    mark: str | None = None  # its ETag or Last-Modified
    total: int | None = None  # bytes


class Body(NamedTuple):
    """The part of a file that an answer brings."""

    start: int  # bytes of the file before it
    version: Version
    ends: bool  # whether a connection that is cut can be distinguished from the end


def read_answer(answer: HttpResponse, have: int, version: Version, file: str) -> Body:
    """Check an answer to a request for what comes after `have` bytes of a version; `DownloadError` or `Cut`
    if it is none.
    """
    status, headers = answer.status, answer.headers
    if status not in (HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT):
        raise refused(status, _retry_after(headers))
    _check_encoding(headers, file)
    chunked = headers.get("Transfer-Encoding") is not None
    # Chunks say where they end, and a length beside them means nothing.
    length = None if chunked else _length(headers)
    mark = _mark(headers)
    if status == HTTPStatus.OK:
        return Body(0, Version(mark, length), chunked or length is not None)
    stated = headers.get("Content-Range", "")
    found = _RANGE.fullmatch(stated)
    if not have or found is None or int(found[1]) != have:
        raise DownloadError(
            f"it sent another part of the file than asked for ({one_line(stated) or 'no Content-Range'})"
        )
    end = int(found[2]) + 1
    total = end if found[3] == "*" else int(found[3])
    if not have < end <= total or (length is not None and length != end - have):
        raise DownloadError(f"it contradicts itself: Content-Range {stated}, Content-Length {length}")
    new = Version(mark, total)
    # An answer with the rest may leave the mark out.
    if any(None not in (old, now) and old != now for old, now in zip(version, new, strict=True)):
        raise OtherVersion("the file has changed since its first part came")
    return Body(have, Version(mark or version.mark, total), True)


class OtherVersion(Cut):
    """What is there of the file is of no use any more."""


def is_complete(headers: Message, have: int, version: Version) -> bool:
    """Whether an answer that there is nothing after `have` bytes says that these are the whole file."""
    found = re.fullmatch(r"bytes \*/([0-9]{1,15})", headers.get("Content-Range", ""))
    return found is not None and int(found[1]) == have and version.total in (None, have)


def _mark(headers: Message) -> str | None:
    """The server's mark of the file's version, its ETag or Last-Modified."""
    mark = headers.get("ETag") or headers.get("Last-Modified")
    # A weak ETag (W/"…") doesn't promise the same bytes.
    if mark is not None and mark.startswith("W/"):
        mark = headers.get("Last-Modified")
    return mark if mark is not None and is_mark(mark) else None


def is_mark(mark: str) -> bool:
    """Whether a text can be sent back to a server as a mark."""
    return mark.isascii() and mark.isprintable() and 0 < len(mark) <= _LONGEST_MARK


def is_page(start: bytes) -> bool:
    """Whether a file that should hold data begins as a web page does."""
    return _PAGE.match(start) is not None


def _length(headers: Message) -> int | None:
    lengths = {length.strip() for length in headers.get_all("Content-Length", [])}
    if not lengths:
        return None
    length = min(lengths)
    if len(lengths) > 1 or not _NUMBER.fullmatch(length):
        raise DownloadError(
            f"it says no possible length: Content-Length {one_line(', '.join(sorted(lengths)))!r}"
        )
    return int(length)


def _check_encoding(headers: Message, file: str) -> None:
    transfer = headers.get("Transfer-Encoding", "chunked").strip().lower()
    if transfer != "chunked":
        raise DownloadError(f"it sends the file in a way that isn't understood: {one_line(transfer)!r}")
    encodings = [one.strip().lower() for one in headers.get("Content-Encoding", "").split(",")]
    # Some servers say so of files that are compressed themselves, and send them as they are.
    ours = ("", "identity", "gzip", "x-gzip") if file.endswith(GZIP_NAMES) else ("", "identity")
    if not all(encoding in ours for encoding in encodings):
        raise DownloadError(
            f"it sends the file compressed ({one_line(', '.join(encodings))}), which wasn't asked for"
        )


def _retry_after(headers: Message) -> float | None:
    """Seconds that a server asks to wait, as a number or a date; `None` if it doesn't."""
    value = headers.get("Retry-After", "").strip()
    if _NUMBER.fullmatch(value):
        return float(value)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


_GZIP_MAGIC = b"\x1f\x8b"
_TAR_END = bytes(1024)
_CHUNK = 1 << 20
_HEAD = 512


def find_fault(path: Path, file: str, published: str | None) -> str | None:
    """What is wrong with a copy of a file that was published by the name `file`; `None` for a good one.

    Without its `published` checksum ("md5:…") a gzip file is read to its end, which shows where it was cut or
    damaged; plain text shows nothing (`shows_its_end`).
    """
    with path.open("rb") as stream:
        start = stream.read(_HEAD)
    if published is not None:
        algorithm, expected = published.split(":")
        found = checksum(path, algorithm)
        return None if found == expected else f"its {algorithm} is {found}, not {expected} as published"
    if not start:
        return "it is empty"
    if is_page(start):
        return "it is a web page"
    is_gzip = start.startswith(_GZIP_MAGIC)
    if is_gzip != file.endswith(GZIP_NAMES):
        return "it is a gzip file" if is_gzip else "it is not a gzip file"
    return _gzip_fault(path, file) if is_gzip else None


def shows_its_end(file: str) -> bool:
    """Whether a file of this name shows that it is whole, even where nobody published its checksum."""
    return file.endswith(GZIP_NAMES)


def _gzip_fault(path: Path, file: str) -> str | None:
    tail, first = b"", True
    try:
        with open_bytes(path) as stream:
            while chunk := stream.read(_CHUNK):
                if first and chunk.startswith(_GZIP_MAGIC):
                    return "it is compressed twice"
                first = False
                tail = (tail + chunk)[-len(_TAR_END) :]
    except DataError as error:
        return str(error).removeprefix(f"{path}: ")
    # Members of a gzip file may end where a tar archive doesn't.
    if file.endswith((".tar.gz", ".tgz")) and tail != _TAR_END:
        return "truncated: the tar archive's end is missing"
    return None


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
        self.marks = path.with_name(f"{path.name}.json")
        self.size = os.fstat(descriptor).st_size
        self._descriptor = descriptor
        self._whole = whole

    def resume(self, url: str, *, any_server: bool) -> tuple[int, Version]:
        """How many bytes an attempt can go on from, and of which version at this address they are.

        With `any_server` bytes from another address will do.
        """
        marks = read_marks(self.marks)
        if not self.size or marks is None or marks.whole != self._whole:
            return 0, Version()
        version = Version(marks.mark, marks.total) if marks.url == url else Version()
        return (self.size, version) if any_server or version.mark is not None else (0, Version())

    def begin(self, have: int, url: str, version: Version) -> None:
        """Get ready for the bytes after the first `have`, which stay."""
        # First the bytes: those of one version never stand beside the mark of another.
        self.clear(have)
        write_json(self.marks, Marks(self._whole, url, *version)._asdict())

    def write(self, chunk: bytes) -> None:
        """Append bytes; a disk that takes no more is a `DataError`."""
        left = memoryview(chunk)
        with self._faults():
            while left:
                written = os.write(self._descriptor, left)
                self.size += written
                left = left[written:]

    def clear(self, have: int = 0) -> None:
        """Forget all bytes but the first `have`."""
        with self._faults():
            os.ftruncate(self._descriptor, have)
            os.lseek(self._descriptor, have, os.SEEK_SET)
        self.size = have

    def finish(self, output: Path) -> None:
        """Give the file its final name."""
        with self._faults():
            os.fsync(self._descriptor)
            if not _is_at(self.path, self._descriptor):
                raise DataError(f"{self.path}: was removed or replaced while it was written")
            self.path.replace(output)
        self.marks.unlink(missing_ok=True)

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
    part = Part(path, descriptor, whole)
    try:
        yield part
    finally:
        # Under the lock, or it might be another process's by now.
        with suppress(OSError):
            if os.fstat(descriptor).st_size == 0 and _is_at(path, descriptor):
                path.unlink()
                part.marks.unlink(missing_ok=True)
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
