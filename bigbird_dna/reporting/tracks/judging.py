"""All tracks of a report judged: files read in blocks of tracks, several blocks at a time."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.console import progress
from bigbird_dna.reporting.metrics.auroc import UNDEFINED, Estimate, auroc_difference
from bigbird_dna.reporting.metrics.steps import Steps, auroc, average_precision
from bigbird_dna.reporting.tracks.arrays.array import TrackArray
from bigbird_dna.reporting.tracks.blocks import block_bounds, read_block
from bigbird_dna.reporting.tracks.curves import encode_curve, thin_curve

# Sorting, copying and counting leave Python's lock, but more threads find nothing more to do.
_THREADS = 4


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
    curve: str  # encoded
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
    """Judge every column of `predictions`, and of `compare`, against that of `labels`.

    Rows whose label is -1 or NaN are left out of that track. `threads` 0: one a core, up to four.
    Errors are those of `read_block`.
    """
    threads = threads or min(len(os.sched_getaffinity(0)), _THREADS)
    predictors = [predictions, *compare.values()]
    bounds = block_bounds(predictors, labels, threads)

    def work(first: int, last: int) -> tuple[int, list[Judged]]:
        block = read_block(predictors, labels, first, last, names)
        return first, [
            _judge([scores[row] for scores in block.scores], block.labels[row], tuple(compare))
            for row in range(last - first)
        ]

    found: dict[int, list[Judged]] = {}
    with ThreadPoolExecutor(threads) as pool:
        waiting = [pool.submit(work, first, last) for first, last in bounds]

        def finished() -> Iterator[tuple[int, list[Judged]]]:
            for future in as_completed(waiting):
                yield future.result()

        try:
            for first, judged in progress(finished(), "tracks, by block", len(bounds)):
                found[first] = judged
        except BaseException:
            for future in waiting:
                future.cancel()
            raise
    return [judged for first, _ in bounds for judged in found[first]]


def _judge(scores: list[NDArray[Any]], labels: NDArray[np.int8], names: tuple[str, ...]) -> Judged:
    if labels.min() < 0:
        measured = labels >= 0
        labels = labels[measured]
        scores = [column[measured] for column in scores]
    positive = labels.view(np.bool_)
    m = int(np.count_nonzero(positive))
    n = len(labels) - m
    if not m or not n:
        note = "no measured row" if not len(labels) else f"no {'negatives' if m else 'positives'}"
        return Judged(m, n, UNDEFINED, math.nan, {}, "", note)
    negative = ~positive
    steps = Steps.of(scores[0][positive], scores[0][negative])
    area = auroc(steps)
    compared = {}
    for name, other in zip(names, scores[1:], strict=True):
        theirs = Steps.of(other[positive], other[negative])
        lead = auroc_difference(positive, scores[0], other)
        compared[name] = Compared(auroc(theirs), average_precision(theirs), lead)
    curve = encode_curve(thin_curve(steps))
    return Judged(m, n, area, average_precision(steps), compared, curve, _note(area, m))


def _note(area: Estimate, positives: int) -> str:
    if math.isnan(area.low):
        return f"only one {'positive' if positives == 1 else 'negative'}: no interval of AUROC"
    if area.value in (0.0, 1.0):
        return "classes fully separated: AUROC has no spread"
    return ""
