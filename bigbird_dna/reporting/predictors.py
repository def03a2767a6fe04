"""Predictors that a report compares: their colors and names, curves and histograms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bigbird_dna.data.predictions import (
    CNN,
    COMPOSITION,
    CONTROL,
    KMER,
    MODEL,
    NETWORK,
    ORF,
    POSITION,
)
from bigbird_dna.metrics.auroc import ENDS, Counts, Floats, Ranking, rank_rows
from bigbird_dna.metrics.labels import THRESHOLD
from bigbird_dna.reporting.result import (
    BLUE,
    CHANCE,
    GRAY,
    GREEN,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    interval,
    square_panel,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NEAR_CHANCE = 0.15
"""Controls, trainings on shuffled labels, differ by about 0.1, more than their intervals contain."""
# Points per curve; the error is at most 1/250 of a panel, which is not visible.
POINTS = 500


class _PlotStyle(NamedTuple):
    label: str
    color: str
    dashes: str | tuple[int, tuple[int, ...]]


STYLES = {
    MODEL: _PlotStyle("model", BLUE, "-"),
    NETWORK: _PlotStyle("network alone", SKY, (0, (8, 2))),
    KMER: _PlotStyle("k-mer regression", VERMILION, (0, (5, 2))),
    POSITION: _PlotStyle("position regression", GREEN, (0, (6, 2, 1, 2))),
    ORF: _PlotStyle("longest ORF", ORANGE, (0, (3, 1))),
    COMPOSITION: _PlotStyle("composition regression", PURPLE, (0, (4, 1, 1, 1, 1, 1))),
    CNN: _PlotStyle("convolutional network", ORANGE, (0, (3, 1))),
    CONTROL: _PlotStyle("shuffled labels", GRAY, (0, (1, 1))),
}


def predictor_label(name: str) -> str:
    """Return the name of a predictor for a reader."""
    if name in STYLES:
        return STYLES[name].label
    # The workflow's name of a model that sees less sequence.
    if name.startswith("window_"):
        return f"{int(name.removeprefix('window_')):,}-bp model"
    labels = {"kmers": "k-mer regression", "dyads": "k-mer and dyad regression"}
    return labels.get(name, name.replace("_", " "))


def draw_curves(
    axis: Axes,
    labels: NDArray[Any],
    scores: Mapping[str, NDArray[np.floating]],
    rows: pd.DataFrame,
    area: str,
    title: str,
) -> None:
    """Draw ROC ("auroc") or precision–recall curves ("auprc") of scores (N,), with a pale line for chance.

    The legend contains the areas from `rows`, whose index is the predictor. Without one of the classes there are no curves.
    """
    roc = area == "auroc"
    if roc:
        axis.axline((0, 0), slope=1, **CHANCE)
        axis.set(xlabel="false positive rate", ylabel="true positive rate")
    else:
        axis.axhline(labels.mean(), **CHANCE)
        axis.set(xlabel="recall", ylabel="precision")
    for name in sorted(scores, key=[*STYLES].index):
        ranking = rank_rows(labels, scores[name])
        if ranking is None:
            continue
        style = STYLES[name]
        estimate = rows.loc[name, [f"{area}{end}" for end in ENDS]]
        label = f"{style.label}  {interval(*map(float, estimate))}"
        curve = thin_curve(ranking, POINTS)
        x, y = curve.T / curve[-1][:, None] if roc else precision_recall(curve)
        look: Any = {"color": style.color, "linestyle": style.dashes, "label": label}
        axis.plot(x, y, drawstyle="default" if roc else "steps-pre", **look)
    positives, n = int(labels.sum()), len(labels)
    square_panel(
        axis,
        title,
        f"n = {positives:,} + {n - positives:,}",
        f"{area.upper()} [95 % CI]",
    )


def draw_histograms(
    axis: Axes,
    labels: NDArray[Any],
    probabilities: NDArray[np.floating],
    positives: str,
    rows: str,
) -> None:
    """Draw histograms of probabilities (N,) of both classes; the dashed line is the threshold."""
    edges = np.linspace(0, 1, 41).tolist()
    for label, name, color in ((0, "negatives", ORANGE), (1, positives, BLUE)):
        chosen = probabilities[labels == label]
        look: Any = {"facecolor": f"{color}59", "edgecolor": color, "linewidth": 1.4}
        axis.hist(
            chosen,
            edges,
            histtype="stepfilled",
            label=f"{name} ({len(chosen):,})",
            **look,
        )
    axis.axvline(THRESHOLD, color=GRAY, linewidth=1, linestyle=(0, (4, 3)))
    axis.set(xlabel="model's probability", ylabel=rows, xlim=(0, 1))
    axis.margins(y=0.3)
    axis.legend(loc="upper center", ncols=2, columnspacing=1.2)


def thin_curve(ranking: Ranking, points: int) -> Counts:
    """Return at most 6 × `points` (commonly 3 ×) corners (false, true) of the whole curve, (P, 2).

    Between adjacent corners, the ROC curve (total length 2 over both axes) and recall change by at most
    2 / `points`, unless there is no corner in between.
    """
    m, n = len(ranking.positives), len(ranking.negatives)
    true, above, false = ranking.true, ranking.above, ranking.false
    # Corners before each distinct score's rows (only negatives added) and after them.
    corners = np.empty((2 * len(true) + 2, 2), np.int64)
    corners[0], corners[-1] = (0, 0), (n, m)
    corners[1:-1:2] = np.stack([above, np.append(0, true[:-1])], axis=1)
    corners[2:-1:2] = np.stack([false, true], axis=1)
    if len(corners) > 2 * points:
        rates = corners / (n, m)
        along = rates.sum(axis=1)
        by_length = np.searchsorted(along, np.linspace(0, 2, points + 1))
        by_recall = np.searchsorted(rates[:, 1], np.linspace(0, 1, points + 1))
        # The first corner at or after each mark, and the last one before it.
        chosen = np.concatenate(
            [by_length, by_length - 1, by_recall, [0, len(corners) - 1]]
        )
        # Precision at a recall is that of the first corner that reaches it, which has an even index.
        chosen = np.concatenate([chosen, chosen - chosen % 2])
        corners = corners[np.unique(np.clip(chosen, 0, len(corners) - 1))]
    moved: NDArray[np.bool_] = (np.diff(corners, axis=0) != 0).any(axis=1)
    thinned: Counts = corners[np.append(True, moved)]
    return thinned


def precision_recall(curve: Counts) -> tuple[Floats, Floats]:
    """Return recall and precision (each (K + 1,)) at the K corners of a curve (P, 2) that add positives.

    A precision applies from the preceding recall up to its own; recall 0 is prepended.
    """
    false, true = curve[1:][curve[1:, 1] > curve[:-1, 1]].T
    precision = true / (true + false)
    return np.append(0, true / true[-1]), np.append(precision[0], precision)
