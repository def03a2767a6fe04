"""All tracks of a report evaluated: files read in slices of tracks, several slices at a time, into tables.

N rows, C tracks of a slice. A file in row order is read once per slice: single tracks of it would
each cost the time of reading it all.
"""

import math
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bigbird_dna.console import log, progress
from bigbird_dna.disk.tables import Schema, columns
from bigbird_dna.errors import DataError
from bigbird_dna.genome.chromatin.tracks import Track
from bigbird_dna.metrics.auroc import (
    UNDEFINED,
    Counts,
    Estimate,
    Steps,
    auroc_difference,
    auroc_note,
    auroc_of,
    average_precision,
    thin_curve,
)
from bigbird_dna.reporting.track_array import TrackArray

# Sorting, copying and counting leave Python's lock, but more threads find nothing more to do.
_THREADS = 4
_LISTED = 5  # names in a message
CURVE_POINTS = 80  # of each track's curve: on either axis it is off by a 40th at most, mostly by far less

# All slices in work at one time take about this many bytes.
MEMORY = 1 << 30
# A label of a row that was not measured in this track, as NaN is.
UNMEASURED = -1

# The row of `groups.tsv` over all groups, written where there are several.
ALL = "all"
PUBLISHED = "published"


class TrackComparison(NamedTuple):
    """Another predictor on the same rows of a track."""

    auroc: Estimate
    auprc: float
    lead: Estimate  # AUROC of the predictions minus this, with DeLong's paired interval


class EvaluatedTrack(NamedTuple):
    """Metrics of one track; NaN, and the reason in `note`, where they are not defined."""

    positives: int
    negatives: int
    auroc: Estimate
    auprc: float
    compared: Mapping[str, TrackComparison]
    curve: Counts | None  # corners (P, 2) of false and true positives, as `thin_curve` has them
    note: str

    @property
    def defined(self) -> bool:
        """Whether both classes are there."""
        return not math.isnan(self.auroc.value)

    @property
    def prevalence(self) -> float:
        """The fraction of positives in the measured rows, which is the AUPRC of chance."""
        rows = self.positives + self.negatives
        return self.positives / rows if rows else math.nan


def evaluate_tracks(
    predictions: TrackArray,
    labels: TrackArray,
    compare: Mapping[str, TrackArray],
    names: tuple[str, ...],
    threads: int = 0,
) -> list[EvaluatedTrack]:
    """Evaluate every track of `predictions`, and of `compare`, by that of `labels`.

    Errors as of `read_slice`. Rows whose label is -1 or NaN are left out of that track. `threads` 0: one a
    core, up to four. Infinite scores rank first or last, with a warning in the log.
    """
    threads = threads or min(len(os.sched_getaffinity(0)), _THREADS)
    predictors = [predictions, *compare.values()]

    def evaluate_slice(first: int, last: int) -> tuple[list[EvaluatedTrack], list[NDArray[np.int64]]]:
        read = read_slice(predictors, labels, first, last, names)
        rows = zip(*read.scores, read.labels, strict=True)
        return [_evaluate([*scores], own, tuple(compare)) for *scores, own in rows], read.infinite

    with ThreadPoolExecutor(threads) as pool:
        bounds = slice_bounds(predictors, labels, threads)
        found = pool.map(evaluate_slice, *zip(*bounds, strict=True))  # the first fault in order is raised
        results = [*progress(found, "evaluating", len(bounds), "slices of tracks")]
    for number, array in enumerate(predictors):
        counts = np.concatenate([infinite[number] for _, infinite in results])
        if having := [name for name, count in zip(names, counts, strict=True) if count]:
            more = f", … {len(having):,} in all" if len(having) > _LISTED else ""
            log(
                f"warning: {array.path}: {int(counts.sum()):,} predictions are infinite and rank before or "
                f"behind all others, in the tracks {', '.join(having[:_LISTED])}{more}"
            )
    return [one for evaluated, _ in results for one in evaluated]


def _evaluate(scores: list[NDArray[Any]], labels: NDArray[np.int8], others: Sequence[str]) -> EvaluatedTrack:
    if labels.min() < 0:
        measured = labels >= 0
        labels = labels[measured]
        scores = [column[measured] for column in scores]
    positive = labels.view(np.bool_)
    m = int(np.count_nonzero(positive))
    n = len(labels) - m
    if not m or not n:
        return EvaluatedTrack(m, n, UNDEFINED, math.nan, {}, None, auroc_note(m, n, UNDEFINED))
    negative = ~positive
    steps, *theirs = (Steps.of(column[positive], column[negative]) for column in scores)
    compared = {
        name: TrackComparison(
            auroc_of(other),
            float(average_precision(other.true, other.false)),
            auroc_difference(positive, scores[0], column),
        )
        for name, other, column in zip(others, theirs, scores[1:], strict=True)
    }
    area, precision = auroc_of(steps), float(average_precision(steps.true, steps.false))
    curve = thin_curve(steps, CURVE_POINTS)
    return EvaluatedTrack(m, n, area, precision, compared, curve, auroc_note(m, n, area))


class TrackSlice(NamedTuple):
    """C tracks of N rows."""

    scores: list[NDArray[Any]]  # of each predictor, (C, N); NaN may stand where a label is `UNMEASURED`
    labels: NDArray[np.int8]  # (C, N): 0, 1 or `UNMEASURED`
    infinite: list[NDArray[np.int64]]  # of each predictor, (C,): how many scores are infinite


def slice_bounds(predictors: list[TrackArray], labels: TrackArray, threads: int) -> list[tuple[int, int]]:
    """Ranges of tracks, of about one width, such that `threads` slices fit into `MEMORY`."""
    track = labels.rows * (1 + sum(score_type(array.dtype).itemsize for array in predictors))
    wide = max(MEMORY // (threads * track), 1)
    # As many slices as keep every thread busy to the end.
    count = -(-labels.tracks // min(wide, labels.tracks))
    count = min(-(-count // threads) * threads, labels.tracks)
    edges = [labels.tracks * i // count for i in range(count + 1)]
    return list(pairwise(edges))


def score_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type that scores are ranked in: no two that differ become equal."""
    single = dtype.itemsize <= (4 if dtype.kind == "f" else 2)
    return np.dtype(np.float32 if single else np.float64)


def read_slice(
    predictors: list[TrackArray], labels: TrackArray, first: int, last: int, names: tuple[str, ...]
) -> TrackSlice:
    """Read and check the tracks `first` to `last` - 1; `names` are those of all tracks.

    `DataError`: a prediction is NaN where the label was measured, or a label is not one of 0, 1, -1 and NaN.
    """
    coded = np.empty((last - first, labels.rows), np.int8)
    row = 0
    for chunk in labels.chunks(first, last):
        coded[:, row : row + len(chunk)] = _codes(labels.path, chunk, row, first, names).T
        row += len(chunk)
    infinite = [np.zeros(last - first, np.int64) for _ in predictors]
    scores = [
        _scores(array, coded, first, names, count) for array, count in zip(predictors, infinite, strict=True)
    ]
    return TrackSlice(scores, coded, infinite)


def _scores(
    array: TrackArray,
    coded: NDArray[np.int8],
    first: int,
    names: tuple[str, ...],
    infinite: NDArray[np.int64],
) -> NDArray[Any]:
    """Scores of a slice, whose labels are `coded` (C, N); infinite ones are counted in `infinite` (C,)."""
    values = np.empty(coded.shape, score_type(array.dtype))
    row = 0
    for chunk in array.chunks(first, first + len(coded)):
        if chunk.dtype.kind == "f" and not np.isfinite(chunk).all():
            missing = np.isnan(chunk) & (coded[:, row : row + len(chunk)] != UNMEASURED).T
            if missing.any():
                at, track = np.argwhere(missing)[0]
                where = f"row {row + at + 1:,}, track {names[first + track]!r}"
                raise DataError(f"{array.path}: {where}: the prediction is NaN or missing")
            infinite += np.isinf(chunk).sum(axis=0)
        values[:, row : row + len(chunk)] = chunk.T
        row += len(chunk)
    return values


def _codes(path: str, chunk: NDArray[Any], row: int, first: int, names: tuple[str, ...]) -> NDArray[Any]:
    """Labels of a chunk as 0, 1 and `UNMEASURED`."""
    if chunk.dtype.kind == "b":
        return chunk.view(np.int8)
    if chunk.dtype.kind == "f":
        chunk = np.where(np.isnan(chunk), UNMEASURED, chunk)
    wrong = chunk > 1
    if chunk.dtype.kind != "u":
        wrong |= chunk < UNMEASURED
    if chunk.dtype.kind == "f":
        wrong |= chunk != np.rint(chunk)
    if wrong.any():
        at, track = np.argwhere(wrong)[0]
        value, name = chunk[at, track].item(), names[first + track]
        raise DataError(
            f"{path}: row {row + at + 1:,}, track {name!r}: label {value!r} is not one of "
            "0, 1 and -1 or NaN (not measured)"
        )
    return chunk


_NOT_COMPARED = TrackComparison(UNDEFINED, np.nan, UNDEFINED)


def tracks_schema(others: Sequence[str]) -> Schema:
    """The columns of `tracks.tsv`; `others` are what AUROCs are compared with, `PUBLISHED` among them."""
    groups = ["text track group", "count positives negatives", "estimate auroc", "metric auprc", "text note"]
    groups.append("metric prevalence")
    for name in others:
        if name == PUBLISHED:
            groups.append(f"metric {other_auroc(name)} delta_{name}")
        else:
            groups += [f"metric {other_auroc(name)} auprc_{name}", f"estimate delta_{name}"]
    return Schema(columns(*groups), key=["track"])


def groups_schema(others: Sequence[str]) -> Schema:
    """The columns of `groups.tsv`; `others` as of `tracks_schema`."""
    medians = (f"metric median_auroc_{name} median_delta_{name}" for name in others)
    own = "metric median_auroc mean_auroc median_auprc mean_auprc"
    return Schema(columns("text group", "count tracks", own, "count left_out", *medians), key=["group"])


def tracks_table(
    tracks: Sequence[Track],
    evaluated: Sequence[EvaluatedTrack],
    compare: Sequence[str] = (),
    published: Sequence[float] | None = None,
    min_positives: int = 1,
) -> pd.DataFrame:
    """One row a track, in order, with the columns of `tracks_schema`.

    `delta_NAME` is the AUROC minus that of NAME (a predictor of `compare`, with DeLong's paired interval, or
    "published"). A further column, `counted`, is true of tracks that take part in their group's metrics, with
    both classes and at least `min_positives` positives.
    """
    names = tracks_schema([*[PUBLISHED] * (published is not None), *compare]).names
    names.insert(names.index("prevalence") + 1, "counted")
    rows = []
    for place, (track, j) in enumerate(zip(tracks, evaluated, strict=True)):
        few = j.defined and j.positives < min_positives
        notes = [j.note, f"fewer than {min_positives} positives: not in the group's figures" if few else ""]
        note = "; ".join(filter(None, notes))
        row: list[Any] = [track.name, track.group, j.positives, j.negatives, *j.auroc, j.auprc, note]
        row += [j.prevalence, j.defined and not few]
        if published is not None:
            row += [published[place], j.auroc.value - published[place]]
        for name in compare:
            other = j.compared.get(name, _NOT_COMPARED)
            row += [other.auroc.value, other.auprc, *other.lead]
        rows.append(row)
    return pd.DataFrame(rows, columns=names)


def groups_table(table: pd.DataFrame, compare: Sequence[str] = ()) -> pd.DataFrame:
    """Medians and means over the counted tracks by group, and of several groups over all tracks at last."""
    groups = list(dict.fromkeys(table["group"]))
    parts: list[tuple[str, pd.DataFrame]] = [(g, table[table["group"] == g]) for g in groups]
    if len(groups) > 1 and ALL not in groups:
        parts.append((ALL, table))
    others = ([PUBLISHED] if "published_auroc" in table else []) + list(compare)
    rows = []
    for group, part in parts:
        kept = part[part["counted"]]
        row = [group, len(kept)]
        row += [found for name in ("auroc", "auprc") for found in (kept[name].median(), kept[name].mean())]
        row.append(len(part) - len(kept))
        for name in others:
            row += [kept[other_auroc(name)].median(), kept[f"delta_{name}"].median()]
        rows.append(row)
    return pd.DataFrame(rows, columns=groups_schema(others).names)


def other_auroc(name: str) -> str:
    """The column with the AUROC that a delta is to."""
    return "published_auroc" if name == PUBLISHED else f"auroc_{name}"


def excluded_tracks(table: pd.DataFrame) -> Mapping[str, list[str]]:
    """Names of the tracks that take no part in their group's metrics, by the reason."""
    found: dict[str, list[str]] = {}
    for row in table[~table["counted"]].itertuples():
        found.setdefault(str(row.note), []).append(str(row.track))
    return found
