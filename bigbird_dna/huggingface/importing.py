"""Reads checkpoints of HuggingFace's BigBird as models; `exporting` writes them.

An imported model remembers in `settings.huggingface` what its network has no use for: the original
`config.json`, the architecture, under how many names tied tensors were stored, the type of the numbers; and
in `huggingface.safetensors` weights that no head reads. With these it is exported as it came, bit for bit.
Buffers that follow from the configuration (position ids in old checkpoints) are left out, and so is what
`auto_map` names: no code of a checkpoint is ever run.
"""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import save_file
from torch import Tensor

from bigbird_dna.config import EncoderConfig
from bigbird_dna.console import log
from bigbird_dna.errors import ModelError
from bigbird_dna.files import check_writable, read_json
from bigbird_dna.huggingface.configuration import Compatibility, encoder_config
from bigbird_dna.huggingface.names import (
    ARCHITECTURES,
    OWN_KEY,
    TIED,
    UNUSED_FILE,
    Architecture,
    huggingface_name,
    is_attention_bias,
    is_buffer,
    pooler_names,
)
from bigbird_dna.huggingface.tensor_files import read_tensors
from bigbird_dna.huggingface.tokenizer_files import find_tokenizer
from bigbird_dna.model.directory import build_network, make_model, save
from bigbird_dna.model.model import Model
from bigbird_dna.model.settings import SETTINGS, Settings
from bigbird_dna.tokens.interface import Tokenizer


def import_huggingface(
    directory: Path, output: Path, compatibility: Compatibility = "huggingface", tokenizer: Path | None = None
) -> Model:
    """Write the model directory `output` from a checkpoint of HuggingFace's, and return the model.

    Parameters
    ----------
    directory : `config.json`, weights (`model.safetensors` or `pytorch_model.bin`, whole or in shards) and a
        tokenizer.
    compatibility : `huggingface`: block-sparse attention as its evaluation computes it, so that outputs are
        equal to its own; `none`: the paper's pattern, with random blocks.
    tokenizer : a tokenizer file to use instead of the directory's.

    Raises
    ------
    ModelError : a file is missing or damaged, the architecture or a key of the configuration has no
        counterpart, a tensor is missing, unexpected or of another shape, or the tokenizer's ids go beyond the
        model's.
    """
    check_writable(output, directory=True)
    values = _read_config(directory)
    path = directory / "config.json"
    config = encoder_config(values, compatibility, str(path))
    architecture = _architecture(values, path)
    pieces = find_tokenizer(directory, config.vocabulary, tokenizer)
    tensors = {name: t for name, t in read_tensors(directory).items() if not is_buffer(name)}
    head = _head(architecture, values, config, pieces, tensors, path)
    kinds = {str(t.dtype).removeprefix("torch.") for t in tensors.values()}
    tied = _join_tied(tensors, directory)
    with torch.random.fork_rng(devices=[]):
        network = build_network(head.config, head.settings)
    weights = _take(tensors, network.state_dict(), architecture, values, directory)
    unused = {name: tensors.pop(name) for name in pooler_names(architecture) if name in tensors}
    if tensors:
        raise ModelError(
            f"{directory}: unexpected tensor {min(tensors)!r}: {architecture.name} has no such part"
        )
    network.load_state_dict(weights)
    remembered = {
        "architecture": architecture.name,
        "config": values,
        "tied": tied,
        "unused": sorted(unused),
        "dtype": kinds.pop() if len(kinds) == 1 else "float32",
    }
    settings = head.settings.model_copy(update={"huggingface": remembered})
    model = make_model(network.eval(), pieces, head.config, settings, output)
    _save(model, unused, directory.name)
    return model


def _read_config(directory: Path) -> dict[str, Any]:
    if not directory.is_dir():
        raise ModelError(f"{directory}: no such checkpoint directory")
    path = directory / "config.json"
    if not path.is_file():
        raise ModelError(f"{directory}: not a checkpoint directory: config.json is missing")
    values = read_json(path)
    if not isinstance(values, dict):
        raise ModelError(f"{path}: not a mapping")
    if "auto_map" in values:
        log(f"{path}: auto_map is ignored: no code of a checkpoint is run")
    return values


def _save(model: Model, unused: Mapping[str, Tensor], origin: str) -> None:
    assert model.path is not None
    provenance = {"imported_from": origin, "compatibility": model.config.compatibility}
    with tempfile.TemporaryDirectory(prefix="bigbird-dna-") as spool:
        extra = {}
        if unused:
            extra[UNUSED_FILE] = Path(spool, UNUSED_FILE)
            save_file({name: t.contiguous() for name, t in unused.items()}, extra[UNUSED_FILE])
        save(model.path, model, provenance, {}, extra)


class _Head(NamedTuple):
    settings: Settings
    config: EncoderConfig  # with the seed of an exported model


def _architecture(values: Mapping[str, Any], path: Path) -> Architecture:
    named = values.get("architectures") or ["(none named)"]
    for name in named:
        if name in ARCHITECTURES:
            return ARCHITECTURES[name]
    raise ModelError(
        f"{path}: architecture {named[0]!r} has no counterpart; these have: {', '.join(ARCHITECTURES)}"
    )


def _head(
    architecture: Architecture,
    values: Mapping[str, Any],
    config: EncoderConfig,
    tokenizer: Tokenizer,
    tensors: Mapping[str, Tensor],
    path: Path,
) -> _Head:
    """What the head is here: for an exported model, what it was before it was exported."""
    settings: dict[str, Any] = {}
    if architecture.task == "pretraining":
        settings["next_sentence"] = architecture.name == "BigBirdForPreTraining"
    elif architecture.task == "question-answering":
        # The end of the question is found by it, there as here.
        sep_id = values.get("sep_token_id", 66)
        if sep_id != tokenizer.sep_id:
            raise ModelError(f"{path}: sep_token_id {sep_id}, the tokenizer's is {tokenizer.sep_id}")
    elif architecture.task == "classification":
        outputs = len(tensors.get("classifier.out_proj.weight", ()))
        names = values.get("id2label") or {}
        labels = [str(names.get(str(index), f"LABEL_{index}")) for index in range(outputs)]
        settings |= {"outputs": outputs, "labels": labels, "pooling": "cls"}
        if not outputs or (names and len(names) != outputs):
            raise ModelError(f"{path}: {len(names)} labels, classifier.out_proj has {outputs} rows")
    task = architecture.task
    own = values.get(OWN_KEY)
    try:
        if isinstance(own, dict):
            config = config.model_copy(update={"random_seed": int(own["random_seed"])})
            if own["task"] == "promoter" and settings.get("outputs") == 1:
                task, settings = "promoter", {**own["settings"], "pooling": "cls"}
        return _Head(SETTINGS[task].model_validate(settings), config)
    except (KeyError, TypeError, ValueError) as error:
        reason = " ".join(repr(error).split())[:200]
        raise ModelError(f"{path}: {OWN_KEY}: damaged: {reason}") from None


def _join_tied(tensors: dict[str, Tensor], directory: Path) -> dict[str, list[str]]:
    """Keep one name of each tied tensor; returns the names under which it was stored."""
    stored = {}
    for group in TIED:
        names = [name for name in group if name in tensors]
        if not names:
            continue
        for name in names[1:]:
            if not torch.equal(tensors[name], tensors[names[0]]):
                raise ModelError(
                    f"{directory}: {name!r} differs from {names[0]!r}: only tied weights have a counterpart"
                )
        tensor = tensors[names[0]]
        for name in names:
            del tensors[name]
        tensors[group[0]] = tensor
        stored[group[0]] = names
    return stored


def _take(
    tensors: dict[str, Tensor],
    expected: Mapping[str, Tensor],
    architecture: Architecture,
    values: Mapping[str, Any],
    directory: Path,
) -> dict[str, Tensor]:
    """The network's tensors by their names here, taken out of `tensors`."""
    weights = {}
    for name, like in expected.items():
        theirs = huggingface_name(name, architecture)
        assert theirs is not None, name
        if theirs not in tensors and is_attention_bias(name) and not values.get("use_bias", True):
            weights[name] = torch.zeros_like(like)
            continue
        if theirs not in tensors:
            raise ModelError(f"{directory}: tensor {theirs!r} is missing")
        tensor = tensors.pop(theirs)
        if tensor.shape != like.shape:
            raise ModelError(
                f"{directory}: tensor {theirs!r} has shape {tuple(tensor.shape)}, "
                f"config.json asks for {tuple(like.shape)}"
            )
        if not tensor.is_floating_point():
            raise ModelError(f"{directory}: tensor {theirs!r} is {tensor.dtype}, not floating point")
        weights[name] = tensor.float()
    return weights
