"""Rows ranked by their scores, as counts: what AUROC, average precision and both curves are made of.

All of them depend on the negatives only through how many lie above and level with each positive, so
that positives and negatives are sorted apart (which needs no order of rows) and the rest is work on
the D distinct scores of positives. Counts are whole numbers: ties are exact.

A curve is a list of corners (false positives, true positives), from none to all. ROC joins them with
lines; precision is stepwise, as average precision takes it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Counts = NDArray[np.int64]
Floats = NDArray[np.float64]
Scores = NDArray[np.floating[Any]]


class Steps(NamedTuple):
    """Counts at the distinct scores of positives, from the highest score down, each (D,)."""

    positives: int
    negatives: int
    true: Counts  # positives of at least this score
    above: Counts  # negatives of a higher score
    false: Counts  # negatives of at least this score

    @classmethod
    def of(cls, positives: Scores, negatives: Scores) -> Steps:
        """From the scores of the positives and of the negatives, neither empty; both get sorted."""
        positives.sort()
        negatives.sort()
        m, n = len(positives), len(negatives)
        starts = np.flatnonzero(np.append(True, positives[1:] != positives[:-1]))
        distinct = positives[starts]
        # From ascending scores and "below" to descending scores and "at least".
        true = (m - starts)[::-1]
        false = (n - np.searchsorted(negatives, distinct, "left"))[::-1]
        above = (n - np.searchsorted(negatives, distinct, "right"))[::-1]
        return cls(m, n, true, above, false)

    @classmethod
    def of_rows(cls, labels: ArrayLike, scores: ArrayLike) -> Steps | None:
        """From rows as `by_class` takes them; None where a class is missing."""
        positives, negatives = by_class(labels, scores)
        return cls.of(positives, negatives) if len(positives) and len(negatives) else None


def by_class(labels: ArrayLike, scores: ArrayLike) -> tuple[Scores, Scores]:
    """Copies of the scores of positives (m,) and of negatives (n,), each in the order of rows (N,).

    They are ranked in float32 if they come so, else in float64. `ValueError`: the shapes differ or are not
    1-D, or a score is NaN.
    """
    y, x = np.asarray(labels).astype(bool), np.asarray(scores)
    if x.dtype != np.float32:
        x = x.astype(np.float64)
    if y.shape != x.shape or y.ndim != 1:
        raise ValueError(f"labels {y.shape} and scores {x.shape} must be 1-D of one length")
    if np.isnan(x).any():
        raise ValueError("scores hold NaN")
    return x[y], x[~y]


class WeightedRows(NamedTuple):
    """Rows of two classes, prepared to be counted under many weights at once."""

    steps: Steps
    positives: NDArray[np.intp]  # (m,) rows by falling score
    negatives: NDArray[np.intp]  # (n,) likewise

    @classmethod
    def of(cls, labels: ArrayLike, scores: ArrayLike, steps: Steps) -> WeightedRows:
        """From rows (N,) and their steps."""
        y, order = np.asarray(labels).astype(bool), np.argsort(-np.asarray(scores, np.float64), kind="stable")
        return cls(steps, order[y[order]], order[~y[order]])

    def counts(self, weights: Floats) -> tuple[Floats, Floats, Floats]:
        """`true`, `above` and `false` of the steps, (R, D), of rows under `weights` (R, N)."""
        true = np.cumsum(weights[:, self.positives], axis=1)[:, self.steps.true - 1]
        passed = np.pad(np.cumsum(weights[:, self.negatives], axis=1), ((0, 0), (1, 0)))
        return true, passed[:, self.steps.above], passed[:, self.steps.false]

    def aurocs(self, weights: Floats) -> Floats:
        """AUROC (R,) under `weights` (R, N); NaN where they leave one class only."""
        true, above, false = self.counts(weights)
        negatives = weights[:, self.negatives].sum(axis=1)
        twice = 2 * negatives[:, None] - above - false
        ranked, pairs = (np.diff(true, axis=1, prepend=0) * twice).sum(axis=1), 2 * true[:, -1] * negatives
        found: Floats = np.divide(ranked, pairs, out=np.full(len(pairs), np.nan), where=pairs > 0)
        return found


def average_precision(true: NDArray[Any], false: NDArray[Any]) -> Floats:
    """Precision averaged over recall as a step function, tied scores taken together (AUPRC).

    `true` and `false` (…, D) are positives and negatives of at least each score, as in `Steps`, or the sums
    of their weights; (…), NaN where there is no positive.
    """
    called = true + false
    precision = np.divide(true, called, out=np.zeros(called.shape), where=called > 0)
    gained = np.diff(true, axis=-1, prepend=0)
    area, whole = (precision * gained).sum(axis=-1), true[..., -1]
    found: Floats = np.full(area.shape, np.nan)
    np.divide(area, whole, out=found, where=whole > 0)
    return found


def thin_curve(steps: Steps, points: int) -> Counts:
    """At most 6 × `points` (commonly 3 ×) corners (false, true) of the whole curve, (P, 2).

    Between two of them the ROC curve, whose length over both axes is 2, and recall move by no more than
    2 / `points`, or there is no corner in between.
    """
    m, n = steps.positives, steps.negatives
    before = np.append(0, steps.true[:-1])
    # Where each distinct score's rows begin (nothing but negatives passed) and end.
    corners = np.empty((2 * len(steps.true) + 2, 2), np.int64)
    corners[0], corners[-1] = (0, 0), (n, m)
    corners[1:-1:2] = np.stack([steps.above, before], axis=1)
    corners[2:-1:2] = np.stack([steps.false, steps.true], axis=1)
    if len(corners) > 2 * points:
        rates = corners / (n, m)
        along = rates.sum(axis=1)
        by_length = np.searchsorted(along, np.linspace(0, 2, points + 1))
        by_recall = np.searchsorted(rates[:, 1], np.linspace(0, 1, points + 1))
        # The first corner at or past each mark, and the last one short of it.
        chosen = np.concatenate([by_length, by_length - 1, by_recall, [0, len(corners) - 1]])
        # Precision at a recall is that of the first corner that reaches it: the even ones.
        chosen = np.concatenate([chosen, chosen - chosen % 2])
        corners = corners[np.unique(np.clip(chosen, 0, len(corners) - 1))]
    moved: NDArray[np.bool_] = (np.diff(corners, axis=0) != 0).any(axis=1)
    thinned: Counts = corners[np.append(True, moved)]
    return thinned


def precision_recall(curve: Counts) -> tuple[Floats, Floats]:
    """Recall and precision (each (K + 1,)) at the K corners of a curve (P, 2) that find more positives.

    A precision holds from the recall before it up to its own; in front stands recall 0.
    """
    false, true = curve[1:][curve[1:, 1] > curve[:-1, 1]].T
    precision = true / (true + false)
    return np.append(0, true / true[-1]), np.append(precision[0], precision)
