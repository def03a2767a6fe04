"""Import HuggingFace BigBird and RoBERTa checkpoints as models, and export models as BigBird checkpoints.

No code of a checkpoint is ever executed: `auto_map` is ignored, and pickles are read with `weights_only`.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from bigbird_dna.config.section import LabelKind
from bigbird_dna.console import log
from bigbird_dna.disk.atomic import write_json
from bigbird_dna.disk.directories import atomic_directory, check_directory
from bigbird_dna.disk.json_files import read_object
from bigbird_dna.errors import ModelError, shortened
from bigbird_dna.huggingface.configuration import (
    PACKAGE_KEY,
    Compatibility,
    encoder_config,
    huggingface_config,
)
from bigbird_dna.huggingface.tokenizer_files import find_tokenizer, write_tokenizer
from bigbird_dna.model.catalog import find_model
from bigbird_dna.model.directory import build_network, load, make_model, save
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.model.settings import (
    SETTINGS,
    ClassificationSettings,
    ClassifierSettings,
    PretrainingSettings,
    PromoterSettings,
    SequenceSettings,
    Settings,
    Task,
)
from bigbird_dna.model.weights import build_without_values, check_finite
from bigbird_dna.tokens.interface import Tokenizer

# Modules of `Encoder`, and HuggingFace's names after the architecture's prefix; * is the number of a layer.
BIGBIRD = {
    "embeddings.token": "embeddings.word_embeddings",
    "embeddings.position": "embeddings.position_embeddings",
    "embeddings.segment": "embeddings.token_type_embeddings",
    "embeddings.norm": "embeddings.LayerNorm",
    "layers.*.query": "encoder.layer.*.attention.self.query",
    "layers.*.key": "encoder.layer.*.attention.self.key",
    "layers.*.value": "encoder.layer.*.attention.self.value",
    "layers.*.attention_output": "encoder.layer.*.attention.output.dense",
    "layers.*.attention_norm": "encoder.layer.*.attention.output.LayerNorm",
    "layers.*.intermediate": "encoder.layer.*.intermediate.dense",
    "layers.*.output": "encoder.layer.*.output.dense",
    "layers.*.output_norm": "encoder.layer.*.output.LayerNorm",
}


class Architecture(NamedTuple):
    """A HuggingFace class, its task in this package, and the names of its modules."""

    name: str
    task: Task
    head: dict[str, str]
    prefix: str = "bert."  # prefix of the encoder's tensors


_MASKED_TOKENS = {
    "masked_tokens.dense": "cls.predictions.transform.dense",
    "masked_tokens.norm": "cls.predictions.transform.LayerNorm",
    "masked_tokens": "cls.predictions",
}
_NEXT_SENTENCE = {
    "next_sentence.pooler": "bert.pooler",
    "next_sentence.output": "cls.seq_relationship",
}
_CLASSIFIER = {"dense": "classifier.dense", "output": "classifier.out_proj"}
_ANSWERS = {
    "intermediate": "qa_classifier.intermediate.dense",
    "output": "qa_classifier.output.dense",
    "norm": "qa_classifier.output.LayerNorm",
    "spans": "qa_classifier.qa_outputs",
}
_ROBERTA_TOKENS = {
    "masked_tokens.dense": "lm_head.dense",
    "masked_tokens.norm": "lm_head.layer_norm",
    "masked_tokens": "lm_head",
}
ARCHITECTURES = {
    architecture.name: architecture
    for architecture in (
        Architecture(
            "BigBirdForPreTraining", "pretraining", _MASKED_TOKENS | _NEXT_SENTENCE
        ),
        Architecture("BigBirdForMaskedLM", "pretraining", _MASKED_TOKENS),
        Architecture("BigBirdForSequenceClassification", "classification", _CLASSIFIER),
        Architecture("BigBirdForQuestionAnswering", "question-answering", _ANSWERS),
        Architecture("BigBirdModel", "encoder", {}, prefix=""),
        Architecture("RobertaForMaskedLM", "pretraining", _ROBERTA_TOKENS, "roberta."),
    )
}

# Alternative names of the same tensor; current HuggingFace versions write the first one.
TIED = (
    ("bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"),
    ("cls.predictions.bias", "cls.predictions.decoder.bias"),
    ("roberta.embeddings.word_embeddings.weight", "lm_head.decoder.weight"),
    ("lm_head.bias", "lm_head.decoder.bias"),
)


def huggingface_name(name: str, architecture: Architecture) -> str:
    """HuggingFace's name of the tensor called `name` in this package."""
    module, _, kind = name.rpartition(".")
    if not module.startswith("encoder."):
        return f"{architecture.head[module]}.{kind}"
    module = module.removeprefix("encoder.")
    number = "".join(re.findall(r"(?<=^layers\.)\d+", module))
    theirs = BIGBIRD[module.replace(f".{number}.", ".*.")]
    return f"{architecture.prefix}{theirs.replace('*', number)}.{kind}"


def import_huggingface(
    directory: Path,
    output: Path,
    compatibility: Compatibility = "huggingface",
    tokenizer: Path | None = None,
) -> LoadedModel:
    """Write the model directory `output` from a HuggingFace checkpoint, and return the model.

    `directory` contains `config.json`, weights (`model.safetensors` or `pytorch_model.bin`, whole or sharded)
    and a tokenizer, unless a `tokenizer` file is given. For `compatibility` see `encoder_config`.
    `ModelError`: a file is missing or damaged; the architecture or a key of the configuration is unsupported;
    a tensor is missing, unexpected or of another shape; or the tokenizer's ids exceed the vocabulary.
    """
    check_directory(
        output, [directory] if tokenizer is None else [directory, tokenizer]
    )
    path = directory / "config.json"
    if not directory.exists() and re.fullmatch(r"[\w.-]+/[\w.-]+", str(directory)):
        raise ModelError(
            f"{directory}: no such directory; to import this model of the HuggingFace hub, download it where "
            f"there is a network, with `hf download {directory} --local-dir {directory.name}`, and give the "
            "directory"
        )

    if not path.is_file():
        raise ModelError(
            f"{directory}: not a checkpoint directory: config.json is missing"
        )

    values = read_object(path)
    if "auto_map" in values:
        log(f"{path}: auto_map is ignored: code of checkpoints is never executed")

    config = encoder_config(values, compatibility, str(path))
    names = [str(name) for name in values.get("architectures") or ()]
    name = next((name for name in names if name in ARCHITECTURES), None)
    if name is None:
        raise ModelError(
            f"{path}: architectures {shortened(repr(names))} are not supported; supported: "
            f"{', '.join(ARCHITECTURES)}"
        )

    architecture = ARCHITECTURES[name]
    loaded_tokenizer = find_tokenizer(directory, config.vocabulary, tokenizer)
    tensors = read_tensors(directory)
    for first, second in TIED:
        tied = tensors.pop(second, None)
        if tied is None:
            continue

        if not torch.equal(tensors.setdefault(first, tied), tied):
            raise ModelError(
                f"{directory}: {second!r} differs from {first!r}: untied weights are not supported"
            )

    if name == "RobertaForMaskedLM":
        # The first rows of the position table have no token, and both sentences have the only token type.
        for kind, rows in (
            ("position", slice(-config.max_length, None)),
            ("token_type", [0, 0]),
        ):
            table = f"roberta.embeddings.{kind}_embeddings.weight"
            if table in tensors:
                tensors[table] = tensors[table][rows]

    settings = _settings(architecture, values, loaded_tokenizer, tensors, path)

    network = build_without_values(directory, lambda: build_network(config, settings))
    weights = {}
    for key, value in network.state_dict().items():
        theirs = huggingface_name(key, architecture)
        tensor = tensors.pop(theirs, None)
        is_bias = theirs.endswith(("query.bias", "key.bias", "value.bias"))
        if tensor is None and is_bias and not values.get("use_bias", True):
            tensor = torch.zeros(value.shape, device="cpu")

        if tensor is None:
            raise ModelError(f"{directory}: tensor {theirs!r} is missing")

        if tensor.shape != value.shape or not tensor.is_floating_point():
            raise ModelError(
                f"{directory}: tensor {theirs!r} has type {tensor.dtype} and shape "
                f"{shortened(str(tuple(tensor.shape)))}; config.json specifies {tuple(value.shape)}"
            )

        weights[key] = tensor.float()
        check_finite(weights[key], theirs, directory)

    # Most checkpoints contain the [CLS] projection, which only the next-sentence head uses.
    unexpected = sorted(key for key in tensors if ".pooler." not in f".{key}")
    if unexpected:
        raise ModelError(
            f"{directory}: unexpected tensor {shortened(repr(unexpected[0]))}, not part of {architecture.name}"
        )

    network.load_state_dict(weights, assign=True)

    model = make_model(network.eval(), loaded_tokenizer, config, settings, output)
    provenance = {
        "imported_from": directory.name,
        "compatibility": config.compatibility,
    }
    save(output, model, provenance, {}, {})
    return model


def read_tensors(directory: Path) -> dict[str, Tensor]:
    """All tensors of a checkpoint by name, without the position ids of older ones; whole files or shards.

    `ModelError`: no file is present, or one is damaged or contains anything but tensors.
    """
    files = sorted(directory.glob("model*.safetensors"))
    files = files or sorted(directory.glob("pytorch_model*.bin"))
    if not files:
        raise ModelError(
            f"{directory}: weights missing: expected model.safetensors or pytorch_model.bin, or their shards"
        )

    tensors: dict[str, Tensor] = {}
    for file in files:
        try:
            if file.suffix == ".safetensors":
                content = load_file(file)
            else:
                content = torch.load(file, map_location="cpu", weights_only=True)

            for name, tensor in content.items():
                if not isinstance(tensor, Tensor):
                    raise TypeError(f"{name} is not a tensor")

                if not name.endswith(("position_ids", "embeddings.token_type_ids")):
                    tensors[name] = tensor
        except Exception as error:  # damaged pickles raise errors of any type
            raise ModelError(
                f"{file}: damaged, or contains other objects than tensors"
            ) from error

    return tensors


def _settings(
    architecture: Architecture,
    values: Mapping[str, Any],
    tokenizer: Tokenizer,
    tensors: Mapping[str, Tensor],
    path: Path,
) -> Settings:
    """Settings of the head; for an exported promoter model, those before its export.

    A classifier of DNA becomes a model of labeled sequences: `problem_type` says what its outputs are; null:
    by their number, as in HuggingFace's library.
    """
    if architecture.task == "pretraining":
        return PretrainingSettings(
            next_sentence=architecture.name == "BigBirdForPreTraining"
        )

    if architecture.task != "classification":
        return SETTINGS[architecture.task]()

    count = len(tensors.get("classifier.out_proj.weight", torch.zeros(1)))
    names = values.get("id2label") or {}
    if not isinstance(names, dict) or len(names) not in (0, count):
        raise ModelError(
            f"{path}: id2label must map numbers to names, as many as the {count} rows of "
            "classifier.out_proj.weight"
        )

    labels = tuple(
        str(names.get(str(index), f"LABEL_{index}")) for index in range(count)
    )
    exported = values.get(PACKAGE_KEY)
    if isinstance(exported, dict) and exported.get("task") == "promoter" and count == 1:
        try:
            return PromoterSettings.model_validate(
                {**exported["settings"], "pooling": "cls"}
            )
        except (KeyError, TypeError, ValueError) as error:
            reason = shortened(" ".join(repr(error).split()), 200)
            raise ModelError(f"{path}: {PACKAGE_KEY}: damaged: {reason}") from None

    problem = values.get("problem_type")
    kind: LabelKind | None = None
    if problem == "multi_label_classification":
        kind = "multilabel" if count > 1 else "binary"
    elif count > 1 and problem in (None, "single_label_classification"):
        kind = "multiclass"
    elif problem in (None, "regression"):
        kind = "regression"

    if not tokenizer.is_dna or kind is None:
        return ClassificationSettings(outputs=count, labels=labels, pooling="cls")

    standardized = count if kind == "regression" else 0
    return SequenceSettings(
        kind=kind,
        outputs=labels,
        pooling="cls",
        jitter=0,
        views=1,
        means=(0.0,) * standardized,
        deviations=(1.0,) * standardized,
    )


def export_huggingface(path: Path, output: Path) -> str:
    """Export the model directory `path` as a HuggingFace checkpoint to `output`; returns its class.

    A classifier is exported as `BigBirdForSequenceClassification`; a promoter model has one output, the logit
    of a promoter. The tokenizer is included, in files for `AutoTokenizer`. `ModelError`: HuggingFace's
    BigBird lacks a part of the model.
    """
    path = find_model(path)
    check_directory(output, [path])
    model = load(path)
    config, settings, tokenizer = model.config, model.settings, model.tokenizer
    values = huggingface_config(config, str(path)) | {
        "pad_token_id": tokenizer.pad_id,
        "bos_token_id": tokenizer.cls_id,
        "eos_token_id": tokenizer.sep_id,
        "sep_token_id": tokenizer.sep_id,
        "dtype": "float32",
        PACKAGE_KEY: {
            "task": model.task,
            "settings": settings.model_dump(mode="json"),
            "random_seed": config.random_seed,
        },
    }
    names: dict[str, str] = {
        "encoder": "BigBirdModel",
        "question-answering": "BigBirdForQuestionAnswering",
    }
    name = names.get(model.task)
    if isinstance(settings, PretrainingSettings):
        name = f"BigBirdFor{'PreTraining' if settings.next_sentence else 'MaskedLM'}"
    elif isinstance(settings, ClassifierSettings | ClassificationSettings):
        name = "BigBirdForSequenceClassification"
        supported = {
            "pooling": "cls",
            "head": "dense",
            "base_positions": False,
            "ensemble": False,
            "ensemble_kmers": 0,
        }
        for key, needed in supported.items():
            if getattr(settings, key, needed) != needed:
                raise ModelError(
                    f"{path}: HuggingFace's BigBird does not support {key} {getattr(settings, key)!r}"
                )

        if any(getattr(settings, "means", ())):
            raise ModelError(f"{path}: HuggingFace's BigBird does not support means")

        labels: tuple[str, ...] = ("promoter",)
        # The library treats one output as regression unless this key declares it a logit.
        problem: str | None = "multi_label_classification"
        if isinstance(settings, SequenceSettings):
            labels = settings.outputs
            if settings.kind == "multiclass":
                problem = "single_label_classification"
            elif settings.kind == "regression":
                problem = "regression"
        elif isinstance(settings, ClassificationSettings):
            labels, problem = settings.labels, None

        values["id2label"] = {str(index): label for index, label in enumerate(labels)}
        values["label2id"] = {label: index for index, label in enumerate(labels)}
        values["problem_type"] = problem

    if name is None:
        raise ModelError(
            f"{path}: HuggingFace's BigBird does not support {model.task} models"
        )

    values["architectures"] = [name]

    architecture = ARCHITECTURES[name]
    tensors = {}
    for key, tensor in model.network.state_dict().items():
        tensors[huggingface_name(key, architecture)] = tensor.clone().contiguous()

    if name != "BigBirdForQuestionAnswering":
        # Unused, but HuggingFace would initialize it randomly and warn.
        size = config.hidden
        pooler = f"{architecture.prefix}pooler"
        tensors.setdefault(f"{pooler}.weight", torch.zeros(size, size, device="cpu"))
        tensors.setdefault(f"{pooler}.bias", torch.zeros(size, device="cpu"))

    with atomic_directory(output) as temporary:
        write_json(temporary / "config.json", values)
        weights = temporary / "model.safetensors"
        save_file(tensors, weights, {"format": "pt"})
        weights.chmod(0o644)
        write_tokenizer(tokenizer, temporary, config.max_length)

    if config.attention == "bigbird" and config.compatibility == "none":
        full = (5 + 2 * config.random_blocks) * config.block_size
        log(
            f"{output}: HuggingFace's evaluation uses no random blocks: above {full:,} tokens its outputs "
            "differ from this model's"
        )

    return name
