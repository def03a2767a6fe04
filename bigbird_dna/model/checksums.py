"""SHA-256 of a model's files, kept in its `provenance.json` under "files", and looked at when it is loaded.

They find damage, of disks and copies. Who can write to the directory can write them anew: they don't say who
made a model.
"""

from collections.abc import Iterable
from pathlib import Path

from bigbird_dna.console import log
from bigbird_dna.errors import ModelError, error_text, shortened
from bigbird_dna.files import checksum
from bigbird_dna.strict_json import read_object

RECORD = "provenance.json"
KEY = "files"
MOST_BYTES = 1 << 25  # of a JSON file; a hundred times what a thousand tracks take


def record(directory: Path, names: Iterable[str]) -> dict[str, str]:
    """SHA-256 by name of files in a directory."""
    return {name: checksum(directory / name) for name in names}


def verify(directory: Path, names: Iterable[str]) -> dict[str, str]:
    """Compare a model's files with what is recorded of them; gives the checksums that were found.

    Looked at is every file that the record names. A line of the log says which of `names` it doesn't: models
    of earlier versions have none.

    Raises
    ------
    ModelError
        A file is damaged, or has changed since it was saved; or the record itself can't be read.
    """
    found = recorded(directory)
    for name, expected in found.items():
        _compare(directory, name, expected)
    if unknown := [name for name in names if name not in found]:
        log(f"{directory}: {RECORD} has no checksum of {', '.join(unknown)}: not looked at for damage")
    return found


def verify_one(directory: Path, name: str) -> None:
    """The same for one file, which may be all that is there; nothing is said where it has no record."""
    if expected := recorded(directory).get(name):
        _compare(directory, name, expected)


def recorded(directory: Path) -> dict[str, str]:
    """What a model's record says: SHA-256 by name of file; `ModelError` if it can't be read."""
    path = directory / RECORD
    if not path.exists():
        return {}
    files = read_object(path, MOST_BYTES).get(KEY, {})
    if not isinstance(files, dict):
        raise ModelError(f"{path}: damaged: {KEY!r} holds no JSON object")
    for name, value in files.items():
        if not isinstance(value, str) or Path(name).name != name or "\0" in name:
            raise ModelError(f"{path}: damaged: {KEY!r} has no checksum of a file at {shortened(repr(name))}")
    return files


def _compare(directory: Path, name: str, expected: str) -> None:
    path = f"{directory}/{shortened(name)}"
    try:
        found = checksum(directory / name)
    except FileNotFoundError:
        raise ModelError(f"{path}: is missing, though {RECORD} names it") from None
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: can't be read: {error_text(error)}") from None
    if found != expected:
        raise ModelError(
            f"{path}: damaged, or changed since it was saved: its sha256 is {found[:12]}…, {RECORD} says "
            f"{shortened(expected, 12)}; take an unharmed copy, or, if the change is meant, delete its line "
            f"under {KEY!r} there"
        )
