"""`score-promoters`: promoter probabilities along a FASTA file."""

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from bigbird_dna.cli.output import check_choice, check_output, destination, format_for, one_line
from bigbird_dna.console import log, progress
from bigbird_dna.errors import UsageError
from bigbird_dna.genome.intervals import Strand

if TYPE_CHECKING:  # slow to import: inside the command
    import numpy as np
    from numpy.typing import NDArray

    from bigbird_dna.tasks.scoring import ScoredWindow

FORMATS = {
    "tsv": (".tsv", ".txt"),
    "bed": (".bed",),
    "bedgraph": (".bedgraph", ".bdg", ".bg"),
    "bigwig": (".bigwig", ".bw"),
    "parquet": (".parquet",),
}
BINARY_FORMATS = ("bigwig", "parquet")
STRANDS: dict[str, tuple[Strand, ...]] = {"both": ("+", "-"), "+": ("+",), "-": ("-",)}


def register(app: typer.Typer) -> None:
    """Add this group's commands to the application."""
    app.command()(score_promoters)


def score_promoters(
    model_dir: Path = typer.Argument(help="Directory of a promoter model."),
    fasta: Path = typer.Argument(help="FASTA, plain, gzip or bgzip; - reads standard input."),
    output: Path | None = typer.Option(
        None,
        "-o",
        "--output",
        help="File to write, whole or not at all (default: standard output).",
    ),
    format: str | None = typer.Option(
        None,
        metavar="|".join(FORMATS),
        help="What to write (default: by the ending of -o, or tsv).",
    ),
    stride: int = typer.Option(100, metavar="BP", help="Distance between windows."),
    strand: str = typer.Option("both", metavar="|".join(STRANDS), help="Strands to score."),
    max_n: float = typer.Option(
        0.25,
        metavar="FRACTION",
        help="Windows with a larger share of N are listed, but not scored.",
    ),
    batch_size: int = typer.Option(32, help="Windows run together; changes speed and memory only."),
    device: str = typer.Option("auto", metavar="auto|cpu|cuda", help="Where the model runs."),
    threads: int | None = typer.Option(None, help="CPU threads (default: all cores)."),
) -> None:
    """Score windows of the model's size along every record of a FASTA file, on both strands.

    Table columns: #contig start end name score strand note; coordinates are 0-based and half-open. A score
    is the probability that the window has a promoter with its TSS where the model expects it. bedGraph and
    bigWig show the larger score of both strands at that place.
    """
    output = None if str(output) == "-" else output
    chosen = format_for(output, FORMATS, "tsv") if format is None else format
    _check_numbers(stride, max_n, batch_size, threads)
    check_choice("--format", chosen, FORMATS)
    check_choice("--strand", strand, STRANDS)
    _check_binary(output, chosen)
    check_output(output, [fasta])

    import torch

    from bigbird_dna.genome.fasta import scan_fasta, spool_stdin
    from bigbird_dna.model.checkpoint import load_task
    from bigbird_dna.tasks.inference import predict_windows
    from bigbird_dna.tasks.score_writers import WRITERS, ScanInfo
    from bigbird_dna.tasks.scoring import expected_windows, scan_promoters
    from bigbird_dna.training.distributed import choose_device

    choose_device(device)
    if threads is not None:
        torch.set_num_threads(threads)
    model = load_task(model_dir, "promoter")
    upstream, downstream = int(model.settings["upstream"]), int(model.settings["downstream"])
    window = upstream + downstream
    strands = STRANDS[strand]

    def predict(sequences: Sequence[str]) -> "NDArray[np.float32]":
        try:
            return predict_windows(model, sequences, batch_size=batch_size, device=device)
        except torch.OutOfMemoryError:
            raise UsageError(
                f"--batch-size {batch_size}: the device's memory is too small for it"
            ) from None

    # The options that decide the result and no others, so that the same result has the same bytes.
    options = {"--format": chosen, "--stride": stride, "--strand": strand, "--max-n": max_n}
    words = ["bigbird-dna", "score-promoters", model_dir, fasta, *chain(*options.items())]
    provenance = {
        "bigbird-dna": version("bigbird-dna"),
        "model": model.sha256,
        "command": one_line(shlex.join(map(str, words))),
    }
    counts: Counter[str] = Counter()
    source: AbstractContextManager[Path] = (
        spool_stdin() if str(fasta) == "-" else nullcontext(fasta)
    )
    with source as path:
        contigs = scan_fasta(path)
        info = ScanInfo(provenance, contigs, upstream, downstream, stride, strands)
        total = len(strands) * expected_windows(contigs, window=window, stride=stride)
        windows = scan_promoters(
            path,
            contigs,
            window=window,
            stride=stride,
            predict=predict,
            strands=strands,
            max_n=max_n,
        )
        with destination(output, chosen) as temporary:
            WRITERS[chosen](temporary, _counted(progress(windows, "scoring", total), counts), info)
    log(_summary(counts, len(contigs), window, max_n))


def _check_numbers(stride: int, max_n: float, batch_size: int, threads: int | None) -> None:
    for option, value in {
        "--stride": stride,
        "--batch-size": batch_size,
        "--threads": threads,
    }.items():
        if value is not None and value < 1:
            raise UsageError(f"{option} {value}: must be at least 1")
    if not 0 <= max_n <= 1:
        raise UsageError(f"--max-n {max_n}: must be a fraction from 0 to 1")


def _check_binary(output: Path | None, format: str) -> None:
    if format not in BINARY_FORMATS:
        return
    if output is None:
        raise UsageError(f"--format {format} can't go to standard output: name a file with -o")
    if output.suffix == ".gz":
        raise UsageError(f"{output}: {format} is compressed already: leave out .gz")


def _counted(windows: "Iterable[ScoredWindow]", counts: Counter[str]) -> "Iterator[ScoredWindow]":
    for row in windows:
        counts["unscored" if row.score is None else "scored"] += 1
        counts["short"] += row.is_short
        yield row


def _summary(counts: Counter[str], records: int, window: int, max_n: float) -> str:
    parts = [f"{counts['scored']:,} scores along {records:,} records"]
    if counts["unscored"]:
        parts.append(f"{counts['unscored']:,} not scored (more than {max_n:g} N)")
    if counts["short"]:
        parts.append(f"{counts['short']:,} in records shorter than the window of {window:,} bp")
    return "; ".join(parts)
