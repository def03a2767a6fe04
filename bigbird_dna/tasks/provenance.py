"""What a model directory says of its origin."""

from pathlib import Path
from typing import Any

from bigbird_dna.errors import ModelError
from bigbird_dna.model.json_files import read_mapping

FILE = "provenance.json"


def read_provenance(model: Path) -> dict[str, Any]:
    """The content of `provenance.json`, {} where there is none; "contigs", if there, is a list of names.

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
    return values
