"""Training curves from logs, and the report of a pretraining run: bits per base of model and baselines."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bigbird_dna.console import log
from bigbird_dna.disk.atomic import reading
from bigbird_dna.disk.tables import number, whole_number
from bigbird_dna.errors import DataError
from bigbird_dna.reporting.result import (
    BLUE,
    GRAY,
    INK,
    PALE,
    SERIES,
    interval,
    legend_label,
    panels,
    save_figure,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
from bigbird_dna.data.predictions import (
    FIGURES,
    MODEL,
    MODELS,
    ONE_AT_A_TIME,
    UNIFORM,
)

# Held-out metrics with a panel of their own, and their axis labels.
PANELS = {"bits_per_base": "bits per base", "auroc": "AUROC"}


@dataclass(frozen=True)
class LogCurve:
    """Values over optimizer steps, ascending."""

    steps: NDArray[np.int64]  # (N,)
    values: NDArray[np.float64]  # (N,)
    seconds: NDArray[np.float64] | None = (
        None  # (N,) training time since the start; None: not in the log
    )


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
    loss: dict[int, float] = {}
    evaluation: dict[str, dict[int, float]] = {}
    seconds: dict[int, float] = {}
    for place, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        where = f"{path}: line {place}"
        try:
            record = json.loads(line)
        except (
            ValueError,
            RecursionError,
        ):  # invalid JSON, thousands of digits, or too deeply nested
            if place == len(lines) and not line.endswith("\n"):
                log(f"{where} is truncated and ignored")
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
                raise DataError(
                    f"{where}: 'evaluation' must be an object, found {values!r:.60}"
                )
            for name, value in values.items():
                defined = math.nan if value is None else number(values, name, where)
                evaluation.setdefault(name, {})[step] = defined
    if not loss and not evaluation:
        raise DataError(f"{path}: contains no training step")
    held_out = {
        name: _log_curve(points, seconds) for name, points in evaluation.items()
    }
    return TrainingCurves(_log_curve(loss, seconds), held_out)


def _log_curve(points: dict[int, float], seconds: dict[int, float]) -> LogCurve:
    steps = sorted(points)
    timed = steps and seconds.keys() >= points.keys()
    times = np.array([seconds[step] for step in steps]) if timed else None
    return LogCurve(
        np.array(steps, dtype=np.int64),
        np.array([points[step] for step in steps]),
        times,
    )


def loss_figure(runs: Mapping[str, TrainingCurves], path: Path) -> None:
    """Draw the training loss of each run with its running mean, and the held-out metrics below."""
    names = [
        name for name in PANELS if any(name in run.evaluation for run in runs.values())
    ]
    heights = [1.6, *[1.0] * len(names)]
    grid = {"sharex": True, "gridspec_kw": {"height_ratios": heights}}
    with panels(len(heights), 1, 7.2, 2.3 * sum(heights) / len(heights), **grid) as (
        figure,
        axes,
    ):
        for (title, run), color in zip(runs.items(), cycle(SERIES), strict=False):
            label = legend_label(title)
            steps, values = run.loss.steps, run.loss.values
            if len(steps):
                axes[0].plot(steps, values, color=color, alpha=0.25, linewidth=1)
                smooth = running_mean(values, max(len(values) // 25, 1))
                axes[0].plot(steps, smooth, color=color, label=label)
            if "loss" in run.evaluation:
                _draw_held_out(
                    axes[0], run.evaluation["loss"], color, f"{label}, held out"
                )
            for axis, name in zip(axes[1:], names, strict=True):
                if name in run.evaluation:
                    _draw_held_out(axis, run.evaluation[name], color, None)
        axes[0].set(ylabel="loss (nats)", title="Loss")
        if axes[0].get_legend_handles_labels()[0]:
            figure.legend(loc="outside lower center", ncols=2 if len(runs) < 3 else 4)
        for axis, name in zip(axes[1:], names, strict=True):
            axis.set(ylabel=PANELS[name], title=f"Held-out {PANELS[name]}")
        axes[-1].set_xlabel("optimizer step")
        axes[-1].set_xlim(left=0)
        save_figure(figure, path)


def running_mean(values: NDArray[np.float64], width: int) -> NDArray[np.float64]:
    """Return the mean of the `width` values around each value, fewer at the ends; shape (N,)."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    places = np.arange(len(values))
    low = np.maximum(places - width // 2, 0)
    high = np.minimum(places + (width + 1) // 2, len(values))
    return np.asarray((sums[high] - sums[low]) / (high - low), dtype=np.float64)


def _draw_held_out(axis: Axes, curve: LogCurve, color: str, label: str | None) -> None:
    axis.plot(
        curve.steps, curve.values, color=color, linewidth=1.2, linestyle=(0, (4, 2)),
        marker="o", markersize=4.5, markerfacecolor="white", label=label,
    )  # fmt: skip


HELD_OUT = "bits_per_base"  # key in the log
_LABEL = "bits per base, held out (lower is better)"
_HOUR = 3600.0
_LEADER = {
    "arrowstyle": "-",
    "color": GRAY,
    "linewidth": 0.6,
    "relpos": (0, 0.5),
    "shrinkA": 0,
}

Floats = NDArray[np.float64]


def bits_per_base_figure(table: pd.DataFrame, path: Path) -> None:
    """Draw a dot with its interval for each predictor of `language_model_table`, the best at the top.

    Dots instead of bars, because differences of 0.01 matter and the axis does not start at 0. Each dot is
    labeled with its bits per base and the paired difference of the model with the same context.
    """
    rows = table.sort_values("bits_per_base", kind="stable").reset_index(drop=True)
    names = rows["predictor"].tolist()
    values = rows["bits_per_base"].to_numpy(dtype=float)
    low, high = (
        rows[end].fillna(rows["bits_per_base"]).to_numpy(dtype=float)
        for end in ("low", "high")
    )
    places = np.arange(len(rows))[::-1]
    left, right = float(low.min()), float(max(high.max(), 2.0 * (UNIFORM in names)))
    with panels(1, 1, 10.6, 1.3 + 0.36 * len(rows)) as (figure, (axis,)):
        if UNIFORM in names:
            axis.axvline(2.0, color=PALE, linewidth=1.2, zorder=1)
        for place, name, *ends, value in zip(
            places, names, low, high, values, strict=True
        ):
            color, width, marker = (
                (BLUE, 2.2, "D") if name in MODELS else (GRAY, 1.6, "o")
            )
            axis.plot(ends, [place, place], color=color, linewidth=width, zorder=2)
            axis.plot([value], [place], marker, color=color, markersize=7, zorder=3)
        axis.set_yticks(places, names)
        for tick, name in zip(axis.get_yticklabels(), names, strict=True):
            if name in MODELS:
                tick.set(color=BLUE, fontweight="bold")
        _columns(axis, rows, places)
        margin = 0.06 * max(right - left, 0.01)
        axis.set(xlim=(left - margin, right + margin), ylim=(-0.6, len(rows) - 0.4))
        axis.set_xlabel(f"{_LABEL}; the axis does not start at 0")
        axis.grid(visible=False, axis="y")
        axis.tick_params(axis="y", length=0, labelsize=10)
        save_figure(figure, path)


def held_out_figure(run: TrainingCurves, table: pd.DataFrame, path: Path) -> None:
    """Draw the model's held-out bits per base from the log against steps, and against time if logged.

    Lines are the baselines with the same context as the model in training. The diamond at the end is the
    model's row of `table`, which may have other masked tokens.
    """
    curve = run.evaluation.get(HELD_OUT, LogCurve(np.zeros(0, np.int64), np.zeros(0)))
    timed = curve.seconds is not None and len(curve.seconds) > 0
    one_at_a_time = table["predictor"].str.endswith(ONE_AT_A_TIME)
    others = table[~one_at_a_time & (table["predictor"] != MODEL)].sort_values(
        "bits_per_base", kind="stable"
    )
    own = table.loc[table["predictor"] == MODEL, "bits_per_base"].to_numpy(dtype=float)
    with panels(1, 1 + timed, 4.6 if timed else 7.4, 4.4, sharey=True) as (
        figure,
        axes,
    ):
        _curve(axes[0], curve.steps.astype(float), curve.values, own)
        axes[0].set(xlabel="optimizer step", ylabel=_LABEL)
        if timed:
            assert curve.seconds is not None
            long = float(curve.seconds.max()) >= 2 * _HOUR
            _curve(
                axes[1], curve.seconds / (_HOUR if long else 60.0), curve.values, own
            )
            axes[1].set_xlabel(f"training time ({'hours' if long else 'minutes'})")
        levels = others["bits_per_base"].to_numpy(dtype=float)
        for axis in axes:
            for level in levels:
                axis.axhline(
                    level, color=GRAY, linewidth=0.9, linestyle=(0, (4, 3)), zorder=1
                )
            axis.set_xlim(left=0)
            axis.grid(visible=False)
        bottom, top = axes[0].get_ylim()
        gap = (top - bottom) * 0.045
        labels = apart(levels, gap)
        axes[0].set_ylim(min([bottom, *(labels - gap)]), max([top, *(labels + gap)]))
        for name, level, place in zip(others["predictor"], levels, labels, strict=True):
            axes[-1].annotate(
                f"{name}  {level:.3f}", xy=(1, level), xytext=(1.06, place),
                xycoords=("axes fraction", "data"), textcoords=("axes fraction", "data"),
                fontsize=8, color=INK, va="center", annotation_clip=False,
                arrowprops=_LEADER,
            )  # fmt: skip
        axes[0].legend(
            loc="upper right",
            frameon=True,
            facecolor="white",
            edgecolor="none",
            framealpha=1,
        )
        save_figure(figure, path)


def apart(places: Floats, gap: float) -> Floats:
    """Return label positions (N,), ascending, at least `gap` apart and close to `places`.

    Labels that are too close are spread evenly around their mean; touching groups are merged.
    """
    groups: list[tuple[int, float]] = []  # number of labels, sum of their positions

    def end(group: tuple[int, float], side: int) -> float:
        return group[1] / group[0] + side * gap * (group[0] - 1) / 2

    for place in places.tolist():
        groups.append((1, place))
        while len(groups) > 1 and end(groups[-2], 1) + gap > end(groups[-1], -1):
            count, total = groups.pop()
            groups[-1] = (groups[-1][0] + count, groups[-1][1] + total)
    found = [
        end(group, -1) + gap * index for group in groups for index in range(group[0])
    ]
    return np.array(found, dtype=np.float64)


def _columns(axis: Axes, rows: pd.DataFrame, places: NDArray[np.int64]) -> None:
    """Write the values of each row to the right of the panel."""

    def write(column: int, place: float, text: str, **look: Any) -> None:
        axis.annotate(
            text, xy=(1, place), xycoords=("axes fraction", "data"), xytext=(10 + 132 * column, 0),
            textcoords="offset points", fontsize=9, va="center", annotation_clip=False, **look,
        )  # fmt: skip

    write(0, len(rows) - 0.2, "bits per base [95 % CI]", color=GRAY)
    write(1, len(rows) - 0.2, "model − baseline [95 % CI]", color=GRAY)
    figures = rows[[*FIGURES]].to_numpy(dtype=float).tolist()
    for place, name, found in zip(
        places.tolist(), rows["predictor"], figures, strict=True
    ):
        own = {"color": BLUE, "fontweight": "bold"} if name in MODELS else {}
        write(0, place, interval(*found[:3]), **own)
        if not own:
            write(1, place, interval(*found[3:]).replace("-", "−"))


def _curve(axis: Axes, x: Floats, values: Floats, own: Floats) -> None:
    axis.plot(
        x,
        values,
        color=BLUE,
        marker="o",
        markersize=4,
        markerfacecolor="white",
        label=MODEL,
        zorder=3,
    )
    if len(own) and len(x):
        axis.plot(
            x[-1:],
            own,
            "D",
            color=BLUE,
            markersize=7,
            label=f"{MODEL}, in the table",
            zorder=4,
        )
