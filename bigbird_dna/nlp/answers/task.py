"""Question answering in long documents: training, prediction and the official figures (App. E.2)."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bigbird_dna.console import log
from bigbird_dna.disk.atomic import checksum
from bigbird_dna.disk.directories import check_directory
from bigbird_dna.errors import ConfigError, DataError, ModelError
from bigbird_dna.model.directory import load
from bigbird_dna.model.inference import choose_device
from bigbird_dna.nlp.answers.documents import check_room
from bigbird_dna.nlp.answers.figures import figures_of
from bigbird_dna.nlp.answers.generated import generate_questions
from bigbird_dna.nlp.answers.network import AnswerNetwork
from bigbird_dna.nlp.answers.objective import AnswersObjective
from bigbird_dna.nlp.answers.public import public_record
from bigbird_dna.nlp.answers.reading import predictions
from bigbird_dna.nlp.answers.sections import AnswersTask
from bigbird_dna.nlp.answers.settings import LongAnswersSettings
from bigbird_dna.nlp.drawing import some_of
from bigbird_dna.nlp.predictions import read_predictions
from bigbird_dna.nlp.records import Kind, QuestionRecord, Record, read_records, write_objects
from bigbird_dna.nlp.sections import GeneratedConfig
from bigbird_dna.nlp.starting import make_text_start
from bigbird_dna.nlp.vocabulary import texts_of
from bigbird_dna.tasks.run import Run
from bigbird_dna.training.distributed import World


class Prediction(Record):
    """A line of a file of predictions; what a record's form doesn't ask for is left out."""

    answer: str
    paragraph: int | None = None
    start: int | None = None
    score: float | None = None
    type: str | None = None
    facts: tuple[tuple[int, int], ...] = ()
    long_answer: int | None = None
    long_score: float | None = None


class _Answers:
    kind: Kind = "qa"

    def record(self, settings: AnswersTask, row: Mapping[str, Any]) -> dict[str, Any] | None:
        """A row of HotpotQA, the Natural Questions, TriviaQA or WikiHop, as `settings.form` says."""
        return public_record(settings.form, row)

    def generate(
        self, settings: AnswersTask, generated: GeneratedConfig, split: str
    ) -> Iterator[dict[str, Any]]:
        """Documents that tell of several names; the question is one of them."""
        return generate_questions(generated, split, settings.form, settings.hops, settings.unanswerable)

    def train(
        self, settings: AnswersTask, train: Path, valid: Path, output: Path, checkpoints: Path, world: World
    ) -> dict[str, Any]:
        """Train, or go on training, and publish a model of long answers; see `Task.train`."""
        check_directory(output, [train, valid, checkpoints])
        learnt, watched = (read_questions(path, settings) for path in (train, valid))
        start = make_text_start(settings.start, settings.encoder, lambda: texts_of(train, self.kind))
        if settings.length > start.config.positions:
            raise ConfigError(f"length {settings.length} is above encoder.positions {start.config.positions}")
        config = settings.training.for_records(len(learnt))
        watched = some_of(watched, config.evaluation_records)
        for path, records in ((train, learnt), (valid, watched)):
            check_room(records, start.tokenizer, settings.question_tokens, settings.length, path)
        task = LongAnswersSettings(
            form=settings.form,
            length=settings.length,
            stride=settings.stride,
            question_tokens=settings.question_tokens,
            answer_words=settings.answer_words,
            unanswerable=settings.unanswerable,
        )
        data = {name: checksum(path) for name, path in (("train", train), ("valid", valid))}
        identity = {
            "data": data,
            "settings": task.as_json(),
            "facts_weight": settings.facts_weight,
            **start.identity(),
        }
        run = Run.begin(start.config, start.tokenizer, task, config, identity, checkpoints, world)
        network = run.model.network
        assert isinstance(network, AnswerNetwork)
        start.initialise(network)
        objective = AnswersObjective(
            start.tokenizer,
            learnt,
            watched,
            task,
            config,
            settings.facts_weight,
            start.config.extra_globals,
            world,
        )
        progress = run.train(objective, f"{len(learnt):,} questions of form {settings.form}")
        figures = objective.figures(network)
        world.leave()
        if not world.is_first:
            return dict(figures)
        metrics = {**figures, "split": "valid", "steps": progress.step, "tokens_seen": progress.tokens}
        provenance = {"configuration": settings.model_dump(mode="json"), "data": data, **start.identity()}
        run.publish(output, provenance, metrics)
        return metrics

    def predict(
        self, settings: AnswersTask, model: Path, records: Path, output: Path, device: str, batch_size: int
    ) -> None:
        """Write each record's answer, its place in the source, and what else its form asks for."""
        loaded = load(model)
        task, network = loaded.settings, loaded.network
        if not isinstance(task, LongAnswersSettings) or not isinstance(network, AnswerNetwork):
            raise ModelError(f"{model}: a model of long answers is needed, this is a {loaded.task} model")
        given = [*read_records(records, QuestionRecord)]
        check_room(given, loaded.tokenizer, task.question_tokens, task.length, records)
        place = choose_device(device)
        network.to(place)
        lines = predictions(network, given, loaded.tokenizer, task, place, batch_size)
        write_objects(output, lines)
        log(f"{output}: {len(given):,} records")

    def evaluate(self, settings: AnswersTask, records: Path, predictions: Path) -> dict[str, Any]:
        """The official figures of the data set that `settings.form` names."""
        true = {record.id: record for record in read_questions(records, settings)}
        said = read_predictions(predictions, Prediction, "answer", true)
        predicted = {name: one.model_dump() for name, one in said.items()}
        return figures_of(settings.form, true, predicted)


def read_questions(path: Path, settings: AnswersTask) -> list[QuestionRecord]:
    """Records whose answers are known; `DataError` names the first that lacks one, or stands twice."""
    found: dict[str, QuestionRecord] = {}
    for record in read_records(path, QuestionRecord):
        if record.id in found:
            raise DataError(f"{path}: record {record.id!r} stands twice")
        if not record.answers and not _may_lack_one(record, settings):
            raise DataError(f"{path}: record {record.id!r} has no answer")
        if settings.form == "wikihop" and len(record.candidates) < 2:
            raise DataError(f"{path}: record {record.id!r} has no two candidates to choose from")
        found[record.id] = record
    return [*found.values()]


def _may_lack_one(record: QuestionRecord, settings: AnswersTask) -> bool:
    if settings.form == "hotpotqa":
        return record.type in ("yes", "no")
    return settings.unanswerable or settings.form == "natural_questions"


TASK = _Answers()
