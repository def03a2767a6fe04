"""Makes of a model directory what others can fetch: an archive with a card, and its entry in a list."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from bigbird_dna.config.plain import shown, unfit
from bigbird_dna.errors import ModelError, UsageError
from bigbird_dna.files import atomic_path
from bigbird_dna.model import checksums
from bigbird_dna.model.calibrated import calibration_file, calibration_of
from bigbird_dna.model.catalogue import find_model, is_name
from bigbird_dna.model.content import CARD, list_files
from bigbird_dna.model.directory import CONFIG, WEIGHTS, load
from bigbird_dna.model.model import Model
from bigbird_dna.outputs import check_output
from bigbird_dna.registry.archive import Files, pack, packed
from bigbird_dna.registry.card import Publication, model_card
from bigbird_dna.scratch import scratch_directory


def publish_model(path: Path, output: Path, publication: Publication) -> str:
    """Write the archive of a model to `output`; returns its entry in a list of models, as YAML.

    The same files give the same bytes. A card that is in the model directory stays as it is; without one, the
    archive gets the one that `model_card` makes. The directory isn't changed.

    Raises
    ------
    UsageError
        A name or text that a list can't hold, or an output that can't be written or lies in the model.
    ModelError
        As of `bigbird_dna.model.directory.load`; or a file of the model has no checksum in `provenance.json`,
        or is no plain file; or its calibration is damaged or of other weights.
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
        "licence": publication.licence,
        "size": size,
        "sha256": sha256,
        "where": publication.name,
        "card": CARD,
    }
    text: str = yaml.safe_dump({publication.name: entry}, sort_keys=False, allow_unicode=True, width=4096)
    return text


def _check(publication: Publication) -> None:
    if not is_name(publication.name):
        raise UsageError(
            f"--name {shown(publication.name)}: a name has letters, digits, '.', '_' and '-', at most 48 of "
            "them, and begins with a letter or digit"
        )
    given = {"--description": [publication.description], "--licence": [publication.licence]}
    for option, texts in (given | {"--command": publication.commands}).items():
        for text in texts:
            if not text.strip() or unfit(text) or "```" in text:
                raise UsageError(f"{option} {shown(text)}: must be a text of one line")


@contextmanager
def _with_card(path: Path, model: Model, publication: Publication) -> Iterator[Files]:
    files = {name: path / name for name in list_files(path)}
    with scratch_directory() as scratch:
        if CARD not in files:
            files[CARD] = scratch / CARD
            files[CARD].write_text(model_card(model, publication), encoding="utf-8")
        yield files
