"""Calibration of promoter and track probabilities, before and after the model's calibration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from bigbird_dna.calibration.maps import FILE, Calibration, read_calibration
from bigbird_dna.console import progress
from bigbird_dna.data.predictions import blocks_of, read_predictions
from bigbird_dna.disk.atomic import checksum
from bigbird_dna.errors import DataError
from bigbird_dna.genome.chromatin.track import Track
from bigbird_dna.metrics.auroc import Z95, Floats
from bigbird_dna.metrics.reliability import calibration_metrics, reliability
from bigbird_dna.reporting.arrays import TrackArray
from bigbird_dna.reporting.pages import add_diagonal, write_figure
from bigbird_dna.reporting.track_evaluation import (
    check_names,
    read_slice,
    slice_bounds,
)

RAW, CALIBRATED = "raw", "calibrated"

METRICS = [
    "ece",
    "ece_expected_if_calibrated",
    "brier",
]
"""Metrics of each kind of probability in `track_calibration.tsv`."""


class SetProbabilities(NamedTuple):
    """Test windows of a negative set, with probabilities (N,) by `RAW` and, if available, `CALIBRATED`."""

    negative_set: str
    rows: pd.DataFrame
    probabilities: Mapping[str, Floats]


def read_probabilities(negative_set: str, predictions: Path) -> SetProbabilities:
    """Read the model's probabilities, and calibrate them if `calibration.json` is in the same directory.

    `ModelError`: that file is damaged, or belongs to other weights than those in the directory.
    """
    rows = read_predictions(predictions)
    raw = rows["probability"].to_numpy(np.float64)
    probabilities = {RAW: raw}
    file = predictions.parent / FILE
    if file.is_file():
        weights = predictions.parent / "model.safetensors"
        sha256 = checksum(weights) if weights.is_file() else None
        calibrated = read_calibration(file, sha256)(raw)
        probabilities[CALIBRATED] = calibrated.astype(np.float64)
    return SetProbabilities(negative_set, rows, probabilities)


def promoter_calibration_table(sets: Sequence[SetProbabilities]) -> pd.DataFrame:
    """Return one row per negative set and kind of probabilities, with `calibration_metrics`."""
    table = []
    for negative_set, rows, probabilities in sets:
        for name, values in probabilities.items():
            labels = rows["label"].to_numpy()
            metrics = calibration_metrics(labels, values, blocks=blocks_of(rows))
            row = {
                "negative_set": negative_set,
                "probabilities": name,
                "n": len(values),
                "positives": int(labels.sum()),
            }
            table.append(row | metrics._asdict())
    return pd.DataFrame(table)


def promoter_calibration_figure(sets: Sequence[SetProbabilities], path: Path) -> None:
    """Draw the fraction of promoters in bins of probability, with its 95 % interval."""
    import plotly.express as px

    tables = []
    for negative_set, rows, probabilities in sets:
        for name, values in probabilities.items():
            curve = reliability(rows["label"].to_numpy(), values)
            points = {
                "negatives": negative_set,
                "probabilities": name,
                "probability": curve.probability,
                "fraction of promoters": curve.fraction,
                "half": Z95 * curve.spread,
            }
            tables.append(pd.DataFrame(points))
    figure = px.scatter(
        pd.concat(tables),
        x="probability",
        y="fraction of promoters",
        error_y="half",
        color="probabilities",
        facet_col="negatives",
        range_x=[-0.02, 1.02],
        range_y=[-0.02, 1.02],
        height=480,
    )
    add_diagonal(figure)
    write_figure(figure, path, panels=len(sets))


def track_calibration_table(
    predictions: TrackArray,
    labels: TrackArray,
    calibration: Calibration,
    tracks: Sequence[Track],
    threads: int = 1,
) -> pd.DataFrame:
    """Return one row per track: calibration method, and metrics of its measured rows before and after.

    `DataError`: the calibration has other tracks, a prediction is not in [0, 1], or as for `read_slice`.
    """
    names = tuple(track.name for track in tracks)
    known = [str(one.track) for one in calibration.tracks]
    check_names(predictions.path, names, "the calibration", known)

    def evaluate(bounds: tuple[int, int]) -> list[dict[str, Any]]:
        (scores_of_tracks,), coded, _ = read_slice(
            [predictions], labels, *bounds, names
        )
        rows = []
        for track, scores, y in zip(
            range(*bounds), scores_of_tracks, coded, strict=True
        ):
            measured = y >= 0
            y, p = y[measured], scores[measured].astype(np.float64)
            if not ((p >= 0) & (p <= 1)).all():
                raise DataError(
                    f"{predictions.path}: track {names[track]!r}: predictions must be probabilities from 0 "
                    "to 1"
                )
            of_track = calibration.tracks[track]
            raw = calibration_metrics(y, p)
            calibrated = calibration_metrics(y, of_track.map(p))
            row = {
                "track": names[track],
                "group": tracks[track].group,
                "positives": int(y.sum()),
                "negatives": int((y == 0).sum()),
                "method": "shared" if of_track.shared else of_track.map.method,
                "share_positive": raw.share_positive,
            }
            for name, metrics in ((RAW, raw), (CALIBRATED, calibrated)):
                row[f"mean_{name}"] = metrics.mean_probability
                for metric in METRICS:
                    row[f"{metric}_{name}"] = getattr(metrics, metric)
            rows.append(row)
        return rows

    slices = slice_bounds([predictions], labels, threads)
    with ThreadPoolExecutor(threads) as pool:
        evaluated = pool.map(evaluate, slices)
        counted = len(slices), "slices of tracks"
        parts = [*progress(evaluated, "evaluating probabilities", *counted)]
    rows = [row for part in parts for row in part]
    return pd.DataFrame(rows)
