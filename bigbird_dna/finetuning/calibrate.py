"""Fit calibration maps of promoter and chromatin models."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bigbird_dna.calibration.fitting import LEAST, fit_map, fit_tracks
from bigbird_dna.calibration.maps import FILE, Calibration, write_calibration
from bigbird_dna.config.chromatin import ChromatinConfig
from bigbird_dna.config.section import CalibrationMethod
from bigbird_dna.console import log
from bigbird_dna.data.chromatin import sample
from bigbird_dna.data.predictions import (
    KEY,
    blocks_of,
    negative_sets_of,
    read_predictions,
)
from bigbird_dna.errors import DataError, check_at_least_one
from bigbird_dna.finetuning.evaluation import predict_bins, without_nan
from bigbird_dna.genome.chromatin.dataset import read_dataset
from bigbird_dna.genome.reference import Reference
from bigbird_dna.metrics.reliability import calibration_metrics
from bigbird_dna.model.catalog import changed_file, find_target
from bigbird_dna.model.directory import load_chromatin_model, load_promoter_model
from bigbird_dna.model.model import LoadedModel

PREDICTIONS = "predictions.parquet"
RAW, CALIBRATED = "raw", "calibrated"
_MOST_CONTIGS = 50  # contigs listed by name in the file; above this, only their number


def fit_predictions(
    predictions: pd.DataFrame, method: CalibrationMethod
) -> Calibration | None:
    """Return the calibration fitted to the validation rows of `predictions`; None if a class has too few."""
    predictions = predictions.sort_values(
        KEY, kind="stable"
    )  # order of a file, for the same rounding
    rows = predictions[predictions["split"] == "valid"]
    fitted = fit_map(rows["label"], rows["probability"], method)
    if fitted is None:
        return None

    contigs = sorted(set(map(str, rows["contig"].unique())))
    fitted_on = {
        "split": "valid",
        "windows": len(rows),
        "contigs": contigs if len(contigs) <= _MOST_CONTIGS else len(contigs),
        "negative_sets": negative_sets_of(rows),
        "method": method,
    }
    return Calibration.of({None: fitted}, fitted_on)


def calibration_metrics_of(
    predictions: pd.DataFrame, calibration: Calibration | None
) -> dict[str, Any]:
    """Return calibration metrics of the raw and calibrated test probabilities; {} without test windows."""
    rows = predictions[predictions["split"] == "test"]
    if rows.empty:
        return {}

    probs = rows["probability"].to_numpy(np.float64)
    versions: dict[str, Calibration | None] = {RAW: None}
    if calibration is not None:
        versions[CALIBRATED] = calibration

    by_version = {}
    for name, finish in versions.items():
        metrics = calibration_metrics(
            rows["label"],
            probs if finish is None else finish(probs),
            blocks=blocks_of(rows),
        )
        by_version[name] = without_nan(metrics._asdict())

    return {"calibration": by_version}


def too_few(predictions: pd.DataFrame) -> str:
    """Return the reason why predictions cannot be calibrated."""
    rows = predictions[predictions["split"] == "valid"]
    positives = int(rows["label"].sum())
    return (
        f"split 'valid' contains {positives:,} promoters and {len(rows) - positives:,} negatives; "
        f"calibration needs at least {LEAST} of each"
    )


def calibrate_promoter(
    path: Path,
    output: Path | None = None,
    *,
    predictions: Path | None = None,
    method: CalibrationMethod = "auto",
) -> Calibration:
    """Fit a promoter model's calibration to its validation windows, and store it in the model's directory.

    `output` is a directory for a calibrated copy of the model; None: change `path` itself. `predictions` is a
    Parquet file of the model's held-out predictions; None: the file in its directory. Raises `DataError` if
    its negative set is not the model's, or if split "valid" has fewer than 10 promoters or negatives.
    """
    target = find_target(path, output)
    model = load_promoter_model(target)
    source = target / PREDICTIONS if predictions is None else predictions
    rows = read_predictions(source, "valid")
    negative_set = model.settings.negative_set
    for name in negative_sets_of(rows):
        if negative_set is not None and name != negative_set:
            raise DataError(
                f"{source}: expected the model's negative set {negative_set!r}, found {name!r}"
            )

    calibration = fit_predictions(rows, method)
    if calibration is None:
        raise DataError(f"{source}: {too_few(rows)}")

    windows = f"on {len(rows):,} validation windows"
    return _install(model, calibration, output, windows)


def calibrate_chromatin(
    config: ChromatinConfig,
    path: Path,
    output: Path | None = None,
    *,
    data: Path,
    reference: Path,
    batch_size: int = 16,
    device: str = "auto",
) -> Calibration:
    """Predict validation bins with a chromatin model, fit one map per track, and store them with the model.

    `output` is as in `calibrate_promoter`; `data` is the data set that the model was trained on. Raises
    `DataError` if there are no validation bins, or too few positives in all tracks together.
    """
    check_at_least_one({"batch_size": batch_size})
    target = find_target(path, output)
    bins, settings, center_fraction = (
        read_dataset(data),
        config.calibration,
        config.evaluation.center_fraction,
    )
    rows = bins.rows("valid")
    if not len(rows):
        raise DataError(f"{data}: contains no validation bins; calibration needs them")

    if settings.bins:
        rows = sample(rows, settings.bins, (config.evaluation.seed, 9))

    model = load_chromatin_model(target)
    log(
        f"{target}: predicting {len(rows):,} validation bins of {len(bins.tracks):,} tracks"
    )
    genome = Reference(reference)
    values = predict_bins(
        [model],
        bins,
        genome,
        rows,
        center_fraction=center_fraction,
        batch_size=batch_size,
        device=device,
    )
    labels = bins.labels.rows(rows)
    fitted = fit_tracks(labels, values, settings.method)
    if fitted is None:
        raise DataError(
            f"{data}: contains {int(labels.sum()):,} positives in {len(rows):,} validation bins over all "
            f"tracks; calibration needs at least {LEAST}"
        )

    fitted_on = {
        "split": "valid",
        "bins": len(rows),
        "contigs": sorted(set(bins.bins["contig"].iloc[rows].astype(str))),
        "center_fraction": center_fraction,
        "method": settings.method,
    }
    names = [track.name for track in bins.tracks]
    calibration = Calibration.of(dict(zip(names, fitted, strict=True)), fitted_on)
    return _install(model, calibration, output, f"{len(names):,} tracks")


def _install(
    model: LoadedModel, calibration: Calibration, output: Path | None, what: str
) -> Calibration:
    """Write a calibration atomically into the model's directory or a copy of it, and log it."""
    assert model.path is not None
    with changed_file(model.path, FILE, output) as directory:
        write_calibration(directory, calibration, model.sha256)

    methods = [one.map.method for one in calibration.tracks if not one.shared]
    counts = [
        f"{methods.count(name):,} {name}"
        for name in ("isotonic", "platt")
        if name in methods
    ]
    if shared := len(calibration.tracks) - len(methods):
        counts.append(f"{shared:,} with one common map: too few positives or negatives")

    log(f"{output or model.path}: calibrated {what} ({', '.join(counts)})")
    return calibration
