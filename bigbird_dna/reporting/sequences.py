"""Report of a model of labeled sequences: metrics on the test sequences, with baselines and controls."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bigbird_dna.data.labeled_sequences import LABEL
from bigbird_dna.data.predictions import (
    CNN,
    COMPOSITION,
    CONTROL,
    KMER,
    MODEL,
    NETWORK,
    POSITION,
)
from bigbird_dna.disk.arrays import read_frame
from bigbird_dna.disk.json_files import read_mapping
from bigbird_dna.disk.tables import read_text_table, write_tsv
from bigbird_dna.errors import shortened
from bigbird_dna.metrics.auroc import ENDS, UNDEFINED, Estimate, auroc_note
from bigbird_dna.metrics.labels import (
    CLASS_METRICS,
    MOST_OUTPUTS,
    REGRESSION_METRICS,
    called_classes,
    class_estimates,
    regression_estimates,
)
from bigbird_dna.reporting.pages import image, page_table, render_page
from bigbird_dna.reporting.predictors import (
    NEAR_CHANCE,
    STYLES,
    draw_curves,
    draw_histograms,
)
from bigbird_dna.reporting.result import (
    BLUE,
    CHANCE,
    interval,
    panels,
    save_figure,
    verdict,
)

_HEADINGS = {
    "auroc": "AUROC",
    "auprc": "AUPRC",
    "f1": "F1",
    "mcc": "MCC",
    "pearson": "Pearson r",
    "spearman": "Spearman ρ",
    "r2": "R²",
    "auroc difference": "AUROC, model − row",
    "pearson difference": "r, model − row",
}
_MOST_PANELS = 4
# Classes of a confusion matrix with names, and with numbers.
_MOST_NAMED, _MOST_NUMBERS = 40, 12
_MANY_POINTS = 1000  # more points are drawn as an image, because the SVG would be large

PREDICTIONS = "predictions.parquet"
MACRO, MULTICLASS, REGRESSION = "macro", "multiclass", "regression"

PREDICTORS = {
    MODEL: "the model of this report",
    NETWORK: "the neural network alone, without the regressions that are part of the model",
    KMER: "logistic or linear regression on the frequencies of k-mers",
    POSITION: "regression on the base at each position",
    COMPOSITION: "regression on GC content and length",
    CNN: "convolutional network on the bases, trained on the same sequences",
    CONTROL: "the same kind of model, trained on shuffled labels; a result other than chance is a warning",
}
"""Predictors in the order of the table, with their descriptions."""

# Axes: N sequences, T outputs.


class LabeledPredictions(NamedTuple):
    """Labels of the test sequences, and predictions of several predictors, of which the model is first."""

    outputs: list[str]
    labels: NDArray[np.float32]  # (N, T); NaN: missing, only of several labels
    groups: NDArray[np.int64]  # (N,) similar sequences have the same number
    scores: dict[str, NDArray[np.float32]]  # predictor → (N, T)
    valid: int  # number of validation sequences


def read_labeled_predictions(path: Path) -> LabeledPredictions:
    """Read the `predictions.parquet` of a model of labeled sequences.

    Columns are `name`, `split`, `group`, and PREDICTOR/OUTPUT for each predictor and `label`.
    """
    frame = read_frame(path)
    pairs = [column.split("/", 1) for column in frame.columns if "/" in column]
    outputs = [output for name, output in pairs if name == LABEL]
    test = frame[frame["split"] == "test"]
    values = {
        name: test[[f"{name}/{output}" for output in outputs]].to_numpy(np.float32)
        for name in (LABEL, *PREDICTORS)
        if f"{name}/{outputs[0]}" in frame
    }
    return LabeledPredictions(
        outputs,
        values.pop(LABEL),
        test["group"].to_numpy(np.int64),
        values,
        int((frame["split"] == "valid").sum()),
    )


def sequence_report(
    predictions: Path,
    kind: str,
    output: Path,
    *,
    facts: Mapping[str, str] | None = None,
) -> pd.DataFrame:
    """Compare a model of labeled sequences with its baselines and controls on the test sequences.

    `predictions` (Parquet) is as for `read_labeled_predictions`; labels are of the `kind` binary, multiclass,
    multilabel or regression. Writes `metrics.tsv` (returned), `report.html` and its SVG plots to the
    directory `output`, and `confusion.tsv` for several classes. `facts` (name → value) are shown on the page.
    """
    data = read_labeled_predictions(predictions)
    table = metrics_table(data, kind)
    write_tsv(output / "metrics.tsv", table)
    outputs = len(data.outputs)
    is_main = table["output"] == (MACRO if outputs > 1 else data.outputs[0])
    if outputs > 1:
        is_main &= table.index < len(table) // (outputs + 1)
    main = table[is_main].set_index("model")
    plots = []  # title, file, caption
    if kind == "binary":
        curves_plot(data, main, output / "curves.svg")
        caption = (
            "Left: fraction of positives above a threshold against the fraction of negatives above it. Right: "
            "fraction of positives among all sequences above a threshold (precision), against the fraction of "
            "positives above it (recall). The pale lines are chance. A good model is above its baselines."
        )
        plots.append(("Curves", "curves.svg", caption))
        with panels(1, 1, 5.4, 3.4) as (figure, (axis,)):
            probabilities = data.scores[MODEL][:, 0]
            labels = data.labels[:, 0]
            draw_histograms(axis, labels, probabilities, "positives", "sequences")
            save_figure(figure, output / "probabilities.svg")
        caption = (
            "The model's probabilities of the test sequences of both classes; the dashed line is the threshold "
            "of F1, MCC and balanced accuracy."
        )
        plots.append(("Probabilities", "probabilities.svg", caption))
    elif kind == MULTICLASS:
        called = called_classes(data.scores[MODEL], exclusive=True)
        counts = np.asarray(data.labels.T @ called, np.int64)
        confusion = pd.DataFrame(counts, columns=data.outputs)
        confusion.insert(0, "true class", data.outputs, allow_duplicates=True)
        write_tsv(output / "confusion.tsv", confusion)
        confusion_plot(data.outputs, counts, output / "confusion.svg")
        caption = (
            "Test sequences by their true class (rows) and the class with the largest probability (columns). "
            "Colors are fractions of a row: correct calls are on the diagonal. All counts are in "
            "confusion.tsv, with the classes in the same order."
        )
        plots.append(("Confusion matrix", "confusion.svg", caption))
    elif kind == REGRESSION:
        scatter_plot(data, table, output / "scatter.svg")
        some = ""
        if outputs > _MOST_PANELS:
            some = f"Only the first {_MOST_PANELS} of {outputs} outputs are shown. "
        caption = (
            f"One point per test sequence; on the line, the prediction is correct. {some}r is the correlation, "
            "and R² the fraction of the variance that the predictions explain."
        )
        plots.append(("Predicted and true values", "scatter.svg", caption))
    elif KMER in data.scores:
        rows = table[~is_main] if outputs > 1 else table
        better, counted = outputs_plot(rows, output / "outputs.svg")
        caption = (
            "AUROC of each output, by the model and by the k-mer regression. Above the line, the model is "
            f"better: {better:,} of {counted:,} outputs."
        )
        plots.append(("Outputs", "outputs.svg", caption))

    text = read_text_table(output / "metrics.tsv")
    count, positives = f"{len(data.labels):,}", ""
    if kind == "binary":
        positives = f" ({int(data.labels.sum()):,} positive)"
    groups = len(np.unique(data.groups))
    similar = f"in {groups:,} groups of similar sequences"
    if groups == 1:
        similar = "all linked by similar ones: no intervals"
    page = render_page(
        "sequences_page.html",
        style="run_page.css",
        title="Model of labeled sequences: results on test sequences",
        conclusions=conclusions(data, kind, main),
        about={
            **(facts or {}),
            "test sequences": f"{count}{positives}, {similar}",
            "validation sequences": f"{data.valid:,}, not in the metrics below",
        },
        kind=kind,
        headings=_HEADINGS,
        summary=page_table(
            text[is_main].drop(columns=["output", "n", "positives"], errors="ignore")
        ),
        every=page_table(text[~is_main]),
        outputs=outputs,
        many=outputs > MOST_OUTPUTS,
        plots=[
            (title, image(output / name), caption) for title, name, caption in plots
        ],
        predictors={
            name: PREDICTORS[name] for name in PREDICTORS if name in data.scores
        },
    )
    (output / "report.html").write_text(page, encoding="utf-8")
    return table


def report_model(directory: Path) -> pd.DataFrame:
    """Write the report (`sequence_report`) of the model directory of finetune-sequences into it."""
    names = ("config.json", "provenance.json", "metrics.json")
    description, origin, metrics = (read_mapping(directory / name) for name in names)
    settings, training = description["settings"], metrics["training"]
    started, length = origin["pretrained_sha256"], settings.get("length")
    counts = {
        "training": training["examples"],
        "validation": metrics["valid"]["sequences"],
        "test": metrics["test"]["sequences"],
    }
    facts = {
        "data": ", ".join(origin["data"]),
        "labels": f"{settings['kind']}: {shortened(', '.join(settings['outputs']), 200)}",
        "sequences": ", ".join(f"{count:,} {name}" for name, count in counts.items()),
        "length": "different" if length is None else f"{length:,} bp",
        "strands": "both" if settings.get("both_strands") else "as given",
        "initial weights": f"pretrained ({started[:12]})" if started else "random",
        "training": f"{training['steps']:,} steps, {training['parameters']:,} parameters",
    }
    cut = metrics["truncated"].values()
    if any(cut):
        pairs = zip(cut, counts.items(), strict=True)
        texts = [f"{n:,} of {count:,} {name}" for n, (name, count) in pairs]
        tokens = description["encoder"]["max_length"] - 2
        facts["truncated"] = (
            f"{', '.join(texts)}: the network reads their central {tokens:,} tokens"
        )
    return sequence_report(
        directory / PREDICTIONS, settings["kind"], directory, facts=facts
    )


def metrics_table(data: LabeledPredictions, kind: str) -> pd.DataFrame:
    """Return one row per output and predictor and notes on undefined metrics.

    If there are several outputs, the rows of the mean over outputs (`MACRO`) are first.
    """
    metrics: tuple[str, ...] = CLASS_METRICS
    if kind == REGRESSION:
        metrics = REGRESSION_METRICS
        estimates = regression_estimates(data.labels, data.scores, data.groups)
    else:
        exclusive = kind == MULTICLASS
        estimates = class_estimates(
            data.labels, data.scores, data.groups, exclusive=exclusive
        )
    outputs = range(len(data.outputs))
    rows: list[tuple[Any, ...]] = []
    if len(outputs) > 1:
        n = int((~np.isnan(data.labels)).any(axis=1).sum())
        for name, (mean, *of_outputs) in estimates.items():
            known = sum(not math.isnan(row[0].value) for row in of_outputs)
            note = ""
            if known < len(outputs):
                note = f"mean over {known} of {len(outputs)} outputs"
            rows.append((MACRO, name, n, None, *np.ravel(mean), note))
    for t in outputs:
        labeled = ~np.isnan(data.labels[:, t])
        y = data.labels[labeled, t]
        for name, of_outputs in estimates.items():
            values = of_outputs[t - len(outputs)]
            positives, note = None, ""
            if kind != REGRESSION:
                positives = int(y.sum())
                note = auroc_note(positives, len(y) - positives, values[0])
            elif not len(y):
                note = "no label"
            else:
                pairs = {"labels": y, "predictions": data.scores[name][labeled, t]}
                equal = [what for what, column in pairs.items() if not np.ptp(column)]
                if equal:
                    note = f"all {' and '.join(equal)} are equal: no correlation"
            counts = len(y), positives
            rows.append((data.outputs[t], name, *counts, *np.ravel(values), note))
    names = (*metrics, f"{metrics[0]}_difference")
    columns = [f"{name}{end}" for name in names for end in ENDS]
    table = pd.DataFrame(
        rows, columns=["output", "model", "n", "positives", *columns, "note"]
    )
    if kind == REGRESSION:
        return table.drop(columns="positives")
    return table.astype({"positives": "Int64"})


def curves_plot(data: LabeledPredictions, table: pd.DataFrame, path: Path) -> None:
    """Draw ROC and precision–recall curves of all predictors, with areas from the table in the legends."""
    scores = {name: values[:, 0] for name, values in data.scores.items()}
    titles = {"auroc": "ROC", "auprc": "Precision and recall"}
    with panels(1, 2, 4.4, 4.9 + 0.22 * len(table)) as (figure, axes):
        for axis, (area, title) in zip(axes, titles.items(), strict=True):
            draw_curves(axis, data.labels[:, 0], scores, table, area, title)
        save_figure(figure, path)


def confusion_plot(
    outputs: Sequence[str], counts: NDArray[np.int64], path: Path
) -> None:
    """Draw the confusion matrix; of few classes with counts and fractions of rows, of many without names."""
    from sklearn.metrics import ConfusionMatrixDisplay

    size = len(counts)
    fractions = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    side = min(max((0.62 if size <= _MOST_NUMBERS else 0.24) * size, 3.2), 9.0)
    names = [shortened(name, 24) for name in outputs]
    with panels(1, 1, side + 1.8, side + 0.9) as (figure, (axis,)):
        axis.grid(visible=False)
        shown = ConfusionMatrixDisplay(fractions, display_labels=names).plot(
            include_values=size <= _MOST_NUMBERS,
            cmap="Blues",
            xticks_rotation=90 if max(map(len, names)) > 4 else 0,
            values_format=".0%",
            ax=axis,
            im_kw={"vmin": 0, "vmax": 1, "interpolation": "none"},
            colorbar=False,
        )
        if size <= _MOST_NUMBERS:
            for text, count in zip(shown.text_.flat, counts.flat, strict=True):
                text.set(text=f"{count:,}\n{text.get_text()}", fontsize=8)
        axis.set(xlabel="called class", ylabel="true class")
        if size > _MOST_NAMED:
            axis.set(xticks=[], yticks=[])
        label = "fraction of the true class"
        figure.colorbar(shown.im_, ax=axis, label=label, shrink=0.8)
        save_figure(figure, path)


def outputs_plot(rows: pd.DataFrame, path: Path) -> tuple[int, int]:
    """Draw the AUROC of each output by model and k-mers; return for how many the model is better, and all."""
    areas = [
        rows.loc[rows["model"] == name, "auroc"].to_numpy(float)
        for name in (KMER, MODEL)
    ]
    x, y = np.stack(areas)[:, ~np.isnan(areas[0])]
    least = min([*x, *y, 0.5]) - 0.02
    with panels(1, 1, 4.6, 4.6) as (figure, (axis,)):
        axis.axline((0, 0), slope=1, **CHANCE)
        axis.scatter(x, y, s=22, color=BLUE, alpha=0.7, linewidths=0)
        axis.set(xlabel="AUROC, k-mer regression", ylabel="AUROC, model", box_aspect=1)
        axis.set(xlim=(least, 1.01), ylim=(least, 1.01))
        save_figure(figure, path)
    return int((y > x).sum()), len(x)


def scatter_plot(data: LabeledPredictions, table: pd.DataFrame, path: Path) -> None:
    """Draw predictions of the model against labels, of the first outputs."""
    outputs = data.outputs[:_MOST_PANELS]
    rows = table[table["model"] == MODEL].tail(len(data.outputs))
    grid = -(-len(outputs) // 2), min(len(outputs), 2)
    with panels(*grid, 4.4, 4.6) as (figure, axes):
        for axis in axes[len(outputs) :]:
            axis.set_axis_off()
        for t, name in enumerate(outputs):
            axis, labeled = axes[t], ~np.isnan(data.labels[:, t])
            x, y = data.labels[labeled, t], data.scores[MODEL][labeled, t]
            axis.axline((0, 0), slope=1, **CHANCE)
            many = len(x) > _MANY_POINTS
            look: Any = {"alpha": 0.25 if many else 0.5, "rasterized": many}
            axis.scatter(x, y, s=9, color=BLUE, linewidths=0, **look)
            r, r2 = rows["pearson"].iloc[t], rows["r2"].iloc[t]
            text = f"r = {r:.3f}, R² = {r2:.3f}".replace("-", "−")
            text = "not defined" if np.isnan(r) else text
            axis.set_title(f"{shortened(name, 18)}: {text}")
            axis.set(xlabel="true value", ylabel="predicted value", box_aspect=1)
            ends = min(x.min(), y.min()), max(x.max(), y.max())
            axis.update_datalim([(ends[0], ends[0]), (ends[1], ends[1])])
        save_figure(figure, path)


def conclusions(data: LabeledPredictions, kind: str, rows: pd.DataFrame) -> list[str]:
    """Return sentences on the model, its strongest baseline, and its controls.

    `rows` are those of the only output, or of the mean over outputs, by model.
    """
    metric, what, chance = "auroc", "an AUROC", 0.5
    if kind == REGRESSION:
        metric, what, chance = "pearson", "a correlation", 0
    noun = what.partition(" ")[2]
    sequences = f"on {len(data.labels):,} test sequences"

    def estimate(name: str, column: str = metric) -> Estimate:
        if name not in rows.index:
            return UNDEFINED
        values: Any = rows.loc[name, [f"{column}{end}" for end in ENDS]]
        return Estimate(*map(float, values))

    if np.isnan(estimate(MODEL).value):
        return [f"The model has no {noun} {sequences}: it is not defined."]
    mean = ""
    if len(data.outputs) > 1:
        plural = "classes" if kind == MULTICLASS else "outputs"
        mean = f" (mean of {len(data.outputs):,} {plural})"
    sentence = f"The model has {what} of {_text(estimate(MODEL))}{mean} {sequences}"
    values = pd.Series(
        {name: estimate(name).value for name in (KMER, POSITION, COMPOSITION, CNN)}
    ).dropna()
    if len(values):
        best = str(values.idxmax())
        lead = estimate(best, f"{metric}_difference")
        name, value = STYLES[best].label, f"{values[best]:.3f}".replace("-", "−")
        sentence += f"; the strongest baseline ({name}) has {value}, and the difference is {_text(lead)}: the model is {verdict(*lead)}"
    sentences = [f"{sentence}."]
    control = estimate(CONTROL)
    if not np.isnan(control.value):
        text = f"ith shuffled labels, the {noun} is {_text(control)}"
        near = abs(control.value - chance) < NEAR_CHANCE
        if near or control.low <= chance <= control.high:
            text = f"W{text}, near chance ({chance}), as it should be."
        else:
            text = f"Warning: w{text}, not near chance ({chance})."
        sentences.append(text)
    return sentences


def _text(estimate: Estimate) -> str:
    return interval(*estimate).replace("-", "−")
