"""ROC and precision–recall curves as few points, for a page that holds those of many tracks.

A curve is a list of (false positives, true positives), from none to all. ROC joins them with lines;
precision at the recall of a corner, the first of those with its true positives, is
true / (true + false).
"""

from __future__ import annotations

import base64

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.reporting.metrics.steps import Steps

POINTS = 80


def thin_curve(steps: Steps, points: int = POINTS) -> NDArray[np.int64]:
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
    thinned: NDArray[np.int64] = corners[np.append(True, moved)]
    return thinned


def encode_curve(curve: NDArray[np.int64]) -> str:
    """Base64 of the steps from corner to corner, false then true, each as a LEB128 number."""
    numbers = np.diff(curve, axis=0, prepend=[(0, 0)]).ravel().tolist()
    data = bytearray()
    for number in numbers:
        while number > 127:
            data.append(number & 127 | 128)
            number >>= 7
        data.append(number)
    return base64.b64encode(data).decode("ascii")


def decode_curve(text: str) -> NDArray[np.int64]:
    """The curve that `encode_curve` wrote."""
    numbers, value, shift = [], 0, 0
    for byte in base64.b64decode(text):
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            numbers.append(value)
            value, shift = 0, 0
    return np.array(numbers, np.int64).reshape(-1, 2).cumsum(axis=0)
