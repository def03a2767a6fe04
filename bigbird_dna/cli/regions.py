"""`predict-tracks`: probabilities of chromatin tracks over regions."""

from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import typer

from bigbird_dna.cli.checks import check_choice, check_fraction
from bigbird_dna.cli.device import DEVICE, THREADS
from bigbird_dna.cli.output import check_output, command_line, destination
from bigbird_dna.cli.predictor import open_predictor
from bigbird_dna.console import log, progress

if TYPE_CHECKING:  # slow to import: inside the command
    from bigbird_dna.tasks.chromatin.regions import PredictedRegion


def register(app: typer.Typer) -> None:
    """Add this group's commands to the application."""
    app.command()(predict_tracks)


def predict_tracks(
    model_dir: Path = typer.Argument(help="Directory of a chromatin model."),
    regions: Path = typer.Argument(help="Regions: BED, plain or compressed."),
    reference: Path = typer.Option(
        ..., "--reference", metavar="FASTA", help="Reference of the regions, plain or bgzip."
    ),
    tracks: str | None = typer.Option(
        None,
        metavar="PATTERN",
        help="Tracks, groups or shell patterns, comma-separated. [default: all]",
    ),
    output: Path | None = typer.Option(
        None, "-o", "--output", help="File to write, whole or not at all. [default: stdout]"
    ),
    summary: str = typer.Option(
        "max", metavar="max|mean", help="Of the bins of a region longer than the model's bin."
    ),
    middle: float = typer.Option(
        0.0,
        metavar="FRACTION",
        help="Predict all bins in this middle part of a window at once: many times as fast where regions are "
        "close, but bins see less on one side. [default: each in the middle of its own window]",
        show_default=False,
    ),
    max_n: float = typer.Option(
        0.25, metavar="FRACTION", help="Bins with a larger share of N around them don't count."
    ),
    batch_size: int = typer.Option(16, help="Windows run together; changes speed and memory only."),
    device: str = DEVICE,
    threads: int | None = THREADS,
) -> None:
    """Predict the probability that each region is in a peak of each track, mean of both strands.

    Table columns: #contig start end name note, then one a track; coordinates are 0-based and half-open.
    """
    output = None if str(output) == "-" else output
    check_choice("--summary", summary, ("max", "mean"))
    check_fraction("--middle", middle)
    check_fraction("--max-n", max_n)
    check_output(output, [regions, reference])

    from bigbird_dna.genome.reference import Reference
    from bigbird_dna.tasks.chromatin.regions import Summary, predict_regions, read_regions

    chosen: Summary = next(one for one in get_args(Summary) if one == summary)
    model = open_predictor(
        model_dir,
        both_strands=True,
        batch_size=batch_size,
        device=device,
        threads=threads,
        middle=middle,
    )
    columns = model.columns(tracks)
    names = [model.tracks[column].name for column in columns]
    command = command_line(
        "predict-tracks",
        [model_dir, regions],
        {
            "--reference": reference,
            "--tracks": tracks,
            "--summary": summary,
            "--middle": middle or None,
            "--max-n": max_n,
        },
    )
    with Reference(reference) as genome, destination(output, "tsv") as temporary:
        found = read_regions(regions, genome)
        predicted = predict_regions(
            found,
            genome,
            model.predict,
            window=model.window,
            bin_size=model.bin,
            together=model.together,
            summary=chosen,
            max_n=max_n,
        )
        header = [
            f"## bigbird-dna {version('bigbird-dna')}",
            f"## model {model.sha256}",
            f"## command {command}",
            "\t".join(["#contig", "start", "end", "name", "note", *names]),
        ]
        with temporary.open("w", encoding="utf-8") as stream:
            for line in header:
                stream.write(f"{line}\n")
            for line in _rows(progress(predicted, "predicting", len(found)), columns):
                stream.write(f"{line}\n")
    log(f"{len(found):,} regions, {len(names):,} tracks")


def _rows(predicted: "Iterable[PredictedRegion]", columns: list[int]) -> Iterator[str]:
    for region, values, note in predicted:
        figures = ["."] * len(columns)
        if values is not None:
            figures = [f"{values[column]:.6f}" for column in columns]
        yield "\t".join(
            [region.contig, str(region.start), str(region.end), region.name, note, *figures]
        )
