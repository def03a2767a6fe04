"""Means over seeds and paired differences of trained models, with 95 % intervals over test data and seeds.

All models of a comparison have the same test data, which are resampled in the same way for each of them, so
a difference is paired by seed and by test example; see `metrics.resampling`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bigbird_dna.data.predictions import ALL, compare
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
from bigbird_dna.papers.experiments.arms import Arm
from bigbird_dna.reporting.arrays import open_array, open_predictions
from bigbird_dna.reporting.result import BLUE, GREEN, VERMILION, panels
from bigbird_dna.reporting.track_evaluation import evaluate_tracks
from bigbird_dna.reporting.training import read_training_log

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Ints = NDArray[np.int64]

# Axes: M models, N rows, T tracks.

Seeds = Mapping[int, int]
"""Seed of a training → index of its model."""
ENDS = ("_low", "_high")
"""Suffixes of the columns of an interval."""


class Metric(NamedTuple):
    """A metric of M models on the same test data."""

    kind: Literal["auroc", "median_auroc", "bits_per_base"]
    sampled: SampledMetrics
    class_blocks: Sequence[int] = ()  # of an AUROC: blocks with positives, negatives

    def mean(self, seeds: Seeds) -> Estimate:
        """Return the mean over the models of an arm."""
        models = self.sampled.of([*seeds.values()])
        if self.kind == "auroc":
            return mean_auroc(models, self.class_blocks)
        if self.kind == "bits_per_base":
            return mean_over_seeds(models, (0.0, np.inf))
        return with_width(mean_over_seeds(models, (0.0, 1.0)))

    def difference(self, seeds: Seeds, reference: Seeds) -> Estimate:
        """Return the mean of an arm minus that of another, over their common seeds; NaN if there is none."""
        common = [seed for seed in seeds if seed in reference]
        if not common:
            return UNDEFINED
        models = self.sampled.of([seeds[seed] for seed in common])
        change = models.minus(self.sampled.of([reference[seed] for seed in common]))
        if self.kind == "bits_per_base":
            return mean_over_seeds(change, (-np.inf, np.inf))
        return with_width(mean_over_seeds(change, (-1.0, 1.0)))


def compare_arms(
    metric: Metric,
    arms: Sequence[Arm],
    by: Sequence[str],
    reference: Mapping[str, Any],
    *,
    difference: str = "difference",
    sign: int = 1,
    fitted_once: bool = False,
) -> pd.DataFrame:
    """Return the mean over seeds of each kind of arm, and its difference to another kind.

    Arms of a kind have the same options `by`, the columns of the result; `metric` has one model per arm. The
    other kind has the options `reference` instead; with `sign` -1, the difference is its mean minus that of
    the row. With `fitted_once`, a kind with a single seed is compared with each seed of the other.
    """
    kinds: dict[tuple[Any, ...], dict[int, int]] = {}
    for number, arm in enumerate(arms):
        kind = tuple(arm.options[key] for key in by)
        kinds.setdefault(kind, {})[arm.seed] = number
    rows = []
    for kind, seeds in kinds.items():
        options = {**dict(zip(by, kind, strict=True)), **reference}
        other_kind = tuple(options[key] for key in by)
        others = {} if other_kind == kind else kinds.get(other_kind, {})
        first, second = seeds, others
        if fitted_once and len(seeds) == 1:
            first = dict.fromkeys(others, next(iter(seeds.values())))
        if sign < 0:
            first, second = second, first
        estimates = [*metric.mean(seeds), *metric.difference(first, second)]
        rows.append([*kind, len(seeds), *estimates])
    names = [name + end for name in (metric.kind, difference) for end in ("", *ENDS)]
    return pd.DataFrame(rows, columns=[*by, "seeds", *names])


def row_aurocs(labels: NDArray[np.integer], scores: Floats, blocks: Ints) -> Metric:
    """Return the AUROC of models with scores (M, N) of the same rows, with variation over blocks (N,)."""
    class_blocks = [len(np.unique(blocks[labels == label])) for label in (1, 0)]
    return Metric("auroc", sampled_aurocs(labels, scores, blocks), class_blocks)


def window_aurocs(
    files: Sequence[Path], negative_set: str
) -> Iterator[tuple[str, Metric, Ints, Floats]]:
    """Yield the AUROC of models from their predictions of the same test windows, with labels (N,) and scores
    (M, N): of all windows, then of the noncoding ones if there are any of both classes."""
    paths = {str(number): path for number, path in enumerate(files)}
    for stratum, part in compare(negative_set, paths).strata():
        if len(np.unique(part.labels)) == 2:
            scores = np.stack(list(part.scores.values()))
            metric = row_aurocs(part.labels, scores, part.blocks)
            yield stratum, metric, part.labels, scores
        elif stratum == ALL:
            raise DataError(
                f"{files[0]}: AUROC needs test windows of both classes, found only one"
            )


def track_aurocs(labels: Path, predictions: Path) -> tuple[Floats, Ints]:
    """Return AUROC (NaN with a single class) and number of positives of each track, both (T,)."""
    truth = open_array(str(labels), "labels")
    predicted = open_predictions(predictions, labels, (truth.rows, truth.tracks))
    names = tuple(f"track {number + 1}" for number in range(truth.tracks))
    tracks, _ = evaluate_tracks(predicted, truth, {}, names)
    return tracks["auroc"].to_numpy(np.float64), tracks["positives"].to_numpy(np.int64)


def median_aurocs(aurocs: Floats) -> Metric:
    """Return the median AUROC of models over tracks, (M, T) without NaN; tracks are resampled."""
    medians = np.median(aurocs, axis=1)
    freedom = max(aurocs.shape[1] - 1, 1)
    sampled = SampledMetrics.of_resamples(medians, resampled_medians(aurocs), freedom)
    return Metric("median_auroc", sampled)


def validation_curves(model: Path, *metrics: str) -> list[pd.Series[float]]:
    """Return validation metrics by step from a model's training log; `DataError` if it lacks one."""
    path = model / "training.jsonl"
    log = read_training_log(path)
    for metric in metrics:
        if f"evaluation.{metric}" not in log:
            raise DataError(f"{path}: contains no {metric} on validation data")
    return [log[f"evaluation.{metric}"].dropna() for metric in metrics]


def training_seconds(model: Path) -> float:
    """Return the time of a training's steps, without evaluations; `DataError` if its log lacks it."""
    path = model / "training.jsonl"
    log = read_training_log(path)
    if "seconds" not in log or "loss" not in log:
        raise DataError(f"{path}: contains no training time")
    return float(log.loc[log["loss"].notna(), "seconds"].iloc[-1])


# Plots

STARTS = {
    "pretrained": ("pretrained weights", BLUE, "o"),
    "random": ("random weights", VERMILION, "s"),
    "random_long": ("random weights, longer", GREEN, "^"),
}
"""Initial weights → label, color and marker."""


def interval_dots(
    axis: Axes, names: Sequence[str], figures: pd.DataFrame, colors: Sequence[str]
) -> None:
    """Plot one line per name from top to bottom: value, and interval from low to high, columns of `figures`."""
    rows = zip(figures.to_numpy(dtype=float), colors, strict=True)
    for y, ((value, low, high), color) in enumerate(rows):
        if not np.isnan(low):
            axis.plot([low, high], [y, y], "-", color=color, linewidth=1.2)
        axis.plot([value], [y], "o", color=color, markersize=5)
    axis.set_yticks(range(len(figures)), names)
    axis.set_ylim(len(figures) - 0.4, -0.6)


def start_intervals(
    axis: Axes, start: str, x: Any, value: Any, low: Any, high: Any
) -> None:
    """Plot values with intervals over `x`, in the style of initial weights, joined by a line."""
    label, color, marker = STARTS[start]
    axis.errorbar(
        x,
        value,
        yerr=[value - low, high - value],
        color=color,
        marker=marker,
        markersize=5,
        capsize=2,
        elinewidth=1,
        label=label,
    )


@contextmanager
def panel_grid(
    count: int, width: float, height: float
) -> Iterator[tuple[Figure, list[Axes]]]:
    """Yield a figure of `count` panels, at most three per row; see `panels`."""
    columns = max(1, min(3, count))
    rows = max(1, -(-count // columns))
    with panels(rows, columns, width, height) as (figure, axes):
        for axis in axes[max(1, count) :]:
            axis.set_visible(False)
        yield figure, axes
