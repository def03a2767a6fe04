"""Report of a model of labeled sequences: metrics on the test sequences, with baselines and controls."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bigbird_dna.data.labeled_sequences import LABEL
from bigbird_dna.data.predictions import (
    CNN,
    COMPOSITION,
    CONTROL,
    KMER,
    MODEL,
    NETWORK,
    POSITION,
)
from bigbird_dna.disk.arrays import read_frame
from bigbird_dna.disk.json_files import read_object
from bigbird_dna.disk.tables import write_tsv
from bigbird_dna.errors import shortened
from bigbird_dna.metrics.auroc import ENDS, auroc_note
from bigbird_dna.metrics.labels import (
    CLASS_METRICS,
    REGRESSION_METRICS,
    called_classes,
    class_estimates,
    regression_estimates,
)
from bigbird_dna.reporting.predictors import NEAR_CHANCE, predictor_label
from bigbird_dna.reporting.result import (
    interval,
    markdown,
    panels,
    readable,
    save_figure,
    verdict,
)

_MOST_NAMED = 40  # classes of a confusion matrix with names

PREDICTIONS = "predictions.parquet"
MACRO, MULTICLASS, REGRESSION = "macro", "multiclass", "regression"
PREDICTORS = (MODEL, NETWORK, KMER, POSITION, COMPOSITION, CNN, CONTROL)
"""Predictors in the order of the table."""

# Axes: N sequences, T outputs.


class LabeledPredictions(NamedTuple):
    """Labels of the test sequences, and predictions of several predictors, of which the model is first."""

    outputs: list[str]
    labels: NDArray[np.float32]  # (N, T); NaN: missing, only of several labels
    groups: NDArray[np.int64]  # (N,) similar sequences have the same number
    scores: dict[str, NDArray[np.float32]]  # predictor → (N, T)


def sequence_report(predictions: Path, kind: str, output: Path) -> pd.DataFrame:
    """Compare a model of labeled sequences with its baselines and controls on the test sequences.

    `predictions` (Parquet) has the columns `name`, `split` and `group`, and PREDICTOR/OUTPUT for each
    predictor and `label`; labels are of the `kind` binary, multiclass, multilabel or regression. Writes
    `metrics.tsv` (returned), `report.md` with the main metrics, and `figure.svg` (not of several labels) to
    the directory `output`, and `confusion.tsv` for several classes.
    """
    from sklearn.metrics import (
        ConfusionMatrixDisplay,
        PrecisionRecallDisplay,
        PredictionErrorDisplay,
        RocCurveDisplay,
    )

    frame = read_frame(predictions)
    pairs = [column.split("/", 1) for column in frame.columns if "/" in column]
    outputs = [output for name, output in pairs if name == LABEL]
    test = frame[frame["split"] == "test"]
    values = {
        name: test[[f"{name}/{output}" for output in outputs]].to_numpy(np.float32)
        for name in (LABEL, *PREDICTORS)
        if f"{name}/{outputs[0]}" in frame
    }
    labels = values.pop(LABEL)
    data = LabeledPredictions(outputs, labels, test["group"].to_numpy(np.int64), values)
    table = metrics_table(data, kind)
    write_tsv(output / "metrics.tsv", table)

    figure_path = output / "figure.svg"
    if kind == "binary":
        with panels(1, 2, 4.6, 4.6) as (figure, axes):
            for name, scores in values.items():
                for axis, display in zip(
                    axes, (RocCurveDisplay, PrecisionRecallDisplay), strict=True
                ):
                    display.from_predictions(
                        labels[:, 0], scores[:, 0], ax=axis, name=predictor_label(name)
                    )
            save_figure(figure, figure_path)
    elif kind == MULTICLASS:
        called = called_classes(values[MODEL], exclusive=True)
        counts = np.asarray(labels.T @ called, np.int64)
        confusion = pd.DataFrame(counts, columns=outputs)
        confusion.insert(0, "true class", outputs, allow_duplicates=True)
        write_tsv(output / "confusion.tsv", confusion)
        names = [shortened(name, 24) for name in outputs]
        side = min(2 + 0.6 * len(outputs), 9)
        with panels(1, 1, side + 1, side) as (figure, (axis,)):
            axis.grid(visible=False)
            ConfusionMatrixDisplay(counts, display_labels=names).plot(
                cmap="Blues",
                ax=axis,
                xticks_rotation="vertical",
                include_values=len(outputs) <= _MOST_NAMED,
            )
            save_figure(figure, figure_path)
    elif kind == REGRESSION:
        known = ~np.isnan(labels[:, 0])
        with panels(1, 1, 4.6, 4.6) as (figure, (axis,)):
            PredictionErrorDisplay.from_predictions(
                labels[known, 0],
                values[MODEL][known, 0],
                kind="actual_vs_predicted",
                ax=axis,
            )
            axis.set_title(shortened(outputs[0], 40))
            save_figure(figure, figure_path)

    main = table[table["output"] == table["output"].iloc[0]]
    main = main[~main["model"].duplicated()]
    sentences = conclusions(data, kind, main.set_index("model"))
    cells = readable(main.drop(columns="output"), "{:.3f}".format)
    text = "\n\n".join([*sentences, markdown(cells)])
    title = "# Model of labeled sequences: results on test sequences"
    (output / "report.md").write_text(f"{title}\n\n{text}\n", encoding="utf-8")
    return table


def report_model(directory: Path) -> pd.DataFrame:
    """Write the report (`sequence_report`) of the model directory of finetune-sequences into it."""
    settings = read_object(directory / "config.json")["settings"]
    return sequence_report(directory / PREDICTIONS, settings["kind"], directory)


def metrics_table(data: LabeledPredictions, kind: str) -> pd.DataFrame:
    """Return one row per output and predictor and notes on undefined metrics.

    If there are several outputs, the rows of the mean over outputs (`MACRO`) are first.
    """
    metrics: tuple[str, ...] = CLASS_METRICS
    if kind == REGRESSION:
        metrics = REGRESSION_METRICS
        estimates = regression_estimates(data.labels, data.scores, data.groups)
    else:
        exclusive = kind == MULTICLASS
        estimates = class_estimates(
            data.labels, data.scores, data.groups, exclusive=exclusive
        )
    outputs = range(len(data.outputs))
    rows: list[tuple[Any, ...]] = []
    if len(outputs) > 1:
        n = int((~np.isnan(data.labels)).any(axis=1).sum())
        for name, (mean, *of_outputs) in estimates.items():
            known = sum(not math.isnan(row[0].value) for row in of_outputs)
            note = ""
            if known < len(outputs):
                note = f"mean over {known} of {len(outputs)} outputs"
            rows.append((MACRO, name, n, None, *np.ravel(mean), note))
    for t in outputs:
        labeled = ~np.isnan(data.labels[:, t])
        y = data.labels[labeled, t]
        for name, of_outputs in estimates.items():
            values = of_outputs[t - len(outputs)]
            positives, note = None, ""
            if kind != REGRESSION:
                positives = int(y.sum())
                note = auroc_note(positives, len(y) - positives, values[0])
            elif not len(y):
                note = "no label"
            else:
                pairs = {"labels": y, "predictions": data.scores[name][labeled, t]}
                equal = [what for what, column in pairs.items() if not np.ptp(column)]
                if equal:
                    note = f"all {' and '.join(equal)} are equal: no correlation"
            counts = len(y), positives
            rows.append((data.outputs[t], name, *counts, *np.ravel(values), note))
    names = (*metrics, f"{metrics[0]}_difference")
    columns = [f"{name}{end}" for name in names for end in ENDS]
    table = pd.DataFrame(
        rows, columns=["output", "model", "n", "positives", *columns, "note"]
    )
    if kind == REGRESSION:
        return table.drop(columns="positives")
    return table.astype({"positives": "Int64"})


def conclusions(data: LabeledPredictions, kind: str, rows: pd.DataFrame) -> list[str]:
    """Return sentences on the model and its strongest baseline, and a warning if a control is not at chance.

    `rows` are those of the only output, or of the mean over outputs, by model.
    """
    metric, label, chance = "auroc", "AUROC", 0.5
    if kind == REGRESSION:
        metric, label, chance = "pearson", "correlation", 0.0

    def estimate(name: str, column: str) -> list[float]:
        cells: Any = rows.loc[name, [f"{column}{end}" for end in ENDS]]
        return [float(cell) for cell in cells]

    model = interval(*estimate(MODEL, metric))
    sentence = (
        f"On {len(data.labels):,} test sequences, the model has the {label} {model}"
    )
    if len(data.outputs) > 1:
        sentence += f" (mean of {len(data.outputs):,} outputs)"
    baselines = (KMER, POSITION, COMPOSITION, CNN)
    values = rows[metric].reindex(baselines).astype(float).dropna()
    if len(values):
        best = str(values.idxmax())
        difference = estimate(best, f"{metric}_difference")
        sentence += (
            f"; the strongest baseline ({predictor_label(best)}) has {values[best]:.3f}, and the difference is "
            f"{interval(*difference)}: the model is {verdict(*difference)}"
        )
    sentences = [f"{sentence}."]
    if CONTROL in rows.index:
        value, low, high = estimate(CONTROL, metric)
        if abs(value - chance) >= NEAR_CHANCE and not low <= chance <= high:
            text = interval(value, low, high)
            sentences.append(
                f"Warning: with shuffled labels, the {label} is {text}, not near chance ({chance})."
            )
    return sentences
