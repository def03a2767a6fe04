"""Tensors of a checkpoint directory, in all file formats of HuggingFace's library; no code of it is run."""

import zipfile
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from bigbird_dna.disk.json_files import read_mapping
from bigbird_dna.errors import ModelError, error_text, shortened

WEIGHTS = ("model.safetensors", "pytorch_model.bin")


def read_tensors(directory: Path) -> dict[str, Tensor]:
    """All tensors by name, from `model.safetensors`, else its shards, else `pytorch_model.bin` or its shards.

    `ModelError`: no file is present, or one is damaged or contains anything but tensors.
    """
    for name in WEIGHTS:
        if (directory / name).is_file():
            return read_tensor_file(directory / name)
        index = directory / f"{name}.index.json"
        if index.is_file():
            return _read_shards(index)
    raise ModelError(
        f"{directory}: weights missing: expected {' or '.join(WEIGHTS)}, or their shards"
    )


def _read_shards(index: Path) -> dict[str, Tensor]:
    files = read_mapping(index).get("weight_map")
    if not isinstance(files, dict):
        raise ModelError(f"{index}: damaged: weight_map must map tensors to files")
    tensors: dict[str, Tensor] = {}
    for name in sorted({str(file) for file in files.values()}):
        # Files of other directories are not part of the checkpoint.
        if Path(name).name != name:
            raise ModelError(
                f"{index}: shard {shortened(repr(name))} is not a plain file name"
            )
        path = index.parent / name
        if not path.is_file():
            raise ModelError(f"{path}: file not found, but listed in {index.name}")
        shard = read_tensor_file(path)
        if twice := sorted(shard.keys() & tensors.keys()):
            raise ModelError(
                f"{path}: tensor {shortened(repr(twice[0]))} is in several files"
            )
        tensors |= shard
    return tensors


def read_tensor_file(path: Path) -> dict[str, Tensor]:
    """All tensors of one file by name; `ModelError` if it is damaged or contains anything but tensors."""
    if path.suffix == ".safetensors":
        try:
            return load_file(path)
        except (SafetensorError, OSError) as error:
            raise ModelError(f"{path}: damaged: {error_text(error)}") from None
    try:
        mmap = zipfile.is_zipfile(path)  # not files of PyTorch before 1.6
        tensors = torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    except Exception as error:  # damaged pickles raise errors of any type
        raise ModelError(
            f"{path}: damaged, or contains other objects than tensors"
        ) from error
    if not isinstance(tensors, dict) or not all(
        isinstance(name, str) and isinstance(tensor, Tensor)
        for name, tensor in tensors.items()
    ):
        raise ModelError(f"{path}: not a dictionary of tensors")
    return tensors
