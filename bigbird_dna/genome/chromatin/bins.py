"""Bins: a regular grid over contigs, and which bins the intervals of a track mark.

Bin i of a contig is `[i * stride, i * stride + size)`; bins that the contig's end would cut are not
made. Everything works on one contig, on the bins that intervals touch, so that cost goes with the
peaks and not with the genome.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

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


def parse_rule(text: str | int) -> Rule:
    """A rule from a configuration: "half", "any", "centre" or a number of bp.

    Raises
    ------
    ConfigError
        It is none of them.
    """
    if text in ("half", "any", "centre"):
        return text  # type: ignore[return-value]
    if str(text).isascii() and str(text).isdigit() and int(text) > 0:
        return int(text)
    raise ConfigError(f"label rule {text!r} is none of half, any, centre or a number of bp")


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
    owner = np.repeat(np.arange(len(touched)), touched)
    offset = np.arange(len(owner)) - np.repeat(np.cumsum(touched) - touched, touched)
    numbers = first[owner] + offset
    begin = margin + numbers * grid.stride
    covered = np.minimum(begin + width, intervals.ends[owner]) - np.maximum(
        begin, intervals.starts[owner]
    )
    if grid.stride < grid.size:
        order = np.argsort(numbers, kind="stable")
        numbers, covered = numbers[order], covered[order]
    if not len(numbers):
        return np.zeros(0, np.int64)
    new = np.flatnonzero(np.concatenate(([True], numbers[1:] != numbers[:-1])))
    return np.asarray(numbers[new][np.add.reduceat(covered, new) >= least])


def covered_bases(intervals: Intervals, starts: Positions, ends: Positions) -> Positions:
    """How many bp of each `[starts[i], ends[i])` lie in disjoint, sorted intervals."""
    sums = np.concatenate(([0], np.cumsum(intervals.ends - intervals.starts)))

    def covered_before(positions: Positions) -> Positions:
        number = np.searchsorted(intervals.starts, positions, side="right")
        over = np.zeros(len(positions), np.int64)
        inside = number > 0
        over[inside] = np.maximum(intervals.ends[number[inside] - 1] - positions[inside], 0)
        found: Positions = sums[number] - over
        return found

    return covered_before(ends) - covered_before(starts)


def label_bins(
    intervals: Intervals, starts: Positions, size: int, rule: Rule
) -> npt.NDArray[np.bool_]:
    """Whether each bin `[starts[i], starts[i] + size)` is positive, on any grid or none."""
    if rule == "centre":
        centres = starts + size // 2
        return np.asarray(covered_bases(intervals, centres, centres + 1) == 1)
    return np.asarray(covered_bases(intervals, starts, starts + size) >= least_bases(rule, size))


def window_start(starts: Positions, size: int, window: int) -> Positions:
    """Where the model's window around each bin starts: window and bin have the same centre base.

    Negative near a contig's start. DeepSEA: 200-bp bins, 1000-bp windows from 400 bp before the bin.
    """
    return np.asarray(starts + size // 2 - window // 2)
