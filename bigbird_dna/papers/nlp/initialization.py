"""What a training on text begins with: a model of ours, a checkpoint of HuggingFace's, or random weights.

RoBERTa is the warm start of the paper (App. E.1); it becomes a checkpoint in BigBird's form. Its table of
positions begins with two rows that no token has (its `padding_idx` + 1); the rows behind them are repeated up
to the positions wanted (Longformer, Beltagy et al. 2020, section 5, does the same). Its one token type
becomes the type of both sentences. Layers and the masked-token head keep their weights: they are BERT's, name
for name. Special pieces keep their ids, under RoBERTa's names (`<s>`, `</s>`, `<mask>`).
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
from bigbird_dna.model.directory import Extension, encoder_for, extend_positions, extended_table, load
from bigbird_dna.model.encoder import Encoder
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.papers.nlp.config import TextStartConfig
from bigbird_dna.papers.nlp.loading import extra
from bigbird_dna.tokens.interface import Tokenizer, read_content
from bigbird_dna.tokens.text import JsonTokenizer, TextTokenizer
from bigbird_dna.training.initialization import FREE

ROBERTA = "roberta"
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
_HEAD = {
    "lm_head.dense": "cls.predictions.transform.dense",
    "lm_head.layer_norm": "cls.predictions.transform.LayerNorm",
}
# What BigBird has no use for: RoBERTa's pooler, and what is tied or follows from the configuration.
_LEFT_OUT = re.compile(r"roberta\.(pooler\.|embeddings\.position_ids)|lm_head\.decoder\.")
_KEPT = (
    *("vocab_size", "num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size"),
    *("hidden_dropout_prob", "attention_probs_dropout_prob", "hidden_act", "layer_norm_eps"),
)


def write_bigbird(directory: Path, output: Path, positions: int) -> None:
    """Write a BigBirdForMaskedLM of HuggingFace's into the directory `output`, from a RobertaForMaskedLM.

    `ModelError` if a file is missing or damaged, or tensors of a masked-token model are missing.
    """
    values = read_mapping(directory / "config.json")
    if values.get("model_type") != ROBERTA:
        raise ModelError(f"{directory / 'config.json'}: model_type is not {ROBERTA!r}")
    pad = values.get("pad_token_id", 1)
    if type(pad) is not int or not 0 <= pad < 1000:
        raise ModelError(f"{directory / 'config.json'}: pad_token_id {shortened(repr(pad))} is no id")
    if positions < 16:
        raise ModelError(f"positions {positions}: the least are 16")
    tensors = _renamed(directory)
    tensors |= _embeddings(tensors, directory, pad + 1, positions)
    # RoBERTa's own defaults, where they aren't BigBird's.
    kept: dict[str, Any] = {"vocab_size": 50265, "hidden_act": "gelu", "layer_norm_eps": 1e-12}
    ids = ("pad_token_id", "bos_token_id", "eos_token_id")
    kept |= {key: values[key] for key in (*_KEPT, *ids) if key in values}
    kept |= {
        **{"model_type": "big_bird", "architectures": ["BigBirdForMaskedLM"], "use_bias": True},
        **{"max_position_embeddings": positions, "type_vocab_size": 2, "rescale_embeddings": False},
        **{"attention_type": "block_sparse", "block_size": 64, "num_random_blocks": 3},
        "sep_token_id": values.get("eos_token_id", 2),
    }
    write_json(output / "config.json", kept)
    save_file(tensors, output / "model.safetensors")
    for name in _TOKENIZER_FILES:
        if (directory / name).is_file():
            shutil.copyfile(directory / name, output / name)


def _renamed(directory: Path) -> dict[str, Tensor]:
    """RoBERTa's tensors under BigBird's names."""
    tensors = {}
    for name, stored in read_tensors(directory).items():
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
            raise ModelError(f"{directory}: tensor {shortened(repr(name))} is not of a RobertaForMaskedLM")
        tensors[new] = stored.read().contiguous()
    return tensors


def _embeddings(
    tensors: dict[str, Tensor], directory: Path, offset: int, positions: int
) -> dict[str, Tensor]:
    """Positions without the rows that no token has, tiled; and the token type, for both sentences."""
    place, kind = (f"embeddings.{name}_embeddings.weight" for name in ("position", "token_type"))
    for name in (place, kind):
        if f"bert.{name}" not in tensors or tensors[f"bert.{name}"].dim() != 2:
            raise ModelError(f"{directory}: tensor 'roberta.{name}' is missing or no table")
    table, types = tensors[f"bert.{place}"], tensors[f"bert.{kind}"]
    if len(table) <= offset:
        raise ModelError(f"{directory}: its table of positions has {len(table)} rows, {offset} of no token")
    return {
        f"bert.{place}": extended_table(table[offset:], positions, "tile"),
        f"bert.{kind}": torch.cat([types, types])[:2].contiguous(),
    }


# What a configuration may say otherwise than the model whose weights are taken.
_FREE = {
    *(*FREE, "attention", "compatibility", "block_size", "global_blocks", "window_blocks", "random_blocks"),
    *("random_seed", "num_global_tokens", "relative_max_distance"),
}


class TextStart(NamedTuple):
    """The encoder's configuration and tokenizer, and the weights that are taken, if there are any."""

    config: EncoderConfig
    tokenizer: Tokenizer
    weights: Mapping[str, Tensor]  # by name
    sha256: str | None = None  # of the weights
    source: str = ""  # the directory that they come from

    def initialize(self, network: nn.Module) -> None:
        """Give a network the weights of the same names and shapes; others stay as they were drawn.

        All that has a name in `network` is taken: the encoder, and a masked-token head where both have one.
        Relative labels and extra globals, which an ETC encoder has beyond that, stay.
        """
        if not self.weights:
            return
        own = network.state_dict()
        like = {name: own[name].shape for name in own.keys() & self.weights.keys()}
        taken = {name: value for name, value in self.weights.items() if like.get(name) == value.shape}
        if not any(name.startswith("encoder.") for name in taken):
            raise ModelError(f"{self.source}: none of its weights fit the network")
        network.load_state_dict({**own, **taken})


def make_text_start(
    start: TextStartConfig, encoder: EncoderConfig, texts: Callable[[], Iterable[str]]
) -> TextStart:
    """Read what a training begins with.

    Where there is a model, the encoder's shapes are the model's: keys that the configuration gives hold
    beyond that, as attention and positions. Where the model has fewer positions, learnt ones are tiled and
    rotary ones interpolated. A tokenizer is learnt from `texts` if none is named.
    `ConfigError` if a key that is given contradicts the model's, or has no effect.
    """
    if start.model is None:
        _check_effect(start, ("tokenizer", "vocabulary"), "there is no start.model")
        if start.tokenizer:
            _check_effect(start, ("tokenizer",), "start.tokenizer is taken, and none is learnt")
            tokenizer = open_tokenizer(Path(start.tokenizer))
        else:
            tokenizer = learn_tokenizer(texts(), start.vocabulary)
        return TextStart(encoder_for(encoder, tokenizer), tokenizer, {})
    directory = Path(start.model)
    with scratch_directory() as scratch:
        model = _opened(directory, start, encoder, scratch)
        sha256 = model.sha256
        config = _joined(model, encoder, directory)
    log(f"{directory}: its weights are the start")
    return TextStart(config, model.tokenizer, model.network.state_dict(), sha256, str(model.name))


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


def _opened(directory: Path, start: TextStartConfig, encoder: EncoderConfig, scratch: Path) -> LoadedModel:
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
        write_bigbird(directory, scratch / "checkpoint", encoder.max_length)
        log(f"{directory}: RoBERTa's positions tiled to {encoder.max_length:,}")
        directory = scratch / "checkpoint"
    elif kind != BIGBIRD:
        raise ModelError(f"{directory}: model_type {str(kind)!r:.80} is neither {ROBERTA!r} nor {BIGBIRD!r}")
    return import_huggingface(directory, scratch / "model", start.compatibility, tokenizer)


def free_changes(
    config: EncoderConfig, given: EncoderConfig, free: Container[str], directory: Path
) -> dict[str, Any]:
    """The keys that are given and `free` to differ from a model's; `ConfigError` if another differs."""
    values = given.model_dump(include=given.model_fields_set)
    for key, value in values.items():
        if key not in free and value != getattr(config, key):
            raise ConfigError(f"encoder.{key} {value}: {directory} has {getattr(config, key)}")
    return {key: value for key, value in values.items() if key in free}


def _joined(model: LoadedModel, encoder: EncoderConfig, directory: Path) -> EncoderConfig:
    """The model's configuration with what the section says beyond it; its positions are extended."""
    changes = free_changes(model.config, encoder, _FREE, directory)
    wanted = cast(int, changes.pop("max_length", model.config.max_length))
    network = model.network
    own = next((part for part in network.modules() if isinstance(part, Encoder)), None)
    assert own is not None
    # What a rotary model has no table for; `bigbird-dna model extend-context` offers other ways.
    method: Extension = "interpolate" if own.config.position_encoding == "rotary" else "tile"
    extend_positions(own, wanted, method)
    if wanted != model.config.max_length:
        log(f"{directory}: {model.config.max_length:,} positions extended to {wanted:,} ({method})")
    try:
        return EncoderConfig(**{**own.config.model_dump(), **changes})
    except ValueError as error:
        raise ConfigError(f"encoder: {' '.join(str(error).split())}") from None


SPECIAL_PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
MOST_CHARACTERS = 50_000_000
"""Characters of the training text that a tokenizer is learnt from, at most."""


def learn_tokenizer(texts: Iterable[str], vocabulary: int) -> JsonTokenizer:
    """A byte-pair encoding of bytes, as RoBERTa's: no text has an unknown piece.

    A piece is part of a word with the white space before it. The same texts give the same pieces.
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
    return JsonTokenizer(tokenizer.to_str().encode(), source="the tokenizer learnt here")


def open_tokenizer(
    path: Path, vocabulary: int | None = None, names: Mapping[str, str] | None = None
) -> Tokenizer:
    """A `tokenizer.json`, or a SentencePiece model; `ModelError` as of these.

    `vocabulary` is that of the model which it belongs to, `names` are those of special pieces.
    """
    kind: Any = JsonTokenizer if Path(path).suffix == ".json" else TextTokenizer
    found: Tokenizer = kind(read_content(path), None, vocabulary, names=names, source=str(path))
    return found


def _bounded(texts: Iterable[str]) -> Iterator[str]:
    left = MOST_CHARACTERS
    for text in texts:
        if left <= 0:
            return
        yield text[:left]
        left -= len(text)
    if left == MOST_CHARACTERS:
        raise DataError("there is no text to learn a tokenizer from")
