"""Model directories: self-contained, written atomically, loaded without executing code from files.

`config.json` contains the task, the encoder's shapes and the task's settings; `model.safetensors` contains
the weights, `tokenizer.model` or `tokenizer.json` the tokenizer, `provenance.json` the origin of all parts,
and `metrics.json` metrics on held-out data. Tensors may be stored in float16; a loaded network is float32.
"""

import shutil
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import torch
from pydantic import ValidationError
from safetensors.torch import save_file
from torch import nn

from bigbird_dna.calibration.maps import FILE as CALIBRATION
from bigbird_dna.calibration.maps import Calibration, write_calibration
from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.disk.atomic import checksum, write_json
from bigbird_dna.disk.directories import atomic_directory, check_directory
from bigbird_dna.disk.json_files import read_object
from bigbird_dna.errors import (
    ConfigError,
    ModelError,
    UsageError,
    first_fault,
    shortened,
)
from bigbird_dna.model import weights
from bigbird_dna.model.bases import attach_tokenizer
from bigbird_dna.model.catalog import find_model
from bigbird_dna.model.chromatin import LoadedChromatinModel
from bigbird_dna.model.encoder import Encoder
from bigbird_dna.model.ensemble import EnsembleSum
from bigbird_dna.model.heads import (
    BareEncoder,
    ChromatinEnsemble,
    ChromatinNetwork,
    Classifier,
    PretrainingNetwork,
    QuestionAnswerer,
)
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.model.promoter import LoadedPromoterModel, LoadedSequenceModel
from bigbird_dna.model.settings import (
    SETTINGS,
    ChromatinSettings,
    ClassificationSettings,
    ClassifierSettings,
    OtherSettings,
    PretrainingSettings,
    QuestionAnsweringSettings,
    SequenceSettings,
    Settings,
    StartSiteSettings,
    Task,
)
from bigbird_dna.model.start_sites import LoadedStartSiteModel, StartSiteNetwork
from bigbird_dna.tokens.interface import Tokenizer
from bigbird_dna.tokens.load import load_tokenizer, tokenizer_file


def extend_positions(encoder: Encoder, positions: int) -> None:
    """Extend `encoder` in place, including its configuration, to inputs of up to `positions` tokens.

    The table of learned positions is repeated, with the last copy truncated (Longformer, Beltagy et al. 2020,
    arXiv 2004.05150, section 5). Adjacent positions stay adjacent, except between copies. Rotary positions
    have no table. Inputs up to the old limit give unchanged results. The model is not trained: results at the
    old length do not apply to the new one. `ModelError`: `positions` is below the encoder's.
    """
    config = encoder.config
    if positions < config.max_length:
        raise ModelError(
            f"positions {positions}: must be at least the model's current {config.max_length}"
        )

    if encoder.embeddings.position is not None:
        table = encoder.embeddings.position.weight.detach()
        copies = -(-positions // len(table))
        longer = table.repeat(copies, 1)[:positions].clone()
        size = config.hidden
        encoder.embeddings.position = nn.Embedding(positions, size, _weight=longer)

    encoder.config = config.model_copy(update={"max_length": positions})


M = TypeVar("M", bound=LoadedModel)

FORMAT = 1
CLASSES: Mapping[str, type[LoadedModel]] = {
    "promoter": LoadedPromoterModel,
    "sequences": LoadedSequenceModel,
    "chromatin": LoadedChromatinModel,
    "start-sites": LoadedStartSiteModel,
    "encoder": LoadedModel,
}
"""Class of the models of a task; all tasks that are not listed have that of bare encoders."""
CONFIG, WEIGHTS = "config.json", "model.safetensors"


def encoder_for(config: EncoderConfig, tokenizer: Tokenizer) -> EncoderConfig:
    """`config` with the tokenizer's vocabulary size; `ConfigError` if it specifies another size."""
    if config.vocabulary not in (0, tokenizer.vocabulary):
        raise ConfigError(
            f"encoder.vocabulary {config.vocabulary}: the tokenizer has {tokenizer.vocabulary} tokens "
            "(0 takes the tokenizer's size)"
        )
    return config.model_copy(update={"vocabulary": tokenizer.vocabulary})


def build_network(
    config: EncoderConfig, settings: Settings, tokenizer: Tokenizer | None = None
) -> nn.Module:
    """A network for a task, randomly initialized with torch's generator.

    A network that reads bases needs the tokenizer before its first use; `make_model` also sets it.
    """
    network: nn.Module
    match settings:
        case PretrainingSettings():
            network = PretrainingNetwork(config, next_sentence=settings.next_sentence)
        case ChromatinSettings():
            network = ChromatinEnsemble(
                ChromatinNetwork(config, settings) for _ in range(settings.members)
            )
        case StartSiteSettings():
            network = StartSiteNetwork(config, settings)
        case ClassifierSettings():
            outputs = 1
            if isinstance(settings, SequenceSettings):
                outputs = len(settings.outputs)

            network = Classifier(
                config,
                outputs,
                settings.pooling,
                settings.head,
                position_window=settings.window * settings.base_positions,
                member_window=settings.window * settings.ensemble,
                kmers=settings.ensemble_kmers,
                both_strands=settings.both_strands,
            )
        case ClassificationSettings():
            network = Classifier(
                config, settings.outputs, settings.pooling, settings.head
            )
        case QuestionAnsweringSettings():
            network = QuestionAnswerer(config)
        case OtherSettings():
            network = settings.build(config)
        case _:
            network = BareEncoder(config)

    if tokenizer is not None:
        attach_tokenizer(network, tokenizer)

    return network


def make_model(
    network: nn.Module,
    tokenizer: Tokenizer,
    config: EncoderConfig,
    settings: Settings,
    path: Path | None = None,
    classes: Mapping[str, type[LoadedModel]] = CLASSES,
) -> LoadedModel:
    """Create the model of a task, with the class for that task."""
    attach_tokenizer(network, tokenizer)
    kind = classes.get(settings.task, classes["encoder"])
    return kind(network, tokenizer, config, settings, path)


def save(
    path: Path,
    model: LoadedModel,
    provenance: dict[str, Any],
    metrics: dict[str, Any],
    extra: dict[str, Path],
) -> None:
    """Write a model directory atomically; see `write_model`."""
    with atomic_directory(path) as directory:
        write_model(directory, model, provenance, metrics, extra)


def write_model(
    directory: Path,
    model: LoadedModel,
    provenance: dict[str, Any],
    metrics: dict[str, Any],
    extra: dict[str, Path],
    *,
    calibration: Calibration | None = None,
) -> None:
    """Write the files of a model into a new directory; `extra` maps names to further files to copy.

    `calibration` is written to `calibration.json`, linked to these weights. `provenance.json` records the
    checksums of all files that `load` reads, and of other tensors in the directory; see `weights`.
    """
    state = {}
    for name, value in model.network.state_dict().items():
        state[name] = value.detach().cpu().contiguous()

    description = {
        "format": FORMAT,
        "task": model.task,
        "encoder": model.config.model_dump(),
        "settings": model.settings.model_dump(mode="json"),
        "tokenizer": model.tokenizer.description(),
    }
    write_json(directory / CONFIG, description)
    save_file(state, directory / WEIGHTS)
    (directory / WEIGHTS).chmod(0o644)  # safetensors creates a private file
    model.tokenizer.save(directory / model.tokenizer.file_name)
    for name, source in extra.items():
        shutil.copyfile(source, directory / name)

    read = {CONFIG, model.tokenizer.file_name}
    read |= {path.name for path in directory.glob("*.safetensors")}
    files = {name: checksum(directory / name) for name in sorted(read)}
    if calibration is not None:
        write_calibration(directory / CALIBRATION, calibration, files[WEIGHTS])

    software = {
        "bigbird_dna": version("bigbird-dna"),
        "torch": torch.__version__,
        "random_blocks_seed": model.config.random_seed,
    }
    record = {"software": software, weights.KEY: files, **provenance}
    write_json(directory / weights.RECORD, record)
    write_json(directory / "metrics.json", metrics)


def load(
    path: Path | str,
    *,
    classes: Mapping[str, type[LoadedModel]] = CLASSES,
) -> LoadedModel:
    """Load a model directory, or a bundled model by its name, in evaluation mode on the CPU.

    `classes` has the class of each task. `ModelError` names the file that is missing, damaged or changed
    since it was saved.
    """
    path = find_model(path)
    if not path.is_dir():
        from bigbird_dna.model.published import missing_model  # not needed otherwise

        raise missing_model(path)

    config, settings, description = read_description(path)
    tokenizer_path = tokenizer_file(path)
    checksums = weights.verify(path)
    network = weights.load_network(
        path / WEIGHTS, lambda: build_network(config, settings)
    )
    tokenizer = load_tokenizer(tokenizer_path, description)
    if tokenizer.vocabulary != config.vocabulary:
        raise ModelError(
            f"{tokenizer_path}: {tokenizer.vocabulary} tokens, {CONFIG} specifies {config.vocabulary}"
        )

    model = make_model(network.eval(), tokenizer, config, settings, path, classes)
    if WEIGHTS in checksums:
        # Fills the cached property, to avoid computing it again.
        vars(model)["sha256"] = checksums[WEIGHTS]

    return model


def read_encoder_config(path: Path | str) -> EncoderConfig:
    """The encoder configuration of a model directory, without its weights; errors as in `load`."""
    return read_description(Path(path))[0]


def load_promoter_model(model: LoadedModel | Path | str) -> LoadedPromoterModel:
    """Load, or return, a promoter model; `ModelError` for any other task."""
    return _of_task(model, LoadedPromoterModel, "promoter")


def load_sequence_model(model: LoadedModel | Path | str) -> LoadedSequenceModel:
    """Load, or return, a model of labeled sequences; `ModelError` for any other task."""
    return _of_task(model, LoadedSequenceModel, "sequences")


def load_chromatin_model(model: LoadedModel | Path | str) -> LoadedChromatinModel:
    """Load, or return, a chromatin model; `ModelError` for any other task."""
    return _of_task(model, LoadedChromatinModel, "chromatin")


def load_pretrained(model: LoadedModel | Path | str) -> LoadedModel:
    """Load, or return, a pretrained encoder; `ModelError` for any other task."""
    return _of_task(model, LoadedModel, "pretraining")


def _of_task(source: LoadedModel | Path | str, kind: type[M], task: Task) -> M:
    model = source if isinstance(source, LoadedModel) else load(source)
    if not isinstance(model, kind) or model.task != task:
        names: dict[Task, str] = {"sequences": "labeled-sequence"}
        raise ModelError(
            f"{model.name} is a {names.get(model.task, model.task)} model; a {names.get(task, task)} model "
            "is needed"
        )
    return model


def read_description(path: Path) -> tuple[EncoderConfig, Settings, dict[str, Any]]:
    """Encoder, settings and description of the tokenizer in a model directory; `ModelError` names the file."""
    file = path / CONFIG
    for needed in (file, path / WEIGHTS):
        if not needed.is_file():
            raise ModelError(f"{path}: not a model directory: {needed.name} is missing")

    values = read_object(file)
    if "format" not in values and "model_type" in values:
        raise ModelError(
            f"{file}: a HuggingFace checkpoint, not a model directory; convert it with "
            "`bigbird-dna import-hf DIR MODEL_DIR`"
        )

    version_read = {"format": (FORMAT,), "task": tuple(SETTINGS)}
    for key, known in version_read.items():
        if values.get(key) not in known:
            raise ModelError(
                f"{file}: {key} {shortened(repr(values.get(key)))}; this version reads "
                f"{', '.join(map(str, known))}"
            )

    try:
        config = EncoderConfig.model_validate(values["encoder"])
        settings = SETTINGS[values["task"]].model_validate(values["settings"])
    except ValidationError as error:
        fault = first_fault(error)
        reason = f"{fault.key}: {fault.reason}" if fault.key else fault.reason
        raise ModelError(f"{file}: {reason}") from None
    except KeyError as error:
        raise ModelError(f"{file}: key {error} is missing") from None

    return config, settings, values.get("tokenizer", {})


def combine_models(paths: Sequence[Path], output: Path) -> None:
    """Write an ensemble with the chromatin models of `paths` as members.

    `ModelError`: they differ in shape, tokenizer, window, bin or tracks; `UsageError`: fewer than two models.
    """
    if len(paths) < 2:
        raise UsageError("an ensemble needs at least two models")

    check_directory(output, paths)
    models = [load_chromatin_model(path) for path in paths]
    first = models[0]
    members: list[nn.Module] = []
    for path, model in zip(paths, models, strict=True):
        settings = model.settings.model_copy(update={"members": first.settings.members})
        parts = (model.config, settings, model.tokenizer.sha256)
        if parts != (first.config, first.settings, first.tokenizer.sha256):
            raise ModelError(
                f"{path}: its shape, tokenizer, window, bin or tracks differ from those of {paths[0]}"
            )

        members += model.network.members

    settings = first.settings.model_copy(update={"members": len(members)})
    network = ChromatinEnsemble(members)
    combined = make_model(network, first.tokenizer, first.config, settings)
    provenance = {"members_sha256": [model.sha256 for model in models]}
    note = {"note": "an ensemble; its metrics are in the report of its predictions"}
    save(output, combined, provenance, note, {})


def regressions_alone(path: Path, output: Path) -> None:
    """Write the chromatin model `path` as its regressions alone: the baseline of its predictions.

    The weight of the network is 0. The regressions on k-mers and dyads have the log-odds to which they were
    fitted, without the members' weights of the ensemble. `ModelError`: the model has no such regressions.
    """
    check_directory(output, [path])
    model = load_chromatin_model(path)
    assert model.path is not None
    metrics = read_object(model.path / "metrics.json")
    weight = metrics.get("ensemble", {}).get("weights", {}).get("kmers")
    if not weight:
        raise ModelError(f"{path}: not a trained network with regressions as members")

    for module in model.network.modules():
        if isinstance(module, EnsembleSum):
            module.weight.zero_()
            module.intercept.sub_(metrics["ensemble"]["intercept"]).div_(weight)
            if module.kmers is not None:
                module.kmers.weight[..., :-1] /= weight

            if module.dyads is not None:
                module.dyads.weight /= weight

    provenance = {"regressions_of_sha256": model.sha256}
    note = {"note": "the regressions of an ensemble, without its network"}
    save(output, model, provenance, note, {})
