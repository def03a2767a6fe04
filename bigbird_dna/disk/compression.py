"""Read plain, gzip and bgzip files and their lines of text; the compression is detected from the content."""

import gzip
import io
import re
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal, cast

from bigbird_dna.disk.atomic import reading
from bigbird_dna.errors import DataError

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")

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
    match = _CONTROL.search(text)
    return None if match is None else f"U+{ord(match[0]):04X}"


def compression(path: Path) -> Compression:
    """Return the compression of a file, by its first bytes.

    `DataError` if it is missing, unreadable, empty, or not a regular file.
    """
    if path.exists() and not path.is_file():
        raise DataError(f"{path}: must be a file, not a directory, pipe or device")

    with reading(path, "cannot read the file", ValueError), path.open("rb") as stream:
        start = stream.read(18)

    if not start:
        raise DataError(f"{path}: the file is empty")

    for magic, name in _FOREIGN.items():
        if start.startswith(magic):
            raise DataError(
                f"{path}: {name} compression is not supported; use gzip or bgzip"
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

    try:
        if kind == "plain":
            with path.open("rb") as stream:
                yield stream
        else:
            # Lines are read in C, unlike those of `GzipFile`.
            with io.BufferedReader(cast(Any, gzip.GzipFile(path)), 1 << 20) as stream:
                yield stream
    except EOFError:
        raise DataError(
            f"{path}: the file is truncated: the {kind} stream ends too early"
        ) from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path}: the {kind} file is damaged: {error}") from None


def read_lines(path: Path) -> Generator[tuple[int, str], None, None]:
    """Yield the lines of a text file without LF or CRLF, numbered from 1.

    Errors are those of `open_bytes`, and a line that is not UTF-8.
    """
    with open_bytes(path) as stream:
        for number, raw in enumerate(stream, start=1):
            try:
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError:
                raise DataError(
                    f"{path}: line {number}: the file is not text (UTF-8)"
                ) from None

            yield number, line.rstrip("\r\n")


def require_end_block(path: Path) -> None:
    """Raise `DataError` if a bgzip file is truncated, which readers may detect late or never."""
    with path.open("rb") as stream:
        size = stream.seek(0, io.SEEK_END)
        stream.seek(max(0, size - len(_BGZIP_END)))
        if stream.read() != _BGZIP_END:
            raise DataError(
                f"{path}: the file is truncated: bgzip's end-of-file block is missing"
            )
