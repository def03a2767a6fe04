"""Names of an encoder's weights in this package and in HuggingFace's checkpoints, and their shapes."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from bigbird_dna.errors import ModelError, shortened
from bigbird_dna.huggingface.configuration import MODERN_TYPE
from bigbird_dna.model.settings import Task
from bigbird_dna.model.weights import build_without_values, check_finite

UNUSED_FILE = (
    "huggingface.safetensors"  # file of an imported model: weights that no head uses
)
_QKV = ("query", "key", "value")
FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)

# Modules of `Encoder`, and HuggingFace's names after the architecture's prefix; * is the number of a layer.
BIGBIRD = {
    "embeddings.token": "embeddings.word_embeddings",
    "embeddings.position": "embeddings.position_embeddings",
    "embeddings.segment": "embeddings.token_type_embeddings",
    "embeddings.norm": "embeddings.LayerNorm",
    "layers.*.query": "encoder.layer.*.attention.self.query",
    "layers.*.key": "encoder.layer.*.attention.self.key",
    "layers.*.value": "encoder.layer.*.attention.self.value",
    "layers.*.attention_output": "encoder.layer.*.attention.output.dense",
    "layers.*.attention_norm": "encoder.layer.*.attention.output.LayerNorm",
    "layers.*.intermediate": "encoder.layer.*.intermediate.dense",
    "layers.*.output": "encoder.layer.*.output.dense",
    "layers.*.output_norm": "encoder.layer.*.output.LayerNorm",
}
# Queries, keys and values are one tensor, which `split_tensors` divides. There are no segments.
MODERN = {
    "embeddings.token": "embeddings.tok_embeddings",
    "embeddings.norm": "embeddings.norm",
    "embeddings.segment": "embeddings.segments",
    "layers.*.query": "layers.*.attn.Wqkv.query",
    "layers.*.key": "layers.*.attn.Wqkv.key",
    "layers.*.value": "layers.*.attn.Wqkv.value",
    "layers.*.attention_output": "layers.*.attn.Wo",
    "layers.*.attention_norm": "layers.*.attn_norm",
    "layers.*.intermediate": "layers.*.mlp.Wi",
    "layers.*.output": "layers.*.mlp.Wo",
    "layers.*.output_norm": "layers.*.mlp_norm",
    "norm": "final_norm",
}


class Architecture(NamedTuple):
    """A HuggingFace class, its task in this package, and the names of its modules."""

    name: str
    task: Task
    head: dict[str, str]
    prefix: str = "bert."  # prefix of the encoder's tensors
    encoder: dict[str, str] = BIGBIRD


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
    module, _, kind = name.rpartition(".")
    if not module.startswith("encoder."):
        theirs = architecture.head.get(module)
        return theirs and f"{theirs}.{kind}"
    module = module.removeprefix("encoder.")
    number = "".join(re.findall(r"(?<=^layers\.)\d+", module))
    theirs = architecture.encoder.get(module.replace(f".{number}.", ".*."))
    return theirs and f"{architecture.prefix}{theirs.replace('*', number)}.{kind}"


def split_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors by name, with ModernBERT's joined queries, keys and values as three."""
    split = {}
    for name, tensor in tensors.items():
        start, joined, kind = name.rpartition(".Wqkv.")
        if not joined or not tensor.dim() or len(tensor) % 3:
            split[name] = tensor
            continue
        for module, third in zip(_QKV, tensor.chunk(3), strict=True):
            split[f"{start}{joined}{module}.{kind}"] = third
    return split


def pooler_shapes(
    architecture: Architecture, hidden: int
) -> dict[str, tuple[int, ...]]:
    """Shapes of the [CLS] projection, which most checkpoints contain and only the next-sentence head uses."""
    if architecture.encoder is MODERN:
        return {}
    pooler = f"{architecture.prefix}pooler"
    return {f"{pooler}.weight": (hidden, hidden), f"{pooler}.bias": (hidden,)}


def is_buffer(name: str) -> bool:
    """Whether a tensor of older checkpoints is redundant, as it follows from the configuration."""
    return name.endswith(("embeddings.position_ids", "embeddings.token_type_ids"))


def is_attention_bias(name: str) -> bool:
    """Whether a tensor (name in either format) is a bias that checkpoints with `use_bias: false` lack."""
    return name.endswith(("query.bias", "key.bias", "value.bias"))


def may_be_missing(name: str, values: Mapping[str, Any]) -> bool:
    """Whether a tensor, by HuggingFace's name, is zero if a checkpoint with this `config.json` lacks it."""
    if values.get("model_type") == MODERN_TYPE:
        return name.endswith((".bias", f"{MODERN['embeddings.segment']}.weight"))
    return not values.get("use_bias", True) and is_attention_bias(name)


def load_network(
    tensors: Mapping[str, Tensor],
    build: Callable[[], nn.Module],
    named: Callable[[str], str | None],
    optional: Callable[[str], bool],
    owner: str,
    directory: Path,
    unused: Mapping[str, tuple[int, ...]] | None = None,
) -> nn.Module:
    """The network created by `build`, with the weights of a checkpoint, see `read_weights`."""
    network = build_without_values(directory, build)
    weights = read_weights(
        tensors, network.state_dict(), named, optional, owner, directory, unused
    )
    network.to_empty(device="cpu").load_state_dict(weights)
    return network.eval()


def read_weights(
    tensors: Mapping[str, Tensor],
    network: Mapping[str, Tensor],
    named: Callable[[str], str | None],
    optional: Callable[[str], bool],
    owner: str,
    directory: Path,
    unused: Mapping[str, tuple[int, ...]] | None = None,
) -> dict[str, Tensor]:
    """Weights with the shapes of a `network`, by this package's names; `named` maps to checkpoint names.

    `ModelError` for a tensor that is missing, unexpected, of another shape, not floating point or not finite.
    `optional` tensors (checkpoint names) are zero if missing; others than these must be in `unused`.
    """
    weights, expected = {}, dict(unused or {})
    for name, value in network.items():
        theirs = named(name)
        assert theirs is not None, name
        expected[theirs] = tuple(value.shape)
        if theirs not in tensors and optional(theirs):
            weights[name] = torch.zeros(value.shape, device="cpu")
            continue
        check_tensor(tensors, theirs, expected[theirs], directory)
        weights[name] = tensors[theirs].float()
        check_finite(weights[name], theirs, directory)
    for name in sorted(tensors):
        if name not in expected:
            raise ModelError(
                f"{directory}: unexpected tensor {shortened(repr(name))}, not part of {owner}"
            )
        check_tensor(tensors, name, expected[name], directory)
    return weights


def check_tensor(
    tensors: Mapping[str, Tensor], name: str, shape: tuple[int, ...], directory: Path
) -> None:
    """`ModelError` unless a checkpoint has a floating-point tensor of this name and shape."""
    if name not in tensors:
        raise ModelError(f"{directory}: tensor {name!r} is missing")
    tensor = tensors[name]
    if tuple(tensor.shape) != shape:
        raise ModelError(
            f"{directory}: tensor {name!r} has shape {shortened(str(tuple(tensor.shape)))}, "
            f"config.json specifies {shape}"
        )
    if tensor.dtype not in FLOATS:
        raise ModelError(
            f"{directory}: tensor {name!r} has an unsupported type; expected floating point"
        )
