"""Promoter probabilities along a FASTA file: `bigbird_dna.score_promoters` and the command of that name."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from bigbird_dna.checks import check_at_least_one, check_choice, check_fraction
from bigbird_dna.console import log, progress
from bigbird_dna.disk.outputs import check_output, command_line, format_for, is_live, named_output, provenance
from bigbird_dna.genome.fasta import LengthsAhead, readable, scan_fasta
from bigbird_dna.genome.region_filter import Places, contig_names, find_places
from bigbird_dna.model.directory import load_promoter_model
from bigbird_dna.model.inference import PRECISIONS, choose_device, cpu_threads, inference, said_precision
from bigbird_dna.model.model import Model, check_calibrated, finish_of
from bigbird_dna.model.promoter import PromoterModel
from bigbird_dna.pieces import Piece, contents, find_piece
from bigbird_dna.tasks.formats import (
    BINARY_FORMATS,
    SCORE_FORMATS,
    STRANDS,
    check_contig,
    check_format,
    open_destination,
)
from bigbird_dna.tasks.predictor import Predictor, finished, flushing
from bigbird_dna.tasks.promoters.scan import (
    ScoredWindow,
    count_windows,
    expected_windows,
    lies_beyond,
    scan_promoters,
)
from bigbird_dna.tasks.promoters.scan_pieces import write_scan_piece
from bigbird_dna.tasks.promoters.writers import SIGNALS, WRITERS, ScanInfo
from bigbird_dna.tasks.provenance import model_files


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
    stride: int = 10,
    strand: str = "both",
    contigs: Sequence[str] | str = (),
    regions: Path | str | None = None,
    max_n: float = 0.25,
    calibrated: bool = False,
    prior: float | None = None,
    piece: str | None = None,
    precision: str = "float32",
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
        File to write, whole or not at all; None or "-": standard output, as a pipe or a device to which
        scores go as they are made.
    format
        tsv, bed, bedgraph, bigwig or parquet (docs/formats.md); None: by the ending of `output`, or tsv.
        Coordinates are 0-based and half-open on the record's forward strand.
    stride, strand
        bp between windows; "both", "+" or "-".
    contigs, regions
        Only these records, by any name that their assembly knows; only the windows that share a base with
        the regions of a BED file (of bedgraph and bigwig: only the signal in them). They lie where those of
        a whole scan do. Together: what lies in both.
    max_n
        Windows with a larger fraction of N are listed, but not scored. A record shorter than the window is
        judged by its own N; in bedgraph and bigwig, where nothing would tell of it, what lies beyond it
        counts as N too. The log says how many records are so short.
    calibrated, prior
        Scores are the model's probabilities after its calibration; and, with `prior`, as they are where this
        share of the windows are promoters (of the model's validation windows one half is).
    piece
        "3/8": the third of eight pieces with as many windows each, for `merge_pieces`; `output` is its file,
        whose ending says nothing. None: the whole scan.
    precision
        What the model computes in: float32, bfloat16, or float16 (GPUs). The last two are faster where the
        device has them, and less exact; what is written says so.
    batch_size, device, threads
        Windows run together; auto, cpu or cuda; CPU threads. They change speed and memory only.

    Raises
    ------
    UsageError
        An argument is out of its range, the output can't be written, or there is no such device; `prior`
        without `calibrated`.
    DataError, ModelError
        The FASTA can't be read (the text names record and line), or has none of the contigs or regions;
        there is no promoter model, or it has no calibration.
    """
    output = named_output(output)
    check_output(output, [model, fasta, regions])
    check_at_least_one({"batch_size": batch_size, "threads": threads})
    part = find_piece(piece, output)
    format = format or format_for(None if part else output, SCORE_FORMATS, "tsv")
    names = contig_names(contigs)
    scan = _Scan(output, format, stride, strand, max_n, names, regions, calibrated, prior, part, precision)
    computing = inference(precision, choose_device(device))
    opened = load_promoter_model(model)
    finish = finish_of(opened, calibrated, prior)
    predict = partial(opened.window_probabilities, batch_size=batch_size, device=device)
    with readable(fasta) as path, cpu_threads(threads), computing:
        return scan.run(opened, fasta, path, finished(predict, finish))


@dataclass(frozen=True)
class _Scan:
    """What is scanned for, and where the scores go."""

    output: Path | None
    format: str
    stride: int
    strand: str
    max_n: float
    contigs: tuple[str, ...]
    regions: Path | str | None
    calibrated: bool
    prior: float | None
    piece: Piece | None
    precision: str

    def __post_init__(self) -> None:
        check_at_least_one({"stride": self.stride})
        check_fraction("max_n", self.max_n)
        check_choice("precision", self.precision, PRECISIONS)
        if self.piece is None:
            check_format(self.format, SCORE_FORMATS, self.output)
        check_choice("format", self.format, SCORE_FORMATS)
        check_choice("strand", self.strand, STRANDS)
        check_calibrated(self.calibrated, self.prior)

    def run(self, model: PromoterModel, fasta: Path | str, path: Path, predict: Predictor) -> ScanCounts:
        """Score the records of `path`, which is `fasta` or what came from standard input."""
        settings, stride, strands = model.settings, int(self.stride), STRANDS[self.strand]
        is_signal = self.format in SIGNALS
        where = "standard input" if str(fasta) == "-" else fasta
        check = partial(check_contig, format=self.format, where=where)
        contigs: Mapping[str, int] = LengthsAhead(path, check)
        if not self._streams:
            contigs = scan_fasta(path)  # faults are known before any work is done
        places = find_places(self.contigs, self.regions, contigs, where, names=None)
        scanned = places.widened(stride) if places and is_signal else places
        origin = provenance(model.sha256, self._command(model, fasta))
        info = ScanInfo(origin, contigs, settings.upstream, settings.downstream, stride, strands, places)
        numbers = self._numbers(contigs, settings.window, scanned)
        if not self._streams:
            for contig in contigs:
                if places is None or places.on(contig):
                    check(contig)
            self._warn_of_short(contigs, settings.window, places)

        def expected() -> int:
            if numbers is not None:
                return len(strands) * len(numbers)
            known = contigs.all() if isinstance(contigs, LengthsAhead) else contigs
            windows = expected_windows(known, window=settings.window, stride=stride, places=scanned)
            return len(strands) * windows

        counts: Counter[str] = Counter()

        def windows(ask: Predictor) -> Iterator[ScoredWindow]:
            found = scan_promoters(
                path,
                contigs,
                window=settings.window,
                stride=stride,
                predict=ask,
                strands=strands,
                max_n=self.max_n,
                beyond_is_n=is_signal,
                places=scanned,
                numbers=numbers,
            )
            total = expected if self._streams else expected()
            return _counted(progress(found, "scoring", total, "scores"), counts)

        if self.piece is not None and self.output is not None:
            content = contents(
                path, self.regions, *model_files(model, self.calibrated), names={path: str(where)}
            )
            write_scan_piece(self.output, self.piece, windows(predict), info, self.format, content)
        else:
            with open_destination(self.output, self.format) as target:
                WRITERS[self.format](target, windows(flushing(predict, target)), info)
        if self._streams:
            self._warn_of_short(contigs, settings.window, places)
        records = sum(1 for contig in contigs if places is None or places.on(contig))
        return ScanCounts(records, counts["scored"], counts["not scored"], counts["short"])

    def _warn_of_short(self, contigs: Mapping[str, int], window: int, places: Places | None) -> None:
        """Say how many records fill so little of a window that a model's answer means little.

        It may well be high: no window of the training had so much N. Signals, which have no notes, leave such
        records out.
        """
        count = sum(
            lies_beyond(length, window, self.max_n) and (places is None or places.on(contig))
            for contig, length in contigs.items()
        )
        what = f"{self.format} leaves them out" if self.format in SIGNALS else "their scores say little"
        if count:
            log(
                f"warning: {count:,} records are so short that more than {self.max_n:g} of their window lies "
                f"beyond them: {what}"
            )

    def _numbers(self, contigs: Mapping[str, int], window: int, places: Places | None) -> range | None:
        """Which windows of the scan are the piece's; None: all."""
        if self.piece is None:
            return None
        return self.piece.rows(count_windows(contigs, window=window, stride=self.stride, places=places))

    @property
    def _streams(self) -> bool:
        """Whether scores go out before the file was read to its end."""
        everywhere = not self.contigs and self.regions is None
        return everywhere and is_live(self.output) and self.format not in BINARY_FORMATS

    def _command(self, model: PromoterModel, fasta: Path | str) -> str:
        options: dict[str, object | None] = {"--format": self.format, "--stride": self.stride}
        options |= {"--strand": self.strand, "--contig": list(self.contigs), "--regions": self.regions}
        options |= {"--max-n": self.max_n, "--prior": self.prior, **said_precision(self.precision)}
        return command_line(
            "score-promoters", [model.path, fasta], options, {"--calibrated": self.calibrated}
        )


def _counted(windows: Iterable[ScoredWindow], counts: Counter[str]) -> Iterator[ScoredWindow]:
    for row in windows:
        counts["not scored" if row.score is None else "scored"] += 1
        counts["short"] += row.is_short
        yield row
