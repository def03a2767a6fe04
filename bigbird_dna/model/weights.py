"""Weights in files, and checksums of a model's files.

SHA-256 of a model's files are in its `provenance.json` under "files", and compared when it is loaded. They
find damage, of disks and copies. Who can write to the directory can write them anew: they don't prove who
made a model.

Weights may be stored in other types of floating point than the network's, in float16 to take half the room. A
description may ask for a network of any size. What is built and allocated is bounded by the weights file:
names and shapes are compared first, with a network that has no numbers.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from bigbird_dna.console import log
from bigbird_dna.disk.atomic import checksum
from bigbird_dna.disk.json_files import read_object
from bigbird_dna.errors import ModelError, error_text, shortened

RECORD = "provenance.json"
KEY = "files"
MOST_BYTES = 1 << 25  # of a JSON file; a hundred times what a thousand tracks take


def verify(directory: Path, names: Iterable[str]) -> dict[str, str]:
    """Compare a model's files with the recorded checksums, which are returned; `ModelError` names a file.

    Every recorded file is read. A line of the log names those of `names` that have no record.
    """
    found = recorded(directory)
    for name, expected in found.items():
        _compare(directory, name, expected)
    if unknown := [name for name in names if name not in found]:
        log(f"{directory}: {RECORD} has no checksum of {', '.join(unknown)}: not looked at for damage")
    return found


def verify_one(directory: Path, name: str) -> None:
    """The same for one file, which may be all that is there; nothing is said where it has no record."""
    if expected := recorded(directory).get(name):
        _compare(directory, name, expected)


def recorded(directory: Path) -> dict[str, str]:
    """What a model's record says: SHA-256 by name of file; `ModelError` if it can't be read."""
    path = directory / RECORD
    if not path.exists():
        return {}
    files = read_object(path, MOST_BYTES).get(KEY, {})
    if not isinstance(files, dict):
        raise ModelError(f"{path}: damaged: {KEY!r} holds no JSON object")
    for name, value in files.items():
        if not isinstance(value, str) or Path(name).name != name or "\0" in name:
            raise ModelError(f"{path}: damaged: {KEY!r} has no checksum of a file at {shortened(repr(name))}")
    return files


def _compare(directory: Path, name: str, expected: str) -> None:
    path = f"{directory}/{shortened(name)}"
    try:
        found = checksum(directory / name)
    except FileNotFoundError:
        raise ModelError(f"{path}: is missing, though {RECORD} names it") from None
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: can't be read: {error_text(error)}") from None
    if found != expected:
        raise ModelError(
            f"{path}: damaged, or changed since it was saved: its sha256 is {found[:12]}…, {RECORD} says "
            f"{shortened(expected, 12)}; take an unharmed copy, or, if the change is meant, delete its line "
            f"under {KEY!r} there"
        )


TYPES = ("F64", "F32", "F16", "BF16")
HALF_LOSS = 2.0**-11
"""Of its numbers' root mean square, what rounding to float16 changes a tensor by that may be stored so."""
Shape = tuple[int, ...]


class Stored(NamedTuple):
    """A tensor in a file."""

    shape: Shape
    type: str  # one of `TYPES`


def load_network(path: Path, build: Callable[[], nn.Module], layers: int) -> nn.Module:
    """The network that `build` makes, on the CPU, with the weights of a file.

    `build` is called once, and draws and allocates nothing; the network has so many `layers` in all its
    parts. `ModelError`: the file is damaged, its tensors aren't those of the network, or one isn't finite.
    """
    stored = {name: tensor.shape for name, tensor in stored_tensors(path).items()}
    if layers > len(stored):
        raise _misfit(path, f"{layers:,} layers are asked for, there are {len(stored):,} tensors")
    try:
        with torch.random.fork_rng(devices=[]), torch.device("meta"):
            network = build()
    except (RuntimeError, TypeError, ValueError, OverflowError) as error:
        raise _misfit(path, error_text(error)) from None
    expected = {name: tuple(value.shape) for name, value in network.state_dict().items()}
    if difference := _difference(stored, expected):
        raise _misfit(path, difference)
    network.to_empty(device="cpu")
    try:
        network.load_state_dict(load_file(path))
    except (SafetensorError, OSError, RuntimeError) as error:
        raise ModelError(f"{path}: damaged: {error_text(error)}") from None
    for name, tensor in network.state_dict().items():
        check_finite(tensor, name, path)
    return network


def check_finite(tensor: Tensor, name: str, source: Path) -> None:
    """`ModelError` that names file and tensor if one of its numbers is NaN or infinite."""
    # Extremes are NaN where a number is; they take a tenth of the time of `isfinite`, which makes tensors.
    if tensor.numel() and not all(map(math.isfinite, tensor.aminmax())):
        raise ModelError(f"{source}: tensor {name!r} holds what is not a finite number")


def fits_half(tensor: Tensor) -> bool:
    """Whether a tensor has rows and columns, and rounding to float16 changes it by at most `HALF_LOSS`.

    Biases and the weights of LayerNorm take no room, and every number of a layer passes through them.
    """
    if tensor.dim() < 2:
        return False
    given = tensor.detach().double()
    return bool((given - tensor.detach().half().double()).norm() <= HALF_LOSS * given.norm())


def stored_tensors(path: Path) -> dict[str, Stored]:
    """Shapes and types of all tensors in a file.

    `ModelError` if it is damaged or one isn't of floating point.
    """
    tensors = {}
    try:
        with safe_open(path, framework="pt") as stored:
            for name in list(stored.keys()):  # the object is no mapping
                part = stored.get_slice(name)
                tensors[name] = Stored(tuple(part.get_shape()), part.get_dtype())
                if part.get_dtype() not in TYPES:
                    what = f"tensor {shortened(repr(name))} holds {part.get_dtype()}"
                    raise ModelError(f"{path}: {what}, weights are one of {', '.join(TYPES)}")
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{path}: damaged: {error_text(error)}") from None
    return tensors


def _difference(stored: Mapping[str, Shape], expected: Mapping[str, Shape]) -> str:
    for name, shape in expected.items():
        if name not in stored:
            return f"tensor {name!r} is missing"
        if stored[name] != shape:
            return f"tensor {name!r} has shape {stored[name]}, {shape} is asked for"
    if further := sorted(set(stored) - set(expected)):
        return f"tensor {shortened(repr(further[0]))} is not asked for"
    return ""


def _misfit(path: Path, reason: str) -> ModelError:
    return ModelError(f"{path}: weights don't fit config.json: {reason}")
