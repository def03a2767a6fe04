"""Read plain, gzip and bgzip files and their lines of text; the compression is detected from the content."""

import gzip
import io
import re
import stat
import sys
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Literal, cast

from bigbird_dna.errors import DataError, UsageError

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_NOT_IN_TEXT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")  # but tab and LF
_BLOCK_BYTES = 1 << 16

Compression = Literal["plain", "gzip", "bgzip"]

# An empty BGZF block ends every complete bgzip file.
_BGZIP_END = bytes.fromhex("1f8b08040000000000ff0600424302001b0003000000000000000000")
_FOREIGN = {
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"PK\x03\x04": "zip",
}


def control_character(text: str) -> str | None:
    """Return the first control or line-separator character of a text as `U+000A`, or None."""
    found = _CONTROL.search(text)
    return None if found is None else f"U+{ord(found[0]):04X}"


def compression(path: Path) -> Compression:
    """Return the compression of a file, by its first bytes.

    `DataError` if it is missing, unreadable, empty, compressed in another way, or not a regular file.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            what = "directory" if path.is_dir() else "pipe or a device"
            raise DataError(f"{path}: must be a file, not a {what}")
        with path.open("rb") as stream:
            return compression_of(path, stream.read(18))
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except (OSError, ValueError) as error:  # a name with a NUL
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path}: cannot read the file: {reason}") from None


def compression_of(path: Path, start: bytes) -> Compression:
    """Return the compression of a file by its first 18 bytes, `start`; errors as in `compression`."""
    if not start:
        raise DataError(f"{path}: the file is empty")
    for magic, name in _FOREIGN.items():
        if start.startswith(magic):
            office = (
                " (is this a Word or Excel file? save it as plain text)"
                if name == "zip"
                else ""
            )
            raise DataError(
                f"{path}: {name} compression is not supported; use gzip or bgzip{office}"
            )
    if not start.startswith(b"\x1f\x8b"):
        return "plain"
    has_extra_field = len(start) > 3 and bool(start[3] & 4)
    return "bgzip" if has_extra_field and start[12:14] == b"BC" else "gzip"


@contextmanager
def open_bytes(path: Path) -> Iterator[IO[bytes]]:
    """Open a plain, gzip or bgzip file to read its uncompressed bytes.

    Errors are those of `compression`, and during reading that the file is truncated or damaged. A bgzip file
    without its end-of-file block is truncated.
    """
    kind = compression(path)
    if kind == "bgzip":
        require_end_block(path)
    with (
        _damage_named(path, kind),
        path.open("rb") if kind == "plain" else _open_gzip(path) as stream,
    ):
        yield cast(IO[bytes], stream)


def _open_gzip(path: Path) -> io.BufferedReader:
    # Lines are read in C, unlike those of `GzipFile`.
    return io.BufferedReader(gzip.GzipFile(path), 1 << 20)


def refuse_terminal() -> None:
    """Raise `UsageError` if standard input is a terminal, where reading would wait forever."""
    if sys.stdin.isatty():
        raise UsageError(
            "'-' reads standard input, which is a terminal; pipe a file into the command"
        )


@contextmanager
def _damage_named(path: Path, kind: Compression) -> Iterator[None]:
    try:
        yield
    except EOFError:
        raise DataError(
            f"{path}: the file is truncated: the {kind} stream ends too early"
        ) from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path}: the {kind} file is damaged: {error}") from None


def read_lines(path: Path) -> Generator[tuple[int, str], None, None]:
    """Yield the lines of a text file without LF or CRLF, numbered from 1.

    Errors are those of `open_bytes`, and a line that is not UTF-8 or has a control character but tabs.
    """
    number = 1
    with open_bytes(path) as stream:
        while block := stream.readlines(_BLOCK_BYTES):  # decoded and checked at once
            raw = b"".join(block)
            try:
                text = raw.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                number += raw.count(b"\n", 0, error.start)
                raise DataError(
                    f"{path}: line {number}: the file is not text (UTF-8)"
                ) from None
            text = text.removesuffix("\n").removesuffix("\r").replace("\r\n", "\n")
            if found := _NOT_IN_TEXT.search(text):
                number += text.count("\n", 0, found.start())
                raise DataError(
                    f"{path}: line {number}: not text: contains a control character (U+{ord(found[0]):04X})"
                )
            yield from enumerate(text.split("\n"), start=number)
            number += len(block)


def require_end_block(path: Path) -> None:
    """Raise `DataError` if a bgzip file is truncated, which readers may detect late or never."""
    with path.open("rb") as stream:
        size = stream.seek(0, io.SEEK_END)
        stream.seek(max(0, size - len(_BGZIP_END)))
        if stream.read() != _BGZIP_END:
            raise DataError(
                f"{path}: the file is truncated: bgzip's end-of-file block is missing"
            )
