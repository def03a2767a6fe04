"""The report of promoter models: their figures next to those of the baselines and of a control."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bigbird_dna.disk.directories import into_directory
from bigbird_dna.errors import UsageError
from bigbird_dna.metrics.auroc import UNDEFINED, auroc_difference
from bigbird_dna.metrics.binary import binary_metrics
from bigbird_dna.reporting.promoters.calibration import calibrated, calibration_figure, calibration_table
from bigbird_dna.reporting.promoters.figures import histogram_figure, precision_recall_figure, roc_figure
from bigbird_dna.reporting.promoters.predictions import (
    ALL,
    CONTROL,
    KMER,
    MODEL,
    NONCODING,
    POSITION,
    Comparison,
    compare,
    negative_set_of,
)
from bigbird_dna.reporting.tables import write_tsv

if TYPE_CHECKING:
    import pandas as pd

DIFFERENCES = {KMER: "auroc_minus_kmer", POSITION: "auroc_minus_position"}
"""Baseline → the column of a predictor's AUROC minus the baseline's."""


def promoter_report(
    sets: Mapping[str, Path],
    output: Path,
    *,
    baselines: Mapping[str, Path] | None = None,
    positions: Mapping[str, Path] | None = None,
    control: Path | None = None,
) -> pd.DataFrame:
    """Compare predictions of promoter models on the test windows with those of their baselines.

    Writes `promoters.tsv`, `roc.svg`, `precision_recall.svg` and `score_histograms.svg`, and of the models'
    probabilities `calibration.tsv` and `calibration.svg`, to the directory `output`.

    Parameters
    ----------
    sets
        Negative set → the model's predictions (Parquet); where `calibration.json` lies beside them, as in
        a model directory, calibrated probabilities are judged too.
    baselines
        Negative set → the k-mer baseline's predictions, for any of `sets`.
    positions
        Negative set → the predictions of the baseline `position`, for any of `sets`.
    control
        Predictions of a model that was trained on shuffled labels, for one of `sets`.

    Returns
    -------
    The table of `promoter_table`.

    Raises
    ------
    UsageError
        A baseline or the control is for a negative set that is not one of `sets`.
    DataError
        A file isn't as `read_predictions` needs it, or files differ in their windows.
    ModelError
        A calibration is damaged, or of other weights.
    """
    comparisons = _comparisons(sets, {KMER: baselines or {}, POSITION: positions or {}}, control)
    table = promoter_table(comparisons)
    with into_directory(output) as files:
        write_tsv(files / "promoters.tsv", table)
        roc_figure(comparisons, table, files / "roc.svg")
        precision_recall_figure(comparisons, table, files / "precision_recall.svg")
        histogram_figure(comparisons, files / "score_histograms.svg")
        held = [calibrated(name, path) for name, path in sets.items()]
        calibration = calibration_table(held)
        write_tsv(files / "calibration.tsv", calibration)
        calibration_figure(held, calibration, files / "calibration.svg")
    return table


def promoter_table(comparisons: Sequence[Comparison], seed: int = 0) -> pd.DataFrame:
    """One row for each negative set, stratum and predictor: `binary_metrics`, and AUROC minus the baselines'.

    Where it is known how much of the windows is coding, the rows of all windows of a negative set are
    followed by those of its noncoding stratum (`Comparison.noncoding`). Pairs are resampled together.
    Figures that are not defined are empty; `note` says why.
    """
    import pandas as pd

    rows: list[dict[str, Any]] = []
    for comparison in comparisons:
        rows += _rows(comparison, ALL, seed)
        noncoding = comparison.noncoding()
        if noncoding is not None:
            rows += _rows(noncoding, NONCODING, seed)
    return pd.DataFrame(rows)


def _rows(comparison: Comparison, stratum: str, seed: int) -> Iterator[dict[str, Any]]:
    """A row for each predictor."""
    for name, scores in comparison.scores.items():
        metrics = binary_metrics(comparison.labels, scores, seed, groups=comparison.pairs)
        figures = metrics._asdict()
        note = figures.pop("note")
        for baseline, column in DIFFERENCES.items():
            lead = UNDEFINED
            if baseline in comparison.scores and name != baseline:
                lead = auroc_difference(comparison.labels, scores, comparison.scores[baseline])
            figures |= lead.columns(column)
        named = {"negative_set": comparison.negative_set, "stratum": stratum, "model": name}
        yield {**named, **figures, "note": note}


def _comparisons(
    sets: Mapping[str, Path], baselines: Mapping[str, Mapping[str, Path]], control: Path | None
) -> list[Comparison]:
    """The predictors of each set; `baselines` are negative set → predictions, by the baseline's name."""
    for baseline, what in ((KMER, "baseline"), (POSITION, POSITION)):
        for name in baselines[baseline]:
            if name not in sets:
                raise UsageError(f"{what} {name!r}: there is no set {name!r}")
    control_set = negative_set_of(control) if control is not None else None
    if control_set is not None and control_set not in sets:
        raise UsageError(f"control {control}: there is no set {control_set!r}")
    comparisons = []
    for name, path in sets.items():
        files = {MODEL: path}
        files |= {baseline: given[name] for baseline, given in baselines.items() if name in given}
        if control is not None and name == control_set:
            files[CONTROL] = control
        comparisons.append(compare(name, files))
    return comparisons
