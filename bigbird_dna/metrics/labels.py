"""Metrics of predicted labels of any kind, with 95 % intervals over groups of similar rows.

Ranking metrics and correlations are computed under many weights of the rows at once, those of a bootstrap:
groups are drawn with replacement, and all predictors and outputs have the same draws. Differences are thus
paired, and the mean over outputs has an interval that contains the correlation of the outputs. The interval
of the AUROC of an output, and of its difference, is the closed form of `metrics.auroc`; all others are
percentiles.

An output that is undefined in a resample, for example without positives, is left out of the mean there. If
all resamples are equal, there is no interval, because they do not mean certainty.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

from bigbird_dna.metrics.auroc import (
    ENDS,
    UNDEFINED,
    Counts,
    Floats,
    auroc,
    auroc_difference,
    auroc_note,
    average_precision,
    divide,
    rank_rows,
)
from bigbird_dna.metrics.resampling import (
    draw_counts,
    percentile_interval,
    with_width,
)

CLASS_METRICS = ("auroc", "auprc", "f1", "mcc", "balanced_accuracy")
REGRESSION_METRICS = ("pearson", "spearman", "r2")
MACRO = "macro"
"""Name of the mean over outputs."""

THRESHOLD = 0.5
MOST_OUTPUTS = 20
"""With more outputs, only their mean has an interval from the bootstrap."""
_SPACE = 4  # arrays of the size of the weights that are needed at a time

# Axes: N rows, T outputs, R weights of all rows (resamples).

Labels = NDArray[np.floating[Any] | np.integer[Any] | np.bool_]


class BinaryMetrics(NamedTuple):
    """Metrics, the first two with 95 % intervals; NaN if undefined, with the reason in `note`."""

    n: int
    positives: int
    auroc: float
    auroc_low: float
    auroc_high: float
    auprc: float
    auprc_low: float
    auprc_high: float
    f1: float
    mcc: float
    note: str


def binary_metrics(
    labels: ArrayLike,
    probabilities: ArrayLike,
    seed: int = 0,
    *,
    blocks: ArrayLike | None = None,
    resamples: int = 1000,
) -> BinaryMetrics:
    """Evaluate `probabilities` (N,) with `labels` (N,) of 0 and 1.

    The interval of AUROC is that of `auroc`; that of AUPRC, the average precision, are percentiles of a
    bootstrap. Rows with the same id in `blocks` (N,) may vary together and are drawn together; None: rows are
    independent. F1 and MCC call rows from 0.5 on positive; both are 0 without such rows. `ValueError`: shapes
    differ, a label is not 0 or 1, or a probability is NaN.
    """
    from sklearn.metrics import f1_score, matthews_corrcoef

    y, p = np.asarray(labels), np.asarray(probabilities, np.float64)
    if not np.isin(y, (0, 1)).all():
        raise ValueError("labels must be 0 or 1")

    ids = None
    if blocks is not None:
        ids = np.unique(np.asarray(blocks), return_inverse=True)[1]

    area = auroc(y, p, ids)
    n, positives = len(y), int(y.sum())
    note = auroc_note(positives, n - positives, area)
    if math.isnan(area.value):
        nan = math.nan
        return BinaryMetrics(n, positives, *UNDEFINED, *UNDEFINED, nan, nan, note)

    values = [weighted_areas(y, p, np.ones((1, n)))[1]]
    groups = np.arange(n) if ids is None else ids
    count = int(groups.max()) + 1
    generator = np.random.default_rng(seed)
    for counts in draw_counts(generator, count, resamples * (count > 1), _SPACE * n):
        values.append(weighted_areas(y, p, counts[:, groups].astype(float))[1])

    auprc = np.concatenate(values)
    called = p >= THRESHOLD
    return BinaryMetrics(
        n,
        positives,
        *area,
        *percentile_interval(auprc[0], auprc[1:]),
        float(f1_score(y, called, zero_division=0)),
        float(matthews_corrcoef(y, called)),
        note,
    )


def weighted_areas(labels: Labels, scores: Labels, weights: Floats) -> Floats:
    """Return AUROC and AUPRC, (2, R), of rows (N,) that occur `weights` (R, N) times; labels are 0 and 1.

    AUPRC is NaN where the weights leave no positive, AUROC where they leave only one class.
    """
    ranking = rank_rows(labels, scores)
    if ranking is None:
        return np.full((2, len(weights)), np.nan)

    y = labels.astype(bool)
    order = np.argsort(-scores.astype(np.float64), kind="stable")
    positives, negatives = order[y[order]], order[~y[order]]
    true = np.cumsum(weights[:, positives], axis=1)[:, ranking.true - 1]
    passed = np.cumsum(weights[:, negatives], axis=1)
    passed = np.pad(passed, ((0, 0), (1, 0)))
    above, false = passed[:, ranking.above], passed[:, ranking.false]
    # Negatives below each score of positives, plus half of those tied with it.
    below = 2 * passed[:, -1:] - above - false
    ordered = (np.diff(true, axis=1, prepend=0) * below).sum(axis=1)
    pairs = true[:, -1] * passed[:, -1]
    return np.stack(
        [divide(ordered, 2 * pairs, np.nan), average_precision(true, false)]
    )


def weighted_correlations(labels: Labels, scores: Labels, weights: Floats) -> Floats:
    """Return Pearson's and Spearman's correlation, (2, R), of rows (N,) that occur `weights` (R, N) times.

    NaN where labels or predictions are constant.
    """
    values = np.full((2, len(weights)), np.nan)
    for number, counts in enumerate(weights.astype(np.int64)):
        pair = np.repeat(labels, counts), np.repeat(scores, counts)
        if all(len(column) and np.ptp(column) for column in pair):
            of_values: Any = np.corrcoef(pair)
            of_ranks: Any = np.corrcoef(rankdata(pair, axis=1))
            values[:, number] = of_values[0, 1], of_ranks[0, 1]

    return values


def label_metrics(
    labels: Labels,
    scores: Mapping[str, Labels],
    groups: Counts,
    outputs: Sequence[str],
    kind: str,
) -> pd.DataFrame:
    """Return the metrics of predictors' scores (N, T) for labels (N, T): a row per output and predictor.

    The `kind` of labels is binary, multiclass, multilabel (all 0 and 1; the scores are probabilities) or
    regression; NaN are missing labels, which count in no metric. Rows with the same number in `groups` (N,)
    are drawn together. Columns are `output`, `model` (the predictor), `n` and `positives` among the labels,
    the metrics, and DIFFERENCE: the first metric of the first predictor minus that of the row; AUROC, AUPRC,
    correlations and differences have an interval (`_low`, `_high`). `note` has the reason of an undefined
    metric.

    Of several outputs, the mean (`MACRO`) is first. Of several classes, a class is evaluated against all
    others, and MCC and balanced accuracy of the mean are those of the most probable class. With more than 20
    outputs, only AUROCs have an interval for each output.
    """
    from sklearn import metrics as sk

    is_regression = kind == "regression"
    names = REGRESSION_METRICS if is_regression else CLASS_METRICS
    measure = weighted_correlations if is_regression else weighted_areas
    ids = np.unique(groups, return_inverse=True)[1]
    count, n = int(ids.max()) + 1, len(ids)
    several = len(outputs) > 1
    many = len(outputs) > MOST_OUTPUTS
    known = ~np.isnan(labels.astype(np.float64))
    generator = np.random.default_rng(0)
    resamples = (100 if many else 1000) * (count > 1)
    weights = [
        np.ones((1, count)),
        *draw_counts(generator, count, resamples, _SPACE * n),
    ]

    rows: list[dict[str, Any]] = []
    first: Floats | None = None
    best = next(iter(scores.values()))
    for name, values in scores.items():
        sampled = []  # (T, 2, 1 + R)
        of_outputs = []
        for t, output in enumerate(outputs):
            y, p = labels[known[:, t], t], values[known[:, t], t]
            blocks = ids[known[:, t]]
            chunks = [measure(y, p, some[:, blocks].astype(float)) for some in weights]
            sampled.append(np.concatenate(chunks, axis=1))
            row: dict[str, Any] = {"output": output, "model": name, "n": len(y)}
            row["note"] = ""
            if is_regression:
                constant = [
                    noun
                    for noun, column in (("labels", y), ("predictions", p))
                    if len(y) and not np.ptp(column)
                ]
                if not len(y):
                    row["note"] = "no label"
                elif constant:
                    row["note"] = f"all {' and '.join(constant)} are equal"

                if len(y) > 1 and np.ptp(y):
                    row["r2"] = sk.r2_score(y, p)
            else:
                area = auroc(y, p, blocks)
                row["positives"] = positives = int(y.sum())
                row["note"] = auroc_note(positives, len(y) - positives, area)
                row |= _cells("auroc", area)
                if 0 < positives < len(y):
                    called = p >= THRESHOLD
                    if kind == "multiclass":
                        called = values.argmax(axis=1) == t

                    row["f1"] = sk.f1_score(y, called, zero_division=0)
                    row["mcc"] = sk.matthews_corrcoef(y, called)
                    row["balanced_accuracy"] = sk.balanced_accuracy_score(y, called)

                if first is not None:
                    lead = auroc_difference(y, best[known[:, t], t], p, blocks)
                    row |= _cells("auroc_difference", lead.estimate)

            of_outputs.append(row)

        samples = np.stack(sampled)
        if first is None:
            first = samples[:, :1]

        differences = first - samples[:, :1]
        if name == next(iter(scores)):
            differences = np.full_like(differences, np.nan)

        samples = np.concatenate([samples, differences], axis=1)
        sampled_names = (*names[:2], f"{names[0]}_difference")
        for row, table in zip(of_outputs, samples, strict=True):
            for metric, column in zip(sampled_names, table, strict=True):
                if metric not in row:
                    row |= _cells(metric, _estimate(column[:1] if many else column))

        if several:
            frame = pd.DataFrame(of_outputs).reindex(columns=names)
            row = {"output": MACRO, "model": name, "n": int(known.any(axis=1).sum())}
            row["note"] = ""
            for metric in names[2:]:
                row[metric] = frame[metric].mean()

            defined = ~np.isnan(samples)
            means = divide(np.nansum(samples, axis=0), defined.sum(axis=0), np.nan)
            for metric, column in zip(sampled_names, means, strict=True):
                row |= _cells(metric, _estimate(column))

            if kind == "multiclass":
                true, called = labels.argmax(axis=1), values.argmax(axis=1)
                row["mcc"] = sk.matthews_corrcoef(true, called)
                row["balanced_accuracy"] = sk.recall_score(
                    true, called, labels=np.unique(true), average="macro"
                )

            defined_outputs = int(frame[names[0]].notna().sum())
            if defined_outputs < len(outputs):
                row["note"] = f"mean over {defined_outputs} of {len(outputs)} outputs"

            rows.append(row)

        rows += of_outputs

    columns = ["output", "model", "n", *["positives"] * (not is_regression)]
    for metric in (*names, f"{names[0]}_difference"):
        has_interval = metric in names[:2] or metric.endswith("difference")
        columns += [f"{metric}{end}" for end in ENDS] if has_interval else [metric]

    table = pd.DataFrame(rows).reindex(columns=[*columns, "note"])
    order = {output: number for number, output in enumerate([MACRO, *outputs])}
    table = table.sort_values(
        "output", key=lambda column: column.map(order), kind="stable"
    )
    return table.reset_index(drop=True)


def _cells(name: str, estimate: Sequence[float]) -> dict[str, float]:
    """Return an estimate as cells of a row."""
    return {f"{name}{end}": x for end, x in zip(ENDS, estimate, strict=True)}


def _estimate(values: Floats) -> tuple[float, float, float]:
    """Return the first value with the interval of the others (R,)."""
    if np.isnan(values[0]):
        return UNDEFINED
    return with_width(percentile_interval(values[0], values[1:]))
