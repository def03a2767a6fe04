"""Evaluate all tracks of a report; files are read in slices of tracks, several slices in parallel.

N rows, C tracks per slice. A file in row order is read once per slice, because reading a single track takes
as long as reading the whole file.
"""

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bigbird_dna.console import log, progress
from bigbird_dna.disk.tables import Schema
from bigbird_dna.errors import DataError
from bigbird_dna.genome.chromatin.tracks import Track
from bigbird_dna.gpus import available_cores, freed_memory_kept
from bigbird_dna.metrics.auroc import (
    UNDEFINED,
    Counts,
    Placements,
    auroc_note,
    auroc_of,
    average_precision,
    discoveries,
    placed_difference,
)
from bigbird_dna.reporting.arrays import TrackArray
from bigbird_dna.reporting.predictors import thin_curve

THREADS = 4
"""Sorting, copying and counting release the GIL, but more threads give no further speed-up."""
LISTED = 5  # names in a message
CURVE_POINTS = 80
"""Per track; the error on either axis is at most 1/40, usually far less."""

# Approximate memory in bytes of all slices processed at the same time; files are read once for each slice.
MEMORY = 2 << 30
# Label of a row not measured in a track; NaN has the same meaning.
UNMEASURED = -1

# Row of `groups.tsv` over all groups, written if there are several groups.
ALL = "all"
PUBLISHED = "published"


@freed_memory_kept()
def evaluate_tracks(
    predictions: TrackArray,
    labels: TrackArray,
    compare: Mapping[str, TrackArray],
    names: tuple[str, ...],
    threads: int = 0,
    blocks: NDArray[np.int64] | None = None,
) -> tuple[pd.DataFrame, list[Counts | None]]:
    """Evaluate every track of `predictions`, and of the predictors in `compare`, with `labels`.

    Returns one row per track, and its curve: the corners (P, 2) of false and true positives (`thin_curve`),
    or None for a track of one class, whose metrics are NaN. Columns are `positives`, `negatives`, `auroc` with
    its interval, `auprc` and `note`, and for each predictor NAME `auroc_NAME`, `auprc_NAME`, the difference
    `delta_NAME` of the AUROCs with its paired interval, and `p_NAME`.

    Intervals are over the blocks of the rows, `blocks` (N,); None: over rows (DeLong). Errors as in
    `read_slice`. Rows with label -1 or NaN are excluded from that track. `threads=0`: one per core, up to
    four. Infinite scores rank first or last, with a warning in the log.
    """
    threads = threads or min(available_cores(), THREADS)
    predictors = [predictions, *compare.values()]

    def evaluate_slice(bounds: tuple[int, int]) -> tuple[list[Any], Any]:
        read = read_slice(predictors, labels, *bounds, names)
        tracks = zip(*read.scores, read.labels, strict=True)
        return [
            _evaluate(scores, own, blocks) for *scores, own in tracks
        ], read.infinite

    bounds = slice_bounds(predictors, labels, threads)
    with ThreadPoolExecutor(threads) as pool:
        found = pool.map(evaluate_slice, bounds)  # raises the first error in order
        results = [*progress(found, "evaluating", len(bounds), "slices of tracks")]
    for number, array in enumerate(predictors):
        counts = np.concatenate([infinite[number] for _, infinite in results])
        if having := [name for name, count in zip(names, counts, strict=True) if count]:
            more = f", … {len(having):,} in all" if len(having) > LISTED else ""
            log(
                f"warning: {array.path}: {int(counts.sum()):,} predictions are infinite and rank first or "
                f"last, in the tracks {', '.join(having[:LISTED])}{more}"
            )
    columns = ["positives", "negatives", "auroc", "auroc_low", "auroc_high", "auprc"]
    columns.append("note")
    for name in compare:
        lead = f"delta_{name}"
        columns += [f"auroc_{name}", f"auprc_{name}", lead, f"{lead}_low"]
        columns += [f"{lead}_high", f"p_{name}"]
    rows = [row for evaluated, _ in results for row, _ in evaluated]
    curves = [curve for evaluated, _ in results for _, curve in evaluated]
    return pd.DataFrame(rows, columns=columns), curves


def _evaluate(
    scores: list[NDArray[Any]],
    labels: NDArray[np.int8],
    blocks: NDArray[np.int64] | None,
) -> tuple[list[Any], Counts | None]:
    """Return the row and the curve of a track, from the scores (N,) of all predictors."""
    if labels.min() < 0:
        measured = labels >= 0
        labels = labels[measured]
        scores = [column[measured] for column in scores]
        blocks = None if blocks is None else blocks[measured]
    positive = labels.view(np.bool_)
    m = int(np.count_nonzero(positive))
    n = len(labels) - m
    if not m or not n:
        note = auroc_note(m, n, UNDEFINED)
        undefined = [math.nan] * 6 * (len(scores) - 1)
        return [m, n, *UNDEFINED, math.nan, note, *undefined], None
    negative = ~positive
    ids = None if blocks is None else (blocks[positive], blocks[negative])
    placed, steps = Placements.with_steps(scores[0][positive], scores[0][negative])
    spread = None if ids is None else placed.spread(ids)
    area = auroc_of(steps, spread)
    precision = float(average_precision(steps.true, steps.false))
    row = [m, n, *area, precision, auroc_note(m, n, area)]
    for column in scores[1:]:
        own, other = Placements.with_steps(column[positive], column[negative])
        lead = placed_difference(placed, own, (scores[0], column), ids)
        precision = float(average_precision(other.true, other.false))
        row += [auroc_of(other).value, precision, *lead]
    return row, thin_curve(steps, CURVE_POINTS)


class TrackSlice(NamedTuple):
    """C tracks of N rows, with scores of every predictor."""

    scores: list[
        NDArray[Any]
    ]  # per predictor, (C, N); may be NaN where the label is `UNMEASURED`
    labels: NDArray[np.int8]  # (C, N): 0, 1 or `UNMEASURED`
    infinite: list[NDArray[np.int64]]  # per predictor, (C,): number of infinite scores


def slice_bounds(
    predictors: list[TrackArray], labels: TrackArray, threads: int
) -> list[tuple[int, int]]:
    """Return ranges of tracks of about equal width, such that `threads` slices fit into `MEMORY`."""
    track = labels.rows * (
        1 + sum(score_type(array.dtype).itemsize for array in predictors)
    )
    wide = max(MEMORY // (threads * track), 1)
    # A multiple of the number of threads, to keep every thread busy to the end.
    count = -(-labels.tracks // min(wide, labels.tracks))
    count = min(-(-count // threads) * threads, labels.tracks)
    edges = [labels.tracks * i // count for i in range(count + 1)]
    return list(pairwise(edges))


def score_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type in which scores are ranked; distinct scores stay distinct."""
    single = dtype.itemsize <= (4 if dtype.kind == "f" else 2)
    return np.dtype(np.float32 if single else np.float64)


def read_slice(
    predictors: list[TrackArray],
    labels: TrackArray,
    first: int,
    last: int,
    names: tuple[str, ...],
) -> TrackSlice:
    """Read and check tracks `first` to `last` - 1; `names` are the names of all tracks.

    `DataError`: a prediction is NaN where the label was measured, or a label is not 0, 1, -1 or NaN.
    """
    coded = np.empty((last - first, labels.rows), np.int8)
    row = 0
    for chunk in labels.chunks(first, last):
        coded[:, row : row + len(chunk)] = _codes(
            labels.path, chunk, row, first, names
        ).T
        row += len(chunk)
    infinite = [np.zeros(last - first, np.int64) for _ in predictors]
    scores = [
        _scores(array, coded, first, names, count)
        for array, count in zip(predictors, infinite, strict=True)
    ]
    return TrackSlice(scores, coded, infinite)


def _scores(
    array: TrackArray,
    coded: NDArray[np.int8],
    first: int,
    names: tuple[str, ...],
    infinite: NDArray[np.int64],
) -> NDArray[Any]:
    """Return the scores (C, N) of a slice with labels `coded`; count infinite scores in `infinite` (C,)."""
    values = np.empty(coded.shape, score_type(array.dtype))
    row = 0
    for chunk in array.chunks(first, first + len(coded)):
        if chunk.dtype.kind == "f" and not np.isfinite(chunk).all():
            missing = (
                np.isnan(chunk) & (coded[:, row : row + len(chunk)] != UNMEASURED).T
            )
            if missing.any():
                at, track = np.argwhere(missing)[0]
                where = f"row {row + at + 1:,}, track {names[first + track]!r}"
                raise DataError(
                    f"{array.path}: {where}: the prediction is NaN or missing"
                )
            infinite += np.isinf(chunk).sum(axis=0)
        values[:, row : row + len(chunk)] = chunk.T
        row += len(chunk)
    return values


def _codes(
    path: str, chunk: NDArray[Any], row: int, first: int, names: tuple[str, ...]
) -> NDArray[Any]:
    """Return the labels of a chunk as 0, 1 and `UNMEASURED`."""
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
            f"{path}: row {row + at + 1:,}, track {name!r}: label {value!r}: must be 0, 1, or -1 or NaN "
            "(not measured)"
        )
    return chunk


def tracks_schema(others: Sequence[str]) -> Schema:
    """Return the schema of `tracks.tsv`; `others` are the compared predictors, possibly with `PUBLISHED`."""
    groups = [
        "text track group",
        "count positives negatives",
        "estimate auroc",
        "metric auprc",
        "text note",
    ]
    groups.append("metric prevalence")
    for name in others:
        if name == PUBLISHED:
            groups.append(f"metric {other_auroc(name)} delta_{name}")
        else:
            groups += [
                f"metric {other_auroc(name)} auprc_{name}",
                f"estimate delta_{name}; metric p_{name}",
            ]
    return Schema.of(*groups, key=["track"])


def groups_schema(others: Sequence[str]) -> Schema:
    """Return the schema of `groups.tsv`; `others` as in `tracks_schema`."""
    medians = (
        f"metric median_auroc_{name} median_delta_{name}"
        + ("" if name == PUBLISHED else f"; count better_{name} worse_{name}")
        for name in others
    )
    own = "metric median_auroc mean_auroc median_auprc mean_auprc"
    return Schema.of(
        "text group; count tracks", own, "count n_excluded", *medians, key=["group"]
    )


def tracks_table(
    tracks: Sequence[Track],
    evaluated: pd.DataFrame,
    compare: Sequence[str] = (),
    published: Sequence[float] | None = None,
    min_positives: int = 1,
) -> pd.DataFrame:
    """Return the table of `evaluate_tracks` with the columns of `tracks_schema`, and a column `counted`.

    `counted` is true for tracks included in the metrics of their group: those with both classes and at least
    `min_positives` positives. `delta_published` is the AUROC minus the published one.
    """
    table = evaluated.copy()
    table["track"] = [track.name for track in tracks]
    table["group"] = [track.group for track in tracks]
    measured = table["positives"] + table["negatives"]
    table["prevalence"] = table["positives"] / measured.where(measured > 0)
    few = table["auroc"].notna() & (table["positives"] < min_positives)
    reason = f"fewer than {min_positives} positives: not in the group's metrics"
    table.loc[few, "note"] = [
        f"{note}; {reason}" if note else reason for note in table.loc[few, "note"]
    ]
    table["counted"] = table["auroc"].notna() & ~few
    others = [*compare]
    if published is not None:
        others = [PUBLISHED, *compare]
        table["published_auroc"] = published
        table["delta_published"] = table["auroc"] - table["published_auroc"]
    names = tracks_schema(others).names
    names.insert(names.index("prevalence") + 1, "counted")
    return table[names]


def groups_table(table: pd.DataFrame, compare: Sequence[str] = ()) -> pd.DataFrame:
    """Return medians and means over the counted tracks by group, and over all tracks if several groups.

    `better_NAME` and `worse_NAME` are the numbers of tracks with a significant difference to NAME.
    """
    groups = {
        group: table[table["group"] == group] for group in table["group"].unique()
    }
    if len(groups) > 1 and ALL not in groups:
        groups[ALL] = table
    others = [PUBLISHED] * ("published_auroc" in table) + [*compare]
    rows = []
    for group, part in groups.items():
        counted = part[part["counted"]]
        row = [group, len(counted)]
        for metric in ("auroc", "auprc"):
            row += [counted[metric].median(), counted[metric].mean()]
        row.append(len(part) - len(counted))
        for name in others:
            leads = counted[f"delta_{name}"]
            row += [counted[other_auroc(name)].median(), leads.median()]
            if name != PUBLISHED:
                significant = leads[discoveries(counted[f"p_{name}"])]
                row += [int((significant > 0).sum()), int((significant < 0).sum())]
        rows.append(row)
    return pd.DataFrame(rows, columns=groups_schema(others).names)


def other_auroc(name: str) -> str:
    """Return the column with the AUROC of the predictor of a delta."""
    return "published_auroc" if name == PUBLISHED else f"auroc_{name}"
