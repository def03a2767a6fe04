"""Report of AUROC and AUPRC per track and group: `tracks.tsv`, `groups.tsv` and `report.html`."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from bigbird_dna.console import log
from bigbird_dna.disk.directories import atomic_directory, check_directory
from bigbird_dna.disk.tables import write_tsv
from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.genome.chromatin.track import Track
from bigbird_dna.genome.chromatin.tracks import read_tracks
from bigbird_dna.reporting.arrays import Array, open_array, read_blocks
from bigbird_dna.reporting.pages import (
    add_diagonal,
    figure_html,
    page_table,
    render_page,
    style_figure,
)
from bigbird_dna.reporting.predictors import RATES, RECALLS, predictor_label
from bigbird_dna.reporting.result import RULE
from bigbird_dna.reporting.track_evaluation import (
    ALL,
    Curve,
    check_fit,
    check_names,
    evaluate_tracks,
    groups_table,
    tracks_table,
)

DIGITS = 12
"""Significant digits of the metrics in the tables, for further computation."""


class AucReport(NamedTuple):
    """The tables as written; `tracks` has an additional column `counted`."""

    tracks: pd.DataFrame
    groups: pd.DataFrame


def auc_report(
    predictions: Array,
    labels: Array,
    output: str | Path,
    *,
    tracks: str | Path | Sequence[Track] | None = None,
    compare: Mapping[str, Array] | None = None,
    min_positives: int = 1,
    threads: int = 0,
    command: str = "",
    bins: str | Path | None = None,
) -> AucReport:
    """Evaluate predictions per track, and write tables and a page to `output` atomically.

    AUROC has the interval of `metrics.auroc.auroc`, over blocks of the genome if the rows' positions are
    known. AUROC and average precision are undefined for a track of one class.

    Parameters
    ----------
    predictions, labels : (rows, tracks), or (rows,) for one track; files readable by `open_array`, or arrays,
        lists or data frames with a column per track.
        Scores have any range. Labels are 0, 1, or -1 or NaN for a row not measured in a track, where a score
        may be NaN.
    output : a separate directory; an earlier report in it is replaced. tracks : name, group and further facts
    of each column, as a table (`read_tracks`) or its rows; None: column
        names of the arrays, in one group.
    compare : name → array of another predictor; differences have a paired interval.
    min_positives : tracks with fewer positives are excluded from the metrics of their group.
    command : the command that made the page.
    threads : 0: one per core, up to four.
    bins : the table of the rows, such as `bins.parquet` of a data set; None: the columns `contig` and `start`
        of `labels`. Without positions, rows count as independent.

    Raises
    ------
    DataError
        A file cannot be read, or shapes, names, rows or values do not match.
    UsageError
        `output` cannot be written or contains other files; a name in `compare` is invalid.
    """
    output = Path(output)
    compare = compare or {}
    files = [
        Path(str(source).partition("::")[0])
        for source in (predictions, labels, tracks, bins, *compare.values())
        if isinstance(source, str | Path)
    ]
    check_directory(output, files)
    for name in compare:
        if not re.fullmatch(r"[\w.+-]+", name):
            raise UsageError(
                f"predictor {name!r}: must consist of letters, digits and _ . + -"
            )

    truth = open_array(labels, "labels")
    first = open_array(predictions, "predictions")
    others = {name: open_array(array, name) for name, array in compare.items()}
    if first.tracks > first.rows:
        log(
            f"warning: {first.path}: {first.rows:,} rows × {first.tracks:,} tracks: more tracks than rows; "
            "check whether rows and tracks are swapped"
        )

    arrays = [truth, first, *others.values()]
    for array in arrays:
        check_fit(array, truth)

    if tracks is None:
        width = len(str(truth.tracks))
        numbered = [f"track {i + 1:0{width}}" for i in range(truth.tracks)]
        names = next((array.names for array in arrays if array.names), numbered)
        known: Sequence[Track] = [Track(name, ALL) for name in names]
    else:
        known = read_tracks(Path(tracks)) if isinstance(tracks, str | Path) else tracks
        if len(known) != truth.tracks:
            raise DataError(
                f"the track table has {len(known):,} tracks, but {truth.path} {truth.tracks:,} columns"
            )

        names = [track.name for track in known]
        for array in arrays:
            if array.names:
                check_names(array.path, array.names, "the track table", names)

    blocks = read_blocks(None if bins is None else Path(bins), truth)

    evaluated, curves = evaluate_tracks(first, truth, others, names, threads, blocks)
    table = tracks_table(known, evaluated, min_positives)
    groups = groups_table(table, [*compare])
    with atomic_directory(output) as directory:
        path = directory / "tracks.tsv"
        write_tsv(path, table.drop(columns="counted"), DIGITS)
        write_tsv(directory / "groups.tsv", groups, DIGITS)
        page = track_page(
            table,
            groups,
            curves,
            [*compare],
            rows=truth.rows,
            blocks=0 if blocks is None else len(np.unique(blocks)),
            command=command,
        )
        (directory / "report.html").write_text(page, encoding="utf-8")

    return AucReport(table, groups)


def track_page(
    table: pd.DataFrame,
    groups: pd.DataFrame,
    curves: Sequence[Curve | None],
    predictors: Sequence[str],
    **values: Any,
) -> str:
    """Return the page as HTML.

    `predictors` are the compared ones; tables are those of `tracks_table` and
    `groups_table`. `values` are further values of the template.
    """
    import plotly.express as px
    from plotly.subplots import make_subplots

    counted = table[table["counted"]]
    labels = {name: predictor_label(name) for name in predictors}
    summary = pd.DataFrame({"group": groups["group"], "tracks": groups["tracks"]})
    columns = {"median_auroc": "median AUROC", "median_auprc": "median AUPRC"}
    columns |= {
        f"median_auroc_{name}": f"{labels[name]}: median AUROC" for name in labels
    }
    for column, title in columns.items():
        summary[title] = [f"{x:.3f}" if x == x else "" for x in groups[column]]

    last = groups.iloc[-1]
    leads = []
    for name, label in labels.items():
        better, worse = groups[f"better_{name}"], groups[f"worse_{name}"]
        summary[f"{label}: median AUROC"] += [
            f"; the model is better on {more:,}, worse on {less:,}"
            for more, less in zip(better, worse, strict=True)
        ]
        leads.append(
            f"than the {label} on {last[f'better_{name}']:,} (worse on {last[f'worse_{name}']:,})"
        )

    medians = summary[["median AUROC", "median AUPRC"]].iloc[-1]
    sentences = [
        f"{len(counted):,} of {len(table):,} tracks were evaluated on {values.pop('rows'):,} rows: their median "
        f"AUROC is {medians.iloc[0]} and their median AUPRC {medians.iloc[1]}.",
        f"The model is better {', '.join(leads)}."
        if leads
        else "No other predictor was compared.",
    ]

    figures = {}
    color = "group" if table["group"].nunique() > 1 else None
    if len(counted):
        figures["distribution"] = px.strip(
            counted,
            x="auroc",
            y="group",
            color=color,
            hover_name="track",
            labels={"auroc": "AUROC", "group": ""},
            height=160 + 40 * counted["group"].nunique(),
        ).update_layout(showlegend=False)
        curve_figure = make_subplots(1, 2)
        colors = px.colors.qualitative.Plotly
        groupby = counted.groupby("group", sort=False)["auroc"]
        for (_, areas), line in zip(groupby, colors, strict=False):
            nearest: Any = (areas - areas.median()).abs().idxmin()
            track = counted.loc[nearest, "track"]
            look = {
                "mode": "lines",
                "name": track,
                "legendgroup": track,
                "line": {"color": line},
            }
            curve: Any = curves[nearest]
            roc, precision = curve
            curve_figure.add_scatter(x=RATES, y=roc, row=1, col=1, **look)
            curve_figure.add_scatter(
                x=RECALLS, y=precision, row=1, col=2, showlegend=False, **look
            )

        curve_figure.update_xaxes(range=[-0.01, 1.01])
        curve_figure.update_yaxes(range=[-0.01, 1.01])
        curve_figure.update_layout(
            height=480,
            xaxis_title="false positive rate",
            yaxis_title="true positive rate",
            xaxis2_title="recall",
            yaxis2_title="precision",
        )
        figures["curves"] = curve_figure

    if labels and len(counted):
        pairs = [
            counted[["track", "group", "auroc"]].assign(
                other=counted[f"auroc_{name}"], predictor=label
            )
            for name, label in labels.items()
        ]
        points = pd.concat(pairs).dropna(subset="other")
        limits = [float(points[["auroc", "other"]].to_numpy().min()) - 0.02, 1.01]
        figures["comparison"] = px.scatter(
            points,
            x="other",
            y="auroc",
            color=color,
            facet_col="predictor",
            hover_name="track",
            labels={"other": "AUROC of the other", "auroc": "AUROC"},
            range_x=limits,
            range_y=limits,
            render_mode="svg",
            height=480,
        )
        add_diagonal(figures["comparison"])

    widths = {"curves": 2, "comparison": len(labels)}
    hidden = [f"p_{name}" for name in labels] + [f"auprc_{name}" for name in labels]
    excluded = table[~table["counted"]].groupby("note", sort=False)["track"].agg(list)
    return render_page(
        "track_page.html",
        title="AUROC by track",
        sentences=sentences,
        summary=summary,
        rule=RULE,
        figures={
            name: figure_html(style_figure(figure, widths.get(name, 1)), name)
            for name, figure in figures.items()
        },
        tracks=page_table(table.drop(columns=["counted", *hidden], errors="ignore")),
        excluded=excluded.to_dict(),
        curves={
            track: curve.astype(float).round(3).tolist()
            for track, curve in zip(table["track"], curves, strict=True)
            if curve is not None
        },
        rates=RATES.round(4).tolist(),
        recalls=RECALLS.round(2).tolist(),
        **values,
    )
