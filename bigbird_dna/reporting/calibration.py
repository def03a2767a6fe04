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
from bigbird_dna.data.predictions import CalibrationRows, read_predictions
from bigbird_dna.disk.atomic import checksum
from bigbird_dna.errors import DataError
from bigbird_dna.genome.chromatin.track import Track
from bigbird_dna.metrics.auroc import ENDS, Z95, Floats
from bigbird_dna.metrics.reliability import (
    calibration_metrics,
    reliability,
    rising_curve,
)
from bigbird_dna.reporting.arrays import TrackArray
from bigbird_dna.reporting.result import (
    BLUE,
    CHANCE,
    ORANGE,
    interval,
    panels,
    save_figure,
    square_panel,
)
from bigbird_dna.reporting.track_evaluation import (
    check_names,
    read_slice,
    slice_bounds,
)

RAW, CALIBRATED = "raw", "calibrated"
STYLES = {RAW: ("uncalibrated", ORANGE), CALIBRATED: ("calibrated", BLUE)}

PROMOTER_CALIBRATION = [
    "negative_set",
    "probabilities",
    "n",
    "positives",
    "ece",
    "ece_debiased",
    "ece_debiased_low",
    "ece_debiased_high",
    "ece_expected_if_calibrated",
    "brier",
    "brier_low",
    "brier_high",
    "miscalibration",
    "discrimination",
    "uncertainty",
    "mean_probability",
    "share_positive",
]

_ECE = ("ece", "ece_debiased", "ece_debiased_low", "ece_debiased_high")
METRICS = (*_ECE, "ece_expected_if_calibrated", "brier")
TRACK_CALIBRATION = [
    "track",
    "group",
    "positives",
    "negatives",
    "method",
    "share_positive",
    "mean_raw",
    "ece_raw",
    "ece_debiased_raw",
    "ece_debiased_low_raw",
    "ece_debiased_high_raw",
    "ece_expected_if_calibrated_raw",
    "brier_raw",
    "mean_calibrated",
    "ece_calibrated",
    "ece_debiased_calibrated",
    "ece_debiased_low_calibrated",
    "ece_debiased_high_calibrated",
    "ece_expected_if_calibrated_calibrated",
    "brier_calibrated",
]
_SMALLEST = 1e-4  # lower limit of the axes


class SetProbabilities(NamedTuple):
    """Test windows of a negative set, with probabilities (N,) by `RAW` and, if available, `CALIBRATED`.

    Extra negatives are included if the predictions have any.
    """

    negative_set: str
    rows: CalibrationRows
    probabilities: Mapping[str, Floats]


def read_probabilities(negative_set: str, predictions: Path) -> SetProbabilities:
    """Read the model's probabilities, and calibrate them if `calibration.json` is in the same directory.

    `ModelError`: that file is damaged, or belongs to other weights than those in the directory.
    """
    rows = CalibrationRows.of(read_predictions(predictions, further=True), "test")
    probabilities = {RAW: rows.probabilities}
    file = predictions.parent / FILE
    if file.is_file():
        weights = predictions.parent / "model.safetensors"
        sha256 = checksum(weights) if weights.is_file() else None
        calibrated = read_calibration(file, sha256)(rows.probabilities)
        probabilities[CALIBRATED] = calibrated.astype(np.float64)
    return SetProbabilities(negative_set, rows, probabilities)


def promoter_calibration_table(sets: Sequence[SetProbabilities]) -> pd.DataFrame:
    """Return one row per negative set and kind of probabilities, with `calibration_metrics`."""
    table = []
    for negative_set, rows, probabilities in sets:
        for name, values in probabilities.items():
            metrics = calibration_metrics(
                rows.labels,
                values,
                blocks=rows.blocks,
                negative_weight=rows.negative_weight,
            )
            counts = len(values), int(rows.labels.sum())
            table.append((negative_set, name, *counts, *metrics))
    return pd.DataFrame(table, columns=PROMOTER_CALIBRATION)


def promoter_calibration_figure(
    sets: Sequence[SetProbabilities], table: pd.DataFrame, path: Path
) -> None:
    """Draw reliability curves; legends give the expected calibration error from `table`.

    The line is the isotonic (non-decreasing) least-squares fit. Points are bins, with the 95 % interval of
    the fraction of promoters.
    """
    errors = table.set_index(["negative_set", "probabilities"])
    errors = errors[[f"ece_debiased{end}" for end in ENDS]]
    with panels(1, len(sets), 4.1, 4.9) as (figure, axes):
        for axis, (negative_set, rows, probabilities) in zip(axes, sets, strict=True):
            axis.axline((0, 0), slope=1, **CHANCE)
            for name, values in probabilities.items():
                legend, color = STYLES[name]
                weight = rows.negative_weight
                order = np.argsort(values, kind="stable")
                fit = rising_curve(rows.labels, values, weight)
                axis.plot(
                    values[order], fit[order], color=color, linewidth=1.1, alpha=0.6
                )
                error: Any = errors.loc[(negative_set, name)]
                curve = reliability(rows.labels, values, negative_weight=weight)
                y, half = curve.fraction, Z95 * curve.spread
                axis.errorbar(
                    curve.probability,
                    y,
                    yerr=np.minimum(half, [y, 1 - y]),
                    fmt="o",
                    markersize=4,
                    elinewidth=1,
                    color=color,
                    label=f"{legend}  {interval(*error)}",
                )
            axis.set(xlabel="probability", ylabel="fraction of promoters")
            title, counts = f"{negative_set} negatives", f"n = {len(rows.labels):,}"
            square_panel(axis, title, counts, "calibration error [95 % CI]")
        save_figure(figure, path)


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
    calibrated = [str(one.track) for one in calibration.tracks]
    check_names(predictions.path, names, "the calibration", calibrated)

    def evaluate(bounds: tuple[int, int]) -> list[tuple[Any, ...]]:
        read = read_slice([predictions], labels, *bounds, names)
        rows = []
        for track, scores, y in zip(
            range(*bounds), read.scores[0], read.labels, strict=True
        ):
            measured = y >= 0
            y, p = y[measured], scores[measured].astype(np.float64)
            if not ((p >= 0) & (p <= 1)).all():
                raise DataError(
                    f"{predictions.path}: track {names[track]!r}: predictions must be probabilities from 0 "
                    "to 1"
                )
            one, positives = calibration.tracks[track], int(y.sum())
            method = "shared" if one.shared else one.map.method
            row = [names[track], tracks[track].group, positives, len(y) - positives]
            row += [method, calibration_metrics(y, p).share_positive]
            for values in (p, one.map(p)):
                metrics = calibration_metrics(y, values)._asdict()
                row += [metrics["mean_probability"], *(metrics[m] for m in METRICS)]
            rows.append(tuple(row))
        return rows

    slices = slice_bounds([predictions], labels, threads)
    with ThreadPoolExecutor(threads) as pool:
        evaluated = pool.map(evaluate, slices)
        counted = len(slices), "slices of tracks"
        parts = [*progress(evaluated, "evaluating probabilities", *counted)]
    rows = [row for part in parts for row in part]
    return pd.DataFrame(rows, columns=TRACK_CALIBRATION)


def track_calibration_figure(table: pd.DataFrame, path: Path) -> None:
    """Draw each track's mean probability and fraction of positives, and its error before and after."""
    look: Any = {"markersize": 4, "alpha": 0.7, "markeredgewidth": 0}
    numbers = table.select_dtypes("number").clip(lower=_SMALLEST)
    with panels(1, 2, 4.6, 4.4) as (figure, (left, right)):
        x = numbers["share_positive"]
        for name, (legend, color) in STYLES.items():
            y = numbers[f"mean_{name}"]
            left.plot(x, y, "o", color=color, label=legend, **look)
        right.plot(
            numbers["ece_raw"], numbers["ece_calibrated"], "o", color=BLUE, **look
        )
        before, after = table["ece_raw"].median(), table["ece_calibrated"].median()
        right.set_title(f"Error, median {before:.3f} → {after:.3f}")
        left.set_title(f"Probabilities of {len(table):,} tracks")
        left.set(xlabel="fraction of positives", ylabel="mean probability")
        right.set(
            xlabel="calibration error, uncalibrated",
            ylabel="calibration error, calibrated",
        )
        left.legend(loc="upper left")
        limits = (_SMALLEST * 0.8, 1.2)
        for axis in (left, right):
            axis.set(xscale="log", yscale="log", xlim=limits, ylim=limits)
            axis.plot(limits, limits, **CHANCE)
            axis.set_box_aspect(1)
        save_figure(figure, path)


def median_line(table: pd.DataFrame) -> str:
    """Return a sentence that summarizes the plot, for the page."""
    rows = table[table["ece_raw"].notna()]
    if rows.empty:
        return "No track has measured rows."
    before, after = rows["ece_raw"], rows["ece_calibrated"]
    return (
        f"The expected calibration error is smaller for {(after < before).sum():,} of {len(rows):,} tracks; "
        f"its median is {before.median():.3f} before calibration and {after.median():.3f} after calibration."
    )
