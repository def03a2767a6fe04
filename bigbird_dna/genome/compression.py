"""Reading plain, gzip and bgzip files alike; the content decides, not the name."""

import gzip
import io
import os
import stat
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, Any, Literal, cast

from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.genome.fields import CONTROL_BYTES, control_character

STDIN = Path("standard input")
"""What messages call standard input."""

LONGEST_LINE = 1 << 24
"""Bytes of a line of a table."""

_BLOCK = 1 << 16  # bytes read at a time
_NOT_IN_LINES = CONTROL_BYTES.replace(b"\n", b"")
_NOT_IN_TEXT = _NOT_IN_LINES.replace(b"\r", b"")

Compression = Literal["plain", "gzip", "bgzip"]

# An empty BGZF block ends every complete bgzip file.
_BGZIP_END = bytes.fromhex("1f8b08040000000000ff0600424302001b0003000000000000000000")
_FOREIGN = {b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd", b"PK\x03\x04": "zip"}


def compression(path: Path) -> Compression:
    """How a file is compressed, by its first bytes.

    Raises
    ------
    DataError
        The file is missing, not readable, empty, no file (but a directory, pipe or device), or compressed in
        another way.
    """
    handle = open_handle(path)
    try:
        return compression_of(path, os.pread(handle, 18, 0))
    except OSError as error:
        raise DataError(f"{path}: can't be read: {error.strerror}") from None
    finally:
        os.close(handle)


def open_handle(path: Path) -> int:
    """A file's descriptor; errors as of `compression`, of an empty file none.

    A pipe is refused: what was read of it to see what it holds is gone, and nobody may be writing to it.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except (OSError, ValueError) as error:  # a name with a NUL
        raise DataError(f"{path}: can't be read: {getattr(error, 'strerror', error)}") from None
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        return handle
    os.close(handle)
    what = "directory" if stat.S_ISDIR(mode) else "pipe or a device"
    raise DataError(f"{path}: is a {what}, not a file")


def compression_of(path: Path, start: bytes) -> Compression:
    """How a file that begins with `start`, 18 bytes, is compressed; errors as of `compression`."""
    if not start:
        raise DataError(f"{path}: the file is empty")
    for magic, name in _FOREIGN.items():
        if start.startswith(magic):
            raise DataError(f"{path}: compressed with {name}; only gzip and bgzip are read")
    if not start.startswith(b"\x1f\x8b"):
        return "plain"
    has_extra_field = len(start) > 3 and bool(start[3] & 4)
    return "bgzip" if has_extra_field and start[12:14] == b"BC" else "gzip"


@contextmanager
def open_bytes(path: Path) -> Iterator[IO[bytes]]:
    """Open a plain, gzip or bgzip file for reading its uncompressed bytes.

    Raises
    ------
    DataError
        As `compression` does; or, while reading, that the file is truncated or damaged. A bgzip
        file without its end-of-file block counts as truncated.
    """
    kind = compression(path)
    if kind == "bgzip":
        require_end_block(path)
    with _damage_told(path, kind), path.open("rb") if kind == "plain" else gzip.open(path, "rb") as stream:
        yield cast(IO[bytes], stream)


@contextmanager
def open_stdin() -> Iterator[IO[bytes]]:
    """The uncompressed bytes of standard input, plain, gzip or bgzip, as they come in.

    `read(n)` gives what is there, at most n bytes. Faults are those of `open_bytes`, of `STDIN`.

    Raises
    ------
    UsageError
        Standard input is a terminal.
    """
    refuse_terminal()
    # One of our own around it would wait until its buffer is full.
    inner: Any = sys.stdin.buffer
    buffered = inner if hasattr(inner, "peek") else io.BufferedReader(inner)
    try:
        kind = compression_of(STDIN, buffered.peek(18)[:18])
        with _damage_told(STDIN, kind):
            if kind == "plain":
                yield cast(IO[bytes], _AsItComes(buffered))
            else:
                with gzip.GzipFile(fileobj=buffered) as stream:
                    yield cast(IO[bytes], _AsItComes(stream))
    finally:
        if buffered is not inner:
            buffered.detach()  # closing it would close standard input


def refuse_terminal() -> None:
    """`UsageError` if standard input is a terminal, where one would wait for ever."""
    if sys.stdin.isatty():
        raise UsageError("'-' reads from standard input, which is a terminal: pipe a file in")


class _AsItComes:
    """A stream whose `read` doesn't wait for more than there is."""

    def __init__(self, stream: Any) -> None:
        self.peek = stream.peek
        self.read = stream.read1


@contextmanager
def _damage_told(path: Path, kind: Compression) -> Iterator[None]:
    try:
        yield
    except EOFError:
        raise DataError(f"{path}: truncated: the {kind} stream ends too early") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path}: damaged {kind} file: {error}") from None


def read_lines(path: Path, stream: IO[bytes] | None = None) -> Iterator[tuple[int, str]]:
    """Lines of a text file without their ends (LF or CRLF), numbered from 1.

    Parameters
    ----------
    stream
        Its bytes, where they were opened already: `path` is what messages call them.

    Raises
    ------
    DataError
        As `open_bytes` and `numbered_lines`; or the file isn't UTF-8.
    """
    number = 0
    with open_bytes(path) if stream is None else nullcontext(stream) as opened:
        for number, block in _whole_lines(path, opened, LONGEST_LINE, 1):
            try:
                text = block.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                number += block.count(b"\n", 0, error.start)
                raise DataError(f"{path}: line {number}: not a text file (UTF-8)") from None
            lines = text.split("\n")
            if not text.isascii():
                for place, line in enumerate(lines, start=number):
                    if found := control_character(line.replace("\t", " ")):
                        raise DataError(f"{path}: line {place}: a control character ({found})")
            yield from enumerate(lines, start=number)


def numbered_lines(
    path: Path, stream: IO[bytes], longest: int = LONGEST_LINE, first: int = 1
) -> Iterator[tuple[int, bytes]]:
    """Lines of a stream without their ends (LF or CRLF), the next one numbered `first`.

    Raises
    ------
    DataError
        A line has more than `longest` bytes, or a control character that is no tab.
    """
    for number, block in _whole_lines(path, stream, longest, first):
        yield from enumerate(block.split(b"\n"), start=number)


def _whole_lines(path: Path, stream: IO[bytes], longest: int, number: int) -> Iterator[tuple[int, bytes]]:
    """Checked lines of a stream, many at a time with LF between them, and the number of the first."""
    carry = b""
    at_end = False
    while not at_end:
        more = stream.read(max(_BLOCK, len(carry)))
        at_end = not more
        block = carry + more
        cut = len(block) if at_end else block.rfind(b"\n") + 1
        block, carry = block[:cut], block[cut:]
        if len(carry) > longest or len(carry.translate(None, _NOT_IN_TEXT)) != len(carry):
            block, carry = block + carry, b""  # to be refused, after the lines before
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
            raise DataError(f"{path}: line {number}: a line of more than {longest:,} bytes")
        if len(line.translate(None, CONTROL_BYTES)) != len(line):
            found = next(byte for byte in line if byte in CONTROL_BYTES)
            raise DataError(f"{path}: line {number}: not a text file: a control character (U+{found:04X})")


def require_end_block(path: Path) -> None:
    """Raise `DataError` if a bgzip file is cut, which its reader may notice late or never."""
    with path.open("rb") as stream:
        size = stream.seek(0, io.SEEK_END)
        stream.seek(max(0, size - len(_BGZIP_END)))
        if stream.read() != _BGZIP_END:
            raise DataError(f"{path}: truncated: bgzip's end-of-file block is missing")
