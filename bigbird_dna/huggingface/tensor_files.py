"""Tensors of a checkpoint directory, in any of the files that HuggingFace's library writes.

No code of the checkpoint is run: safetensors holds none, and of PyTorch's pickles nothing but tensors and
plain containers is read.
"""

import json
import pickle
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from bigbird_dna.errors import ModelError

WEIGHTS = ("model.safetensors", "pytorch_model.bin")


def read_tensors(directory: Path) -> dict[str, Tensor]:
    """All tensors by name, on the CPU.

    Looked for in this order: `model.safetensors`, its shards (`model.safetensors.index.json`),
    `pytorch_model.bin`, its shards.

    Raises
    ------
    ModelError : none of them is there, or one is damaged or holds anything but tensors.
    """
    for name in WEIGHTS:
        if (directory / name).is_file():
            return read_tensor_file(directory / name)
        index = directory / f"{name}.index.json"
        if index.is_file():
            tensors: dict[str, Tensor] = {}
            for shard in _shards(index):
                tensors.update(read_tensor_file(directory / shard))
            return tensors
    raise ModelError(f"{directory}: no weights: neither {' nor '.join(WEIGHTS)}, nor their shards")


def _shards(index: Path) -> list[str]:
    try:
        names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"{index}: damaged: {error!r}") from None
    for name in names:
        if not isinstance(name, str) or Path(name).name != name:
            raise ModelError(f"{index}: shard {name!r} is no plain file name")
        if not (index.parent / name).is_file():
            raise ModelError(f"{index.parent / name}: no such file, though {index.name} names it")
    return names


def read_tensor_file(path: Path) -> dict[str, Tensor]:
    """All tensors of one file by name; `ModelError` if it is damaged or holds anything but tensors."""
    try:
        if path.suffix == ".safetensors":
            return dict(load_file(path))
        values: Any = torch.load(path, map_location="cpu", weights_only=True)
    except (SafetensorError, OSError, RuntimeError, EOFError, ValueError, KeyError) as error:
        raise ModelError(f"{path}: damaged: {' '.join(str(error).split())[:200]}") from None
    except pickle.UnpicklingError:
        raise ModelError(f"{path}: holds other things than tensors, or is damaged") from None
    if not isinstance(values, dict) or not all(isinstance(v, Tensor) for v in values.values()):
        raise ModelError(f"{path}: holds other things than tensors")
    return dict(values)
