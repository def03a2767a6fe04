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
    from matplotlib.figure import Figure

MISSING = ["NA", ".", ""]
COLUMNS = ("contig", "start", "end", "score", "strand", "tss")
"""Columns of a table of scores that reports read, in any order."""

# About two points per pixel of the plot's width; more are not visible and would make the file large.
LARGEST_TRACK = 1600

WHITE = "#FFFFFF"
STRAND_COLORS = {"+": BLUE, "-": VERMILION}
_GENE_LETTERS = 100  # of a gene name that the width of the plot has room for
_LABEL = (
    0.045  # width of a call's arrow and precision, as a fraction of the plot's width
)
FOUND_WITHIN = 100
"""A call is drawn as correct if it takes a known TSS within this distance in bp."""
UNITS = ((1_000_000, 1e6, "Mb"), (5_000, 1e3, "kb"), (0, 1.0, "bp"))


@dataclass(frozen=True)
class ScoreTrack:
    """Scores along `[start, end)` of a contig; `strands` maps "+" and "-" to positions and scores."""

    contig: str
    start: int
    end: int
    strands: dict[
        str, tuple[NDArray[np.float64], NDArray[np.float64]]
    ]  # NaN: not scored
    contigs: frozenset[str] = frozenset()  # all contigs of the table


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
    if missing := [name for name in COLUMNS if name not in header]:
        hint = ""
        if missing == ["tss"]:
            hint = (
                "; score again with score-promoters, which writes it, or add it: the 0-based position of the "
                "TSS that each score is about"
            )
        found = " ".join(header)
        raise DataError(f"{where}: no column {missing[0]!r} (found: {found:.80}){hint}")
    score = "probability" if "probability" in header else "score"
    first_line = next(
        (n for n, line in read_lines(path) if line.strip() and line[:2] != "##"), 1
    )
    options: dict[str, Any] = {
        "sep": "\t",
        "skiprows": first_line,
        "names": header,
        "usecols": ["contig", "start", "end", score, "strand", "tss"],
        "keep_default_na": False,
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
            missing_cells = {score: MISSING, "tss": MISSING}
            table: pd.DataFrame = pd.read_csv(
                path, dtype=types, na_values=missing_cells, **options
            )
        except ValueError:
            text = pd.read_csv(path, dtype=str, **options)
            _refuse_text(path, text, score, first_line)
            raise
    table = table.rename(columns={score: "score"})
    table["tss"] = table["tss"].fillna(-1).astype(int)

    def refuse(bad: pd.Series[bool], fault: str) -> None:
        if bad.any():
            row = int(bad.to_numpy().argmax())
            cells = {name: table[name].iloc[row] for name in COLUMNS}
            line = first_line + 1 + row
            raise DataError(f"{path}: line {line}: {fault.format(**cells)}")

    refuse(~table["strand"].isin(["+", "-"]), "strand {strand!r}: must be + or -")
    start, end, tss = table["start"], table["end"], table["tss"]
    refuse(
        (start < 0) | (end <= start) | (end >= 2**31),
        "invalid interval: start {start}, end {end}",
    )
    refuse(
        (tss >= 0) & ((tss < start) | (tss >= end)),
        "tss {tss} is outside of the window {start} to {end}",
    )
    return table[[*COLUMNS]]


def _refuse_text(path: Path, table: pd.DataFrame, score: str, first_line: int) -> None:
    """Raise `DataError` for the first row of a table of text whose numbers are not numbers."""
    bad = pd.Series(False, index=table.index)
    for name in ("start", "end", score, "tss"):
        cells = table[name].fillna("")
        if name in (score, "tss"):
            cells = cells.mask(cells.isin(MISSING), "0")
        bad |= pd.to_numeric(cells, errors="coerce").isna()
        if name != score:
            bad |= ~cells.str.fullmatch(r"-?\d+")
    if bad.any():
        row = int(bad.to_numpy().argmax())
        start, end, value, tss = table.loc[row, ["start", "end", score, "tss"]]
        raise DataError(
            f"{path}: line {first_line + 1 + row}: start {start!r:.60}, end {end!r:.60}, score {value!r:.60} "
            f"and tss {tss!r:.60} must be numbers"
        )


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
    for strand in "+-":
        points = table[(table["strand"] == strand) & (table["tss"] >= 0)]
        if len(points):
            points = points.sort_values(["tss", "score"])
            positions = points["tss"].to_numpy(np.float64)
            strands[strand] = (positions, points["score"].to_numpy(np.float64))
    return ScoreTrack(contig, start, end, strands, frozenset(contigs))


def read_calls(path: Path, track: ScoreTrack) -> list[Call]:
    """Read the calls of a track's contig from a file of `call-promoters` (BED, TSV or Parquet).

    `DataError`: it is not such a file, or none of its contigs is in the table of scores.
    """
    if path.suffix == ".parquet":
        with reading(path, "not a readable Parquet file", Exception):
            table = pd.read_parquet(path)
    else:
        _, names, lines = open_lines(path)
        table = pd.DataFrame([cells for _, cells in lines], columns=names, dtype=str)
    precision = (
        "probability" if "probability" in table else "score"
    )  # BED: its scores are 0 to 1000
    columns = ["contig", "start", "strand", precision, "model_score"]
    if missing := [name for name in [*columns, "precision_low"] if name not in table]:
        raise DataError(
            f"{path}: no column {missing[0]!r}: not calls as call-promoters writes them"
        )
    with reading(path, "not calls as call-promoters writes them", ValueError):
        types = {"contig": str, "start": int, precision: float, "model_score": float}
        rows = table[columns].astype(types).itertuples(index=False, name=None)
        calls = [Call(*row) for row in rows]
    if calls and not any(call.contig in track.contigs for call in calls):
        raise DataError(
            f"{path}: no call is on a contig of the scores ({shortened(', '.join(sorted(track.contigs)))}); "
            f"the first is on {calls[0].contig!r:.60}"
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
    scale, unit = next(
        (scale, unit)
        for least, scale, unit in UNITS
        if track.end - track.start >= least
    )
    sites = [site for site in sites if _is_inside(track, site)]
    calls = (
        None if calls is None else [call for call in calls if _is_inside(track, call)]
    )
    genes = [
        gene
        for gene in genes
        if gene.contig == track.contig
        and gene.start < track.end
        and track.start < gene.end
    ]
    # Rows of the lane between both strands, from the middle outward.
    rows = [
        *(["genes"] if genes else []),
        *(["known TSS"] if sites else []),
        *(["calls"] if calls else []),
    ]
    heights = [1.35, 0.25 + 0.36 * len(rows), 1.35]
    grid = {"sharex": True, "gridspec_kw": {"height_ratios": heights}}
    counts = np.zeros(4, np.int64)
    with panels(3, 1, 9.6, (sum(heights) + 0.9) / 3, **grid) as (
        figure,
        (forward, lane, reverse),
    ):
        for axis, strand, side in ((forward, "+", 1), (reverse, "-", -1)):
            _draw_strand(axis, track, strand, sites, scale)
            own = np.array(
                sorted(site.position for site in sites if site.strand == strand),
                np.int64,
            )
            called = sorted(
                (one for one in calls or () if one.strand == strand),
                key=lambda one: -one.score,
            )
            taken = match_calls(
                np.array([one.position for one in called], np.int64), own, FOUND_WITHIN
            )
            found, correct = (
                np.isin(np.arange(len(own)), taken),
                (taken >= 0) | (not sites),
            )
            counts += [found.sum(), (~found).sum(), correct.sum(), (~correct).sum()]
            if len(own):
                y = side * (rows.index("known TSS") + 0.5)
                _draw_arrows(
                    lane,
                    own / scale,
                    y,
                    strand,
                    INK,
                    np.ones(len(own)),
                    found | (calls is None),
                )
            if called:
                _draw_calls(
                    lane,
                    track,
                    called,
                    correct,
                    side * (rows.index("calls") + 0.5),
                    scale,
                )
        reverse.invert_yaxis()
        _draw_genes(lane, track, genes, scale)
        lane.axhline(0, color=GRAY, linewidth=0.8, zorder=1)
        ticks = {
            side * (number + 0.5): name
            for number, name in enumerate(rows)
            for side in (1, -1)
        }
        lane.set(ylim=(-len(rows) - 0.1, len(rows) + 0.1))
        lane.set_yticks([*ticks], [*ticks.values()])
        lane.tick_params(axis="y", length=0)
        lane.grid(visible=False)
        lane.spines[:].set_visible(False)
        for axis in (forward, lane):
            axis.tick_params(axis="x", length=0)
        reverse.set_xlabel(f"position on {track.contig} ({unit})")
        reverse.set_xlim(track.start / scale, track.end / scale)
        forward.set_title(f"Promoter probability along {track.contig}")
        if calls:
            note = "numbers: expected precision of calls"
            forward.set_title(
                note, loc="right", fontsize=9, fontweight="normal", color=GRAY
            )
        _explain_arrows(figure, counts, bool(sites), calls is not None)
        save_figure(figure, path)


def _is_inside(track: ScoreTrack, place: Locus | Call) -> bool:
    return place.contig == track.contig and track.start <= place.position < track.end


def _draw_strand(
    axis: Axes, track: ScoreTrack, strand: str, sites: Sequence[Locus], scale: float
) -> None:
    if strand in track.strands:
        x, y = condensed(*track.strands[strand])
        axis.plot(x / scale, y, color=STRAND_COLORS[strand], linewidth=1)
        axis.fill_between(
            x / scale, 0, y, color=STRAND_COLORS[strand], alpha=0.25, linewidth=0
        )
    for site in sites:
        if site.strand == strand:
            axis.axvline(site.position / scale, color=PALE, linewidth=0.8, zorder=1)
    axis.set(
        ylim=(0, 1.03),
        yticks=[0, 0.5, 1],
        ylabel="forward (+)" if strand == "+" else "reverse (−)",
    )


def _draw_arrows(
    axis: Axes,
    x: Floats,
    y: float,
    strand: str,
    color: str,
    opacity: Floats,
    filled: NDArray[np.bool_],
) -> None:
    """Draw arrow heads that point in the direction of transcription."""
    from matplotlib.colors import to_rgba

    faces = [
        to_rgba(color, alpha) if full else WHITE
        for alpha, full in zip(opacity, filled, strict=True)
    ]
    edges = [to_rgba(color, max(alpha, 0.5)) for alpha in opacity]
    axis.scatter(
        x,
        np.full(len(x), y),
        s=50,
        c=faces,
        marker=">" if strand == "+" else "<",
        edgecolors=edges,
        linewidths=1,
        zorder=3,
        clip_on=False,
    )


def _draw_calls(
    axis: Axes,
    track: ScoreTrack,
    calls: Sequence[Call],
    correct: NDArray[np.bool_],
    y: float,
    scale: float,
) -> None:
    """Draw the calls of a strand; opacity, and a number where there is room, are the expected precision."""
    strand, side = calls[0].strand, 1 if calls[0].strand == "+" else -1
    precision = np.array([call.precision for call in calls])
    x = np.array([call.position for call in calls]) / scale
    _draw_arrows(axis, x, y, strand, STRAND_COLORS[strand], precision, correct)
    order = np.argsort(side * x)
    edge = (track.end if side > 0 else track.start) / scale
    room = (
        np.diff(side * x[order], append=side * edge)
        > _LABEL * (track.end - track.start) / scale
    )
    for number in order[room]:
        axis.annotate(
            f"{precision[number]:.2f}",
            (x[number], y),
            (6 * side, 0),
            textcoords="offset points",
            ha="left" if side > 0 else "right",
            va="center",
            fontsize=7.5,
            color=STRAND_COLORS[strand],
        )


def _explain_arrows(
    figure: Figure, counts: NDArray[np.int64], has_sites: bool, has_calls: bool
) -> None:
    """Add the legend; `counts` are those of TSSs with and without a call, and of right and other calls."""
    from matplotlib.lines import Line2D

    called, missed, correct, other = counts.tolist()
    kinds = []
    if has_sites and has_calls:
        kinds += [
            (f"{called:,} known TSS, called", INK, True),
            (f"{missed:,} missed", INK, False),
        ]
        kinds += [
            (f"{correct:,} calls within {FOUND_WITHIN} bp of a known TSS", BLUE, True)
        ]
        kinds += [(f"{other:,} other calls", BLUE, False)]
    elif has_sites:
        kinds += [(f"{missed:,} known TSS", INK, True)]
    elif has_calls:
        kinds += [(f"{correct:,} calls", BLUE, True)]
    handles = [
        Line2D(
            [],
            [],
            marker=">",
            linestyle="",
            color=color,
            label=label,
            markerfacecolor=color if is_filled else WHITE,
        )
        for label, color, is_filled in kinds
    ]
    if handles:
        figure.legend(
            handles=handles, loc="outside lower right", ncols=len(handles), fontsize=8
        )


def _draw_genes(
    axis: Axes, track: ScoreTrack, genes: Sequence[Gene], scale: float
) -> None:
    """Draw each gene as an arrow along its strand, forward genes above, with its name where there is room."""
    length = track.end - track.start
    for gene in genes:
        start, end = max(gene.start, track.start), min(gene.end, track.end)
        bases = end - start
        height, x, dx = (
            (0.5, start, bases) if gene.strand == "+" else (-0.5, end, -bases)
        )
        head = min(bases, length / 120) / scale
        axis.arrow(
            x / scale, height, dx / scale, 0, width=0.6, head_width=0.6, head_length=head, linewidth=0,
            length_includes_head=True, color=STRAND_COLORS[gene.strand], alpha=0.35,
        )  # fmt: skip
        if bases * _GENE_LETTERS > len(gene.name) * length:
            center = (start + end) / 2 / scale
            axis.text(
                center,
                height,
                gene.name,
                ha="center",
                va="center",
                fontsize=7,
                clip_on=True,
            )


def condensed(positions: Floats, scores: Floats) -> tuple[Floats, Floats]:
    """Return the largest score of each segment if there are more points than the plot can show."""
    if len(positions) <= LARGEST_TRACK:
        return positions, scores
    edges = np.linspace(0, len(positions), LARGEST_TRACK + 1).astype(int)[:-1]
    filled = np.where(np.isnan(scores), -np.inf, scores)
    parts = zip(edges, np.split(filled, edges[1:]), strict=True)
    largest = np.array([start + int(np.argmax(part)) for start, part in parts])
    return positions[largest], scores[largest]
