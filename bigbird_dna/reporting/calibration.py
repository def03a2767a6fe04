"""Calibration of promoter and track probabilities, before and after the model's calibration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bigbird_dna.calibration.maps import (
    FILE,
    CalibratedTrack,
    Calibration,
    read_calibration,
)
from bigbird_dna.console import progress
from bigbird_dna.data.predictions import CalibrationRows, read_predictions
from bigbird_dna.disk.atomic import checksum
from bigbird_dna.disk.tables import Schema
from bigbird_dna.errors import DataError
from bigbird_dna.genome.chromatin.tracks import Track
from bigbird_dna.metrics.auroc import Z95, Floats
from bigbird_dna.metrics.reliability import (
    calibration_metrics,
    reliability,
    rising_curve,
)
from bigbird_dna.reporting.arrays import TrackArray
from bigbird_dna.reporting.result import (
    BLUE,
    ORANGE,
    PALE,
    interval,
    panels,
    save_figure,
    square_panel,
)
from bigbird_dna.reporting.track_evaluation import read_slice, slice_bounds

if TYPE_CHECKING:
    from matplotlib.axes import Axes


RAW, CALIBRATED = "raw", "calibrated"
STYLES = {RAW: ("uncalibrated", ORANGE), CALIBRATED: ("calibrated", BLUE)}
_WEIGHTS = "model.safetensors"

PROMOTER_CALIBRATION = Schema.of(
    "text negative_set probabilities; count n positives; metric ece; estimate ece_debiased",
    "metric ece_expected_if_calibrated; estimate brier",
    "metric miscalibration discrimination uncertainty mean_probability share_positive",
    key=["negative_set", "probabilities"],
)

_ECE = ("ece", "ece_debiased", "ece_debiased_low", "ece_debiased_high")
METRICS = (*_ECE, "ece_expected_if_calibrated", "brier")
TRACK_CALIBRATION = Schema.of(
    "text track group; count positives negatives; text method; metric share_positive",
    *(
        f"metric {one}_{name}"
        for name in (RAW, CALIBRATED)
        for one in ("mean", *METRICS)
    ),
    key=["track"],
)
_SMALLEST = 1e-4  # lower limit of the axes


class SetProbabilities(NamedTuple):
    """Test windows of a negative set, with probabilities (N,) by `RAW` and, if available, `CALIBRATED`.

    Extra negatives are included if the predictions have any.
    """

    negative_set: str
    labels: NDArray[np.int64]  # (N,)
    blocks: NDArray[np.int64]  # (N,)
    negative_weight: float
    probabilities: Mapping[str, Floats]


def read_probabilities(negative_set: str, predictions: Path) -> SetProbabilities:
    """Read the model's probabilities, and calibrate them if `calibration.json` is in the same directory.

    `ModelError`: that file is damaged, or belongs to other weights than those in the directory.
    """
    rows, beside = (
        CalibrationRows.of(read_predictions(predictions, further=True), "test"),
        predictions.parent,
    )
    raw = rows.probabilities
    versions: dict[str, Floats] = {RAW: raw}
    if (beside / FILE).is_file():
        weights = checksum(beside / _WEIGHTS) if (beside / _WEIGHTS).is_file() else None
        versions[CALIBRATED] = read_calibration(beside / FILE, weights)(raw).astype(
            np.float64
        )
    return SetProbabilities(
        negative_set, rows.labels, rows.blocks, rows.negative_weight, versions
    )


def promoter_calibration_table(held: Sequence[SetProbabilities]) -> pd.DataFrame:
    """Return one row per negative set and kind of probabilities, with `calibration_metrics`."""
    rows = []
    for one in held:
        weighting: dict[str, Any] = {
            "blocks": one.blocks,
            "negative_weight": one.negative_weight,
        }
        for name, values in one.probabilities.items():
            found = calibration_metrics(one.labels, values, **weighting)
            rows.append(
                (one.negative_set, name, len(values), int(one.labels.sum()), *found)
            )
    return pd.DataFrame(rows, columns=PROMOTER_CALIBRATION.names)


def promoter_calibration_figure(
    held: Sequence[SetProbabilities], table: pd.DataFrame, path: Path
) -> None:
    """Draw reliability curves; legends give the expected calibration error from `table`.

    The line is the isotonic (non-decreasing) least-squares fit. Points are bins, with the 95 % interval of
    the fraction of promoters.
    """
    with panels(1, len(held), 4.1, 4.9) as (figure, axes):
        for axis, one in zip(axes, held, strict=True):
            axis.plot([0, 1], [0, 1], color=PALE, linewidth=1.2, zorder=1)
            rows = table[table["negative_set"] == one.negative_set].set_index(
                "probabilities"
            )
            for name in one.probabilities:
                columns = ["ece_debiased", "ece_debiased_low", "ece_debiased_high"]
                error = interval(*map(float, rows.loc[name, columns]))
                _draw_reliability(axis, one, name, error)
            axis.set(xlabel="probability", ylabel="fraction of promoters")
            counts = f"n = {len(one.labels):,}"
            square_panel(
                axis,
                f"{one.negative_set} negatives",
                counts,
                "calibration error [95 % CI]",
            )
        save_figure(figure, path)


def _draw_reliability(axis: Axes, one: SetProbabilities, name: str, error: str) -> None:
    legend, color = STYLES[name]
    values = one.probabilities[name]
    curve = reliability(one.labels, values, negative_weight=one.negative_weight)
    order, best = (
        np.argsort(values, kind="stable"),
        rising_curve(one.labels, values, one.negative_weight),
    )
    axis.plot(values[order], best[order], color=color, linewidth=1.1, alpha=0.6)
    spread = Z95 * curve.spread
    low, high = (
        np.minimum(spread, curve.fraction),
        np.minimum(spread, 1 - curve.fraction),
    )
    axis.errorbar(
        curve.probability, curve.fraction, yerr=np.stack([low, high]), fmt="o", markersize=4, elinewidth=1,
        color=color, label=f"{legend}  {error}",
    )  # fmt: skip


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
    for column, (one, name) in enumerate(zip(calibration.tracks, names, strict=False)):
        if one.track != name:
            raise DataError(
                f"{predictions.path}: column {column + 1} is track {name!r}, but the calibration has "
                f"{one.track!r}"
            )
    if len(calibration.tracks) != len(names):
        raise DataError(
            f"{predictions.path}: {len(names):,} tracks, but the calibration has {len(calibration.tracks):,}"
        )

    def evaluated(bounds: tuple[int, int]) -> list[dict[str, Any]]:
        read = read_slice([predictions], labels, *bounds, names)
        return [
            _row(
                predictions.path, tracks[track], calibration.tracks[track], scores, own
            )
            for track, scores, own in zip(
                range(*bounds), read.scores[0], read.labels, strict=True
            )
        ]

    slices = slice_bounds([predictions], labels, threads)
    with ThreadPoolExecutor(threads) as pool:
        found = pool.map(evaluated, slices)
        parts = progress(
            found, "evaluating probabilities", len(slices), "slices of tracks"
        )
        return pd.DataFrame([row for part in parts for row in part])


def _row(
    path: str,
    track: Track,
    one: CalibratedTrack,
    scores: NDArray[Any],
    labels: NDArray[np.int8],
) -> dict[str, Any]:
    measured = labels >= 0
    y, p = labels[measured], scores[measured].astype(np.float64)
    if not ((p >= 0) & (p <= 1)).all():
        raise DataError(
            f"{path}: track {track.name!r}: predictions must be probabilities from 0 to 1"
        )
    before, after = (calibration_metrics(y, values) for values in (p, one.map(p)))
    method, positives = "shared" if one.shared else one.map.method, int(y.sum())
    metrics = (
        getattr(found, name)
        for found in (before, after)
        for name in ("mean_probability", *METRICS)
    )
    row = (
        track.name,
        track.group,
        positives,
        len(y) - positives,
        method,
        before.share_positive,
        *metrics,
    )
    return dict(zip(TRACK_CALIBRATION.names, row, strict=True))


def track_calibration_figure(table: pd.DataFrame, path: Path) -> None:
    """Draw each track's mean probability and fraction of positives, and its error before and after."""
    with panels(1, 2, 4.6, 4.4) as (figure, (left, right)):
        for name, (legend, color) in STYLES.items():
            left.plot(
                *_shown(table["share_positive"], table[f"mean_{name}"]), "o", color=color, markersize=4,
                alpha=0.7, markeredgewidth=0, label=legend,
            )  # fmt: skip
        errors = (table[f"ece_{name}"] for name in (RAW, CALIBRATED))
        right.plot(
            *_shown(*errors),
            "o",
            color=BLUE,
            markersize=4,
            alpha=0.7,
            markeredgewidth=0,
        )
        medians = [
            float(np.nanmedian(table[f"ece_{name}"])) for name in (RAW, CALIBRATED)
        ]
        right.set_title(f"Error, median {medians[0]:.3f} → {medians[1]:.3f}")
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
            axis.plot(limits, limits, color=PALE, linewidth=1.2, zorder=1)
            axis.set_box_aspect(1)
        save_figure(figure, path)


def _shown(
    x: pd.Series[float], y: pd.Series[float]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    kept = x.notna() & y.notna()
    return tuple(
        np.maximum(column[kept].to_numpy(np.float64), _SMALLEST) for column in (x, y)
    )  # type: ignore[return-value]


def median_line(table: pd.DataFrame) -> str:
    """Return a sentence that summarizes the plot, for the page."""
    known = table[table["ece_raw"].notna()]
    if known.empty:
        return "No track has measured rows."
    before, after = (float(known[f"ece_{name}"].median()) for name in (RAW, CALIBRATED))
    better = int((known["ece_calibrated"] < known["ece_raw"]).sum())
    text = f"The expected calibration error is smaller for {better:,} of {len(known):,} tracks; its median"
    return (
        f"{text} is {before:.3f} before calibration and {after:.3f} after calibration."
    )
