"""Effects of variants on promoters: changes of the score of the TSS positions around a variant.

A site is a TSS position on a strand. It is considered for a variant if its window covers a changed base. The
score of the reference window is compared with that of the window around the same base after the alternative
allele is inserted; the site with the largest absolute change is reported. Memory does not grow with the
number of records.

Sites are either given, or placed at regular distances from the changed bases to both sides. The sites of a
variant therefore do not depend on its coordinates, and the reverse variant has the opposite effect.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import (
    OPPOSITE,
    Interval,
    Strand,
    centered_tiles,
    fraction_n,
    reverse_complement,
)
from bigbird_dna.genome.variants import Change, Note
from bigbird_dna.scoring.variant_effects import EffectKind, InfoKey, Place, decimal

STRIDE = 20
"""Distance in bp between the tested sites if none are given."""

NO_SITE = "NO_SITE"
"""Note of an allele that is not covered by the window of any site."""

_AT = "at the TSS position with the largest change either way"


class SiteScores(NamedTuple):
    """Scores of a site with either allele; `position` is 0-based, in the reference."""

    position: int
    strand: Strand
    ref: float
    alt: float

    @property
    def delta(self) -> float:
        """Score of the alternative allele minus score of the reference."""
        return self.alt - self.ref


class PromoterEffect(NamedTuple):
    """Effect of an alternative allele: the site with the largest change, or None if it was not scored."""

    notes: tuple[str, ...]
    largest: SiteScores | None

    @property
    def delta(self) -> float | None:
        """The largest change; None if the allele was not scored."""
        return None if self.largest is None else self.largest.delta


class TssSites:
    """TSS positions to test, by contig name of the reference."""

    def __init__(self, sites: Mapping[str, Iterable[tuple[int, Strand]]]) -> None:
        self._sorted = {contig: sorted(set(places)) for contig, places in sites.items()}

    def __len__(self) -> int:
        return sum(map(len, self._sorted.values()))

    def within(self, contig: str, start: int, end: int) -> list[tuple[int, Strand]]:
        """Return the positions from `start` to `end` (exclusive), ascending."""
        places = self._sorted.get(contig, [])
        return places[bisect_left(places, (start, "")) : bisect_left(places, (end, ""))]


Site = tuple[int, int, Strand]
"""A TSS position in the reference and the alternative contig, in bases from the change's start; strand."""

SiteRows = list[tuple[int, Strand, int, int]]
"""Sites of an allele: position, strand, and the rows of the reference and the alternative window."""


@dataclass(frozen=True)
class SiteEffects(EffectKind[SiteRows, PromoterEffect]):
    """Effects at sites whose windows have `upstream` bp before the TSS and `downstream` bp from the TSS on.

    Predictions are (N,), for windows in transcription order. `sites=None`: test every `stride` bp. A site is
    skipped if one of its two windows is not scored; an allele without any scored site is not scored.
    """

    batches = (2048, 2048)
    notes: ClassVar[Mapping[str, str]] = {
        NO_SITE: "no site's window covers a changed base"
    }
    columns: ClassVar[Sequence[str]] = (
        "ref_score",
        "alt_score",
        "delta",
        "site",
        "strand",
    )
    keys: ClassVar[Sequence[InfoKey]] = (
        InfoKey("PROMOTER_REF", "A", "Float", f"Promoter score of the reference {_AT}"),
        InfoKey(
            "PROMOTER_ALT", "A", "Float", f"Promoter score with ALT in place {_AT}"
        ),
        InfoKey(
            "PROMOTER_DELTA",
            "A",
            "Float",
            f"Change of the promoter score, ALT minus REF, {_AT}",
        ),
        InfoKey(
            "PROMOTER_SITE",
            "A",
            "Integer",
            "This TSS position in the reference, 1-based",
        ),
        InfoKey("PROMOTER_STRAND", "A", "String", "Strand of this TSS, + or -"),
    )

    upstream: int
    downstream: int
    stride: int = STRIDE
    sites: TssSites | None = None

    def __post_init__(self) -> None:
        if self.upstream < 0 or self.downstream < 1 or self.stride < 1:
            raise ValueError(
                f"{self.upstream}, {self.downstream} or {self.stride} bp is out of range"
            )

    def windows(
        self, change: Change, reference: Reference, max_n: float, place: Place
    ) -> tuple[tuple[str, ...], SiteRows | None]:
        """Return the sites that are on both contigs, with the rows of their windows."""
        contig, start, size = (
            change.contig,
            change.start,
            self.upstream + self.downstream,
        )
        alleles = change.ref, change.alt
        if max(map(len, alleles)) > size:
            return (Note.TOO_LONG,), None
        end, length = start + len(change.ref), reference.contigs[contig]
        left = reference.fetch(Interval(contig, start - size, start))
        right = reference.fetch(Interval(contig, end, end + size))
        texts = [left + allele + right for allele in alleles]
        lengths = [length - len(change.ref) + len(allele) for allele in alleles]
        edge: tuple[str, ...] = ()
        found, without_site = SiteRows(), True
        for ref, alt, strand in self._sites(change, size):
            places = [(start + ref, lengths[0]), (start + alt, lengths[1])]
            if not all(0 <= at < end for at, end in places):
                continue
            without_site = False
            before, after = self._reach(strand)
            if any(not before <= at <= end - after for at, end in places):
                edge = (Note.CONTIG_EDGE,)
            pair = [
                text[size + at - before : size + at + after]
                for text, at in zip(texts, (ref, alt), strict=True)
            ]
            if max(map(fraction_n, pair)) <= max_n:
                first, second = place(
                    pair if strand == "+" else map(reverse_complement, pair)
                )
                found.append((start + ref, strand, first, second))
        if without_site:
            return (NO_SITE,), None
        return (edge, found) if found else ((Note.TOO_MANY_N, *edge), None)

    def values(self, predicted: NDArray[np.float32]) -> NDArray[np.float32]:
        assert predicted.ndim == 1, f"{predicted.shape} scores of sequences"
        return predicted

    def effect(
        self, notes: tuple[str, ...], rows: SiteRows | None, values: NDArray[np.float32]
    ) -> PromoterEffect:
        """Return the largest change; ties go to the leftmost site, then to the forward strand."""
        sites = [
            SiteScores(position, strand, float(values[ref]), float(values[alt]))
            for position, strand, ref, alt in rows or ()
        ]
        largest = min(
            sites,
            key=lambda site: (-abs(site.delta), site.position, site.strand),
            default=None,
        )
        return PromoterEffect(notes, largest)

    def row(self, effect: PromoterEffect, missing: str = "NA") -> Sequence[str]:
        largest = effect.largest
        if largest is None:
            return [missing] * len(self.columns)
        scores = map(decimal, (largest.ref, largest.alt, largest.delta))
        return [*scores, str(largest.position + 1), largest.strand]

    def _reach(self, strand: Strand) -> tuple[int, int]:
        """Extent in bp of a window left of its TSS, and from the TSS to the right, on the forward strand."""
        return (
            (self.upstream, self.downstream)
            if strand == "+"
            else (self.downstream - 1, self.upstream + 1)
        )

    def _sites(self, change: Change, size: int) -> Iterator[Site]:
        """Yield the sites whose window covers a changed base."""
        ref, alt = len(change.ref), len(change.alt)
        if self.sites is None:
            for strand in OPPOSITE:
                left, right = self._reach(strand)
                yield from ((at, at, strand) for at in range(-1, -right, -self.stride))
                yield from (
                    (ref + at, alt + at, strand) for at in range(0, left, self.stride)
                )
                for at in centered_tiles(max(ref, alt), 1, self.stride):
                    there = moved(at, strand, max(ref, alt), min(ref, alt))
                    yield (at, there, strand) if ref >= alt else (there, at, strand)
            return
        for position, strand in self.sites.within(
            change.contig, change.start - size, change.start + ref + size
        ):
            at = position - change.start
            left, right = self._reach(strand)
            if -right < at < ref + left:
                yield at, moved(at, strand, ref, alt), strand


def moved(place: int, strand: Strand, before: int, after: int) -> int:
    """Return the new position of a base when the `before` bases from 0 on are replaced by `after` bases.

    A replaced base keeps its distance, in transcription order, from the first replaced base. If the
    replacement is too short, the result is its last base, or the next base downstream if it is empty.
    """
    if place < 0:
        return place
    if place >= before:
        return place + after - before
    if strand == "+":
        return min(place, max(after - 1, 0))
    return max(place + after - before, 0 if after else -1)
