"""Pretraining on text: characters of tokens, what predictors make of them, and the command's way."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bigbird_dna.errors import ConfigError, DataError
from bigbird_dna.model.directory import load
from bigbird_dna.papers.nlp.config import InstalledConfig, PretrainingTaskConfig, parse_config
from bigbird_dna.papers.nlp.initialization import open_tokenizer
from bigbird_dna.papers.nlp.loading import installed_documents
from bigbird_dna.papers.nlp.pretraining import character_ngram, characters, tokenize_records
from bigbird_dna.tokens.interface import TextPieces
from bigbird_dna.tokens.text import JsonTokenizer
from tests.cli.command import Run
from tests.golden.messages import fails
from tests.nlp.conftest import TEXT, Write
from tests.nlp.tiny import TINY, done, figures, write_lines
from tests.tokens.text_model import text_model


def write_texts(path: Path, *texts: str) -> Path:
    return write_lines(path, *({"text": text} for text in texts))


def test_characters_of_tokens_add_up_to_the_text(tmp_path: Path, text_tokenizer: JsonTokenizer) -> None:
    texts = (TEXT, "é🔑 x  ", "plain words")
    found = tokenize_records(write_texts(tmp_path / "a.jsonl", *texts), text_tokenizer)
    assert found.texts == texts and found.widths.min() >= 0
    for text, start, end in zip(texts, found.sentences, found.sentences[1:], strict=False):
        assert found.widths[start:end].sum() == len(text)
    # "é" is two bytes: the first of its tokens has the character.
    pieces = text_tokenizer.text_pieces("é")
    assert characters(pieces, 1).tolist() == [1] + [0] * (len(pieces.ids) - 1)


def test_white_space_that_a_tokenizer_leaves_out_is_counted() -> None:
    # As WordPiece gives "ab  cd ": nothing for spaces.
    pieces = TextPieces(np.array([5, 6], np.int32), np.array([0, 4]), np.array([2, 6]))
    assert characters(pieces, 7).tolist() == [2, 5]
    empty = np.zeros(0, np.int64)
    assert characters(TextPieces(empty.astype(np.int32), empty, empty), 0).tolist() == []


def test_pieces_of_a_sentencepiece_model_say_their_characters(tmp_path: Path) -> None:
    path = tmp_path / "spiece.model"
    path.write_bytes(text_model("the cat sat on the mat", 40))
    tokenizer = open_tokenizer(path)
    text = "the é cat ☃ sat"
    pieces = tokenizer.text_pieces(text)
    assert pieces.ids.tolist() == tokenizer.encode(text).tolist()
    assert characters(pieces, len(text)).sum() == len(text)
    for begin, end, index in zip(pieces.starts, pieces.ends, pieces.ids, strict=True):
        piece = tokenizer.pieces[index].replace("▁", " ").strip()
        assert index == tokenizer.unk_id or text[begin:end].strip() == piece


def test_the_character_ngram_gives_tokens_the_bits_of_their_characters(
    tmp_path: Path, text_tokenizer: JsonTokenizer
) -> None:
    train, valid, judged = (
        tokenize_records(write_texts(tmp_path / f"{name}.jsonl", *texts), text_tokenizer)
        for name, texts in (("a", [TEXT] * 2), ("b", [TEXT[:90]]), ("c", [TEXT[20:80], "Zz the fox"]))
    )
    found = character_ngram(train, valid, judged, 4)
    best = min(found.orders, key=found.orders.__getitem__)
    assert set(found.orders) == {1, 2, 3, 4} and found.order == best
    assert found.tokens.shape == judged.tokens.shape
    length = sum(map(len, judged.texts))
    assert found.tokens.sum() / length == pytest.approx(found.per_character)
    # An order-1 model is the letters' frequencies, but for smoothing: far from the best here.
    assert found.orders[4] < found.orders[1]


def test_python_documentation_is_split_by_topic() -> None:
    config = InstalledConfig(text="python", valid=("numbers",), test=("import",))
    parts = {split: [*installed_documents(config, split)] for split in ("train", "valid", "test")}
    assert [record["id"] for record in parts["valid"]] == ["numbers"] and len(parts["train"]) > 40
    assert not {record["id"] for record in parts["train"]} & {"numbers", "import"}
    with fails(Exception):
        [*installed_documents(InstalledConfig(text="python", valid=("nothing",), test=("x",)), "train")]


def test_the_bible_is_split_by_book() -> None:
    config = InstalledConfig(text="bible", valid=("Ruth",), test=("John",))
    try:
        ruth = [*installed_documents(config, "valid")]
    except DataError:
        pytest.skip("Debian's bible-kjv is not installed")
    assert [record["id"] for record in ruth] == ["Ruth1", "Ruth2", "Ruth3", "Ruth4"]
    assert ruth[0]["text"].startswith("Now it came to pass in the days when the judges ruled")


def test_pretraining_on_text_from_its_records_to_figures(run: Run, write: Write, tmp_path: Path) -> None:
    texts = [TEXT * 4, "A second document, which says little. " * 9]
    splits = ("train", "valid", "test")
    files = {split: str(write_texts(tmp_path / f"{split}.jsonl", *texts)) for split in splits}
    steps = {"batch_size": 4, "steps": 6, "evaluate_every": 3, "checkpoint_every": 3}
    config = write(
        mlm={
            **{"kind": "pretraining", "data": {"files": files}, "start": {"vocabulary": 320}},
            "encoder": {**TINY, "hidden": 32, "max_length": 64},
            "character_order": 3,
            "training": {**steps, "sequence_tokens": 48, "evaluation_sequences": 8, "ngram_order": 2},
        }
    )
    done(run, config, "mlm", "prepare", "pretrain", "evaluate")
    home = tmp_path / "results/mlm"
    found = figures(home)
    metrics = json.loads((home / "model/metrics.json").read_text())
    # The same hidden tokens of the same documents.
    assert found["bits_per_character"] == pytest.approx(metrics["bits_per_character"], rel=1e-4)
    assert [step for step, _ in found["curve"]] == [3, 6]
    assert found["token_ngram_both_sides"] > 0 and found["told_token_ngram_left"] > 0
    assert found["hidden_characters"] >= found["hidden_tokens"] > 0
    model = load(home / "model")
    assert model.task == "pretraining" and not model.tokenizer.is_dna
    page = tmp_path / "page.html"
    assert run("nlp", "report", home / "evaluation.json", "-o", page).code == 0
    assert "<polyline" in page.read_text() and "character ngram" in page.read_text()


TASK: dict[str, Any] = {"kind": "pretraining", "data": {"files": {"train": "a", "valid": "b", "test": "c"}}}


def task_of(**training: Any) -> PretrainingTaskConfig:
    task = parse_config({"tasks": {"mlm": {**TASK, "training": training}}}).task("mlm")
    assert isinstance(task, PretrainingTaskConfig)
    return task


def test_shorter_inputs_come_first_of_the_steps_that_epochs_are() -> None:
    stages = [{"steps": 5000, "tokens": 128}]
    # The default of `steps`, 1,000, says nothing here.
    training = task_of(epochs=40.0, sequence_tokens=512, length_curriculum=stages).training
    known = training.for_records(8000)
    assert known.steps == 10_000 and known.tokens_at(4999) == 128 and known.tokens_at(5000) == 512
    with fails(ConfigError, "training.length_curriculum", 5000, 400, "epochs 40.0", "records 320"):
        training.for_records(320)
    with fails(ConfigError):
        task_of(steps=5000, sequence_tokens=512, length_curriculum=stages)
    with fails(ConfigError):
        task_of(epochs=1.0, sequence_tokens=512, length_curriculum=[{"steps": 5, "tokens": 512}])


def test_pretraining_watches_inputs_not_records() -> None:
    with fails(ConfigError):
        task_of(evaluation_records=1)
    assert "evaluation_records" not in task_of().model_dump()["training"]
