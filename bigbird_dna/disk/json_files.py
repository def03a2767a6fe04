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

    Duplicate keys, NaN and infinities, and numbers too large for a float are also errors.
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


def read_json_of(
    path: Path,
    error_class: type[BigBirdDnaError] = ModelError,
    fault: str = "damaged",
) -> Any:
    """Read a JSON file with `parse_json`; raise the error with `fault` if it is damaged."""
    try:
        return parse_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise error_class(f"{path}: cannot read the file: {error.strerror}") from None
    except ValueError as error:  # invalid UTF-8 or JSON
        raise error_class(f"{path}: {fault}: {error_text(error)}") from None


def read_object(path: Path) -> dict[str, Any]:
    """Read the object in a model's JSON file; `ModelError` if the file contains no object."""
    values = read_json_of(path)
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


def read_mapping(path: Path) -> dict[str, Any]:
    """Read the object in a JSON file of other software; `DataError` if it is unreadable or not JSON.

    `ModelError` if it is missing, is not an object, or has a number or text that cannot be written again.
    """
    if not path.is_file():
        raise ModelError(f"{path}: no such file")
    values = read_json(path)
    if not isinstance(values, dict):
        raise ModelError(f"{path}: must contain a JSON object")
    check_writable(values, path)
    return values


def check_writable(values: dict[str, Any], path: Path) -> None:
    """Raise `ModelError` for values of a file that cannot be written to another file."""
    try:
        json.dumps(values, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        raise ModelError(
            f"{path}: contains NaN/Infinity or invalid Unicode (unpaired surrogate)"
        ) from None
