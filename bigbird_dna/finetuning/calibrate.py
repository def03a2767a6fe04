"""Fit calibration maps and thresholds of a trained model.

A calibration's place: the directory of its model, or a copy of that.

Calibration of promoter models, on the validation windows among their predictions.

Calibration of chromatin models, track by track, on a sample of the validation bins.

Thresholds of promoter scores for wanted false-discovery rates, as `evaluate promoter-threshold` writes them.
"""

import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from bigbird_dna.calibration.fitting import LEAST, fit_map, fit_tracks
from bigbird_dna.calibration.maps import Floats
from bigbird_dna.calibration.stored import FILE, Calibration, Finish, write_calibration
from bigbird_dna.calibration.thresholds import FEW, Threshold, ThresholdCurve, threshold_curve
from bigbird_dna.config import CalibrationMethod, ChromatinConfig
from bigbird_dna.console import log
from bigbird_dna.data.chromatin import sample
from bigbird_dna.data.predictions import KEY, POSITIVE, CalibrationRows, read_predictions
from bigbird_dna.disk.atomic import checksum
from bigbird_dna.disk.directories import atomic_directory, check_directory, into_directory
from bigbird_dna.disk.outputs import (
    check_output,
    command_line,
    open_text,
    provenance,
    provenance_lines,
    text_destination,
)
from bigbird_dna.errors import DataError, UsageError, check_at_least_one, check_fraction
from bigbird_dna.finetuning.evaluation import predict_bins
from bigbird_dna.genome.chromatin.dataset import read_dataset
from bigbird_dna.genome.reference import Reference
from bigbird_dna.metrics.reliability import calibration_metrics
from bigbird_dna.model.catalogue import find_model
from bigbird_dna.model.directory import load_chromatin_model, load_promoter_model
from bigbird_dna.model.model import LoadedModel, calibration_of, check_calibrated, list_files


def find_target(given: Path, output: Path | None) -> Path:
    """The directory of a model that is to be calibrated.

    Raises
    ------
    UsageError
        `output` can't be written; or it is None and the model comes with the package, which isn't changed.
    """
    path = find_model(given)
    if output is not None:
        check_directory(output, [path])
    elif path != Path(given):
        raise UsageError(
            f"{given}: a model that comes with the package is not changed: name a directory with -o"
        )
    return path


def install_calibration(model: LoadedModel, calibration: Calibration, output: Path | None) -> None:
    """Put a calibration into its model's directory, or with `output` into a copy of that.

    Either appears whole or not at all.
    """
    assert model.path is not None
    if output is None:
        with into_directory(model.path) as files:
            write_calibration(files / FILE, calibration, model.sha256)
        return
    with atomic_directory(output) as directory:
        for name in list_files(model.path):
            if name != FILE:
                shutil.copyfile(model.path / name, directory / name)
        write_calibration(directory / FILE, calibration, model.sha256)


def described(calibration: Calibration) -> str:
    """What the log says of a calibration's maps."""
    methods = [one.map.method for one in calibration.tracks if not one.shared]
    parts = [f"{methods.count(name):,} {name}" for name in ("isotonic", "platt") if name in methods]
    if shared := len(calibration.tracks) - len(methods):
        parts.append(f"{shared:,} with too few positives or negatives by one line for all tracks")
    return ", ".join(parts)


PREDICTIONS = "predictions.parquet"
RAW, CALIBRATED = "raw", "calibrated"
_MOST_CONTIGS = 50  # that the file names


def fit_predictions(predictions: pd.DataFrame, method: CalibrationMethod) -> Calibration | None:
    """The calibration that the validation rows among predictions ask for; None if they are too few.

    Their further negatives count too, and all negatives together as much as without these.
    """
    predictions = predictions.sort_values(KEY, kind="stable")  # as a file is read: sums have the same digits
    rows = predictions[predictions["split"] == "valid"]
    judged = CalibrationRows.of(predictions, "valid")
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
    rows = CalibrationRows.of(predictions, "test")
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
    """Predict validation bins with a chromatin model, fit a map for each track, store them with the model.

    Parameters
    ----------
    config
        `calibration` says how many bins, and how; `evaluation.middle` whether neighbours share a window.
    output
        A directory for the model with its calibration; None: `path` itself, which gets `calibration.json`.
    data
        The data set that the model was trained on.

    Raises
    ------
    UsageError
        `output` can't be written, or is None for a model that comes with the package.
    DataError, ModelError
        There are no validation bins, or too few positives in all tracks together; the model is not of the
        data set, or can't be loaded.
    """
    check_at_least_one({"batch_size": batch_size})
    found = find_target(path, output)
    bins, settings = read_dataset(data), config.calibration
    rows = bins.rows("valid")
    if not len(rows):
        raise DataError(f"{data}: has no validation bins to calibrate on")
    if settings.bins:
        rows = sample(rows, settings.bins, (config.evaluation.seed, 9))
    model = load_chromatin_model(found)
    log(f"{found}: predicting {len(rows):,} validation bins of {len(bins.tracks):,} tracks")
    values = predict_bins(
        [model],
        bins,
        Reference(reference),
        rows,
        middle=config.evaluation.middle,
        batch_size=batch_size,
        device=device,
    )
    labels = bins.labels.rows(rows)
    fitted = fit_tracks(labels, values, settings.method)
    if fitted is None:
        raise DataError(
            f"{data}: {int(labels.sum()):,} positives in {len(rows):,} validation bins and all tracks are "
            f"too few to calibrate on: {LEAST} are needed"
        )
    fitted_on = {
        "split": "valid",
        "bins": len(rows),
        "contigs": sorted(set(bins.bins["contig"].iloc[rows].astype(str))),
        "middle": config.evaluation.middle,
        "method": settings.method,
    }
    names = [track.name for track in bins.tracks]
    calibration = Calibration.of(dict(zip(names, fitted, strict=True)), fitted_on)
    install_calibration(model, calibration, output)
    log(f"{found if output is None else output}: calibrated {len(names):,} tracks ({described(calibration)})")
    return calibration


RATES = (0.01, 0.05, 0.1, 0.2, 0.5)
COLUMNS = (
    *(
        "fdr",
        "prior",
        "threshold",
        "expected_fdr",
        "empirical_fdr",
        "empirical_fdr_low",
        "empirical_fdr_high",
    ),
    *("recall", "promoters", "negatives", "note"),
)


def choose_threshold(
    path: Path,
    output: Path | None = None,
    *,
    rates: Sequence[float] = RATES,
    prior: float | None = None,
    predictions: Path | None = None,
) -> ThresholdCurve:
    """Write from which calibrated score on windows are called, for each wanted false-discovery rate.

    Parameters
    ----------
    path
        A promoter model with a calibration.
    output
        File to write (TSV), whole or not at all; None: standard output.
    rates
        Wanted shares of negatives among the called windows, above 0 and below 1.
    prior
        Share of promoters among all windows; None: that of the validation windows. It must be that of
        `score_promoters`.
    predictions
        The model's predictions of held-out windows (Parquet); None: `predictions.parquet` of its directory.

    Raises
    ------
    UsageError
        A rate or the prior is out of its range, or the output can't be written.
    ModelError, DataError
        There is no promoter model with a calibration; the predictions can't be read, or have one class only.
    """
    for rate in rates:
        check_fraction("fdr", rate, ends=False)
    check_calibrated(True, prior)
    check_output(output, [path, *([predictions] if predictions else [])])
    model = load_promoter_model(path)
    calibration = calibration_of(model)
    assert model.path is not None
    source = model.path / PREDICTIONS if predictions is None else predictions
    rows = read_predictions(source, "valid")
    labels = rows["label"].to_numpy()
    if not 0 < labels.sum() < len(labels):
        raise UsageError(f"{source}: validation windows of one class alone say nothing of a threshold")
    one = calibration.tracks[0]
    values: Floats = one.map(rows["probability"].to_numpy())
    curve = threshold_curve(labels, values, one.prior, prior)
    options: dict[str, object] = {"--fdr": [*rates], "--prior": prior, "--predictions": predictions}
    origin = provenance(model.sha256, command_line("evaluate promoter-threshold", [path], options))
    origin["predictions"] = checksum(source)
    with text_destination(output) as target, open_text(target) as stream:
        for line in provenance_lines(origin):
            stream.write(f"{line}\n")
        stream.write("#" + "\t".join(COLUMNS) + "\n")
        for rate in rates:
            stream.write("\t".join(_cells(rate, curve, curve.choose(rate))) + "\n")
    return curve


def _cells(rate: float, curve: ThresholdCurve, chosen: Threshold | None) -> list[str]:
    first = [f"{rate:g}", f"{curve.prior:.6g}"]
    if chosen is None:
        least = f"not reached: the highest scores have {curve.expected[0]:.3g}"
        return [*first, *["."] * (len(COLUMNS) - 3), least]
    shares = (chosen.expected, chosen.empirical, chosen.empirical_low, chosen.empirical_high, chosen.recall)
    note = (
        "."
        if chosen.negatives >= FEW
        else f"fewer than {FEW} negatives there: rests on the calibration's shape"
    )
    cells = [chosen.printed, *(f"{share:.4f}" for share in shares)]
    return [*first, *cells, str(chosen.positives), str(chosen.negatives), note]
