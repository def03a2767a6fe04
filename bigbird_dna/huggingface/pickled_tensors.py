"""What PyTorch's pickles say of tensors, read without unpickling anything.

A pickle is a program. Those that `torch.save` writes for a dictionary of tensors use few of its
instructions; here these are followed and no others, and what they make are plain values: no function of a
pickle is ever looked up, and a tensor is only described (`PickledTensor`).
"""

import math
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

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


class OtherThing(ValueError):
    """A pickle holds what is neither a tensor nor a plain container of them."""


class Storage(NamedTuple):
    """Numbers in a row that tensors are views of."""

    dtype: torch.dtype
    key: str  # names them in the file
    numbers: int


class PickledTensor(NamedTuple):
    """A view of a storage that doesn't reach beyond it, nor is larger than it."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def numbers(self) -> int:
        """In the tensor."""
        return math.prod(self.shape)


class _Name(NamedTuple):
    """Something in a module, by name only."""

    module: str
    name: str


def read_pickle(content: bytes, position: int = 0) -> tuple[Any, int]:
    """The value of the pickle that begins at `position`, and where it ends.

    Raises
    ------
    OtherThing : it asks for anything but tensors.
    ValueError : it is damaged.
    """
    reader = _Reader(content, position)
    try:
        return reader.run(), reader.position
    except (IndexError, KeyError, TypeError):
        raise ValueError(f"its pickle is damaged before byte {reader.position}") from None


class _Reader:
    """The stack, the marked places in it, and the values that are remembered."""

    def __init__(self, content: bytes, position: int) -> None:
        self.content = content
        self.position = position
        self.stack: list[Any] = []
        self.marks: list[list[Any]] = []
        self.memo: dict[int, Any] = {}

    def run(self) -> Any:
        while True:
            code = self.take(1)[0]
            if code == ord("."):
                return self.stack.pop()
            step = _STEPS.get(code)
            if step is None:
                raise OtherThing(f"instruction 0x{code:02x}")
            step(self)

    def take(self, count: int) -> bytes:
        start, self.position = self.position, self.position + count
        if self.position > len(self.content):
            raise IndexError(count)
        return self.content[start : self.position]

    def number(self, layout: str) -> Any:
        return struct.unpack(layout, self.take(struct.calcsize(layout)))[0]

    def line(self) -> str:
        end = self.content.find(b"\n", self.position)
        if end < 0:
            raise IndexError(end)
        text = self.content[self.position : end].decode()
        self.position = end + 1
        return text

    def text(self, layout: str) -> str:
        return self.take(self.number(layout)).decode()

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def until_mark(self) -> list[Any]:
        values, self.stack = self.stack, self.marks.pop()
        return values

    def mark(self) -> None:
        self.marks.append(self.stack)
        self.stack = []

    def last(self, count: int) -> tuple[Any, ...]:
        values = [self.stack.pop() for _ in range(count)]
        return tuple(values[::-1])

    def name(self) -> None:
        module, name = self.last(2)
        if not isinstance(module, str) or not isinstance(name, str):
            raise ValueError("its pickle names something by no name")
        self.push(_Name(module, name))

    def remember(self, place: int) -> None:
        self.memo[place] = self.stack[-1]

    def set_items(self, values: Sequence[Any]) -> None:
        into = self.stack[-1]
        keys = values[::2]
        if not isinstance(into, dict) or not all(isinstance(key, str) for key in keys) or len(values) % 2:
            raise OtherThing("a dictionary whose keys are not names")
        into.update(zip(keys, values[1::2], strict=True))

    def append(self, values: Sequence[Any]) -> None:
        if not isinstance(self.stack[-1], list):
            raise ValueError("its pickle appends to what is not a list")
        self.stack[-1].extend(values)

    def call(self) -> None:
        function, arguments = self.last(2)
        if not isinstance(function, _Name) or not isinstance(arguments, tuple):
            raise OtherThing("a call of what is not a function")
        make = _CALLS.get(function)
        if make is None:
            raise OtherThing(f"a call of {function.module}.{function.name}")
        self.push(make(*arguments))

    def build(self) -> None:
        """Attributes of a dictionary: versions of modules, which nothing needs."""
        self.stack.pop()
        if not isinstance(self.stack[-1], dict):
            raise OtherThing("an object with attributes")

    def persistent(self) -> None:
        found = self.stack.pop()
        if not isinstance(found, tuple) or len(found) < 5 or any(each is not None for each in found[5:]):
            raise OtherThing("an unknown storage")
        kind, dtype, key, _, numbers = found[:5]
        if kind != "storage" or not isinstance(dtype, _Name) or dtype.module != "torch":
            raise OtherThing("an unknown storage")
        if not isinstance(key, str) or type(numbers) is not int or numbers < 0:
            raise ValueError("its pickle has a damaged storage")
        if dtype.name not in _STORAGES:
            raise OtherThing(f"a storage of the type {dtype.name}")
        self.push(Storage(_STORAGES[dtype.name], key, numbers))


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> PickledTensor:
    if not isinstance(storage, Storage) or not isinstance(shape, tuple) or not isinstance(strides, tuple):
        raise ValueError("its pickle has a damaged tensor")
    numbers = (offset, *shape, *strides)
    if not all(type(number) is int and 0 <= number < 1 << 62 for number in numbers):
        raise ValueError("its pickle has a tensor of impossible shape")
    if len(shape) != len(strides) or len(shape) > _MOST_DIMENSIONS:
        raise ValueError("its pickle has a tensor of impossible shape")
    count = math.prod(shape)
    last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    if count and (last >= storage.numbers or count > storage.numbers):
        raise ValueError(f"a tensor of shape {shape} asks for more than the {storage.numbers} numbers stored")
    return PickledTensor(storage, offset, shape, strides)


def _parameter(tensor: Any, *_: Any) -> PickledTensor:
    if not isinstance(tensor, PickledTensor):
        raise ValueError("its pickle has a damaged tensor")
    return tensor


def _dictionary(*pairs: Any) -> dict[str, Any]:
    if pairs:
        raise OtherThing("a dictionary made of something")
    return {}


_CALLS: dict[_Name, Callable[..., Any]] = {
    _Name("collections", "OrderedDict"): _dictionary,
    _Name("torch._utils", "_rebuild_tensor"): _tensor,
    _Name("torch._utils", "_rebuild_tensor_v2"): _tensor,
    _Name("torch._utils", "_rebuild_parameter"): _parameter,
}

_STEPS: dict[int, Callable[[_Reader], object]] = {
    0x80: lambda self: self.take(1),  # protocol
    0x95: lambda self: self.take(8),  # frame
    ord("}"): lambda self: self.push({}),
    ord("]"): lambda self: self.push([]),
    ord(")"): lambda self: self.push(()),
    ord("N"): lambda self: self.push(None),
    0x88: lambda self: self.push(True),
    0x89: lambda self: self.push(False),
    ord("("): _Reader.mark,
    ord("q"): lambda self: self.remember(self.number("<B")),
    ord("r"): lambda self: self.remember(self.number("<I")),
    0x94: lambda self: self.remember(len(self.memo)),
    ord("h"): lambda self: self.push(self.memo[self.number("<B")]),
    ord("j"): lambda self: self.push(self.memo[self.number("<I")]),
    ord("X"): lambda self: self.push(self.text("<I")),
    ord("T"): lambda self: self.push(self.text("<I")),
    ord("U"): lambda self: self.push(self.text("<B")),
    0x8C: lambda self: self.push(self.text("<B")),
    ord("K"): lambda self: self.push(self.number("<B")),
    ord("M"): lambda self: self.push(self.number("<H")),
    ord("J"): lambda self: self.push(self.number("<i")),
    ord("G"): lambda self: self.push(self.number(">d")),
    0x8A: lambda self: self.push(int.from_bytes(self.take(self.number("<B")), "little", signed=True)),
    ord("c"): lambda self: self.push(_Name(self.line(), self.line())),
    0x93: _Reader.name,
    ord("Q"): _Reader.persistent,
    ord("t"): lambda self: self.push(tuple(self.until_mark())),
    0x85: lambda self: self.push(self.last(1)),
    0x86: lambda self: self.push(self.last(2)),
    0x87: lambda self: self.push(self.last(3)),
    ord("R"): _Reader.call,
    ord("b"): _Reader.build,
    ord("s"): lambda self: self.set_items(self.last(2)),
    ord("u"): lambda self: self.set_items(self.until_mark()),
    ord("a"): lambda self: self.append(self.last(1)),
    ord("e"): lambda self: self.append(self.until_mark()),
}
"""Instructions by their codes."""
