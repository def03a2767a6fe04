"""How large predicted effects of variants are, by the kind of place that the variants are at."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bigbird_dna.metrics.curves import Floats
from bigbird_dna.reporting.style import BLUE, GREY, INK, ORANGE, panels, save_figure
from bigbird_dna.reporting.variants.table import KnownEffect, has_effect

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# More points than these can't be told apart in a row, and would swell the file.
MOST_POINTS = 300
# Fractions of the golden ratio fill a row evenly, whatever the number of points.
_GOLDEN = 0.6180339887498949


class _Group(NamedTuple):
    label: str
    colour: str
    deltas: Floats  # sizes, ascending
    log_odds: Floats  # likewise


def variant_figure(variants: Sequence[KnownEffect], path: Path, no_effect: str = "none") -> None:
    """A row for each place, or each effect where places are unknown: points, median, quartiles, 5 to 95 %.

    Places whose variants have an effect stand above those whose variants have none.
    """
    groups = _groups(variants, no_effect)
    with panels(1, 2, 4.6, 1.3 + 0.48 * len(groups), sharey=True) as (figure, axes):
        for axis, name, label in (
            (axes[0], "deltas", "|change of probability|"),
            (axes[1], "log_odds", "|change of log-odds|"),
        ):
            for row, group in enumerate(reversed(groups)):
                _draw(axis, row, getattr(group, name), group.colour)
            axis.set_xlabel(label)
            axis.set_xlim(left=0)
            axis.grid(visible=False, axis="y")
            axis.tick_params(axis="y", length=0)
        labels = [f"{group.label} ({len(group.deltas):,})" for group in reversed(groups)]
        axes[0].set_yticks(range(len(groups)), labels)
        axes[0].set_title("Size of the predicted effect on the variant's own track")
        for colour, text in ((BLUE, "with a true effect"), (ORANGE, "without")):
            axes[1].plot([], [], "o", color=colour, markeredgewidth=0, label=text)
        axes[1].legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, handletextpad=0.2)
        save_figure(figure, path)


def _groups(variants: Sequence[KnownEffect], no_effect: str) -> list[_Group]:
    has = has_effect(variants, no_effect)
    by_place = any(variant.place for variant in variants)
    names = np.array([(v.place or "(none)") if by_place else v.effect for v in variants])
    sizes = np.abs([(variant.delta, variant.log_odds) for variant in variants])
    found = []
    for name in np.unique(names).tolist():
        rows = names == name
        deltas, log_odds = np.sort(sizes[rows], axis=0).T
        share = float(has[rows].mean())
        colour = {0.0: ORANGE, 1.0: BLUE}.get(share, GREY)
        found.append((-share, -float(np.median(deltas)), _Group(name, colour, deltas, log_odds)))
    return [group for *_, group in sorted(found, key=lambda one: one[:2])]


def _draw(axis: Axes, row: int, sizes: Floats, colour: str) -> None:
    shown = sizes
    if len(sizes) > MOST_POINTS:  # as many quantiles: of the same distribution
        shown = np.quantile(sizes, (np.arange(MOST_POINTS) + 0.5) / MOST_POINTS)
    heights = row + 0.56 * ((np.arange(len(shown)) * _GOLDEN) % 1 - 0.5)
    axis.plot(shown, heights, "o", color=colour, alpha=0.4, markersize=3.2, markeredgewidth=0, zorder=2)
    low, first, median, third, high = np.quantile(sizes, (0.05, 0.25, 0.5, 0.75, 0.95))
    axis.plot([low, high], [row, row], color=INK, linewidth=1, zorder=3)
    axis.plot([first, third], [row, row], color=INK, linewidth=4.5, solid_capstyle="butt", zorder=3)
    axis.plot([median], [row], "o", color="white", markeredgecolor=INK, markersize=6, zorder=4)
