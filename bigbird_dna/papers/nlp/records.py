"""Records of the tasks on text, and predictions of them: a JSON object a line, UTF-8 (docs/files/text-records.md).

What a record must hold is declared here once; readers are bounded, and name file and line in errors. A file
may be gzip.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from bigbird_dna.disk.atomic import atomic_path
from bigbird_dna.disk.compression import open_bytes
from bigbird_dna.disk.json_files import parse_json
from bigbird_dna.errors import DataError, error_text, shortened

LONGEST_LINE = 1 << 25
"""Bytes of a record: ten times the longest documents of the published data sets."""

Kind = Literal["pretraining", "classification", "qa", "summaries"]
R = TypeVar("R", bound="Record")


class _Strict(BaseModel):
    """Keys that are not declared are refused, and so are values of other types, infinity and NaN."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Record(_Strict):
    """A line of a file of records.

    `id` names the record in predictions; where a file leaves it out, it is the line's number.
    """

    id: str = ""
    read: ClassVar[tuple[str, ...]] = ()  # keys of texts

    @property
    def texts(self) -> Iterable[str]:
        """What a tokenizer may be learnt from."""
        return (text for key in self.read if (text := getattr(self, key)) is not None)


class TextRecord(Record):
    """A document to pretrain on."""

    text: str = Field(min_length=1)
    read = ("text",)


class ClassificationRecord(Record):
    """A document, or a pair of sentences, with its class or its score.

    `label` is the name of a class; `score` is a number to be predicted (STS-B). A record to predict may have
    neither.
    """

    text: str = Field(min_length=1)
    pair: str | None = Field(default=None, description="second sentence, of tasks on pairs")
    label: str | None = None
    score: float | None = None
    read = ("text", "pair")


class Paragraph(_Strict):
    """A paragraph of a question's context, cut into sentences."""

    title: str = ""
    sentences: tuple[str, ...] = Field(min_length=1)


class TrueAnswer(_Strict):
    """An answer, and where it stands in the context.

    `start` is the offset of its first character in the paragraph's sentences written one after the other
    (joined without anything between them); none where its place is not known.
    """

    text: str
    paragraph: int | None = Field(default=None, ge=0)
    start: int | None = Field(default=None, ge=0)


class Fact(_Strict):
    """A sentence that supports the answer, by the numbers of paragraph and sentence, from 0."""

    paragraph: int = Field(ge=0)
    sentence: int = Field(ge=0)


class Annotation(_Strict):
    """What one of several annotators found (Natural Questions); nothing: that there is no answer."""

    answers: tuple[TrueAnswer, ...] = ()
    long_answer: int | None = Field(default=None, ge=0)
    type: Literal["null", "yes", "no", "short", "long"] | None = None


class QuestionRecord(Record):
    """A question with its context, and what is known of the answer.

    HotpotQA has `answers`, `facts` and a `type` of yes, no or span; facts that the context lacks are counted,
    as whoever doesn't name them misses them. Natural Questions have `answers` (short),
    `long_answer` and a `type`; TriviaQA has `answers` that may stand anywhere, as aliases; WikiHop has
    `candidates`, of which the first of `answers` is one. A record to predict may have none of them.
    """

    question: str = Field(min_length=1)
    paragraphs: tuple[Paragraph, ...] = Field(min_length=1)
    answers: tuple[TrueAnswer, ...] = ()
    facts: tuple[Fact, ...] = ()
    facts_elsewhere: int = Field(
        default=0, ge=0, description="further supporting facts, which are not in the paragraphs"
    )
    candidates: tuple[str, ...] = ()
    long_answer: int | None = Field(default=None, ge=0, description="number of the paragraph that it is")
    type: Literal["null", "yes", "no", "short", "long", "span"] | None = None
    annotations: tuple[Annotation, ...] = Field(
        default=(), description="of several annotators, which predictions are judged by"
    )

    @property
    def texts(self) -> Iterable[str]:
        return self.question, *("".join(paragraph.sentences) for paragraph in self.paragraphs)

    @model_validator(mode="after")
    def _places_are_there(self) -> "QuestionRecord":
        for answer in self.answers:
            if answer.paragraph is not None and answer.paragraph >= len(self.paragraphs):
                raise ValueError(f"an answer stands in paragraph {answer.paragraph}, there is none")
            if answer.paragraph is not None and answer.start is not None:
                text = "".join(self.paragraphs[answer.paragraph].sentences)
                if not text.startswith(answer.text, answer.start):
                    raise ValueError(
                        f"the answer {shortened(repr(answer.text))} doesn't stand at {answer.start} of "
                        f"paragraph {answer.paragraph}"
                    )
        for fact in self.facts:
            if fact.paragraph >= len(self.paragraphs) or fact.sentence >= len(
                self.paragraphs[fact.paragraph].sentences
            ):
                raise ValueError(f"there is no sentence {fact.sentence} in a paragraph {fact.paragraph}")
        if self.long_answer is not None and self.long_answer >= len(self.paragraphs):
            raise ValueError(f"the long answer is paragraph {self.long_answer}, there is none")
        return self


class SummaryRecord(Record):
    """A document and its summary; one to predict may have no summary."""

    document: str = Field(min_length=1)
    summary: str | None = None
    read = ("document", "summary")


def read_records(path: Path, kind: type[R]) -> Iterator[R]:
    """The records of a file, one after the other; without empty lines. `DataError` names line and key."""
    return checked_rows(read_objects(path), kind, path)


def checked_rows(
    rows: Iterable[tuple[int, dict[str, Any]]], kind: type[R], source: Path | str, unit: str = "line"
) -> Iterator[R]:
    """The records of numbered objects; errors as of `checked`, or if there is none."""
    number = None
    for number, values in rows:
        yield checked(values, kind, number, source, unit)
    if number is None:
        raise DataError(f"{source}: holds no record")


def read_objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The JSON objects of a file with the numbers of their lines, from 1; errors as `read_records`."""
    with open_bytes(path) as stream:
        for number, line in enumerate(iter(lambda: stream.readline(LONGEST_LINE + 1), b""), 1):
            if len(line) > LONGEST_LINE:
                raise DataError(f"{path}: line {number}: more than {LONGEST_LINE >> 20} MB")
            if not line.strip():
                continue
            try:
                values = parse_json(line.decode())
            except ValueError as error:  # not UTF-8, or not JSON
                raise DataError(f"{path}: line {number}: not JSON: {error_text(error)}") from None
            if not isinstance(values, dict):
                raise DataError(f"{path}: line {number}: not a JSON object")
            yield number, values


def checked(values: dict[str, Any], kind: type[R], number: int, path: Path | str, unit: str = "line") -> R:
    """A record of an object; `DataError` names `path`, line (or `unit`) `number` and the key at fault."""
    try:
        # By way of JSON: lists are tuples, and numbers are what they are in a file.
        record = kind.model_validate_json(json.dumps(values))
        return record if record.id else record.model_copy(update={"id": str(number)})
    except ValidationError as error:
        first = error.errors()[0]
    key = ".".join(map(str, first["loc"]))
    if first["type"] == "extra_forbidden":
        raise DataError(f"{path}: {unit} {number}: unknown key {shortened(repr(key))}")
    message = shortened(first["msg"].removeprefix("Value error, "), 300)
    raise DataError(f"{path}: {unit} {number}: {key + ': ' if key else ''}{message}")


def write_objects(path: Path, values: Iterable[dict[str, Any]]) -> int:
    """Write JSON lines, whole or not at all; how many there were."""
    count = 0
    with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8") as stream:
        for one in values:
            stream.write(json.dumps(one, ensure_ascii=False, allow_nan=False) + "\n")
            count += 1
    return count


P = TypeVar("P", bound=Record)


def read_predictions(path: Path, kind: type[P], key: str, records: Mapping[str, Record]) -> dict[str, P]:
    """The predictions of a file by their records' ids, in the order of `records`.

    Each record has one, and no line may lack `key`, that of what is predicted; `DataError` otherwise.
    """
    found: dict[str, P] = {}
    for number, values in read_objects(path):
        if values.get("id") in (None, "") or values.get(key) is None:
            raise DataError(f"{path}: line {number}: has no id or no {key}")
        one = checked(values, kind, number, path)
        if one.id in found:
            raise DataError(f"{path}: line {number}: record {one.id!r} is predicted twice")
        found[one.id] = one
    for name in records:
        if name not in found:
            raise DataError(f"{path}: has no prediction for record {name!r}")
    for name in found:
        if name not in records:
            raise DataError(f"{path}: predicts record {name!r}, which is not among the records")
    return {name: found[name] for name in records}
