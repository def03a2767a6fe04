"""Text, tokenizers and checkpoints for the tests of tasks on text, and tasks learned in seconds."""

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import nn

from bigbird_dna.papers.nlp.trainer import train_tokenizer
from bigbird_dna.tokens.text import JsonTokenizer
from tests.cli.command import Run, refused
from tests.golden.messages import message
from tests.toys import written

LIBRARIES = ("accelerate", "datasets", "rouge_score", "transformers")

if not all(map(find_spec, LIBRARIES)):  # pip install 'bigbird-dna[nlp]'
    collect_ignore_glob = ["test_text_*.py"]

TEXT = (
    "The quick brown fox jumps over the lazy dog, and 7 dogs look on. It was the best of times, it was the "
    "worst of times; naïve café owners — some say — paid $3.50 for it.\nWhat then? Nobody knew."
)

THEIR_SIZES: dict[str, Any] = dict(
    hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48
)


@pytest.fixture(scope="session")
def text_tokenizer() -> JsonTokenizer:
    """A byte-pair encoding of a few sentences."""
    return train_tokenizer([TEXT] * 3, 340)


Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a configuration with these tasks."""

    def make(**tasks: Any) -> Path:
        values = {"results": str(tmp_path / "results"), "tasks": tasks}
        return written(tmp_path / "nlp.yaml", yaml.safe_dump(values))

    return make


def shuffle_weights(network: nn.Module, width: int, seed: int = 0) -> None:
    """Random weights that are large enough for attention to choose."""
    torch.manual_seed(seed)
    for part in network.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            part.weight.data.normal_(std=1.2 / width**0.5)
        if isinstance(part, nn.LayerNorm):
            part.weight.data.normal_(1, 0.1)
        if getattr(part, "bias", None) is not None:
            part.bias.data.normal_(0, 0.1)


def their_config(tokenizer: JsonTokenizer, **changes: Any) -> Any:
    """The configuration of a small BigBird of HuggingFace's."""
    import transformers

    ids = tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.sep_id
    names = ("pad_token_id", "bos_token_id", "eos_token_id", "sep_token_id")
    sizes = {
        "vocab_size": tokenizer.vocabulary,
        "max_position_embeddings": 1024,
        **THEIR_SIZES,
    }
    return transformers.BigBirdConfig(
        **{**sizes, **dict(zip(names, ids, strict=True)), **changes}
    )


@pytest.fixture
def roberta(tmp_path: Path) -> Path:
    """A small RoBERTa checkpoint with its tokenizer, as HuggingFace's library writes it."""
    import transformers
    from tokenizers import ByteLevelBPETokenizer

    directory = tmp_path / "roberta"
    directory.mkdir()
    pieces = ByteLevelBPETokenizer()
    names = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    pieces.train_from_iterator(
        [TEXT] * 3, 330, special_tokens=names, show_progress=False
    )
    pieces.save(str(directory / "tokenizer.json"))
    ids = {
        "pad_token_id": 1,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "vocab_size": pieces.get_vocab_size(),
    }
    sizes: dict[str, Any] = {
        **THEIR_SIZES,
        **ids,
        "layer_norm_eps": 1e-5,
        "max_position_embeddings": 130,
    }
    network = transformers.RobertaForMaskedLM(
        transformers.RobertaConfig(**sizes, type_vocab_size=1)
    )
    shuffle_weights(network, 32)
    network.tie_weights()
    network.save_pretrained(directory)
    return directory


TINY: dict[str, Any] = {
    "layers": 1,
    "hidden": 16,
    "heads": 2,
    "max_length": 128,
    "block_size": 16,
}
STEPS: dict[str, Any] = {"per_device_train_batch_size": 4, "max_steps": 3}
FAR: dict[str, Any] = {
    "kind": "classification",
    "data": {"generated": {"train": 12, "valid": 4, "test": 8, "words": 40}},
    "start": {"vocabulary": 300},
    "length": 96,
    "encoder": {**TINY, "random_blocks": 1},
    "training": STEPS,
    "published": {"accuracy": 0.5, "f1": 0.25},
}
ITC: dict[str, Any] = {**TINY, "block_size": 8, "random_blocks": 1}
ETC: dict[str, Any] = {
    **{**ITC, "attention": "bigbird_etc", "global_blocks": 0, "random_blocks": 0},
    **{"num_global_tokens": 40, "relative_max_distance": 2},
}
QUESTIONS: dict[str, Any] = {
    "kind": "qa",
    "data": {"generated": {"train": 8, "valid": 3, "test": 4, "words": 90}},
    "start": {"vocabulary": 400},
    "encoder": ITC,
    "length": 64,  # several windows
    "stride": 24,
    "training": STEPS,
}
SUMMARIES: dict[str, Any] = {
    "kind": "summaries",
    "data": {"generated": {"train": 6, "valid": 2, "test": 3, "words": 30}},
    "start": {"vocabulary": 320},
    "encoder": TINY,
    "document_tokens": 96,
    "summary_tokens": 12,
    "generation": {"num_beams": 2},
    "training": STEPS,
}


def read_public(form: Any, path: Path) -> list[Any]:
    """The records of a data set's own file."""
    from bigbird_dna.papers.nlp.data import converted, read_rows
    from bigbird_dna.papers.nlp.public import public_record
    from bigbird_dna.papers.nlp.records import QuestionRecord, parse_records

    rows = converted(read_rows(path), lambda row: public_record(form, row), path)
    lines = ((number, json.dumps(row)) for number, row in enumerate(rows, 1))
    return [*parse_records(lines, QuestionRecord, path)]


def write_lines(path: Path, *values: object) -> Path:
    """Write JSON lines."""
    return written(path, "".join(json.dumps(value) + "\n" for value in values))


def read_lines(path: Path) -> list[dict[str, Any]]:
    """What a file of JSON lines holds."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def figures(home: Path) -> dict[str, Any]:
    """What a task was evaluated to, by the directory of its files."""
    found: dict[str, Any] = json.loads((home / "evaluation.json").read_text())[
        "figures"
    ]
    return found


def mistake(
    run: Run,
    code: int,
    command: str,
    config: Path,
    task: str,
    *named: object,
    key: str = "",
) -> None:
    """A command of a task, with a `key=value` of its section, fails with one sentence that names these."""
    words = ["--set", f"tasks.{task}.{key}"] if key else []
    message(refused(run("nlp", command, config, "--task", task, *words), code), *named)


def done(
    run: Run, config: Path, task: str, *commands: str, more: tuple[object, ...] = ()
) -> str:
    """Carry out commands of a task, each of which must succeed; what the last one logged."""
    result = None
    for command in commands:
        threads = [] if command == "prepare" else ["--threads", 1]
        result = run("nlp", command, config, "--task", task, *threads, *more)
        assert (result.code, result.out) == (0, ""), result.err
    assert result is not None
    return result.err
