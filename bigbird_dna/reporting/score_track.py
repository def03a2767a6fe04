"""Promoter scores along a contig, as a plot with genes, transcription start sites (TSSs) and calls."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

import numpy as np
import pandas as pd

from bigbird_dna.calibration.calls import match_calls
from bigbird_dna.disk.atomic import reading
from bigbird_dna.disk.compression import read_lines
from bigbird_dna.errors import DataError, one_of
from bigbird_dna.genome.annotation import Gene
from bigbird_dna.genome.sequence import Locus
from bigbird_dna.reporting.result import (
    BLUE,
    GRAY,
    INK,
    PALE,
    VERMILION,
    panels,
    save_figure,
)

DEFAULT_LENGTH = 20_000
"""Length in bp of the plotted region if its end is not given."""
MATCHED_WITHIN = 100
"""A call is drawn as correct if it takes a known TSS within this distance in bp."""
MAX_POINTS = 1600  # about two per pixel of the plot's width


def read_windows(path: Path, numbers: Sequence[str]) -> pd.DataFrame:
    """Read a table of score-promoters or call-promoters, with the columns contig, strand and `numbers`.

    Of BED files, `score` is the probability instead of an integer up to 1000. Scores and positions that are
    missing are NaN. `DataError`: a column is missing, or a cell is wrong (with its line).
    """
    comments = takewhile(lambda line: line[1].startswith("##"), read_lines(path))
    first = sum(1 for _ in comments)
    with reading(path, "not a table of scores or calls", ValueError, EOFError):
        table = pd.read_csv(
            path,
            sep="\t",
            skiprows=first,
            dtype={"contig": str, "#contig": str},
            keep_default_na=False,
            na_values={"score": ["NA"], "tss": ["NA", "."]},
            quoting=csv.QUOTE_NONE,
            index_col=False,
        )
    table = table.rename(columns={"#contig": "contig"})
    if "probability" in table:
        table["score"] = table["probability"]
    for name in ("contig", "strand", *numbers):
        if name not in table:
            raise DataError(
                f"{path}: no column {name!r}: not a table as score-promoters or call-promoters write it"
            )
    windows = table[["contig", "strand"]].copy()
    for name in ("strand", *numbers):
        if name == "strand":
            wrong = ~table[name].isin(["+", "-"])
        else:
            windows[name] = pd.to_numeric(table[name], errors="coerce")
            wrong = windows[name].isna() & table[name].notna()
        if wrong.any():
            row = int(wrong.to_numpy().argmax())
            cell = str(table[name].iloc[row])
            raise DataError(f"{path}: line {first + row + 2}: wrong {name} {cell:.60}")
    return windows


def plot_scores(
    scores: Path,
    output: Path,
    *,
    sites: Sequence[Locus] = (),
    genes: Sequence[Gene] = (),
    calls: Path | None = None,
    contig: str | None = None,
    start: int | None = None,
    end: int | None = None,
) -> None:
    """Draw the scores of both strands in `[start, end)` of a contig, with known TSSs, genes and calls.

    Scores are at their TSS. Gaps are windows that were not scored. Each call, from the highest score down,
    takes the nearest TSS within `MATCHED_WITHIN` bp that is left; calls without a TSS, and TSSs without a
    call, are hollow. By default, `contig` is the first of the table, and the region are the `DEFAULT_LENGTH`
    bp from the first score. `DataError`: a file is wrong, or there is no score in the region.
    """
    from matplotlib.ticker import EngFormatter

    table = read_windows(scores, ["score", "tss"]).dropna(subset="tss")
    contigs = table["contig"].unique().tolist()
    if not contigs:
        raise DataError(f"{scores}: contains no scored window")
    contig = contigs[0] if contig is None else contig
    if contig not in contigs:
        raise DataError(f"{scores}: no contig {contig!r}: {one_of(contig, contigs)}")
    table = table[table["contig"] == contig].sort_values(["tss", "score"])
    if start is None:
        start = int(table.loc[table["score"].notna(), "tss"].min())
    if end is None:
        end = min(start + DEFAULT_LENGTH, int(table["tss"].max()) + 1)
    table = table[table["tss"].between(start, end - 1)]
    if table.empty:
        raise DataError(f"{scores}: no score inside {contig}:{start}-{end}")

    called = pd.DataFrame(columns=["contig", "strand", "start", "score", "model_score"])
    if calls is not None:
        called = read_windows(calls, ["start", "score", "model_score"])
        if len(called) and not called["contig"].isin(contigs).any():
            raise DataError(f"{calls}: no call is on a contig of {scores}")
    called = called[(called["contig"] == contig) & called["start"].between(start, end)]
    called = called.sort_values("model_score", ascending=False)

    heights = [1.4, 1.4, 0.35] if genes else [1.4, 1.4]
    grid = {"sharex": True, "gridspec_kw": {"height_ratios": heights}}
    height = (sum(heights) + 1) / len(heights)
    with panels(len(heights), 1, 9.6, height, **grid) as (figure, axes):
        strands = (("+", BLUE, "forward (+)"), ("-", VERMILION, "reverse (−)"))
        for axis, (strand, color, label) in zip(axes, strands, strict=False):
            points = table[table["strand"] == strand]
            if len(points) > MAX_POINTS:  # the largest score of each segment
                segments = np.arange(len(points)) * MAX_POINTS // len(points)
                order = points.assign(segment=segments).sort_values("score")
                points = order.groupby("segment").tail(1).sort_values("tss")
            axis.plot(points["tss"], points["score"], color=color, linewidth=1)
            axis.fill_between(points["tss"], points["score"], color=color, alpha=0.25)
            tss = np.array(
                sorted(
                    site.position
                    for site in sites
                    if site.contig == contig
                    and site.strand == strand
                    and start <= site.position < end
                ),
                int,
            )
            own = called[called["strand"] == strand]
            taken = match_calls(own["start"].to_numpy(int), tss, MATCHED_WITHIN)
            marker = ">" if strand == "+" else "<"
            correct = (taken >= 0) | (not sites)
            reached = np.isin(np.arange(len(tss)), taken) | (calls is None)
            axis.vlines(tss, 0, 1.1, color=PALE, linewidth=0.8, zorder=1)
            for x, y, filled, edge in (
                (tss, np.full(len(tss), 1.1), reached, INK),
                (own["start"].to_numpy(int), own["score"].to_numpy(), correct, color),
            ):
                faces = [edge if one else "white" for one in filled]
                axis.scatter(
                    x, y, s=45, c=faces, marker=marker, edgecolors=edge, zorder=3
                )
            axis.set(ylim=(0, 1.2), yticks=[0, 0.5, 1], ylabel=label)
        for gene in genes:
            left, right = max(gene.start, start), min(gene.end, end)
            if gene.contig == contig and left < right:
                lane, color = (0.5, BLUE) if gene.strand == "+" else (-0.5, VERMILION)
                axes[2].barh(lane, right - left, 0.7, left, color=color, alpha=0.3)
                if (right - left) * 100 > len(gene.name) * (end - start):
                    center = (left + right) / 2
                    axes[2].text(
                        center, lane, gene.name, ha="center", va="center", size=7
                    )
        if genes:
            axes[2].set(yticks=[], ylabel="genes")
            axes[2].grid(visible=False)
        axes[-1].set(xlim=(start, end), xlabel=f"position on {contig}")
        axes[-1].xaxis.set_major_formatter(EngFormatter("bp"))
        axes[0].set_title(f"Promoter probability along {contig}")
        note = "black: known TSS" if sites else ""
        if calls is not None:
            note += "; " if note else ""
            note += "colored arrows: calls, at their expected precision"
            if sites:
                note += f"; hollow: not within {MATCHED_WITHIN} bp of each other"
        figure.supxlabel(note, fontsize=8, color=GRAY)
        save_figure(figure, output)
