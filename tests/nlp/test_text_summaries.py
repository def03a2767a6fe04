"""Summarization by its commands: records, a model, summaries, figures; and what goes wrong."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from bigbird_dna.errors import ConfigError
from bigbird_dna.model.batching import pad
from bigbird_dna.model.directory import load
from bigbird_dna.papers.nlp.config import (
    GeneratedConfig,
    SummariesTaskConfig,
    SummariesTrainingConfig,
    TextPaths,
    parse_config,
    read_config,
)
from bigbird_dna.papers.nlp.data import FACTS, MARK, generate_facts
from bigbird_dna.papers.nlp.records import SummaryRecord, read_records
from bigbird_dna.papers.nlp.summarization import (
    IGNORED,
    SummariesObjective,
    Summarization,
    SummaryReader,
    decoder_input,
    rouge,
    split_sentences,
)
from bigbird_dna.papers.nlp.summarizer import Summarizer
from bigbird_dna.tokens.text import JsonTokenizer
from bigbird_dna.training.distributed import world
from tests.cli.command import Run
from tests.conftest import REPOSITORY
from tests.golden.messages import fails, message
from tests.nlp.conftest import (
    SUMMARIES,
    Write,
    done,
    figures,
    mistake,
    read_lines,
    write_lines,
)


def write_facts(write: Write, **changes: Any) -> Path:
    return write(facts=SUMMARIES | changes)


def test_summaries_from_records_to_figures(
    run: Run, write: Write, tmp_path: Path
) -> None:
    config = write_facts(write)
    done(run, config, "facts", "prepare", "train", "predict", "evaluate")
    home = tmp_path / "results/facts"
    true, predicted = (
        {one["id"]: one["summary"] for one in read_lines(home / name)}
        for name in ("data/test.jsonl", "predictions.jsonl")
    )
    assert [*predicted] == ["1", "2", "3"] == [*true]
    assert figures(home) == rouge([*true.values()], [*predicted.values()]) | {
        "records": 3
    }
    model = load(home / "model")
    assert model.task == "summaries"
    metrics = json.loads((home / "model/metrics.json").read_text())
    assert metrics["steps"] == 3 and metrics["loss"] > 0
    assert not list((home / "checkpoints").glob("*"))
    # A summarizer is a start as well, which has its tokenizer and its attention.
    (home / "model").rename(tmp_path / "first")
    start, training = {"model": str(tmp_path / "first")}, {"batch_size": 2, "steps": 1}
    wrong = write_facts(write, start=start | {"vocabulary": 320})
    mistake(run, 2, "train", wrong, "facts", "start: vocabulary 320")
    again = write_facts(write, start=start, training=training)
    log, *_ = done(run, again, "facts", "train").splitlines()
    message(log, tmp_path / "first")


def test_facts_stand_at_the_end_and_nowhere_else() -> None:
    made = [*generate_facts(GeneratedConfig(train=40, words=300, seed=3), "train")]
    assert made == [
        *generate_facts(GeneratedConfig(train=40, words=300, seed=3), "train")
    ]
    assert made != [
        *generate_facts(GeneratedConfig(train=40, words=300, seed=3), "valid")
    ]
    orders = set()
    for record in made:
        words = record["document"].split()
        assert len(words) == 300
        front, end = words[:-18], words[-18:]
        assert not {MARK, *FACTS} & {*front}
        assert {value for values in FACTS.values() for value in values} & {*front}
        found = {end[place + 1]: end[place + 2] for place in range(0, 18, 3)}
        assert {*end[::3]} == {MARK} and found.keys() == FACTS.keys()
        assert record["summary"] == " ".join(
            f"{name} {found[name]}" for name in sorted(FACTS)
        )
        orders.add(tuple(found))
    assert len(orders) > 30
    assert all(len({*values}) == 16 for values in FACTS.values())
    with fails(ConfigError):
        next(
            generate_facts(
                GeneratedConfig(words=20).model_copy(update={"words": 18}), "train"
            )
        )


FOX = "the quick brown fox"


def test_rows_of_documents_and_summaries(text_tokenizer: JsonTokenizer) -> None:
    cls, sep = text_tokenizer.cls_id, text_tokenizer.sep_id
    ids = text_tokenizer.encode(FOX).tolist()
    first = SummaryReader(text_tokenizer, "base", "first")
    assert first.document(FOX, 99).tolist() == [cls, *ids, sep]
    assert first.document(FOX, 6).tolist() == [cls, *ids[:4], sep]
    last = first._replace(keep="last")
    assert last.document(FOX, 6).tolist() == [cls, *ids[-4:], sep]
    pegasus = first._replace(form="pegasus")
    assert pegasus.document(FOX, 6).tolist() == [*ids[:5], sep]
    assert first.summary(FOX, 6).tolist() == [*ids[:4], sep]
    assert first.text([*ids, sep]) == FOX
    rows, _ = pad([first.summary("the fox", 50), first.summary(FOX, 5)], IGNORED)
    before = decoder_input(rows, text_tokenizer)
    for said, read in zip(rows.tolist(), before.tolist(), strict=True):
        true = [token for token in said if token != IGNORED]
        assert read[: len(true)] == [cls, *true[:-1]]
        assert {*read[len(true) :]} <= {text_tokenizer.pad_id, sep}


@pytest.mark.parametrize(
    ("true", "predicted", "wanted"),
    [
        ("the cat sat on the mat", "the cat sat on the mat", (1, 1, 1, 1)),
        # 2 of 2 words and 2 of 3; one pair of one, and of two
        ("the cat sat", "the cat", (0.8, 2 / 3, 0.8, 0.8)),
        # the same words, the other way round: of the subsequence one is left
        ("cat mat", "mat cat", (1, 0, 0.5, 0.5)),
        # words count as often as they stand in both
        ("a a b", "a b b", (2 / 3, 0.5, 2 / 3, 2 / 3)),
        # stems, case and signs
        ("Runs, jumping!", "run jumped", (1, 1, 1, 1)),
        ("word", "", (0, 0, 0, 0)),
        ("word", "...", (0, 0, 0, 0)),
        ("one two", "three four", (0, 0, 0, 0)),
    ],
)
def test_rouge_by_hand(true: str, predicted: str, wanted: tuple[float, ...]) -> None:
    found = rouge([true], [predicted])
    assert [*found] == ["rouge1", "rouge2", "rougeL", "rougeLsum"]
    assert [*found.values()] == pytest.approx(wanted)


def test_rouge_goes_by_sentences_and_is_a_mean() -> None:
    found = rouge(["The dog barks. A cat sleeps."], ["A cat sleeps. The dog barks."])
    assert found["rougeLsum"] == 1 and found["rougeL"] == pytest.approx(0.5)
    assert rouge(["cat", "dog"], ["cat", "mat"])["rouge1"] == 0.5
    assert (
        split_sentences("One. Two! Three? 3.5 is four")
        == "One.\nTwo!\nThree?\n3.5 is four"
    )
    assert (
        split_sentences("One. Still one\nTwo\n\n") == "One. Still one\nTwo"
        and split_sentences("  ") == ""
    )


def test_a_step_is_a_function_of_its_number_and_its_parts_add_up(
    text_tokenizer: JsonTokenizer, tmp_path: Path
) -> None:
    records = [
        {"document": "a lazy dog " * (2 + n), "summary": "dog " * (1 + n % 3)}
        for n in range(9)
    ]
    paths = TextPaths(tmp_path, "a")
    paths.data.mkdir(parents=True)
    write_lines(paths.split("train"), *records)
    write_lines(paths.split("valid"), *records[:2])
    stages = {"length_curriculum": [{"steps": 2, "tokens": 16}]}
    values = {"steps": 9, "batch_size": 4, **stages}
    section = {
        **{
            "kind": "summaries",
            "data": {"generated": {}},
            "training": values,
            "keep": "last",
        },
        "start": {"vocabulary": 300},
        "encoder": {
            "layers": 1,
            "hidden": 16,
            "heads": 2,
            "max_length": 64,
            "dropout": 0.0,
        },
        **{"document_tokens": 40, "search": {"max_length": 6}},
    }
    task = Summarization(
        parse_config({"results": str(tmp_path), "tasks": {"a": section}}), "a"
    )
    torch.manual_seed(0)
    network = Summarizer(task.encoder).double()
    with world("cpu") as here, torch.no_grad():
        objective = SummariesObjective(task, here)
        widths = [objective.batch(step, 0, 4)["ids"].shape[1] for step in range(4)]
        assert max(widths[:2]) <= 16 < max(widths[2:]) <= 40
        batch = objective.batch(3, 0, 4)
        assert all(
            torch.equal(batch[key], value)
            for key, value in objective.batch(3, 0, 4).items()
        )
        totals = objective.counts(batch)
        whole = objective.loss(network, batch, totals)
        parts = [
            objective.part(batch, torch.tensor(rows)) for rows in ([0, 2], [1], [3])
        ]
        assert (
            sum(objective.counts(part)["tokens"] for part in parts) == totals["tokens"]
        )
        added = sum(float(objective.loss(network, part, totals)) for part in parts)
        assert added == pytest.approx(float(whole), rel=1e-6)
        logits = network(
            batch["ids"],
            batch["lengths"],
            decoder_input(batch["labels"], task.tokenizer),
        )
        logs = F.log_softmax(logits, -1)[batch["labels"] != IGNORED]
        wanted = batch["labels"][batch["labels"] != IGNORED]
        by_hand = -logs[range(len(logs)), wanted].mean()
        assert float(whole) == pytest.approx(float(by_hand), rel=1e-6)
        found = objective.evaluate(network.eval())
        assert 0 <= found["token_accuracy"] <= 1 and found["loss"] > 0


@pytest.mark.slow
def test_facts_at_the_end_of_3000_tokens_are_found(run: Run, tmp_path: Path) -> None:
    config = REPOSITORY / "workflow/config/nlp.yaml"
    home = ("--set", f"results={tmp_path}")
    done(run, config, "facts", "prepare", "train", "predict", "evaluate", more=home)
    records = read_records(tmp_path / "facts/data/test.jsonl", SummaryRecord)
    assert min(len(record.document.split()) for record in records) == 3000
    assert figures(tmp_path / "facts")["rougeL"] > 0.8
    # Who reads the first thousand tokens alone knows the form of a summary, and no fact.
    blind = (
        "--set",
        "tasks.facts.keep=first",
        "--set",
        "tasks.facts.document_tokens=1000",
    )
    done(run, config, "facts", "predict", "evaluate", more=(*home, *blind))
    assert figures(tmp_path / "facts")["rougeL"] < 0.75


def test_shorter_documents_leave_some_steps_of_an_epoch_too() -> None:
    stages = '"length_curriculum": [{"steps": 9, "tokens": 32}], "batch_size": 4'
    config = SummariesTrainingConfig.model_validate_json(f'{{"epochs": 1.0, {stages}}}')
    assert config.for_records(40).steps == 10
    with fails(ConfigError):
        config.for_records(36)
    with fails(ValueError):
        SummariesTrainingConfig.model_validate_json(f'{{"steps": 9, {stages}}}')


def test_the_published_settings_are_those_of_the_paper() -> None:
    tasks = read_config(REPOSITORY / "workflow/config/nlp.yaml").tasks
    found = {
        name: (
            task.document_tokens,
            task.search.max_length,
            task.search.beams,
            task.training.batch_size,
        )
        for name, task in tasks.items()
        if isinstance(task, SummariesTaskConfig) and task.data.hub
    }
    long = (3072, 256, 5, 128)
    assert found == {
        **dict.fromkeys(("arxiv", "pubmed", "bigpatent"), long),
        "xsum": (1024, 64, 5, 128),
        "cnn-dailymail": (2048, 128, 5, 128),
    }
