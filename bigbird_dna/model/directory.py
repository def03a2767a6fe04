"""Model directories: self-contained, written whole, loaded without running code from the file.

`config.json` says the task, the encoder's shapes and the task's settings; `model.safetensors` holds the
weights, `tokenizer.model` or `tokenizer.json` the tokenizer, `provenance.json` where all of it came from,
`metrics.json` the figures on held-out data.
"""

import json
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from bigbird_dna.config import EncoderConfig
from bigbird_dna.errors import BigBirdDnaError, ConfigError, ModelError
from bigbird_dna.files import atomic_directory, checksum, write_json
from bigbird_dna.model.chromatin import ProfileEnsemble
from bigbird_dna.model.encoder import Encoder, attention_pattern
from bigbird_dna.model.heads import BareEncoder, Classifier, PretrainingNetwork, QuestionAnswerer
from bigbird_dna.model.positions import Extension, extend_positions
from bigbird_dna.tokens.interface import Tokenizer
from bigbird_dna.tokens.opening import TOKENIZER_FILES, load_tokenizer

FORMAT = 1
Task = Literal[
    "pretraining", "promoter", "chromatin", "classification", "question-answering", "encoder"
]


@dataclass(frozen=True)
class Model:
    """A network with all that is needed to use it.

    `settings` are the task's. A promoter model has `upstream`, `downstream` and `jitter` in bp, `views` (how
    many tokenisations of a window are averaged) and `pooling`; a chromatin model `window` and `bin` in bp,
    `pooling`, `bin_layers`, `members` (of the ensemble) and `tracks` (each with `track` and `group`). A
    pretraining model may have `next_sentence` (whether there is such a head; true unless given); a
    classification model has `outputs` (their number), `labels` (their names) and `pooling`. An imported model
    has `huggingface`: see the module of that name.
    """

    task: Task
    network: nn.Module
    tokenizer: Tokenizer
    config: EncoderConfig
    settings: dict[str, Any]
    path: Path | None = None

    @cached_property
    def sha256(self) -> str:
        """Checksum of the weights file, "" for a model that was never saved."""
        return checksum(self.path / "model.safetensors") if self.path else ""


def encoder_for(config: EncoderConfig, tokenizer: Tokenizer) -> EncoderConfig:
    """`config` with the tokenizer's vocabulary; `ConfigError` if it asks for another one."""
    if config.vocabulary not in (0, tokenizer.vocabulary):
        raise ConfigError(
            f"encoder.vocabulary {config.vocabulary}: the tokenizer has {tokenizer.vocabulary} pieces "
            "(0 takes the tokenizer's)"
        )
    return config.model_copy(update={"vocabulary": tokenizer.vocabulary})


def build_network(task: Task, config: EncoderConfig, settings: dict[str, Any]) -> nn.Module:
    """A network with fresh weights, drawn from torch's generator."""
    if task == "pretraining":
        return PretrainingNetwork(config, next_sentence=settings.get("next_sentence", True))
    if task == "chromatin":
        return ProfileEnsemble(
            config,
            len(settings["tracks"]),
            settings["pooling"],
            settings["members"],
            settings["bin_layers"],
        )
    if task == "question-answering":
        return QuestionAnswerer(config)
    if task == "encoder":
        return BareEncoder(config)
    return Classifier(config, outputs=settings.get("outputs", 1), pooling=settings["pooling"])


def save(
    path: Path,
    model: Model,
    provenance: dict[str, Any],
    metrics: dict[str, Any],
    extra: dict[str, Path],
) -> None:
    """Write a model directory; `extra` maps names to further files that are copied into it."""
    weights = {
        name: value.detach().cpu().contiguous()
        for name, value in model.network.state_dict().items()
    }
    with atomic_directory(path) as directory:
        write_json(
            directory / "config.json",
            {
                "format": FORMAT,
                "task": model.task,
                "encoder": model.config.model_dump(),
                "random_blocks_sha256": _random_blocks(model.config),
                "settings": model.settings,
                "tokenizer": model.tokenizer.description(),
            },
        )
        save_file(weights, directory / "model.safetensors")
        (directory / "model.safetensors").chmod(0o644)  # safetensors makes it private
        model.tokenizer.save(directory / model.tokenizer.file_name)
        software = {
            "bigbird_dna": version("bigbird-dna"),
            "torch": torch.__version__,
            "random_blocks_seed": model.config.random_seed,
        }
        write_json(directory / "provenance.json", {"software": software, **provenance})
        write_json(directory / "metrics.json", metrics)
        for name, source in extra.items():
            (directory / name).write_bytes(source.read_bytes())


def load(path: Path | str, *, positions: int | None = None, extend: Extension = "tile") -> Model:
    """Load a model directory, in evaluation mode on the CPU.

    Parameters
    ----------
    positions
        Longest input in tokens, if that is to be more than the model was made for; none: as it was saved.
    extend
        How positions are added, see `positions.extend_positions`: "tile" or "interpolate" for learnt
        positions, "interpolate" or "ntk" for rotary ones.

    Raises
    ------
    ModelError
        `path` is no model directory, or one of its files is missing or damaged; the text says which. Or its
        positions can't be extended as asked.
    """
    path = Path(path)
    if not path.is_dir():
        raise ModelError(f"{path}: no such model directory")
    for name in ("config.json", "model.safetensors"):
        if not (path / name).is_file():
            raise ModelError(f"{path}: not a model directory: {name} is missing")
    names = [name for name in TOKENIZER_FILES if (path / name).is_file()]
    if not names:
        raise ModelError(
            f"{path}: not a model directory: {' and '.join(TOKENIZER_FILES)} are missing"
        )
    task, config, settings, description = _read_description(path / "config.json")
    tokenizer = load_tokenizer(path / names[0], description)
    if tokenizer.vocabulary != config.vocabulary:
        raise ModelError(
            f"{path}: {names[0]} has {tokenizer.vocabulary} pieces, config.json says {config.vocabulary}"
        )
    try:
        with torch.random.fork_rng(devices=[]):
            network = build_network(task, config, settings)
        weights = load_file(path / "model.safetensors")
        network.load_state_dict(weights)
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{path}/model.safetensors: damaged: {error}") from None
    except RuntimeError as error:
        raise ModelError(
            f"{path}/model.safetensors: weights don't fit config.json: {' '.join(str(error).split())[:200]}"
        ) from None
    if positions is not None:
        config = _extended(path, network, positions, extend)
    network.eval()
    return Model(task, network, tokenizer, config, settings, path)


def _extended(path: Path, network: nn.Module, positions: int, method: Extension) -> EncoderConfig:
    encoders = [module for module in network.modules() if isinstance(module, Encoder)]
    try:
        for encoder in encoders:
            extend_positions(encoder, positions, method)
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from None
    return encoders[0].config


def _random_blocks(config: EncoderConfig) -> str:
    """Checksum of random blocks that the seed stands for: a model is tied to the way they are drawn."""
    return attention_pattern(config).digest()


def read_encoder_config(path: Path | str) -> EncoderConfig:
    """The encoder's configuration of a model directory, without its weights; `ModelError` as `load`."""
    return _read_description(Path(path) / "config.json")[1]


def load_task(path: Path | str, task: Task) -> Model:
    """Load a model directory and make sure that it is one for `task`."""
    model = load(path)
    if model.task != task:
        raise ModelError(f"{path}: a {task} model is needed, this is a {model.task} model")
    return model


def _read_description(
    path: Path,
) -> tuple[Task, EncoderConfig, dict[str, Any], dict[str, Any]]:
    try:
        values = json.loads(path.read_text())
        if values["format"] != FORMAT:
            raise ModelError(
                f"{path}: format {values['format']!r}, this version reads format {FORMAT}"
            )
        task, settings = values["task"], dict(values["settings"])
        if task not in get_args(Task):
            raise ModelError(f"{path}: unknown task {task!r}")
        config = EncoderConfig.model_validate(values["encoder"])
        if task == "promoter":
            {name: int(settings[name]) for name in ("upstream", "downstream", "jitter", "views")}
        if task == "chromatin":
            {name: int(settings[name]) for name in ("window", "bin", "members", "bin_layers")}
            [(str(track["track"]), str(track["group"])) for track in settings["tracks"]]
        if task in ("promoter", "classification", "chromatin"):
            str(settings["pooling"])
        drawn = values.get("random_blocks_sha256", "")
        if drawn and config.attention == "bigbird" and drawn != _random_blocks(config):
            raise ModelError(
                f"{path}: was trained with other random blocks than this version draws for "
                f"seed {config.random_seed}"
            )
        if task == "classification":
            int(settings["outputs"])
        return task, config, settings, dict(values.get("tokenizer", {}))
    except BigBirdDnaError:
        raise
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ModelError(f"{path}: damaged: {error}") from None
    except (KeyError, TypeError, ValueError, ValidationError) as error:
        raise ModelError(
            f"{path}: not a model description: {' '.join(str(error).split())[:200]}"
        ) from None
