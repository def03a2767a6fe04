"""The tasks on text: what each kind fills in, and what the commands do with it.

The files of a task lie in one directory (`config.TextPaths`). `prepare` writes its splits as records
(`records`), the training a model directory, `predict` a JSON object a record with the record's `id`,
`evaluate` a mapping of metrics. Only `prepare` may use the network.
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
from bigbird_dna.papers.nlp.loading import check_extra, hub_rows, installed_documents, some_of
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
"""Records or predictions, as lines of a file have them."""

_MODULES: Mapping[Kind, str] = {
    "pretraining": "bigbird_dna.papers.nlp.pretraining",
    "classification": "bigbird_dna.papers.nlp.classification",
    "qa": "bigbird_dna.papers.nlp.answers.task",
    "summaries": "bigbird_dna.papers.nlp.summaries.task",
}


class TextTask(ModelTask[Metrics], Generic[C, R, P]):
    """A task on text, as its section of the configuration asks for it, and the training of its model on two
    files of records; a module's `TASK` is one kind."""

    kind: Kind
    record_type: type[R]
    prediction_type: type[P]
    predicted = "records"
    """What lines of a file of predictions are, for the log."""
    settings_type: type[Settings]
    model_name = ""
    """What a model of this kind is called."""
    objective_type: Any
    """What it learns, made of the task and its `World`."""

    def __init__(self, config: NlpConfig, name: str) -> None:
        section: Any = config.task(name)
        self.section: C = section
        self.paths = config.paths(name)
        self.files = {split: self.paths.split(split) for split in SPLITS[:2]}

    @abstractmethod
    def record(self, row: Mapping[str, Any]) -> dict[str, Any] | None:
        """A row of a public data set (`data.hub`) as a record; none: the row is of no use.

        `DataError` if it isn't a row of that data set.
        """

    @abstractmethod
    def generate(self, generated: GeneratedConfig, split: str) -> Lines:
        """The generated records of a split, a function of `generated.seed` and `split`."""

    def read(self, path: Path) -> Iterator[Record]:
        """The records of a file of one's own (`data.files`)."""
        return read_records(path, self.record_type)

    def prepare(self, directory: Path) -> dict[str, int]:
        """Write the three files of splits, all or none, of checked records; gives how many of each."""
        files, counts = self.section.data.files, {}
        given = [] if files is None else [Path(getattr(files, split)) for split in SPLITS]
        with into_directory(directory, given) as temporary:
            for split in SPLITS:
                lines = (
                    record.model_dump(exclude_unset=True) | {"id": record.id} for record in self._split(split)
                )
                counts[split] = write_objects(temporary / f"{split}.jsonl", lines)
        log(f"{directory}: {', '.join(f'{counts[split]:,} {split}' for split in SPLITS)} records")
        return counts

    def _split(self, split: str) -> Iterator[Record]:
        """The records of a split, wherever they come from."""
        data = self.section.data
        if data.files is not None:
            return self.read(Path(getattr(data.files, split)))
        if data.generated is not None:
            source, rows = "generated", self.generate(data.generated, split)
        elif data.installed is not None:
            if self.kind != "pretraining":
                raise ConfigError(
                    f"data.installed: is text to pretrain on, and the task is of kind {self.kind}"
                )
            source, rows = f"the text {data.installed.text}", installed_documents(data.installed, split)
        else:
            assert data.hub is not None
            source = f"{data.hub.name} ({split})"
            rows = (one for row in hub_rows(data.hub, split) if (one := self.record(row)) is not None)
        return checked_rows(enumerate(rows, 1), self.record_type, source)

    def lacking(self, record: R) -> str | None:
        """What a record must have to be learnt from or judged by, and has not; none: nothing."""
        return None

    def labeled(self, path: Path) -> list[R]:
        """Records whose truth is known; `DataError` names the first that lacks it, or stands twice."""
        found: dict[str, R] = {}
        for record in read_records(path, self.record_type):
            lack = self.lacking(record)
            if lack is not None:
                raise DataError(f"{path}: record {record.id!r} has no {lack}")
            if record.id in found:
                raise DataError(f"{path}: record {record.id!r} stands twice")
            found[record.id] = record
        return [*found.values()]

    def open(self, directory: Path) -> LoadedModel:
        """A model directory of this kind; `ModelError` if it is another's."""
        model = load(directory)
        if not isinstance(model.settings, self.settings_type):
            raise ModelError(f"{directory}: {self.model_name} is needed, this is a {model.task} model")
        return model

    def predictions(
        self, model: LoadedModel, records: Sequence[R], source: Path, device: torch.device, batch_size: int
    ) -> Lines:
        """A model's predictions of the records of the file `source`, so many inputs at a time."""
        raise NotImplementedError

    def predict(self, model: Path, records: Path, output: Path, device: str, batch_size: int) -> None:
        """Write the predictions of a model for a file of records, whole or not at all."""
        opened, there = self.open(model), choose_device(device)
        given = [*read_records(records, self.record_type)]
        opened.network.to(there)
        count = write_objects(output, self.predictions(opened, given, records, there, batch_size))
        log(f"{output}: {count:,} {self.predicted}")

    @property
    def predicted_key(self) -> str:
        """The key of a prediction that no line may lack."""
        raise NotImplementedError

    def metrics(self, records: Sequence[R], predictions: Sequence[P]) -> Metrics:
        """The official metrics of predictions, each of the record in its place."""
        raise NotImplementedError

    def evaluate(self, records: Path, predictions: Path) -> dict[str, Any]:
        """Metrics of predictions by the official definitions; they need no model.

        `DataError` if a record has no prediction, or a prediction no record (`read_predictions`).
        """
        true = self.labeled(records)
        by_id = {record.id: record for record in true}
        predicted = read_predictions(predictions, self.prediction_type, self.predicted_key, by_id)
        return {**self.metrics(true, [*predicted.values()]), "records": len(true)}

    @property
    def inputs(self) -> list[Path]:
        return [*self.files.values()]

    @cached_property
    def data(self) -> dict[str, str]:
        """The checksums of the two files."""
        return {name: checksum(path) for name, path in self.files.items()}

    @cached_property
    def _labeled(self) -> dict[str, list[R]]:
        return {name: self.labeled(path) for name, path in self.files.items()}

    @property
    def records(self) -> Sequence[Any]:
        """Those that are learnt from."""
        return self._labeled["train"]

    @cached_property
    def watched(self) -> list[R]:
        """Those that are watched."""
        assert isinstance(self.config, RecordsTrainingConfig)
        return some_of(self._labeled["valid"], self.config.evaluation_records)

    @cached_property
    def config(self) -> TextTrainingConfig:
        """The section's training, with the steps that its epochs are."""
        return self.section.training.for_records(len(self.records))

    def texts(self) -> Iterator[str]:
        """All texts to learn from."""
        for record in read_records(self.files["train"], self.record_type):
            yield from record.texts

    @cached_property
    def start(self) -> TextStart:
        """Encoder, tokenizer and weights to begin with."""
        return make_text_start(self.section.start, self.section.encoder, self.texts)

    @property
    def encoder(self) -> EncoderConfig:
        """The start's, with the section's keys."""
        return self.start.config

    @property
    def tokenizer(self) -> Tokenizer:
        return self.start.tokenizer

    def identity(self) -> dict[str, Any]:
        """Beside task and tokenizer the records, and the weights to begin with."""
        return {**super().identity(), "data": self.data, "start": self.start.sha256}

    def check(self) -> None:
        """Records of both files must have what is learnt, and inputs room in the encoder."""
        assert self.records and self.watched
        length, most = getattr(self.section, "length", 0), self.encoder.max_length
        if length > most:
            raise ConfigError(f"length {length} is above encoder.max_length {most}")

    def initialize(self, network: nn.Module) -> None:
        self.start.initialize(network)

    def objective(self, network: nn.Module, world: World) -> Objective:
        return self.objective_type(self, world)  # type: ignore[no-any-return]

    def measure(self, trained: TrainingResult[nn.Module]) -> Metrics:
        objective: Any = trained.objective
        return dict(objective.metrics(trained.network))

    def provenance(self) -> dict[str, Any]:
        """What `provenance.json` says of the training."""
        return {"configuration": self.section.model_dump(mode="json"), "data": self.data}

    def write(self, directory: Path, trained: TrainingResult[nn.Module], measured: Metrics) -> dict[str, Any]:
        """Write the model directory; its metrics are those of the records to watch."""
        progress = trained.progress
        metrics = {**measured, "split": "valid", "steps": progress.step, "tokens_seen": progress.tokens}
        provenance = {**self.provenance(), "start": self.start.sha256}
        self.write_model(directory, trained, provenance, metrics)
        return metrics


class RecordsObjective(Objective, ABC, Generic[T]):
    """What a training learns from its records, in an order drawn for each epoch, and measures on others."""

    def __init__(self, task: T, world: World) -> None:
        self.task, self.world, self.tokenizer = task, world, task.tokenizer
        self.train, self.valid, self.config = task.records, task.watched, task.config
        self.epochs = Epochs(self.config.seed, len(self.train), lambda _: np.arange(len(self.train)))

    def drawn(self, step: int, first: int, count: int) -> list[int]:
        """Numbers of the records `first … first + count` of a step's batch."""
        return self.epochs.indices(step * self.config.batch_size + first, count)

    def part(self, batch: Batch, rows: Tensor) -> Batch:
        return take_rows(batch, rows)

    @abstractmethod
    def metrics(self, network: nn.Module) -> Metrics:
        """All metrics on the records to watch, equal on every process."""

    def evaluate(self, network: nn.Module) -> dict[str, float]:
        """Metrics on the records to watch; those that have no value are left out."""
        return {name: value for name, value in self.metrics(network).items() if value is not None}


def open_task(config: Path, overrides: Sequence[str] | None, name: str) -> TextTask[Any, Any, Any]:
    """A task of a configuration; `UsageError` without the extra `nlp`."""
    check_extra()
    return find_task(read_config(config, overrides or ()), name)


def find_task(config: NlpConfig, name: str) -> TextTask[Any, Any, Any]:
    """A task by its name; its kind's module is imported."""
    return import_module(_MODULES[config.task(name).kind]).TASK(config, name)  # type: ignore[no-any-return]
