"""Conversion between HuggingFace BigBird's `config.json` and `EncoderConfig`.

Some features have no counterpart. HuggingFace's BigBird has no causal or decoder mode here, no rotary
positions and no extra global tokens. Its block-sparse attention has two global and three window blocks, and
no dropout of attention probabilities. `compatibility: huggingface` reproduces its evaluation.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from pydantic import ValidationError
from torch import Tensor

from bigbird_dna.config import EncoderConfig
from bigbird_dna.errors import ModelError, first_fault, shortened
from bigbird_dna.huggingface.tensors import StoredTensor
from bigbird_dna.model.settings import Task
from bigbird_dna.model.weights import check_finite

Compatibility = Literal["huggingface", "none"]
MODEL_TYPE = "big_bird"

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
    ("rescale_embeddings", "rescale_embeddings", False),
    ("attention", "attention_type", "block_sparse"),
    ("block_size", "block_size", 64),
    ("random_blocks", "num_random_blocks", 3),
)
# Upper limits for values in a file: far above any model's, but small enough for comparison with its tensors.
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
    """The encoder described by a `config.json`; missing keys have HuggingFace's defaults.

    With `compatibility` "huggingface", block-sparse attention is computed as in HuggingFace's evaluation;
    with "none", random blocks are drawn as in the paper. `ModelError` names `source` and an unsupported key.
    """
    if values.get("model_type") != MODEL_TYPE:
        raise ModelError(f"{source}: model_type {_quoted(values.get('model_type'))}, expected {MODEL_TYPE!r}")
    for key in ("is_decoder", "add_cross_attention"):
        if values.get(key):
            raise ModelError(f"{source}: {key} is set: decoders are not supported")
    position = values.get("position_embedding_type", "absolute")
    if position != "absolute":
        raise ModelError(f"{source}: position_embedding_type {_quoted(position)} is not supported")
    fields = {field: values.get(key, default) for field, key, default in _FIELDS}
    if isinstance(own := values.get(OWN_KEY), dict) and "random_seed" in own:
        fields["random_seed"] = own["random_seed"]
    for field, key, table in (
        ("attention", "attention_type", _ATTENTIONS),
        ("activation", "hidden_act", _ACTIVATIONS),
    ):
        if not isinstance(fields[field], str) or fields[field] not in table:
            raise ModelError(f"{source}: {key} {_quoted(fields[field])} must be one of {', '.join(table)}")
        fields[field] = table[fields[field]]
    sparse = fields["attention"] == "bigbird"
    if sparse:
        fields["attention_dropout"] = 0.0  # as in HuggingFace
    for field, key, _ in _FIELDS:
        most = _MOST.get(field, _MOST_OF_OTHERS)
        if isinstance(fields[field], int | float) and fields[field] > most:
            raise ModelError(f"{source}: {key} {_quoted(fields[field])}: must be at most {most:,}")
    for field in ("dropout", "attention_dropout", "layer_norm_epsilon"):
        if type(fields[field]) is int:
            fields[field] = float(fields[field])
    try:
        return EncoderConfig(
            **fields, global_blocks=2, window_blocks=3, compatibility=compatibility if sparse else "none"
        )
    except ValidationError as error:
        fault = first_fault(error)
        key = {field: key for field, key, _ in _FIELDS}.get(fault.key, fault.key)
        raise ModelError(f"{source}: {key and f'{key}: '}{fault.reason}") from None


def _quoted(value: Any) -> str:
    return shortened(repr(value))


def huggingface_config(
    config: EncoderConfig, original: Mapping[str, Any] | None, source: str
) -> dict[str, Any]:
    """The `config.json` of an encoder, without keys of the head or tokenizer.

    `original` is the file from which the encoder was imported: only keys with changed values are updated.
    """
    if config.causal:
        raise ModelError(
            f"{source}: encoder.causal: HuggingFace's BigBird is bidirectional and does not support causal "
            "models"
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
    """This package's names → HuggingFace's, the first of several."""
    return {ours: theirs for theirs, ours in reversed(table.items())}


def _check_exportable(config: EncoderConfig, source: str) -> None:
    if config.attention not in _ATTENTIONS.values():
        known = " and ".join(_ATTENTIONS.values())
        raise ModelError(
            f"{source}: encoder.attention {config.attention}: HuggingFace's BigBird supports only {known}"
        )
    needed: dict[str, Any] = {
        "position_encoding": "learned",
        "num_global_tokens": 0,
        "relative_max_distance": 0,
        "convolution": 0,
        "kmers": 0,
        "reversible": False,
    }
    if config.attention == "bigbird":
        needed |= {"global_blocks": 2, "window_blocks": 3}
        if not config.random_blocks:
            raise ModelError(f"{source}: encoder.random_blocks 0: HuggingFace's BigBird needs at least 1")
    for field, value in needed.items():
        found = getattr(config, field)
        if found != value:
            raise ModelError(f"{source}: encoder.{field} {found}: HuggingFace's BigBird needs {value}")


# Names of BigBird's weights in this package and in HuggingFace's checkpoints, and the required tensor shapes.


OWN_KEY = "bigbird_dna"  # key of an exported config.json: the model's own settings
UNUSED_FILE = "huggingface.safetensors"  # file of an imported model: weights that no head uses

_EMBEDDINGS = {
    "token": "word_embeddings",
    "position": "position_embeddings",
    "segment": "token_type_embeddings",
    "norm": "LayerNorm",
}
_LAYER = {
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "attention_output": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "intermediate": "intermediate.dense",
    "output": "output.dense",
    "output_norm": "output.LayerNorm",
}


class Architecture(NamedTuple):
    """A HuggingFace class, its task in this package, and the names of its head's parts."""

    name: str
    task: Task
    head: dict[str, str]
    prefix: str = "bert."  # prefix of the encoder's tensors


_MASKED_TOKENS = {
    "masked_tokens.dense": "cls.predictions.transform.dense",
    "masked_tokens.norm": "cls.predictions.transform.LayerNorm",
    "masked_tokens": "cls.predictions",
}
ARCHITECTURES = {
    architecture.name: architecture
    for architecture in (
        Architecture(
            "BigBirdForPreTraining",
            "pretraining",
            {
                **_MASKED_TOKENS,
                "next_sentence.pooler": "bert.pooler",
                "next_sentence.output": "cls.seq_relationship",
            },
        ),
        Architecture("BigBirdForMaskedLM", "pretraining", _MASKED_TOKENS),
        Architecture(
            "BigBirdForSequenceClassification",
            "classification",
            {"dense": "classifier.dense", "output": "classifier.out_proj"},
        ),
        Architecture(
            "BigBirdForQuestionAnswering",
            "question-answering",
            {
                "intermediate": "qa_classifier.intermediate.dense",
                "output": "qa_classifier.output.dense",
                "norm": "qa_classifier.output.LayerNorm",
                "spans": "qa_classifier.qa_outputs",
            },
        ),
        Architecture("BigBirdModel", "encoder", {}, prefix=""),
    )
}

# Alternative names of the same tensor; current HuggingFace versions write the first one.
TIED = (
    ("bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"),
    ("cls.predictions.bias", "cls.predictions.decoder.bias"),
)


def huggingface_name(name: str, architecture: Architecture) -> str | None:
    """HuggingFace's name of the tensor called `name` in this package; None if it has none."""
    part, _, kind = name.rpartition(".")
    first, _, rest = part.partition(".")
    if first != "encoder":
        return f"{architecture.head[part]}.{kind}" if part in architecture.head else None
    group, _, rest = rest.partition(".")
    if group == "embeddings" and rest in _EMBEDDINGS:
        return f"{architecture.prefix}embeddings.{_EMBEDDINGS[rest]}.{kind}"
    index, _, rest = rest.partition(".")
    if group == "layers" and rest in _LAYER:
        return f"{architecture.prefix}encoder.layer.{index}.{_LAYER[rest]}.{kind}"
    return None


def pooler_shapes(architecture: Architecture, hidden: int) -> dict[str, tuple[int, ...]]:
    """Shapes of the [CLS] projection, which most checkpoints contain and only the next-sentence head uses."""
    own = f"{architecture.prefix}pooler"
    return {f"{own}.weight": (hidden, hidden), f"{own}.bias": (hidden,)}


def is_buffer(name: str) -> bool:
    """Whether a tensor of older checkpoints is redundant, as it follows from the configuration."""
    return name.endswith(("embeddings.position_ids", "embeddings.token_type_ids"))


def is_attention_bias(name: str) -> bool:
    """Whether a tensor (name in either format) is a bias that checkpoints with `use_bias: false` lack."""
    return name.endswith(("query.bias", "key.bias", "value.bias"))


def check_sizes(
    tensors: Mapping[str, StoredTensor], config: EncoderConfig, architecture: Architecture, directory: Path
) -> None:
    """`ModelError` unless the encoder's sizes match its embeddings and its layers are complete."""
    for part, rows in (
        *(("token", config.vocabulary), ("position", config.max_length)),
        ("segment", config.segments),
    ):
        theirs = their_name(f"encoder.embeddings.{part}.weight", architecture)
        check_tensor(tensors, theirs, (rows, config.hidden), directory)
    for layer in range(config.layers):
        theirs = their_name(f"encoder.layers.{layer}.query.weight", architecture)
        check_tensor(tensors, theirs, (config.hidden, config.hidden), directory)


def read_weights(
    tensors: Mapping[str, StoredTensor],
    network: Mapping[str, Tensor],
    named: Callable[[str], str],
    optional: Callable[[str], bool],
    owner: str,
    directory: Path,
    unused: Mapping[str, tuple[int, ...]] | None = None,
) -> dict[str, Tensor]:
    """Weights with the shapes of a `network`, by this package's names; `named` maps to checkpoint names.

    `ModelError` for a tensor that is missing, unexpected, of another shape, not floating point or not finite.
    `optional` tensors (checkpoint names) are zero if missing; others than these must be in `unused`.
    """
    names, unused = {name: named(name) for name in network}, unused or {}
    shapes = {name: tuple(like.shape) for name, like in network.items()}
    for name, theirs in names.items():
        if theirs in tensors or not optional(theirs):
            check_tensor(tensors, theirs, shapes[name], directory)
    for name in sorted(tensors.keys() - {*names.values()}):
        if name not in unused:
            found = shortened(repr(name))
            raise ModelError(f"{directory}: unexpected tensor {found}, not part of {owner}")
        check_tensor(tensors, name, unused[name], directory)
    weights = {}
    for name, theirs in names.items():
        there = tensors.get(theirs)
        weights[name] = torch.zeros(shapes[name]) if there is None else there.read().float()
        check_finite(weights[name], theirs, directory)
    return weights


def their_name(name: str, architecture: Architecture) -> str:
    """`huggingface_name` of a tensor that has one."""
    theirs = huggingface_name(name, architecture)
    assert theirs is not None, name
    return theirs


def check_tensor(
    tensors: Mapping[str, StoredTensor], name: str, shape: tuple[int, ...], directory: Path
) -> None:
    """`ModelError` unless a checkpoint has a floating-point tensor of this name and shape."""
    if name not in tensors:
        raise ModelError(f"{directory}: tensor {name!r} is missing")
    found = tensors[name]
    if found.shape != shape:
        raise ModelError(
            f"{directory}: tensor {name!r} has shape {shortened(str(found.shape))}, "
            f"config.json specifies {shape}"
        )
    if found.dtype is None:
        raise ModelError(f"{directory}: tensor {name!r} has an unsupported type; expected floating point")
