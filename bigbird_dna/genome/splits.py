"""Assign the bases of a reference to training, validation, testing or nothing.

A named region is a part of the reference in samtools notation, with 1-based inclusive ends. `22` is a whole
contig, `22:18,000,001-19,000,000` a part of it (commas are allowed), and `22:18000001-` or `22:18000001`
extends to the contig's end.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import combinations
from typing import Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from bigbird_dna.config.data import GenomeConfig
from bigbird_dna.console import log
from bigbird_dna.errors import ConfigError, UsageError, meant
from bigbird_dna.genome.assembly import ALIAS_HINT, Assembly, shown
from bigbird_dna.genome.intervals import find_region, parse_region
from bigbird_dna.genome.sequence import Interval, Positions, window_start

Split = Literal["train", "valid", "test"]

SPLITS: tuple[Split, ...] = ("train", "valid", "test")
EXCLUDED, GAP = -1, -2
"""Split index of bins that are not used: they overlap an excluded region, or are too close to a held-out
region or only partly in it."""
_SPLITS: Mapping[str, Split | None] = {
    "valid": "valid",
    "test": "test",
    "exclude": None,
}


class NamedRegion(NamedTuple):
    """An entry of the configuration and its interval of the reference."""

    key: str  # of the configuration
    kind: str  # valid, test or exclude
    text: str
    interval: Interval


def find_named(
    config: GenomeConfig,
    contigs: Mapping[str, int],
    assembly: Assembly,
    *,
    valid_regions: Sequence[str] = (),
    test_regions: Sequence[str] = (),
) -> list[NamedRegion]:
    """Return the contigs and regions of a reference that the configuration names.

    An entry is any name of a contig, a region in samtools notation, or a shell pattern that matches a name of
    a contig. Full names take precedence over patterns. Entries of different kinds must not overlap. The
    regions in the arguments are those of chromatin.data.
    """
    entries = [
        (f"genome.{kind}", kind, text)
        for kind in ("exclude", "valid", "test")
        for text in getattr(config, kind)
    ]
    for kind, texts in (("valid", valid_regions), ("test", test_regions)):
        entries += [(f"chromatin.data.{kind}_regions", kind, text) for text in texts]

    named, patterns = [], []
    for key, kind, text in entries:
        try:
            interval = find_region(
                text, contigs, lambda name: assembly.match(name, contigs)
            )
        except UsageError as error:
            raise ConfigError(f"{key}: {error}") from None

        if interval is not None:
            named.append(NamedRegion(key, kind, text, interval))
        elif re.search(r"[*?[]", text):
            patterns.append((key, kind, text))
        else:
            raise ConfigError(
                f"{key}: {text!r} is not a contig or region (such as 22:1,001-2,000) of the reference "
                f"({assembly.name}; the reference has {shown(contigs)}); {ALIAS_HINT}"
                f"{meant(text.partition(':')[0], contigs)}"
            )

    intervals = [region.interval for region in named]
    for key, kind, text in patterns:
        matches = [
            Interval(contig, 0, length)
            for contig, length in contigs.items()
            if any(fnmatchcase(name, text) for name in assembly.names_of(contig))
        ]
        if not matches:
            what = f"{key}: {text!r} matches no contig of the reference"
            if kind != "exclude":
                raise ConfigError(
                    f"{what} ({assembly.name}; the reference has {shown(contigs)})"
                )

            log(what)

        for interval in matches:
            if interval not in intervals:
                named.append(NamedRegion(key, kind, text, interval))

    ordered = sorted(named, key=lambda region: region.interval)
    for first, second in combinations(ordered, 2):
        if (
            first.interval.contig == second.interval.contig
            and second.interval.start < first.interval.end
            and first.kind != second.kind
        ):
            raise ConfigError(
                f"{first.key}: {first.text!r} overlaps {second.text!r} in {second.key}, on contig "
                f"{first.interval.contig!r}"
            )

    return named


def format_named_region(region: Interval) -> str:
    """Format a named region with both ends, without commas."""
    return f"{region.contig}:{region.start + 1}-{region.end}"


def read_named_region(text: str) -> Interval:
    """Parse a text of `format_named_region` without a reference; `ValueError` for any other text."""
    region = parse_region(text)
    if region is None or region[2] is None or not 0 <= region[1] < region[2]:
        raise ValueError(f"{text!r} is not a region such as 22:1001-2000")
    return Interval(region[0], region[1], region[2])


def name_parts(segments: Sequence[Interval], lengths: Mapping[str, int]) -> list[str]:
    """Return the named regions of those segments that are not a whole contig, in their order."""
    return [
        format_named_region(segment)
        for segment in segments
        if len(segment) < lengths[segment.contig]
    ]


class Segment(NamedTuple):
    """Consecutive bases of a contig with the same split; None means that they are not used."""

    interval: Interval
    split: Split | None


@dataclass(frozen=True)
class Splits:
    """The segments of each contig of a reference, in its order; together they cover the whole contig.

    Adjacent segments never have the same split.
    """

    by_contig: Mapping[str, Sequence[Segment]]

    @classmethod
    def from_config(
        cls,
        config: GenomeConfig,
        contigs: Mapping[str, int],
        assembly: Assembly,
        **regions: Sequence[str],
    ) -> Self:
        """Divide a reference as configured; `regions` are extra regions for `find_named`. Bases that are not
        named are for training."""
        named = find_named(config, contigs, assembly, **regions)
        splits = cls.from_regions(named, contigs)
        if not splits.intervals("train"):
            raise ConfigError(
                "genome: exclude, valid and test name all bases, so none is left for training"
            )
        return splits

    @classmethod
    def from_regions(
        cls, named: Iterable[NamedRegion], contigs: Mapping[str, int]
    ) -> Self:
        """Divide a reference by named regions; those of different kinds must not overlap."""
        by_contig: dict[str, list[Segment]] = {contig: [] for contig in contigs}

        def add(contig: str, end: int, split: Split | None) -> None:
            segments = by_contig[contig]
            start = segments[-1].interval.end if segments else 0
            if end <= start:
                return
            if segments and segments[-1].split == split:
                start = segments.pop().interval.start
            segments.append(Segment(Interval(contig, start, end), split))

        for region in sorted(named, key=lambda region: region.interval):
            interval = region.interval
            add(interval.contig, interval.start, "train")
            add(interval.contig, interval.end, _SPLITS[region.kind])

        for contig, length in contigs.items():
            add(contig, length, "train")

        return cls(by_contig)

    def intervals(self, split: Split | None) -> list[Interval]:
        """Return the segments of a split in the reference's order, or those that are not used."""
        return [
            segment.interval
            for segments in self.by_contig.values()
            for segment in segments
            if segment.split == split
        ]

    def over(self, interval: Interval) -> list[Segment]:
        """Return the segments that overlap an interval, in order; none outside the contig."""
        return [
            segment
            for segment in self.by_contig.get(interval.contig, ())
            if segment.interval.start < interval.end
            and interval.start < segment.interval.end
        ]

    def assign(
        self, contig: str, starts: Positions, size: int, window: int
    ) -> npt.NDArray[np.int8]:
        """Return the splits of the bins `[starts[i], starts[i] + size)` of a contig, indices of `SPLITS`.

        A bin is held out if it is entirely within a held-out region. A training bin is dropped (`GAP`) if its
        window of `window` bp (the widest that a model will see) could overlap a held-out region or the window
        of a held-out bin. The same applies to validation bins near test regions. Bins that overlap excluded
        regions are dropped (`EXCLUDED`).
        """
        splits = np.zeros(len(starts), np.int8)
        ends = starts + size
        opens = window_start(starts, size, window)
        first, last = np.minimum(opens, starts), np.maximum(opens + window, ends)
        # How far the window of a bin at the edge of a region extends beyond the region.
        before = max(window // 2 - size // 2, 0)
        after = max(window - size - (window // 2 - size // 2), 0)
        for number, split in ((1, "valid"), (2, "test"), (EXCLUDED, None)):
            regions = [
                segment.interval
                for segment in self.by_contig[contig]
                if segment.split == split
            ]
            for region in regions:
                if split is None:
                    splits[(ends > region.start) & (starts < region.end)] = EXCLUDED
                else:
                    near = (last > region.start - before) & (first < region.end + after)
                    splits[near] = GAP

            for region in regions:
                if split is not None:
                    inside = (starts >= region.start) & (ends <= region.end)
                    splits[inside] = number

        return splits

    def describe(self) -> dict[str, list[str]]:
        """Return the named regions of each kind as text."""
        return {
            kind: [format_named_region(interval) for interval in self.intervals(split)]
            for kind, split in _SPLITS.items()
        }
