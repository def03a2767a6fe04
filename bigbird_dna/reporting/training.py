"""Training curves from logs, and the report of a pretraining run: bits per base of model and baselines."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bigbird_dna.console import log
from bigbird_dna.data.predictions import (
    FIGURES,
    MODELS,
    UNIFORM,
)
from bigbird_dna.disk.atomic import reading
from bigbird_dna.disk.tables import number, whole_number
from bigbird_dna.errors import DataError
from bigbird_dna.metrics.auroc import Floats
from bigbird_dna.reporting.result import (
    BLUE,
    CHANCE,
    GRAY,
    SERIES,
    interval,
    legend_label,
    panels,
    save_figure,
)

# Held-out metrics with a panel of their own, and their axis labels.
PANELS = {"bits_per_base": "bits per base", "auroc": "AUROC"}
_LABEL = "bits per base, held out (lower is better)"
_HELD_OUT: dict[str, Any] = {
    "linewidth": 1.2,
    "linestyle": (0, (4, 2)),
    "marker": "o",
    "markersize": 4.5,
    "markerfacecolor": "white",
}


@dataclass(frozen=True)
class LogCurve:
    """Values over optimizer steps, ascending."""

    steps: NDArray[np.int64]  # (N,)
    values: Floats  # (N,)
    seconds: Floats | None = None  # (N,) training time; None: not in the log


@dataclass(frozen=True)
class TrainingCurves:
    """Training loss, and held-out metrics by name."""

    loss: LogCurve
    evaluation: dict[str, LogCurve]


def read_training_log(path: Path) -> TrainingCurves:
    """Read a training log; if a step was logged twice, the last record is used. Undefined metrics are NaN.

    The last line of a running or killed job may be truncated; it is ignored with a message. Any other invalid
    line raises a `DataError` that names it.
    """
    with reading(path, "not readable", UnicodeDecodeError):
        lines = Path(path).read_text(encoding="utf-8").splitlines(keepends=True)
    metrics: dict[str, dict[int, float]] = {}
    loss: dict[int, float] = {}
    seconds: dict[int, float] = {}
    for line_number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        where = f"{path}: line {line_number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            if line_number == len(lines) and not line.endswith("\n"):
                log(f"{where} is truncated and ignored")
                continue
            raise DataError(f"{where}: not JSON: {line.strip()[:60]!r}") from None
        step = whole_number(record, "step", where)
        if "seconds" in record:
            seconds[step] = number(record, "seconds", where)
        if "loss" in record:
            loss[step] = number(record, "loss", where)
        values = record.get("evaluation", {})
        if not isinstance(values, dict):
            raise DataError(
                f"{where}: 'evaluation' must be an object, found {values!r:.60}"
            )
        for name, value in values.items():
            defined = math.nan if value is None else number(values, name, where)
            metrics.setdefault(name, {})[step] = defined
    if not loss and not metrics:
        raise DataError(f"{path}: contains no training step")
    evaluation = {name: _curve(points, seconds) for name, points in metrics.items()}
    return TrainingCurves(_curve(loss, seconds), evaluation)


def _curve(points: dict[int, float], seconds: dict[int, float]) -> LogCurve:
    steps = sorted(points)
    times = None
    if steps and seconds.keys() >= points.keys():
        times = np.array([seconds[step] for step in steps])
    values = np.array([points[step] for step in steps])
    return LogCurve(np.array(steps, dtype=np.int64), values, times)


def loss_figure(runs: Mapping[str, TrainingCurves], path: Path) -> None:
    """Draw the training loss of each run with its running mean, and the held-out metrics below."""
    names = [
        name for name in PANELS if any(name in run.evaluation for run in runs.values())
    ]
    heights = [1.6, *[1.0] * len(names)]
    height = 2.3 * sum(heights) / len(heights)
    grid = {"sharex": True, "gridspec_kw": {"height_ratios": heights}}
    with panels(len(heights), 1, 7.2, height, **grid) as (figure, axes):
        for (title, run), color in zip(runs.items(), cycle(SERIES), strict=False):
            label = legend_label(title)
            loss = pd.Series(run.loss.values, run.loss.steps)
            if len(loss):
                axes[0].plot(loss, color=color, alpha=0.25, linewidth=1)
                window = loss.rolling(max(len(loss) // 25, 1), 1, center=True)
                axes[0].plot(window.mean(), color=color, label=label)
            for axis, name in zip(axes, ("loss", *names), strict=True):
                if name in run.evaluation:
                    curve = run.evaluation[name]
                    text = f"{label}, held out" if name == "loss" else None
                    look = {**_HELD_OUT, "color": color, "label": text}
                    axis.plot(curve.steps, curve.values, **look)
        axes[0].set(ylabel="loss (nats)", title="Loss")
        if axes[0].get_legend_handles_labels()[0]:
            figure.legend(loc="outside lower center", ncols=2 if len(runs) < 3 else 4)
        for axis, name in zip(axes[1:], names, strict=True):
            axis.set(ylabel=PANELS[name], title=f"Held-out {PANELS[name]}")
        axes[-1].set_xlabel("optimizer step")
        axes[-1].set_xlim(left=0)
        save_figure(figure, path)


def bits_per_base_figure(table: pd.DataFrame, path: Path) -> None:
    """Draw a dot with its interval for each predictor of `language_model_table`, the best at the top.

    Dots instead of bars, because differences of 0.01 matter and the axis does not start at 0. Each dot is
    labeled with its bits per base and the paired difference of the model with the same context.
    """
    rows = table.sort_values("bits_per_base", ascending=False, kind="stable")
    with panels(1, 1, 10.6, 1.3 + 0.36 * len(rows)) as (figure, (axis,)):
        names = rows["predictor"].tolist()
        if UNIFORM in names:
            axis.axvline(2.0, **CHANCE)
        texts = []
        for y, row in enumerate(rows[[*FIGURES]].to_numpy(float).tolist()):
            is_model = names[y] in MODELS
            color, width, marker = (BLUE, 2.2, "D") if is_model else (GRAY, 1.6, "o")
            axis.plot(row[1:3], [y, y], color=color, linewidth=width, zorder=2)
            axis.plot(row[0], y, marker, color=color, markersize=7, zorder=3)
            difference = "" if is_model else interval(*row[3:]).replace("-", "−")
            texts.append(f"{interval(*row[:3])}    {difference}")
        axis.set(ylim=(-0.6, len(rows) - 0.4), xlabel=_LABEL)
        title = "bits per base    model − baseline [95 % CI]"
        axis.set_title(title, x=1.01, fontsize=9, fontweight="normal")
        axis.set_yticks(range(len(rows)), names)
        axis.grid(visible=False, axis="y")
        axis.tick_params(axis="y", length=0, labelsize=10)
        right = axis.secondary_yaxis("right")
        right.set_yticks(range(len(rows)), texts)
        right.tick_params(length=0)
        labels = [*axis.get_yticklabels(), *right.get_yticklabels()]
        for label, name in zip(labels, names * 2, strict=True):
            if name in MODELS:
                label.set(color=BLUE, fontweight="bold")
        save_figure(figure, path)
