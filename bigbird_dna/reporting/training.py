"""Training curves from logs, and the report of a pretraining run: bits per base of model and baselines."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import cycle
from pathlib import Path
from typing import Any

import pandas as pd

from bigbird_dna.console import log
from bigbird_dna.data.predictions import (
    FIGURES,
    MODELS,
    UNIFORM,
)
from bigbird_dna.disk.atomic import reading
from bigbird_dna.disk.tables import number
from bigbird_dna.errors import DataError
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


def read_training_log(path: Path) -> pd.DataFrame:
    """Read a training log: `loss`, `seconds` and `evaluation.METRIC` by step, ascending; NaN if not logged.

    If a step was logged twice, the last value is used. The last line of a running or killed job may be
    truncated; it is ignored with a message. Any other invalid line raises a `DataError` that names it.
    """
    with reading(path, "not readable", UnicodeDecodeError):
        lines = Path(path).read_text(encoding="utf-8").splitlines(keepends=True)
    records = []
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
        values: dict[str, float | None] = {"step": number(record, "step", where)}
        for key in ("loss", "seconds"):
            if key in record:
                values[key] = number(record, key, where)
        metrics = record.get("evaluation", {})
        if not isinstance(metrics, dict):
            raise DataError(
                f"{where}: 'evaluation' must be an object, found {metrics!r:.60}"
            )
        for name, value in metrics.items():
            if value is not None:  # undefined
                value = number(metrics, name, where)
            values[f"evaluation.{name}"] = value
        records.append(values)
    table = pd.DataFrame(records)
    if not any(name not in ("step", "seconds") for name in table):
        raise DataError(f"{path}: contains no training step")
    table = table.astype(float).astype({"step": int})
    return table.groupby("step").last()


def loss_figure(runs: Mapping[str, pd.DataFrame], path: Path) -> None:
    """Draw the training loss of each run with its running mean, and the held-out metrics below."""
    names = [
        name
        for name in PANELS
        if any(f"evaluation.{name}" in run for run in runs.values())
    ]
    heights = [1.6, *[1.0] * len(names)]
    height = 2.3 * sum(heights) / len(heights)
    grid = {"sharex": True, "gridspec_kw": {"height_ratios": heights}}
    with panels(len(heights), 1, 7.2, height, **grid) as (figure, axes):
        for (title, run), color in zip(runs.items(), cycle(SERIES), strict=False):
            label = legend_label(title)
            if "loss" in run:
                loss = run["loss"].dropna()
                axes[0].plot(loss, color=color, alpha=0.25, linewidth=1)
                window = loss.rolling(max(len(loss) // 25, 1), 1, center=True)
                axes[0].plot(window.mean(), color=color, label=label)
            for axis, name in zip(axes, ("loss", *names), strict=True):
                if f"evaluation.{name}" in run:
                    curve = run[f"evaluation.{name}"].dropna()
                    text = f"{label}, held out" if name == "loss" else None
                    look = {**_HELD_OUT, "color": color, "label": text}
                    axis.plot(curve, **look)
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
