"""Import HuggingFace BigBird and ModernBERT checkpoints as models, and export models as checkpoints.

An imported model stores in `settings.huggingface` what its network does not need: the original `config.json`,
the architecture, the names under which tied tensors were stored, and the type of the values. The file
`huggingface.safetensors` contains weights that no head uses. An export thus restores the checkpoint bit for
bit. Buffers that follow from the configuration (position ids in old checkpoints) are omitted, as is code
named in `auto_map`: no code of a checkpoint is ever executed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save_file
from torch import Tensor

from bigbird_dna.console import log
from bigbird_dna.disk.directories import atomic_directory, check_directory
from bigbird_dna.disk.json_files import check_writable, read_mapping
from bigbird_dna.errors import ModelError, shortened
from bigbird_dna.huggingface.configuration import (
    PACKAGE_KEY,
    PACKAGE_TYPE,
    Compatibility,
    NoNativeClass,
    encoder_config,
    huggingface_config,
)
from bigbird_dna.huggingface.model_code import (
    export_with_code,
    head_values,
    import_with_code,
    labeled_settings,
    write_checkpoint,
)
from bigbird_dna.huggingface.names import (
    ARCHITECTURES,
    BIGBIRD,
    TIED,
    UNUSED_FILE,
    Architecture,
    huggingface_name,
    is_attention_bias,
    is_buffer,
    load_network,
    may_be_missing,
    pooler_shapes,
    split_tensors,
)
from bigbird_dna.huggingface.tensors import read_tensor_file, read_tensors
from bigbird_dna.huggingface.tokenizer_files import find_tokenizer
from bigbird_dna.model.catalog import find_model
from bigbird_dna.model.directory import build_network, load, make_model, write_model
from bigbird_dna.model.heads import Classifier
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.model.settings import (
    SETTINGS,
    ClassificationSettings,
    PretrainingSettings,
    PromoterSettings,
    Settings,
)
from bigbird_dna.tokens.interface import Tokenizer


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
    values = _description(path)
    if values.get("model_type") == PACKAGE_TYPE:
        return import_with_code(directory, values, output, tokenizer)
    config = encoder_config(values, compatibility, str(path))
    architecture = _architecture(values, path)
    loaded_tokenizer = find_tokenizer(directory, config.vocabulary, tokenizer)
    tensors = {
        name: tensor
        for name, tensor in split_tensors(read_tensors(directory)).items()
        if not is_buffer(name)
    }
    tied = join_tied(tensors, TIED, directory)
    settings = _head(architecture, values, loaded_tokenizer, tensors, path)
    named = partial(huggingface_name, architecture=architecture)
    network = load_network(
        tensors,
        lambda: build_network(config, settings),
        named,
        partial(may_be_missing, values=values),
        architecture.name,
        directory,
        pooler_shapes(architecture, config.hidden),
    )
    unused = {
        name: tensors[name].contiguous()
        for name in sorted(tensors.keys() - set(map(named, network.state_dict())))
    }
    if architecture.encoder is BIGBIRD:  # others are not exported
        dtypes = {tensor.dtype for tensor in tensors.values()}
        checkpoint = {
            "architecture": architecture.name,
            "config": values,
            "tied": tied,
            "unused": [*unused],
            "dtype": _dtype_name(dtypes.pop() if len(dtypes) == 1 else torch.float32),
        }
        settings = settings.model_copy(update={"huggingface": checkpoint})
    settings = labeled_settings(settings, values, loaded_tokenizer)
    model = make_model(network, loaded_tokenizer, config, settings, output)
    provenance = {
        "imported_from": directory.name,
        "compatibility": config.compatibility,
    }
    with atomic_directory(output) as temporary:
        if unused:
            save_file(unused, temporary / UNUSED_FILE)
            (temporary / UNUSED_FILE).chmod(0o644)
        write_model(temporary, model, provenance, {}, {})
    return model


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _description(path: Path) -> dict[str, Any]:
    """The content of a checkpoint's `config.json`."""
    if not path.parent.is_dir():
        raise ModelError(f"{path.parent}: checkpoint directory not found")
    if not path.is_file():
        raise ModelError(
            f"{path.parent}: not a checkpoint directory: config.json is missing"
        )
    values = read_mapping(path)
    if "auto_map" in values:
        log(f"{path}: auto_map is ignored: code of checkpoints is never executed")
    return values


def _architecture(values: Mapping[str, Any], path: Path) -> Architecture:
    names = values.get("architectures") or []
    for name in names:
        if str(name) in ARCHITECTURES:
            return ARCHITECTURES[str(name)]
    named = shortened(repr(names[0])) if names else "(none named)"
    raise ModelError(
        f"{path}: architecture {named} is not supported; supported: {', '.join(ARCHITECTURES)}"
    )


def _head(
    architecture: Architecture,
    values: Mapping[str, Any],
    tokenizer: Tokenizer,
    tensors: Mapping[str, Tensor],
    path: Path,
) -> Settings:
    """Settings of the head; for an exported model, those before its export."""
    settings: dict[str, Any] = {}
    if architecture.task == "pretraining":
        settings["next_sentence"] = architecture.name == "BigBirdForPreTraining"
    elif architecture.task == "question-answering":
        # This token marks the end of the question in both packages.
        sep_id = values.get("sep_token_id", 66)
        if sep_id != tokenizer.sep_id:
            token = shortened(repr(sep_id))
            raise ModelError(
                f"{path}: sep_token_id {token} differs from the tokenizer's {tokenizer.sep_id}"
            )
    elif architecture.task == "classification":
        settings |= {**_labels(values, tensors, path), "pooling": "cls"}
    task = architecture.task
    exported = values.get(PACKAGE_KEY)
    try:
        if (
            isinstance(exported, dict)
            and exported["task"] == "promoter"
            and settings.get("outputs") == 1
        ):
            task, settings = "promoter", {**exported["settings"], "pooling": "cls"}
            settings |= {"head": "dense"} if "head" in settings else {}
        return SETTINGS[task].model_validate(settings)
    except (KeyError, TypeError, ValueError) as error:
        reason = shortened(" ".join(repr(error).split()), 200)
        raise ModelError(f"{path}: {PACKAGE_KEY}: damaged: {reason}") from None


def _labels(
    values: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    path: Path,
) -> dict[str, Any]:
    """The number of a classifier's outputs, from its weights, and their labels."""
    weight = tensors.get("classifier.out_proj.weight", torch.zeros(1))
    outputs, names = len(weight), values.get("id2label") or {}
    if not isinstance(names, dict) or len(names) not in (0, outputs):
        raise ModelError(
            f"{path}: id2label must map numbers to names, as many as the {outputs} rows of "
            "classifier.out_proj.weight"
        )
    labels = [str(names.get(str(index), f"LABEL_{index}")) for index in range(outputs)]
    return {"outputs": outputs, "labels": labels}


def join_tied(
    tensors: dict[str, Tensor], tied: Iterable[Sequence[str]], directory: Path
) -> dict[str, list[str]]:
    """Keep one name of each tied tensor; returns the names under which it was stored."""
    stored = {}
    for group in tied:
        names = [name for name in group if name in tensors]
        if not names:
            continue
        tensor = tensors[names[0]]
        for name in names[1:]:
            other = tensors[name]
            if other.dtype != tensor.dtype or not torch.equal(other, tensor):
                raise ModelError(
                    f"{directory}: {name!r} differs from {names[0]!r}: untied weights are not supported"
                )
        for name in names:
            del tensors[name]
        tensors[group[0]] = tensor
        stored[group[0]] = names
    return stored


Code = Literal["auto", "never", "always"]


def export_huggingface(
    path: Path, output: Path, code: Code = "auto", license: str | None = None
) -> str:
    """Export the model directory `path` as a HuggingFace checkpoint to `output`; returns its class.

    `code` "auto": of HuggingFace's BigBird, if this has all parts of the model, otherwise with model code
    (see `model_code`); "always": with model code; "never": of BigBird, or `ModelError` for an unsupported
    part. A promoter model is exported as `BigBirdForSequenceClassification` with one output, the logit of a
    promoter; of an ensemble, "never" exports the network without its regressions. The tokenizer is included,
    in files for `AutoTokenizer`, and a README, whose `license` is by default that of the model's card.
    """
    path = find_model(path)
    check_directory(output, [path])
    model = load(path)
    if code == "always":
        return export_with_code(model, output, license)
    try:
        alone = _network_alone(model, path) if code == "never" else model
        return _export_native(alone, path, output, license)
    except NoNativeClass as error:
        if code == "never":
            raise
        log(
            f"{error}; the checkpoint has model code, which needs the package bigbird-dna"
        )
    return export_with_code(model, output, license)


def _export_native(
    model: LoadedModel, path: Path, output: Path, license: str | None
) -> str:
    """Export a model as a checkpoint of HuggingFace's BigBird."""
    remembered = model.settings.huggingface or {}
    architecture = _exported_architecture(model, remembered, path)
    values = huggingface_config(model.config, remembered.get("config"), str(path))
    if not remembered:
        description = {"task": model.task, "settings": model.settings.as_json()}
        values |= head_values(model) | {
            PACKAGE_KEY: description | {"random_seed": model.config.random_seed}
        }
    values["architectures"] = [architecture.name]
    check_writable(values, path / "config.json")
    tensors = _exported_tensors(model, architecture, remembered, path)
    # The original type if it represents every value exactly, as for a model that was only imported.
    dtype = getattr(torch, remembered.get("dtype", "float32"))
    if not all(torch.equal(t.float(), t.to(dtype).float()) for t in tensors.values()):
        dtype = torch.float32
    key = "torch_dtype" if "torch_dtype" in values else "dtype"
    if key in values or not remembered:
        values[key] = _dtype_name(dtype)
    tensors = {name: tensor.to(dtype) for name, tensor in tensors.items()}
    write_checkpoint(output, model, values, tensors, license=license)
    if model.config.attention == "bigbird" and model.config.compatibility == "none":
        full = (5 + 2 * model.config.random_blocks) * model.config.block_size
        log(
            f"{output}: HuggingFace's evaluation uses no random blocks: above {full:,} tokens its outputs "
            "differ from this model's; --code always writes a checkpoint that computes the same"
        )
    return architecture.name


def _network_alone(model: LoadedModel, path: Path) -> LoadedModel:
    """The network of a promoter ensemble as a model; other models are returned unchanged."""
    network, settings = model.network, model.settings
    if not isinstance(network, Classifier) or network.ensemble is None:
        return model
    assert isinstance(settings, PromoterSettings)
    log(
        f"{path}: the model is an ensemble; its network is exported without the regressions. Its "
        "probabilities are those of the row 'network' in a report, not those of the ensemble"
    )
    network.ensemble = None
    settings = settings.model_copy(update={"ensemble": False, "ensemble_kmers": 0})
    return replace(model, settings=settings)


def _exported_architecture(
    model: LoadedModel, remembered: Mapping[str, Any], path: Path
) -> Architecture:
    if remembered:
        return ARCHITECTURES[remembered["architecture"]]
    settings, network = model.settings, model.network
    if isinstance(network, Classifier) and network.ensemble is not None:
        raise NoNativeClass(
            f"{path}: an ensemble with regressions: HuggingFace's BigBird has none"
        )
    if isinstance(settings, PromoterSettings) and settings.pooling != "cls":
        raise NoNativeClass(
            f"{path}: pooling {settings.pooling!r}: HuggingFace's BigBird supports only cls"
        )
    if isinstance(settings, PromoterSettings) and settings.base_positions:
        raise NoNativeClass(
            f"{path}: HuggingFace's BigBird does not support base positions. To export a promoter model, "
            "train it with promoters.model.base_positions: false"
        )
    if (
        isinstance(settings, PromoterSettings | ClassificationSettings)
        and settings.head != "dense"
    ):
        raise NoNativeClass(
            f"{path}: head {settings.head!r}: HuggingFace's BigBird supports only dense"
        )
    if isinstance(settings, PretrainingSettings):
        trained = settings.next_sentence
        return ARCHITECTURES[
            "BigBirdForPreTraining" if trained else "BigBirdForMaskedLM"
        ]
    task = "classification" if model.task == "promoter" else model.task
    for architecture in ARCHITECTURES.values():
        if architecture.task == task:
            return architecture
    raise NoNativeClass(
        f"{path}: HuggingFace's BigBird does not support {model.task} models"
    )


def _exported_tensors(
    model: LoadedModel,
    architecture: Architecture,
    remembered: Mapping[str, Any],
    path: Path,
) -> dict[str, Tensor]:
    has_biases = remembered.get("config", {}).get("use_bias", True)
    tensors = {}
    for name, tensor in model.network.state_dict().items():
        if is_attention_bias(name) and not has_biases:
            if tensor.any():
                raise ModelError(
                    f"{path}: {name} must be zero, because its config.json had no biases"
                )
            continue
        theirs = huggingface_name(name, architecture)
        if theirs is None:
            raise NoNativeClass(
                f"{path}: {architecture.name} does not support {name!r}"
            )
        tensors[theirs] = tensor
    unused = path / UNUSED_FILE
    if unused.is_file():  # weights that no head uses, as imported
        tensors |= read_tensor_file(unused)
    elif remembered.get("unused", architecture.name != "BigBirdForQuestionAnswering"):
        # Unused, but HuggingFace would initialize it randomly and warn.
        for name, shape in pooler_shapes(architecture, model.config.hidden).items():
            tensors.setdefault(name, torch.zeros(shape, device="cpu"))
    for first, names in remembered.get("tied", {}).items():
        tensor = tensors.pop(first)
        tensors |= dict.fromkeys(names, tensor)
    return tensors
