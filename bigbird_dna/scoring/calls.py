"""Calls of promoters along a FASTA file: `bigbird_dna.call_promoters`, and the precision expected of them.

Commands `call-promoters` and `model calibrate-calls`. Both scan with the same windows, so that the precision
of a call is that of validation calls made in the same way.
"""

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby, tee
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, NamedTuple, cast

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
    find_track_calls,
    match_tracks,
    sites_of,
    stream_calls,
)
from bigbird_dna.calibration.maps import LEAST, write_calibration
from bigbird_dna.config import CalibrationMethod, parse_config
from bigbird_dna.console import log
from bigbird_dna.disk.atomic import checksum, write_json
from bigbird_dna.disk.json_files import read_mapping
from bigbird_dna.disk.shards import contents
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
from bigbird_dna.genome.fasta import scan_fasta
from bigbird_dna.genome.intervals import contig_names
from bigbird_dna.genome.sequence import Interval, Strand
from bigbird_dna.genome.splits import find_named, format_named_region
from bigbird_dna.metrics.auroc import ENDS
from bigbird_dna.model.catalog import changed_file, find_target
from bigbird_dna.model.chromatin import Predictor
from bigbird_dna.model.inference import choose_device, cpu_threads, inference
from bigbird_dna.model.model import METRICS, LoadedModel, calibration_of
from bigbird_dna.model.weights import RECORD
from bigbird_dna.scoring.formats import (
    CALL_FORMATS,
    STRANDS,
    OutputHeader,
    TableRow,
    Writer,
    table_writers,
)
from bigbird_dna.scoring.promoters import ROW_GROUP, PromoterScorer
from bigbird_dna.scoring.scan import BOTH_STRANDS, ScoredWindow
from bigbird_dna.scoring.scorer import Job, Scorer, Target, write_scores
from bigbird_dna.scoring.window_source import (
    ScannedModel,
    load_scanned_model,
    scan_predictor,
    window_source,
)

INTERVAL = ("precision_low", "precision_high", "model_score")
"""Columns of calls after those that all tables have."""


class CallCounts(NamedTuple):
    """Number of records read, of scored windows on either strand, and of calls written."""

    records: int
    scored: int
    calls: int


class PromoterCall(NamedTuple):
    """A call at `position`, 0-based on the record's forward strand; `score` is the model's, uncalibrated.

    `precision` is the expected precision of calls with this score, with its 95 % interval.
    """

    contig: str
    position: int
    strand: Strand
    score: float
    precision: float
    low: float
    high: float


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
    shard: str | None = None,
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
    shard
        "3/8": the third of eight shards of about equal numbers of records, for `merge_shards`.

    Raises
    ------
    UsageError
        As for `score_promoters`; no score reaches `fdr`.
    DataError, ModelError
        As for `score_promoters`; the model has no `calls.json`, or that of another model.
    """
    scorer = CallScorer(model, fasta, max_n, False, fdr, strand, contig_names(contigs))
    counts = write_scores(
        scorer, output, format, shard, precision, batch_size, device, threads
    )
    return CallCounts(counts["records"], counts["scored"], counts["calls"])


def call_precision_of(model: LoadedModel) -> CallPrecision:
    """The expected precision in a model's directory; `ModelError` if missing, damaged or of another model."""
    path = None if model.path is None else model.path / FILE
    if path is None or not path.is_file():
        raise ModelError(
            f"{model.name}: the model has no expected precision of calls ({FILE}); "
            "`bigbird-dna model calibrate-calls` fits it to validation contigs"
        )
    return read_call_precision(path, model.sha256)


def scan_calls(
    windows: Iterable[ScoredWindow],
    *,
    suppress: int,
    strands: Sequence[Strand] = BOTH_STRANDS,
) -> Iterator[tuple[str, int, Strand, float]]:
    """Yield contig, TSS position, strand and score of the calls of scored windows, ascending on each contig.

    Windows ascend on each contig, those of `strands` adjacent; calls are those of `find_calls`. Records
    shorter than the window have none. Memory holds a few windows.
    """

    def points(
        rows: Iterable[ScoredWindow], strand: Strand
    ) -> Iterator[tuple[int, float | None]]:
        for row in rows:
            if row.strand == strand and row.tss is not None:
                yield row.tss, row.score

    for contig, rows in groupby(windows, key=attrgetter("contig")):
        streams = [
            stream_calls(points(copy, strand), suppress, strand)
            for strand, copy in zip(strands, tee(rows, len(strands)), strict=True)
        ]
        waiting: list[
            tuple[int, Strand, float]
        ] = []  # calls of one strand, ahead of the other
        for step in zip(*streams, strict=True):
            for strand, (_, found) in zip(strands, step, strict=True):
                waiting += [(position, strand, score) for position, score in found]
            known = min(below for below, _ in step)
            if waiting and min(waiting)[0] < known:
                yield from ((contig, *one) for one in sorted(waiting) if one[0] < known)
                waiting = [one for one in waiting if one[0] >= known]
        yield from ((contig, *one) for one in sorted(waiting))


def _table_row(call: PromoterCall) -> TableRow:
    start, end = call.position, call.position + 1
    name = f"{call.contig}:{start}-{end}({call.strand})"
    values = np.array([call.low, call.high, call.score], np.float32)
    return TableRow(
        call.contig, start, end, name, call.precision, call.strand, ".", values
    )


def _with_meaning(write: Writer[PromoterCall]) -> Writer[PromoterCall]:
    """Return a writer that also states what precision means, which shards keep in the header's `extra`."""
    return lambda path, rows, header: write(
        path,
        rows,
        header._replace(
            origin={**header.origin, "precision": header.extra["precision"]}
        ),
    )


WRITERS = {
    name: _with_meaning(write)
    for name, write in table_writers(
        _table_row, lambda _: ROW_GROUP, has_score=True
    ).items()
}


class CallWindows(PromoterScorer):
    """The windows whose scores are called."""

    lists_short: ClassVar[bool] = False


@dataclass(frozen=True)
class CallScorer(Scorer[ScannedModel, PromoterCall]):
    """Calls along the records of a FASTA file; see `call_promoters`."""

    kind = "calls"
    narrow = False
    command = "call-promoters"
    formats = CALL_FORMATS
    default_format = "bed"
    writers = WRITERS
    files = ()

    fdr: float | None
    strand: str
    contigs: tuple[str, ...]

    def check(self, target: Target) -> None:
        if self.fdr is not None:
            check_fraction("fdr", self.fdr)
        check_fraction("max_n", self.max_n)
        check_choice("strand", self.strand, STRANDS)

    def load(self, **computing: Any) -> tuple[ScannedModel, Predictor]:
        model = load_scanned_model(self.model)
        self._least(call_precision_of(model))
        return model, scan_predictor(model, False, **computing)

    def _least(self, precision: CallPrecision) -> float:
        """Return the lowest score of a call; `UsageError` if no score reaches the rate."""
        if self.fdr is None:
            return precision.best().score
        if self.fdr == 1:
            return 0.0
        found = precision.at_rate(self.fdr)
        if found is None:
            raise UsageError(
                f"fdr {self.fdr}: not reached: the highest scores have an expected false-discovery rate of "
                f"{precision.expected_fdr[0]:.3g}; give a larger rate, or 1 for all calls"
            )
        return found.score

    @contextmanager
    def open(self, model: ScannedModel, target: Target) -> Iterator[Job[PromoterCall]]:
        fitted, strands = call_precision_of(model), STRANDS[self.strand]
        least, fitted_in = self._least(fitted), Path(model.path or "", FILE)
        source, own = (
            window_source(model, fitted.stride),
            (self.strand, self.contigs, None, None),
        )
        scanned = CallWindows(
            self.model, self.source, self.max_n, False, fitted.stride, *own
        )
        options: dict[str, object | None] = {
            "--format": target.format,
            "--fdr": self.fdr,
        }
        options |= {"--strand": self.strand}
        options |= {"--contig": list(self.contigs), "--max-n": self.max_n}
        meaning = f"probability of an annotated TSS of the strand within {fitted.within} bp, which no better "
        meaning += f"call took; calls are {fitted.suppress} bp apart, from windows every {fitted.stride} bp"
        with scanned.open(model, target) as job:

            def records() -> list[str]:
                chosen = job.header.extra["places"]
                return [
                    name
                    for name in job.header.contigs
                    if chosen is None or name in chosen
                ]

            def windows_of(numbers: range) -> range:
                """Return the numbers of the windows of some of the records."""
                lengths = job.header.contigs
                counts = [source.count({name: lengths[name]}) for name in records()]
                return range(sum(counts[: numbers.start]), sum(counts[: numbers.stop]))

            def rows(
                predict: Predictor, numbers: range | None
            ) -> Iterator[PromoterCall]:
                windows = job.rows(
                    predict, None if numbers is None else windows_of(numbers)
                )
                counted = _counted(windows, job.counts)
                found = scan_calls(counted, suppress=fitted.suppress, strands=strands)
                for contig, position, strand, score in found:
                    if score >= least:
                        expected = (float(value) for value in fitted(score))
                        yield PromoterCall(contig, position, strand, score, *expected)

            header = OutputHeader(
                self.origin(model, target, options),
                job.header.contigs,
                INTERVAL,
                {"precision": meaning},
            )
            yield Job(
                header,
                lambda: job.content() | contents(fitted_in),
                lambda: len(records()),
                rows,
                job.counts,
            )

    def count(self, row: PromoterCall, counts: Counter[str]) -> None:
        counts["calls"] += 1

    @staticmethod
    def lines(row: PromoterCall) -> Iterable[str]:
        return (
            "\t".join([row.contig, str(row.position), row.strand, *map(repr, row[3:])]),
        )

    @staticmethod
    def parse(line: str, header: OutputHeader) -> PromoterCall:
        contig, position, strand, *numbers = line.split("\t")
        return PromoterCall(
            contig, int(position), cast(Strand, strand), *map(float, numbers)
        )


def _counted(
    windows: Iterable[ScoredWindow], counts: Counter[str]
) -> Iterator[ScoredWindow]:
    for window in windows:
        counts["scored"] += window.score is not None
        yield window


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
    model = load_scanned_model(found)
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
    predict = scan_predictor(
        model, False, None, stride, batch_size=batch_size, device=device
    )
    source, computing = (
        window_source(model, stride),
        inference("float32", choose_device(device)),
    )

    def scan(names: Sequence[str], regions: Mapping[str, Interval]) -> Scan:
        assert model.path is not None
        with TemporaryDirectory() as home:
            contigs, bed = tuple(names), None
            if regions.keys() == set(names):
                contigs, bed = (), Path(home, "held-out.bed")
                lines = (
                    f"{one.contig}\t{one.start}\t{one.end}\n"
                    for one in regions.values()
                )
                bed.write_text("".join(lines), encoding="utf-8")
            windows = CallWindows(
                model, reference, 0.25, False, stride, "both", contigs, bed, None
            )
            with windows.open(model, Target(model.path, "bed", None, "float32")) as job:
                return _read_scan(job.rows(predict, None), source.step)

    with cpu_threads(threads), computing:
        valid = scan(chosen, held_out["valid"])
        sites = sites_of(promoters, valid)
        if not any(map(len, sites.values())):
            raise DataError(
                f"{promoters}: no TSS on the scanned sequence of {', '.join(chosen)}"
            )
        by_track = find_track_calls(valid, suppress)
        calls = match_tracks(by_track, sites, within)
        fitted = fit_calls(
            calls,
            stride=source.step,
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
            metrics["test"] = _test_metrics(
                scan(test, held_out["test"]), promoters, fitted
            )
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


def _held_out(model: ScannedModel, reference: Path) -> dict[str, dict[str, Interval]]:
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


def _calibrated_on(model: ScannedModel) -> tuple[str, ...]:
    contigs = calibration_of(model).fitted_on.get("contigs")
    if not isinstance(contigs, list):
        raise UsageError(
            f"{model.name}: its calibration lists no validation contigs; give them (--contig)"
        )
    return tuple(map(str, contigs))


def _read_scan(windows: Iterable[ScoredWindow], stride: int) -> Scan:
    """Return the scored windows by track."""
    found: defaultdict[Track, tuple[Any, Any]] = defaultdict(
        lambda: (array("q"), array("d"))
    )
    for row in windows:
        if row.score is not None and row.tss is not None:
            positions, scores = found[row.contig, row.strand]
            positions.append(row.tss)
            scores.append(row.score)
    return Scan(
        {track: Points(*map(np.array, columns)) for track, columns in found.items()},
        stride,
    )
