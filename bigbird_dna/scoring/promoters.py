"""Promoter probabilities along a FASTA file: `bigbird_dna.score_promoters` and the command of that name."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np

from bigbird_dna.console import log, progress
from bigbird_dna.disk.outputs import Destination, command_line, provenance
from bigbird_dna.disk.shards import contents
from bigbird_dna.errors import check_at_least_one, check_choice, check_fraction
from bigbird_dna.genome.fasta import LengthsAhead, readable, scan_fasta
from bigbird_dna.genome.region_filter import Places, contig_names, find_places
from bigbird_dna.genome.sequence import Intervals, Strand
from bigbird_dna.model.directory import load_promoter_model
from bigbird_dna.model.inference import said_precision
from bigbird_dna.model.model import LoadedModel, check_calibrated
from bigbird_dna.model.promoter import LoadedPromoterModel
from bigbird_dna.model.shared_windows import Predictor
from bigbird_dna.scoring.formats import (
    SCORE_FORMATS,
    STRANDS,
    Formats,
    bed_fields,
    check_contig,
    write_bedgraph,
    write_bigwig,
    write_parquet,
    write_table,
)
from bigbird_dna.scoring.scan import (
    ScoredWindow,
    SignalSpan,
    count_windows,
    expected_windows,
    lies_beyond,
    scan_promoters,
    signal_spans,
)
from bigbird_dna.scoring.scorer import (
    ComputeOptions,
    Job,
    Output,
    OutputHeader,
    Scorer,
    Target,
    Writer,
    calibrated_predictor,
    merge_rows,
    write_scores,
)
from bigbird_dna.training.initialization import model_files

ROW_GROUP = 65_536
"""Rows of a Parquet row group, the part of a scan that its writer holds."""

SIGNALS = ("bedgraph", "bigwig")
"""Formats that show the TSS positions of windows, not the windows."""


class ScanCounts(NamedTuple):
    """What a scan did: records read, scores given (one a window and strand), and windows that stand out."""

    records: int
    scored: int
    not_scored: int  # too many N
    in_short_records: int  # records shorter than the window; scored or not


def score_promoters(
    model: LoadedModel | Path | str,
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
        "3/8": the third of eight pieces with as many windows each, for `merge_shards`; `output` is its file,
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
    scorer = PromoterScorer(
        model, fasta, stride, strand, contig_names(contigs), regions, max_n, calibrated, prior
    )
    compute = ComputeOptions(precision, batch_size, device, threads)
    counts = write_scores(scorer, Output(output, format, piece), compute)
    return ScanCounts(counts["records"], counts["scored"], counts["not scored"], counts["short"])


# Files. What is left out in signals is noted in tables: a window without a score, as `NA` and `.`.


def _write_tsv(path: Destination, windows: Iterable[ScoredWindow], header: OutputHeader) -> None:
    columns = ("contig", "start", "end", "name", "score", "strand", "note")
    rows = (f"{_place(row)}\t{_decimal(row.score)}\t{row.strand}\t{row.note or '.'}" for row in windows)
    write_table(path, header.origin, columns, rows)


def _write_bed(path: Destination, windows: Iterable[ScoredWindow], header: OutputHeader) -> None:
    columns = ("contig", "start", "end", "name", "score", "strand", "probability", "note")
    rows = (
        f"{bed_fields(_place(row), row.score, row.strand)}\t{_decimal(row.score)}\t{row.note or '.'}"
        for row in windows
    )
    write_table(path, header.origin, columns, rows)


def _write_parquet(path: Destination, windows: Iterable[ScoredWindow], header: OutputHeader) -> None:
    columns = {"contig": str, "start": int, "end": int, "name": str, "score": float, "strand": str}

    def arrays(group: list[ScoredWindow]) -> Iterator[tuple[Any, None]]:
        for values in zip(
            *((r.contig, r.start, r.end, r.name, r.score, r.strand, r.note or None) for r in group),
            strict=True,
        ):
            yield values, None

    write_parquet(path, header.origin, {**columns, "note": str}, windows, ROW_GROUP, arrays)


def _place(row: ScoredWindow) -> str:
    return f"{row.contig}\t{row.start}\t{row.end}\t{row.name}"


def _decimal(score: float | None) -> str:
    return "NA" if score is None else f"{score:.6f}"


def _spans(windows: Iterable[ScoredWindow], header: OutputHeader) -> Iterator[SignalSpan]:
    """The signal of windows, of which only what is in the regions that were asked for is written."""
    upstream, downstream, stride = header.extra["sizes"]
    spans = signal_spans(
        windows,
        header.contigs,
        upstream=upstream,
        downstream=downstream,
        stride=stride,
        strands=header.extra["strands"],
    )
    places = _places(header.extra["places"])
    if places is None:
        yield from spans
        return
    for span in spans:
        for start, end in places.clipped(span.contig, span.start, span.end):
            yield span._replace(start=start, end=end)


Stored = dict[str, list[list[int]] | None]
"""Regions by contig, as JSON has them."""


def _stored(places: Places | None) -> Stored | None:
    if places is None:
        return None
    return {
        contig: None if found is None else [found.starts.tolist(), found.ends.tolist()]
        for contig, found in places.regions.items()
    }


def _places(stored: Stored | None) -> Places | None:
    """What was stored; a record goes by its own name there."""
    if stored is None:
        return None
    return Places(
        {
            contig: None if found is None else Intervals(*(np.array(part, np.int64) for part in found))
            for contig, found in stored.items()
        },
        str,
    )


WRITERS: dict[str, Writer[ScoredWindow]] = {
    "tsv": _write_tsv,
    "bed": _write_bed,
    "bedgraph": lambda path, rows, header: write_bedgraph(path, header.origin, _spans(rows, header)),
    "bigwig": lambda path, rows, header: write_bigwig(path, _spans(rows, header), header.contigs, "window"),
    "parquet": _write_parquet,
}


@dataclass(frozen=True)
class PromoterScorer(Scorer[LoadedPromoterModel, ScoredWindow]):
    """Windows along the records of a FASTA file; see `score_promoters`."""

    kind: ClassVar[str] = "scored windows"
    formats: ClassVar[Formats] = SCORE_FORMATS
    default_format: ClassVar[str] = "tsv"
    writers: ClassVar[Mapping[str, Writer[Any]]] = WRITERS

    model: LoadedModel | Path | str
    fasta: Path | str
    stride: int
    strand: str
    contigs: tuple[str, ...]
    regions: Path | str | None
    max_n: float
    calibrated: bool
    prior: float | None

    def inputs(self) -> Sequence[object]:
        return self.model, self.fasta, self.regions

    def check(self, target: Target) -> None:
        check_at_least_one({"stride": self.stride})
        check_fraction("max_n", self.max_n)
        check_choice("strand", self.strand, STRANDS)
        check_calibrated(self.calibrated, self.prior)

    def load(self) -> LoadedPromoterModel:
        return load_promoter_model(self.model)

    def predictor(self, model: LoadedPromoterModel, batch_size: int, device: str) -> Predictor:
        return calibrated_predictor(model, self.calibrated, self.prior, batch_size=batch_size, device=device)

    @contextmanager
    def open(self, model: LoadedPromoterModel, target: Target) -> Iterator[Job[ScoredWindow]]:
        settings, stride, strands = model.settings, int(self.stride), STRANDS[self.strand]
        is_signal = target.format in SIGNALS
        streams = target.is_live and not self.contigs and self.regions is None
        where = "standard input" if str(self.fasta) == "-" else self.fasta
        check = partial(check_contig, format=target.format, where=where)
        with readable(self.fasta) as path:
            # Faults are known before any work is done, unless scores go out before the file's end.
            contigs = LengthsAhead(path, check) if streams else scan_fasta(path)
            places = find_places(self.contigs, self.regions, contigs, where, names=None)
            grid: dict[str, Any] = {"window": settings.window, "stride": stride}
            grid["places"] = places.widened(stride) if places and is_signal else places
            if not streams:
                for contig in contigs:
                    if places is None or places.on(contig):
                        check(contig)
                self._warn_of_short(contigs, settings.window, places, target.format)

            def rows(predict: Predictor, numbers: range | None) -> Iterator[ScoredWindow]:
                def expected() -> int:
                    known = contigs.all() if isinstance(contigs, LengthsAhead) else contigs
                    count = expected_windows(known, **grid) if numbers is None else len(numbers)
                    return len(strands) * count

                given = {**grid, "strands": strands, "max_n": self.max_n, "beyond_is_n": is_signal}
                found = scan_promoters(path, contigs, predict=predict, numbers=numbers, **given)
                return progress(found, "scoring", expected if streams else expected(), "scores")

            def content() -> dict[str, str]:
                return contents(
                    path, self.regions, *model_files(model, self.calibrated), names={path: str(where)}
                )

            extra = {
                "sizes": [settings.upstream, settings.downstream, stride],
                "strands": list(strands),
                "places": _stored(places) if is_signal else None,
            }
            origin = provenance(model.sha256, self._command(model, target))
            header = OutputHeader(origin, contigs, extra=extra)
            job = Job(header, content, partial(count_windows, contigs, **grid), rows)
            yield job
            if streams:
                self._warn_of_short(contigs, settings.window, places, target.format)
            job.counts["records"] = sum(1 for contig in contigs if places is None or places.on(contig))

    def _warn_of_short(
        self, contigs: Mapping[str, int], window: int, places: Places | None, format: str
    ) -> None:
        """Say how many records fill so little of a window that a model's answer means little.

        It may well be high: no window of the training had so much N. Signals, which have no notes, leave such
        records out.
        """
        count = sum(
            lies_beyond(length, window, self.max_n) and (places is None or places.on(contig))
            for contig, length in contigs.items()
        )
        what = f"{format} leaves them out" if format in SIGNALS else "their scores say little"
        if count:
            log(
                f"warning: {count:,} records are so short that more than {self.max_n:g} of their window lies "
                f"beyond them: {what}"
            )

    def _command(self, model: LoadedPromoterModel, target: Target) -> str:
        options: dict[str, object | None] = {"--format": target.format, "--stride": self.stride}
        options |= {"--strand": self.strand, "--contig": list(self.contigs), "--regions": self.regions}
        options |= {"--max-n": self.max_n, "--prior": self.prior, **said_precision(target.precision)}
        flags = {"--calibrated": self.calibrated}
        return command_line("score-promoters", [model.path, self.fasta], options, flags)

    def count(self, row: ScoredWindow, counts: Counter[str]) -> None:
        counts["not scored" if row.score is None else "scored"] += 1
        counts["short"] += row.is_short

    @staticmethod
    def lines(row: ScoredWindow) -> Iterable[str]:
        score = "" if row.score is None else repr(row.score)  # the very number
        return (f"{row.contig}\t{row.start}\t{row.end}\t{row.strand}\t{score}\t{row.note}",)

    @staticmethod
    def parse(line: str, header: OutputHeader) -> ScoredWindow:
        contig, start, end, strand, score, note = line.split("\t")
        return ScoredWindow(
            contig, int(start), int(end), cast(Strand, strand), float(score) if score else None, note
        )


merge = partial(merge_rows, PromoterScorer)
"""The result of all shards of a scan."""
