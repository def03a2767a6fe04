"""Checkpoint files: what `torch.save` writes, behind a line with its SHA-256.

The checksum is in the file, so that the two can't come apart, and of what was meant to be written, not of
what the disk gave back. It is compared before anything is unpacked.
"""

import hashlib
import os
from io import BufferedReader
from pathlib import Path
from typing import IO, Any

import torch

from bigbird_dna.console import log
from bigbird_dna.errors import error_text

_NAME = b"bigbird-dna checkpoint, SHA-256 "
_LINE = len(_NAME) + 64 + 1  # bytes
_ZIP = b"PK\x03\x04"  # how torch.save begins


class UnusableCheckpoint(Exception):
    """Why a checkpoint can't be gone on from, in one clause."""


def write_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Write tensors and plain containers to a file, and don't return before the disk has them."""
    with path.open("wb") as stream:
        stream.write(bytes(_LINE))
        digest = _Digest(stream)
        torch.save(state, digest)  # type: ignore[arg-type]
        stream.seek(0)
        stream.write(_NAME + digest.sha256.hexdigest().encode() + b"\n")
        stream.flush()
        os.fsync(stream.fileno())


def read_checkpoint(path: Path) -> Any:
    """What a file holds, on the CPU; `UnusableCheckpoint` if it is damaged, or not made of data alone."""
    try:
        with path.open("rb") as stream:
            _check(stream, path)
            start = stream.tell()
            if stream.read(len(_ZIP)) != _ZIP:
                raise UnusableCheckpoint("damaged: it holds no checkpoint")
            stream.seek(start)
            # weights_only: tensors and plain containers, never code.
            return torch.load(stream, map_location="cpu", weights_only=True)
    except UnusableCheckpoint:
        raise
    except OSError as error:
        raise UnusableCheckpoint(f"can't be read: {error.strerror}") from None
    except Exception as error:  # what unpickling raises is without number
        raise UnusableCheckpoint(f"damaged, or not made of data alone: {error_text(error)}") from None


def _check(stream: BufferedReader, path: Path) -> None:
    """Leave the stream where the content begins, which has the checksum of the first line."""
    line = stream.read(_LINE)
    if line.startswith(_ZIP):
        log(f"{path}: of an earlier version, without a checksum: not looked at for damage")
        stream.seek(0)
        return
    if line[: len(_NAME)] != _NAME or line[-1:] != b"\n" or len(line) < _LINE:
        raise UnusableCheckpoint("damaged: it doesn't begin as a checkpoint does")
    if hashlib.file_digest(stream, "sha256").hexdigest().encode() != line[len(_NAME) : -1]:
        raise UnusableCheckpoint("damaged: it doesn't have its own sha256")
    stream.seek(_LINE)


class _Digest:
    """A stream's `write`, and the SHA-256 of all that was written."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream = stream
        self.sha256 = hashlib.sha256()

    def write(self, data: bytes) -> int:
        self.sha256.update(data)
        return self.stream.write(data)

    def flush(self) -> None:
        self.stream.flush()
