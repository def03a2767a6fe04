"""Summarisation: training, prediction and figures (App. E.5)."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bigbird_dna.console import log
from bigbird_dna.disk.atomic import checksum
from bigbird_dna.disk.directories import check_directory
from bigbird_dna.errors import ConfigError, DataError
from bigbird_dna.model.inference import choose_device
from bigbird_dna.model.model import Model
from bigbird_dna.nlp.drawing import some_of
from bigbird_dna.nlp.predictions import read_predictions
from bigbird_dna.nlp.records import Kind, Record, SummaryRecord, read_records, write_objects
from bigbird_dna.nlp.sections import GeneratedConfig
from bigbird_dna.nlp.summaries.generated import generate_facts
from bigbird_dna.nlp.summaries.model import SummariesSettings, Summariser
from bigbird_dna.nlp.summaries.objective import Lengths, SummariesObjective
from bigbird_dna.nlp.summaries.prediction import summarise
from bigbird_dna.nlp.summaries.rouge import rouge
from bigbird_dna.nlp.summaries.rows import Reader, read_summarised
from bigbird_dna.nlp.summaries.sections import SummariesTask
from bigbird_dna.nlp.summaries.starting import make_start, open_summariser
from bigbird_dna.tasks.run import Run
from bigbird_dna.training.distributed import World

# Columns of the public data sets: XSum's, arXiv's and PubMed's, BigPatent's, CNN/DailyMail's.
_DOCUMENTS = ("document", "article", "description")
_SUMMARIES = ("summary", "abstract", "highlights")


class Prediction(Record):
    """A line of a file of predictions."""

    summary: str


class _Summaries:
    kind: Kind = "summaries"

    def record(self, settings: SummariesTask, row: Mapping[str, Any]) -> dict[str, Any] | None:
        """A row of arXiv, PubMed, BigPatent, XSum or CNN/DailyMail, by its columns; none: a part is empty."""
        found = {}
        for key, names in (("document", _DOCUMENTS), ("summary", _SUMMARIES)):
            name = next((name for name in names if name in row), None)
            if name is None:
                raise DataError(f"the data set has none of the columns {', '.join(names)}")
            found[key] = str(row[name])
        return found if all(text.strip() for text in found.values()) else None

    def generate(
        self, settings: SummariesTask, generated: GeneratedConfig, split: str
    ) -> Iterator[dict[str, Any]]:
        """Documents whose summary is the facts at their end."""
        return generate_facts(generated, split)

    def train(
        self, settings: SummariesTask, train: Path, valid: Path, output: Path, checkpoints: Path, world: World
    ) -> dict[str, Any]:
        """Train, or go on training, and publish a summariser; see `Task.train`."""
        check_directory(output, [train, valid, checkpoints])
        learnt, watched = read_summarised(train), read_summarised(valid)
        start = make_start(settings, train)
        lengths = _lengths(settings, start.config.positions)
        config = settings.training.for_records(len(learnt))
        data = {name: checksum(path) for name, path in (("train", train), ("valid", valid))}
        identity = {
            "data": data,
            "settings": start.settings.as_json(),
            "lengths": lengths._asdict(),
            "keep": settings.keep,
            "start": start.sha256,
        }
        run = Run.begin(start.config, start.tokenizer, start.settings, config, identity, checkpoints, world)
        start.initialise(run.model.network, settings.training.initial_cross == "matching")
        reader = Reader(start.tokenizer, start.settings.special, settings.form, settings.keep)
        watched = some_of(watched, config.evaluation_records)
        objective = SummariesObjective(reader, learnt, watched, lengths, config, world)
        progress = run.train(objective, f"{len(learnt):,} documents with summaries")
        figures = objective.evaluate(run.model.network)
        world.leave()
        if not world.is_first:
            return dict(figures)
        metrics = {**figures, "split": "valid", "steps": progress.step, "tokens_seen": progress.tokens}
        provenance = {"configuration": settings.model_dump(mode="json"), "data": data, "start": start.sha256}
        run.publish(output, provenance, metrics)
        return metrics

    def predict(
        self, settings: SummariesTask, model: Path, records: Path, output: Path, device: str, batch_size: int
    ) -> None:
        """Write each record's summary."""
        opened = open_summariser(model, settings.start.compatibility, settings.start.tokenizer)
        given = [*read_records(records, SummaryRecord)]
        write_objects(output, _summaries(settings, opened, given, device, batch_size))
        log(f"{output}: {len(given):,} summaries")

    def evaluate(self, settings: SummariesTask, records: Path, predictions: Path) -> dict[str, Any]:
        """ROUGE-1, -2, -L and -Lsum, mean F1 over records."""
        true = {record.id: record for record in read_summarised(records)}
        said = read_predictions(predictions, Prediction, "summary", true)
        summaries = [str(one.summary) for one in true.values()]
        figures = rouge(summaries, [one.summary for one in said.values()])
        return {**figures, "records": len(true)}


def _summaries(
    settings: SummariesTask, model: Model, given: list[SummaryRecord], device: str, batch_size: int
) -> Iterator[dict[str, Any]]:
    """Predictions as lines of a file have them."""
    task, network = model.settings, model.network
    assert isinstance(task, SummariesSettings) and isinstance(network, Summariser)
    lengths = _lengths(settings, model.config.positions)
    reader = Reader(model.tokenizer, task.special, task.form, settings.keep)
    documents = [reader.document(record.document, lengths.document) for record in given]
    place = choose_device(device)
    found = summarise(network.to(place), documents, settings.search, task.special, place, batch_size)
    for record, ids in zip(given, found, strict=True):
        yield {"id": record.id, "summary": reader.text(ids)}


def _lengths(settings: SummariesTask, positions: int) -> Lengths:
    """Tokens of documents and summaries; `ConfigError` if a model of so many positions hasn't got them."""
    for key, value in (
        ("document_tokens", settings.document_tokens),
        ("search.max_length", settings.search.max_length),
    ):
        if value > positions:
            raise ConfigError(f"{key} {value} is above the model's {positions} positions")
    return Lengths(settings.document_tokens, settings.search.max_length)


TASK = _Summaries()
