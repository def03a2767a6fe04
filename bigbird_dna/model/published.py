"""Published models, `resources/models.yaml`: bundled ones, and archives that `fetch-model` downloads."""

import shutil
import tarfile
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from bigbird_dna.config.reading import checked
from bigbird_dna.config.safe_yaml import read_values
from bigbird_dna.config.section import Section
from bigbird_dna.console import log
from bigbird_dna.disk.directories import atomic_directory, check_directory
from bigbird_dna.errors import ModelError, UsageError, error_text, meant, one_of
from bigbird_dna.genome.download import download
from bigbird_dna.model.catalog import RESOURCES, copy_files
from bigbird_dna.model.directory import load
from bigbird_dna.model.settings import Task

LIST = RESOURCES / "models.yaml"
Address = Annotated[str, Field(pattern="^https?://[!-~]+$")]


class PublishedModel(Section):
    """One entry of `models.yaml`; without `urls` the model is bundled."""

    description: str
    task: Task
    license: str
    urls: Annotated[tuple[Address, ...], Field(min_length=1)] | None = None
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None

    @model_validator(mode="after")
    def _check_archive(self) -> Self:
        if self.urls and self.sha256 is None:
            raise ValueError("sha256 of the archive is missing")
        return self


def read_published(path: Path | None = None) -> dict[str, PublishedModel]:
    """The published models in a list, by default the package's, by name.

    `ConfigError` if the file is unreadable or an entry is invalid.
    """
    path, models = path or LIST, {}
    for name, entry in sorted(read_values(path).items()):
        models[name] = checked(PublishedModel, entry, f"{path}: model {name!r}")
    return models


def missing_model(path: Path) -> ModelError:
    """The error for a model directory that does not exist; for a published model, how to get it."""
    published = read_published()
    if str(path) in published:
        return ModelError(
            f"{path}: the published model is not downloaded; run `bigbird-dna fetch-model {path}`, then give "
            f"the path models/{path}"
        )
    return ModelError(f"{path}: model directory not found{meant(path, published)}")


def fetch_model(
    name: str, output: Path | None = None, catalog: Path | None = None
) -> Path:
    """Write the directory of a published model and return its path, `output` or `models/NAME`.

    `catalog` is a list like `resources/models.yaml`. A bundled model is copied; another one is downloaded to
    `output`.tar.part, which the next call resumes, and compared with its checksum. `UsageError`: no such
    model; `DataError`: no address provides the archive; `ModelError`: it is not one of a model.
    """
    catalog = catalog or LIST
    published = read_published(catalog)
    if name not in published:
        raise UsageError(
            f"no published model {name!r}: {one_of(name, sorted(published))}"
        )

    entry = published[name]
    output = Path("models", name) if output is None else Path(output)
    bundled = catalog.parent / "models" / name
    check_directory(output, [catalog, bundled])
    archive = output.with_name(f"{output.name}.tar")
    if entry.urls:
        download(entry.urls, archive, f"sha256:{entry.sha256}")
    elif not bundled.is_dir():
        raise ModelError(f"{bundled}: listed in {catalog}, but missing")

    with atomic_directory(output) as directory:
        if entry.urls:
            unpack(archive, directory)
        else:
            copy_files(bundled, directory)

        try:
            load(directory)
        except ModelError as error:
            reason = str(error).replace(str(directory), name)
            raise ModelError(f"model {name}: {reason}") from None

    archive.unlink(missing_ok=True)
    log(f"{output}: {name}; license: {entry.license}")
    return output


def unpack(archive: Path, directory: Path) -> None:
    """Write the files of a tar archive of a model directory to an empty directory.

    Nothing is written outside of `directory`, and no link is made. `ModelError`: not a tar file, or truncated.
    """
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                file = tar.extractfile(member) if member.isfile() else None
                if file is not None:
                    with (directory / Path(member.name).name).open("xb") as copy:
                        shutil.copyfileobj(file, copy)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise ModelError(
            f"{archive}: not a tar archive of a model, or damaged: {error_text(error)}"
        ) from None
