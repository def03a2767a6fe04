"""Training logs, and figures of losses and of bits per base of a model and its baselines."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from bigbird_dna.console import log
from bigbird_dna.data.predictions import MODEL
from bigbird_dna.disk.atomic import reading
from bigbird_dna.errors import DataError
from bigbird_dna.reporting.pages import write_figure

METRICS = {
    "loss": "loss (nats)",
    "evaluation.bits_per_base": "bits per base, held out",
    "evaluation.auroc": "AUROC, held out",
}
"""Column of a training log → label of its panel."""


def read_training_log(path: Path) -> pd.DataFrame:
    """Read a training log: `loss`, `seconds` and `evaluation.METRIC` by step, ascending; NaN if not logged.

    If a step was logged twice, the last value is used. The last line of a running or killed job may be
    truncated; it is ignored with a message. `DataError` names another line that is not JSON.
    """
    with reading(path, "not readable", UnicodeDecodeError):
        lines = Path(path).read_text(encoding="utf-8").splitlines(keepends=True)

    records = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue

        try:
            records.append(json.loads(line))
        except ValueError:
            if number == len(lines) and not line.endswith("\n"):
                log(f"{path}: line {number} is truncated and ignored")
                continue

            raise DataError(f"{path}: line {number}: not JSON: {line[:60]!r}") from None

    with reading(
        path, "not a training log", LookupError, TypeError, ValueError, AttributeError
    ):
        table = pd.json_normalize(records)
        columns = table.columns[table.columns.str.startswith("evaluation.")]
        metrics = table.columns.intersection(["loss", "seconds"]).union(columns)
        if metrics.difference(["seconds"]).empty:
            raise ValueError("contains no training step")

        table = table.set_index(table["step"].astype(int))[metrics].astype(float)

    return table.groupby(level=0).last()


def loss_figure(runs: Mapping[str, pd.DataFrame], path: Path) -> None:
    """Draw the training loss and the held-out metrics of each run over its steps, one panel per metric."""
    import plotly.express as px

    logs = pd.concat(runs, names=["run", "step"]).reset_index()
    names = [name for name in METRICS if name in logs]
    curves = logs.melt(["run", "step"], names, "metric").dropna()
    curves["metric"] = curves["metric"].map(METRICS)
    figure = px.line(
        curves,
        x="step",
        y="value",
        color="run",
        facet_row="metric",
        render_mode="svg",
        height=100 + 260 * len(names),
    )
    figure.update_yaxes(matches=None, title="")
    write_figure(figure, path)


def bits_per_base_figure(table: pd.DataFrame, path: Path) -> None:
    """Draw a dot with its interval for each predictor of `language_model_table`, the best at the top."""
    import plotly.express as px

    rows = table.sort_values("bits_per_base", ascending=False, kind="stable")
    is_model = rows["predictor"] == MODEL
    rows = rows.assign(
        kind=is_model.map({True: "model", False: "baseline"}),
        above=rows["high"] - rows["bits_per_base"],
        below=rows["bits_per_base"] - rows["low"],
    )
    figure = px.scatter(
        rows,
        x="bits_per_base",
        y="predictor",
        color="kind",
        error_x="above",
        error_x_minus="below",
        hover_data=["difference", "difference_low", "difference_high"],
        labels={"bits_per_base": "bits per base (lower is better)", "predictor": ""},
        height=160 + 32 * len(rows),
    )
    figure.update_yaxes(categoryorder="array", categoryarray=rows["predictor"])
    write_figure(figure, path)
