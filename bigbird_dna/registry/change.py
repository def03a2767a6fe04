"""Derive model directories: float16 weights, longer inputs, an ensemble, a profile of the training genome."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bigbird_dna.calibration.call_precision import FILE as CALLS
from bigbird_dna.calibration.maps import FILE as CALIBRATION
from bigbird_dna.calibration.maps import read_calibration
from bigbird_dna.config import GenomeConfig
from bigbird_dna.disk.atomic import write_json
from bigbird_dna.disk.directories import atomic_directory, check_directory
from bigbird_dna.disk.json_files import read_mapping
from bigbird_dna.errors import DataError, ModelError, UsageError, shortened
from bigbird_dna.genome.assembly import open_assembly
from bigbird_dna.genome.profile import FILE as PROFILE
from bigbird_dna.genome.profile import TrainingProfile
from bigbird_dna.genome.reference import Reference
from bigbird_dna.model import weights as checksums
from bigbird_dna.model.catalog import changed_file, find_model, find_target, list_files
from bigbird_dna.model.chromatin import LoadedChromatinModel
from bigbird_dna.model.directory import (
    CONFIG,
    WEIGHTS,
    Extension,
    build_network,
    load,
    load_chromatin_model,
    make_model,
    read_description,
    save,
    write_model,
)
from bigbird_dna.model.heads import ChromatinEnsemble
from bigbird_dna.model.model import (
    CARD,
    METRICS,
    LoadedModel,
    calibration_file,
    calibration_of,
    training_profile_of,
)
from bigbird_dna.model.promoter import LoadedPromoterModel
from bigbird_dna.model.settings import ChromatinSettings
from bigbird_dna.model.weights import RECORD, fits_half, stored_tensors
from bigbird_dna.tokens.text import load_tokenizer, tokenizer_file
from bigbird_dna.training.adapters import ADAPTER, apply_adapter, base_of
from bigbird_dna.training.initialization import (
    genome_profile,
    load_start,
    read_provenance,
)

KEY = "compacted_from"
SEQUENCES, LONGEST = (
    16,
    1000,
)  # number and length (bp) of the sequences on which the change is measured


class OutputChange(NamedTuple):
    """The largest change of a model's outputs."""

    outputs: str  # "probabilities" or "embeddings"
    largest: float
    typical: float  # root mean square of the original outputs

    def __str__(self) -> str:
        size = f"{self.largest:.2g} (their root mean square is {self.typical:.2g})"
        return f"{self.outputs} change by at most {size}"


class Compacted(NamedTuple):
    """Result of a conversion; `change` is None if the inputs are not DNA."""

    half: int  # number of tensors in float16
    tensors: int  # number of all tensors
    change: OutputChange | None


def merge_adapter(path: Path, base: Path, output: Path) -> None:
    """Write the model whose adapter is in the directory `path` to `output`, from its initial model `base`.

    The directory is that of a model trained with `adapt` frozen or lora; `model.safetensors` is not read.
    `ModelError`: the adapter has changed since it was saved or does not fit, or `base` has other weights than
    the training began with.
    """
    base = find_model(base)
    check_directory(output, [path, base])
    for name in (CONFIG, ADAPTER, tokenizer_file(path).name):
        checksums.verify_one(path, name)
    config, settings, description = read_description(path / CONFIG)
    origin, initial = read_provenance(path), load_start(base)
    for name, began in (
        (ADAPTER, base_of(path / ADAPTER)),
        (RECORD, origin.get("pretrained_sha256")),
    ):
        if began != initial.sha256:
            raise ModelError(
                f"{path / name}: was trained from another model than {base}: from weights with the SHA-256 "
                f"{shortened(str(began))}, not {initial.sha256}"
            )
    network = build_network(config, settings)
    apply_adapter(network, initial.one_encoder().state_dict(), path / ADAPTER)
    tokenizer = load_tokenizer(tokenizer_file(path), description)
    model = make_model(network.eval(), tokenizer, config, settings)
    calibration = (
        read_calibration(path / CALIBRATION) if (path / CALIBRATION).is_file() else None
    )
    provenance = {
        name: value for name, value in origin.items() if name != checksums.KEY
    }
    metrics, extra = read_mapping(path / METRICS), _others(path, tokenizer.file_name)
    with atomic_directory(output) as directory:
        write_model(
            directory, model, provenance, metrics, extra, calibration=calibration
        )


def _others(path: Path, *written: str) -> dict[str, Path]:
    """The files of a model directory that `write_model` does not write, nor those in `written`."""
    own = {
        CONFIG,
        WEIGHTS,
        checksums.RECORD,
        METRICS,
        CALIBRATION,
        CALLS,
        *written,
    }
    return {name: path / name for name in list_files(path) if name not in own}


def compact_model(path: Path, output: Path) -> Compacted:
    """Write the model of `path` to `output`, with matrices in float16 where the loss of precision is small.

    Other files are unchanged, except the model card and `calls.json`, which are dropped because they are of
    other weights, and `calibration.json`, which is bound to the new weights.
    `provenance.json` records the original model, and how much the outputs change on random sequences.
    `UsageError`: no tensor is left to convert.
    """
    path = find_model(path)
    check_directory(output, [path])
    model = load(path)
    origin, metrics = read_provenance(path), {}
    if (path / METRICS).is_file():
        metrics = read_mapping(path / METRICS)
    calibration = calibration_of(model) if calibration_file(model) else None
    weights = model.network.state_dict()
    half = {name for name, tensor in weights.items() if fits_half(tensor)}
    stored = stored_tensors(path / WEIGHTS)
    if not any(stored[name].type == "F32" for name in half):
        raise UsageError(f"{path}: no tensor is left to convert to float16")
    before = _outputs(model)
    for name in half:
        weights[name].copy_(weights[name].half())
    after, change = _outputs(model), None
    if before is not None and after is not None:
        outputs = "embeddings" if _window(model) is None else "probabilities"
        largest, typical = np.abs(after - before).max(), np.sqrt(np.mean(before**2))
        change = OutputChange(outputs, float(largest), float(typical))
    provenance: dict[str, Any] = {
        name: value for name, value in origin.items() if name != checksums.KEY
    }
    provenance[KEY] = {
        "model": path.name,
        "sha256": model.sha256,
        "float16_tensors": len(half),
        "tensors": len(weights),
        "change": change and {**change._asdict(), "sequences": SEQUENCES},
    }
    # The adapter's model has other weights.
    extra = _others(path, model.tokenizer.file_name, CARD, ADAPTER)
    with atomic_directory(output) as directory:
        write_model(
            directory,
            model,
            provenance,
            metrics,
            extra,
            half=half,
            calibration=calibration,
        )
    return Compacted(len(half), len(weights), change)


def _window(model: LoadedModel) -> int | None:
    """Return the window of a model in bp; None for a model without windows."""
    return (
        model.settings.window
        if isinstance(model, LoadedPromoterModel | LoadedChromatinModel)
        else None
    )


def _outputs(model: LoadedModel) -> npt.NDArray[np.float64] | None:
    """Return a model's outputs for a fixed set of random sequences."""
    if not model.tokenizer.is_dna:
        return None
    window, rng = _window(model), np.random.default_rng(0)
    sequences = [
        "".join(rng.choice(list("ACGT"), window or LONGEST)) for _ in range(SEQUENCES)
    ]
    found = (
        model.predict(sequences, device="cpu")
        if window
        else model.embed(sequences, device="cpu")
    )
    return np.asarray(found, np.float64)


def extend_model(path: Path, output: Path, positions: int, method: Extension) -> None:
    """Write the model of `path`, extended to inputs of `positions` tokens, to `output`.

    `provenance.json` records the model, its provenance and the method; `metrics.json` has no metrics, because
    none were measured at the new length.
    """
    path = find_model(path)
    check_directory(output, [path])
    before = load(path)
    if before.config.max_length == positions:
        raise UsageError(f"{path}: the model already has {positions} positions")
    origin = read_provenance(path)
    provenance: dict[str, Any] = {
        "extended_from": {
            "model": path.name,
            "sha256": before.sha256,
            "positions": before.config.max_length,
            "provenance": origin,
        },
        "positions": positions,
        "method": method,
    }
    # Fine-tuning reads these to check whether held-out regions were used in pretraining.
    provenance |= {
        key: origin[key] for key in ("contigs", "stretches") if key in origin
    }
    metrics = {
        "note": f"no metrics were measured after the extension to {positions} positions"
    }
    extended = load(path, positions=positions, extend=method)
    save(output, extended, provenance, metrics, _profile_files([before]))


def add_profile(
    path: Path, reference: Path, output: Path | None = None
) -> TrainingProfile:
    """Store the profile of the genome that a model was trained on in the model's directory, or in a copy of
    it, `output`: of the contigs of `reference` for training, as `provenance.json` records them.

    `ModelError`: no genome is recorded. `DataError`: the reference has too little training sequence.
    """
    found = find_target(path, output)
    configuration = read_provenance(found).get("configuration")
    try:
        config = GenomeConfig.model_validate_json(
            json.dumps(dict(configuration or {})["genome"])
        )
    except (KeyError, TypeError, ValueError):
        raise ModelError(
            f"{found}: {checksums.RECORD} has no genome of the training"
        ) from None
    with Reference(reference) as genome:
        profile = genome_profile(
            genome, config, open_assembly(config.assembly, title=config.title)
        )
    if profile is None:
        raise DataError(f"{reference}: too little training sequence for a profile")
    with changed_file(found, PROFILE, output) as place:
        write_json(place, profile.model_dump(mode="json"))
    return profile


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
        if (model.config, _shape(model)) != (first.config, _shape(first)):
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
    save(output, combined, provenance, note, _profile_files(models))


def _profile_files(models: Sequence[LoadedModel]) -> dict[str, Path]:
    """Return the file of the training profile if all models have the same."""
    profiles = [training_profile_of(model) for model in models]
    path = models[0].path
    if (
        path is None
        or profiles[0] is None
        or any(one != profiles[0] for one in profiles)
    ):
        return {}
    return {PROFILE: path / PROFILE}


def _shape(model: LoadedChromatinModel) -> ChromatinSettings:
    """Return the settings with one member, to compare models with different numbers of members."""
    return model.settings.model_copy(update={"members": 1})
