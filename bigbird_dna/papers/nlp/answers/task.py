"""Question answering in long documents: training, prediction and the official figures (App. E.2)."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bigbird_dna.papers.nlp.answers.documents import AnswerReader, network_input, some_rows
from bigbird_dna.papers.nlp.answers.labels import (
    allowed_tokens,
    candidate_loss,
    choose_window,
    facts_loss,
    known_of,
    labels_of,
    span_loss,
    type_loss,
)
from bigbird_dna.papers.nlp.answers.metrics import official_metrics
from bigbird_dna.papers.nlp.answers.network import AnswerNetwork, AnswerOutput, LongAnswersSettings
from bigbird_dna.papers.nlp.answers.public import public_record, read_public
from bigbird_dna.papers.nlp.answers.reading import read_answers
from bigbird_dna.papers.nlp.config import AnswersTaskConfig, GeneratedConfig
from bigbird_dna.papers.nlp.generated import generate_questions
from bigbird_dna.papers.nlp.records import QuestionRecord, Record
from bigbird_dna.papers.nlp.task import Lines, Metrics, Predictor, RecordsObjective, TextTask, check_length
from bigbird_dna.training.batches import Batch
from bigbird_dna.training.distributed import World


class AnswersObjective(RecordsObjective["QuestionAnswering"]):
    """The sum of the heads' losses, a mean over the windows of the global batch.

    A record gives one window a time, which is drawn: half of the time one that holds what is asked for.
    """

    def __init__(self, task: "QuestionAnswering", world: World) -> None:
        super().__init__(task, world)
        self.settings, self.reader = task.settings, task.reader

    def batch(self, step: int, first: int, count: int) -> Batch:
        """Windows of records of a training step, in an order drawn for each epoch."""
        place = step * self.config.batch_size + first
        chosen = []
        for offset, index in enumerate(self.drawn(step, first, count)):
            rng = np.random.default_rng((self.config.seed, 3, place + offset))
            document = self.reader.document(self.train[index])
            known = known_of(document, self.settings)
            window = choose_window(self.reader.windows(document), known, document, rng)
            chosen.append((self.reader.row(document, window), known, window))
        batch = self.reader.collate([row for row, *_ in chosen])
        return {**batch, **labels_of(chosen, self.settings)}

    def part(self, batch: Batch, rows: Tensor) -> Batch:
        return some_rows(batch, rows)

    def counts(self, batch: Batch) -> dict[str, float]:
        return {"windows": float(len(batch["ids"]))}

    def loss(self, network: nn.Module, batch: Batch, totals: dict[str, float]) -> Tensor:
        """The mean of all losses over the global batch, in nats a window."""
        output = network(*network_input(batch))
        assert isinstance(output, AnswerOutput)
        total = torch.zeros((), device=batch["ids"].device)
        if self.settings.form == "wikihop":
            assert output.anchors is not None
            total = total + candidate_loss(output.anchors, batch["anchor_labels"]) + output.marks.sum() * 0
            return total / totals["windows"]
        allowed = allowed_tokens(batch["lengths"], batch["asked"], batch["ids"].shape[1])
        start, end, *long = output.marks.unbind(-1)
        total = total + span_loss(start, end, batch["spans"], allowed)
        if long:
            total = total + span_loss(long[0], long[1], batch["long_spans"], allowed)
        if output.types is not None:
            total = total + type_loss(output.types, batch["types"])
        if output.anchors is not None:
            total = total + self.task.section.facts_weight * facts_loss(
                output.anchors, batch["anchor_labels"]
            )
        return total / totals["windows"]

    def metrics(self, network: Any) -> dict[str, float]:
        own = self.valid[self.world.rank :: self.world.size]
        batch_size = min(64, self.config.batch_size)
        lines = [*read_answers(network, own, self.reader, self.world.device, batch_size)]
        said = {line["id"]: line for part in self.world.gather(lines) for line in part}
        return official_metrics(self.settings.form, [(record, said[record.id]) for record in self.valid])


class Answer(Record):
    """A line of a file of predictions; what a record's form doesn't ask for is left out."""

    answer: str
    paragraph: int | None = None
    start: int | None = None
    score: float | None = None
    type: str | None = None
    facts: tuple[tuple[int, int], ...] = ()
    long_answer: int | None = None
    long_score: float | None = None


class QuestionAnswering(TextTask[AnswersTaskConfig, QuestionRecord, Answer]):
    """An answer to each question, its place in the source, and what else the form asks for."""

    kind = "qa"
    record_type = QuestionRecord
    prediction_type = Answer
    predicted_key = "answer"
    settings_type = LongAnswersSettings
    model_name = "a model of long answers"
    objective_type = AnswersObjective

    @property
    def settings(self) -> LongAnswersSettings:
        keys = ("form", "length", "stride", "question_tokens", "answer_words", "unanswerable")
        return LongAnswersSettings(**{key: getattr(self.section, key) for key in keys})

    @property
    def reader(self) -> AnswerReader:
        """How records become rows of the network."""
        return AnswerReader(self.tokenizer, self.settings, self.encoder.num_global_tokens)

    def identity(self) -> dict[str, Any]:
        own = {"settings": self.settings.as_json(), "facts_weight": self.section.facts_weight}
        return {**super().identity(), **own}

    def check(self) -> None:
        super().check()
        check_length(self.section.length, self.encoder)
        for records, path in zip((self.records, self.watched), self.inputs, strict=True):
            self.reader.check_room(records, path)

    def describe(self, network: nn.Module) -> str:
        return f"{len(self.records):,} questions of form {self.section.form}"

    def record(self, row: Mapping[str, Any]) -> dict[str, Any] | None:
        """A row of HotpotQA, the Natural Questions, TriviaQA or WikiHop, as the section's `form` says."""
        return public_record(self.section.form, row)

    def generate(self, generated: GeneratedConfig, split: str) -> Lines:
        """Documents that tell of several names; the question is one of them."""
        section = self.section
        return generate_questions(generated, split, section.form, section.hops, section.unanswerable)

    def read(self, path: Path) -> Iterator[Record]:
        """Records, or where the section says so those of the data set's own file."""
        return read_public(self.section.form, path) if self.section.public else super().read(path)

    def lacking(self, record: QuestionRecord) -> str | None:
        form = self.section.form
        if form == "hotpotqa":
            answerless = record.type in ("yes", "no")
        else:
            answerless = self.section.unanswerable or form == "natural_questions"
        if not record.answers and not answerless:
            return "answer"
        if form == "wikihop" and len(record.candidates) < 2:
            return "two candidates to choose from"
        return None

    def predictions(self, by: Predictor, records: Sequence[QuestionRecord], source: Path) -> Lines:
        """Each record's answer; records without room for their paragraphs are told beforehand."""
        settings, network = by.model.settings, by.model.network
        assert isinstance(settings, LongAnswersSettings) and isinstance(network, AnswerNetwork)
        reader = AnswerReader(by.model.tokenizer, settings, by.model.config.num_global_tokens)
        reader.check_room(records, source)
        yield from read_answers(network, records, reader, by.device, by.batch_size)

    def metrics(self, records: Sequence[QuestionRecord], predictions: Sequence[Answer]) -> Metrics:
        """The official metrics of the data set that the section's `form` names."""
        said = (one.model_dump() for one in predictions)
        return official_metrics(self.section.form, [*zip(records, said, strict=True)])


TASK = QuestionAnswering
