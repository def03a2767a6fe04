"""Report of promoter scans: calls along a genome, compared with annotated transcription start sites (TSSs).

On each strand, the window with the highest score is a call and silences the windows whose TSS positions are
near; the next call is the highest score that is left. From the highest score down, a call is correct if
within a distance there is a TSS of its strand that no better call took. The realized false-discovery rate of
the calls above a threshold is the fraction that is not correct. The nominal one is the mean of 1 - score,
correct if scores are probabilities for this genome (`score-promoters --calibrated`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
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
from bigbird_dna.metrics.auroc import UNDEFINED, Estimate, Floats, divide
from bigbird_dna.metrics.resampling import (
    draw_counts,
    mean_over_seeds,
    percentile_interval,
    sampled_rates,
    with_width,
)
from bigbird_dna.reporting.pages import write_figure
from bigbird_dna.reporting.predictors import COLORS, predictor_label
from bigbird_dna.reporting.score_track import read_scores

SCAN = [
    "predictor",
    "within",
    "selection",
    "tss",
    "calls",
    "threshold",
    "calls_per_megabase",
    "nominal_fdr",
    "realized_fdr",
    "realized_fdr_low",
    "realized_fdr_high",
    "recall",
    "recall_low",
    "recall_high",
    "chance_fdr",
    "average_precision",
    "average_precision_low",
    "average_precision_high",
    "difference",
    "difference_low",
    "difference_high",
    "median_distance",
]
BEST_F1 = "best F1"
RESAMPLES = 1000
_POINTS = 200  # of a curve; more are not visible
RATES = (0.05, 0.1, 0.2, 0.5)
"""Nominal false-discovery rates at which calls are selected."""

# Axes: C calls of all tracks, from the highest score to the lowest.


def read_scan(path: Path) -> Scan:
    """Read a table of `score-promoters`; `DataError` if the file is not such a table."""
    table = read_scores(path)
    table = table.dropna()
    windows: dict[Track, Points] = {}
    for (contig, strand), rows in table.groupby(
        ["contig", "strand"], observed=True, sort=False
    ):
        rows = rows.sort_values(["tss", "score"])
        positions = rows["tss"].to_numpy(np.int64)
        windows[str(contig), str(strand)] = Points(positions, rows["score"].to_numpy())
    if not windows:
        return Scan({}, 1)
    # The distance of a few windows of a record, tiled from both ends, is smaller.
    gaps = np.concatenate([np.diff(found.positions) for found in windows.values()])
    return Scan(windows, int(np.median(gaps[gaps > 0])) if (gaps > 0).any() else 1)


def chance_precision(
    scan: Scan, sites: Mapping[Track, Integers], distance: int
) -> float:
    """Return the fraction of scored windows with a TSS within `distance` bp on their strand."""
    near = [
        np.searchsorted(sites[track], found.positions - distance, "left")
        < np.searchsorted(sites[track], found.positions + distance, "right")
        for track, found in scan.windows.items()
    ]
    return float(np.concatenate(near).mean())


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
    calls of a strand are more than `suppress` bp apart. Thresholds are those of the nominal rates `RATES`,
    and that of the largest F1, which is chosen on the same TSSs. `difference` is the average precision of the
    first scan minus that of another one. Without TSSs on the scanned sequence, a distance has one row, of no
    calls.
    Other arguments and errors are those of `read_scan` and `sites_of`.
    """
    matched: dict[int, dict[str, MatchedCalls]] = {bp: {} for bp in within}
    chances: dict[int, dict[str, float]] = {bp: {} for bp in within}
    megabases: dict[str, float] = {}
    for name, path in scans.items():
        scan = read_scan(path)
        sites = sites_of(promoters, scan)
        if not any(map(len, sites.values())):
            continue
        calls, megabases[name] = find_track_calls(scan, suppress), scan.megabases
        for distance in within:
            matched[distance][name] = match_tracks(calls, sites, distance)
            chances[distance][name] = chance_precision(scan, sites, distance)
    precisions = {bp: average_precisions(calls) for bp, calls in matched.items()}
    rows: list[tuple[Any, ...]] = []
    for name in scans:
        for distance, predictors in matched.items():
            row = name, distance
            if name not in predictors:
                undefined = [np.nan] * (len(SCAN) - 5)
                rows.append((*row, BEST_F1, 0, 0, *undefined))
                continue
            one = predictors[name]
            tss = len(one.site_blocks)
            chance_fdr = 1 - chances[distance][name]
            for selection, count in select_calls(one).items():
                *metrics, gap = call_metrics(one, count, megabases[name])
                both = (chance_fdr, *precisions[distance][name])
                rows.append((*row, selection, tss, *metrics, *both, gap))
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
    blocks = [np.append(one.blocks, one.site_blocks) for one in predictors.values()]
    ids = np.unique(np.concatenate([*blocks, np.zeros(0, np.int64)]))
    samples: Iterable[Any] = [np.ones((1, len(ids)))]  # all blocks once
    if len(ids) > 1:
        width = 4 * max(map(len, blocks))
        generator = np.random.default_rng(0)
        samples = chain(samples, draw_counts(generator, len(ids), RESAMPLES, width))
    parts: dict[str, list[Floats]] = {name: [] for name in predictors}
    for weights in samples:
        for name, one in predictors.items():
            parts[name].append(weighted_average_precision(one, ids, weights))
    first: Floats | None = None
    values: dict[str, tuple[float, ...]] = {}
    for name, arrays in parts.items():
        precision = np.concatenate(arrays)
        estimate = percentile_interval(precision[0], precision[1:])
        difference = UNDEFINED
        if first is None:
            first = precision
        else:
            lead = first - precision
            difference = percentile_interval(lead[0], lead[1:])
        values[name] = (*estimate, *difference)
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


def select_calls(calls: MatchedCalls) -> dict[str, int]:
    """Return how many calls, from the highest score down, are selected: by F1, and by nominal rate."""
    curve, rates = calls.curve, nominal_rates(calls)
    counts = {BEST_F1: int(curve.calls[curve.best(len(calls.site_blocks))])}
    for rate in RATES:
        counts[f"nominal FDR {rate:g}"] = int(curve.calls[rates <= rate].max(initial=0))
    return counts


def nominal_rates(calls: MatchedCalls) -> Floats:
    """Return the mean of 1 - score over the calls of each step of the curve."""
    counts = calls.curve.calls
    return np.asarray(np.cumsum(1 - calls.scores)[counts - 1] / counts)


def call_metrics(calls: MatchedCalls, count: int, megabases: float) -> list[float]:
    """Return the columns of `SCAN` from `calls` to `recall`, and the median distance, of the first calls."""
    if not count:
        return [0, np.nan, 0.0, np.nan, *UNDEFINED, *Estimate(0.0), np.nan]
    gaps, scores = calls.gaps[:count], calls.scores[:count]
    reached = np.isin(np.arange(len(calls.site_blocks)), calls.taken[:count])
    metrics = [count, scores[-1], count / megabases, float((1 - scores).mean())]
    for values, blocks in (
        (gaps < 0, calls.blocks[:count]),
        (reached, calls.site_blocks),
    ):
        rates = sampled_rates([values], np.ones(len(values)), blocks)
        metrics += with_width(mean_over_seeds(rates, (0.0, 1.0)))
    correct = gaps[gaps >= 0]
    return [*metrics, float(np.median(correct)) if len(correct) else np.nan]


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
