"""Summarisation by its commands: records, a model, summaries, figures; and what goes wrong."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
import yaml
from torch.nn import functional as F

from bigbird_dna.config import EncoderConfig
from bigbird_dna.errors import ConfigError, DataError
from bigbird_dna.model.directory import load
from bigbird_dna.nlp.config import read_config
from bigbird_dna.nlp.records import SummaryRecord, read_objects
from bigbird_dna.nlp.sections import GeneratedConfig
from bigbird_dna.nlp.summaries.generated import FACTS, MARK, generate_facts
from bigbird_dna.nlp.summaries.importing import import_pegasus
from bigbird_dna.nlp.summaries.objective import Lengths, SummariesObjective
from bigbird_dna.nlp.summaries.rouge import rouge
from bigbird_dna.nlp.summaries.rows import IGNORED, Reader, labels, read_summarised, said_before
from bigbird_dna.nlp.summaries.sections import SummariesTask, SummariesTrainingConfig
from bigbird_dna.nlp.summaries.settings import Form, SpecialIds
from bigbird_dna.nlp.summaries.shared import SharedSummariser
from bigbird_dna.nlp.summaries.task import TASK
from bigbird_dna.tokens.json_tokenizer import JsonTokenizer
from bigbird_dna.training.distributed import world
from tests.cli.command import Run, refused
from tests.conftest import REPOSITORY

FACTS_TASK: dict[str, Any] = {
    "kind": "summaries",
    "data": {"generated": {"train": 6, "valid": 2, "test": 3, "words": 30}},
    "start": {"vocabulary": 320},
    "encoder": {"layers": 1, "hidden": 16, "heads": 2, "positions": 128, "block_size": 16},
    "document_tokens": 96,
    "search": {"beams": 2, "max_length": 12},
    "training": {"batch_size": 2, "steps": 3, "shorter_first": [{"steps": 1, "tokens": 32}]},
}
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a configuration with the task `facts`, some of its keys changed."""

    def make(**changes: Any) -> Path:
        path = tmp_path / "nlp.yaml"
        tasks = {"facts": FACTS_TASK | changes}
        path.write_text(yaml.safe_dump({"results": str(tmp_path / "results"), "tasks": tasks}))
        return path

    return make


def done(run: Run, command: str, config: Path, *more: object) -> str:
    result = run("nlp", command, config, "--task", "facts", *more)
    assert (result.code, result.out) == (0, ""), result.err
    return result.err


@pytest.mark.parametrize("form", ["base", "pegasus"])
def test_summaries_from_records_to_figures(run: Run, write: Write, tmp_path: Path, form: str) -> None:
    config = write(form=form)
    for command in ("prepare", "finetune", "predict", "evaluate"):
        done(run, command, config)
    home = tmp_path / "results/facts"
    predicted = dict(_read(home / "predictions.jsonl", "summary"))
    true = dict(_read(home / "data/test.jsonl", "summary"))
    assert [*predicted] == ["1", "2", "3"] == [*true]
    figures = json.loads((home / "evaluation.json").read_text())["figures"]
    assert figures == rouge([*true.values()], [*predicted.values()]) | {"records": 3}
    model = load(home / "model")
    assert model.task == "summaries"
    metrics = json.loads((home / "model/metrics.json").read_text())
    assert metrics["steps"] == 3 and metrics["loss"] > 0
    assert not list((home / "checkpoints").glob("*"))
    # A summariser is a start as well, which has its tokenizer and its attention.
    (home / "model").rename(tmp_path / "first")
    for key, value in (("vocabulary", 320), ("compatibility", "none"), ("tokenizer", "x.json")):
        wrong = write(form=form, start={"model": str(tmp_path / "first"), key: value})
        refused(
            run("nlp", "finetune", wrong, "--task", "facts"),
            2,
            f"start.{key} {value} has no effect: ",
            "first",
        )
    again = write(form=form, start={"model": str(tmp_path / "first")}, training={"batch_size": 2, "steps": 1})
    assert "its weights are the start" in done(run, "finetune", again)


def _read(path: Path, key: str) -> list[tuple[str, str]]:
    return [(values["id"], values[key]) for _, values in read_objects(path)]


@pytest.fixture
def pegasus(tmp_path: Path) -> Path:
    """A checkpoint of BigBird-Pegasus with its tokenizer."""
    import transformers
    from tokenizers import ByteLevelBPETokenizer

    directory = tmp_path / "pegasus"
    pieces = ByteLevelBPETokenizer()
    names = ["<pad>", "</s>", "<s>", "<unk>"]
    pieces.train_from_iterator(["a lazy dog"] * 3, 300, special_tokens=names, show_progress=False)
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"vocab_size": pieces.get_vocab_size(), "d_model": 16, "block_size": 8}
    for part in ("encoder", "decoder"):
        sizes |= {f"{part}_layers": 1, f"{part}_ffn_dim": 24, f"{part}_attention_heads": 2}
    config = transformers.BigBirdPegasusConfig(**sizes, max_position_embeddings=128)
    model = transformers.BigBirdPegasusForConditionalGeneration(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    model.save_pretrained(directory)
    pieces.save(str(directory / "tokenizer.json"))
    return directory


def test_a_checkpoint_of_pegasus_summarises_and_is_trained_further(
    run: Run, write: Write, tmp_path: Path, pegasus: Path
) -> None:
    # The decoder's shape and the encoder's are the checkpoint's.
    training = {"batch_size": 2, "steps": 1, "optimizer": {"learning_rate": 1e-12}}
    start = {"model": str(pegasus), "compatibility": "huggingface"}
    config = write(form="pegasus", start=start, encoder={}, training=training)
    done(run, "prepare", config)
    direct, trained = tmp_path / "direct.jsonl", tmp_path / "trained.jsonl"
    done(run, "predict", config, "--model", pegasus, "-o", direct)
    done(run, "finetune", config)
    done(run, "predict", config, "-o", trained)
    assert direct.read_bytes() == trained.read_bytes()
    weights = load(tmp_path / "results/facts/model").network.state_dict()
    theirs = import_pegasus(pegasus).network.state_dict()
    assert all(torch.allclose(weights[name], theirs[name], atol=1e-9) for name in theirs)
    wrong = write(form="pegasus", start={**start, "vocabulary": 300}, encoder={})
    refused(run("nlp", "finetune", wrong, "--task", "facts"), 2, "start.vocabulary 300 has no effect: ")
    wrong = write(form="base", start=start, encoder={})
    refused(run("nlp", "finetune", wrong, "--task", "facts"), 2, "form base:", "is of the form pegasus")
    wrong = write(form="pegasus", start=start, encoder={"layers": 3})
    refused(run("nlp", "finetune", wrong, "--task", "facts"), 2, "encoder.layers 3:", "has 1")


def test_mistakes_are_one_sentence(run: Run, write: Write, tmp_path: Path) -> None:
    config = write()
    done(run, "prepare", config)
    home = tmp_path / "results/facts"
    for key, value in (("document_tokens", 129), ("search.max_length", 129)):
        result = run("nlp", "finetune", config, "--task", "facts", "--set", f"tasks.facts.{key}={value}")
        refused(result, 2, f"{key} {value} is above the model's 128 positions")
    result = run("nlp", "finetune", config, "--task", "facts", "--set", "tasks.facts.search.min_length=12")
    refused(result, 2, "min_length 12, max_length 12: no summary has such a length")
    train = home / "data/train.jsonl"
    rows = train.read_text().splitlines()
    for first, said in (
        ('{"id": "1", "document": "a"}', "record '1' has no summary"),
        ('{"id": "2", "document": "a", "summary": "b"}', "record '2' stands twice"),
        ('{"id": "1", "document": "", "summary": "b"}', "line 1: document"),
        ('{"id": "1", "text": "a", "summary": "b"}', "line 1"),
    ):
        train.write_text("\n".join([first, *rows[1:]]) + "\n")
        refused(run("nlp", "finetune", config, "--task", "facts"), 1, "train.jsonl: ", said)
    predictions = tmp_path / "predictions.jsonl"
    for lines, said in (
        (['{"id": "1", "summary": "a"}'], "has no prediction for record '2'"),
        (['{"id": "1", "summary": "a"}'] * 2, "line 2: record '1' is predicted twice"),
        (['{"id": "1"}'], "line 1: has no id or no summary"),
    ):
        predictions.write_text("\n".join(lines) + "\n")
        result = run("nlp", "evaluate", config, "--task", "facts", "--predictions", predictions)
        refused(result, 1, "predictions.jsonl: ", said)
    assert not (home / "model").exists() and not (home / "evaluation.json").exists()


def test_facts_stand_at_the_end_and_nowhere_else() -> None:
    made = [*generate_facts(GeneratedConfig(train=40, words=300, seed=3), "train")]
    assert made == [*generate_facts(GeneratedConfig(train=40, words=300, seed=3), "train")]
    assert made != [*generate_facts(GeneratedConfig(train=40, words=300, seed=3), "valid")]
    orders = set()
    for record in made:
        words = record["document"].split()
        assert len(words) == 300
        front, end = words[:-18], words[-18:]
        assert not {MARK, *FACTS} & {*front}
        assert {value for values in FACTS.values() for value in values} & {*front}
        found = {end[place + 1]: end[place + 2] for place in range(0, 18, 3)}
        assert {*end[::3]} == {MARK} and found.keys() == FACTS.keys()
        assert record["summary"] == " ".join(f"{name} {found[name]}" for name in sorted(FACTS))
        orders.add(tuple(found))
    assert len(orders) > 30
    assert all(len({*values}) == 16 for values in FACTS.values())
    with pytest.raises(ConfigError, match="the facts alone take 18 words"):
        next(generate_facts(GeneratedConfig(words=20).model_copy(update={"words": 18}), "train"))


@pytest.mark.parametrize(
    "row",
    [
        {"document": "d", "summary": "s", "id": "7"},  # XSum
        {"article": "d", "abstract": "s"},  # arXiv, PubMed
        {"description": "d", "abstract": "s"},  # BigPatent
        {"article": "d", "highlights": "s", "id": "7"},  # CNN/DailyMail
    ],
)
def test_rows_of_public_data_sets_are_records(row: dict[str, str]) -> None:
    settings = SummariesTask.model_validate_json(json.dumps(FACTS_TASK))
    assert TASK.record(settings, row) == {"document": "d", "summary": "s"}
    assert TASK.record(settings, {**row, **{key: " " for key, value in row.items() if value == "s"}}) is None
    with pytest.raises(DataError, match="none of the columns summary, abstract, highlights"):
        TASK.record(settings, {key: value for key, value in row.items() if value != "s"})


def test_rows_of_documents_and_summaries(text_tokenizer: JsonTokenizer) -> None:
    special = SpecialIds(start=2, end=3, pad=0)
    ids = text_tokenizer.encode("the quick brown fox").tolist()
    first = Reader(text_tokenizer, special, "base", "first")
    assert first.document("the quick brown fox", 99).tolist() == [2, *ids, 3]
    assert first.document("the quick brown fox", 6).tolist() == [2, *ids[:4], 3]
    assert first._replace(keep="last").document("the quick brown fox", 6).tolist() == [2, *ids[-4:], 3]
    assert first._replace(form="pegasus").document("the quick brown fox", 6).tolist() == [*ids[:5], 3]
    assert first.summary("the quick brown fox", 6).tolist() == [*ids[:4], 3]
    assert first.text([*ids, 3]) == "the quick brown fox"
    rows = labels([first.summary("the fox", 50), first.summary("the quick brown fox", 5)])
    before = said_before(rows, special)
    for said, read in zip(rows.tolist(), before.tolist(), strict=True):
        true = [token for token in said if token != IGNORED]
        assert read[: len(true)] == [2, *true[:-1]] and {*read[len(true) :]} <= {0, 3}


def test_a_step_is_a_function_of_its_number_and_its_parts_add_up(text_tokenizer: JsonTokenizer) -> None:
    records = [
        SummaryRecord(document="a lazy dog " * (2 + n), summary="dog " * (1 + n % 3)) for n in range(9)
    ]
    reader = Reader(text_tokenizer, SpecialIds(start=2, end=3, pad=0), "base", "last")
    config = SummariesTrainingConfig.model_validate_json(
        '{"steps": 9, "batch_size": 4, "label_smoothing": 0.1, "shorter_first": [{"steps": 2, "tokens": 16}]}'
    )
    torch.manual_seed(0)
    encoder = EncoderConfig(
        vocabulary=text_tokenizer.vocabulary, layers=1, hidden=16, heads=2, positions=64, dropout=0.0
    )
    network = SharedSummariser(encoder).double()
    with world("cpu") as here, torch.no_grad():
        objective = SummariesObjective(reader, records, records[:2], Lengths(40, 6), config, here)
        widths = [objective.batch(step, 0, 4)["ids"].shape[1] for step in range(4)]
        assert max(widths[:2]) <= 16 < max(widths[2:]) <= 40
        batch = objective.batch(3, 0, 4)
        assert all(torch.equal(batch[key], value) for key, value in objective.batch(3, 0, 4).items())
        totals = objective.counts(batch)
        whole = objective.loss(network, batch, totals)
        parts = [objective.part(batch, torch.tensor(rows)) for rows in ([0, 2], [1], [3])]
        assert sum(objective.counts(part)["tokens"] for part in parts) == totals["tokens"]
        added = sum(float(objective.loss(network, part, totals)) for part in parts)
        assert added == pytest.approx(float(whole), rel=1e-6)
        # By hand: 0.9 of the true token's and 0.1 of the mean over all tokens.
        logits = network(batch["ids"], batch["lengths"], said_before(batch["labels"], reader.special))
        logs = F.log_softmax(logits, -1)[batch["labels"] != IGNORED]
        wanted = batch["labels"][batch["labels"] != IGNORED]
        by_hand = -(0.9 * logs[range(len(logs)), wanted] + 0.1 * logs.mean(-1)).mean()
        assert float(whole) == pytest.approx(float(by_hand), rel=1e-6)
        figures = objective.evaluate(network.eval())
        assert 0 <= figures["token_accuracy"] <= 1 and figures["loss"] > 0


@pytest.mark.slow
def test_facts_at_the_end_of_3000_tokens_are_found(run: Run, tmp_path: Path) -> None:
    config = REPOSITORY / "workflow/config/nlp.yaml"
    home = ["--set", f"results={tmp_path}"]
    for command in ("prepare", "finetune", "predict", "evaluate"):
        done(run, command, config, *home)
    assert (
        min(len(record.document.split()) for record in read_summarised(tmp_path / "facts/data/test.jsonl"))
        == 3000
    )
    figures = json.loads((tmp_path / "facts/evaluation.json").read_text())["figures"]
    assert figures["rougeL"] > 0.8
    # Who reads the first thousand tokens alone knows the form of a summary, and no fact.
    blind = ["--set", "tasks.facts.keep=first", "--set", "tasks.facts.document_tokens=1000"]
    for command in ("predict", "evaluate"):
        done(run, command, config, *home, *blind)
    figures = json.loads((tmp_path / "facts/evaluation.json").read_text())["figures"]
    assert figures["rougeL"] < 0.75


def test_shorter_documents_leave_some_steps_of_an_epoch_too() -> None:
    stages = '"shorter_first": [{"steps": 9, "tokens": 32}], "batch_size": 4'
    config = SummariesTrainingConfig.model_validate_json(f'{{"epochs": 1.0, {stages}}}')
    assert config.for_records(40).steps == 10
    with pytest.raises(ConfigError, match=r"training\.shorter_first takes 9 steps and leaves none of the 9 "):
        config.for_records(36)
    with pytest.raises(ValueError, match="shorter_first takes 9 steps and leaves none of the 9"):
        SummariesTrainingConfig.model_validate_json(f'{{"steps": 9, {stages}}}')


def test_the_page_names_the_forms_that_there_are() -> None:
    page = (REPOSITORY / "docs/nlp.md").read_text()
    assert "Of tasks of kind `summaries`, `form` is `{}` or `{}`".format(*get_args(Form)) in page


def test_the_published_settings_are_those_of_the_paper() -> None:
    tasks = read_config(REPOSITORY / "workflow/config/nlp.yaml").tasks
    found = {
        name: (task.document_tokens, task.search.max_length, task.search.beams, task.training.batch_size)
        for name, task in tasks.items()
        if isinstance(task, SummariesTask) and task.data.hub
    }
    long = (3072, 256, 5, 128)
    assert found == {
        **dict.fromkeys(("arxiv", "pubmed", "bigpatent"), long),
        "xsum": (1024, 64, 5, 128),
        "cnn-dailymail": (2048, 128, 5, 128),
    }
