"""Figures of answers by the official definitions of each data set; all are shares from 0 to 1.

Answers are compared in lower case, without punctuation and articles, white space being one blank. F1 is that
of the words that both have, counted as often as both have them (SQuAD, HotpotQA, TriviaQA).
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


def _f1(precision: float, recall: float) -> float:
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def _overlap(common: int, predicted: int, known: int, exact: float) -> Overlap:
    """Of so many that were `said` and so many `told`, those in `common`."""
    precision, recall = (common / predicted, common / known) if common else (0.0, 0.0)
    return Overlap(exact, _f1(precision, recall), precision, recall)


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


Normal = Callable[[str], str]


def overlap(answer: str, reference: str, normal: Normal = normalized) -> Overlap:
    """One answer against one reference; where either is empty, both must be."""
    mine, theirs = normal(answer), normal(reference)
    exact, words, others = float(mine == theirs), mine.split(), theirs.split()
    if not words or not others:
        return Overlap(exact, exact, exact, exact)
    return _overlap((Counter(words) & Counter(others)).total(), len(words), len(others), exact)


def best_overlap(answer: str, references: Sequence[str], normal: Normal = normalized) -> Overlap:
    """The best exact match and the best F1 over references, each for itself; none: the empty one.

    References that are empty once they are normalized count only if there is no other (SQuAD).
    """
    found = [overlap(answer, one, normal) for one in [*filter(normal, references)] or [""]]
    best = max(found, key=lambda one: one.f1)
    return best._replace(exact_match=max(one.exact_match for one in found))


def whole_or_nothing(answer: str, reference: str) -> Overlap:
    """HotpotQA's: as `overlap`, but a yes or no that isn't the other's shares nothing with it."""
    mine, theirs = normalized(answer), normalized(reference)
    if mine != theirs and (mine in UNEXPLAINED or theirs in UNEXPLAINED):
        return Overlap(0.0, 0.0, 0.0, 0.0)
    return overlap(answer, reference)


Pairs = Sequence[tuple[QuestionRecord, Mapping[str, Any]]]
"""Records and what is predicted for each."""
ENOUGH = 2
"""Annotators who must have found an answer for a question of the Natural Questions to have one."""


def official_metrics(form: AnswerForm, pairs: Pairs) -> dict[str, float]:
    """The figures of a form."""
    measures: dict[AnswerForm, Callable[[Pairs], dict[str, float]]] = {
        "span": text_metrics,
        "triviaqa": partial(text_metrics, normal=partial(normalized, marks_are_blanks=True)),
        "hotpotqa": hotpot_metrics,
        "natural_questions": natural_metrics,
        "wikihop": candidate_metrics,
    }
    return {**measures[form](pairs), "records": len(pairs)}


def text_metrics(pairs: Pairs, normal: Normal = normalized) -> dict[str, float]:
    """Exact match and F1 of SQuAD, or with the other `normal` form of TriviaQA, the best over all aliases.

    A question without answers is answered by the empty text alone; where there are some, both kinds have
    figures of their own too.
    """
    found = [
        best_overlap(predicted["answer"], [one.text for one in record.answers], normal)
        for record, predicted in pairs
    ]
    figures, answered = _means(found), [bool(record.answers) for record, _ in pairs]
    if not all(answered) and any(answered):
        for word, wanted in (("answerable_", True), ("unanswerable_", False)):
            part = [one for one, has in zip(found, answered, strict=True) if has is wanted]
            figures |= _means(part, word)
    return figures


def _means(found: Sequence[Overlap], prefix: str = "", parts: int = 2) -> dict[str, float]:
    """The means of exact match and F1, of four `parts` of precision and recall too."""
    return {f"{prefix}{part}": _mean(getattr(one, part) for one in found) for part in Overlap._fields[:parts]}


def hotpot_metrics(pairs: Pairs) -> dict[str, float]:
    """HotpotQA's: of the answer, of the supporting facts, and of both together.

    Jointly, precisions and recalls are the products of both, and an exact match is one of both. Facts that
    the context lacks are missed.
    """
    answers, facts, joint = [], [], []
    for record, predicted in pairs:
        truth = record.answers[0].text if record.answers else (record.type or "")
        answers.append(whole_or_nothing(predicted["answer"], truth))
        known = {(one.paragraph, one.sentence) for one in record.facts}
        named = {(fact[0], fact[1]) for fact in predicted.get("facts", ())}
        elsewhere = record.facts_elsewhere
        exact = float(named == known and not elsewhere)
        facts.append(_overlap(len(named & known), len(named), len(known) + elsewhere, exact))
        precision, recall = (
            getattr(answers[-1], part) * getattr(facts[-1], part) for part in ("precision", "recall")
        )
        exact = answers[-1].exact_match * facts[-1].exact_match
        joint.append(Overlap(exact, _f1(precision, recall), precision, recall))
    return _means(answers, "", 4) | _means(facts, "facts_", 4) | _means(joint, "joint_", 4)


def candidate_metrics(pairs: Pairs) -> dict[str, float]:
    """WikiHop's accuracy: the right candidate was chosen."""
    right = (
        bool(record.answers) and normalized(predicted["answer"]) == normalized(record.answers[0].text)
        for record, predicted in pairs
    )
    return {"accuracy": _mean(map(float, right))}


class AnswerEvaluation(NamedTuple):
    """Of a question: whether it has an answer, whether one was given, whether it is right, and its score."""

    has: bool
    predicted: bool
    right: bool
    score: float


def natural_metrics(pairs: Pairs) -> dict[str, float]:
    """The Natural Questions' F1 of long and of short answers, with precision and recall.

    A question has an answer where at least two annotators found one, or its only one did; an answer is right
    if any of them gave it, as the same paragraph, the same short answers or the same yes or no. Precision
    is of the answers that were given, recall of the questions that have one. Besides, the best F1 that a
    threshold on the scores gives, as the official script finds it.
    """
    evaluated: dict[str, list[AnswerEvaluation]] = {"long": [], "short": []}
    for record, predicted in pairs:
        known = record.annotations or (record,)
        given = None if predicted.get("type") == "null" else predicted.get("long_answer")
        longs = [one.long_answer for one in known]
        evaluated["long"].append(_evaluated(given, longs, predicted.get("long_score")))
        shorts = [_short(one.type, ((a.paragraph, a.start, a.text) for a in one.answers)) for one in known]
        place = predicted.get("paragraph"), predicted.get("start"), predicted.get("answer")
        short = _short(
            predicted.get("type"), [place] if predicted.get("type") == "short" and place[2] else []
        )
        evaluated["short"].append(_evaluated(short, shorts, predicted.get("score")))
    figures: dict[str, float] = {}
    for word, found in evaluated.items():
        precision, recall, f1 = precision_recall(found)
        figures |= {f"{word}_f1": f1, f"{word}_precision": precision, f"{word}_recall": recall}
        figures[f"{word}_best_f1"] = best_f1(found)
    return figures


def precision_recall(found: Sequence[AnswerEvaluation]) -> tuple[float, float, float]:
    """Precision, recall and F1 of evaluated answers; 0 where there is nothing to count."""
    right = sum(one.right and one.has and one.predicted for one in found)
    predicted, has = sum(one.predicted for one in found), sum(one.has for one in found)
    precision, recall = (right / predicted if predicted else 0.0), (right / has if has else 0.0)
    return precision, recall, _f1(precision, recall)


def best_f1(found: Sequence[AnswerEvaluation]) -> float:
    """The best F1 of giving only answers that score at least some threshold."""
    has = sum(one.has for one in found)
    best, given, right = 0.0, 0, 0
    predicted = sorted((one for one in found if one.predicted), key=lambda one: -one.score)
    for _, tied in groupby(predicted, key=lambda one: one.score):
        alike = [one.right and one.has for one in tied]
        given, right = given + len(alike), right + sum(alike)
        best = max(best, _f1(right / given, right / has) if right else 0.0)
    return best


def _evaluated(given: Any, known: Sequence[Any], score: object) -> AnswerEvaluation:
    enough = min(ENOUGH, len(known))
    has = sum(one is not None for one in known) >= enough > 0
    value = float(score) if isinstance(score, int | float) else 0.0
    return AnswerEvaluation(has, given is not None, given is not None and given in known, value)


def _short(kind: str | None, places: Iterable[Any]) -> Any:
    """A short answer: yes, no, a set of places, or none."""
    return kind if kind in ("yes", "no") else frozenset(places) or None


def _mean(values: Iterable[float]) -> float:
    kept = [*values]
    return sum(kept) / len(kept) if kept else 0.0
