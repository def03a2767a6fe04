"""Splits by named regions: which bins train, validate and test when contigs are cut.

A named region of a split is written as in samtools: `22` (a whole contig), `22:18,000,000-19,000,000`
(1-based, both ends included, commas allowed) or `22:18000000-` (to the contig's end). Between
training and held-out bins lies a gap, so that no window of the one overlaps a window of the other,
or its named region.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Self

import numpy as np
import numpy.typing as npt

from bigbird_dna.errors import ConfigError
from bigbird_dna.genome.assembly import ALIAS_HINT, Assembly, shown
from bigbird_dna.genome.chromatin.bins import window_start
from bigbird_dna.genome.chromatin.peaks import Intervals, Positions, merge
from bigbird_dna.genome.intervals import Interval
from bigbird_dna.genome.splits import Split

SPLITS: tuple[Split, ...] = ("train", "valid", "test")
EXCLUDED, GAP = -1, -2
"""What stands for a split's number at bins that take no part: they overlap an excluded named region, or are
too near to a held-out one, or only partly in it."""

_REGION = re.compile(r"(?P<contig>.+):(?P<first>[0-9,]{1,30})(?:-(?P<last>[0-9,]{0,30}))?")


@dataclass(frozen=True)
class RegionSplits:
    """Named regions held out or excluded, by contig of a reference; all else is for training."""

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
    ) -> Self:
        """Read the named regions of a configuration.

        Parameters
        ----------
        contigs
            Name → length in bp of the reference's contigs.

        Raises
        ------
        ConfigError
            A text is no region of the reference, or named regions of two kinds overlap.
        """
        named = {
            key: [parse_named_region(text, contigs, assembly, f"chromatin.{key}") for text in texts]
            for key, texts in (("valid", valid), ("test", test), ("exclude", exclude))
        }
        flat = [(key, region) for key, found in named.items() for region in found]
        for (key, one), (other_key, other) in combinations(flat, 2):
            same = key == other_key or one.contig != other.contig
            if not same and one.start < other.end and other.start < one.end:
                raise ConfigError(
                    f"chromatin: {format_named_region(one)} of {key} and "
                    f"{format_named_region(other)} of {other_key} overlap"
                )
        return cls(**{key: _by_contig(found) for key, found in named.items()})

    def assign(self, contig: str, starts: Positions, size: int, window: int) -> npt.NDArray[np.int8]:
        """The splits of the bins `[starts[i], starts[i] + size)` of a contig: indices of `SPLITS`, (N,).

        A bin is held out if it lies wholly in a held-out named region. A bin for training is
        dropped (`GAP`) if its window of `window` bp (the widest that a model will see, shifts
        included) could overlap that of a held-out bin, or the held-out region; bins for validation
        are dropped likewise near regions for testing. Bins that overlap excluded ones are dropped
        (`EXCLUDED`).
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
            near = overlaps(wide, np.minimum(opens, starts), np.maximum(opens + window, starts + size))
            splits[near] = GAP
            splits[_within(regions, starts, starts + size)] = number
        if contig in self.exclude:
            splits[overlaps(self.exclude[contig], starts, starts + size)] = EXCLUDED
        return splits

    def describe(self) -> dict[str, list[str]]:
        """The named regions of each kind as text."""
        return {
            key: [
                format_named_region(Interval(contig, int(start), int(end)))
                for contig, regions in found.items()
                for start, end in zip(*regions, strict=True)
            ]
            for key, found in (("valid", self.valid), ("test", self.test), ("exclude", self.exclude))
        }


def parse_named_region(
    text: str, contigs: Mapping[str, int], assembly: Assembly, where: str = "region"
) -> Interval:
    """A named region, as samtools writes it, on a reference.

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
            f"{where}: {text!r} is not a contig or region (as 22:1,001-2,000) of the reference "
            f"({assembly.name}; it has {shown(contigs)}); {ALIAS_HINT}"
        )
    length = contigs[contig]
    first = int(match["first"].replace(",", "") or 0)
    last = int((match["last"] or "").replace(",", "") or length)
    if not 1 <= first <= last <= length:
        raise ConfigError(f"{where}: {text!r}: a region of {contig} goes from 1 to at most {length:,}")
    return Interval(contig, first - 1, last)


def format_named_region(region: Interval) -> str:
    """A named region as samtools writes it, 1-based with both ends."""
    return f"{region.contig}:{region.start + 1}-{region.end}"


def overlaps(intervals: Intervals, starts: Positions, ends: Positions) -> npt.NDArray[np.bool_]:
    """Whether each `[starts[i], ends[i])` shares a base with disjoint, sorted intervals."""
    if not len(intervals.starts):
        return np.zeros(len(starts), np.bool_)
    # The last interval that starts before the place's end reaches furthest of all such.
    number = np.searchsorted(intervals.starts, ends, side="left") - 1
    return np.asarray((number >= 0) & (intervals.ends[number] > starts))


def _within(intervals: Intervals, starts: Positions, ends: Positions) -> npt.NDArray[np.bool_]:
    number = np.searchsorted(intervals.starts, starts, side="right") - 1
    return np.asarray((number >= 0) & (intervals.ends[number] >= ends))


def _by_contig(regions: Sequence[Interval]) -> dict[str, Intervals]:
    found: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for region in regions:
        found[region.contig].append((region.start, region.end))
    return {contig: merge(*np.array(spans, np.int64).T) for contig, spans in found.items()}
