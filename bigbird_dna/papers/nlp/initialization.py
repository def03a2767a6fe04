"""Initialization of a training on text: a model directory, a HuggingFace checkpoint, or random weights.

RoBERTa is the initial checkpoint of the paper (App. E.1); it is converted to a BigBird checkpoint. Its
position table begins with two unused rows (`padding_idx` + 1); the following rows are repeated up to the
required number of positions (like Longformer, Beltagy et al. 2020, section 5). Its single token type is used
for both sentences. Layers and the masked-token head keep their weights, which have the same structure as in
BERT. Special tokens keep their ids, with RoBERTa's names (`<s>`, `</s>`, `<mask>`).
"""

import shutil
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.console import log
from bigbird_dna.disk.atomic import scratch_directory
from bigbird_dna.disk.json_files import read_mapping
from bigbird_dna.errors import ConfigError, DataError, ModelError, error_text
from bigbird_dna.huggingface.configuration import MODEL_TYPE as BIGBIRD
from bigbird_dna.huggingface.exchange import import_huggingface
from bigbird_dna.model.directory import (
    encoder_for,
    extend_positions,
    extended_table,
    load,
)
from bigbird_dna.model.encoder import Encoder
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.papers.nlp.config import TextStartConfig
from bigbird_dna.tokens.interface import Tokenizer
from bigbird_dna.tokens.text import JsonTokenizer
from bigbird_dna.training.initialization import FREE

ROBERTA = "roberta"
# Replaced in this order, names of RoBERTa's tensors become those of BigBird.
_RENAMED = (
    ("roberta.", "bert."),
    ("lm_head.dense.", "cls.predictions.transform.dense."),
    ("lm_head.layer_norm.", "cls.predictions.transform.LayerNorm."),
    ("lm_head.", "cls.predictions."),
)
_SAME_KEYS = (
    "vocab_size",
    "num_hidden_layers",
    "hidden_size",
    "num_attention_heads",
    "intermediate_size",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "hidden_act",
    "layer_norm_eps",
    "pad_token_id",
    "bos_token_id",
    "eos_token_id",
)
# Keys in which a configuration may differ from the initial model.
_FREE = {
    *FREE,
    "attention",
    "compatibility",
    "block_size",
    "global_blocks",
    "window_blocks",
    "random_blocks",
    "random_seed",
    "num_global_tokens",
    "relative_max_distance",
}
SPECIAL_PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
MOST_CHARACTERS = 50_000_000
"""Most characters of the training text from which a tokenizer is trained."""


def load_checkpoint(model_class: Any, directory: Path) -> Any:
    """Return a transformers model of a checkpoint directory; no code of a checkpoint is run.

    `ModelError` if the checkpoint cannot be loaded, or its tensors are not exactly those of the class.
    """
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        network, report = model_class.from_pretrained(
            directory,
            dtype=torch.float32,
            local_files_only=True,
            ignore_mismatched_sizes=True,  # they are in the report
            output_loading_info=True,
        )
    except Exception as error:  # any error of the library, for files that do not fit
        raise ModelError(
            f"{directory}: cannot be loaded: {error_text(error)}"
        ) from None
    for kind in ("missing_keys", "mismatched_keys", "unexpected_keys"):
        if report[kind]:
            tensor = min(map(str, report[kind]))
            raise ModelError(f"{directory}: {kind.split('_')[0]} tensor {tensor}")
    return network


def write_bigbird(directory: Path, output: Path, positions: int) -> None:
    """Convert a RobertaForMaskedLM to a HuggingFace BigBirdForMaskedLM in the directory `output`."""
    from transformers import BigBirdConfig, RobertaForMaskedLM

    theirs = load_checkpoint(RobertaForMaskedLM, directory)
    tensors = {}
    for name, tensor in theirs.state_dict().items():
        for old, new in _RENAMED:
            name = name.replace(old, new)
        tensors[name] = tensor
    table = tensors["bert.embeddings.position_embeddings.weight"]
    unused = theirs.config.pad_token_id + 1
    tensors |= {
        "bert.embeddings.position_embeddings.weight": extended_table(
            table[unused:], positions, "tile"
        ),
        "bert.embeddings.token_type_embeddings.weight": tensors[
            "bert.embeddings.token_type_embeddings.weight"
        ].repeat(2, 1)[:2],
    }
    # Tied to the embeddings and the bias.
    del (
        tensors["cls.predictions.decoder.weight"],
        tensors["cls.predictions.decoder.bias"],
    )
    save_file(
        {name: tensor.contiguous() for name, tensor in tensors.items()},
        output / "model.safetensors",
    )
    config = BigBirdConfig(
        **{key: getattr(theirs.config, key) for key in _SAME_KEYS},
        architectures=["BigBirdForMaskedLM"],
        max_position_embeddings=positions,
        type_vocab_size=2,
        sep_token_id=theirs.config.eos_token_id,
    )
    config.save_pretrained(output)
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        if (directory / name).is_file():
            shutil.copyfile(directory / name, output / name)


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
        shapes = {name: tensor.shape for name, tensor in network.state_dict().items()}
        fitting = {
            name: tensor
            for name, tensor in self.weights.items()
            if shapes.get(name) == tensor.shape
        }
        if not any(name.startswith("encoder.") for name in fitting):
            raise ModelError(f"{self.source}: none of the weights fit the network")
        network.load_state_dict(fitting, strict=False)


def make_text_start(
    start: TextStartConfig, encoder: EncoderConfig, texts: Callable[[], Iterable[str]]
) -> TextStart:
    """Return the initial state of a training.

    With a model, the encoder has the model's shapes, and keys that are set only change properties such as
    attention and positions. If the model has fewer positions, learned positions are tiled and rotary
    positions are interpolated. Without a model, a tokenizer is trained on `texts`. `ConfigError` if a key
    contradicts the model.
    """
    if start.model is None:
        tokenizer = train_tokenizer(texts(), start.vocabulary)
        return TextStart(encoder_for(encoder, tokenizer), tokenizer, {})
    directory = Path(start.model)
    with scratch_directory() as scratch:
        model = _open_model(directory, encoder, scratch)
        sha256 = model.sha256  # of a file that may be in `scratch`
    if not any(isinstance(part, Encoder) for part in model.network.modules()):
        raise ConfigError(f"start.model: {directory}: a model of the form pegasus")
    changes = encoder_changes(encoder, model.config, _FREE, directory)
    positions = changes.pop("max_length", model.config.max_length)
    if positions != model.config.max_length:
        # Rotary models have no position table.
        is_rotary = model.config.position_encoding == "rotary"
        extend_positions(
            _encoder_of(model), positions, "interpolate" if is_rotary else "tile"
        )
        log(
            f"{directory}: {model.config.max_length:,} positions extended to {positions:,}"
        )
    try:
        config = EncoderConfig(**_encoder_of(model).config.model_dump() | changes)
    except ValueError as error:
        raise ConfigError(f"encoder: {error_text(error)}") from None
    log(f"{directory}: used as initial weights")
    weights = model.network.state_dict()
    return TextStart(config, model.tokenizer, weights, sha256, str(model.name))


def encoder_changes(
    encoder: EncoderConfig, known: EncoderConfig, free: Container[str], directory: Path
) -> dict[str, Any]:
    """Return the keys that are set; `ConfigError` if one that is not `free` differs from a model's."""
    changes = encoder.model_dump(include=encoder.model_fields_set)
    for key, value in changes.items():
        if key not in free and value != getattr(known, key):
            raise ConfigError(
                f"encoder.{key} {value}: the model {directory} has {getattr(known, key)}"
            )
    return changes


def _encoder_of(model: LoadedModel) -> Encoder:
    return next(part for part in model.network.modules() if isinstance(part, Encoder))


def _open_model(directory: Path, encoder: EncoderConfig, scratch: Path) -> LoadedModel:
    """Open the model of a directory of any supported format."""
    values = read_mapping(directory / "config.json")
    if "format" in values and "encoder" in values:
        return load(directory)
    kind = values.get("model_type")
    if kind not in (ROBERTA, BIGBIRD):
        raise ModelError(
            f"{directory}: model_type {str(kind)!r:.80}: must be {ROBERTA!r} or {BIGBIRD!r}"
        )
    if kind == ROBERTA:
        converted = scratch / "checkpoint"
        converted.mkdir()
        write_bigbird(directory, converted, encoder.max_length)
        log(f"{directory}: RoBERTa's positions tiled to {encoder.max_length:,}")
        directory = converted
    return import_huggingface(directory, scratch / "model", "none")


def train_tokenizer(texts: Iterable[str], vocabulary: int) -> JsonTokenizer:
    """Train a byte-level byte-pair encoding like RoBERTa's, which has no unknown tokens.

    A token is part of a word, with the white space before it. The same texts give the same tokens.
    `DataError` if there is no text.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(SPECIAL_PIECES),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_first_characters(texts), trainer)
    return JsonTokenizer(tokenizer.to_str().encode(), source="the trained tokenizer")


def _first_characters(texts: Iterable[str]) -> Iterator[str]:
    left = MOST_CHARACTERS
    for text in texts:
        if left <= 0:
            return
        yield text[:left]
        left -= len(text)
    if left == MOST_CHARACTERS:
        raise DataError("no text to train a tokenizer on")
