"""Promoter probabilities along a FASTA file: `bigbird_dna.score_promoters` and command `score-promoters`."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from bigbird_dna.console import ProgressBar, log
from bigbird_dna.errors import UsageError, check_choice
from bigbird_dna.genome.fasta import readable, scan_fasta
from bigbird_dna.genome.intervals import contig_names, find_places
from bigbird_dna.genome.sequence import STRANDS
from bigbird_dna.model.catalog import result_origin
from bigbird_dna.model.inference import computation
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.model.start_sites import SHORTEST, LoadedStartSiteModel
from bigbird_dna.scoring.scan import (
    STRIDE,
    ScanModel,
    ScoredWindow,
    best_of_record,
    count_scores,
    each_row,
    load_scan_model,
    scan_records,
    selected_records,
    signal_spans,
)
from bigbird_dna.scoring.writers import (
    SCORE_FORMATS,
    choose_output,
    open_writer,
)

COLUMNS = {
    "contig": "s",
    "start": "d",
    "end": "d",
    "name": "s",
    "score": ".6f",
    "strand": "s",
    "note": "s",
    "tss": "d",
}


class ScanCounts(NamedTuple):
    """Number of records read, and of scores (one per window and strand, or per record) that exist or not."""

    records: int
    scored: int
    not_scored: int  # too many N, or a record that is too short


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
    per_record: bool = False,
    max_n: float = 0.25,
    calibrated: bool = False,
    precision: str = "auto",
    batch_size: int = 32,
    device: str = "auto",
    threads: int | None = None,
) -> ScanCounts:
    """Score windows of the model's size along every record of a FASTA file.

    Each score has the TSS position that it is about. A record shorter than the window is not scored; a warning
    counts such records.

    Parameters
    ----------
    model
        A model of start sites or of promoter windows, or its directory.
    fasta
        Plain, gzip or bgzip; "-": standard input. Lower case is accepted; IUPAC codes are read as N.
    output
        File to write atomically; None or "-": standard output. A pipe or device receives scores as they are
        computed, bedgraph record by record.
    format
        tsv, bed, bedgraph, bigwig or parquet; None: by the extension of `output`, or tsv.
        Coordinates are 0-based and half-open on the record's forward strand.
    stride, strand
        Bases of a row, which has their highest score, or distance of a promoter model's windows, in bp, None:
        10; "both", "+" or "-".
    contigs, regions
        Only these records; only windows that overlap the regions, which are a BED file or "chr6:1001-2000"
        (1-based, inclusive, as for samtools). bedgraph and bigwig have only the signal in the regions. The
        windows are those of a complete scan. If both are given, windows must satisfy both.
    per_record
        Write one row for each record: that of its highest score, over all windows and strands.
    max_n
        Windows with a larger fraction of N are listed, but not scored.
    calibrated
        Report calibrated probabilities.
    precision
        Number format of the computation: float32, bfloat16, or float16 (GPUs). The last two are faster on
        devices that support them, but less exact; the output records them. "auto": bfloat16 on GPUs that
        support it, else float32. The scores of variants, calls and embeddings are then float32 on all
        devices, since rounding would be large compared with their differences.
    batch_size, device, threads
        Windows per batch; auto, cpu or cuda; CPU threads. These affect speed and memory only.

    Raises
    ------
    UsageError
        An argument is out of range; the output cannot be written; the device does not exist;
        `per_record` is given for bedgraph or bigwig.
    DataError, ModelError
        The FASTA cannot be read (the message names record and line), or has none of the contigs or regions;
        the model is neither of start sites nor of promoter windows, or has no calibration.

    Examples
    --------
    The start sites of a sequence: write it as FASTA, and read the table of scores.

    >>> Path("x.fa").write_text(f">x\n{sequence}\n")
    >>> bigbird_dna.score_promoters("yeast-promoters", "x.fa", "x.parquet")
    >>> table = pd.read_parquet("x.parquet")
    >>> table.sort_values("score", ascending=False)[["tss", "strand", "score"]].head()
    """
    contigs = contig_names(contigs)
    path, format = choose_output(output, format, SCORE_FORMATS, [model, fasta, regions])
    check_choice("strand", strand, ("both", *STRANDS))
    # These formats show the signal at the TSS positions of windows, instead of the windows.
    is_signal = format in ("bedgraph", "bigwig")
    if is_signal and per_record:
        raise UsageError(
            f"format {format}: one score per record is no signal along it; write tsv, bed or parquet with "
            "per_record"
        )

    scan_model = load_scan_model(model)
    if calibrated and isinstance(scan_model, LoadedStartSiteModel):
        raise UsageError(
            f"calibrated: {scan_model.name} has no calibrated scores of bases; `call-promoters` gives each call its "
            "expected precision"
        )

    step = stride or STRIDE
    strands = [x for x in STRANDS if strand in ("both", x)]
    with (
        computation(precision, device, threads) as stated_precision,
        readable(fasta) as file,
    ):
        options = {
            "--format": format,
            "--stride": step,
            "--strand": strand,
            "--contig": list(contigs),
            "--regions": regions,
            "--max-n": max_n,
            "--precision": stated_precision,
            "--calibrated": calibrated,
            "--per-record": per_record,
        }
        origin = result_origin(scan_model, "score-promoters", fasta, options)
        # The whole file is checked before anything is computed.
        lengths = scan_fasta(file)
        places = find_places(contigs, regions, lengths, file, names=None)
        selected = selected_records(lengths, places)
        warn_of_short_records(selected.values(), scan_model)
        batches = scan_records(
            file,
            selected,
            scan_model,
            stride=stride,
            strands=strands,
            max_n=max_n,
            # Spans of a signal extend half-way to the next window.
            places=places.widened(step) if places and is_signal else places,
            calibrated=calibrated,
            batch_size=batch_size,
            device=device,
        )
        total = None
        if places is None:
            total = len(strands) * count_scores(lengths.values(), scan_model, stride)

        counts: Counter[bool] = Counter()
        with (
            open_writer(
                path, format, origin, COLUMNS, mark="", contigs=lengths
            ) as write,
            ProgressBar("scoring", total, "scores") as bar,
        ):

            def counted(rows: Iterable[ScoredWindow]) -> Iterator[ScoredWindow]:
                for row in rows:
                    counts[row.score is not None] += 1
                    yield row

            if is_signal or per_record:
                rows = each_row(batches, bar)
                for contig, record in groupby(rows, key=attrgetter("contig")):
                    if per_record:
                        write(map(_cells, counted([best_of_record(record)])))
                        continue

                    size = lengths[contig]
                    spans = signal_spans(
                        contig, size, counted(record), step, strands, places
                    )
                    write(spans)
            else:
                for batch in batches:
                    bar.advance(len(batch))
                    write(map(_cells, counted(batch)))

    return ScanCounts(len(selected), counts[True], counts[False])


def _cells(row: ScoredWindow) -> tuple[Any, ...]:
    """Return the cells of `COLUMNS`."""
    name = f"{row.contig}:{row.start}-{row.end}({row.strand})"
    return (
        row.contig,
        row.start,
        row.end,
        name,
        row.score,
        row.strand,
        row.note,
        row.tss,
    )


def warn_of_short_records(lengths: Iterable[int], model: ScanModel) -> None:
    """Warn of records that are too short to be scored."""
    least = model.settings.window
    what = f"the model's window of {least:,} bp"
    if isinstance(model, LoadedStartSiteModel):
        least, what = SHORTEST, f"the shortest sequence of {SHORTEST} bp"

    count = sum(length < least for length in lengths)
    if count:
        log(f"warning: {count:,} records are shorter than {what} and are not scored")
