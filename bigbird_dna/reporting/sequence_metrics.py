"""Metrics of a model of labeled sequences and of its baselines, on the test sequences."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

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
from bigbird_dna.disk.tables import Schema, check_columns
from bigbird_dna.errors import DataError
from bigbird_dna.genome.sequence_tables import LABEL
from bigbird_dna.metrics.auroc import ENDS, auroc_note
from bigbird_dna.metrics.labels import (
    CLASS_METRICS,
    REGRESSION_METRICS,
    called_classes,
    class_estimates,
    regression_estimates,
)

MACRO = "macro"
MULTICLASS, REGRESSION = "multiclass", "regression"
_KEY = ("output", "model")
_COUNTS = ("output", "model", "n", "positives")


# The comparison with the model follows the first metric of a kind.
CLASSES = Schema.of(
    "text output model; count n; optional positives; estimate auroc auroc_difference auprc f1 mcc "
    "balanced_accuracy; text note",
    key=_KEY,
)
NUMBERS = Schema.of(
    "text output model; count n; estimate pearson pearson_difference spearman r2; text note",
    key=_KEY,
)
SCHEMAS = {
    "binary": CLASSES,
    MULTICLASS: CLASSES,
    "multilabel": CLASSES,
    REGRESSION: NUMBERS,
}
PREDICTORS = {
    MODEL: "the model of this report",
    NETWORK: "the neural network alone, without the regressions that are part of the model",
    KMER: "logistic or linear regression on the frequencies of k-mers",
    POSITION: "regression on the base at each position",
    COMPOSITION: "regression on GC content and length",
    CNN: "convolutional network on the bases, trained on the same sequences",
    CONTROL: "the same kind of model, trained on shuffled labels; a result other than chance is a warning",
}
"""Predictors in the order of the table, with their descriptions."""

Floats = NDArray[np.floating[Any]]

# Axes: N sequences, T outputs.


class LabeledPredictions(NamedTuple):
    """Labels of the test sequences, and predictions of several predictors, of which the model is first."""

    outputs: list[str]
    labels: Floats  # (N, T); NaN: missing, only of several labels
    groups: NDArray[np.int64]  # (N,) similar sequences have the same number
    scores: dict[str, Floats]  # predictor → (N, T)
    valid: int  # number of validation sequences

    @classmethod
    def read(cls, path: Path, kind: str) -> Self:
        """Read a file of predictions; `DataError` if a column or the test rows are missing, or a value is.

        Columns are `name`, `split`, `group`, and PREDICTOR/OUTPUT for each predictor and `label`.
        """
        frame = read_frame(path)
        check_columns(path, frame, ["split", "group"])
        pairs = [str(column).split("/", 1) for column in frame.columns]
        pairs = [pair for pair in pairs if len(pair) == 2]
        outputs = [output for name, output in pairs if name == LABEL]
        names = [*dict.fromkeys(name for name, _ in pairs if name != LABEL)]
        order = [*PREDICTORS]
        unknown = {*names} - {*order}
        if MODEL not in names or not outputs or unknown:
            raise DataError(
                f"{path}: needs columns of labels, of the model and of known predictors only"
            )
        names.sort(key=order.index)
        test = frame[frame["split"] == "test"]
        if test.empty:
            raise DataError(f"{path}: no test sequences")
        scores: dict[str, Floats] = {}
        for name in (LABEL, *names):
            columns = [f"{name}/{output}" for output in outputs]
            check_columns(path, frame, columns)
            scores[name] = test[columns].to_numpy(np.float32)
            missing: Any = False
            if name == LABEL and len(outputs) > 1 and kind != MULTICLASS:
                missing = np.isnan(scores[name])
            if not (np.isfinite(scores[name]) | missing).all():
                raise DataError(f"{path}: columns {name}/… contain missing values")
        labels = scores.pop(LABEL)
        if kind != REGRESSION and not np.isin(labels[~np.isnan(labels)], (0, 1)).all():
            raise DataError(f"{path}: labels must be 0 or 1")
        groups = test["group"].to_numpy(np.int64)
        valid = int((frame["split"] == "valid").sum())
        return cls(outputs, labels, groups, scores, valid)


def metrics_table(data: LabeledPredictions, kind: str) -> pd.DataFrame:
    """Return one row per output and predictor with the columns of `SCHEMAS`, and notes on undefined metrics.

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
            row = (MACRO, name, n, None, *np.ravel(mean), note)
            rows.append(row)
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
            row = (data.outputs[t], name, len(y), positives, *np.ravel(values), note)
            rows.append(row)
    names = (*metrics, f"{metrics[0]}_difference")
    columns = [f"{name}{end}" for name in names for end in ENDS]
    table = pd.DataFrame(rows, columns=[*_COUNTS, *columns, "note"])
    return table.astype({"positives": "Int64"})[SCHEMAS[kind].names]


def confusion_counts(data: LabeledPredictions) -> NDArray[np.int64]:
    """Return the number of sequences (T, T) of each true class (rows) that the model calls each class."""
    called = called_classes(data.scores[MODEL], exclusive=True)
    return np.asarray(data.labels.T @ called, np.int64)
