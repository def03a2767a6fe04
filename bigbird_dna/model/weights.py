"""Weight files, and checksums of a model's files.

SHA-256 checksums of a model's files are recorded in its `provenance.json` under "files" and compared on
loading. They detect damage by disks and copies. They do not prove a model's origin: anyone with write access
to the directory can change them.

Weights may be stored in other floating-point types than the network's, such as float16 at half the size.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from bigbird_dna.disk.atomic import checksum
from bigbird_dna.disk.json_files import read_object
from bigbird_dna.errors import ModelError, error_text, shortened

RECORD = "provenance.json"
KEY = "files"


def verify(directory: Path) -> dict[str, str]:
    """Compare a model's files with the recorded checksums and return these; `ModelError` names a file."""
    path = directory / RECORD
    record = read_object(path).get(KEY, {}) if path.exists() else {}
    if not isinstance(record, dict):
        raise ModelError(f"{path}: damaged: {KEY!r} is not a JSON object")

    for name, expected in record.items():
        try:
            actual = checksum(directory / name)
        except (OSError, ValueError) as error:
            raise ModelError(
                f"{directory}/{shortened(name)}: listed in {RECORD}, but {error_text(error)}"
            ) from None

        if actual != expected:
            raise ModelError(
                f"{directory / name}: damaged, or changed since it was saved: sha256 {actual[:12]}…, expected "
                f"{shortened(str(expected), 12)} ({RECORD}). Use an intact copy; if the change is intended, delete "
                f"the file's line under {KEY!r}"
            )

    return record


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


def load_network(path: Path, build: Callable[[], nn.Module]) -> nn.Module:
    """Load the network created by `build`, on the CPU, with the weights of a file.

    `build` is called once, without drawing or allocating values. `ModelError`: the file is damaged, its
    tensors do not match the network, or a value is not finite.
    """
    try:
        weights = load_file(path)
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{path}: damaged: {error_text(error)}") from None

    network = build_without_values(path, build)
    for name, tensor in weights.items():
        # A copy, so that later changes of the file have no effect.
        weights[name] = tensor.to(torch.float32, copy=True)
        check_finite(weights[name], name, path)

    try:
        network.load_state_dict(weights, assign=True)
    except RuntimeError as error:
        raise ModelError(
            f"{path}: weights do not match config.json: {shortened(error_text(error), 300)}"
        ) from None

    return network


def build_without_values(path: Path, build: Callable[[], nn.Module]) -> nn.Module:
    """The network created by `build`, without values; `ModelError`, which names `path`, if it cannot be built."""
    try:
        with shapes_only():
            return build()
    except (RuntimeError, TypeError, ValueError, OverflowError) as error:
        raise ModelError(
            f"{path}: weights do not match config.json: {error_text(error)}"
        ) from None


def check_finite(tensor: Tensor, name: str, source: Path) -> None:
    """`ModelError` that names file and tensor if a value is NaN or infinite."""
    # Extremes are NaN if any value is; `isfinite`, which allocates tensors, takes ten times as long.
    if tensor.numel() and not all(map(math.isfinite, tensor.aminmax())):
        raise ModelError(f"{source}: tensor {name!r} contains NaN or infinity")
