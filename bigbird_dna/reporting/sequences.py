"""Report of a model of labeled sequences: metrics on the test sequences, with baselines and controls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import compress
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from bigbird_dna.data.predictions import (
    CNN,
    COMPOSITION,
    CONTROL,
    KMER,
    MODEL,
    POSITION,
)
from bigbird_dna.disk.json_files import read_mapping
from bigbird_dna.disk.tables import write_table, write_tsv
from bigbird_dna.errors import shortened
from bigbird_dna.metrics.auroc import ENDS, Estimate
from bigbird_dna.metrics.labels import MOST_OUTPUTS
from bigbird_dna.reporting.pages import ShownTable, data_uri, render_page, shown_table
from bigbird_dna.reporting.predictors import (
    STYLES,
    draw_curves,
    draw_histograms,
    is_control,
    predictor_kind,
)
from bigbird_dna.reporting.result import BLUE, INK, PALE, interval, panels, save_figure
from bigbird_dna.reporting.sequence_metrics import (
    MULTICLASS,
    PREDICTORS,
    REGRESSION,
    SCHEMAS,
    LabeledPredictions,
    confusion_counts,
    metrics_table,
    summary_rows,
)

_HEADINGS = {
    **{name: name.upper() for name in ("auroc", "auprc", "f1", "mcc")},
    **{"pearson": "Pearson r", "spearman": "Spearman ρ", "r2": "R²"},
    **{
        f"{name} difference": f"{shown}, model − row"
        for name, shown in (("auroc", "AUROC"), ("pearson", "r"))
    },
}
_NEAR = 0.15  # controls vary by about 0.1
_MOST_PANELS = 4
_MOST_NAMED, _MOST_NUMBERS = (
    40,
    12,
)  # classes of a confusion matrix with names, and with numbers
_MANY_POINTS = 1000  # more points are drawn as an image, because the SVG would be large

PREDICTIONS = "predictions.parquet"

# Axes: N sequences, T outputs.


def sequence_report(
    predictions: Path,
    kind: str,
    output: Path,
    *,
    facts: Mapping[str, str] | None = None,
) -> pd.DataFrame:
    """Compare a model of labeled sequences with its baselines and controls on the test sequences.

    `predictions` (Parquet) is as in `LabeledPredictions.read`; labels are of the `kind` binary, multiclass,
    multilabel or regression. Writes `metrics.tsv` (returned), `report.html` and its SVG plots to the
    directory `output`, and `confusion.tsv` for several classes. `facts` (name → value) are shown on the page.
    """
    found = LabeledPredictions.read(predictions, kind)
    table = metrics_table(found, kind)
    write_table(output / "metrics.tsv", table, SCHEMAS[kind])
    if kind == MULTICLASS:
        counts = pd.DataFrame(confusion_counts(found), columns=found.outputs)
        counts.insert(0, "true class", found.outputs, allow_duplicates=True)
        write_tsv(output / "confusion.tsv", counts)
    plots = list(_plots(found, kind, table, output))
    text = _page(found, kind, table, output, plots, facts or {})
    (output / "report.html").write_text(text, encoding="utf-8")
    return table


def report_model(directory: Path) -> pd.DataFrame:
    """Write the report (`sequence_report`) of the model directory of finetune-sequences into it."""
    names = ("config.json", "provenance.json", "metrics.json")
    description, origin, metrics = (read_mapping(directory / name) for name in names)
    settings, started, training = (
        description["settings"],
        origin["pretrained_sha256"],
        metrics["training"],
    )
    counts = {"training": training["examples"]}
    counts |= {
        "validation": metrics["valid"]["sequences"],
        "test": metrics["test"]["sequences"],
    }
    length = settings.get("length")
    facts = {
        "data": ", ".join(origin["data"]),
        "labels": f"{settings['kind']}: {shortened(', '.join(settings['outputs']), 200)}",
        "sequences": ", ".join(f"{count:,} {name}" for name, count in counts.items()),
        "length": "different" if length is None else f"{length:,} bp",
        **_truncated(metrics["truncated"], counts, description["encoder"]["positions"]),
        "strands": "both" if settings.get("both_strands") else "as given",
        "initial weights": "random"
        if started is None
        else f"pretrained ({started[:12]})",
        "training": f"{training['steps']:,} steps, {training['parameters']:,} parameters",
    }
    # Models of earlier versions have no such counts.
    if count := origin.get("rows_without_label"):
        facts["rows without a label"] = f"{count:,}, left out"
    if count := origin.get("missing_labels"):
        facts["missing labels"] = f"{count:,}, in neither loss nor metrics"
    return sequence_report(
        directory / PREDICTIONS, settings["kind"], directory, facts=facts
    )


def _truncated(
    cut: Mapping[str, int], counts: Mapping[str, int], positions: int
) -> dict[str, str]:
    """Return a fact on the sequences that are too long for the network, if there are any."""
    if not any(cut.values()):
        return {}
    shown = (
        f"{one:,} of {count:,} {name}"
        for one, (name, count) in zip(cut.values(), counts.items(), strict=True)
    )
    return {
        "truncated": f"{', '.join(shown)}: the network reads their central {positions - 2:,} tokens"
    }


class _Plot(NamedTuple):
    title: str
    caption: str
    path: Path

    @property
    def link(self) -> str:
        return data_uri(self.path.read_bytes())


def _plots(
    found: LabeledPredictions, kind: str, table: pd.DataFrame, output: Path
) -> Iterator[_Plot]:
    """Draw the plots of a kind of labels into a directory, and yield them in the order of the page."""
    if kind == "binary":
        path = output / "curves.svg"
        curves_plot(found, table, path)
        yield _Plot(
            "Curves",
            "Left: fraction of positives above a threshold against the fraction of negatives above it. "
            "Right: fraction of positives among all sequences above a threshold (precision), against the "
            "fraction of positives above it (recall). The pale lines are chance. A good model is above its "
            "baselines.",
            path,
        )
        path = output / "probabilities.svg"
        probabilities_plot(found, path)
        yield _Plot(
            "Probabilities",
            "The model's probabilities of the test sequences of both classes; the dashed line is the "
            "threshold of F1, MCC and balanced accuracy.",
            path,
        )
    elif kind == MULTICLASS:
        path = output / "confusion.svg"
        confusion_plot(found, path)
        yield _Plot(
            "Confusion matrix",
            "Test sequences by their true class (rows) and the class with the largest probability (columns). "
            "Colors are fractions of a row: correct calls are on the diagonal. All counts are in "
            "confusion.tsv, with the classes in the same order.",
            path,
        )
    elif kind == REGRESSION:
        path = output / "scatter.svg"
        scatter_plot(found, table, path)
        shown = (
            f"Only the first {_MOST_PANELS} of {len(found.outputs)} outputs are shown. "
        )
        yield _Plot(
            "Predicted and true values",
            f"One point per test sequence; on the line, the prediction is correct. "
            f"{shown if len(found.outputs) > _MOST_PANELS else ''}r is the correlation, and R² the fraction "
            "of the variance that the predictions explain.",
            path,
        )
    elif KMER in found.scores:
        path = output / "outputs.svg"
        better, counted = outputs_plot(found, table, path)
        yield _Plot(
            "Outputs",
            "AUROC of each output, by the model and by the k-mer regression. Above the line, the model is "
            f"better: {better:,} of {counted:,} outputs.",
            path,
        )


def curves_plot(found: LabeledPredictions, table: pd.DataFrame, path: Path) -> None:
    """Draw ROC and precision–recall curves of all predictors, with areas from the table in the legends."""
    rows, labels = table.set_index("model"), found.labels[:, 0]
    scores = {name: values[:, 0] for name, values in found.scores.items()}
    with panels(1, 2, 4.4, 4.9 + 0.22 * len(rows)) as (figure, axes):
        draw_curves(axes[0], labels, scores, rows, "auroc", "ROC")
        draw_curves(axes[1], labels, scores, rows, "auprc", "Precision and recall")
        save_figure(figure, path)


def probabilities_plot(found: LabeledPredictions, path: Path) -> None:
    """Draw histograms of the model's probabilities for positives and negatives."""
    with panels(1, 1, 5.4, 3.4) as (figure, (axis,)):
        draw_histograms(
            axis,
            found.labels[:, 0],
            found.scores[MODEL][:, 0],
            "positives",
            "sequences",
        )
        save_figure(figure, path)


def confusion_plot(found: LabeledPredictions, path: Path) -> None:
    """Draw the confusion matrix; of few classes with counts and fractions of rows, of many without names."""
    counts = confusion_counts(found)
    size, totals = len(counts), counts.sum(axis=1, keepdims=True)
    fractions = counts / np.maximum(totals, 1)
    side = min(max(0.62 * size if size <= _MOST_NUMBERS else 0.24 * size, 3.2), 9.0)
    with panels(1, 1, side + 1.8, side + 0.9) as (figure, (axis,)):
        shown = axis.imshow(
            fractions, cmap="Blues", vmin=0, vmax=1, interpolation="none"
        )
        axis.grid(visible=False)
        axis.set(xlabel="called class", ylabel="true class")
        if size <= _MOST_NAMED:
            names = [shortened(name, 24) for name in found.outputs]
            long = max(map(len, names)) > 4
            axis.set_xticks(
                range(size), names, rotation=90 if long else 0, parse_math=False
            )
            axis.set_yticks(range(size), names, parse_math=False)
        else:
            axis.set(xticks=[], yticks=[])
        for row, column in np.argwhere(
            np.full_like(counts, size <= _MOST_NUMBERS)
        ).tolist():
            value = fractions[row, column]
            text, color = (
                f"{counts[row, column]:,}\n{value:.0%}",
                "white" if value > 0.55 else INK,
            )
            axis.text(
                column, row, text, ha="center", va="center", fontsize=8, color=color
            )
        figure.colorbar(shown, ax=axis, label="fraction of the true class", shrink=0.8)
        save_figure(figure, path)


def outputs_plot(
    found: LabeledPredictions, table: pd.DataFrame, path: Path
) -> tuple[int, int]:
    """Draw the AUROC of each output by model and k-mers; return for how many the model is better, and all."""
    rows = (
        table[len(table) // (len(found.outputs) + 1) :]
        if len(found.outputs) > 1
        else table
    )
    areas = [
        rows.loc[rows["model"] == name, "auroc"].to_numpy(float)
        for name in (KMER, MODEL)
    ]
    x, y = np.stack(areas)[:, ~np.isnan(areas[0])]
    with panels(1, 1, 4.6, 4.6) as (figure, (axis,)):
        least = min([*x, *y, 0.5]) - 0.02
        axis.plot([least, 1], [least, 1], color=PALE, linewidth=1.2, zorder=1)
        axis.scatter(x, y, s=22, color=BLUE, alpha=0.7, linewidths=0)
        axis.set(xlabel="AUROC, k-mer regression", ylabel="AUROC, model", box_aspect=1)
        axis.set(xlim=(least, 1.01), ylim=(least, 1.01))
        save_figure(figure, path)
    return int((y > x).sum()), len(x)


def scatter_plot(found: LabeledPredictions, table: pd.DataFrame, path: Path) -> None:
    """Draw predictions of the model against labels, of the first outputs."""
    outputs = found.outputs[:_MOST_PANELS]
    rows = table[table["model"] == MODEL].tail(len(found.outputs))
    with panels(-(-len(outputs) // 2), min(len(outputs), 2), 4.4, 4.6) as (
        figure,
        axes,
    ):
        for t, axis in enumerate(axes):
            if t >= len(outputs):
                axis.set_axis_off()
                continue
            known = ~np.isnan(found.labels[:, t])
            x, y = found.labels[known, t], found.scores[MODEL][known, t]
            ends = [min(x.min(), y.min()), max(x.max(), y.max())]
            axis.plot(ends, ends, color=PALE, linewidth=1.2, zorder=1)
            many = len(x) > _MANY_POINTS
            axis.scatter(
                x,
                y,
                s=9,
                color=BLUE,
                alpha=0.25 if many else 0.5,
                linewidths=0,
                rasterized=many,
            )
            pearson, r2 = (
                f"{rows[name].iloc[t]:.3f}".replace("-", "−")
                for name in ("pearson", "r2")
            )
            found_here = (
                "not defined" if pearson == "nan" else f"r = {pearson}, R² = {r2}"
            )
            axis.set_title(
                f"{shortened(outputs[t], 18)}: {found_here}", parse_math=False
            )
            axis.set(xlabel="true value", ylabel="predicted value", box_aspect=1)
        save_figure(figure, path)


def _page(
    found: LabeledPredictions,
    kind: str,
    table: pd.DataFrame,
    output: Path,
    plots: Sequence[_Plot],
    facts: Mapping[str, str],
) -> str:
    """Return the page as HTML text."""
    shown, main = shown_table(output / "metrics.tsv"), len(summary_rows(found, table))
    every = shown._replace(
        headings=[_HEADINGS.get(name, name) for name in shown.headings]
    )
    groups = len(np.unique(found.groups))
    positives = f" ({int(found.labels.sum()):,} positive)" if kind == "binary" else ""
    counts = {
        "test sequences": f"{len(found.labels):,}{positives}, in {groups:,} groups of similar sequences"
        if groups > 1
        else f"{len(found.labels):,}{positives}, all linked by similar ones: no intervals",
        "validation sequences": f"{found.valid:,}, not in the metrics below",
    }
    named = [
        name
        for name in PREDICTORS
        if any(predictor_kind(one) == name for one in found.scores)
    ]
    return render_page(
        "sequences_page.html",
        style="run_page.css",
        title="Model of labeled sequences: results on test sequences",
        conclusions=conclusions(found, kind, table),
        facts={**facts, **counts},
        kind=kind,
        summary=_summary(every, main),
        every=every._replace(rows=every.rows[main:]),
        outputs=len(found.outputs),
        many=len(found.outputs) > MOST_OUTPUTS,
        several=sum(map(is_control, found.scores)) > 1,
        plots=plots,
        predictors={name: PREDICTORS[name] for name in named},
    )


def _summary(shown: ShownTable, count: int) -> ShownTable:
    """Return the first rows, without the columns that have the same value in each."""
    kept = [name not in ("output", "n", "positives") for name in shown.headings]
    rows = [list(compress(row, kept)) for row in shown.rows[:count]]
    return ShownTable(
        list(compress(shown.headings, kept)),
        list(compress(shown.numeric, kept)),
        rows,
        0,
    )


def conclusions(found: LabeledPredictions, kind: str, table: pd.DataFrame) -> list[str]:
    """Return sentences on the model, its strongest baseline, and its controls."""
    rows = summary_rows(found, table)
    metric, what, chance = (
        ("pearson", "correlation", 0) if kind == REGRESSION else ("auroc", "AUROC", 0.5)
    )
    mean = f" (mean of {len(found.outputs):,} {'classes' if kind == MULTICLASS else 'outputs'})"

    def estimate(name: str, column: str = metric) -> Estimate:
        return Estimate(*(float(str(rows.loc[name, f"{column}{end}"])) for end in ENDS))

    if estimate(MODEL).value != estimate(MODEL).value:
        return [
            f"The model has no {what} on {len(found.labels):,} test sequences: it is not defined."
        ]
    sentence = f"The model has {'a' if kind == REGRESSION else 'an'} {what} of {_shown(estimate(MODEL))}"
    sentence += f"{mean if len(found.outputs) > 1 else ''} on {len(found.labels):,} test sequences"
    names = [name for name in rows.index if name in (KMER, POSITION, COMPOSITION, CNN)]
    values = {
        name: estimate(name).value
        for name in names
        if estimate(name).value == estimate(name).value
    }
    if values:
        best = max(values, key=values.__getitem__)
        lead = estimate(best, f"{metric}_difference")
        known, same = lead.low == lead.low, lead.low <= 0 <= lead.high
        verdict = "better than" if lead.value > 0 else "worse than"
        verdict = (
            "compared with"
            if not known
            else "not measurably different from"
            if same
            else verdict
        )
        why = (
            ", without an interval"
            if not known
            else ", an interval that includes 0"
            if same
            else ""
        )
        name, value = STYLES[best].label, _shown(Estimate(values[best]))
        sentence += f", {verdict} the strongest baseline ({name}, {value}; difference {_shown(lead)}{why})"
    control = estimate(CONTROL) if CONTROL in rows.index else Estimate()
    if control.value != control.value:
        return [f"{sentence}."]
    text = f"ith shuffled labels, the {what} is {_shown(control)}"
    if abs(control.value - chance) < _NEAR or control.low <= chance <= control.high:
        return [f"{sentence}.", f"W{text}, near chance ({chance}), as it should be."]
    return [f"{sentence}.", f"Warning: w{text}, not near chance ({chance})."]


def _shown(found: Estimate) -> str:
    return interval(*found).replace("-", "−")
