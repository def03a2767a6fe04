"""Arms of an experiment: trainings and baselines that differ from the run in a few settings, and their files.

An experiment is a module with these names:

* `arms(run)` lists the arms in the order in which they run; `ConfigError` if the run does not support them
* `train(arm, world)`, if there are arms, runs one, writes below `arm.directory`, and returns its metrics
* `compare(run, output)` writes tables and plots of the finished arms, and returns lines for the log
* `FILES` are the files that `compare` writes, below the run's `report`
* `inputs(run)`, optional, lists files that `compare` reads besides those of the arms

Each seed is an arm of its own. Its last file is `arm.json`, with its settings and metrics: an arm whose file
has the same settings, and is newer than its inputs, is not run again. Listing arms does not import torch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.config.reading import parse_config
from bigbird_dna.config.run import Config, stage_values
from bigbird_dna.console import log
from bigbird_dna.disk.atomic import read_object, write_json
from bigbird_dna.errors import DataError, UsageError, one_of
from bigbird_dna.papers.experiments import EXPERIMENTS

if TYPE_CHECKING:
    from bigbird_dna.training.distributed import World

Keys = Mapping[str, Any]
"""Dotted configuration keys and their values."""


@dataclass(frozen=True)
class Arm:
    """One training, or one other computation that an experiment compares or needs."""

    experiment: str
    name: str  # of its directory, with the seed
    run: Config
    config: Config  # the sections of the run that the arm reads, with its changes
    stage: str  # names these sections
    seed: int = 0
    options: Keys = field(default_factory=dict)  # settings outside the configuration
    inputs: Sequence[Path] = ()
    initialization: Path | None = None  # pretrained model
    processes: int = 1  # that train together, each on a GPU; 0: needs no GPU

    @property
    def directory(self) -> Path:
        return self.run.paths.experiment(self.experiment) / self.name

    @property
    def model(self) -> Path:
        """Directory of the trained model, or of a comparator's predictions."""
        return self.directory / "model"

    @property
    def done(self) -> Path:
        """Written at the end: settings and metrics."""
        return self.directory / "arm.json"

    @property
    def checkpoints(self) -> Path:
        return self.run.paths.checkpoints / "experiments" / self.experiment / self.name

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that determines the result, except the inputs, as JSON values."""
        values = {
            "configuration": stage_values(self.config, self.stage),
            "options": dict(self.options),
            "seed": self.seed,
        }
        return dict(json.loads(json.dumps(values, default=str)))

    @property
    def is_finished(self) -> bool:
        if not self.done.exists():
            return False
        written = self.done.stat().st_mtime
        for path in self.inputs:
            if path.exists() and path.stat().st_mtime > written:
                return False
        return read_object(self.done).get("settings") == self.settings

    def metrics(self) -> dict[str, Any]:
        """Return the metrics of the finished arm; `DataError` if it has not been run with these settings."""
        if not self.done.exists():
            raise DataError(
                f"{self.done}: no such file: the arm {self.name} has not been run"
            )
        stored = read_object(self.done)
        if stored.get("settings") != self.settings:
            raise DataError(
                f"{self.done}: the arm {self.name} was run with other settings: run it again"
            )
        return dict(stored["metrics"])


def make_arm(
    run: Config,
    experiment: str,
    name: str,
    stage: str,
    keys: Keys | None = None,
    **more: Any,
) -> Arm:
    """Return an arm whose training reads the run's sections of `stage` with changed keys; `ConfigError` names
    the arm and the wrong key."""
    values = stage_values(run, stage)
    for key, value in (keys or {}).items():
        *sections, last = key.split(".")
        section = values
        for part in sections:
            section = section.setdefault(part, {})
        section[last] = value
    config = parse_config(values, f"{experiment}: {name}")
    return Arm(experiment, name, run, config, stage, **more)


def find_experiment(name: str) -> Any:
    """Return the module of an experiment, or the user's module of this name; `UsageError` if there is none."""
    if name in EXPERIMENTS:
        return import_module(f"bigbird_dna.papers.experiments.{name}")
    try:
        module = import_module(name)
    except ImportError as error:
        raise UsageError(
            f"experiment {name!r}: {one_of(name, EXPERIMENTS)}, and no module of this name: {error}"
        ) from None
    for attribute in ("FILES", "arms", "compare"):
        if not hasattr(module, attribute):
            raise UsageError(f"experiment {name!r}: the module has no {attribute}")
    return module


def find_arm(arms: Sequence[Arm], name: str) -> Arm:
    """Return the arm of this name; `UsageError` if there is none."""
    for arm in arms:
        if arm.name == name:
            return arm
    raise UsageError(f"arm {name!r}: {one_of(name, [arm.name for arm in arms])}")


def run_arm(train: Any, arm: Arm, world: World) -> None:
    """Run an arm with the function `train` of its experiment, unless it is finished."""
    if world.first(lambda: arm.is_finished):
        if world.is_first:
            log(f"{arm.name}: finished before")
        return
    # What is written next may belong to other settings than those of the file.
    world.first(lambda: arm.done.unlink(missing_ok=True))
    metrics = train(arm, world)
    if world.is_first:
        arm.directory.mkdir(parents=True, exist_ok=True)
        write_json(arm.done, {"settings": arm.settings, "metrics": metrics})
        log(f"{arm.name}: finished")


def training_inputs(
    run: Config, task: str, data: Sequence[Path] | None = None
) -> list[Path]:
    """Return the files that a training reads: pretraining, or one of promoters or chromatin on the run's data
    set, or on other `data`."""
    paths = run.paths
    if task == "pretraining":
        stores = [paths.token_store(split) for split in ("train", "valid", "test")]
        return [*stores, paths.tokenizer]
    if data is None and task == "promoters":
        data = [paths.windows / "windows.parquet", paths.windows / "labels.npz"]
    elif data is None:
        names = ("bins.parquet", "labels.npz", "tracks.tsv", "dataset.json")
        data = [paths.chromatin_data / name for name in names]
    reference = run.paths.reference
    indexed = [Path(f"{reference}{ending}") for ending in ("", ".fai", ".gzi")]
    return [*data, *indexed, run.model_tokenizer]


def read_arrays(path: Path, *names: str) -> list[NDArray[Any]]:
    """Read arrays of an `.npz` file; `DataError` if it is damaged, or lacks one of them."""
    try:
        with path.open("rb") as stream, np.load(stream) as arrays:
            return [arrays[name] for name in names]
    except (OSError, ValueError, KeyError, TypeError, BadZipFile) as error:
        raise DataError(f"{path}: not readable as .npz: {error}") from None
