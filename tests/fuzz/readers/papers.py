"""Readers of the papers' tasks that aren't of DNA: sequences, images, records of text."""

import functools
import json
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from safetensors.torch import save

from bigbird_dna.papers.experiments.byte_lm_files import (
    read_c4,
    read_cifar10,
    read_imagenet64,
    read_wiki40b,
)
from bigbird_dna.papers.experiments.long_range_arena import table
from bigbird_dna.papers.experiments.long_range_sequences import (
    read_listops,
    read_pathfinder,
)
from bigbird_dna.papers.nlp.answers.documents import AnswerReader, LongAnswersSettings
from bigbird_dna.papers.nlp.answers.public import read_public
from bigbird_dna.papers.nlp.config import AnswerForm, parse_config, read_config
from bigbird_dna.papers.nlp.initialization import learn_tokenizer, write_bigbird
from bigbird_dna.papers.nlp.records import Kind, QuestionRecord, read_records
from bigbird_dna.papers.nlp.report import report_tasks
from bigbird_dna.papers.nlp.summaries.pegasus import import_pegasus
from bigbird_dna.papers.nlp.task import find_task
from bigbird_dna.tokens.interface import Tokenizer
from tests.conftest import REPOSITORY
from tests.fuzz.reader import Container, Files, Reader, file_bytes, made, member, stored
from tests.papers.experiments import public_files as form

TASKS: dict[str, dict[str, Any]] = {
    **{kind: {"kind": kind} for kind in ("classification", "summaries")},
    "regression": {"kind": "classification", "regression": True},
    **{
        name: {"kind": "qa", "form": name} for name in ("hotpotqa", "natural_questions")
    },
}
"""Tasks whose predictions are read."""


def _parts(data: bytes) -> list[bytes]:
    found, place = [], 0
    while place < len(data):
        (size,) = struct.unpack("<Q", data[place : place + 8])
        found.append(data[place + 12 : place + 12 + size])
        place += 16 + size
    return found


TFRECORD = Container(_parts, lambda data, members: form.tfrecord(members))


def _pathfinder(path: Path) -> None:
    images = np.arange(3 * 16, dtype=np.uint8).reshape(3, 4, 4)
    np.savez_compressed(
        path,
        images=images,
        labels=np.array([0, 1, 1], np.uint8),
        distances=np.ones(3, np.float32),
    )


def _each(read: Callable[[Path], Iterable[object]]) -> Callable[[Path], None]:
    def run(path: Path) -> None:
        for _ in read(path):
            pass

    return run


@functools.cache
def _tokenizer() -> Tokenizer:
    return learn_tokenizer(["It is here, not there."], 300)


def _task(**keys: Any) -> Any:
    data = {"data": {"generated": {"train": 1, "valid": 1, "test": 1}}}
    return find_task(parse_config({"tasks": {"a": {**keys, **data}}}), "a")


def _read_records(kind: Kind) -> Callable[[Path], None]:
    sizes: dict[str, Any] = {
        "length": 32,
        "stride": 16,
        "question_tokens": 8,
        "answer_words": 30,
    }

    def read(path: Path) -> None:
        reader = AnswerReader(_tokenizer(), LongAnswersSettings(form="span", **sizes))
        for record in read_records(path, _task(kind=kind).record_type):
            assert all(isinstance(text, str | None) for text in record.texts)
            if isinstance(record, QuestionRecord):
                reader.windows(reader.document(record))

    return read


def _read_public(form: AnswerForm) -> Callable[[Path], None]:
    def read(path: Path) -> None:
        # TriviaQA's documents stand beside the directory of its questions.
        directory = path.parent / "qa"
        for name in ("wikipedia/Egypt.txt", "web/1/rivers.txt"):
            place = path.parent / "evidence" / name
            place.parent.mkdir(parents=True)
            place.write_text("The Nile flows.\nNorth.")
        directory.mkdir()
        for _ in read_public(form, path.rename(directory / path.name)):
            pass

    return read


def _judge(name: str) -> Callable[[Path], None]:
    """Predictions of good records."""

    def read(path: Path) -> None:
        lines = stored(f"text-{TASKS[name]['kind']}")[0].splitlines(keepends=True)
        chosen = {"classification": lines[:1], "regression": lines[1:]}.get(name, lines)
        path.with_name("records.jsonl").write_bytes(b"".join(chosen))
        _task(**TASKS[name]).evaluate(path.with_name("records.jsonl"), path)

    return read


def _config(path: Path) -> None:
    config = read_config(path)
    for name in config.tasks:
        config.paths(name)


def _roberta_files() -> dict[str, bytes]:
    """A masked-token model of one layer of width 4."""
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (8, 4),
        "embeddings.position_embeddings.weight": (6, 4),
        "embeddings.token_type_embeddings.weight": (1, 4),
        "encoder.layer.0.attention.self.query.weight": (4, 4),
    }
    tensors = {f"roberta.{name}": torch.ones(shape) for name, shape in shapes.items()}
    tensors["lm_head.bias"] = torch.ones(8)
    config = {
        "model_type": "roberta",
        "vocab_size": 8,
        "hidden_size": 4,
        "pad_token_id": 1,
    }
    return {
        "config.json": json.dumps(config).encode(),
        "model.safetensors": save(tensors),
    }


@functools.cache
def _pegasus_files() -> Files:
    from tests.nlp.summaries.test_pegasus import theirs

    return made(theirs(1, encoder_layers=1, decoder_layers=1).save_pretrained)


def _write_bigbird(directory: Path) -> None:
    output = directory.with_name("bigbird")
    output.mkdir()
    write_bigbird(directory, output, 32)


READERS = [
    Reader("listops", ".tsv", read_listops, tokens=(b"[", b"]", b"[MED")),
    Reader(
        "pathfinder", ".npz", read_pathfinder, lambda: file_bytes(".npz", _pathfinder)
    ),
    Reader(
        "cifar10",
        ".bin",
        lambda path: read_cifar10(path, 1000),
        lambda: [form.cifar10(form.images(2, 32), [3, 9])],
    ),
    Reader(
        "imagenet64",
        ".npz",
        lambda path: read_imagenet64(path, 1000),
        lambda: [form.imagenet64(form.images(1, 64))],
    ),
    Reader(
        "wiki40b",
        ".tfrecord",
        _each(read_wiki40b),
        lambda: [form.wiki40b(["one", "two"])],
        TFRECORD,
    ),
    Reader("c4", ".json.gz", _each(read_c4), tokens=(b'"text"',)),
    Reader("long-range-result", ".json", lambda path: table([path])),
    Reader(
        "text-config",
        ".yaml",
        _config,
        lambda: [(REPOSITORY / "workflow/config/nlp.yaml").read_bytes()],
    ),
    *(Reader(f"text-{kind}", ".jsonl", _read_records(kind)) for kind in get_args(Kind)),
    *(
        Reader(
            f"public-{form}",
            ".json",
            _read_public(form),
            tokens=(b'"Data"', b"../", b"\\u0000"),
        )
        for form in get_args(AnswerForm)
        if form != "span"
    ),
    *(Reader(f"said-{name}", ".jsonl", _judge(name)) for name in TASKS),
    Reader(
        "text-figures",
        ".json",
        lambda path: report_tasks([path], path.with_name("page.html")),
    ),
    *(
        member(f"roberta-{Path(name).stem}", _roberta_files, name, _write_bigbird)
        for name in ("config.json", "model.safetensors")
    ),
    *(
        member(f"pegasus-{name}", _pegasus_files, f"{name}.json", import_pegasus)
        for name in ("config", "generation_config")
    ),
]
