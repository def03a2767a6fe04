"""Figures of answers on cases that were counted by hand from the official definitions."""

import json
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
    whole_or_nothing,
)
from bigbird_dna.papers.nlp.records import QuestionRecord

PARAGRAPHS = [{"sentences": ["One. ", "Two. ", "Three."]}, {"sentences": ["Four. ", "Five."]}]


def record(**values: Any) -> QuestionRecord:
    return QuestionRecord.model_validate_json(
        json.dumps({"question": "q", "paragraphs": PARAGRAPHS, **values})
    )


def texts(*answers: str) -> dict[str, Any]:
    return {"answers": [{"text": one} for one in answers]}


def judged(form: Any, truths: list[QuestionRecord], said: list[dict[str, Any]]) -> dict[str, float]:
    return official_metrics(form, [*zip(truths, said, strict=True)])


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
    assert normalized(text) == squad
    assert normalized(text, marks_are_blanks=True) == trivia


def test_f1_counts_words_as_often_as_both_have_them() -> None:
    found = overlap("to be to do", "to be or to see to")
    assert found.exact_match == 0
    assert found.precision == 3 / 4 and found.recall == 3 / 6
    assert found.f1 == pytest.approx(0.6)
    assert (
        overlap("the New York", "new york!").exact_match == 1 and overlap("the New York", "new york!").f1 == 1
    )
    assert overlap("x", "y") == (0, 0, 0, 0)


def test_an_empty_answer_is_right_only_where_there_is_none() -> None:
    # Nothing is left of "the"; as a reference it counts only by itself.
    for answer, references, right in (
        *(("", [], 1), ("the", [], 1), ("x", [], 0)),
        *(("", ["x"], 0), ("", ["the", "x"], 0), ("", ["the"], 1)),
    ):
        assert best_overlap(answer, references) == (right,) * 4


def test_of_several_references_the_best_counts_for_each_figure() -> None:
    found = best_overlap("red car", ["blue car", "a red, car", "red car outside"])
    assert found.exact_match == 1 and found.f1 == 1
    found = best_overlap("red car", ["big red car", "red"])
    assert found.exact_match == 0 and found.f1 == pytest.approx(0.8)
    assert best_overlap("x", ["x y", "x z"]).f1 == pytest.approx(2 / 3)  # ties


def test_squad_counts_answerable_and_unanswerable_questions_apart() -> None:
    figures = judged(
        "span",
        [record(**texts("a dog", "hound")), record(), record(), record(**texts("cat"))],
        [{"answer": "Dog."}, {"answer": ""}, {"answer": "x"}, {"answer": ""}],
    )
    names = [
        f"{kind}{name}" for kind in ("", "answerable_", "unanswerable_") for name in ("exact_match", "f1")
    ]
    assert figures == {**dict.fromkeys(names, 0.5), "records": 4}


def test_triviaqa_takes_the_best_alias() -> None:
    truth = record(**texts("Sir Arthur-Conan Doyle", "A. C. Doyle"))
    figures = judged("triviaqa", [truth, truth], [{"answer": "arthur conan doyle"}, {"answer": "C Doyle"}])
    assert figures["exact_match"] == 0.5  # the A of the alias is an article
    assert figures["f1"] == pytest.approx((6 / 7 + 1) / 2)


def test_hotpotqas_yes_and_no_share_nothing_with_words() -> None:
    pairs = [
        ("yes", "yes"),
        ("yes", "yes it is"),
        ("no way", "no"),
        ("noanswer", "no"),
        ("one way", "no way"),
    ]
    assert [whole_or_nothing(*pair).f1 for pair in pairs] == [1, 0, 0, 0, 0.5]


def test_hotpotqas_joint_figures_are_products() -> None:
    truth = record(
        **texts("red car"), facts=[{"paragraph": 0, "sentence": 1}, {"paragraph": 1, "sentence": 0}]
    )
    yes = record(type="yes", facts=[{"paragraph": 0, "sentence": 0}])
    figures = judged(
        "hotpotqa",
        [truth, yes],
        [{"answer": "big red car", "facts": [[0, 1], [0, 2]]}, {"answer": "Yes", "facts": [[0, 0]]}],
    )
    # first: answer precision 2/3, recall 1; facts precision 1/2, recall 1/2
    assert figures["exact_match"] == 0.5 and figures["f1"] == pytest.approx((0.8 + 1) / 2)
    assert figures["facts_exact_match"] == 0.5 and figures["facts_f1"] == pytest.approx(0.75)
    precision, recall = 2 / 3 / 2, 1 / 2
    first = 2 * precision * recall / (precision + recall)
    assert figures["joint_f1"] == pytest.approx((first + 1) / 2)
    assert figures["joint_exact_match"] == 0.5
    assert figures["joint_precision"] == pytest.approx((precision + 1) / 2)


def test_hotpotqa_without_facts_said_gives_nothing() -> None:
    truth = record(**texts("x"), facts=[{"paragraph": 0, "sentence": 1}])
    figures = judged("hotpotqa", [truth], [{"answer": "x", "facts": []}])
    assert figures["exact_match"] == 1 and figures["facts_f1"] == figures["joint_f1"] == 0


def test_facts_that_are_not_in_the_context_count_as_missed() -> None:
    truth = record(**texts("x"), facts=[{"paragraph": 0, "sentence": 1}], facts_elsewhere=1)
    none = record(**texts("x"), facts_elsewhere=2)
    said = {"answer": "x", "facts": [[0, 1]]}
    figures = judged("hotpotqa", [truth], [said])
    assert figures["facts_exact_match"] == figures["joint_exact_match"] == 0
    assert (figures["facts_precision"], figures["facts_recall"]) == (1, 0.5)
    assert figures["facts_f1"] == figures["joint_f1"] == pytest.approx(2 / 3)
    figures = judged("hotpotqa", [none], [{"answer": "x", "facts": []}])
    assert figures["facts_exact_match"] == figures["facts_f1"] == figures["joint_exact_match"] == 0


def annotations(*longs: int | None, short: int = 0) -> dict[str, Any]:
    """Annotators who say these paragraphs, the first `short` of them with the short answer One."""
    one = {"text": "One", "paragraph": 0, "start": 0}
    return {
        "annotations": [
            {"type": "null"}
            if paragraph is None
            else {"long_answer": paragraph, **({"answers": [one], "type": "short"} if n < short else {})}
            for n, paragraph in enumerate(longs)
        ]
    }


def test_natural_questions_need_two_annotators_and_any_of_them_is_right() -> None:
    said = {"answer": "One", "paragraph": 0, "start": 0, "type": "short", "long_answer": 0}
    scores = {"score": 1.0, "long_score": 1.0}
    truths = [
        record(**annotations(0, 1, None, None, None, short=2)),  # has both; right
        record(**annotations(0, None, None, None, None, short=1)),  # one annotator is not enough
        record(**annotations(1, 1, 1, 0, None)),  # long right by the fourth, no short answer
        record(**annotations(1, 1, 1, 1, 1)),  # long wrong
    ]
    figures = judged(
        "natural_questions", truths, [{**said, **scores}] * 3 + [{**said, "type": "null", **scores}]
    )
    # long: three have one, three are given, two of these right
    assert figures["long_precision"] == pytest.approx(2 / 3) and figures["long_recall"] == pytest.approx(
        2 / 3
    )
    # short: one has one, three are given, one right
    assert figures["short_precision"] == pytest.approx(1 / 3) and figures["short_recall"] == 1
    assert figures["short_f1"] == pytest.approx(0.5)


def test_natural_questions_yes_no_and_all_spans_of_an_annotator_count() -> None:
    two = [{"text": "One", "paragraph": 0, "start": 0}, {"text": "Two", "paragraph": 0, "start": 5}]
    truths = [
        record(type="yes", long_answer=0),
        record(type="short", long_answer=0, answers=two),
        record(type="null"),
    ]
    said: list[dict[str, Any]] = [
        {"answer": "One", "type": "yes", "long_answer": 0},
        {"answer": "One", "paragraph": 0, "start": 0, "type": "short", "long_answer": 0},
        {"answer": "", "type": "null", "long_answer": None},
    ]
    figures = judged("natural_questions", truths, said)
    assert figures["long_f1"] == 1
    assert figures["short_precision"] == figures["short_recall"] == 0.5  # one of two spans is not the answer


def test_the_best_threshold_gives_ties_together() -> None:
    found = [
        AnswerEvaluation(True, True, True, 3.0),
        AnswerEvaluation(True, True, True, 2.0),
        AnswerEvaluation(False, True, False, 2.0),
        AnswerEvaluation(True, True, False, 1.0),
    ]
    assert precision_recall(found)[2] == pytest.approx(2 * 0.5 * (2 / 3) / (0.5 + 2 / 3))
    assert best_f1(found) == pytest.approx(2 / 3)  # of the three above 1: 2 right of 3, of 3
    assert best_f1([AnswerEvaluation(True, False, False, 0.0)]) == 0
    assert precision_recall([]) == (0, 0, 0)


def test_wikihop_is_judged_by_the_candidate() -> None:
    truth = record(**texts("New York"), candidates=["new york", "Boston"])
    figures = judged(
        "wikihop", [truth, truth, truth], [{"answer": "New York"}, {"answer": "Boston"}, {"answer": ""}]
    )
    assert figures["accuracy"] == pytest.approx(1 / 3)
