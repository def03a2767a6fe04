"""Experiments of the papers: the arms that are trained and compared, and the locations of their files.

An arm is a training, or a comparator, with changed configuration keys. Each of its seeds is a separate job
with files below `experiments/NAME/ARM/SEED`. Planning does not import torch, unless the module of an arm's
attention mechanism does.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from bigbird_dna.config import Config, parse_config, stage_text, stage_values
from bigbird_dna.disk.atomic import read_object
from bigbird_dna.errors import (
    ConfigError,
    DataError,
    UsageError,
    check_choice,
    check_import,
    first_fault,
    shortened,
)
from bigbird_dna.papers.experiments import EXPERIMENTS

ArmTask = Literal["pretraining", "promoters", "chromatin", "sequences", "bytes"]
Keys = Mapping[str, Any]
"""Dotted configuration keys and their values."""

_STAGES = {"sequences": "long-range", "bytes": "density"}
_SEED_KEYS = {
    "pretraining": "pretraining.seed",
    "promoters": "promoters.training.seed",
    "chromatin": "chromatin.training.seed",
}
INDEX_ENDINGS = (".fai", ".gzi")


@dataclass(frozen=True)
class Arm:
    """Settings common to jobs that differ only by seed."""

    name: str  # directory name, unique within an experiment
    task: ArmTask
    seeds: Sequence[int]
    set: Keys = field(
        default_factory=dict
    )  # configuration keys that differ from the run's
    predictor: str = "model"  # or name of a comparator
    options: Keys = field(
        default_factory=dict
    )  # of training or comparator, outside the configuration
    initialization: Path | None = None  # pretrained model; None: random weights
    data: str = ""  # data set specific to the experiment; "": that of the run
    predictions: str = ""  # extension of the file of predictions; "": no file
    measured: Sequence[
        int
    ] = ()  # input lengths at which the cost of training steps is measured
    costs: Sequence[
        Path
    ] = ()  # costs that determine the number of steps: its own, and the reference's
    row: Any = None  # key of the comparison
    rate: float | None = (
        None  # peak learning rate, if arms that differ only by it are compared
    )


@dataclass(frozen=True)
class ArmJob:
    """One seed of an arm: its inputs and outputs."""

    experiment: str
    arm: Arm
    seed: int
    run: Config

    @property
    def directory(self) -> Path:
        return (
            self.run.paths.experiment(self.experiment) / self.arm.name / str(self.seed)
        )

    @property
    def model(self) -> Path:
        """Directory of the model, or of a comparator's predictions."""
        return self.directory / "model"

    @property
    def predictions(self) -> Path:
        return self.directory / f"predictions.{self.arm.predictions}"

    @property
    def cost(self) -> Path:
        return self.directory.parent / "cost.json"

    @property
    def outputs(self) -> list[Path]:
        found = [self.model]
        found += [self.predictions] if self.arm.predictions else []
        return [*found, *([self.cost] if self.arm.measured else [])]

    @property
    def checkpoints(self) -> Path:
        """Separate for each arm, because two arms can have the same settings."""
        return (
            self.run.paths.checkpoints
            / "experiments"
            / self.experiment
            / self.arm.name
            / str(self.seed)
        )

    @property
    def data(self) -> Path:
        paths = self.run.paths
        if self.arm.data:
            return paths.experiment(self.experiment) / "data" / self.arm.data
        return {"promoters": paths.windows, "chromatin": paths.chromatin_data}.get(
            self.arm.task, paths.tokens
        )

    @property
    def reference(self) -> Path:
        """FASTA of the windows: a genome, or, for promoters, the user's sequences."""
        paths = self.run.paths
        sequences = self.arm.task == "promoters" and self.run.has_sequences
        return paths.sequences if sequences else paths.reference

    @property
    def is_model(self) -> bool:
        """Whether a network of this package is trained, instead of fitting a comparator."""
        return self.arm.predictor == "model"

    @cached_property
    def config(self) -> Config:
        """Configuration of the training: the keys of its stage, with the arm's values and seed."""
        task = self.arm.task
        keys = dict(self.arm.set)
        if task in _SEED_KEYS:
            keys[_SEED_KEYS[task]] = self.seed
        if not self.is_model:  # a training's stage has no evaluation keys
            keys[f"{task}.evaluation"] = getattr(self.run, task).evaluation.model_dump(
                mode="json"
            )
        return with_keys(
            self.run,
            _STAGES.get(task, task),
            keys,
            f"{self.experiment}: {self.arm.name}",
        )

    @property
    def settings(self) -> str:
        """All settings that determine the job's result, in addition to its inputs, as text."""
        options = {name: str(value) for name, value in self.arm.options.items()}
        text = stage_text(self.config, _STAGES.get(self.arm.task, self.arm.task))
        return f"{text} {self.arm.predictor} {options} {self.seed}"

    @property
    def inputs(self) -> list[Path]:
        """Input files of the job."""
        paths, task = self.run.paths, self.arm.task
        found: list[Path] = [*self.arm.costs]
        if self.arm.data:
            found.append(self.data)
        elif task == "promoters":
            found += [self.data / name for name in ("windows.parquet", "labels.npz")]
        elif task == "chromatin":
            found += [
                self.data / name
                for name in ("bins.parquet", "labels.npz", "tracks.tsv", "dataset.json")
            ]
        elif task == "pretraining":
            found += [paths.token_store(split) for split in ("train", "valid", "test")]
        elif task == "bytes":
            assert self.config.byte_lm is not None
            found += map(Path, self.config.byte_lm.train)
            found += map(Path, self.config.byte_lm.test)
        if task in ("promoters", "chromatin"):
            found += [
                Path(f"{self.reference}{ending}") for ending in ("", *INDEX_ENDINGS)
            ]
        if self.is_model and task in _SEED_KEYS:
            found.append(
                paths.tokenizer if task == "pretraining" else self.run.model_tokenizer
            )
        found += [self.arm.initialization] if self.arm.initialization else []
        return found


class Experiment(ABC):
    """A set of arms, and their comparison."""

    name: ClassVar[str]
    files: ClassVar[Sequence[str]]
    """Files written by `compare`, below the run's `report`."""

    @abstractmethod
    def arms(self, run: Config) -> Sequence[Arm]:
        """Return the arms in the order of the comparison."""

    @abstractmethod
    def check(self, run: Config) -> None:
        """Raise `ConfigError` if the run does not support the experiment; called before the first job."""

    @abstractmethod
    def compare(
        self,
        run: Config,
        jobs: Sequence[ArmJob],
        output: Path,
        *,
        benchmarks: Path | None,
        device: str,
    ) -> list[str]:
        """Write the report of all finished jobs into a directory; return lines for the log."""

    def inputs(self, run: Config) -> Sequence[Path]:
        """Return the inputs of `compare` in addition to the files of the arms."""
        return ()

    def data_config(self, run: Config, data: str) -> Config:
        """Return the configuration of a data set of this experiment."""
        raise NotImplementedError

    def data_inputs(self, run: Config) -> Sequence[Path]:
        """Return the inputs of such a data set."""
        return ()

    def make_data(self, run: Config, data: str, output: Path) -> None:
        """Write a data set of this experiment."""
        raise NotImplementedError


def find_experiment(name: str) -> Experiment:
    """Return an experiment by name, or the user's class `MODULE:CLASS`; `UsageError` if unknown."""
    if ":" not in name:  # import errors of built-in experiments are bugs
        check_choice("experiment", name, EXPERIMENTS)
        return resolve_name(f"bigbird_dna.papers.experiments.{EXPERIMENTS[name]}")()  # type: ignore[no-any-return]
    kind = check_import("experiment", name)
    if not (isinstance(kind, type) and issubclass(kind, Experiment)):
        raise UsageError(f"experiment {name!r}: must be a subclass of Experiment")
    return kind()


def plan(experiment: Experiment, run: Config) -> list[ArmJob]:
    """Return all jobs of an experiment; `ConfigError` if the run does not support it, or one of its jobs."""
    experiment.check(run)
    arms = experiment.arms(run)
    assert len({arm.name for arm in arms}) == len(arms)
    return [
        ArmJob(experiment.name, arm, seed, run) for arm in arms for seed in arm.seeds
    ]


def with_keys(run: Config, stage: str, keys: Keys, source: str) -> Config:
    """Return a stage's configuration with changed values, validated as for a command; `ConfigError` names
    `source` and the key."""
    values = stage_values(run, stage)
    for key, value in keys.items():
        *sections, last = key.split(".")
        here = values
        for section in sections:
            here = here.setdefault(section, {})
        here[last] = value
    return parse_config(values, source)


class StoredValues(BaseModel):
    """Values that a job stored as JSON, with the limits of its numbers; additional keys are ignored."""

    model_config = ConfigDict(frozen=True, strict=True, allow_inf_nan=False)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file; `DataError` names the file, the invalid key and its value."""
        try:
            return cls.model_validate_json(json.dumps(read_object(path)))
        except ValidationError as error:
            key, kind, reason, value = first_fault(error)
        found = (
            ""
            if kind in ("missing", "value_error")
            else f", not {shortened(repr(value))}"
        )
        raise DataError(f"{path}: {key and f'{key!r}: '}{reason}{found}")


def require(section: Any, message: str) -> None:
    """Raise `ConfigError` with a message if a section of the configuration is missing or false."""
    if not section:
        raise ConfigError(message)
