"""Calibration of chromatin models, track by track, on a sample of the validation bins."""

from pathlib import Path

from bigbird_dna.calibration.fitting import LEAST, fit_tracks
from bigbird_dna.calibration.stored import Calibration
from bigbird_dna.checks import check_at_least_one
from bigbird_dna.config import ChromatinConfig
from bigbird_dna.console import log
from bigbird_dna.errors import DataError
from bigbird_dna.genome.chromatin.dataset import read_dataset
from bigbird_dna.genome.reference import Reference
from bigbird_dna.model.directory import load_chromatin_model
from bigbird_dna.tasks.calibrating import described, find_target, install_calibration
from bigbird_dna.tasks.chromatin.evaluation import predict_bins
from bigbird_dna.tasks.examples import sample


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
