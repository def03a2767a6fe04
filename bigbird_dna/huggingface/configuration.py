"""HuggingFace BigBird's `config.json` and `EncoderConfig`, one from the other.

Not everything has a counterpart. HuggingFace has no causal or decoder mode here, no rotary positions, no
extra global tokens; its block-sparse attention has two global and three window blocks, and no dropout of
attention probabilities. What it does in evaluation is `compatibility: huggingface`.
"""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import ValidationError

from bigbird_dna.config import EncoderConfig
from bigbird_dna.errors import ModelError, shortened

Compatibility = Literal["huggingface", "none"]
MODEL_TYPE = "big_bird"

# Our field, HuggingFace's key, and what a configuration without the key means.
_FIELDS: tuple[tuple[str, str, Any], ...] = (
    ("vocabulary", "vocab_size", 50358),
    ("layers", "num_hidden_layers", 12),
    ("hidden", "hidden_size", 768),
    ("heads", "num_attention_heads", 12),
    ("intermediate", "intermediate_size", 3072),
    ("max_length", "max_position_embeddings", 4096),
    ("segments", "type_vocab_size", 2),
    ("dropout", "hidden_dropout_prob", 0.1),
    ("attention_dropout", "attention_probs_dropout_prob", 0.1),
    ("activation", "hidden_act", "gelu_new"),
    ("layer_norm_epsilon", "layer_norm_eps", 1e-12),
    ("rescale_embeddings", "rescale_embeddings", False),
    ("attention", "attention_type", "block_sparse"),
    ("block_size", "block_size", 64),
    ("random_blocks", "num_random_blocks", 3),
)
# What a file may ask for at most: far above any model's, and small enough to be compared with its tensors.
_MOST = {"layers": 1000, "random_blocks": 1000, "block_size": 1 << 16}
_MOST_OF_OTHERS = (1 << 31) - 1
_ATTENTIONS = {"block_sparse": "bigbird", "original_full": "full"}
_ACTIVATIONS = {
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_python_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "relu": "relu",
}


def encoder_config(values: Mapping[str, Any], compatibility: Compatibility, source: str) -> EncoderConfig:
    """The encoder that a `config.json` describes.

    Parameters
    ----------
    values : content of the file; absent keys mean what they mean in HuggingFace.
    compatibility : `huggingface`: block-sparse attention as its evaluation computes it; `none`: the paper's
        pattern with random blocks drawn. Full attention is the same in both.
    source : names the file in `ModelError`, which names the key that has no counterpart.
    """
    if values.get("model_type") != MODEL_TYPE:
        raise ModelError(f"{source}: model_type {_quoted(values.get('model_type'))}, not {MODEL_TYPE!r}")
    for key in ("is_decoder", "add_cross_attention"):
        if values.get(key):
            raise ModelError(f"{source}: {key} is set: decoders have no counterpart")
    position = values.get("position_embedding_type", "absolute")
    if position != "absolute":
        raise ModelError(f"{source}: position_embedding_type {_quoted(position)} has no counterpart")
    fields = {field: values.get(key, default) for field, key, default in _FIELDS}
    for field, key, table in (
        ("attention", "attention_type", _ATTENTIONS),
        ("activation", "hidden_act", _ACTIVATIONS),
    ):
        if not isinstance(fields[field], str) or fields[field] not in table:
            raise ModelError(
                f"{source}: {key} {_quoted(fields[field])} has no counterpart ({', '.join(table)} have)"
            )
        fields[field] = table[fields[field]]
    sparse = fields["attention"] == "bigbird"
    if sparse:
        fields["attention_dropout"] = 0.0  # as there
    for field, key, _ in _FIELDS:
        most = _MOST.get(field, _MOST_OF_OTHERS)
        if isinstance(fields[field], int | float) and fields[field] > most:
            raise ModelError(f"{source}: {key} {_quoted(fields[field])}: no model has more than {most:,}")
    for field in ("dropout", "attention_dropout", "layer_norm_epsilon"):
        if type(fields[field]) is int:
            fields[field] = float(fields[field])
    try:
        return EncoderConfig(
            **fields, global_blocks=2, window_blocks=3, compatibility=compatibility if sparse else "none"
        )
    except ValidationError as error:
        first = error.errors()[0]
        key = {field: key for field, key, _ in _FIELDS}.get(".".join(map(str, first["loc"])), "")
        message = first["msg"].removeprefix("Value error, ")
        raise ModelError(f"{source}: {key}: {shortened(message, 200)}".replace(": : ", ": ")) from None


def _quoted(value: Any) -> str:
    return shortened(repr(value))


def huggingface_config(
    config: EncoderConfig, original: Mapping[str, Any] | None, source: str
) -> dict[str, Any]:
    """The `config.json` of an encoder, without what belongs to a head or the tokenizer.

    Parameters
    ----------
    original : the file that the encoder was imported with, kept but for keys that mean something else now.
    source : names the model in `ModelError`, which names the key of `config` that has no counterpart.
    """
    if config.causal:
        raise ModelError(
            f"{source}: encoder.causal: HuggingFace's BigBird sees both sides of a token; a causal model has "
            "no counterpart there"
        )
    _check_exportable(config, source)
    values = dict(original or {"model_type": MODEL_TYPE, "use_bias": True})
    before = encoder_config(original, config.compatibility, source) if original else None
    for field, key, _ in _FIELDS:
        value = getattr(config, field)
        if before is not None and getattr(before, field) == value:
            continue
        if field == "attention":
            value = _inverse(_ATTENTIONS)[value]
        elif field == "activation":
            value = _inverse(_ACTIVATIONS)[value]
        elif field == "intermediate":
            value = value or 4 * config.hidden
        values[key] = value
    return values


def _inverse(table: dict[str, str]) -> dict[str, str]:
    """Our names → theirs, the first of several."""
    return {ours: theirs for theirs, ours in reversed(table.items())}


def _check_exportable(config: EncoderConfig, source: str) -> None:
    if config.attention not in _ATTENTIONS.values():
        known = " and ".join(_ATTENTIONS.values())
        raise ModelError(
            f"{source}: encoder.attention {config.attention}: HuggingFace's BigBird has {known} only"
        )
    needed: dict[str, Any] = {
        "position_encoding": "learned",
        "num_global_tokens": 0,
        "relative_max_distance": 0,
        "convolution": 0,
        "reversible": False,
    }
    if config.attention == "bigbird":
        needed |= {"global_blocks": 2, "window_blocks": 3}
        if not config.random_blocks:
            raise ModelError(f"{source}: encoder.random_blocks 0: HuggingFace's BigBird needs at least 1")
    for field, value in needed.items():
        found = getattr(config, field)
        if found != value:
            raise ModelError(f"{source}: encoder.{field} {found}: HuggingFace's BigBird has {value} only")
