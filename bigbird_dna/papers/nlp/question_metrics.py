"""Metrics of answers by the official definition of each data set; all are fractions from 0 to 1.

Answers are compared in lower case, without punctuation and articles, with white space as single spaces. F1 is
based on common words, counted with multiplicity (SQuAD, HotpotQA, TriviaQA).
"""

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pandas as pd

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
    """Return an answer for comparison.

    It is in lower case, without ASCII punctuation and without the words a, an and the, with single spaces
    between words. The characters `blanks` separate words.
    """
    text = text.lower()
    text = text.translate(str.maketrans(blanks, " " * len(blanks)))
    text = text.translate(str.maketrans("", "", string.punctuation))
    text = re.sub(r"\b(a|an|the)\b", " ", text)

    return " ".join(text.split())


def overlap(answer: str, reference: str) -> tuple[float, float, float]:
    """Compare two normalized answers.

    Returns exact match (0 or 1), and precision and recall of their words, which count as often as both have
    them. If one answer is empty, all three are 1 if the other is empty too, and 0 otherwise.
    """
    exact = float(answer == reference)
    words = answer.split()
    known = reference.split()

    if not words or not known:
        return exact, exact, exact

    common = (Counter(words) & Counter(known)).total()

    return exact, common / len(words), common / len(known)


def f1(precision: float, recall: float) -> float:
    """Return the harmonic mean, 0 if both are."""
    return 2 * precision * recall / max(precision + recall, 1e-300)


def official_metrics(form: AnswerForm, pairs: Pairs) -> dict[str, float]:
    """Return the official metrics of a data set.

    Parameters
    ----------
    form
        The data set. SQuAD's metrics are those of `span`.
    pairs
        Records, which have true answers, each with its prediction.

    Returns
    -------
    Means over records by metric, fractions from 0 to 1, and the number of `records`.
    """
    if form == "natural_questions":
        metrics = natural_metrics(pairs, "long") | natural_metrics(pairs, "short")
        return {**metrics, "records": len(pairs)}

    rows = []
    blanks = TRIVIA_BLANKS if form == "triviaqa" else ""
    for record, prediction in pairs:
        if form == "hotpotqa":
            rows.append(hotpot_metrics(record, prediction))
            continue

        answer = normalize_answer(prediction["answer"], blanks)
        truths = [normalize_answer(true.text, blanks) for true in record.answers]
        if form == "wikihop":
            rows.append({"accuracy": float(answer == truths[0])})
            continue

        # References that are empty after normalization count only if there are no others (SQuAD).
        row = {"exact_match": 0.0, "f1": 0.0}
        for truth in [*filter(None, truths)] or [""]:
            exact, precision, recall = overlap(answer, truth)
            row["exact_match"] = max(row["exact_match"], exact)
            row["f1"] = max(row["f1"], f1(precision, recall))

        rows.append(row)

    means: Any = pd.DataFrame(rows).mean().to_dict()
    return {**means, "records": len(pairs)}


def hotpot_metrics(
    record: QuestionRecord, prediction: Mapping[str, Any]
) -> dict[str, float]:
    """Return HotpotQA's metrics of the answer, of the supporting facts, and of both jointly.

    Parameters
    ----------
    record
        A question with its answer, or with the type yes or no, and with its supporting facts. Those that
        the context lacks count as not found.
    prediction
        `answer`, and `facts`, lists of a paragraph and a sentence.

    Returns
    -------
    Exact match and F1 of the answer; of the facts, with the prefix `facts_`; and of both, with the prefix
    `joint_`: joint precision and recall are products, a joint exact match needs both.
    """
    truth = record.answers[0].text if record.answers else str(record.type)
    truth = normalize_answer(truth)
    text = normalize_answer(prediction["answer"])
    answer = overlap(text, truth)
    if text != truth and VERDICTS & {text, truth}:
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
        exact, precision, recall = match
        metrics[f"{prefix}exact_match"] = exact
        metrics[f"{prefix}f1"] = f1(precision, recall)

    return metrics


def natural_metrics(pairs: Pairs, kind: Literal["long", "short"]) -> dict[str, float]:
    """Return F1 of long or short answers of Natural Questions, with precision and recall.

    A question has an answer if at least two annotators, or its only annotator, found one. A predicted answer
    is right if any annotator gave it: the same paragraph, the same short answers, or the same yes or no.

    Parameters
    ----------
    pairs
        Records, with `annotations` or the answer of one annotator, each with its prediction: `type`,
        `long_answer`, and, for short answers, `answer`, `paragraph` and `start`.
    kind
        The answers that are compared, and the prefix of the metrics.

    Returns
    -------
    F1, precision over predicted answers, and recall over questions with an answer.
    """
    answerable = predicted = correct = 0
    for record, prediction in pairs:
        annotations = record.annotations or (record,)
        has_type = prediction.get("type")

        truths: list[Any] = []
        if kind == "long":
            answer = None if has_type == "null" else prediction.get("long_answer")
            for annotation in annotations:
                truths.append(annotation.long_answer)
        else:
            texts = set()
            if has_type == "short" and prediction["answer"]:
                keys = ("paragraph", "start", "answer")
                texts.add(tuple(prediction.get(key) for key in keys))

            answer = short_answer(has_type, texts)
            for annotation in annotations:
                texts = {(a.paragraph, a.start, a.text) for a in annotation.answers}
                truths.append(short_answer(annotation.type, texts))

        annotators = sum(truth is not None for truth in truths)
        has_answer = annotators >= min(ENOUGH, len(truths))
        answerable += has_answer
        if answer is not None:
            predicted += 1
            correct += has_answer and answer in truths

    precision = correct / max(predicted, 1)
    recall = correct / max(answerable, 1)
    return {
        f"{kind}_f1": f1(precision, recall),
        f"{kind}_precision": precision,
        f"{kind}_recall": recall,
    }


def short_answer(kind: str | None, texts: set[Any]) -> Any:
    """Return a short answer for comparison: yes, no, a set of positions, or None."""
    return kind if kind in ("yes", "no") else texts or None
