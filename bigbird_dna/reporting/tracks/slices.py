"""Tracks of predictions and labels, gathered from files that hold rows, and checked.

N rows, C tracks of a slice. A file in row order is read once a slice: single tracks of it would
each cost the time of reading it all.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.errors import DataError
from bigbird_dna.reporting.tracks.arrays.array import TrackArray

# All slices in work at one time take about this many bytes.
MEMORY = 1 << 30
# A label that says the row was not measured in this track; NaN says it too.
UNMEASURED = -1


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

    Raises
    ------
    DataError
        A prediction is NaN where the label was measured, or a label is not one of 0, 1, -1 and NaN; the text
        has file, row (from 1) and track.
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
    """Scores of a slice, whose labels are `coded` (C, N); how many of a track are infinite is added to
    `infinite` (C,)."""
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
