"""Bins of the genome, and the regions that are held out.

Bins are a regular grid over contigs: bin i of a contig is `[i * stride, i * stride + size)`; those that the
contig's end would cut are not made. Everything works on one contig, on the bins that intervals touch, so that
cost goes with the peaks and not with the genome.

Between training and held-out bins lies a gap, so that no window of the one overlaps a window of the other, or
its named region.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from bigbird_dna.genome.regions import NamedRegion, format_named_region
from bigbird_dna.genome.sequence import Interval, Intervals, Positions
from bigbird_dna.genome.splits import Split


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
