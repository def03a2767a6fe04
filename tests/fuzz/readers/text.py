"""Readers of the tasks on text: records, public data sets, predictions, figures, checkpoints, settings."""

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

from bigbird_dna.papers.nlp.answers.documents import AnswerReader, LongAnswersSettings
from bigbird_dna.papers.nlp.answers.public import read_public
from bigbird_dna.papers.nlp.config import AnswerForm, NlpConfig, parse_config, read_config
from bigbird_dna.papers.nlp.initialization import learn_tokenizer, write_bigbird
from bigbird_dna.papers.nlp.records import (
    ClassificationRecord,
    Kind,
    QuestionRecord,
    Record,
    SummaryRecord,
    TextRecord,
    read_records,
    write_objects,
)
from bigbird_dna.papers.nlp.report import report_tasks
from bigbird_dna.papers.nlp.summaries.pegasus import import_pegasus
from bigbird_dna.papers.nlp.task import find_task
from bigbird_dna.tokens.interface import Tokenizer
from tests.fuzz.containers import SAFETENSORS
from tests.fuzz.reader import Files, Reader, made, member
from tests.fuzz.readers.config import HOME
from tests.nlp.answers.test_public_answers import HOTPOT, NATURAL, TRIVIA, WIKIHOP

Values = dict[str, Any]
_JSON = (b"[[[[[[[[", b"1e999", b"NaN", b"\\ud800", b"-1", b"null", b"true", b"{}", b"[]", b'""', b"9" * 30)

_QUESTION: Values = {
    "id": "a",
    "question": "Where is it?",
    "paragraphs": [
        {"title": "One", "sentences": ["It is  here.", " Not there."]},
        {"sentences": ["é\u3000x"]},
    ],
    "answers": [{"text": "here", "paragraph": 0, "start": 7}, {"text": "there"}],
    "facts": [{"paragraph": 0, "sentence": 1}],
    "candidates": ["here", "there"],
    "long_answer": 1,
    "annotations": [{"answers": [{"text": "here"}], "long_answer": 0, "type": "short"}, {}],
}
_RECORDS: dict[Kind, list[Values]] = {
    "pretraining": [{"text": "one"}, {"id": "b", "text": "two é"}],
    "classification": [
        {"text": "one", "label": "good"},
        {"id": "b", "text": "two", "pair": "too", "label": "bad", "score": 1.5},
    ],
    "qa": [_QUESTION],
    "summaries": [{"document": "one two three", "summary": "two"}],
}
_TYPES: dict[Kind, type[Record]] = {
    **{"pretraining": TextRecord, "classification": ClassificationRecord},
    **{"qa": QuestionRecord, "summaries": SummaryRecord},
}
_ROWS: dict[AnswerForm, Values] = {
    "hotpotqa": HOTPOT,
    "natural_questions": NATURAL,
    "triviaqa": TRIVIA,
    "wikihop": WIKIHOP,
}
_SAID: dict[str, Values] = {
    "hotpotqa": {"id": "a", "answer": "there", "type": "span", "facts": [[0, 1]], "score": 0.5},
    "natural_questions": {
        **{"id": "a", "answer": "here", "type": "short", "long_answer": 1, "paragraph": 0},
        **{"long_score": 0.5, "score": 0.25, "start": 7},
    },
    "classification": {"id": "1", "label": "good", "probabilities": {"good": 1.0, "bad": 0.0}},
    "regression": {"id": "b", "score": 0.5},
    "summaries": {"id": "1", "summary": "two three"},
}
_FIGURES: Values = {
    **{"task": "text", "kind": "pretraining", "published": {"accuracy": 0.9}},
    "figures": {"bits": 2.0, "curve": [[10, 3.0], [20, 2.0]], "character_ngram": 2.5, "none": None},
}


def _lines(values: list[Values]) -> bytes:
    return "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in values).encode()


@functools.cache
def _tokenizer() -> Tokenizer:
    return learn_tokenizer(["It is here, not there."], 300)


def _read_records(kind: Kind) -> Callable[[Path], None]:
    sizes: dict[str, Any] = {"length": 32, "stride": 16, "question_tokens": 8, "answer_words": 30}

    def read(path: Path) -> None:
        reader = AnswerReader(_tokenizer(), LongAnswersSettings(form="span", **sizes))
        for record in read_records(path, _TYPES[kind]):
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


def _public(form: AnswerForm) -> bytes:
    row = json.dumps(_ROWS[form])
    return {"natural_questions": f"{row}\n", "triviaqa": f'{{"Data": [{row}, {row}]}}'}.get(
        form, f"[{row}, {row}]"
    ).encode()


def _judge(config: NlpConfig, records: list[Values]) -> Callable[[Path], None]:
    """Predictions of good records."""

    def read(path: Path) -> None:
        write_objects(path.with_name("records.jsonl"), records)
        find_task(config, "a").evaluate(path.with_name("records.jsonl"), path)

    return read


def _judged() -> list[Reader]:
    data = {"data": {"generated": {"train": 1, "valid": 1, "test": 1}}}
    made: list[tuple[str, Values, list[Values]]] = [
        (form, {"kind": "qa", "form": form}, [_QUESTION]) for form in ("hotpotqa", "natural_questions")
    ]
    made += [
        ("classification", {"kind": "classification"}, _RECORDS["classification"][:1]),
        ("regression", {"kind": "classification", "regression": True}, _RECORDS["classification"][1:]),
        ("summaries", {"kind": "summaries"}, _RECORDS["summaries"]),
    ]
    return [
        Reader(
            f"said-{name}",
            ".jsonl",
            _judge(parse_config({"tasks": {"a": {**keys, **data}}}), records),
            lambda name=name: [_lines([_SAID[name]])],  # type: ignore[misc]
            tokens=_JSON,
        )
        for name, keys, records in made
    ]


def _config(path: Path) -> None:
    config = read_config(path)
    for name in config.tasks:
        config.paths(name)


def _page(path: Path) -> None:
    report_tasks([path], path.with_name("page.html"))


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
    config = {"model_type": "roberta", "vocab_size": 8, "hidden_size": 4, "pad_token_id": 1}
    return {"config.json": json.dumps(config).encode(), "model.safetensors": save(tensors)}


@functools.cache
def _pegasus_files() -> Files:
    from tests.nlp.summaries.test_pegasus import theirs

    return made(theirs(1, encoder_layers=1, decoder_layers=1).save_pretrained)


def _write_bigbird(directory: Path) -> None:
    output = directory.with_name("bigbird")
    output.mkdir()
    write_bigbird(directory, output, 32)


READERS = [
    Reader("text-config", ".yaml", _config, lambda: [(HOME / "workflow/config/nlp.yaml").read_bytes()]),
    *(
        Reader(
            f"text-{kind}",
            ".jsonl",
            _read_records(kind),
            lambda records=records: [_lines(records)],  # type: ignore[misc]
            tokens=_JSON,
        )
        for kind, records in _RECORDS.items()
    ),
    *(
        Reader(
            f"public-{form}",
            ".json",
            _read_public(form),
            lambda form=form: [_public(form)],  # type: ignore[misc]
            tokens=(*_JSON, b'"Data"', b"../", b"\\u0000"),
        )
        for form in _ROWS
    ),
    *_judged(),
    Reader("text-figures", ".json", _page, lambda: [json.dumps(_FIGURES).encode()], tokens=_JSON),
    member("roberta-config", _roberta_files, "config.json", _write_bigbird, tokens=_JSON),
    member(
        *("roberta-weights", _roberta_files, "model.safetensors", _write_bigbird),
        container=SAFETENSORS,
        tokens=_JSON,
    ),
    *(
        member(f"pegasus-{name}", _pegasus_files, f"{name}.json", import_pegasus, tokens=_JSON)
        for name in ("config", "generation_config")
    ),
]
