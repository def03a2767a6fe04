"""Records of tasks on text: what is read, and one sentence about what can't be."""

import gzip
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bigbird_dna.errors import DataError
from bigbird_dna.papers.nlp.config import HubConfig, parse_config
from bigbird_dna.papers.nlp.records import (
    LONGEST_LINE,
    ClassificationRecord,
    Kind,
    QuestionRecord,
    TextRecord,
    read_records,
)
from bigbird_dna.papers.nlp.task import TextTask, find_task
from tests.golden.messages import fails
from tests.nlp.tiny import read_lines, write_lines


def task_of(kind: Kind, **data: Any) -> TextTask[Any, Any, Any]:
    return find_task(parse_config({"tasks": {"a": {"kind": kind, "data": data}}}), "a")


def test_records_come_back_with_their_lines_for_names_and_from_gzip_too(tmp_path: Path) -> None:
    plain = tmp_path / "a.jsonl"
    plain.write_text('{"text": "one"}\n\n{"id": "x", "text": "zwei ü"}\n')
    packed = tmp_path / "b.jsonl"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    expected = [TextRecord(id="1", text="one"), TextRecord(id="x", text="zwei ü")]
    assert [*read_records(plain, TextRecord)] == [*read_records(packed, TextRecord)] == expected


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"", ""),
        (b"\n\n", ""),
        (b'{"text": "a"}\n{"text": ', "line 2"),
        (b'{"text": "a"}\n[1]\n', "line 2"),
        (b'{"text": "a", "text": "b"}\n', "line 1: not JSON: key 'text'"),
        (b'{"text": "a", "lable": "b"}\n', "line 1: unknown key 'lable'"),
        (b'{"label": "b"}\n', "line 1: text"),
        (b'{"text": 5}\n', "line 1: text"),
        (b'{"text": ""}\n', "line 1: text"),
        (b'{"text": "a", "score": NaN}\n', "line 1: not JSON: NaN"),
        (b'{"text": "\xff"}\n', "line 1"),
        (b"x" * (LONGEST_LINE + 1), "line 1"),
        (gzip.compress(b'{"text": "a"}\n' * 1000)[:-20], ""),
        (None, ""),
    ],
    ids=[
        *("empty", "blank", "broken off", "no object", "key twice", "unknown key", "no text", "no string"),
        *("short", "nan", "no utf-8", "too long", "broken gzip", "no file"),
    ],
)
def test_a_faulty_file_is_told_by_line_and_key(tmp_path: Path, content: bytes | None, named: str) -> None:
    path = tmp_path / "a.jsonl"
    if content is not None:
        path.write_bytes(content)
    with fails(DataError, path, named) as caught:
        [*read_records(path, ClassificationRecord)]
    assert "\n" not in str(caught.value)


QUESTION: dict[str, Any] = {
    "question": "Who?",
    "paragraphs": [{"title": "T", "sentences": ["It rained.", " Ada came."]}],
}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"answers": [{"text": "Ada", "paragraph": 1}]}, "paragraph 1"),
        ({"answers": [{"text": "Ada", "paragraph": 0, "start": 0}]}, "'Ada'"),
        ({"facts": [{"paragraph": 0, "sentence": 2}]}, "sentence 2"),
        ({"long_answer": 1}, "paragraph 1"),
        ({"paragraphs": []}, "paragraphs"),
    ],
    ids=["no paragraph", "not there", "no sentence", "no long answer", "no context"],
)
def test_places_of_answers_are_checked(tmp_path: Path, change: dict[str, Any], named: str) -> None:
    good = {**QUESTION, "answers": [{"text": "Ada", "paragraph": 0, "start": 11}]}
    (record,) = read_records(write_lines(tmp_path / "a.jsonl", good), QuestionRecord)
    assert record.answers[0].text == "Ada"
    with fails(DataError, "b.jsonl", named):
        [*read_records(write_lines(tmp_path / "b.jsonl", {**QUESTION, **change}), QuestionRecord)]


def test_files_of_ones_own_become_splits_and_a_fault_leaves_nothing(tmp_path: Path) -> None:
    paths = {}
    for split in ("train", "valid", "test"):
        rows = {"text": split, "label": "x"}, {"text": "b", "label": "y"}
        paths[split] = write_lines(tmp_path / f"own-{split}.jsonl", *rows)
    task = task_of("classification", files={split: str(path) for split, path in paths.items()})
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

        def loaded(name: str, subset: str | None, *, split: str, streaming: bool) -> Any:
            asked.append((name, subset, split))
            if split == "validation":
                raise ConnectionError("no\nnetwork")
            return datasets.Dataset.from_list(rows)

        monkeypatch.setattr(datasets, "load_dataset", loaded)
        return asked

    return give


def test_a_public_data_set_comes_by_its_library_and_says_when_it_cant(tmp_path: Path, hub: Hub) -> None:
    asked = hub([{"text": "a", "n": 1}, {"text": "b", "n": 2}, {"text": "", "n": 3}])
    with fails(DataError):
        task_of("pretraining", hub={"name": "some/thing", "subset": "en"}).prepare(tmp_path)
    assert asked == [("some/thing", "en", "train"), ("some/thing", "en", "validation")]
    assert not list(tmp_path.glob("*.jsonl"))  # all or none
    whole = task_of("pretraining", hub={"name": "some/thing", "valid": "train", "test": "train"})
    assert whole.prepare(tmp_path)["train"] == 2
    assert [record.text for record in read_records(tmp_path / "train.jsonl", TextRecord)] == ["a", "b"]


def test_parts_of_a_sorted_split_have_all_classes_and_share_no_row(tmp_path: Path, hub: Hub) -> None:
    rows = [{"text": f"{label} {n}", "label": label} for label in "ab" for n in range(500)]
    asked = hub(rows)
    parts = {"train": "train[:80%]", "valid": "train[80%:90%]", "test": "train[-100:]"}
    task = task_of("classification", hub={"name": "x", **parts})
    counts = task.prepare(tmp_path)
    assert counts == {"train": 800, "valid": 100, "test": 100} and asked == [("x", None, "train")] * 3
    files = {split: tmp_path / f"{split}.jsonl" for split in counts}
    texts = {split: [one["text"] for one in read_lines(path)] for split, path in files.items()}
    assert sorted(itertools.chain(*texts.values())) == sorted(row["text"] for row in rows)
    for split, count in counts.items():
        assert count / 3 < sum(text[0] == "a" for text in texts[split]) < count * 2 / 3
    before = [path.read_bytes() for path in files.values()]
    task.prepare(tmp_path)
    assert before == [path.read_bytes() for path in files.values()]


@pytest.mark.parametrize("name", ["train[:90]%", "train[:90%]+test", "train[10]", "train[:9.5%]", "[:5%]"])
def test_other_parts_of_splits_are_refused(name: str) -> None:
    with fails(ValueError):
        HubConfig(name="x", train=name)
    assert HubConfig(name="x", train="train+validation").train == "train+validation"


@pytest.mark.parametrize(
    ("kind", "given", "named"),
    [
        ("summaries", [{"id": "1", "summary": "a"}], "'2'"),
        ("summaries", [{"id": "1", "summary": "a"}] * 2, "line 2: record '1'"),
        ("summaries", [{"id": "1"}], "line 1"),
        ("summaries", [{"id": n, "summary": "a"} for n in "123"], "'3'"),
        ("classification", [{"id": "1", "label": None}], "line 1"),
        ("classification", [{"id": "1", "label": 3}], "line 1: label"),
        ("classification", [{"id": "1", "label": "a", "lable": "b"}], "line 1: unknown key 'lable'"),
        ("qa", [{"id": "1", "answer": "", "facts": [3]}], "line 1: facts"),
        ("qa", [{"id": "1", "answer": "", "fact": 3}], "line 1: unknown key 'fact'"),
        ("qa", [{"id": "1"}], "line 1"),
    ],
    ids=[*"abcdefghij"],
)
def test_predictions_that_do_not_fit_are_told(
    tmp_path: Path, kind: Kind, given: list[dict[str, Any]], named: str
) -> None:
    known: dict[str, Any] = {
        "summaries": {"document": "a", "summary": "b"},
        "classification": {"text": "a", "label": "b"},
        "qa": {**QUESTION, "answers": [{"text": "Ada"}]},
    }[kind]
    records = write_lines(tmp_path / "records.jsonl", known, known)
    with fails(DataError, "said.jsonl", named):
        task_of(kind, generated={}).evaluate(records, write_lines(tmp_path / "said.jsonl", *given))
