"""Import checkpoints of BigBird-Pegasus, which transformers reads; no code of a checkpoint is run."""

from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from transformers import BigBirdPegasusForConditionalGeneration

from bigbird_dna.disk.json_files import read_mapping
from bigbird_dna.errors import ModelError, first_fault
from bigbird_dna.huggingface.configuration import Compatibility, encoder_config
from bigbird_dna.huggingface.tokenizer_files import special_names
from bigbird_dna.model.directory import make_model
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.model.weights import shapes_only
from bigbird_dna.papers.nlp.config import DecoderShape, SpecialIds
from bigbird_dna.papers.nlp.initialization import load_checkpoint, open_tokenizer
from bigbird_dna.papers.nlp.summarizer import PegasusSummarizer, SummariesSettings
from bigbird_dna.tokens.interface import Tokenizer

MODEL_TYPE = "bigbird_pegasus"
LAYER_NORM_EPSILON = 1e-5  # not in config.json: default of the library
PEGASUS_OFFSET = 103
"""Default offset between the model's ids and those of its SentencePiece file."""

# Keys of BigBirdPegasus, and those of BigBird with the same meaning.
_KEYS = {
    "vocab_size": "vocab_size",
    "encoder_layers": "num_hidden_layers",
    "d_model": "hidden_size",
    "encoder_attention_heads": "num_attention_heads",
    "encoder_ffn_dim": "intermediate_size",
    "max_position_embeddings": "max_position_embeddings",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "activation_function": "hidden_act",
    "scale_embedding": "rescale_embeddings",
    "attention_type": "attention_type",
    "block_size": "block_size",
    "num_random_blocks": "num_random_blocks",
}
# Replaced in this order, names of a checkpoint's tensors become those of `PegasusSummarizer`.
_RENAMED = (
    ("model.shared", "token"),
    ("model.", ""),
    ("final_logits_bias", "logits_bias"),
    ("embed_positions", "position"),
    ("layernorm_embedding", "norm"),
    ("self_attn_layer_norm", "attention_norm"),
    ("encoder_attn_layer_norm", "cross_norm"),
    ("final_layer_norm", "output_norm"),
    ("self_attn.self.", ""),
    ("self_attn.output", "attention_output"),
    ("self_attn.", "attention."),
    ("encoder_attn.", "cross."),
    ("q_proj", "query"),
    ("k_proj", "key"),
    ("v_proj", "value"),
    ("out_proj", "output"),
    ("fc1", "intermediate"),
    ("fc2", "output"),
)
_TIED = ("lm_head.", "model.encoder.embed_tokens.", "model.decoder.embed_tokens.")


def is_pegasus(directory: Path) -> bool:
    """Return whether the configuration of a directory is that of a BigBirdPegasus checkpoint."""
    path = directory / "config.json"
    return path.is_file() and read_mapping(path).get("model_type") == MODEL_TYPE


def open_pegasus(
    directory: Path,
    compatibility: Compatibility = "huggingface",
    tokenizer: str | None = None,
) -> LoadedModel:
    """Open a checkpoint as a model; `tokenizer` is a file to use instead of its own.

    With the compatibility `huggingface`, block-sparse attention is computed as in HuggingFace's evaluation
    mode, with equal logits; with `none`, it has the paper's pattern with random blocks. `ModelError` if the
    checkpoint is incomplete, or if its configuration does not fit its weights or is not supported.
    """
    loaded = load_checkpoint(BigBirdPegasusForConditionalGeneration, directory)
    if loaded.lm_head.weight is not loaded.model.shared.weight:
        raise ModelError(f"{directory}: weights of the logits are not the embeddings'")
    theirs = loaded.config
    values = {bigbird: getattr(theirs, key) for key, bigbird in _KEYS.items()}
    values |= {
        "model_type": "big_bird",
        "type_vocab_size": 1,
        "layer_norm_eps": LAYER_NORM_EPSILON,
    }
    config = encoder_config(values, compatibility, str(directory / "config.json"))
    shape = DecoderShape(
        layers=theirs.decoder_layers,
        heads=theirs.decoder_attention_heads,
        intermediate=theirs.decoder_ffn_dim,
    )
    special = _special_ids(loaded.generation_config, config.vocabulary, directory)
    with shapes_only():
        network = PegasusSummarizer(config, shape)
    # Biases of attention that a checkpoint lacks are zero.
    weights = {
        name: torch.zeros(tensor.shape) for name, tensor in network.state_dict().items()
    }
    for name, tensor in loaded.state_dict().items():
        if not name.startswith(_TIED):
            for old, new in _RENAMED:
                name = name.replace(old, new)
            weights[name] = tensor.reshape(weights[name].shape)
    network.load_state_dict(weights, assign=True)
    network.requires_grad_().eval()
    settings = SummariesSettings(decoder=shape, special=special)
    text_tokenizer = _open_tokenizer(directory, config.vocabulary, tokenizer)
    return make_model(network, text_tokenizer, config, settings)


def _special_ids(generation: Any, vocabulary: int, directory: Path) -> SpecialIds:
    """Return the ids of a `GenerationConfig`; `ModelError` if one is not in the vocabulary."""
    ids = {
        "start": generation.decoder_start_token_id,
        "end": generation.eos_token_id,
        "pad": generation.pad_token_id,
        "forced_first": generation.forced_bos_token_id,
        "forced_last": generation.forced_eos_token_id,
    }
    try:
        special = SpecialIds(**ids)
    except ValidationError as error:
        raise ModelError(f"{directory}: {first_fault(error).reason}") from None
    for name, value in ids.items():
        if value is not None and value >= vocabulary:
            raise ModelError(
                f"{directory}: {name} token {value}: the vocabulary has {vocabulary} ids"
            )
    return special


def _open_tokenizer(directory: Path, vocabulary: int, file: str | None) -> Tokenizer:
    """Open the tokenizer of a checkpoint: `file`, `tokenizer.json`, or a SentencePiece model without offset.

    Pegasus has no [CLS], [SEP] and [MASK]: if the files name none, its end and unknown tokens are used.
    """
    path = directory / "tokenizer_config.json"
    settings = read_mapping(path) if path.is_file() else {}
    end = settings.get("eos_token", "</s>")
    end = end["content"] if isinstance(end, dict) else end
    names = {"pad": "<pad>", "unk": "<unk>", "cls": end, "sep": end}
    names |= special_names(directory)
    names.setdefault("mask", names["unk"])
    path = Path(file) if file else directory / "tokenizer.json"
    if file is None and not path.is_file():
        path = directory / "spiece.model"
        if not path.is_file():
            raise ModelError(
                f"{directory}: no tokenizer: tokenizer.json and spiece.model are missing"
            )
        offset = settings.get("offset", PEGASUS_OFFSET)
        if offset != 0:
            raise ModelError(
                f"{path}: ids of Pegasus have the offset {offset}; a tokenizer.json is needed"
            )
    return open_tokenizer(path, vocabulary, names)
