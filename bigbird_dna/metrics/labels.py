"""Metrics of predicted labels of any kind, with 95 % intervals over groups of similar rows.

A measure computes its metrics under many weights of the rows at once, those of a bootstrap: groups are drawn
with replacement, and all predictors and outputs have the same draws. Differences are thus paired, and the
mean over outputs has an interval that contains the correlation of the outputs. The interval of the AUROC of
an output, and of its difference, is the closed form of `metrics.auroc`; all others are percentiles.

An output that is undefined in a resample, for example without positives, is left out of the mean there. If
all resamples are equal, there is no interval, because they do not mean certainty.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.metrics.auroc import (
    Counts,
    Estimate,
    Floats,
    Steps,
    auroc,
    auroc_difference,
)
from bigbird_dna.metrics.resampling import (
    THRESHOLD,
    WeightedRows,
    draw_counts,
    percentile_interval,
    weighted_metrics,
    with_width,
)

CLASS_METRICS = ("auroc", "auprc", "f1", "mcc", "balanced_accuracy")
REGRESSION_METRICS = ("pearson", "spearman", "r2")

MOST_OUTPUTS = 20
"""With more outputs, only their mean has an interval from the bootstrap."""
_MANY_OUTPUTS = 100
_SPACE = 4  # arrays of the size of the weights that a measure needs

# Axes: N rows, T outputs, K metrics, R weights of all rows (resamples).

Labels = NDArray[np.floating[Any] | np.integer[Any] | np.bool_]
Measure = Callable[[Floats], Floats]
"""Weights of rows, whole numbers from 0 (R, N) → metrics (K, R), NaN if undefined."""


def class_measure(labels: Labels, scores: Labels, called: Labels) -> Measure:
    """Return the measure of `CLASS_METRICS` of one output, for rows (N,) with labels 0 and 1.

    `called` marks rows called positive. Balanced accuracy is the mean of sensitivity and specificity. All are
    NaN if a class is missing.
    """
    y, calls = labels.astype(bool), called.astype(bool)
    steps = Steps.of_rows(y, scores)
    if steps is None:
        return lambda weights: np.full((len(CLASS_METRICS), len(weights)), np.nan)
    rows = WeightedRows.of(y, scores, steps)
    cells = np.stack([y & calls, y, ~y & ~calls, ~y], axis=1)

    def measure(weights: Floats) -> Floats:
        true, above, false = rows.counts(weights)
        found, positives, rejected, negatives = (weights @ cells.astype(np.float64)).T
        # Negatives below each score of positives, plus half of those tied with it.
        below = 2 * negatives[:, None] - above - false
        ordered = (np.diff(true, axis=1, prepend=0) * below).sum(axis=1)
        area = _ratio(ordered, 2 * positives * negatives)
        accuracy = (_ratio(found, positives) + _ratio(rejected, negatives)) / 2
        return np.stack([area, *weighted_metrics(rows, calls, weights), accuracy])

    return measure


def measure_of_known(
    labels: Labels, measure: Callable[..., Measure], *columns: Labels
) -> Measure:
    """Return the `measure` of labels and columns, (N,) each, of the rows whose label is not NaN."""
    known = ~np.isnan(labels)
    inner = measure(labels[known], *(column[known] for column in columns))
    if known.all():
        return inner
    return lambda weights: inner(weights[:, known])


def multiclass_measure(labels: Labels, called: Labels) -> Measure:
    """Return the measure of MCC and balanced accuracy for rows that each have one of T classes.

    `labels` and `called` (N, T) are 1 for the true and for the called class of a row. MCC is that of Gorodkin
    (2004), and 0 if all calls are equal. Balanced accuracy is the mean recall of the classes that occur. MCC
    is NaN with a single class.
    """
    y, calls = labels.astype(np.float64), called.astype(np.float64)
    right = y * calls

    def measure(weights: Floats) -> Floats:
        total = weights.sum(axis=1)
        true, positive, correct = weights @ y, weights @ calls, weights @ right
        covariance = correct.sum(axis=1) * total - (true * positive).sum(axis=1)
        spread = total**2 - (true**2).sum(axis=1)
        found = (total**2 - (positive**2).sum(axis=1)) * spread
        mcc = np.where(
            found > 0,
            _ratio(covariance, np.sqrt(found)),
            np.where(spread > 0, 0.0, np.nan),
        )
        return np.stack([mcc, mean_defined(_ratio(correct, true).T)])

    return measure


def regression_measure(labels: Labels, predictions: Labels) -> Measure:
    """Return the measure of `REGRESSION_METRICS` of one output, for rows (N,) of real numbers.

    R² is the coefficient of determination, which is negative if the mean of the labels is a better
    prediction. Correlations are NaN if labels or predictions are constant, and R² if the labels are.
    """
    if not len(labels):
        return lambda weights: np.full((len(REGRESSION_METRICS), len(weights)), np.nan)
    y, p = (np.asarray(values, np.float64) for values in (labels, predictions))
    centers, scales = ([f(values) for values in (y, p)] for f in (np.mean, np.std))
    x, z = (
        (v - c) / (s or 1.0) for v, c, s in zip((y, p), centers, scales, strict=True)
    )
    moments = np.stack([x, z, x * x, z * z, x * z, (y - p) ** 2], axis=1)

    def measure(weights: Floats) -> Floats:
        total = weights.sum(axis=1)
        total[total == 0] = np.nan  # a resample without these rows
        mean_x, mean_z, xx, zz, xz, errors = (weights @ moments).T / total
        xx, zz, xz = xx - mean_x**2, zz - mean_z**2, xz - mean_x * mean_z
        columns = np.ascontiguousarray(weights.T)
        of_y, of_p = weighted_ranks(y, columns), weighted_ranks(p, columns)
        products = ((of_y, of_p), (of_y, of_y), (of_p, of_p))
        ranked, varied, others = (
            np.einsum("nr,nr,nr->r", columns, *pair) for pair in products
        )
        spearman = _ratio(ranked, np.sqrt(varied * others))
        # Ranks are exact: without rounding, their variation is 0 if all values are equal.
        pearson = np.where(
            np.isnan(spearman), np.nan, _ratio(xz, np.sqrt(np.maximum(xx * zz, 0)))
        )
        r2 = np.where(varied > 0, 1 - _ratio(errors, xx * scales[0] ** 2), np.nan)
        return np.stack([*np.clip([pearson, spearman], -1, 1), r2])

    return measure


def weighted_ranks(values: Floats, weights: Floats) -> Floats:
    """Return ranks (N, R) minus their mean, of rows with `values` (N,) that occur `weights` (N, R) times.

    Equal values have the mean of their ranks.
    """
    order = np.argsort(values, kind="stable")
    starts = np.flatnonzero(np.append(True, np.diff(values[order]) > 0))
    ordered = weights[order]
    counts = (
        ordered
        if len(starts) == len(order)
        else np.add.reduceat(ordered, starts, axis=0)
    )
    upper = np.cumsum(counts, axis=0)
    upper -= counts / 2
    upper -= weights.sum(axis=0) / 2
    level = np.empty(len(order), np.int64)
    level[order] = np.repeat(
        np.arange(len(starts)), np.diff(np.append(starts, len(order)))
    )
    centered: Floats = upper[level]
    return centered


def _ratio(above: Floats, below: Floats) -> Floats:
    """Return quotients, NaN where the denominator is 0."""
    return np.divide(above, below, out=np.full_like(above, np.nan), where=below > 0)


def mean_defined(values: Floats) -> Floats:
    """Return means over the first axis without NaN; NaN where all are NaN."""
    known = ~np.isnan(values)
    return _ratio(
        np.where(known, values, 0.0).sum(axis=0), known.sum(axis=0).astype(np.float64)
    )


def resampled(
    measures: Sequence[Measure], groups: Counts, resamples: int, seed: int = 0
) -> list[Floats]:
    """Return metrics (K, 1 + R) of each measure: of all rows, then of R resamples of groups of rows.

    Rows with the same number in `groups` (N,) are drawn together. A single group is not resampled.
    """
    ids = np.unique(groups, return_inverse=True)[1]
    count, rows = int(ids.max()) + 1, len(ids)
    found = [[measure(np.ones((1, rows)))] for measure in measures]
    generator = np.random.default_rng(seed)
    for counts in draw_counts(
        generator, count, resamples if count > 1 else 0, _SPACE * rows
    ):
        weights = counts[:, ids].astype(np.float64)
        for values, measure in zip(found, measures, strict=True):
            values.append(measure(weights))
    return [np.concatenate(values, axis=1) for values in found]


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
    known, ids = (
        ~np.isnan(labels.astype(np.float64)),
        np.unique(groups, return_inverse=True)[1],
    )
    y = np.where(known, labels, 0).astype(bool)
    outputs = range(y.shape[1])
    called = {
        name: called_classes(values, exclusive) for name, values in scores.items()
    }
    measures = {
        name: [
            measure_of_known(
                labels[:, t], class_measure, values[:, t], called[name][:, t]
            )
            for t in outputs
        ]
        for name, values in scores.items()
    }
    whole = (
        {name: multiclass_measure(y, calls) for name, calls in called.items()}
        if exclusive
        else {}
    )
    found = _estimates(measures, ids, seed, whole)
    first = next(iter(scores.values()))
    for name, rows in found.items():
        values = scores[name]
        for t, row in zip(outputs, rows[-len(outputs) :], strict=True):
            own = known[:, t]
            row[0] = auroc(y[own, t], values[own, t], ids[own])
            if values is not first:
                row[-1] = auroc_difference(
                    y[own, t], first[own, t], values[own, t], ids[own]
                ).estimate
    return found


def regression_estimates(
    labels: Labels, predictions: Mapping[str, Labels], groups: Counts, *, seed: int = 0
) -> Estimates:
    """Return the metrics `REGRESSION_METRICS` of predictors' numbers (N, T) for labels (N, T), without NaN.

    With more than 20 outputs, only their mean has intervals.
    """
    measures = {
        name: [
            measure_of_known(labels[:, t], regression_measure, values[:, t])
            for t in range(labels.shape[1])
        ]
        for name, values in predictions.items()
    }
    return _estimates(measures, groups, seed)


def _estimates(
    measures: Mapping[str, Sequence[Measure]],
    groups: Counts,
    seed: int,
    whole: Mapping[str, Measure] | None = None,
) -> Estimates:
    """Return the estimates of measures of T outputs; `whole` measures the last metrics of all outputs."""
    count = len(next(iter(measures.values())))
    resamples = (
        1000 if count <= MOST_OUTPUTS else 200 if count <= _MANY_OUTPUTS else 100
    )
    every = [one for own in measures.values() for one in own] + [
        *(whole or {}).values()
    ]
    sampled = resampled(every, groups, resamples, seed)
    found: Estimates = {}
    first: Floats | None = None
    for number, name in enumerate(measures):
        values = np.stack(
            sampled[number * count : (number + 1) * count]
        )  # (T, K, 1 + R)
        of_all = mean_defined(values)
        if whole:
            own = sampled[len(measures) * count + number]
            of_all[-len(own) :] = own
        undefined = np.full_like(values[:, 0], np.nan)
        leads = undefined if first is None else first - values[:, 0]
        first = values[:, 0] if first is None else first
        rows = (
            [[*map(_estimate, of_all), _estimate(mean_defined(leads))]]
            if count > 1
            else []
        )
        shown = values.shape[2] if count <= MOST_OUTPUTS else 1
        for own, lead in zip(values[..., :shown], leads[..., :shown], strict=True):
            rows.append([*map(_estimate, own), _estimate(lead)])
        found[name] = rows
    return found


def _estimate(values: Floats) -> Estimate:
    """Return the first value with the interval of the others (R,)."""
    value = float(values[0])
    return (
        Estimate()
        if np.isnan(value)
        else with_width(percentile_interval(value, values[1:]))
    )
