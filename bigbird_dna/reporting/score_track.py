"""Promoter scores along a contig, as a plot with genes, transcription start sites (TSSs) and calls."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

import pandas as pd

from bigbird_dna.disk.atomic import reading
from bigbird_dna.disk.compression import read_lines
from bigbird_dna.errors import DataError, one_of
from bigbird_dna.genome.annotation import Gene
from bigbird_dna.genome.sequence import STRANDS, Locus
from bigbird_dna.reporting.result import BLUE, INK, VERMILION, panels, save_figure

DEFAULT_LENGTH = 20_000
"""Length in bp of the plotted region if its end is not given."""


def read_windows(path: Path, numbers: Sequence[str]) -> pd.DataFrame:
    """Read a table of score-promoters or call-promoters, with the columns contig, strand and `numbers`.

    Of BED files, `score` is the probability instead of an integer up to 1000. Scores and positions that are
    missing are NaN. `DataError`: a column is missing, or a cell is wrong (with its line).
    """
    comments = takewhile(lambda line: line[1].startswith("##"), read_lines(path))
    first = sum(1 for _ in comments)
    columns = {"contig", "#contig", "strand", "probability", *numbers}
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
            usecols=lambda name: name in columns,
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
            wrong = ~table[name].isin(STRANDS)
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

    Scores are at their TSS. Gaps are windows that were not scored. By default, `contig` is the first of the
    table, and the region are the `DEFAULT_LENGTH` bp from the first score. `DataError`: a file is wrong, or
    there is no score in the region.
    """
    table = read_windows(scores, ["score", "tss"]).dropna(subset="tss")
    contigs = table["contig"].unique().tolist()
    if not contigs:
        raise DataError(f"{scores}: contains no scored window")

    contig = contigs[0] if contig is None else contig
    if contig not in contigs:
        raise DataError(f"{scores}: no contig {contig!r}: {one_of(contig, contigs)}")

    table = table[table["contig"] == contig].sort_values("tss")
    if start is None:
        start = int(table.loc[table["score"].notna(), "tss"].min())

    if end is None:
        end = start + DEFAULT_LENGTH

    table = table[table["tss"].between(start, end - 1)]
    if table.empty:
        raise DataError(f"{scores}: no score inside {contig}:{start}-{end}")

    called = table[:0].assign(start=0)
    if calls is not None:
        called = read_windows(calls, ["start", "score"])
        called = called[called["contig"] == contig]
        called = called[called["start"].between(start, end - 1)]

    rows = 3 if genes else 2
    with panels(rows, 1, 9.6, 1.5, sharex=True) as (figure, axes):
        strands = (
            ("+", BLUE, "forward (+)", ">"),
            ("-", VERMILION, "reverse (−)", "<"),
        )
        for axis, (strand, color, label, marker) in zip(axes, strands, strict=False):
            points = table[table["strand"] == strand]
            axis.fill_between(points["tss"], points["score"], color=color, alpha=0.4)
            known = [
                site.position
                for site in sites
                if (site.contig, site.strand) == (contig, strand)
                and start <= site.position < end
            ]
            axis.scatter(known, [1.1] * len(known), color=INK, marker=marker)
            found = called[called["strand"] == strand]
            axis.scatter(found["start"], found["score"], color=color, marker=marker)
            axis.set(ylim=(0, 1.2), yticks=[0, 0.5, 1], ylabel=label)

        for gene in genes:
            if gene.contig == contig and gene.start < end and start < gene.end:
                lane, color = (0.5, BLUE) if gene.strand == "+" else (-0.5, VERMILION)
                length = gene.end - gene.start
                axes[2].barh(lane, length, 0.7, gene.start, color=color, alpha=0.3)
                center = max(gene.start, start), lane
                axes[2].text(*center, gene.name, va="center", size=7, clip_on=True)

        if genes:
            axes[2].set(yticks=[], ylabel="genes")

        axes[-1].set(xlim=(start, end), xlabel=f"position on {contig} (bp)")
        note = "; black: known TSSs" * bool(sites)
        note += "; colored arrows: calls, at their expected precision" * (
            calls is not None
        )
        axes[0].set_title(f"Promoter probability along {contig}{note}", size=9)
        save_figure(figure, output)
