"""AUROC over the share of the examples, and over steps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bigbird_dna.reporting.study.comparing import Cell, mean_curve
from bigbird_dna.reporting.study.models import LONGER, PRETRAINED, RANDOM
from bigbird_dna.reporting.style import BLUE, GREEN, VERMILLION, add_legend, panels, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LOOKS = {
    PRETRAINED: ("pretrained weights", BLUE, "o"),
    RANDOM: ("random weights", VERMILLION, "s"),
    LONGER: ("random weights, longer", GREEN, "^"),
}
# Of the whole axis: points of the starts stand side by side.
_APART = 0.012


def share_figure(cells: Sequence[Cell], path: Path) -> None:
    """AUROC on test data against the share of the examples: a point a seed, means joined."""
    tasks = list(dict.fromkeys(cell.task for cell in cells))
    with panels(1, len(tasks), 5.6, 4.2) as (figure, axes):
        for axis, task in zip(axes, tasks, strict=True):
            _draw_shares(axis, [cell for cell in cells if cell.task == task])
            axis.set(title=task.capitalize(), xlabel="share of the training examples")
            axis.set_ylabel("AUROC, test" if task == "promoters" else "median AUROC of the tracks, test")
        axes[0].legend(loc="best")
        save_figure(figure, path)


def steps_figure(cells: Sequence[Cell], path: Path) -> None:
    """AUROC on validation data over steps, a panel a share: the mean over seeds in their range."""
    tasks = list(dict.fromkeys(cell.task for cell in cells))
    shares = sorted({cell.share for cell in cells})
    with panels(len(tasks), len(shares), 3.6, 3.2, sharey="row") as (figure, axes):
        for row, task in enumerate(tasks):
            line = axes[row * len(shares) :]
            of_shares = [[c for c in cells if (c.task, c.share) == (task, share)] for share in shares]
            for axis, own in zip(line, of_shares, strict=False):
                axis.set_visible(bool(own))
                for cell in own:
                    _draw_steps(axis, cell)
                    examples = f"{cell.examples:,} {'promoters' if task == 'promoters' else 'bins'}"
                    axis.set_title(f"{100 * cell.share:g} %: {examples}")
                axis.set(xlabel="optimiser step")
                axis.set_xlim(left=0)
            first = next(axis for axis, own in zip(line, of_shares, strict=False) if own)
            first.tick_params(labelleft=True)
            first.set_ylabel("AUROC, validation" if task == "promoters" else "median AUROC, validation")
            add_legend(first)
        save_figure(figure, path)


def _draw_shares(axis: Axes, cells: Sequence[Cell]) -> None:
    shares = sorted({cell.share for cell in cells})
    width = max(np.log(shares[-1] / shares[0]), 1.0)
    axis.set_xscale("log")
    starts = [start for start in _LOOKS if any(cell.start == start for cell in cells)]
    for place, start in enumerate(starts):
        label, colour, marker = _LOOKS[start]
        own = [cell for cell in cells if cell.start == start]
        aside = np.exp((place - (len(starts) - 1) / 2) * _APART * width)
        x = np.array([cell.share for cell in own]) * aside
        for at, cell in zip(x, own, strict=True):
            many = np.full(len(cell.aurocs), at)
            axis.plot(many, cell.aurocs, marker, color=colour, markersize=5, alpha=0.55, markeredgewidth=0)
        axis.plot(x, [cell.auroc for cell in own], "-", color=colour)
        # The legend shows line and point.
        axis.plot([], [], "-", marker=marker, color=colour, markersize=5, label=label)
    axis.set_xticks(shares, [f"{100 * share:g} %" for share in shares])
    axis.minorticks_off()
    axis.set_xlim(shares[0] * np.exp(-0.12 * width), shares[-1] * np.exp(0.12 * width))


def _draw_steps(axis: Axes, cell: Cell) -> None:
    label, colour, _ = _LOOKS[cell.start]
    curves = [model.valid for model in cell.models]
    mean = mean_curve(curves)
    if not len(mean.steps):
        return
    values = np.stack([curve.values[np.isin(curve.steps, mean.steps)] for curve in curves])
    axis.fill_between(
        mean.steps, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.18, linewidth=0
    )
    # Longer runs begin as the random ones do, which hide them there.
    order = 1.9 if cell.start == LONGER else 2.0
    axis.plot(mean.steps, mean.values, color=colour, marker="o", markersize=3, label=label, zorder=order)
