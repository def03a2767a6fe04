"""ROC and precision–recall curves, and histograms of the scores, a panel for each negative set."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from bigbird_dna.metrics.auroc import ENDS
from bigbird_dna.metrics.binary import THRESHOLD
from bigbird_dna.metrics.curves import Counts, Steps, precision_recall, thin_curve
from bigbird_dna.reporting.promoters.predictions import ALL, CONTROL, KMER, MODEL, POSITION, Comparison
from bigbird_dna.reporting.style import (
    BLUE,
    GREEN,
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

# Of a curve: on either axis it is off by at most a 250th of a panel, which can't be seen.
POINTS = 500


class _Look(NamedTuple):
    label: str
    colour: str
    dashes: str | tuple[int, tuple[int, ...]]


LOOKS = {
    MODEL: _Look("model", BLUE, "-"),
    KMER: _Look("k-mer regression", VERMILLION, (0, (5, 2))),
    POSITION: _Look("position regression", GREEN, (0, (6, 2, 1, 2))),
    CONTROL: _Look("shuffled labels", GREY, (0, (1, 1))),
}


def roc_figure(comparisons: Sequence[Comparison], table: pd.DataFrame, path: Path) -> None:
    """ROC curves; the legends give AUROC [95 % interval] from `promoter_table`'s `table`."""
    with panels(1, len(comparisons), 4.1, 4.4) as (figure, axes):
        for axis, comparison in zip(axes, comparisons, strict=True):
            axis.plot([0, 1], [0, 1], color=PALE, linewidth=1.2, zorder=1)
            for curve, look in _curves(comparison, table, "auroc"):
                axis.plot(*(curve.T / curve[-1][:, None]), **look)
            axis.set(xlabel="false positive rate", ylabel="true positive rate")
            _finish(axis, comparison, "lower right", "AUROC [95 % CI]")
        save_figure(figure, path)


def precision_recall_figure(comparisons: Sequence[Comparison], table: pd.DataFrame, path: Path) -> None:
    """Precision–recall curves; the level line is the share of positives, where chance stands."""
    with panels(1, len(comparisons), 4.1, 4.4) as (figure, axes):
        for axis, comparison in zip(axes, comparisons, strict=True):
            axis.axhline(comparison.labels.mean(), color=PALE, linewidth=1.2, zorder=1)
            for curve, look in _curves(comparison, table, "auprc"):
                axis.step(*precision_recall(curve), where="pre", **look)
            axis.set(xlabel="recall", ylabel="precision")
            _finish(axis, comparison, "lower left", "AUPRC [95 % CI]")
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
            axis.set_title(f"{comparison.negative_set} negatives")
            axis.margins(y=0.3)
            axis.legend(loc="upper center", ncols=2, columnspacing=1.2)
        save_figure(figure, path)


def _curves(
    comparison: Comparison, table: pd.DataFrame, area: str
) -> Iterator[tuple[Counts, dict[str, Any]]]:
    """Corners and looks of the predictors, in the order of `LOOKS`; none where a class is missing."""
    chosen = (table["negative_set"] == comparison.negative_set) & (table["stratum"] == ALL)
    rows = table[chosen].set_index("model")
    for name, look in LOOKS.items():
        scores = comparison.scores.get(name)
        steps = None if scores is None else Steps.of_rows(comparison.labels, scores)
        if steps:
            found = map(float, rows.loc[name, [f"{area}{end}" for end in ENDS]])
            label = f"{look.label}\n{interval(*found)}"
            yield thin_curve(steps, POINTS), {"color": look.colour, "linestyle": look.dashes, "label": label}


def square_panel(axis: Axes, negative_set: str, rows: str) -> None:
    """Let a panel go from 0 to 1 both ways, and name its negative set and how many rows are in it."""
    axis.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01))
    axis.set_box_aspect(1)
    axis.set_title(f"{negative_set} negatives")
    axis.text(
        1, 1.02, rows, transform=axis.transAxes, ha="right", va="bottom", fontsize=9, color=GREY
    )  # fmt: skip


def _finish(
    axis: Axes, comparison: Comparison, place: Literal["lower left", "lower right"], title: str
) -> None:
    """Make the panel square, and say how many rows and, at `place`, which curves are in it."""
    positives, n = int(comparison.labels.sum()), len(comparison.labels)
    square_panel(axis, comparison.negative_set, f"n = {positives:,} + {n - positives:,}")
    if axis.get_legend_handles_labels()[0]:
        axis.legend(loc=place, title=title, alignment="left")
    else:
        axis.text(0.5, 0.5, "one class only", ha="center", color=GREY, transform=axis.transAxes)
