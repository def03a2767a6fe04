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
from bigbird_dna.errors import (
    UsageError,
    check_at_least_one,
    check_choice,
    check_fraction,
)
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
from bigbird_dna.model.chromatin import LoadedChromatinModel, Predictor
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
from bigbird_dna.scoring.scan import (
    BOTH_STRANDS,
    ScoredWindow,
    SignalSpan,
    best_of_records,
    count_records,
    growing_batches,
    signal_spans,
)
from bigbird_dna.scoring.scorer import InputCheck, Job, Scorer, Target, write_scores
from bigbird_dna.scoring.window_source import (
    ScannedModel,
    load_scanned_model,
    scan_predictor,
    tss_reach,
    window_source,
)

ROW_GROUP = 65_536
"""Rows per Parquet row group, which the writer holds in memory."""

SIGNALS = ("bedgraph", "bigwig")
"""Formats that show the signal at the TSS positions of windows, instead of the windows."""


class ScanCounts(NamedTuple):
    """Number of records read, of scores (one per window and strand, or per record), and of special cases."""

    records: int
    scored: int
    not_scored: int  # too many N, or a record that is too short
    in_short_records: int  # records that do not fill the window; scored or not


def score_promoters(
    model: LoadedModel | Path | str,
    fasta: Path | str,
    output: Path | str | None = None,
    *,
    format: str | None = None,
    stride: int | None = None,
    strand: str | None = None,
    contigs: Sequence[str] | str = (),
    regions: Path | str | None = None,
    tss_offset: int | None = None,
    pad: bool = False,
    per_record: bool = False,
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

    Each score has the TSS position that it is about. A record shorter than the window is not scored, unless
    `tss_offset` or `pad` is given; a warning counts such records.

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
        Distance of a promoter model's windows in bp, None: 10; "both", "+" or "-", None: "+" with
        `tss_offset`, otherwise "both".
    contigs, regions
        Only these records, by any name in the assembly's table of names; only windows that overlap the
        regions of a BED file (bedgraph and bigwig: only the signal in the regions). The windows are those of
        a complete scan. If both are given, windows must satisfy both.
    tss_offset
        Every record is a promoter whose TSS is this base of it (0-based, on the record's forward strand). One
        window is scored per record, with its TSS position (of a chromatin model, the center of the central
        bin) at this base; where the record does not reach, the window has N. Records may have any length.
        None: records are scanned.
    pad
        Score records shorter than the window in the center of a window of N. The score is then about the
        base of the record that happens to be at the window's TSS position, and says nothing of a TSS
        elsewhere in the record.
    per_record
        Write one row for each record: that of its highest score, over all windows and strands.
    max_n
        Windows with a larger fraction of N are listed, but not scored. Bases beyond the record are not
        counted; in bedgraph and bigwig, which have no notes, the padding of `pad` counts as N too.
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
        given without `calibrated`; `stride`, `prior` or `pad` is given for a chromatin model;
        `tss_offset` is given with `stride`, `pad` or `regions`; `tss_offset` or `per_record` is given for
        bedgraph or bigwig.
    DataError, ModelError
        The FASTA cannot be read (the message names record and line), or has none of the contigs or regions;
        the model is neither a promoter model nor one of start sites, or has no calibration.

    Examples
    --------
    The start sites of a sequence: write it as FASTA, and read the table of scores.

    >>> Path("x.fa").write_text(f">x\n{sequence}\n")
    >>> bigbird_dna.score_promoters("yeast-promoters", "x.fa", "x.parquet")
    >>> table = pd.read_parquet("x.parquet")
    >>> table.sort_values("score", ascending=False)[["tss", "strand", "score"]].head()
    """
    strand = strand or ("both" if tss_offset is None else "+")
    scorer = PromoterScorer(
        *(
            model,
            fasta,
            max_n,
            calibrated,
            stride,
            strand,
            contig_names(contigs),
            regions,
            prior,
        ),
        tss_offset=tss_offset,
        pad=pad,
        per_record=per_record,
    )
    counts = write_scores(
        scorer, output, format, shard, precision, batch_size, device, threads
    )
    return ScanCounts(
        counts["records"], counts["scored"], counts["not scored"], counts["short"]
    )


def _table_row(row: ScoredWindow) -> TableRow:
    return TableRow(
        row.contig,
        row.start,
        row.end,
        row.name,
        row.score,
        row.strand,
        row.note,
        tss=row.tss,
    )


def _spans(
    windows: Iterable[ScoredWindow], header: OutputHeader
) -> Iterator[SignalSpan]:
    """Yield the signal of windows, restricted to the selected regions."""
    given = {name: header.extra[name] for name in ("stride", "strands")}
    spans = signal_spans(windows, header.contigs, **given)
    stored = header.extra["places"]
    if stored is None:
        yield from spans
        return
    regions = {
        contig: None
        if found is None
        else Intervals(*(np.array(part, np.int64) for part in found))
        for contig, found in stored.items()
    }
    places = Places(regions, str)  # contigs of a FASTA have no other names here
    for span in spans:
        for start, end in places.clipped(span.contig, span.start, span.end):
            yield span._replace(start=start, end=end)


WRITERS = {
    **table_writers(_table_row, lambda _: ROW_GROUP, has_score=True, has_tss=True),
    "bedgraph": lambda path, rows, header: write_bedgraph(
        path, _spans(rows, header), header.origin
    ),
    "bigwig": lambda path, rows, header: write_bigwig(
        path, _spans(rows, header), header.contigs, "window"
    ),
}


@dataclass(frozen=True)
class PromoterScorer(Scorer[ScannedModel, ScoredWindow]):
    """Windows along the records of a FASTA file; see `score_promoters`."""

    kind = "scored windows"
    command = "score-promoters"
    formats = SCORE_FORMATS
    writers = WRITERS
    files = ("regions",)
    lists_short: ClassVar[bool] = True
    """Whether the result lists records that are not scored."""

    stride: int | None
    strand: str
    contigs: tuple[str, ...]
    regions: Path | str | None
    prior: float | None
    tss_offset: int | None = None
    pad: bool = False
    per_record: bool = False

    def check(self, target: Target) -> None:
        check_at_least_one({"stride": self.stride})
        check_fraction("max_n", self.max_n)
        check_choice("strand", self.strand, STRANDS)
        check_calibrated(self.calibrated, self.prior)
        if self.tss_offset is not None:
            if self.tss_offset < 0:
                raise UsageError(f"tss_offset {self.tss_offset}: must be at least 0")
            others = {
                "stride": self.stride,
                "regions": self.regions,
                "pad": self.pad or None,
            }
            for name, value in others.items():
                if value is not None:
                    raise UsageError(
                        f"tss_offset {self.tss_offset}: {name} does not apply: each record has one window"
                    )
        if target.format in SIGNALS and (
            self.per_record or self.tss_offset is not None
        ):
            raise UsageError(
                f"format {target.format}: one score per record is no signal along it; write tsv, bed or "
                "parquet with per_record and tss_offset"
            )

    def load(self, **computing: Any) -> tuple[ScannedModel, Predictor]:
        model, placing = (
            load_scanned_model(self.model),
            (self.stride, self.tss_offset, self.pad),
        )
        return model, scan_predictor(
            model, self.calibrated, self.prior, *placing, **computing
        )

    @contextmanager
    def open(self, model: ScannedModel, target: Target) -> Iterator[Job[ScoredWindow]]:
        is_signal, strands = target.format in SIGNALS, STRANDS[self.strand]
        padding: dict[str, Any] = {"pad": self.pad, "beyond_is_n": is_signal}
        source = window_source(
            model, self.stride, tss_offset=self.tss_offset, **padding
        )
        streams = target.is_live and not self.contigs and self.regions is None
        check = partial(check_contig, format=target.format, where=self.source_name)
        with readable(self.source) as path:
            # Check the whole file before any computation, unless scores are written before the file's end.
            compared = InputCheck(model, self.source_name)
            contigs = (
                LengthsAhead(path, check, compared.add)
                if streams
                else scan_fasta(path, compared.add)
            )
            places = find_places(
                self.contigs, self.regions, contigs, self.source_name, names=None
            )
            shown = places.widened(source.step) if places and is_signal else places

            def windows_of(records: range) -> range:
                chosen = [name for name in contigs if places is None or places.on(name)]
                counts = [source.count({name: contigs[name]}, shown) for name in chosen]
                return range(sum(counts[: records.start]), sum(counts[: records.stop]))

            def rows(
                predict: Predictor, numbers: range | None
            ) -> Iterator[ScoredWindow]:
                if self.per_record and numbers is not None:
                    numbers = windows_of(numbers)

                def expected() -> int:
                    known = (
                        contigs.all() if isinstance(contigs, LengthsAhead) else contigs
                    )
                    windows = (
                        source.count(known, shown) if numbers is None else len(numbers)
                    )
                    return len(strands) * windows * source.together

                given = {
                    "strands": strands,
                    "max_n": self.max_n,
                    "places": shown,
                    "numbers": numbers,
                }
                found = source.scan(path, contigs, predict=predict, **given)
                scored = progress(
                    found, "scoring", expected if streams else expected(), "scores"
                )
                return best_of_records(scored) if self.per_record else scored

            records = 0
            if not streams:
                compared.finish()
                for contig in contigs:
                    if places is None or places.on(contig):
                        check(contig)
                records = self._count_records(contigs, places, model, target.format)
            has_stride = (
                isinstance(model, LoadedPromoterModel) and self.tss_offset is None
            )
            options: dict[str, object | None] = {"--format": target.format}
            options |= {
                "--stride": source.step if has_stride else None,
                "--strand": self.strand,
            }
            options |= {"--contig": list(self.contigs), "--regions": self.regions}
            options |= {
                "--tss-offset": self.tss_offset,
                "--max-n": self.max_n,
                "--prior": self.prior,
            }
            flags = {"pad": self.pad, "per-record": self.per_record}
            extra = {
                "stride": source.step,
                "strands": list(strands),
                "places": _stored(places)
                if is_signal or not self.lists_short
                else None,
            }
            header = OutputHeader(
                self.origin(model, target, options, **flags), contigs, extra=extra
            )
            content = partial(self.content, model, path, self.regions)
            units = partial(
                count_records if self.per_record else source.count, contigs, shown
            )
            job = Job(header, content, units, rows)
            yield job
            if streams:
                compared.finish()
                records = self._count_records(contigs, places, model, target.format)
            job.counts["records"] = records

    def _count_records(
        self,
        contigs: Mapping[str, int],
        places: Places | None,
        model: ScannedModel,
        format: str,
    ) -> int:
        """Return the number of selected records; warn of records that do not fill a window.

        Scores of records that fill little of a window are unreliable, however high: no training window has so
        much N. Signal formats, which have no notes, omit these records. `DataError`: too many others for a
        bigWig.
        """
        lengths = [
            length
            for contig, length in contigs.items()
            if places is None or places.on(contig)
        ]
        window, least = model.settings.window, self.max_n
        of, what = (
            f"of {len(lengths):,} records",
            f"more than {least:g} of their window",
        )
        omitted = not self.lists_short or format in SIGNALS
        without_signal = mostly_n = sum(
            (window - length) / window > least for length in lengths
        )
        if self.tss_offset is not None:
            before = self.tss_offset - tss_reach(model)[0]  # start of the window
            filled = [
                max(0, min(length, before + window) - max(before, 0))
                for length in lengths
            ]
            lacking = sum((window - bases) / window > least for bases in filled)
            beyond = sum(length <= self.tss_offset for length in lengths)
            if beyond:
                log(
                    f"warning: {beyond:,} {of} end before base {self.tss_offset:,} (tss_offset, 0-based)"
                )
            if lacking:
                log(
                    f"warning: {lacking:,} {of} lack {what} of {window:,} bp: their scores are unreliable"
                )
        elif isinstance(model, LoadedChromatinModel):
            ends = (
                "are omitted"
                if omitted
                else "are not scored; --max-n 1 scores them, less reliably"
            )
            if mostly_n:
                log(
                    f"warning: {mostly_n:,} {of} are so short that {what} of {window:,} bp is N: they {ends}"
                )
        elif short := sum(length < window for length in lengths):
            shorter = (
                f"{short:,} {of} are shorter than the model's window of {window:,} bp"
            )
            if self.pad:
                log(
                    f"warning: {shorter} and are padded with N on both sides: their scores are about the "
                    "base in column tss, not about a TSS elsewhere in the record (give its base with "
                    "--tss-offset)"
                )
                ends = (
                    f"{format} omits them" if omitted else "their scores are unreliable"
                )
                if mostly_n:
                    log(f"warning: {mostly_n:,} {of} lack {what}: {ends}")
            else:
                without_signal = short
                ends = "are not scored; give --tss-offset if the TSS is the same base of each record, or --pad"
                log(
                    f"warning: {shorter} and {ends if self.lists_short else 'have no calls'}"
                )
        if format == "bigwig":
            check_bigwig_contigs(
                len(lengths) - without_signal, self.source_name, "write bedgraph"
            )
        return len(lengths)

    def count(self, row: ScoredWindow, counts: Counter[str]) -> None:
        counts["not scored" if row.score is None else "scored"] += 1
        counts["short"] += row.is_short

    @staticmethod
    def lines(row: ScoredWindow) -> Iterable[str]:
        score = "" if row.score is None else repr(row.score)  # exact
        tss = "" if row.tss is None else row.tss
        return (
            f"{row.contig}\t{row.start}\t{row.end}\t{row.strand}\t{score}\t{row.note}\t{tss}",
        )

    @staticmethod
    def parse(line: str, header: OutputHeader) -> ScoredWindow:
        contig, start, end, strand, score, note, tss = line.split("\t")
        values = (float(score) if score else None, note, int(tss) if tss else None)
        return ScoredWindow(contig, int(start), int(end), cast(Strand, strand), *values)


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
        parts = [
            Interval(region.contig, region.start, region.end, strand)
            for strand in strands
        ]
        return [
            window
            for part in parts
            for window in _tss_windows(part, upstream, downstream, stride)
        ]

    tiled = ((region, [] if region.fault else windows(region)) for region in regions)
    for batch in growing_batches(
        tiled, lambda one: len(one[1]), windows_at_once, windows_at_once
    ):
        yield from _best_windows(batch, reference, predict, upstream, max_n)


def _tss_windows(
    region: Interval, upstream: int, downstream: int, stride: int
) -> Iterator[Interval]:
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
    texts = {
        window: reference.fetch(window) for _, windows in batch for window in windows
    }
    kept = [window for window, text in texts.items() if fraction_n(text) <= max_n]
    different = list(dict.fromkeys(texts[window] for window in kept))
    scores = (
        dict(zip(different, predict(different).tolist(), strict=True))
        if different
        else {}
    )
    for region, windows in batch:
        scored = {
            window: scores[text]
            for window in windows
            if (text := texts[window]) in scores
        }
        notes = [region.fault] if region.fault else []
        if not all(inside(window, reference.contigs) for window in windows):
            notes.append("contig_edge")
        if left_out := len(windows) - len(scored):
            notes.append(f"too_many_n={left_out}windows" if scored else "too_many_n")
        note = ";".join(notes) or "."
        if not scored:
            yield RegionScore(None, None, None, note)
            continue
        best = max(
            scored, key=lambda window: scored[window]
        )  # ties go to the first window
        site = tss_position(best.start, best.end, best.strand, upstream)
        yield RegionScore(scored[best], site, best.strand, note)
