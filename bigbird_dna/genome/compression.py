"""Reading plain, gzip and bgzip files alike; the content decides, not the name."""

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Literal, cast

from bigbird_dna.errors import DataError

# An empty BGZF block ends every complete bgzip file.
_BGZIP_END = bytes.fromhex("1f8b08040000000000ff0600424302001b0003000000000000000000")
_FOREIGN = {b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd", b"PK\x03\x04": "zip"}


def compression(path: Path) -> Literal["plain", "gzip", "bgzip"]:
    """How a file is compressed, by its first bytes.

    Raises
    ------
    DataError
        The file is missing, a directory, not readable, empty, or compressed in another way.
    """
    try:
        if path.is_dir():
            raise DataError(f"{path}: is a directory, not a file")
        with path.open("rb") as stream:
            start = stream.read(18)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except OSError as error:
        raise DataError(f"{path}: can't be read: {error.strerror}") from None
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
    try:
        with path.open("rb") if kind == "plain" else gzip.open(path, "rb") as stream:
            yield cast(IO[bytes], stream)
    except EOFError:
        raise DataError(f"{path}: truncated: the {kind} stream ends too early") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path}: damaged {kind} file: {error}") from None


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Lines of a text file without their ends (LF or CRLF), numbered from 1."""
    with open_bytes(path) as stream, io.TextIOWrapper(stream, encoding="utf-8") as text:
        try:
            for number, line in enumerate(text, start=1):
                yield number, line.rstrip("\n")
        except UnicodeDecodeError:
            raise DataError(f"{path}: not a text file") from None


def require_end_block(path: Path) -> None:
    """Raise `DataError` if a bgzip file is cut, which its reader may notice late or never."""
    with path.open("rb") as stream:
        size = stream.seek(0, io.SEEK_END)
        stream.seek(max(0, size - len(_BGZIP_END)))
        if stream.read() != _BGZIP_END:
            raise DataError(f"{path}: truncated: bgzip's end-of-file block is missing")
