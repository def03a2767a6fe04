"""Start sites of a genome by split: random training windows, and their labels at every base.

Axes: S bases of a window.
"""

from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.config.run import Config
from bigbird_dna.errors import DataError
from bigbird_dna.genome.intervals import read_bed, strand_column
from bigbird_dna.genome.promoters import read_loci
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import STRANDS, Interval, reverse_complement
from bigbird_dna.genome.sources import find_assembly
from bigbird_dna.genome.splits import Split, Splits
from bigbird_dna.model.start_sites import SHORTEST

LONG = 5
"""Windows extend beyond the ends of contigs of at least so many windows. Shorter contigs may be sequences that were
cut around start sites: a window that ends where they do would give the site away."""

Labels = NDArray[np.float32]


class Region(NamedTuple):
    """A part of a contig in one split, and where windows in it may begin."""

    interval: Interval
    first: int
    last: int  # inclusive
    sites: NDArray[np.int64]  # start sites in it, on either strand


class StartSites:
    """Start sites (TSV `promoters`) of a genome, and windows as `promoters.dense` of the configuration has them.

    A window may extend beyond the end of a long contig, which cuts it off, but not into another split: no base of a
    held-out region is read in training. Bases in the intervals of the BED file `ignore` have no label on the
    interval's strand (on both without one), unless they are near a start site.
    """

    def __init__(
        self,
        run: Config,
        promoters: Path,
        reference: Reference,
        ignore: Path | None = None,
    ) -> None:
        self.dense, self.reference, self.promoters = (
            run.promoters.dense,
            reference,
            promoters,
        )
        assembly = find_assembly(run)
        self.splits = Splits.from_config(run.genome, reference.contigs, assembly)
        sites: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        for locus in read_loci(promoters):
            if locus.contig not in reference.contigs:
                raise DataError(
                    f"{promoters}: {locus.name} is on contig {locus.contig!r}, which {reference.path} lacks"
                )
            sites[locus.contig, locus.strand].append(locus.position)

        self.sites = {key: np.unique(positions) for key, positions in sites.items()}
        self.ignored: defaultdict[tuple[str, str], list[tuple[int, int]]] = defaultdict(
            list
        )
        for number, fields, start, end in () if ignore is None else read_bed(ignore):
            if fields[0] not in reference.contigs:
                raise DataError(
                    f"{ignore}: line {number}: {reference.path} lacks contig {fields[0]!r}"
                )
            strand = strand_column(fields)
            for each in (strand,) if strand in STRANDS else STRANDS:
                self.ignored[fields[0], each].append((start, end))

    def regions(self, split: Split) -> list[Region]:
        """The regions of a split that windows are read from."""
        margin, window = self.dense.margin, self.dense.window
        regions = []
        for interval in self.splits.intervals(split):
            length = self.reference.contigs[interval.contig]
            first, end = interval.start, interval.end
            if length >= LONG * window:
                # At the ends of a contig, the bases of the margins are scored as well.
                first -= margin * (interval.start == 0)
                end += margin * (interval.end == length)
            last = end - window
            if last < first:  # a short region is read as a whole
                first = last = (first + last) // 2

            both = [self.sites_in(interval, strand) for strand in STRANDS]
            regions.append(Region(interval, first, last, np.concatenate(both)))

        return regions

    def sites_in(self, interval: Interval, strand: str) -> NDArray[np.int64]:
        """Positions of start sites of a strand in an interval, ascending."""
        positions = self.sites.get((interval.contig, strand), np.empty(0, np.int64))
        first, last = np.searchsorted(positions, [interval.start, interval.end])
        return positions[first:last]

    def text(self, region: Region, start: int) -> tuple[str, int]:
        """The bases of the window from `start` on that are in its region, and where they begin."""
        first = max(start, region.interval.start)
        end = min(start + self.dense.window, region.interval.end)
        contig = region.interval.contig
        return self.reference.fetch(Interval(contig, first, end)), first

    def labels(self, region: Region, start: int, length: int) -> Labels:
        """Labels (2, S) of bases: 1 at a start site, falling linearly to 0; NaN: none."""
        reach, contig = self.dense.smoothing_bp, region.interval.contig
        around = Interval(contig, max(0, start - reach), start + length + reach)
        labels = np.zeros((len(STRANDS), length), np.float32)
        for of_strand, strand in zip(labels, STRANDS, strict=True):
            for site in self.sites_in(around, strand) - start:
                places = np.arange(
                    max(site - reach, 0), min(site + reach + 1, length), dtype=int
                )
                near = 1 - abs(places - site) / (reach + 1)
                of_strand[places] = np.maximum(of_strand[places], near)

            for first, end in self.ignored.get((contig, strand), ()):
                part = of_strand[max(first - start, 0) : max(end - start, 0)]
                part[part == 0] = np.nan

        return labels

    def labels_of_window(self, region: Region, start: int, length: int) -> Labels:
        """Labels (2, S), NaN in the window's margins, except at the ends of the contig."""
        labels = self.labels(region, start, length)
        if start > 0:
            labels[:, : self.dense.margin] = np.nan
        if start + length < self.reference.contigs[region.interval.contig]:
            labels[:, max(0, length - self.dense.margin) :] = np.nan
        return labels

    @cached_property
    def training(self) -> list[Region]:
        """The training regions; `DataError` if no start site is on them."""
        regions = self.regions("train")
        if not any(len(region.sites) for region in regions):
            raise DataError(f"{self.promoters}: no start site is on a training contig")
        return regions

    @cached_property
    def _sizes(self) -> NDArray[np.int64]:
        """Cumulative numbers of bases of the training regions."""
        return np.cumsum([len(region.interval) for region in self.training])

    @cached_property
    def _site_counts(self) -> NDArray[np.int64]:
        """Cumulative numbers of start sites of the training regions."""
        return np.cumsum([len(region.sites) for region in self.training])

    def _place(self, rng: np.random.Generator) -> tuple[Region, int]:
        """Draw a training window: its region, and its start."""
        if rng.random() >= self.dense.training.near_sites:
            number = rng.integers(self._sizes[-1])
            region = self.training[np.searchsorted(self._sizes, number, "right")]
            return region, int(rng.integers(region.first, region.last + 1))

        number = rng.integers(self._site_counts[-1])
        index = np.searchsorted(self._site_counts, number, "right")
        region = self.training[index]
        site = region.sites[number - self._site_counts[index]]
        # Of the places that the region has for the window, none is likelier: else the site's would be known.
        margin = self.dense.margin
        first = min(
            max(site - self.dense.window + margin + 1, region.first), region.last
        )
        last = max(min(site - margin, region.last), first)
        return region, int(rng.integers(first, last + 1))

    def draw(self, rng: np.random.Generator) -> tuple[str, Labels]:
        """Draw the bases of a training window on a random strand, and their labels (2, S)."""
        region, start = self._place(rng)
        text, start = self.text(region, start)
        shortest = 0
        if len(region.interval) < self.dense.window:
            # Its length and the place of its start site must not give the site away.
            shortest = len(text) // 2
        elif rng.random() < self.dense.training.short:
            shortest = SHORTEST

        if 0 < shortest < len(text):
            # A part of any length, without the bases around it; lengths are uniform in their logarithm.
            length = round(shortest * (len(text) / shortest) ** rng.random())
            offset = int(rng.integers(len(text) - length + 1))
            text, start = text[offset : offset + length], start + offset
            labels = self.labels(region, start, length)
        else:
            labels = self.labels_of_window(region, start, len(text))

        if rng.integers(2):
            text, labels = reverse_complement(text), labels[::-1, ::-1]
        return text, labels


def fill_labels(windows: Sequence[tuple[str, Labels]], length: int) -> Labels:
    """The labels (B, 2, S) of drawn windows, NaN from the end of each to the common length."""
    filled = np.full((len(windows), len(STRANDS), length), np.nan, np.float32)
    for row, (text, labels) in zip(filled, windows, strict=True):
        row[:, : len(text)] = labels

    return filled
