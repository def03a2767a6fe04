"""Metrics of answers by the official definition of each data set; all are fractions from 0 to 1.

Answers are compared in lower case, without punctuation and articles, with white space as single spaces. F1 is
based on common words, counted with multiplicity (SQuAD, HotpotQA, TriviaQA).
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

from bigbird_dna.papers.nlp.config import AnswerForm
from bigbird_dna.papers.nlp.records import QuestionRecord

ARTICLES = frozenset({"a", "an", "the"})
_PUNCTUATION = frozenset(string.punctuation)
_CURLY = frozenset("‘’´`_")  # additional punctuation in TriviaQA's definition
_ARTICLE = re.compile(r"\b(a|an|the)\b")
UNEXPLAINED = frozenset({"yes", "no", "noanswer"})
"""HotpotQA: these answers are entirely right or wrong, without partial credit."""


class Overlap(NamedTuple):
    """Overlap of two answers, each value from 0 to 1."""

    exact_match: float
    f1: float
    precision: float
    recall: float


def _f1(precision: float, recall: float) -> float:
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def _overlap(common: int, predicted: int, known: int, exact: float) -> Overlap:
    """Return the overlap from the numbers of common, `predicted` and `known` items."""
    precision, recall = (common / predicted, common / known) if common else (0.0, 0.0)
    return Overlap(exact, _f1(precision, recall), precision, recall)


def normalized(text: str, *, marks_are_blanks: bool = False) -> str:
    """Normalize an answer for comparison.

    With `marks_are_blanks` (TriviaQA), punctuation separates words; otherwise (SQuAD), ASCII punctuation is
    removed without separating words.
    """
    text = text.lower()
    if marks_are_blanks:
        text = "".join(
            " " if one in _PUNCTUATION or one in _CURLY else one for one in text
        )
    else:
        text = "".join(one for one in text if one not in _PUNCTUATION)
    return " ".join(_ARTICLE.sub(" ", text).split())


Normal = Callable[[str], str]


def overlap(answer: str, reference: str, normal: Normal = normalized) -> Overlap:
    """Return the overlap of an answer with a reference; if one of them is empty, both must be."""
    mine, theirs = normal(answer), normal(reference)
    exact, words, others = float(mine == theirs), mine.split(), theirs.split()
    if not words or not others:
        return Overlap(exact, exact, exact, exact)
    return _overlap(
        (Counter(words) & Counter(others)).total(), len(words), len(others), exact
    )


def best_overlap(
    answer: str, references: Sequence[str], normal: Normal = normalized
) -> Overlap:
    """Return the best exact match and the best F1 over references, independently; no references: empty text.

    References that are empty after normalization are used only if there are no others (SQuAD).
    """
    found = [
        overlap(answer, one, normal) for one in [*filter(normal, references)] or [""]
    ]
    best = max(found, key=lambda one: one.f1)
    return best._replace(exact_match=max(one.exact_match for one in found))


def whole_or_nothing(answer: str, reference: str) -> Overlap:
    """Return HotpotQA's overlap: as `overlap`, but a yes or no that differs has no overlap."""
    mine, theirs = normalized(answer), normalized(reference)
    if mine != theirs and (mine in UNEXPLAINED or theirs in UNEXPLAINED):
        return Overlap(0.0, 0.0, 0.0, 0.0)
    return overlap(answer, reference)


Pairs = Sequence[tuple[QuestionRecord, Mapping[str, Any]]]
"""Records, each with its prediction."""
ENOUGH = 2
"""Number of annotators who must have found an answer for a question of Natural Questions to have one."""


def official_metrics(form: AnswerForm, pairs: Pairs) -> dict[str, float]:
    """Return the metrics of a form."""
    measures: dict[AnswerForm, Callable[[Pairs], dict[str, float]]] = {
        "span": text_metrics,
        "triviaqa": partial(
            text_metrics, normal=partial(normalized, marks_are_blanks=True)
        ),
        "hotpotqa": hotpot_metrics,
        "natural_questions": natural_metrics,
        "wikihop": candidate_metrics,
    }
    return {**measures[form](pairs), "records": len(pairs)}


def text_metrics(pairs: Pairs, normal: Normal = normalized) -> dict[str, float]:
    """Return exact match and F1 of SQuAD, or of TriviaQA with its `normal` form; the best over all aliases.

    The correct answer to a question without answers is the empty text. If questions with and without answers
    occur, both kinds also have separate metrics.
    """
    found = [
        best_overlap(predicted["answer"], [one.text for one in record.answers], normal)
        for record, predicted in pairs
    ]
    figures, answered = _means(found), [bool(record.answers) for record, _ in pairs]
    if not all(answered) and any(answered):
        for word, wanted in (("answerable_", True), ("unanswerable_", False)):
            part = [
                one for one, has in zip(found, answered, strict=True) if has is wanted
            ]
            figures |= _means(part, word)
    return figures


def _means(
    found: Sequence[Overlap], prefix: str = "", parts: int = 2
) -> dict[str, float]:
    """Return the means of exact match and F1; with four `parts`, also of precision and recall."""
    return {
        f"{prefix}{part}": _mean(getattr(one, part) for one in found)
        for part in Overlap._fields[:parts]
    }


def hotpot_metrics(pairs: Pairs) -> dict[str, float]:
    """Return HotpotQA's metrics of the answer, of the supporting facts, and of both jointly.

    Joint precision and recall are products; a joint exact match needs both. Facts missing in the context
    count as not found.
    """
    answers, facts, joint = [], [], []
    for record, predicted in pairs:
        truth = record.answers[0].text if record.answers else (record.type or "")
        answers.append(whole_or_nothing(predicted["answer"], truth))
        known = {(one.paragraph, one.sentence) for one in record.facts}
        named = {(fact[0], fact[1]) for fact in predicted.get("facts", ())}
        elsewhere = record.facts_elsewhere
        exact = float(named == known and not elsewhere)
        facts.append(
            _overlap(len(named & known), len(named), len(known) + elsewhere, exact)
        )
        precision, recall = (
            getattr(answers[-1], part) * getattr(facts[-1], part)
            for part in ("precision", "recall")
        )
        exact = answers[-1].exact_match * facts[-1].exact_match
        joint.append(Overlap(exact, _f1(precision, recall), precision, recall))
    return (
        _means(answers, "", 4) | _means(facts, "facts_", 4) | _means(joint, "joint_", 4)
    )


def candidate_metrics(pairs: Pairs) -> dict[str, float]:
    """Return WikiHop's accuracy of the chosen candidate."""
    right = (
        bool(record.answers)
        and normalized(predicted["answer"]) == normalized(record.answers[0].text)
        for record, predicted in pairs
    )
    return {"accuracy": _mean(map(float, right))}


class AnswerEvaluation(NamedTuple):
    """Evaluation of a question: has an answer, answer predicted, answer right, and score."""

    has: bool
    predicted: bool
    right: bool
    score: float


def natural_metrics(pairs: Pairs) -> dict[str, float]:
    """Return F1 of long and of short answers of Natural Questions, with precision and recall.

    A question has an answer if at least two annotators, or its only annotator, found one. A predicted answer
    is right if any annotator gave it: the same paragraph, the same short answers, or the same yes or no.
    Precision is over predicted answers, recall over questions with an answer. `best_f1` is the best F1 over
    thresholds on the scores, as in the official script.
    """
    evaluated: dict[str, list[AnswerEvaluation]] = {"long": [], "short": []}
    for record, predicted in pairs:
        known = record.annotations or (record,)
        given = (
            None if predicted.get("type") == "null" else predicted.get("long_answer")
        )
        longs = [one.long_answer for one in known]
        evaluated["long"].append(_evaluated(given, longs, predicted.get("long_score")))
        shorts = [
            _short(one.type, ((a.paragraph, a.start, a.text) for a in one.answers))
            for one in known
        ]
        place = (
            predicted.get("paragraph"),
            predicted.get("start"),
            predicted.get("answer"),
        )
        short = _short(
            predicted.get("type"),
            [place] if predicted.get("type") == "short" and place[2] else [],
        )
        evaluated["short"].append(_evaluated(short, shorts, predicted.get("score")))
    figures: dict[str, float] = {}
    for word, found in evaluated.items():
        precision, recall, f1 = precision_recall(found)
        figures |= {
            f"{word}_f1": f1,
            f"{word}_precision": precision,
            f"{word}_recall": recall,
        }
        figures[f"{word}_best_f1"] = best_f1(found)
    return figures


def precision_recall(found: Sequence[AnswerEvaluation]) -> tuple[float, float, float]:
    """Return precision, recall and F1 of evaluated answers; 0 if undefined."""
    right = sum(one.right and one.has and one.predicted for one in found)
    predicted, has = sum(one.predicted for one in found), sum(one.has for one in found)
    precision, recall = (
        (right / predicted if predicted else 0.0),
        (right / has if has else 0.0),
    )
    return precision, recall, _f1(precision, recall)


def best_f1(found: Sequence[AnswerEvaluation]) -> float:
    """Return the best F1 over thresholds on the scores of predicted answers."""
    has = sum(one.has for one in found)
    best, given, right = 0.0, 0, 0
    predicted = sorted(
        (one for one in found if one.predicted), key=lambda one: -one.score
    )
    for _, tied in groupby(predicted, key=lambda one: one.score):
        alike = [one.right and one.has for one in tied]
        given, right = given + len(alike), right + sum(alike)
        best = max(best, _f1(right / given, right / has) if right else 0.0)
    return best


def _evaluated(given: Any, known: Sequence[Any], score: object) -> AnswerEvaluation:
    enough = min(ENOUGH, len(known))
    has = sum(one is not None for one in known) >= enough > 0
    value = float(score) if isinstance(score, int | float) else 0.0
    return AnswerEvaluation(
        has, given is not None, given is not None and given in known, value
    )


def _short(kind: str | None, places: Iterable[Any]) -> Any:
    """Return a short answer for comparison: yes, no, a set of positions, or None."""
    return kind if kind in ("yes", "no") else frozenset(places) or None


def _mean(values: Iterable[float]) -> float:
    kept = [*values]
    return sum(kept) / len(kept) if kept else 0.0
