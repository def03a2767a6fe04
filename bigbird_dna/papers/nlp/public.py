"""Convert the public formats of HotpotQA, Natural Questions, TriviaQA and WikiHop to records.

HotpotQA and TriviaQA are rows of the library `datasets`; HotpotQA also its own file, like Natural Questions
and WikiHop.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bigbird_dna.disk.atomic import reading
from bigbird_dna.errors import ConfigError, DataError, error_text
from bigbird_dna.papers.nlp.config import AnswerForm
from bigbird_dna.papers.nlp.question_metrics import normalize_answer
from bigbird_dna.papers.nlp.records import QuestionRecord, check_records, read_objects

Row = Mapping[str, Any]
Values = dict[str, Any]


def public_record(form: AnswerForm, row: Row) -> Values | None:
    """Return a row of the data set `form` as a record; None if it contains no question that can be used.

    `DataError` names the key if the row is invalid; `ConfigError` if `form` is span, which is not a data set.
    """
    if form == "span":
        raise ConfigError(
            "form span: not a data set; use files of records, or the form of a data set"
        )
    convert = {
        "hotpotqa": _hotpotqa,
        "natural_questions": _natural_questions,
        "triviaqa": _triviaqa,
        "wikihop": _wikihop,
    }[form]
    try:
        return convert(row)
    except KeyError as error:
        raise DataError(f"not a row of {form}: key {error} is missing") from None
    except (TypeError, ValueError, IndexError, AttributeError) as error:
        raise DataError(f"not a row of {form}: {error_text(error)}") from None


def read_public(form: AnswerForm, path: Path) -> Iterator[QuestionRecord]:
    """Yield the records of a data set's own file: Natural Questions are JSON lines in the simplified form,
    HotpotQA and WikiHop a JSON array. `DataError` names file and record."""

    def converted() -> Iterator[tuple[int, Values]]:
        if form == "natural_questions":
            rows: Any = read_objects(path)
        else:
            with reading(path, "not readable as JSON", ValueError, RecursionError):
                rows = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(rows, list):
                raise DataError(f"{path}: not a JSON array")
            rows = enumerate(rows, 1)
        for number, row in rows:
            try:
                record = public_record(form, row)
            except DataError as error:
                raise DataError(f"{path}: record {number}: {error}") from None
            if record is not None:
                yield number, record

    return check_records(converted(), QuestionRecord, path, "record")


def _hotpotqa(row: Row) -> Values:
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
        "facts": [{"paragraph": p, "sentence": s} for p, s in facts],
        "facts_elsewhere": len(missing),
    }
    if "answer" not in row:  # the hidden test set
        return record
    text = row["answer"]
    record["answers"] = [{"text": text}]
    verdict = normalize_answer(text)
    if verdict in ("yes", "no"):
        return {**record, "type": verdict}
    positions = []
    for number, sentence in sorted(set(facts)):
        sentences = paragraphs[number]["sentences"]
        before = len("".join(sentences[:sentence]))
        start = sentences[sentence].find(text)
        while text and start >= 0:
            position = {"paragraph": number, "start": before + start}
            positions.append({"text": text, **position})
            start = sentences[sentence].find(text, start + 1)
    return record | {"type": "span", "answers": positions or record["answers"]}


def _wikihop(row: Row) -> Values:
    answer = row.get("answer")
    return {
        "id": str(row.get("id", "")),
        "question": row["query"].replace("_", " "),
        "paragraphs": [{"sentences": [text]} for text in row["supports"] if text],
        "candidates": list(row["candidates"]),
        "answers": [{"text": answer}] if answer else [],
    }


def _triviaqa(row: Row) -> Values | None:
    pages, results = row["entity_pages"], row["search_results"]
    documents = [
        *zip(pages["title"], pages["wiki_context"], strict=True),
        *zip(results["title"], results["search_context"], strict=True),
    ]
    answer = row.get("answer") or {}
    aliases = dict.fromkeys([answer.get("value", ""), *answer.get("aliases", ())])
    paragraphs = [
        {"title": title, "sentences": text.splitlines(keepends=True)}
        for title, text in documents
        if text
    ]
    if not paragraphs:
        return None
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
