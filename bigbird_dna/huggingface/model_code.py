"""Checkpoints with model code: directories of models that no class of HuggingFace's library represents.

`AutoModel.from_pretrained(DIRECTORY, trust_remote_code=True)` runs the file `modeling_bigbird_dna.py` of the
directory. This file imports the classes of `hub_models`, which run the network of this package, so the
package must be installed; the library names it if it is missing. The alternative, a file with an
implementation of its own, would repeat every attention mechanism, k-mer table and ensemble, would lack the
fast kernels, and could differ from the model that was trained. Here outputs are those of the model, because
the network is the same.

`config.json` contains the description of the model as in a model directory, under the key `bigbird_dna`.
Tensors have the names in a model directory, after `network.`. Importing reads these two and the tokenizer; it
runs no code of the checkpoint.
"""

import re
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from bigbird_dna.disk.atomic import write_json
from bigbird_dna.disk.directories import atomic_directory
from bigbird_dna.disk.json_files import check_writable
from bigbird_dna.errors import ModelError, shortened
from bigbird_dna.huggingface.configuration import (
    PACKAGE_KEY,
    PACKAGE_TYPE,
    package_description,
)
from bigbird_dna.huggingface.hub_card import README, hub_card
from bigbird_dna.huggingface.names import load_network
from bigbird_dna.huggingface.tensors import read_tensors
from bigbird_dna.huggingface.tokenizer_files import (
    ORIGINAL_FILES,
    find_tokenizer,
    original_file_name,
    write_tokenizer,
)
from bigbird_dna.model.directory import (
    build_network,
    describe,
    described_tokenizer,
    make_model,
    save,
)
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.model.settings import (
    ChromatinSettings,
    ClassificationSettings,
    ClassifierSettings,
    OtherSettings,
    PretrainingSettings,
    PromoterSettings,
    QuestionAnsweringSettings,
    SequenceSettings,
    Settings,
)
from bigbird_dna.tokens.interface import Tokenizer

CODE_FILE = "modeling_bigbird_dna.py"
TOKENIZER_KEY = "tokenizer_file"  # in the description: name of the tokenizer's file in the checkpoint
_CLASSIFIER = "AutoModelForSequenceClassification"
_CLASSES = {
    "AutoModel": "BigBirdDnaModel",
    "AutoModelForMaskedLM": "BigBirdDnaForMaskedLM",
    "AutoModelForCausalLM": "BigBirdDnaForCausalLM",
    _CLASSIFIER: "BigBirdDnaForSequenceClassification",
    "AutoModelForQuestionAnswering": "BigBirdDnaForQuestionAnswering",
}


def export_with_code(
    model: LoadedModel, output: Path, license: str | None = None
) -> str:
    """Write the checkpoint of a model to the directory `output`; returns the name of its class.

    `ModelError`: the task belongs to another package, or a value of the description is not JSON.
    """
    config, settings = model.config, model.settings
    classes = [_CLASSES[name] for name in _auto_classes(model)]
    package = {
        "version": version("bigbird-dna"),
        TOKENIZER_KEY: original_file_name(model.tokenizer),
    }
    values = {
        "model_type": PACKAGE_TYPE,
        "architectures": classes[:1],
        "auto_map": {
            "AutoConfig": f"{Path(CODE_FILE).stem}.BigBirdDnaConfig",
            **{
                name: f"{Path(CODE_FILE).stem}.{_CLASSES[name]}"
                for name in _auto_classes(model)
            },
        },
        "dtype": "float32",
        "vocab_size": config.vocabulary,
        "num_hidden_layers": config.layers,
        "hidden_size": config.hidden,
        "num_attention_heads": config.heads,
        "max_position_embeddings": config.max_length,
        **head_values(model),
        PACKAGE_KEY: describe(model) | package,
    }
    check_writable(values, (model.path or output) / "config.json")
    state = model.network.state_dict()
    tensors = {exported_name(name, settings): tensor for name, tensor in state.items()}
    code = Path(__file__).with_name(CODE_FILE).read_bytes()
    write_checkpoint(output, model, values, tensors, {CODE_FILE: code}, license)
    return classes[0]


_HEAD = re.compile(r"^(members\.\d+\.)?(dense|bins|output)\.")


def exported_name(name: str, settings: Settings) -> str:
    """Name of a tensor in the checkpoint, where the layers of a classifying head are in `classifier`."""
    if isinstance(
        settings, ClassifierSettings | ClassificationSettings | ChromatinSettings
    ):
        name = _HEAD.sub(r"\1classifier.\2.", name)
    return f"network.{name}"


def tokenizer_name(description: Mapping[str, Any], source: str) -> str:
    """Name of the tokenizer's file by a checkpoint's description; `ModelError` for any but our own names,
    which could be outside the checkpoint."""
    name = description.get(TOKENIZER_KEY)
    if name not in ORIGINAL_FILES:
        names = ", ".join(ORIGINAL_FILES)
        raise ModelError(
            f"{source}: {TOKENIZER_KEY} {shortened(repr(name))} must be one of {names}"
        )
    return str(name)


def _auto_classes(model: LoadedModel) -> list[str]:
    """Names of the library's classes that load a model, that of its task first."""
    settings = model.settings
    if isinstance(settings, OtherSettings):
        raise ModelError(f"{model.name}: {model.task} models cannot be exported")
    if isinstance(settings, ChromatinSettings) and settings.members > 1:
        return [_CLASSIFIER]  # several encoders have no hidden states in common
    if isinstance(settings, PretrainingSettings):
        return [
            f"AutoModelFor{'CausalLM' if model.config.causal else 'MaskedLM'}",
            "AutoModel",
            _CLASSIFIER,
        ]
    if isinstance(settings, QuestionAnsweringSettings):
        return ["AutoModelForQuestionAnswering", "AutoModel"]
    return (
        ["AutoModel", _CLASSIFIER]
        if model.task == "encoder"
        else [_CLASSIFIER, "AutoModel"]
    )


def label_names(settings: Settings) -> tuple[str, ...] | None:
    """Names of the outputs of a model that classifies, in order; None for any other model."""
    match settings:
        case PromoterSettings():
            return ("promoter",)
        case ChromatinSettings():
            return tuple(track.track for track in settings.tracks)
        case SequenceSettings():
            return settings.outputs
        case ClassificationSettings():
            return settings.labels or tuple(
                f"LABEL_{index}" for index in range(settings.outputs)
            )
    return None


def head_values(model: LoadedModel) -> dict[str, Any]:
    """Keys of `config.json` from head and tokenizer, for a model that was not imported."""
    tokenizer, settings = model.tokenizer, model.settings
    values: dict[str, Any] = {
        "pad_token_id": tokenizer.pad_id,
        "bos_token_id": tokenizer.cls_id,
        "eos_token_id": tokenizer.sep_id,
        "sep_token_id": tokenizer.sep_id,
    }
    names = label_names(settings)
    if names is None:
        return values
    values["id2label"] = {str(index): name for index, name in enumerate(names)}
    values["label2id"] = {name: index for index, name in enumerate(names)}
    if not isinstance(settings, ClassificationSettings):
        # The library treats one output as regression unless this key declares it a logit.
        kind = settings.kind if isinstance(settings, SequenceSettings) else ""
        kinds = {
            "regression": "regression",
            "multiclass": "single_label_classification",
        }
        values["problem_type"] = kinds.get(kind, "multi_label_classification")
    return values


def labeled_settings(
    settings: Settings, values: Mapping[str, Any], tokenizer: Tokenizer
) -> Settings:
    """Settings of a classifier that was tuned with the library, as a model of labeled sequences.

    `values` are its `config.json`, whose `problem_type` says what the outputs are; null: by their number, as
    in the library. Classifiers of text are unchanged, as are those whose `problem_type` is unknown.
    """
    if not isinstance(settings, ClassificationSettings) or not tokenizer.is_dna:
        return settings
    count = settings.outputs
    kinds: dict[Any, str] = {
        None: "regression" if count == 1 else "multiclass",
        "regression": "regression",
        "multi_label_classification": "binary" if count == 1 else "multilabel",
        **({"single_label_classification": "multiclass"} if count > 1 else {}),
    }
    kind = values.get("problem_type")
    if not isinstance(kind, str | None) or kind not in kinds:
        return settings
    changes: dict[str, Any] = {"kind": kinds[kind], "outputs": label_names(settings)}
    if kinds[kind] == "regression":
        changes |= {"means": (0.0,) * count, "deviations": (1.0,) * count}
    same = settings.model_dump(
        include={"pooling", "head", "huggingface"}, exclude_unset=True
    )
    return SequenceSettings(**changes, **same, jitter=0, views=1)


def write_checkpoint(
    output: Path,
    model: LoadedModel,
    values: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    extra: Mapping[str, bytes] | None = None,
    license: str | None = None,
) -> None:
    """Write a checkpoint directory: `config.json`, weights, tokenizer, README, and `extra` files."""
    with atomic_directory(output) as temporary:
        write_json(temporary / "config.json", values)
        weights = temporary / "model.safetensors"
        # Copied: safetensors rejects tensors that share memory.
        save_file(
            {name: t.clone().contiguous() for name, t in tensors.items()},
            weights,
            {"format": "pt"},
        )
        weights.chmod(0o644)
        write_tokenizer(model.tokenizer, temporary, model.config.max_length)
        (temporary / README).write_text(
            hub_card(model, values, output.resolve().name, license), "utf-8"
        )
        for name, content in (extra or {}).items():
            (temporary / name).write_bytes(content)


def import_with_code(
    directory: Path, values: Mapping[str, Any], output: Path, tokenizer: Path | None
) -> LoadedModel:
    """Write the model directory `output` from a checkpoint with model code, and return the model.

    `values` are its `config.json`. `ModelError` as in `import_huggingface`.
    """
    path = directory / "config.json"
    config, settings, description = package_description(values, str(path))
    if isinstance(settings, OtherSettings):
        raise ModelError(f"{path}: {settings.task} models cannot be imported")
    name = (
        "" if tokenizer is not None else tokenizer_name(values[PACKAGE_KEY], str(path))
    )
    if tokenizer is not None:
        loaded_tokenizer = find_tokenizer(directory, config.vocabulary, tokenizer)
    elif not (directory / name).is_file():
        raise ModelError(
            f"{directory}: tokenizer missing ({name}); give one with --tokenizer"
        )
    else:
        loaded_tokenizer = described_tokenizer(directory / name, config, description)
    network = load_network(
        read_tensors(directory),
        lambda: build_network(config, settings),
        lambda name: exported_name(name, settings),
        lambda name: False,
        "the model",
        directory,
    )
    settings = labeled_settings(settings, values, loaded_tokenizer)
    model = make_model(network, loaded_tokenizer, config, settings, output)
    save(output, model, {"imported_from": directory.name}, {}, {})
    return model
