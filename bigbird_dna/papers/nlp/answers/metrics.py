"""Figures of answers by the official definitions of each data set; all are shares from 0 to 1.

Answers are compared in lower case, without punctuation and articles, white space being one blank. F1 is that
of the words that both have, counted as often as both have them (SQuAD, HotpotQA, TriviaQA).
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from bigbird_dna.papers.nlp.config import AnswerForm
from bigbird_dna.papers.nlp.records import QuestionRecord

ARTICLES = frozenset({"a", "an", "the"})
_PUNCTUATION = frozenset(string.punctuation)
_CURLY = frozenset("‘’´`_")  # beside those of ASCII, in TriviaQA's definition
_ARTICLE = re.compile(r"\b(a|an|the)\b")
UNEXPLAINED = frozenset({"yes", "no", "noanswer"})
"""HotpotQA: these are right or wrong as a whole, never in part."""


class Overlap(NamedTuple):
    """What two answers have in common, each from 0 to 1."""

    exact_match: float
    f1: float
    precision: float
    recall: float


NOTHING = Overlap(0.0, 0.0, 0.0, 0.0)


def normalized(text: str, *, marks_are_blanks: bool = False) -> str:
    """An answer as it is compared.

    With `marks_are_blanks`, TriviaQA's way, a mark parts two words; else, SQuAD's, it is left out and leaves
    one. There ASCII's marks alone count.
    """
    text = text.lower()
    if marks_are_blanks:
        text = "".join(" " if one in _PUNCTUATION or one in _CURLY else one for one in text)
    else:
        text = "".join(one for one in text if one not in _PUNCTUATION)
    return " ".join(_ARTICLE.sub(" ", text).split())


def overlap(answer: str, reference: str, *, marks_are_blanks: bool = False) -> Overlap:
    """One answer against one reference; where either is empty, both must be."""
    mine, theirs = (normalized(one, marks_are_blanks=marks_are_blanks) for one in (answer, reference))
    exact = float(mine == theirs)
    words, others = mine.split(), theirs.split()
    if not words or not others:
        return Overlap(exact, exact, exact, exact)
    common = sum((Counter(words) & Counter(others)).values())
    if not common:
        return NOTHING
    precision, recall = common / len(words), common / len(others)
    return Overlap(exact, 2 * precision * recall / (precision + recall), precision, recall)


def best_overlap(answer: str, references: Sequence[str], *, marks_are_blanks: bool = False) -> Overlap:
    """The best exact match and the best F1 over references, each for itself; none: the empty one.

    References that are empty once they are normalized count only if there is no other (SQuAD).
    """
    told = [one for one in references if normalized(one, marks_are_blanks=marks_are_blanks)]
    found = [overlap(answer, one, marks_are_blanks=marks_are_blanks) for one in told or [""]]
    best = max(found, key=lambda one: one.f1)
    return best._replace(exact_match=max(one.exact_match for one in found))


def whole_or_nothing(answer: str, reference: str) -> Overlap:
    """HotpotQA's: as `overlap`, but a yes or no that isn't the other's shares nothing with it."""
    mine, theirs = normalized(answer), normalized(reference)
    if mine != theirs and (mine in UNEXPLAINED or theirs in UNEXPLAINED):
        return NOTHING
    return overlap(answer, reference)


Records = Mapping[str, QuestionRecord]
Predictions = Mapping[str, Mapping[str, Any]]
ENOUGH = 2
"""Annotators who must have found an answer for a question of the Natural Questions to have one."""


def official_metrics(form: AnswerForm, records: Records, predictions: Predictions) -> dict[str, float]:
    """The figures of a form; every record must have its prediction."""
    measures: dict[AnswerForm, Callable[[Records, Predictions], dict[str, float]]] = {
        "span": text_metrics,
        "triviaqa": partial(text_metrics, marks_are_blanks=True),
        "hotpotqa": hotpot_metrics,
        "natural_questions": natural_metrics,
        "wikihop": candidate_metrics,
    }
    return {**measures[form](records, predictions), "records": len(records)}


def text_metrics(
    records: Records, predictions: Predictions, *, marks_are_blanks: bool = False
) -> dict[str, float]:
    """Exact match and F1 of SQuAD, and with `marks_are_blanks` of TriviaQA, the best over all aliases.

    A question without answers is answered by the empty text alone; where there are some, both kinds have
    figures of their own too.
    """
    found = [
        best_overlap(
            _answer(predictions[name]),
            [one.text for one in record.answers],
            marks_are_blanks=marks_are_blanks,
        )
        for name, record in records.items()
    ]
    figures = _means(found)
    answered = [bool(record.answers) for record in records.values()]
    if not all(answered) and any(answered):
        for word, wanted in (("answerable_", True), ("unanswerable_", False)):
            part = [one for one, has in zip(found, answered, strict=True) if has is wanted]
            figures |= _means(part, word)
    return figures


def _means(found: Sequence[Overlap], prefix: str = "", parts: int = 2) -> dict[str, float]:
    """The means of exact match and F1, of four `parts` of precision and recall too."""
    return {f"{prefix}{part}": _mean(getattr(one, part) for one in found) for part in Overlap._fields[:parts]}


def hotpot_metrics(records: Records, predictions: Predictions) -> dict[str, float]:
    """HotpotQA's: of the answer, of the supporting facts, and of both together.

    Jointly, precisions and recalls are the products of both, and an exact match is one of both. Facts that
    the context lacks are missed.
    """
    answers, facts, joint = [], [], []
    for name, record in records.items():
        truth = record.answers[0].text if record.answers else (record.type or "")
        answers.append(whole_or_nothing(_answer(predictions[name]), truth))
        told = {(one.paragraph, one.sentence) for one in record.facts}
        said = {(fact[0], fact[1]) for fact in predictions[name].get("facts", ())}
        facts.append(_sets(said, told, record.facts_elsewhere))
        precision, recall = (
            getattr(answers[-1], part) * getattr(facts[-1], part) for part in ("precision", "recall")
        )
        exact = answers[-1].exact_match * facts[-1].exact_match
        joint.append(Overlap(exact, _f1(precision, recall), precision, recall))
    return _means(answers, "", 4) | _means(facts, "facts_", 4) | _means(joint, "joint_", 4)


def candidate_metrics(records: Records, predictions: Predictions) -> dict[str, float]:
    """WikiHop's accuracy: the right candidate was chosen."""
    right = [
        bool(record.answers) and normalized(_answer(predictions[name])) == normalized(record.answers[0].text)
        for name, record in records.items()
    ]
    return {"accuracy": _mean(map(float, right))}


class AnswerEvaluation(NamedTuple):
    """Of a question: whether it has an answer, whether one was given, whether it is right, and its score."""

    has: bool
    said: bool
    right: bool
    score: float


def natural_metrics(records: Records, predictions: Predictions) -> dict[str, float]:
    """The Natural Questions' F1 of long and of short answers, with precision and recall.

    A question has an answer where at least two annotators found one, or its only one did; an answer is right
    if any of them gave it, as the same paragraph, the same short answers or the same yes or no. Precision
    is of the answers that were given, recall of the questions that have one. Besides, the best F1 that a
    threshold on the scores gives, as the official script finds it.
    """
    judged: dict[str, list[AnswerEvaluation]] = {"long": [], "short": []}
    for name, record in records.items():
        said = predictions[name]
        paragraph = said.get("long_answer")
        known = record.annotations or (record,)
        longs = [one.long_answer for one in known]
        given = None if said.get("type") == "null" else paragraph
        judged["long"].append(_judged(given, longs, said.get("long_score")))
        shorts = [_short(one.type, one.answers) for one in known]
        judged["short"].append(_judged(_said_short(said), shorts, said.get("score")))
    figures: dict[str, float] = {}
    for word, found in judged.items():
        precision, recall, f1 = precision_recall(found)
        figures |= {f"{word}_f1": f1, f"{word}_precision": precision, f"{word}_recall": recall}
        figures[f"{word}_best_f1"] = best_f1(found)
    return figures


def precision_recall(found: Sequence[AnswerEvaluation]) -> tuple[float, float, float]:
    """Precision, recall and F1 of judged answers; 0 where there is nothing to count."""
    right = sum(one.right and one.has and one.said for one in found)
    said, has = sum(one.said for one in found), sum(one.has for one in found)
    precision, recall = (right / said if said else 0.0), (right / has if has else 0.0)
    return precision, recall, _f1(precision, recall)


def best_f1(found: Sequence[AnswerEvaluation]) -> float:
    """The best F1 of giving only answers that score at least some threshold."""
    has = sum(one.has for one in found)
    said = sorted((one for one in found if one.said), key=lambda one: -one.score)
    best, right = 0.0, 0
    for number, one in enumerate(said, 1):
        right += one.right and one.has
        tied = number < len(said) and said[number].score == one.score
        if not tied and right:
            best = max(best, _f1(right / number, right / has))
    return best


def _judged(given: Any, known: Sequence[Any], score: object) -> AnswerEvaluation:
    enough = min(ENOUGH, len(known))
    has = sum(one is not None for one in known) >= enough > 0
    value = float(score) if isinstance(score, int | float) else 0.0
    return AnswerEvaluation(has, given is not None, given is not None and given in known, value)


def _short(kind: str | None, spans: Iterable[Any]) -> Any:
    """An annotator's short answer: yes, no, a set of spans, or none."""
    if kind in ("yes", "no"):
        return kind
    places = frozenset((one.paragraph, one.start, one.text) for one in spans)
    return places or None


def _said_short(said: Mapping[str, Any]) -> Any:
    kind = said.get("type")
    if kind in ("yes", "no"):
        return kind
    if kind != "short" or not said.get("answer"):
        return None
    return frozenset({(said.get("paragraph"), said.get("start"), said["answer"])})


def _sets(said: set[tuple[int, int]], told: set[tuple[int, int]], elsewhere: int) -> Overlap:
    """What two sets have in common; beside `told` there are so many more that can't be said."""
    common, exact = len(said & told), float(said == told and not elsewhere)
    if not common:
        return NOTHING._replace(exact_match=exact)
    precision, recall = common / len(said), common / (len(told) + elsewhere)
    return Overlap(exact, _f1(precision, recall), precision, recall)


def _f1(precision: float, recall: float) -> float:
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def _answer(said: Mapping[str, Any]) -> str:
    return str(said.get("answer", ""))


def _mean(values: Iterable[float]) -> float:
    kept = [*values]
    return sum(kept) / len(kept) if kept else 0.0
