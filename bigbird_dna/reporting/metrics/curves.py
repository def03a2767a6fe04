"""ROC and precision–recall curves as few points.

A curve is a list of corners (false positives, true positives), from none to all. ROC joins them with
lines; precision is stepwise, as average precision takes it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.reporting.metrics.steps import Counts, Floats, Steps


def thin_curve(steps: Steps, points: int) -> Counts:
    """At most 6 × `points` (commonly 3 ×) corners (false, true) of the whole curve, (P, 2).

    Corners are taken about evenly along the ROC curve, whose length over both axes is 2, and along
    recall, so that between two of them either axis moves by no more than 2 / `points`, or there is
    no corner in between.
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
