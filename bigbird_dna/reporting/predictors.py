"""Predictors that a report compares: their names and colors, and curves."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.data.predictions import (
    CNN,
    COMPOSITION,
    CONTROL,
    CPG,
    KMER,
    MODEL,
    NETWORK,
    POSITION,
)
from bigbird_dna.metrics.auroc import Ranking
from bigbird_dna.reporting.result import (
    BLUE,
    GRAY,
    GREEN,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
)

NEAR_CHANCE = 0.15
"""Controls, trainings on shuffled labels, differ by about 0.1, more than their intervals contain."""

LABELS = {
    MODEL: "model",
    NETWORK: "network alone",
    KMER: "k-mer regression",
    POSITION: "position regression",
    COMPOSITION: "composition regression",
    CNN: "convolutional network",
    CPG: "CpG density",
    CONTROL: "shuffled labels",
    "kmers": "k-mer regression",
    "dyads": "k-mer and dyad regression",
}
"""Predictor → its name for a reader."""
COLORS = {
    "model": BLUE,
    "network alone": SKY,
    "k-mer regression": VERMILION,
    "position regression": GREEN,
    "composition regression": PURPLE,
    "convolutional network": ORANGE,
    "CpG density": PURPLE,
    "shuffled labels": GRAY,
}

# The points of curves: false positive rates, dense near 0, and recalls.
RATES = np.linspace(0, 1, 101) ** 2
RECALLS = np.linspace(0, 1, 101)


def predictor_label(name: str) -> str:
    """Return the name of a predictor for a reader."""
    # The workflow's name of a model that sees less sequence.
    if name.startswith("window_"):
        return f"{int(name.removeprefix('window_')):,}-bp model"
    return LABELS.get(name, name.replace("_", " "))


def curve_points(ranking: Ranking) -> NDArray[np.float64]:
    """Return the true positive rates at `RATES`, and the precisions at `RECALLS`, (2, 101)."""
    m, n = len(ranking.positives), len(ranking.negatives)
    true, above, false = ranking.true, ranking.above, ranking.false
    # Corners before the rows of each distinct score, where only negatives were added, and after them.
    before = np.append(0, true[:-1])
    x = np.concatenate([[0], np.stack([above, false], axis=1).ravel(), [n]])
    y = np.concatenate([[0], np.stack([before, true], axis=1).ravel(), [m]])
    # Precision at a recall is that of the first score that reaches it. 0.07 * 100 is more than 7.
    first = np.searchsorted(true, np.ceil(RECALLS * m - 1e-9))
    precision = true[first] / (true[first] + false[first])
    return np.stack([np.interp(RATES * n, x, y) / m, precision])
