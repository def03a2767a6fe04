"""Scores along a contig, as `score-promoters` wrote them: a track for each strand, drawn with true TSSs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.disk.tables import open_lines
from bigbird_dna.errors import DataError
from bigbird_dna.genome.sequence import Locus
from bigbird_dna.metrics.curves import Floats
from bigbird_dna.reporting.style import BLUE, GREY, INK, VERMILLION, panels, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_LONGEST = 2**31  # bp of a contig
COLUMNS = ["contig", "start", "end", "name", "score", "strand"]

# About two for each pixel of the figure's width: more can't be seen, and would swell the file.
LARGEST_TRACK = 1600

STRAND_COLORS = {"+": BLUE, "-": VERMILLION}
UNITS = ((1_000_000, 1e6, "Mb"), (5_000, 1e3, "kb"), (0, 1.0, "bp"))


@dataclass(frozen=True)
class ScoreTrack:
    """Scores along `[start, end)` of a contig; `strands` maps "+" and "-" to positions and scores."""

    contig: str
    start: int
    end: int
    strands: dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]  # NaN: not scored


class _DrawnWindow(NamedTuple):
    contig: str
    start: int
    end: int
    score: float
    strand: str


def read_score_track(
    path: Path,
    contig: str | None = None,
    start: int | None = None,
    end: int | None = None,
    upstream: int | None = None,
) -> ScoreTrack:
    """Windows of a contig (None: the file's first) that lie whole inside `[start, end)`, 0-based, as points.

    None is the first base that a window with a score covers, and the last that any does. A score is drawn
    where the model expects the TSS: `upstream` bp from the 5' end, on the strand that was scored, or in the
    middle. `DataError`: the file is no such table, has no such contig, or nothing in that range.
    """
    inside: list[_DrawnWindow] = []
    contigs = set()
    low, high = start or 0, math.inf if end is None else end
    where, header, rows = open_lines(path)
    if header[: len(COLUMNS)] != COLUMNS:
        found = " ".join(header)
        raise DataError(f"{where}: expected the columns #{' '.join(COLUMNS)}, not {found[:80]!r}")
    for row in (_parse(cells, where) for where, cells in rows):
        contig = row.contig if contig is None else contig
        contigs.add(row.contig)
        if row.contig == contig and low <= row.start and row.end <= high:
            inside.append(row)
    if contig is None:
        raise DataError(f"{path}: no scored window in it")
    if contig not in contigs:
        raise DataError(f"{path}: no contig {contig!r} (found: {', '.join(sorted(contigs)[:5])})")
    if not inside:
        raise DataError(f"{path}: no window inside {contig}:{low}-{'end' if end is None else end}")
    if start is None:  # N may stand before a region
        start = min((row.start for row in inside if not math.isnan(row.score)), default=inside[0].start)
    end = max(row.end for row in inside) if end is None else end
    strands = {}
    for strand in "+-":
        points = sorted((_drawn_position(row, upstream), row.score) for row in inside if row.strand == strand)
        if points:
            positions, scores = np.array(points, dtype=np.float64).T
            strands[strand] = (positions, scores)
    return ScoreTrack(contig, start, end, strands)


def _drawn_position(row: _DrawnWindow, upstream: int | None) -> float:
    if upstream is None:
        return (row.start + row.end) / 2
    return row.start + upstream if row.strand == "+" else row.end - 1 - upstream


def _parse(cells: list[str], where: str) -> _DrawnWindow:
    contig, start, end, _, score, strand = cells[: len(COLUMNS)]
    if strand not in ("+", "-"):
        raise DataError(f"{where}: strand {strand!r} is not + or -")
    try:
        value = math.nan if score in ("NA", ".", "") else float(score)
        row = _DrawnWindow(contig, int(start), int(end), value, strand)
    except ValueError:
        raise DataError(
            f"{where}: start {start!r:.60}, end {end!r:.60} or score {score!r:.60} is not a number"
        ) from None
    if not 0 <= row.start < row.end < _LONGEST:
        raise DataError(f"{where}: start {start!r:.60} and end {end!r:.60} are not an interval")
    return row


def score_figure(track: ScoreTrack, sites: Sequence[Locus], path: Path) -> None:
    """Draw a track; `sites` (TSSs) outside of it are left out. Gaps are windows that were not scored."""
    length = track.end - track.start
    scale, unit = next((scale, unit) for least, scale, unit in UNITS if length >= least)
    shown = [
        site for site in sites if site.contig == track.contig and track.start <= site.position < track.end
    ]
    grid = {"sharex": True, "gridspec_kw": {"height_ratios": [1, 0.28, 1]}}
    with panels(3, 1, 9.6, 1.35, **grid) as (figure, (forward, lane, reverse)):
        for axis, strand in ((forward, "+"), (reverse, "-")):
            if strand in track.strands:
                x, y = condensed(*track.strands[strand])
                axis.plot(x / scale, y, color=STRAND_COLORS[strand], linewidth=1)
                axis.fill_between(x / scale, 0, y, color=STRAND_COLORS[strand], alpha=0.25, linewidth=0)
            for site in shown:
                if site.strand == strand:
                    axis.axvline(site.position / scale, color=GREY, linewidth=0.7, alpha=0.6, zorder=1)
            name = "forward (+)" if strand == "+" else "reverse (−)"
            axis.set(ylim=(0, 1.03), yticks=[0, 0.5, 1], ylabel=name)
        reverse.invert_yaxis()
        forward.tick_params(axis="x", length=0)
        _draw_sites(lane, shown, scale)
        reverse.set_xlabel(f"position on {track.contig} ({unit})")
        reverse.set_xlim(track.start / scale, track.end / scale)
        forward.set_title(f"Promoter probability along {track.contig}")
        forward.text(
            1, 1.04, f"▸ ◂ {len(shown):,} known TSS", transform=forward.transAxes,
            ha="right", va="bottom", fontsize=9, color=GREY,
        )  # fmt: skip
        save_figure(figure, path)


def _draw_sites(axis: Axes, sites: Sequence[Locus], scale: float) -> None:
    """The lane between the strands: an arrow head for each TSS, pointing along its gene."""
    for strand, height, marker in (("+", 0.75, ">"), ("-", 0.25, "<")):
        x = [site.position / scale for site in sites if site.strand == strand]
        axis.plot(x, np.full(len(x), height), marker, color=INK, markersize=5, markeredgewidth=0)
    axis.set(ylim=(0, 1), yticks=[], ylabel="TSS")
    axis.yaxis.label.set(rotation=0, ha="right", va="center")
    axis.grid(visible=False)
    axis.tick_params(axis="x", length=0)
    for spine in axis.spines.values():
        spine.set_visible(False)


def condensed(positions: Floats, scores: Floats) -> tuple[Floats, Floats]:
    """The largest score of each segment where there are more points than the figure can show."""
    if len(positions) <= LARGEST_TRACK:
        return positions, scores
    edges = np.linspace(0, len(positions), LARGEST_TRACK + 1).astype(int)[:-1]
    filled = np.where(np.isnan(scores), -np.inf, scores)
    parts = zip(edges, np.split(filled, edges[1:]), strict=True)
    largest = np.array([start + int(np.argmax(part)) for start, part in parts])
    return positions[largest], scores[largest]
