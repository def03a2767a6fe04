"""What a server answered, believed only where it can be true, and whether a file is complete."""

import email.utils
import re
import time
from email.message import Message
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple

from bigbird_dna.disk.atomic import checksum
from bigbird_dna.disk.compression import open_bytes
from bigbird_dna.errors import DataError
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
