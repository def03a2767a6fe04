"""What the training of a summariser begins with, and where summarisers are opened from.

A checkpoint of BigBird-Pegasus or a summariser of ours is taken whole. Of any other model of ours or
HuggingFace's the encoder is, for the base form; attention to the document is fresh.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor, nn

from bigbird_dna.config import EncoderConfig
from bigbird_dna.console import log
from bigbird_dna.disk.atomic import checksum
from bigbird_dna.disk.json_files import read_mapping
from bigbird_dna.errors import ConfigError, ModelError
from bigbird_dna.huggingface.configuration import Compatibility
from bigbird_dna.huggingface.tokenizer_files import special_names
from bigbird_dna.model.directory import load, make_model
from bigbird_dna.model.model import Model
from bigbird_dna.nlp.starting import check_effect, make_text_start
from bigbird_dna.nlp.summaries.importing import import_pegasus, is_pegasus
from bigbird_dna.nlp.summaries.model import SummariesSettings, match_tokens
from bigbird_dna.nlp.summaries.sections import SummariesTask
from bigbird_dna.nlp.summaries.settings import DecoderShape, SpecialIds
from bigbird_dna.nlp.vocabulary import texts_of
from bigbird_dna.tokens.interface import Tokenizer, read_content
from bigbird_dna.tokens.json_tokenizer import JsonTokenizer
from bigbird_dna.tokens.text import TextTokenizer

# What a configuration may say otherwise than the summariser whose weights are taken.
_FREE = ("dropout", "attention_dropout", "route", "gradient_checkpointing", "initial_heads")
_PEGASUS_OFFSET = 103  # of ids above those of its SentencePiece file, unless its settings say otherwise


class SummariesStart(NamedTuple):
    """What a summariser is made of, and weights by name, which may be a part of its own."""

    config: EncoderConfig
    tokenizer: Tokenizer
    settings: SummariesSettings
    weights: Mapping[str, Tensor]
    sha256: str | None  # of the weights

    def initialise(self, network: nn.Module, matching: bool) -> None:
        """Give a fresh network these weights; others stay as they were drawn.

        With `matching` fresh attention to the document begins as `match_tokens` has it.
        """
        if matching and not any("cross" in name for name in self.weights):
            match_tokens(network)
        own = network.state_dict()
        taken = {
            name: value
            for name, value in self.weights.items()
            if name in own and own[name].shape == value.shape
        }
        network.load_state_dict({**own, **taken})


def make_start(settings: SummariesTask, train: Path) -> SummariesStart:
    """Read what a training begins with; `train` has the texts that a tokenizer may be learnt from.

    Raises
    ------
    ConfigError
        The configuration contradicts the model whose weights are taken.
    ModelError
        That model is damaged, or of a kind that can't be taken.
    """
    directory = None if settings.start.model is None else Path(settings.start.model)
    if directory is not None and _is_summariser(directory):
        check_effect(settings.start, ours=not is_pegasus(directory))
        model = open_summariser(directory, settings.start.compatibility, settings.start.tokenizer)
        assert isinstance(model.settings, SummariesSettings)
        _check_form(settings, model.settings, directory)
        config = _with_free_keys(model.config, settings.encoder, directory)
        log(f"{directory}: its weights are the start")
        return SummariesStart(
            config,
            model.tokenizer,
            SummariesSettings(decoder=model.settings.decoder, special=model.settings.special),
            model.network.state_dict(),
            model.sha256 or _sha256(directory),
        )
    if directory is not None and settings.form == "pegasus":
        raise ConfigError(f"start.model: {directory} is not a summariser, which the form pegasus begins with")
    start = make_text_start(settings.start, settings.encoder, lambda: texts_of(train, "summaries"))
    special = SpecialIds(start=start.tokenizer.cls_id, end=start.tokenizer.sep_id, pad=start.tokenizer.pad_id)
    own = SummariesSettings(decoder=_decoder(settings, start.config), special=special)
    theirs = start.model.network.state_dict() if start.model else {}
    weights = {name: value for name, value in theirs.items() if name.startswith("encoder.")}
    return SummariesStart(start.config, start.tokenizer, own, weights, start.sha256)


def open_summariser(
    directory: Path, compatibility: Compatibility = "huggingface", tokenizer: str | None = None
) -> Model:
    """A summariser's model directory, or a checkpoint of BigBird-Pegasus.

    `compatibility` and `tokenizer` are for a checkpoint: see `import_pegasus`, and a tokenizer file to use
    instead of its own. `ModelError` if it is neither, or damaged.
    """
    if not is_pegasus(directory):
        model = load(directory)
        if not isinstance(model.settings, SummariesSettings):
            raise ModelError(f"{directory}: a summariser is needed, this is a {model.task} model")
        return model
    found = import_pegasus(directory, compatibility)
    pieces = pegasus_tokenizer(directory, found.config.vocabulary, tokenizer)
    settings = SummariesSettings(decoder=found.shape, special=found.special)
    return make_model(found.network, pieces, found.config, settings)


def pegasus_tokenizer(directory: Path, vocabulary: int, file: str | None) -> Tokenizer:
    """The tokenizer of a checkpoint: `file`, `tokenizer.json`, or a SentencePiece model that needs no offset.

    Pegasus has no [CLS], [SEP] and [MASK]: where the files name none, its end and its unknown piece do.
    """
    names = special_names(directory)
    settings: dict[str, Any] = {}
    if (directory / "tokenizer_config.json").is_file():
        settings = read_mapping(directory / "tokenizer_config.json")
    end = settings.get("eos_token", "</s>")
    end = end.get("content") if isinstance(end, dict) else end
    end = end if isinstance(end, str) else "</s>"
    unknown = names.setdefault("unk", "<unk>")
    names = {"pad": "<pad>", "cls": end, "sep": end, "mask": unknown, **names}
    path = Path(file) if file else directory / "tokenizer.json"
    if file is None and not path.is_file():
        path = directory / "spiece.model"
        if not path.is_file():
            raise ModelError(f"{directory}: no tokenizer: tokenizer.json and spiece.model are missing")
        if settings.get("offset", _PEGASUS_OFFSET) != 0:
            raise ModelError(
                f"{path}: Pegasus counts its ids from {settings.get('offset', _PEGASUS_OFFSET)}: "
                "a tokenizer.json is needed"
            )
    kind: Any = JsonTokenizer if path.suffix == ".json" else TextTokenizer
    found: Tokenizer = kind(read_content(path), None, vocabulary, names=names, source=str(path))
    return found


def _is_summariser(directory: Path) -> bool:
    path = directory / "config.json"
    if not path.is_file():
        return False
    return is_pegasus(directory) or read_mapping(path).get("task") == SummariesSettings.task


def _check_form(settings: SummariesTask, found: SummariesSettings, directory: Path) -> None:
    if settings.form != found.form:
        raise ConfigError(f"form {settings.form}: {directory} is of the form {found.form}")
    if settings.decoder not in (None, found.decoder):
        raise ConfigError(f"decoder: {directory} has another ({found.decoder})")


def _decoder(settings: SummariesTask, config: EncoderConfig) -> DecoderShape | None:
    if settings.form == "base":
        return None
    intermediate = config.intermediate or 4 * config.hidden
    return settings.decoder or DecoderShape(
        layers=config.layers, heads=config.heads, intermediate=intermediate
    )


def _with_free_keys(config: EncoderConfig, given: EncoderConfig, directory: Path) -> EncoderConfig:
    """A summariser's configuration, with the keys of the section that may differ."""
    values = given.model_dump(include=given.model_fields_set)
    for key, value in values.items():
        if key not in _FREE and value != getattr(config, key):
            raise ConfigError(f"encoder.{key} {value}: {directory} has {getattr(config, key)}")
    free = {key: value for key, value in values.items() if key in _FREE}
    return EncoderConfig(**{**config.model_dump(), **free})


def _sha256(directory: Path) -> str:
    """Of all files of weights of a checkpoint."""
    files = sorted([*directory.glob("*.safetensors"), *directory.glob("*.bin")])
    return " ".join(checksum(path) for path in files)
