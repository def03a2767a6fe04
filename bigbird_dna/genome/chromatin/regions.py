"""Bins of the genome, and the regions that are held out.

Bins are a regular grid over contigs: bin i of a contig is `[i * stride, i * stride + size)`; those that the
contig's end would cut are not made. Everything works on one contig, on the bins that intervals touch, so that
cost goes with the peaks and not with the genome.

Between training and held-out bins lies a gap, so that no window of the one overlaps a window of the other, or
its named region.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
import numpy.typing as npt

from bigbird_dna.errors import ConfigError
from bigbird_dna.genome.regions import NamedRegion, format_named_region
from bigbird_dna.genome.sequence import Interval, Intervals, Positions
from bigbird_dna.genome.splits import Split

Rule = Literal["half", "any", "centre"] | int
"""When a bin is positive: more than half of it is in peaks (DeepSEA: above 100 of 200 bp), any base
is, its centre base (number size // 2, from 0) is, or at least so many bases are."""


@dataclass(frozen=True)
class Grid:
    """The bins' size and distance, bp; by default they stand side by side."""

    size: int = 200
    stride: int = 0  # 0: the size

    def __post_init__(self) -> None:
        if self.size < 1 or self.stride < 0:
            raise ConfigError(f"bins of {self.size} bp every {self.stride} bp: no such grid")
        if not self.stride:
            object.__setattr__(self, "stride", self.size)

    def bins(self, length: int) -> int:
        """How many bins a contig of `length` bp has."""
        return max(0, (length - self.size) // self.stride + 1)

    def starts(self, length: int) -> Positions:
        """Where the bins of a contig start."""
        return np.arange(self.bins(length), dtype=np.int64) * self.stride


def least_bases(rule: Rule, size: int) -> int:
    """How many bp of a bin peaks must cover; for "centre", 1 of the centre base alone."""
    least = size // 2 + 1 if rule == "half" else rule if isinstance(rule, int) else 1
    if not 1 <= least <= size:
        raise ConfigError(f"label rule {rule!r}: a bin has {size} bp")
    return least


def positive_bins(intervals: Intervals, grid: Grid, length: int, rule: Rule = "half") -> Positions:
    """The numbers of the bins of a contig of `length` bp that are positive by a rule, ascending."""
    least = least_bases(rule, grid.size)
    margin, width = (grid.size // 2, 1) if rule == "centre" else (0, grid.size)
    # The bins' parts that count are [margin + i * stride, … + width); those with
    # margin + i * stride + width > start and margin + i * stride < end may overlap the interval.
    first = np.maximum(-((margin + width - 1 - intervals.starts) // grid.stride), 0)
    last = np.minimum((intervals.ends - 1 - margin) // grid.stride, grid.bins(length) - 1)
    touched = np.maximum(last - first + 1, 0)
    before = np.repeat(first - (np.cumsum(touched) - touched), touched)
    numbers = np.sort(before + np.arange(len(before)), kind="stable")  # `np.unique` takes many times as long
    numbers = numbers[np.diff(numbers, prepend=-1) > 0]
    begin = margin + numbers * grid.stride
    return np.asarray(numbers[intervals.covered(begin, begin + width) >= least])


def window_start(starts: Positions, size: int, window: int) -> Positions:
    """Where the model's window around each bin starts: window and bin have the same centre base.

    Negative near a contig's start. DeepSEA: 200-bp bins, 1000-bp windows from 400 bp before the bin.
    """
    return np.asarray(starts + size // 2 - window // 2)


SPLITS: tuple[Split, ...] = ("train", "valid", "test")
KINDS = ("valid", "test", "exclude")
EXCLUDED, GAP = -1, -2
"""What stands for a split's number at bins that take no part: they overlap an excluded named region, or are
too near to a held-out one, or only partly in it."""


@dataclass(frozen=True)
class RegionSplits:
    """Named regions by kind (valid, test, exclude) and contig of a reference; all else is for training."""

    regions: Mapping[str, Mapping[str, Intervals]]

    @classmethod
    def from_regions(cls, named: Sequence[NamedRegion]) -> Self:
        """Regions that were read already; those of two kinds don't overlap."""
        kinds = {kind: [one.interval for one in named if one.kind == kind] for kind in KINDS}
        return cls(
            {
                kind: Intervals.joined(
                    (one.contig, Intervals(np.array([one.start]), np.array([one.end]))) for one in regions
                )
                for kind, regions in kinds.items()
            }
        )

    def assign(self, contig: str, starts: Positions, size: int, window: int) -> npt.NDArray[np.int8]:
        """The splits of the bins `[starts[i], starts[i] + size)` of a contig: indices of `SPLITS`, (N,).

        A bin is held out if it lies wholly in a held-out named region. A bin for training is dropped (`GAP`)
        if its window of `window` bp (the widest that a model will see) could overlap that of a held-out bin,
        or the region; bins for validation likewise near regions for testing. Bins that overlap excluded
        regions are dropped (`EXCLUDED`).
        """
        splits = np.zeros(len(starts), np.int8)
        opens = window_start(starts, size, window)
        # How far the window of a bin that ends at a region's edge reaches beyond it.
        before, after = size // 2 - window // 2, window - size - (window // 2 - size // 2)
        for number, kind in enumerate(SPLITS[1:], start=1):
            regions = self.regions[kind].get(contig)
            if regions is None:
                continue
            wide = Intervals.union(regions.starts + min(before, 0), regions.ends + max(after, 0))
            near = wide.overlap(np.minimum(opens, starts), np.maximum(opens + window, starts + size))
            splits[near] = GAP
            splits[regions.hold(starts, starts + size)] = number
        if excluded := self.regions["exclude"].get(contig):
            splits[excluded.overlap(starts, starts + size)] = EXCLUDED
        return splits

    def describe(self) -> dict[str, list[str]]:
        """The named regions of each kind as text."""
        return {
            kind: [
                format_named_region(Interval(contig, *ends))
                for contig, regions in found.items()
                for ends in zip(regions.starts.tolist(), regions.ends.tolist(), strict=True)
            ]
            for kind, found in self.regions.items()
        }
