"""Tasks on text by their commands, from records to a page; records; and what goes wrong."""

import gzip
import itertools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.config.training import TrainingConfig
from bigbird_dna.errors import DataError
from bigbird_dna.model.directory import load
from bigbird_dna.papers.nlp.classification import (
    class_metrics,
    score_metrics,
    text_rows,
)
from bigbird_dna.papers.nlp.config import (
    GeneratedConfig,
    HubConfig,
    TextTrainingConfig,
    parse_config,
    read_config,
)
from bigbird_dna.papers.nlp.data import (
    PLACES,
    SPEAKERS,
    generate_documents,
    select_some,
)
from bigbird_dna.papers.nlp.public import read_public
from bigbird_dna.papers.nlp.records import (
    ClassificationRecord,
    QuestionRecord,
    TextRecord,
    read_records,
)
from bigbird_dna.papers.nlp.task import TextTask, open_task
from bigbird_dna.tokens.text import JsonTokenizer
from tests.cli.command import Run
from tests.conftest import REPOSITORY
from tests.golden.messages import fails
from tests.nlp.conftest import (
    FAR,
    QUESTIONS,
    SUMMARIES,
    WIKIHOP,
    Write,
    done,
    figures,
    mistake,
    read_lines,
    write_lines,
)
from tests.toys import written


def test_a_classification_from_its_records_to_the_page(
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
    model = load(home / "model")
    assert model.settings.labels == tuple(
        sorted(f"{one} {other}" for one in SPEAKERS for other in PLACES)
    )  # type: ignore[attr-defined]
    assert not list((home / "checkpoints").glob("*"))


@pytest.mark.parametrize("task", [FAR, QUESTIONS, SUMMARIES])
def test_a_stopped_training_goes_on_to_the_same_bits(
    run: Run, write: Write, tmp_path: Path, task: dict[str, Any]
) -> None:
    config, model = write(a=task), tmp_path / "results/a/model"
    done(run, config, "a", "prepare", "train")
    weights = (model / "model.safetensors").read_bytes()
    model.rename(tmp_path / "first")
    stopped = run(
        "nlp",
        "train",
        config,
        "--task",
        "a",
        "--threads",
        1,
        "--time-limit",
        "0:00:01",
    )
    steps = task["training"]["steps"]
    assert stopped.code == 75 and f"stopped after step 1 of {steps}" in stopped.err, (
        stopped.err
    )
    again = run("nlp", "train", config, "--task", "a", "--threads", 1)
    assert again.code == 0 and "resuming at step 1" in again.err
    assert (model / "model.safetensors").read_bytes() == weights


def test_scores_are_learnt_and_judged_by_correlations(
    run: Run, write: Write, tmp_path: Path
) -> None:
    rows = [{"text": "a b", "pair": "b a " * n, "score": n / 2} for n in range(1, 9)]
    files = {
        split: str(write_lines(tmp_path / f"{split}.jsonl", *rows))
        for split in ("train", "valid", "test")
    }
    config = write(
        sts={**FAR, "data": {"files": files}, "regression": True, "published": {}}
    )
    done(run, config, "sts", "prepare", "train", "predict", "evaluate")
    home = tmp_path / "results/sts"
    assert (
        set(figures(home)) == {"pearson", "spearman", "records"}
        and figures(home)["records"] == 8
    )
    # Whole numbers are scores as well, wherever they come from.
    write_lines(
        home / "predictions.jsonl", *({"id": str(n), "score": n} for n in range(1, 9))
    )
    done(run, config, "sts", "evaluate")
    assert figures(home) == {
        "pearson": pytest.approx(1),
        "spearman": pytest.approx(1),
        "records": 8,
    }


def test_mistakes_are_one_sentence(run: Run, write: Write, tmp_path: Path) -> None:
    config = write(far=FAR, text={"kind": "pretraining", "data": FAR["data"]})
    mistake(run, 2, "prepare", config, "near", "near", "far, text")
    mistake(run, 2, "prepare", config, "text", "data.generated")
    mistake(run, 1, "train", config, "far", "train.jsonl")


ASKED: dict[str, Any] = {"question": "q", "paragraphs": [{"sentences": ["a b"]}]}
ANSWERED = {**ASKED, "id": "x", "answers": [{"text": "b"}]}
# Task, a key of its section, records in place of those that it is prepared with, and what is named.
FAULTS: list[tuple[Any, ...]] = [
    (FAR, "length=200", None, 200, "encoder.max_length", 128),
    (QUESTIONS, "length=500", None, "length 500", "encoder.max_length 128"),
    (QUESTIONS, "question_tokens=60", None, "question_tokens 60", "length 64"),
    (QUESTIONS, "public=true", None, "data.files"),
    (SUMMARIES, "document_tokens=129", None, "document_tokens 129", "128"),
    (SUMMARIES, "search.max_length=129", None, "search.max_length 129", "128"),
    (FAR, "", [{"text": "a", "label": "mother harbour"}], "mother harbour"),
    (FAR, "", [{"text": "a"}], "'1'", "label"),
    (QUESTIONS, "form=span", [ASKED], "'1'", "answer"),
    (QUESTIONS, "form=span", [ANSWERED] * 2, "'x'"),
    (QUESTIONS, "form=wikihop", [ANSWERED], "'x'", "candidates"),
    (
        *(
            QUESTIONS,
            "form=wikihop",
            [{**ANSWERED, "candidates": [f"candidate {n}" for n in range(20)]}],
        ),
        *("'x'", "20 candidates", "length 64"),
    ),
    (SUMMARIES, "", [{"document": "a"}], "'1'"),
    (SUMMARIES, "", [{"id": "2", "document": "a", "summary": "b"}] * 2, "'2'"),
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


def test_pairs_are_cut_fairly_and_have_two_segments(
    text_tokenizer: JsonTokenizer,
) -> None:
    def lengths(a: int, b: int, length: int) -> tuple[int, int]:
        # Commas are a piece each.
        record = ClassificationRecord(text="," * a, pair="," * b)
        rows = text_rows(text_tokenizer, [record], length)
        (ids,) = rows.ids
        assert (
            ids[0] == text_tokenizer.cls_id
            and ids[-1] == text_tokenizer.sep_id
            and len(ids) <= length
        )
        first = int(rows.firsts[0])
        assert ids[first - 1] == text_tokenizer.sep_id
        assert rows.segments(torch.arange(1).numpy(), len(ids))[0].tolist() == [
            0
        ] * first + [1] * (len(ids) - first)
        return first - 2, len(ids) - first - 1

    assert (
        text_tokenizer.encode("," * 7).tolist()
        == [text_tokenizer.pieces.index(",")] * 7
    )
    assert lengths(3, 4, 20) == (3, 4)
    assert lengths(30, 4, 20) == (13, 4)
    assert lengths(4, 30, 20) == (4, 13)
    assert lengths(30, 30, 20) == (9, 8)
    long = text_rows(text_tokenizer, [ClassificationRecord(text="," * 50)], 20)
    assert len(long.ids[0]) == 20 and long.ids[0][-1] == text_tokenizer.sep_id


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


SUMMARY = {"document": "d", "summary": "s"}


@pytest.mark.parametrize(
    ("row", "record"),
    [
        ({"document": "d", "summary": "s", "id": "7"}, SUMMARY),  # XSum
        ({"article": "d", "abstract": "s"}, SUMMARY),  # arXiv, PubMed
        ({"description": "d", "abstract": "s"}, SUMMARY),  # BigPatent
        ({"article": "d", "highlights": "s", "id": "7"}, SUMMARY),  # CNN/DailyMail
        ({"text": "a", "label": 1}, {"text": "a", "label": "1"}),
        ({"sentence": "a", "label": 0, "idx": 3}, {"text": "a", "label": "0"}),
        ({"sentence": "a", "label": -1, "idx": 3}, {"text": "a"}),
        (
            {"question": "q", "sentence": "s", "label": 1},
            {"text": "q", "pair": "s", "label": "1"},
        ),
        (
            {"premise": "p", "hypothesis": "h", "label": 2},
            {"text": "p", "pair": "h", "label": "2"},
        ),
        ({"text": "a", "hyperpartisan": True}, {"text": "a", "label": "true"}),
    ],
)
def test_rows_of_public_data_sets_become_records(
    row: dict[str, Any], record: dict[str, Any]
) -> None:
    config = read_config(REPOSITORY / "workflow/config/nlp.yaml")
    task = open_task(config, "xsum" if record is SUMMARY else "imdb")
    assert task.convert(row) == record
    if record is SUMMARY:
        assert (
            task.convert(
                {key: " " if value == "s" else value for key, value in row.items()}
            )
            is None
        )
        with fails(DataError):
            task.convert({key: value for key, value in row.items() if value != "s"})


def test_what_is_watched_of_a_sorted_file_has_all_classes() -> None:
    records = [f"{label}{n}" for label in "ab" for n in range(100)]
    watched = select_some(records, 40)
    assert len({*watched}) == 40 and watched == sorted(watched, key=records.index)
    assert 10 < sum(one[0] == "a" for one in watched) < 30
    assert watched == select_some(records, 40)  # in every training
    assert select_some(records, 200) == select_some(records, 999) == records
    # Nor does it fall in step with files that have their classes in turn.
    turns = [n % 4 for n in range(200)]
    assert {*select_some(turns, 100)} == {0, 1, 2, 3}


def test_the_paper_counts_in_epochs_and_shares() -> None:
    training = TextTrainingConfig(batch_size=64, epochs=40.0, warmup_share=0.1)
    found = training.for_records(22_500)
    assert (found.steps, found.optimizer.warmup_steps) == (14_063, 1_406)
    assert TextTrainingConfig(steps=7).for_records(10).steps == 7
    assert isinstance(found, TrainingConfig) and EncoderConfig().max_length == 4096


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
def test_figures_of_classes_by_hand(
    true: str, predicted: str, wanted: tuple[float | None, ...]
) -> None:
    found = class_metrics([*true], [*predicted])
    for name, value in zip(
        ("accuracy", "micro_f1", "matthews", "f1"), wanted, strict=True
    ):
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
        *(([1, 2], [3, 3], None, None), ([1], [2], None, None), ([], [], None, None)),
    ],
)
def test_correlations_by_hand(
    true: list[float],
    predicted: list[float],
    pearson: float | None,
    spearman: float | None,
) -> None:
    found = score_metrics(true, predicted)
    assert (found["pearson"], found["spearman"]) == (
        pytest.approx(pearson),
        pytest.approx(spearman),
    )


@pytest.mark.slow
def test_bigbird_joins_two_far_facts_and_windows_alone_dont(
    run: Run, tmp_path: Path
) -> None:
    accuracy = {}
    config, commands = (
        REPOSITORY / "workflow/config/nlp.yaml",
        ("prepare", "train", "predict", "evaluate"),
    )
    for task in ("far", "far-window"):
        done(run, config, task, *commands, more=("--set", f"results={tmp_path}"))
        accuracy[task] = figures(tmp_path / task)["accuracy"]
    assert accuracy["far"] > 0.9
    # A quarter, within four standard errors of 400 records.
    assert abs(accuracy["far-window"] - 0.25) < 4 * (0.25 * 0.75 / 400) ** 0.5


def task_of(kind: str, **data: Any) -> TextTask:
    return open_task(parse_config({"tasks": {"a": {"kind": kind, "data": data}}}), "a")


QUESTION: dict[str, Any] = {
    "question": "Who?",
    "paragraphs": [{"title": "T", "sentences": ["It rained.", " Ada came."]}],
}


def test_records_come_back_with_their_lines_for_names_and_from_gzip_too(
    tmp_path: Path,
) -> None:
    plain = written(
        tmp_path / "a.jsonl", '{"text": "one"}\n\n{"id": "x", "text": "zwei ü"}\n'
    )
    packed = written(tmp_path / "b.jsonl", gzip.compress(plain.read_bytes()))
    expected = [TextRecord(id="1", text="one"), TextRecord(id="x", text="zwei ü")]
    write_lines(
        tmp_path / "c.jsonl",
        {**QUESTION, "answers": [{"text": "Ada", "paragraph": 0, "start": 11}]},
    )
    assert [
        len(record.answers)
        for record in read_records(tmp_path / "c.jsonl", QuestionRecord)
    ] == [1]
    assert (
        [*read_records(plain, TextRecord)]
        == [*read_records(packed, TextRecord)]
        == expected
    )


PUBLIC = json.dumps([WIKIHOP])
FAULTY: list[tuple[Any, Any, str]] = [
    *((ClassificationRecord, content, "") for content in (b"", b"\n\n", None)),
    (ClassificationRecord, gzip.compress(b'{"text": "a"}\n' * 1000)[:-20], ""),
    (ClassificationRecord, b'{"text": "a"}\n{"text": ', "line 2"),
    (ClassificationRecord, b'{"text": "a"}\n[1]\n', "line 2"),
    (ClassificationRecord, {"text": "a", "lable": "b"}, "line 1: unknown key 'lable'"),
    *(
        (ClassificationRecord, content, "line 1: text")
        for content in ({"label": "b"}, {"text": 5}, {"text": ""})
    ),
    (ClassificationRecord, b'{"text": "a", "score": NaN}\n', "line 1: score"),
    (ClassificationRecord, b'{"text": "\xff"}\n', "line 1"),
    (
        QuestionRecord,
        QUESTION | {"answers": [{"text": "Ada", "paragraph": 1}]},
        "paragraph 1",
    ),
    (
        QuestionRecord,
        QUESTION | {"answers": [{"text": "Ada", "paragraph": 0, "start": 0}]},
        "'Ada'",
    ),
    (
        QuestionRecord,
        QUESTION | {"facts": [{"paragraph": 0, "sentence": 2}]},
        "sentence 2",
    ),
    (QuestionRecord, QUESTION | {"long_answer": 1}, "paragraph 1"),
    (QuestionRecord, QUESTION | {"paragraphs": []}, "paragraphs"),
    *(("wikihop", content, "") for content in (b"[]", b"{}", b"\xff\xfe[", None)),
    ("wikihop", b"[3]", "record 1"),
    (
        "wikihop",
        [{"id": "1"}],
        "record 1: not a row of wikihop: key 'query' is missing",
    ),
    ("wikihop", PUBLIC[:-9].encode(), "not readable as JSON"),
    ("wikihop", [{**WIKIHOP, "query": 3}], "record 1: not a row of wikihop"),
    ("wikihop", [{**WIKIHOP, "supports": []}], "record 1: paragraphs"),
    ("natural_questions", {"a": 1}, "record 1: not a row of natural_questions"),
    ("natural_questions", b"x", "line 1"),
]


@pytest.mark.parametrize(("kind", "content", "named"), FAULTY, ids=range(len(FAULTY)))
def test_a_faulty_file_is_told_by_line_and_key(
    tmp_path: Path, kind: Any, content: Any, named: str
) -> None:
    path = tmp_path / "a.json"
    if content is not None:
        path.write_bytes(
            content if isinstance(content, bytes) else json.dumps(content).encode()
        )
    with fails(DataError, path, named):
        [
            *(
                read_public(kind, path)
                if isinstance(kind, str)
                else read_records(path, kind)
            )
        ]


def test_files_of_ones_own_become_splits_and_a_fault_leaves_nothing(
    tmp_path: Path,
) -> None:
    paths = {}
    for split in ("train", "valid", "test"):
        rows = {"text": split, "label": "x"}, {"text": "b", "label": "y"}
        paths[split] = write_lines(tmp_path / f"own-{split}.jsonl", *rows)
    task = task_of(
        "classification", files={split: str(path) for split, path in paths.items()}
    )
    counts = task.prepare(tmp_path / "data")
    assert counts == {"train": 2, "valid": 2, "test": 2}
    assert read_lines(tmp_path / "data/train.jsonl") == [
        {"text": "train", "label": "x", "id": "1"},
        {"text": "b", "label": "y", "id": "2"},
    ]
    paths["train"].write_text('{"text": "new"}\n{"txt": 1}\n')
    before = (tmp_path / "data/train.jsonl").read_bytes()
    with fails(DataError):
        task.prepare(tmp_path / "data")
    assert (tmp_path / "data/train.jsonl").read_bytes() == before


Hub = Callable[[list[dict[str, Any]]], list[tuple[str, str | None, str]]]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Hub:
    """Let the library give these rows of any split but `validation`; what it is asked for."""
    import datasets

    def give(rows: list[dict[str, Any]]) -> list[tuple[str, str | None, str]]:
        asked = []

        def loaded(
            name: str, subset: str | None, *, split: str, streaming: bool
        ) -> Any:
            asked.append((name, subset, split))
            if split == "validation":
                raise ConnectionError("no\nnetwork")
            return datasets.Dataset.from_list(rows)

        monkeypatch.setattr(datasets, "load_dataset", loaded)
        return asked

    return give


def test_a_public_data_set_comes_by_its_library_and_says_when_it_cant(
    tmp_path: Path, hub: Hub
) -> None:
    asked = hub([{"text": "a", "n": 1}, {"text": "b", "n": 2}, {"text": "", "n": 3}])
    with fails(DataError):
        task_of("pretraining", hub={"name": "some/thing", "subset": "en"}).prepare(
            tmp_path
        )
    assert asked == [("some/thing", "en", "train"), ("some/thing", "en", "validation")]
    assert not list(tmp_path.glob("*.jsonl"))  # all or none
    whole = task_of(
        "pretraining", hub={"name": "some/thing", "valid": "train", "test": "train"}
    )
    assert whole.prepare(tmp_path)["train"] == 2
    assert [
        record.text for record in read_records(tmp_path / "train.jsonl", TextRecord)
    ] == ["a", "b"]


def test_parts_of_a_sorted_split_have_all_classes_and_share_no_row(
    tmp_path: Path, hub: Hub
) -> None:
    rows = [
        {"text": f"{label} {n}", "label": label} for label in "ab" for n in range(500)
    ]
    asked = hub(rows)
    parts = {"train": "train[:80%]", "valid": "train[80%:90%]", "test": "train[-100:]"}
    task = task_of("classification", hub={"name": "x", **parts})
    counts = task.prepare(tmp_path)
    assert (
        counts == {"train": 800, "valid": 100, "test": 100}
        and asked == [("x", None, "train")] * 3
    )
    files = {split: tmp_path / f"{split}.jsonl" for split in counts}
    texts = {
        split: [one["text"] for one in read_lines(path)]
        for split, path in files.items()
    }
    assert sorted(itertools.chain(*texts.values())) == sorted(
        row["text"] for row in rows
    )
    for split, count in counts.items():
        assert count / 3 < sum(text[0] == "a" for text in texts[split]) < count * 2 / 3
    before = [path.read_bytes() for path in files.values()]
    task.prepare(tmp_path)
    assert before == [path.read_bytes() for path in files.values()]


@pytest.mark.parametrize(
    "name", ["train[:90]%", "train[:90%]+test", "train[10]", "train[:9.5%]", "[:5%]"]
)
def test_other_parts_of_splits_are_refused(name: str) -> None:
    with fails(ValueError):
        HubConfig(name="x", train=name)
    assert HubConfig(name="x", train="train+validation").train == "train+validation"


@pytest.mark.parametrize(
    ("kind", "given", "named"),
    [
        ("summaries", [{"id": "1", "summary": "a"}], "'2'"),
        (
            "summaries",
            [{"id": "1", "summary": "a"}] * 2,
            "record '1' is predicted twice",
        ),
        ("summaries", [{"id": "1"}], "line 1"),
        ("summaries", [{"id": n, "summary": "a"} for n in "123"], "'3'"),
        ("classification", [{"id": "1", "label": None}], "line 1: label"),
        ("classification", [{"id": "1", "label": 3}], "line 1: label"),
        (
            "classification",
            [{"id": "1", "label": "a", "lable": "b"}],
            "line 1: unknown key 'lable'",
        ),
        ("qa", [{"id": "1", "answer": "", "facts": [3]}], "line 1: facts"),
        ("qa", [{"id": "1", "answer": "", "fact": 3}], "line 1: unknown key 'fact'"),
        ("qa", [{"id": "1"}], "line 1"),
    ],
    ids=[*"abcdefghij"],
)
def test_predictions_that_do_not_fit_are_told(
    tmp_path: Path, kind: str, given: list[dict[str, Any]], named: str
) -> None:
    known: dict[str, Any] = {
        "summaries": {"document": "a", "summary": "b"},
        "classification": {"text": "a", "label": "b"},
        "qa": {**QUESTION, "answers": [{"text": "Ada"}]},
    }[kind]
    records = write_lines(tmp_path / "records.jsonl", known, known)
    with fails(DataError, "said.jsonl", named):
        task_of(kind, generated={}).evaluate(
            records, write_lines(tmp_path / "said.jsonl", *given)
        )
