"""Writes models as checkpoints of HuggingFace's BigBird; see `bigbird_dna.huggingface.importing`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors.torch import save_file
from torch import Tensor

from bigbird_dna.console import log
from bigbird_dna.disk.atomic import write_json
from bigbird_dna.disk.directories import atomic_directory, check_directory
from bigbird_dna.disk.json_files import check_writable
from bigbird_dna.errors import ModelError, error_text, shortened
from bigbird_dna.huggingface.configuration import huggingface_config
from bigbird_dna.huggingface.names import (
    ARCHITECTURES,
    OWN_KEY,
    TIED,
    UNUSED_FILE,
    Architecture,
    huggingface_name,
    is_attention_bias,
    pooler_names,
)
from bigbird_dna.huggingface.tensors import read_tensor_file
from bigbird_dna.huggingface.tokenizer_files import write_tokenizer
from bigbird_dna.model.catalogue import find_model
from bigbird_dna.model.directory import load
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.model.settings import ClassificationSettings, PretrainingSettings, PromoterSettings

_NUMBERS = {
    str(t).removeprefix("torch."): t for t in (torch.float64, torch.float32, torch.float16, torch.bfloat16)
}


def export_huggingface(path: Path, output: Path) -> str:
    """Write the model directory `path` as a checkpoint of HuggingFace's to `output`; returns its class.

    A promoter model becomes a `BigBirdForSequenceClassification` with one output, the logit of a promoter.
    The tokenizer goes with it, in files that `AutoTokenizer` reads.

    Raises
    ------
    ModelError : `path` is not a model directory, or the model has something that HuggingFace's BigBird lacks.
    """
    path = find_model(path)
    check_directory(output, [path])
    model = load(path)
    remembered = _remembered(model, path)
    architecture = _exported_architecture(model, remembered, path)
    values = huggingface_config(model.config, remembered.get("config"), str(path))
    if not remembered:
        values |= _fresh_values(model)
    values["architectures"] = [architecture.name]
    check_writable(values, path / "config.json")
    tensors = _exported_tensors(model, architecture, remembered, path)
    kind = _stored_type(tensors, remembered.get("dtype", "float32"))
    key = next((key for key in ("dtype", "torch_dtype") if key in values), "dtype")
    if key in values or not remembered:
        values[key] = str(kind).removeprefix("torch.")
    # Copies: safetensors refuses tensors that share memory.
    tensors = {name: t.to(kind).clone(memory_format=torch.contiguous_format) for name, t in tensors.items()}
    with atomic_directory(output) as temporary:
        write_json(temporary / "config.json", values)
        save_file(tensors, temporary / "model.safetensors", metadata={"format": "pt"})
        (temporary / "model.safetensors").chmod(0o644)
        write_tokenizer(model.tokenizer, temporary, model.config.max_length)
    if model.config.attention == "bigbird" and model.config.compatibility == "none":
        full = (5 + 2 * model.config.random_blocks) * model.config.block_size
        log(
            f"{output}: HuggingFace's evaluation draws no random blocks: above {full:,} tokens its outputs "
            "differ from this model's"
        )
    return architecture.name


def _remembered(model: LoadedModel, path: Path) -> Mapping[str, Any]:
    """What the model remembers of the checkpoint that it was imported from; {} if it wasn't."""
    if not model.settings.huggingface:
        return {}
    try:
        found = _Remembered.model_validate(model.settings.huggingface).model_dump(exclude_unset=True)
    except ValidationError as error:
        raise ModelError(f"{path}/config.json: settings.huggingface: {error_text(error)}") from None
    for first, names in found.get("tied", {}).items():
        if not any(first == group[0] and {*names} <= {*group} for group in TIED):
            raise ModelError(f"{path}/config.json: settings.huggingface: tied weights that no checkpoint has")
    return found


class _Remembered(BaseModel):
    model_config = ConfigDict(strict=True)

    architecture: Literal[tuple(ARCHITECTURES)]  # type: ignore[valid-type]
    config: dict[str, Any]
    tied: dict[str, list[str]] = {}
    unused: list[str] = []
    dtype: Literal[tuple(_NUMBERS)] = "float32"  # type: ignore[valid-type]


def _unused(model: LoadedModel, architecture: Architecture, path: Path) -> dict[str, Tensor]:
    """Weights that no head reads, as they were imported."""
    weight, bias = pooler_names(architecture)
    hidden = model.config.hidden
    found = read_tensor_file(path)
    for name, tensor in found.items():
        if tensor.shape != {weight: (hidden, hidden), bias: (hidden,)}.get(name) or tensor.dtype is None:
            raise ModelError(f"{path}: tensor {shortened(repr(name))} is not one of {architecture.name}'s")
    return {name: tensor.read() for name, tensor in found.items()}


def _exported_architecture(model: LoadedModel, remembered: Mapping[str, Any], path: Path) -> Architecture:
    if remembered:
        return ARCHITECTURES[remembered["architecture"]]
    settings = model.settings
    if isinstance(settings, PromoterSettings) and settings.pooling != "cls":
        raise ModelError(
            f"{path}: pooling {settings.pooling!r}: HuggingFace's BigBird classifies by [CLS] only"
        )
    if isinstance(settings, PromoterSettings) and settings.offsets is not None:
        raise ModelError(
            f"{path}: reads base positions, which HuggingFace's BigBird lacks: to export a promoter model, "
            "train it with promoters.model.base_positions: false and promoters.model.ensemble: false"
        )
    if isinstance(settings, PromoterSettings | ClassificationSettings) and settings.head != "dense":
        raise ModelError(f"{path}: head {settings.head!r}: HuggingFace's BigBird classifies by two layers")
    if isinstance(settings, PretrainingSettings):
        trained = settings.next_sentence
        return ARCHITECTURES["BigBirdForPreTraining" if trained else "BigBirdForMaskedLM"]
    task = "classification" if model.task == "promoter" else model.task
    for found in ARCHITECTURES.values():
        if found.task == task:
            return found
    raise ModelError(f"{path}: HuggingFace's BigBird has nothing like a {model.task} model")


def _fresh_values(model: LoadedModel) -> dict[str, Any]:
    """The part of config.json that heads and tokenizer decide, for a model that was never imported."""
    tokenizer = model.tokenizer
    values: dict[str, Any] = {
        "pad_token_id": tokenizer.pad_id,
        "bos_token_id": tokenizer.cls_id,
        "eos_token_id": tokenizer.sep_id,
        "sep_token_id": tokenizer.sep_id,
        OWN_KEY: {
            "task": model.task,
            "settings": model.settings.as_json(),
            "random_seed": model.config.random_seed,
        },
    }
    names: tuple[str, ...] | None = ("promoter",) if model.task == "promoter" else None
    if isinstance(model.settings, ClassificationSettings):
        names = model.settings.labels
    if names is not None:
        values["id2label"] = {str(index): name for index, name in enumerate(names)}
        values["label2id"] = {name: index for index, name in enumerate(names)}
    if model.task == "promoter":
        # One output means regression there unless this says that it is a logit.
        values["problem_type"] = "multi_label_classification"
    return values


def _exported_tensors(
    model: LoadedModel, architecture: Architecture, remembered: Mapping[str, Any], path: Path
) -> dict[str, Tensor]:
    has_biases = remembered.get("config", {}).get("use_bias", True)
    tensors = {}
    for name, tensor in model.network.state_dict().items():
        if is_attention_bias(name) and not has_biases:
            if tensor.any():
                raise ModelError(f"{path}: {name} isn't zero, though its config.json had no biases")
            continue
        theirs = huggingface_name(name, architecture)
        if theirs is None:
            raise ModelError(f"{path}: {name!r} has no counterpart in {architecture.name}")
        tensors[theirs] = tensor
    if (path / UNUSED_FILE).is_file():
        tensors |= _unused(model, architecture, path / UNUSED_FILE)
    elif remembered.get("unused", architecture.name != "BigBirdForQuestionAnswering"):
        # Nothing reads it, but HuggingFace would draw it at random and warn.
        weight, bias = pooler_names(architecture)
        tensors.setdefault(weight, torch.zeros(model.config.hidden, model.config.hidden))
        tensors.setdefault(bias, torch.zeros(model.config.hidden))
    for first, names in remembered.get("tied", {}).items():
        tensor = tensors.pop(first)
        tensors |= dict.fromkeys(names, tensor)
    return tensors


def _stored_type(tensors: Mapping[str, Tensor], name: str) -> torch.dtype:
    """The type named `name` if it holds every number, as it does in a model that was only imported."""
    kind = _NUMBERS[name]
    exact = all(torch.equal(t.float(), t.to(kind).float()) for t in tensors.values())
    return kind if exact else torch.float32
