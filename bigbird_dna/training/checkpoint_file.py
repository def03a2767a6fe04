"""The file of a checkpoint, and the copy of a training's state that it is written from.

A file consists of a line with a SHA-256 and the output of `torch.save`. The SHA-256 is that of the intended
content, not of data read back from disk. It is compared before anything is unpickled.
"""

import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from bigbird_dna.errors import error_text

_NAME = b"bigbird-dna checkpoint, SHA-256 "
_LINE = len(_NAME) + 64 + 1  # bytes
_ZIP = b"PK\x03\x04"  # beginning of torch.save's output


class UnusableCheckpoint(Exception):
    """Reason why training cannot resume from a checkpoint, as one clause."""


def write_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Write tensors and plain containers to a file, and return only after they are on disk."""
    with path.open("wb") as stream:
        stream.write(bytes(_LINE))
        digest = _Digest(stream)
        torch.save(state, digest)  # type: ignore[arg-type]
        stream.seek(0)
        stream.write(_NAME + digest.sha256.hexdigest().encode() + b"\n")
        stream.flush()
        os.fsync(stream.fileno())


def read_checkpoint(path: Path) -> Any:
    """The content of a file, on the CPU; `UnusableCheckpoint` if damaged or not pure data."""
    try:
        with path.open("rb") as stream:
            line = stream.read(_LINE)
            if line[: len(_NAME)] != _NAME or line[-1:] != b"\n" or len(line) < _LINE:
                raise UnusableCheckpoint(
                    "damaged: the header is not that of a checkpoint"
                )
            if (
                hashlib.file_digest(stream, "sha256").hexdigest().encode()
                != line[len(_NAME) : -1]
            ):
                raise UnusableCheckpoint(
                    "damaged: its sha256 differs from the recorded one"
                )
            stream.seek(_LINE)
            if stream.read(len(_ZIP)) != _ZIP:
                raise UnusableCheckpoint("damaged: it contains no checkpoint")
            stream.seek(_LINE)
            # weights_only: tensors and plain containers, never code.
            return torch.load(stream, map_location="cpu", weights_only=True)
    except UnusableCheckpoint:
        raise
    except OSError as error:
        raise UnusableCheckpoint(f"cannot be read: {error.strerror}") from None
    except Exception as error:  # unpickling raises arbitrary exceptions
        raise UnusableCheckpoint(
            f"damaged, or not pure data: {error_text(error)}"
        ) from None


class _Digest:
    """A stream's `write`, with the SHA-256 of everything written."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream, self.flush = stream, stream.flush
        self.sha256 = hashlib.sha256()

    def write(self, data: bytes) -> int:
        self.sha256.update(data)
        return self.stream.write(data)


class HostCopy:
    """A copy of a training's tensors in memory of the host, which is allocated once."""

    def __init__(self) -> None:
        self._tensors: dict[tuple[object, ...], Tensor] = {}
        self._on_gpu = False

    def take(self, value: Any, *place: object) -> Any:
        """The containers of a state with copies of its tensors; a GPU copies them after its pending work."""
        if isinstance(value, Mapping):
            return {key: self.take(one, *place, key) for key, one in value.items()}
        if isinstance(value, list):
            return [self.take(one, *place, number) for number, one in enumerate(value)]
        if not isinstance(value, Tensor):
            return value
        kept = self._tensors.get(place)
        if kept is None:
            kept = torch.empty_like(
                value, device="cpu", pin_memory=value.is_cuda, requires_grad=False
            )
            self._tensors[place] = kept
        self._on_gpu |= value.is_cuda
        return kept.copy_(value.detach(), non_blocking=value.is_cuda)

    def ready(self) -> Callable[[], None]:
        """A function that waits until the copies that have been taken are complete."""
        if not self._on_gpu:
            return lambda: None
        event: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        wait: Callable[[], None] = event.synchronize
        return wait
