"""Names of an encoder's weights in this package and in HuggingFace's checkpoints, and their shapes."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bigbird_dna.config import EncoderConfig
from bigbird_dna.errors import ModelError, shortened
from bigbird_dna.huggingface.configuration import MODERN_TYPE
from bigbird_dna.huggingface.tensors import StoredTensor
from bigbird_dna.model.settings import Task
from bigbird_dna.model.weights import check_finite

UNUSED_FILE = (
    "huggingface.safetensors"  # file of an imported model: weights that no head uses
)


class Family(NamedTuple):
    """Names of an encoder's parts in the checkpoints of a kind of model."""

    embeddings: dict[str, str]
    layers: str  # before the number of a layer
    layer: dict[str, str]
    last: str = ""  # of the LayerNorm after the last layer


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


BIGBIRD = Family(_EMBEDDINGS, "encoder.layer", _LAYER)
# Queries, keys and values are one tensor, which `split_tensors` divides. There are no segments.
MODERN = Family(
    {"token": "tok_embeddings", "norm": "norm", "segment": "segments"},
    "layers",
    {
        **{part: f"attn.Wqkv.{part}" for part in ("query", "key", "value")},
        "attention_output": "attn.Wo",
        "attention_norm": "attn_norm",
        "intermediate": "mlp.Wi",
        "output": "mlp.Wo",
        "output_norm": "mlp_norm",
    },
    "final_norm",
)


class Architecture(NamedTuple):
    """A HuggingFace class, its task in this package, and the names of its head's parts."""

    name: str
    task: Task
    head: dict[str, str]
    prefix: str = "bert."  # prefix of the encoder's tensors
    family: Family = BIGBIRD


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
        Architecture(
            "ModernBertForMaskedLM",
            "pretraining",
            {
                "masked_tokens.dense": "head.dense",
                "masked_tokens.norm": "head.norm",
                "masked_tokens": "decoder",
            },
            "model.",
            MODERN,
        ),
        Architecture("ModernBertModel", "encoder", {}, "", MODERN),
    )
}

# Alternative names of the same tensor; current HuggingFace versions write the first one.
TIED = (
    ("bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"),
    ("cls.predictions.bias", "cls.predictions.decoder.bias"),
    ("model.embeddings.tok_embeddings.weight", "decoder.weight"),
)


def huggingface_name(name: str, architecture: Architecture) -> str | None:
    """HuggingFace's name of the tensor called `name` in this package; None if it has none."""
    part, _, kind = name.rpartition(".")
    first, _, rest = part.partition(".")
    if first != "encoder":
        return (
            f"{architecture.head[part]}.{kind}" if part in architecture.head else None
        )
    group, _, rest = rest.partition(".")
    family, prefix = architecture.family, architecture.prefix
    if group == "embeddings" and rest in family.embeddings:
        return f"{prefix}embeddings.{family.embeddings[rest]}.{kind}"
    if group == "norm" and family.last:
        return f"{prefix}{family.last}.{kind}"
    index, _, rest = rest.partition(".")
    if group == "layers" and rest in family.layer:
        return f"{prefix}{family.layers}.{index}.{family.layer[rest]}.{kind}"
    return None


def split_tensors(
    tensors: Mapping[str, StoredTensor], family: Family
) -> dict[str, StoredTensor]:
    """Tensors by name, with joined queries, keys and values as three."""
    found = dict(tensors)
    for name, tensor in tensors.items() if family is MODERN else ():
        start, joined, kind = name.rpartition(".Wqkv.")
        if not joined or not tensor.shape or tensor.shape[0] % 3:
            continue
        del found[name]
        for part, read in zip(("query", "key", "value"), _thirds(tensor), strict=True):
            shape = (tensor.shape[0] // 3, *tensor.shape[1:])
            found[f"{start}{joined}{part}.{kind}"] = StoredTensor(
                shape, tensor.dtype, read
            )
    return found


def _thirds(tensor: StoredTensor) -> list[Callable[[], Tensor]]:
    return [lambda number=number: tensor.read().chunk(3)[number] for number in range(3)]  # type: ignore[misc]


def pooler_shapes(
    architecture: Architecture, hidden: int
) -> dict[str, tuple[int, ...]]:
    """Shapes of the [CLS] projection, which most checkpoints contain and only the next-sentence head uses."""
    if architecture.family is MODERN:
        return {}
    own = f"{architecture.prefix}pooler"
    return {f"{own}.weight": (hidden, hidden), f"{own}.bias": (hidden,)}


def is_buffer(name: str) -> bool:
    """Whether a tensor of older checkpoints is redundant, as it follows from the configuration."""
    return name.endswith(("embeddings.position_ids", "embeddings.token_type_ids"))


def is_attention_bias(name: str) -> bool:
    """Whether a tensor (name in either format) is a bias that checkpoints with `use_bias: false` lack."""
    return name.endswith(("query.bias", "key.bias", "value.bias"))


def may_be_missing(name: str, values: Mapping[str, Any]) -> bool:
    """Whether a tensor, by HuggingFace's name, is zero if a checkpoint with this `config.json` lacks it."""
    if values.get("model_type") == MODERN_TYPE:
        return name.endswith(
            (".bias", f"embeddings.{MODERN.embeddings['segment']}.weight")
        )
    return not values.get("use_bias", True) and is_attention_bias(name)


def check_sizes(
    tensors: Mapping[str, StoredTensor],
    config: EncoderConfig,
    architecture: Architecture,
    directory: Path,
) -> None:
    """`ModelError` unless the encoder's sizes match its embeddings and its layers are complete."""
    parts = {"token": config.vocabulary}
    if architecture.family is BIGBIRD:
        parts |= {"position": config.max_length, "segment": config.segments}
    for part, rows in parts.items():
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
            raise ModelError(
                f"{directory}: unexpected tensor {found}, not part of {owner}"
            )
        check_tensor(tensors, name, unused[name], directory)
    weights = {}
    for name, theirs in names.items():
        there = tensors.get(theirs)
        weights[name] = (
            torch.zeros(shapes[name], device="cpu")
            if there is None
            else there.read().float()
        )
        check_finite(weights[name], theirs, directory)
    return weights


def their_name(name: str, architecture: Architecture) -> str:
    """`huggingface_name` of a tensor that has one."""
    theirs = huggingface_name(name, architecture)
    assert theirs is not None, name
    return theirs


def check_tensor(
    tensors: Mapping[str, StoredTensor],
    name: str,
    shape: tuple[int, ...],
    directory: Path,
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
        raise ModelError(
            f"{directory}: tensor {name!r} has an unsupported type; expected floating point"
        )
