"""Published models by name, as `resources/models.yaml` describes them.

A model is bundled, a directory in `models/` beside the list, or an archive at an address, which `fetch-model`
brings. Either way `size` and `sha256` are those of the archive that the directory packs into.
"""

import re
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from bigbird_dna.config import Section
from bigbird_dna.config.safe_yaml import shown, unfit
from bigbird_dna.errors import ConfigError, ModelError, UsageError
from bigbird_dna.genome.sources.inputs import check_addresses, check_entry, read_entries
from bigbird_dna.model.settings import Task

LIST, FOLDER = "models.yaml", "models"
LARGEST = 1 << 40
"""Bytes of an archive."""
_MOST_BYTES = 1 << 16  # of a list, of some hundred models
NAME_RULE = (
    "a name has letters, digits, '.', '_' and '-', at most 48 of them, and begins with a letter or digit"
)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,47}")


def is_name(text: str) -> bool:
    """Whether a text can be the name of a published model, or of a file of one."""
    return _NAME.fullmatch(text) is not None


def _name(text: str) -> str:
    if not is_name(text):
        raise ValueError(NAME_RULE)
    return text


def _line(text: str) -> str:
    if not text.strip() or unfit(text):
        raise ValueError("must be a text of one line")
    return text


def _where(value: Any) -> Any:
    if isinstance(value, str):
        return _name(value)
    if not isinstance(value, tuple) or not value:
        raise ValueError("must be the name of a directory or a list of addresses")
    return check_addresses(value)


Line = Annotated[str, AfterValidator(_line)]


class PublishedModel(Section):
    """One entry of `models.yaml`."""

    description: Line
    task: Task
    licence: Line
    size: Annotated[int, Field(gt=0, le=LARGEST)]  # bytes of the archive
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]  # of the archive
    # a directory in `models/`, or addresses of the archive
    where: Annotated[str | tuple[str, ...], BeforeValidator(_where)]
    card: Annotated[str, AfterValidator(_name)]  # a file of the model

    @property
    def urls(self) -> tuple[str, ...]:
        """The addresses of the archive; none of a bundled model."""
        return () if isinstance(self.where, str) else self.where


class Published:
    """A list of published models."""

    def __init__(self, path: Path) -> None:
        """Read it.

        `ConfigError`: it can't be read, or a field of an entry is missing, unknown or impossible.
        """
        self.path = Path(path)
        entries = read_entries(self.path, "models", _MOST_BYTES)
        self.models = {name: _entry(name, entry, self.path) for name, entry in entries.items()}

    def __getitem__(self, name: str) -> PublishedModel:
        """The entry of a name; `UsageError` with the names that there are."""
        if name not in self.models:
            known = ", ".join(sorted(self.models)) or "none"
            raise UsageError(f"no published model {shown(name)}; there are: {known}")
        return self.models[name]

    def bundled(self, name: str) -> Path | None:
        """The directory of a bundled model; None of one that is to be fetched."""
        where = self[name].where
        return self.path.parent / FOLDER / where if isinstance(where, str) else None

    def lines(self) -> list[str]:
        """A table with tabs: name, task, megabytes, whether it is bundled, licence, description."""
        rows = [("#name", "task", "MB", "from", "licence", "description")]
        for name, one in sorted(self.models.items()):
            place = "address" if one.urls else "bundled"
            rows.append((name, one.task, f"{one.size / 1e6:.1f}", place, one.licence, one.description))
        return ["\t".join(row) for row in rows]


@cache
def load_published() -> Published:
    """The list that comes with the package."""
    with as_file(files("bigbird_dna.resources").joinpath(LIST)) as path:
        return Published(path)


def open_published(path: Path | None) -> Published:
    """A list of models; None: the one that comes with the package. `ConfigError` as `Published`."""
    return load_published() if path is None else Published(path)


def find_model(path: Path | str) -> Path:
    """The directory of a model: what is there under this path, else the bundled model of this name.

    A path where nothing is comes back as it is, if it isn't the name of a published model. `ModelError`: the
    model has to be fetched first.
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
            f"{name}: a published model that isn't here yet: `bigbird-dna fetch-model {name}` writes it to "
            f"{FOLDER}/{name}, which is the path to give then"
        )
    return bundled


def _entry(name: str, entry: object, path: Path) -> PublishedModel:
    where = f"{path}: model {shown(name)}"
    if not is_name(name):
        raise ConfigError(f"{where}: is not a name of letters, digits, '.', '_' and '-', at most 48 of them")
    return check_entry(PublishedModel, entry, where)
