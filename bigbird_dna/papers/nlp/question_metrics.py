"""Metrics of answers by the official definition of each data set; all are fractions from 0 to 1.

Answers are compared in lower case, without punctuation and articles, with white space as single spaces. F1 is
based on common words, counted with multiplicity (SQuAD, HotpotQA, TriviaQA).
"""

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from bigbird_dna.papers.nlp.config import AnswerForm
from bigbird_dna.papers.nlp.records import QuestionRecord

TRIVIA_BLANKS = string.punctuation + "‘’´`_"
"""Punctuation that separates words in TriviaQA's definition; SQuAD removes ASCII punctuation."""
VERDICTS = {"yes", "no", "noanswer"}
"""HotpotQA: these answers are entirely right or wrong, without partial credit."""
ENOUGH = 2
"""Number of annotators who must have found an answer for a question of Natural Questions to have one."""

Pairs = Sequence[tuple[QuestionRecord, Mapping[str, Any]]]
"""Records, each with its prediction."""


def normalize_answer(text: str, blanks: str = "") -> str:
    """Return an answer for comparison; the characters `blanks` separate words."""
    text = text.lower().translate(str.maketrans(blanks, " " * len(blanks)))
    text = text.translate(str.maketrans("", "", string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def overlap(answer: str, reference: str) -> tuple[float, float, float]:
    """Return exact match, precision and recall of two normalized answers; if one is empty, both must be."""
    exact, words, known = float(answer == reference), answer.split(), reference.split()
    if not words or not known:
        return exact, exact, exact
    common = (Counter(words) & Counter(known)).total()
    return exact, common / len(words), common / len(known)


def f1(precision: float, recall: float) -> float:
    """Return the harmonic mean, 0 if both are."""
    return 2 * precision * recall / max(precision + recall, 1e-300)


def official_metrics(form: AnswerForm, pairs: Pairs) -> dict[str, float]:
    """Return the metrics of a form, as means over records."""
    if form == "natural_questions":
        metrics = natural_metrics(pairs, "long") | natural_metrics(pairs, "short")
        return {**metrics, "records": len(pairs)}
    rows = []
    for record, prediction in pairs:
        if form == "hotpotqa":
            rows.append(hotpot_metrics(record, prediction))
            continue
        blanks = TRIVIA_BLANKS if form == "triviaqa" else ""
        answer = normalize_answer(prediction["answer"], blanks)
        truths = [normalize_answer(true.text, blanks) for true in record.answers]
        if form == "wikihop":
            rows.append({"accuracy": answer == truths[0]})
            continue
        # References that are empty after normalization count only if there are no others (SQuAD).
        matches = [overlap(answer, true) for true in filter(None, truths)]
        matches = matches or [overlap(answer, "")]
        row = {
            "exact_match": max(exact for exact, _, _ in matches),
            "f1": max(f1(precision, recall) for _, precision, recall in matches),
        }
        rows.append(row)
    means = {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}
    return {**means, "records": len(pairs)}


def hotpot_metrics(
    record: QuestionRecord, prediction: Mapping[str, Any]
) -> dict[str, float]:
    """Return HotpotQA's metrics of the answer, of the supporting facts, and of both jointly.

    Joint precision and recall are products; a joint exact match needs both. Facts missing in the context
    count as not found.
    """
    truth = record.answers[0].text if record.answers else str(record.type)
    texts = normalize_answer(prediction["answer"]), normalize_answer(truth)
    answer = overlap(*texts)
    if texts[0] != texts[1] and VERDICTS & {*texts}:
        answer = 0.0, 0.0, 0.0
    known = {*record.facts}
    predicted = {tuple(fact) for fact in prediction.get("facts", ())}
    common = len(predicted & known)
    facts = (
        float(predicted == known and not record.facts_elsewhere),
        common / max(len(predicted), 1),
        common / max(len(known) + record.facts_elsewhere, 1),
    )
    joint = answer[0] * facts[0], answer[1] * facts[1], answer[2] * facts[2]
    metrics = {}
    for prefix, match in (("", answer), ("facts_", facts), ("joint_", joint)):
        metrics[f"{prefix}exact_match"] = match[0]
        metrics[f"{prefix}f1"] = f1(*match[1:])
    return metrics


def natural_metrics(pairs: Pairs, kind: Literal["long", "short"]) -> dict[str, float]:
    """Return F1 of long or short answers of Natural Questions, with precision and recall.

    A question has an answer if at least two annotators, or its only annotator, found one. A predicted answer
    is right if any annotator gave it: the same paragraph, the same short answers, or the same yes or no.
    Precision is over predicted answers, recall over questions with an answer.
    """
    answerable = predicted = correct = 0
    for record, prediction in pairs:
        annotations = record.annotations or (record,)
        has_type = prediction.get("type")
        if kind == "long":
            answer = None if has_type == "null" else prediction.get("long_answer")
            truths: list[Any] = [annotation.long_answer for annotation in annotations]
        else:
            texts = set()
            if has_type == "short" and prediction["answer"]:
                keys = ("paragraph", "start", "answer")
                texts.add(tuple(prediction.get(key) for key in keys))
            answer = short_answer(has_type, texts)
            truths = []
            for annotation in annotations:
                texts = {(a.paragraph, a.start, a.text) for a in annotation.answers}
                truths.append(short_answer(annotation.type, texts))
        found = sum(truth is not None for truth in truths)
        has_answer = found >= min(ENOUGH, len(truths))
        answerable += has_answer
        predicted += answer is not None
        correct += has_answer and answer is not None and answer in truths
    precision, recall = correct / max(predicted, 1), correct / max(answerable, 1)
    return {
        f"{kind}_f1": f1(precision, recall),
        f"{kind}_precision": precision,
        f"{kind}_recall": recall,
    }


def short_answer(kind: str | None, texts: set[Any]) -> Any:
    """Return a short answer for comparison: yes, no, a set of positions, or None."""
    return kind if kind in ("yes", "no") else texts or None
