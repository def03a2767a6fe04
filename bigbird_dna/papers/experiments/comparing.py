"""Trained models compared: grouped by arm and seed, evaluated on the same test data, with paired differences.
Test data are resampled in the same way for all models, so that the difference of two arms is paired by seed
and by what was drawn. Intervals of 95 % are over test data and seeds; see `metrics.resampling`."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.data.predictions import compare
from bigbird_dna.errors import DataError
from bigbird_dna.metrics.auroc import UNDEFINED, Estimate, Floats, auroc
from bigbird_dna.metrics.resampling import (
    gain,
    mean_auroc,
    mean_over_seeds,
    resampled_aurocs,
    resampled_medians,
    uncertain,
    with_width,
)
from bigbird_dna.reporting.arrays import open_array, open_predictions
from bigbird_dna.reporting.track_array import TrackArray
from bigbird_dna.reporting.track_evaluation import evaluate_tracks

# Axes: M models, S seeds, R resamples, N rows, T tracks.

Arm = TypeVar("Arm", bound=Hashable)
Arms = Mapping[Arm, Mapping[int, int]]
"""By arm and seed the number of the model."""


class Measure(NamedTuple):
    """What models are compared by, and how the interval of a mean over seeds is formed."""

    column: str
    scale: Literal["plain", "logit"]  # on which the interval is symmetric
    bounds: tuple[float, float]  # where the interval of a mean ends
    difference_bounds: tuple[float, float]  # where that of a difference ends
    zero_width: bool = False  # whether resamples and seeds that are all alike leave no uncertainty


AUROC = Measure("auroc", "logit", (0.0, 1.0), (-1.0, 1.0))
MEDIAN_AUROC = Measure("median_auroc", "plain", (0.0, 1.0), (-1.0, 1.0))
TRACK_AUROC = Measure("auroc", "plain", (0.0, 1.0), (-np.inf, np.inf), zero_width=True)
"""Of an ablation: over blocks of sequence, whose interval is the only one of an AUROC on the plain scale."""
BITS_PER_BASE = Measure("bits_per_base", "plain", (0.0, np.inf), (-np.inf, np.inf), zero_width=True)


@dataclass(frozen=True)
class EvaluatedModels:
    """M models on the same test data."""

    measure: Measure
    values: Floats  # (M,)
    resampled: Floats  # (M, R), on resampled test data, the same for all
    class_groups: tuple[int, ...] = ()  # of an AUROC of rows: groups that have positives, and negatives

    def mean(self, models: Sequence[int]) -> Estimate:
        """The mean of some models, one a seed."""
        values, resampled = self.values[models], self.resampled[models]
        if self.measure.scale == "logit":
            return mean_auroc(values, resampled, self.class_groups)
        found = mean_over_seeds(values, resampled, self.measure.bounds)
        if self.class_groups and resampled.shape[1]:
            return uncertain(found, self.class_groups)
        return found if self.measure.zero_width else with_width(found)

    def difference(self, first: Sequence[int], second: Sequence[int]) -> Estimate:
        """The mean of some models minus that of others, which have the same seeds in the same order."""
        values, drawn = self.values, self.resampled
        bounds = self.measure.difference_bounds
        found = gain(values[first], values[second], drawn[first], drawn[second], bounds)
        return found if self.measure.zero_width else with_width(found)

    def separated(self, *means: Estimate) -> bool:
        """Whether all of these separate the classes, in whichever order: resamples are alike then."""
        return bool(self.class_groups) and {one.value for one in means} <= {0.0, 1.0}


@dataclass(frozen=True)
class ModelComparison:
    """The models of one arm, one a seed."""

    value: Estimate  # mean over seeds
    difference: Estimate  # between it and the reference arm, on the seeds that both have
    by_seed: Mapping[int, float]  # of which `value` is the mean
    pairs: int = 0  # how many seeds both have
    steps: int = 0  # of each training; 0 where they differ or it isn't said
    seconds: float = float("nan")  # of its steps by the log, mean over seeds; NaN where it isn't said


def by_arm(models: Iterable[tuple[Arm, int]], names: Sequence[object]) -> dict[Arm, dict[int, int]]:
    """The numbers of models by arm and seed, in their order; `DataError` where two are of one, by their
    `names`."""
    found: dict[Arm, dict[int, int]] = {}
    for number, (arm, seed) in enumerate(models):
        other = found.setdefault(arm, {}).setdefault(seed, number)
        if other != number:
            raise DataError(f"{names[number]}: is the same predictor with the same seed as {names[other]}")
    return found


def compare_arms(
    evaluated: EvaluatedModels,
    arms: Arms[Arm],
    against: Callable[[Arm], Arm | None],
    *,
    minus: Literal["reference", "arm"] = "reference",
) -> dict[Arm, ModelComparison]:
    """The mean of each arm, and its difference from the arm that it is compared `against`, None: from none;
    `minus` says which of the two is subtracted."""
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
        by_seed = {seed: float(evaluated.values[model]) for seed, model in models.items()}
        found[arm] = ModelComparison(means[arm], difference, by_seed, len(seeds))
    return found


def check_comparable(models: Sequence[tuple[Path, Mapping[str, object]]]) -> None:
    """`DataError` where a model was trained with another value of a key than the first one."""
    for path, settings in models[1:]:
        first, expected = models[0]
        for key in sorted({*expected, *settings}):
            if settings.get(key) != expected.get(key):
                raise DataError(
                    f"{path}: was trained with {key} {settings.get(key)!r:.60}, {first} with "
                    f"{expected.get(key)!r:.60}: they can't be compared"
                )


def evaluate_rows(
    labels: NDArray[np.integer], scores: Floats, groups: NDArray[np.int64], measure: Measure, fewest: int = 0
) -> EvaluatedModels:
    """AUROC of models with scores (M, N) of the same rows; rows of a group are drawn together, and nothing
    where fewer than so many groups have a class."""
    values = np.array([auroc(labels, row).value for row in scores])
    class_groups = tuple(len(np.unique(groups[labels == label])) for label in (1, 0))
    drawn = np.zeros((len(scores), 0))
    if min(class_groups) >= fewest:
        drawn = resampled_aurocs(labels, scores, groups)
    return EvaluatedModels(measure, values, drawn, class_groups)


def evaluate_windows(
    files: Sequence[Path], negative_set: str
) -> tuple[EvaluatedModels, NDArray[np.int64], Floats]:
    """AUROC of models on the same test windows, with the windows' labels (N,) and the scores (M, N)."""
    lined = compare(negative_set, {str(number): path for number, path in enumerate(files)})
    scores = np.stack(list(lined.scores.values()))
    return evaluate_rows(lined.labels, scores, lined.pairs, AUROC), lined.labels, scores


def evaluate_medians(aurocs: Floats) -> EvaluatedModels:
    """Median AUROC of models over tracks, (M, T), none of them NaN; tracks are drawn."""
    return EvaluatedModels(MEDIAN_AUROC, np.median(aurocs, axis=1), resampled_medians(aurocs))


def open_test_bins(labels: Path, predictions: Sequence[Path]) -> tuple[TrackArray, list[TrackArray]]:
    """Labels of test bins, and what models predict of them; `DataError` where these are of another shape."""
    truth = open_array(str(labels), "labels")
    return truth, [open_predictions(path, labels, (truth.rows, truth.tracks)) for path in predictions]


def track_aurocs(
    truth: TrackArray, predictions: TrackArray, names: Sequence[str]
) -> tuple[Floats, NDArray[np.int64]]:
    """AUROC of each track, NaN where it has one class, and its positives, both (T,)."""
    tracks = evaluate_tracks(predictions, truth, {}, tuple(names))
    aurocs = np.array([track.auroc.value for track in tracks])
    return aurocs, np.array([track.positives for track in tracks], np.int64)
