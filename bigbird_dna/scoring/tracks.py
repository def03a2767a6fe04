"""Predict chromatin tracks for regions: `bigbird_dna.predict_tracks` and the command `predict-tracks`."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from itertools import accumulate, islice, pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast, get_args

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.console import progress
from bigbird_dna.disk.outputs import Destination
from bigbird_dna.errors import DataError, UsageError, check_choice, check_fraction
from bigbird_dna.genome.intervals import contig_names, find_places
from bigbird_dna.genome.reference import Reference
from bigbird_dna.model.chromatin import LoadedChromatinModel, Predictor, share_windows
from bigbird_dna.model.directory import load_chromatin_model
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.scoring.formats import (
    PLACE,
    TRACK_FORMATS,
    OutputHeader,
    TableRow,
    check_bigwig_contigs,
    check_contig,
    table_writers,
    write_bigwig,
)
from bigbird_dna.scoring.regions import Region, bed_regions
from bigbird_dna.scoring.scan import growing_batches
from bigbird_dna.scoring.scorer import (
    InputCheck,
    Job,
    Scorer,
    Target,
    calibrated_predictor,
    open_source,
    write_scores,
)

Summary = Literal["max", "mean"]

_FIRST_WINDOWS, _MOST_WINDOWS = 16, 256  # per batch of bins that are predicted together
_GROUP_VALUES = (
    1 << 22
)  # values per Parquet row group, which the writer holds in memory


class PredictedRegion(NamedTuple):
    """Probabilities (T,) of a region, None if it was not scored; `note` names edge cases and missing bins."""

    region: Region
    probabilities: NDArray[np.float32] | None
    note: str


def bins_of(region: Region, size: int) -> list[int]:
    """Return the starts of the bins that cover a region: adjacent bins, centered on the region.

    A region no longer than a bin has one bin with the same center.
    """
    length = region.end - region.start
    count = max(1, -(-length // size))
    first = region.start + (length - count * size) // 2
    return [first + number * size for number in range(count)]


def predict_regions(
    regions: Iterable[Region],
    reference: Reference,
    predict: Predictor,
    *,
    window: int,
    bin_size: int,
    together: int = 1,
    summary: Summary = "max",
    max_n: float = 0.25,
    bins_at_once: int = 4096,
) -> Iterator[PredictedRegion]:
    """Yield the probabilities of every region: those of its bin, or the maximum or mean over several bins.

    Bins whose window has a fraction of N above `max_n` (bases beyond the contig count as N) are left out. A
    region without other bins is not scored, nor is one with a `fault`, which becomes its note. `predict`
    returns (W, K, T) for K = `together` bins per window; `share_windows` assigns bins to windows.
    """
    reduce, initial = (np.maximum, -np.inf) if summary == "max" else (np.add, 0.0)
    binned = (
        (region, [] if region.fault else bins_of(region, bin_size))
        for region in regions
    )
    most = min(_MOST_WINDOWS * together, bins_at_once)
    first = _FIRST_WINDOWS * together
    for batch in growing_batches(
        binned, lambda one: len(one[1]), first, most, bins_at_once
    ):
        owner = np.repeat(np.arange(len(batch)), [len(starts) for _, starts in batch])
        contigs = [region.contig for region, starts in batch for _ in starts]
        all_starts = np.array(
            [start for _, starts in batch for start in starts], np.int64
        )
        shared = share_windows(contigs, all_starts, bin_size, window, together)
        at_edge = set(owner[shared.reach_beyond(reference)[shared.owner]].tolist())
        scored = np.zeros(len(batch), np.int64)
        found: NDArray[np.float64] | None = None
        for numbers, values in shared.predicted(reference, predict, max_n):
            if found is None:
                found = np.full((len(batch), values.shape[1]), initial)
            reduce.at(found, owner[numbers], values)
            scored += np.bincount(owner[numbers], minlength=len(batch))
        for number, (region, starts) in enumerate(batch):
            left_out = len(starts) - int(scored[number])
            notes = (
                ["contig_edge"]
                if number in at_edge
                else [region.fault]
                if region.fault
                else []
            )
            if left_out:
                notes.append(
                    f"too_many_n={left_out}bins" if scored[number] else "too_many_n"
                )
            row = None
            if found is not None and scored[number]:
                row = found[number] / (scored[number] if summary == "mean" else 1)
                row = row.astype(np.float32)
            yield PredictedRegion(region, row, ";".join(notes) or ".")


class PredictionCounts(NamedTuple):
    """Number of regions read, number of tracks, and number of regions that were not scored."""

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
    center_fraction: float = 0.0,
    contigs: Sequence[str] | str = (),
    format: str | None = None,
    max_n: float = 0.25,
    calibrated: bool = False,
    shard: str | None = None,
    precision: str = "auto",
    batch_size: int = 16,
    device: str = "auto",
    threads: int | None = None,
) -> PredictionCounts:
    """Write the probability that each region is in a peak of each track, averaged over both strands.

    Parameters
    ----------
    model, regions, reference
        A chromatin model or its directory; a BED file (plain or compressed, 0-based, half-open), or "-" for
        standard input; the indexed FASTA of the regions, plain or bgzip.
    output, format
        As for `score_promoters`; the formats are tsv, bed, bigwig (one track) and parquet.
    aliases
        File of alternative contig names, if the regions use other names (docs/files/reference.md).
    tracks
        Tracks, groups or shell patterns, comma-separated; None: all.
    summary
        "max" or "mean" over the bins of a region longer than the model's bin.
    center_fraction
        Central fraction (0 to 1) of a window whose bins are predicted together; 0: one window per bin.
    contigs
        Only regions on these contigs, by any name in the assembly's table of names; empty: all.
    max_n
        Bins with a larger fraction of N in their window are ignored.
    calibrated
        Calibrate the probabilities of each bin before the bins of a region are summarized.
    shard, precision, batch_size, device, threads
        As for `score_promoters`; all shards have the same number of bins.

    Raises
    ------
    UsageError
        An argument is out of range; the output cannot be written; no track matches, or several match for a
        bigWig; a track has the name of another column of the table.
    DataError, ModelError
        A file cannot be read (the message names the line); the reference has none of the regions' contigs or
        none of `contigs`; the model is not a chromatin model, or has no calibration.

    A region that cannot be predicted has no values, and a note gives the reason.
    """
    names = None if aliases is None else Path(aliases)
    own = (names, tracks, summary, center_fraction, contig_names(contigs))
    scorer = TrackScorer(model, regions, max_n, calibrated, reference, *own)
    counts = write_scores(
        scorer, output, format, shard, precision, batch_size, device, threads
    )
    return PredictionCounts(counts["regions"], counts["tracks"], counts["not scored"])


def _table_row(row: PredictedRegion) -> TableRow:
    contig, start, end, name, *_ = row.region
    largest = (
        None if row.probabilities is None else float(row.probabilities.max(initial=0))
    )
    return TableRow(contig, start, end, name, largest, ".", row.note, row.probabilities)


def _write_bigwig(
    path: Destination, predicted: Iterable[PredictedRegion], header: OutputHeader
) -> None:
    """Write the probabilities of the single track for each region, in the order of the reference."""
    contigs = list(header.contigs)
    order = {contig: place for place, contig in enumerate(contigs)}
    found = sorted(
        (order[region.contig], region.start, region.end, float(values[0]))
        for region, values, _ in predicted
        if values is not None
    )
    values = ((contigs[place], start, end, value) for place, start, end, value in found)
    write_bigwig(path, values, header.contigs, "region")


WRITERS = {
    **table_writers(
        _table_row,
        lambda tracks: max(_GROUP_VALUES // max(tracks, 1), 1),
        has_score=False,
    ),
    "bigwig": _write_bigwig,
}


@dataclass(frozen=True)
class TrackScorer(Scorer[LoadedChromatinModel, PredictedRegion]):
    """Regions of a BED file; see `predict_tracks`. Rows have values of the selected tracks only."""

    kind = "predicted regions"
    command = "predict-tracks"
    formats = TRACK_FORMATS
    writers = WRITERS
    files = ("reference", "aliases")

    reference: Path | str
    aliases: Path | None
    tracks: str | None
    summary: str
    center_fraction: float
    contigs: tuple[str, ...]

    def check(self, target: Target) -> None:
        check_choice("summary", self.summary, get_args(Summary))
        check_fraction("center_fraction", self.center_fraction)
        check_fraction("max_n", self.max_n)

    def load(self, **computing: Any) -> tuple[LoadedChromatinModel, Predictor]:
        model = load_chromatin_model(self.model)
        return model, calibrated_predictor(
            model, self.calibrated, center_fraction=self.center_fraction, **computing
        )

    @contextmanager
    def open(
        self, model: LoadedChromatinModel, target: Target
    ) -> Iterator[Job[PredictedRegion]]:
        columns = self._columns(model, target.format)
        names = [model.tracks[column].name for column in columns]
        together, size = model.bins_together(self.center_fraction), model.settings.bin
        with (
            Reference(Path(self.reference), self.aliases) as reference,
            open_source(self.source, target) as (path, stream),
        ):
            InputCheck(model, reference.path).read(reference)
            places = find_places(
                self.contigs, None, reference.contigs, reference.path, reference.names
            )

            def each() -> Iterator[Region]:
                for region in bed_regions(path, reference, places, stream):
                    check_contig(region.contig, target.format, path)
                    yield region

            @cache
            def first_bins() -> list[int]:
                """Number of bins before each region, followed by the total number of bins."""
                sizes = (
                    1 if region.fault else len(bins_of(region, size))
                    for region in each()
                )
                return list(accumulate(sizes, initial=0))

            # Check the whole file before any computation, unless it is processed as a stream.
            known = None if stream is not None else _count(path, each(), target.format)

            def rows(
                predict: Predictor, bins: range | None
            ) -> Iterator[PredictedRegion]:
                asked, expected = each(), known
                if bins is not None:
                    first, last = (
                        bisect_left(first_bins()[:-1], end)
                        for end in (bins.start, bins.stop)
                    )
                    asked, expected = islice(asked, first, last), last - first
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
                for region, values, note in progress(
                    found, "predicting", expected, "regions"
                ):
                    yield PredictedRegion(
                        region, None if values is None else values[columns], note
                    )

            origin = self.origin(model, target, self._options(reference, target))
            header = OutputHeader(origin, reference.contigs, names)
            content = partial(
                self.content, model, path, reference.path, reference.aliases
            )
            job = Job(header, content, lambda: first_bins()[-1], rows)
            job.counts["tracks"] = len(names)
            yield job

    def _columns(self, model: LoadedChromatinModel, format: str) -> list[int]:
        """Return the selected tracks; `UsageError` if the format cannot store them.

        In a table, no track may have the name of another column; `strand` is one in every table reader.
        """
        columns = model.columns(self.tracks)
        if format == "bigwig":
            if len(columns) != 1:
                raise UsageError(
                    f"format bigwig stores one track, found {len(columns):,}; select one with --tracks"
                )
            return columns
        taken = {*PLACE, "note", "strand", *(["score"] if format == "bed" else [])}
        for column in columns:
            if (name := model.tracks[column].name) in taken:
                raise UsageError(
                    f"track {name!r} has the name of another column of the table; exclude the track "
                    "with --tracks, or write it alone as bigwig"
                )
        return columns

    def _options(
        self, reference: Reference, target: Target
    ) -> dict[str, object | None]:
        return {
            "--reference": reference.path,
            "--aliases": reference.aliases,
            "--tracks": self.tracks,
            "--format": None if target.format == "tsv" else target.format,
            "--summary": self.summary,
            "--center-fraction": self.center_fraction or None,
            "--contig": list(self.contigs),
            "--max-n": self.max_n,
        }

    def count(self, row: PredictedRegion, counts: Counter[str]) -> None:
        counts["regions"] += 1
        counts["not scored"] += row.probabilities is None

    @staticmethod
    def lines(row: PredictedRegion) -> Iterable[str]:
        place = map(str, row.region[:4])
        values = (
            [] if row.probabilities is None else map(repr, row.probabilities.tolist())
        )
        return ("\t".join([*place, row.note, *values]),)

    @staticmethod
    def parse(line: str, header: OutputHeader) -> PredictedRegion:
        contig, start, end, name, note, *fields = line.split("\t")
        region, tracks = Region(contig, int(start), int(end), name), len(header.columns)
        if not fields and tracks:
            return PredictedRegion(region, None, note)
        if len(fields) != tracks:
            raise ValueError(
                f"expected {tracks} values, one per track, found {len(fields)}"
            )
        return PredictedRegion(
            region, np.array([float(field) for field in fields], np.float32), note
        )


def _count(path: Path, regions: Iterable[Region], format: str) -> int:
    """Return the number of regions; `DataError` if two overlap in a bigWig, or it has too many contigs."""
    if format != "bigwig":
        return sum(1 for _ in regions)
    found = list(regions)
    known = sorted(region for region in found if not region.fault)
    check_bigwig_contigs(
        len({region.contig for region in known}), path, "write bed, tsv or parquet"
    )
    for last, region in pairwise(known):
        if last.contig == region.contig and last.end > region.start:
            raise DataError(
                f"{path}: regions {last.name} and {region.name} overlap; a bigWig has one value per base; "
                "merge them, or write another format"
            )
    return len(found)
