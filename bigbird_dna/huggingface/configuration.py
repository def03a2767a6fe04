"""Conversion between HuggingFace's `config.json` of BigBird, or ModernBERT, and `EncoderConfig`.

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
MODEL_TYPE, MODERN_TYPE, ROBERTA_TYPE = "big_bird", "modernbert", "roberta"
PACKAGE_KEY = "bigbird_dna"  # key of an exported config.json: the model's own settings

Fields = tuple[tuple[str, str, Any], ...]
# This package's field, HuggingFace's key, and the default for a missing key.
_FIELDS: Fields = (
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
_MODERN_FIELDS: Fields = (
    ("vocabulary", "vocab_size", 50368),
    ("layers", "num_hidden_layers", 22),
    ("hidden", "hidden_size", 768),
    ("heads", "num_attention_heads", 12),
    ("intermediate", "intermediate_size", 1152),
    ("max_length", "max_position_embeddings", 8192),
    ("dropout", "mlp_dropout", 0.0),
    ("attention_dropout", "attention_dropout", 0.0),
    ("activation", "hidden_activation", "gelu"),
    ("layer_norm_epsilon", "norm_eps", 1e-5),
    ("rotary_base", "global_rope_theta", 160_000.0),
    ("local_rotary_base", "local_rope_theta", 10_000.0),
    ("local_window", "local_attention", 128),
    ("global_every", "global_attn_every_n_layers", 3),
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
    if values.get("model_type") == MODERN_TYPE:
        return _modern_config(values, source)
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
    if values.get("model_type") != MODEL_TYPE:
        model_type = _quoted(values.get("model_type"))
        raise ModelError(
            f"{source}: model_type {model_type}, expected {MODEL_TYPE!r}, {ROBERTA_TYPE!r} or "
            f"{MODERN_TYPE!r}"
        )
    for key in ("is_decoder", "add_cross_attention"):
        if values.get(key):
            raise ModelError(f"{source}: {key} is set: decoders are not supported")
    position = values.get("position_embedding_type", "absolute")
    if position != "absolute":
        raise ModelError(
            f"{source}: position_embedding_type {_quoted(position)} is not supported"
        )
    fields = {field: values.get(key, default) for field, key, default in _FIELDS}
    if (
        isinstance(exported := values.get(PACKAGE_KEY), dict)
        and "random_seed" in exported
    ):
        fields["random_seed"] = exported["random_seed"]
    fields["attention"] = _translated(
        fields["attention"], _ATTENTIONS, "attention_type", source
    )
    fields["activation"] = _translated(
        fields["activation"], _ACTIVATIONS, "hidden_act", source
    )
    sparse = fields["attention"] == "bigbird"
    if sparse:
        fields["attention_dropout"] = 0.0  # as in HuggingFace
    fixed = {
        "global_blocks": 2,
        "window_blocks": 3,
        "compatibility": compatibility if sparse else "none",
    }
    return _checked(fields, _FIELDS, fixed, source)


def _checked(
    fields: dict[str, Any], table: Fields, fixed: Mapping[str, Any], source: str
) -> EncoderConfig:
    """The encoder with the values `fields` of a file, whose keys are in `table`, and `others`."""
    try:
        return EncoderConfig(**fields, **fixed)
    except ValidationError as error:
        fault = first_fault(error)
        key = {field: key for field, key, _ in table}.get(fault.key, fault.key)
        raise ModelError(f"{source}: {key and f'{key}: '}{fault.reason}") from None


def _modern_config(values: Mapping[str, Any], source: str) -> EncoderConfig:
    """The encoder described by ModernBERT's `config.json` of any version of HuggingFace's library."""
    fields = {field: values.get(key, default) for field, key, default in _MODERN_FIELDS}
    layers = fields["layers"] if type(fields["layers"]) is int else 0
    if (types := values.get("layer_types")) is not None:
        wide = [number for number, kind in enumerate(types) if kind == "full_attention"]
        every = wide[1] if len(wide) > 1 else max(layers, 1)
        if wide != [*range(0, layers, every)] or len(types) != layers:
            raise ModelError(
                f"{source}: layer_types {_quoted(types)}: not every n-th layer, from the first"
            )
        fields["global_every"] = every
    for kind, field in (
        ("full_attention", "rotary_base"),
        ("sliding_attention", "local_rotary_base"),
    ):
        rope = (values.get("rope_parameters") or {}).get(kind) or {}
        if rope.get("rope_type", "default") != "default":
            raise ModelError(
                f"{source}: rope_type {_quoted(rope['rope_type'])} is not supported"
            )
        fields[field] = rope.get("rope_theta", fields[field])
    theirs = fields["activation"]
    fields["activation"] = _translated(
        theirs, _ACTIVATIONS, "hidden_activation", source
    )
    if values.get("classifier_activation", theirs) != theirs:
        raise ModelError(
            f"{source}: classifier_activation differs from hidden_activation"
        )
    if type(fields["local_window"]) is int:
        fields["local_window"] //= 2  # on each side
    fixed = {
        "attention": "full",
        "position_encoding": "rotary",
        "norm": "pre",
        "feed_forward": "gated",
    }
    return _checked(fields, _MODERN_FIELDS, {**fixed, "segments": 1}, source)


def _translated(value: Any, table: Mapping[str, str], key: str, source: str) -> str:
    if str(value) not in table:
        raise ModelError(
            f"{source}: {key} {_quoted(value)} must be one of {', '.join(table)}"
        )
    return table[str(value)]


def _quoted(value: Any) -> str:
    return shortened(repr(value))


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
        "norm": ("post",),
        "feed_forward": ("plain",),
        "local_window": (0,),
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
