"""Records of tasks on text, and their predictions: JSON lines in UTF-8 (docs/reference/text-tasks.md).

The content of records is declared here. Readers use bounded memory, and errors name file and line. Files may
be gzip.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from bigbird_dna.disk.atomic import atomic_path
from bigbird_dna.disk.compression import open_bytes
from bigbird_dna.errors import DataError, error_text, first_fault, meant, shortened

LONGEST_LINE = 1 << 25
"""Most bytes of a record; ten times the longest documents of the published data sets."""

Kind = Literal["pretraining", "classification", "qa", "summaries"]
R = TypeVar("R", bound="Record")


class _Strict(BaseModel):
    """Base model that rejects undeclared keys, values of other types, infinity and NaN."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False
    )


class Record(_Strict):
    """A line of a file of records.

    `id` identifies the record in predictions; the default is the line number.
    """

    id: str = ""
    read: ClassVar[tuple[str, ...]] = ()  # keys with text

    @property
    def texts(self) -> Iterable[str]:
        """Texts from which a tokenizer may be trained."""
        return (text for key in self.read if (text := getattr(self, key)) is not None)


class TextRecord(Record):
    """A document for pretraining."""

    text: str = Field(min_length=1)
    read = ("text",)


class ClassificationRecord(Record):
    """A document, or a pair of sentences, with its class or score.

    `label` is the name of a class; `score` is a number to predict (STS-B). Records for prediction may have
    neither.
    """

    text: str = Field(min_length=1)
    pair: str | None = Field(
        default=None, description="second sentence, for tasks on pairs"
    )
    label: str | None = None
    score: float | None = None
    read = ("text", "pair")


class Paragraph(_Strict):
    """A paragraph of a question's context, divided into sentences."""

    title: str = ""
    sentences: tuple[str, ...] = Field(min_length=1)


class TrueAnswer(_Strict):
    """An answer and its position in the context.

    `start` is the offset of its first character in the concatenated sentences of the paragraph; None if the
    position is unknown.
    """

    text: str
    paragraph: int | None = Field(default=None, ge=0)
    start: int | None = Field(default=None, ge=0)


class Fact(_Strict):
    """A sentence that supports the answer; numbers of paragraph and sentence start at 0."""

    paragraph: int = Field(ge=0)
    sentence: int = Field(ge=0)


class Annotation(_Strict):
    """Result of one of several annotators (Natural Questions); empty: there is no answer."""

    answers: tuple[TrueAnswer, ...] = ()
    long_answer: int | None = Field(default=None, ge=0)
    type: Literal["null", "yes", "no", "short", "long"] | None = None


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
    facts_elsewhere: int = Field(
        default=0,
        ge=0,
        description="number of supporting facts missing in the paragraphs",
    )
    candidates: tuple[str, ...] = ()
    long_answer: int | None = Field(
        default=None, ge=0, description="number of its paragraph"
    )
    type: Literal["null", "yes", "no", "short", "long", "span"] | None = None
    annotations: tuple[Annotation, ...] = Field(
        default=(), description="results of several annotators, for evaluation"
    )

    @property
    def texts(self) -> Iterable[str]:
        return self.question, *(
            "".join(paragraph.sentences) for paragraph in self.paragraphs
        )

    @model_validator(mode="after")
    def _places_are_there(self) -> "QuestionRecord":
        for answer in self.answers:
            if answer.paragraph is not None and answer.paragraph >= len(
                self.paragraphs
            ):
                raise ValueError(
                    f"answer in paragraph {answer.paragraph}, which does not exist"
                )
            if answer.paragraph is not None and answer.start is not None:
                text = "".join(self.paragraphs[answer.paragraph].sentences)
                if not text.startswith(answer.text, answer.start):
                    raise ValueError(
                        f"the answer {shortened(repr(answer.text))} is not at position {answer.start} of "
                        f"paragraph {answer.paragraph}"
                    )
        for fact in self.facts:
            if fact.paragraph >= len(self.paragraphs) or fact.sentence >= len(
                self.paragraphs[fact.paragraph].sentences
            ):
                raise ValueError(
                    f"paragraph {fact.paragraph} has no sentence {fact.sentence}"
                )
        if self.long_answer is not None and self.long_answer >= len(self.paragraphs):
            raise ValueError(
                f"long answer in paragraph {self.long_answer}, which does not exist"
            )
        return self


class SummaryRecord(Record):
    """A document and its summary; records for prediction may have no summary."""

    document: str = Field(min_length=1)
    summary: str | None = None
    read = ("document", "summary")


def read_records(path: Path, kind: type[R]) -> Iterator[R]:
    """Yield the records of a file, without empty lines; `DataError` names line and key."""
    return checked_rows(read_objects(path), kind, path)


def checked_rows(
    rows: Iterable[tuple[int, dict[str, Any]]],
    kind: type[R],
    source: Path | str,
    unit: str = "line",
) -> Iterator[R]:
    """Yield the records of numbered objects; errors as in `checked`, or if there are none."""
    number = None
    for number, values in rows:
        yield checked(values, kind, number, source, unit)
    if number is None:
        raise DataError(f"{source}: contains no record")


def read_objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the JSON objects of a file with their line numbers, from 1; errors as in `read_records`."""
    with open_bytes(path) as stream:
        for number, line in enumerate(
            iter(lambda: stream.readline(LONGEST_LINE + 1), b""), 1
        ):
            if len(line) > LONGEST_LINE:
                raise DataError(
                    f"{path}: line {number}: more than {LONGEST_LINE >> 20} MB"
                )
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


def checked(
    values: dict[str, Any],
    kind: type[R],
    number: int,
    path: Path | str,
    unit: str = "line",
) -> R:
    """Return an object as a record; `DataError` names `path`, line (or `unit`), `number` and invalid key."""
    try:
        # Via JSON, so that lists become tuples and numbers are treated as in a file.
        record = kind.model_validate_json(json.dumps(values))
        return record if record.id else record.model_copy(update={"id": str(number)})
    except ValidationError as error:
        key, fault, reason, _ = first_fault(error)
    if fault == "extra_forbidden":
        near = meant(key, kind.model_fields)
        raise DataError(
            f"{path}: {unit} {number}: unknown key {shortened(repr(key))}{near}"
        )
    raise DataError(f"{path}: {unit} {number}: {key and f'{key}: '}{reason}")


def write_objects(path: Path, values: Iterable[dict[str, Any]]) -> int:
    """Write JSON lines atomically; return their number."""
    count = 0
    with (
        atomic_path(path) as temporary,
        temporary.open("w", encoding="utf-8") as stream,
    ):
        for one in values:
            stream.write(json.dumps(one, ensure_ascii=False, allow_nan=False) + "\n")
            count += 1
    return count


P = TypeVar("P", bound=Record)


def read_predictions(
    path: Path, kind: type[P], key: str, records: Mapping[str, Record]
) -> dict[str, P]:
    """Read the predictions of a file by record id, in the order of `records`.

    `DataError` unless each record has exactly one prediction, and each line has `key`, the predicted value.
    """
    found: dict[str, P] = {}
    for number, values in read_objects(path):
        if values.get("id") in (None, "") or values.get(key) is None:
            raise DataError(f"{path}: line {number}: needs id and {key}")
        one = checked(values, kind, number, path)
        if one.id in found:
            raise DataError(
                f"{path}: line {number}: record {one.id!r} is predicted twice"
            )
        found[one.id] = one
    for name in records:
        if name not in found:
            raise DataError(f"{path}: no prediction for record {name!r}")
    for name in found:
        if name not in records:
            raise DataError(
                f"{path}: predicts record {name!r}, which is not in the records"
            )
    return {name: found[name] for name in records}
