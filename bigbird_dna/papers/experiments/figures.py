"""Parts of plots that several experiments share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import pandas as pd

from bigbird_dna.reporting.result import BLUE, GREEN, VERMILION

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STARTS = {
    "pretrained": ("pretrained weights", BLUE, "o"),
    "random": ("random weights", VERMILION, "s"),
    "random_long": ("random weights, longer", GREEN, "^"),
}
"""Initial weights → label, color and marker."""


def interval_dots(
    axis: Axes, names: Iterable[str], figures: pd.DataFrame, colors: Sequence[str]
) -> None:
    """Plot one line per name from top to bottom: value, and interval from low to high, columns of `figures`."""
    labels = list(names)
    for place, (value, low, high) in enumerate(figures.to_numpy(dtype=float)):
        if low == low:
            axis.plot([low, high], [place] * 2, "-", color=colors[place], linewidth=1.2)
        axis.plot([value], [place], "o", color=colors[place], markersize=5)
    axis.set_yticks(range(len(labels)), labels)
    axis.set_ylim(len(labels) - 0.4, -0.6)


def grid_shape(count: int, columns: int = 3) -> tuple[int, int]:
    """Return rows and columns of a figure of `count` panels."""
    columns = max(1, min(columns, count))
    return max(1, -(-count // columns)), columns
