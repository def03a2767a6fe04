"""Metrics of predicted labels of any kind, with 95 % intervals over groups of similar rows.

A measure computes its metrics under many weights of the rows at once, those of a bootstrap: groups are drawn
with replacement, and all predictors and outputs have the same draws. Differences are thus paired, and the
mean over outputs has an interval that contains the correlation of the outputs. The interval of the AUROC of
an output, and of its difference, is the closed form of `metrics.auroc`; all others are percentiles.

An output that is undefined in a resample, for example without positives, is left out of the mean there. If
all resamples are equal, there is no interval, because they do not mean certainty.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bigbird_dna.metrics.auroc import (
    UNDEFINED,
    Counts,
    Estimate,
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

THRESHOLD = 0.5
MOST_OUTPUTS = 20
"""With more outputs, only their mean has an interval from the bootstrap."""
_MANY_OUTPUTS = 100
_SPACE = 4  # arrays of the size of the weights that a measure needs

# Axes: N rows, T outputs, K metrics, R weights of all rows (resamples).

Labels = NDArray[np.floating[Any] | np.integer[Any] | np.bool_]
Measure = Callable[[Floats], Floats]
"""Weights of rows, whole numbers from 0 (R, N) → metrics (K, R), NaN if undefined."""


class BinaryMetrics(NamedTuple):
    """Metrics with 95 % intervals; NaN if undefined, with the reason in `note`."""

    n: int
    positives: int
    auroc: float
    auroc_low: float
    auroc_high: float
    auprc: float
    auprc_low: float
    auprc_high: float
    f1: float
    f1_low: float
    f1_high: float
    mcc: float
    mcc_low: float
    mcc_high: float
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

    The interval of AUROC is that of `auroc`; the others are percentiles of a bootstrap. Rows with the same id
    in `blocks` (N,) may vary together and are drawn together; None: rows are independent. AUPRC is average
    precision. F1 and MCC call rows from 0.5 on positive; both are 0 without such rows. `ValueError`: shapes
    differ, a label is not 0 or 1, or a probability is NaN.
    """
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
        return BinaryMetrics(
            n, positives, *UNDEFINED, *UNDEFINED, *UNDEFINED, *UNDEFINED, note
        )
    measure = class_measure(y, p, p >= THRESHOLD)
    groups = np.arange(n) if ids is None else ids
    values = resample([measure], groups, resamples, seed)[0]
    _, auprc, f1, mcc, _ = (percentile_interval(row[0], row[1:]) for row in values)
    return BinaryMetrics(n, positives, *area, *auprc, *f1, *mcc, note)


def class_measure(labels: Labels, scores: Labels, called: Labels) -> Measure:
    """Return the measure of `CLASS_METRICS` of one output, for rows (N,) with labels 0 and 1.

    `called` marks rows called positive. Balanced accuracy is the mean of sensitivity and specificity. AUPRC
    is NaN where the weights leave no positive, the others where they leave only one class.
    """
    y, calls = labels.astype(bool), called.astype(bool)
    ranking = rank_rows(y, scores)
    if ranking is None:
        return lambda weights: np.full((len(CLASS_METRICS), len(weights)), np.nan)
    order = np.argsort(-scores.astype(np.float64), kind="stable")
    positives, negatives = order[y[order]], order[~y[order]]
    cells = np.stack([y, ~y, y & calls, ~y & calls], axis=1).astype(np.float64)

    def measure(weights: Floats) -> Floats:
        true = np.cumsum(weights[:, positives], axis=1)[:, ranking.true - 1]
        passed = np.cumsum(weights[:, negatives], axis=1)
        passed = np.pad(passed, ((0, 0), (1, 0)))
        above, false = passed[:, ranking.above], passed[:, ranking.false]
        p, n, tp, fp = (weights @ cells).T
        # Negatives below each score of positives, plus half of those tied with it.
        below = 2 * n[:, None] - above - false
        ordered = (np.diff(true, axis=1, prepend=0) * below).sum(axis=1)
        f1 = divide(2 * tp, tp + fp + p, 0.0)
        called_none = p + n - tp - fp
        scale = np.sqrt((tp + fp) * called_none * p * n)
        mcc = divide(tp * (n - fp) - fp * (p - tp), scale, 0.0)
        single = (p == 0) | (n == 0)
        f1[single] = mcc[single] = np.nan
        accuracy = (divide(tp, p, np.nan) + divide(n - fp, n, np.nan)) / 2
        auprc = average_precision(true, false)
        return np.stack([divide(ordered, 2 * p * n, np.nan), auprc, f1, mcc, accuracy])

    return measure


def multiclass_measure(labels: Labels, called: Labels) -> Measure:
    """Return the measure of MCC and balanced accuracy for rows that each have one of T classes.

    `labels` and `called` (N, T) are 1 for the true and for the called class of a row. MCC is that of Gorodkin
    (2004), and 0 if all calls are equal. Balanced accuracy is the mean recall of the classes that occur. MCC
    is NaN with a single class.
    """
    y, calls = labels.astype(np.float64), called.astype(np.float64)

    def measure(weights: Floats) -> Floats:
        total = weights.sum(axis=1)
        true, positive = weights @ y, weights @ calls
        correct = weights @ (y * calls)
        covariance = correct.sum(axis=1) * total - (true * positive).sum(axis=1)
        spread = total**2 - (true**2).sum(axis=1)
        spread_of_calls = total**2 - (positive**2).sum(axis=1)
        mcc = divide(covariance, np.sqrt(spread * spread_of_calls), 0.0)
        mcc[spread == 0] = np.nan
        return np.stack([mcc, mean_defined(divide(correct, true, np.nan).T)])

    return measure


def regression_measure(labels: Labels, predictions: Labels) -> Measure:
    """Return the measure of `REGRESSION_METRICS` of one output, for rows (N,) of real numbers.

    R² is the coefficient of determination, which is negative if the mean of the labels is a better
    prediction. Correlations are NaN if labels or predictions are constant, and R² if the labels are.
    """
    if not len(labels):
        return lambda weights: np.full((len(REGRESSION_METRICS), len(weights)), np.nan)
    y, p = labels.astype(np.float64), predictions.astype(np.float64)
    scale = float(y.std()) or 1.0
    x, z = (y - y.mean()) / scale, (p - p.mean()) / (float(p.std()) or 1.0)
    moments = np.stack([x, z, x * x, z * z, x * z, ((y - p) / scale) ** 2], axis=1)

    def measure(weights: Floats) -> Floats:
        total = weights.sum(axis=1)
        total[total == 0] = np.nan  # a resample without these rows
        mean_x, mean_z, xx, zz, xz, errors = (weights @ moments).T / total
        xx, zz, xz = xx - mean_x**2, zz - mean_z**2, xz - mean_x * mean_z
        columns = np.ascontiguousarray(weights.T)
        of_y, of_p = weighted_ranks(y, columns), weighted_ranks(p, columns)
        # Ranks are exact: without rounding, their variation is 0 if all values are equal.
        in_y = np.einsum("nr,nr,nr->r", columns, of_y, of_y)
        in_p = np.einsum("nr,nr,nr->r", columns, of_p, of_p)
        both = np.einsum("nr,nr,nr->r", columns, of_y, of_p)
        spearman = divide(both, np.sqrt(in_y * in_p), np.nan)
        pearson = divide(xz, np.sqrt(np.maximum(xx * zz, 0)), np.nan)
        pearson[np.isnan(spearman)] = np.nan
        r2 = 1 - divide(errors, xx, np.nan)
        r2[in_y == 0] = np.nan
        return np.stack([*np.clip([pearson, spearman], -1, 1), r2])

    return measure


def weighted_ranks(values: Floats, weights: Floats) -> Floats:
    """Return ranks (N, R) minus their mean, of rows with `values` (N,) that occur `weights` (N, R) times.

    Equal values have the mean of their ranks.
    """
    order = np.argsort(values, kind="stable")
    starts = np.flatnonzero(np.append(True, np.diff(values[order]) > 0))
    counts = weights[order]
    if len(starts) < len(order):
        counts = np.add.reduceat(counts, starts, axis=0)
    upper = np.cumsum(counts, axis=0)
    upper -= counts / 2
    upper -= weights.sum(axis=0) / 2
    centered: Floats = upper[np.searchsorted(values[order][starts], values)]
    return centered


def measure_of_labeled(
    labels: Labels, measure: Callable[..., Measure], *columns: Labels
) -> Measure:
    """Return the `measure` of labels and columns, (N,) each, of the rows whose label is not NaN."""
    labeled = ~np.isnan(labels)
    inner = measure(labels[labeled], *(column[labeled] for column in columns))
    if labeled.all():
        return inner
    return lambda weights: inner(weights[:, labeled])


def mean_defined(values: Floats) -> Floats:
    """Return means over the first axis without NaN; NaN where all are NaN."""
    counts = (~np.isnan(values)).sum(axis=0)
    return divide(np.nansum(values, axis=0), counts, np.nan)


def resample(
    measures: Sequence[Measure], groups: Counts, resamples: int, seed: int = 0
) -> list[Floats]:
    """Return metrics (K, 1 + R) of each measure: of all rows, then of R resamples of groups of rows.

    Rows with the same number in `groups` (N,) are drawn together. A single group is not resampled.
    """
    ids = np.unique(groups, return_inverse=True)[1]
    count, rows = int(ids.max()) + 1, len(ids)
    values = [[measure(np.ones((1, rows)))] for measure in measures]
    generator = np.random.default_rng(seed)
    if count == 1:
        resamples = 0
    for counts in draw_counts(generator, count, resamples, _SPACE * rows):
        weights = counts[:, ids].astype(np.float64)
        for column, measure in zip(values, measures, strict=True):
            column.append(measure(weights))
    return [np.concatenate(column, axis=1) for column in values]


def called_classes(scores: Labels, exclusive: bool) -> NDArray[np.bool_]:
    """Return which outputs (N, T) are called: the most probable one if exclusive, else all from 0.5 on."""
    if not exclusive:
        return np.asarray(scores >= THRESHOLD, bool)
    return np.asarray(np.eye(scores.shape[1], dtype=bool)[scores.argmax(axis=1)])


Estimates = dict[str, list[list[Estimate]]]
"""Predictor → one row per output, after that of the mean over outputs if there are several; the columns are
the metrics, and the first metric of the first predictor minus that of the row."""


def class_estimates(
    labels: Labels,
    scores: Mapping[str, Labels],
    groups: Counts,
    *,
    exclusive: bool = False,
    seed: int = 0,
) -> Estimates:
    """Return the metrics `CLASS_METRICS` of predictors' probabilities (N, T) for labels (N, T) of 0 and 1;
    NaN are missing labels, which count in no metric.

    If the outputs are exclusive, rows have one of T classes: a class is evaluated against all others, and MCC
    and balanced accuracy of the mean over outputs are those of all classes. With more than 20 outputs, only
    AUROCs have an interval for each output.
    """
    outputs = range(labels.shape[1])
    measures = {}
    for name, values in scores.items():
        called = called_classes(values, exclusive)
        measures[name] = [
            measure_of_labeled(labels[:, t], class_measure, values[:, t], called[:, t])
            for t in outputs
        ]
        if exclusive:
            measures[name].append(multiclass_measure(labels, called))
    estimates = _estimates(measures, len(outputs), groups, seed)
    ids = np.unique(groups, return_inverse=True)[1]
    first = next(iter(scores.values()))
    for t in outputs:
        labeled = ~np.isnan(labels[:, t].astype(np.float64))
        y, blocks = labels[labeled, t], ids[labeled]
        for name, values in scores.items():
            row = estimates[name][t - len(outputs)]
            row[0] = auroc(y, values[labeled, t], blocks)
            if values is not first:
                pair = first[labeled, t], values[labeled, t]
                row[-1] = auroc_difference(y, *pair, blocks).estimate
    return estimates


def regression_estimates(
    labels: Labels, predictions: Mapping[str, Labels], groups: Counts, *, seed: int = 0
) -> Estimates:
    """Return the metrics `REGRESSION_METRICS` of predictors' numbers (N, T) for labels (N, T); NaN are
    missing labels.

    With more than 20 outputs, only their mean has intervals.
    """
    count = labels.shape[1]
    measures = {
        name: [
            measure_of_labeled(labels[:, t], regression_measure, values[:, t])
            for t in range(count)
        ]
        for name, values in predictions.items()
    }
    return _estimates(measures, count, groups, seed)


def _estimates(
    measures: Mapping[str, Sequence[Measure]], outputs: int, groups: Counts, seed: int
) -> Estimates:
    """Return the estimates of predictors from measures of their outputs, the same number of each.

    A further measure of a predictor replaces the last metrics of the mean over outputs.
    """
    resamples = 100
    if outputs <= MOST_OUTPUTS:
        resamples = 1000
    elif outputs <= _MANY_OUTPUTS:
        resamples = 200
    sampled = iter(
        resample([m for row in measures.values() for m in row], groups, resamples, seed)
    )
    estimates: Estimates = {}
    first: Floats | None = None
    for name, row in measures.items():
        values = [next(sampled) for _ in row]
        metrics = np.stack(values[:outputs])  # (T, K, 1 + R)
        lead = np.full_like(metrics[:, :1], np.nan)
        if first is None:
            first = metrics[:, :1]
        else:
            lead = first - metrics[:, :1]
        mean = mean_defined(metrics)
        for of_all in values[outputs:]:
            mean[-len(of_all) :] = of_all
        rows = [[*mean, mean_defined(lead)[0]]] if outputs > 1 else []
        if outputs > MOST_OUTPUTS:
            metrics, lead = metrics[..., :1], lead[..., :1]
        rows += [[*row] for row in np.concatenate([metrics, lead], axis=1)]
        estimates[name] = [[_estimate(cell) for cell in row] for row in rows]
    return estimates


def _estimate(values: Floats) -> Estimate:
    """Return the first value with the interval of the others (R,)."""
    if np.isnan(values[0]):
        return UNDEFINED
    return with_width(percentile_interval(values[0], values[1:]))
