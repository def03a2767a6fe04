"""Splits by named regions: which bins train, validate and test when contigs are cut.

A region is written as in samtools: `22` (a whole contig), `22:18,000,000-19,000,000` (1-based, both
ends included, commas allowed) or `22:18000000-` (to the contig's end). Between training and
held-out bins lies a gap, so that no window of the one overlaps a window or region of the other.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from bigbird_dna.errors import ConfigError
from bigbird_dna.genome.assembly import Assembly, shown
from bigbird_dna.genome.chromatin.bins import window_start
from bigbird_dna.genome.chromatin.peaks import Intervals, Positions, merge
from bigbird_dna.genome.intervals import Interval
from bigbird_dna.genome.splits import Split

SPLITS: tuple[Split, ...] = ("train", "valid", "test")
EXCLUDED, GAP = -1, -2
"""What stands for a split's number at bins that take no part."""

_REGION = re.compile(r"(?P<contig>.+):(?P<first>[\d,]+)(?:-(?P<last>[\d,]*))?")


class Assigned(NamedTuple):
    """The split of each bin of a contig, (N,) int8: an index of `SPLITS`, `EXCLUDED` or `GAP`."""

    splits: npt.NDArray[np.int8]

    @property
    def excluded(self) -> int:
        """Bins that overlap an excluded region."""
        return int(np.count_nonzero(self.splits == EXCLUDED))

    @property
    def gap(self) -> int:
        """Bins too near to a held-out region, or only partly in it."""
        return int(np.count_nonzero(self.splits == GAP))


@dataclass(frozen=True)
class RegionSplits:
    """Held-out and excluded regions, by contig of a reference; all else is for training."""

    valid: Mapping[str, Intervals] = field(default_factory=dict)
    test: Mapping[str, Intervals] = field(default_factory=dict)
    exclude: Mapping[str, Intervals] = field(default_factory=dict)

    @classmethod
    def from_names(
        cls,
        contigs: Mapping[str, int],
        assembly: Assembly,
        *,
        valid: Sequence[str] = (),
        test: Sequence[str] = (),
        exclude: Sequence[str] = (),
        where: str = "chromatin",
    ) -> Self:
        """Read contigs and regions as a configuration names them.

        Parameters
        ----------
        contigs
            Name → length in bp of the reference's contigs.
        where
            What an error calls the section of the configuration.

        Raises
        ------
        ConfigError
            A text is no region of the reference, or regions of two kinds overlap.
        """
        named = {"valid": valid, "test": test, "exclude": exclude}
        regions = {
            key: [parse_region(text, contigs, assembly, f"{where}.{key}") for text in texts]
            for key, texts in named.items()
        }
        flat = [(key, region) for key, found in regions.items() for region in found]
        for number, (key, region) in enumerate(flat):
            for other_key, other in flat[:number]:
                if key != other_key and _overlap(region, other):
                    raise ConfigError(
                        f"{where}: {format_region(other)} of {other_key} and "
                        f"{format_region(region)} of {key} overlap"
                    )
        return cls(**{key: _by_contig(found) for key, found in regions.items()})

    def assign(self, contig: str, starts: Positions, size: int, window: int) -> Assigned:
        """The split of the bins `[starts[i], starts[i] + size)` of a contig.

        A bin is held out if it lies wholly in a held-out region. A bin for training is dropped
        (`GAP`) if its window of `window` bp (the widest that a model will see, shifts included)
        could overlap that of a held-out bin, or the held-out region; bins for validation are
        dropped likewise near regions for testing. Bins that overlap excluded regions are dropped.
        """
        splits = np.zeros(len(starts), np.int8)
        opens = window_start(starts, size, window)
        # How far the window of a bin that ends at a region's edge reaches beyond it.
        before, after = size // 2 - window // 2, window - size - (window // 2 - size // 2)
        for number, held_out in ((1, self.valid), (2, self.test)):
            regions = held_out.get(contig)
            if regions is None:
                continue
            wide = merge(regions.starts + min(before, 0), regions.ends + max(after, 0))
            near = overlaps(
                wide, np.minimum(opens, starts), np.maximum(opens + window, starts + size)
            )
            splits[near] = GAP
            splits[_within(regions, starts, starts + size)] = number
        if contig in self.exclude:
            splits[overlaps(self.exclude[contig], starts, starts + size)] = EXCLUDED
        return Assigned(splits)

    def describe(self) -> dict[str, list[str]]:
        """The regions of each kind as text."""
        return {
            key: [
                format_region(Interval(contig, int(start), int(end)))
                for contig, regions in found.items()
                for start, end in zip(*regions, strict=True)
            ]
            for key, found in (
                ("valid", self.valid),
                ("test", self.test),
                ("exclude", self.exclude),
            )
        }


def parse_region(
    text: str, contigs: Mapping[str, int], assembly: Assembly, where: str = "region"
) -> Interval:
    """A contig or region as samtools writes it, on a reference.

    Raises
    ------
    ConfigError
        Unknown contig, or ends that aren't 1 ≤ first ≤ last ≤ length.
    """
    whole = assembly.match(text, contigs)
    if whole is not None:
        return Interval(whole, 0, contigs[whole])
    match = _REGION.fullmatch(text.strip())
    contig = assembly.match(match["contig"], contigs) if match else None
    if contig is None or match is None:
        raise ConfigError(
            f"{where}: {text!r} is no contig or region (as 22:1,001-2,000) of the reference "
            f"({assembly.name}; it has {shown(contigs)})"
        )
    length = contigs[contig]
    first = int(match["first"].replace(",", "") or 0)
    last = int((match["last"] or "").replace(",", "") or length)
    if not 1 <= first <= last <= length:
        raise ConfigError(
            f"{where}: {text!r}: a region of {contig} goes from 1 to at most {length:,}"
        )
    return Interval(contig, first - 1, last)


def format_region(region: Interval) -> str:
    """A region as samtools writes it, 1-based with both ends."""
    return f"{region.contig}:{region.start + 1}-{region.end}"


def overlaps(regions: Intervals, starts: Positions, ends: Positions) -> npt.NDArray[np.bool_]:
    """Whether each `[starts[i], ends[i])` shares a base with disjoint, sorted regions."""
    if not len(regions.starts):
        return np.zeros(len(starts), np.bool_)
    # The last region that starts before the interval's end reaches furthest of all such.
    number = np.searchsorted(regions.starts, ends, side="left") - 1
    found: npt.NDArray[np.bool_] = (number >= 0) & (regions.ends[number] > starts)
    return found


def _within(regions: Intervals, starts: Positions, ends: Positions) -> npt.NDArray[np.bool_]:
    number = np.searchsorted(regions.starts, starts, side="right") - 1
    found: npt.NDArray[np.bool_] = (number >= 0) & (regions.ends[number] >= ends)
    return found


def _overlap(one: Interval, other: Interval) -> bool:
    return one.contig == other.contig and one.start < other.end and other.start < one.end


def _by_contig(regions: Iterable[Interval]) -> dict[str, Intervals]:
    found: dict[str, list[Interval]] = {}
    for region in regions:
        found.setdefault(region.contig, []).append(region)
    return {
        contig: merge(
            np.array([region.start for region in group], np.int64),
            np.array([region.end for region in group], np.int64),
        )
        for contig, group in found.items()
    }
