"""Published models by name, as described in `resources/models.yaml`.

A model is either bundled, as a directory in `models/` next to the list, or an archive at a URL, which
`fetch-model` downloads and compares with its SHA-256.
"""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from bigbird_dna.config import Section
from bigbird_dna.config.safe_yaml import check_entry, shown
from bigbird_dna.disk.directories import (
    atomic_directory,
    check_directory,
    into_directory,
)
from bigbird_dna.errors import ConfigError, ModelError, UsageError, one_of, shortened
from bigbird_dna.genome.sources import check_addresses, read_entries
from bigbird_dna.model.settings import Task

LIST, FOLDER = "models.yaml", "models"
NAME_RULE = "a name must begin with a letter or digit and contain at most 48 letters, digits, '.', '_' and '-'"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,47}")


def is_name(text: str) -> bool:
    """Whether a text is a valid name of a published model, or of a file of a model."""
    return _NAME.fullmatch(text) is not None


def _name(text: str) -> str:
    if not is_name(text):
        raise ValueError(NAME_RULE)
    return text


def _line(text: str) -> str:
    if not text.strip() or not text.isprintable():
        raise ValueError("must be a single line of text")
    return text


def _where(value: Any) -> Any:
    if isinstance(value, str):
        return _name(value)
    is_list = isinstance(value, list | tuple) and value
    if not is_list or not all(isinstance(one, str) for one in value):
        raise ValueError("must be a directory name or a list of URLs")
    return check_addresses(value)


Line = Annotated[str, AfterValidator(_line)]


class PublishedModel(Section):
    """One entry of `models.yaml`."""

    description: Line
    task: Task
    license: Line
    # A directory in `models/`, or URLs of the archive.
    where: Annotated[str | tuple[str, ...], BeforeValidator(_where)]
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = (
        None  # of the archive
    )

    @model_validator(mode="after")
    def _check_archive(self) -> Self:
        if self.urls and self.sha256 is None:
            raise ValueError("sha256 of the archive is missing")
        return self

    @property
    def urls(self) -> tuple[str, ...]:
        """URLs of the archive; empty for a bundled model."""
        return () if isinstance(self.where, str) else self.where


class Published:
    """A list of published models."""

    def __init__(self, path: Path) -> None:
        """Read the list.

        `ConfigError`: the file is unreadable, or a field of an entry is missing, unknown or invalid.
        """
        self.path = Path(path)
        entries = read_entries(self.path, "models")
        self.models = {
            name: _entry(name, entry, self.path) for name, entry in entries.items()
        }

    def __getitem__(self, name: str) -> PublishedModel:
        """The entry of a name; `UsageError` lists the available names."""
        if name not in self.models:
            raise UsageError(
                f"no published model {shown(name)}: {one_of(name, sorted(self.models))}"
            )
        return self.models[name]

    def bundled(self, name: str) -> Path | None:
        """The directory of a bundled model; None for a model that must be downloaded."""
        where = self[name].where
        return self.path.parent / FOLDER / where if isinstance(where, str) else None

    def lines(self) -> list[str]:
        """A tab-separated table: name, task, bundled or address, license, description."""
        rows = [("#name", "task", "from", "license", "description")]
        for name, one in sorted(self.models.items()):
            place = "address" if one.urls else "bundled"
            rows.append((name, one.task, place, one.license, one.description))
        return ["\t".join(row) for row in rows]


@cache
def load_published() -> Published:
    """The list included in the package."""
    with as_file(files("bigbird_dna.resources").joinpath(LIST)) as path:
        return Published(path)


def open_published(path: Path | None) -> Published:
    """Open a list of models; None opens the package's list. Raises `ConfigError` like `Published`."""
    return load_published() if path is None else Published(path)


def find_model(path: Path | str) -> Path:
    """The directory of a model: the given path if it exists, else the bundled model of this name.

    A nonexistent path that is not the name of a published model is returned unchanged. `ModelError`: the
    model must be downloaded first.
    """
    path = Path(path)
    name = str(path)
    if not is_name(name) or path.exists() or path.is_symlink():
        return path
    published = load_published()
    if name not in published.models:
        return path
    bundled = published.bundled(name)
    if bundled is None:
        raise ModelError(
            f"{name}: the published model is not downloaded; run `bigbird-dna fetch-model {name}`, then give "
            f"the path {FOLDER}/{name}"
        )
    return bundled


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


def stored_name(path: Path | None) -> Path | str | None:
    """Return the name of a bundled model, which is the same on all machines, and any other path unchanged."""
    published = load_published()
    return {published.bundled(name): name for name in published.models}.get(path, path)


def _entry(name: str, entry: object, path: Path) -> PublishedModel:
    where = f"{path}: model {shown(name)}"
    if not is_name(name):
        raise ConfigError(
            f"{where}: the name must contain at most 48 letters, digits, '.', '_' and '-'"
        )
    return check_entry(PublishedModel, entry, where)
