"""Chromatin tracks over regions: `bigbird_dna.predict_tracks` and the command of that name."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple, cast, get_args

from bigbird_dna.checks import check_at_least_one, check_choice, check_fraction
from bigbird_dna.console import progress
from bigbird_dna.genome.reference import Reference
from bigbird_dna.model.chromatin_model import ChromatinModel
from bigbird_dna.model.device import choose_device, cpu_threads
from bigbird_dna.model.directory import load_chromatin_model
from bigbird_dna.model.model import Model
from bigbird_dna.outputs import (
    check_output,
    command_line,
    destination,
    named_output,
    provenance,
    provenance_lines,
)
from bigbird_dna.tasks.chromatin.regions import PredictedRegion, Summary, predict_regions, read_regions
from bigbird_dna.tasks.predictor import Predictor


class PredictionCounts(NamedTuple):
    """How much was predicted."""

    regions: int
    tracks: int


def predict_tracks(
    model: Model | Path | str,
    regions: Path | str,
    reference: Path | str,
    output: Path | str | None = None,
    *,
    tracks: str | None = None,
    summary: str = "max",
    middle: float = 0.0,
    max_n: float = 0.25,
    batch_size: int = 16,
    device: str = "auto",
    threads: int | None = None,
) -> PredictionCounts:
    """Write the probability that each region is in a peak of each track, mean of both strands.

    Parameters
    ----------
    model, regions, reference
        A chromatin model or its directory; BED, plain or compressed (0-based, half-open); the FASTA of the
        regions, plain or bgzip, indexed.
    output
        Table to write, whole or not at all: `#contig start end name note`, then a column a track; None or
        "-": standard output.
    tracks
        Tracks, groups or shell patterns, comma-separated; None: all.
    summary
        "max" or "mean" of the bins of a region longer than the model's bin.
    middle
        All bins in this middle part (0 to 1) of a window are predicted at once; 0: each in its own window.
    max_n
        Bins with a larger fraction of N in their window don't count.
    batch_size, device, threads
        Windows run together; auto, cpu or cuda; CPU threads. They change speed and memory only.

    Raises
    ------
    UsageError
        An argument is out of its range, the output can't be written, or no track fits.
    DataError, ModelError
        A file can't be read (the text names the line); there is no chromatin model.
    """
    output = named_output(output)
    request = _Request(output, tracks, summary, middle, max_n)
    check_at_least_one({"batch_size": batch_size, "threads": threads})
    check_output(output, [model, regions, reference])
    choose_device(device)
    opened = load_chromatin_model(model)
    predict = partial(opened.window_probabilities, middle=middle, batch_size=batch_size, device=device)
    with Reference(Path(reference)) as genome, cpu_threads(threads):
        return request.run(opened, Path(regions), genome, predict)


@dataclass(frozen=True)
class _Request:
    """What is predicted, and where the table goes."""

    output: Path | None
    tracks: str | None
    summary: str
    middle: float
    max_n: float

    def __post_init__(self) -> None:
        check_choice("summary", self.summary, get_args(Summary))
        check_fraction("middle", self.middle)
        check_fraction("max_n", self.max_n)

    def run(
        self, model: ChromatinModel, regions: Path, reference: Reference, predict: Predictor
    ) -> PredictionCounts:
        """Predict the regions of a BED file and write the table."""
        columns = model.columns(self.tracks)
        together = model.bins_together(self.middle)
        found = read_regions(regions, reference)
        predicted = predict_regions(
            found,
            reference,
            predict,
            window=model.settings.window,
            bin_size=model.settings.bin,
            together=together,
            summary=cast(Summary, self.summary),
            max_n=self.max_n,
        )
        names = [model.tracks[column].name for column in columns]
        options: dict[str, object] = {
            "--reference": reference.path,
            "--tracks": self.tracks,
            "--summary": self.summary,
        }
        options |= {"--middle": self.middle or None, "--max-n": self.max_n}
        origin = provenance(model.sha256, command_line("predict-tracks", [model.path, regions], options))
        header = [*provenance_lines(origin), "\t".join(["#contig", "start", "end", "name", "note", *names])]
        rows = _rows(progress(predicted, "predicting", len(found)), columns)
        with destination(self.output, "tsv") as temporary, temporary.open("w", encoding="utf-8") as stream:
            stream.writelines(f"{line}\n" for part in (header, rows) for line in part)
        return PredictionCounts(len(found), len(names))


def _rows(predicted: Iterable[PredictedRegion], columns: Sequence[int]) -> Iterator[str]:
    for region, values, note in predicted:
        figures = ["."] * len(columns)
        if values is not None:
            figures = [f"{values[column]:.6f}" for column in columns]
        yield "\t".join([region.contig, str(region.start), str(region.end), region.name, note, *figures])
