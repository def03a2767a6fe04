"""Several chromatin models as one that predicts their mean probability."""

from collections.abc import Sequence
from pathlib import Path

from bigbird_dna.directories import check_directory
from bigbird_dna.errors import ModelError, UsageError
from bigbird_dna.model.chromatin_model import ChromatinModel
from bigbird_dna.model.chromatin_network import ChromatinEnsemble
from bigbird_dna.model.directory import build_network, load_chromatin_model, save
from bigbird_dna.model.settings import ChromatinSettings


def combine_models(paths: Sequence[Path], output: Path) -> None:
    """Write a model directory whose members are the models of `paths`.

    Raises
    ------
    ModelError
        The models differ in shape, tokenizer, window, bin or tracks.
    UsageError
        There are fewer than two.
    """
    if len(paths) < 2:
        raise UsageError("an ensemble needs at least two models")
    check_directory(output, paths)
    models = [load_chromatin_model(path) for path in paths]
    first = models[0]
    for path, model in zip(paths[1:], models[1:], strict=True):
        if model.tokenizer.sha256 != first.tokenizer.sha256:
            raise ModelError(f"{path}: has another tokenizer than {paths[0]}")
        if (model.config, _shape(model)) != (first.config, _shape(first)):
            raise ModelError(f"{path}: is a model of another kind than {paths[0]}")
    members = [member for model in models for member in model.network.members]
    settings = first.settings.model_copy(update={"members": len(members)})
    network = build_network(first.config, settings)
    assert isinstance(network, ChromatinEnsemble)
    for target, source in zip(network.members, members, strict=True):
        target.load_state_dict(source.state_dict())
    combined = ChromatinModel(network, first.tokenizer, first.config, settings)
    provenance = {"members_sha256": [model.sha256 for model in models]}
    note = {"note": "an ensemble; its figures are in the report of its predictions"}
    save(output, combined, provenance, note, {})


def _shape(model: ChromatinModel) -> ChromatinSettings:
    """The settings without the number of members, which may differ."""
    return model.settings.model_copy(update={"members": 1})
