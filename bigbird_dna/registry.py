"""Model directories as wholes: fetch a published model, combine chromatin models into an ensemble."""

import tarfile
from collections.abc import Sequence
from pathlib import Path

from bigbird_dna.console import log
from bigbird_dna.disk.directories import atomic_directory, check_directory
from bigbird_dna.errors import ModelError, UsageError, error_text, shortened
from bigbird_dna.genome.download import download
from bigbird_dna.model.catalog import FOLDER, copy_files, is_name
from bigbird_dna.model.directory import (
    load,
    load_chromatin_model,
    make_model,
    save,
)
from bigbird_dna.model.heads import ChromatinEnsemble
from bigbird_dna.model.published import Published, load_published


def fetch_model(
    name: str,
    output: Path | None = None,
    catalog: Path | None = None,
) -> Path:
    """Write the directory of a published model and return its path, `output` or `models/NAME`.

    `catalog` is a list like `resources/models.yaml`; None: the package's. A bundled model is copied; another
    one is downloaded to `output`.tar.part, which the next call resumes, and compared with its checksum.
    `DataError`: no address provides the archive; `ModelError`: its content is not the model of the list.
    """
    published = load_published() if catalog is None else Published(catalog)
    entry = published[name]
    bundled = published.bundled(name)
    output = Path(FOLDER, name) if output is None else Path(output)
    check_directory(output, [published.path, *([bundled] if bundled else [])])
    archive = output.with_name(f"{output.name}.tar")
    if bundled is None:
        download(entry.urls, archive, f"sha256:{entry.sha256}")
    elif not bundled.is_dir():
        raise ModelError(
            f"{name}: listed in {published.path}, but {bundled} is missing"
        )

    try:
        with atomic_directory(output) as directory:
            if bundled is None:
                unpack(archive, name, directory)
            else:
                copy_files(bundled, directory)
            try:
                model = load(directory)
            except ModelError as error:
                reason = str(error).replace(str(directory), name)
                raise ModelError(f"model {name}: {reason}") from None
            if model.task != entry.task:
                raise ModelError(
                    f"model {name}: is a {model.task} model, but the list specifies {entry.task}"
                )
    finally:
        if bundled is None:
            archive.unlink(missing_ok=True)
    log(f"{output}: {name}; license: {entry.license}")
    return output


def unpack(archive: Path, name: str, directory: Path) -> None:
    """Write the files NAME/FILE of a tar archive to an empty directory.

    `ModelError`: not a tar file, truncated, or a member is anything but such a file: nothing is written
    outside of `directory`, and no link is made.
    """
    try:
        with tarfile.open(archive) as members:
            for member in members:
                folder, _, file = member.name.partition("/")
                if member.isdir() and member.name == name:
                    continue
                if not (member.isfile() and folder == name and is_name(file)):
                    raise ModelError(
                        f"{archive}: member {shortened(member.name)!r} is not a regular file of "
                        f"directory {name!r}"
                    )
                member = member.replace(name=file)
                members.extract(member, directory, filter="data")
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise ModelError(
            f"{archive}: not a tar archive, or damaged: {error_text(error)}"
        ) from None


def combine_models(paths: Sequence[Path], output: Path) -> None:
    """Write an ensemble with the models of `paths` as members.

    `ModelError`: they differ in shape, tokenizer, window, bin or tracks; `UsageError`: fewer than two models.
    """
    if len(paths) < 2:
        raise UsageError("an ensemble needs at least two models")
    check_directory(output, paths)
    models = [load_chromatin_model(path) for path in paths]
    first = models[0]
    for path, model in zip(paths[1:], models[1:], strict=True):
        if model.tokenizer.sha256 != first.tokenizer.sha256:
            raise ModelError(f"{path}: its tokenizer differs from that of {paths[0]}")
        settings = model.settings.model_copy(update={"members": first.settings.members})
        if (model.config, settings) != (first.config, first.settings):
            raise ModelError(
                f"{path}: its shape, window, bin or tracks differ from those of {paths[0]}"
            )

    members = [member for model in models for member in model.network.members]
    settings = first.settings.model_copy(update={"members": len(members)})
    combined = make_model(
        ChromatinEnsemble(members), first.tokenizer, first.config, settings
    )
    provenance = {"members_sha256": [model.sha256 for model in models]}
    note = {"note": "an ensemble; its metrics are in the report of its predictions"}
    save(output, combined, provenance, note, {})
