"""Report of promoter scans: calls along a genome, compared with annotated transcription start sites (TSSs).

On each strand, the window with the highest score is a call and silences the windows whose TSS positions are
near; the next call is the highest score that is left. From the highest score down, a call is correct if
within a distance there is a TSS of its strand that no better call took. The realized false-discovery rate of
the calls above a threshold is the fraction that is not correct. The nominal one is the mean of 1 - score,
correct if scores are probabilities for this genome (`score-promoters --calibrated --prior`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bigbird_dna.disk.directories import into_directory
from bigbird_dna.disk.tables import Schema, write_table
from bigbird_dna.genome.promoters import read_loci
from bigbird_dna.metrics.auroc import UNDEFINED, Estimate, Floats
from bigbird_dna.metrics.resampling import BLOCK_BASES, mean_over_seeds, sampled_rates, with_width
from bigbird_dna.reporting.result import PALE, SERIES, panels, save_figure, show_text
from bigbird_dna.reporting.score_track import scored_windows, tss_position

Integers = NDArray[np.int64]
Track = tuple[str, str]  # a contig and a strand
SCAN = Schema.of(
    "text predictor; count within; text selection; count tss calls; number threshold",
    "metric calls_per_megabase nominal_fdr; estimate realized_fdr recall",
    "metric chance_fdr average_precision median_distance",
    key=["predictor", "within", "selection"],
)
BEST_F1 = "best F1"
_FURTHEST = 1 << 22  # more blocks than a contig has
_POINTS = 400  # of a curve; more are not visible
DISTANCES = (50, 100, 500)
RATES = (0.05, 0.1, 0.2, 0.5)
"""Nominal false-discovery rates at which calls are selected."""

# Axes: C calls of all tracks, from the highest score to the lowest.


class Points(NamedTuple):
    """TSS positions of one track and their scores: of windows by position, of calls by score."""

    positions: Integers
    scores: Floats


class Curve(NamedTuple):
    """At each distinct score of calls, from the highest down: numbers of calls and of correct ones."""

    calls: Integers
    correct: Integers
    precision: Floats
    recall: Floats

    @property
    def average_precision(self) -> float:
        """Precision summed over recall as a step function; a TSS that no call finds adds nothing."""
        return float((self.precision * np.diff(self.recall, prepend=0)).sum())

    def best(self, total: int) -> int:
        """Return the index with the largest F1 for `total` TSSs, with the fewest calls."""
        return int((2 * self.correct / (self.calls + total)).argmax())


class MatchedCalls(NamedTuple):
    """Calls of all tracks from the highest score down, (C,) each, and the TSSs that they could take."""

    scores: Floats
    gaps: Integers  # bp to the TSS that the call takes; -1: none
    taken: Integers  # indices of TSSs; -1: none
    blocks: Integers  # ids of the blocks of the genome
    site_blocks: Integers  # of all TSSs, (sites,)

    @property
    def curve(self) -> Curve:
        """Precision and recall of calls; equal scores are one step."""
        last = np.append(self.scores[1:] != self.scores[:-1], True)
        calls, found = np.flatnonzero(last) + 1, np.cumsum(self.gaps >= 0, dtype=np.int64)[last]
        return Curve(calls, found, found / calls, found / len(self.site_blocks))


class Scan(NamedTuple):
    """Scored windows of a table by track; windows without a score are left out."""

    windows: Mapping[Track, Points]
    stride: int  # usual distance of windows in bp

    @property
    def megabases(self) -> float:
        """Length of the scanned sequence; both strands count once."""
        strands = len({strand for _, strand in self.windows})
        return sum(len(found.scores) for found in self.windows.values()) * self.stride / strands / 1e6


def read_scan(path: Path, upstream: int) -> Scan:
    """Read a table of `score-promoters`; the TSS is `upstream` bp from the 5' end of a window.

    `DataError`: the file is not such a table.
    """
    pairs: defaultdict[Track, list[tuple[int, float]]] = defaultdict(list)
    for one in scored_windows(path):
        if one.score == one.score:
            position = tss_position(one.start, one.end, one.strand, upstream)
            pairs[one.contig, one.strand].append((position, one.score))
    if not pairs:
        return Scan({}, 1)
    windows = {}
    for track, found in pairs.items():
        positions, scores = np.array(sorted(found), np.float64).T
        windows[track] = Points(positions.astype(np.int64), scores)
    # The distance of a few windows of a record, tiled from both ends, is smaller.
    gaps = np.concatenate([np.diff(found.positions) for found in windows.values()])
    return Scan(windows, int(np.median(gaps[gaps > 0])) if (gaps > 0).any() else 1)


def sites_of(promoters: Path, scan: Scan) -> dict[Track, Integers]:
    """Return the annotated TSSs of each track, ascending, that are within a stride of a scored window."""
    sites: dict[Track, set[int]] = {track: set() for track in scan.windows}
    for locus in read_loci(promoters):
        sites.get((locus.contig, locus.strand), set()).add(locus.position)
    found = {}
    for track, own in sites.items():
        places, positions = np.array(sorted(own), np.int64), scan.windows[track].positions
        first, last = (np.searchsorted(positions, places + side * scan.stride, "left") for side in (-1, 1))
        found[track] = places[first < last]
    return found


def find_calls(windows: Points, suppress: int) -> Points:
    """Return calls: the highest score, which silences what is within `suppress` bp; then the next.

    Positions of windows ascend. Of equal scores, the first position comes first.
    """
    positions, scores = windows
    left = np.searchsorted(positions, positions - suppress, "left")
    right = np.searchsorted(positions, positions + suppress, "right")
    free = np.ones(len(positions), bool)
    chosen: list[int] = []
    for place in np.argsort(-scores, kind="stable").tolist():
        if free[place]:
            chosen.append(place)
            free[left[place] : right[place]] = False
    return Points(positions[chosen], scores[chosen])


def match_calls(calls: Integers, sites: Integers, distance: int) -> Integers:
    """Return the index of the TSS that each call, in the order given, takes; -1: none.

    A call takes the nearest TSS within `distance` bp that none before it took (the first of two as near).
    `sites` ascend. The first calls take the same TSSs without the others.
    """
    free, taken = np.ones(len(sites), bool), np.full(len(calls), -1, np.int64)
    starts = np.searchsorted(sites, calls - distance, "left")
    ends = np.searchsorted(sites, calls + distance, "right")
    for number, (call, start, end) in enumerate(zip(calls, starts, ends, strict=True)):
        near = np.flatnonzero(free[start:end]) + start
        if len(near):
            taken[number] = near[abs(sites[near] - call).argmin()]
            free[taken[number]] = False
    return taken


def match_tracks(
    calls: Mapping[Track, Points], sites: Mapping[Track, Integers], distance: int
) -> MatchedCalls:
    """Return the calls of all tracks with the TSSs that they take within `distance` bp."""
    contigs = {contig: number * _FURTHEST for number, contig in enumerate(sorted({one for one, _ in calls}))}
    parts, before = [], 0
    for track, found in calls.items():
        own, taken = sites[track], match_calls(found.positions, sites[track], distance)
        gaps = np.full(len(taken), -1, np.int64)
        gaps[taken >= 0] = abs(found.positions[taken >= 0] - own[taken[taken >= 0]])
        places = [contigs[track[0]] + positions // BLOCK_BASES for positions in (found.positions, own)]
        parts.append((found.scores, gaps, np.where(taken >= 0, taken + before, -1), *places))
        before += len(own)
    scores, gaps, taken, blocks, site_blocks = map(np.concatenate, zip(*parts, strict=True))
    order = np.argsort(-scores, kind="stable")
    return MatchedCalls(scores[order], gaps[order], taken[order], blocks[order], site_blocks)


def chance_precision(scan: Scan, sites: Mapping[Track, Integers], distance: int) -> float:
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
    upstream: int,
    within: Sequence[int] = DISTANCES,
    suppress: int = 100,
) -> pd.DataFrame:
    """Evaluate the calls of scans (predictor → table), and write `scan.tsv` (returned) and `scan.svg`.

    `promoters` has the annotated TSSs (`prepare promoters`). A call is correct `within` a distance in bp;
    calls of a strand are more than `suppress` bp apart. Thresholds are those of the nominal rates `RATES`,
    and that of the largest F1, which is chosen on the same TSSs. Without TSSs on the scanned sequence, a
    distance has one row, of no calls. Other arguments and errors are those of `read_scan` and `sites_of`.
    """
    rows: list[tuple[Any, ...]] = []
    curves: dict[int, dict[str, MatchedCalls]] = {distance: {} for distance in within}
    chances = dict.fromkeys(within, np.nan)
    for name, path in scans.items():
        scan = read_scan(path, upstream)
        sites = sites_of(promoters, scan)
        if not any(map(len, sites.values())):
            rows += [(name, gap, BEST_F1, 0, 0, *[np.nan] * (len(SCAN.names) - 5)) for gap in curves]
            continue
        calls = {track: find_calls(windows, suppress) for track, windows in scan.windows.items()}
        for distance in curves:
            found = curves[distance][name] = match_tracks(calls, sites, distance)
            chances[distance] = chance_precision(scan, sites, distance)
            own = (1 - chances[distance], found.curve.average_precision)
            for selection, count in selected(found).items():
                values = call_metrics(found, count, scan.megabases)
                rows.append(
                    (name, distance, selection, len(found.site_blocks), *values[:-1], *own, values[-1])
                )
    table = pd.DataFrame(rows, columns=SCAN.names)
    with into_directory(output, [promoters, *scans.values()]) as files:
        write_table(files / "scan.tsv", table, SCAN)
        scan_figure(curves, chances, files / "scan.svg")
    return table


def selected(found: MatchedCalls) -> dict[str, int]:
    """Return how many calls, from the highest score down, are selected: by F1, and by nominal rate."""
    curve, rates = found.curve, nominal_rates(found)
    counts = {BEST_F1: int(curve.calls[curve.best(len(found.site_blocks))])}
    return counts | {f"nominal FDR {r:g}": int(curve.calls[rates <= r].max(initial=0)) for r in RATES}


def nominal_rates(found: MatchedCalls) -> Floats:
    """Return the mean of 1 - score over the calls of each step of the curve."""
    calls = found.curve.calls
    return np.asarray(np.cumsum(1 - found.scores)[calls - 1] / calls)


def call_metrics(found: MatchedCalls, count: int, megabases: float) -> tuple[Any, ...]:
    """Return the columns of `SCAN` from `calls` to `recall`, and the median distance, of the first calls."""
    if not count:
        return 0, np.nan, 0.0, np.nan, *UNDEFINED, *Estimate(0.0), np.nan
    gaps, reached = found.gaps[:count], np.isin(np.arange(len(found.site_blocks)), found.taken[:count])
    wrong, recall = (
        with_width(mean_over_seeds(sampled_rates([values], np.ones(len(values)), blocks), (0.0, 1.0)))
        for values, blocks in ((gaps < 0, found.blocks[:count]), (reached, found.site_blocks))
    )
    distance = float(np.median(gaps[gaps >= 0])) if (gaps >= 0).any() else np.nan
    threshold, nominal = found.scores[count - 1], float((1 - found.scores[:count]).mean())
    return count, threshold, count / megabases, nominal, *wrong, *recall, distance


def scan_figure(
    curves: Mapping[int, Mapping[str, MatchedCalls]], chances: Mapping[int, float], path: Path
) -> None:
    """Draw precision against recall for each distance, and below it the realized against the nominal rate."""
    with panels(2, len(curves), 3.7, 3.4) as (figure, axes):
        for column, (distance, found) in enumerate(curves.items()):
            upper, lower = axes[column], axes[len(curves) + column]
            upper.axhline(chances[distance], color=PALE, linewidth=1.2, label="chance")
            lower.plot([0, 1], [0, 1], color=PALE, linewidth=1.2)
            for number, (name, calls) in enumerate(found.items()):
                curve, color = calls.curve, SERIES[number % len(SERIES)]
                label = f"{name}  {curve.average_precision:.3f}"
                marks = np.searchsorted(curve.recall, np.linspace(0, curve.recall[-1], _POINTS))
                kept = np.unique([*range(min(_POINTS // 10, len(curve.calls))), *marks])
                upper.step(curve.recall[kept], curve.precision[kept], where="pre", color=color, label=label)
                lower.plot(nominal_rates(calls)[kept], 1 - curve.precision[kept], color=color)
            upper.set(xlabel="recall", ylabel="precision", xlim=(0, 1), ylim=(0, 1.02))
            upper.set_title(f"within {distance:,} bp of a TSS")
            upper.legend(title="average precision", loc="upper right")
            if not found:
                show_text(upper, "no TSS on the scanned sequence")
            lower.set(xlabel="nominal false-discovery rate", ylabel="realized", xlim=(0, 1), ylim=(0, 1.02))
        save_figure(figure, path)
