"""Metrics of a binary classifier with 95 % intervals: AUROC, AUPRC, F1 and MCC.

AUROC's interval is DeLong's; the others are percentiles of a bootstrap in which the rows of a group
(a promoter and the negative derived from it) are drawn together.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bigbird_dna.metrics.auroc import UNDEFINED, auroc_note, auroc_of
from bigbird_dna.metrics.curves import Floats, Steps, WeightedRows, average_precision
from bigbird_dna.metrics.resampling import draw_counts, percentile_interval

THRESHOLD = 0.5
RESAMPLES = 1000


class BinaryMetrics(NamedTuple):
    """Metrics with 95 % intervals; NaN, and the reason in `note`, where they are not defined."""

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
    groups: ArrayLike | None = None,
    resamples: int = RESAMPLES,
) -> BinaryMetrics:
    """Evaluate `probabilities` (N,) by `labels` (N,) of 0 and 1.

    Rows of one id in `groups` (N,) are resampled together. AUPRC is average precision (a step function, tied
    scores taken together). F1 and MCC call a row positive from 0.5 on; both are 0 where nothing is called
    positive. `ValueError`: shapes differ, a label is neither 0 nor 1, or a probability is NaN.
    """
    y, p = np.asarray(labels), np.asarray(probabilities, dtype=np.float64)
    if not np.isin(y, (0, 1)).all():
        raise ValueError("labels must be 0 or 1")
    steps = Steps.of_rows(y, p)
    n, positives = len(y), int(y.sum())
    if steps is None:
        note = auroc_note(positives, n - positives, UNDEFINED)
        return BinaryMetrics(n, positives, *UNDEFINED, *UNDEFINED, *UNDEFINED, *UNDEFINED, note)
    ids = np.arange(n) if groups is None else _group_numbers(np.asarray(groups), n)
    rows, called = WeightedRows.of(y, p, steps), p >= THRESHOLD
    whole = weighted_metrics(rows, called, np.ones((1, n)))[:, 0]
    drawn = [np.zeros((3, 0))]
    for counts in draw_counts(np.random.default_rng(seed), int(ids.max()) + 1, resamples, n):
        drawn.append(weighted_metrics(rows, called, counts[:, ids].astype(np.float64)))
    precision, f1, mcc = map(percentile_interval, whole.tolist(), np.concatenate(drawn, axis=1))
    area = auroc_of(steps)
    note = auroc_note(positives, n - positives, area)
    return BinaryMetrics(n, positives, *area, *precision, *f1, *mcc, note)


def weighted_metrics(rows: WeightedRows, called: NDArray[np.bool_], weights: Floats) -> Floats:
    """Average precision, F1 and MCC, (3, R), of rows under `weights` (R, N).

    `called` positive (N,). NaN where the weights leave no positive; F1 and MCC also where they leave no
    negative.
    """
    true, _, false = rows.counts(weights)
    y = np.isin(np.arange(len(called)), rows.positives)
    cells = np.stack([y & called, ~y & called, y & ~called, ~y & ~called], axis=1)
    tp, fp, fn, tn = (weights @ cells.astype(np.float64)).T
    f1 = _ratio(2 * tp, 2 * tp + fp + fn)
    mcc = _ratio(tp * tn - fp * fn, np.sqrt((tp + fp) * (fn + tn) * (tp + fn) * (fp + tn)))
    both = (tp + fn > 0) & (fp + tn > 0)
    return np.stack([average_precision(true, false), *(np.where(both, v, np.nan) for v in (f1, mcc))])


def _group_numbers(groups: NDArray[np.generic], n: int) -> NDArray[np.intp]:
    if groups.shape != (n,):
        raise ValueError(f"groups {groups.shape} must be one a row ({n})")
    numbers: NDArray[np.intp] = np.unique(groups, return_inverse=True)[1]
    return numbers


def _ratio(above: Floats, below: Floats) -> Floats:
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)
