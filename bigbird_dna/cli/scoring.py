"""`score-promoters`: promoter probabilities along a FASTA file."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from bigbird_dna.cli.checks import check_at_least_one, check_choice, check_fraction
from bigbird_dna.cli.device import DEVICE, THREADS, batch_in_memory, use_device
from bigbird_dna.cli.output import check_output, command_line, destination, format_for
from bigbird_dna.console import log, progress
from bigbird_dna.errors import UsageError
from bigbird_dna.genome.intervals import Strand

if TYPE_CHECKING:  # slow to import: inside the command
    import numpy as np
    from numpy.typing import NDArray

    from bigbird_dna.tasks.promoters.scan import ScoredWindow

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
    device: str = DEVICE,
    threads: int | None = THREADS,
) -> None:
    """Score windows of the model's size along every record of a FASTA file, on both strands.

    Table columns: #contig start end name score strand note; coordinates are 0-based and half-open. A score
    is the probability that the window has a promoter with its TSS where the model expects it. bedGraph and
    bigWig show the larger score of both strands at that place.
    """
    output = None if str(output) == "-" else output
    chosen = format_for(output, FORMATS, "tsv") if format is None else format
    check_at_least_one({"--stride": stride, "--batch-size": batch_size, "--threads": threads})
    check_fraction("--max-n", max_n)
    check_choice("--format", chosen, FORMATS)
    check_choice("--strand", strand, STRANDS)
    _check_binary(output, chosen)
    check_output(output, [fasta])

    from bigbird_dna.genome.fasta import scan_fasta, spool_stdin
    from bigbird_dna.model.directory import load_task
    from bigbird_dna.tasks.promoters.inference import predict_windows
    from bigbird_dna.tasks.promoters.scan import expected_windows, scan_promoters
    from bigbird_dna.tasks.promoters.writers import WRITERS, ScanInfo

    use_device(device, threads)
    model = load_task(model_dir, "promoter")
    upstream, downstream = int(model.settings["upstream"]), int(model.settings["downstream"])
    window = upstream + downstream
    strands = STRANDS[strand]

    def predict(sequences: Sequence[str]) -> "NDArray[np.float32]":
        with batch_in_memory(batch_size):
            return predict_windows(model, sequences, batch_size=batch_size, device=device)

    command = command_line(
        "score-promoters",
        [model_dir, fasta],
        {"--format": chosen, "--stride": stride, "--strand": strand, "--max-n": max_n},
    )
    provenance = {
        "bigbird-dna": version("bigbird-dna"),
        "model": model.sha256,
        "command": command,
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
