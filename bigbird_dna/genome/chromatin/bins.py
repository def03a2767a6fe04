"""Bins: a regular grid over contigs, and which bins the intervals of a track mark.

Bin i of a contig is `[i * stride, i * stride + size)`; bins that the contig's end would cut are not
made. Everything works on one contig, on the bins that intervals touch, so that cost goes with the
peaks and not with the genome.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from bigbird_dna.errors import ConfigError
from bigbird_dna.genome.chromatin.peaks import Intervals, Positions

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
    """How many bp of a bin peaks must cover; for "centre", 1 of the centre base alone.

    Raises
    ------
    ConfigError
        More than the bin has.
    """
    least = size // 2 + 1 if rule == "half" else rule if isinstance(rule, int) else 1
    if not 1 <= least <= size:
        raise ConfigError(f"label rule {rule!r}: a bin has {size} bp")
    return least


def positive_bins(intervals: Intervals, grid: Grid, length: int, rule: Rule = "half") -> Positions:
    """The numbers of the bins that are positive by a rule, ascending.

    Parameters
    ----------
    intervals
        Of one contig, disjoint and sorted, inside it (as `merge` makes them).
    length
        bp of the contig.
    """
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
    return np.asarray(numbers[covered_bases(intervals, begin, begin + width) >= least])


def covered_bases(intervals: Intervals, starts: Positions, ends: Positions) -> Positions:
    """How many bp of each `[starts[i], ends[i])` lie in disjoint, sorted intervals."""
    # The bases covered before a position grow by one a base inside an interval, and not between two.
    edges = np.concatenate(([0], np.stack(intervals, axis=1).ravel()))
    sums = np.repeat(np.concatenate(([0], np.cumsum(intervals.ends - intervals.starts))), 2)[:-1]
    return np.asarray(np.interp(ends, edges, sums) - np.interp(starts, edges, sums), np.int64)


def window_start(starts: Positions, size: int, window: int) -> Positions:
    """Where the model's window around each bin starts: window and bin have the same centre base.

    Negative near a contig's start. DeepSEA: 200-bp bins, 1000-bp windows from 400 bp before the bin.
    """
    return np.asarray(starts + size // 2 - window // 2)
