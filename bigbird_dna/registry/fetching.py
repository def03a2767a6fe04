"""How a published model gets here whole: bundled ones are copied, others downloaded."""

import shutil
from collections.abc import Callable
from pathlib import Path

from bigbird_dna.console import log
from bigbird_dna.directories import atomic_directory, check_directory
from bigbird_dna.errors import ModelError
from bigbird_dna.genome.sources.catalogue import Source
from bigbird_dna.genome.sources.fetching import download_any
from bigbird_dna.genome.sources.part import open_part
from bigbird_dna.genome.sources.request import LIMITS, Limits
from bigbird_dna.model.catalogue import FOLDER, PublishedModel, open_published
from bigbird_dna.model.content import list_files
from bigbird_dna.model.directory import load
from bigbird_dna.registry.archive import ENDING, packed, unpack


def fetch_model(
    name: str, output: Path | None = None, catalogue: Path | None = None, limits: Limits = LIMITS
) -> Path:
    """Write the directory of a published model, checked; returns it.

    A download that is cut leaves `output`.fetch.part and goes on from there at the next call.

    Parameters
    ----------
    output
        The directory; None: `models/NAME` in the working directory.
    catalogue
        A list as `resources/models.yaml`, with bundled models in `models/` beside it; None: the package's.

    Raises
    ------
    UsageError
        Unknown name, or an output that can't be written or replaced without loss.
    ConfigError
        The list can't be read.
    DataError
        No address can be reached or gives the archive with its checksum, the disk is full, or another process
        is fetching the same output.
    ModelError
        What came is not the model that the list describes.
    """
    published = open_published(catalogue)
    entry, bundled = published[name], published.bundled(name)
    output = Path(FOLDER, name) if output is None else Path(output)
    check_directory(output, [published.path, *([bundled] if bundled else [])])
    if bundled is not None:
        _copy(name, entry, bundled, output)
    else:
        _download(name, entry, output, limits)
    log(f"{output}: {name}; licence: {entry.licence}; what it is and isn't: {output / entry.card}")
    return output


def _copy(name: str, entry: PublishedModel, directory: Path, output: Path) -> None:
    if not directory.is_dir():
        raise ModelError(f"{name}: no directory {directory}, though the list of models names it")
    files = {file: directory / file for file in list_files(directory)}
    if packed(name, files) != (entry.size, entry.sha256):
        raise ModelError(
            f"{directory}: damaged, or changed: it is not the model {name!r} of the list any more"
        )

    def fill(target: Path) -> None:
        for file, path in files.items():
            shutil.copyfile(path, target / file)

    _install(name, entry, output, fill)


def _download(name: str, entry: PublishedModel, output: Path, limits: Limits) -> None:
    sha256, megabytes = f"sha256:{entry.sha256}", entry.size / 1e6
    source = Source(name, f"{name}{ENDING}", "", entry.urls, sha256, megabytes, entry.licence, "")
    with open_part(output, f"{name} {sha256}") as part:
        download_any(source, part, limits, f"model {name}")
        try:
            _install(name, entry, output, lambda target: unpack(part.path, name, target))
        except ModelError:
            part.clear()  # it is what the list says, and no model
            raise
        part.clear()


def _install(name: str, entry: PublishedModel, output: Path, fill: Callable[[Path], None]) -> None:
    """Put a model's files at `output` if they are a model that loads, of the task that was said."""
    with atomic_directory(output) as directory:
        fill(directory)
        try:
            model = load(directory)
        except ModelError as error:
            raise ModelError(f"model {name}: {str(error).replace(str(directory), name)}") from None
        if model.task != entry.task:
            raise ModelError(f"model {name}: is a {model.task} model, the list says {entry.task}")
        if not (directory / entry.card).is_file():
            raise ModelError(f"model {name}: has no {entry.card}, which the list names as its card")
