"""ROC and precision–recall curves, and histograms of the scores, a panel for each negative set."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.reporting.metrics.binary import THRESHOLD
from bigbird_dna.reporting.promoters.predictions import CONTROL, KMER, MODEL, Comparison
from bigbird_dna.reporting.style import (
    BLUE,
    GREY,
    ORANGE,
    PALE,
    VERMILLION,
    interval,
    panels,
    save_figure,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

# Points of a curve beyond this many can't be told apart at a panel's size.
LARGEST_CURVE = 1500

Floats = NDArray[np.float64]


class _Look(NamedTuple):
    label: str
    colour: str
    dashes: str | tuple[int, tuple[int, ...]]


LOOKS = {
    MODEL: _Look("model", BLUE, "-"),
    KMER: _Look("k-mer regression", VERMILLION, (0, (5, 2))),
    CONTROL: _Look("shuffled labels", GREY, (0, (1, 1))),
}


def roc_curve(labels: NDArray[np.int64], scores: Floats) -> tuple[Floats, Floats]:
    """False and true positive rates from (0, 0) to (1, 1), one point a distinct score."""
    hits, called = _cumulated(labels, scores)
    wrong = called - hits
    return wrong / wrong[-1], hits / hits[-1]


def precision_recall_curve(labels: NDArray[np.int64], scores: Floats) -> tuple[Floats, Floats]:
    """Recall and precision from the first hit down, one point a distinct score.

    Negatives above the first hit have recall 0 and precision 0, and no area under them.
    """
    hits, called = _cumulated(labels, scores)
    found = hits > 0
    return hits[found] / hits[-1], hits[found] / called[found]


def roc_figure(comparisons: Sequence[Comparison], table: pd.DataFrame, path: Path) -> None:
    """ROC curves; the legends give AUROC [95 % interval] from `promoter_table`'s `table`."""
    with panels(1, len(comparisons), 4.1, 4.4) as (figure, axes):
        for axis, comparison in zip(axes, comparisons, strict=True):
            axis.plot([0, 1], [0, 1], color=PALE, linewidth=1.2, zorder=1)
            for name, look, scores in _drawn(comparison):
                x, y = _thinned(*roc_curve(comparison.labels, scores))
                legend = f"{look.label}\n{_figure(table, comparison, name, 'auroc')}"
                axis.plot(x, y, color=look.colour, linestyle=look.dashes, label=legend)
            axis.set(xlabel="false positive rate", ylabel="true positive rate")
            _square(axis, comparison)
            _legend(axis, "lower right", "AUROC [95 % CI]")
        save_figure(figure, path)


def precision_recall_figure(
    comparisons: Sequence[Comparison], table: pd.DataFrame, path: Path
) -> None:
    """Precision–recall curves; the level line is the share of positives, where chance stands."""
    with panels(1, len(comparisons), 4.1, 4.4) as (figure, axes):
        for axis, comparison in zip(axes, comparisons, strict=True):
            axis.axhline(comparison.labels.mean(), color=PALE, linewidth=1.2, zorder=1)
            for name, look, scores in _drawn(comparison):
                x, y = _thinned(*precision_recall_curve(comparison.labels, scores))
                legend = f"{look.label}\n{_figure(table, comparison, name, 'auprc')}"
                axis.step(x, y, where="pre", color=look.colour, linestyle=look.dashes, label=legend)
            axis.set(xlabel="recall", ylabel="precision")
            _square(axis, comparison)
            _legend(axis, "lower left", "AUPRC [95 % CI]")
        save_figure(figure, path)


def histogram_figure(comparisons: Sequence[Comparison], path: Path) -> None:
    """How the model's probabilities spread over promoters and negatives; the line is the threshold."""
    edges = np.linspace(0, 1, 41)
    with panels(1, len(comparisons), 4.1, 3.4) as (figure, axes):
        for axis, comparison in zip(axes, comparisons, strict=True):
            scores = comparison.scores[MODEL]
            for label, name, colour in ((0, "negatives", ORANGE), (1, "promoters", BLUE)):
                chosen = scores[comparison.labels == label]
                counts = np.histogram(chosen, edges)[0]
                legend = f"{name} ({len(chosen):,})"
                axis.stairs(counts, edges, color=colour, alpha=0.35, fill=True, label=legend)
                axis.stairs(counts, edges, color=colour, linewidth=1.4)
            axis.axvline(THRESHOLD, color=GREY, linewidth=1, linestyle=(0, (4, 3)))
            axis.set(xlabel="model's probability", ylabel="windows", xlim=(0, 1))
            axis.set_title(_title(comparison))
            axis.margins(y=0.3)
            axis.legend(loc="upper center", ncols=2, columnspacing=1.2)
        save_figure(figure, path)


def _cumulated(labels: NDArray[np.int64], scores: Floats) -> tuple[Floats, Floats]:
    """Positives, and rows in all, at or above each distinct score; a zero in front."""
    order = np.argsort(-scores, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(scores[order])), len(scores) - 1)
    hits = np.cumsum(labels[order])[ends]
    return np.concatenate([[0.0], hits]), np.concatenate([[0.0], ends + 1.0])


def _thinned(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    if len(x) <= LARGEST_CURVE:
        return x, y
    kept = np.unique(np.linspace(0, len(x) - 1, LARGEST_CURVE).round().astype(int))
    return x[kept], y[kept]


def _drawn(comparison: Comparison) -> list[tuple[str, _Look, Floats]]:
    """Predictors in the order of `LOOKS`; none where a class is missing and there is no curve."""
    if len(np.unique(comparison.labels)) < 2:
        return []
    return [
        (name, look, comparison.scores[name])
        for name, look in LOOKS.items()
        if name in comparison.scores
    ]


def _figure(table: pd.DataFrame, comparison: Comparison, model: str, name: str) -> str:
    chosen = (table["negative_set"] == comparison.negative_set) & (table["model"] == model)
    low, high = f"{name}_low", f"{name}_high"
    return interval(*map(float, table.loc[chosen, [name, low, high]].to_numpy()[0]))


def _title(comparison: Comparison) -> str:
    return f"{comparison.negative_set} negatives"


def _legend(axis: Axes, place: Literal["lower left", "lower right"], title: str) -> None:
    if axis.get_legend_handles_labels()[0]:
        axis.legend(loc=place, title=title, alignment="left")
    else:
        axis.text(0.5, 0.5, "one class only", ha="center", color=GREY, transform=axis.transAxes)


def _square(axis: Axes, comparison: Comparison) -> None:
    positives, n = int(comparison.labels.sum()), len(comparison.labels)
    axis.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01))
    axis.set_box_aspect(1)
    axis.set_title(_title(comparison))
    axis.text(
        1, 1.02, f"n = {positives:,} + {n - positives:,}", transform=axis.transAxes,
        ha="right", va="bottom", fontsize=9, color=GREY,
    )  # fmt: skip
