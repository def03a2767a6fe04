"""Chromatin tracks over regions: `bigbird_dna.predict_tracks` and the command of that name."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from itertools import accumulate, islice
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, cast, get_args

import numpy as np
import numpy.typing as npt

from bigbird_dna.console import progress
from bigbird_dna.disk.outputs import Destination, command_line, provenance
from bigbird_dna.disk.shards import contents
from bigbird_dna.errors import UsageError, check_choice, check_fraction
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.region_filter import contig_names, find_places
from bigbird_dna.model.chromatin import LoadedChromatinModel
from bigbird_dna.model.directory import load_chromatin_model
from bigbird_dna.model.inference import said_precision
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.model.shared_windows import Predictor
from bigbird_dna.scoring.formats import (
    TRACK_FORMATS,
    Formats,
    bed_fields,
    check_contig,
    write_bigwig,
    write_parquet,
    write_table,
)
from bigbird_dna.scoring.region_scores import (
    PredictedRegion,
    Region,
    Summary,
    bins_of,
    check_disjoint,
    each_region,
    predict_regions,
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
    open_source,
    write_scores,
)
from bigbird_dna.training.initialization import model_files

# Axes: T tracks that are written.

_GROUP_VALUES = 1 << 22  # of a Parquet row group, the part of the result that its writer holds

_PLACES = ("contig", "start", "end", "name")
_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "tsv": (*_PLACES, "note"),
    "bed": (*_PLACES, "score", "strand", "note"),
    "parquet": (*_PLACES, "note"),
}
"""Columns of a table before those of the tracks."""


class PredictionCounts(NamedTuple):
    """Regions read, tracks of each, and how many regions were not scored."""

    regions: int
    tracks: int
    not_scored: int


def predict_tracks(
    model: LoadedModel | Path | str,
    regions: Path | str,
    reference: Path | str,
    output: Path | str | None = None,
    *,
    aliases: Path | str | None = None,
    tracks: str | None = None,
    summary: str = "max",
    middle: float = 0.0,
    contigs: Sequence[str] | str = (),
    format: str | None = None,
    max_n: float = 0.25,
    calibrated: bool = False,
    piece: str | None = None,
    precision: str = "float32",
    batch_size: int = 16,
    device: str = "auto",
    threads: int | None = None,
) -> PredictionCounts:
    """Write the probability that each region is in a peak of each track, mean of both strands.

    Parameters
    ----------
    model, regions, reference
        A chromatin model or its directory; BED, plain or compressed (0-based, half-open), "-": standard
        input; the FASTA of the regions, plain or bgzip, indexed.
    output
        File to write, whole or not at all; None or "-": standard output, as a pipe or a device to which
        rows go as they are made.
    format
        tsv, bed, bigwig (one track) or parquet (docs/formats.md); None: by the ending of `output`, or tsv.
    aliases
        File of contigs' other names, where the regions' are not the reference's (see docs/formats.md).
    tracks
        Tracks, groups or shell patterns, comma-separated; None: all.
    summary
        "max" or "mean" of the bins of a region longer than the model's bin.
    middle
        All bins in this middle part (0 to 1) of a window are predicted at once; 0: each in its own window.
    contigs
        Only the regions on these, by any name that their assembly knows; none: all.
    max_n
        Bins with a larger fraction of N in their window don't count.
    calibrated
        The probabilities after the model's calibration, bin by bin, before a region's are summed up.
    piece
        "3/8": the third of eight pieces with as many bins each, for `merge_shards`; `output` is its file,
        whose ending says nothing. None: all regions.
    precision
        What the model computes in: float32, bfloat16, or float16 (GPUs). The last two are faster where the
        device has them, and less exact; what is written says so.
    batch_size, device, threads
        Windows run together; auto, cpu or cuda; CPU threads. They change speed and memory only.

    Raises
    ------
    UsageError
        An argument is out of its range, the output can't be written, no track fits, or several for a bigWig;
        a track is called as another column of a table.
    DataError, ModelError
        A file can't be read (the text names the line); the reference has the contig of no region, or none of
        `contigs`; there is no chromatin model, or it has no calibration.

    A region that can't be predicted has no figures, and a note that says why.
    """
    scorer = TrackScorer(
        model,
        regions,
        reference,
        None if aliases is None else Path(aliases),
        tracks,
        summary,
        middle,
        contig_names(contigs),
        max_n,
        calibrated,
    )
    compute = ComputeOptions(precision, batch_size, device, threads)
    counts = write_scores(scorer, Output(output, format, piece), compute)
    return PredictionCounts(counts["regions"], counts["tracks"], counts["not scored"])


def _write_tsv(path: Destination, predicted: Iterable[PredictedRegion], header: OutputHeader) -> None:
    tracks = len(header.columns)
    rows = (
        "\t".join([_place(region), note, *_figures(values, tracks)]) for region, values, note in predicted
    )
    write_table(path, header.origin, (*_COLUMNS["tsv"], *header.columns), rows)


def _write_bed(path: Destination, predicted: Iterable[PredictedRegion], header: OutputHeader) -> None:
    """The score is that of the largest probability of the tracks."""
    tracks = len(header.columns)

    def rows() -> Iterator[str]:
        for region, values, note in predicted:
            largest = None if values is None else float(values.max())
            yield "\t".join([bed_fields(_place(region), largest, "."), note, *_figures(values, tracks)])

    write_table(path, header.origin, (*_COLUMNS["bed"], *header.columns), rows())


def _write_parquet(path: Destination, predicted: Iterable[PredictedRegion], header: OutputHeader) -> None:
    """The columns of the TSV, null where it has `.`."""
    places: dict[str, type] = {"contig": str, "start": int, "end": int, "name": str}
    unscored = np.full(len(header.columns), np.nan, np.float32)

    def arrays(group: list[PredictedRegion]) -> Iterator[tuple[Any, Any]]:
        for place in range(len(places)):
            yield [region[place] for region, _, _ in group], None
        yield [None if note == "." else note for _, _, note in group], None
        values = np.stack([unscored if row is None else row for _, row, _ in group])
        missing = np.array([row is None for _, row, _ in group])
        for column in values.T:
            yield column, missing

    columns = {**places, "note": str, **dict.fromkeys(header.columns, float)}
    height = max(_GROUP_VALUES // max(len(header.columns), 1), 1)
    write_parquet(path, header.origin, columns, predicted, height, arrays)


def _write_bigwig(path: Destination, predicted: Iterable[PredictedRegion], header: OutputHeader) -> None:
    """The one track's probabilities where regions are, in the order of the reference."""
    order = {contig: place for place, contig in enumerate(header.contigs)}
    found = sorted(
        (order[region.contig], region.start, region.end, float(values[0]))
        for region, values, _ in predicted
        if values is not None
    )
    contigs = list(header.contigs)
    values = ((contigs[place], start, end, value) for place, start, end, value in found)
    write_bigwig(path, values, header.contigs, "region")


def _place(region: Region) -> str:
    return f"{region.contig}\t{region.start}\t{region.end}\t{region.name}"


def _figures(values: npt.NDArray[np.float32] | None, tracks: int) -> list[str]:
    return ["."] * tracks if values is None else [f"{value:.6f}" for value in values.tolist()]


WRITERS: dict[str, Writer[PredictedRegion]] = {
    "tsv": _write_tsv,
    "bed": _write_bed,
    "bigwig": _write_bigwig,
    "parquet": _write_parquet,
}


def check_names(format: str, names: Iterable[str]) -> None:
    """`UsageError` if a track is called as a column of a format's table that says something of the regions.

    `strand` is one wherever tables are read, also of formats that don't write it.
    """
    taken = {*_COLUMNS[format], "strand"} if format in _COLUMNS else set()
    for name in names:
        if name in taken:
            raise UsageError(
                f"track {name!r}: in a table a column of that name says something else: leave the track out "
                "with --tracks, or write it alone as bigwig"
            )


@dataclass(frozen=True)
class TrackScorer(Scorer[LoadedChromatinModel, PredictedRegion]):
    """Regions of a BED file; see `predict_tracks`. Rows have values of the chosen tracks alone."""

    kind: ClassVar[str] = "predicted regions"
    formats: ClassVar[Formats] = TRACK_FORMATS
    default_format: ClassVar[str] = "tsv"
    writers: ClassVar[Mapping[str, Writer[Any]]] = WRITERS

    model: LoadedModel | Path | str
    regions: Path | str
    reference: Path | str
    aliases: Path | None
    tracks: str | None
    summary: str
    middle: float
    contigs: tuple[str, ...]
    max_n: float
    calibrated: bool

    def inputs(self) -> Sequence[object]:
        return self.model, self.regions, self.reference, self.aliases

    def check(self, target: Target) -> None:
        check_choice("summary", self.summary, get_args(Summary))
        check_fraction("middle", self.middle)
        check_fraction("max_n", self.max_n)

    def load(self) -> LoadedChromatinModel:
        return load_chromatin_model(self.model)

    def predictor(self, model: LoadedChromatinModel, batch_size: int, device: str) -> Predictor:
        options: dict[str, Any] = {"middle": self.middle, "batch_size": batch_size, "device": device}
        return calibrated_predictor(model, self.calibrated, **options)

    @contextmanager
    def open(self, model: LoadedChromatinModel, target: Target) -> Iterator[Job[PredictedRegion]]:
        columns = self._columns(model, target.format)
        names = [model.tracks[column].name for column in columns]
        together, size = model.bins_together(self.middle), model.settings.bin
        with (
            Reference(Path(self.reference), self.aliases) as reference,
            open_source(self.regions, target) as (path, stream),
        ):
            places = find_places(self.contigs, None, reference.contigs, reference.path, reference.names)

            def each() -> Iterator[Region]:
                for region in each_region(path, reference, places, stream):
                    check_contig(region.contig, target.format, path)
                    yield region

            @cache
            def sizes() -> list[int]:
                return [1 if region.fault else len(bins_of(region, size)) for region in each()]

            # Faults of the file are known before any work is done, unless it is worked on as it comes.
            known = _count(path, each(), target.format) if stream is None else None

            def rows(predict: Predictor, bins: range | None) -> Iterator[PredictedRegion]:
                asked, expected = (each(), known) if bins is None else _of_bins(each, sizes(), bins)
                found = predict_regions(
                    asked,
                    reference,
                    predict,
                    window=model.settings.window,
                    bin_size=size,
                    together=together,
                    summary=cast(Summary, self.summary),
                    max_n=self.max_n,
                )
                for region, values, note in progress(found, "predicting", expected, "regions"):
                    yield PredictedRegion(region, None if values is None else values[columns], note)

            def content() -> dict[str, str]:
                named = {path: "standard input" if str(self.regions) == "-" else str(self.regions)}
                files = model_files(model, self.calibrated)
                return contents(path, reference.path, reference.aliases, *files, names=named)

            origin = provenance(model.sha256, self._command(model, reference, target))
            header = OutputHeader(origin, reference.contigs, names)
            job = Job(header, content, lambda: sum(sizes()), rows)
            job.counts["tracks"] = len(names)
            yield job

    def _columns(self, model: LoadedChromatinModel, format: str) -> list[int]:
        """The chosen tracks; `UsageError` if the format can't hold them."""
        columns = model.columns(self.tracks)
        if format == "bigwig" and len(columns) != 1:
            raise UsageError(
                f"format bigwig holds one track, and these are {len(columns):,}: choose one with --tracks"
            )
        check_names(format, [model.tracks[column].name for column in columns])
        return columns

    def _command(self, model: LoadedChromatinModel, reference: Reference, target: Target) -> str:
        options: dict[str, object | None] = {"--reference": reference.path, "--aliases": reference.aliases}
        options |= {"--tracks": self.tracks}
        options |= {"--format": None if target.format == "tsv" else target.format, "--summary": self.summary}
        options |= {
            "--center-fraction": self.middle or None,
            "--contig": list(self.contigs),
            "--max-n": self.max_n,
        }
        options |= said_precision(target.precision)
        flags = {"--calibrated": self.calibrated}
        return command_line("predict-tracks", [model.path, self.regions], options, flags)

    def count(self, row: PredictedRegion, counts: Counter[str]) -> None:
        counts["regions"] += 1
        counts["not scored"] += row.probabilities is None

    @staticmethod
    def lines(row: PredictedRegion) -> Iterable[str]:
        values = [] if row.probabilities is None else map(repr, row.probabilities.tolist())
        return ("\t".join([_place(row.region), row.note, *values]),)

    @staticmethod
    def parse(line: str, header: OutputHeader) -> PredictedRegion:
        contig, start, end, name, note, *fields = line.split("\t")
        region, tracks = Region(contig, int(start), int(end), name), len(header.columns)
        if not fields and tracks:
            return PredictedRegion(region, None, note)
        if len(fields) != tracks:
            raise ValueError(f"{len(fields)} figures of {tracks} tracks")
        return PredictedRegion(region, np.array([float(field) for field in fields], np.float32), note)


def _count(path: Path, regions: Iterable[Region], format: str) -> int:
    """How many regions there are, which mustn't overlap in a bigWig."""
    if format != "bigwig":
        return sum(1 for _ in regions)
    found = list(regions)
    check_disjoint(path, found)
    return len(found)


def _of_bins(
    each: Callable[[], Iterator[Region]], sizes: Sequence[int], bins: range
) -> tuple[Iterator[Region], int]:
    """The regions of these sizes in bins whose first bin is one of `bins`, and how many they are."""
    *firsts, _ = accumulate(sizes, initial=0)
    first, last = bisect_left(firsts, bins.start), bisect_left(firsts, bins.stop)
    return islice(each(), first, last), last - first


merge = partial(merge_rows, TrackScorer)
"""The result of all shards of regions."""
