"""What the experiments share: trainings that run once, changed configurations, and comparisons over seeds.

All models of a comparison have the same test data, which are resampled in the same way for each of them, so a
difference is paired by seed and by test example; see `metrics.resampling`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from numpy.typing import NDArray

from bigbird_dna.config.paths import RunPaths
from bigbird_dna.config.reading import parse_config
from bigbird_dna.config.run import Config, stage_values
from bigbird_dna.disk.arrays import open_npz
from bigbird_dna.disk.atomic import read_object, reading, write_json
from bigbird_dna.errors import UsageError, one_of
from bigbird_dna.metrics.auroc import UNDEFINED
from bigbird_dna.metrics.resampling import (
    SampledMetrics,
    mean_auroc,
    mean_over_seeds,
    with_width,
)
from bigbird_dna.training.distributed import World, world

Work = Callable[[Path, Path, World], dict[str, Any]]

PUBLISHED_NOTE = "Published values (Zaheer et al. 2020) are for human data, not for the genome of this run."


class Trainings:
    """The trainings of an experiment, each in a directory of its own, and each run once.

    A training NAME writes below the run's `experiments/EXPERIMENT/NAME`: the directory `model`, and
    `finished.json` at its end. Its checkpoints are with those of the run. Trainings run one after the other;
    with `torchrun`, several processes run one of them.

    `only` is the name of the single training to run; None: all of them.
    """

    def __init__(
        self,
        paths: RunPaths,
        experiment: str,
        device: str = "auto",
        only: str | None = None,
    ) -> None:
        self.directory = paths.experiment(experiment)
        self.checkpoints = paths.checkpoints / "experiments" / experiment
        self.device, self.only = device, only
        self.names: list[str] = []

    def model(self, name: str) -> Path:
        """Return the directory of a trained model, or of a comparator's predictions."""
        return self.directory / name / "model"

    def run(
        self,
        name: str,
        config: Config,
        stage: str,
        work: Work,
        inputs: Sequence[Path] = (),
        **options: Any,
    ) -> dict[str, Any]:
        """Return the metrics of `work(model, checkpoints, world)`, or those stored by a finished training.

        `work` writes the directory `model`, keeps its checkpoints in the directory `checkpoints`, and returns
        metrics as JSON values; it runs in every process of `world`. A training is finished if it had the same
        `options` and configuration of `stage`, and is newer than its `inputs`. Settings and metrics are stored
        in `finished.json`; a training that fails has no such file.

        Returns {} if this training is not to be run.
        """
        self.names.append(name)
        if self.only not in (None, name):
            return {}

        done = self.directory / name / "finished.json"
        settings = {"configuration": stage_values(config, stage), "options": options}
        settings = json.loads(json.dumps(settings, default=str))

        def stored() -> dict[str, Any] | None:
            if not done.exists():
                return None
            finished = done.stat().st_mtime
            if any(p.exists() and p.stat().st_mtime > finished for p in inputs):
                return None
            record = read_object(done)
            return record["metrics"] if record.get("settings") == settings else None

        with world(self.device) as processes:
            metrics = processes.first(stored)
            if metrics is not None:
                return dict(metrics)

            # What is written next may belong to other settings than those of the file.
            processes.first(lambda: done.unlink(missing_ok=True))
            metrics = work(self.model(name), self.checkpoints / name, processes)
            if processes.is_first:
                done.parent.mkdir(parents=True, exist_ok=True)
                write_json(done, {"settings": settings, "metrics": metrics})

        return metrics

    def complete(self) -> bool:
        """Return whether all trainings have run, not `only` one; `UsageError` if there is no such training."""
        if self.only is None:
            return True
        if self.only not in self.names:
            raise UsageError(f"--only {self.only!r}: {one_of(self.only, self.names)}")
        return False


def changed(config: Config, keys: Mapping[str, Any], source: str) -> Config:
    """Return a configuration with changed dotted keys, such as `encoder.layers`.

    The configuration is checked as a whole; `ConfigError` names `source` and the key.
    """
    values = config.model_dump(mode="json")
    for key, value in keys.items():
        *sections, last = key.split(".")
        section = values
        for name in sections:
            section = section[name]

        section[last] = value

    return parse_config(values, source)


def compare_seeds(
    name: str,
    metrics: SampledMetrics,
    models: pd.DataFrame,
    by: Sequence[str],
    reference: Mapping[Any, Any],
    *,
    sign: int = 1,
    largest: float = 1.0,
    class_blocks: Sequence[int] = (),
) -> pd.DataFrame:
    """Return the mean over seeds of each kind of model, and its difference to another kind, with intervals.

    `models` has a row per model of `metrics`, with its `seed` and the columns `by`, which are the same for
    models of a kind. The other kind has the values of `reference` instead. A kind with a single seed is
    compared with each seed of the other, others by their common seeds. With `sign` -1, the difference is the
    other kind's mean minus that of the row. `class_blocks` are the numbers of blocks with positives and with
    negatives, for AUROCs; `largest` is the largest value of the metric.

    Columns of the table are `by`, `seeds` (number of models), the metric `name` with its ends `_low` and
    `_high`, and `difference` with its ends. Intervals are 95 %. A difference is NaN for the other kind itself,
    and without common seeds.
    """
    models = models.reset_index(drop=True)
    rows = []

    for _, kind in models.groupby([*by], sort=False):
        sampled = metrics.of([*kind.index])
        if class_blocks:
            mean = mean_auroc(sampled, class_blocks)
        else:
            mean = with_width(mean_over_seeds(sampled, (0.0, largest)))

        other = models
        for column in by:
            value = reference.get(column, kind[column].iloc[0])
            other = other[other[column] == value]

        left, right = kind["seed"].reset_index(), other["seed"].reset_index()
        if len(kind) == 1:
            pairs = left.merge(right, how="cross")
        else:
            pairs = left.merge(right, on="seed")

        difference = UNDEFINED
        if len(pairs) and not other.index.equals(kind.index):
            first = metrics.of([*pairs["index_x"]])
            second = metrics.of([*pairs["index_y"]])
            change = first.minus(second) if sign > 0 else second.minus(first)
            difference = with_width(mean_over_seeds(change, (-largest, largest)))

        rows.append([*kind[[*by]].iloc[0], len(kind), *mean, *difference])

    ends = ("", "_low", "_high")
    columns = [column + end for column in (name, "difference") for end in ends]

    return pd.DataFrame(rows, columns=[*by, "seeds", *columns])


def read_arrays(path: Path, *names: str) -> list[NDArray[Any]]:
    """Read arrays of an `.npz` file; `DataError` if it is damaged, or lacks one of them."""
    with (
        reading(path, "not readable as .npz", Exception),
        open_npz(path) as arrays,
    ):
        return [arrays[name] for name in names]
