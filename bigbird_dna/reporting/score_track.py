"""Promoter scores along a contig, as a plot with genes, transcription start sites (TSSs) and calls."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bigbird_dna.calibration.calls import match_calls
from bigbird_dna.disk.atomic import reading
from bigbird_dna.disk.compression import read_lines
from bigbird_dna.disk.tables import open_lines
from bigbird_dna.errors import DataError, one_of, shortened
from bigbird_dna.genome.annotation import Gene
from bigbird_dna.genome.sequence import Locus
from bigbird_dna.metrics.auroc import Floats
from bigbird_dna.reporting.result import (
    BLUE,
    GRAY,
    INK,
    PALE,
    VERMILION,
    panels,
    save_figure,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MISSING = ["NA", ".", ""]
COLUMNS = ("contig", "start", "end", "score", "strand", "tss")
"""Columns of a table of scores that reports read, in any order."""

# About two points per pixel of the plot's width; more are not visible and would make the file large.
LARGEST_TRACK = 1600

STRAND_COLORS = {"+": BLUE, "-": VERMILION}
_GENE_LETTERS = 100  # of a gene name that the width of the plot has room for
_LABEL = (
    0.045  # width of a call's arrow and precision, as a fraction of the plot's width
)
FOUND_WITHIN = 100
"""A call is drawn as correct if it takes a known TSS within this distance in bp."""


@dataclass(frozen=True)
class ScoreTrack:
    """Scores along `[start, end)` of a contig; `strands` maps "+" and "-" to positions and scores."""

    contig: str
    start: int
    end: int
    strands: dict[str, tuple[Floats, Floats]]  # NaN: not scored
    contigs: frozenset[str] = frozenset()  # all contigs of the table

    def contains(self, site: Locus | Call) -> bool:
        """Whether a position is in the track."""
        return site.contig == self.contig and self.start <= site.position < self.end


class Call(NamedTuple):
    """A line of `call-promoters`: TSS (0-based), strand, expected precision and the model's score."""

    contig: str
    position: int
    strand: str
    precision: float
    score: float


def read_scores(path: Path) -> pd.DataFrame:
    """Return the columns `COLUMNS` of a table of `score-promoters`; `DataError` if it is not such a table.

    The score of a window that was not scored is NaN. `tss` is the position that the score is about; -1 if it
    is not in the contig. Of a BED file, whose scores are 0 to 1000, the probabilities are read.
    """
    where, header, _ = open_lines(path)
    missing = [name for name in COLUMNS if name not in header]
    if missing:
        hint = ""
        if missing == ["tss"]:
            hint = "; score again with score-promoters, which writes it: the 0-based position of the TSS"
        listed = shortened(" ".join(header), 80)
        raise DataError(f"{where}: no column {missing[0]!r} (found: {listed}){hint}")
    score = "probability" if "probability" in header else "score"
    comments = (
        number for number, line in read_lines(path) if line.strip() and line[:2] != "##"
    )
    first = next(comments) + 1  # line of the first row
    options: dict[str, Any] = {
        "sep": "\t",
        "skiprows": first - 1,
        "names": header,
        "usecols": ["contig", "start", "end", score, "strand", "tss"],
        "keep_default_na": False,
        "na_values": {score: MISSING, "tss": MISSING},
        "quoting": csv.QUOTE_NONE,
    }
    types: dict[str, Any] = {
        "contig": "category",
        "strand": "category",
        score: float,
        "tss": float,
    }
    types |= {"start": int, "end": int}
    with reading(path, "not readable as a table", EOFError, ValueError):
        try:
            table: pd.DataFrame = pd.read_csv(path, dtype=types, **options)
        except ValueError:
            text = pd.read_csv(path, dtype=str, **options)
            for name in ("start", "end", score, "tss"):
                wrong = pd.to_numeric(text[name], errors="coerce").isna()
                wrong &= text[name].notna()
                if wrong.any():
                    row = int(wrong.to_numpy().argmax())
                    cell = text[name].iloc[row]
                    raise DataError(
                        f"{path}: line {first + row}: {name} {cell!r:.60} is not a number"
                    ) from None
            raise
    table = table.rename(columns={score: "score"})
    table["tss"] = table["tss"].fillna(-1).astype(int)
    start, end, tss = table["start"], table["end"], table["tss"]
    outside = (tss >= 0) & ((tss < start) | (tss >= end))
    for fault, wrong in (
        ("strand {strand!r}: must be + or -", ~table["strand"].isin(["+", "-"])),
        ("invalid interval: start {start}, end {end}", (start < 0) | (end <= start)),
        ("tss {tss} is outside of the window {start} to {end}", outside),
    ):
        if wrong.any():
            row = int(wrong.to_numpy().argmax())
            cells = {name: table[name].iloc[row] for name in COLUMNS}
            raise DataError(f"{path}: line {first + row}: {fault.format(**cells)}")
    return table[[*COLUMNS]]


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
    table = read_scores(path)
    if table.empty:
        raise DataError(f"{path}: contains no scored window")
    contigs = sorted(table["contig"].unique())
    contig = table["contig"].iloc[0] if contig is None else contig
    if contig not in contigs:
        raise DataError(f"{path}: no contig {contig!r}: {one_of(contig, contigs)}")
    has_tss = table["tss"] >= 0
    first = table["tss"].where(has_tss, table["start"])
    last = table["tss"].where(has_tss, table["end"] - 1)
    inside = (table["contig"] == contig) & (first >= (start or 0))
    if end is not None:
        inside &= last < end
    table = table[inside]
    if table.empty:
        region = f"{contig}:{start or 0}-{'end' if end is None else end}"
        raise DataError(f"{path}: no score inside {region}")
    if start is None:  # a region may start with N
        scored = table.loc[table["score"].notna(), "start"]
        start = int(scored.min() if len(scored) else table["start"].iloc[0])
    end = int(table["end"].max()) if end is None else end
    if longest is not None and end - start > longest:
        end = start + longest
        table = table[table["tss"] < end]
    strands = {}
    points = table[table["tss"] >= 0].sort_values(["tss", "score"])
    for strand in "+-":
        rows = points[points["strand"] == strand]
        if len(rows):
            x, y = rows[["tss", "score"]].to_numpy(np.float64).T
            strands[strand] = (x, y)
    return ScoreTrack(contig, start, end, strands, frozenset(contigs))


def read_calls(path: Path, track: ScoreTrack) -> list[Call]:
    """Read the calls of a track's contig from a file of `call-promoters` (BED, TSV or Parquet).

    `DataError`: it is not such a file, or none of its contigs is in the table of scores.
    """
    fault = "not calls as call-promoters writes them"
    if path.suffix == ".parquet":
        with reading(path, "not a readable Parquet file", Exception):
            table = pd.read_parquet(path)
    else:
        _, names, lines = open_lines(path)
        table = pd.DataFrame([cells for _, cells in lines], columns=names, dtype=str)
    # Scores of BED are 0 to 1000.
    precision = "probability" if "probability" in table else "score"
    columns = ["contig", "start", "strand", precision, "model_score"]
    for name in [*columns, "precision_low"]:
        if name not in table:
            raise DataError(f"{path}: no column {name!r}: {fault}")
    with reading(path, fault, ValueError):
        types: dict[str, Any] = {
            "contig": str,
            "start": int,
            precision: float,
            "model_score": float,
        }
        rows = table[columns].astype(types).itertuples(index=False, name=None)
        calls = [Call(*row) for row in rows]
    if calls and not any(call.contig in track.contigs for call in calls):
        listed = shortened(", ".join(sorted(track.contigs)))
        raise DataError(
            f"{path}: no call is on a contig of the scores ({listed}); the first is on "
            f"{calls[0].contig!r:.60}"
        )
    return [call for call in calls if call.contig == track.contig]


def score_figure(
    track: ScoreTrack,
    sites: Sequence[Locus],
    path: Path,
    genes: Sequence[Gene] = (),
    calls: Sequence[Call] | None = None,
) -> None:
    """Draw a track with the `sites` (TSSs), `genes` and `calls` inside it, each on its strand's side.

    Gaps are windows that were not scored. Calls without a TSS within `FOUND_WITHIN` bp, and TSSs without a
    call, are drawn hollow: each call, from the highest score down, takes the nearest TSS that is left.
    """
    from matplotlib.ticker import EngFormatter

    length = track.end - track.start
    sites = [site for site in sites if track.contains(site)]
    on_track = sorted(filter(track.contains, calls or ()), key=lambda one: -one.score)
    genes = [
        gene
        for gene in genes
        if gene.contig == track.contig
        and gene.start < track.end
        and track.start < gene.end
    ]
    # Rows of the lane between both strands, from the middle outward.
    contents = {"genes": genes, "known TSS": sites, "calls": on_track}
    rows = [name for name, content in contents.items() if content]
    heights = [1.35, 0.25 + 0.36 * len(rows), 1.35]
    grid = {"sharex": True, "gridspec_kw": {"height_ratios": heights}}
    counts = np.zeros(4, np.int64)
    with panels(3, 1, 9.6, (sum(heights) + 0.9) / 3, **grid) as (figure, axes):
        forward, lane, reverse = axes
        for axis, strand, side in ((forward, "+", 1), (reverse, "-", -1)):
            color = STRAND_COLORS[strand]
            if strand in track.strands:
                x, y = condensed(*track.strands[strand])
                axis.plot(x, y, color=color, linewidth=1)
                axis.fill_between(x, 0, y, color=color, alpha=0.25, linewidth=0)
            tss = np.array(
                sorted(site.position for site in sites if site.strand == strand), int
            )
            for position in tss:
                axis.axvline(position, color=PALE, linewidth=0.8, zorder=1)
            axis.set(ylim=(0, 1.03), yticks=[0, 0.5, 1])
            axis.set_ylabel("forward (+)" if strand == "+" else "reverse (−)")
            called = [call for call in on_track if call.strand == strand]
            positions = np.array([call.position for call in called], int)
            taken = match_calls(positions, tss, FOUND_WITHIN)
            reached = np.isin(np.arange(len(tss)), taken)
            correct = (taken >= 0) | (not sites)
            counts += [reached.sum(), (~reached).sum(), correct.sum(), (~correct).sum()]
            if len(tss):
                height = side * (rows.index("known TSS") + 0.5)
                filled = reached | (calls is None)
                _draw_arrows(lane, tss, height, strand, INK, np.ones(len(tss)), filled)
            if called:
                height = side * (rows.index("calls") + 0.5)
                precision = np.array([call.precision for call in called])
                _draw_arrows(lane, positions, height, strand, color, precision, correct)
                # The expected precision as a number, where there is room.
                order = np.argsort(side * positions)
                edge = side * (track.end if side > 0 else track.start)
                room = np.diff(side * positions[order], append=edge) > _LABEL * length
                for number in order[room]:
                    lane.annotate(
                        f"{precision[number]:.2f}",
                        (positions[number], height),
                        (6 * side, 0),
                        textcoords="offset points",
                        ha="left" if side > 0 else "right",
                        va="center",
                        fontsize=7.5,
                        color=color,
                    )
        reverse.invert_yaxis()
        for gene in genes:
            _draw_gene(lane, track, gene)
        lane.axhline(0, color=GRAY, linewidth=0.8, zorder=1)
        lane.set(ylim=(-len(rows) - 0.1, len(rows) + 0.1))
        ticks = np.arange(len(rows)) + 0.5
        lane.set_yticks([*ticks, *-ticks], [*rows, *rows])
        lane.tick_params(axis="y", length=0)
        lane.grid(visible=False)
        lane.spines[:].set_visible(False)
        for axis in (forward, lane):
            axis.tick_params(axis="x", length=0)
        reverse.set_xlabel(f"position on {track.contig}")
        reverse.set_xlim(track.start, track.end)
        reverse.xaxis.set_major_formatter(EngFormatter("bp"))
        forward.set_title(f"Promoter probability along {track.contig}")
        if on_track:
            note = "numbers: expected precision of calls"
            look: Any = {"fontsize": 9, "fontweight": "normal", "color": GRAY}
            forward.set_title(note, loc="right", **look)
        found, missed, right, other = counts.tolist()
        kinds: list[tuple[str, str, bool]] = []
        if sites and calls is None:
            kinds = [(f"{missed:,} known TSS", INK, True)]
        elif calls is not None and not sites:
            kinds = [(f"{right:,} calls", BLUE, True)]
        elif calls is not None:
            kinds = [
                (f"{found:,} known TSS, called", INK, True),
                (f"{missed:,} missed", INK, False),
                (
                    f"{right:,} calls within {FOUND_WITHIN} bp of a known TSS",
                    BLUE,
                    True,
                ),
                (f"{other:,} other calls", BLUE, False),
            ]
        for label, color, is_filled in kinds:
            face = color if is_filled else "white"
            lane.scatter([], [], marker=">", c=face, edgecolors=color, label=label)
        if kinds:
            figure.legend(loc="outside lower right", ncols=len(kinds), fontsize=8)
        save_figure(figure, path)


def _draw_arrows(
    axis: Axes,
    x: NDArray[np.int64],
    y: float,
    strand: str,
    color: str,
    opacity: Floats,
    filled: NDArray[np.bool_],
) -> None:
    """Draw arrow heads that point in the direction of transcription."""
    from matplotlib.colors import to_rgba_array

    faces = to_rgba_array([color] * len(x), opacity)
    edges: Any = to_rgba_array([color] * len(x), np.maximum(opacity, 0.5))
    axis.scatter(
        x,
        np.full(len(x), y),
        s=50,
        c=np.where(filled[:, None], faces, 1.0),
        marker=">" if strand == "+" else "<",
        edgecolors=edges,
        linewidths=1,
        zorder=3,
        clip_on=False,
    )


def _draw_gene(axis: Axes, track: ScoreTrack, gene: Gene) -> None:
    """Draw a gene as an arrow along its strand, forward genes above, with its name where there is room."""
    length = track.end - track.start
    start, end = max(gene.start, track.start), min(gene.end, track.end)
    bases, forward = end - start, gene.strand == "+"
    y = 0.5 if forward else -0.5
    axis.arrow(
        start if forward else end,
        y,
        bases if forward else -bases,
        0,
        width=0.6,
        head_width=0.6,
        head_length=min(bases, length / 120),
        linewidth=0,
        length_includes_head=True,
        color=STRAND_COLORS[gene.strand],
        alpha=0.35,
    )
    if bases * _GENE_LETTERS > len(gene.name) * length:
        look: Any = {"ha": "center", "va": "center", "fontsize": 7, "clip_on": True}
        axis.text((start + end) / 2, y, gene.name, **look)


def condensed(positions: Floats, scores: Floats) -> tuple[Floats, Floats]:
    """Return the largest score of each segment if there are more points than the plot can show."""
    if len(positions) <= LARGEST_TRACK:
        return positions, scores
    edges = np.linspace(0, len(positions), LARGEST_TRACK + 1).astype(int)[:-1]
    filled = np.where(np.isnan(scores), -np.inf, scores)
    segments = np.split(filled, edges[1:])
    largest = edges + [int(segment.argmax()) for segment in segments]
    return positions[largest], scores[largest]
