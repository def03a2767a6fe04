"""Bundled models by name, and the files of model directories."""

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
from bigbird_dna.errors import UsageError

if TYPE_CHECKING:
    from bigbird_dna.model.model import LoadedModel

RESOURCES = Path(bigbird_dna.resources.__file__).parent
BUNDLED = RESOURCES / "models"


def find_model(path: Path | str) -> Path:
    """The directory of a model: the given path if it exists, else the bundled model of this name.

    A nonexistent path that is not the name of a bundled model is returned unchanged.
    """
    path = Path(path)
    if path.exists() or len(path.parts) != 1 or not (BUNDLED / path).is_dir():
        return path
    return BUNDLED / path


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


def copy_files(path: Path, target: Path, *without: str) -> None:
    """Copy the files of a model directory to another directory, except hidden ones and those named."""
    ignored = shutil.ignore_patterns(".*", *without)
    shutil.copytree(path, target, dirs_exist_ok=True, ignore=ignored)


def find_target(model: Path, output: Path | None) -> Path:
    """The directory of a model to be changed; `UsageError` for a bundled model without `output`."""
    path = find_model(model)
    if output is not None:
        check_directory(output, [path])
    elif path != Path(model):
        raise UsageError(
            f"{model}: bundled models cannot be changed; give an output directory with -o"
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
