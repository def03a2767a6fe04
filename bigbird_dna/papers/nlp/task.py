"""Tasks on text: the interface of each kind, and the actions of the commands.

The files of a task are in one directory (`config.TextPaths`). `prepare` writes its splits as records
(`records`), the training writes a model directory, `predict` one JSON object per record with the record's
`id`, `evaluate` a mapping of metrics. Only `prepare` may use the network.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from bigbird_dna.config import EncoderConfig
from bigbird_dna.console import log
from bigbird_dna.disk.atomic import checksum
from bigbird_dna.disk.directories import into_directory
from bigbird_dna.errors import ConfigError, DataError, ModelError
from bigbird_dna.model.directory import load
from bigbird_dna.model.inference import choose_device
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.model.settings import Settings
from bigbird_dna.papers.nlp.config import (
    SPLITS,
    GeneratedConfig,
    NlpConfig,
    RecordsTrainingConfig,
    TextTaskConfig,
    TextTrainingConfig,
    read_config,
)
from bigbird_dna.papers.nlp.initialization import TextStart, make_text_start
from bigbird_dna.papers.nlp.loading import (
    check_extra,
    hub_rows,
    installed_documents,
    some_of,
)
from bigbird_dna.papers.nlp.records import (
    Kind,
    Record,
    checked_rows,
    read_predictions,
    read_records,
    write_objects,
)
from bigbird_dna.tokens.interface import Tokenizer
from bigbird_dna.training.distributed import World
from bigbird_dna.training.loop import Batch, Epochs, Objective, take_rows
from bigbird_dna.training.task import ModelTask, TrainingResult

C = TypeVar("C", bound=TextTaskConfig)
R = TypeVar("R", bound=Record)
P = TypeVar("P", bound=Record)
T = TypeVar("T", bound="TextTask[Any, Any, Any]")
Metrics = Mapping[str, float | None]
Lines = Iterator[dict[str, Any]]
"""Records or predictions, as lines of a file."""

_MODULES: Mapping[Kind, str] = {
    "pretraining": "bigbird_dna.papers.nlp.pretraining",
    "classification": "bigbird_dna.papers.nlp.classification",
    "qa": "bigbird_dna.papers.nlp.answers.task",
    "summaries": "bigbird_dna.papers.nlp.summaries.task",
}


class TextTask(ModelTask[Metrics], Generic[C, R, P]):
    """A task on text, configured by its section, and the training of its model on two files of records; a
    module's `TASK` is one kind."""

    kind: Kind
    record_type: type[R]
    prediction_type: type[P]
    predicted = "records"
    """Unit of a file of predictions, for the log."""
    settings_type: type[Settings]
    model_name = ""
    """Name of a model of this kind in messages."""
    objective_type: Any
    """Class of the training objective, made with the task and its `World`."""

    def __init__(self, config: NlpConfig, name: str) -> None:
        section: Any = config.task(name)
        self.section: C = section
        self.paths = config.paths(name)
        self.files = {split: self.paths.split(split) for split in SPLITS[:2]}

    @abstractmethod
    def record(self, row: Mapping[str, Any]) -> dict[str, Any] | None:
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
        given = (
            [] if files is None else [Path(getattr(files, split)) for split in SPLITS]
        )
        with into_directory(directory, given) as temporary:
            for split in SPLITS:
                lines = (
                    record.model_dump(exclude_unset=True) | {"id": record.id}
                    for record in self._split(split)
                )
                counts[split] = write_objects(temporary / f"{split}.jsonl", lines)
        log(
            f"{directory}: {', '.join(f'{counts[split]:,} {split}' for split in SPLITS)} records"
        )
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
            source, rows = (
                f"the text {data.installed.text}",
                installed_documents(data.installed, split),
            )
        else:
            assert data.hub is not None
            source = f"{data.hub.name} ({split})"
            rows = (
                one
                for row in hub_rows(data.hub, split)
                if (one := self.record(row)) is not None
            )
        return checked_rows(enumerate(rows, 1), self.record_type, source)

    def lacking(self, record: R) -> str | None:
        """Return the missing part that a record needs for training or evaluation; None if it is complete."""
        return None

    def labeled(self, path: Path) -> list[R]:
        """Return the labeled records of a file; `DataError` for an unlabeled or duplicate record."""
        found: dict[str, R] = {}
        for record in read_records(path, self.record_type):
            lack = self.lacking(record)
            if lack is not None:
                raise DataError(f"{path}: record {record.id!r}: {lack} is missing")
            if record.id in found:
                raise DataError(f"{path}: record {record.id!r} is duplicated")
            found[record.id] = record
        return [*found.values()]

    def open(self, directory: Path) -> LoadedModel:
        """Open a model directory of this kind; `ModelError` if it is of another kind."""
        model = load(directory)
        if not isinstance(model.settings, self.settings_type):
            raise ModelError(
                f"{directory}: needs {self.model_name}, found a {model.task} model"
            )
        return model

    def predictions(
        self,
        model: LoadedModel,
        records: Sequence[R],
        source: Path,
        device: torch.device,
        batch_size: int,
    ) -> Lines:
        """Yield a model's predictions of the records of the file `source`, in batches of inputs."""
        raise NotImplementedError

    def predict(
        self, model: Path, records: Path, output: Path, device: str, batch_size: int
    ) -> None:
        """Write the predictions of a model for a file of records atomically."""
        opened, there = self.open(model), choose_device(device)
        given = [*read_records(records, self.record_type)]
        opened.network.to(there)
        count = write_objects(
            output, self.predictions(opened, given, records, there, batch_size)
        )
        log(f"{output}: {count:,} {self.predicted}")

    @property
    def predicted_key(self) -> str:
        """The key that every prediction must have."""
        raise NotImplementedError

    def metrics(self, records: Sequence[R], predictions: Sequence[P]) -> Metrics:
        """Return the official metrics; predictions are in the order of the records."""
        raise NotImplementedError

    def evaluate(self, records: Path, predictions: Path) -> dict[str, Any]:
        """Return metrics of predictions by the official definitions, without a model.

        `DataError` if a record has no prediction, or a prediction no record (`read_predictions`).
        """
        true = self.labeled(records)
        by_id = {record.id: record for record in true}
        predicted = read_predictions(
            predictions, self.prediction_type, self.predicted_key, by_id
        )
        return {**self.metrics(true, [*predicted.values()]), "records": len(true)}

    @property
    def inputs(self) -> list[Path]:
        return [*self.files.values()]

    @cached_property
    def data(self) -> dict[str, str]:
        """Checksums of the two files."""
        return {name: checksum(path) for name, path in self.files.items()}

    @cached_property
    def _labeled(self) -> dict[str, list[R]]:
        return {name: self.labeled(path) for name, path in self.files.items()}

    @property
    def records(self) -> Sequence[Any]:
        """Training records."""
        return self._labeled["train"]

    @cached_property
    def watched(self) -> list[R]:
        """Validation records for monitoring the training."""
        assert isinstance(self.config, RecordsTrainingConfig)
        return some_of(self._labeled["valid"], self.config.evaluation_records)

    @cached_property
    def config(self) -> TextTrainingConfig:
        """The section's training, with the number of steps computed from its epochs."""
        return self.section.training.for_records(len(self.records))

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

    def identity(self) -> dict[str, Any]:
        """Return task, tokenizer, records and initial weights, for comparison with checkpoints."""
        return {**super().identity(), "data": self.data, "start": self.start.sha256}

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

    def provenance(self) -> dict[str, Any]:
        """Return the content of `provenance.json` on the training."""
        return {
            "configuration": self.section.model_dump(mode="json"),
            "data": self.data,
        }

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
        provenance = {**self.provenance(), "start": self.start.sha256}
        self.write_model(directory, trained, provenance, metrics)
        return metrics


class RecordsObjective(Objective, ABC, Generic[T]):
    """Training objective on records, in an order drawn per epoch, with validation records."""

    def __init__(self, task: T, world: World) -> None:
        self.task, self.world, self.tokenizer = task, world, task.tokenizer
        self.train, self.valid, self.config = task.records, task.watched, task.config
        self.epochs = Epochs(
            self.config.seed, len(self.train), lambda _: np.arange(len(self.train))
        )

    def drawn(self, step: int, first: int, count: int) -> list[int]:
        """Return the indices of the records `first … first + count` of a step's batch."""
        return self.epochs.indices(step * self.config.batch_size + first, count)

    def part(self, batch: Batch, rows: Tensor) -> Batch:
        return take_rows(batch, rows)

    @abstractmethod
    def metrics(self, network: nn.Module) -> Metrics:
        """Return all metrics on the validation records, equal on every process."""

    def evaluate(self, network: nn.Module) -> dict[str, float]:
        """Return the defined metrics on the validation records."""
        return {
            name: value
            for name, value in self.metrics(network).items()
            if value is not None
        }


def open_task(
    config: Path, overrides: Sequence[str] | None, name: str
) -> TextTask[Any, Any, Any]:
    """Return a task of a configuration; `UsageError` without the extra `nlp`."""
    check_extra()
    return find_task(read_config(config, overrides or ()), name)


def find_task(config: NlpConfig, name: str) -> TextTask[Any, Any, Any]:
    """Return a task by name; imports the module of its kind."""
    return import_module(_MODULES[config.task(name).kind]).TASK(config, name)  # type: ignore[no-any-return]
