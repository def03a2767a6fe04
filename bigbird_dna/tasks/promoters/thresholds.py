"""Thresholds of promoter scores for wanted false-discovery rates, as `choose-threshold` writes them."""

from collections.abc import Sequence
from pathlib import Path

from bigbird_dna.calibration.maps import Floats
from bigbird_dna.calibration.thresholds import FEW, Threshold, ThresholdCurve, threshold_curve
from bigbird_dna.checks import check_share
from bigbird_dna.errors import UsageError
from bigbird_dna.files import checksum
from bigbird_dna.model.calibrated import calibration_of, check_calibrated
from bigbird_dna.model.directory import load_promoter_model
from bigbird_dna.outputs import (
    check_output,
    command_line,
    open_text,
    provenance,
    provenance_lines,
    text_destination,
)
from bigbird_dna.reporting.promoters.predictions import read_predictions
from bigbird_dna.tasks.promoters.calibrating import PREDICTIONS

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
        check_share("fdr", rate)
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
    origin = provenance(model.sha256, command_line("choose-threshold", [path], options))
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
