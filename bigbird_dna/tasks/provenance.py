"""What a model directory says of its origin, and what decides its predictions."""

from pathlib import Path
from typing import Any

from bigbird_dna.calibration.stored import FILE as CALIBRATION
from bigbird_dna.disk.json_files import read_mapping
from bigbird_dna.errors import ModelError, UsageError
from bigbird_dna.genome.regions import read_named_region
from bigbird_dna.model.directory import CONFIG, WEIGHTS
from bigbird_dna.model.model import Model
from bigbird_dna.tokens.text import TOKENIZER_FILES

FILE = "provenance.json"


def read_provenance(model: Path) -> dict[str, Any]:
    """The content of `provenance.json`, {} where there is none.

    If they are there, "contigs" is a list of names, and "stretches" one of named regions: all that was read
    of those contigs that were divided.

    Raises
    ------
    DataError, ModelError
        The file is damaged.
    """
    path = model / FILE
    if not path.is_file():
        return {}
    values = read_mapping(path)
    contigs = values.get("contigs", [])
    if not isinstance(contigs, list) or not all(isinstance(name, str) for name in contigs):
        raise ModelError(f"{path}: contigs is not a list of names")
    stretches = values.get("stretches", [])
    if not isinstance(stretches, list) or not all(map(_is_region, stretches)):
        raise ModelError(f"{path}: stretches is not a list of regions (as 22:1001-2000)")
    return values


def model_files(model: Model, calibrated: bool = False) -> list[Path]:
    """The files of a model's directory that decide what it predicts, or its calibrated probabilities.

    Raises
    ------
    UsageError
        The model was never saved.
    """
    if model.path is None:
        raise UsageError("a piece of a job needs a model that was saved, so that others can use the same")
    names = (CONFIG, WEIGHTS, *TOKENIZER_FILES, *([CALIBRATION] if calibrated else []))
    files = (model.path / name for name in names)
    return [path for path in files if path.is_file()]


def _is_region(value: object) -> bool:
    try:
        return isinstance(value, str) and bool(read_named_region(value))
    except ValueError:
        return False
