"""Evaluate all tracks of a report; files are read in slices of tracks, several slices in parallel.

N rows, C tracks per slice. A file in row order is read once per slice, because reading a single track takes
as long as reading the whole file.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bigbird_dna.console import progress
from bigbird_dna.errors import DataError
from bigbird_dna.genome.chromatin.track import Track
from bigbird_dna.gpus import available_cores, freed_memory_kept
from bigbird_dna.metrics.auroc import (
    UNDEFINED,
    auroc_estimate,
    auroc_note,
    discoveries,
    rank,
    ranking_difference,
    spread_of,
)
from bigbird_dna.reporting.arrays import TrackArray
from bigbird_dna.reporting.predictors import curve_points

THREADS = 4
"""Sorting, copying and counting release the GIL, but more threads give no further speed-up."""
# Approximate memory in bytes of all slices processed at the same time; files are read once for each slice.
MEMORY = 2 << 30
# Label of a row not measured in a track; NaN has the same meaning.
UNMEASURED = -1

# Row of `groups.tsv` over all groups, written if there are several groups.
ALL = "all"

Curve = NDArray[np.float32]


@freed_memory_kept()
def evaluate_tracks(
    predictions: TrackArray,
    labels: TrackArray,
    compare: Mapping[str, TrackArray],
    names: Sequence[str],
    threads: int = 0,
    blocks: NDArray[np.int64] | None = None,
) -> tuple[pd.DataFrame, list[Curve | None]]:
    """Evaluate every track of `predictions`, and of the predictors in `compare`, with `labels`.

    Returns one row per track, and its curves (`curve_points`), or None for a track of one class, whose
    metrics are NaN. Columns are `positives`, `negatives`, `auroc` with its interval, `auprc` and `note`, and
    for each predictor NAME `auroc_NAME`, `auprc_NAME`, the difference `delta_NAME` of the AUROCs with its
    paired interval, and `p_NAME`.

    Intervals are over the blocks of the rows, `blocks` (N,); None: over rows (DeLong). Rows with label -1 or
    NaN are excluded from that track. `threads=0`: one per core, up to four. Errors as in
    `read_slice`.
    """
    threads = threads or min(available_cores(), THREADS)
    predictors = [predictions, *compare.values()]

    def evaluate_slice(bounds: tuple[int, int]) -> list[tuple[list[Any], Curve | None]]:
        scores, coded = read_slice(predictors, labels, *bounds, names)
        tracks = zip(*scores, coded, strict=True)
        return [_evaluate(columns, y, blocks) for *columns, y in tracks]

    # Ranges of tracks of about equal width, such that a slice per thread fits into `MEMORY`.
    sizes = [score_type(array.dtype).itemsize for array in predictors]
    wide = max(MEMORY // (threads * labels.rows * (1 + sum(sizes))), 1)
    # A multiple of the number of threads, to keep every thread busy to the end.
    count = math.ceil(math.ceil(labels.tracks / wide) / threads) * threads
    count = min(count, labels.tracks)
    edges = [labels.tracks * i // count for i in range(count + 1)]
    with ThreadPoolExecutor(threads) as pool:
        slices = pool.map(evaluate_slice, [*pairwise(edges)])  # first error in order
        results = [*progress(slices, "evaluating", count, "slices of tracks")]

    columns = ["positives", "negatives", "auroc", "auroc_low", "auroc_high", "auprc"]
    columns.append("note")
    for name in compare:
        lead = f"delta_{name}"
        columns += [f"auroc_{name}", f"auprc_{name}", lead, f"{lead}_low"]
        columns += [f"{lead}_high", f"p_{name}"]

    rows = [row for evaluated in results for row, _ in evaluated]
    curves = [curve for evaluated in results for _, curve in evaluated]
    return pd.DataFrame(rows, columns=columns), curves


def _evaluate(
    scores: list[NDArray[Any]],
    labels: NDArray[np.int8],
    blocks: NDArray[np.int64] | None,
) -> tuple[list[Any], Curve | None]:
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
    first, *others = (rank(column[positive], column[negative]) for column in scores)
    spread = spread_of(first.positives, first.negatives, ids)
    area = auroc_estimate(first.area, spread)
    row = [m, n, *area, first.average_precision, auroc_note(m, n, area)]
    for column, other in zip(scores[1:], others, strict=True):
        lead = ranking_difference(first, other, (scores[0], column), ids)
        row += [other.area, other.average_precision, *lead]

    return row, curve_points(first).astype(np.float32)


def score_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type in which scores are ranked; distinct scores stay distinct."""
    single = dtype.itemsize <= (4 if dtype.kind == "f" else 2)
    return np.dtype(np.float32 if single else np.float64)


def read_slice(
    predictors: Iterable[TrackArray],
    labels: TrackArray,
    first: int,
    last: int,
    names: Sequence[str],
) -> tuple[list[NDArray[Any]], NDArray[np.int8]]:
    """Read and check tracks `first` to `last` - 1, C in number; `names` are the names of all tracks.

    Returns the scores (C, N) of each predictor, which may be NaN where a label is `UNMEASURED`, and the
    labels (C, N), which are 0, 1 or `UNMEASURED`. `DataError`: a prediction is NaN where the label was
    measured, or a label is not 0, 1, -1 or NaN.
    """
    y = labels.read(first, last)
    if y.dtype.kind == "f":
        y = np.where(np.isnan(y), UNMEASURED, y)

    wrong = ~np.isin(y, (0, 1, UNMEASURED))
    if wrong.any():
        track, row = np.argwhere(wrong)[0]
        raise DataError(
            f"{labels.path}: row {row + 1:,}, track {names[first + track]!r}: label {y[track, row].item()!r}: "
            "must be 0, 1, or -1 or NaN (not measured)"
        )

    coded = y.astype(np.int8)
    scores = []
    for array in predictors:
        values = array.read(first, last).astype(score_type(array.dtype), copy=False)
        missing = np.isnan(values)
        if missing.any():
            missing &= coded != UNMEASURED

        if missing.any():
            track, row = np.argwhere(missing)[0]
            raise DataError(
                f"{array.path}: row {row + 1:,}, track {names[first + track]!r}: the prediction is NaN or "
                "missing"
            )

        scores.append(values)

    return scores, coded


def check_fit(array: TrackArray, labels: TrackArray) -> None:
    """Raise `DataError` if shape, column names or intervals of predictions differ from those of labels."""
    shape, expected = (array.rows, array.tracks), (labels.rows, labels.tracks)
    if shape != expected:
        hint = " (rows and tracks swapped?)" if shape == expected[::-1] else ""
        raise DataError(
            f"{array.path}: {shape[0]:,} rows × {shape[1]:,} tracks, but {labels.path} has "
            f"{expected[0]:,} × {expected[1]:,}{hint}"
        )

    if array.names and labels.names:
        check_names(array.path, array.names, labels.path, labels.names)

    if array.intervals is None or labels.intervals is None:
        return

    for name in array.intervals.columns.intersection(labels.intervals.columns):
        values, other = array.intervals[name], labels.intervals[name]
        unlike = ((values != other) & ~(values.isna() & other.isna())).to_numpy()
        if unlike.any():
            row = int(unlike.argmax())
            raise DataError(
                f"{array.path}: row {row + 1:,}: {name} {values[row]!s:.60}, "
                f"but {other[row]!s:.60} in {labels.path}"
            )


def check_names(
    path: str, names: Sequence[str], other: str, expected: Sequence[str]
) -> None:
    """Raise `DataError` if the columns of the file `path` are not the tracks of another source."""
    for column, (name, track) in enumerate(zip(names, expected, strict=True)):
        if name != track:
            raise DataError(
                f"{path}: column {column + 1} is track {name!r}, but {track!r} in {other}"
            )


def tracks_table(
    tracks: Sequence[Track], evaluated: pd.DataFrame, min_positives: int = 1
) -> pd.DataFrame:
    """Return the table of `evaluate_tracks` with names, groups and prevalences, and a column `counted`.

    If a track has a published AUROC, `published_auroc` has it. `counted` is true for tracks included in the metrics of their group: those with both classes and at least
    `min_positives` positives.
    """
    table = evaluated.copy()
    table.insert(0, "track", [track.name for track in tracks])
    table.insert(1, "group", [track.group for track in tracks])
    measured = table["positives"] + table["negatives"]
    prevalence = table["positives"] / measured.where(measured > 0)
    after_note = list(table).index("note") + 1
    table.insert(after_note, "prevalence", prevalence)
    published = pd.Series([track.published_auroc for track in tracks], dtype=float)
    if published.notna().any():
        table.insert(after_note + 1, "published_auroc", published)

    few = table["auroc"].notna() & (table["positives"] < min_positives)
    reason = f"fewer than {min_positives} positives: not in the group's metrics"
    notes = (table.loc[few, "note"] + "; " + reason).str.removeprefix("; ")
    table.loc[few, "note"] = notes
    table["counted"] = table["auroc"].notna() & ~few
    return table


def groups_table(table: pd.DataFrame, others: Sequence[str] = ()) -> pd.DataFrame:
    """Return medians and means over the counted tracks by group, and over all tracks if several groups.

    `others` are the compared predictors. `better_NAME` and `worse_NAME` are the
    numbers of tracks with a significant difference to NAME.
    """
    groups = dict([*table.groupby("group", sort=False)])
    if len(groups) > 1 and ALL not in groups:
        groups[ALL] = table

    rows = []
    for group, part in groups.items():
        counted = part[part["counted"]]
        row: dict[str, Any] = {
            "group": group,
            "tracks": len(counted),
            "median_auroc": counted["auroc"].median(),
            "mean_auroc": counted["auroc"].mean(),
            "median_auprc": counted["auprc"].median(),
            "mean_auprc": counted["auprc"].mean(),
            "n_excluded": len(part) - len(counted),
        }
        for name in others:
            differences = counted[f"delta_{name}"]
            row[f"median_auroc_{name}"] = counted[f"auroc_{name}"].median()
            row[f"median_delta_{name}"] = differences.median()
            significant = differences[discoveries(counted[f"p_{name}"])]
            row[f"better_{name}"] = int((significant > 0).sum())
            row[f"worse_{name}"] = int((significant < 0).sum())

        rows.append(row)

    return pd.DataFrame(rows)
