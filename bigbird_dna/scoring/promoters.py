"""Promoter probabilities along a FASTA file: `bigbird_dna.score_promoters` and command `score-promoters`."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np

from bigbird_dna.console import log, progress
from bigbird_dna.errors import check_at_least_one, check_choice, check_fraction
from bigbird_dna.genome.fasta import LengthsAhead, readable, scan_fasta
from bigbird_dna.genome.intervals import Places, contig_names, find_places
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import (
    Interval,
    Intervals,
    Locus,
    Strand,
    centered_tiles,
    fraction_n,
    inside,
    tss_position,
    window_around,
)
from bigbird_dna.model.chromatin import Predictor
from bigbird_dna.model.model import LoadedModel, check_calibrated
from bigbird_dna.model.promoter import LoadedPromoterModel
from bigbird_dna.scoring.formats import (
    SCORE_FORMATS,
    STRANDS,
    OutputHeader,
    TableRow,
    check_bigwig_contigs,
    check_contig,
    table_writers,
    write_bedgraph,
    write_bigwig,
)
from bigbird_dna.scoring.regions import Region
from bigbird_dna.scoring.scan import BOTH_STRANDS, ScoredWindow, SignalSpan, growing_batches, signal_spans
from bigbird_dna.scoring.scorer import InputCheck, Job, Scorer, Target, write_scores
from bigbird_dna.scoring.window_source import ScannedModel, load_scanned_model, scan_predictor, window_source

ROW_GROUP = 65_536
"""Rows per Parquet row group, which the writer holds in memory."""

SIGNALS = ("bedgraph", "bigwig")
"""Formats that show the signal at the TSS positions of windows, instead of the windows."""


class ScanCounts(NamedTuple):
    """Number of records read, of scores (one per window and strand), and of special cases."""

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
    stride: int | None = None,
    strand: str = "both",
    contigs: Sequence[str] | str = (),
    regions: Path | str | None = None,
    max_n: float = 0.25,
    calibrated: bool = False,
    prior: float | None = None,
    shard: str | None = None,
    precision: str = "auto",
    batch_size: int = 32,
    device: str = "auto",
    threads: int | None = None,
) -> ScanCounts:
    """Score windows of the model's size along every record of a FASTA file.

    Parameters
    ----------
    model
        A promoter model, or its directory; or a chromatin model of start sites, whose scores are of bins.
    fasta
        Plain, gzip or bgzip; "-": standard input. Lower case is accepted; IUPAC codes are read as N.
    output
        File to write atomically; None or "-": standard output. A pipe or device receives scores as they are
        computed.
    format
        tsv, bed, bedgraph, bigwig or parquet; None: by the extension of `output`, or tsv.
        Coordinates are 0-based and half-open on the record's forward strand.
    stride, strand
        Distance of a promoter model's windows in bp, None: 10; "both", "+" or "-".
    contigs, regions
        Only these records, by any name in the assembly's table of names; only windows that overlap the
        regions of a BED file (bedgraph and bigwig: only the signal in the regions). The windows are those of
        a complete scan. If both are given, windows must satisfy both.
    max_n
        Windows with a larger fraction of N are listed, but not scored. For a record shorter than the window,
        only its own N are counted; in bedgraph and bigwig, which have no notes, padding counts as N too. The
        number of such short records is logged.
    calibrated, prior
        Report calibrated probabilities; `prior` adjusts them to this prevalence of promoters among the
        windows (it is one half in the model's validation windows).
    shard
        "3/8": the third of eight shards of equal numbers of windows, for `merge_shards`; `output` is the file
        of the shard, with any extension. None: the complete scan.
    precision
        Number format of the computation: float32, bfloat16, or float16 (GPUs). The last two are faster on
        devices that support them, but less exact; the output records them. "auto": bfloat16 on GPUs that
        support it, else float32. The scores of variants, calls and embeddings are then float32 on all
        devices, since rounding would be large compared with their differences.
    batch_size, device, threads
        Windows per batch; auto, cpu, cuda or mps; CPU threads. These affect speed and memory only.

    Raises
    ------
    UsageError
        An argument is out of range; the output cannot be written; the device does not exist; or `prior` is
        given without `calibrated`; `stride` or `prior` is given for a chromatin model.
    DataError, ModelError
        The FASTA cannot be read (the message names record and line), or has none of the contigs or regions;
        the model is neither a promoter model nor one of start sites, or has no calibration.
    """
    scorer = PromoterScorer(
        model, fasta, max_n, calibrated, stride, strand, contig_names(contigs), regions, prior
    )
    counts = write_scores(scorer, output, format, shard, precision, batch_size, device, threads)
    return ScanCounts(counts["records"], counts["scored"], counts["not scored"], counts["short"])


def _table_row(row: ScoredWindow) -> TableRow:
    return TableRow(row.contig, row.start, row.end, row.name, row.score, row.strand, row.note)


def _spans(windows: Iterable[ScoredWindow], header: OutputHeader) -> Iterator[SignalSpan]:
    """Yield the signal of windows, restricted to the selected regions."""
    upstream, downstream, stride = header.extra["sizes"]
    sizes = {"upstream": upstream, "downstream": downstream, "stride": stride}
    spans = signal_spans(windows, header.contigs, **sizes, strands=header.extra["strands"])
    stored = header.extra["places"]
    if stored is None:
        yield from spans
        return
    regions = {
        contig: None if found is None else Intervals(*(np.array(part, np.int64) for part in found))
        for contig, found in stored.items()
    }
    places = Places(regions, str)  # contigs of a FASTA have no other names here
    for span in spans:
        for start, end in places.clipped(span.contig, span.start, span.end):
            yield span._replace(start=start, end=end)


WRITERS = {
    **table_writers(_table_row, lambda _: ROW_GROUP, has_score=True),
    "bedgraph": lambda path, rows, header: write_bedgraph(path, _spans(rows, header), header.origin),
    "bigwig": lambda path, rows, header: write_bigwig(path, _spans(rows, header), header.contigs, "window"),
}


@dataclass(frozen=True)
class PromoterScorer(Scorer[ScannedModel, ScoredWindow]):
    """Windows along the records of a FASTA file; see `score_promoters`."""

    kind = "scored windows"
    command = "score-promoters"
    formats = SCORE_FORMATS
    writers = WRITERS
    files = ("regions",)
    omits_short: ClassVar[bool] = False
    """Whether no format lists records with too much padding, as signal formats."""

    stride: int | None
    strand: str
    contigs: tuple[str, ...]
    regions: Path | str | None
    prior: float | None

    def check(self, target: Target) -> None:
        check_at_least_one({"stride": self.stride})
        check_fraction("max_n", self.max_n)
        check_choice("strand", self.strand, STRANDS)
        check_calibrated(self.calibrated, self.prior)

    def load(self, **computing: Any) -> tuple[ScannedModel, Predictor]:
        model = load_scanned_model(self.model)
        return model, scan_predictor(model, self.calibrated, self.prior, self.stride, **computing)

    @contextmanager
    def open(self, model: ScannedModel, target: Target) -> Iterator[Job[ScoredWindow]]:
        source, strands = window_source(model, self.stride), STRANDS[self.strand]
        is_signal = self.omits_short or target.format in SIGNALS
        streams = target.is_live and not self.contigs and self.regions is None
        check = partial(check_contig, format=target.format, where=self.source_name)
        with readable(self.source) as path:
            # Check the whole file before any computation, unless scores are written before the file's end.
            compared = InputCheck(model, self.source_name)
            contigs = LengthsAhead(path, check, compared.add) if streams else scan_fasta(path, compared.add)
            places = find_places(self.contigs, self.regions, contigs, self.source_name, names=None)
            shown = places.widened(source.step) if places and is_signal else places
            grid: dict[str, Any] = {"window": source.window, "stride": source.stride, "places": shown}

            def rows(predict: Predictor, numbers: range | None) -> Iterator[ScoredWindow]:
                def expected() -> int:
                    known = contigs.all() if isinstance(contigs, LengthsAhead) else contigs
                    windows = source.count(known, shown) if numbers is None else len(numbers)
                    return len(strands) * windows * source.stride // source.step

                given = {**grid, "strands": strands, "max_n": self.max_n, "beyond_is_n": is_signal}
                found = source.scan(path, contigs, predict=predict, numbers=numbers, **given)
                return progress(found, "scoring", expected if streams else expected(), "scores")

            records = 0
            if not streams:
                compared.finish()
                for contig in contigs:
                    if places is None or places.on(contig):
                        check(contig)
                records = self._count_records(contigs, places, source.read, target.format)
            stride = source.step if isinstance(model, LoadedPromoterModel) else None
            options: dict[str, object | None] = {"--format": target.format, "--stride": stride}
            options |= {"--strand": self.strand, "--contig": list(self.contigs), "--regions": self.regions}
            origin = self.origin(model, target, {**options, "--max-n": self.max_n, "--prior": self.prior})
            extra = {
                "sizes": [source.upstream, source.downstream, source.step],
                "strands": list(strands),
                "places": _stored(places) if is_signal else None,
            }
            header = OutputHeader(origin, contigs, extra=extra)
            content = partial(self.content, model, path, self.regions)
            job = Job(header, content, partial(source.count, contigs, shown), rows)
            yield job
            if streams:
                compared.finish()
                records = self._count_records(contigs, places, source.read, target.format)
            job.counts["records"] = records

    def _count_records(
        self, contigs: Mapping[str, int], places: Places | None, window: int, format: str
    ) -> int:
        """Return the number of selected records; warn of records that fill little of a window.

        Scores of such records are unreliable, however high: no training window has so much N. Signal formats,
        which have no notes, omit these records. `DataError`: too many others for a bigWig.
        """
        asked = [length for contig, length in contigs.items() if places is None or places.on(contig)]
        short = sum((window - length) / window > self.max_n for length in asked)
        omitted = self.omits_short or format in SIGNALS
        what = f"{format} omits them" if omitted else "their scores are unreliable"
        if short:
            log(
                f"warning: {short:,} records are so short that more than {self.max_n:g} of their window is "
                f"padding: {what}"
            )
        if format == "bigwig":
            check_bigwig_contigs(len(asked) - short, self.source_name, "write bedgraph")
        return len(asked)

    def count(self, row: ScoredWindow, counts: Counter[str]) -> None:
        counts["not scored" if row.score is None else "scored"] += 1
        counts["short"] += row.is_short

    @staticmethod
    def lines(row: ScoredWindow) -> Iterable[str]:
        score = "" if row.score is None else repr(row.score)  # exact
        return (f"{row.contig}\t{row.start}\t{row.end}\t{row.strand}\t{score}\t{row.note}",)

    @staticmethod
    def parse(line: str, header: OutputHeader) -> ScoredWindow:
        contig, start, end, strand, score, note = line.split("\t")
        number = float(score) if score else None
        return ScoredWindow(contig, int(start), int(end), cast(Strand, strand), number, note)


def _stored(places: Places | None) -> dict[str, list[list[int]] | None] | None:
    """Return the regions by contig as JSON values."""
    if places is None:
        return None
    return {
        contig: None if found is None else [found.starts.tolist(), found.ends.tolist()]
        for contig, found in places.regions.items()
    }


# The highest score of each region


class RegionScore(NamedTuple):
    """The highest score of a region's windows; score, site and strand are None if no window was scored.

    `site` is the TSS position of that window, 0-based. `note` is ".", or lists special cases as in the table
    of `predict-tracks`.
    """

    score: float | None
    site: int | None
    strand: Strand | None
    note: str


def score_regions(
    regions: Iterable[Region],
    reference: Reference,
    predict: Predictor,
    *,
    upstream: int,
    downstream: int,
    stride: int,
    max_n: float = 0.25,
    windows_at_once: int = 2048,
) -> Iterator[RegionScore]:
    """Yield the highest promoter score of each region, in input order; regions with a `fault` have no score.

    A region as long as the window is that window; a longer region is tiled with windows; a shorter region is
    a range of candidate TSS positions. Without a strand, both strands are scored. Windows with a fraction of
    N above `max_n` (bases beyond the contig count as N) are ignored.
    """

    def windows(region: Region) -> list[Interval]:
        strands = BOTH_STRANDS if region.strand is None else (region.strand,)
        parts = [Interval(region.contig, region.start, region.end, strand) for strand in strands]
        return [window for part in parts for window in _tss_windows(part, upstream, downstream, stride)]

    tiled = ((region, [] if region.fault else windows(region)) for region in regions)
    for batch in growing_batches(tiled, lambda one: len(one[1]), windows_at_once, windows_at_once):
        yield from _best_windows(batch, reference, predict, upstream, max_n)


def _tss_windows(region: Interval, upstream: int, downstream: int, stride: int) -> Iterator[Interval]:
    length, size = len(region), upstream + downstream
    if length >= size:
        for tile in centered_tiles(length, size, stride):
            start = region.start + tile
            yield Interval(region.contig, start, start + size, region.strand)
        return
    for tile in centered_tiles(length, 1, stride):
        locus = Locus(region.contig, region.start + tile, region.strand, "")
        yield window_around(locus, upstream, downstream)


def _best_windows(
    batch: Sequence[tuple[Region, list[Interval]]],
    reference: Reference,
    predict: Predictor,
    upstream: int,
    max_n: float,
) -> Iterator[RegionScore]:
    texts = {window: reference.fetch(window) for _, windows in batch for window in windows}
    kept = [window for window, text in texts.items() if fraction_n(text) <= max_n]
    different = list(dict.fromkeys(texts[window] for window in kept))
    scores = dict(zip(different, predict(different).tolist(), strict=True)) if different else {}
    for region, windows in batch:
        scored = {window: scores[text] for window in windows if (text := texts[window]) in scores}
        notes = [region.fault] if region.fault else []
        if not all(inside(window, reference.contigs) for window in windows):
            notes.append("contig_edge")
        if left_out := len(windows) - len(scored):
            notes.append(f"too_many_n={left_out}windows" if scored else "too_many_n")
        note = ";".join(notes) or "."
        if not scored:
            yield RegionScore(None, None, None, note)
            continue
        best = max(scored, key=lambda window: scored[window])  # ties go to the first window
        site = tss_position(best.start, best.end, best.strand, upstream)
        yield RegionScore(scored[best], site, best.strand, note)
