"""Records of tasks on text, and their predictions: JSON lines in UTF-8 (docs/reference/text-tasks.md).

The content of records is declared here. Errors name file and line. Files may be gzip.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from bigbird_dna.disk.atomic import atomic_path
from bigbird_dna.disk.compression import read_lines
from bigbird_dna.errors import DataError, first_fault, shortened

R = TypeVar("R", bound="Record")
AnswerType = Literal["null", "yes", "no", "short", "long"]


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

    def texts(self) -> list[str]:
        """Return the texts on which a tokenizer is trained."""
        return []

    def missing_label(self, section: Any) -> str | None:
        """Return the name of a label that a task's training needs and the record lacks, or None."""
        return None


class Prediction(Record):
    """A line of a file of predictions, with keys of its task."""

    model_config = ConfigDict(extra="allow")


class TextRecord(Record):
    """A document for pretraining."""

    text: str = Field(min_length=1)

    def texts(self) -> list[str]:
        return [self.text]


class ClassificationRecord(Record):
    """A document, or a pair of sentences, with the name of its class or a score to predict (STS-B)."""

    text: str = Field(min_length=1)
    pair: str | None = None
    label: str | None = None
    score: float | None = None

    def texts(self) -> list[str]:
        return [self.text, self.pair or ""]

    def missing_label(self, section: Any) -> str | None:
        key = "score" if section.regression else "label"
        return key if getattr(self, key) is None else None


class SummaryRecord(Record):
    """A document and its summary; records for prediction may have no summary."""

    document: str = Field(min_length=1)
    summary: str | None = None

    def texts(self) -> list[str]:
        return [self.document, self.summary or ""]

    def missing_label(self, section: Any) -> str | None:
        return None if (self.summary or "").strip() else "summary"


class Paragraph(Strict):
    """A paragraph of a question's context, divided into sentences."""

    title: str = ""
    sentences: tuple[str, ...] = Field(min_length=1)

    @property
    def heading(self) -> str:
        """The title between spaces, or a space."""
        return f" {self.title} " if self.title else " "

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


class Annotation(Strict):
    """Result of one of several annotators (Natural Questions); empty: there is no answer."""

    answers: tuple[TrueAnswer, ...] = ()
    long_answer: int | None = Field(default=None, ge=0)
    type: AnswerType | None = None


class QuestionRecord(Record, Annotation):
    """A question with its context, and the known answer.

    HotpotQA has `answers`, a `type` of yes, no or short, and `facts`: paragraphs and sentences that support
    the answer, by their numbers; those missing in the context are counted, because they count as not found. Natural Questions have `answers` (short), `long_answer` and a `type`.
    TriviaQA has `answers` without positions, as aliases. WikiHop has `candidates`, which include the first of
    `answers`. Records for prediction may have none of these.
    """

    question: str = Field(min_length=1)
    paragraphs: tuple[Paragraph, ...] = Field(min_length=1)
    facts: tuple[tuple[int, int], ...] = ()
    facts_elsewhere: int = Field(default=0, ge=0)
    candidates: tuple[str, ...] = ()
    annotations: tuple[Annotation, ...] = ()

    def texts(self) -> list[str]:
        return [self.question, self.context]

    @cached_property
    def context(self) -> str:
        """All paragraphs, each after its title."""
        return "".join(part.heading + part.text for part in self.paragraphs)

    @cached_property
    def starts(self) -> list[int]:
        """Positions of the paragraphs' texts in `context`."""
        starts, end = [], 0
        for paragraph in self.paragraphs:
            starts.append(end + len(paragraph.heading))
            end = starts[-1] + len(paragraph.text)
        return starts

    def bounds(self, paragraph: int) -> tuple[int, int]:
        """Return first and end character of a paragraph in `context`, without white space around it."""
        text = self.paragraphs[paragraph].text
        end = self.starts[paragraph] + len(text.rstrip())
        return end - len(text.strip()), end

    def missing_label(self, section: Any) -> str | None:
        has_answer = self.answers or self.type in ("yes", "no")
        if not has_answer and section.form != "natural_questions":
            return "answer"
        if section.form == "wikihop" and self.answers[0].text not in self.candidates:
            return "the answer among the candidates"
        return None

    @model_validator(mode="after")
    def _check_positions(self) -> "QuestionRecord":
        count = len(self.paragraphs)
        for answer in self.answers:
            if answer.paragraph is None or answer.start is None:
                continue

            text = ""
            if answer.paragraph < count:
                text = self.paragraphs[answer.paragraph].text

            if not text.startswith(answer.text, answer.start):
                raise ValueError(
                    f"the answer {shortened(repr(answer.text))} is not at position {answer.start} of "
                    f"paragraph {answer.paragraph}"
                )

        for paragraph, sentence in self.facts:
            has_paragraph = 0 <= paragraph < count
            if not has_paragraph or not (
                0 <= sentence < len(self.paragraphs[paragraph].sentences)
            ):
                raise ValueError(f"paragraph {paragraph} has no sentence {sentence}")

        if self.long_answer is not None and self.long_answer >= count:
            raise ValueError(f"paragraph {self.long_answer} does not exist")

        return self


def read_records(path: Path, kind: type[R]) -> Iterator[R]:
    """Yield the records of a file, without empty lines; errors as in `parse_records`."""
    return parse_records(read_lines(path), kind, path)


def parse_records(
    lines: Iterable[tuple[int, str]], kind: type[R], source: Path | str
) -> Iterator[R]:
    """Yield numbered lines of JSON as records, without empty ones.

    `DataError` names source, line and invalid key, or says that there are no records.
    """
    is_empty = True
    for number, line in lines:
        if not line.strip():
            continue

        try:
            record = kind.model_validate_json(line)
        except ValidationError as error:
            key, _, reason, _ = first_fault(error)
            raise DataError(
                f"{source}: line {number}: {key and f'{key}: '}{reason}"
            ) from None

        is_empty = False
        yield record if record.id else record.model_copy(update={"id": str(number)})

    if is_empty:
        raise DataError(f"{source}: contains no record")


def read_labeled(path: Path, kind: type[R], section: Any) -> list[R]:
    """Return the records of a file; `DataError` for a duplicate, or one without the labels of the task."""
    records: dict[str, R] = {}
    for record in read_records(path, kind):
        missing = record.missing_label(section)
        if missing:
            raise DataError(f"{path}: record {record.id!r}: {missing} is missing")
        if record.id in records:
            raise DataError(f"{path}: record {record.id!r} is duplicated")
        records[record.id] = record
    return [*records.values()]


def write_objects(path: Path, values: Iterable[dict[str, Any]]) -> int:
    """Write JSON lines atomically; return their number."""
    count = 0
    with (
        atomic_path(path) as temporary,
        temporary.open("w", encoding="utf-8") as stream,
    ):
        for value in values:
            stream.write(json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n")
            count += 1
    return count


def read_predictions(
    path: Path, key: str, records: Sequence[Record]
) -> list[dict[str, Any]]:
    """Return the predictions of a file, objects with `id` and `key`, in the order of `records`.

    `DataError` if a record has no prediction.
    """
    predictions: dict[str, dict[str, Any]] = {}
    for line in parse_records(read_lines(path), Prediction, path):
        predictions[line.id] = line.model_extra or {}
    for record in records:
        if key not in predictions.get(record.id, {}):
            raise DataError(f"{path}: record {record.id!r}: no prediction of {key!r}")
    return [predictions[record.id] for record in records]
