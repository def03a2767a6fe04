"""Read plain, gzip and bgzip files and their lines of text; the compression is detected from the content."""

import gzip
import io
import os
import re
import stat
import sys
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, Any, Literal, cast

from bigbird_dna.errors import DataError, UsageError

STDIN = Path("standard input")  # its name in messages
LONGEST_LINE = 1 << 24  # bytes per line of a table
READ_BYTES = 1 << 16  # bytes per read
# ASCII characters that are not allowed in a line of text.
CONTROL_BYTES = bytes({*range(32), 127} - {ord("\t")})
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_NOT_IN_LINES = CONTROL_BYTES.replace(b"\n", b"")
_NOT_IN_TEXT = _NOT_IN_LINES.replace(b"\r", b"")

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
    handle = open_handle(path)
    try:
        return compression_of(path, os.pread(handle, 18, 0))
    except OSError as error:
        raise DataError(f"{path}: cannot read the file: {error.strerror}") from None
    finally:
        os.close(handle)


def open_handle(path: Path) -> int:
    """Return a file's descriptor; errors as in `compression`, except for an empty file.

    A pipe is an error: bytes read to detect the compression would be lost, and opening it could block.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except (OSError, ValueError) as error:  # a name with a NUL
        raise DataError(
            f"{path}: cannot read the file: {getattr(error, 'strerror', error)}"
        ) from None
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        return handle
    os.close(handle)
    what = "directory" if stat.S_ISDIR(mode) else "pipe or a device"
    raise DataError(f"{path}: must be a file, not a {what}")


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
        path.open("rb") if kind == "plain" else gzip.open(path, "rb") as stream,
    ):
        yield cast(IO[bytes], stream)


@contextmanager
def open_stdin() -> Iterator[IO[bytes]]:
    """Yield the uncompressed bytes of standard input: plain, gzip or bgzip.

    `read(n)` returns the available bytes, at most n. Errors are those of `open_bytes` and `refuse_terminal`.
    """
    refuse_terminal()
    # Another buffered reader around it would wait until its buffer is full.
    inner: Any = sys.stdin.buffer
    buffered = inner if hasattr(inner, "peek") else io.BufferedReader(inner)
    try:
        kind = compression_of(STDIN, buffered.peek(18)[:18])
        with _damage_named(STDIN, kind):
            if kind == "plain":
                yield cast(IO[bytes], _AsItComes(buffered))
            else:
                with gzip.GzipFile(fileobj=buffered) as stream:
                    yield cast(IO[bytes], _AsItComes(stream))
    finally:
        if buffered is not inner:
            buffered.detach()  # closing it would close standard input


def refuse_terminal() -> None:
    """Raise `UsageError` if standard input is a terminal, where reading would wait forever."""
    if sys.stdin.isatty():
        raise UsageError(
            "'-' reads standard input, which is a terminal; pipe a file into the command"
        )


class _AsItComes:
    """A stream whose `read` returns the available bytes without waiting for more."""

    def __init__(self, stream: Any) -> None:
        self.peek = stream.peek
        self.read = stream.read1


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


def read_lines(
    path: Path, stream: IO[bytes] | None = None
) -> Generator[tuple[int, str], None, None]:
    """Yield the lines of a text file, or of its open `stream`, without LF or CRLF, numbered from 1.

    Errors are those of `open_bytes` and `numbered_lines`, and text that is not UTF-8.
    """
    number = 0
    with open_bytes(path) if stream is None else nullcontext(stream) as opened:
        for number, block in _whole_lines(path, opened, LONGEST_LINE, 1):
            try:
                text = block.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                number += block.count(b"\n", 0, error.start)
                raise DataError(
                    f"{path}: line {number}: the file is not text (UTF-8)"
                ) from None
            lines = text.split("\n")
            if not text.isascii():
                for place, line in enumerate(lines, start=number):
                    if found := control_character(line.replace("\t", " ")):
                        raise DataError(
                            f"{path}: line {place}: contains a control character ({found})"
                        )
            yield from enumerate(lines, start=number)


def numbered_lines(
    path: Path, stream: IO[bytes], longest: int = LONGEST_LINE, first: int = 1
) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a stream without LF or CRLF, numbered from `first`.

    `DataError` if a line has more than `longest` bytes or a control character other than tab.
    """
    for number, block in _whole_lines(path, stream, longest, first):
        yield from enumerate(block.split(b"\n"), start=number)


def _whole_lines(
    path: Path, stream: IO[bytes], longest: int, number: int
) -> Iterator[tuple[int, bytes]]:
    """Yield blocks of checked lines separated by LF, with the number of their first line."""
    carry = b""
    at_end = False
    while not at_end:
        more = stream.read(max(READ_BYTES, len(carry)))
        at_end = not more
        block = carry + more
        cut = len(block) if at_end else block.rfind(b"\n") + 1
        block, carry = block[:cut], block[cut:]
        if len(carry) > longest or len(carry.translate(None, _NOT_IN_TEXT)) != len(
            carry
        ):
            block, carry = (
                block + carry,
                b"",
            )  # raises an error after the previous lines
        if not block:
            continue
        lines = block.removesuffix(b"\n").removesuffix(b"\r").replace(b"\r\n", b"\n")
        is_long = len(lines) > longest
        if is_long or len(lines.translate(None, _NOT_IN_LINES)) != len(lines):
            _check_lines(path, lines, longest, number)
        yield number, lines
        number += lines.count(b"\n") + 1


def _check_lines(path: Path, block: bytes, longest: int, first: int) -> None:
    for number, line in enumerate(block.split(b"\n"), start=first):
        if len(line) > longest:
            raise DataError(
                f"{path}: line {number}: the line has more than {longest:,} bytes"
            )
        if len(line.translate(None, CONTROL_BYTES)) != len(line):
            found = next(byte for byte in line if byte in CONTROL_BYTES)
            raise DataError(
                f"{path}: line {number}: not text: contains a control character (U+{found:04X})"
            )


def require_end_block(path: Path) -> None:
    """Raise `DataError` if a bgzip file is truncated, which readers may detect late or never."""
    with path.open("rb") as stream:
        size = stream.seek(0, io.SEEK_END)
        stream.seek(max(0, size - len(_BGZIP_END)))
        if stream.read() != _BGZIP_END:
            raise DataError(
                f"{path}: the file is truncated: bgzip's end-of-file block is missing"
            )
