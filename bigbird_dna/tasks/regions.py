"""Chromatin tracks over the regions of a BED file."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from bigbird_dna.errors import DataError
from bigbird_dna.genome.compression import read_lines
from bigbird_dna.genome.intervals import Interval
from bigbird_dna.genome.peaks import read_intervals
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import fraction_n
from bigbird_dna.genome.variants import contig_finder

# Axes: N windows, T tracks.

Summary = Literal["max", "mean"]
Predictor = Callable[[Sequence[str]], npt.NDArray[np.float32]]


class Region(NamedTuple):
    """A line of a BED file; `contig` is the reference's name, `start` and `end` are 0-based, half-open."""

    contig: str
    start: int
    end: int
    name: str


class PredictedRegion(NamedTuple):
    """Probabilities (T,) of a region, None where it was not scored; `note` says what was special."""

    region: Region
    probabilities: npt.NDArray[np.float32] | None
    note: str


def read_regions(path: Path, reference: Reference) -> list[Region]:
    """Read a BED file (three columns or more, plain or compressed) in its order.

    Raises
    ------
    DataError
        A line is no interval, its contig is unknown, or it reaches beyond its contig; or there is no line.
    """
    find = contig_finder(reference.contigs)
    names = {number: line.split("\t") for number, line in read_lines(path)}
    regions = []
    for number, name, start, end in read_intervals(path):
        contig = find(name)
        where = f"{path}: line {number}"
        if contig is None:
            raise DataError(f"{where}: the reference has no contig {name!r}")
        length = reference.contigs[contig]
        if end > length:
            raise DataError(f"{where}: ends at {end:,}, {contig} has {length:,} bp")
        fields = names[number]
        label = fields[3].strip() if len(fields) > 3 else ""
        regions.append(Region(contig, start, end, label or f"{contig}:{start}-{end}"))
    if not regions:
        raise DataError(f"{path}: no regions in the file")
    return regions


def bins_of(region: Region, size: int) -> list[int]:
    """Starts of the bins of a region: as many as cover it, side by side around its middle.

    A region no longer than a bin has one, with the same middle.
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
    summary: Summary = "max",
    max_n: float = 0.25,
    batch_windows: int = 1024,
) -> Iterator[PredictedRegion]:
    """Probabilities of every region: of its bin, or the largest or mean one where it has several.

    A bin's window may reach beyond the contig, where it is filled with N and noted. Bins whose window has a
    larger fraction of N than `max_n` are left out; a region of such bins only isn't scored.
    """
    waiting: list[tuple[Region, list[str | None], bool]] = []
    count = 0
    for region in regions:
        sequences: list[str | None] = []
        length = reference.contigs[region.contig]
        beyond = False
        for start in bins_of(region, bin_size):
            opens = start + bin_size // 2 - window // 2
            sequence = reference.fetch(Interval(region.contig, opens, opens + window))
            beyond |= opens < 0 or opens + window > length
            sequences.append(sequence if fraction_n(sequence) <= max_n else None)
        waiting.append((region, sequences, beyond))
        count += len(sequences)
        if count >= batch_windows:
            yield from _predicted(waiting, predict, summary)
            waiting, count = [], 0
    yield from _predicted(waiting, predict, summary)


def _predicted(
    waiting: Sequence[tuple[Region, list[str | None], bool]], predict: Predictor, summary: Summary
) -> Iterator[PredictedRegion]:
    sequences = [one for _, many, _ in waiting for one in many if one is not None]
    values = predict(sequences) if sequences else np.empty((0, 0), np.float32)
    used = 0
    for region, many, beyond in waiting:
        scored = sum(one is not None for one in many)
        mine = values[used : used + scored]
        used += scored
        notes = ["contig_edge"] if beyond else []
        if scored < len(many):
            notes.append("too_many_n" if not scored else f"too_many_n={len(many) - scored}bins")
        found = None
        if scored:
            found = mine.max(axis=0) if summary == "max" else mine.mean(axis=0)
        yield PredictedRegion(region, found, ";".join(notes) or ".")
