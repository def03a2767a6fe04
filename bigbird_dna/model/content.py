"""What a model directory holds beside the files that loading reads."""

from pathlib import Path

from bigbird_dna.errors import ModelError, shortened
from bigbird_dna.model.catalogue import is_name

CARD = "MODEL_CARD.md"
METRICS = "metrics.json"


def list_files(directory: Path) -> list[str]:
    """Names of a model directory's files, sorted; hidden ones, which programs put there, are left out.

    Raises
    ------
    ModelError
        It holds a directory, a link or something else that is not a file, or a name of other characters than
        letters, digits, '.', '_' and '-'.
    """
    names = []
    for path in sorted(directory.iterdir()):
        if path.name.startswith("."):
            continue
        what = f"{directory}: {shortened(path.name)!r}"
        if path.is_symlink() or not path.is_file():
            raise ModelError(f"{what} is not a file; a model directory holds files alone")
        if not is_name(path.name):
            raise ModelError(f"{what}: files of a model have names of letters, digits, '.', '_' and '-'")
        names.append(path.name)
    return names
