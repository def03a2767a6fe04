"""Report of promoter scans: calls along a genome, compared with annotated transcription start sites (TSSs).

On each strand, the window with the highest score is a call and silences the windows whose TSS positions are
near; the next call is the highest score that is left. From the highest score down, a call is correct if
within a distance there is a TSS of its strand that no better call took.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bigbird_dna.calibration.calls import (
    DISTANCES,
    Integers,
    MatchedCalls,
    Points,
    Scan,
    Track,
    find_track_calls,
    match_tracks,
    sites_of,
)
from bigbird_dna.disk.directories import into_directory
from bigbird_dna.disk.tables import write_tsv
from bigbird_dna.metrics.auroc import UNDEFINED, Floats, divide
from bigbird_dna.metrics.resampling import draw_counts, percentile_interval
from bigbird_dna.reporting.pages import write_figure
from bigbird_dna.reporting.predictors import COLORS, predictor_label
from bigbird_dna.reporting.score_track import read_windows

SCAN = [
    "predictor",
    "within",
    "tss",
    "calls",
    "average_precision",
    "average_precision_low",
    "average_precision_high",
    "difference",
    "difference_low",
    "difference_high",
    "recall_at_precision_0.5",
    "recall_at_precision_0.8",
    "median_distance",
]
RESAMPLES = 1000
_POINTS = 200  # of a curve; more are not visible

# Axes: C calls of all tracks, from the highest score to the lowest.


def read_scan(path: Path) -> Scan:
    """Read a table of `score-promoters`; `DataError` if the file is not such a table."""
    table = read_windows(path, ["score", "tss"]).dropna()
    windows: dict[Track, Points] = {}
    for (contig, strand), rows in table.groupby(["contig", "strand"], sort=False):
        rows = rows.sort_values(["tss", "score"])
        positions = rows["tss"].to_numpy(np.int64)
        windows[str(contig), str(strand)] = Points(positions, rows["score"].to_numpy())

    if not windows:
        return Scan({}, 1)

    # The distance of a few windows of a record, tiled from both ends, is smaller.
    gaps = np.concatenate([np.diff(points.positions) for points in windows.values()])
    return Scan(windows, int(np.median(gaps[gaps > 0])) if (gaps > 0).any() else 1)


def scan_report(
    scans: Mapping[str, Path],
    promoters: Path,
    output: Path,
    *,
    within: Sequence[int] = DISTANCES,
    suppress: int = 100,
) -> pd.DataFrame:
    """Evaluate the calls of scans (predictor → table), and write `scan.tsv` (returned) and the figure `scan`.

    `promoters` has the annotated TSSs (`prepare promoters`). A call is correct `within` a distance in bp;
    calls of a strand are more than `suppress` bp apart. `difference` is the average precision of the first
    scan minus that of another one. The recall at a precision is the largest of all thresholds with at least
    this precision. `median_distance` is that of the correct calls at the threshold of the largest F1. Without
    TSSs on the scanned sequence, the metrics are empty. Other arguments and errors are those of `read_scan`
    and `sites_of`.
    """
    matched: dict[int, dict[str, MatchedCalls]] = {bp: {} for bp in within}
    for name, path in scans.items():
        scan = read_scan(path)
        sites = sites_of(promoters, scan)
        if any(map(len, sites.values())):
            calls = find_track_calls(scan, suppress)
            for distance in within:
                matched[distance][name] = match_tracks(calls, sites, distance)

    rows = []
    for distance, predictors in matched.items():
        precisions = average_precisions(predictors)
        for name in scans:
            row: dict[str, Any] = {"predictor": name, "within": distance}
            row |= {"tss": 0, "calls": 0}
            if name in predictors:
                matches = predictors[name]
                curve = matches.curve
                row |= {"tss": len(matches.site_blocks), "calls": len(matches.scores)}
                row |= dict(zip(SCAN[4:10], precisions[name], strict=True))
                for least in (0.5, 0.8):
                    recalls = curve.recall[curve.precision >= least]
                    row[f"recall_at_precision_{least}"] = recalls.max(initial=0)

                best = curve.calls[curve.best(len(matches.site_blocks))]
                gaps = matches.gaps[:best]
                row["median_distance"] = pd.Series(gaps[gaps >= 0]).median()

            rows.append(row)

    table = pd.DataFrame(rows, columns=SCAN)
    with into_directory(output, [promoters, *scans.values()]) as files:
        write_tsv(files / "scan.tsv", table)
        scan_figure(matched, files / "scan.plotly.json")

    return table


def average_precisions(
    predictors: Mapping[str, MatchedCalls],
) -> dict[str, tuple[float, ...]]:
    """Return the average precision of each predictor, and the first one's minus it, with 95 % intervals.

    Intervals are percentiles over resampled blocks of `BLOCK_BASES` bp, the same for all predictors; what a
    call takes is not matched again. With one block, or for the first one's own difference, they are NaN.
    """
    blocks = [
        np.append(calls.blocks, calls.site_blocks) for calls in predictors.values()
    ]
    ids = np.unique(np.concatenate([*blocks, np.zeros(0, np.int64)]))
    samples: list[Any] = [np.ones((1, len(ids)))]  # all blocks once
    precisions: dict[str, list[Floats]] = {name: [] for name in predictors}
    if len(ids) > 1:
        width = 4 * max(map(len, blocks))
        generator = np.random.default_rng(0)
        samples += draw_counts(generator, len(ids), RESAMPLES, width)

    for weights in samples:
        for name, calls in predictors.items():
            precision = weighted_average_precision(calls, ids, weights)
            precisions[name].append(precision)

    values: dict[str, tuple[float, ...]] = {}
    first: Floats | None = None
    for name, arrays in precisions.items():
        precision = np.concatenate(arrays)
        difference = UNDEFINED
        if first is None:
            first = precision
        else:
            lead = first - precision
            difference = percentile_interval(lead[0], lead[1:])

        values[name] = (*percentile_interval(precision[0], precision[1:]), *difference)

    return values


def weighted_average_precision(
    calls: MatchedCalls, ids: Integers, weights: NDArray[Any]
) -> Floats:
    """Return the average precision (R,) if the blocks `ids` (B,) have `weights` (R, B); NaN without a TSS."""
    of_calls = weights[:, np.searchsorted(ids, calls.blocks)]
    total = weights[:, np.searchsorted(ids, calls.site_blocks)].sum(axis=1)
    steps = calls.curve.calls - 1  # the last call of each score
    called = np.cumsum(of_calls, axis=1)[:, steps]
    correct = np.cumsum(of_calls * (calls.gaps >= 0), axis=1)[:, steps]
    gained = np.diff(correct, axis=1, prepend=0)
    area = (divide(correct, called, 0.0) * gained).sum(axis=1)
    return divide(area, total, np.nan)


def scan_figure(matched: Mapping[int, Mapping[str, MatchedCalls]], path: Path) -> None:
    """Draw precision against recall, one panel per distance."""
    import plotly.express as px

    columns = ["within", "predictor", "recall", "precision"]
    tables = [pd.DataFrame(columns=columns)]
    for distance, predictors in matched.items():
        for name, calls in predictors.items():
            curve = calls.curve
            grid = np.linspace(0, curve.recall[-1], _POINTS)
            points = np.unique(np.searchsorted(curve.recall, grid))
            points = points[curve.recall[points] > 0]
            rows = {
                "within": f"within {distance:,} bp of a TSS",
                "predictor": predictor_label(name),
                "recall": curve.recall[points],
                "precision": curve.precision[points],
            }
            tables.append(pd.DataFrame(rows))

    figure = px.line(
        pd.concat(tables),
        x="recall",
        y="precision",
        color="predictor",
        color_discrete_map=COLORS,
        facet_col="within",
        line_shape="vh",
        range_x=[0, 1],
        range_y=[0, 1.02],
        render_mode="svg",
        height=420,
    )
    write_figure(figure, path, panels=len(matched))
