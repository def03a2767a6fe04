"""What the experiments share: trainings that run once, fine-tunings, and comparisons over seeds.

All models of a comparison have the same test data, which are resampled in the same way for each of them, so a
difference is paired by seed and by test example; see `metrics.resampling`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bigbird_dna.config.paths import RunPaths
from bigbird_dna.config.reading import parse_config
from bigbird_dna.config.run import Config, stage_values
from bigbird_dna.data.predictions import ALL, compare
from bigbird_dna.disk.atomic import read_object, write_json
from bigbird_dna.errors import DataError, UsageError, one_of
from bigbird_dna.finetuning.chromatin import ChromatinTask
from bigbird_dna.finetuning.evaluation import evaluate_models
from bigbird_dna.finetuning.promoters import PromoterTask
from bigbird_dna.genome.reference import Reference
from bigbird_dna.metrics.auroc import UNDEFINED
from bigbird_dna.metrics.resampling import (
    SampledMetrics,
    mean_auroc,
    mean_over_seeds,
    resampled_medians,
    sampled_aurocs,
    with_width,
)
from bigbird_dna.reporting.arrays import open_array
from bigbird_dna.reporting.track_evaluation import evaluate_tracks
from bigbird_dna.reporting.training import read_training_log
from bigbird_dna.training.distributed import World, world
from bigbird_dna.training.task import train

Floats = NDArray[np.float64]
Work = Callable[[Path, Path, World], dict[str, Any]]

PUBLISHED_NOTE = "Published values (Zaheer et al. 2020) are for human data, not for the genome of this run."

# Axes: M models, N rows, T tracks.


class Trainings:
    """The trainings of an experiment, each in a directory of its own, and each run once.

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

        A training is finished if it had the same `options` and configuration of `stage`, and is newer than
        its `inputs`. Settings and metrics are stored in `finished.json`.
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


def changed(config: Config, stage: str, keys: Mapping[str, Any], source: str) -> Config:
    """Return the sections of `stage` with changed dotted keys; `ConfigError` names `source` and the key."""
    values = stage_values(config, stage)
    for key, value in keys.items():
        *sections, last = key.split(".")
        section = values
        for name in sections:
            section = section.setdefault(name, {})
        section[last] = value
    return parse_config(values, source)


def training_inputs(config: Config, task: str) -> list[Path]:
    """Return the files that a training reads: of pretraining, promoters or chromatin."""
    paths = config.paths
    if task == "pretraining":
        stores = [paths.token_store(split) for split in ("train", "valid", "test")]
        return [*stores, paths.tokenizer]
    if task == "promoters":
        data = [paths.windows / name for name in ("windows.parquet", "labels.npz")]
    else:
        names = ("bins.parquet", "labels.npz", "tracks.tsv", "dataset.json")
        data = [paths.chromatin_data / name for name in names]
    return [*data, paths.reference, config.model_tokenizer]


def finetune_promoter(
    run: Config,
    config: Config,
    negative_set: str,
    windows: Path,
    pretrained: Path | None,
    model: Path,
    checkpoints: Path,
    world: World,
) -> dict[str, Any]:
    """Fine-tune a promoter model by `config`; its directory has `predictions.parquet`."""
    task = PromoterTask(
        config,
        run.model_tokenizer,
        pretrained,
        windows,
        Reference(run.paths.reference),
        negative_set,
        False,
    )
    return train(task, model, checkpoints, world)


def finetune_chromatin(
    run: Config,
    config: Config,
    window: int,
    pretrained: Path | None,
    model: Path,
    checkpoints: Path,
    world: World,
) -> dict[str, Any]:
    """Fine-tune a chromatin model by `config`; its directory has `predictions.npy` of the test bins."""
    data, reference = run.paths.chromatin_data, run.paths.reference

    def predict(directory: Path) -> None:
        evaluate_models(
            [directory],
            run.chromatin.evaluation,
            data=data,
            reference=reference,
            output=directory / "predictions.npy",
            device=world.device.type,
        )

    task = ChromatinTask(
        config,
        run.model_tokenizer,
        pretrained,
        data,
        Reference(reference),
        window,
        0,
    )
    return train(task, model, checkpoints, world, predict)


# Comparisons


def compare_seeds(
    name: str,
    metrics: SampledMetrics,
    models: pd.DataFrame,
    by: Sequence[str],
    reference: Mapping[str, Any],
    *,
    difference: str = "difference",
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
    """
    models = models.reset_index(drop=True)
    rows = []
    for _, kind in models.groupby([*by], sort=False, dropna=False):
        sampled = metrics.of(kind.index.tolist())
        if class_blocks:
            mean = mean_auroc(sampled, class_blocks)
        else:
            mean = with_width(mean_over_seeds(sampled, (0.0, largest)))
        others = models
        for column in by:
            value = reference.get(column, kind[column].iloc[0])
            others = others[others[column] == value]
        own = pd.Series(kind.index, index=kind["seed"])
        other = pd.Series(others.index, index=others["seed"])
        if len(own) == 1:
            own = pd.Series(own.iloc[0], index=other.index)
        seeds = own.index.intersection(other.index)
        change = UNDEFINED
        if len(seeds) and not others.index.equals(kind.index):
            first = metrics.of(own[seeds].tolist())
            second = metrics.of(other[seeds].tolist())
            both = first.minus(second) if sign > 0 else second.minus(first)
            change = with_width(mean_over_seeds(both, (-largest, largest)))
        rows.append([*kind[[*by]].iloc[0], len(kind), *mean, *change])
    ends = ("", "_low", "_high")
    columns = [column + end for column in (name, difference) for end in ends]
    return pd.DataFrame(rows, columns=[*by, "seeds", *columns])


def window_aurocs(
    files: Sequence[Path], negative_set: str
) -> Iterator[tuple[str, SampledMetrics, list[int], NDArray[np.int64], Floats]]:
    """Yield AUROCs of models from their predictions of the same test windows, with the numbers of blocks of
    each class, labels (N,) and scores (M, N): of all windows, then of the noncoding ones if known."""
    paths = {str(number): path for number, path in enumerate(files)}
    for stratum, part in compare(negative_set, paths).strata():
        labels, blocks = part.labels, part.blocks
        if len(np.unique(labels)) < 2:
            if stratum == ALL:
                raise DataError(
                    f"{files[0]}: AUROC needs test windows of both classes, found only one"
                )
            continue
        scores = np.stack(list(part.scores.values()))
        class_blocks = [len(np.unique(blocks[labels == label])) for label in (1, 0)]
        metrics = sampled_aurocs(labels, scores, blocks)
        yield stratum, metrics, class_blocks, labels, scores


def track_aurocs(
    labels: Path, models: Sequence[Path]
) -> tuple[Floats, NDArray[np.int64]]:
    """Return the AUROCs of models on tracks (M, T), NaN with a single class, and numbers of positives (T,)."""
    truth = open_array(str(labels), "labels")
    names = tuple(f"track {number + 1}" for number in range(truth.tracks))
    aurocs = []
    for model in models:
        path = model / "predictions.npy"
        predicted = open_array(path, "predictions")
        tracks, _ = evaluate_tracks(predicted, truth, {}, names)
        aurocs.append(tracks["auroc"].to_numpy(np.float64))
    return np.stack(aurocs), tracks["positives"].to_numpy(np.int64)


def median_aurocs(aurocs: Floats) -> SampledMetrics:
    """Return the median AUROCs of models over tracks, (M, T) without NaN; tracks are resampled."""
    freedom = max(aurocs.shape[1] - 1, 1)
    medians = np.median(aurocs, axis=1)
    return SampledMetrics.of_resamples(medians, resampled_medians(aurocs), freedom)


def training_seconds(model: Path) -> float:
    """Return the time of a training's steps, without evaluations; `DataError` if its log lacks it."""
    path = model / "training.jsonl"
    steps = read_training_log(path)
    if "seconds" not in steps or "loss" not in steps:
        raise DataError(f"{path}: contains no training time")
    return float(steps.loc[steps["loss"].notna(), "seconds"].iloc[-1])


def read_arrays(path: Path, *names: str) -> list[NDArray[Any]]:
    """Read arrays of an `.npz` file; `DataError` if it is damaged, or lacks one of them."""
    try:
        with path.open("rb") as stream, np.load(stream) as arrays:
            return [arrays[name] for name in names]
    except (OSError, ValueError, KeyError, TypeError, BadZipFile) as error:
        raise DataError(f"{path}: not readable as .npz: {error}") from None
