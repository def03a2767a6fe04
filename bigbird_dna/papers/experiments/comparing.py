"""Compare trained models, grouped by arm and seed, on the same test data, with paired differences.
Test data are resampled in the same way for all models, so the difference of two arms is paired by seed and by
resample. Intervals (95 %) are over test data and seeds; see `metrics.resampling`."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bigbird_dna.config import LONGER, PRETRAINED, STUDY_STARTS, STUDY_TASKS, StudyStart
from bigbird_dna.data.predictions import ALL, compare
from bigbird_dna.disk.atomic import read_object
from bigbird_dna.disk.tables import number, whole_number
from bigbird_dna.errors import DataError
from bigbird_dna.metrics.auroc import UNDEFINED, Estimate, Floats
from bigbird_dna.metrics.resampling import (
    SampledMetrics,
    mean_auroc,
    mean_over_seeds,
    resampled_medians,
    sampled_aurocs,
    with_width,
)
from bigbird_dna.reporting.arrays import open_array, open_predictions
from bigbird_dna.reporting.track_array import TrackArray
from bigbird_dna.reporting.track_evaluation import evaluate_tracks
from bigbird_dna.reporting.training import LogCurve, TrainingCurves, read_training_log

if TYPE_CHECKING:
    from bigbird_dna.papers.experiments.experiment import ArmJob

# Axes: M models, S seeds, R resamples, N rows, T tracks.

PREDICTIONS = {"promoters": "predictions.parquet", "chromatin": "predictions.npy"}
"""Task → file name of the predictions of test data."""
FINE_TUNED, PROBED, FITTED = "fine-tuned", "probed", "fitted"

Arm = TypeVar("Arm", bound=Hashable)
Arms = Mapping[Arm, Mapping[int, int]]
"""Arm → seed → index of the model."""


class Measure(NamedTuple):
    """A metric for comparing models, and how the interval of a mean over seeds is computed."""

    column: str
    scale: Literal["plain", "logit"]  # scale on which the interval is symmetric
    bounds: tuple[float, float]  # limits of the interval of a mean
    difference_bounds: tuple[float, float]  # limits of the interval of a difference
    zero_width: bool = False  # whether an interval of zero width is kept if resamples and seeds are all equal


AUROC = Measure("auroc", "logit", (0.0, 1.0), (-1.0, 1.0))
MEDIAN_AUROC = Measure("median_auroc", "plain", (0.0, 1.0), (-1.0, 1.0))
BITS_PER_BASE = Measure(
    "bits_per_base", "plain", (0.0, np.inf), (-np.inf, np.inf), zero_width=True
)


@dataclass(frozen=True)
class EvaluatedModels:
    """M models on the same test data."""

    measure: Measure
    found: SampledMetrics
    class_blocks: tuple[
        int, ...
    ] = ()  # AUROC over blocks only: those with positives, and with negatives

    def mean(self, models: Sequence[int]) -> Estimate:
        """Return the mean of models, one per seed."""
        if self.measure.scale == "logit":
            return mean_auroc(self.found.of(models), self.class_blocks)
        return self._shown(mean_over_seeds(self.found.of(models), self.measure.bounds))

    def difference(self, first: Sequence[int], second: Sequence[int]) -> Estimate:
        """Return the mean of models minus that of others, which have the same seeds in the same order."""
        leads = self.found.of(first).minus(self.found.of(second))
        return self._shown(mean_over_seeds(leads, self.measure.difference_bounds))

    def _shown(self, value: Estimate) -> Estimate:
        return value if self.measure.zero_width else with_width(value)

    def separated(self, *means: Estimate) -> bool:
        """Return whether all means separate the classes, in either direction, so that resamples are equal."""
        return bool(self.class_blocks) and {one.value for one in means} <= {0.0, 1.0}


@dataclass(frozen=True)
class ModelComparison:
    """Comparison of the models of one arm, one model per seed."""

    value: Estimate  # mean over seeds
    difference: Estimate  # difference to the reference arm, on the common seeds
    by_seed: Mapping[int, float]  # metric per seed
    pairs: int = 0  # number of common seeds
    steps: int = 0  # steps of each training; 0 if they differ or are unknown
    seconds: float = float(
        "nan"
    )  # time of the steps from the logs, mean over seeds; NaN if unknown


class ArmModel(NamedTuple):
    """Result of a job of a plan."""

    row: Any  # row of its arm
    seed: int
    path: Path  # directory of the model, or of a comparator's predictions
    predictions: Path  # predictions of test data

    @classmethod
    def of(cls, job: ArmJob) -> ArmModel:
        inside = job.model / PREDICTIONS[job.arm.task]
        return cls(
            job.arm.row,
            job.seed,
            job.model,
            job.predictions if job.arm.predictions else inside,
        )


def by_arm(
    models: Iterable[tuple[Arm, int]], names: Sequence[object]
) -> dict[Arm, dict[int, int]]:
    """Return the indices of models by arm and seed, in order; `DataError`, with their `names`, for
    duplicates."""
    found: dict[Arm, dict[int, int]] = {}
    for place, (arm, seed) in enumerate(models):
        other = found.setdefault(arm, {}).setdefault(seed, place)
        if other != place:
            raise DataError(
                f"{names[place]}: same predictor and seed as {names[other]}"
            )
    return found


def compare_arms(
    evaluated: EvaluatedModels,
    arms: Arms[Arm],
    against: Callable[[Arm], Arm | None],
    *,
    minus: Literal["reference", "arm"] = "reference",
) -> dict[Arm, ModelComparison]:
    """Return the mean of each arm, and its difference from the arm returned by `against` (None: no
    difference); `minus` is the arm that is subtracted."""
    means = {arm: evaluated.mean(list(models.values())) for arm, models in arms.items()}
    found = {}
    for arm, models in arms.items():
        reference = against(arm)
        others = arms.get(reference, {}) if reference is not None else {}
        seeds = [seed for seed in models if seed in others]
        difference = UNDEFINED
        if reference is not None and seeds:
            sides = [models[seed] for seed in seeds], [others[seed] for seed in seeds]
            first, second = sides if minus == "reference" else sides[::-1]
            difference = evaluated.difference(first, second)
            if evaluated.separated(means[arm], means[reference]):
                difference = Estimate(difference.value)
        by_seed = {
            seed: float(evaluated.found.values[model]) for seed, model in models.items()
        }
        found[arm] = ModelComparison(means[arm], difference, by_seed, len(seeds))
    return found


def check_comparable(models: Sequence[tuple[Path, Mapping[str, object]]]) -> None:
    """Raise `DataError` if a key has another value in a model's training than in that of the first model."""
    for path, settings in models[1:]:
        first, expected = models[0]
        for key in sorted({*expected, *settings}):
            if settings.get(key) != expected.get(key):
                raise DataError(
                    f"{path}: cannot be compared with {first}: trained with {key} "
                    f"{settings.get(key)!r:.60}, expected {expected.get(key)!r:.60}"
                )


def evaluate_rows(
    labels: NDArray[np.integer], scores: Floats, blocks: NDArray[np.int64]
) -> EvaluatedModels:
    """Return the AUROC of models with scores (M, N) of the same rows, with variation over blocks (N,)."""
    class_blocks = tuple(len(np.unique(blocks[labels == label])) for label in (1, 0))
    return EvaluatedModels(AUROC, sampled_aurocs(labels, scores, blocks), class_blocks)


def evaluate_windows(
    files: Sequence[Path], negative_set: str
) -> Iterator[tuple[str, EvaluatedModels, NDArray[np.int64], Floats]]:
    """Yield the AUROC of models on the same test windows, with labels (N,) and scores (M, N): of all windows,
    then of other strata with windows of both classes."""
    lined = compare(
        negative_set, {str(number): path for number, path in enumerate(files)}
    )
    for stratum, part in lined.strata():
        if stratum == ALL or len(np.unique(part.labels)) == 2:
            scores = np.stack(list(part.scores.values()))
            yield (
                stratum,
                evaluate_rows(part.labels, scores, part.blocks),
                part.labels,
                scores,
            )


def evaluate_medians(aurocs: Floats) -> EvaluatedModels:
    """Return the median AUROC of models over tracks, (M, T) without NaN; tracks are resampled."""
    values, drawn = np.median(aurocs, axis=1), resampled_medians(aurocs)
    medians = SampledMetrics.of_resamples(values, drawn, max(aurocs.shape[1] - 1, 1))
    return EvaluatedModels(MEDIAN_AUROC, medians)


def open_test_bins(
    labels: Path, predictions: Sequence[Path]
) -> tuple[TrackArray, list[TrackArray]]:
    """Open labels and predictions of test bins; `DataError` if their shapes differ."""
    truth = open_array(str(labels), "labels")
    return truth, [
        open_predictions(path, labels, (truth.rows, truth.tracks))
        for path in predictions
    ]


def track_aurocs(
    truth: TrackArray, predictions: TrackArray, names: Sequence[str]
) -> tuple[Floats, NDArray[np.int64]]:
    """Return AUROC (NaN with a single class) and number of positives of each track, both (T,)."""
    tracks = evaluate_tracks(predictions, truth, {}, tuple(names))
    aurocs = np.array([track.auroc.value for track in tracks])
    return aurocs, np.array([track.positives for track in tracks], np.int64)


# Fine-tuned models of a study, read from their directories


# Keys in which the models of a study may differ; all other keys must be equal.
_FREE = (
    *("model.initial", "training.train_fraction", "training.seed", "training.steps"),
    *(
        "training.evaluate_every",
        "training.checkpoint_minutes",
    ),  # do not affect weights
    *("training.allow_slow_attention", "training.torch_compile"),
)


class StudyRow(NamedTuple):
    """Properties of models that differ only by seed."""

    task: str  # promoters, chromatin
    share: float  # fraction of the training examples
    start: StudyStart


@dataclass(frozen=True)
class FineTunedModel:
    """A fine-tuned model of a study."""

    of: ArmModel  # in the row `StudyRow`
    steps: int
    examples: int  # number of training promoters, or bins
    seconds: float  # time of the training steps
    valid: LogCurve  # AUROC on validation data over steps
    pretrained: str  # checksum of the initial weights; "": random weights
    settings: Mapping[str, Any]  # other configuration keys, by dotted name


@dataclass(frozen=True)
class StudyArm:
    """Models of one initialization and fraction, one per seed, and the gain of pretraining over them."""

    row: StudyRow
    models: Sequence[FineTunedModel]
    compared: ModelComparison
    stratum: str = ALL  # of the test windows

    @property
    def aurocs(self) -> Floats:
        return np.array(list(self.compared.by_seed.values()))

    @property
    def auroc(self) -> float:
        return float(self.aurocs.mean())

    @property
    def gain(self) -> Estimate:
        """Gain of the pretrained models, on the common seeds."""
        return self.compared.difference

    @property
    def seconds(self) -> float:
        return float(np.mean([model.seconds for model in self.models]))

    @property
    def examples(self) -> int:
        return round(float(np.mean([model.examples for model in self.models])))


def mean_curve(curves: Sequence[LogCurve]) -> LogCurve:
    """Return the mean of curves at their common steps."""
    steps = sorted(set.intersection(*({*curve.steps.tolist()} for curve in curves)))
    values = [curve.values[np.isin(curve.steps, steps)] for curve in curves]
    return LogCurve(np.array(steps, np.int64), np.mean(values, axis=0))


def read_models(models: Sequence[ArmModel]) -> dict[str, list[FineTunedModel]]:
    """Read the models of a study by task, sorted by fraction, initialization and seed. `DataError` if models
    differ in other keys, or in steps (except between the initialization `longer` and the others)."""
    found = [read_model(model) for model in sorted(models, key=_place)]
    tasks: dict[str, list[FineTunedModel]] = {}
    for task in STUDY_TASKS:
        own = [model for model in found if model.of.row.task == task]
        if not own:
            continue
        tasks[task] = own
        check_comparable([(one.of.path, one.settings) for one in own])
        check_comparable(
            [
                (one.of.path, {"weights": one.pretrained})
                for one in own
                if one.pretrained
            ]
        )
        for longer in (False, True):
            alike = [one for one in own if (one.of.row.start == LONGER) == longer]
            check_comparable([(one.of.path, {"steps": one.steps}) for one in alike])
    return tasks


def _place(model: ArmModel) -> tuple[float, int, int]:
    return model.row.share, STUDY_STARTS.index(model.row.start), model.seed


def training_seconds(curves: TrainingCurves, source: Path) -> float:
    """Return the time of a training's steps from its log, without evaluations."""
    if curves.loss.seconds is None or not len(curves.loss.seconds):
        raise DataError(f"{source}: contains no training time")
    return float(curves.loss.seconds[-1])


def pretraining_seconds(model: Path) -> float:
    """Return the time of a pretraining's steps from the log in its directory."""
    path = model / "training.jsonl"
    return training_seconds(read_training_log(path), path)


def read_model(model: ArmModel) -> FineTunedModel:
    """Read a fine-tuned model; `DataError` if the directory is damaged or has another model."""
    path, row = model.path, model.row
    provenance, metrics = (
        read_object(path / "provenance.json"),
        read_object(path / "metrics.json"),
    )
    where = path / "provenance.json"
    own = _object(_object(provenance, "configuration", where), row.task, where)
    training = _object(own, "training", where)
    counts = _object(metrics, "training", path / "metrics.json")
    steps, examples = (
        whole_number(counts, key, path / "metrics.json")
        for key in ("steps", "examples")
    )
    curves = read_training_log(path / "training.jsonl")
    if "auroc" not in curves.evaluation:
        raise DataError(
            f"{path / 'training.jsonl'}: contains no AUROC on validation data"
        )
    free = {f"{row.task}.{key}" for key in _FREE}
    (leaves,) = pd.json_normalize(provenance["configuration"]).to_dict("records")
    started = provenance.get("pretrained_sha256")
    made = (
        number(training, "train_fraction", where),
        whole_number(training, "seed", where),
        started is None,
    )
    if made != (row.share, model.seed, row.start != PRETRAINED):
        raise DataError(
            f"{path}: expected {row.share:g} of the examples, {row.start} and seed {model.seed}"
        )
    return FineTunedModel(
        of=model,
        steps=steps,
        examples=examples,
        seconds=training_seconds(curves, path / "training.jsonl"),
        valid=curves.evaluation["auroc"],
        pretrained="" if started is None else str(started),
        settings={str(key): value for key, value in leaves.items() if key not in free},
    )


def _object(values: Mapping[str, Any], key: str, where: Path) -> Mapping[str, Any]:
    value = values.get(key)
    if not isinstance(value, Mapping):
        raise DataError(f"{where}: {key!r} must be an object, found {value!r:.60}")
    return value
