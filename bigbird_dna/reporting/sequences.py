"""Report of a model of labeled sequences: metrics on the test sequences, with baselines and controls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

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
from bigbird_dna.disk.atomic import read_object
from bigbird_dna.disk.tables import write_tsv
from bigbird_dna.errors import shortened
from bigbird_dna.metrics.auroc import ENDS
from bigbird_dna.metrics.labels import label_metrics
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
PREDICTORS = (MODEL, NETWORK, KMER, POSITION, COMPOSITION, CNN, CONTROL)
"""Predictors in the order of the table."""

# Axes: N sequences, T outputs.


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
    groups = test["group"].to_numpy(np.int64)
    table = label_metrics(labels, values, groups, outputs, kind)
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
    elif kind == "multiclass":
        called = np.eye(len(outputs))[values[MODEL].argmax(axis=1)]
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
    elif kind == "regression":
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

    # Conclusions, from the rows of the only output, or of the mean over outputs
    main = table[table["output"] == table["output"].iloc[0]].set_index("model")
    metric, title, chance = "auroc", "AUROC", 0.5
    if kind == "regression":
        metric, title, chance = "pearson", "correlation", 0.0

    ends = [f"{metric}{end}" for end in ENDS]
    differences = [f"{metric}_difference{end}" for end in ENDS]
    area = interval(*main.loc[MODEL, ends])
    sentence = f"On {len(labels):,} test sequences, the model has the {title} {area}"
    if len(outputs) > 1:
        sentence += f" (mean of {len(outputs):,} outputs)"

    baselines = main[metric].reindex([KMER, POSITION, COMPOSITION, CNN]).dropna()
    if len(baselines):
        best: Any = baselines.idxmax()
        lead = main.loc[best, differences].tolist()
        sentence += (
            f"; the strongest baseline ({predictor_label(best)}) has {baselines[best]:.3f}, and the difference "
            f"is {interval(*lead)}: the model is {verdict(*lead)}"
        )

    sentences = [f"{sentence}."]
    if CONTROL in main.index:
        value, low, high = main.loc[CONTROL, ends].tolist()
        if abs(value - chance) >= NEAR_CHANCE and not low <= chance <= high:
            sentences.append(
                f"Warning: with shuffled labels, the {title} is {interval(value, low, high)}, not near chance "
                f"({chance})."
            )

    cells = readable(main.reset_index().drop(columns="output"), "{:.3f}".format)
    head = "# Model of labeled sequences: results on test sequences"
    text = "\n\n".join([head, *sentences, markdown(cells)])
    (output / "report.md").write_text(f"{text}\n", encoding="utf-8")
    return table


def report_model(directory: Path) -> pd.DataFrame:
    """Write the report (`sequence_report`) of the model directory of finetune-sequences into it."""
    settings = read_object(directory / "config.json")["settings"]
    return sequence_report(directory / PREDICTIONS, settings["kind"], directory)
