"""JSON files of a checkpoint or a model that go on into files of our own: they must fit there."""

import json
from pathlib import Path
from typing import Any

from bigbird_dna.errors import ModelError
from bigbird_dna.files import read_json

_LARGEST = 1 << 24  # bytes
_DEEPEST = 32  # values in values


def read_mapping(path: Path) -> dict[str, Any]:
    """The object that a file holds.

    Raises
    ------
    DataError : the file isn't readable, or no JSON.
    ModelError : it holds no object, or what couldn't be written again: a number that isn't finite, half a
        letter of UTF-16, values in values in values without end.
    """
    try:
        size = path.stat().st_size
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror}") from None
    if size > _LARGEST:
        raise ModelError(f"{path}: larger than {_LARGEST >> 20} MB, which no such file is")
    values = read_json(path)
    if not isinstance(values, dict):
        raise ModelError(f"{path}: not a mapping")
    check_writable(values, path)
    return values


def check_writable(values: dict[str, Any], path: Path) -> None:
    """`ModelError` for values of a file that couldn't be written to another one."""
    layer: list[Any] = [values]
    for _ in range(_DEEPEST):
        layer = [inner for value in layer if isinstance(value, dict | list) for inner in _members(value)]
    if layer:
        raise ModelError(f"{path}: nested too deeply")
    try:
        json.dumps(values, ensure_ascii=False, allow_nan=False).encode()
    except ValueError:
        raise ModelError(f"{path}: holds a number that isn't finite, or a text with half a letter") from None


def _members(value: dict[str, Any] | list[Any]) -> list[Any]:
    return [*value.values()] if isinstance(value, dict) else value
