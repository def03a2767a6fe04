"""Weight files, and checksums of a model's files.

SHA-256 checksums of a model's files are recorded in its `provenance.json` under "files" and compared on
loading. They detect damage by disks and copies. They do not prove a model's origin: anyone with write access
to the directory can change them.

Weights may be stored in other floating-point types than the network's, such as float16 at half the size. A
description may specify a network of any size. The weights file limits what is built and allocated: names and
shapes are first compared with a network without values.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from bigbird_dna.console import log
from bigbird_dna.disk.atomic import checksum
from bigbird_dna.disk.json_files import read_object
from bigbird_dna.errors import ModelError, error_text, shortened

RECORD = "provenance.json"
KEY = "files"


def verify(directory: Path, names: Iterable[str]) -> dict[str, str]:
    """Compare a model's files with the recorded checksums and return these; `ModelError` names a file.

    Every recorded file is read. Files in `names` without a record are logged.
    """
    found = recorded(directory)
    for name, expected in found.items():
        _compare(directory, name, expected)
    if unknown := [name for name in names if name not in found]:
        log(
            f"{directory}: {RECORD} has no checksum of {', '.join(unknown)}: not checked for damage"
        )
    return found


def verify_one(directory: Path, name: str) -> None:
    """`verify` for one file, with no others required; a missing record is ignored."""
    if expected := recorded(directory).get(name):
        _compare(directory, name, expected)


def recorded(directory: Path) -> dict[str, str]:
    """The recorded SHA-256 by file name; `ModelError` if the record is unreadable."""
    path = directory / RECORD
    if not path.exists():
        return {}
    files = read_object(path).get(KEY, {})
    if not isinstance(files, dict):
        raise ModelError(f"{path}: damaged: {KEY!r} is not a JSON object")
    for name, value in files.items():
        if not isinstance(value, str) or Path(name).name != name or "\0" in name:
            raise ModelError(
                f"{path}: damaged: {KEY!r}: invalid checksum entry {shortened(repr(name))}"
            )
    return files


def _compare(directory: Path, name: str, expected: str) -> None:
    path = f"{directory}/{shortened(name)}"
    try:
        found = checksum(directory / name)
    except FileNotFoundError:
        raise ModelError(f"{path}: file not found, but listed in {RECORD}") from None
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: cannot be read: {error_text(error)}") from None
    if found != expected:
        raise ModelError(
            f"{path}: damaged, or changed since it was saved: sha256 {found[:12]}…, expected "
            f"{shortened(expected, 12)} ({RECORD}). Use an intact copy; if the change is intended, delete "
            f"the file's line under {KEY!r}"
        )


TYPES = ("F64", "F32", "F16", "BF16")
Shape = tuple[int, ...]


class Stored(NamedTuple):
    """A tensor in a file."""

    shape: Shape
    type: str  # one of `TYPES`


class _WithoutInitialization(TorchFunctionMode):
    """Initializes nothing: to draw values of tensors without memory, torch imports its compiler (seconds)."""

    def __torch_function__(
        self,
        function: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if getattr(function, "__module__", None) == nn.init.__name__:
            return (*args, *(kwargs or {}).values())[0]  # the tensor
        return function(*args, **(kwargs or {}))


@contextmanager
def shapes_only() -> Iterator[None]:
    """A context for building networks without values, whose weights are loaded afterwards."""
    with (
        torch.random.fork_rng(devices=[]),
        torch.device("meta"),
        _WithoutInitialization(),
    ):
        yield


def load_network(path: Path, build: Callable[[], nn.Module], layers: int) -> nn.Module:
    """Load the network created by `build`, on the CPU, with the weights of a file.

    `build` is called once, without drawing or allocating values. The network has `layers` layers in total.
    `ModelError`: the file is damaged, its tensors do not match the network, or a value is not finite.
    """
    stored = {name: tensor.shape for name, tensor in stored_tensors(path).items()}
    network = network_of_shapes(path, build, layers, len(stored))
    expected = {
        name: tuple(value.shape) for name, value in network.state_dict().items()
    }
    if difference := _difference(stored, expected):
        raise _misfit(path, difference)
    try:
        loaded = load_file(path)
        # Not `to_empty`, for which torch imports sympy: half a second.
        values = {
            name: torch.empty(one.shape, dtype=one.dtype, device="cpu")
            for name, one in network.state_dict().items()
        }
        network.load_state_dict(
            {name: one.copy_(loaded[name]) for name, one in values.items()}, assign=True
        )
    except (SafetensorError, OSError, RuntimeError) as error:
        raise ModelError(f"{path}: damaged: {error_text(error)}") from None
    for name, tensor in network.state_dict().items():
        check_finite(tensor, name, path)
    return network


def network_of_shapes(
    path: Path, build: Callable[[], nn.Module], layers: int, tensors: int
) -> nn.Module:
    """The network created by `build`, without values; its weights are the `tensors` tensors of `path`.

    `ModelError`: it has more `layers` than tensors, or the description gives no network.
    """
    if layers > tensors:
        raise _misfit(
            path, f"{layers:,} layers are needed, but the file has {tensors:,} tensors"
        )
    try:
        with shapes_only():
            return build()
    except (RuntimeError, TypeError, ValueError, OverflowError) as error:
        raise _misfit(path, error_text(error)) from None


def check_finite(tensor: Tensor, name: str, source: Path) -> None:
    """`ModelError` that names file and tensor if a value is NaN or infinite."""
    # Extremes are NaN if any value is; `isfinite`, which allocates tensors, takes ten times as long.
    if tensor.numel() and not all(map(math.isfinite, tensor.aminmax())):
        raise ModelError(f"{source}: tensor {name!r} contains NaN or infinity")


def stored_tensors(path: Path) -> dict[str, Stored]:
    """Shapes and types of all tensors in a file.

    `ModelError` if it is damaged or a tensor is not floating point.
    """
    tensors = {}
    try:
        with safe_open(path, framework="pt") as stored:
            for name in list(stored.keys()):  # the object is not a mapping
                part = stored.get_slice(name)
                tensors[name] = Stored(tuple(part.get_shape()), part.get_dtype())
                if part.get_dtype() not in TYPES:
                    what = f"tensor {shortened(repr(name))} has type {part.get_dtype()}"
                    raise ModelError(
                        f"{path}: {what}, weights must have one of {', '.join(TYPES)}"
                    )
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{path}: damaged: {error_text(error)}") from None
    return tensors


def _difference(stored: Mapping[str, Shape], expected: Mapping[str, Shape]) -> str:
    for name, shape in expected.items():
        if name not in stored:
            return f"tensor {name!r} is missing"
        if stored[name] != shape:
            return f"tensor {name!r} has shape {stored[name]}, expected {shape}"
    if further := sorted(set(stored) - set(expected)):
        return f"tensor {shortened(repr(further[0]))} is unexpected"
    return ""


def _misfit(path: Path, reason: str) -> ModelError:
    return ModelError(f"{path}: weights do not match config.json: {reason}")
