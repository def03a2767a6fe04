"""Read the JSON of models and checkpoints."""

from pathlib import Path
from typing import Any

from bigbird_dna.disk.atomic import read_json
from bigbird_dna.errors import DataError, ModelError


def read_object(path: Path) -> dict[str, Any]:
    """Read the object in a model's JSON file; `ModelError` if the file is missing or contains no object."""
    try:
        values = read_json(path)
    except DataError as error:
        raise ModelError(str(error)) from None
    if not isinstance(values, dict):
        raise ModelError(f"{path}: the file is damaged: it contains no JSON object")
    return values
