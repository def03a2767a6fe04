"""Calls of promoters along a FASTA file: `bigbird_dna.call_promoters`, and the precision expected of them.

Commands `call-promoters` and `model calibrate`. Both scan with the same windows, so that the precision
of a call is that of validation calls made in the same way.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bigbird_dna.calibration.call_precision import (
    FILE,
    CallPrecision,
    estimate_calls,
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
from bigbird_dna.config.section import CalibrationMethod
from bigbird_dna.console import ProgressBar, log
from bigbird_dna.disk.atomic import checksum, write_json
from bigbird_dna.disk.json_files import read_mapping
from bigbird_dna.disk.outputs import command_line, provenance
from bigbird_dna.errors import (
    ConfigError,
    DataError,
    ModelError,
    UsageError,
    check_at_least_one,
    check_choice,
    check_fraction,
)
from bigbird_dna.genome.assembly import load_assembly
from bigbird_dna.genome.fasta import readable, scan_fasta
from bigbird_dna.genome.intervals import Places, contig_names, find_places
from bigbird_dna.genome.sequence import Interval, Intervals, Strand
from bigbird_dna.genome.splits import find_named, format_named_region
from bigbird_dna.metrics.auroc import ENDS
from bigbird_dna.model.catalog import changed_file, find_target, stored_name
from bigbird_dna.model.inference import (
    choose_device,
    choose_precision,
    cpu_threads,
    inference,
)
from bigbird_dna.model.model import METRICS, LoadedModel, calibration_of
from bigbird_dna.model.promoter import LoadedPromoterModel
from bigbird_dna.model.weights import RECORD
from bigbird_dna.scoring.promoters import check_records, warn_of_short_records
from bigbird_dna.scoring.scan import (
    BOTH_STRANDS,
    STRIDE,
    ScanModel,
    ScoredWindow,
    count_scores,
    each_row,
    load_scan_model,
    scan_records,
    scores_by_strand,
)
from bigbird_dna.scoring.writers import (
    CALL_FORMATS,
    STRANDS,
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
    check_at_least_one({"batch_size": batch_size, "threads": threads})
    if fdr is not None:
        check_fraction("fdr", fdr)
    check_fraction("max_n", max_n)
    check_choice("strand", strand, STRANDS)
    chosen_device = choose_device(device)
    precision, stated_precision = choose_precision(
        precision, chosen_device, narrow=False
    )

    scan_model = load_scan_model(model)
    expected = call_precision_of(scan_model)
    least = _lowest_score(expected, fdr)
    stride = expected.stride if isinstance(scan_model, LoadedPromoterModel) else None
    source = "standard input" if str(fasta) == "-" else str(fasta)
    strands = STRANDS[strand]

    options = {
        "--format": format,
        "--fdr": fdr,
        "--strand": strand,
        "--contig": list(contigs),
        "--max-n": max_n,
        "--precision": stated_precision,
    }
    arguments = [stored_name(scan_model.path), fasta]
    command = command_line("call-promoters", arguments, options)
    meaning = (
        f"probability of an annotated TSS of the strand within {expected.within} bp, which no better call "
        f"took; calls are {expected.suppress} bp apart, from windows every {expected.stride} bp"
    )
    origin = {**provenance(scan_model.sha256, command), "precision": meaning}

    with (
        cpu_threads(threads),
        inference(precision, chosen_device),
        readable(fasta) as file,
    ):
        _, selected, _ = check_records(file, source, scan_model, contigs, None, format)
        warn_of_short_records([*selected.values()], scan_model, max_n, is_omitted=True)
        batches = scan_records(
            file,
            selected,
            scan_model,
            stride=stride,
            strands=strands,
            max_n=max_n,
            batch_size=batch_size,
            device=device,
        )
        total = len(strands) * count_scores(selected.values(), scan_model, stride)
        scored = written = 0
        with (
            open_writer(path, format, origin, COLUMNS) as writer,
            ProgressBar("scoring", total, "scores") as bar,
        ):
            rows = each_row(batches, bar)
            for contig, record in groupby(rows, key=attrgetter("contig")):
                calls: list[tuple[int, Strand, float]] = []
                for one, windows in scored_windows(record, strands).items():
                    scored += len(windows.scores)
                    found = find_calls(windows, expected.suppress, one)
                    for position, score in zip(*found, strict=True):
                        if score >= least:
                            calls.append((int(position), one, float(score)))
                written += len(calls)
                writer.write(_cells(contig, *call, expected) for call in sorted(calls))
    return CallCounts(len(selected), scored, written)


def scored_windows(
    record: Iterable[ScoredWindow], strands: Sequence[Strand] = BOTH_STRANDS
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
        return expected.best().score
    if fdr == 1:
        return 0.0
    rate = expected.at_rate(fdr)
    if rate is None:
        raise UsageError(
            f"fdr {fdr}: not reached: the highest scores have an expected false-discovery rate of "
            f"{expected.expected_fdr[0]:.3g}; give a larger rate, or 1 for all calls"
        )
    return rate.score


def _cells(
    contig: str, position: int, strand: Strand, score: float, expected: CallPrecision
) -> tuple[Any, ...]:
    """Return the cells of `COLUMNS`: the score is the expected precision, with its 95 % interval."""
    start, end = position, position + 1
    name = f"{contig}:{start}-{end}({strand})"
    precision, low, high = (float(value) for value in expected(score))
    interval = np.array([low, high, score], np.float32).tolist()
    return (contig, start, end, name, precision, strand, "", *interval)


# The expected precision


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
    method: CalibrationMethod = "auto",
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
        Validation contigs, on which the model was not trained; (): the contigs and regions held out for
        validation in the model's training, or the contigs of its calibration.
    test_contigs
        Test contigs, which were used neither for training nor validation; (): the contigs and regions held
        out for testing in the model's training, if the genome has them; "none": no test.
    stride, suppress, within
        Distance of a promoter model's windows (None: 10), distance to which a call silences others, and the
        largest distance of a correct call to its TSS, in bp.
    method
        As for `calibrate_promoter`.
    batch_size, device, threads
        As for `score_promoters`.

    Raises
    ------
    UsageError, DataError, ModelError
        As for `score_promoters`; no contigs are given and the model's calibration has no list; the contigs
        have no annotated TSS; fewer than 10 calls are correct, or fewer are wrong; a contig is in both lists.
    """
    sizes = {"stride": stride, "suppress": suppress, "within": within}
    check_at_least_one({**sizes, "batch_size": batch_size, "threads": threads})
    found = find_target(path, output)
    model = load_scan_model(found)
    assert model.path is not None
    held_out = _held_out(model, reference)
    chosen = contig_names(contigs) or (*held_out["valid"],) or _calibrated_on(model)
    test = (
        ()
        if (wanted := contig_names(test_contigs)) == ("none",)
        else wanted or (*held_out["test"],)
    )
    if both := sorted(set(chosen) & set(test)):
        raise UsageError(
            f"contig {both[0]} must not be both a validation and a test contig"
        )
    if isinstance(model, LoadedPromoterModel):
        step = stride or STRIDE
    elif stride is None:
        step = model.settings.bin
    else:
        raise UsageError(
            f"stride {stride}: {model.name} scores bins of {model.settings.bin} bp"
        )
    lengths = scan_fasta(reference)
    computing = {"batch_size": batch_size, "device": device}
    with cpu_threads(threads), inference("float32", choose_device(device)):
        places = _scanned_places(chosen, held_out["valid"], lengths, reference)
        valid = _scan(model, reference, lengths, places, step, **computing)
        sites = sites_of(promoters, valid)
        if not any(map(len, sites.values())):
            raise DataError(
                f"{promoters}: no TSS on the scanned sequence of {', '.join(chosen)}"
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
                "contigs": list(chosen),
                "promoters_sha256": checksum(promoters),
                "method": method,
            },
            method=method,
        )
        if fitted is None:
            correct = int((calls.gaps >= 0).sum())
            raise DataError(
                f"{promoters}: of {len(calls.gaps):,} calls on {', '.join(chosen)}, {correct:,} are within "
                f"{within} bp of a TSS; the map needs at least {LEAST} such calls, and {LEAST} others"
            )
        metrics: dict[str, Any] = {"valid": _average_precision(by_track, sites)}
        if test:
            log(f"measuring the calls on the test contigs {', '.join(test)}")
            places = _scanned_places(test, held_out["test"], lengths, reference)
            tested = _scan(model, reference, lengths, places, step, **computing)
            metrics["test"] = _test_metrics(tested, promoters, fitted)
        elif not wanted:
            log(
                "no test contigs are known: the calls are measured on the validation contigs only"
            )
    stored = (
        read_mapping(model.path / METRICS) if (model.path / METRICS).is_file() else {}
    )
    with changed_file(model.path, FILE, output) as place:
        write_calibration(place, fitted, model.sha256)
        write_json(place.with_name(METRICS), {**stored, "calls": metrics})
    log(
        f"{output or model.path}: expected precision of {len(calls.gaps):,} calls on {', '.join(chosen)}"
    )
    if "precision" in metrics.get("test", {}):
        log(f"test contigs {', '.join(test)}: {_test_text(metrics['test'])}")
    return fitted


def _average_precision(
    calls: Mapping[Track, Points], sites: Mapping[Track, Integers]
) -> dict[str, float]:
    """Return the average precision of calls within each of `DISTANCES`."""
    return {
        f"average_precision_within_{distance}_bp": match_tracks(
            calls, sites, distance
        ).curve.average_precision
        for distance in DISTANCES
    }


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
    threshold = fitted.best().score
    selected = calls.scores >= threshold
    metrics: dict[str, Any] = _average_precision(by_track, sites)
    metrics |= {
        "tss": len(calls.site_blocks),
        "n": int(selected.sum()),
        "within_bp": fitted.within,
    }
    if selected.any():
        estimates = estimate_calls(calls, fitted(calls.scores), selected)
        for name, estimate in zip(
            ("expected_precision", "precision", "recall"), estimates, strict=True
        ):
            metrics |= {
                f"{name}{end}": value for end, value in zip(ENDS, estimate, strict=True)
            }
    return {
        name: value
        for name, value in {**metrics, "threshold": threshold}.items()
        if value == value
    }


def _test_text(metrics: Mapping[str, Any]) -> str:
    average = [
        f"{metrics[f'average_precision_within_{bp}_bp']:.3f} within {bp} bp"
        for bp in DISTANCES
    ]
    expected, realized, recall = (
        metrics[name] for name in ("expected_precision", "precision", "recall")
    )
    return (
        f"average precision {', '.join(average)}; {metrics['n']:,} calls, expected precision "
        f"{expected:.3f}, realized {realized:.3f}, recall {recall:.3f}"
    )


def _held_out(model: ScanModel, reference: Path) -> dict[str, dict[str, Interval]]:
    """Return the contigs and regions that the model's training held out, by split and name; none if this is
    not recorded, or the genome lacks some."""
    assert model.path is not None
    path = model.path / RECORD
    configuration = read_mapping(path).get("configuration") if path.is_file() else None
    if not isinstance(configuration, Mapping) or "genome" not in configuration:
        return {"valid": {}, "test": {}}
    lengths = scan_fasta(reference)
    try:
        genome = parse_config({"genome": configuration["genome"]}).genome
        named = [
            (one.kind, one.interval)
            for one in find_named(genome, lengths, load_assembly(genome.assembly))
        ]
    except ConfigError as error:
        log(
            f"{reference}: the contigs held out of the model's training are not found: {error}"
        )
        named = []
    return {
        split: {
            one.contig
            if len(one) == lengths[one.contig]
            else format_named_region(one): one
            for kind, one in named
            if kind == split
        }
        for split in ("valid", "test")
    }


def _calibrated_on(model: ScanModel) -> tuple[str, ...]:
    contigs = calibration_of(model).fitted_on.get("contigs")
    if not isinstance(contigs, list):
        raise UsageError(
            f"{model.name}: its calibration lists no validation contigs; give them (--contig)"
        )
    return tuple(map(str, contigs))


def _scanned_places(
    names: Sequence[str],
    held_out: Mapping[str, Interval],
    lengths: Mapping[str, int],
    reference: Path,
) -> Places | None:
    """Return the held-out regions if all of them, and nothing else, are named; else the named contigs."""
    if not names or held_out.keys() != set(names):
        return find_places(names, None, lengths, reference, names=None)
    regions = (
        (one.contig, Intervals(np.array([one.start]), np.array([one.end])))
        for one in held_out.values()
    )
    return Places(Intervals.joined(regions), str)


def _scan(
    model: ScanModel,
    reference: Path,
    lengths: Mapping[str, int],
    places: Places | None,
    stride: int,
    **computing: Any,
) -> Scan:
    """Return the scored windows by track."""
    selected = {
        name: length
        for name, length in lengths.items()
        if places is None or places.on(name)
    }
    warn_of_short_records([*selected.values()], model, 0.25, is_omitted=True)
    step = stride if isinstance(model, LoadedPromoterModel) else None
    batches = scan_records(
        reference, selected, model, stride=step, places=places, **computing
    )
    tracks: dict[Track, Points] = {}
    with ProgressBar("scoring", None, "scores") as bar:
        rows = each_row(batches, bar)
        for contig, record in groupby(rows, key=attrgetter("contig")):
            for strand, windows in scored_windows(record).items():
                if len(windows.scores):
                    tracks[contig, strand] = windows
    return Scan(tracks, stride)
