"""Figures of a binary classifier with 95 % intervals: AUROC, AUPRC, F1 and MCC.

AUROC's interval is DeLong's; the others are percentiles of a bootstrap in which the rows of a group
(a promoter and the negative derived from it) are drawn together.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bigbird_dna.reporting.metrics.auroc import UNDEFINED, Estimate, auroc, auroc_difference

__all__ = ["BinaryMetrics", "auroc_difference", "binary_metrics"]

THRESHOLD = 0.5
RESAMPLES = 1000
# Weights of this many rows × resamples are held at a time (float64: 32 MB).
CHUNK = 4_000_000

Floats = NDArray[np.float64]


class BinaryMetrics(NamedTuple):
    """Figures with 95 % intervals; NaN, and the reason in `note`, where they are not defined."""

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
    """Judge `probabilities` (N,) against `labels` (N,) of 0 and 1.

    Parameters
    ----------
    seed
        Of the bootstrap.
    groups
        Ids (N,) of rows that are resampled together, such as pair ids; None: every row on its own.
    resamples
        Bootstrap samples behind the intervals of AUPRC, F1 and MCC.

    Notes
    -----
    AUPRC is average precision (a step function, tied scores taken together). F1 and MCC call a row
    positive from 0.5 on. Both are 0 where nothing is called positive.
    """
    y, p = np.asarray(labels), np.asarray(probabilities, dtype=np.float64)
    if y.ndim != 1 or y.shape != p.shape:
        raise ValueError(f"labels {y.shape} and probabilities {p.shape} must be 1-D of one length")
    if not np.isin(y, (0, 1)).all():
        raise ValueError("labels must be 0 or 1")
    if np.isnan(p).any():
        raise ValueError("probabilities hold NaN")
    y = y.astype(bool)
    n, positives = len(y), int(y.sum())
    if positives in (0, n):
        note = f"{'no' if not positives else 'only'} positives" if n else "no rows"
        return BinaryMetrics(n, positives, *UNDEFINED, *UNDEFINED, *UNDEFINED, *UNDEFINED, note)
    area = auroc(y, p)
    precision, f1, mcc = _bootstrap(y, p, _group_ids(groups, n), seed, resamples)
    return BinaryMetrics(n, positives, *area, *precision, *f1, *mcc, _note(area, positives, n))


def average_precision(labels: NDArray[np.bool_], scores: Floats, weights: Floats) -> Floats:
    """Average precision under each row of `weights` (R, N), how often each example counts.

    Shape (R,); NaN where the weights leave no positive.
    """
    order = np.argsort(-scores, kind="stable")
    # Tied scores share one threshold, after the last of them.
    ends = np.append(np.flatnonzero(np.diff(scores[order])), len(scores) - 1)
    weighted = weights[:, order]
    called = np.cumsum(weighted, axis=1)[:, ends]
    hits = np.cumsum(weighted * labels[order], axis=1)[:, ends]
    precision = np.divide(hits, called, out=np.zeros_like(hits), where=called > 0)
    gained = np.diff(hits, axis=1, prepend=0.0)
    return _ratio((precision * gained).sum(axis=1), hits[:, -1])


def _note(area: Estimate, positives: int, n: int) -> str:
    if math.isnan(area.low):
        return f"only one {'positive' if positives == 1 else 'negative'}: no interval of AUROC"
    if area.value in (0.0, 1.0):
        return "classes fully separated: AUROC has no spread"
    return ""


def _group_ids(groups: ArrayLike | None, n: int) -> NDArray[np.int64]:
    if groups is None:
        return np.arange(n)
    names = np.asarray(groups)
    if names.shape != (n,):
        raise ValueError(f"groups {names.shape} must be one a row ({n})")
    return np.unique(names, return_inverse=True)[1].astype(np.int64)


def _bootstrap(
    y: NDArray[np.bool_], p: Floats, groups: NDArray[np.int64], seed: int, resamples: int
) -> tuple[Estimate, Estimate, Estimate]:
    """Average precision, F1 and MCC, with percentile intervals over resampled groups."""
    called = p >= THRESHOLD
    size = int(groups.max()) + 1
    # Counts of true positives, false positives, false negatives and true negatives in each group.
    cells = np.stack(
        [
            np.bincount(groups, weights=cell, minlength=size)
            for cell in (y & called, ~y & called, y & ~called, ~y & ~called)
        ]
    )
    generator = np.random.default_rng(seed)
    drawn: list[tuple[Floats, Floats, Floats]] = []
    chunk = max(CHUNK // len(y), 1)
    for start in range(0, resamples, chunk):
        weights = np.stack(
            [
                np.bincount(generator.integers(size, size=size), minlength=size).astype(np.float64)
                for _ in range(min(chunk, resamples - start))
            ]
        )
        drawn.append(
            (average_precision(y, p, weights[:, groups]), *_threshold_figures(cells @ weights.T))
        )
    whole = (
        average_precision(y, p, np.ones((1, len(y)))),
        *_threshold_figures(cells.sum(axis=1, keepdims=True)),
    )
    first, second, third = (
        _percentiles(float(value[0]), np.concatenate(samples) if samples else np.zeros(0))
        for value, samples in zip(whole, _columns(drawn), strict=True)
    )
    return first, second, third


def _columns(drawn: list[tuple[Floats, Floats, Floats]]) -> list[list[Floats]]:
    return [[row[column] for row in drawn] for column in range(3)]


def _threshold_figures(cells: Floats) -> tuple[Floats, Floats]:
    """F1 and Matthews' correlation from (4, R) counts; NaN where the counts hold one class only."""
    tp, fp, fn, tn = cells
    f1 = _ratio(2 * tp, 2 * tp + fp + fn)
    spread = np.sqrt((tp + fp) * (fn + tn) * (tp + fn) * (fp + tn))
    mcc = np.divide(tp * tn - fp * fn, spread, out=np.zeros_like(spread), where=spread > 0)
    one_class = (tp + fn == 0) | (fp + tn == 0)
    return np.where(one_class, np.nan, f1), np.where(one_class, np.nan, mcc)


def _ratio(above: Floats, below: Floats) -> Floats:
    return np.divide(above, below, out=np.full_like(above, np.nan), where=below > 0)


def _percentiles(value: float, samples: Floats) -> Estimate:
    defined = samples[~np.isnan(samples)]
    if not defined.size:
        return Estimate(value, math.nan, math.nan)
    low, high = np.percentile(defined, [2.5, 97.5])
    return Estimate(value, float(low), float(high))
