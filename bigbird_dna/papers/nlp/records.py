"""Records of tasks on text, and their predictions: JSON lines in UTF-8 (docs/reference/text-tasks.md).

The content of records is declared here. Errors name file and line. Files may be gzip.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from bigbird_dna.disk.atomic import atomic_path
from bigbird_dna.disk.compression import open_bytes
from bigbird_dna.errors import DataError, error_text, first_fault, meant, shortened

R = TypeVar("R", bound="Record")
AnswerType = Literal["null", "yes", "no", "short", "long", "span"]


class Strict(BaseModel):
    """Base model that rejects undeclared keys, values of other types, infinity and NaN."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False
    )


class Record(Strict):
    """A line of a file of records.

    `id` identifies the record in predictions; the default is the line number.
    """

    id: str = ""


class TextRecord(Record):
    """A document for pretraining."""

    text: str = Field(min_length=1)


class ClassificationRecord(Record):
    """A document, or a pair of sentences, with the name of its class or a score to predict (STS-B)."""

    text: str = Field(min_length=1)
    pair: str | None = None
    label: str | None = None
    score: float | None = None


class SummaryRecord(Record):
    """A document and its summary; records for prediction may have no summary."""

    document: str = Field(min_length=1)
    summary: str | None = None


class Paragraph(Strict):
    """A paragraph of a question's context, divided into sentences."""

    title: str = ""
    sentences: tuple[str, ...] = Field(min_length=1)

    @property
    def text(self) -> str:
        return "".join(self.sentences)


class TrueAnswer(Strict):
    """An answer and its position in the context.

    `start` is the offset of its first character in the concatenated sentences of the paragraph; None if the
    position is unknown.
    """

    text: str
    paragraph: int | None = Field(default=None, ge=0)
    start: int | None = Field(default=None, ge=0)


class Fact(Strict):
    """A sentence that supports the answer; numbers of paragraph and sentence start at 0."""

    paragraph: int = Field(ge=0)
    sentence: int = Field(ge=0)


class Annotation(Strict):
    """Result of one of several annotators (Natural Questions); empty: there is no answer."""

    answers: tuple[TrueAnswer, ...] = ()
    long_answer: int | None = Field(default=None, ge=0)
    type: AnswerType | None = None


class QuestionRecord(Record):
    """A question with its context, and the known answer.

    HotpotQA has `answers`, `facts` and a `type` of yes, no or span; facts missing in the context are counted,
    because they count as not found. Natural Questions have `answers` (short), `long_answer` and a `type`.
    TriviaQA has `answers` without positions, as aliases. WikiHop has `candidates`, which include the first of
    `answers`. Records for prediction may have none of these.
    """

    question: str = Field(min_length=1)
    paragraphs: tuple[Paragraph, ...] = Field(min_length=1)
    answers: tuple[TrueAnswer, ...] = ()
    facts: tuple[Fact, ...] = ()
    facts_elsewhere: int = Field(default=0, ge=0)
    candidates: tuple[str, ...] = ()
    long_answer: int | None = Field(default=None, ge=0)
    type: AnswerType | None = None
    annotations: tuple[Annotation, ...] = ()

    @model_validator(mode="after")
    def _check_positions(self) -> "QuestionRecord":
        count = len(self.paragraphs)
        for answer in self.answers:
            if answer.paragraph is None or answer.start is None:
                continue
            if answer.paragraph >= count:
                raise ValueError(
                    f"answer in paragraph {answer.paragraph}, which does not exist"
                )
            text = self.paragraphs[answer.paragraph].text
            if not text.startswith(answer.text, answer.start):
                raise ValueError(
                    f"the answer {shortened(repr(answer.text))} is not at position {answer.start} of "
                    f"paragraph {answer.paragraph}"
                )
        for fact in self.facts:
            if fact.paragraph >= count or fact.sentence >= len(
                self.paragraphs[fact.paragraph].sentences
            ):
                raise ValueError(
                    f"paragraph {fact.paragraph} has no sentence {fact.sentence}"
                )
        if self.long_answer is not None and self.long_answer >= count:
            raise ValueError(
                f"long answer in paragraph {self.long_answer}, which does not exist"
            )
        return self


def read_records(path: Path, kind: type[R]) -> Iterator[R]:
    """Yield the records of a file, without empty lines; errors as in `check_records`."""
    return check_records(read_objects(path), kind, path)


def check_records(
    rows: Iterable[tuple[int, dict[str, Any]]],
    kind: type[R],
    source: Path | str,
    unit: str = "line",
) -> Iterator[R]:
    """Yield numbered objects as records.

    `DataError` names source, line (or `unit`), its number and the invalid key, or says that there are none.
    """
    number = None
    for number, values in rows:
        try:
            # Via JSON, so that lists become tuples and numbers are treated as in a file.
            record = kind.model_validate_json(json.dumps(values))
        except ValidationError as error:
            key, fault, reason, _ = first_fault(error)
            if fault == "extra_forbidden":
                similar = meant(key, kind.model_fields)
                reason = f"unknown key {shortened(repr(key))}{similar}"
            elif key:
                reason = f"{key}: {reason}"
            raise DataError(f"{source}: {unit} {number}: {reason}") from None
        yield record if record.id else record.model_copy(update={"id": str(number)})
    if number is None:
        raise DataError(f"{source}: contains no record")


def read_labeled(
    path: Path, kind: type[R], missing: Callable[[R], str | None]
) -> list[R]:
    """Return the records of a file; `DataError` for a duplicate, or one of which `missing` names a part."""
    records: dict[str, R] = {}
    for record in read_records(path, kind):
        part = missing(record)
        if part is not None:
            raise DataError(f"{path}: record {record.id!r}: {part} is missing")
        if record.id in records:
            raise DataError(f"{path}: record {record.id!r} is duplicated")
        records[record.id] = record
    return [*records.values()]


def read_objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the JSON objects of a file with their line numbers, from 1; `DataError` names file and line."""
    with open_bytes(path) as stream:
        for number, line in enumerate(stream, 1):
            if not line.strip():
                continue
            try:
                values = json.loads(line)
            except ValueError as error:  # not UTF-8, or not JSON
                raise DataError(
                    f"{path}: line {number}: not JSON: {error_text(error)}"
                ) from None
            if not isinstance(values, dict):
                raise DataError(f"{path}: line {number}: not a JSON object")
            yield number, values


def write_objects(path: Path, values: Iterable[dict[str, Any]]) -> int:
    """Write JSON lines atomically; return their number."""
    with (
        atomic_path(path) as temporary,
        temporary.open("w", encoding="utf-8") as stream,
    ):
        count = 0
        for value in values:
            stream.write(json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n")
            count += 1
    return count


def read_predictions(
    path: Path, key: str, records: Sequence[Record]
) -> list[dict[str, Any]]:
    """Read the predictions of a file, objects with `id` and `key`, in the order of `records`.

    `DataError` unless each record has exactly one prediction.
    """
    predictions: dict[str, dict[str, Any]] = {}
    for number, values in read_objects(path):
        for name in ("id", key):
            if name not in values:
                raise DataError(f"{path}: line {number}: key {name!r} is missing")
        if values["id"] in predictions:
            raise DataError(f"{path}: record {values['id']!r} is predicted twice")
        predictions[values["id"]] = values
    for record in records:
        if record.id not in predictions:
            raise DataError(f"{path}: no prediction for record {record.id!r}")
    if len(predictions) > len(records):
        name = min(predictions.keys() - {record.id for record in records})
        raise DataError(
            f"{path}: predicts record {name!r}, which is not in the records"
        )
    return [predictions[record.id] for record in records]
