"""Metrics of a model of labeled sequences and of its baselines, on the test sequences."""

from __future__ import annotations

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
from bigbird_dna.metrics.auroc import ENDS, Estimate, auroc_note
from bigbird_dna.metrics.labels import (
    CLASS_METRICS,
    REGRESSION_METRICS,
    called_classes,
    class_estimates,
    regression_estimates,
)
from bigbird_dna.reporting.predictors import is_control, joined_controls, predictor_kind

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
        pairs = [str(column).partition("/") for column in frame.columns]
        outputs = [output for name, slash, output in pairs if name == LABEL and slash]
        names = list(
            dict.fromkeys(name for name, slash, _ in pairs if slash and name != LABEL)
        )
        unknown = [name for name in names if predictor_kind(name) not in PREDICTORS]
        if MODEL not in names or not outputs or unknown:
            raise DataError(
                f"{path}: needs columns of labels, of the model and of known predictors only"
            )
        names.sort(
            key=lambda name: [*PREDICTORS].index(predictor_kind(name))
        )  # controls keep their order
        test = frame[frame["split"] == "test"]
        if test.empty:
            raise DataError(f"{path}: no test sequences")
        found: dict[str, Floats] = {}
        for name in (LABEL, *names):
            columns = [f"{name}/{output}" for output in outputs]
            check_columns(path, frame, columns)
            found[name] = test[columns].to_numpy(np.float32)
            missing = (
                np.isnan(found[name])
                if name == LABEL and len(outputs) > 1 and kind != MULTICLASS
                else False
            )
            if not (np.isfinite(found[name]) | missing).all():
                raise DataError(f"{path}: columns {name}/… contain missing values")
        labels = found.pop(LABEL)
        if kind != REGRESSION and not np.isin(labels[~np.isnan(labels)], (0, 1)).all():
            raise DataError(f"{path}: labels must be 0 or 1")
        groups = test["group"].to_numpy(np.int64)
        return cls(
            outputs, labels, groups, found, int((frame["split"] == "valid").sum())
        )


def metrics_table(found: LabeledPredictions, kind: str) -> pd.DataFrame:
    """Return one row per output and predictor with the columns of `SCHEMAS`, and notes on undefined metrics.

    If there are several outputs, the rows of the mean over outputs (`MACRO`) are first. Several controls have
    one row: the mean, and instead of an interval the lowest and the highest value.
    """
    if kind == REGRESSION:
        estimates = regression_estimates(found.labels, found.scores, found.groups)
    else:
        exclusive = kind == MULTICLASS
        estimates = class_estimates(
            found.labels, found.scores, found.groups, exclusive=exclusive
        )
    several = len(found.outputs) > 1
    rows: list[tuple[Any, ...]] = []
    for place, output in enumerate([MACRO] * several + found.outputs):
        controls: list[tuple[Any, ...]] = []
        macro = several and not place
        labeled = (
            np.isfinite(found.labels).any(axis=1)
            if macro
            else ~np.isnan(found.labels[:, place - several])
        )
        n = int(labeled.sum())
        for name, of_outputs in estimates.items():
            if macro:
                known = sum(one[0].value == one[0].value for one in of_outputs[1:])
                whole = known == len(found.outputs)
                positives, note = (
                    None,
                    ""
                    if whole
                    else f"mean over {known} of {len(found.outputs)} outputs",
                )
            else:
                y, values = (
                    of[labeled, place - several]
                    for of in (found.labels, found.scores[name])
                )
                positives = None if kind == REGRESSION else int(y.sum())
                note = _note(y, values, positives, of_outputs[place][0])
            row = (output, name, n, positives, *np.ravel(of_outputs[place]), note)
            (controls if is_control(name) else rows).append(row)
        rows += joined_controls(controls, len(_COUNTS))
    metrics = REGRESSION_METRICS if kind == REGRESSION else CLASS_METRICS
    estimated = [
        f"{name}{end}"
        for name in (*metrics, f"{metrics[0]}_difference")
        for end in ENDS
    ]
    table = pd.DataFrame(rows, columns=[*_COUNTS, *estimated, "note"]).astype(
        {"positives": "Int64"}
    )
    return table[SCHEMAS[kind].names]


def _note(
    labels: Floats, scores: Floats, positives: int | None, found: Estimate
) -> str:
    """Return why the metrics of an output are missing or of another kind."""
    if positives is not None:
        return auroc_note(positives, len(labels) - positives, found)
    if not len(labels):
        return "no label"
    equal = [
        name
        for name, values in (("labels", labels), ("predictions", scores))
        if not np.ptp(values)
    ]
    return f"all {' and '.join(equal)} are equal: no correlation" if equal else ""


def confusion_counts(found: LabeledPredictions) -> NDArray[np.int64]:
    """Return the number of sequences (T, T) of each true class (rows) that the model calls each class."""
    called = called_classes(found.scores[MODEL], exclusive=True)
    return np.asarray(found.labels.T @ called, np.int64)


def summary_rows(found: LabeledPredictions, table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the only output, or of the mean over outputs, by model."""
    several = len(found.outputs) > 1
    return table[: len(table) // (len(found.outputs) + several)].set_index("model")
