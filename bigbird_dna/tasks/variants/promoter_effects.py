"""Effects of variants on promoters: how the score of the TSS positions around a variant changes.

A site is a TSS position on a strand. It counts for a variant if its window covers a changed base. The score
of the reference's window is set against that of the window around the same base once the alternative is in
place; what is reported is the site with the largest change either way. Memory does not grow with the number
of records.

Sites are either given, or tried every few bp, counted from the changed bases to both sides, so that a variant
has the same sites whatever its coordinates, and the opposite variant the opposite effect.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.errors import ModelError
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import (
    OPPOSITE,
    Interval,
    Strand,
    centred_tiles,
    fraction_n,
    reverse_complement,
)
from bigbird_dna.genome.variants import Change, Note, contig_finder, find_change
from bigbird_dna.genome.vcf import VcfRecord
from bigbird_dna.tasks.predictor import Predictor

STRIDE = 20
"""bp between the sites that are tried where none are given."""

NO_SITE = "NO_SITE"
"""Note of an allele that no site's window covers."""

_RECORDS = 512  # held at once, when few of them need a prediction


class SiteScores(NamedTuple):
    """The scores of a site with either allele in place; `position` is the reference's, 0-based."""

    position: int
    strand: Strand
    ref: float
    alt: float

    @property
    def delta(self) -> float:
        """Alternative minus reference."""
        return self.alt - self.ref


class PromoterEffect(NamedTuple):
    """What an alternative allele does: the site with the largest change, None if the allele wasn't scored."""

    notes: tuple[str, ...]
    largest: SiteScores | None

    @property
    def delta(self) -> float | None:
        """The largest change, None if the allele wasn't scored."""
        return None if self.largest is None else self.largest.delta


class PromoterRecord(NamedTuple):
    """A record with one effect for each of its `alts`."""

    record: VcfRecord
    effects: tuple[PromoterEffect, ...]


class Sites:
    """TSS positions to look at, by contig as the reference calls it."""

    def __init__(self, sites: Mapping[str, Iterable[tuple[int, Strand]]]) -> None:
        self._sorted = {contig: sorted(set(places)) for contig, places in sites.items()}

    def within(self, contig: str, start: int, end: int) -> list[tuple[int, Strand]]:
        """Those at `start` to `end` (excluded), ascending."""
        places = self._sorted.get(contig, [])
        return places[bisect_left(places, (start, "")) : bisect_left(places, (end, ""))]


class _Site(NamedTuple):
    """A TSS position in either allele's contig, in bases from the change's start on."""

    ref: int
    alt: int
    strand: Strand


@dataclass(frozen=True)
class SiteWindows:
    """Which sites are looked at, and their windows: `upstream` bp before the TSS, `downstream` from it on.

    `sites` None: those every `stride` bp.
    """

    upstream: int
    downstream: int
    stride: int = STRIDE
    sites: Sites | None = None

    def __post_init__(self) -> None:
        if self.upstream < 0 or self.downstream < 1 or self.stride < 1:
            raise ValueError(f"{self.upstream}, {self.downstream} or {self.stride} bp is out of its range")

    @property
    def size(self) -> int:
        """bp of a window."""
        return self.upstream + self.downstream

    def reach(self, strand: Strand) -> tuple[int, int]:
        """bp of a window to the left of its TSS, and from the TSS on to the right, on the forward strand."""
        if strand == "+":
            return self.upstream, self.downstream
        return self.downstream - 1, self.upstream + 1

    def of(self, change: Change) -> Iterator[_Site]:
        """The sites whose window covers a changed base."""
        if self.sites is None:
            for strand in OPPOSITE:
                yield from self._tried(strand, len(change.ref), len(change.alt))
            return
        ref, alt = len(change.ref), len(change.alt)
        near = change.start - self.size, change.start + ref + self.size
        for position, strand in self.sites.within(change.contig, *near):
            place = position - change.start
            left, right = self.reach(strand)
            if -right < place < ref + left:
                yield _Site(place, moved(place, strand, ref, alt), strand)

    def _tried(self, strand: Strand, ref: int, alt: int) -> Iterator[_Site]:
        left, right = self.reach(strand)
        yield from (_Site(place, place, strand) for place in range(-1, -right, -self.stride))
        yield from (_Site(ref + place, alt + place, strand) for place in range(0, left, self.stride))
        for place in centred_tiles(max(ref, alt), 1, self.stride):
            if ref >= alt:
                yield _Site(place, moved(place, strand, ref, alt), strand)
            else:
                yield _Site(moved(place, strand, alt, ref), place, strand)


def moved(place: int, strand: Strand, before: int, after: int) -> int:
    """Where a base is once the `before` bases from 0 on are replaced by `after` others.

    One of the replaced bases keeps its distance, in transcription order, from their first one; where there
    are not so many any more it is the last that is left, and where none is left the next base downstream.
    """
    if place < 0:
        return place
    if place >= before:
        return place + after - before
    if strand == "+":
        return min(place, max(after - 1, 0))
    return max(place + after - before, 0 if after else -1)


class _Allele(NamedTuple):
    """An alternative allele before it is scored: its sites with the rows of their windows in the batch."""

    notes: tuple[str, ...]
    sites: list[tuple[int, Strand, int, int]]


class _Batch:
    """Records whose sequences are predicted together; one that occurs again is predicted once."""

    def __init__(self, reference: Reference, windows: SiteWindows, max_n: float) -> None:
        self.reference, self.windows, self.max_n = reference, windows, max_n
        self.records: list[tuple[VcfRecord, list[_Allele]]] = []
        self.rows: dict[str, int] = {}

    def add(self, record: VcfRecord, contig: str | None) -> None:
        """A record whose contig the reference calls `contig`, None if it hasn't got it."""
        self.records.append((record, [self._allele(record, contig, alt) for alt in record.alts]))

    def _allele(self, record: VcfRecord, contig: str | None, alt: str) -> _Allele:
        change = find_change(contig, record.start, record.ref, alt, self.reference)
        if isinstance(change, Note):
            return _Allele((change,), [])
        if max(len(change.ref), len(change.alt)) > self.windows.size:
            return _Allele((Note.TOO_LONG,), [])
        local = _Local(change, self.reference, self.windows)
        sites = [site for site in self.windows.of(change) if local.has(site)]
        if not sites:
            return _Allele((NO_SITE,), [])
        edge = (Note.CONTIG_EDGE,) if any(map(local.reaches_beyond, sites)) else ()
        found = []
        for site in sites:
            pair = local.windows(site)
            if max(map(fraction_n, pair)) <= self.max_n:
                ref, alt_row = (self.rows.setdefault(text, len(self.rows)) for text in pair)
                found.append((change.start + site.ref, site.strand, ref, alt_row))
        return _Allele(edge if found else (Note.TOO_MANY_N, *edge), found)

    def score(self, predict: Predictor, size: int) -> Iterator[PromoterRecord]:
        """Predict `size` sequences a call, then give the records in the order they came in."""
        texts = list(self.rows)
        parts = [_predicted(predict, texts[start : start + size]) for start in range(0, len(texts), size)]
        values = [value for part in parts for value in part.tolist()]
        for record, alleles in self.records:
            yield PromoterRecord(record, tuple(_effect(allele, values) for allele in alleles))


class _Local:
    """Both alleles with as many bases on either side as a window has; beyond the contig there is N."""

    def __init__(self, change: Change, reference: Reference, windows: SiteWindows) -> None:
        self.change, self._windows, size = change, windows, windows.size
        end = change.start + len(change.ref)
        left = reference.fetch(Interval(change.contig, change.start - size, change.start))
        right = reference.fetch(Interval(change.contig, end, end + size))
        self._texts = left + change.ref + right, left + change.alt + right
        length = reference.contigs[change.contig]
        self._lengths = length, length - len(change.ref) + len(change.alt)

    def has(self, site: _Site) -> bool:
        """Whether both contigs have such a base."""
        places = zip((site.ref, site.alt), self._lengths, strict=True)
        return all(0 <= self.change.start + place < length for place, length in places)

    def reaches_beyond(self, site: _Site) -> bool:
        """Whether a window of the site reaches beyond its contig."""
        left, right = self._windows.reach(site.strand)
        return any(
            self.change.start + place < left or self.change.start + place + right > length
            for place, length in zip((site.ref, site.alt), self._lengths, strict=True)
        )

    def windows(self, site: _Site) -> tuple[str, str]:
        """The windows of a site in either allele, in transcription order."""
        left, right = self._windows.reach(site.strand)
        middles = self._windows.size + site.ref, self._windows.size + site.alt
        ref, alt = (
            text[middle - left : middle + right] for text, middle in zip(self._texts, middles, strict=True)
        )
        return (ref, alt) if site.strand == "+" else (reverse_complement(ref), reverse_complement(alt))


def promoter_effects(
    records: Iterable[VcfRecord],
    reference: Reference,
    windows: SiteWindows,
    predict: Predictor,
    *,
    max_n: float = 0.25,
    batch_sequences: int = 2048,
) -> Iterator[PromoterRecord]:
    """Score every alternative allele of every record, in the records' order; none is left out.

    Exchanging REF and ALT, with a reference that has ALT in place, gives the negative effects, if no sites
    are given. A window that reaches beyond its contig is filled up with N and noted.

    Parameters
    ----------
    predict
        Gives the probabilities (N,) of windows in transcription order.
    max_n
        A site is left out if one of its two windows has a larger fraction of N, what lies beyond the contig
        included; an allele without any other site stays unscored.
    batch_sequences
        Most sequences in one call of `predict`.

    Raises
    ------
    DataError
        A record is malformed, or the reference can't be read.
    ModelError
        A prediction is not a probability.
    ValueError
        `max_n` or `batch_sequences` is out of its range.
    """
    if not 0 <= max_n <= 1 or batch_sequences < 1:
        raise ValueError(f"max_n {max_n} or batch_sequences {batch_sequences} is out of its range")
    find_contig = contig_finder(reference.contigs, reference.names)
    new_batch = partial(_Batch, reference, windows, max_n)
    batch = new_batch()
    for record in records:
        batch.add(record, find_contig(record.contig))
        if len(batch.rows) >= batch_sequences or len(batch.records) >= _RECORDS:
            yield from batch.score(predict, batch_sequences)
            batch = new_batch()
    yield from batch.score(predict, batch_sequences)


def _effect(allele: _Allele, values: Sequence[float]) -> PromoterEffect:
    sites = [SiteScores(place, strand, values[ref], values[alt]) for place, strand, ref, alt in allele.sites]
    # Of equal changes that of the leftmost site, and there of the forward strand.
    largest = min(sites, key=lambda site: (-abs(site.delta), site.position, site.strand), default=None)
    return PromoterEffect(allele.notes, largest)


def _predicted(predict: Predictor, sequences: Sequence[str]) -> NDArray[np.float32]:
    values = predict(sequences)
    assert values.shape == (len(sequences),), f"{values.shape} scores for {len(sequences)} sequences"
    if not ((values >= 0) & (values <= 1)).all():  # false for NaN too
        raise ModelError("the model gives values that are not probabilities: its weights are damaged")
    return values
