"""Effects of variants on promoters: how the score of the TSS positions around a variant changes.

A site is a TSS position on a strand. It counts for a variant if its window covers a changed base. The score
of the reference's window is set against that of the window around the same base once the alternative is in
place; what is reported is the site with the largest change either way. Memory does not grow with the number
of records.

Sites are either given, or tried every few bp, counted from the changed bases to both sides, so that a variant
has the same sites whatever its coordinates, and the opposite variant the opposite effect.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.errors import DataError
from bigbird_dna.genome.chromatin.peaks import read_bed, strand_column
from bigbird_dna.genome.fields import quoted
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.region_filter import warn_of_absent
from bigbird_dna.genome.sequence import (
    OPPOSITE,
    Interval,
    Strand,
    centred_tiles,
    fraction_n,
    reverse_complement,
)
from bigbird_dna.genome.variants import Change, Note, contig_finder, find_change
from bigbird_dna.genome.vcf import PREFIX, VcfRecord
from bigbird_dna.model.promoter import LoadedPromoterModel
from bigbird_dna.model.shared_windows import Predictor
from bigbird_dna.scoring.alleles import InfoKey, ScoredRecord, decimal, note_info, score_records
from bigbird_dna.scoring.scorer import calibrated_predictor

STRIDE = 20
"""bp between the sites that are tried where none are given."""

NO_SITE = "NO_SITE"
"""Note of an allele that no site's window covers."""

_AT = "at the TSS position with the largest change either way"
_NOTES = "; ".join(
    [*(f"{note} {note.meaning}" for note in Note), f"{NO_SITE} no site's window covers a changed base"]
)

_KEYS = (
    InfoKey("PROMOTER_REF", "A", "Float", f"Promoter score of the reference {_AT}"),
    InfoKey("PROMOTER_ALT", "A", "Float", f"Promoter score with ALT in place {_AT}"),
    InfoKey("PROMOTER_DELTA", "A", "Float", f"Change of the promoter score, ALT minus REF, {_AT}"),
    InfoKey("PROMOTER_SITE", "A", "Integer", "That TSS position in the reference, from 1 on"),
    InfoKey("PROMOTER_STRAND", "A", "String", "Its strand, + or -"),
    InfoKey("NOTE", ".", "String", f"For each ALT what is to be said, joined by &: {_NOTES}"),
)


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


class TssSites:
    """TSS positions to look at, by contig as the reference calls it."""

    def __init__(self, sites: Mapping[str, Iterable[tuple[int, Strand]]]) -> None:
        self._sorted = {contig: sorted(set(places)) for contig, places in sites.items()}

    def within(self, contig: str, start: int, end: int) -> list[tuple[int, Strand]]:
        """Those at `start` to `end` (excluded), ascending."""
        places = self._sorted.get(contig, [])
        return places[bisect_left(places, (start, "")) : bisect_left(places, (end, ""))]


class _AlleleSite(NamedTuple):
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
    sites: TssSites | None = None

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

    def of(self, change: Change) -> Iterator[_AlleleSite]:
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
                yield _AlleleSite(place, moved(place, strand, ref, alt), strand)

    def _tried(self, strand: Strand, ref: int, alt: int) -> Iterator[_AlleleSite]:
        left, right = self.reach(strand)
        yield from (_AlleleSite(place, place, strand) for place in range(-1, -right, -self.stride))
        yield from (_AlleleSite(ref + place, alt + place, strand) for place in range(0, left, self.stride))
        for place in centred_tiles(max(ref, alt), 1, self.stride):
            if ref >= alt:
                yield _AlleleSite(place, moved(place, strand, ref, alt), strand)
            else:
                yield _AlleleSite(moved(place, strand, alt, ref), place, strand)


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


class _SiteRows(NamedTuple):
    """An alternative allele before it is scored: its sites with the rows of their windows in the batch."""

    notes: tuple[str, ...]
    sites: list[tuple[int, Strand, int, int]]


@dataclass(frozen=True)
class _SiteScorer:
    reference: Reference
    windows: SiteWindows
    max_n: float

    def allele(
        self, record: VcfRecord, contig: str | None, alt: str, place: Callable[[Iterable[str]], list[int]]
    ) -> _SiteRows:
        change = find_change(contig, record.start, record.ref, alt, self.reference)
        if isinstance(change, Note):
            return _SiteRows((change,), [])
        if max(len(change.ref), len(change.alt)) > self.windows.size:
            return _SiteRows((Note.TOO_LONG,), [])
        local = _Local(change, self.reference, self.windows)
        sites = [site for site in self.windows.of(change) if local.has(site)]
        if not sites:
            return _SiteRows((NO_SITE,), [])
        edge = (Note.CONTIG_EDGE,) if any(map(local.reaches_beyond, sites)) else ()
        found = []
        for site in sites:
            pair = local.windows(site)
            if max(map(fraction_n, pair)) <= self.max_n:
                ref, alt_row = place(pair)
                found.append((change.start + site.ref, site.strand, ref, alt_row))
        return _SiteRows(edge if found else (Note.TOO_MANY_N, *edge), found)

    def values(self, predicted: NDArray[np.float32]) -> NDArray[np.float32]:
        assert predicted.ndim == 1, f"{predicted.shape} scores of sequences"
        return predicted

    def effect(self, allele: _SiteRows, values: NDArray[np.float32]) -> PromoterEffect:
        sites = [
            SiteScores(position, strand, float(values[ref]), float(values[alt]))
            for position, strand, ref, alt in allele.sites
        ]
        # Of equal changes that of the leftmost site, and there of the forward strand.
        largest = min(sites, key=lambda site: (-abs(site.delta), site.position, site.strand), default=None)
        return PromoterEffect(allele.notes, largest)


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

    def has(self, site: _AlleleSite) -> bool:
        """Whether both contigs have such a base."""
        places = zip((site.ref, site.alt), self._lengths, strict=True)
        return all(0 <= self.change.start + place < length for place, length in places)

    def reaches_beyond(self, site: _AlleleSite) -> bool:
        """Whether a window of the site reaches beyond its contig."""
        left, right = self._windows.reach(site.strand)
        return any(
            self.change.start + place < left or self.change.start + place + right > length
            for place, length in zip((site.ref, site.alt), self._lengths, strict=True)
        )

    def windows(self, site: _AlleleSite) -> tuple[str, str]:
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
) -> Iterator[ScoredRecord[PromoterEffect]]:
    """Score every alternative allele of every record, in the records' order; none is left out.

    Exchanging REF and ALT, with a reference that has ALT in place, gives the negative effects, if no sites
    are given. A window that reaches beyond its contig is filled up with N and noted.

    `predict` gives the probabilities (N,) of windows in transcription order. A site is left out if one of its
    two windows has a larger fraction of N than `max_n`, what is beyond the contig included; an allele without
    any other site stays unscored. Errors are those of `score_records`, of the records and the reference, and
    `ValueError` for a number out of its range.
    """
    if not 0 <= max_n <= 1 or batch_sequences < 1:
        raise ValueError(f"max_n {max_n} or batch_sequences {batch_sequences} is out of its range")
    scorer = _SiteScorer(reference, windows, max_n)
    yield from score_records(
        records, reference, scorer, predict, first_batch=batch_sequences, batch_sequences=batch_sequences
    )


class SiteFields:
    """Effects on promoters: both scores of the site with the largest change, and where it is."""

    columns: Sequence[str] = ("ref_score", "alt_score", "delta", "site", "strand")
    keys: Sequence[InfoKey] = _KEYS

    def row(self, effect: PromoterEffect) -> Sequence[str]:
        """The fields of `columns`; NA where the allele was not scored."""
        return self._row(effect, "NA")

    def info(self, effects: Sequence[PromoterEffect]) -> Iterator[str]:
        """The parts of INFO, a value for each ALT, `.` where it was not scored; none where no ALT has any."""
        if any(effect.largest is not None for effect in effects):
            columns = zip(*(self._row(effect, ".") for effect in effects), strict=True)
            for key, values in zip(self.keys, columns, strict=False):
                yield f"{PREFIX}{key.name}={','.join(values)}"
        yield from note_info([effect.notes for effect in effects])

    def _row(self, effect: PromoterEffect, missing: str) -> Sequence[str]:
        largest = effect.largest
        if largest is None:
            return [missing] * len(self.columns)
        scores = map(decimal, (largest.ref, largest.alt, largest.delta))
        return [*scores, str(largest.position + 1), largest.strand]


@dataclass(frozen=True)
class SiteEngine:
    """A promoter model, and the TSS positions that are looked at: those of a BED file, or every `stride`
    bp."""

    model: LoadedPromoterModel
    stride: int
    sites: Path | None
    calibrated: bool
    prior: float | None

    @property
    def fields(self) -> SiteFields:
        """How its effects are written."""
        return SiteFields()

    @property
    def options(self) -> Mapping[str, object]:
        """Of the command line."""
        chosen = {"--stride": self.stride} if self.sites is None else {"--tss": self.sites}
        return {**chosen, "--prior": self.prior}

    @property
    def files(self) -> Sequence[Path | None]:
        """Further files that decide effects."""
        return (self.sites,)

    def predictor(self, batch_size: int, device: str) -> Predictor:
        """The model's probabilities of windows, calibrated if that is asked for."""
        options = {"batch_size": batch_size, "device": device}
        return calibrated_predictor(self.model, self.calibrated, self.prior, **options)

    def effects(
        self, records: Iterable[VcfRecord], reference: Reference, predict: Predictor, max_n: float
    ) -> Iterator[ScoredRecord[PromoterEffect]]:
        """Effects of every record, in their order."""
        settings = self.model.settings
        sites = None if self.sites is None else TssSites(read_sites(self.sites, reference))
        windows = SiteWindows(settings.upstream, settings.downstream, self.stride, sites)
        return promoter_effects(records, reference, windows, predict, max_n=max_n)


def read_sites(path: Path, reference: Reference) -> dict[str, list[tuple[int, Strand]]]:
    """TSS positions of a BED file, by contig: the first base of each line on its strand, or on both.

    Lines that aren't on the reference are passed over, and the log says how many.

    Raises
    ------
    DataError
        A line isn't an interval, or its strand isn't `+`, `-` or `.`; the text has the line. No line is on
        the reference.
    """
    find = contig_finder(reference.contigs, reference.names)
    sites: dict[str, list[tuple[int, Strand]]] = {}
    unknown: Counter[str] = Counter()
    beyond: Counter[str] = Counter()
    for number, fields, start, end in read_bed(path):
        contig = find(fields[0])
        text = strand_column(fields)
        if text not in ("+", "-", "."):
            raise DataError(f"{path}: line {number}: strand {quoted(text)} is not '+', '-' or '.'")
        if contig is None:
            unknown[fields[0]] += 1
        elif end > reference.contigs[contig]:
            beyond[fields[0]] += 1
        else:
            for strand in OPPOSITE:
                if text in (strand, "."):
                    sites.setdefault(contig, []).append((start if strand == "+" else end - 1, strand))
    if not sites:
        raise DataError(f"{path}: no site lies on {reference.path}")
    warn_of_absent(path, "sites", reference.path, unknown, beyond)
    return sites
