"""Promoter probabilities along a FASTA file: `bigbird_dna.score_promoters` and the command of that name."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from bigbird_dna.checks import check_at_least_one, check_choice, check_fraction
from bigbird_dna.console import progress
from bigbird_dna.errors import UsageError
from bigbird_dna.genome.fasta import readable, scan_fasta
from bigbird_dna.model.device import choose_device, cpu_threads
from bigbird_dna.model.directory import load_promoter_model
from bigbird_dna.model.model import Model
from bigbird_dna.model.promoter_model import PromoterModel
from bigbird_dna.outputs import check_output, command_line, destination, format_for, named_output, provenance
from bigbird_dna.tasks.formats import BINARY_FORMATS, SCORE_FORMATS, STRANDS
from bigbird_dna.tasks.predictor import Predictor
from bigbird_dna.tasks.promoters.scan import ScoredWindow, expected_windows, scan_promoters
from bigbird_dna.tasks.promoters.writers import WRITERS, ScanInfo


class ScanCounts(NamedTuple):
    """What a scan did: records read, scores given (one a window and strand), and windows that stand out."""

    records: int
    scored: int
    not_scored: int  # too many N
    in_short_records: int  # records shorter than the window; scored or not


def score_promoters(
    model: Model | Path | str,
    fasta: Path | str,
    output: Path | str | None = None,
    *,
    format: str | None = None,
    stride: int = 100,
    strand: str = "both",
    max_n: float = 0.25,
    batch_size: int = 32,
    device: str = "auto",
    threads: int | None = None,
) -> ScanCounts:
    """Score windows of the model's size along every record of a FASTA file.

    Parameters
    ----------
    model
        A promoter model, or its directory.
    fasta
        Plain, gzip or bgzip; "-": standard input. Lower case and IUPAC codes are read, the latter as N.
    output
        File to write, whole or not at all; None or "-": standard output.
    format
        tsv, bed, bedgraph, bigwig or parquet (docs/formats.md); None: by the ending of `output`, or tsv.
        Coordinates are 0-based and half-open on the record's forward strand.
    stride, strand
        bp between windows; "both", "+" or "-".
    max_n
        Windows with a larger fraction of N are listed, but not scored.
    batch_size, device, threads
        Windows run together; auto, cpu or cuda; CPU threads. They change speed and memory only.

    Raises
    ------
    UsageError
        An argument is out of its range, the output can't be written, or there is no such device.
    DataError, ModelError
        The FASTA can't be read (the text names record and line); there is no promoter model.
    """
    output = named_output(output)
    scan = _Scan(output, format or format_for(output, SCORE_FORMATS, "tsv"), stride, strand, max_n)
    check_at_least_one({"batch_size": batch_size, "threads": threads})
    check_output(output, [model, fasta])
    choose_device(device)
    opened = load_promoter_model(model)
    predict = partial(opened.window_probabilities, batch_size=batch_size, device=device)
    with readable(fasta) as path, cpu_threads(threads):
        return scan.run(opened, fasta, path, predict)


@dataclass(frozen=True)
class _Scan:
    """What is scanned for, and where the scores go."""

    output: Path | None
    format: str
    stride: int
    strand: str
    max_n: float

    def __post_init__(self) -> None:
        check_at_least_one({"stride": self.stride})
        check_fraction("max_n", self.max_n)
        check_choice("format", self.format, SCORE_FORMATS)
        check_choice("strand", self.strand, STRANDS)
        if self.format in BINARY_FORMATS:
            if self.output is None:
                raise UsageError(f"format {self.format} can't go to standard output: name a file with -o")
            if self.output.suffix == ".gz":
                raise UsageError(f"{self.output}: {self.format} is compressed: leave out .gz")

    def run(self, model: PromoterModel, fasta: Path | str, path: Path, predict: Predictor) -> ScanCounts:
        """Score the records of `path`, which is `fasta` or what came from standard input."""
        contigs = scan_fasta(path)
        settings, stride, strands = model.settings, self.stride, STRANDS[self.strand]
        window, max_n = settings.window, self.max_n
        windows = scan_promoters(
            path, contigs, window=window, stride=stride, predict=predict, strands=strands, max_n=max_n
        )
        options = {"--format": self.format, "--stride": stride, "--strand": self.strand, "--max-n": max_n}
        origin = provenance(model.sha256, command_line("score-promoters", [model.path, fasta], options))
        info = ScanInfo(origin, contigs, settings.upstream, settings.downstream, stride, strands)
        expected = len(strands) * expected_windows(contigs, window=window, stride=stride)
        counts: Counter[str] = Counter()
        shown = progress(windows, "scoring", expected)
        with destination(self.output, self.format) as temporary:
            WRITERS[self.format](temporary, _counted(shown, counts), info)
        return ScanCounts(len(contigs), counts["scored"], counts["not scored"], counts["short"])


def _counted(windows: Iterable[ScoredWindow], counts: Counter[str]) -> Iterator[ScoredWindow]:
    for row in windows:
        counts["not scored" if row.score is None else "scored"] += 1
        counts["short"] += row.is_short
        yield row
