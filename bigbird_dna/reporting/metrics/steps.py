"""Rows ranked by their scores, as counts: what AUROC, average precision and both curves are made of.

All of them depend on the negatives only through how many lie above and level with each positive, so
that positives and negatives are sorted apart (which needs no order of rows) and the rest is work on
the D distinct scores of positives. Counts are whole numbers: ties are exact.
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
    """Copies of the scores of positives (m,) and of negatives (n,), each in the order of rows.

    Parameters
    ----------
    labels : (N,) of 0 and 1.
    scores : (N,) of any range; ranked in float32 if they come so, else in float64.

    Raises
    ------
    ValueError
        The shapes differ or are not 1-D, or a score is NaN.
    """
    y, x = np.asarray(labels).astype(bool), np.asarray(scores)
    if x.dtype != np.float32:
        x = x.astype(np.float64)
    if y.shape != x.shape or y.ndim != 1:
        raise ValueError(f"labels {y.shape} and scores {x.shape} must be 1-D of one length")
    if np.isnan(x).any():
        raise ValueError("scores hold NaN")
    return x[y], x[~y]


def average_precision(true: NDArray[Any], false: NDArray[Any]) -> Floats:
    """Precision averaged over recall as a step function, tied scores taken together (AUPRC).

    Parameters
    ----------
    true, false : (…, D) positives and negatives of at least each score, as in `Steps`, or the sums of
        their weights.

    Returns
    -------
    (…); NaN where there is no positive.
    """
    called = true + false
    precision = np.divide(true, called, out=np.zeros(called.shape), where=called > 0)
    gained = np.diff(true, axis=-1, prepend=0)
    area, whole = (precision * gained).sum(axis=-1), true[..., -1]
    found: Floats = np.full(area.shape, np.nan)
    np.divide(area, whole, out=found, where=whole > 0)
    return found
