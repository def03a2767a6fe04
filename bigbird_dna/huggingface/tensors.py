"""Tensors of a checkpoint directory, in any of the files that HuggingFace's library writes.

No code of the checkpoint is run: safetensors holds none, and PyTorch's pickles are not unpickled (see
`pickled_tensors`). What a file says of its tensors is known before any of them is read, and is checked
against the file's size: nothing is allocated on its word.
"""

import zipfile
import zlib
from collections.abc import Callable, Iterable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from bigbird_dna.disk.json_files import read_mapping
from bigbird_dna.errors import ModelError, error_text, shortened
from bigbird_dna.huggingface.pickled_tensors import OtherThing, PickledTensor, Storage, read_pickle

WEIGHTS = ("model.safetensors", "pytorch_model.bin")

_LARGEST_HEADER = 1 << 24  # bytes of a file that say what is in it
_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C  # of files that PyTorch wrote before its version 1.6
_FLOATS = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


class StoredTensor(NamedTuple):
    """A tensor in a file: what the file says of it, and how to read it."""

    shape: tuple[int, ...]
    dtype: torch.dtype | None  # none: numbers that no weight is made of
    read: Callable[[], Tensor]
    """`ModelError` if the file is damaged where the tensor is."""


def read_tensors(directory: Path) -> dict[str, StoredTensor]:
    """All tensors by name.

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
            return _read_shards(index)
    raise ModelError(f"{directory}: no weights: neither {' nor '.join(WEIGHTS)}, nor their shards")


def _read_shards(index: Path) -> dict[str, StoredTensor]:
    places = read_mapping(index).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(name, str) for name in places.values()):
        raise ModelError(f"{index}: damaged: it maps no tensors to files")
    tensors: dict[str, StoredTensor] = {}
    for name in sorted(set(places.values())):
        # A file of another directory is not one of the checkpoint's.
        if Path(name).name != name or name in ("", "..") or len(name) > 255 or not name.isprintable():
            raise ModelError(f"{index}: shard {shortened(repr(name))} is not a plain file name")
        if not (index.parent / name).is_file():
            raise ModelError(f"{index.parent / name}: no such file, though {index.name} names it")
        found = read_tensor_file(index.parent / name)
        if twice := sorted(found.keys() & tensors.keys()):
            raise ModelError(f"{index.parent / name}: tensor {shortened(repr(twice[0]))} is in two files")
        tensors |= found
    return tensors


def read_tensor_file(path: Path) -> dict[str, StoredTensor]:
    """All tensors of one file by name; `ModelError` if it is damaged or holds anything but tensors."""
    try:
        if path.suffix == ".safetensors":
            return _read_safetensors(path)
        found = _read_zip(path) if zipfile.is_zipfile(path) else _read_legacy(path)
    except OtherThing as error:
        raise ModelError(f"{path}: holds other things than tensors: {error_text(error)}") from None
    except _UNREADABLE as error:
        raise ModelError(f"{path}: damaged: {error_text(error)}") from None
    _check_size(found.values(), path)
    return {name: _stored(tensor, read, path) for name, (tensor, read) in found.items()}


_UNREADABLE = (
    *(SafetensorError, OSError, EOFError, ValueError, RuntimeError, zipfile.BadZipFile, zlib.error),
    *(KeyError, NotImplementedError, OverflowError),
)
_Found = dict[str, tuple[PickledTensor, Callable[[Storage], Tensor]]]


def _read_safetensors(path: Path) -> dict[str, StoredTensor]:
    with path.open("rb") as stream:
        size = int.from_bytes(stream.read(8), "little")
    if size > _LARGEST_HEADER:
        raise ValueError(f"a header of {size:,} bytes")
    file: Any = safe_open(path, framework="pt")
    tensors = {}
    for name in file.keys():  # noqa: SIM118 (it is no mapping)
        part = file.get_slice(name)
        read = partial(_readable, partial(file.get_tensor, name), path)
        tensors[name] = StoredTensor(tuple(part.get_shape()), _FLOATS.get(part.get_dtype()), read)
    return tensors


def _readable(read: Callable[[], Tensor], path: Path) -> Tensor:
    try:
        return read()
    except _UNREADABLE as error:
        raise ModelError(f"{path}: damaged: {error_text(error)}") from None


def _read_zip(path: Path) -> _Found:
    """The tensors of a file that PyTorch writes nowadays: an archive of a pickle and of storages."""
    with zipfile.ZipFile(path) as archive:
        members = {member.filename: member for member in archive.infolist()}
        if any(member.compress_type != zipfile.ZIP_STORED for member in members.values()):
            raise ValueError("compressed, which PyTorch's files are not")
        if sum(member.file_size for member in members.values()) > path.stat().st_size:
            raise ValueError("its members are larger than the file")
        pickles = [name for name in members if name.endswith("/data.pkl")]
        if len(pickles) != 1 or members[pickles[0]].file_size > _LARGEST_HEADER:
            raise ValueError("not one pickle of tensors, or too large a one")
        home = pickles[0].removesuffix("data.pkl")
        if f"{home}byteorder" in members and archive.read(f"{home}byteorder") != b"little":
            raise ValueError("its numbers are not little-endian")
        values, _ = read_pickle(archive.read(pickles[0]))

    @cache
    def storage_of(storage: Storage) -> Tensor:
        with zipfile.ZipFile(path) as archive:
            return _numbers(archive.read(f"{home}data/{storage.key}"), storage)

    tensors = _only_tensors(values)
    for tensor in tensors.values():
        member = members.get(f"{home}data/{tensor.storage.key}")
        if member is None or min(member.file_size, member.compress_size) < _bytes(tensor.storage):
            raise ValueError(f"storage {shortened(repr(tensor.storage.key))} is missing or cut off")
    return {name: (tensor, storage_of) for name, tensor in tensors.items()}


def _read_legacy(path: Path) -> _Found:
    """The tensors of a file of PyTorch's before 1.6: pickles one after the other, then the storages."""
    content = path.read_bytes()
    magic, position = read_pickle(content)
    if magic != _LEGACY_MAGIC:
        raise OtherThing("not one of PyTorch's files")
    _, position = read_pickle(content, position)  # the protocol
    system, position = read_pickle(content, position)
    if not isinstance(system, dict) or system.get("little_endian") is not True:
        raise ValueError("its numbers are not little-endian")
    values, position = read_pickle(content, position)
    tensors = _only_tensors(values)
    keys, position = read_pickle(content, position)
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise ValueError("its storages have no names")
    storages = {tensor.storage.key: tensor.storage for tensor in tensors.values()}
    places = {}
    for key in keys:
        storage = storages.get(key)
        if storage is None:
            raise ValueError(f"storage {shortened(repr(key))} belongs to no tensor")
        count = int.from_bytes(content[position : position + 8], "little")
        places[storage] = position + 8
        position += 8 + _bytes(storage)
        if count != storage.numbers or position > len(content):
            raise ValueError(f"storage {shortened(repr(key))} is cut off")
    if missing := storages.keys() - keys:
        raise ValueError(f"storage {shortened(repr(min(missing)))} is missing")

    @cache
    def storage_of(storage: Storage) -> Tensor:
        start = places[storage]
        return _numbers(content[start : start + _bytes(storage)], storage)

    return {name: (tensor, storage_of) for name, tensor in tensors.items()}


def _only_tensors(values: Any) -> dict[str, PickledTensor]:
    if not isinstance(values, dict) or not all(isinstance(each, PickledTensor) for each in values.values()):
        raise OtherThing("not a dictionary of tensors")
    storages = {tensor.storage for tensor in values.values()}
    if len({storage.key for storage in storages}) < len(storages):
        raise ValueError("two storages with one name")
    return values


def _bytes(storage: Storage) -> int:
    return storage.numbers * storage.dtype.itemsize


def _numbers(content: bytes, storage: Storage) -> Tensor:
    if not storage.numbers:
        return torch.empty(0, dtype=storage.dtype)
    return torch.frombuffer(bytearray(content), dtype=storage.dtype, count=storage.numbers)


def _check_size(found: Iterable[tuple[PickledTensor, object]], path: Path) -> None:
    """Tied weights are two tensors of one storage; many tensors of one storage would swell."""
    tensors = [tensor for tensor, _ in found]
    stored = sum(storage.numbers for storage in {tensor.storage for tensor in tensors})
    if sum(tensor.numbers for tensor in tensors) > 2 * stored:
        raise ModelError(f"{path}: its tensors are larger than the {stored:,} numbers that it holds")


def _stored(tensor: PickledTensor, read: Callable[[Storage], Tensor], path: Path) -> StoredTensor:
    def view() -> Tensor:
        storage = _readable(partial(read, tensor.storage), path)
        return storage.as_strided(tensor.shape, tensor.strides, tensor.offset)

    dtype = tensor.storage.dtype
    return StoredTensor(tensor.shape, dtype if dtype.is_floating_point else None, view)
