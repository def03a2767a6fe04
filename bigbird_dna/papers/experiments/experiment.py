"""Experiments of the papers: the arms that are trained and compared, and where the files of each are.

An arm is a training, or a comparator, with other keys than the run's configuration; each of its seeds is a
job of its own, whose files are below `experiments/NAME/ARM/SEED`. Looking at a plan loads no torch, unless
an arm has an attention mechanism whose module does.
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
from bigbird_dna.errors import ConfigError, DataError, UsageError, check_choice, check_import, shortened
from bigbird_dna.papers.experiments import EXPERIMENTS

ArmTask = Literal["pretraining", "promoters", "chromatin", "sequences", "bytes"]
Keys = Mapping[str, Any]
"""Dotted keys of a configuration, with their values."""

_STAGES = {"sequences": "long-range", "bytes": "density"}
_SEED_KEYS = {
    "pretraining": "pretraining.seed",
    "promoters": "promoters.training.seed",
    "chromatin": "chromatin.training.seed",
}
INDEX_ENDINGS = (".fai", ".gzi")


@dataclass(frozen=True)
class Arm:
    """What jobs have in common that differ by their seed alone."""

    name: str  # of its directory; no two arms of an experiment have one
    task: ArmTask
    seeds: Sequence[int]
    set: Keys = field(default_factory=dict)  # keys that differ from the run's
    predictor: str = "model"  # or a comparator
    options: Keys = field(default_factory=dict)  # of the training or the comparator, beside the configuration
    initialization: Path | None = None  # pretrained model; None: random weights
    data: str = ""  # the experiment's own data set; "": the run's
    predictions: str = ""  # ending of the file of what its model predicts; "": there is none
    measured: Sequence[int] = ()  # lengths of inputs at which steps of its training are measured
    costs: Sequence[Path] = ()  # measured steps that its number of steps goes by: its own and the reference's
    row: Any = None  # of the comparison: what it is compared by


@dataclass(frozen=True)
class ArmJob:
    """One seed of an arm: what is read, and what is written."""

    experiment: str
    arm: Arm
    seed: int
    run: Config

    @property
    def directory(self) -> Path:
        return self.run.paths.experiment(self.experiment) / self.arm.name / str(self.seed)

    @property
    def model(self) -> Path:
        """The model directory, or that of what a comparator predicts."""
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
        """Two arms can have the same settings, so each has checkpoints of its own."""
        return self.run.paths.checkpoints / "experiments" / self.experiment / self.arm.name / str(self.seed)

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
        """What windows are read from: a genome, or of promoters the user's sequences."""
        paths = self.run.paths
        sequences = self.arm.task == "promoters" and self.run.has_sequences
        return paths.sequences if sequences else paths.reference

    @property
    def is_model(self) -> bool:
        """Whether a network of this package is trained, and no comparator fitted."""
        return self.arm.predictor == "model"

    @cached_property
    def config(self) -> Config:
        """The configuration of the training: the keys of its stage, with the arm's values and seed."""
        task = self.arm.task
        keys = dict(self.arm.set)
        if self.is_model and task in _SEED_KEYS:
            keys[_SEED_KEYS[task]] = self.seed
        elif not self.is_model:  # the keys of an evaluation are in no training's stage
            keys[f"{task}.evaluation"] = getattr(self.run, task).evaluation.model_dump(mode="json")
        return with_keys(self.run, _STAGES.get(task, task), keys, f"{self.experiment}: {self.arm.name}")

    @property
    def settings(self) -> str:
        """All that decides the job's result beside its inputs, as text."""
        options = {name: str(value) for name, value in self.arm.options.items()}
        text = stage_text(self.config, _STAGES.get(self.arm.task, self.arm.task))
        return f"{text} {self.arm.predictor} {options} {self.seed}"

    @property
    def inputs(self) -> list[Path]:
        """The files that the job reads."""
        paths, task = self.run.paths, self.arm.task
        found: list[Path] = [*self.arm.costs]
        if self.arm.data:
            found.append(self.data)
        elif task == "promoters":
            found += [self.data / name for name in ("windows.parquet", "labels.npz")]
        elif task == "chromatin":
            found += [
                self.data / name for name in ("bins.parquet", "labels.npz", "tracks.tsv", "dataset.json")
            ]
        elif task == "pretraining":
            found += [paths.token_store(split) for split in ("train", "valid", "test")]
        elif task == "bytes":
            found += [Path(name) for name in (*self.config.byte_lm.train, *self.config.byte_lm.test)]  # type: ignore[union-attr]
        if task in ("promoters", "chromatin"):
            found += [Path(f"{self.reference}{ending}") for ending in ("", *INDEX_ENDINGS)]
        if self.is_model and task in _SEED_KEYS:
            found.append(paths.tokenizer)
        found += [self.arm.initialization] if self.arm.initialization else []
        return found


class Experiment(ABC):
    """A set of arms, and how they are compared."""

    name: ClassVar[str]
    files: ClassVar[Sequence[str]]
    """What `compare` writes, below the run's `report`."""

    @abstractmethod
    def arms(self, run: Config) -> Sequence[Arm]:
        """In the order in which they are compared."""

    @abstractmethod
    def check(self, run: Config) -> None:
        """`ConfigError` where the run can't have the experiment; asked before the first job."""

    @abstractmethod
    def compare(
        self, run: Config, jobs: Sequence[ArmJob], output: Path, *, benchmarks: Path | None, device: str
    ) -> list[str]:
        """Write the report of all jobs, which are done, into a directory; lines for the log."""

    def inputs(self, run: Config) -> Sequence[Path]:
        """What `compare` reads beside the files of the arms."""
        return ()

    def data_config(self, run: Config, data: str) -> Config:
        """The configuration of one of the experiment's own data sets."""
        raise NotImplementedError

    def data_inputs(self, run: Config) -> Sequence[Path]:
        """What such a data set is made from."""
        return ()

    def make_data(self, run: Config, data: str, output: Path) -> None:
        """Write one of the experiment's own data sets."""
        raise NotImplementedError


def find_experiment(name: str) -> Experiment:
    """An experiment by its name, or `MODULE:CLASS` of a user's own; `UsageError` where there is none."""
    if ":" not in name:  # a fault in one of these is no user's
        check_choice("experiment", name, EXPERIMENTS)
        return resolve_name(f"bigbird_dna.papers.experiments.{EXPERIMENTS[name]}")()  # type: ignore[no-any-return]
    kind = check_import("experiment", name)
    if not (isinstance(kind, type) and issubclass(kind, Experiment)):
        raise UsageError(f"experiment {name!r}: is not a class of experiments")
    return kind()


def plan(experiment: Experiment, run: Config) -> list[ArmJob]:
    """All jobs of an experiment; `ConfigError` where it, or one of them, can't be."""
    experiment.check(run)
    arms = experiment.arms(run)
    assert len({arm.name for arm in arms}) == len(arms)
    return [ArmJob(experiment.name, arm, seed, run) for arm in arms for seed in arm.seeds]


def with_keys(run: Config, stage: str, keys: Keys, source: str) -> Config:
    """A stage's configuration with other values, as a command would read it; `ConfigError` names `source` and
    the key."""
    values = stage_values(run, stage)
    for key, value in keys.items():
        *sections, last = key.split(".")
        here = values
        for section in sections:
            here = here.setdefault(section, {})
        here[last] = value
    return parse_config(values, source)


class StoredValues(BaseModel):
    """What a job has written as JSON, with the bounds of its numbers; further keys are nothing to it."""

    model_config = ConfigDict(frozen=True, strict=True, allow_inf_nan=False)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file; `DataError` names it, the key at fault and its value."""
        try:
            return cls.model_validate_json(json.dumps(read_object(path)))
        except ValidationError as error:
            fault = error.errors()[0]
        key = ".".join(map(str, fault["loc"]))
        text = fault["msg"].removeprefix("Value error, ")
        value = (
            "" if fault["type"] in ("missing", "value_error") else f", not {shortened(repr(fault['input']))}"
        )
        raise DataError(f"{path}: {key and repr(key) + ': '}{text}{value}")


def require(section: Any, message: str) -> None:
    """`ConfigError` with a message where a section of the configuration is missing or says no."""
    if not section:
        raise ConfigError(message)
