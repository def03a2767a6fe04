"""Whether the probabilities of tracks hold: as the model gives them, and calibrated."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.calibration.stored import CalibratedTrack, Calibration
from bigbird_dna.console import progress
from bigbird_dna.errors import DataError
from bigbird_dna.genome.chromatin.tracks import Track
from bigbird_dna.metrics.reliability import NO_ROWS, CalibrationMetrics, calibration_metrics
from bigbird_dna.reporting.style import BLUE, ORANGE, PALE, panels, save_figure
from bigbird_dna.reporting.tracks.arrays.array import TrackArray
from bigbird_dna.reporting.tracks.slices import read_slice, slice_bounds

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

RAW, CALIBRATED = "raw", "calibrated"
FIGURES = ("ece", "ece_debiased", "ece_debiased_low", "ece_debiased_high", "ece_perfect", "brier")
_SMALLEST = 1e-4  # of the figure's axes


def calibration_table(
    predictions: TrackArray,
    labels: TrackArray,
    calibration: Calibration,
    tracks: Sequence[Track],
    threads: int = 1,
) -> pd.DataFrame:
    """A row a track: how it was calibrated, and the figures of its probabilities before and after.

    Rows that were not measured in a track are left out of it.

    Raises
    ------
    DataError
        The calibration is of other tracks, a prediction isn't from 0 to 1, or as of `read_slice`.
    """
    import pandas as pd

    names = tuple(track.name for track in tracks)
    for column, (one, name) in enumerate(zip(calibration.tracks, names, strict=False)):
        if one.track != name:
            raise DataError(
                f"{predictions.path}: column {column + 1} is track {name!r}, but that of the calibration is "
                f"{one.track!r}"
            )
    if len(calibration.tracks) != len(names):
        raise DataError(
            f"{predictions.path}: has {len(names):,} tracks, the calibration {len(calibration.tracks):,}"
        )

    def judged(bounds: tuple[int, int]) -> list[dict[str, Any]]:
        read = read_slice([predictions], labels, *bounds, names)
        return [
            _row(
                predictions.path,
                tracks[track],
                calibration.tracks[track],
                read.scores[0][row],
                read.labels[row],
            )
            for row, track in enumerate(range(*bounds))
        ]

    slices = slice_bounds([predictions], labels, threads)
    with ThreadPoolExecutor(threads) as pool:
        parts = progress(pool.map(judged, slices), "judging probabilities", len(slices), "slices of tracks")
        return pd.DataFrame([row for part in parts for row in part])


def _row(
    path: str, track: Track, one: CalibratedTrack, scores: NDArray[Any], labels: NDArray[np.int8]
) -> dict[str, Any]:
    measured = labels >= 0
    y, p = labels[measured], scores[measured].astype(np.float64)
    if not ((p >= 0) & (p <= 1)).all():
        raise DataError(f"{path}: track {track.name!r}: a prediction is not a probability from 0 to 1")
    before, after = _judge(y, p), _judge(y, one.map(p))
    row: dict[str, Any] = {
        "track": track.name,
        "group": track.group,
        "positives": int(y.sum()),
        "negatives": int(len(y) - y.sum()),
        "method": "shared" if one.shared else one.map.method,
        "share_positive": before.share_positive,
    }
    for name, figures in ((RAW, before), (CALIBRATED, after)):
        row[f"mean_{name}"] = figures.mean_probability
        row |= {f"{figure}_{name}": getattr(figures, figure) for figure in FIGURES}
    return row


def _judge(labels: NDArray[np.int8], probabilities: NDArray[np.float64]) -> CalibrationMetrics:
    return calibration_metrics(labels, probabilities) if len(labels) else NO_ROWS


def calibration_figure(table: pd.DataFrame, path: Path) -> None:
    """Left: each track's mean probability and share of positives; right: its error before and after."""
    with panels(1, 2, 4.6, 4.4) as (figure, (left, right)):
        for name, colour, words in (
            (RAW, ORANGE, "as the model gives them"),
            (CALIBRATED, BLUE, "calibrated"),
        ):
            left.plot(
                *_shown(table["share_positive"], table[f"mean_{name}"]), "o", color=colour, markersize=4,
                alpha=0.7, markeredgewidth=0, label=words,
            )  # fmt: skip
        errors = (table[f"ece_{name}"] for name in (RAW, CALIBRATED))
        right.plot(*_shown(*errors), "o", color=BLUE, markersize=4, alpha=0.7, markeredgewidth=0)
        medians = [float(np.nanmedian(table[f"ece_{name}"])) for name in (RAW, CALIBRATED)]
        right.set_title(f"error, median {medians[0]:.3f} → {medians[1]:.3f}")
        left.set_title(f"{len(table):,} tracks")
        left.set(xlabel="share of positives", ylabel="mean probability")
        right.set(xlabel="as the model gives them", ylabel="calibrated")
        left.legend(loc="upper left")
        for axis in (left, right):
            _logarithmic(axis)
        save_figure(figure, path)


def _shown(x: pd.Series[float], y: pd.Series[float]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    kept = x.notna() & y.notna()
    return tuple(np.maximum(column[kept].to_numpy(np.float64), _SMALLEST) for column in (x, y))  # type: ignore[return-value]


def _logarithmic(axis: Axes) -> None:
    """Both axes from the smallest value to 1, with the diagonal."""
    limits = (_SMALLEST * 0.8, 1.2)
    axis.set(xscale="log", yscale="log", xlim=limits, ylim=limits)
    axis.plot(limits, limits, color=PALE, linewidth=1.2, zorder=1)
    axis.set_box_aspect(1)


def median_line(table: pd.DataFrame) -> str:
    """What the page says of the figure, in a sentence."""
    known = table[table["ece_raw"].notna()]
    if known.empty:
        return "No track has a measured row."
    before, after = (float(known[f"ece_{name}"].median()) for name in (RAW, CALIBRATED))
    better = int((known["ece_calibrated"] < known["ece_raw"]).sum())
    text = f"The expected calibration error is smaller for {better:,} of {len(known):,} tracks; its median"
    return f"{text} is {before:.3f} as the model gives its probabilities, and {after:.3f} calibrated."
