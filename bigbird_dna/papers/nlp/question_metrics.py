"""Metrics of answers by the official definition of each data set; all are fractions from 0 to 1.

Answers are compared in lower case, without punctuation and articles, with white space as single spaces. F1 is
based on common words, counted with multiplicity (SQuAD, HotpotQA, TriviaQA).
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bigbird_dna.papers.nlp.config import AnswerForm
from bigbird_dna.papers.nlp.records import QuestionRecord

_REMOVED = str.maketrans("", "", string.punctuation)
_BLANKS = str.maketrans(dict.fromkeys(string.punctuation + "‘’´`_", " "))
"""TriviaQA's definition has additional punctuation, and it separates words."""
VERDICTS = {"yes", "no", "noanswer"}
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

    @classmethod
    def of(cls, precision: float, recall: float, exact: float) -> "Overlap":
        total = precision + recall
        f1 = 2 * precision * recall / total if total else 0.0
        return cls(exact, f1, precision, recall)


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
    return Overlap.of(common / len(words), common / len(known), exact)


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
    """Return the metrics of a form, as means over records."""
    if form == "natural_questions":
        return {**natural_metrics(pairs), "records": len(pairs)}
    rows = []
    for record, prediction in pairs:
        answer, truth = prediction["answer"], [one.text for one in record.answers]
        if form == "hotpotqa":
            rows.append(hotpot_metrics(record, prediction))
        elif form == "wikihop":
            right = [normalize_answer(text) for text in truth[:1]]
            rows.append({"accuracy": float(normalize_answer(answer) in right)})
        else:
            normalize = normalize_trivia if form == "triviaqa" else normalize_answer
            match = best_overlap(answer, truth, normalize)
            rows.append({"exact_match": match.exact_match, "f1": match.f1})
    means = {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}
    return {**means, "records": len(pairs)}


def hotpot_metrics(
    record: QuestionRecord, prediction: Mapping[str, Any]
) -> dict[str, float]:
    """Return HotpotQA's metrics of the answer, of the supporting facts, and of both jointly.

    Joint precision and recall are products; a joint exact match needs both. Facts missing in the context
    count as not found.
    """
    truth = record.answers[0].text if record.answers else (record.type or "")
    answer = overlap(prediction["answer"], truth)
    texts = {normalize_answer(prediction["answer"]), normalize_answer(truth)}
    if len(texts) == 2 and texts & VERDICTS:
        answer = Overlap(0.0, 0.0, 0.0, 0.0)
    known = {(fact.paragraph, fact.sentence) for fact in record.facts}
    predicted = {tuple(fact) for fact in prediction.get("facts", ())}
    common, total = len(predicted & known), len(known) + record.facts_elsewhere
    exact = float(predicted == known and not record.facts_elsewhere)
    facts = Overlap.of(common / max(len(predicted), 1), common / max(total, 1), exact)
    joint = Overlap.of(
        answer.precision * facts.precision,
        answer.recall * facts.recall,
        answer.exact_match * facts.exact_match,
    )
    return {
        f"{prefix}{name}": getattr(match, name)
        for prefix, match in (("", answer), ("facts_", facts), ("joint_", joint))
        for name in ("exact_match", "f1")
    }


def natural_metrics(pairs: Pairs) -> dict[str, float]:
    """Return F1 of long and of short answers of Natural Questions, with precision and recall.

    A question has an answer if at least two annotators, or its only annotator, found one. A predicted answer
    is right if any annotator gave it: the same paragraph, the same short answers, or the same yes or no.
    Precision is over predicted answers, recall over questions with an answer.
    """
    metrics: dict[str, float] = {}
    for word in ("long", "short"):
        has, predicted, right = 0, 0, 0
        for record, prediction in pairs:
            kind, truths = prediction.get("type"), []
            for known in record.annotations or (record,):
                positions = [(a.paragraph, a.start, a.text) for a in known.answers]
                short = _short_answer(known.type, positions)
                truths.append(known.long_answer if word == "long" else short)
            answer = None if kind == "null" else prediction.get("long_answer")
            if word == "short":
                keys = ("paragraph", "start", "answer")
                position = tuple(prediction.get(key) for key in keys)
                has_text = kind == "short" and bool(prediction["answer"])
                answer = _short_answer(kind, [position] if has_text else [])
            annotators = sum(truth is not None for truth in truths)
            is_there = annotators >= min(ENOUGH, len(truths))
            has += is_there
            predicted += answer is not None
            right += is_there and answer is not None and answer in truths
        match = Overlap.of(right / max(predicted, 1), right / max(has, 1), 0.0)
        for name in ("f1", "precision", "recall"):
            metrics[f"{word}_{name}"] = getattr(match, name)
    return metrics


def _short_answer(kind: str | None, positions: list[Any]) -> Any:
    """Return a short answer for comparison: yes, no, a set of positions, or None."""
    return kind if kind in ("yes", "no") else frozenset(positions) or None
