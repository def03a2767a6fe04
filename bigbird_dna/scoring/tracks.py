"""Predict chromatin tracks for regions: `bigbird_dna.predict_tracks` and the command `predict-tracks`."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.console import ProgressBar
from bigbird_dna.errors import DataError, UsageError, check_choice
from bigbird_dna.genome.fasta import readable
from bigbird_dna.genome.intervals import contig_names, find_places
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import inside
from bigbird_dna.model.catalog import result_origin
from bigbird_dna.model.chromatin import LoadedChromatinModel, share_windows
from bigbird_dna.model.directory import load_chromatin_model
from bigbird_dna.model.inference import computation
from bigbird_dna.model.model import LoadedModel, window_predictor
from bigbird_dna.scoring.regions import Region, opened, read_regions
from bigbird_dna.scoring.writers import TRACK_FORMATS, choose_output, open_writer

REGIONS_AT_ONCE = 256


class PredictedRegion(NamedTuple):
    """Probabilities (T,) of a region, None if it was not scored; `note` names edge cases and missing bins."""

    region: Region
    probabilities: NDArray[np.float32] | None
    note: str


def predict_regions(
    model: LoadedChromatinModel,
    regions: Iterable[Region],
    reference: Reference,
    *,
    summary: str = "max",
    center_fraction: float = 0.0,
    max_n: float = 0.25,
    calibrated: bool = False,
    batch_size: int = 16,
    device: str = "auto",
    regions_at_once: int | None = None,
) -> Iterator[list[PredictedRegion]]:
    """Yield, in batches, the probabilities of every region: those of its bin, or the maximum or mean over
    several bins.

    Bins whose window has a fraction of N above `max_n` (bases beyond the contig count as N) are left out. A
    region without other bins is not scored, nor is one with a `fault`, which becomes its note. Other
    arguments are those of `predict_tracks`.
    """
    check_choice("summary", summary, ("max", "mean"))
    together = model.bins_together(center_fraction)
    predict = window_predictor(
        model,
        calibrated,
        center_fraction=center_fraction,
        batch_size=batch_size,
        device=device,
    )
    window, size = model.settings.window, model.settings.bin
    reduce, initial = (np.maximum, -np.inf) if summary == "max" else (np.add, 0.0)
    upcoming = iter(regions)
    while batch := list(islice(upcoming, regions_at_once or REGIONS_AT_ONCE)):
        owners: list[int] = []  # regions of bins
        contigs: list[str] = []
        starts: list[int] = []
        for number, region in enumerate(batch):
            if region.fault:
                continue

            # Adjacent bins, centered on the region; of a short region, one with the same center.
            length = region.end - region.start
            count = max(1, -(-length // size))
            first = region.start + (length - count * size) // 2
            owners += [number] * count
            contigs += [region.contig] * count
            starts += range(first, first + count * size, size)

        owner = np.array(owners, np.intp)
        shared = share_windows(contigs, np.array(starts), size, window, together)
        beyond = [not inside(window, reference.contigs) for window in shared.windows]
        at_edge = set(owner[np.array(beyond, bool)[shared.owner]].tolist())
        scored = np.zeros(len(batch), np.int64)
        values = np.full((len(batch), len(model.tracks)), initial)
        for numbers, of_bins in shared.predicted(reference, predict, max_n):
            reduce.at(values, owner[numbers], of_bins)
            scored += np.bincount(owner[numbers], minlength=len(batch))

        left_out = np.bincount(owner, minlength=len(batch)) - scored
        predicted = []
        for number, region in enumerate(batch):
            notes = [region.fault] if region.fault else []
            if number in at_edge:
                notes.append("contig_edge")

            row = None
            if scored[number]:
                row = values[number] / (scored[number] if summary == "mean" else 1)
                row = row.astype(np.float32)

            if left_out[number]:
                bins = f"={left_out[number]}bins" if scored[number] else ""
                notes.append(f"too_many_n{bins}")

            predicted.append(PredictedRegion(region, row, ";".join(notes) or "."))

        yield predicted


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
        File of alternative contig names, if the regions use other names (docs/files.md).
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
    precision, batch_size, device, threads
        As for `score_promoters`.

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
    contigs = contig_names(contigs)
    inputs = [model, regions, reference, aliases]
    path, format = choose_output(output, format, TRACK_FORMATS, inputs)
    chromatin_model = load_chromatin_model(model)
    outputs = _choose_tracks(chromatin_model, tracks, format)
    names = [chromatin_model.tracks[number].name for number in outputs]
    columns = {"contig": "s", "start": "d", "end": "d", "name": "s"}
    if format == "bed":
        columns |= {"score": "d", "strand": "s"}

    columns |= {"note": "s"} | dict.fromkeys(names, ".6f")

    with (
        computation(precision, device, threads) as stated_precision,
        opened(reference, aliases) as genome,
        readable(regions) as source,
    ):
        options = {
            "--reference": genome.path,
            "--aliases": genome.aliases,
            "--tracks": tracks,
            "--format": None if format == "tsv" else format,
            "--summary": summary,
            "--center-fraction": center_fraction or None,
            "--contig": list(contigs),
            "--max-n": max_n,
            "--precision": stated_precision,
            "--calibrated": calibrated,
        }
        origin = result_origin(chromatin_model, "predict-tracks", regions, options)
        places = find_places(
            contigs, None, genome.contigs, genome.path, names=genome.names
        )
        # The whole file is checked before any computation.
        total = _count_regions(source, read_regions(source, genome, places), format)
        not_scored = 0
        signal: list[tuple[str, int, int, float]] = []  # of a bigWig, to be sorted
        order = {contig: number for number, contig in enumerate(genome.contigs)}
        with (
            open_writer(
                path,
                format,
                origin,
                columns,
                missing=".",
                contigs=genome.contigs,
                unit="region",
            ) as write,
            ProgressBar("predicting", total, "regions") as bar,
        ):
            for batch in predict_regions(
                chromatin_model,
                read_regions(source, genome, places),
                genome,
                summary=summary,
                center_fraction=center_fraction,
                max_n=max_n,
                calibrated=calibrated,
                batch_size=batch_size,
                device=device,
            ):
                rows = []
                for region, probabilities, note in batch:
                    contig, start, end, name, *_ = region
                    note = "" if note == "." else note  # missing in Parquet
                    values: list[float | None] = [None] * len(names)
                    if probabilities is None:
                        not_scored += 1
                    else:
                        values = probabilities[outputs].tolist()

                    if format == "bigwig":
                        if values[0] is not None:
                            signal.append((contig, start, end, values[0]))
                    elif format == "bed":
                        largest = max(filter(None, values), default=0.0)
                        thousandths = round(1000 * largest)
                        rows.append(
                            (contig, start, end, name, thousandths, ".", note, *values)
                        )
                    else:
                        rows.append((contig, start, end, name, note, *values))

                write(rows)
                bar.advance(len(batch))

            write(sorted(signal, key=lambda row: (order[row[0]], row[1])))

    return PredictionCounts(total, len(names), not_scored)


def _choose_tracks(
    model: LoadedChromatinModel, pattern: str | None, format: str
) -> list[int]:
    """Return the outputs of the selected tracks; `UsageError` if the format cannot store them.

    In a table, no track may have the name of another column; `strand` is one in every table reader.
    """
    outputs = model.columns(pattern)
    if format == "bigwig":
        if len(outputs) != 1:
            raise UsageError(
                f"format bigwig stores one track, found {len(outputs):,}; select one with --tracks"
            )

        return outputs

    taken = {"contig", "start", "end", "name", "note", "strand"}
    if format == "bed":
        taken.add("score")

    for output in outputs:
        if (name := model.tracks[output].name) in taken:
            raise UsageError(
                f"track {name!r} has the name of another column of the table; exclude the track "
                "with --tracks, or write it alone as bigwig"
            )

    return outputs


def _count_regions(path: Path, regions: Iterable[Region], format: str) -> int:
    """Return the number of regions; `DataError` if they overlap in a bigWig."""
    if format != "bigwig":
        return sum(1 for _ in regions)

    ordered = sorted(regions)
    for last, region in pairwise(ordered):
        overlaps = last.contig == region.contig and last.end > region.start
        if overlaps and not (last.fault or region.fault):
            raise DataError(
                f"{path}: regions {last.name} and {region.name} overlap; a bigWig has one value per base; "
                "merge them, or write another format"
            )

    return len(ordered)
