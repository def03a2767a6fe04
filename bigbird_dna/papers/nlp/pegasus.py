"""Import of HuggingFace's checkpoints of BigBird-Pegasus as summarization models of the form pegasus."""

from pathlib import Path
from typing import Any

import torch

from bigbird_dna.disk.json_files import read_mapping
from bigbird_dna.errors import ModelError
from bigbird_dna.huggingface.configuration import Compatibility, encoder_config
from bigbird_dna.huggingface.tokenizer_files import special_names
from bigbird_dna.model.directory import make_model
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.model.weights import shapes_only
from bigbird_dna.papers.nlp.initialization import load_checkpoint
from bigbird_dna.papers.nlp.summarizer import PegasusSummarizer, SummariesSettings
from bigbird_dna.tokens.interface import Specials, Tokenizer, read_content
from bigbird_dna.tokens.text import JsonTokenizer, TextTokenizer

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
    ("model.shared", "encoder.token"),
    ("model.", ""),
    ("final_logits_bias", "logits_bias"),
    ("embed_positions", "position"),
    ("layernorm_embedding", "norm"),
    ("self_attn_layer_norm", "attention_norm"),
    ("encoder_attn_layer_norm", "encoder_attn.norm"),
    ("final_layer_norm", "output_norm"),
    ("self_attn.self.", ""),
    ("self_attn.output", "attention_output"),
    ("self_attn.out_proj", "attention_output"),
    ("self_attn.", ""),
    ("q_proj", "query"),
    ("k_proj", "key"),
    ("v_proj", "value"),
    ("out_proj", "output"),
    ("fc1", "intermediate"),
    ("fc2", "output"),
)
_TIED = ("lm_head.", "model.encoder.embed_tokens.", "model.decoder.embed_tokens.")


def is_pegasus(directory: Path) -> bool:
    """Return whether a directory is a BigBirdPegasus checkpoint; `ModelError` if it has no `config.json`."""
    return read_mapping(directory / "config.json").get("model_type") == MODEL_TYPE


def open_pegasus(directory: Path, compatibility: Compatibility) -> LoadedModel:
    """Open a checkpoint as a model.

    With the compatibility `huggingface`, block-sparse attention is computed as in HuggingFace's evaluation
    mode, with equal logits; with `none`, it has the paper's pattern with random blocks. The tokenizer's [CLS]
    and [SEP] are the start and the end of a summary. `ModelError` if the checkpoint is incomplete, or if its
    configuration does not fit its weights or is not supported.
    """
    from transformers import BigBirdPegasusForConditionalGeneration

    loaded = load_checkpoint(BigBirdPegasusForConditionalGeneration, directory)
    if loaded.lm_head.weight is not loaded.model.shared.weight:
        raise ModelError(f"{directory}: weights of the logits are not the embeddings'")
    theirs = loaded.config
    for part in ("layers", "attention_heads", "ffn_dim"):
        of_decoder = getattr(theirs, f"decoder_{part}")
        if of_decoder != getattr(theirs, f"encoder_{part}"):
            raise ModelError(
                f"{directory}: decoder_{part} {of_decoder}: must equal encoder_{part}"
            )
    values = {bigbird: getattr(theirs, key) for key, bigbird in _KEYS.items()}
    values |= {
        "model_type": "big_bird",
        "type_vocab_size": 1,
        "layer_norm_eps": LAYER_NORM_EPSILON,
    }
    config = encoder_config(values, compatibility, str(directory / "config.json"))
    with shapes_only():
        network = PegasusSummarizer(config)
    # Biases of attention that a checkpoint lacks are zero.
    weights = {
        name: torch.zeros(tensor.shape) for name, tensor in network.state_dict().items()
    }
    for name, tensor in loaded.state_dict().items():
        if name.startswith(_TIED):
            continue
        for old, new in _RENAMED:
            name = name.replace(old, new)
        if ".encoder_attn." in name:  # decoder.layers.0.encoder_attn.query.weight
            name = name.removeprefix("decoder.layers.").replace("encoder_attn.", "")
            name = f"cross.{name}"
        weights[name] = tensor.reshape(weights[name].shape)
    network.load_state_dict(weights, assign=True)
    network.requires_grad_().eval()
    tokenizer = _open_tokenizer(directory, config.vocabulary, loaded.generation_config)
    return make_model(network, tokenizer, config, SummariesSettings(form="pegasus"))


def _open_tokenizer(directory: Path, vocabulary: int, generation: Any) -> Tokenizer:
    """Open `tokenizer.json`, or a SentencePiece model without offset, with the special ids of generation.

    Pegasus has no [CLS], [SEP] and [MASK]; the unknown token takes the place of a mask.
    """
    path = directory / "tokenizer_config.json"
    offset = PEGASUS_OFFSET
    if path.is_file():
        offset = read_mapping(path).get("offset", offset)
    kind: type[JsonTokenizer | TextTokenizer] = JsonTokenizer
    path = directory / "tokenizer.json"
    if not path.is_file():
        kind, path = TextTokenizer, directory / "spiece.model"
        if offset != 0:
            raise ModelError(
                f"{path}: ids of Pegasus have the offset {offset}; a tokenizer.json is needed"
            )
    names = {"pad": "<pad>", "unk": "<unk>"} | special_names(directory)
    names |= {"cls": names["pad"], "sep": names["pad"], "mask": names["unk"]}
    content = read_content(path)
    tokenizer = kind(content, None, vocabulary, names=names, source=str(path))
    ids = {
        "pad": generation.pad_token_id,
        "cls": generation.decoder_start_token_id,
        "sep": generation.eos_token_id,
    }
    for role, key in (("start", "cls"), ("end", "sep"), ("pad", "pad")):
        value = ids[key]
        if type(value) is not int or not 0 <= value < vocabulary:
            raise ModelError(
                f"{directory}: {role} token {value}: the vocabulary has {vocabulary} ids"
            )
    specials = Specials(unk=tokenizer.unk_id, mask=tokenizer.mask_id, **ids)
    return kind(content, specials, vocabulary, source=str(path))
