"""Initialization of a training on text: a model directory, a HuggingFace checkpoint, or random weights.

RoBERTa is the initial checkpoint of the paper (App. E.1); it is converted to a BigBird checkpoint. Its
position table begins with two unused rows (`padding_idx` + 1); the following rows are repeated up to the
required number of positions (like Longformer, Beltagy et al. 2020, section 5). Its single token type is used
for both sentences. Layers and the masked-token head keep their weights, which have the same structure as in
BERT. Special tokens keep their ids, with RoBERTa's names (`<s>`, `</s>`, `<mask>`).
"""

import re
import shutil
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from bigbird_dna.config import EncoderConfig
from bigbird_dna.console import log
from bigbird_dna.disk.atomic import scratch_directory, write_json
from bigbird_dna.disk.json_files import read_mapping
from bigbird_dna.errors import ConfigError, DataError, ModelError, shortened
from bigbird_dna.huggingface.configuration import MODEL_TYPE as BIGBIRD
from bigbird_dna.huggingface.exchange import import_huggingface
from bigbird_dna.huggingface.tensors import read_tensors
from bigbird_dna.model.directory import (
    Extension,
    encoder_for,
    extend_positions,
    extended_table,
    load,
)
from bigbird_dna.model.encoder import Encoder
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.papers.nlp.config import TextStartConfig
from bigbird_dna.papers.nlp.loading import extra
from bigbird_dna.tokens.interface import Tokenizer, read_content
from bigbird_dna.tokens.text import JsonTokenizer, TextTokenizer
from bigbird_dna.training.initialization import FREE

ROBERTA = "roberta"
_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
)
_HEAD = {
    "lm_head.dense": "cls.predictions.transform.dense",
    "lm_head.layer_norm": "cls.predictions.transform.LayerNorm",
}
# Tensors not used by BigBird: RoBERTa's pooler, and tensors that are tied or follow from the configuration.
_LEFT_OUT = re.compile(
    r"roberta\.(pooler\.|embeddings\.position_ids)|lm_head\.decoder\."
)
_KEPT = (
    *(
        "vocab_size",
        "num_hidden_layers",
        "hidden_size",
        "num_attention_heads",
        "intermediate_size",
    ),
    *(
        "hidden_dropout_prob",
        "attention_probs_dropout_prob",
        "hidden_act",
        "layer_norm_eps",
    ),
)


def write_bigbird(directory: Path, output: Path, positions: int) -> None:
    """Convert a RobertaForMaskedLM to a HuggingFace BigBirdForMaskedLM in the directory `output`.

    `ModelError` if a file is missing or damaged, or tensors of a masked-token model are missing.
    """
    values = read_mapping(directory / "config.json")
    if values.get("model_type") != ROBERTA:
        raise ModelError(f"{directory / 'config.json'}: model_type must be {ROBERTA!r}")
    pad = values.get("pad_token_id", 1)
    if type(pad) is not int or not 0 <= pad < 1000:
        raise ModelError(
            f"{directory / 'config.json'}: pad_token_id {shortened(repr(pad))}: invalid id"
        )
    if positions < 16:
        raise ModelError(f"positions {positions}: must be at least 16")
    tensors = _renamed(directory)
    tensors |= _embeddings(tensors, directory, pad + 1, positions)
    # RoBERTa's defaults, where they differ from BigBird's.
    kept: dict[str, Any] = {
        "vocab_size": 50265,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-12,
    }
    ids = ("pad_token_id", "bos_token_id", "eos_token_id")
    kept |= {key: values[key] for key in (*_KEPT, *ids) if key in values}
    kept |= {
        **{
            "model_type": "big_bird",
            "architectures": ["BigBirdForMaskedLM"],
            "use_bias": True,
        },
        **{
            "max_position_embeddings": positions,
            "type_vocab_size": 2,
            "rescale_embeddings": False,
        },
        **{"attention_type": "block_sparse", "block_size": 64, "num_random_blocks": 3},
        "sep_token_id": values.get("eos_token_id", 2),
    }
    write_json(output / "config.json", kept)
    save_file(tensors, output / "model.safetensors")
    for name in _TOKENIZER_FILES:
        if (directory / name).is_file():
            shutil.copyfile(directory / name, output / name)


def _renamed(directory: Path) -> dict[str, Tensor]:
    """Return RoBERTa's tensors with BigBird's names."""
    tensors = {}
    for name, tensor in read_tensors(directory).items():
        if _LEFT_OUT.match(name):
            continue
        part, _, kind = name.rpartition(".")
        if name == "lm_head.bias":
            new = "cls.predictions.bias"
        elif part in _HEAD:
            new = f"{_HEAD[part]}.{kind}"
        elif name.startswith("roberta."):
            new = "bert." + name.removeprefix("roberta.")
        else:
            raise ModelError(
                f"{directory}: tensor {shortened(repr(name))} is not of a RobertaForMaskedLM"
            )
        tensors[new] = tensor.contiguous()
    return tensors


def _embeddings(
    tensors: dict[str, Tensor], directory: Path, offset: int, positions: int
) -> dict[str, Tensor]:
    """Return tiled positions without the unused rows, and the token type for both sentences."""
    place, kind = (
        f"embeddings.{name}_embeddings.weight" for name in ("position", "token_type")
    )
    for name in (place, kind):
        if f"bert.{name}" not in tensors or tensors[f"bert.{name}"].dim() != 2:
            raise ModelError(
                f"{directory}: tensor 'roberta.{name}' is missing, or not a table"
            )
    table, types = tensors[f"bert.{place}"], tensors[f"bert.{kind}"]
    if len(table) <= offset:
        raise ModelError(
            f"{directory}: the position table has {len(table)} rows, {offset} of them unused"
        )
    return {
        f"bert.{place}": extended_table(table[offset:], positions, "tile"),
        f"bert.{kind}": torch.cat([types, types])[:2].contiguous(),
    }


# Keys in which a configuration may differ from the initial model.
_FREE = {
    *(
        *FREE,
        "attention",
        "compatibility",
        "block_size",
        "global_blocks",
        "window_blocks",
        "random_blocks",
    ),
    *("random_seed", "num_global_tokens", "relative_max_distance"),
}


class TextStart(NamedTuple):
    """Encoder configuration, tokenizer, and initial weights, if any."""

    config: EncoderConfig
    tokenizer: Tokenizer
    weights: Mapping[str, Tensor]  # by name
    sha256: str | None = None  # checksum of the weights
    source: str = ""  # directory of the weights

    def initialize(self, network: nn.Module) -> None:
        """Copy the weights of equal names and shapes into a network; other weights stay random.

        Weights of the encoder are copied, and those of a masked-token head if both have one. Relative labels
        and extra globals of an ETC encoder keep their random values.
        """
        if not self.weights:
            return
        own = network.state_dict()
        like = {name: own[name].shape for name in own.keys() & self.weights.keys()}
        taken = {
            name: value
            for name, value in self.weights.items()
            if like.get(name) == value.shape
        }
        if not any(name.startswith("encoder.") for name in taken):
            raise ModelError(f"{self.source}: none of the weights fit the network")
        network.load_state_dict({**own, **taken})


def make_text_start(
    start: TextStartConfig, encoder: EncoderConfig, texts: Callable[[], Iterable[str]]
) -> TextStart:
    """Return the initial state of a training.

    With a model, the encoder has the model's shapes, and given configuration keys only change properties such
    as attention and positions. If the model has fewer positions, learned positions are tiled and rotary
    positions are interpolated. Without a tokenizer, one is trained on `texts`. `ConfigError` if a given key
    contradicts the model, or has no effect.
    """
    if start.model is None:
        _check_effect(start, ("tokenizer", "vocabulary"), "start.model is not given")
        if start.tokenizer:
            _check_effect(
                start,
                ("tokenizer",),
                "start.tokenizer is used, and no tokenizer is trained",
            )
            tokenizer = open_tokenizer(Path(start.tokenizer))
        else:
            tokenizer = learn_tokenizer(texts(), start.vocabulary)
        return TextStart(encoder_for(encoder, tokenizer), tokenizer, {})
    directory = Path(start.model)
    with scratch_directory() as scratch:
        model = _opened(directory, start, encoder, scratch)
        sha256 = model.sha256
        config = _joined(model, encoder, directory)
    log(f"{directory}: used as initial weights")
    return TextStart(
        config, model.tokenizer, model.network.state_dict(), sha256, str(model.name)
    )


def check_effect(start: TextStartConfig, *, ours: bool) -> None:
    """Raise `ConfigError` for a key without effect with `start.model`, a model directory or a checkpoint."""
    if ours:
        _check_effect(
            start,
            (),
            f"{start.model} is a model directory, which defines tokenizer and attention",
        )
    else:
        _check_effect(
            start, ("tokenizer", "compatibility"), f"{start.model} has a tokenizer"
        )


def _check_effect(start: TextStartConfig, used: Container[str], why: str) -> None:
    for key, value in start.model_dump(include=start.model_fields_set).items():
        if key != "model" and key not in used and value is not None:
            raise ConfigError(f"start.{key} {value} has no effect: {why}; remove it")


def _opened(
    directory: Path, start: TextStartConfig, encoder: EncoderConfig, scratch: Path
) -> LoadedModel:
    """Open the model of a directory of any supported format."""
    if not (directory / "config.json").is_file():
        raise ModelError(
            f"{directory}: not a model directory or checkpoint: config.json is missing"
        )
    values: Mapping[str, Any] = read_mapping(directory / "config.json")
    if "format" in values and "encoder" in values:
        check_effect(start, ours=True)
        return load(directory)
    check_effect(start, ours=False)
    tokenizer = Path(start.tokenizer) if start.tokenizer else None
    kind = values.get("model_type")
    if kind == ROBERTA:
        (scratch / "checkpoint").mkdir()
        write_bigbird(directory, scratch / "checkpoint", encoder.max_length)
        log(f"{directory}: RoBERTa's positions tiled to {encoder.max_length:,}")
        directory = scratch / "checkpoint"
    elif kind != BIGBIRD:
        raise ModelError(
            f"{directory}: model_type {str(kind)!r:.80}: must be {ROBERTA!r} or {BIGBIRD!r}"
        )
    return import_huggingface(
        directory, scratch / "model", start.compatibility, tokenizer
    )


def free_changes(
    config: EncoderConfig, given: EncoderConfig, free: Container[str], directory: Path
) -> dict[str, Any]:
    """Return the given keys that are `free` to differ from a model's; `ConfigError` if others differ."""
    values = given.model_dump(include=given.model_fields_set)
    for key, value in values.items():
        if key not in free and value != getattr(config, key):
            raise ConfigError(
                f"encoder.{key} {value}: the model {directory} has {getattr(config, key)}"
            )
    return {key: value for key, value in values.items() if key in free}


def _joined(
    model: LoadedModel, encoder: EncoderConfig, directory: Path
) -> EncoderConfig:
    """Return the model's configuration with the section's changes, after extending its positions."""
    changes = free_changes(model.config, encoder, _FREE, directory)
    wanted = cast(int, changes.pop("max_length", model.config.max_length))
    network = model.network
    own = next((part for part in network.modules() if isinstance(part, Encoder)), None)
    assert own is not None
    # Rotary models have no position table.
    method: Extension = (
        "interpolate" if own.config.position_encoding == "rotary" else "tile"
    )
    extend_positions(own, wanted, method)
    if wanted != model.config.max_length:
        log(
            f"{directory}: {model.config.max_length:,} positions extended to {wanted:,} ({method})"
        )
    try:
        return EncoderConfig(**{**own.config.model_dump(), **changes})
    except ValueError as error:
        raise ConfigError(f"encoder: {' '.join(str(error).split())}") from None


SPECIAL_PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
MOST_CHARACTERS = 50_000_000
"""Most characters of the training text from which a tokenizer is trained."""


def learn_tokenizer(texts: Iterable[str], vocabulary: int) -> JsonTokenizer:
    """Train a byte-level byte-pair encoding like RoBERTa's, which has no unknown tokens.

    A token is part of a word, with the white space before it. The same texts give the same tokens.
    `DataError` if there is no text.
    """
    library = extra("tokenizers")
    bounded = _bounded(texts)
    tokenizer = library.Tokenizer(library.models.BPE(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = library.decoders.ByteLevel()
    trainer = library.trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(SPECIAL_PIECES),
        initial_alphabet=sorted(library.pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(bounded, trainer)
    return JsonTokenizer(tokenizer.to_str().encode(), source="the trained tokenizer")


def open_tokenizer(
    path: Path, vocabulary: int | None = None, names: Mapping[str, str] | None = None
) -> Tokenizer:
    """Open a `tokenizer.json`, or a SentencePiece model; `ModelError` as in these classes.

    `vocabulary` is that of the model to which it belongs; `names` are those of special tokens.
    """
    kind: Any = JsonTokenizer if Path(path).suffix == ".json" else TextTokenizer
    found: Tokenizer = kind(
        read_content(path), None, vocabulary, names=names, source=str(path)
    )
    return found


def _bounded(texts: Iterable[str]) -> Iterator[str]:
    left = MOST_CHARACTERS
    for text in texts:
        if left <= 0:
            return
        yield text[:left]
        left -= len(text)
    if left == MOST_CHARACTERS:
        raise DataError("no text to train a tokenizer on")
