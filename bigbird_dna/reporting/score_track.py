"""Promoter scores along a contig, as a plot with transcription start sites and genes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.disk.tables import open_lines
from bigbird_dna.errors import DataError, one_of
from bigbird_dna.genome.annotation import Gene
from bigbird_dna.genome.sequence import Locus
from bigbird_dna.metrics.auroc import Floats
from bigbird_dna.reporting.result import BLUE, GRAY, INK, PALE, VERMILION, panels, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LONGEST = 2**31  # bp, largest coordinate
_MISSING = ("NA", ".", "")
COLUMNS = ("contig", "start", "end", "score", "strand", "tss")
"""Columns of a table of scores that reports read, in any order."""

# About two points per pixel of the plot's width; more are not visible and would make the file large.
LARGEST_TRACK = 1600

STRAND_COLORS = {"+": BLUE, "-": VERMILION}
_GENE_LETTERS = 100  # of a gene name that the width of the plot has room for
UNITS = ((1_000_000, 1e6, "Mb"), (5_000, 1e3, "kb"), (0, 1.0, "bp"))


@dataclass(frozen=True)
class ScoreTrack:
    """Scores along `[start, end)` of a contig; `strands` maps "+" and "-" to positions and scores."""

    contig: str
    start: int
    end: int
    strands: dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]  # NaN: not scored


class ScoredRow(NamedTuple):
    """A row of a table of `score-promoters`; the score is NaN if the window was not scored.

    `tss` is the position that the score is about; None if it is not in the contig.
    """

    contig: str
    start: int
    end: int
    score: float
    strand: str
    tss: int | None


def scored_windows(path: Path) -> Iterator[ScoredRow]:
    """Yield the rows of a table of `score-promoters`; `DataError` if the file is not such a table.

    Of a BED file, whose scores are 0 to 1000, the probabilities are read.
    """
    where, header, rows = open_lines(path)
    if missing := [name for name in COLUMNS if name not in header]:
        hint = ""
        if missing == ["tss"]:
            hint = (
                "; score again with score-promoters, which writes it, or add it: the 0-based position of the "
                "TSS that each score is about"
            )
        found = " ".join(header)
        raise DataError(f"{where}: no column {missing[0]!r} (found: {found:.80}){hint}")
    columns = [header.index(name) for name in COLUMNS]
    if "probability" in header:
        columns[COLUMNS.index("score")] = header.index("probability")
    for where, cells in rows:
        name, first, last, score, strand, tss = (cells[column] for column in columns)
        if strand not in ("+", "-"):
            raise DataError(f"{where}: strand {strand!r}: must be + or -")
        try:
            value = math.nan if score in _MISSING else float(score)
            position = None if tss in _MISSING else int(tss)
            row = ScoredRow(name, int(first), int(last), value, strand, position)
        except ValueError:
            raise DataError(
                f"{where}: start {first!r:.60}, end {last!r:.60}, score {score!r:.60} and tss {tss!r:.60} "
                "must be numbers"
            ) from None
        if not 0 <= row.start < row.end < _LONGEST:
            raise DataError(f"{where}: invalid interval: start {first!r:.60}, end {last!r:.60}")
        if row.tss is not None and not row.start <= row.tss < row.end:
            raise DataError(f"{where}: tss {row.tss} is outside of the window {row.start} to {row.end}")
        yield row


def read_score_track(
    path: Path,
    contig: str | None = None,
    start: int | None = None,
    end: int | None = None,
    longest: int | None = None,
) -> ScoreTrack:
    """Read the scores of a contig (None: the first) at TSS positions in `[start, end)`, 0-based, as points.

    Rows without a TSS, as of records that are too short, are no points. By default, the range extends from
    the first base of a scored window to the end of the last window. `longest` limits it, in bp.
    `DataError`: the file is not such a table, or has no such contig or no score in the range.
    """
    inside: list[ScoredRow] = []
    contigs = set()
    low, high = start or 0, math.inf if end is None else end
    for row in scored_windows(path):
        contig = row.contig if contig is None else contig
        contigs.add(row.contig)
        first, last = (row.start, row.end - 1) if row.tss is None else (row.tss, row.tss)
        if row.contig == contig and low <= first and last < high:
            inside.append(row)
    if contig is None:
        raise DataError(f"{path}: contains no scored window")
    if contig not in contigs:
        raise DataError(f"{path}: no contig {contig!r}: {one_of(contig, sorted(contigs))}")
    if not inside:
        raise DataError(f"{path}: no score inside {contig}:{low}-{'end' if end is None else end}")
    if start is None:  # a region may start with N
        start = min((row.start for row in inside if not math.isnan(row.score)), default=inside[0].start)
    end = max(row.end for row in inside) if end is None else end
    if longest is not None and end - start > longest:
        end = start + longest
        inside = [row for row in inside if row.tss is None or row.tss < end]
    strands = {}
    for strand in "+-":
        own = (row for row in inside if row.strand == strand and row.tss is not None)
        points = sorted((row.tss, row.score) for row in own)
        if points:
            positions, scores = np.array(points, dtype=np.float64).T
            strands[strand] = (positions, scores)
    return ScoreTrack(contig, start, end, strands)


def score_figure(track: ScoreTrack, sites: Sequence[Locus], path: Path, genes: Sequence[Gene] = ()) -> None:
    """Draw a track with the `sites` (TSSs) and `genes` inside it. Gaps are windows that were not scored."""
    length = track.end - track.start
    scale, unit = next((scale, unit) for least, scale, unit in UNITS if length >= least)
    shown = [
        site for site in sites if site.contig == track.contig and track.start <= site.position < track.end
    ]
    genes = [
        gene
        for gene in genes
        if gene.contig == track.contig and gene.start < track.end and track.start < gene.end
    ]
    lanes = [0.28, *([0.45] if genes else [])]
    grid = {"sharex": True, "gridspec_kw": {"height_ratios": [1, *lanes, 1]}}
    with panels(2 + len(lanes), 1, 9.6, 1.35, **grid) as (figure, axes):
        forward, lane, *_, reverse = axes
        for axis, strand in ((forward, "+"), (reverse, "-")):
            _draw_strand(axis, track, strand, shown, scale)
        reverse.invert_yaxis()
        # One arrow head per TSS, pointing along its gene.
        for strand, height, marker in (("+", 0.75, ">"), ("-", 0.25, "<")):
            own = [site.position / scale for site in shown if site.strand == strand]
            lane.plot(own, np.full(len(own), height), marker, color=INK, markersize=5, markeredgewidth=0)
        if genes:
            _draw_genes(axes[2], track, genes, scale)
        for axis, label in zip(axes[1:-1], ("TSS", "genes"), strict=False):
            axis.set(ylim=(0, 1), yticks=[], ylabel=label)
            axis.yaxis.label.set(rotation=0, ha="right", va="center")
            axis.grid(visible=False)
            axis.spines[:].set_visible(False)
        for axis in axes[:-1]:
            axis.tick_params(axis="x", length=0)
        reverse.set_xlabel(f"position on {track.contig} ({unit})")
        reverse.set_xlim(track.start / scale, track.end / scale)
        forward.set_title(f"Promoter probability along {track.contig}")
        forward.text(
            1, 1.04, f"▸ ◂ {len(shown):,} known TSS", transform=forward.transAxes,
            ha="right", va="bottom", fontsize=9, color=GRAY,
        )  # fmt: skip
        save_figure(figure, path)


def _draw_strand(axis: Axes, track: ScoreTrack, strand: str, sites: Sequence[Locus], scale: float) -> None:
    if strand in track.strands:
        x, y = condensed(*track.strands[strand])
        axis.plot(x / scale, y, color=STRAND_COLORS[strand], linewidth=1)
        axis.fill_between(x / scale, 0, y, color=STRAND_COLORS[strand], alpha=0.25, linewidth=0)
    for site in sites:
        if site.strand == strand:
            axis.axvline(site.position / scale, color=PALE, linewidth=0.8, zorder=1)
    axis.set(ylim=(0, 1.03), yticks=[0, 0.5, 1], ylabel="forward (+)" if strand == "+" else "reverse (−)")


def _draw_genes(axis: Axes, track: ScoreTrack, genes: Sequence[Gene], scale: float) -> None:
    """Draw each gene as an arrow along its strand, forward genes above, with its name where there is room."""
    length = track.end - track.start
    for gene in genes:
        start, end = max(gene.start, track.start), min(gene.end, track.end)
        bases = end - start
        height, x, dx = (0.74, start, bases) if gene.strand == "+" else (0.26, end, -bases)
        head = min(bases, length / 120) / scale
        axis.arrow(
            x / scale, height, dx / scale, 0, width=0.4, head_width=0.4, head_length=head, linewidth=0,
            length_includes_head=True, color=STRAND_COLORS[gene.strand], alpha=0.35,
        )  # fmt: skip
        if bases * _GENE_LETTERS > len(gene.name) * length:
            center = (start + end) / 2 / scale
            axis.text(center, height, gene.name, ha="center", va="center", fontsize=7, clip_on=True)


def condensed(positions: Floats, scores: Floats) -> tuple[Floats, Floats]:
    """Return the largest score of each segment if there are more points than the plot can show."""
    if len(positions) <= LARGEST_TRACK:
        return positions, scores
    edges = np.linspace(0, len(positions), LARGEST_TRACK + 1).astype(int)[:-1]
    filled = np.where(np.isnan(scores), -np.inf, scores)
    parts = zip(edges, np.split(filled, edges[1:]), strict=True)
    largest = np.array([start + int(np.argmax(part)) for start, part in parts])
    return positions[largest], scores[largest]
