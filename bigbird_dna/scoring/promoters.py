"""Promoter probabilities along a FASTA file: `bigbird_dna.score_promoters` and command `score-promoters`."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from bigbird_dna.console import ProgressBar, log
from bigbird_dna.disk.outputs import command_line, provenance
from bigbird_dna.errors import (
    UsageError,
    check_at_least_one,
    check_choice,
    check_fraction,
)
from bigbird_dna.genome.fasta import readable, scan_fasta
from bigbird_dna.genome.intervals import Places, contig_names, find_places
from bigbird_dna.model.catalog import stored_name
from bigbird_dna.model.chromatin import LoadedChromatinModel
from bigbird_dna.model.inference import (
    choose_device,
    choose_precision,
    cpu_threads,
    inference,
)
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.model.promoter import LoadedPromoterModel
from bigbird_dna.scoring.scan import (
    STRIDE,
    ScanModel,
    ScoredWindow,
    best_of_record,
    count_scores,
    each_row,
    load_scan_model,
    scan_records,
    signal_spans,
)
from bigbird_dna.scoring.writers import (
    SCORE_FORMATS,
    STRANDS,
    check_bigwig_contigs,
    check_contig,
    choose_output,
    open_writer,
)

SIGNALS = ("bedgraph", "bigwig")
"""Formats that show the signal at the TSS positions of windows, instead of the windows."""

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
    per_record: bool = False,
    max_n: float = 0.25,
    calibrated: bool = False,
    precision: str = "auto",
    batch_size: int = 32,
    device: str = "auto",
    threads: int | None = None,
) -> ScanCounts:
    """Score windows of the model's size along every record of a FASTA file.

    Each score has the TSS position that it is about. A record shorter than the window is not scored, unless
    `tss_offset` is given; a warning counts such records.

    Parameters
    ----------
    model
        A promoter model, or its directory; or a chromatin model of start sites, whose scores are of bins.
    fasta
        Plain, gzip or bgzip; "-": standard input. Lower case is accepted; IUPAC codes are read as N.
    output
        File to write atomically; None or "-": standard output. A pipe or device receives scores as they are
        computed, bedgraph record by record.
    format
        tsv, bed, bedgraph, bigwig or parquet; None: by the extension of `output`, or tsv.
        Coordinates are 0-based and half-open on the record's forward strand.
    stride, strand
        Distance of a promoter model's windows in bp, None: 10; "both", "+" or "-", None: "+" with
        `tss_offset`, otherwise "both".
    contigs, regions
        Only these records; only windows that overlap the regions, which are a BED file or "chr6:1001-2000"
        (1-based, inclusive, as for samtools). bedgraph and bigwig have only the signal in the regions. The
        windows are those of a complete scan. If both are given, windows must satisfy both.
    tss_offset
        Every record is a promoter whose TSS is this base of it (0-based, on the record's forward strand). One
        window is scored per record, with its TSS position (of a chromatin model, the center of the central
        bin) at this base; where the record does not reach, the window has N. Records may have any length.
        None: records are scanned.
    per_record
        Write one row for each record: that of its highest score, over all windows and strands.
    max_n
        Windows with a larger fraction of N are listed, but not scored. With `tss_offset`, bases beyond the
        record are not counted.
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
        `stride` is given for a chromatin model; `tss_offset` is
        given with `stride` or `regions`; `tss_offset` or `per_record` is given for bedgraph or bigwig.
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
    contigs = contig_names(contigs)
    strand = strand or ("both" if tss_offset is None else "+")
    path, format = choose_output(output, format, SCORE_FORMATS, [model, fasta, regions])
    is_signal = format in SIGNALS
    check_at_least_one({"batch_size": batch_size, "threads": threads, "stride": stride})
    check_fraction("max_n", max_n)
    check_choice("strand", strand, STRANDS)
    if tss_offset is not None:
        if tss_offset < 0:
            raise UsageError(f"tss_offset {tss_offset}: must be at least 0")
        if stride is not None or regions is not None:
            raise UsageError(
                f"tss_offset {tss_offset}: {'regions' if stride is None else 'stride'} does not apply: each "
                "record has one window"
            )
    if is_signal and (per_record or tss_offset is not None):
        raise UsageError(
            f"format {format}: one score per record is no signal along it; write tsv, bed or parquet with "
            "per_record and tss_offset"
        )
    chosen_device = choose_device(device)
    precision, stated_precision = choose_precision(precision, chosen_device)

    scan_model = load_scan_model(model)
    step = stride or STRIDE
    is_dense = isinstance(scan_model, LoadedChromatinModel)
    if isinstance(scan_model, LoadedChromatinModel):
        step = scan_model.settings.bin
        if stride is not None:
            raise UsageError(
                f"stride {stride}: {scan_model.name} scores bins of {step} bp"
            )
    source = "standard input" if str(fasta) == "-" else str(fasta)
    strands = STRANDS[strand]

    options = {
        "--format": format,
        "--stride": None if is_dense or tss_offset is not None else step,
        "--strand": strand,
        "--contig": list(contigs),
        "--regions": regions,
        "--tss-offset": tss_offset,
        "--max-n": max_n,
        "--precision": stated_precision,
    }
    flags = {"--calibrated": calibrated, "--per-record": per_record}
    arguments = [stored_name(scan_model.path), fasta]
    command = command_line("score-promoters", arguments, options, flags)
    origin = provenance(scan_model.sha256, command)

    with (
        cpu_threads(threads),
        inference(precision, chosen_device),
        readable(fasta) as file,
    ):
        lengths, selected, places = check_records(
            file, source, scan_model, contigs, regions, format
        )
        if tss_offset is None:
            without_signal = warn_of_short_records(
                list(selected.values()), scan_model, max_n, is_omitted=is_signal
            )
            if format == "bigwig":
                count = len(selected) - without_signal
                check_bigwig_contigs(count, source, "write bedgraph")

        batches = scan_records(
            file,
            selected,
            scan_model,
            stride=stride,
            strands=strands,
            tss_offset=tss_offset,
            max_n=max_n,
            # Spans of a signal extend half-way to the next window.
            places=places.widened(step) if places and is_signal else places,
            calibrated=calibrated,
            batch_size=batch_size,
            device=device,
        )
        total = None
        if tss_offset is not None:
            total = len(strands) * len(selected)
        elif places is None:
            total = len(strands) * count_scores(lengths.values(), scan_model, stride)
        counts: Counter[str] = Counter()
        with (
            open_writer(
                path, format, origin, COLUMNS, mark="", contigs=lengths
            ) as write,
            ProgressBar("scoring", total, "scores") as bar,
        ):

            def counted(rows: Iterable[ScoredWindow]) -> Iterator[ScoredWindow]:
                for row in rows:
                    counts["not scored" if row.score is None else "scored"] += 1
                    counts["short"] += row.is_short
                    yield row

            records = groupby(each_row(batches, bar), key=attrgetter("contig"))
            if is_signal:
                for contig, record in records:
                    size = lengths[contig]
                    spans = signal_spans(
                        contig, size, counted(record), step, strands, places
                    )
                    write(spans)
            elif per_record:
                for _, record in records:
                    best = counted([best_of_record(record)])
                    write(map(_cells, best))
            else:
                for batch in batches:
                    bar.advance(len(batch))
                    write(map(_cells, counted(batch)))
    return ScanCounts(
        len(selected), counts["scored"], counts["not scored"], counts["short"]
    )


def check_records(
    fasta: Path,
    source: str,
    model: ScanModel,
    contigs: Sequence[str],
    regions: Path | str | None,
    format: str,
) -> tuple[dict[str, int], dict[str, int], Places | None]:
    """Read a whole FASTA file before anything is computed; `source` names it in messages.

    Returns the lengths of all records, those of the records to score, and the selected regions, if any. Warns
    if the DNA differs from the model's training sequence. `DataError`: the file is faulty, has none of the
    contigs or regions, or a name that the `format` cannot have.
    """
    lengths = scan_fasta(fasta)
    places = find_places(contigs, regions, lengths, source, names=None)
    selected = {
        name: length
        for name, length in lengths.items()
        if places is None or places.on(name)
    }
    for name in selected:
        check_contig(name, format, source)
    return lengths, selected, places


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


def warn_of_short_records(
    lengths: Sequence[int], model: ScanModel, max_n: float, is_omitted: bool
) -> int:
    """Warn of records that are too short to be scored, and return their number.

    The result omits them (`is_omitted`) or lists them without a score.
    """
    window = model.settings.window
    if isinstance(model, LoadedPromoterModel):
        count = sum(length < window for length in lengths)
        text = (
            f"are shorter than the model's window of {window:,} bp and are not scored; give --tss-offset if "
            "the TSS is the same base of each record"
        )
    else:
        count = sum((window - length) / window > max_n for length in lengths)
        ends = (
            "are omitted"
            if is_omitted
            else "are not scored; --max-n 1 scores them, less reliably"
        )
        text = f"are so short that more than {max_n:g} of their window of {window:,} bp is N: they {ends}"
    if count:
        log(f"warning: {count:,} of {len(lengths):,} records {text}")
    return count
