"""All tracks of a report judged: files read in slices of tracks, several slices at a time."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.console import log, progress
from bigbird_dna.metrics.auroc import UNDEFINED, Estimate, auroc_difference, auroc_note, auroc_of
from bigbird_dna.metrics.curves import Counts, Steps, average_precision, thin_curve
from bigbird_dna.reporting.tracks.arrays.array import TrackArray
from bigbird_dna.reporting.tracks.slices import read_slice, slice_bounds

# Sorting, copying and counting leave Python's lock, but more threads find nothing more to do.
_THREADS = 4
_SHOWN = 5  # names in a message
CURVE_POINTS = 80
"""Of each track's curve: on either axis it is off by a 40th at most, mostly by far less."""


class Compared(NamedTuple):
    """Another predictor on the same rows of a track."""

    auroc: Estimate
    auprc: float
    lead: Estimate  # AUROC of the predictions minus this, with DeLong's paired interval


class Judged(NamedTuple):
    """Figures of one track; NaN, and the reason in `note`, where they are not defined."""

    positives: int
    negatives: int
    auroc: Estimate
    auprc: float
    compared: Mapping[str, Compared]
    curve: Counts | None  # corners (P, 2) of false and true positives, as `thin_curve` has them
    note: str

    @property
    def defined(self) -> bool:
        """Whether both classes are there."""
        return not math.isnan(self.auroc.value)

    @property
    def prevalence(self) -> float:
        """The share of positives in the measured rows, which is the AUPRC of chance."""
        rows = self.positives + self.negatives
        return self.positives / rows if rows else math.nan


def judge_tracks(
    predictions: TrackArray,
    labels: TrackArray,
    compare: Mapping[str, TrackArray],
    names: tuple[str, ...],
    threads: int = 0,
) -> list[Judged]:
    """Judge every track of `predictions`, and of `compare`, against that of `labels`.

    Rows whose label is -1 or NaN are left out of that track. `threads` 0: one a core, up to four.
    Infinite scores rank first or last, and the log says so. Errors are those of `read_slice`.
    """
    threads = threads or min(len(os.sched_getaffinity(0)), _THREADS)
    predictors = [predictions, *compare.values()]
    with ThreadPoolExecutor(threads) as pool:
        slices = [
            pool.submit(_judge_slice, predictors, labels, first, last, names, tuple(compare))
            for first, last in slice_bounds(predictors, labels, threads)
        ]
        try:
            for done in progress(as_completed(slices), "judging", len(slices), "slices of tracks"):
                done.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    results = [done.result() for done in slices]
    for number, array in enumerate(predictors):
        counts = np.concatenate([infinite[number] for _, infinite in results])
        _warn_of_infinities(array.path, counts, names)
    return [one for judged, _ in results for one in judged]


def _warn_of_infinities(path: str, counts: NDArray[np.int64], names: Sequence[str]) -> None:
    having = [name for name, count in zip(names, counts, strict=True) if count]
    if having:
        more = f", … {len(having):,} in all" if len(having) > _SHOWN else ""
        log(
            f"warning: {path}: {int(counts.sum()):,} predictions are infinite and rank before or behind all "
            f"others, in the tracks {', '.join(having[:_SHOWN])}{more}"
        )


def _judge_slice(
    predictors: list[TrackArray],
    labels: TrackArray,
    first: int,
    last: int,
    names: tuple[str, ...],
    others: Sequence[str],
) -> tuple[list[Judged], list[NDArray[np.int64]]]:
    """The tracks of a slice, and for each predictor how many scores of each are infinite."""
    read = read_slice(predictors, labels, first, last, names)
    judged = [
        _judge([scores[row] for scores in read.scores], read.labels[row], others)
        for row in range(last - first)
    ]
    return judged, read.infinite


def _judge(scores: list[NDArray[Any]], labels: NDArray[np.int8], others: Sequence[str]) -> Judged:
    if labels.min() < 0:
        measured = labels >= 0
        labels = labels[measured]
        scores = [column[measured] for column in scores]
    positive = labels.view(np.bool_)
    m = int(np.count_nonzero(positive))
    n = len(labels) - m
    if not m or not n:
        return Judged(m, n, UNDEFINED, math.nan, {}, None, auroc_note(m, n, UNDEFINED))
    negative = ~positive
    steps, *theirs = (Steps.of(column[positive], column[negative]) for column in scores)
    compared = {
        name: Compared(
            auroc_of(other),
            float(average_precision(other.true, other.false)),
            auroc_difference(positive, scores[0], column),
        )
        for name, other, column in zip(others, theirs, scores[1:], strict=True)
    }
    area, precision = auroc_of(steps), float(average_precision(steps.true, steps.false))
    curve = thin_curve(steps, CURVE_POINTS)
    return Judged(m, n, area, precision, compared, curve, auroc_note(m, n, area))
