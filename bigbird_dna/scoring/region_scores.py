"""The highest promoter score of each of some regions, for `PromoterModel.predict_regions`."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import (
    Interval,
    Locus,
    Strand,
    centered_tiles,
    fraction_n,
    inside,
    tss_position,
    window_around,
)
from bigbird_dna.model.model import Predictor
from bigbird_dna.scoring.regions import Region
from bigbird_dna.scoring.scan import BOTH_STRANDS, growing_batches


class RegionScore(NamedTuple):
    """The highest score of a region's windows; score, site and strand are None if no window was scored.

    `site` is the TSS position of that window, 0-based. `note` is ".", or lists special cases as in the table
    of `predict-tracks`.
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
    """Yield the highest promoter score of each region, in input order; regions with a `fault` have no score.

    A region as long as the window is that window; a longer region is tiled with windows; a shorter region is
    a range of candidate TSS positions. Without a strand, both strands are scored. Windows with a fraction of
    N above `max_n` (bases beyond the contig count as N) are ignored.
    """

    def windows(region: Region) -> list[Interval]:
        strands = BOTH_STRANDS if region.strand is None else (region.strand,)
        parts = [
            Interval(region.contig, region.start, region.end, strand)
            for strand in strands
        ]
        return [
            window
            for part in parts
            for window in _tss_windows(part, upstream, downstream, stride)
        ]

    tiled = ((region, [] if region.fault else windows(region)) for region in regions)
    for batch in growing_batches(
        tiled, lambda one: len(one[1]), windows_at_once, windows_at_once
    ):
        yield from _best_windows(batch, reference, predict, upstream, max_n)


def _tss_windows(
    region: Interval, upstream: int, downstream: int, stride: int
) -> Iterator[Interval]:
    length, size = len(region), upstream + downstream
    if length >= size:
        for tile in centered_tiles(length, size, stride):
            start = region.start + tile
            yield Interval(region.contig, start, start + size, region.strand)
        return
    for tile in centered_tiles(length, 1, stride):
        locus = Locus(region.contig, region.start + tile, region.strand, "")
        yield window_around(locus, upstream, downstream)


def _best_windows(
    batch: Sequence[tuple[Region, list[Interval]]],
    reference: Reference,
    predict: Predictor,
    upstream: int,
    max_n: float,
) -> Iterator[RegionScore]:
    texts = {
        window: reference.fetch(window) for _, windows in batch for window in windows
    }
    kept = [window for window, text in texts.items() if fraction_n(text) <= max_n]
    different = list(dict.fromkeys(texts[window] for window in kept))
    scores = (
        dict(zip(different, predict(different).tolist(), strict=True))
        if different
        else {}
    )
    for region, windows in batch:
        scored = {
            window: scores[text]
            for window in windows
            if (text := texts[window]) in scores
        }
        notes = [region.fault] if region.fault else []
        if not all(inside(window, reference.contigs) for window in windows):
            notes.append("contig_edge")
        if left_out := len(windows) - len(scored):
            notes.append(f"too_many_n={left_out}windows" if scored else "too_many_n")
        note = ";".join(notes) or "."
        if not scored:
            yield RegionScore(None, None, None, note)
            continue
        best = max(
            scored, key=lambda window: scored[window]
        )  # ties go to the first window
        site = tss_position(best.start, best.end, best.strand, upstream)
        yield RegionScore(scored[best], site, best.strand, note)
