"""Read the JSON of models and checkpoints; ambiguous or unwritable content is an error."""

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any, NoReturn

from bigbird_dna.disk.atomic import read_json
from bigbird_dna.errors import BigBirdDnaError, ModelError, error_text


def parse_json(text: str) -> Any:
    """Parse a JSON text; `ValueError` with one line if it is invalid.

    Duplicate keys, NaN and infinities, numbers too large for a float, and too deep nesting are also errors.
    """
    try:
        return json.loads(
            text,
            object_pairs_hook=_object,
            parse_constant=_no_number,
            parse_float=_finite_number,
        )
    except RecursionError:
        raise ValueError("nested too deeply") from None


def read_json_within(
    path: Path,
    most_bytes: int,
    error_class: type[BigBirdDnaError] = ModelError,
    fault: str = "damaged",
) -> Any:
    """Read a JSON file of at most `most_bytes` with `parse_json`; otherwise raise the error with `fault`."""
    try:
        if path.stat().st_size > most_bytes:
            raise error_class(
                f"{path}: the file is damaged: larger than {most_bytes >> 20} MB"
            )
        return parse_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise error_class(f"{path}: cannot read the file: {error.strerror}") from None
    except ValueError as error:  # invalid UTF-8 or JSON
        raise error_class(f"{path}: {fault}: {error_text(error)}") from None


def read_object(path: Path, most_bytes: int) -> dict[str, Any]:
    """Read the object in a model's JSON file; `ModelError` if the file contains no object."""
    values = read_json_within(path, most_bytes)
    if not isinstance(values, dict):
        raise ModelError(f"{path}: the file is damaged: it contains no JSON object")
    return values


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        (twice, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"duplicate key {twice!r:.80}")
    return found


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def _finite_number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text:.40} is too large")
    return number


_LARGEST = 1 << 24  # bytes
_DEEPEST = 32  # maximum nesting depth


def read_mapping(path: Path) -> dict[str, Any]:
    """Read the object in a JSON file of other software; `DataError` if it is unreadable or not JSON.

    `ModelError` if it is not an object, or contains a value that cannot be written again: a number that is
    not finite, an unpaired UTF-16 surrogate, or too deep nesting.
    """
    try:
        size = path.stat().st_size
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror}") from None
    if size > _LARGEST:
        raise ModelError(f"{path}: larger than the maximum of {_LARGEST >> 20} MB")
    values = read_json(path)
    if not isinstance(values, dict):
        raise ModelError(f"{path}: must contain a JSON object")
    check_writable(values, path)
    return values


def check_writable(values: dict[str, Any], path: Path) -> None:
    """Raise `ModelError` for values of a file that cannot be written to another file."""
    layer: list[Any] = [values]
    for _ in range(_DEEPEST):
        lists = [
            [*value.values()] if isinstance(value, dict) else value for value in layer
        ]
        layer = [inner for value in lists if isinstance(value, list) for inner in value]
    if layer:
        raise ModelError(f"{path}: nested too deeply")
    try:
        json.dumps(values, ensure_ascii=False, allow_nan=False).encode()
    except ValueError:
        raise ModelError(
            f"{path}: contains NaN/Infinity or invalid Unicode (unpaired surrogate)"
        ) from None
