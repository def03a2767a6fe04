"""Rows and files of the public data sets become records, or are refused in one sentence."""

import json
from pathlib import Path
from typing import Any

import pytest

from bigbird_dna.errors import ConfigError, DataError
from bigbird_dna.papers.nlp.answers.public import public_record, read_public
from bigbird_dna.papers.nlp.records import QuestionRecord
from tests.golden.messages import fails

HOTPOT: dict[str, Any] = {
    "_id": "5a8b",
    "question": "Who wrote it?",
    "answer": "Ann Lee",
    "type": "bridge",
    "level": "hard",
    "supporting_facts": [["Book", 1], ["Person", 0], ["Person", 9], ["Nobody", 0]],
    "context": [
        ["Book", ["Ann Lee is named first.", " It is by Ann Lee, said Ann Lee."]],
        ["Person", ["Ann Lee lived."]],
    ],
}
PAGE = "<H1> Page </H1> <P> Bees make honey . </P> <Table> <Tr> <Td> In 1901 </Td> </Tr> </Table>"
NATURAL: dict[str, Any] = {
    "example_id": 12,
    "question_text": "what do bees make",
    "document_text": PAGE,
    "long_answer_candidates": [
        {"start_token": 3, "end_token": 9, "top_level": True},
        {"start_token": 9, "end_token": 16, "top_level": True},
        {"start_token": 10, "end_token": 15, "top_level": False},
    ],
    "annotations": [
        {"long_answer": {"start_token": first}, "short_answers": short, "yes_no_answer": verdict}
        for first, short, verdict in (
            (3, [{"start_token": 6, "end_token": 7}], "NONE"),
            (-1, [], "NONE"),
            (10, [], "YES"),
        )
    ],
}
TRIVIA: dict[str, Any] = {
    "QuestionId": "tc_1",
    "Question": "Which river?",
    "Answer": {"Value": "Nile", "Aliases": ["The Nile", "Nile"]},
    "EntityPages": [{"Title": "Egypt", "Filename": "Egypt.txt"}],
    "SearchResults": [{"Title": "Rivers", "Filename": "1/rivers.txt"}],
}
WIKIHOP: dict[str, Any] = {
    "id": "WH_train_0",
    "query": "located_in park",
    "answer": "york",
    "candidates": ["york", "leeds"],
    "supports": ["The park lies there .", "York is a city ."],
}


def read(form: Any, tmp_path: Path, text: str) -> list[QuestionRecord]:
    path = tmp_path / "data.json"
    path.write_text(text)
    return [*read_public(form, path)]


def test_hotpotqa(tmp_path: Path) -> None:
    yes = {**HOTPOT, "_id": "y", "answer": "Yes"}
    spread = {**HOTPOT, "_id": "n", "answer": "Bob"}
    found = read("hotpotqa", tmp_path, json.dumps([HOTPOT, yes, spread], indent=1))
    first = found[0]
    assert (first.id, first.type, first.question) == ("5a8b", "span", "Who wrote it?")
    assert [one.title for one in first.paragraphs] == ["Book", "Person"]
    assert [(one.paragraph, one.sentence) for one in first.facts] == [(0, 1), (1, 0)]
    assert first.facts_elsewhere == 2
    whole = {**HOTPOT, "supporting_facts": [["Book", 1], ["Book", 1]]}
    assert "facts_elsewhere" not in (public_record("hotpotqa", whole) or {})
    twice = {**HOTPOT, "supporting_facts": [["Nobody", 1], ["Nobody", 1], ["Book", 1]]}
    assert (public_record("hotpotqa", twice) or {})["facts_elsewhere"] == 1  # of the official set of facts
    assert [(one.paragraph, one.start) for one in first.answers] == [(0, 33), (0, 47), (1, 0)]
    assert found[1].type == "yes" and found[1].answers[0].paragraph is None
    assert found[2].answers[0].text == "Bob" and found[2].answers[0].start is None
    columns = {
        **{key: value for key, value in HOTPOT.items() if key != "_id"},
        "id": "5a8b",
        "supporting_facts": {"title": ["Book", "Person", "Person", "Nobody"], "sent_id": [1, 0, 9, 0]},
        "context": {"title": ["Book", "Person"], "sentences": [one for _, one in HOTPOT["context"]]},
    }
    assert QuestionRecord.model_validate_json(json.dumps(public_record("hotpotqa", columns))) == first


def test_natural_questions(tmp_path: Path) -> None:
    (found,) = read("natural_questions", tmp_path, json.dumps(NATURAL) + "\n\n")
    assert [one.sentences for one in found.paragraphs] == [("Bees make honey .",), ("In 1901",)]
    assert (found.id, found.type, found.long_answer) == ("12", "short", 0)
    assert [(one.text, one.paragraph, one.start) for one in found.answers] == [("honey", 0, 10)]
    assert [one.type for one in found.annotations] == ["short", "null", "yes"]
    assert found.annotations[2].long_answer == 1  # of the table that the cell is in
    assert public_record("natural_questions", {**NATURAL, "long_answer_candidates": []}) is None
    hidden = {key: value for key, value in NATURAL.items() if key != "annotations"}
    assert "type" not in (public_record("natural_questions", hidden) or {})


def test_triviaqa(tmp_path: Path) -> None:
    (tmp_path / "qa").mkdir()
    for kind, name, text in (
        ("wikipedia", "Egypt.txt", "The Nile\nflows."),
        ("web", "1/rivers.txt", "A river."),
    ):
        path = tmp_path / "evidence" / kind / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    path = tmp_path / "qa" / "train.json"
    path.write_text(json.dumps({"Data": [TRIVIA], "Domain": "Web"}))
    (found,) = read_public("triviaqa", path)
    assert [(one.title, one.sentences) for one in found.paragraphs] == [
        ("Egypt", ("The Nile\n", "flows.")),
        ("Rivers", ("A river.",)),
    ]
    assert [one.text for one in found.answers] == ["Nile", "The Nile"]
    outside = {**TRIVIA, "EntityPages": [{"Title": "x", "Filename": "../../secret.txt"}]}
    path.write_text(json.dumps({"Data": [TRIVIA, outside]}))
    with fails(DataError):
        [*read_public("triviaqa", path)]
    path.write_text(json.dumps({"Data": [{**TRIVIA, "EntityPages": [{"Filename": "None.txt"}]}]}))
    with fails(DataError):
        [*read_public("triviaqa", path)]


def test_wikihop(tmp_path: Path) -> None:
    (found,) = read("wikihop", tmp_path, json.dumps([WIKIHOP]))
    assert found.question == "located in park" and found.candidates == ("york", "leeds")
    assert [one.text for one in found.answers] == ["york"] and len(found.paragraphs) == 2


def test_large_arrays_are_read_piece_by_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bigbird_dna.papers.nlp.answers.public.CHUNK", 7)
    many = [{**WIKIHOP, "id": str(number)} for number in range(20)]
    assert [one.id for one in read("wikihop", tmp_path, json.dumps(many))] == [str(n) for n in range(20)]


@pytest.mark.parametrize(
    ("form", "text", "named"),
    [
        ("hotpotqa", b"[]", ""),
        ("hotpotqa", b"{}", ""),
        ("triviaqa", b"[]", "Data"),
        ("hotpotqa", b"[3]", "record 1"),
        ("wikihop", json.dumps([WIKIHOP])[:-9].encode(), "record 1"),
        ("wikihop", (json.dumps([WIKIHOP])[:-1] + ",,{").encode(), "record 2"),
        ("hotpotqa", b'[{"question": "x"}]', "record 1: not a row of hotpotqa: it has no 'context'"),
        ("wikihop", json.dumps([{**WIKIHOP, "query": 3}]).encode(), "record 1: not a row of wikihop"),
        ("wikihop", json.dumps([{**WIKIHOP, "supports": []}]).encode(), "record 1: paragraphs"),
        ("natural_questions", b'{"a": 1}', "record 1: not a row of natural_questions"),
        ("natural_questions", b"x", "line 1"),
        ("hotpotqa", b"\xff\xfe[", ""),
        ("hotpotqa", None, ""),
    ],
    ids=[*"abcdefghijklm"],
)
def test_what_is_no_such_file_is_refused_by_name(
    form: Any, text: bytes | None, named: str, tmp_path: Path
) -> None:
    path = tmp_path / "data.json"
    if text is not None:
        path.write_bytes(text)
    with fails(DataError, path, named) as caught:
        [*read_public(form, path)]
    assert "\n" not in str(caught.value)


def test_a_span_is_no_data_set() -> None:
    with fails(ConfigError, "span"):
        public_record("span", {})
