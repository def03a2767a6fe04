"""Figures of answers on cases that were counted by hand from the official definitions."""

import json
from functools import partial
from typing import Any

import pytest

from bigbird_dna.papers.nlp.answers.metrics import (
    AnswerEvaluation,
    best_f1,
    best_overlap,
    normalized,
    official_metrics,
    overlap,
    precision_recall,
)
from bigbird_dna.papers.nlp.records import QuestionRecord

PARAGRAPHS = [{"sentences": ["One. ", "Two. ", "Three."]}, {"sentences": ["Four. ", "Five."]}]
Values = dict[str, Any]


def texts(*answers: str, **values: Any) -> Values:
    return {"answers": [{"text": one} for one in answers], **values}


def judged(form: Any, *pairs: tuple[Values, Values]) -> dict[str, float]:
    """Figures of what is known of questions, and what is predicted."""
    asked = {"question": "q", "paragraphs": PARAGRAPHS}
    truths = [QuestionRecord.model_validate_json(json.dumps(asked | known)) for known, _ in pairs]
    return official_metrics(form, [*zip(truths, (said for _, said in pairs), strict=True)])


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
def test_normalisation_is_that_of_the_data_sets(text: str, squad: str, trivia: str) -> None:
    assert (normalized(text), normalized(text, marks_are_blanks=True)) == (squad, trivia)


@pytest.mark.parametrize(
    ("answer", "references", "wanted"),
    [
        # words count as often as both have them
        ("to be to do", ["to be or to see to"], (0, 0.6, 3 / 4, 3 / 6)),
        ("the New York", ["new york!"], (1, 1, 1, 1)),
        ("x", ["y"], (0, 0, 0, 0)),
        # an empty answer is right only where there is none; nothing is left of "the"
        *(("", [], (1,) * 4), ("the", [], (1,) * 4), ("x", [], (0,) * 4), ("", ["x"], (0,) * 4)),
        *(("", ["the", "x"], (0,) * 4), ("", ["the"], (1,) * 4)),
        # of several references the best counts, for exact match and F1 each
        ("red car", ["blue car", "a red, car", "red car outside"], (1, 1, 1, 1)),
        ("red car", ["big red car", "red"], (0, 0.8, 1, 2 / 3)),
        ("x", ["x y", "x z"], (0, 2 / 3, 1, 1 / 2)),
    ],
)
def test_overlap_by_hand(answer: str, references: list[str], wanted: tuple[float, ...]) -> None:
    assert best_overlap(answer, references) == pytest.approx(wanted)
    for one in references if len(references) == 1 else ():
        assert overlap(answer, one) == pytest.approx(wanted)


FACTS = [{"paragraph": 0, "sentence": 1}, {"paragraph": 1, "sentence": 0}]
JOINT = 2 * (1 / 3) * (1 / 2) / (1 / 3 + 1 / 2)
SQUAD = [f"{kind}{name}" for kind in ("", "answerable_", "unanswerable_") for name in ("exact_match", "f1")]


@pytest.mark.parametrize(
    ("form", "pairs", "wanted"),
    [
        (
            "span",
            [
                *((texts("a dog", "hound"), {"answer": "Dog."}), ({}, {"answer": ""})),
                *(({}, {"answer": "x"}), (texts("cat"), {"answer": ""})),
            ],
            dict.fromkeys(SQUAD, 0.5),
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
                (texts("red car", facts=FACTS), {"answer": "big red car", "facts": [[0, 1], [0, 2]]}),
                (
                    {"type": "yes", "facts": [{"paragraph": 0, "sentence": 0}]},
                    {"answer": "Yes", "facts": [[0, 0]]},
                ),
            ],
            {
                **{"exact_match": 0.5, "f1": (0.8 + 1) / 2, "facts_exact_match": 0.5, "facts_f1": 0.75},
                **{"joint_f1": (JOINT + 1) / 2, "joint_exact_match": 0.5, "joint_precision": (1 / 3 + 1) / 2},
            },
        ),
        # Yes and no share nothing with words.
        *(
            ("hotpotqa", [(texts(truth), {"answer": said})], {"f1": f1})
            for said, truth, f1 in (
                *(("yes", "yes", 1), ("yes", "yes it is", 0), ("no way", "no", 0), ("noanswer", "no", 0)),
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
            [(texts("x", facts=FACTS[:1], facts_elsewhere=1), {"answer": "x", "facts": [[0, 1]]})],
            {
                **{"facts_exact_match": 0, "joint_exact_match": 0, "facts_precision": 1, "facts_recall": 0.5},
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
    ],
)
def test_figures_by_hand(form: str, pairs: list[tuple[Values, Values]], wanted: dict[str, float]) -> None:
    found = judged(form, *pairs)
    assert {name: found[name] for name in wanted} == pytest.approx(wanted)
    assert found["records"] == len(pairs)
    if form == "span":
        assert found.keys() == {*wanted, "records"}


ONE = {"text": "One", "paragraph": 0, "start": 0}
SHORT = {"answer": "One", "paragraph": 0, "start": 0, "type": "short", "long_answer": 0}


def annotations(*longs: int | None, short: int = 0) -> Values:
    """Annotators who say these paragraphs, the first `short` of them with the short answer One."""
    return {
        "annotations": [
            {"type": "null"}
            if paragraph is None
            else {"long_answer": paragraph, **({"answers": [ONE], "type": "short"} if n < short else {})}
            for n, paragraph in enumerate(longs)
        ]
    }


def test_natural_questions_need_two_annotators_and_any_of_them_is_right() -> None:
    said = {**SHORT, "score": 1.0, "long_score": 1.0}
    found = judged(
        "natural_questions",
        (annotations(0, 1, None, None, None, short=2), said),  # has both; right
        (annotations(0, None, None, None, None, short=1), said),  # one annotator is not enough
        (annotations(1, 1, 1, 0, None), said),  # long right by the fourth, no short answer
        (annotations(1, 1, 1, 1, 1), {**said, "type": "null"}),  # long wrong
    )
    # long: three have one, three are given, two of these right
    assert found["long_precision"] == found["long_recall"] == pytest.approx(2 / 3)
    # short: one has one, three are given, one right
    assert found["short_precision"] == pytest.approx(1 / 3) and found["short_recall"] == 1
    assert found["short_f1"] == pytest.approx(0.5)


def test_natural_questions_yes_no_and_all_spans_of_an_annotator_count() -> None:
    two = [ONE, {"text": "Two", "paragraph": 0, "start": 5}]
    found = judged(
        "natural_questions",
        ({"type": "yes", "long_answer": 0}, {"answer": "One", "type": "yes", "long_answer": 0}),
        ({"type": "short", "long_answer": 0, "answers": two}, SHORT),
        ({"type": "null"}, {"answer": "", "type": "null", "long_answer": None}),
    )
    assert found["long_f1"] == 1
    assert found["short_precision"] == found["short_recall"] == 0.5  # one of two spans is not the answer


def test_the_best_threshold_gives_ties_together() -> None:
    given = partial(AnswerEvaluation, said=True)
    found = [
        *(given(has=True, right=True, score=3.0), given(has=True, right=True, score=2.0)),
        *(given(has=False, right=False, score=2.0), given(has=True, right=False, score=1.0)),
    ]
    assert precision_recall(found)[2] == pytest.approx(2 * 0.5 * (2 / 3) / (0.5 + 2 / 3))
    assert best_f1(found) == pytest.approx(2 / 3)  # of the three above 1: 2 right of 3, of 3
    assert best_f1([AnswerEvaluation(True, False, False, 0.0)]) == 0
    assert precision_recall([]) == (0, 0, 0)
