"""Convert the public formats of HotpotQA, Natural Questions, TriviaQA and WikiHop to records.

Files are read record by record, each of bounded size. Rows of the library `datasets`, in which some columns
differ, are read by the same functions.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from bigbird_dna.disk.atomic import reading
from bigbird_dna.errors import ConfigError, DataError, error_text
from bigbird_dna.papers.nlp.answers.metrics import normalized
from bigbird_dna.papers.nlp.config import AnswerForm
from bigbird_dna.papers.nlp.records import (
    LONGEST_LINE,
    QuestionRecord,
    checked_rows,
    read_objects,
)

Row = Mapping[str, Any]
READ_BYTES = 1 << 20  # characters read at a time


def public_record(
    form: AnswerForm, row: Row, evidence: Path | None = None
) -> dict[str, Any] | None:
    """Return a row of the data set `form` as a record; None if it contains no question that can be used.

    `evidence` is the directory of TriviaQA's documents, which its files refer to. `DataError` names the key
    if the row is invalid; `ConfigError` if `form` is span, which is not a data set.
    """
    if form == "span":
        raise ConfigError(
            "form span: not a data set; use files of records, or the form of a data set"
        )
    forms: dict[AnswerForm, Callable[[Row, Path | None], dict[str, Any] | None]] = {
        "hotpotqa": _hotpot,
        "natural_questions": _natural,
        "triviaqa": _trivia,
        "wikihop": _wikihop,
    }
    try:
        return forms[form](row, evidence)
    except KeyError as error:
        raise DataError(f"not a row of {form}: key {error} is missing") from None
    except (TypeError, ValueError, IndexError, AttributeError) as error:
        raise DataError(f"not a row of {form}: {error_text(error)}") from None


def read_public(form: AnswerForm, path: Path) -> Iterator[QuestionRecord]:
    """Yield the records of a data set's own file.

    HotpotQA and WikiHop are JSON arrays; Natural Questions are JSON lines in the simplified form. TriviaQA is
    a JSON object with the array `Data`, in a directory next to `evidence`. `DataError` names file and record.
    """
    evidence = path.parent.parent / "evidence" if form == "triviaqa" else None
    rows = (
        read_objects(path)
        if form == "natural_questions"
        else _members(path, form == "triviaqa")
    )

    def values() -> Iterator[tuple[int, dict[str, Any]]]:
        for number, row in rows:
            try:
                if (found := public_record(form, row, evidence)) is not None:
                    yield number, found
            except DataError as error:
                raise DataError(f"{path}: record {number}: {error}") from None

    return checked_rows(values(), QuestionRecord, path, "record")


def _members(path: Path, keyed: bool) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the numbered objects (from 1) of a JSON array; `keyed`: the array is the value of `Data`."""
    fault = "not readable as JSON"
    with (
        reading(path, fault, UnicodeDecodeError),
        path.open(encoding="utf-8") as stream,
    ):
        text = stream.read(READ_BYTES)
        begin = text.find('"Data"') if keyed else 0
        begin = text.find("[", max(begin, 0))
        if (
            begin < 0
            or (keyed and '"Data"' not in text)
            or (not keyed and text[:begin].strip())
        ):
            raise DataError(
                f"{path}: {'no array Data' if keyed else 'not a JSON array'}"
            )
        yield from _objects(path, stream, text[begin + 1 :])


def _objects(
    path: Path, stream: TextIO, text: str
) -> Iterator[tuple[int, dict[str, Any]]]:
    decode, number, ended = json.JSONDecoder().raw_decode, 1, False
    while True:
        text = text.lstrip(" \t\r\n,")
        if text[:1] == "]":
            return
        try:
            values, end = decode(text)
        except (RecursionError, ValueError) as error:  # incomplete, or not JSON
            if not ended and len(text) <= LONGEST_LINE:
                more = stream.read(max(READ_BYTES, len(text)))
                ended = not more
                text += more
                continue
            why = (
                f"more than {LONGEST_LINE >> 20} MB"
                if not ended
                else f"not JSON: {error_text(error)}"
            )
            raise DataError(f"{path}: record {number}: {why}") from None
        if not isinstance(values, dict):
            raise DataError(f"{path}: record {number}: not a JSON object")
        yield number, values
        text, number = text[end:], number + 1


def _hotpot(row: Row, _: Path | None) -> dict[str, Any]:
    context, supporting = row["context"], row.get("supporting_facts", ())
    if isinstance(context, Mapping):  # rows of `datasets` have columns
        context = [*zip(context["title"], context["sentences"], strict=True)]
    if isinstance(supporting, Mapping):
        supporting = [*zip(supporting["title"], supporting["sent_id"], strict=True)]
    paragraphs = [
        {"title": title, "sentences": [*sentences]}
        for title, sentences in context
        if any(sentences)
    ]
    numbers = {one["title"]: number for number, one in enumerate(paragraphs)}
    facts = [
        (numbers[title], sentence)
        for title, sentence in supporting
        if title in numbers and sentence < len(paragraphs[numbers[title]]["sentences"])
    ]
    elsewhere = len({(title, sentence) for title, sentence in supporting}) - len(
        {*facts}
    )
    record = {
        "id": str(row.get("_id", row.get("id", ""))),
        "question": row["question"],
        "paragraphs": paragraphs,
        "facts": [{"paragraph": one, "sentence": two} for one, two in facts],
        **({"facts_elsewhere": elsewhere} if elsewhere else {}),
    }
    if "answer" not in row:  # the hidden test set
        return record
    answer = row["answer"]
    if normalized(answer) in ("yes", "no"):
        return {**record, "type": normalized(answer), "answers": [{"text": answer}]}
    inside = _in_facts(answer, paragraphs, facts)
    return {**record, "type": "span", "answers": inside or [{"text": answer}]}


def _in_facts(
    answer: str, paragraphs: list[dict[str, Any]], facts: list[tuple[int, int]]
) -> list[dict[str, Any]]:
    """Return an answer's positions in the supporting sentences."""
    found = []
    for paragraph, sentence in sorted(set(facts)):
        sentences = paragraphs[paragraph]["sentences"]
        before, at = (
            len("".join(sentences[:sentence])),
            sentences[sentence].find(answer),
        )
        while at >= 0 and answer:
            found.append({"text": answer, "paragraph": paragraph, "start": before + at})
            at = sentences[sentence].find(answer, at + 1)
    return found


def _wikihop(row: Row, _: Path | None) -> dict[str, Any]:
    answers = [{"text": row["answer"]}] if row.get("answer") else []
    return {
        "id": str(row.get("id", "")),
        "question": row.get("query", row.get("question")).replace("_", " "),
        "paragraphs": [{"sentences": [text]} for text in row["supports"] if text],
        "candidates": [*row["candidates"]],
        "answers": answers,
    }


def _trivia(row: Row, evidence: Path | None) -> dict[str, Any] | None:
    if "Question" in row:
        documents = [*_evidence(row.get("EntityPages", ()), evidence, "wikipedia")]
        documents += _evidence(row.get("SearchResults", ()), evidence, "web")
        name, question, answer = (
            row["QuestionId"],
            row["Question"],
            row.get("Answer") or {},
        )
        aliases = [answer.get("Value", ""), *answer.get("Aliases", ())]
    else:
        pages, found = row["entity_pages"], row["search_results"]
        documents = [*zip(pages["title"], pages["wiki_context"], strict=True)]
        documents += zip(found["title"], found["search_context"], strict=True)
        name, question, answer = (
            row["question_id"],
            row["question"],
            row.get("answer") or {},
        )
        aliases = [answer.get("value", ""), *answer.get("aliases", ())]
    paragraphs = [
        {"title": title, "sentences": text.splitlines(keepends=True)}
        for title, text in documents
        if text
    ]
    if not paragraphs:
        return None
    kept = [one for one in dict.fromkeys(aliases) if one and one != "<unk>"]
    return {
        "id": name,
        "question": question,
        "paragraphs": paragraphs,
        "answers": [{"text": one} for one in kept],
    }


def _evidence(
    pages: Any, evidence: Path | None, kind: str
) -> Iterator[tuple[str, str]]:
    """Yield titles and texts of the documents of a question."""
    for page in pages:
        name = Path(page["Filename"])
        if evidence is None or name.is_absolute() or ".." in name.parts:
            raise DataError(
                f"document {page['Filename']!r:.80} is not the name of a file in the evidence directory"
            )
        path = evidence / kind / name
        with (
            reading(path, "not readable as text", UnicodeDecodeError),
            path.open(encoding="utf-8") as stream,
        ):
            text = stream.read(LONGEST_LINE + 1)
        if len(text) > LONGEST_LINE:
            raise DataError(f"{path}: more than {LONGEST_LINE >> 20} MB")
        yield page.get("Title", ""), text


def _page_text(tokens: Sequence[str], first: int, end: int) -> str:
    """Return tokens `first … end` of a page of Natural Questions, without markup, joined by spaces."""
    return " ".join(
        one for one in tokens[first:end] if one and (one[0], one[-1]) != ("<", ">")
    )


def _natural(row: Row, _: Path | None) -> dict[str, Any] | None:
    page = row["document_text"].split(" ")
    bounds = [
        (one["start_token"], one["end_token"])
        for one in row["long_answer_candidates"]
        if one["top_level"]
    ]
    bounds = [(first, end) for first, end in bounds if _page_text(page, first, end)]
    if not bounds:
        return None
    annotations = [_annotation(one, page, bounds) for one in row.get("annotations", ())]
    record = {
        "id": str(row["example_id"]),
        "question": row["question_text"],
        "paragraphs": [
            {"sentences": [_page_text(page, first, end)]} for first, end in bounds
        ],
    }
    if not annotations:
        return record
    chosen = next((one for one in annotations if one["type"] != "null"), annotations[0])
    return {
        **record,
        **chosen,
        **({"annotations": annotations} if len(annotations) > 1 else {}),
    }


def _annotation(
    given: Row, page: Sequence[str], bounds: list[tuple[int, int]]
) -> dict[str, Any]:
    """Return an annotation by paragraph numbers; inside a table or list, the whole of it is used."""
    first = given["long_answer"]["start_token"]
    paragraph = next(
        (n for n, (begin, end) in enumerate(bounds) if begin <= first < end), None
    )
    if first < 0 or paragraph is None:
        return {"type": "null"}
    answers = []
    for one in given["short_answers"]:
        text = _page_text(page, one["start_token"], one["end_token"])
        before = _page_text(page, bounds[paragraph][0], one["start_token"])
        if text:
            answers.append(
                {
                    "text": text,
                    "paragraph": paragraph,
                    "start": len(before) + bool(before),
                }
            )
    verdict = given["yes_no_answer"].lower()
    kind = verdict if verdict in ("yes", "no") else "short" if answers else "long"
    return {"type": kind, "long_answer": paragraph, "answers": answers}
