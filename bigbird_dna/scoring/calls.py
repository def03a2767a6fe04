"""Calls of promoters along a FASTA file: `bigbird_dna.call_promoters`, and the precision expected of them.

Commands `call-promoters` and `model calibrate`. Both scan with the same windows, so that the precision
of a call is that of validation calls made in the same way.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bigbird_dna.calibration.call_precision import (
    FILE,
    CallPrecision,
    fit_calls,
    read_call_precision,
)
from bigbird_dna.calibration.calls import (
    DISTANCES,
    Integers,
    Points,
    Scan,
    Track,
    find_calls,
    find_track_calls,
    match_tracks,
    sites_of,
)
from bigbird_dna.calibration.fitting import LEAST
from bigbird_dna.calibration.maps import write_calibration
from bigbird_dna.config.reading import parse_config
from bigbird_dna.console import ProgressBar, log
from bigbird_dna.disk.atomic import checksum, write_json
from bigbird_dna.disk.json_files import read_object
from bigbird_dna.errors import (
    ConfigError,
    DataError,
    ModelError,
    UsageError,
    check_choice,
    check_fraction,
)
from bigbird_dna.genome.assembly import load_assembly
from bigbird_dna.genome.fasta import readable, scan_fasta
from bigbird_dna.genome.intervals import contig_names, find_places
from bigbird_dna.genome.sequence import STRANDS, Strand
from bigbird_dna.genome.splits import find_named, format_named_region
from bigbird_dna.model.catalog import changed_file, find_target, result_origin
from bigbird_dna.model.inference import computation
from bigbird_dna.model.model import METRICS, LoadedModel
from bigbird_dna.model.weights import RECORD
from bigbird_dna.scoring.promoters import warn_of_short_records
from bigbird_dna.scoring.scan import (
    STRIDE,
    ScanModel,
    ScoredWindow,
    count_scores,
    each_row,
    load_scan_model,
    scan_records,
    scores_by_strand,
    selected_records,
)
from bigbird_dna.scoring.writers import (
    CALL_FORMATS,
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
    "precision_low": ".6f",
    "precision_high": ".6f",
    "model_score": ".6f",
}


class CallCounts(NamedTuple):
    """Number of records read, of scored windows on either strand, and of calls written."""

    records: int
    scored: int
    calls: int


def call_promoters(
    model: LoadedModel | Path | str,
    fasta: Path | str,
    output: Path | str | None = None,
    *,
    format: str | None = None,
    fdr: float | None = None,
    strand: str = "both",
    contigs: Sequence[str] | str = (),
    max_n: float = 0.25,
    precision: str = "auto",
    batch_size: int = 32,
    device: str = "auto",
    threads: int | None = None,
) -> CallCounts:
    """Call promoters along every record of a FASTA file, each with the precision expected of it.

    Windows are scored as by `score_promoters`. On each strand, the highest score is a call, which silences
    windows near it, then the highest that is left. Stride, silenced distance and the map from scores to
    precision are those of the model's `calls.json`, which `calibrate_calls` writes.

    Parameters
    ----------
    model, fasta, output, contigs, max_n, precision, batch_size, device, threads
        As for `score_promoters`. A call is one base: its TSS.
    format
        bed, tsv or parquet; None: by the extension of `output`, or bed.
    fdr
        Largest expected fraction of false calls among the calls written: the mean of 1 - precision over the
        validation calls with at least the lowest score written. 1: all calls. None: calls with at least the
        score of the largest F1 of precision and recall on the validation contigs.
    strand
        "both", "+" or "-". Strands have no effect on one another.

    Raises
    ------
    UsageError
        As for `score_promoters`; no score reaches `fdr`.
    DataError, ModelError
        As for `score_promoters`; the model has no `calls.json`, or that of another model.
    """
    contigs = contig_names(contigs)
    path, format = choose_output(output, format, CALL_FORMATS, [model, fasta], "bed")
    if fdr is not None:
        check_fraction("fdr", fdr)

    check_choice("strand", strand, ("both", *STRANDS))
    strands = [x for x in STRANDS if strand in ("both", x)]
    scan_model = load_scan_model(model)
    expected = call_precision_of(scan_model)
    least = _lowest_score(expected, fdr)
    meaning = (
        f"probability of an annotated TSS of the strand within {expected.within} bp, which no better call "
        f"took; calls are {expected.suppress} bp apart, from scores every {expected.stride} bp"
    )
    with (
        computation(precision, device, threads, narrow=False) as stated_precision,
        readable(fasta) as file,
    ):
        options = {
            "--format": format,
            "--fdr": fdr,
            "--strand": strand,
            "--contig": list(contigs),
            "--max-n": max_n,
            "--precision": stated_precision,
        }
        origin = result_origin(scan_model, "call-promoters", fasta, options)
        origin["precision"] = meaning
        lengths = scan_fasta(file)  # of all records, before anything is computed
        places = find_places(contigs, None, lengths, file, names=None)
        selected = selected_records(lengths, places)
        scanned = scan_contigs(
            file,
            selected,
            scan_model,
            strands,
            stride=expected.stride,
            max_n=max_n,
            places=places,
            batch_size=batch_size,
            device=device,
        )
        scored = written = 0
        with open_writer(path, format, origin, COLUMNS) as write:
            for contig, tracks in scanned:
                calls: list[tuple[int, Strand, float]] = []
                for call_strand, windows in tracks.items():
                    scored += len(windows.scores)
                    best = find_calls(windows, expected.suppress, call_strand)
                    for place, score in zip(*best, strict=True):
                        position = int(place)
                        # Windows that reach into a region may have their start site beyond.
                        inside = places is None or places.overlaps(
                            contig, position, position + 1
                        )
                        if score >= least and inside:
                            calls.append((position, call_strand, float(score)))

                written += len(calls)
                write(_cells(contig, *call, expected) for call in sorted(calls))

    return CallCounts(len(selected), scored, written)


def scan_contigs(
    fasta: Path,
    lengths: Mapping[str, int],
    model: ScanModel,
    strands: Sequence[Strand] = STRANDS,
    *,
    stride: int | None = None,
    max_n: float = 0.25,
    **options: Any,
) -> Iterator[tuple[str, dict[Strand, Points]]]:
    """Yield each contig in `lengths` with its windows that have a score, by strand.

    `options` are those of `scan_records`.
    """
    warn_of_short_records(lengths.values(), model)
    batches = scan_records(
        fasta,
        lengths,
        model,
        strands=strands,
        stride=stride,
        max_n=max_n,
        **options,
    )
    total = len(strands) * count_scores(lengths.values(), model, stride)
    with ProgressBar("scoring", total, "scores") as bar:
        rows = each_row(batches, bar)
        for contig, record in groupby(rows, key=attrgetter("contig")):
            yield contig, scored_windows(record, strands)


def scored_windows(
    record: Iterable[ScoredWindow], strands: Sequence[Strand] = STRANDS
) -> dict[Strand, Points]:
    """Return the windows of a record that have a score, by strand."""
    windows = {}
    for strand, (positions, scores) in scores_by_strand(record, strands).items():
        has_score = np.isfinite(scores)
        windows[strand] = Points(positions[has_score], scores[has_score])
    return windows


def call_precision_of(model: LoadedModel) -> CallPrecision:
    """The expected precision in a model's directory; `ModelError` if missing, damaged or of another model."""
    path = None if model.path is None else model.path / FILE
    if path is None or not path.is_file():
        raise ModelError(
            f"{model.name}: the model has no expected precision of calls ({FILE}); "
            "`bigbird-dna model calibrate` fits it to validation contigs"
        )
    return read_call_precision(path, model.sha256)


def _lowest_score(expected: CallPrecision, fdr: float | None) -> float:
    """Return the lowest score of a call; `UsageError` if no score reaches the rate."""
    if fdr is None:
        return expected.scores[expected.best()]

    if fdr == 1:
        return 0.0

    row = expected.at_rate(fdr)
    if row is None:
        raise UsageError(
            f"fdr {fdr}: not reached: the highest scores have an expected false-discovery rate of "
            f"{expected.expected_fdr[0]:.3g}; give a larger rate, or 1 for all calls"
        )

    return expected.scores[row]


def _cells(
    contig: str, position: int, strand: Strand, score: float, expected: CallPrecision
) -> tuple[Any, ...]:
    """Return the cells of `COLUMNS`: the score is the expected precision, with its 95 % interval."""
    start, end = position, position + 1
    name = f"{contig}:{start}-{end}({strand})"
    precision, low, high = (float(value) for value in expected(score))
    interval = np.array([low, high, score], np.float32).tolist()
    return (contig, start, end, name, precision, strand, "", *interval)


def calibrate_calls(
    path: Path,
    reference: Path,
    promoters: Path,
    output: Path | None = None,
    *,
    contigs: Sequence[str] | str = (),
    test_contigs: Sequence[str] | str = (),
    stride: int | None = None,
    suppress: int = 100,
    within: int = 100,
    batch_size: int = 32,
    device: str = "auto",
    threads: int | None = None,
) -> CallPrecision:
    """Fit the expected precision of a model's calls to validation contigs, and store it with the model.

    Calls of test contigs are then compared with it. The metrics of both are stored as `calls` in the model's
    `metrics.json`.

    Parameters
    ----------
    path, output
        The model's directory; a directory for a copy of it, or None: change `path` itself.
    reference, promoters
        The genome (FASTA), and its annotated TSSs (the TSV of `prepare promoters`).
    contigs
        Validation contigs or regions, on which the model was not trained; (): those held out for validation
        in the model's training.
    test_contigs
        Test contigs or regions, which were used neither for training nor validation; (): those held out for
        testing in the model's training, if the genome has them.
    stride, suppress, within
        Bases of a row, or distance of a promoter model's windows (None: 10), distance to which a call silences others, and the
        largest distance of a correct call to its TSS, in bp.
    batch_size, device, threads
        As for `score_promoters`.

    Raises
    ------
    UsageError, DataError, ModelError
        As for `score_promoters`; no contigs are given and the model's record has none; the contigs have no
        annotated TSS; fewer than 10 calls are correct, or fewer are wrong; a contig is in both lists.
    """
    target = find_target(path, output)
    model = load_scan_model(target)
    assert model.path is not None
    step = stride or STRIDE
    lengths = scan_fasta(reference)
    held_out = _held_out_regions(model, lengths, reference)
    contigs = contig_names(contigs) or held_out["valid"]
    test = contig_names(test_contigs) or held_out["test"]
    if not contigs:
        raise UsageError(
            f"{model.name}: the contigs held out of its training are not known; give them (--contig)"
        )

    if both := sorted(set(contigs) & set(test)):
        raise UsageError(
            f"contig {both[0]} must not be both a validation and a test contig"
        )

    def scan(names: Sequence[str]) -> Scan:
        """Return the scored windows of contigs and regions by track."""
        tracks: dict[Track, Points] = {}
        places = find_places(names, None, lengths, reference, names=None)
        for contig, by_strand in scan_contigs(
            reference,
            selected_records(lengths, places),
            model,
            stride=stride,
            places=places,
            batch_size=batch_size,
            device=device,
        ):
            for strand, windows in by_strand.items():
                if len(windows.scores):
                    tracks[contig, strand] = windows

        return Scan(tracks, step)

    with computation("float32", device, threads):
        valid = scan(contigs)
        sites = sites_of(promoters, valid)
        if not any(map(len, sites.values())):
            raise DataError(
                f"{promoters}: no TSS on the scanned sequence of {', '.join(contigs)}"
            )

        by_track = find_track_calls(valid, suppress)
        calls = match_tracks(by_track, sites, within)
        fitted = fit_calls(
            calls,
            stride=step,
            suppress=suppress,
            within=within,
            megabases=valid.megabases,
            fitted_on={
                "contigs": list(contigs),
                "promoters_sha256": checksum(promoters),
            },
        )
        if fitted is None:
            correct = int((calls.gaps >= 0).sum())
            raise DataError(
                f"{promoters}: of {len(calls.gaps):,} calls on {', '.join(contigs)}, {correct:,} are within "
                f"{within} bp of a TSS; the map needs at least {LEAST} such calls, and {LEAST} others"
            )

        metrics: dict[str, Any] = {"valid": _average_precision(by_track, sites)}
        if test:
            log(f"measuring the calls on the test contigs {', '.join(test)}")
            metrics["test"] = _test_metrics(scan(test), promoters, fitted)
        else:
            log(
                "no test contigs are known: the calls are measured on the validation contigs only"
            )

    stored = model.path / METRICS
    others = read_object(stored) if stored.is_file() else {}
    with changed_file(model.path, FILE, output) as file:
        write_calibration(file, fitted, model.sha256)
        write_json(file.with_name(METRICS), {**others, "calls": metrics})

    log(
        f"{output or model.path}: expected precision of {len(calls.gaps):,} calls on {', '.join(contigs)}"
    )
    return fitted


def _average_precision(
    calls: Mapping[Track, Points], sites: Mapping[Track, Integers]
) -> dict[str, Any]:
    """Return the average precision of calls within each of `DISTANCES`."""
    values = {}
    for distance in DISTANCES:
        curve = match_tracks(calls, sites, distance).curve
        values[f"average_precision_within_{distance}_bp"] = curve.average_precision
    return values


def _test_metrics(scan: Scan, promoters: Path, fitted: CallPrecision) -> dict[str, Any]:
    """Return metrics of the calls that `call-promoters` writes by default; empty without annotated TSSs."""
    sites = sites_of(promoters, scan)
    if not any(map(len, sites.values())):
        log(
            f"warning: {promoters}: no TSS on the test contigs: their calls are not measured"
        )
        return {}

    by_track = find_track_calls(scan, fitted.suppress)
    calls = match_tracks(by_track, sites, fitted.within)
    threshold = fitted.scores[fitted.best()]
    selected = calls.scores >= threshold
    metrics = _average_precision(by_track, sites)
    metrics["tss"] = len(calls.site_blocks)
    metrics["n"] = int(selected.sum())
    metrics["within_bp"] = fitted.within
    if selected.any():
        correct = calls.gaps[selected] >= 0
        metrics["precision"] = float(correct.mean())
        metrics["recall"] = int(correct.sum()) / len(calls.site_blocks)
        names = (
            "expected_precision",
            "expected_precision_low",
            "expected_precision_high",
        )
        for name, values in zip(names, fitted(calls.scores), strict=True):
            metrics[name] = float(values[selected].mean())

    metrics["threshold"] = threshold
    return metrics


def _held_out_regions(
    model: ScanModel, lengths: Mapping[str, int], reference: Path
) -> dict[str, list[str]]:
    """Return the contigs and regions that the model's training held out for validation and for testing.

    There are none if this is not recorded, or the genome lacks some.
    """
    assert model.path is not None
    names: dict[str, list[str]] = {"exclude": [], "valid": [], "test": []}
    configuration = read_object(model.path / RECORD).get("configuration") or {}
    try:
        genome = parse_config({"genome": configuration.get("genome", {})}).genome
        named = find_named(genome, lengths, load_assembly(genome.assembly))
    except ConfigError as error:
        log(
            f"{reference}: the contigs held out of the model's training are not found: {error}"
        )
        return names

    for region in named:
        interval = region.interval
        name = interval.contig
        if len(interval) < lengths[name]:
            name = format_named_region(interval)

        names[region.kind].append(name)

    return names
