"""Model directories: self-contained, written atomically, loaded without executing code from files.

`config.json` contains the task, the encoder's shapes and the task's settings; `model.safetensors` contains
the weights, `tokenizer.model` or `tokenizer.json` the tokenizer, `provenance.json` the origin of all parts,
and `metrics.json` metrics on held-out data. Tensors may be stored in float16; a loaded network is float32.
"""

from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import torch
from pydantic import ValidationError
from safetensors.torch import save_file
from torch import Tensor, nn

from bigbird_dna.calibration.maps import FILE as CALIBRATION
from bigbird_dna.calibration.maps import Calibration, write_calibration
from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.disk.atomic import checksum, write_json
from bigbird_dna.disk.directories import atomic_directory
from bigbird_dna.disk.json_files import read_object
from bigbird_dna.errors import (
    ConfigError,
    ModelError,
    error_text,
    first_fault,
    shortened,
)
from bigbird_dna.model import weights
from bigbird_dna.model.catalog import find_model
from bigbird_dna.model.chromatin import LoadedChromatinModel
from bigbird_dna.model.encoder import Encoder
from bigbird_dna.model.heads import (
    BareEncoder,
    ChromatinEnsemble,
    ChromatinNetwork,
    Classifier,
    PretrainingNetwork,
    QuestionAnswerer,
)
from bigbird_dna.model.kmers import attach_tokenizer
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
    Task,
)
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
        table = tiled(encoder.embeddings.position.weight.detach(), positions)
        encoder.embeddings.position = nn.Embedding(
            positions, config.hidden, _weight=table
        )
    encoder.config = config.model_copy(update={"max_length": positions})


def tiled(table: Tensor, positions: int) -> Tensor:
    """Learned positions (P, D), repeated to (N, D); see `extend_positions`."""
    return table.repeat(-(-positions // len(table)), 1)[:positions].clone()


M = TypeVar("M", bound=LoadedModel)

FORMAT = 1
CLASSES: Mapping[str, type[LoadedModel]] = {
    "promoter": LoadedPromoterModel,
    "sequences": LoadedSequenceModel,
    "chromatin": LoadedChromatinModel,
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
                ChromatinNetwork(
                    config,
                    len(settings.tracks),
                    settings.pooling,
                    settings.bin_layers,
                    settings.head,
                    settings.ensemble_kmers,
                    settings.kmer_margin,
                    settings.ensemble_dyads,
                )
                for _ in range(settings.members)
            )
        case ClassifierSettings():
            network = Classifier(
                config,
                outputs=len(settings.outputs)
                if isinstance(settings, SequenceSettings)
                else 1,
                pooling=settings.pooling,
                head=settings.head,
                offsets=settings.offsets,
                base_positions=settings.base_positions,
                member=settings.ensemble,
                kmers=settings.ensemble_kmers,
                both_strands=settings.both_strands,
            )
        case ClassificationSettings():
            network = Classifier(
                config,
                outputs=settings.outputs,
                pooling=settings.pooling,
                head=settings.head,
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
    state = {
        name: value.detach().cpu().contiguous()
        for name, value in model.network.state_dict().items()
    }
    write_json(directory / CONFIG, describe(model))
    save_file(state, directory / WEIGHTS)
    (directory / WEIGHTS).chmod(0o644)  # safetensors creates a private file
    model.tokenizer.save(directory / model.tokenizer.file_name)
    software = {
        "bigbird_dna": version("bigbird-dna"),
        "torch": torch.__version__,
        "random_blocks_seed": model.config.random_seed,
    }
    for name, source in extra.items():
        (directory / name).write_bytes(source.read_bytes())
    tensors = sorted(
        path.name for path in directory.glob("*.safetensors") if path.name != WEIGHTS
    )
    read = (CONFIG, WEIGHTS, model.tokenizer.file_name, *tensors)
    files = {name: checksum(directory / name) for name in read}
    if calibration is not None:
        write_calibration(directory / CALIBRATION, calibration, files[WEIGHTS])
    own = {"software": software, weights.KEY: files}
    write_json(directory / weights.RECORD, {**own, **provenance})
    write_json(directory / "metrics.json", metrics)


def describe(model: LoadedModel) -> dict[str, Any]:
    """The description of a model that `parse_description` reads: the content of `config.json`."""
    return {
        "format": FORMAT,
        "task": model.task,
        "encoder": model.config.model_dump(),
        "settings": model.settings.as_json(),
        "tokenizer": model.tokenizer.description(),
    }


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
    if not (path / CONFIG).is_file():
        if (path / "adapter_config.json").is_file():
            raise ModelError(
                f"{path}: an adapter of PEFT, not a model directory; merge it into its model (merge_and_unload, "
                "save_pretrained), and convert this with `bigbird-dna import-hf`"
            )
        raise ModelError(f"{path}: not a model directory: {CONFIG} is missing")
    values = read_object(path / CONFIG)
    check_format(values, str(path))
    if not (path / WEIGHTS).is_file():
        raise ModelError(f"{path}: not a model directory: {WEIGHTS} is missing")
    pieces = tokenizer_file(path)
    found = weights.verify(path, (CONFIG, WEIGHTS, pieces.name))
    config, settings, description = parse_description(values, str(path / CONFIG))
    network = weights.load_network(
        path / WEIGHTS, lambda: build_network(config, settings)
    )
    tokenizer = described_tokenizer(pieces, config, description)
    model = make_model(network.eval(), tokenizer, config, settings, path, classes)
    if WEIGHTS in found:
        vars(model)["sha256"] = found[
            WEIGHTS
        ]  # fills the cached property, to avoid computing it again
    return model


def described_tokenizer(
    file: Path, config: EncoderConfig, description: dict[str, Any]
) -> Tokenizer:
    """The tokenizer in `file` of a model whose `config.json` has this `description` of it.

    `ModelError`: its vocabulary is not the encoder's.
    """
    path = file.parent
    if description.get("vocabulary", config.vocabulary) != config.vocabulary:
        raise ModelError(
            f"{path / CONFIG}: tokenizer and encoder have different vocabulary sizes"
        )
    tokenizer = load_tokenizer(file, description)
    if tokenizer.vocabulary != config.vocabulary:
        raise ModelError(
            f"{path}: {file.name} has {tokenizer.vocabulary} tokens, config.json specifies "
            f"{config.vocabulary}"
        )
    return tokenizer


def read_encoder_config(path: Path | str) -> EncoderConfig:
    """The encoder configuration of a model directory, without its weights; errors as in `load`."""
    path = Path(path) / CONFIG
    return parse_description(read_object(path), str(path))[0]


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


def _of_task(given: LoadedModel | Path | str, kind: type[M], task: Task) -> M:
    model = given if isinstance(given, LoadedModel) else load(given)
    if not isinstance(model, kind) or model.task != task:
        names: dict[Task, str] = {"sequences": "labeled-sequence"}
        found, wanted = (names.get(one, one) for one in (model.task, task))
        raise ModelError(f"{model.name} is a {found} model; a {wanted} model is needed")
    return model


def check_format(values: Mapping[str, Any], path: str) -> None:
    """Raise `ModelError` unless values are those of a `config.json` that this version reads."""
    if "format" not in values and ("model_type" in values or "architectures" in values):
        kind = shortened(repr(values.get("model_type")))
        raise ModelError(
            f"{path}: a HuggingFace checkpoint (model_type {kind}), not a model directory; convert it with "
            "`bigbird-dna import-hf DIR MODEL_DIR`"
        )
    if values.get("format") != FORMAT:
        found_format = shortened(repr(values.get("format")))
        raise ModelError(
            f"{path}: format {found_format}; this version reads format {FORMAT}"
        )


def parse_description(
    values: Mapping[str, Any], path: str
) -> tuple[EncoderConfig, Settings, dict[str, Any]]:
    """Encoder, task and tokenizer of a result of `describe`; `ModelError` names its source, `path`."""
    check_format(values, path)
    task = values.get("task")
    if not isinstance(task, str) or task not in SETTINGS:
        raise ModelError(f"{path}: unknown task {shortened(repr(task))}")
    try:
        config = EncoderConfig.model_validate(values["encoder"])
        settings = SETTINGS[task].model_validate(values["settings"])
        description = dict(values.get("tokenizer", {}))
    except ValidationError as error:
        fault = first_fault(error)
        raise ModelError(
            f"{path}: {fault.key and f'{fault.key}: '}{fault.reason}"
        ) from None
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(
            f"{path}: not a model description: {error_text(error)}"
        ) from None
    return config, settings, description
