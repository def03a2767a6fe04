"""Tasks on text by their commands, from records to metrics; records; public data sets; and what goes wrong."""

import gzip
import json
import math
from collections import defaultdict
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from bigbird_dna.errors import DataError
from bigbird_dna.model.directory import load
from bigbird_dna.papers.nlp import classification
from bigbird_dna.papers.nlp.config import GeneratedConfig, parse_config, read_config
from bigbird_dna.papers.nlp.data import PLACES, SPEAKERS, generate_documents
from bigbird_dna.papers.nlp.records import (
    ClassificationRecord,
    QuestionRecord,
    TextRecord,
    read_predictions,
    read_records,
)
from bigbird_dna.papers.nlp.trainer import fast_tokenizer
from bigbird_dna.tokens.text import JsonTokenizer
from tests.cli.command import Run
from tests.conftest import REPOSITORY
from tests.golden.messages import fails
from tests.nlp.conftest import (
    FAR,
    QUESTIONS,
    SUMMARIES,
    Write,
    done,
    figures,
    mistake,
    read_lines,
    read_public,
    write_lines,
)
from tests.toys import written

PUBLIC = Path(__file__).with_name("public")


def test_classification_from_records_to_metrics(
    run: Run, write: Write, tmp_path: Path
) -> None:
    config = write(far=FAR)
    done(run, config, "far", "prepare", "train", "predict", "evaluate")
    home = tmp_path / "results/far"
    predicted = read_lines(home / "predictions.jsonl")
    assert [one["id"] for one in predicted] == [str(number) for number in range(1, 9)]
    for one in predicted:
        assert sum(one["probabilities"].values()) == pytest.approx(1)
        assert one["label"] == max(one["probabilities"], key=one["probabilities"].get)
    pairs = zip(predicted, read_lines(home / "data/test.jsonl"), strict=True)
    right = sum(one["label"] == record["label"] for one, record in pairs)
    assert figures(home)["accuracy"] == right / 8
    model: Any = load(home / "model")
    assert model.settings.labels == tuple(
        sorted(f"{one} {other}" for one in SPEAKERS for other in PLACES)
    )
    assert json.loads((home / "model/metrics.json").read_text())["eval_loss"] > 0
    # A prediction does not depend on the records beside it.
    one = write_lines(tmp_path / "one.jsonl", read_lines(home / "data/test.jsonl")[2])
    options = ("--records", one, "-o", tmp_path / "out.jsonl")
    done(run, config, "far", "predict", more=options)
    (alone,) = read_lines(tmp_path / "out.jsonl")
    assert alone["probabilities"] == pytest.approx(predicted[2]["probabilities"])


@pytest.mark.parametrize("task", [FAR, QUESTIONS, SUMMARIES], ids=["far", "qa", "sum"])
def test_an_interrupted_training_resumes_to_the_same_bytes(
    run: Run,
    write: Write,
    tmp_path: Path,
    task: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config, home = write(a=task), tmp_path / "results/a"
    done(run, config, "a", "prepare", "train")
    weights = (home / "model/model.safetensors").read_bytes()
    assert not (home / "checkpoints").exists()
    (home / "model").rename(tmp_path / "first")
    words = ("nlp", "train", config, "--task", "a", "--threads", 1)
    monkeypatch.setenv("SLURM_JOB_END_TIME", "1")
    stopped = run(*words)
    monkeypatch.delenv("SLURM_JOB_END_TIME")
    assert stopped.code == 75, stopped.err
    assert "stopped at step 1 of 3" in stopped.err
    again = run(*words)
    assert again.code == 0 and "checkpoint-1: resumed" in again.err
    assert (home / "model/model.safetensors").read_bytes() == weights
    assert not (home / "checkpoints").exists()


def test_regression(run: Run, write: Write, tmp_path: Path) -> None:
    rows = [{"text": "a b", "pair": "b a " * n, "score": n / 2} for n in range(1, 9)]
    files = {
        split: str(write_lines(tmp_path / f"{split}.jsonl", *rows))
        for split in ("train", "valid", "test")
    }
    config = write(sts={**FAR, "data": {"files": files}, "regression": True})
    done(run, config, "sts", "prepare", "train", "predict", "evaluate")
    home = tmp_path / "results/sts"
    assert set(figures(home)) == {"pearson", "spearman", "records"}
    lines = ({"id": str(n), "score": n} for n in range(1, 9))
    write_lines(home / "predictions.jsonl", *lines)
    done(run, config, "sts", "evaluate")
    assert figures(home) == {
        "pearson": pytest.approx(1),
        "spearman": pytest.approx(1),
        "records": 8,
    }


ASKED: dict[str, Any] = {"question": "q", "paragraphs": [{"sentences": ["a b"]}]}
ANSWERED = {**ASKED, "id": "x", "answers": [{"text": "b"}]}
MANY = {**ANSWERED, "candidates": ["b", *map(str, range(20))]}
# Task, a key of its section, records in place of those that it is prepared with, and what is named.
FAULTS: list[tuple[Any, ...]] = [
    (FAR, "length=200", None, "length 200", "encoder.max_length 128"),
    (FAR, "training.steps=3", None, "training", "'steps'"),
    (QUESTIONS, "length=500", None, "length 500", "encoder.max_length 128"),
    (SUMMARIES, "document_tokens=129", None, "document_tokens 129", "128"),
    (SUMMARIES, "summary_tokens=129", None, "summary_tokens 129", "128"),
    (FAR, "", [{"text": "a"}], "'1'", "label"),
    (QUESTIONS, "form=span", [ASKED], "'1'", "answer"),
    (QUESTIONS, "form=span", [ANSWERED] * 2, "'x'", "duplicated"),
    (QUESTIONS, "form=wikihop", [ANSWERED], "'x'", "candidates"),
    (QUESTIONS, "form=wikihop", [MANY], "'x'", "21 candidates", "length 64"),
    (SUMMARIES, "", [{"document": "a"}], "'1'", "summary"),
]


@pytest.mark.parametrize("fault", FAULTS, ids=range(len(FAULTS)))
def test_a_fault_of_a_task_is_one_sentence(
    run: Run, write: Write, tmp_path: Path, fault: tuple[Any, ...]
) -> None:
    task, key, rows, *named = fault
    config, home = write(a=task), tmp_path / "results/a"
    done(run, config, "a", "prepare")
    for split in ("train", "valid") if rows else ():
        write_lines(home / f"data/{split}.jsonl", *rows)
    mistake(run, 1 if rows else 2, "train", config, "a", *named, key=key)
    assert not (home / "model").exists()


def test_mistakes_are_one_sentence(run: Run, write: Write) -> None:
    config = write(far=FAR, text={"kind": "pretraining", "data": FAR["data"]})
    mistake(run, 2, "prepare", config, "near", "near", "far, text")
    mistake(run, 2, "prepare", config, "text", "data.generated")
    mistake(run, 1, "train", config, "far", "train.jsonl")
    mistake(run, 2, "predict", config, "text", "nlp evaluate")


def test_pairs_are_truncated_at_the_longer_text_and_have_two_segments(
    text_tokenizer: JsonTokenizer,
) -> None:
    tokenizer = fast_tokenizer(text_tokenizer)

    def lengths(a: int, b: int, length: int) -> tuple[int, int]:
        # Commas are a token each.
        record = ClassificationRecord(text="," * a, pair="," * b)
        inputs = classification.encode(tokenizer, [record], length)
        ids, segments = (
            inputs[key][0].tolist() for key in ("input_ids", "token_type_ids")
        )
        first = segments.count(0)
        assert ids[0] == text_tokenizer.cls_id and len(ids) <= length
        assert ids[-1] == ids[first - 1] == text_tokenizer.sep_id
        assert segments == [0] * first + [1] * (len(ids) - first)
        return first - 2, len(ids) - first - 1

    assert lengths(3, 4, 20) == (3, 4)
    assert lengths(30, 4, 20) == (13, 4)
    assert lengths(4, 30, 20) == (4, 13)
    assert sorted(lengths(30, 30, 20)) == [8, 9]


def test_generated_classes_follow_from_two_facts_out_of_reach() -> None:
    generated = GeneratedConfig(train=40, valid=8, test=8, words=400)
    records = [*generate_documents(generated, "train")]
    assert records == [*generate_documents(generated, "train")]
    assert records[0] != next(generate_documents(generated, "valid"))
    counts: dict[str, int] = {}
    for record in records:
        words = record["text"].split()
        speaker, place = record["label"].split()
        places = [words.index(speaker), words.index(place)]
        assert sum(word in SPEAKERS or word in PLACES for word in words) == 2
        # Two layers of windows of three blocks of 16 see 2 × 31 tokens to the right at most.
        assert places[0] > 62 and places[1] - places[0] > 62
        counts[record["label"]] = counts.get(record["label"], 0) + 1
    assert set(counts.values()) == {10} and len(counts) == 4


def evaluated(tmp_path: Path, true: list[Any], predicted: list[Any], key: str) -> Any:
    """Metrics of a classification, or of a regression if the key is `score`."""
    section = {**FAR, "regression": key == "score"}
    config = parse_config({"tasks": {"a": section}})
    task: Any = config.task("a")
    lines = [
        [{"id": str(n), key: value} for n, value in enumerate(values)]
        for values in (true, predicted)
    ]
    records = write_lines(tmp_path / "a", *({**line, "text": "x"} for line in lines[0]))
    predictions = write_lines(tmp_path / "b", *lines[1])
    return classification.evaluate(task, records, predictions)


@pytest.mark.parametrize(
    ("true", "predicted", "wanted"),
    [
        # 2 true positives, 1 false positive, 1 false negative, 6 true negatives
        (
            "1110000000",
            "1101000000",
            (0.8, 0.8, (2 * 6 - 1) / math.sqrt(3 * 3 * 7 * 7), 2 / 3),
        ),
        # of several classes there is no F1
        ("abcab", "abbac", (0.6, 0.6, None, None)),
        # constant predictions, without a warning
        ("0101", "0000", (0.5, 0.5, 0.0, 0.0)),
        ("00", "00", (1.0, 1.0, 0.0, None)),
    ],
)
def test_metrics_of_classes_by_hand(
    tmp_path: Path, true: str, predicted: str, wanted: tuple[float | None, ...]
) -> None:
    found = evaluated(tmp_path, [*true], [*predicted], "label")
    names = ("accuracy", "micro_f1", "matthews", "f1")
    for name, value in zip(names, wanted, strict=True):
        assert value is None or found[name] == pytest.approx(value)
    assert ("f1" in found) == (wanted[3] is not None)


@pytest.mark.parametrize(
    ("true", "predicted", "pearson", "spearman"),
    [
        # deviations (-1.25, -0.25, -0.25, 1.75) and (-3, -1, -2, 6); ranks (1, 2.5, 2.5, 4) and (1, 3, 2, 4)
        (
            [1, 2, 2, 4],
            [1, 3, 2, 10],
            15 / math.sqrt(4.75 * 50),
            4.5 / math.sqrt(4.5 * 5),
        ),
        ([1, 2], [3, 3], None, None),
        ([1], [2], None, None),
    ],
)
def test_correlations_by_hand(
    tmp_path: Path,
    true: list[float],
    predicted: list[float],
    pearson: float | None,
    spearman: float | None,
) -> None:
    found = evaluated(tmp_path, true, predicted, "score")
    assert found["pearson"] == pytest.approx(pearson)
    assert found["spearman"] == pytest.approx(spearman)


@pytest.mark.slow
def test_bigbird_joins_two_far_facts_and_windows_alone_dont(
    run: Run, tmp_path: Path
) -> None:
    accuracy = {}
    config = REPOSITORY / "workflow/config/nlp.yaml"
    commands = ("prepare", "train", "predict", "evaluate")
    for task in ("far", "far-window"):
        done(run, config, task, *commands, more=("--set", f"results={tmp_path}"))
        accuracy[task] = figures(tmp_path / task)["accuracy"]
    assert accuracy["far"] > 0.9
    # A quarter, within four standard errors of 400 records.
    assert abs(accuracy["far-window"] - 0.25) < 4 * (0.25 * 0.75 / 400) ** 0.5


QUESTION: dict[str, Any] = {
    "question": "Who?",
    "paragraphs": [{"title": "T", "sentences": ["It rained.", " Ada came."]}],
}


def test_records_are_named_by_their_lines_and_may_be_gzip(tmp_path: Path) -> None:
    plain = written(
        tmp_path / "a.jsonl", '{"text": "one"}\n\n{"id": "x", "text": "zwei ü"}\n'
    )
    packed = written(tmp_path / "b.jsonl", gzip.compress(plain.read_bytes()))
    expected = [TextRecord(id="1", text="one"), TextRecord(id="x", text="zwei ü")]
    for path in (plain, packed):
        assert [*read_records(path, TextRecord)] == expected


WIKIHOP = json.loads((PUBLIC / "wikihop.json").read_text())[0]
FAULTY: list[tuple[Any, Any, str]] = [
    *((ClassificationRecord, content, "") for content in (b"", b"\n\n", None)),
    (ClassificationRecord, gzip.compress(b'{"text": "a"}\n' * 1000)[:-20], ""),
    (ClassificationRecord, b'{"text": "a"}\n{"text": ', "line 2"),
    (ClassificationRecord, b'{"text": "a"}\n[1]\n', "line 2"),
    (ClassificationRecord, {"text": "a", "lable": "b"}, "line 1: lable"),
    (ClassificationRecord, {"text": 5}, "line 1: text"),
    (ClassificationRecord, {"text": ""}, "line 1: text"),
    (ClassificationRecord, b'{"text": "a", "score": NaN}\n', "line 1: score"),
    (ClassificationRecord, b'{"text": "\xff"}\n', "line 1"),
    (
        QuestionRecord,
        QUESTION | {"answers": [{"text": "Ada", "paragraph": 1, "start": 0}]},
        "paragraph 1",
    ),
    (
        QuestionRecord,
        QUESTION | {"answers": [{"text": "Ada", "paragraph": 0, "start": 0}]},
        "'Ada'",
    ),
    (
        QuestionRecord,
        QUESTION | {"facts": [[0, 2]]},
        "sentence 2",
    ),
    (QuestionRecord, QUESTION | {"long_answer": 1}, "paragraph 1"),
    (QuestionRecord, QUESTION | {"paragraphs": []}, "paragraphs"),
    *(("wikihop", content, "") for content in (b"[]", b"{", b"\xff\xfe[", None)),
    ("wikihop", b"[3]", "row 1"),
    ("wikihop", [{"id": "1"}], "row 1: not of this data set: 'query'"),
    ("wikihop", [{**WIKIHOP, "query": 3}], "row 1: not of this data set"),
    ("wikihop", [{**WIKIHOP, "supports": []}], "line 1: paragraphs"),
    ("natural_questions", {"a": 1}, "row 1: not of this data set"),
    ("natural_questions", b"x", "JSON"),
]


@pytest.mark.parametrize(("kind", "content", "named"), FAULTY, ids=range(len(FAULTY)))
def test_a_faulty_file_is_named_with_line_and_key(
    tmp_path: Path, kind: Any, content: Any, named: str
) -> None:
    path = tmp_path / "a.json"
    if content is not None:
        path.write_bytes(
            content if isinstance(content, bytes) else json.dumps(content).encode()
        )
    read = read_public if isinstance(kind, str) else None
    with fails(DataError, path, named):
        [*(read(kind, path) if read else read_records(path, kind))]


def prepare(kind: str, data: dict[str, Any], directory: Path) -> None:
    section: Any = parse_config({"tasks": {"a": {"kind": kind, "data": data}}}).task(
        "a"
    )
    import_module(f"bigbird_dna.papers.nlp.{kind}").prepare(section, directory)


def test_files_become_splits_and_a_fault_leaves_nothing(tmp_path: Path) -> None:
    paths = {}
    for split in ("train", "valid", "test"):
        rows = {"text": split, "label": "x"}, {"text": "b", "label": "y"}
        paths[split] = write_lines(tmp_path / f"own-{split}.jsonl", *rows)
    data = {"files": {split: str(path) for split, path in paths.items()}}
    prepare("classification", data, tmp_path / "data")
    assert read_lines(tmp_path / "data/train.jsonl") == [
        {"text": "train", "label": "x", "id": "1"},
        {"text": "b", "label": "y", "id": "2"},
    ]
    paths["train"].write_text('{"text": "new"}\n{"txt": 1}\n')
    before = (tmp_path / "data/train.jsonl").read_bytes()
    with fails(DataError):
        prepare("classification", data, tmp_path / "data")
    assert (tmp_path / "data/train.jsonl").read_bytes() == before


Hub = Callable[[list[dict[str, Any]]], list[tuple[str, str | None]]]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Hub:
    """Let the library give these rows of any subset but `absent`; what it is asked for."""
    import datasets

    def give(rows: list[dict[str, Any]]) -> list[tuple[str, str | None]]:
        asked = []

        def loaded(name: str, subset: str | None) -> Any:
            asked.append((name, subset))
            if subset == "absent":
                raise ConnectionError("no\nnetwork")
            return defaultdict(lambda: datasets.Dataset.from_list(rows))

        monkeypatch.setattr(datasets, "load_dataset", loaded)
        return asked

    return give


ROWS = json.loads((PUBLIC / "rows.json").read_text())


@pytest.mark.parametrize("name", ROWS)
def test_rows_of_every_public_data_set_become_records(
    run: Run, tmp_path: Path, hub: Hub, name: str
) -> None:
    hub([ROWS[name]["row"]] * 200)
    config = REPOSITORY / "workflow/config/nlp.yaml"
    done(run, config, name, "prepare", more=("--set", f"results={tmp_path}"))
    for split in ("train", "valid", "test"):
        record = read_lines(tmp_path / f"{name}/data/{split}.jsonl")[0]
        assert record == {"id": "1"} | ROWS[name]["record"]


def test_every_hub_configuration_has_rows_in_the_public_form() -> None:
    tasks = read_config(REPOSITORY / "workflow/config/nlp.yaml").tasks
    hub = {name for name, task in tasks.items() if task.data.hub}
    assert hub - {*ROWS} == {"mlm-etc", "hotpotqa-etc"}  # of the same data


def test_a_public_data_set_that_cannot_be_loaded_leaves_nothing(
    tmp_path: Path, hub: Hub
) -> None:
    asked = hub([{"text": "a", "n": 1}, {"text": "", "n": 3}])
    with fails(DataError, "some/thing", "no network"):
        prepare(
            "pretraining", {"hub": {"name": "some/thing", "subset": "absent"}}, tmp_path
        )
    assert asked == [("some/thing", "absent")]
    assert not list(tmp_path.glob("*.jsonl"))
    prepare("pretraining", {"hub": {"name": "some/thing"}}, tmp_path)
    assert [one["text"] for one in read_lines(tmp_path / "train.jsonl")] == ["a"]


def test_what_is_held_out_of_a_sorted_split_has_all_classes(
    tmp_path: Path, hub: Hub
) -> None:
    rows = [
        {"text": f"{label} {n}", "label": label} for label in "ab" for n in range(500)
    ]
    hub(rows)
    data = {"hub": {"name": "x", "valid": 0.1, "test": 0.2}}
    prepare("classification", data, tmp_path)
    texts = []
    for split, count in (("train", 720), ("valid", 80), ("test", 200)):
        found = [one["text"] for one in read_lines(tmp_path / f"{split}.jsonl")]
        assert len(found) == count
        assert count / 3 < sum(text[0] == "a" for text in found) < count * 2 / 3
        texts += found
    assert sorted(texts) == sorted(row["text"] for row in rows)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ([{"id": "1", "summary": "a"}], "'2'"),
        ([{"id": "1"}], "'1'"),
        ([3], "line 1"),
    ],
    ids=[*"abc"],
)
def test_predictions_that_do_not_fit_are_named(
    tmp_path: Path, given: list[dict[str, Any]], named: str
) -> None:
    records = [TextRecord(id="1", text="a"), TextRecord(id="2", text="b")]
    path = write_lines(tmp_path / "predictions.jsonl", *given)
    with fails(DataError, path, named):
        read_predictions(path, "summary", records)
