"""Tasks on text: the interface of each kind, and the actions of the commands.

The files of a task are in one directory (`config.TextPaths`). `prepare` writes its splits as records
(`records`), the training writes a model directory, `predict` one JSON object per record with the record's
`id`, `evaluate` a mapping of metrics. Only `prepare` may use the network.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.console import log
from bigbird_dna.disk.atomic import checksum
from bigbird_dna.disk.directories import into_directory
from bigbird_dna.errors import ConfigError, DataError, ModelError, UsageError
from bigbird_dna.model.directory import load
from bigbird_dna.model.inference import choose_device
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.model.settings import Settings
from bigbird_dna.papers.nlp.config import (
    SPLITS,
    GeneratedConfig,
    NlpConfig,
    TextTrainingConfig,
)
from bigbird_dna.papers.nlp.data import hub_rows, installed_documents, select_some
from bigbird_dna.papers.nlp.initialization import TextStart, make_text_start
from bigbird_dna.papers.nlp.records import (
    Record,
    check_records,
    read_predictions,
    read_records,
    write_objects,
)
from bigbird_dna.tokens.interface import Tokenizer
from bigbird_dna.training.distributed import World
from bigbird_dna.training.loop import Epochs, Objective
from bigbird_dna.training.task import ModelTask, TrainingResult

LIBRARIES = ("transformers", "tokenizers", "datasets", "rouge_score")
Metrics = Mapping[str, float | None]
Lines = Iterator[dict[str, Any]]
"""Records or predictions, as lines of a file."""


class TextTask(ModelTask[Metrics]):
    """A task on text, configured by its section, and the training of its model on two files of records."""

    kind: ClassVar[str]
    record_type: ClassVar[type[Record]]
    prediction_type: Any
    """Class of a line of a file of predictions."""
    settings_type: ClassVar[type[Settings]]
    objective_type: ClassVar[Any]
    """Class of the training objective, made with the task and its `World`."""

    def __init__(self, config: NlpConfig, name: str) -> None:
        self.section: Any = config.task(name)
        self.paths = config.paths(name)
        self.files = {split: self.paths.split(split) for split in ("train", "valid")}

    @abstractmethod
    def convert(self, row: Mapping[str, Any]) -> dict[str, Any] | None:
        """Convert a row of a public data set (`data.hub`) to a record; None: the row is not usable.

        `DataError` if the row is not of that data set.
        """

    @abstractmethod
    def generate(self, generated: GeneratedConfig, split: str) -> Lines:
        """Yield the generated records of a split, determined by `generated.seed` and `split`."""

    def read(self, path: Path) -> Iterator[Record]:
        """Yield the records of a user-supplied file (`data.files`)."""
        return read_records(path, self.record_type)

    def prepare(self, directory: Path) -> dict[str, int]:
        """Write the three splits of checked records atomically; return the number of records of each."""
        files, counts = self.section.data.files, {}
        inputs = [] if files is None else [*files.model_dump().values()]
        with into_directory(directory, inputs) as temporary:
            for split in SPLITS:
                lines = (
                    record.model_dump(exclude_unset=True) | {"id": record.id}
                    for record in self._split(split)
                )
                counts[split] = write_objects(temporary / f"{split}.jsonl", lines)
        listed = ", ".join(f"{count:,} {split}" for split, count in counts.items())
        log(f"{directory}: {listed} records")
        return counts

    def _split(self, split: str) -> Iterator[Record]:
        """Yield the records of a split from the configured source."""
        data = self.section.data
        if data.files is not None:
            return self.read(Path(getattr(data.files, split)))
        if data.generated is not None:
            source, rows = "generated", self.generate(data.generated, split)
        elif data.installed is not None:
            if self.kind != "pretraining":
                raise ConfigError(
                    f"data.installed: only for tasks of kind pretraining; this task is of kind {self.kind}"
                )
            source = "Python's documentation"
            rows = installed_documents(data.installed, split)
        else:
            source = f"{data.hub.name} ({split})"
            converted = map(self.convert, hub_rows(data.hub, split))
            rows = (record for record in converted if record is not None)
        return check_records(enumerate(rows, 1), self.record_type, source)

    def missing(self, record: Any) -> str | None:
        """Return the part that a record lacks for training or evaluation; None if it is complete."""
        return None

    def labeled(self, path: Path) -> list[Any]:
        """Return the labeled records of a file; `DataError` for an unlabeled or duplicate record."""
        records: dict[str, Record] = {}
        for record in read_records(path, self.record_type):
            missing = self.missing(record)
            if missing is not None:
                raise DataError(f"{path}: record {record.id!r}: {missing} is missing")
            if record.id in records:
                raise DataError(f"{path}: record {record.id!r} is duplicated")
            records[record.id] = record
        return [*records.values()]

    def open(self, directory: Path) -> LoadedModel:
        """Open a model directory of this kind; `ModelError` if it is of another kind."""
        model = load(directory)
        if not isinstance(model.settings, self.settings_type):
            raise ModelError(
                f"{directory}: needs a {self.settings_type.task} model, found a {model.task} model"
            )
        return model

    def predictions(
        self,
        model: LoadedModel,
        records: Sequence[Any],
        source: Path,
        device: torch.device,
        batch_size: int,
    ) -> Lines:
        """Yield a model's predictions of the records of the file `source`, in batches of inputs."""
        raise NotImplementedError

    def predict(
        self, directory: Path, records: Path, output: Path, device: str, batch_size: int
    ) -> None:
        """Write the predictions of a model for a file of records atomically."""
        model, chosen = self.open(directory), choose_device(device)
        rows = [*read_records(records, self.record_type)]
        model.network.to(chosen)
        lines = self.predictions(model, rows, records, chosen, batch_size)
        count = write_objects(output, lines)
        log(f"{output}: {count:,} predictions")

    def metrics(self, records: Sequence[Any], predictions: Sequence[Any]) -> Metrics:
        """Return the official metrics; predictions are in the order of the records."""
        raise NotImplementedError

    def evaluate(self, records: Path, predictions: Path) -> dict[str, Any]:
        """Return metrics of predictions by the official definitions, without a model.

        `DataError` if a record has no prediction, or a prediction no record (`read_predictions`).
        """
        true = self.labeled(records)
        predicted = read_predictions(predictions, self.prediction_type, true)
        return {**self.metrics(true, predicted), "records": len(true)}

    @property
    def inputs(self) -> list[Path]:
        return [*self.files.values()]

    @cached_property
    def records(self) -> Sequence[Any]:
        """Training records."""
        return self.labeled(self.files["train"])

    @cached_property
    def watched(self) -> list[Any]:
        """Validation records for monitoring the training."""
        most = self.section.training.evaluation_records
        return select_some(self.labeled(self.files["valid"]), most)

    @cached_property
    def config(self) -> TextTrainingConfig:
        """The section's training, with the number of steps computed from its epochs."""
        config: TextTrainingConfig = self.section.training
        return config.for_records(len(self.records))

    def texts(self) -> Iterator[str]:
        """Yield all training texts."""
        for record in read_records(self.files["train"], self.record_type):
            yield from record.texts

    @cached_property
    def start(self) -> TextStart:
        """Initial encoder, tokenizer and weights."""
        return make_text_start(self.section.start, self.section.encoder, self.texts)

    @property
    def encoder(self) -> EncoderConfig:
        """Encoder of the initial model, with the section's keys."""
        return self.start.config

    @property
    def tokenizer(self) -> Tokenizer:
        return self.start.tokenizer

    @cached_property
    def provenance(self) -> dict[str, Any]:
        """Checksums of the records and of the initial weights."""
        data = {split: checksum(path) for split, path in self.files.items()}
        return {"data": data, "start": self.start.sha256}

    def identity(self) -> dict[str, Any]:
        """Return task, tokenizer, records and initial weights, for comparison with checkpoints."""
        return {**super().identity(), **self.provenance}

    def check(self) -> None:
        """Check that records of both files are complete, and that inputs fit into the encoder."""
        assert self.records and self.watched
        length, most = getattr(self.section, "length", 0), self.encoder.max_length
        if length > most:
            raise ConfigError(
                f"length {length}: must be at most encoder.max_length {most}"
            )

    def initialize(self, network: nn.Module) -> None:
        self.start.initialize(network)

    def objective(self, network: nn.Module, world: World) -> Objective:
        return self.objective_type(self, world)  # type: ignore[no-any-return]

    def measure(self, trained: TrainingResult[nn.Module]) -> Metrics:
        objective: Any = trained.objective
        return dict(objective.metrics(trained.network))

    def write(
        self, directory: Path, trained: TrainingResult[nn.Module], measured: Metrics
    ) -> dict[str, Any]:
        """Write the model directory; its metrics are those of the validation records."""
        progress = trained.progress
        metrics = {
            **measured,
            "split": "valid",
            "steps": progress.step,
            "tokens_seen": progress.tokens,
        }
        configuration = {"configuration": self.section.model_dump(mode="json")}
        self.write_model(directory, trained, configuration | self.provenance, metrics)
        return metrics


class RecordsObjective(Objective, ABC):
    """Training objective on records, in an order drawn per epoch, with validation records."""

    def __init__(self, task: Any, world: World) -> None:
        self.task, self.world, self.tokenizer = task, world, task.tokenizer
        self.train, self.valid, self.config = task.records, task.watched, task.config
        indices = np.arange(len(self.train))
        self.epochs = Epochs(self.config.seed, len(self.train), lambda _: indices)

    def examples(self, step: int, first: int, count: int) -> list[Any]:
        """Return the records `first … first + count` of a step's batch."""
        start = step * self.config.batch_size + first
        return [self.train[index] for index in self.epochs.indices(start, count)]

    @abstractmethod
    def metrics(self, network: nn.Module) -> Metrics:
        """Return all metrics on the validation records, equal on every process."""

    def evaluate(self, network: nn.Module) -> dict[str, float]:
        """Return the defined metrics on the validation records."""
        metrics = self.metrics(network)
        return {key: value for key, value in metrics.items() if value is not None}


def open_task(config: NlpConfig, name: str) -> TextTask:
    """Return a task by name; `UsageError` without the extra `nlp`.

    Only the modules of its kind are imported: some of their libraries take seconds.
    """
    for library in LIBRARIES:
        if find_spec(library) is None:
            raise UsageError(
                f"the library {library} is not installed; tasks on text need the extra nlp: "
                "pip install 'bigbird-dna[nlp]'"
            )
    match config.task(name).kind:
        case "pretraining":
            from bigbird_dna.papers.nlp.pretraining import TextPretraining

            return TextPretraining(config, name)
        case "classification":
            from bigbird_dna.papers.nlp.classification import TextClassification

            return TextClassification(config, name)
        case "qa":
            from bigbird_dna.papers.nlp.questions import QuestionAnswering

            return QuestionAnswering(config, name)
        case "summaries":
            from bigbird_dna.papers.nlp.summarization import Summarization

            return Summarization(config, name)
