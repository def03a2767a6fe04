"""JSON of models and checkpoints: what is ambiguous, or couldn't be written again, is refused."""

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any, NoReturn

from bigbird_dna.disk.atomic import read_json
from bigbird_dna.errors import BigBirdDnaError, ModelError, error_text


def parse_json(text: str) -> Any:
    """The value of a JSON text; `ValueError` with one line if it has none.

    Refused are also a key that occurs twice in an object, NaN and infinities, numbers too large for a float,
    and whatever is nested too deeply to be read.
    """
    try:
        return json.loads(
            text, object_pairs_hook=_object, parse_constant=_no_number, parse_float=_finite_number
        )
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_json_within(
    path: Path, most_bytes: int, error_class: type[BigBirdDnaError] = ModelError, fault: str = "damaged"
) -> Any:
    """The value of a JSON file of at most `most_bytes`, as of `parse_json`; else the error, which names
    `fault`."""
    try:
        if path.stat().st_size > most_bytes:
            raise error_class(f"{path}: damaged: more than {most_bytes >> 20} MB")
        return parse_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise error_class(f"{path}: can't be read: {error.strerror}") from None
    except ValueError as error:  # no UTF-8, or no JSON
        raise error_class(f"{path}: {fault}: {error_text(error)}") from None


def read_object(path: Path, most_bytes: int) -> dict[str, Any]:
    """The object that a model's JSON file holds; `ModelError` if there is none."""
    values = read_json_within(path, most_bytes)
    if not isinstance(values, dict):
        raise ModelError(f"{path}: damaged: holds no JSON object")
    return values


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        (twice, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"key {twice!r:.80} stands twice")
    return found


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def _finite_number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text:.40} is too large")
    return number


_LARGEST = 1 << 24  # bytes
_DEEPEST = 32  # values in values


def read_mapping(path: Path) -> dict[str, Any]:
    """The object that a file of other software holds; `DataError` if it isn't readable, or no JSON.

    `ModelError`: it holds no object, or what couldn't be written again: a number that isn't finite, half a
    letter of UTF-16, values in values without end.
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
        lists = [[*value.values()] if isinstance(value, dict) else value for value in layer]
        layer = [inner for value in lists if isinstance(value, list) for inner in value]
    if layer:
        raise ModelError(f"{path}: nested too deeply")
    try:
        json.dumps(values, ensure_ascii=False, allow_nan=False).encode()
    except ValueError:
        raise ModelError(f"{path}: holds a number that isn't finite, or a text with half a letter") from None
