"""The training log `training.jsonl` as curves, and figures of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.console import log
from bigbird_dna.disk.atomic import reading
from bigbird_dna.disk.tables import number, whole_number
from bigbird_dna.errors import DataError
from bigbird_dna.reporting.style import SERIES, panels, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes


# Held-out metrics that get a panel of their own, and their axis labels.
HELD_OUT = {"bits_per_base": "bits per base", "auroc": "AUROC"}


@dataclass(frozen=True)
class LogCurve:
    """Values over optimizer steps, ascending."""

    steps: NDArray[np.int64]  # (N,)
    values: NDArray[np.float64]  # (N,)
    seconds: NDArray[np.float64] | None = None  # (N,) of training up to then; None: not in the log


@dataclass(frozen=True)
class TrainingCurves:
    """Training loss, and the held-out metrics by name."""

    loss: LogCurve
    evaluation: dict[str, LogCurve]


def read_training_log(path: Path) -> TrainingCurves:
    """Read a log; a step that was logged twice counts once, as it was logged last.

    The last line of a running or killed job may be cut short: it is left out, with a message. Any other
    fault is a `DataError` that names the line.
    """
    with reading(path, "not readable", UnicodeDecodeError):
        lines = Path(path).read_text().splitlines(keepends=True)
    loss: dict[int, float] = {}
    evaluation: dict[str, dict[int, float]] = {}
    seconds: dict[int, float] = {}
    for place, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        where = f"{path}: line {place}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):  # no JSON, thousands of digits, or nested without end
            if place == len(lines) and not line.endswith("\n"):
                log(f"{where} is cut short and left out")
                continue
            raise DataError(f"{where}: not JSON: {line.strip()[:60]!r}") from None
        step = whole_number(record, "step", where)
        if "seconds" in record:
            seconds[step] = number(record, "seconds", where)
        if "loss" in record:
            loss[step] = number(record, "loss", where)
        if "evaluation" in record:
            values = record["evaluation"]
            if not isinstance(values, dict):
                raise DataError(f"{where}: 'evaluation' is not an object but {values!r:.60}")
            for name in values:
                evaluation.setdefault(name, {})[step] = number(values, name, where)
    if not loss and not evaluation:
        raise DataError(f"{path}: no training step in it")
    held_out = {name: _curve(points, seconds) for name, points in evaluation.items()}
    return TrainingCurves(_curve(loss, seconds), held_out)


def _curve(points: dict[int, float], seconds: dict[int, float]) -> LogCurve:
    steps = sorted(points)
    timed = steps and seconds.keys() >= points.keys()
    times = np.array([seconds[step] for step in steps]) if timed else None
    return LogCurve(np.array(steps, dtype=np.int64), np.array([points[step] for step in steps]), times)


def loss_figure(runs: Mapping[str, TrainingCurves], path: Path) -> None:
    """Training loss of each run over steps, pale under its running mean, and its held-out metrics below."""
    names = [name for name in HELD_OUT if any(name in run.evaluation for run in runs.values())]
    heights = [1.6, *[1.0] * len(names)]
    grid = {"sharex": True, "gridspec_kw": {"height_ratios": heights}}
    with panels(len(heights), 1, 7.2, 2.3 * sum(heights) / len(heights), **grid) as (figure, axes):
        for (label, run), color in zip(runs.items(), cycle(SERIES), strict=False):
            _draw_loss(axes[0], label, run, color)
            for axis, name in zip(axes[1:], names, strict=True):
                if name in run.evaluation:
                    _draw_held_out(axis, run.evaluation[name], color, None)
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


def _draw_loss(axis: Axes, label: str, run: TrainingCurves, color: str) -> None:
    steps, values = run.loss.steps, run.loss.values
    if len(steps):
        axis.plot(steps, values, color=color, alpha=0.25, linewidth=1)
        smooth = running_mean(values, max(len(values) // 25, 1))
        axis.plot(steps, smooth, color=color, label=label)
    if "loss" in run.evaluation:
        _draw_held_out(axis, run.evaluation["loss"], color, f"{label}, held out")


def _draw_held_out(axis: Axes, curve: LogCurve, color: str, label: str | None) -> None:
    axis.plot(
        curve.steps, curve.values, color=color, linewidth=1.2, linestyle=(0, (4, 2)),
        marker="o", markersize=4.5, markerfacecolor="white", label=label,
    )  # fmt: skip
