"""Chromatin tracks over regions: `bigbird_dna.predict_tracks` and the command of that name."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, islice
from pathlib import Path
from typing import IO, NamedTuple, cast, get_args

from bigbird_dna.checks import check_at_least_one, check_choice, check_fraction
from bigbird_dna.console import progress
from bigbird_dna.disk.outputs import check_output, command_line, format_for, is_live, named_output, provenance
from bigbird_dna.errors import UsageError
from bigbird_dna.genome.compression import STDIN, open_stdin
from bigbird_dna.genome.fasta import readable
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.region_filter import contig_names, find_places
from bigbird_dna.model.chromatin import ChromatinModel
from bigbird_dna.model.directory import load_chromatin_model
from bigbird_dna.model.inference import PRECISIONS, choose_device, cpu_threads, inference, said_precision
from bigbird_dna.model.model import Model, finish_of
from bigbird_dna.pieces import Piece, contents, find_piece
from bigbird_dna.tasks.chromatin.region_pieces import write_region_piece
from bigbird_dna.tasks.chromatin.regions import (
    PredictedRegion,
    Region,
    Summary,
    bins_of,
    each_region,
    predict_regions,
)
from bigbird_dna.tasks.chromatin.writers import WRITERS, TrackInfo, check_disjoint, check_names
from bigbird_dna.tasks.formats import (
    BINARY_FORMATS,
    TRACK_FORMATS,
    check_contig,
    check_format,
    open_destination,
)
from bigbird_dna.tasks.predictor import Predictor, finished, flushing
from bigbird_dna.tasks.provenance import model_files


class PredictionCounts(NamedTuple):
    """Regions read, tracks of each, and how many regions were not scored."""

    regions: int
    tracks: int
    not_scored: int


def predict_tracks(
    model: Model | Path | str,
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
        "3/8": the third of eight pieces with as many bins each, for `merge_pieces`; `output` is its file,
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
    output = named_output(output)
    check_output(output, [model, regions, reference, aliases])
    check_at_least_one({"batch_size": batch_size, "threads": threads})
    part = find_piece(piece, output)
    chosen = format or format_for(None if part else output, TRACK_FORMATS, "tsv")
    on = contig_names(contigs)
    request = _Request(output, chosen, tracks, summary, middle, on, max_n, calibrated, part, precision)
    computing = inference(precision, choose_device(device))
    opened = load_chromatin_model(model)
    finish = finish_of(opened, calibrated)
    predict = partial(opened.window_probabilities, middle=middle, batch_size=batch_size, device=device)
    names = None if aliases is None else Path(aliases)
    with Reference(Path(reference), names) as genome, cpu_threads(threads), computing:
        return request.run(opened, regions, genome, finished(predict, finish))


@dataclass(frozen=True)
class _Request:
    """What is predicted, and where it goes."""

    output: Path | None
    format: str
    tracks: str | None
    summary: str
    middle: float
    contigs: tuple[str, ...]
    max_n: float
    calibrated: bool
    piece: Piece | None
    precision: str

    def __post_init__(self) -> None:
        check_choice("summary", self.summary, get_args(Summary))
        check_fraction("middle", self.middle)
        check_fraction("max_n", self.max_n)
        check_choice("precision", self.precision, PRECISIONS)
        if self.piece is None:
            check_format(self.format, TRACK_FORMATS, self.output)
        check_choice("format", self.format, TRACK_FORMATS)

    def run(
        self, model: ChromatinModel, regions: Path | str, reference: Reference, predict: Predictor
    ) -> PredictionCounts:
        """Predict the regions of a BED file and write them."""
        columns = model.columns(self.tracks)
        names = [model.tracks[column].name for column in columns]
        if self.format == "bigwig" and len(names) != 1:
            raise UsageError(
                f"format bigwig holds one track, and these are {len(names):,}: choose one with --tracks"
            )
        check_names(self.format, names)
        together = model.bins_together(self.middle)
        origin = provenance(model.sha256, self._command(model, regions, reference))
        info = TrackInfo(origin, names, columns, reference.contigs)
        counts: Counter[str] = Counter()
        with self._source(regions) as (path, stream):
            places = find_places(self.contigs, None, reference.contigs, reference.path, reference.names)

            def each(stream: IO[bytes] | None = None) -> Iterator[Region]:
                for region in each_region(path, reference, places, stream):
                    check_contig(region.contig, self.format, path)
                    yield region

            asked, expected = self._asked(path, each, stream, model.settings.bin)

            def predicted(ask: Predictor) -> Iterator[PredictedRegion]:
                rows = predict_regions(
                    asked,
                    reference,
                    ask,
                    window=model.settings.window,
                    bin_size=model.settings.bin,
                    together=together,
                    summary=cast(Summary, self.summary),
                    max_n=self.max_n,
                )
                return _counted(progress(rows, "predicting", expected, "regions"), counts)

            if self.piece is not None and self.output is not None:
                named = {path: "standard input" if str(regions) == "-" else str(regions)}
                files = (path, reference.path, reference.aliases, *model_files(model, self.calibrated))
                content = contents(*files, names=named)
                write_region_piece(self.output, self.piece, predicted(predict), info, self.format, content)
            else:
                with open_destination(self.output, self.format) as target:
                    WRITERS[self.format](target, predicted(flushing(predict, target)), info)
        return PredictionCounts(counts["regions"], len(names), counts["not scored"])

    @contextmanager
    def _source(self, regions: Path | str) -> Iterator[tuple[Path, IO[bytes] | None]]:
        """The file of regions, or what comes in by standard input, if it can be worked on as it comes."""
        if str(regions) == "-" and is_live(self.output) and self.format not in BINARY_FORMATS:
            with open_stdin() as stream:
                yield STDIN, stream
            return
        with readable(regions) as path:
            yield path, None

    def _asked(
        self, path: Path, each: Callable[..., Iterable[Region]], stream: IO[bytes] | None, bin_size: int
    ) -> tuple[Iterable[Region], int | None]:
        """The regions that are predicted, and how many if that is known: then faults of the file are too."""
        if stream is not None:
            return each(stream), None
        count = self._check(path, each())
        if self.piece is None:
            return each(), count
        # A region goes to the piece that its first bin belongs to.
        sizes = [1 if region.fault else len(bins_of(region, bin_size)) for region in each()]
        *firsts, total = accumulate(sizes, initial=0)
        bins = self.piece.rows(total)
        first, last = bisect_left(firsts, bins.start), bisect_left(firsts, bins.stop)
        return islice(each(), first, last), last - first

    def _check(self, path: Path, regions: Iterable[Region]) -> int:
        """How many regions there are, which mustn't overlap in a bigWig."""
        if self.format != "bigwig":
            return sum(1 for _ in regions)
        found = list(regions)
        check_disjoint(path, found)
        return len(found)

    def _command(self, model: ChromatinModel, regions: Path | str, reference: Reference) -> str:
        options: dict[str, object | None] = {"--reference": reference.path, "--aliases": reference.aliases}
        options |= {"--tracks": self.tracks}
        options |= {"--format": None if self.format == "tsv" else self.format, "--summary": self.summary}
        options |= {
            "--center-fraction": self.middle or None,
            "--contig": list(self.contigs),
            "--max-n": self.max_n,
        }
        options |= said_precision(self.precision)
        flags = {"--calibrated": self.calibrated}
        return command_line("predict-tracks", [model.path, regions], options, flags)


def _counted(predicted: Iterable[PredictedRegion], counts: Counter[str]) -> Iterator[PredictedRegion]:
    for row in predicted:
        counts["regions"] += 1
        counts["not scored"] += row.probabilities is None
        yield row
