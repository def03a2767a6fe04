"""The models of a study judged on the test data, and the gain of pretrained weights at each share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bigbird_dna.config import StudyStart
from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.metrics.auroc import UNDEFINED, Estimate, auroc
from bigbird_dna.metrics.curves import Floats
from bigbird_dna.metrics.resampling import gain, resampled_aurocs, resampled_medians, with_width
from bigbird_dna.reporting.promoters.predictions import compare, negative_set_of
from bigbird_dna.reporting.study.models import PRETRAINED, StudyModel
from bigbird_dna.reporting.tracks.arrays.opening import open_array, open_predictions
from bigbird_dna.reporting.tracks.judging import judge_tracks
from bigbird_dna.reporting.training_log import Curve

if TYPE_CHECKING:
    import pandas as pd

PREDICTIONS = "predictions.npy"
"""What a chromatin model says of the test bins; it lies beside the model's directory."""


@dataclass(frozen=True)
class Judged:
    """M models of a task on their test data."""

    models: Sequence[StudyModel]
    unit: str  # what the test data are: windows, tracks
    aurocs: Floats  # (M,)
    resampled: Floats  # (M, R), on resampled test data, the same for all


@dataclass(frozen=True)
class Cell:
    """The models of one start and share, one a seed."""

    task: str
    share: float
    start: StudyStart
    models: Sequence[StudyModel]
    aurocs: Floats  # (S,)
    gain: Estimate  # of the pretrained ones over these, on the seeds that both have
    pairs: int  # how many seeds both have

    @property
    def auroc(self) -> float:
        """The mean over seeds."""
        return float(self.aurocs.mean())

    @property
    def seconds(self) -> float:
        """Mean time of fine-tuning, seconds."""
        return float(np.mean([model.seconds for model in self.models]))

    @property
    def examples(self) -> int:
        """Training promoters or bins, mean over seeds."""
        return round(float(np.mean([model.examples for model in self.models])))


def judge(models: Sequence[StudyModel], labels: Path | None, min_positives: int = 1) -> Judged:
    """Judge the models of one task; `labels` are those of the test bins.

    Tracks with fewer than `min_positives` positive test bins have no part in the median.

    Raises
    ------
    UsageError
        There are chromatin models and no labels.
    DataError
        A file is missing or damaged, or models predict other windows or bins.
    """
    if models[0].task == "promoters":
        return _judge_promoters(models)
    if labels is None:
        raise UsageError("--labels: name the labels of the test bins that the chromatin models predict")
    return _judge_chromatin(models, labels, min_positives)


def cells(judged: Judged) -> Iterator[Cell]:
    """Each share and start of a task's models, in their order."""
    found: dict[tuple[float, StudyStart], list[int]] = {}
    for index, model in enumerate(judged.models):
        found.setdefault((model.share, model.start), []).append(index)
    for (share, start), own in found.items():
        theirs = found.get((share, PRETRAINED), []) if start != PRETRAINED else []
        by_seed = {judged.models[number].seed: number for number in theirs}
        both = [(by_seed[seed], n) for n in own if (seed := judged.models[n].seed) in by_seed]
        first, second = ([pair[side] for pair in both] for side in (0, 1))
        difference = UNDEFINED
        if both:
            areas, moved = judged.aurocs, judged.resampled
            difference = with_width(gain(areas[first], areas[second], moved[first], moved[second]))
        models = [judged.models[number] for number in own]
        yield Cell(models[0].task, share, start, models, judged.aurocs[own], difference, len(both))


def study_table(all_cells: Sequence[Cell], pretraining_seconds: float | None) -> pd.DataFrame:
    """A row a task, share and start; `gain` is the AUROC of the pretrained models minus that of the row's."""
    import pandas as pd

    rows = []
    for cell in all_cells:
        before = pretraining_seconds if cell.start == PRETRAINED else None
        rows.append(
            {
                "task": cell.task,
                "share": cell.share,
                "start": cell.start,
                "seeds": len(cell.models),
                "examples": cell.examples,
                "steps": cell.models[0].steps,
                "auroc": cell.auroc,
                "auroc_lowest": float(cell.aurocs.min()),
                "auroc_highest": float(cell.aurocs.max()),
                **cell.gain.columns("gain"),
                "minutes": cell.seconds / 60,
                "pretraining_minutes": float("nan") if before is None else before / 60,
            }
        )
    return pd.DataFrame(rows)


def mean_curve(curves: Sequence[Curve]) -> Curve:
    """The mean of curves at the steps that all have."""
    steps = sorted(set.intersection(*({*curve.steps.tolist()} for curve in curves)))
    values = [curve.values[np.isin(curve.steps, steps)] for curve in curves]
    return Curve(np.array(steps, np.int64), np.mean(values, axis=0))


def _judge_promoters(models: Sequence[StudyModel]) -> Judged:
    files = {str(number): model.path / "predictions.parquet" for number, model in enumerate(models)}
    lined = compare(negative_set_of(files["0"]), files)
    scores = np.stack([lined.scores[name] for name in files])
    aurocs = np.array([auroc(lined.labels, row).value for row in scores])
    if np.isnan(aurocs).any():
        raise DataError(f"{files['0']}: the test windows are of one class: there is no AUROC")
    return Judged(models, "windows", aurocs, resampled_aurocs(lined.labels, scores, lined.pairs))


def _judge_chromatin(models: Sequence[StudyModel], labels: Path, min_positives: int) -> Judged:
    truth = open_array(str(labels), "labels")
    names = tuple(f"track {number + 1}" for number in range(truth.tracks))
    areas = np.empty((len(models), truth.tracks))
    enough = np.zeros(truth.tracks, bool)
    for index, model in enumerate(models):
        path = model.path.parent / PREDICTIONS
        array = open_predictions(path, labels, (truth.rows, truth.tracks))
        judged = judge_tracks(array, truth, {}, names)
        areas[index] = [one.auroc.value for one in judged]
        enough = np.array([one.positives >= min_positives for one in judged])
    counting = enough & ~np.isnan(areas).any(axis=0)
    if not counting.any():
        raise DataError(f"{labels}: no track has negatives and {min_positives:,} positive bins")
    areas = areas[:, counting]
    return Judged(models, "tracks", np.median(areas, axis=1), resampled_medians(areas))
