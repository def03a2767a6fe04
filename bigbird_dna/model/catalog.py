"""Bundled models by name, and the files of model directories."""

import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import bigbird_dna.resources
from bigbird_dna.disk.directories import (
    atomic_directory,
    check_directory,
    into_directory,
)
from bigbird_dna.disk.outputs import command_line, provenance
from bigbird_dna.errors import ModelError, UsageError, shortened

if TYPE_CHECKING:
    from bigbird_dna.model.model import LoadedModel

FOLDER = "models"
BUNDLED = Path(bigbird_dna.resources.__file__).parent / FOLDER
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,47}")


def is_name(text: str) -> bool:
    """Whether a text is a valid name of a published model, or of a file of a model."""
    return _NAME.fullmatch(text) is not None


def find_model(path: Path | str) -> Path:
    """The directory of a model: the given path if it exists, else the bundled model of this name.

    A nonexistent path that is not the name of a bundled model is returned unchanged.
    """
    path = Path(path)
    if is_name(str(path)) and not path.exists() and (BUNDLED / path).is_dir():
        return BUNDLED / path
    return path


def result_origin(
    model: "LoadedModel",
    command: str,
    source: Path | str,
    options: Mapping[str, object],
) -> dict[str, str]:
    """Return the origin to store with a result: version, checksum of the weights, and command (`command_line`).

    A bundled model has its name, which is the same on all machines, and any other model its path.
    """
    path: Path | str | None = model.path
    if model.path is not None and model.path.parent == BUNDLED:
        path = model.path.name
    return provenance(model.sha256, command_line(command, [path, source], options))


def list_files(directory: Path) -> list[str]:
    """Names of a model directory's files, sorted; hidden files are omitted.

    `ModelError`: an entry is not a file, or its name contains other characters than letters, digits, '.', '_'
    and '-'.
    """
    names = []
    for path in sorted(directory.iterdir()):
        if path.name.startswith("."):
            continue
        what = f"{directory}: {shortened(path.name)!r}"
        if path.is_symlink() or not path.is_file():
            raise ModelError(
                f"{what} is not a file; a model directory must contain only files"
            )
        if not is_name(path.name):
            raise ModelError(
                f"{what}: a name must contain only letters, digits, '.', '_' and '-'"
            )
        names.append(path.name)
    return names


def copy_files(path: Path, target: Path, *without: str) -> None:
    """Copy the files of a model directory to another directory, except those named `without`."""
    for name in list_files(path):
        if name not in without:
            shutil.copyfile(path / name, target / name)


def find_target(given: Path, output: Path | None) -> Path:
    """The directory of a model to be changed; `UsageError` for a bundled model without `output`."""
    path = find_model(given)
    if output is not None:
        check_directory(output, [path])
    elif path != Path(given):
        raise UsageError(
            f"{given}: bundled models cannot be changed; give an output directory with -o"
        )
    return path


@contextmanager
def changed_file(path: Path, name: str, output: Path | None) -> Iterator[Path]:
    """A path at which to write a file of a model, in its directory or in a copy of it, `output`."""
    if output is None:
        with into_directory(path) as files:
            yield files / name
        return
    with atomic_directory(output) as directory:
        copy_files(path, directory, name)
        yield directory / name
