"""Read the JSON of models and checkpoints; content that cannot be written again is an error."""

import json
from pathlib import Path
from typing import Any, NoReturn

from bigbird_dna.errors import BigBirdDnaError, ModelError, error_text


def read_json_of(
    path: Path,
    error_class: type[BigBirdDnaError] = ModelError,
    fault: str = "damaged",
) -> Any:
    """Read a JSON file without NaN and infinities; raise the error with `fault` if it is damaged."""
    try:
        text = path.read_text(encoding="utf-8")
        return json.loads(text, parse_constant=_refuse_constant)
    except OSError as error:
        raise error_class(f"{path}: cannot read the file: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # invalid UTF-8 or JSON
        raise error_class(f"{path}: {fault}: {error_text(error)}") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def read_object(path: Path) -> dict[str, Any]:
    """Read the object in a model's JSON file; `ModelError` if the file contains no object."""
    values = read_json_of(path)
    if not isinstance(values, dict):
        raise ModelError(f"{path}: the file is damaged: it contains no JSON object")
    return values


def read_mapping(path: Path) -> dict[str, Any]:
    """Read the object in a JSON file of other software, which may be written again.

    `ModelError` if the file is missing or damaged, or has a text that is not valid Unicode.
    """
    values = read_object(path)
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
