"""Convert the public formats of HotpotQA, Natural Questions, TriviaQA and WikiHop to records.

HotpotQA and TriviaQA are rows of the library `datasets`; HotpotQA also its own file, like Natural Questions
and WikiHop.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from bigbird_dna.errors import ConfigError
from bigbird_dna.papers.nlp.config import AnswerForm
from bigbird_dna.papers.nlp.question_metrics import normalize_answer

Row = Mapping[str, Any]
Values = dict[str, Any]


def public_record(form: AnswerForm, row: Row) -> Values | None:
    """Convert a row of a public data set.

    Parameters
    ----------
    form
        The data set. `ConfigError` for `span`, which is none.
    row
        A row as in the files of the data set, or as the library `datasets` has it. `KeyError`, `TypeError` and
        others if it is something else.

    Returns
    -------
    The keys of a record; None if the row has no question that can be used.
    """
    if form == "hotpotqa":
        return _hotpotqa(row)

    if form == "natural_questions":
        return _natural_questions(row)

    if form == "triviaqa":
        return _triviaqa(row)

    if form == "wikihop":
        return _wikihop(row)

    raise ConfigError(
        "form span: not a data set; use files of records, or the form of a data set"
    )


def _hotpotqa(row: Row) -> Values:
    """Convert a row of HotpotQA. An answer has the positions where the supporting facts contain it."""
    context, supporting = row["context"], row["supporting_facts"]
    if isinstance(context, Mapping):  # of the library `datasets`, by columns
        context = zip(context["title"], context["sentences"], strict=True)
        supporting = zip(supporting["title"], supporting["sent_id"], strict=True)

    paragraphs: list[Values] = []
    numbers = {}
    for title, sentences in context:
        if any(sentences):
            numbers[title] = len(paragraphs)
            paragraphs.append({"title": title, "sentences": list(sentences)})

    facts, missing = [], set()
    for title, sentence in supporting:
        number = numbers.get(title)
        if number is None or sentence >= len(paragraphs[number]["sentences"]):
            missing.add((title, sentence))
        else:
            facts.append((number, sentence))

    record = {
        "id": str(row.get("id") or row.get("_id") or ""),
        "question": row["question"],
        "paragraphs": paragraphs,
        "facts": facts,
        "facts_elsewhere": len(missing),
    }

    text = row.get("answer")
    if text is None:  # the hidden test set
        return record

    if normalize_answer(text) in ("yes", "no"):
        return {**record, "type": normalize_answer(text), "answers": [{"text": text}]}

    answers = []
    for number, sentence in facts:
        sentences = paragraphs[number]["sentences"]
        before = len("".join(sentences[:sentence]))
        for match in re.finditer(re.escape(text), sentences[sentence]):
            start = before + match.start()
            answers.append({"text": text, "paragraph": number, "start": start})

    return {**record, "type": "short", "answers": answers or [{"text": text}]}


def _wikihop(row: Row) -> Values:
    """Convert a row of WikiHop, whose supporting documents are paragraphs."""
    answer = row.get("answer")
    return {
        "id": str(row.get("id", "")),
        "question": row["query"].replace("_", " "),
        "paragraphs": [{"sentences": [text]} for text in row["supports"] if text],
        "candidates": list(row["candidates"]),
        "answers": [{"text": answer}] if answer else [],
    }


def _triviaqa(row: Row) -> Values | None:
    """Convert a row of TriviaQA; None without documents. Lines of documents are sentences."""
    pages, results = row["entity_pages"], row["search_results"]
    titles = [*pages["title"], *results["title"]]
    texts = [*pages["wiki_context"], *results["search_context"]]

    paragraphs = []
    for title, text in zip(titles, texts, strict=True):
        if text:
            sentences = text.splitlines(keepends=True)
            paragraphs.append({"title": title, "sentences": sentences})

    if not paragraphs:
        return None

    answer = row.get("answer") or {}
    aliases = dict.fromkeys([answer.get("value", ""), *answer.get("aliases", ())])
    return {
        "id": row["question_id"],
        "question": row["question"],
        "paragraphs": paragraphs,
        "answers": [{"text": text} for text in aliases if text not in ("", "<unk>")],
    }


def _page_text(tokens: Sequence[str]) -> str:
    """Return tokens of a page of Natural Questions, without markup, joined by spaces."""
    return " ".join(
        token
        for token in tokens
        if token and not (token[0] == "<" and token[-1] == ">")
    )


def _natural_questions(row: Row) -> Values | None:
    """Convert a row of Natural Questions in the simplified form; None without paragraphs.

    Paragraphs are the top-level candidates for a long answer. Of several annotators, the first who found an
    answer gives the labels.
    """
    page = row["document_text"].split(" ")
    paragraphs, bounds = [], []
    for candidate in row["long_answer_candidates"]:
        first, end = candidate["start_token"], candidate["end_token"]
        text = _page_text(page[first:end])
        if candidate["top_level"] and text:
            paragraphs.append({"sentences": [text]})
            bounds.append((first, end))

    if not bounds:
        return None

    annotations = []
    for annotation in row.get("annotations", ()):
        # Inside a table or list, all of it is the long answer.
        first = annotation["long_answer"]["start_token"]
        inside = [n for n, (begin, end) in enumerate(bounds) if begin <= first < end]
        if not inside:
            annotations.append({"type": "null"})
            continue

        paragraph = inside[0]
        answers = []
        for short in annotation["short_answers"]:
            text = _page_text(page[short["start_token"] : short["end_token"]])
            before = _page_text(page[bounds[paragraph][0] : short["start_token"]])
            start = len(before) + 1 if before else 0
            if text:
                answers.append({"text": text, "paragraph": paragraph, "start": start})

        kind = annotation["yes_no_answer"].lower()
        if kind not in ("yes", "no"):
            kind = "short" if answers else "long"

        known = {"type": kind, "long_answer": paragraph, "answers": answers}
        annotations.append(known)

    record = {
        "id": str(row["example_id"]),
        "question": row["question_text"],
        "paragraphs": paragraphs,
    }
    if annotations:
        answered = [known for known in annotations if known["type"] != "null"]
        record |= (answered or annotations)[0]

    if len(annotations) > 1:
        record["annotations"] = annotations

    return record
