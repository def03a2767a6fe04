"""Fetch a published model, and package a model as an archive with a card and an entry for a model list.

The archive is a tar file whose bytes depend only on the model's name and files. It is not compressed, because
weights hardly compress and compressors differ in their output. Members are regular files `NAME/FILE`, sorted
by name, without owner and time. Other members that tar allows, such as links, devices, other directories or
sparse files, are not unpacked.
"""

import hashlib
import tarfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any

import yaml

from bigbird_dna.config.safe_yaml import shown
from bigbird_dna.console import log
from bigbird_dna.disk.atomic import atomic_path, scratch_directory
from bigbird_dna.disk.directories import atomic_directory, check_directory
from bigbird_dna.disk.outputs import check_output
from bigbird_dna.errors import ModelError, UsageError, shortened
from bigbird_dna.genome.download import download
from bigbird_dna.model import weights as checksums
from bigbird_dna.model.card import Publication, model_card
from bigbird_dna.model.catalog import (
    FOLDER,
    NAME_RULE,
    PublishedModel,
    copy_files,
    find_model,
    is_name,
    list_files,
    open_published,
)
from bigbird_dna.model.directory import CONFIG, WEIGHTS, load
from bigbird_dna.model.model import CARD, LoadedModel, calibration_file, calibration_of

ENDING = ".tar"
LARGEST = (1 << 33) - 1
"""Most bytes of a file, limited by the header of a tar file."""
_BLOCK = 512
_RECORD = 20 * _BLOCK
_CHUNK = 1 << 20

Files = Mapping[str, Path]
"""Content of a model directory: file name → path of the content."""


def pack(name: str, files: Files, write: Callable[[bytes], object]) -> None:
    """Write the archive of a model to a byte sink; `ModelError` for a file of 8 GiB or more."""
    written = 0
    for file, path in sorted(files.items()):
        size = path.stat().st_size
        if size > LARGEST:
            raise ModelError(
                f"{path}: {size:,} bytes; files in an archive must have at most {LARGEST:,}"
            )
        write(_header(name, file, size))
        with path.open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                write(chunk)
        write(bytes(-size % _BLOCK))
        written += _BLOCK + size + -size % _BLOCK
    end = 2 * _BLOCK
    write(bytes(end + -(written + end) % _RECORD))


def packed(name: str, files: Files) -> tuple[int, str]:
    """Return size in bytes and SHA-256 of the archive that `pack` would write."""
    digest, sizes = hashlib.sha256(), [0]

    def write(data: bytes) -> None:
        digest.update(data)
        sizes[0] += len(data)

    pack(name, files, write)
    return sizes[0], digest.hexdigest()


def unpack(archive: Path, name: str, directory: Path) -> None:
    """Write the files in the archive of a model to an empty directory.

    `ModelError`: the archive was not written by `pack` with this name; some files may have been written.
    """
    total, written, before = archive.stat().st_size, 0, ""
    with archive.open("rb") as stream:
        while any(header := _read(stream, _BLOCK, archive)):
            file, size = _member(header, name, archive)
            if file <= before:
                raise ModelError(
                    f"{archive}: member {file!r} is duplicated, or out of order"
                )
            before, written = file, written + _BLOCK + size + -size % _BLOCK
            if written > total:
                raise ModelError(f"{archive}: truncated: {file!r} needs {size:,} bytes")
            with (directory / file).open("xb") as target:
                _copy(stream, size, target, archive)
            if any(_read(stream, -size % _BLOCK, archive)):
                raise ModelError(
                    f"{archive}: damaged: unexpected bytes after the end of {file!r}"
                )
        rest = _BLOCK + -(written + 2 * _BLOCK) % _RECORD
        if total != written + _BLOCK + rest or any(_read(stream, rest, archive)):
            raise ModelError(
                f"{archive}: truncated or damaged: the end is not that of a model archive"
            )


def _header(name: str, file: str, size: int) -> bytes:
    member = tarfile.TarInfo(f"{name}/{file}")
    member.size, member.mode = size, 0o644
    # `tarfile.open` writes several formats; this header has a single form.
    return member.tobuf(tarfile.USTAR_FORMAT, "ascii", "strict")


def _member(header: bytes, name: str, archive: Path) -> tuple[str, int]:
    """Return name and size of the file of a header, which must equal the header written by `_header`."""
    path = header[:100].rstrip(b"\0").decode("ascii", "backslashreplace")
    folder, _, file = path.partition("/")
    size = header[124:135]
    if set(size) - set(b"01234567"):
        raise ModelError(
            f"{archive}: not a model archive, or damaged: no size at {shortened(path)!r}"
        )
    if (
        folder != name
        or not is_name(file)
        or header != _header(name, file, int(size, 8))
    ):
        raise ModelError(
            f"{archive}: member {shortened(path)!r} is not a regular file of directory {name!r}, as "
            "packed by model package"
        )
    return file, int(size, 8)


def _copy(stream: IO[bytes], size: int, target: IO[bytes], archive: Path) -> None:
    while size:
        chunk = _read(stream, min(size, _CHUNK), archive)
        target.write(chunk)
        size -= len(chunk)


def _read(stream: IO[bytes], size: int, archive: Path) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise ModelError(f"{archive}: truncated")
    return data


def fetch_model(
    name: str,
    output: Path | None = None,
    catalog: Path | None = None,
) -> Path:
    """Write the directory of a published model, after checks, and return its path.

    The path is `output`, or `models/NAME` in the working directory. `catalog` is a list like
    `resources/models.yaml`, with bundled models in `models/` in the same directory; None: the list of the
    package. An interrupted download leaves `output`.tar.part, and the next call resumes it. `DataError`: no
    address provides the archive with its checksum; `ModelError`: the content is not the model in the list.
    """
    published = open_published(catalog)
    entry, bundled = published[name], published.bundled(name)
    output = Path(FOLDER, name) if output is None else Path(output)
    check_directory(output, [published.path, *([bundled] if bundled else [])])
    if bundled is not None:
        _copy_model(name, entry, bundled, output)
    else:
        _download(name, entry, output)
    log(
        f"{output}: {name}; license: {entry.license}; description and limits: {output / entry.card}"
    )
    return output


def _copy_model(
    name: str, entry: PublishedModel, directory: Path, output: Path
) -> None:
    if not directory.is_dir():
        raise ModelError(
            f"{name}: directory {directory} is in the list of models, but does not exist"
        )
    files = {file: directory / file for file in list_files(directory)}
    if packed(name, files) != (entry.size, entry.sha256):
        raise ModelError(
            f"{directory}: damaged or changed: it differs from the model {name!r} in the list"
        )
    _install(name, entry, output, partial(copy_files, directory))


def _download(name: str, entry: PublishedModel, output: Path) -> None:
    archive = output.with_name(f"{output.name}{ENDING}")
    try:
        download(entry.urls, archive, f"sha256:{entry.sha256}")
        _install(name, entry, output, lambda target: unpack(archive, name, target))
    finally:
        archive.unlink(missing_ok=True)


def _install(
    name: str, entry: PublishedModel, output: Path, fill: Callable[[Path], None]
) -> None:
    """Write a model's files to `output` if they are a loadable model of the task in the list."""
    with atomic_directory(output) as directory:
        fill(directory)
        try:
            model = load(directory)
        except ModelError as error:
            raise ModelError(
                f"model {name}: {str(error).replace(str(directory), name)}"
            ) from None
        if model.task != entry.task:
            raise ModelError(
                f"model {name}: is a {model.task} model, but the list specifies {entry.task}"
            )
        if not (directory / entry.card).is_file():
            raise ModelError(
                f"model {name}: the card {entry.card} specified in the list is missing"
            )


def publish_model(path: Path, output: Path, publication: Publication) -> str:
    """Write the archive of a model to `output`, and return its entry for a model list, as YAML.

    The same files give the same bytes. A card in the model directory is packed unchanged; without a card,
    `model_card` makes one. The directory is not changed. `ModelError`: a model file has no checksum in
    `provenance.json` or is not a regular file, or the calibration belongs to other weights.
    """
    _check(publication)
    path = find_model(path)
    check_output(output, [path])
    model = load(path)
    if calibration_file(model):
        calibration_of(model)
    recorded = checksums.recorded(path)
    for name in (CONFIG, WEIGHTS, model.tokenizer.file_name):
        if name not in recorded:
            raise ModelError(
                f"{path}: {checksums.RECORD} has no checksum of {name}, which published models need"
            )
    with _with_card(path, model, publication) as files:
        size, sha256 = packed(publication.name, files)
        with atomic_path(output) as temporary, temporary.open("wb") as stream:
            pack(publication.name, files, stream.write)
    entry: dict[str, Any] = {
        "description": publication.description,
        "task": model.task,
        "license": publication.license,
        "size": size,
        "sha256": sha256,
        "where": publication.name,
        "card": CARD,
    }
    text: str = yaml.safe_dump(
        {publication.name: entry}, sort_keys=False, allow_unicode=True, width=4096
    )
    return text


def _check(publication: Publication) -> None:
    if not is_name(publication.name):
        raise UsageError(f"--name {shown(publication.name)}: {NAME_RULE}")
    given = {
        "--description": [publication.description],
        "--license": [publication.license],
    }
    for option, texts in (given | {"--command": publication.commands}).items():
        for text in texts:
            if not text.strip() or not text.isprintable() or "```" in text:
                raise UsageError(
                    f"{option} {shown(text)}: must be a single line of text"
                )


@contextmanager
def _with_card(
    path: Path, model: LoadedModel, publication: Publication
) -> Iterator[Files]:
    files = {name: path / name for name in list_files(path)}
    with scratch_directory() as scratch:
        if CARD not in files:
            files[CARD] = scratch / CARD
            files[CARD].write_text(model_card(model, publication), encoding="utf-8")
        yield files
