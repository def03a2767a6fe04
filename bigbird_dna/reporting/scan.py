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
from scipy.sparse import csr_matrix

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
from bigbird_dna.metrics.auroc import ENDS, Floats, divide
from bigbird_dna.metrics.resampling import draw_counts, percentile_interval
from bigbird_dna.reporting.pages import write_figure
from bigbird_dna.reporting.predictors import COLORS, predictor_label
from bigbird_dna.reporting.score_track import read_windows

METRICS = (
    "average_precision",
    "recall_at_precision_0.5",
    "recall_at_precision_0.8",
    "median_distance",
)
SCAN = [
    "predictor",
    "within",
    "tss",
    "calls",
    *(
        f"{name}{end}"
        for name in (METRICS[0], "difference", *METRICS[1:])
        for end in ENDS
    ),
]
OTHERS = ["best_calls", "best_precision", "other_calls", "precision_with_others"]
RESAMPLES = 1000
_POINTS = 200  # of a curve; more are not visible

# Axes: C calls of all tracks, from the highest score to the lowest; B blocks, R resamples, S scores of correct calls.


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
    others: Path | None = None,
) -> pd.DataFrame:
    """Evaluate the calls of scans (predictor → table), and write `scan.tsv` (returned) and the figure `scan`.

    `promoters` has the annotated TSSs (`prepare promoters`). A call is correct `within` a distance in bp;
    calls of a strand are more than `suppress` bp apart. Metrics are those of `call_metrics`; without TSSs on
    the scanned sequence, they are empty. `others` has further TSSs: of the calls at the threshold of the
    largest F1, those near one of these, but near no annotated one, are counted as well (`OTHERS`). Other
    arguments and errors are those of `read_scan` and `sites_of`.
    """
    matched: dict[int, dict[str, MatchedCalls]] = {bp: {} for bp in within}
    for name, path in scans.items():
        scan = read_scan(path)
        sites = sites_of(promoters, scan)
        further = None if others is None else sites_of(others, scan)
        if any(map(len, sites.values())):
            calls = find_track_calls(scan, suppress)
            for distance in within:
                matched[distance][name] = match_tracks(calls, sites, distance, further)

    rows = []
    for distance, predictors in matched.items():
        metrics = call_metrics(predictors)
        for name in scans:
            row: dict[str, Any] = {"predictor": name, "within": distance}
            row |= {"tss": 0, "calls": 0}
            if name in predictors:
                matches = predictors[name]
                row |= {"tss": len(matches.site_blocks), "calls": len(matches.scores)}
                row |= metrics[name]
                if others is not None:
                    row |= other_metrics(matches)

            rows.append(row)

    columns = SCAN if others is None else [*SCAN, *OTHERS]
    table = pd.DataFrame(rows, columns=columns)
    inputs = [promoters, *scans.values(), others]
    with into_directory(output, inputs) as files:
        write_tsv(files / "scan.tsv", table)
        scan_figure(matched, files / "scan.plotly.json")

    return table


def other_metrics(calls: MatchedCalls) -> dict[str, float]:
    """Return `OTHERS`: at the threshold of the largest F1, the number of calls and their precision, of calls
    near other TSSs only, and the precision if these are correct."""
    if not len(calls.scores):
        return {"best_calls": 0, "other_calls": 0}

    curve = calls.curve
    best = int((curve.correct / (curve.calls + len(calls.site_blocks))).argmax())
    count, correct = int(curve.calls[best]), int(curve.correct[best])
    near_others = int(calls.others[:count].sum())
    values = count, correct / count, near_others, (correct + near_others) / count
    return dict(zip(OTHERS, values, strict=True))


def call_metrics(
    predictors: Mapping[str, MatchedCalls],
) -> dict[str, dict[str, float]]:
    """Return the metrics of each predictor's calls, with 95 % intervals (`_low`, `_high`).

    `METRICS` are those of `weighted_metrics`; `difference` is the average precision of the first predictor
    minus that of another one. Intervals are percentiles over resampled blocks of `BLOCK_BASES` bp, the same
    for all predictors; what a call takes is not matched again. With one block they are NaN.
    """
    blocks = [
        np.append(calls.blocks, calls.site_blocks) for calls in predictors.values()
    ]
    ids = np.unique(np.concatenate([*blocks, np.zeros(0, np.int64)]))
    samples: list[Any] = [np.ones((1, len(ids)))]  # all blocks once
    if len(ids) > 1:
        width = 8 * max((calls.gaps >= 0).sum() for calls in predictors.values())
        generator = np.random.default_rng(0)
        samples += draw_counts(generator, len(ids), RESAMPLES, int(width))

    metrics: dict[str, dict[str, float]] = {}
    first: Floats | None = None
    for name, calls in predictors.items():
        values = np.concatenate(
            [weighted_metrics(calls, ids, weights) for weights in samples], axis=1
        )
        estimates = dict(zip(METRICS, values, strict=True))
        if first is None:
            first = values[0]
        else:
            estimates["difference"] = first - values[0]

        metrics[name] = {
            f"{metric}{end}": value
            for metric, resampled in estimates.items()
            for end, value in zip(
                ENDS, percentile_interval(resampled[0], resampled[1:]), strict=True
            )
        }

    return metrics


def weighted_metrics(
    calls: MatchedCalls, ids: Integers, weights: NDArray[Any]
) -> Floats:
    """Return `METRICS` (4, R) if the blocks `ids` (B,) have `weights` (R, B): how often each is drawn.

    The average precision counts all calls. The recall at a precision is the largest of all thresholds with at
    least this precision; 0 without one. The median distance is that of the correct calls to their TSSs at the
    threshold of the largest F1. NaN without a TSS, or without a correct call.
    """
    found = np.flatnonzero(calls.gaps >= 0)
    # Thresholds are the scores of correct calls; other thresholds improve no metric.
    scores, step = np.unique(-calls.scores[found], return_inverse=True)
    above = np.searchsorted(scores, -calls.scores)
    block = np.searchsorted(ids, calls.blocks)

    def count(rows: Integers | slice) -> Floats:
        """Count calls at or above each threshold, (S, R)."""
        steps, blocks = above[rows], block[rows]
        inside = steps < len(scores)
        entries = np.ones(inside.sum()), (steps[inside], blocks[inside])
        by_block = csr_matrix(entries, shape=(len(scores), len(ids)))
        return np.cumsum(by_block @ weights.T, axis=0)

    called, correct = count(slice(None)), count(found)
    total = weights[:, np.searchsorted(ids, calls.site_blocks)].sum(axis=1)
    precision = divide(correct, called, 0.0)
    area = (precision * np.diff(correct, axis=0, prepend=0)).sum(axis=0)
    reached = [
        np.where(precision >= least, correct, 0).max(axis=0, initial=0)
        for least in (0.5, 0.8)
    ]
    metrics = [divide(value, total, np.nan) for value in (area, *reached)]

    median = np.full(len(weights), np.nan)
    if len(found):
        best = divide(2 * correct, called + total, 0.0).argmax(axis=0)
        near = np.argsort(calls.gaps[found], kind="stable")
        gaps = calls.gaps[found][near]
        used = step[near, None] <= best
        counts = np.cumsum(used * weights.T[block[found[near]]], axis=0)
        # Numbers of the one or two middle calls, which blocks that are drawn twice repeat.
        middle = [(counts[-1] + 1) // 2, counts[-1] // 2 + 1]
        rows = [
            (counts < number).sum(axis=0).clip(max=len(gaps) - 1) for number in middle
        ]
        median = np.where(counts[-1] > 0, gaps[rows].mean(axis=0), np.nan)

    return np.stack([*metrics, median])


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
        facet_col_wrap=2 if len(matched) > 3 else 0,
        line_shape="vh",
        range_x=[0, 1],
        range_y=[0, 1.02],
        render_mode="svg",
        height=720 if len(matched) > 3 else 420,
    )
    write_figure(figure, path, panels=2 if len(matched) > 3 else len(matched))
