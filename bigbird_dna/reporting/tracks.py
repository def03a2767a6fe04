"""Report of AUROC and AUPRC per track and group: `tracks.tsv`, `groups.tsv` and `report.html`."""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from bigbird_dna.calibration.maps import read_calibration
from bigbird_dna.console import log
from bigbird_dna.disk.directories import atomic_directory, check_directory
from bigbird_dna.disk.tables import write_tsv
from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.genome.chromatin.track import Track
from bigbird_dna.genome.chromatin.tracks import read_tracks
from bigbird_dna.reporting.arrays import Array, TrackArray, open_array, read_blocks
from bigbird_dna.reporting.calibration import (
    track_calibration_table,
)
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
    PUBLISHED,
    Curve,
    check_names,
    evaluate_tracks,
    groups_table,
    other_auroc,
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
    calibration: str | Path | None = None,
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
    calibration : `calibration.json` of the model; probabilities are then evaluated before and after
        calibration, in `track_calibration.tsv` and on the page; None: no evaluation.
    bins : the table of the rows, such as `bins.parquet` of a data set; None: the columns `contig` and `start`
        of `labels`. Without positions, rows count as independent.

    Raises
    ------
    DataError
        A file cannot be read, or shapes, names, rows or values do not match.
    ModelError
        The calibration is damaged.
    UsageError
        `output` cannot be written or contains other files; a name in `compare` is invalid.
    """
    output = Path(output)
    compare = compare or {}
    tables = [Path(t) for t in (calibration, bins) if t is not None]
    if isinstance(tracks, str | Path):
        tables.insert(0, Path(tracks))
    files = [
        Path(str(source).partition("::")[0])
        for source in (predictions, labels, *compare.values())
        if isinstance(source, str | Path)
    ]
    check_directory(output, [*files, *tables])
    maps = None if calibration is None else read_calibration(Path(calibration))
    for name in compare:
        if not re.fullmatch(r"[\w.+-]+", name) or name == PUBLISHED:
            raise UsageError(
                f"predictor {name!r}: must consist of letters, digits and _ . + -, and not be {PUBLISHED!r}"
            )
    truth = open_array(labels, "labels")
    first = open_array(predictions, "predictions")
    others = {name: open_array(array, name) for name, array in compare.items()}
    for array in (first, *others.values()):
        _check_fit(array, truth)
    if first.tracks > first.rows:
        log(
            f"warning: {first.path}: {first.rows:,} rows × {first.tracks:,} tracks: more tracks than rows; "
            "check whether rows and tracks are swapped"
        )
    known = _tracks(tracks, [truth, first, *others.values()])
    names = tuple(track.name for track in known)
    blocks = read_blocks(None if bins is None else Path(bins), truth)

    evaluated, curves = evaluate_tracks(first, truth, others, names, threads, blocks)
    table = tracks_table(known, evaluated, min_positives)
    predictors = [*compare]
    if "published_auroc" in table:
        predictors.insert(0, PUBLISHED)
    groups = groups_table(table, predictors)
    with atomic_directory(output) as directory:
        path = directory / "tracks.tsv"
        write_tsv(path, table.drop(columns="counted"), DIGITS)
        write_tsv(directory / "groups.tsv", groups, DIGITS)
        calibrated = None
        if maps is not None:
            calibrated = track_calibration_table(
                first, truth, maps, known, threads or 1
            )
            path = directory / "track_calibration.tsv"
            write_tsv(path, calibrated, DIGITS)
        page = track_page(
            table,
            groups,
            curves,
            predictors,
            calibrated,
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
    calibrated: pd.DataFrame | None,
    **values: Any,
) -> str:
    """Return the page as HTML.

    `predictors` are the compared ones, possibly with `PUBLISHED`; tables are those of `tracks_table`,
    `groups_table` and `track_calibration_table`. `values` are further values of the template.
    """
    import plotly.express as px
    from plotly.subplots import make_subplots

    counted = table[table["counted"]]
    names = {name: predictor_label(name) for name in predictors}
    summary = pd.DataFrame({"group": groups["group"], "tracks": groups["tracks"]})
    for metric in ("AUROC", "AUPRC"):
        summary[f"median {metric}"] = [
            decimal(value) for value in groups[f"median_{metric.lower()}"]
        ]
    for name, label in names.items():
        medians = [decimal(value) for value in groups[f"median_auroc_{name}"]]
        if name == PUBLISHED:
            summary["published: median AUROC"] = medians
            continue
        counts = zip(
            medians, groups[f"better_{name}"], groups[f"worse_{name}"], strict=True
        )
        summary[f"{label}: median AUROC"] = [
            f"{median}; the model is better on {better:,}, worse on {worse:,}"
            for median, better, worse in counts
        ]
    last = summary.iloc[-1]
    sentences = [
        f"{len(counted):,} of {len(table):,} tracks were evaluated on {values.pop('rows'):,} rows: their median "
        f"AUROC is {last['median AUROC']} and their median AUPRC {last['median AUPRC']}.",
    ]
    compared = [
        f"than the {label} on {better:,} (worse on {worse:,})"
        for name, label in names.items()
        if name != PUBLISHED
        for better, worse in [groups.iloc[-1][[f"better_{name}", f"worse_{name}"]]]
    ]
    sentences.append(
        f"The model is better {', '.join(compared)}."
        if compared
        else "No other predictor was compared."
    )

    figures = {}
    several = table["group"].nunique() > 1
    if len(counted):
        figures["distribution"] = px.strip(
            counted,
            x="auroc",
            y="group",
            color="group" if several else None,
            hover_name="track",
            labels={"auroc": "AUROC", "group": ""},
            height=160 + 40 * counted["group"].nunique(),
        ).update_layout(showlegend=False)
        curve_figure = make_subplots(1, 2)
        colors = px.colors.qualitative.Plotly
        for number, (_, rows) in enumerate(counted.groupby("group", sort=False)):
            if number == len(colors):
                break
            nearest = int((rows["auroc"] - rows["auroc"].median()).abs().argmin())
            curve = curves[rows.index[nearest]]
            assert curve is not None
            roc, precision = curve
            track = rows["track"].iloc[nearest]
            look = {
                "mode": "lines",
                "name": track,
                "legendgroup": track,
                "line": {"color": colors[number]},
            }
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
    pairs = [
        counted[["track", "group", "auroc"]].assign(
            other=counted[other_auroc(name)], predictor=label
        )
        for name, label in names.items()
    ]
    if pairs and len(counted):
        areas: pd.DataFrame = pd.concat(pairs).dropna(subset="other")
        limits = [float(areas[["auroc", "other"]].to_numpy().min()) - 0.02, 1.01]
        comparison = px.scatter(
            areas,
            x="other",
            y="auroc",
            color="group" if several else None,
            facet_col="predictor",
            hover_name="track",
            labels={"other": "AUROC of the other", "auroc": "AUROC"},
            range_x=limits,
            range_y=limits,
            render_mode="svg",
            height=480,
        )
        add_diagonal(comparison)
        figures["comparison"] = comparison
    sentence = ""
    if calibrated is not None:
        renamed = {"mean_raw": "raw", "mean_calibrated": "calibrated"}
        means = calibrated.rename(columns=renamed).melt(
            ["track", "share_positive"],
            ["raw", "calibrated"],
            "probabilities",
            "mean probability",
        )
        figures["calibration"] = px.scatter(
            means,
            x="share_positive",
            y="mean probability",
            color="probabilities",
            hover_name="track",
            log_x=True,
            log_y=True,
            labels={"share_positive": "fraction of positives"},
            render_mode="svg",
            height=480,
        )
        figures["calibration"].update_xaxes(dtick="D2").update_yaxes(dtick="D2")
        errors = calibrated[["ece_raw", "ece_calibrated"]].dropna()
        smaller = (errors["ece_calibrated"] < errors["ece_raw"]).sum()
        before, after = errors.median()
        sentence = (
            f"The expected calibration error is smaller for {smaller:,} of {len(errors):,} tracks; its median is "
            f"{decimal(before)} before and {decimal(after)} after calibration."
        )
    widths = {"curves": 2, "comparison": len(pairs)}
    pages = {
        name: figure_html(style_figure(figure, widths.get(name, 1)), name)
        for name, figure in figures.items()
    }
    hidden = [f"p_{name}" for name in names] + [f"auprc_{name}" for name in names]
    listed = table.drop(columns=["counted", *hidden], errors="ignore")
    excluded = table[~table["counted"]].groupby("note", sort=False)["track"].agg(list)
    return render_page(
        "track_page.html",
        title="AUROC by track",
        sentences=sentences,
        summary=summary,
        rule=RULE,
        figures=pages,
        tracks=page_table(listed),
        excluded=excluded.to_dict(),
        calibration=sentence,
        curves={
            track: curve.astype(float).round(3).tolist()
            for track, curve in zip(table["track"], curves, strict=True)
            if curve is not None
        },
        rates=RATES.round(4).tolist(),
        recalls=RECALLS.round(2).tolist(),
        **values,
    )


def decimal(value: float) -> str:
    """Format with three decimals; empty if undefined."""
    return "" if math.isnan(value) else f"{value:.3f}"


def _check_fit(array: TrackArray, labels: TrackArray) -> None:
    """Raise `DataError` if shape, column names or intervals of predictions differ from those of labels."""
    ours, theirs = (array.rows, array.tracks), (labels.rows, labels.tracks)
    if ours != theirs:
        turned = " (rows and tracks swapped?)" if ours == theirs[::-1] else ""
        raise DataError(
            f"{array.path}: {ours[0]:,} rows × {ours[1]:,} tracks, but {labels.path} has "
            f"{theirs[0]:,} × {theirs[1]:,}{turned}"
        )
    if array.names and labels.names:
        check_names(array.path, array.names, labels.path, labels.names)
    if array.intervals is None or labels.intervals is None:
        return
    for name in array.intervals.columns.intersection(labels.intervals.columns):
        one, two = array.intervals[name], labels.intervals[name]
        unlike = ((one != two) & ~(one.isna() & two.isna())).to_numpy()
        if unlike.any():
            row = int(unlike.argmax())
            raise DataError(
                f"{array.path}: row {row + 1:,}: {name} {one[row]!s:.60}, "
                f"but {two[row]!s:.60} in {labels.path}"
            )


def _tracks(
    tracks: str | Path | Sequence[Track] | None, arrays: Sequence[TrackArray]
) -> Sequence[Track]:
    count = arrays[0].tracks
    if tracks is None:
        width = len(str(count))
        unnamed = tuple(f"track {i + 1:0{width}}" for i in range(count))
        names = next((array.names for array in arrays if array.names), unnamed)
        return [Track(name, ALL) for name in names]
    known = read_tracks(Path(tracks)) if isinstance(tracks, str | Path) else tracks
    if len(known) != count:
        raise DataError(
            f"the track table has {len(known):,} tracks, but {arrays[0].path} {count:,} columns"
        )
    for array in arrays:
        if array.names:
            tracks_of_table = [track.name for track in known]
            check_names(array.path, array.names, "the track table", tracks_of_table)
    return known
