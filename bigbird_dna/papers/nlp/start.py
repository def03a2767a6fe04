"""Initial state of a training on text: a model directory, a HuggingFace checkpoint, or random weights.

RoBERTa is the initial checkpoint of the paper (App. E.1); it is converted to a BigBird checkpoint. Its
position table begins with two unused rows (`padding_idx` + 1); the following rows are repeated up to the
required number of positions (like Longformer, Beltagy et al. 2020, section 5). Its single token type is used
for both sentences. Special tokens keep their ids, with RoBERTa's names (`<s>`, `</s>`, `<mask>`).
"""

import shutil
from collections.abc import Iterable
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
from bigbird_dna.huggingface.exchange import import_huggingface
from bigbird_dna.model.directory import (
    encoder_for,
    extend_positions,
    extended_table,
    load,
)
from bigbird_dna.model.encoder import Encoder
from bigbird_dna.papers.nlp.config import TextTaskConfig
from bigbird_dna.tokens.interface import Tokenizer
from bigbird_dna.tokens.text import JsonTokenizer
from bigbird_dna.training.initialization import FREE

# Replaced in this order, names of RoBERTa's tensors become those of BigBird.
_RENAMED = (
    ("roberta.", "bert."),
    ("lm_head.dense.", "cls.predictions.transform.dense."),
    ("lm_head.layer_norm.", "cls.predictions.transform.LayerNorm."),
    ("lm_head.", "cls.predictions."),
)
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
    attention and positions. If the model has fewer positions, learned positions are tiled and rotary
    positions are interpolated. Without a model, a tokenizer is trained on `texts`. `ConfigError` if a key
    contradicts the model.
    """
    torch.manual_seed(section.seed)
    encoder = section.encoder
    if section.start.model is None:
        tokenizer = train_tokenizer(texts, section.start.vocabulary)
        return Start(encoder_for(encoder, tokenizer), tokenizer, {})
    directory = Path(section.start.model)
    kind = read_mapping(directory / "config.json").get("model_type", "bigbird_dna")
    with scratch_directory() as scratch:
        if kind == "bigbird_dna":
            model = load(directory)
        elif kind in ("roberta", "big_bird"):
            checkpoint = directory
            if kind == "roberta":
                checkpoint = scratch / "bigbird"
                write_bigbird(directory, checkpoint, encoder.max_length)
            model = import_huggingface(checkpoint, scratch / "model", "none")
        else:
            raise ModelError(
                f"{directory}: model_type {str(kind)!r:.80}: must be 'roberta' or 'big_bird'"
            )
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
    is_rotary = model.config.position_encoding == "rotary"
    extend_positions(network, positions, "interpolate" if is_rotary else "tile")
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

    roberta = load_checkpoint(RobertaForMaskedLM, directory)
    output.mkdir()
    tensors = {}
    for name, tensor in roberta.state_dict().items():
        if name == "lm_head.decoder.weight" or name == "lm_head.decoder.bias":
            continue  # tied
        if name.endswith("position_embeddings.weight"):
            unused = roberta.config.pad_token_id + 1
            tensor = extended_table(tensor[unused:], positions, "tile")
        if name.endswith("token_type_embeddings.weight"):
            tensor = tensor[:1].repeat(2, 1)
        for old, new in _RENAMED:
            name = name.replace(old, new)
        tensors[name] = tensor.contiguous()
    save_file(tensors, output / "model.safetensors")
    values = roberta.config.to_dict() | {
        "architectures": ["BigBirdForMaskedLM"],
        "model_type": "big_bird",
        "max_position_embeddings": positions,
        "type_vocab_size": 2,
        "sep_token_id": roberta.config.eos_token_id,
    }
    BigBirdConfig(**values).save_pretrained(output)
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        if (directory / name).is_file():
            shutil.copyfile(directory / name, output / name)


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
