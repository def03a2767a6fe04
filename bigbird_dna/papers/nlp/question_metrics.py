"""Metrics of answers by the official definition of each data set; all are fractions from 0 to 1.

Answers are compared in lower case, without punctuation and articles, with white space as single spaces. F1 is
based on common words, counted with multiplicity (SQuAD, HotpotQA, TriviaQA).
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bigbird_dna.papers.nlp.config import AnswerForm
from bigbird_dna.papers.nlp.records import QuestionRecord

ARTICLES = ("a", "an", "the")
_REMOVED = str.maketrans("", "", string.punctuation)
_BLANKS = str.maketrans(dict.fromkeys(string.punctuation + "‘’´`_", " "))
"""TriviaQA's definition has additional punctuation, and it separates words."""
VERDICTS = ("yes", "no", "noanswer")
"""HotpotQA: these answers are entirely right or wrong, without partial credit."""
ENOUGH = 2
"""Number of annotators who must have found an answer for a question of Natural Questions to have one."""

Pairs = Sequence[tuple[QuestionRecord, Mapping[str, Any]]]
"""Records, each with its prediction."""
Normalize = Callable[[str], str]


class Overlap(NamedTuple):
    """Overlap of two answers, each value from 0 to 1."""

    exact_match: float
    f1: float
    precision: float
    recall: float


def f1_score(precision: float, recall: float) -> float:
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def _overlap(common: int, predicted: int, known: int, exact: float) -> Overlap:
    """Return the overlap from the numbers of common, `predicted` and `known` items."""
    precision, recall = (common / predicted, common / known) if common else (0.0, 0.0)
    return Overlap(exact, f1_score(precision, recall), precision, recall)


def normalize_answer(text: str) -> str:
    """Normalize an answer as SQuAD does: ASCII punctuation is removed without separating words."""
    return _without_articles(text.lower().translate(_REMOVED))


def normalize_trivia(text: str) -> str:
    """Normalize an answer as TriviaQA does: punctuation separates words."""
    return _without_articles(text.lower().translate(_BLANKS))


def _without_articles(text: str) -> str:
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def overlap(
    answer: str, reference: str, normalize: Normalize = normalize_answer
) -> Overlap:
    """Return the overlap of an answer with a reference; if one of them is empty, both must be."""
    answer, reference = normalize(answer), normalize(reference)
    exact, words, known = float(answer == reference), answer.split(), reference.split()
    if not words or not known:
        return Overlap(exact, exact, exact, exact)
    common = (Counter(words) & Counter(known)).total()
    return _overlap(common, len(words), len(known), exact)


def best_overlap(
    answer: str, references: Sequence[str], normalize: Normalize = normalize_answer
) -> Overlap:
    """Return the best exact match and the best F1 over references, independently; no references: empty text.

    References that are empty after normalization are used only if there are no others (SQuAD).
    """
    nonempty = [text for text in references if normalize(text)] or [""]
    overlaps = [overlap(answer, reference, normalize) for reference in nonempty]
    exact = max(match.exact_match for match in overlaps)
    return max(overlaps, key=lambda match: match.f1)._replace(exact_match=exact)


def official_metrics(form: AnswerForm, pairs: Pairs) -> dict[str, float]:
    """Return the metrics of a form."""
    match form:
        case "hotpotqa":
            metrics = hotpot_metrics(pairs)
        case "natural_questions":
            metrics = natural_metrics(pairs)
        case "wikihop":
            metrics = candidate_metrics(pairs)
        case "triviaqa":
            metrics = text_metrics(pairs, normalize_trivia)
        case "span":
            metrics = text_metrics(pairs)
    return {**metrics, "records": len(pairs)}


def text_metrics(
    pairs: Pairs, normalize: Normalize = normalize_answer
) -> dict[str, float]:
    """Return exact match and F1 of SQuAD, or of TriviaQA by its normalization; the best over all aliases.

    The correct answer to a question without answers is the empty text. If questions with and without answers
    occur, both kinds also have separate metrics.
    """
    groups: dict[str, list[Overlap]] = {"answerable_": [], "unanswerable_": []}
    for record, prediction in pairs:
        references = [answer.text for answer in record.answers]
        group = "answerable_" if references else "unanswerable_"
        groups[group].append(best_overlap(prediction["answer"], references, normalize))
    metrics = _means([*groups["answerable_"], *groups["unanswerable_"]])
    if all(groups.values()):
        for prefix, overlaps in groups.items():
            metrics |= _means(overlaps, prefix)
    return metrics


def _means(
    overlaps: Sequence[Overlap], prefix: str = "", count: int = 2
) -> dict[str, float]:
    """Return the means of the first `count` fields: exact match and F1, or all four."""
    return {
        f"{prefix}{field}": mean(getattr(overlap, field) for overlap in overlaps)
        for field in Overlap._fields[:count]
    }


def mean(values: Iterable[float]) -> float:
    """Return the mean, 0 without values."""
    values = list(values)
    return sum(values) / len(values) if values else 0.0


def hotpot_metrics(pairs: Pairs) -> dict[str, float]:
    """Return HotpotQA's metrics of the answer, of the supporting facts, and of both jointly.

    Joint precision and recall are products; a joint exact match needs both. Facts missing in the context
    count as not found.
    """
    answers, facts, joint = [], [], []
    for record, prediction in pairs:
        truth = record.answers[0].text if record.answers else (record.type or "")
        answer = overlap(prediction["answer"], truth)
        texts = {normalize_answer(prediction["answer"]), normalize_answer(truth)}
        if len(texts) == 2 and not texts.isdisjoint(VERDICTS):
            answer = Overlap(0.0, 0.0, 0.0, 0.0)
        known = {(fact.paragraph, fact.sentence) for fact in record.facts}
        predicted = {tuple(fact) for fact in prediction.get("facts", ())}
        total = len(known) + record.facts_elsewhere
        exact = float(predicted == known and not record.facts_elsewhere)
        support = _overlap(len(predicted & known), len(predicted), total, exact)
        precision = answer.precision * support.precision
        recall = answer.recall * support.recall
        exact = answer.exact_match * support.exact_match
        answers.append(answer)
        facts.append(support)
        joint.append(Overlap(exact, f1_score(precision, recall), precision, recall))
    return {
        **_means(answers, "", 4),
        **_means(facts, "facts_", 4),
        **_means(joint, "joint_", 4),
    }


def candidate_metrics(pairs: Pairs) -> dict[str, float]:
    """Return WikiHop's accuracy of the chosen candidate."""
    right = []
    for record, prediction in pairs:
        truth = [normalize_answer(answer.text) for answer in record.answers[:1]]
        right.append(float(normalize_answer(prediction["answer"]) in truth))
    return {"accuracy": mean(right)}


class JudgedAnswer(NamedTuple):
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
    judged: dict[str, list[JudgedAnswer]] = {"long": [], "short": []}
    for record, prediction in pairs:
        annotations = record.annotations or (record,)
        kind = prediction.get("type")
        long = None if kind == "null" else prediction.get("long_answer")
        longs = [known.long_answer for known in annotations]
        judged["long"].append(_judge(long, longs, prediction.get("long_score")))
        shorts = []
        for known in annotations:
            positions = [(a.paragraph, a.start, a.text) for a in known.answers]
            shorts.append(_short_answer(known.type, positions))
        position = tuple(
            prediction.get(key) for key in ("paragraph", "start", "answer")
        )
        has_text = kind == "short" and bool(prediction["answer"])
        short = _short_answer(kind, [position] if has_text else [])
        judged["short"].append(_judge(short, shorts, prediction.get("score")))
    metrics: dict[str, float] = {}
    for word, answers in judged.items():
        precision, recall, f1 = precision_recall(answers)
        metrics[f"{word}_f1"] = f1
        metrics[f"{word}_precision"] = precision
        metrics[f"{word}_recall"] = recall
        metrics[f"{word}_best_f1"] = best_f1(answers)
    return metrics


def _short_answer(kind: str | None, positions: list[Any]) -> Any:
    """Return a short answer for comparison: yes, no, a set of positions, or None."""
    return kind if kind in ("yes", "no") else frozenset(positions) or None


def _judge(answer: Any, known: Sequence[Any], score: float | None) -> JudgedAnswer:
    annotators = sum(truth is not None for truth in known)
    has = annotators >= min(ENOUGH, len(known))
    predicted = answer is not None
    return JudgedAnswer(has, predicted, predicted and answer in known, score or 0.0)


def precision_recall(judged: Sequence[JudgedAnswer]) -> tuple[float, float, float]:
    """Return precision, recall and F1 of evaluated answers; 0 if undefined."""
    right = sum(answer.right and answer.has and answer.predicted for answer in judged)
    predicted = sum(answer.predicted for answer in judged)
    has = sum(answer.has for answer in judged)
    precision = right / predicted if predicted else 0.0
    recall = right / has if has else 0.0
    return precision, recall, f1_score(precision, recall)


def best_f1(judged: Sequence[JudgedAnswer]) -> float:
    """Return the best F1 over thresholds on the scores of predicted answers."""
    scores = np.array([-answer.score for answer in judged if answer.predicted])
    right = [answer.right and answer.has for answer in judged if answer.predicted]
    if not any(right):
        return 0.0
    # Answers with equal scores are given together, those with the highest scores first.
    _, group = np.unique(scores, return_inverse=True)
    predicted = np.bincount(group).cumsum()
    correct = np.bincount(group, weights=right).cumsum()
    has = sum(answer.has for answer in judged)
    return float((2 * correct / (predicted + has)).max())
