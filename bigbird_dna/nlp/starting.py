"""What a training on text begins with: a model of ours, a checkpoint of HuggingFace's, or random weights."""

from collections.abc import Callable, Container, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

from torch import nn

from bigbird_dna.config import EncoderConfig
from bigbird_dna.console import log
from bigbird_dna.disk.atomic import scratch_directory
from bigbird_dna.disk.json_files import read_mapping
from bigbird_dna.errors import ConfigError, ModelError
from bigbird_dna.huggingface.configuration import MODEL_TYPE as BIGBIRD
from bigbird_dna.huggingface.importing import import_huggingface
from bigbird_dna.model.directory import encoder_for, load
from bigbird_dna.model.encoder import Encoder
from bigbird_dna.model.longer_inputs import Extension, extend_positions
from bigbird_dna.model.model import Model
from bigbird_dna.nlp.roberta import MODEL_TYPE as ROBERTA
from bigbird_dna.nlp.roberta import write_bigbird
from bigbird_dna.nlp.sections import TextStartConfig
from bigbird_dna.nlp.vocabulary import learn_tokenizer, open_tokenizer
from bigbird_dna.tokens.interface import Tokenizer

# What a configuration may say otherwise than the model whose weights are taken.
_FREE = {
    *("dropout", "attention_dropout", "route", "gradient_checkpointing", "positions", "initial_heads"),
    *("attention", "compatibility", "block_size", "global_blocks", "window_blocks", "random_blocks"),
    *("random_seed", "extra_globals", "relative_radius"),
}


class TextStart(NamedTuple):
    """The encoder's configuration and tokenizer, and the model whose weights are taken, if there is one."""

    config: EncoderConfig
    tokenizer: Tokenizer
    model: Model | None
    sha256: str | None  # of the weights

    def identity(self) -> dict[str, Any]:
        """What of it decides a training's result, beside encoder and tokenizer."""
        return {"start": self.sha256}

    def initialise(self, network: nn.Module) -> None:
        """Give a network the weights of the same names and shapes; others stay as they were drawn.

        Of the model all that has a name in `network` is taken: the encoder, and a masked-token head where
        both have one. Relative labels and extra globals, which an ETC encoder has beyond that, stay.
        """
        if self.model is None:
            return
        own, theirs = network.state_dict(), self.model.network.state_dict()
        taken = {
            name: value for name, value in theirs.items() if name in own and own[name].shape == value.shape
        }
        if not any(name.startswith("encoder.") for name in taken):
            raise ModelError(f"{self.model.name}: none of its weights fit the network")
        network.load_state_dict({**own, **taken})


def make_text_start(
    start: TextStartConfig, encoder: EncoderConfig, texts: Callable[[], Iterable[str]]
) -> TextStart:
    """Read what a training begins with.

    Parameters
    ----------
    encoder
        Where there is a model, its shapes are the model's: keys that the configuration gives hold beyond
        that, as attention and positions. Where the model has fewer positions, learnt ones are tiled and
        rotary ones interpolated.
    texts
        Gives the training texts, which a tokenizer is learnt from if none is named.

    Raises
    ------
    ConfigError
        A key of `encoder` is given and contradicts the model's, or a key of `start` is given and has no
        effect.
    ModelError
        The model is damaged, or of a kind that can't be taken.
    """
    if start.model is None:
        _check_effect(start, ("tokenizer", "vocabulary"), "there is no start.model")
        if start.tokenizer:
            _check_effect(start, ("tokenizer",), "start.tokenizer is taken, and none is learnt")
        tokenizer = (
            open_tokenizer(Path(start.tokenizer))
            if start.tokenizer
            else learn_tokenizer(texts(), start.vocabulary)
        )
        return TextStart(encoder_for(encoder, tokenizer), tokenizer, None, None)
    directory = Path(start.model)
    with scratch_directory() as scratch:
        model = _opened(directory, start, encoder, scratch)
        sha256 = model.sha256
        config = _joined(model, encoder, directory)
    log(f"{directory}: its weights are the start")
    return TextStart(config, model.tokenizer, model, sha256)


def check_effect(start: TextStartConfig, *, ours: bool) -> None:
    """`ConfigError` for a key that says nothing beside `start.model`, a model directory or a checkpoint."""
    if ours:
        _check_effect(start, (), f"{start.model} is a model directory, with its own tokenizer and attention")
    else:
        _check_effect(start, ("tokenizer", "compatibility"), f"{start.model} has a tokenizer")


def _check_effect(start: TextStartConfig, used: Container[str], why: str) -> None:
    for key, value in start.model_dump(include=start.model_fields_set).items():
        if key != "model" and key not in used and value is not None:
            raise ConfigError(f"start.{key} {value} has no effect: {why}; leave it out")


def _opened(directory: Path, start: TextStartConfig, encoder: EncoderConfig, scratch: Path) -> Model:
    """The model of a directory of any of the kinds."""
    if not (directory / "config.json").is_file():
        raise ModelError(f"{directory}: not a model directory or checkpoint: config.json is missing")
    values: Mapping[str, Any] = read_mapping(directory / "config.json")
    if "format" in values and "encoder" in values:
        check_effect(start, ours=True)
        return load(directory)
    check_effect(start, ours=False)
    tokenizer = Path(start.tokenizer) if start.tokenizer else None
    kind = values.get("model_type")
    if kind == ROBERTA:
        (scratch / "checkpoint").mkdir()
        write_bigbird(directory, scratch / "checkpoint", encoder.positions)
        log(f"{directory}: RoBERTa's positions tiled to {encoder.positions:,}")
        directory = scratch / "checkpoint"
    elif kind != BIGBIRD:
        raise ModelError(f"{directory}: model_type {str(kind)!r:.80} is neither {ROBERTA!r} nor {BIGBIRD!r}")
    return import_huggingface(directory, scratch / "model", start.compatibility, tokenizer)


def _joined(model: Model, encoder: EncoderConfig, directory: Path) -> EncoderConfig:
    """The model's configuration with what the section says beyond it; its positions are extended."""
    given = encoder.model_dump(include=encoder.model_fields_set)
    for key, value in given.items():
        theirs = getattr(model.config, key)
        if key not in _FREE and value != theirs:
            raise ConfigError(f"encoder.{key} {value}: {directory} has {theirs}")
    changes = {key: value for key, value in given.items() if key in _FREE}
    wanted = cast(int, changes.pop("positions", model.config.positions))
    network = model.network
    own = next((part for part in network.modules() if isinstance(part, Encoder)), None)
    assert own is not None
    # What a rotary model has no table for; `bigbird-dna model extend-context` offers other ways.
    method: Extension = "interpolate" if own.config.position == "rotary" else "tile"
    extend_positions(own, wanted, method)
    if wanted != model.config.positions:
        log(f"{directory}: {model.config.positions:,} positions extended to {wanted:,} ({method})")
    try:
        return EncoderConfig(**{**own.config.model_dump(), **changes})
    except ValueError as error:
        raise ConfigError(f"encoder: {' '.join(str(error).split())}") from None
