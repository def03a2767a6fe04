"""Promoter scores of regions: the highest of the windows that each stands for.

A region as long as the model's window is that window. A longer one is tiled with windows, as a scan tiles a
record. A shorter one says where a TSS is looked for: a region of one base is a TSS.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

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
from bigbird_dna.tasks.predictor import Predictor
from bigbird_dna.tasks.promoters.scan import BOTH_STRANDS


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
    regions: Iterable[tuple[str, int, int, Strand | None]],
    reference: Reference,
    predict: Predictor,
    *,
    upstream: int,
    downstream: int,
    stride: int,
    max_n: float = 0.25,
    windows_at_once: int = 2048,
) -> Iterator[RegionScore]:
    """Score regions (contig, start, end, strand; 0-based, half-open), in their order.

    Parameters
    ----------
    regions
        On contigs of the reference. Without a strand both are scored.
    predict
        From windows in transcription order (N) to probabilities (N,).
    upstream, downstream
        The model's window: bp before the TSS, and from it on.
    stride
        bp between the windows, or the TSS positions, of a region.
    max_n
        Windows with a larger fraction of N, what lies beyond the contig included, don't count.
    """
    batch: list[list[Interval]] = []
    count = 0
    for contig, start, end, strand in regions:
        strands = BOTH_STRANDS if strand is None else (strand,)
        batch.append(
            [
                window
                for one in strands
                for window in _windows(Interval(contig, start, end, one), upstream, downstream, stride)
            ]
        )
        count += len(batch[-1])
        if count >= windows_at_once:
            yield from _scored(batch, reference, predict, upstream, max_n)
            batch, count = [], 0
    yield from _scored(batch, reference, predict, upstream, max_n)


def _windows(region: Interval, upstream: int, downstream: int, stride: int) -> Iterator[Interval]:
    length, size = len(region), upstream + downstream
    if length >= size:
        for tile in centred_tiles(length, size, stride):
            start = region.start + tile
            yield Interval(region.contig, start, start + size, region.strand)
        return
    for tile in centred_tiles(length, 1, stride):
        locus = Locus(region.contig, region.start + tile, region.strand, "")
        yield window_around(locus, upstream, downstream)


def _scored(
    batch: Sequence[Sequence[Interval]], reference: Reference, predict: Predictor, upstream: int, max_n: float
) -> Iterator[RegionScore]:
    texts = {window: reference.fetch(window) for windows in batch for window in windows}
    kept = [window for window, text in texts.items() if fraction_n(text) <= max_n]
    different = list(dict.fromkeys(texts[window] for window in kept))
    scores = dict(zip(different, predict(different).tolist(), strict=True)) if different else {}
    for windows in batch:
        scored = {window: scores[text] for window in windows if (text := texts[window]) in scores}
        notes = [] if all(inside(window, reference.contigs) for window in windows) else ["contig_edge"]
        if left_out := len(windows) - len(scored):
            notes.append(f"too_many_n={left_out}windows" if scored else "too_many_n")
        note = ";".join(notes) or "."
        if not scored:
            yield RegionScore(None, None, None, note)
            continue
        best = max(scored, key=lambda window: scored[window])  # the first of equals
        site = best.start + upstream if best.strand == "+" else best.end - 1 - upstream
        yield RegionScore(scored[best], site, best.strand, note)
