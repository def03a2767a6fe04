"""Names and shapes of tensors in both formats.

Names of BigBird's weights here and in HuggingFace's checkpoints.

What a checkpoint's tensors must be, compared before any of them is read or a network is built.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import torch

from bigbird_dna.config import EncoderConfig
from bigbird_dna.errors import ModelError, shortened
from bigbird_dna.huggingface.tensors import StoredTensor
from bigbird_dna.model.directory import build_network
from bigbird_dna.model.settings import Settings, Task

OWN_KEY = "bigbird_dna"  # of an exported config.json: what the model was here
UNUSED_FILE = "huggingface.safetensors"  # of an imported model: weights that no head reads

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
    """A class of HuggingFace's, the task that it is here, and the names of its head's parts."""

    name: str
    task: Task
    head: dict[str, str]
    prefix: str = "bert."  # of the encoder's tensors


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

# Names of one and the same tensor, the one that HuggingFace writes nowadays first.
TIED = (
    ("bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"),
    ("cls.predictions.bias", "cls.predictions.decoder.bias"),
)


def huggingface_name(name: str, architecture: Architecture) -> str | None:
    """The name there of the tensor that is called `name` here; None if it has none."""
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


def pooler_names(architecture: Architecture) -> tuple[str, str]:
    """The projection of [CLS], which most checkpoints have and only the next-sentence head reads."""
    return f"{architecture.prefix}pooler.weight", f"{architecture.prefix}pooler.bias"


def is_buffer(name: str) -> bool:
    """Whether older checkpoints hold it although it follows from the configuration."""
    return name.endswith(("embeddings.position_ids", "embeddings.token_type_ids"))


def is_attention_bias(name: str) -> bool:
    """Whether it is a bias that checkpoints with `use_bias: false` lack (a name here or there)."""
    return name.endswith(("query.bias", "key.bias", "value.bias"))


Shapes = dict[str, tuple[int, ...]]


def check_sizes(
    tensors: Mapping[str, StoredTensor], config: EncoderConfig, architecture: Architecture, directory: Path
) -> None:
    """`ModelError` unless the encoder's sizes are those of its embeddings and its layers are there."""
    for part, rows in (
        *(("token", config.vocabulary), ("position", config.max_length)),
        ("segment", config.segments),
    ):
        theirs = _theirs(f"encoder.embeddings.{part}.weight", architecture)
        check_tensor(tensors, theirs, (rows, config.hidden), directory)
    for layer in range(config.layers):
        theirs = _theirs(f"encoder.layers.{layer}.query.weight", architecture)
        check_tensor(tensors, theirs, (config.hidden, config.hidden), directory)


def expected_tensors(config: EncoderConfig, settings: Settings, architecture: Architecture) -> Shapes:
    """Shapes by the names there of the tensors of a network, which is not built for it."""
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        weights = build_network(config, settings).state_dict()
    return {_theirs(name, architecture): tuple(like.shape) for name, like in weights.items()}


def check_tensors(
    tensors: Mapping[str, StoredTensor],
    expected: Mapping[str, tuple[int, ...]],
    architecture: Architecture,
    directory: Path,
    *,
    biases: bool,
) -> None:
    """`ModelError` for a tensor that is missing, unexpected, of another shape or not floating point.

    Without `biases` those of attention may be missing.
    """
    for name, shape in expected.items():
        if biases or name in tensors or not is_attention_bias(name):
            check_tensor(tensors, name, shape, directory)
    hidden = expected[_theirs("encoder.embeddings.norm.weight", architecture)]
    unused = dict(zip(pooler_names(architecture), (hidden * 2, hidden), strict=True))
    for name in sorted(tensors.keys() - expected.keys()):
        if name not in unused:
            found = shortened(repr(name))
            raise ModelError(f"{directory}: unexpected tensor {found}: {architecture.name} has no such part")
        check_tensor(tensors, name, unused[name], directory)


def _theirs(name: str, architecture: Architecture) -> str:
    theirs = huggingface_name(name, architecture)
    assert theirs is not None, name
    return theirs


def check_tensor(
    tensors: Mapping[str, StoredTensor], name: str, shape: tuple[int, ...], directory: Path
) -> None:
    """`ModelError` unless a checkpoint has a tensor of this name and shape, of floating point."""
    if name not in tensors:
        raise ModelError(f"{directory}: tensor {name!r} is missing")
    found = tensors[name]
    if found.shape != shape:
        raise ModelError(
            f"{directory}: tensor {name!r} has shape {shortened(str(found.shape))}, "
            f"config.json asks for {shape}"
        )
    if found.dtype is None:
        raise ModelError(f"{directory}: tensor {name!r} is not floating point, or of a type that is not read")
