"""Report of promoter models: metrics of the models and of baselines; plots of scores along a contig."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from bigbird_dna.calibration.maps import FILE, read_calibration
from bigbird_dna.data.predictions import (
    CONTROL,
    MODEL,
    PROMOTER_BASELINES,
    AlignedPredictions,
    blocks_of,
    compare,
    negative_set_of,
    read_predictions,
)
from bigbird_dna.disk.atomic import checksum
from bigbird_dna.disk.directories import into_directory
from bigbird_dna.disk.tables import write_tsv
from bigbird_dna.errors import UsageError
from bigbird_dna.metrics.auroc import (
    ENDS,
    UNDEFINED,
    Z95,
    auroc_difference,
    rank_rows,
)
from bigbird_dna.metrics.labels import binary_metrics
from bigbird_dna.metrics.reliability import calibration_metrics, reliability
from bigbird_dna.reporting.pages import add_diagonal, write_figure
from bigbird_dna.reporting.predictors import (
    COLORS,
    RATES,
    RECALLS,
    curve_points,
    predictor_label,
)

# Baseline → column with the AUROC of a predictor minus that of the baseline.
DIFFERENCES = {
    name: f"auroc_minus_{name.replace('-', '')}" for name in PROMOTER_BASELINES
}


def promoter_report(
    sets: Mapping[str, Path],
    output: Path,
    *,
    baselines: Mapping[str, Mapping[str, Path]] | None = None,
    control: Path | None = None,
) -> pd.DataFrame:
    """Compare predictions of promoter models on the test windows with those of their baselines.

    Writes `promoters.tsv` (returned), and for the models' probabilities `calibration.tsv`, to the directory
    `output`, with the figures `roc`, `precision_recall` and `calibration` (`write_figure`). Predictions
    (Parquet) are given by negative set, those of `baselines` by negative set and baseline. An ensemble's
    network alone is a further predictor. If `calibration.json` is in the directory of a file in `sets`, as in
    a model directory, calibrated probabilities are evaluated too. `control` is the prediction file of a model
    trained on shuffled labels. `UsageError` for a baseline or control of a negative set not in `sets`.
    """
    baselines = baselines or {}
    files: dict[str, dict[str, Path]] = {name: {MODEL: sets[name]} for name in sets}
    for name in baselines:
        if name not in sets:
            raise UsageError(
                f"baseline {name!r}: no predictions given for the negative set {name!r}"
            )

        for baseline in PROMOTER_BASELINES:
            if baseline in baselines[name]:
                files[name][baseline] = baselines[name][baseline]

    if control is not None:
        name = negative_set_of(control)
        if name not in sets:
            raise UsageError(
                f"control {control}: no predictions given for the negative set {name!r}"
            )

        files[name][CONTROL] = control

    comparisons = [compare(name, predictors) for name, predictors in files.items()]
    table = promoter_table(comparisons)
    with into_directory(output) as directory:
        write_tsv(directory / "promoters.tsv", table)
        curve_figures(comparisons, directory)
        report_calibration(sets, directory)

    return table


def promoter_table(comparisons: Sequence[AlignedPredictions]) -> pd.DataFrame:
    """Return one row per negative set and predictor: `binary_metrics`, and AUROC minus baselines.

    Intervals are over blocks.
    """
    rows = []
    for comparison in comparisons:
        labels, blocks = comparison.labels, comparison.blocks
        for name, scores in comparison.scores.items():
            metrics = binary_metrics(labels, scores, blocks=blocks)
            row: dict[str, Any] = {
                "negative_set": comparison.negative_set,
                "model": name,
                **metrics._asdict(),
            }
            note = row.pop("note")
            for baseline, column in DIFFERENCES.items():
                difference = UNDEFINED
                if baseline in comparison.scores and name != baseline:
                    difference = auroc_difference(
                        labels, scores, comparison.scores[baseline], blocks
                    ).estimate

                for end, value in zip(ENDS, difference, strict=True):
                    row[f"{column}{end}"] = value

            rows.append({**row, "note": note})

    return pd.DataFrame(rows)


def curve_figures(comparisons: Sequence[AlignedPredictions], directory: Path) -> None:
    """Draw ROC and precision–recall curves, one panel per negative set with both classes."""
    import plotly.express as px

    curves = []
    for comparison in comparisons:
        for name, scores in comparison.scores.items():
            ranking = rank_rows(comparison.labels, scores)
            if ranking is None:
                continue

            true_positive_rates, precisions = curve_points(ranking)
            points = {
                "negatives": comparison.negative_set,
                "predictor": predictor_label(name),
                "false positive rate": RATES,
                "true positive rate": true_positive_rates,
                "recall": RECALLS,
                "precision": precisions,
            }
            curves.append(pd.DataFrame(points))

    if not curves:
        return

    table = pd.concat(curves)
    for name, x, y in (
        ("roc", "false positive rate", "true positive rate"),
        ("precision_recall", "recall", "precision"),
    ):
        figure = px.line(
            table,
            x=x,
            y=y,
            color="predictor",
            color_discrete_map=COLORS,
            facet_col="negatives",
            range_x=[-0.01, 1.01],
            range_y=[-0.01, 1.01],
            render_mode="svg",
            height=480,
        )
        path = directory / f"{name}.plotly.json"
        write_figure(figure, path, panels=table["negatives"].nunique())


def report_calibration(sets: Mapping[str, Path], directory: Path) -> None:
    """Write `calibration.tsv` and the figure `calibration`, of test windows by negative set.

    Probabilities are calibrated too if `calibration.json` is in the directory of the predictions;
    `ModelError` if it is damaged, or belongs to other weights than those in the directory.
    """
    import plotly.express as px

    table = []
    curves = []
    for negative_set, path in sets.items():
        rows = read_predictions(path)
        probabilities = {"raw": rows["probability"].to_numpy(float)}
        file = path.parent / FILE
        if file.is_file():
            weights = path.parent / "model.safetensors"
            sha256 = checksum(weights) if weights.is_file() else None
            calibration = read_calibration(file, sha256)
            probabilities["calibrated"] = calibration(probabilities["raw"])

        for name, probs in probabilities.items():
            metrics = calibration_metrics(rows["label"], probs, blocks=blocks_of(rows))
            row = {
                "negative_set": negative_set,
                "probabilities": name,
                "n": len(rows),
                "positives": int(rows["label"].sum()),
            }
            table.append(row | metrics._asdict())
            curve = reliability(rows["label"], probs)
            curves.append(curve.assign(probabilities=name, negatives=negative_set))

    write_tsv(directory / "calibration.tsv", pd.DataFrame(table))
    points = pd.concat(curves)
    points["half"] = Z95 * points["spread"]
    figure = px.scatter(
        points,
        x="probability",
        y="fraction",
        error_y="half",
        color="probabilities",
        facet_col="negatives",
        labels={"fraction": "fraction of promoters"},
        range_x=[-0.02, 1.02],
        range_y=[-0.02, 1.02],
        height=480,
    )
    add_diagonal(figure)
    write_figure(figure, directory / "calibration.plotly.json", panels=len(sets))
