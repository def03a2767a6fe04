"""Question answering: metrics counted by hand, rows of public data sets, and the commands."""

import json
from pathlib import Path
from typing import Any

import pytest

from bigbird_dna.errors import ConfigError
from bigbird_dna.papers.nlp.config import (
    AnswersTaskConfig,
    GeneratedConfig,
    read_config,
)
from bigbird_dna.papers.nlp.data import CHAINS, generate_questions
from bigbird_dna.papers.nlp.public import public_record
from bigbird_dna.papers.nlp.question_metrics import (
    TRIVIA_BLANKS,
    normalize_answer,
    official_metrics,
)
from bigbird_dna.papers.nlp.records import QuestionRecord
from tests.cli.command import Run
from tests.conftest import REPOSITORY
from tests.golden.messages import fails
from tests.nlp.conftest import (
    ETC,
    ITC,
    QUESTIONS,
    Write,
    done,
    figures,
    read_lines,
    read_public,
)

PUBLIC = Path(__file__).with_name("public")
PARAGRAPHS = [
    {"sentences": ["One. ", "Two. ", "Three."]},
    {"sentences": ["Four. ", "Five."]},
]
Values = dict[str, Any]


def texts(*answers: str, **values: Any) -> Values:
    return {"answers": [{"text": one} for one in answers], **values}


@pytest.mark.parametrize(
    ("text", "squad", "trivia"),
    [
        ("The  Cat", "cat", "cat"),
        ("an apple, a day!", "apple day", "apple day"),
        ("well-known", "wellknown", "well known"),
        ("the-end", "theend", "end"),
        ("Theatre", "theatre", "theatre"),
        ("snake_case", "snakecase", "snake case"),
        ("‘quoted’", "‘quoted’", "quoted"),
        ("A.", "", ""),
        ("", "", ""),
        ("3.14", "314", "3 14"),
        ("Éa the a", "éa", "éa"),
    ],
)
def test_normalization_is_that_of_the_data_sets(
    text: str, squad: str, trivia: str
) -> None:
    assert normalize_answer(text) == squad
    assert normalize_answer(text, TRIVIA_BLANKS) == trivia


@pytest.mark.parametrize(
    ("answer", "references", "wanted"),
    [
        # words count as often as both have them
        ("to be to do", ["to be or to see to"], (0, 0.6)),
        ("the New York", ["new york!"], (1, 1)),
        ("x", ["y"], (0, 0)),
        # an empty answer is right only where there is none; nothing is left of "the"
        ("", [], (1, 1)),
        ("the", [], (1, 1)),
        ("x", [], (0, 0)),
        ("", ["x"], (0, 0)),
        ("", ["the", "x"], (0, 0)),
        ("", ["the"], (1, 1)),
        # of several references the best counts, for exact match and F1 each
        ("red car", ["blue car", "a red, car", "red car outside"], (1, 1)),
        ("red car", ["big red car", "red"], (0, 0.8)),
        ("x", ["x y", "x z"], (0, 2 / 3)),
    ],
)
def test_overlap_by_hand(
    answer: str, references: list[str], wanted: tuple[float, ...]
) -> None:
    known = {"question": "q", "paragraphs": PARAGRAPHS, **texts(*references)}
    record = QuestionRecord.model_validate_json(json.dumps(known))
    found = official_metrics("span", [(record, {"answer": answer})])
    assert (found["exact_match"], found["f1"]) == pytest.approx(wanted)


ONE, TWO = (
    {"text": text, "paragraph": 0, "start": start}
    for text, start in (("One", 0), ("Two", 5))
)
SHORT = {"answer": "One", "paragraph": 0, "start": 0, "type": "short", "long_answer": 0}
SURE = {**SHORT, "score": 1.0, "long_score": 1.0}


def annotations(*longs: int | None, short: int = 0) -> Values:
    """Annotators who say these paragraphs, the first `short` of them with the short answer One."""
    return {
        "annotations": [
            {"type": "null"}
            if paragraph is None
            else {
                "long_answer": paragraph,
                **({"answers": [ONE], "type": "short"} if n < short else {}),
            }
            for n, paragraph in enumerate(longs)
        ]
    }


FACTS = [[0, 1], [1, 0]]
JOINT = 2 * (1 / 3) * (1 / 2) / (1 / 3 + 1 / 2)


@pytest.mark.parametrize(
    ("form", "pairs", "wanted"),
    [
        (
            "span",
            [
                *((texts("a dog", "hound"), {"answer": "Dog."}), ({}, {"answer": ""})),
                *(({}, {"answer": "x"}), (texts("cat"), {"answer": ""})),
            ],
            {"exact_match": 0.5, "f1": 0.5},
        ),
        (
            "triviaqa",  # the A of the alias is an article
            [
                (texts("Sir Arthur-Conan Doyle", "A. C. Doyle"), {"answer": said})
                for said in ("arthur conan doyle", "C Doyle")
            ],
            {"exact_match": 0.5, "f1": (6 / 7 + 1) / 2},
        ),
        (
            "hotpotqa",  # first: answer precision 2/3, recall 1; facts precision 1/2, recall 1/2
            [
                (
                    texts("red car", facts=FACTS),
                    {"answer": "big red car", "facts": [[0, 1], [0, 2]]},
                ),
                (
                    {"type": "yes", "facts": [[0, 0]]},
                    {"answer": "Yes", "facts": [[0, 0]]},
                ),
            ],
            {
                **{
                    "exact_match": 0.5,
                    "f1": (0.8 + 1) / 2,
                    "facts_exact_match": 0.5,
                    "facts_f1": 0.75,
                },
                **{
                    "joint_f1": (JOINT + 1) / 2,
                    "joint_exact_match": 0.5,
                },
            },
        ),
        # Yes and no share nothing with words.
        *(
            ("hotpotqa", [(texts(truth), {"answer": said})], {"f1": f1})
            for said, truth, f1 in (
                *(
                    ("yes", "yes", 1),
                    ("yes", "yes it is", 0),
                    ("no way", "no", 0),
                    ("noanswer", "no", 0),
                ),
                ("one way", "no way", 0.5),
            )
        ),
        (
            "hotpotqa",
            [(texts("x", facts=FACTS[:1]), {"answer": "x", "facts": []})],
            {"exact_match": 1, "facts_f1": 0, "joint_f1": 0},
        ),
        (
            "hotpotqa",  # a fact that is not in the context counts as missed
            [
                (
                    texts("x", facts=FACTS[:1], facts_elsewhere=1),
                    {"answer": "x", "facts": [[0, 1]]},
                )
            ],
            {
                **{
                    "facts_exact_match": 0,
                    "joint_exact_match": 0,
                },
                **{"facts_f1": 2 / 3, "joint_f1": 2 / 3},
            },
        ),
        (
            "hotpotqa",
            [(texts("x", facts_elsewhere=2), {"answer": "x", "facts": []})],
            {"facts_exact_match": 0, "facts_f1": 0, "joint_exact_match": 0},
        ),
        (
            "wikihop",
            [
                (texts("New York", candidates=["new york", "Boston"]), {"answer": said})
                for said in ("New York", "Boston", "")
            ],
            {"accuracy": 1 / 3},
        ),
        (
            "natural_questions",  # two annotators are needed, and any of them is right
            [
                (annotations(0, 1, None, None, None, short=2), SURE),  # has both; right
                (
                    annotations(0, None, None, None, None, short=1),
                    SURE,
                ),  # one annotator is not enough
                (
                    annotations(1, 1, 1, 0, None),
                    SURE,
                ),  # long right by the fourth, no short answer
                (annotations(1, 1, 1, 1, 1), {**SURE, "type": "null"}),  # long wrong
            ],
            {
                # long: three have one, three are given, two of these right
                **{"long_precision": 2 / 3, "long_recall": 2 / 3},
                # short: one has one, three are given, one right
                **{"short_precision": 1 / 3, "short_recall": 1, "short_f1": 0.5},
            },
        ),
        (
            "natural_questions",  # yes and no count, and all spans of an annotator
            [
                (
                    {"type": "yes", "long_answer": 0},
                    {"answer": "One", "type": "yes", "long_answer": 0},
                ),
                ({"type": "short", "long_answer": 0, "answers": [ONE, TWO]}, SHORT),
                ({"type": "null"}, {"answer": "", "type": "null", "long_answer": None}),
            ],
            # one of two spans is not the answer
            {"long_f1": 1, "short_precision": 0.5, "short_recall": 0.5},
        ),
    ],
)
def test_figures_by_hand(
    form: Any, pairs: list[tuple[Values, Values]], wanted: dict[str, float]
) -> None:
    """Of what is known of questions, and what is predicted."""
    asked = {"question": "q", "paragraphs": PARAGRAPHS}
    truths = [
        QuestionRecord.model_validate_json(json.dumps(asked | known))
        for known, _ in pairs
    ]
    found = official_metrics(
        form, [*zip(truths, (said for _, said in pairs), strict=True)]
    )
    assert {name: found[name] for name in wanted} == pytest.approx(wanted)
    assert found["records"] == len(pairs)
    if form == "span":
        assert found.keys() == {*wanted, "records"}


FORMS = ("span", "hotpotqa", "natural_questions", "triviaqa", "wikihop")


@pytest.mark.parametrize(
    ("form", "encoder", "figure"),
    [
        ("span", ITC, "exact_match"),
        ("hotpotqa", ETC, "joint_f1"),
        ("natural_questions", ITC, "long_f1"),
        ("triviaqa", ETC, "f1"),
        ("wikihop", ETC, "accuracy"),
    ],
    ids=FORMS,
)
def test_every_form_from_its_records_to_its_figures(
    run: Run,
    write: Write,
    tmp_path: Path,
    form: str,
    encoder: dict[str, Any],
    figure: str,
) -> None:
    config = write(qa={**QUESTIONS, "form": form, "encoder": encoder})
    done(run, config, "qa", "prepare", "train", "predict", "evaluate")
    home = tmp_path / "results/qa"
    records, said = (
        read_lines(home / "data/test.jsonl"),
        read_lines(home / "predictions.jsonl"),
    )
    assert [one["id"] for one in said] == [one["id"] for one in records]
    for record, one in zip(records, said, strict=True):
        if "start" in one:  # the answer is what the source has there
            text = "".join(record["paragraphs"][one["paragraph"]]["sentences"])
            assert one["answer"] and text.startswith(one["answer"], one["start"])
        if form == "wikihop":
            assert one["answer"] in record["candidates"]
    found = figures(home)
    assert (
        found["records"] == 4
        and all(0 <= value <= 4 for value in found.values())
        and figure in found
    )


def test_generated_answers_follow_from_the_facts_and_are_far_away() -> None:
    generated = GeneratedConfig(train=1, valid=1, test=30, words=96)
    made = [*generate_questions(generated, "test")]
    assert made == [*generate_questions(generated, "test")]
    for values in made:
        record = QuestionRecord.model_validate_json(json.dumps(values))
        text = " ".join("".join(one.sentences) for one in record.paragraphs)
        told = dict(part.rstrip(".").split(" is ") for part in _told(text, "is"))
        assert len(_told(text, "is")) == CHAINS
        assert text.index(" is ") > len(text) / 4
        found = told[record.question]
        assert record.answers[0].text == found
        ((paragraph, number),) = record.facts
        sentence = record.paragraphs[paragraph].sentences[number]
        assert record.question in sentence and found in sentence
        assert len(record.candidates) == CHAINS and found in record.candidates


def _told(text: str, verb: str) -> list[str]:
    words = text.split()
    return [
        f"{words[n - 1]} {verb} {words[n + 1]}"
        for n in range(1, len(words) - 1)
        if words[n] == verb
    ]


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_what_is_further_away_than_windows_is_found_by_bigbird_alone(
    run: Run, tmp_path: Path
) -> None:
    """As the demo trains them: an answer, and the sentence that supports it, among four of each."""
    config = REPOSITORY / "workflow/config/nlp.yaml"
    found = {}
    for task in ("answers", "answers-window"):
        settings = read_config(config).task(task)
        assert isinstance(settings, AnswersTaskConfig)
        # Both layers' windows together reach less far than the first sentence that tells anything stands.
        reach = settings.encoder.layers * (settings.encoder.block_size * 2 - 1)
        assert (
            settings.data.generated is not None
            and reach < settings.data.generated.words / 3 + 4
        )
        commands = ("prepare", "train", "predict", "evaluate")
        done(run, config, task, *commands, more=("--set", f"results={tmp_path}"))
        found[task] = figures(tmp_path / task)
    assert found["answers"]["exact_match"] > 0.9 and found["answers"]["facts_f1"] > 0.9
    assert (
        found["answers-window"]["exact_match"] < 0.3
        and found["answers-window"]["facts_f1"] < 0.5
    )


def read(form: Any) -> list[QuestionRecord]:
    """The records of a data set's own file."""
    return read_public(form, PUBLIC / f"{form}.json")


def test_hotpotqa() -> None:
    (found,) = read("hotpotqa")
    assert (found.id, found.type, found.answers[0].paragraph) == ("5a8b", "yes", None)
    assert [one.title for one in found.paragraphs] == ["Book"]
    assert found.facts == ((0, 1),)
    assert found.facts_elsewhere == 1  # of the official set of facts
    row = json.loads((PUBLIC / "rows.json").read_text())["hotpotqa"]["row"]
    spread = public_record("hotpotqa", {**row, "answer": "Bob"})
    assert spread is not None and spread["answers"] == [{"text": "Bob"}]


def test_natural_questions() -> None:
    (found,) = read("natural_questions")
    assert [one.sentences for one in found.paragraphs] == [
        ("Bees make honey .",),
        ("In 1901",),
    ]
    assert (found.id, found.type, found.long_answer) == ("12", "short", 0)
    assert [(one.text, one.paragraph, one.start) for one in found.answers] == [
        ("honey", 0, 10)
    ]
    assert [one.type for one in found.annotations] == ["short", "null", "yes"]
    assert found.annotations[2].long_answer == 1  # of the table that the cell is in
    row = json.loads((PUBLIC / "natural_questions.json").read_text())
    assert (
        public_record("natural_questions", {**row, "long_answer_candidates": []})
        is None
    )
    del row["annotations"]
    assert "type" not in (public_record("natural_questions", row) or {})


def test_triviaqa_without_documents_is_skipped() -> None:
    row = json.loads((PUBLIC / "rows.json").read_text())["triviaqa"]["row"]
    none = {"title": [], "wiki_context": [], "search_context": []}
    empty = {**row, "entity_pages": none, "search_results": none}
    assert public_record("triviaqa", empty) is None


def test_wikihop() -> None:
    found = read("wikihop")[0]
    assert found.question == "located in park" and found.candidates == ("york", "leeds")
    assert [one.text for one in found.answers] == ["york"]
    assert len(found.paragraphs) == 2


def test_span_is_no_data_set() -> None:
    with fails(ConfigError, "span"):
        public_record("span", {})
