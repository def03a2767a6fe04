"""Report of promoter models: metrics of the models and of baselines; plots of scores along a contig."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from bigbird_dna.config import control_name
from bigbird_dna.data.predictions import (
    ALL,
    COMPOSITION,
    CONTROL,
    KMER,
    MODEL,
    NETWORK,
    ORF,
    POSITION,
    PROMOTER_BASELINES,
    AlignedPredictions,
    compare,
    negative_set_of,
)
from bigbird_dna.disk.directories import into_directory
from bigbird_dna.disk.tables import Schema, write_table
from bigbird_dna.errors import UsageError
from bigbird_dna.metrics.auroc import (
    ENDS,
    UNDEFINED,
    Counts,
    Steps,
    auroc_difference,
    precision_recall,
    thin_curve,
)
from bigbird_dna.metrics.resampling import THRESHOLD, binary_metrics
from bigbird_dna.reporting.calibration import (
    PROMOTER_CALIBRATION,
    promoter_calibration_figure,
    promoter_calibration_table,
    read_probabilities,
)
from bigbird_dna.reporting.result import (
    BLUE,
    GRAY,
    GREEN,
    ORANGE,
    PALE,
    PURPLE,
    SKY,
    VERMILION,
    interval,
    panels,
    save_figure,
    square_panel,
)

# Baseline → column with the AUROC of a predictor minus that of the baseline.
DIFFERENCES = {name: f"auroc_minus_{name.replace('-', '')}" for name in PROMOTER_BASELINES}

PROMOTERS = Schema.of(
    "text negative_set stratum model; count n positives; estimate auroc auprc f1 mcc",
    *(f"estimate {name}" for name in DIFFERENCES.values()),
    "text note",
    key=["negative_set", "stratum", "model"],
)

_COUNTS = PROMOTERS.names[: PROMOTERS.names.index("auroc")]

# Points per curve; the error is at most 1/250 of a panel, which is not visible.
POINTS = 500


def promoter_report(
    sets: Mapping[str, Path],
    output: Path,
    *,
    baselines: Mapping[str, Mapping[str, Path]] | None = None,
    controls: Sequence[Path] = (),
) -> pd.DataFrame:
    """Compare predictions of promoter models on the test windows with those of their baselines.

    Writes `promoters.tsv` (returned), `roc.svg`, `precision_recall.svg` and `score_histograms.svg`, and for
    the models' probabilities `calibration.tsv` and `calibration.svg`, to the directory `output`. Predictions
    (Parquet) are given by negative set, those of `baselines` by negative set and baseline. An ensemble's
    network alone is a further predictor. If `calibration.json` is in the directory of a file in `sets`, as in
    a model directory, calibrated probabilities are evaluated too. `controls` are the predictions of models
    trained on shuffled labels, each with its own permutation. `UsageError` for a baseline or control of a
    negative set not in `sets`.
    """
    comparisons = _comparisons(sets, baselines or {}, controls)
    table = promoter_table(comparisons)
    with into_directory(output) as files:
        write_table(files / "promoters.tsv", table, PROMOTERS)
        curves_figure(comparisons, table, "auroc", files / "roc.svg")
        curves_figure(comparisons, table, "auprc", files / "precision_recall.svg")
        histogram_figure(comparisons, files / "score_histograms.svg")
        held = [read_probabilities(name, path) for name, path in sets.items()]
        calibration = promoter_calibration_table(held)
        write_table(files / "calibration.tsv", calibration, PROMOTER_CALIBRATION)
        promoter_calibration_figure(held, calibration, files / "calibration.svg")
    return table


def promoter_table(comparisons: Sequence[AlignedPredictions], seed: int = 0) -> pd.DataFrame:
    """Return one row per negative set, stratum and predictor: `binary_metrics`, and AUROC minus baselines.

    If the coding fraction of the windows is known, the rows of all windows of a negative set are followed by
    those of its noncoding stratum (`AlignedPredictions.noncoding`). Intervals are over blocks. Several
    controls have one row: the mean, and instead of an interval the lowest and the highest value.
    """
    rows: list[tuple[Any, ...]] = []
    for stratum, comparison in (part for one in comparisons for part in one.strata()):
        controls: list[tuple[Any, ...]] = []
        for name, scores in comparison.scores.items():
            *values, note = binary_metrics(comparison.labels, scores, seed, blocks=comparison.blocks)
            for baseline in DIFFERENCES:
                lead = UNDEFINED
                if baseline in comparison.scores and name != baseline:
                    others = comparison.scores[baseline]
                    lead = auroc_difference(comparison.labels, scores, others, comparison.blocks).estimate
                values += lead
            row = (comparison.negative_set, stratum, name, *values, note)
            (controls if is_control(name) else rows).append(row)
        rows += [_joined(controls)] if len(controls) > 1 else controls
    return pd.DataFrame(rows, columns=PROMOTERS.names)


def is_control(name: str) -> bool:
    """Whether a predictor of a comparison is a model trained on shuffled labels."""
    return name.split("-")[0] == CONTROL


def _joined(controls: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    """The row of several controls on the same windows."""
    first = controls[0]
    estimates = np.array([row[len(_COUNTS) : -1] for row in controls], float)[:, ::3]
    triples = np.stack([estimates.mean(0), estimates.min(0), estimates.max(0)], axis=1)
    return (*first[: len(_COUNTS)], *triples.ravel(), f"range of {len(controls)} permutations")


def _comparisons(
    sets: Mapping[str, Path], baselines: Mapping[str, Mapping[str, Path]], controls: Sequence[Path]
) -> list[AlignedPredictions]:
    """Align the predictors of each set; `baselines` map a negative set to baseline → predictions."""
    for name in baselines:
        if name not in sets:
            raise UsageError(f"baseline {name!r}: no predictions given for the negative set {name!r}")
    shuffled: dict[str, list[Path]] = {}
    for control in controls:
        name = negative_set_of(control)
        if name not in sets:
            raise UsageError(f"control {control}: no predictions given for the negative set {name!r}")
        shuffled.setdefault(name, []).append(control)
    comparisons = []
    for name, path in sets.items():
        files = {MODEL: path}
        given = baselines.get(name, {})
        files |= {baseline: given[baseline] for baseline in PROMOTER_BASELINES if baseline in given}
        files |= {control_name(number): file for number, file in enumerate(shuffled.get(name, ()))}
        comparisons.append(compare(name, files))
    return comparisons


class _PlotStyle(NamedTuple):
    label: str
    color: str
    dashes: str | tuple[int, tuple[int, ...]]


STYLES = {
    MODEL: _PlotStyle("model", BLUE, "-"),
    NETWORK: _PlotStyle("network alone", SKY, (0, (8, 2))),
    KMER: _PlotStyle("k-mer regression", VERMILION, (0, (5, 2))),
    POSITION: _PlotStyle("position regression", GREEN, (0, (6, 2, 1, 2))),
    ORF: _PlotStyle("longest ORF", ORANGE, (0, (3, 1))),
    COMPOSITION: _PlotStyle("composition regression", PURPLE, (0, (4, 1, 1, 1, 1, 1))),
    CONTROL: _PlotStyle("shuffled labels", GRAY, (0, (1, 1))),
}


def _style(name: str) -> str:
    return CONTROL if is_control(name) else name


def curves_figure(
    comparisons: Sequence[AlignedPredictions], table: pd.DataFrame, area: str, path: Path
) -> None:
    """Draw ROC or precision–recall curves, with a pale line for chance.

    Legends contain the areas from the table of promoters.
    """
    with panels(1, len(comparisons), 4.1, 6.0) as (figure, axes):
        for axis, comparison in zip(axes, comparisons, strict=True):
            if area == "auroc":
                axis.plot([0, 1], [0, 1], color=PALE, linewidth=1.2, zorder=1)
                axis.set(xlabel="false positive rate", ylabel="true positive rate")
            else:
                axis.axhline(comparison.labels.mean(), color=PALE, linewidth=1.2, zorder=1)
                axis.set(xlabel="recall", ylabel="precision")
            for curve, look in _curves(comparison, table, area):
                if area == "auroc":
                    axis.plot(*(curve.T / curve[-1][:, None]), **look)
                else:
                    axis.step(*precision_recall(curve), where="pre", **look)
            positives, n = int(comparison.labels.sum()), len(comparison.labels)
            counts = f"n = {positives:,} + {n - positives:,}"
            square_panel(axis, comparison.negative_set, counts, f"{area.upper()} [95 % CI]")
        save_figure(figure, path)


def histogram_figure(comparisons: Sequence[AlignedPredictions], path: Path) -> None:
    """Draw histograms of the model's probabilities for promoters and negatives; the line is the threshold."""
    edges = np.linspace(0, 1, 41)
    with panels(1, len(comparisons), 4.1, 3.4) as (figure, axes):
        for axis, comparison in zip(axes, comparisons, strict=True):
            scores = comparison.scores[MODEL]
            for label, name, color in ((0, "negatives", ORANGE), (1, "promoters", BLUE)):
                chosen = scores[comparison.labels == label]
                counts = np.histogram(chosen, edges)[0]
                legend = f"{name} ({len(chosen):,})"
                axis.stairs(counts, edges, color=color, alpha=0.35, fill=True, label=legend)
                axis.stairs(counts, edges, color=color, linewidth=1.4)
            axis.axvline(THRESHOLD, color=GRAY, linewidth=1, linestyle=(0, (4, 3)))
            axis.set(xlabel="model's probability", ylabel="windows", xlim=(0, 1))
            axis.set_title(f"{comparison.negative_set} negatives")
            axis.margins(y=0.3)
            axis.legend(loc="upper center", ncols=2, columnspacing=1.2)
        save_figure(figure, path)


def _curves(
    comparison: AlignedPredictions, table: pd.DataFrame, area: str
) -> Iterator[tuple[Counts, dict[str, Any]]]:
    """Yield corners and style of each predictor, in the order of `STYLES`; none if a class is missing."""
    chosen = (table["negative_set"] == comparison.negative_set) & (table["stratum"] == ALL)
    rows = table[chosen].set_index("model")
    several = sum(map(is_control, comparison.scores)) > 1
    for name, scores in sorted(comparison.scores.items(), key=lambda one: [*STYLES].index(_style(one[0]))):
        look = STYLES[_style(name)]
        if steps := Steps.of_rows(comparison.labels, scores):
            label = "_"  # of curves without their own line in the legend
            if name in STYLES:
                found = interval(*map(float, rows.loc[name, [f"{area}{end}" for end in ENDS]]))
                label = f"{look.label}  {found}{' range' if several and name == CONTROL else ''}"
            yield thin_curve(steps, POINTS), {"color": look.color, "linestyle": look.dashes, "label": label}
