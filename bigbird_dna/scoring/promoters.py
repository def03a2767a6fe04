"""Promoter probabilities along a FASTA file: `bigbird_dna.score_promoters` and command `score-promoters`."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bigbird_dna.console import ProgressBar, log
from bigbird_dna.disk.outputs import command_line, is_live, provenance
from bigbird_dna.errors import (
    UsageError,
    check_at_least_one,
    check_choice,
    check_fraction,
)
from bigbird_dna.genome.fasta import LengthsAhead, readable, scan_fasta
from bigbird_dna.genome.intervals import Places, contig_names, find_places
from bigbird_dna.model.catalog import stored_name
from bigbird_dna.model.chromatin import LoadedChromatinModel
from bigbird_dna.model.inference import (
    choose_device,
    choose_precision,
    cpu_threads,
    inference,
)
from bigbird_dna.model.model import LoadedModel, check_calibrated
from bigbird_dna.model.promoter import LoadedPromoterModel
from bigbird_dna.scoring.input_check import InputCheck
from bigbird_dna.scoring.scan import (
    STRIDE,
    BestOfRecord,
    ScanModel,
    ScoredWindow,
    Signal,
    aligned_inputs,
    count_scores,
    load_scan_model,
    scan_predictor,
    scan_records,
    score_inputs,
)
from bigbird_dna.scoring.writers import (
    BINARY_FORMATS,
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
    pad: bool = False,
    per_record: bool = False,
    max_n: float = 0.25,
    calibrated: bool = False,
    prior: float | None = None,
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
        Only these records; only windows that overlap the regions, which are a BED file or "chr6:1001-2000"
        (1-based, inclusive, as for samtools). bedgraph and bigwig have only the signal in the regions. The
        windows are those of a complete scan. If both are given, windows must satisfy both.
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
    contigs = contig_names(contigs)
    strand = strand or ("both" if tss_offset is None else "+")
    path, format = choose_output(output, format, SCORE_FORMATS, [model, fasta, regions])
    is_signal = format in SIGNALS
    check_at_least_one({"batch_size": batch_size, "threads": threads, "stride": stride})
    check_fraction("max_n", max_n)
    check_choice("strand", strand, STRANDS)
    check_calibrated(calibrated, prior)
    _check_tss_offset(tss_offset, stride, regions, pad)
    if is_signal and (per_record or tss_offset is not None):
        raise UsageError(
            f"format {format}: one score per record is no signal along it; write tsv, bed or parquet with "
            "per_record and tss_offset"
        )
    chosen_device = choose_device(device)
    precision, stated_precision = choose_precision(precision, chosen_device)

    scan_model = load_scan_model(model)
    _check_dense(scan_model, stride, prior, pad)
    predict = scan_predictor(
        scan_model,
        calibrated,
        prior,
        aligned=tss_offset is not None,
        batch_size=batch_size,
        device=device,
    )
    source = "standard input" if str(fasta) == "-" else str(fasta)
    is_dense = isinstance(scan_model, LoadedChromatinModel)
    if isinstance(scan_model, LoadedChromatinModel):
        step = scan_model.settings.bin
    else:
        step = stride or STRIDE
    strands = STRANDS[strand]
    # A stream of scores begins before the file's end is read, so that its faults and warnings come later.
    streams = (
        is_live(path)
        and format not in BINARY_FORMATS
        and not contigs
        and regions is None
    )

    options = {
        "--format": format,
        "--stride": None if is_dense or tss_offset is not None else step,
        "--strand": strand,
        "--contig": list(contigs),
        "--regions": regions,
        "--tss-offset": tss_offset,
        "--max-n": max_n,
        "--prior": prior,
        "--precision": stated_precision,
    }
    flags = {"--calibrated": calibrated, "--pad": pad, "--per-record": per_record}
    arguments = [stored_name(scan_model.path), fasta]
    command = command_line("score-promoters", arguments, options, flags)
    origin = provenance(scan_model.sha256, command)

    with (
        cpu_threads(threads),
        inference(precision, chosen_device),
        readable(fasta) as file,
    ):
        input_check = InputCheck(scan_model, source)
        lengths = record_lengths(file, format, source, input_check, streams)
        places = find_places(contigs, regions, lengths, source, names=None)
        selected = selected_records(lengths, places, format, source)
        if not streams:
            _warn_of_short_records(
                [lengths[name] for name in selected],
                scan_model,
                format,
                source,
                max_n,
                tss_offset,
                pad,
            )

        if tss_offset is not None:
            inputs = aligned_inputs(
                file,
                lengths,
                scan_model,
                tss_offset=tss_offset,
                strands=strands,
                max_n=max_n,
                places=places,
            )
            batches = score_inputs(inputs, predict)
        else:
            batches = scan_records(
                file,
                lengths,
                scan_model,
                predict,
                stride=stride,
                strands=strands,
                max_n=max_n,
                pad=pad,
                beyond_is_n=is_signal,
                places=places.widened(step) if places and is_signal else places,
            )
        total = None
        if places is None and not streams:
            per_strand = (
                count_scores(lengths, scan_model, stride)
                if tss_offset is None
                else len(lengths)
            )
            total = len(strands) * per_strand
        best = BestOfRecord() if per_record else None
        signal = Signal(lengths, step, strands, places) if is_signal else None
        counts: Counter[str] = Counter()
        with (
            open_writer(
                path, format, origin, COLUMNS, mark="", contigs=lengths
            ) as writer,
            ProgressBar("scoring", total, "scores") as bar,
        ):
            for rows in batches:
                bar.advance(len(rows))
                if best is not None:
                    rows = best.add(rows)
                _count(counts, rows)
                writer.write(signal.add(rows) if signal else map(_cells, rows))
            if best is not None:
                rows = best.finish()
                _count(counts, rows)
                writer.write(map(_cells, rows))
            if signal is not None:
                writer.write(signal.finish())

        if streams:
            input_check.finish()
            selected = list(lengths)
            _warn_of_short_records(
                [*lengths.values()],
                scan_model,
                format,
                source,
                max_n,
                tss_offset,
                pad,
            )
    return ScanCounts(
        len(selected), counts["scored"], counts["not scored"], counts["short"]
    )


def record_lengths(
    fasta: Path, format: str, source: str, input_check: InputCheck, streams: bool
) -> Mapping[str, int]:
    """Lengths of the records of a FASTA file, whose DNA is given to `input_check`.

    The whole file is read and checked first, unless it `streams`: then each record is added, and its name
    checked for the output `format`, as the file is read. `DataError` names `source`, record and line.
    """
    if streams:
        return LengthsAhead(
            fasta, lambda name: check_contig(name, format, source), input_check.add
        )
    lengths = scan_fasta(fasta, input_check.add)
    input_check.finish()
    return lengths


def selected_records(
    lengths: Mapping[str, int], places: Places | None, format: str, source: str
) -> list[str]:
    """Names of the records to score, none yet of a stream; `DataError` if one does not suit the `format`."""
    selected = [name for name in lengths if places is None or places.on(name)]
    for name in selected:
        check_contig(name, format, source)
    return selected


def _check_tss_offset(
    tss_offset: int | None, stride: int | None, regions: Path | str | None, pad: bool
) -> None:
    if tss_offset is None:
        return
    if tss_offset < 0:
        raise UsageError(f"tss_offset {tss_offset}: must be at least 0")
    for name, value in (("stride", stride), ("regions", regions), ("pad", pad or None)):
        if value is not None:
            raise UsageError(
                f"tss_offset {tss_offset}: {name} does not apply: each record has one window"
            )


def _check_dense(
    model: ScanModel, stride: int | None, prior: float | None, pad: bool
) -> None:
    """Raise `UsageError` for options that are not for a model of start sites."""
    if isinstance(model, LoadedPromoterModel):
        return
    for name, value in (("stride", stride), ("prior", prior), ("pad", pad or None)):
        if value is not None:
            raise UsageError(
                f"{name} {value}: {model.name} scores bins of {model.settings.bin} bp"
            )


def _count(counts: Counter[str], rows: Sequence[ScoredWindow]) -> None:
    for row in rows:
        counts["not scored" if row.score is None else "scored"] += 1
        counts["short"] += row.is_short


def _cells(row: ScoredWindow) -> tuple[Any, ...]:
    """Return the cells of `COLUMNS`."""
    return (
        row.contig,
        row.start,
        row.end,
        row.name,
        row.score,
        row.strand,
        row.note,
        row.tss,
    )


def _warn_of_short_records(
    lengths: Sequence[int],
    model: ScanModel,
    format: str,
    source: str,
    max_n: float,
    tss_offset: int | None,
    pad: bool,
) -> None:
    """Warn of records that do not fill a window; `DataError` if the others are too many for a bigWig.

    Scores of records that fill little of a window are unreliable, however high: no training window has so
    much N. Signal formats, which have no notes, omit these records.
    """
    window = model.settings.window
    records = f"of {len(lengths):,} records"
    mostly_n = sum((window - length) / window > max_n for length in lengths)
    part = f"more than {max_n:g} of their window"
    is_signal = format in SIGNALS
    without_signal = mostly_n
    if tss_offset is not None:
        before = tss_offset - model.tss_reach[0]  # start of the window
        filled = [
            max(0, min(length, before + window) - max(before, 0)) for length in lengths
        ]
        lacking = sum((window - bases) / window > max_n for bases in filled)
        beyond = sum(length <= tss_offset for length in lengths)
        if beyond:
            log(
                f"warning: {beyond:,} {records} end before base {tss_offset:,} (tss_offset, 0-based)"
            )
        if lacking:
            log(
                f"warning: {lacking:,} {records} lack {part} of {window:,} bp: their scores are unreliable"
            )
    elif isinstance(model, LoadedChromatinModel):
        warn_of_unscored_records(lengths, model, max_n, is_omitted=is_signal)
    elif short := sum(length < window for length in lengths):
        shorter = (
            f"{short:,} {records} are shorter than the model's window of {window:,} bp"
        )
        if pad:
            log(
                f"warning: {shorter} and are padded with N on both sides: their scores are about the base in "
                "column tss, not about a TSS elsewhere in the record (give its base with --tss-offset)"
            )
            if mostly_n:
                ends = (
                    f"{format} omits them"
                    if is_signal
                    else "their scores are unreliable"
                )
                log(f"warning: {mostly_n:,} {records} lack {part}: {ends}")
        else:
            without_signal = short
            log(
                f"warning: {shorter} and are not scored; give --tss-offset if the TSS is the same base of each "
                "record, or --pad"
            )
    if format == "bigwig":
        check_bigwig_contigs(len(lengths) - without_signal, source, "write bedgraph")


def warn_of_unscored_records(
    lengths: Sequence[int], model: ScanModel, max_n: float, is_omitted: bool
) -> None:
    """Warn of records that are too short to be scored, and that the result omits or lists without a score."""
    window = model.settings.window
    if isinstance(model, LoadedPromoterModel):
        count = sum(length < window for length in lengths)
        text = f"are shorter than the model's window of {window:,} bp and have no calls"
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
