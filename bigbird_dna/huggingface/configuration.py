"""Conversion between HuggingFace's `config.json` of BigBird and `EncoderConfig`.

Some features have no counterpart. HuggingFace's BigBird has no causal or decoder mode here, no rotary
positions and no extra global tokens. Its block-sparse attention has two global and three window blocks, and
no dropout of attention probabilities. `compatibility: huggingface` reproduces its evaluation.
"""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import ValidationError

from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.errors import ModelError, first_fault, shortened

Compatibility = Literal["huggingface", "none"]
MODEL_TYPE, ROBERTA_TYPE = "big_bird", "roberta"
PACKAGE_KEY = "bigbird_dna"  # key of an exported config.json: the model's own settings

# This package's field, HuggingFace's key, and the default for a missing key.
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
    ("attention", "attention_type", "block_sparse"),
    ("block_size", "block_size", 64),
    ("random_blocks", "num_random_blocks", 3),
)
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


def encoder_config(
    values: Mapping[str, Any], compatibility: Compatibility, source: str
) -> EncoderConfig:
    """The encoder described by a `config.json`; missing keys have HuggingFace's defaults.

    With `compatibility` "huggingface", block-sparse attention is computed as in HuggingFace's evaluation;
    with "none", random blocks are drawn as in the paper. `ModelError` names `source` and an unsupported key.
    """
    if values.get("model_type") == ROBERTA_TYPE:
        # A BigBird up to its few positions, where HuggingFace's BigBird attends to all tokens.
        try:
            unused = int(values.get("pad_token_id", 1)) + 1
            positions = int(values.get("max_position_embeddings", 514)) - unused
        except (TypeError, ValueError):
            raise ModelError(
                f"{source}: pad_token_id and max_position_embeddings must be numbers"
            ) from None

        changes = {"max_position_embeddings": positions, "type_vocab_size": 2}
        values = {**values, **changes, "model_type": MODEL_TYPE}

    fields = {field: values.get(key, default) for field, key, default in _FIELDS}
    for key, supported in (
        ("model_type", (MODEL_TYPE, ROBERTA_TYPE)),
        ("is_decoder", (None, False)),
        ("add_cross_attention", (None, False)),
        ("rescale_embeddings", (None, False)),
        ("position_embedding_type", (None, "absolute")),
        ("attention_type", (None, *_ATTENTIONS)),
        ("hidden_act", (None, *_ACTIVATIONS)),
    ):
        if values.get(key) not in supported:
            names = ", ".join(str(one) for one in supported if one is not None)
            raise ModelError(
                f"{source}: {key} {shortened(repr(values.get(key)))} is not supported, only {names}"
            )

    fields["attention"] = _ATTENTIONS[fields["attention"]]
    fields["activation"] = _ACTIVATIONS[fields["activation"]]
    exported = values.get(PACKAGE_KEY)
    if isinstance(exported, dict) and "random_seed" in exported:
        fields["random_seed"] = exported["random_seed"]

    if fields["attention"] == "bigbird":
        fields["attention_dropout"] = 0.0  # as in HuggingFace
        fields["compatibility"] = compatibility

    try:
        return EncoderConfig(**fields, global_blocks=2, window_blocks=3)
    except ValidationError as error:
        fault = first_fault(error)
        keys = {field: key for field, key, _ in _FIELDS}
        key = keys.get(fault.key, fault.key)
        reason = f"{key}: {fault.reason}" if key else fault.reason
        raise ModelError(f"{source}: {reason}") from None


def huggingface_config(config: EncoderConfig, source: str) -> dict[str, Any]:
    """The `config.json` of an encoder, without keys of the head or tokenizer.

    `ModelError`: HuggingFace's BigBird does not support a feature of the encoder.
    """
    sparse = config.attention == "bigbird"
    supported: dict[str, tuple[Any, ...]] = {
        "attention": tuple(_ATTENTIONS.values()),
        "causal": (False,),
        "position_encoding": ("learned",),
        "num_global_tokens": (0,),
        "relative_max_distance": (0,),
        "kmers": (0,),
        "global_blocks": (2,) if sparse else (config.global_blocks,),
        "window_blocks": (3,) if sparse else (config.window_blocks,),
    }
    for field, allowed in supported.items():
        configured = getattr(config, field)
        if configured not in allowed:
            raise ModelError(
                f"{source}: encoder.{field} {configured}: HuggingFace's BigBird supports only "
                f"{' and '.join(map(str, allowed))}"
            )

    if sparse and not config.random_blocks:
        raise ModelError(
            f"{source}: encoder.random_blocks 0: HuggingFace's BigBird needs at least 1"
        )

    values = {key: getattr(config, field) for field, key, _ in _FIELDS}
    inverse = {ours: theirs for theirs, ours in reversed(_ACTIVATIONS.items())}
    return values | {
        "model_type": MODEL_TYPE,
        "use_bias": True,
        "attention_type": "block_sparse" if sparse else "original_full",
        "hidden_act": inverse[config.activation],
        "intermediate_size": config.intermediate or 4 * config.hidden,
    }
