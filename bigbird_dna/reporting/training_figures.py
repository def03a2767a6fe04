"""Curves of loss and of held-out figures over training."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.reporting.style import SERIES, panels, save_figure
from bigbird_dna.reporting.training_log import Curve, TrainingCurves

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Held-out figures that get a panel of their own, and their axis labels.
HELD_OUT = {"bits_per_base": "bits per base", "auroc": "AUROC"}


def loss_figure(runs: Mapping[str, TrainingCurves], path: Path) -> None:
    """Training loss of each run over steps, its held-out loss, and its held-out figures below.

    The loss of single steps is drawn pale under its running mean.
    """
    names = [name for name in HELD_OUT if any(name in run.evaluation for run in runs.values())]
    heights = [1.6, *[1.0] * len(names)]
    height = 2.3 * sum(heights) / len(heights)
    with panels(len(heights), 1, 7.2, height, sharex=True, gridspec_kw={"height_ratios": heights}) as (
        figure,
        axes,
    ):
        for (label, run), colour in zip(runs.items(), cycle(SERIES), strict=False):
            _draw_loss(axes[0], label, run, colour)
            for axis, name in zip(axes[1:], names, strict=True):
                if name in run.evaluation:
                    _draw_held_out(axis, run.evaluation[name], colour, None)
        axes[0].set(ylabel="loss (nats)", title="Loss")
        axes[0].legend(loc="upper right", ncols=1 + (len(runs) > 3))
        for axis, name in zip(axes[1:], names, strict=True):
            axis.set(ylabel=HELD_OUT[name], title=f"Held-out {HELD_OUT[name]}")
        axes[-1].set_xlabel("optimiser step")
        axes[-1].set_xlim(left=0)
        save_figure(figure, path)


def running_mean(values: NDArray[np.float64], width: int) -> NDArray[np.float64]:
    """Mean of the `width` values around each, fewer at the ends; shape (N,)."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    places = np.arange(len(values))
    low = np.maximum(places - width // 2, 0)
    high = np.minimum(places + (width + 1) // 2, len(values))
    return np.asarray((sums[high] - sums[low]) / (high - low), dtype=np.float64)


def _draw_loss(axis: Axes, label: str, run: TrainingCurves, colour: str) -> None:
    steps, values = run.loss.steps, run.loss.values
    if len(steps):
        axis.plot(steps, values, color=colour, alpha=0.25, linewidth=1)
        smooth = running_mean(values, max(len(values) // 25, 1))
        axis.plot(steps, smooth, color=colour, label=label)
    if "loss" in run.evaluation:
        _draw_held_out(axis, run.evaluation["loss"], colour, f"{label}, held out")


def _draw_held_out(axis: Axes, curve: Curve, colour: str, label: str | None) -> None:
    axis.plot(
        curve.steps,
        curve.values,
        color=colour,
        linewidth=1.2,
        linestyle=(0, (4, 2)),
        marker="o",
        markersize=4.5,
        markerfacecolor="white",
        label=label,
    )
