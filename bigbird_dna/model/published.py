"""The list of published models, `resources/models.yaml`.

A model is either bundled, as a directory in `models/` next to the list, or an archive at a URL, which
`fetch-model` downloads and compares with its SHA-256.
"""

from functools import cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from bigbird_dna.config.safe_yaml import (
    check_addresses,
    check_entry,
    read_values,
    shown,
)
from bigbird_dna.config.section import Section
from bigbird_dna.errors import ConfigError, ModelError, UsageError, meant, one_of
from bigbird_dna.model.catalog import FOLDER, is_name
from bigbird_dna.model.settings import Task

NAME_RULE = "a name must begin with a letter or digit and contain at most 48 letters, digits, '.', '_' and '-'"


def _line(text: str) -> str:
    if not text.strip() or not text.isprintable():
        raise ValueError("must be a single line of text")
    return text


def _where(value: Any) -> Any:
    if isinstance(value, str):
        if not is_name(value):
            raise ValueError(NAME_RULE)
        return value
    if not (
        isinstance(value, list | tuple) and all(isinstance(url, str) for url in value)
    ):
        raise ValueError("must be a directory name or a list of URLs")
    return check_addresses(tuple(value))


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
        self.models: dict[str, PublishedModel] = {}
        for name, entry in read_values(self.path).items():
            where = f"{path}: model {shown(name)}"
            if not is_name(name):
                raise ConfigError(f"{where}: {NAME_RULE}")
            self.models[name] = check_entry(PublishedModel, entry, where)

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
        lines = ["#name\ttask\tfrom\tlicense\tdescription"]
        for name, model in sorted(self.models.items()):
            source = "address" if model.urls else "bundled"
            cells = (name, model.task, source, model.license, model.description)
            lines.append("\t".join(cells))
        return lines


@cache
def load_published() -> Published:
    """The list included in the package."""
    with as_file(files("bigbird_dna.resources").joinpath("models.yaml")) as path:
        return Published(path)


def missing_model(path: Path) -> ModelError:
    """The error for a model directory that does not exist; for a published model, how to get it."""
    published = load_published().models
    if str(path) in published:
        return ModelError(
            f"{path}: the published model is not downloaded; run `bigbird-dna fetch-model {path}`, then give "
            f"the path {FOLDER}/{path}"
        )
    return ModelError(f"{path}: model directory not found{meant(path, published)}")
