"""Names of BigBird's weights here and in HuggingFace's checkpoints."""

from typing import NamedTuple

from bigbird_dna.model.settings import Task

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
