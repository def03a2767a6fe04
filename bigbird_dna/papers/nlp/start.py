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
from bigbird_dna.errors import ConfigError, ModelError
from bigbird_dna.huggingface.exchange import import_huggingface
from bigbird_dna.model.directory import (
    encoder_for,
    extend_positions,
    load,
)
from bigbird_dna.papers.nlp.config import AnyTask
from bigbird_dna.tokens.interface import Tokenizer
from bigbird_dna.tokens.text import JsonTokenizer

SHAPES = (
    *("layers", "hidden", "heads", "intermediate", "position_encoding"),
    *("activation", "norm", "feed_forward"),
)
"""Keys of the encoder in which a configuration must agree with the initial model."""
SPECIAL_PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


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


def make_start(section: AnyTask, texts: Iterable[str]) -> Start:
    """Return the initial state of a training, and seed torch.

    With a model, the encoder has the model's shapes, and keys that are set only change properties such as
    attention and positions. If the model has fewer positions, learned positions are tiled. Without a model, a
    tokenizer is trained on `texts`. `ConfigError` if a key contradicts the model, or if inputs are longer
    than the encoder's positions.
    """
    torch.manual_seed(section.seed)
    if section.start.model is None:
        tokenizer = train_tokenizer(texts, section.start.vocabulary)
        start = Start(encoder_for(section.encoder, tokenizer), tokenizer, {})
    else:
        directory = Path(section.start.model)
        with scratch_directory() as scratch:
            if "format" in read_object(directory / "config.json"):
                model = load(directory)
            else:
                model = import_huggingface(directory, scratch / "model", "none")
            sha256 = model.sha256  # of a file that may be in `scratch`
        changes = section.encoder.model_dump(include=section.encoder.model_fields_set)
        for key in SHAPES:
            known = getattr(model.config, key)
            if changes.get(key, known) != known:
                raise ConfigError(
                    f"encoder.{key} {changes[key]}: the model {directory} has {known}"
                )
        positions = changes.pop("max_length", model.config.max_length)
        encoder: Any = model.network.get_submodule("encoder")
        extend_positions(encoder, positions)
        config = encoder.config.model_copy(update=changes)
        start = Start(config, model.tokenizer, model.network.state_dict(), sha256)
        log(f"{directory}: used as initial weights")
    for key in ("length", "document_tokens", "summary_tokens"):
        tokens = getattr(section, key, 0)
        if tokens > start.config.max_length:
            raise ConfigError(
                f"{key} {tokens}: must be at most encoder.max_length {start.config.max_length}"
            )
    return start


def train_tokenizer(texts: Iterable[str], vocabulary: int) -> JsonTokenizer:
    """Train a byte-level byte-pair encoding like RoBERTa's, which has no unknown tokens.

    A token is part of a word, with the white space before it. The same texts give the same tokens.
    """
    from tokenizers import ByteLevelBPETokenizer

    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(
        texts,
        vocabulary,
        min_frequency=0,
        show_progress=False,
        special_tokens=SPECIAL_PIECES,
    )
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
        eos_token=sep,
        pad_token=tokenizer.pieces[tokenizer.pad_id],
        mask_token=tokenizer.pieces[tokenizer.mask_id],
        unk_token=tokenizer.pieces[tokenizer.unk_id],
    )
