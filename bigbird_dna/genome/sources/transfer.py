"""Check a server's response for consistency, and keep the bytes of a download so far.

The bytes are kept when a download is interrupted. Only one process at a time writes them.
"""

import email.utils
import errno
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

from bigbird_dna.disk.atomic import checksum, lock_file, move, write_json
from bigbird_dna.disk.compression import open_bytes
from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.genome.sources.http_request import (
    Cut,
    DownloadError,
    HttpResponse,
    one_line,
    refused,
)

_NUMBER = re.compile(r"[0-9]{1,15}")
_RANGE = re.compile(r"bytes ([0-9]{1,15})-([0-9]{1,15})/([0-9]{1,15}|\*)")
_LONGEST_MARK = 1000
_PAGE = re.compile(
    rb"(\xef\xbb\xbf)?\s*(<!doctype\s+html|<html|<head|<\?xml)", re.IGNORECASE
)
GZIP_NAMES = (".gz", ".tgz", ".bgz")


class Version(NamedTuple):
    """A server's description of its file; None if not given."""

    mark: str | None = None  # the file's ETag or Last-Modified
    total: int | None = None  # bytes


class Body(NamedTuple):
    """The part of a file in a response."""

    start: int  # position in the file
    version: Version
    ends: bool  # whether an interrupted connection can be distinguished from the end


def read_answer(answer: HttpResponse, have: int, version: Version, file: str) -> Body:
    """Check a response with the bytes of a version after `have`; raise `DownloadError` or `Cut`."""
    status, headers = answer.status, answer.headers
    if status not in (HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT):
        raise refused(status, _retry_after(headers))
    _check_encoding(headers, file)
    chunked = headers.get("Transfer-Encoding") is not None
    # Chunked responses mark their end, and an additional length has no meaning.
    length = None if chunked else _length(headers)
    mark = _mark(headers)
    if status == HTTPStatus.OK:
        return Body(0, Version(mark, length), chunked or length is not None)
    stated = headers.get("Content-Range", "")
    found = _RANGE.fullmatch(stated)
    if not have or found is None or int(found[1]) != have:
        raise DownloadError(
            f"it sent another part of the file than requested ({one_line(stated) or 'no Content-Range'})"
        )
    end = int(found[2]) + 1
    total = end if found[3] == "*" else int(found[3])
    if not have < end <= total or (length is not None and length != end - have):
        raise DownloadError(
            f"the response is inconsistent: Content-Range {stated}, Content-Length {length}"
        )
    new = Version(mark, total)
    # A response with the rest may omit the mark.
    if any(
        None not in (old, now) and old != now
        for old, now in zip(version, new, strict=True)
    ):
        raise OtherVersion("the file has changed since its first part was received")
    return Body(have, Version(mark or version.mark, total), True)


class OtherVersion(Cut):
    """The received part belongs to another version of the file and cannot be used."""


def is_complete(headers: Message, have: int, version: Version) -> bool:
    """Return whether a response to a request for bytes after `have` confirms that the file is complete."""
    found = re.fullmatch(r"bytes \*/([0-9]{1,15})", headers.get("Content-Range", ""))
    return found is not None and int(found[1]) == have and version.total in (None, have)


def _mark(headers: Message) -> str | None:
    """Return the server's mark of the file's version: its ETag or Last-Modified."""
    mark = headers.get("ETag") or headers.get("Last-Modified")
    # A weak ETag (W/"…") does not guarantee the same bytes.
    if mark is not None and mark.startswith("W/"):
        mark = headers.get("Last-Modified")
    return mark if mark is not None and is_mark(mark) else None


def is_mark(mark: str) -> bool:
    """Return whether a text can be sent back to a server as a mark."""
    return mark.isascii() and mark.isprintable() and 0 < len(mark) <= _LONGEST_MARK


def is_page(start: bytes) -> bool:
    """Return whether a file that should contain data begins like a web page."""
    return _PAGE.match(start) is not None


def _length(headers: Message) -> int | None:
    lengths = {length.strip() for length in headers.get_all("Content-Length", [])}
    if not lengths:
        return None
    length = min(lengths)
    if len(lengths) > 1 or not _NUMBER.fullmatch(length):
        raise DownloadError(
            f"invalid length: Content-Length {one_line(', '.join(sorted(lengths)))!r}"
        )
    return int(length)


def _check_encoding(headers: Message, file: str) -> None:
    transfer = headers.get("Transfer-Encoding", "chunked").strip().lower()
    if transfer != "chunked":
        raise DownloadError(f"unsupported transfer encoding: {one_line(transfer)!r}")
    encodings = [
        one.strip().lower() for one in headers.get("Content-Encoding", "").split(",")
    ]
    # Some servers give this header for files that are compressed themselves, and send them unchanged.
    ours = (
        ("", "identity", "gzip", "x-gzip")
        if file.endswith(GZIP_NAMES)
        else ("", "identity")
    )
    if not all(encoding in ours for encoding in encodings):
        raise DownloadError(
            f"the server sends the file compressed ({one_line(', '.join(encodings))}) without a request"
        )


def _retry_after(headers: Message) -> float | None:
    """Return the seconds that a server asks to wait, given as a number or a date; None if not given."""
    value = headers.get("Retry-After", "").strip()
    if _NUMBER.fullmatch(value):
        return float(value)
    try:
        return max(
            0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time()
        )
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


_GZIP_MAGIC = b"\x1f\x8b"
_TAR_END = bytes(1024)
_CHUNK = 1 << 20
_HEAD = 512


def find_fault(path: Path, file: str, published: str | None) -> str | None:
    """Return the fault of a copy of a file that was published under the name `file`; None for a good copy.

    Without its `published` checksum ("md5:…"), a gzip file is read to its end, which detects truncation and
    damage. Plain text cannot be checked (`shows_its_end`).
    """
    with path.open("rb") as stream:
        start = stream.read(_HEAD)
    if published is not None:
        algorithm, expected = published.split(":")
        found = checksum(path, algorithm)
        return (
            None
            if found == expected
            else f"its {algorithm} is {found}, expected {expected}"
        )
    if not start:
        return "the file is empty"
    if is_page(start):
        return "the file is a web page"
    is_gzip = start.startswith(_GZIP_MAGIC)
    if is_gzip != file.endswith(GZIP_NAMES):
        return "the file is gzip, expected plain" if is_gzip else "the file is not gzip"
    return _gzip_fault(path, file) if is_gzip else None


def shows_its_end(file: str) -> bool:
    """Return whether completeness of a file with this name can be checked without a published checksum."""
    return file.endswith(GZIP_NAMES)


def _gzip_fault(path: Path, file: str) -> str | None:
    tail, first = b"", True
    try:
        with open_bytes(path) as stream:
            while chunk := stream.read(_CHUNK):
                if first and chunk.startswith(_GZIP_MAGIC):
                    return "the file is compressed twice"
                first = False
                tail = (tail + chunk)[-len(_TAR_END) :]
    except DataError as error:
        return str(error).removeprefix(f"{path}: ")
    # A gzip file may end after a member although the tar archive is incomplete.
    if file.endswith((".tar.gz", ".tgz")) and tail != _TAR_END:
        return "the file is truncated: the end of the tar archive is missing"
    return None


SUFFIX = ".fetch.part"
_LONGEST_MARKS = 1 << 16  # bytes


class Marks(NamedTuple):
    """Origin of the bytes of a part."""

    whole: str  # the file of which they are a part
    url: str
    mark: str | None  # of the version at this address
    total: int | None  # bytes of this version


class Part:
    """`FILE.fetch.part` and, in a `.json` next to it, its `Marks`; this process has locked them."""

    def __init__(self, path: Path, descriptor: int, whole: str) -> None:
        self.path = path
        self.marks = path.with_name(f"{path.name}.json")
        self.size = os.fstat(descriptor).st_size
        self._descriptor = descriptor
        self._whole = whole

    def resume(self, url: str, *, any_server: bool) -> tuple[int, Version]:
        """Return how many bytes an attempt can resume from, and their version at this address.

        With `any_server`, bytes from another address can be used.
        """
        marks = read_marks(self.marks)
        if not self.size or marks is None or marks.whole != self._whole:
            return 0, Version()
        version = Version(marks.mark, marks.total) if marks.url == url else Version()
        return (
            (self.size, version)
            if any_server or version.mark is not None
            else (0, Version())
        )

    def begin(self, have: int, url: str, version: Version) -> None:
        """Prepare for the bytes after the first `have`, which are kept."""
        # Bytes are removed first, so that bytes of one version are never combined with the mark of another.
        self.clear(have)
        write_json(self.marks, Marks(self._whole, url, *version)._asdict())

    def write(self, chunk: bytes) -> None:
        """Append bytes; `DataError` if the disk is full."""
        left = memoryview(chunk)
        with self._faults():
            while left:
                written = os.write(self._descriptor, left)
                self.size += written
                left = left[written:]

    def clear(self, have: int = 0) -> None:
        """Discard all bytes but the first `have`."""
        with self._faults():
            os.ftruncate(self._descriptor, have)
            os.lseek(self._descriptor, have, os.SEEK_SET)
        self.size = have

    def finish(self, output: Path) -> None:
        """Rename the file to its final name."""
        with self._faults():
            os.fsync(self._descriptor)
            if not _is_at(self.path, self._descriptor):
                raise DataError(
                    f"{self.path}: the file was removed or replaced while it was written"
                )
            move(self.path, output)
        self.marks.unlink(missing_ok=True)

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            left = f"; its {self.size:,} bytes are kept, and the next fetch resumes from them"
            raise DataError(
                f"{self.path}: cannot write the file: {error.strerror}{left if self.size else ''}"
            ) from None


def check_room(output: Path, size: int) -> None:
    """Raise `DataError` if the disk of `output` does not have room for `size` more bytes."""
    usage = shutil.disk_usage(output.parent)
    if usage.total and size > usage.free:
        raise DataError(
            f"{output}: {size / 1e6:,.1f} MB needed, {usage.free / 1e6:,.1f} MB free on its disk"
        )


@contextmanager
def open_part(output: Path, whole: str) -> Iterator[Part]:
    """Yield the part file of an output, with the bytes that an earlier download of the file `whole` left.

    An empty part file is removed at the end; received bytes are always kept. `DataError` if another process
    is writing the file.
    """
    path = output.with_name(f"{output.name}{SUFFIX}")
    descriptor = _lock(path)
    part = Part(path, descriptor, whole)
    try:
        yield part
    finally:
        # Only while locked, because another process could use the file later.
        with suppress(OSError):
            if os.fstat(descriptor).st_size == 0 and _is_at(path, descriptor):
                path.unlink()
                part.marks.unlink(missing_ok=True)
        os.close(descriptor)


def _lock(path: Path) -> int:
    """Open and lock the file of this name, which another process may rename or remove at any time."""
    while True:
        try:
            descriptor = os.open(
                path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666
            )
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
                raise UsageError(
                    f"{path}: not written by an earlier fetch; move it away"
                ) from None
            raise UsageError(
                f"{path}: cannot write the file: {error.strerror}"
            ) from None
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise UsageError(
                    f"{path}: not written by an earlier fetch; move it away"
                )
            if not lock_file(
                descriptor, path, "do not fetch it twice at the same time"
            ):
                raise DataError(
                    f"{path}: another process is fetching this file; wait until it is done"
                )
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
    """Read the marks of a part; return None if they are missing or invalid."""
    try:
        with path.open("rb") as stream:
            marks = Marks(**json.loads(stream.read(_LONGEST_MARKS)))
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    good = (
        isinstance(marks.whole, str)
        and isinstance(marks.url, str)
        and (
            marks.mark is None or (isinstance(marks.mark, str) and is_mark(marks.mark))
        )
        and (marks.total is None or type(marks.total) is int)
    )
    return marks if good else None
