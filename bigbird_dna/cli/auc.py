"""The command that judges predictions of many tracks."""

import shlex
import sys
from pathlib import Path

import typer

from bigbird_dna.cli.checks import named_files
from bigbird_dna.console import log

_ARRAYS = (
    "Rows × tracks: .npy, .npz, .h5, .parquet or .tsv[.gz]; FILE::NAME for one array of several."
)


def register(app: typer.Typer) -> None:
    """Add this command to the application."""
    app.command()(auc_report)


def auc_report(
    predictions: str = typer.Argument(help=f"{_ARRAYS} Scores of any range."),
    labels: str = typer.Argument(
        help="The same rows and tracks; 0 or 1, -1 or NaN where not measured. Also labels.npz of a data set."
    ),
    output: Path = typer.Option(
        ..., "-o", "--output", metavar="DIR", help="A directory of its own: it gets replaced."
    ),
    tracks: Path | None = typer.Option(
        None,
        metavar="FILE",
        help="Table of tracks in the columns' order: track, group, and more. [default: the columns' names, "
        "one group]",
    ),
    published: Path | None = typer.Option(
        None,
        metavar="FILE",
        help="Table with AUROCs to compare with, by track or in order. [default: published_auroc of "
        "--tracks]",
    ),
    compare: list[str] = typer.Option(
        [], metavar="NAME=FILE", help="Another predictor's array, such as a baseline's; repeatable."
    ),
    min_positives: int = typer.Option(
        1, min=1, help="Tracks with fewer take no part in their group's figures."
    ),
    title: str = typer.Option("AUROC by track", help="Of the page."),
    threads: int = typer.Option(0, min=0, help="0: one a core, up to four."),
) -> None:
    """AUROC with DeLong's interval and AUPRC of each track, medians by group, and a page to look at.

    Writes tracks.tsv, groups.tsv and report.html. Tracks with one class only are left out and listed.
    """
    from bigbird_dna.genome.chromatin.tracks import read_tracks
    from bigbird_dna.reporting.tracks.report import check_output, write_auc_report

    check_output(output.absolute())
    others = named_files("--compare", compare)
    table = read_tracks(tracks) if tracks is not None else None
    log(f"{predictions}: judging every track; figures appear in {output}")
    report = write_auc_report(
        predictions,
        labels,
        table,
        output,
        compare=others,
        published=published,
        min_positives=min_positives,
        title=title,
        command=shlex.join(["bigbird-dna", *sys.argv[1:]]),
        sources=[] if tracks is None else [tracks],
        threads=threads,
    )
    for row in report.groups.to_dict("records"):
        out, count = row["left_out"], row["tracks"]
        medians = f"median AUROC {row['median_auroc']:.4f}, AUPRC {row['median_auprc']:.4f} of "
        log(
            f"{row['group']}: {medians if count else ''}{count:,} tracks"
            + (f", {out:,} left out" if out else "")
        )
