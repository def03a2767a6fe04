"""Calibration of promoter models, on the validation windows among their predictions."""

import math
from pathlib import Path
from typing import Any

import pandas as pd

from bigbird_dna.calibration.fitting import LEAST, fit_map
from bigbird_dna.calibration.stored import Calibration, Finish
from bigbird_dna.config import CalibrationMethod
from bigbird_dna.console import log
from bigbird_dna.errors import DataError
from bigbird_dna.model.directory import load_promoter_model
from bigbird_dna.reporting.metrics.reliability import calibration_metrics
from bigbird_dna.reporting.promoters.predictions import KEY, POSITIVE, Judged, read_predictions
from bigbird_dna.tasks.calibrating import described, find_target, install_calibration

PREDICTIONS = "predictions.parquet"
RAW, CALIBRATED = "raw", "calibrated"
_MOST_CONTIGS = 50  # that the file names


def fit_predictions(predictions: pd.DataFrame, method: CalibrationMethod) -> Calibration | None:
    """The calibration that the validation rows among predictions ask for; None if they are too few.

    Their further negatives count too, and all negatives together as much as without these.
    """
    predictions = predictions.sort_values(KEY, kind="stable")  # as a file is read: sums have the same digits
    rows = predictions[predictions["split"] == "valid"]
    judged = Judged.of(predictions, "valid")
    fitted = fit_map(judged.labels, judged.probabilities, method, judged.negative_weight)
    if fitted is None:
        return None
    contigs = sorted(set(map(str, rows["contig"].unique())))
    sets = sorted(set(map(str, rows["negative_set"].unique())) - {POSITIVE})
    fitted_on = {
        "split": "valid",
        "windows": len(rows),
        "contigs": contigs if len(contigs) <= _MOST_CONTIGS else len(contigs),
        "negative_sets": sets,
        "method": method,
    }
    if judged.further:
        fitted_on["further_negatives"] = judged.further
    return Calibration.of({None: fitted}, fitted_on)


def calibration_figures(predictions: pd.DataFrame, calibration: Calibration | None) -> dict[str, Any]:
    """How well probabilities of the test windows hold, as they are and calibrated; {} without such windows.

    JSON has no NaN: a figure that is not defined is null.
    """
    rows = Judged.of(predictions, "test")
    if not len(rows.labels):
        return {}
    versions: dict[str, Finish | None] = {RAW: None}
    if calibration is not None:
        versions[CALIBRATED] = calibration
    found = {}
    for name, finish in versions.items():
        figures = calibration_metrics(
            rows.labels,
            rows.probabilities if finish is None else finish(rows.probabilities),
            groups=rows.pairs,
            negative_weight=rows.negative_weight,
        )
        found[name] = {key: None if math.isnan(one) else one for key, one in figures._asdict().items()}
    return {"calibration": found}


def calibrate_promoter(
    path: Path,
    output: Path | None = None,
    *,
    predictions: Path | None = None,
    method: CalibrationMethod = "auto",
) -> Calibration:
    """Fit a promoter model's calibration to its validation windows, and store it in the model's directory.

    Parameters
    ----------
    output
        A directory for the model with its calibration; None: `path` itself, which gets `calibration.json`.
    predictions
        The model's predictions of held-out windows (Parquet); None: `predictions.parquet` of its directory.
    method
        See `fit_map`.

    Raises
    ------
    UsageError
        `output` can't be written, or is None for a model that comes with the package.
    ModelError
        As of `bigbird_dna.model.directory.load`.
    DataError
        The predictions can't be read, are of another negative set than the model, or have fewer than 10
        promoters or negatives of split "valid".
    """
    found = find_target(path, output)
    model = load_promoter_model(found)
    source = found / PREDICTIONS if predictions is None else predictions
    rows = read_predictions(source, "valid", further=True)
    negative_set = model.settings.negative_set
    for name in sorted(set(map(str, rows["negative_set"].unique())) - {POSITIVE}):
        if negative_set is not None and name != negative_set:
            raise DataError(
                f"{source}: holds negative set {name!r}, the model tells promoters from {negative_set!r}"
            )
    calibration = fit_predictions(rows, method)
    if calibration is None:
        raise DataError(f"{source}: {too_few(rows)}")
    install_calibration(model, calibration, output)
    windows = f"{int((rows['split'] == 'valid').sum()):,} validation windows"
    if further := calibration.fitted_on.get("further_negatives"):
        windows += f" and {further:,} further negatives"
    log(f"{found if output is None else output}: calibrated on {windows} ({described(calibration)})")
    return calibration


def too_few(predictions: pd.DataFrame) -> str:
    """Why predictions can't be calibrated."""
    rows = predictions[predictions["split"] == "valid"]
    positives = int(rows["label"].sum())
    return (
        f"{positives:,} promoters and {len(rows) - positives:,} negatives of split 'valid' are too few to "
        f"calibrate on: {LEAST} of each are needed"
    )
