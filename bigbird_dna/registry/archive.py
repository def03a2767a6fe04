"""The archive of a published model: a tar file whose bytes follow from the model's name and files alone.

It isn't compressed: weights hardly shrink by it, and compressors differ in their bytes. Members are plain
files `NAME/FILE` in the order of their names, of nobody and of no time. Anything else that a tar file can
hold, such as links, devices, other directories or sparse files, is not unpacked.
"""

import hashlib
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from bigbird_dna.errors import ModelError, shortened
from bigbird_dna.model.catalogue import is_name

ENDING = ".tar"
LARGEST = (1 << 33) - 1
"""Bytes of a file; what a tar file's header can say."""
_BLOCK = 512
_RECORD = 20 * _BLOCK
_CHUNK = 1 << 20

Files = Mapping[str, Path]
"""What a model directory holds: names, and where the content is."""


def pack(name: str, files: Files, write: Callable[[bytes], object]) -> None:
    """Write the archive of a model to a sink of bytes.

    Raises
    ------
    ModelError
        A file has 8 GiB or more.
    """
    written = 0
    for file, path in sorted(files.items()):
        size = path.stat().st_size
        if size > LARGEST:
            raise ModelError(f"{path}: {size:,} bytes, a file in an archive has {LARGEST:,} at most")
        write(_header(name, file, size))
        with path.open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                write(chunk)
        write(bytes(-size % _BLOCK))
        written += _BLOCK + size + -size % _BLOCK
    end = 2 * _BLOCK
    write(bytes(end + -(written + end) % _RECORD))


def packed(name: str, files: Files) -> tuple[int, str]:
    """Bytes and SHA-256 of the archive that `pack` would write."""
    digest, sizes = hashlib.sha256(), [0]

    def write(data: bytes) -> None:
        digest.update(data)
        sizes[0] += len(data)

    pack(name, files, write)
    return sizes[0], digest.hexdigest()


def unpack(archive: Path, name: str, directory: Path) -> None:
    """Write the files of the archive of a model to an empty directory.

    Raises
    ------
    ModelError
        It is not an archive as `pack` writes it, of this name; the text says what is wrong. Some files may
        have been written then.
    """
    total, written, before = archive.stat().st_size, 0, ""
    with archive.open("rb") as stream:
        while any(header := _read(stream, _BLOCK, archive)):
            file, size = _member(header, name, archive)
            if file <= before:
                raise ModelError(f"{archive}: member {file!r} stands twice, or out of its order")
            before, written = file, written + _BLOCK + size + -size % _BLOCK
            if written > total:
                raise ModelError(f"{archive}: truncated: {file!r} has {size:,} bytes")
            with (directory / file).open("xb") as target:
                _copy(stream, size, target, archive)
            if any(_read(stream, -size % _BLOCK, archive)):
                raise ModelError(f"{archive}: damaged: there are bytes after the end of {file!r}")
        rest = _BLOCK + -(written + 2 * _BLOCK) % _RECORD
        if total != written + _BLOCK + rest or any(_read(stream, rest, archive)):
            raise ModelError(
                f"{archive}: truncated, or damaged: it doesn't end as an archive of a model does"
            )


def _header(name: str, file: str, size: int) -> bytes:
    member = tarfile.TarInfo(f"{name}/{file}")
    member.size, member.mode = size, 0o644
    # Not by the module's writer of whole archives, whose forms are many.
    return member.tobuf(tarfile.USTAR_FORMAT, "ascii", "strict")


def _member(header: bytes, name: str, archive: Path) -> tuple[str, int]:
    """Name and size of the file that a header is of, which must be what `_header` makes of them."""
    path = header[:100].rstrip(b"\0").decode("ascii", "backslashreplace")
    folder, _, file = path.partition("/")
    size = header[124:135]
    if set(size) - set(b"01234567"):
        raise ModelError(f"{archive}: not an archive of a model, or damaged: no size at {shortened(path)!r}")
    if folder != name or not is_name(file) or header != _header(name, file, int(size, 8)):
        raise ModelError(
            f"{archive}: member {shortened(path)!r} is not a plain file of a directory {name!r}, as "
            "model package packs them"
        )
    return file, int(size, 8)


def _copy(stream: IO[bytes], size: int, target: IO[bytes], archive: Path) -> None:
    while size:
        chunk = _read(stream, min(size, _CHUNK), archive)
        target.write(chunk)
        size -= len(chunk)


def _read(stream: IO[bytes], size: int, archive: Path) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise ModelError(f"{archive}: truncated")
    return data
