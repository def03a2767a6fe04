"""The list of published models, `resources/models.yaml`.

A model is either bundled, as a directory in `models/` next to the list, or an archive at a URL, which
`fetch-model` downloads and compares with its SHA-256.
"""

from functools import cache
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

import bigbird_dna.resources
from bigbird_dna.config.safe_yaml import (
    check_addresses,
    check_entry,
    read_values,
    shown,
)
from bigbird_dna.config.section import Section
from bigbird_dna.errors import ModelError, UsageError, meant, one_of
from bigbird_dna.model.catalog import FOLDER
from bigbird_dna.model.settings import Task

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,47}$")]
Addresses = Annotated[tuple[str, ...], AfterValidator(check_addresses)]
Line = Annotated[str, Field(pattern=r"^[^\t\r\n]+$")]


class PublishedModel(Section):
    """One entry of `models.yaml`."""

    description: Line
    task: Task
    license: Line
    where: Name | Addresses  # a directory in `models/`, or addresses of the archive
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None

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
    """A list of published models; `ConfigError` if the file is unreadable or an entry is invalid."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self.models = {
            name: check_entry(PublishedModel, entry, f"{path}: model {shown(name)}")
            for name, entry in read_values(self.path).items()
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
        lines = ["#name\ttask\tfrom\tlicense\tdescription"]
        for name, model in sorted(self.models.items()):
            source = "address" if model.urls else "bundled"
            cells = (name, model.task, source, model.license, model.description)
            lines.append("\t".join(cells))
        return lines


@cache
def load_published() -> Published:
    """The list included in the package."""
    return Published(Path(bigbird_dna.resources.__file__).parent / "models.yaml")


def missing_model(path: Path) -> ModelError:
    """The error for a model directory that does not exist; for a published model, how to get it."""
    published = load_published().models
    if str(path) in published:
        return ModelError(
            f"{path}: the published model is not downloaded; run `bigbird-dna fetch-model {path}`, then give "
            f"the path {FOLDER}/{path}"
        )
    return ModelError(f"{path}: model directory not found{meant(path, published)}")
