"""Scores of regions: tracks over those of a BED file, and the highest promoter score of each.

Of a promoter model, a region as long as the model's window is that window. A longer one is tiled with
windows, as a scan tiles a record. A shorter one says where a TSS is looked for: a region of one base is a
TSS.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import (
    Interval,
    Locus,
    Strand,
    centred_tiles,
    fraction_n,
    inside,
    window_around,
)
from bigbird_dna.model.chromatin import Predictor, share_windows
from bigbird_dna.scoring.regions import Region
from bigbird_dna.scoring.scan import BOTH_STRANDS, growing_batches

# Axes: W windows, K bins in the middle of a window, T tracks.

Summary = Literal["max", "mean"]

_FIRST_WINDOWS, _MOST_WINDOWS = 16, 256  # of the bins that are predicted together


class PredictedRegion(NamedTuple):
    """Probabilities (T,) of a region, None where it was not scored; `note` says what was special."""

    region: Region
    probabilities: npt.NDArray[np.float32] | None
    note: str


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
    together: int = 1,
    summary: Summary = "max",
    max_n: float = 0.25,
    bins_at_once: int = 4096,
) -> Iterator[PredictedRegion]:
    """Probabilities of every region: of its bin, or the largest or mean one where it has several.

    A bin's window may reach beyond the contig, where it is filled with N and noted. Bins whose window has a
    larger fraction of N than `max_n` are left out; a region of such bins only isn't scored, and neither is
    one with a `fault`, which becomes its note.

    `predict` makes of windows (W) the probabilities (W, K, T) of the K = `together` bins in the middle of
    each. Bins on the same grid share windows, those of several regions too (see `share_windows`). About
    `bins_at_once` bins at most are predicted together; the first are fewer, so that they come soon.
    """
    reduce, initial = (np.maximum, -np.inf) if summary == "max" else (np.add, 0.0)
    binned = ((region, [] if region.fault else bins_of(region, bin_size)) for region in regions)
    most = min(_MOST_WINDOWS * together, bins_at_once)
    first = _FIRST_WINDOWS * together
    for batch in growing_batches(binned, lambda one: len(one[1]), first, most, bins_at_once):
        owner = np.repeat(np.arange(len(batch)), [len(starts) for _, starts in batch])
        contigs = [region.contig for region, starts in batch for _ in starts]
        all_starts = np.array([start for _, starts in batch for start in starts], np.int64)
        shared = share_windows(contigs, all_starts, bin_size, window, together)
        at_edge = set(owner[shared.reach_beyond(reference)[shared.owner]].tolist())
        scored = np.zeros(len(batch), np.int64)
        found: npt.NDArray[np.float64] | None = None
        for numbers, values in shared.predicted(reference, predict, max_n):
            if found is None:
                found = np.full((len(batch), values.shape[1]), initial)
            reduce.at(found, owner[numbers], values)
            scored += np.bincount(owner[numbers], minlength=len(batch))
        for number, (region, starts) in enumerate(batch):
            left_out = len(starts) - int(scored[number])
            notes = ["contig_edge"] if number in at_edge else [region.fault] if region.fault else []
            if left_out:
                notes.append(f"too_many_n={left_out}bins" if scored[number] else "too_many_n")
            row = None
            if found is not None and scored[number]:
                row = found[number] / (scored[number] if summary == "mean" else 1)
                row = row.astype(np.float32)
            yield PredictedRegion(region, row, ";".join(notes) or ".")


class RegionScore(NamedTuple):
    """The highest score of a region's windows; all three are None where no window was scored.

    `site` is the TSS position of that window, 0-based. `note` is ".", or says what was special, as the table
    of `predict-tracks` does.
    """

    score: float | None
    site: int | None
    strand: Strand | None
    note: str


def score_regions(
    regions: Iterable[Region],
    reference: Reference,
    predict: Predictor,
    *,
    upstream: int,
    downstream: int,
    stride: int,
    max_n: float = 0.25,
    windows_at_once: int = 2048,
) -> Iterator[RegionScore]:
    """The highest promoter score of each region, in their order; one with a `fault` has none.

    Without a strand both are scored. `predict` gives probabilities (N,) of N windows in transcription order,
    which have `upstream` bp before the TSS and `downstream` from it on; `stride` bp are between the windows,
    or the TSS positions, of a region. Windows with a larger fraction of N than `max_n`, what is beyond the
    contig included, don't count.
    """

    def windows(region: Region) -> list[Interval]:
        strands = BOTH_STRANDS if region.strand is None else (region.strand,)
        parts = [Interval(region.contig, region.start, region.end, strand) for strand in strands]
        return [window for part in parts for window in _tss_windows(part, upstream, downstream, stride)]

    tiled = ((region, [] if region.fault else windows(region)) for region in regions)
    for batch in growing_batches(tiled, lambda one: len(one[1]), windows_at_once, windows_at_once):
        yield from _best_windows(batch, reference, predict, upstream, max_n)


def _tss_windows(region: Interval, upstream: int, downstream: int, stride: int) -> Iterator[Interval]:
    length, size = len(region), upstream + downstream
    if length >= size:
        for tile in centred_tiles(length, size, stride):
            start = region.start + tile
            yield Interval(region.contig, start, start + size, region.strand)
        return
    for tile in centred_tiles(length, 1, stride):
        locus = Locus(region.contig, region.start + tile, region.strand, "")
        yield window_around(locus, upstream, downstream)


def _best_windows(
    batch: Sequence[tuple[Region, list[Interval]]],
    reference: Reference,
    predict: Predictor,
    upstream: int,
    max_n: float,
) -> Iterator[RegionScore]:
    texts = {window: reference.fetch(window) for _, windows in batch for window in windows}
    kept = [window for window, text in texts.items() if fraction_n(text) <= max_n]
    different = list(dict.fromkeys(texts[window] for window in kept))
    scores = dict(zip(different, predict(different).tolist(), strict=True)) if different else {}
    for region, windows in batch:
        scored = {window: scores[text] for window in windows if (text := texts[window]) in scores}
        notes = [region.fault] if region.fault else []
        if not all(inside(window, reference.contigs) for window in windows):
            notes.append("contig_edge")
        if left_out := len(windows) - len(scored):
            notes.append(f"too_many_n={left_out}windows" if scored else "too_many_n")
        note = ";".join(notes) or "."
        if not scored:
            yield RegionScore(None, None, None, note)
            continue
        best = max(scored, key=lambda window: scored[window])  # the first of equals
        site = best.start + upstream if best.strand == "+" else best.end - 1 - upstream
        yield RegionScore(scored[best], site, best.strand, note)
