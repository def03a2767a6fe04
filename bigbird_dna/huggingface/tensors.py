"""Tensors of a checkpoint directory, in all file formats of HuggingFace's library.

No code of the checkpoint is executed: safetensors contains none, and pickles are interpreted, not unpickled.
A pickle is a program; those written by `torch.save` for a dictionary of tensors use few instructions, and
only these are followed here. Functions named in a pickle are never looked up, and tensors are only described.
Descriptions are checked against the file size before any tensor is read. Memory is not allocated on the
file's claims alone, unlike in `torch.load(weights_only=True)` for files of PyTorch before 1.6.
"""

import io
import math
import pickle
import pickletools
import struct
import zipfile
import zlib
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from bigbird_dna.disk.json_files import read_mapping
from bigbird_dna.errors import ModelError, error_text, shortened

WEIGHTS = ("model.safetensors", "pytorch_model.bin")

_LARGEST_HEADER = 1 << 24  # maximum bytes of a file's table of contents
_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C  # of files written by PyTorch before version 1.6
_FLOATS = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}
_STORAGES = {
    "DoubleStorage": torch.float64,
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
}
_MOST_DIMENSIONS = 8
_UNREADABLE = (
    *(
        SafetensorError,
        OSError,
        EOFError,
        ValueError,
        RuntimeError,
        zipfile.BadZipFile,
        zlib.error,
    ),
    *(KeyError, NotImplementedError, OverflowError),
)


class StoredTensor(NamedTuple):
    """A tensor in a file: its description, and a function to read it."""

    shape: tuple[int, ...]
    dtype: torch.dtype | None  # None: a type that weights cannot have
    read: Callable[[], Tensor]
    """Raises `ModelError` if the file is damaged at the tensor."""


def read_tensors(directory: Path) -> dict[str, StoredTensor]:
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


def _read_shards(index: Path) -> dict[str, StoredTensor]:
    places = read_mapping(index).get("weight_map")
    if not isinstance(places, dict) or not all(
        isinstance(name, str) for name in places.values()
    ):
        raise ModelError(f"{index}: damaged: weight_map must map tensors to files")
    tensors: dict[str, StoredTensor] = {}
    for name in sorted(set(places.values())):
        # Files of other directories are not part of the checkpoint.
        if (
            Path(name).name != name
            or name in ("", "..")
            or len(name) > 255
            or not name.isprintable()
        ):
            raise ModelError(
                f"{index}: shard {shortened(repr(name))} is not a plain file name"
            )
        if not (index.parent / name).is_file():
            raise ModelError(
                f"{index.parent / name}: file not found, but listed in {index.name}"
            )
        found = read_tensor_file(index.parent / name)
        if twice := sorted(found.keys() & tensors.keys()):
            raise ModelError(
                f"{index.parent / name}: tensor {shortened(repr(twice[0]))} is in several files"
            )
        tensors |= found
    return tensors


def read_tensor_file(path: Path) -> dict[str, StoredTensor]:
    """All tensors of one file by name; `ModelError` if it is damaged or contains anything but tensors."""
    try:
        if path.suffix == ".safetensors":
            return _read_safetensors(path)
        tensors, read = (
            _read_zip(path) if zipfile.is_zipfile(path) else _read_legacy(path)
        )
    except _OtherThing as error:
        raise ModelError(
            f"{path}: contains other objects than tensors: {error_text(error)}"
        ) from None
    except _UNREADABLE as error:
        raise ModelError(f"{path}: damaged: {error_text(error)}") from None
    # Tied weights are two tensors of one storage; many tensors of one storage would exhaust memory.
    stored = sum(
        storage.numbers for storage in {tensor.storage for tensor in tensors.values()}
    )
    if sum(math.prod(tensor.shape) for tensor in tensors.values()) > 2 * stored:
        raise ModelError(f"{path}: the tensors exceed the {stored:,} stored numbers")

    @cache
    def numbers(storage: _Storage) -> Tensor:
        if not storage.numbers:
            return torch.empty(0, dtype=storage.dtype, device="cpu")
        return torch.frombuffer(
            bytearray(read(storage)), dtype=storage.dtype, count=storage.numbers
        )

    def view(tensor: _PickledTensor) -> Tensor:
        return numbers(tensor.storage).as_strided(
            tensor.shape, tensor.strides, tensor.offset
        )

    return {
        name: StoredTensor(
            tensor.shape,
            tensor.storage.dtype if tensor.storage.dtype.is_floating_point else None,
            partial(_readable, partial(view, tensor), path),
        )
        for name, tensor in tensors.items()
    }


def _read_safetensors(path: Path) -> dict[str, StoredTensor]:
    with path.open("rb") as stream:
        size = int.from_bytes(stream.read(8), "little")
    if size > _LARGEST_HEADER:
        raise ValueError(f"the header has {size:,} bytes, above the limit")
    file: Any = safe_open(path, framework="pt")
    tensors = {}
    for name in file.keys():  # noqa: SIM118 (not a mapping)
        part = file.get_slice(name)
        read = partial(_readable, partial(file.get_tensor, name), path)
        tensors[name] = StoredTensor(
            tuple(part.get_shape()), _FLOATS.get(part.get_dtype()), read
        )
    return tensors


def _readable(read: Callable[[], Tensor], path: Path) -> Tensor:
    try:
        return read()
    except _UNREADABLE as error:
        raise ModelError(f"{path}: damaged: {error_text(error)}") from None


class _OtherThing(ValueError):
    """A pickle contains an object that is neither a tensor nor a plain container of tensors."""


class _Storage(NamedTuple):
    """A contiguous array of numbers of which tensors are views."""

    dtype: torch.dtype
    key: str  # the array's name in the file
    numbers: int

    @property
    def bytes(self) -> int:
        return self.numbers * self.dtype.itemsize


class _PickledTensor(NamedTuple):
    """A view of a storage, within its bounds and no larger than it."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


_Found = tuple[dict[str, _PickledTensor], Callable[[_Storage], bytes]]


def _read_zip(path: Path) -> _Found:
    """The tensors of a file in PyTorch's current format: an archive of a pickle and of storages."""
    with zipfile.ZipFile(path) as archive:
        members = {member.filename: member for member in archive.infolist()}
        if any(
            member.compress_type != zipfile.ZIP_STORED for member in members.values()
        ):
            raise ValueError("the archive is compressed, unlike PyTorch's files")
        if sum(member.file_size for member in members.values()) > path.stat().st_size:
            raise ValueError("the archive's members are larger than the file")
        pickles = [name for name in members if name.endswith("/data.pkl")]
        if len(pickles) != 1 or members[pickles[0]].file_size > _LARGEST_HEADER:
            raise ValueError("expected exactly one pickle of limited size")
        home = pickles[0].removesuffix("data.pkl")
        if (
            f"{home}byteorder" in members
            and archive.read(f"{home}byteorder") != b"little"
        ):
            raise ValueError("the numbers are not little-endian")
        tensors = _only_tensors(_read_pickle(io.BytesIO(archive.read(pickles[0]))))
    for tensor in tensors.values():
        member = members.get(f"{home}data/{tensor.storage.key}")
        if (
            member is None
            or min(member.file_size, member.compress_size) < tensor.storage.bytes
        ):
            raise ValueError(
                f"storage {shortened(repr(tensor.storage.key))} is missing or truncated"
            )

    def read(storage: _Storage) -> bytes:
        with zipfile.ZipFile(path) as archive:
            return archive.read(f"{home}data/{storage.key}")

    return tensors, read


def _read_legacy(path: Path) -> _Found:
    """The tensors of a file of PyTorch before 1.6: concatenated pickles, then the storages."""
    content = path.read_bytes()
    stream = io.BytesIO(content)
    if _read_pickle(stream) != _LEGACY_MAGIC:
        raise _OtherThing("not a PyTorch file")
    _read_pickle(stream)  # protocol version
    system = _read_pickle(stream)
    if not isinstance(system, dict) or system.get("little_endian") is not True:
        raise ValueError("the numbers are not little-endian")
    tensors = _only_tensors(_read_pickle(stream))
    keys = _read_pickle(stream)
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise ValueError("the storages have no names")
    storages = {tensor.storage.key: tensor.storage for tensor in tensors.values()}
    starts, position = {}, stream.tell()
    for key in keys:
        storage = storages.get(key)
        if storage is None:
            raise ValueError(f"storage {shortened(repr(key))} belongs to no tensor")
        count = int.from_bytes(content[position : position + 8], "little")
        starts[storage] = position + 8
        position += 8 + storage.bytes
        if count != storage.numbers or position > len(content):
            raise ValueError(f"storage {shortened(repr(key))} is truncated")
    if missing := storages.keys() - keys:
        raise ValueError(f"storage {shortened(repr(min(missing)))} is missing")
    return tensors, lambda storage: content[
        starts[storage] : starts[storage] + storage.bytes
    ]


def _only_tensors(values: Any) -> dict[str, _PickledTensor]:
    if not isinstance(values, dict) or not all(
        isinstance(each, _PickledTensor) for each in values.values()
    ):
        raise _OtherThing("not a dictionary of tensors")
    storages = {tensor.storage for tensor in values.values()}
    if len({storage.key for storage in storages}) < len(storages):
        raise ValueError("several storages have the same name")
    return values


class _Name(NamedTuple):
    """An object of a module, by name only."""

    module: str
    name: str

    def __call__(self, *_: Any) -> Any:
        raise _OtherThing(f"a call of {self.module}.{self.name}")


class _Dictionary(dict[str, Any]):
    """A dictionary with string keys; its attributes (module versions) are ignored."""

    def __init__(self) -> None:
        super().__init__()

    def __setitem__(self, key: Any, value: Any) -> None:
        if not isinstance(key, str):
            raise _OtherThing("a dictionary with keys other than strings")
        super().__setitem__(key, value)

    def __setstate__(self, _: Any) -> None:
        return


def _tensor(
    storage: Any, offset: Any, shape: Any, strides: Any, *_: Any
) -> _PickledTensor:
    if (
        not isinstance(storage, _Storage)
        or not isinstance(shape, tuple)
        or not isinstance(strides, tuple)
    ):
        raise ValueError("the pickle has a damaged tensor")
    numbers = (offset, *shape, *strides)
    possible = all(type(number) is int and 0 <= number < 1 << 62 for number in numbers)
    if not possible or len(shape) != len(strides) or len(shape) > _MOST_DIMENSIONS:
        raise ValueError("the pickle has a tensor of invalid shape")
    count = math.prod(shape)
    last = offset + sum(
        (size - 1) * stride for size, stride in zip(shape, strides, strict=True)
    )
    if count and (last >= storage.numbers or count > storage.numbers):
        raise ValueError(
            f"a tensor of shape {shape} exceeds the {storage.numbers} stored numbers"
        )
    return _PickledTensor(storage, offset, shape, strides)


def _parameter(tensor: Any, *_: Any) -> _PickledTensor:
    if not isinstance(tensor, _PickledTensor):
        raise ValueError("the pickle has a damaged tensor")
    return tensor


_CALLS: dict[tuple[str, str], Callable[..., Any]] = {
    ("collections", "OrderedDict"): _Dictionary,
    ("torch._utils", "_rebuild_tensor"): _tensor,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch._utils", "_rebuild_parameter"): _parameter,
}
_INSTRUCTIONS = {ord(step.code): step.name for step in pickletools.opcodes}
_FOLLOWED = {
    *(
        "PROTO",
        "FRAME",
        "STOP",
        "MARK",
        "BINPUT",
        "LONG_BINPUT",
        "MEMOIZE",
        "BINGET",
        "LONG_BINGET",
    ),
    *(
        "BINUNICODE",
        "SHORT_BINUNICODE",
        "BINSTRING",
        "SHORT_BINSTRING",
        "BININT",
        "BININT1",
        "BININT2",
    ),
    *("LONG1", "BINFLOAT", "EMPTY_LIST", "EMPTY_TUPLE", "NONE", "NEWTRUE", "NEWFALSE"),
    *(
        "TUPLE",
        "TUPLE1",
        "TUPLE2",
        "TUPLE3",
        "GLOBAL",
        "STACK_GLOBAL",
        "BINPERSID",
        "REDUCE",
    ),
    *("SETITEM", "SETITEMS", "APPEND", "APPENDS", "BUILD"),
}


class _Reader(pickle._Unpickler):
    """Python's own reader, without lookup of names; the C version allocates memory by the pickle's claims."""

    dispatch = {  # noqa: RUF012 (as in the parent class)
        **{
            code: step
            for code, step in pickle._Unpickler.dispatch.items()
            if _INSTRUCTIONS[code] in _FOLLOWED
        },
        pickle.EMPTY_DICT[0]: lambda self: self.append(_Dictionary()),  # type: ignore[attr-defined]
    }

    def find_class(self, module: str, name: str) -> Any:
        return _CALLS.get((module, name), _Name(module, name))

    def persistent_load(self, found: Any) -> _Storage:
        if (
            not isinstance(found, tuple)
            or len(found) < 5
            or any(each is not None for each in found[5:])
        ):
            raise _OtherThing("an unknown storage")
        kind, dtype, key, _, numbers = found[:5]
        if kind != "storage" or not isinstance(dtype, _Name) or dtype.module != "torch":
            raise _OtherThing("an unknown storage")
        if not isinstance(key, str) or type(numbers) is not int or numbers < 0:
            raise ValueError("the pickle has a damaged storage")
        if dtype.name not in _STORAGES:
            raise _OtherThing(f"a storage of the type {dtype.name}")
        return _Storage(_STORAGES[dtype.name], key, numbers)


def _read_pickle(stream: io.BytesIO) -> Any:
    """Value of the pickle at the stream's position, with tensors only described; stops at its end.

    `_OtherThing`: the pickle contains anything but tensors; `ValueError`: it is damaged.
    """
    try:
        return _Reader(stream).load()
    except KeyError as error:
        if name := _INSTRUCTIONS.get(error.args[0]):
            raise _OtherThing(f"instruction {name}") from None
    except (
        pickle.UnpicklingError,
        AttributeError,
        EOFError,
        IndexError,
        TypeError,
        struct.error,
    ):
        pass
    raise ValueError(f"the pickle is damaged before byte {stream.tell()}")
