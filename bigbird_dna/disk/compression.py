"""Read plain, gzip and bgzip files and their lines of text; the compression is detected from the content.

A bgzip file consists of blocks: gzip members of at most 64 KB with their length in the header (section 4.1 of
the SAM specification).
"""

import gzip
import io
import os
import re
import stat
import struct
import sys
import zlib
from array import array
from bisect import bisect_right
from collections.abc import Generator, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple, cast

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


LARGEST = 1 << 16  # maximum bytes of a block, compressed or not
# Magic and flags; time and more flags; length of the extra field; its first member: "BC", 2, and the length
# of the block minus one.
_HEADER = struct.Struct("<4s6xH2sHH")
_START = b"\x1f\x8b\x08\x04"


class Block(NamedTuple):
    """The uncompressed content of a block, and its compressed size in bytes."""

    content: bytes
    packed: int


def unpack(data: bytes, where: str) -> Block:
    """Return the first block of `data`; `DataError` if it is damaged or not a block."""
    magic, _, name, length, last = _HEADER.unpack(
        data[: _HEADER.size].ljust(_HEADER.size)
    )
    if (magic, name, length) != (_START, b"BC", 2):
        raise DataError(f"{where}: the bgzip file is damaged: invalid block header")
    if len(data) <= last:
        raise DataError(f"{where}: the file is truncated: it ends within a bgzip block")
    inflate = zlib.decompressobj(zlib.MAX_WBITS | 16)  # a gzip member with its checksum
    try:
        content = inflate.decompress(data[: last + 1], LARGEST + 1)
    except zlib.error as error:
        raise DataError(f"{where}: the bgzip file is damaged: {error}") from None
    if not inflate.eof or inflate.unused_data or len(content) > LARGEST:
        raise DataError(
            f"{where}: the bgzip file is damaged: a block has not its stated length"
        )
    return Block(content, last + 1)


class BlockIndex:
    """Positions of a file's blocks, as in a `.gzi` file: in the file and in the uncompressed content."""

    def __init__(self) -> None:
        self.packed = array("Q")
        self.content = array("Q")
        self._empty: set[tuple[int, int]] = set()

    def add(self, packed: int, content: int, block: Block) -> None:
        """Add the next block; empty blocks are omitted because they contain no positions."""
        if block.content:
            self.packed.append(packed)
            self.content.append(content)
        else:
            self._empty.add((packed, content))

    def at(self, position: int) -> int:
        """Return the index of the block with a position of the uncompressed content."""
        return bisect_right(self.content, position) - 1

    def to_bytes(self) -> bytes:
        """Return the content of a `.gzi` file, which omits the block at the start of the file."""
        pairs = zip(self.packed, self.content, strict=True)
        flat = [value for pair in pairs if pair != (0, 0) for value in pair]
        return struct.pack(f"<Q{len(flat)}Q", len(flat) // 2, *flat)

    @classmethod
    def from_bytes(cls, data: bytes) -> "BlockIndex":
        """Read a `.gzi` file; `ValueError` for invalid content."""
        index = cls()
        count = int.from_bytes(data[:8], "little")
        if len(data) < 8 or len(data) != 8 + 16 * count:
            raise ValueError("not a bgzip index")
        values = struct.unpack_from(f"<{2 * count}Q", data, 8)
        index.packed = array("Q", (0, *values[::2]))
        index.content = array("Q", (0, *values[1::2]))
        return index

    def agrees(self, data: bytes) -> bool:
        """Return whether the content of a `.gzi` file matches these blocks; it may list empty blocks."""
        try:
            other = BlockIndex.from_bytes(data)
        except ValueError:
            return False
        pairs = list(zip(other.packed, other.content, strict=True))
        own = list(zip(self.packed, self.content, strict=True))
        return (
            pairs == own or [pair for pair in pairs if pair not in self._empty] == own
        )


class BlockStream(io.RawIOBase):
    """The uncompressed content of a bgzip file from its start; `index` grows as blocks are read.

    The compressed bytes are passed to `digest.update`.
    """

    def __init__(self, stream: IO[bytes], where: str, digest: Any) -> None:
        self.index = BlockIndex()
        self._stream = stream
        self._where = where
        self._digest = digest
        self._data = b""  # compressed bytes that are not unpacked yet, from `_place` on
        self._place = 0
        self._rest = memoryview(b"")  # unpacked bytes that are not returned yet
        self._packed = self._content = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a part of `buffer`; return 0 at the end of the file."""
        while not self._rest:
            if not self._next():
                return 0
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count

    def _next(self) -> bool:
        if len(self._data) - self._place < LARGEST:
            more = self._stream.read(1 << 20)
            self._digest.update(more)
            self._data = self._data[self._place :] + more
            self._place = 0
        if self._place == len(self._data):
            return False
        block = unpack(self._data[self._place : self._place + LARGEST], self._where)
        self.index.add(self._packed, self._content, block)
        self._place += block.packed
        self._packed += block.packed
        self._content += len(block.content)
        self._rest = memoryview(block.content)
        return True
