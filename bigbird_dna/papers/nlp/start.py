"""Initial state of a training on text: a model directory, a HuggingFace checkpoint, or random weights.

RoBERTa is the initial checkpoint of the paper (App. E.1). Its position table is repeated up to the required
number of positions (like Longformer, Beltagy et al. 2020, section 5).
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.console import log
from bigbird_dna.disk.atomic import scratch_directory
from bigbird_dna.disk.json_files import read_object
from bigbird_dna.errors import ConfigError, DataError, ModelError, error_text
from bigbird_dna.huggingface.exchange import import_huggingface
from bigbird_dna.model.directory import (
    encoder_for,
    extend_positions,
    load,
)
from bigbird_dna.model.encoder import Encoder
from bigbird_dna.papers.nlp.config import TextTaskConfig
from bigbird_dna.tokens.interface import Tokenizer
from bigbird_dna.tokens.text import JsonTokenizer
from bigbird_dna.training.initialization import FREE

# Keys in which a configuration may differ from the initial model.
FREE_KEYS = {
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


class Start(NamedTuple):
    """Encoder configuration, tokenizer, and initial weights by name; empty: random weights."""

    config: EncoderConfig
    tokenizer: Any
    weights: dict[str, Tensor]
    sha256: str | None = None  # of the weights' file

    def initialize(self, network: nn.Module) -> None:
        """Copy the weights of equal names and shapes into a network; other weights stay random."""
        shapes = {name: tensor.shape for name, tensor in network.state_dict().items()}
        fitting = {
            name: tensor
            for name, tensor in self.weights.items()
            if shapes.get(name) == tensor.shape
        }
        network.load_state_dict(fitting, strict=False)


def make_start(section: TextTaskConfig, texts: Iterable[str]) -> Start:
    """Return the initial state of a training, and seed torch.

    With a model, the encoder has the model's shapes, and keys that are set only change properties such as
    attention and positions. If the model has fewer positions, learned positions are tiled. Without a model, a
    tokenizer is trained on `texts`. `ConfigError` if a key contradicts the model.
    """
    torch.manual_seed(section.seed)
    encoder = section.encoder
    if section.start.model is None:
        tokenizer = train_tokenizer(texts, section.start.vocabulary)
        return Start(encoder_for(encoder, tokenizer), tokenizer, {})
    directory = Path(section.start.model)
    is_ours = "format" in read_object(directory / "config.json")
    with scratch_directory() as scratch:
        if is_ours:
            model = load(directory)
        else:
            model = import_huggingface(directory, scratch / "model", "none")
        sha256 = model.sha256  # of a file that may be in `scratch`
    network = next(m for m in model.network.modules() if isinstance(m, Encoder))
    changes = encoder.model_dump(include=encoder.model_fields_set)
    for key, value in changes.items():
        known = getattr(model.config, key)
        if key not in FREE_KEYS and value != known:
            raise ConfigError(
                f"encoder.{key} {value}: the model {directory} has {known}"
            )
    positions = changes.pop("max_length", model.config.max_length)
    extend_positions(network, positions)
    try:
        config = EncoderConfig(**network.config.model_dump() | changes)
    except ValueError as error:
        raise ConfigError(f"encoder: {error_text(error)}") from None
    log(f"{directory}: used as initial weights")
    return Start(config, model.tokenizer, model.network.state_dict(), sha256)


def check_positions(lengths: dict[str, int], positions: int) -> None:
    """`ConfigError` if one of the lengths, by key of the configuration, exceeds a model's positions."""
    for key, tokens in lengths.items():
        if tokens > positions:
            raise ConfigError(
                f"{key} {tokens}: must be at most encoder.max_length {positions}"
            )


def train_tokenizer(texts: Iterable[str], vocabulary: int) -> JsonTokenizer:
    """Train a byte-level byte-pair encoding like RoBERTa's, which has no unknown tokens.

    A token is part of a word, with the white space before it. The same texts give the same tokens.
    `DataError` if there is no text.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    chosen, left = [], MOST_CHARACTERS
    for text in texts:
        chosen.append(text[:left])
        left -= len(text)
        if left <= 0:
            break
    if not any(chosen):
        raise DataError("no text to train a tokenizer on")
    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(SPECIAL_PIECES),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(chosen, trainer)
    return JsonTokenizer(tokenizer.to_str().encode(), source="the trained tokenizer")


def fast_tokenizer(tokenizer: Tokenizer) -> Any:
    """Return transformers' `PreTrainedTokenizerFast` of a `tokenizer.json`.

    A text becomes [CLS] text [SEP], a pair [CLS] first [SEP] second [SEP]. `ModelError` for other tokenizers.
    """
    from tokenizers import Tokenizer as Backend
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    if not isinstance(tokenizer, JsonTokenizer) or tokenizer.is_dna:
        raise ModelError(
            f"{tokenizer.source}: tasks on text need the tokenizer.json of a tokenizer of ordinary text; "
            "transformers' AutoTokenizer converts an spiece.model (save_pretrained)"
        )
    backend = Backend.from_str(tokenizer.content.decode())
    cls, sep = (tokenizer.pieces[i] for i in (tokenizer.cls_id, tokenizer.sep_id))
    backend.post_processor = TemplateProcessing(
        single=f"{cls} $A {sep}",
        pair=f"{cls} $A {sep} $B:1 {sep}:1",
        special_tokens=[(cls, tokenizer.cls_id), (sep, tokenizer.sep_id)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        cls_token=cls,
        sep_token=sep,
        pad_token=tokenizer.pieces[tokenizer.pad_id],
        mask_token=tokenizer.pieces[tokenizer.mask_id],
        unk_token=tokenizer.pieces[tokenizer.unk_id],
    )
