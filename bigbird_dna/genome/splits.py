"""Assign the bases of a reference to training, validation, testing or nothing.

A named region is a part of the reference in samtools notation, with 1-based inclusive ends. `22` is a whole
contig, `22:18,000,001-19,000,000` a part of it (commas are allowed), and `22:18000001-` or `22:18000001`
extends to the contig's end.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import combinations, groupby
from typing import Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from bigbird_dna.config.data import GenomeConfig
from bigbird_dna.console import log
from bigbird_dna.errors import ConfigError, meant
from bigbird_dna.genome.assembly import ALIAS_HINT, Assembly, shown
from bigbird_dna.genome.intervals import parse_region
from bigbird_dna.genome.sequence import Interval, Intervals, Positions, window_start

_WRITTEN = re.compile(
    r"(?P<contig>.+):(?P<first>[0-9]{1,18})-(?P<last>[0-9]{1,18})", re.ASCII
)


class NamedRegion(NamedTuple):
    """An entry of the configuration and its interval of the reference."""

    key: str  # of the configuration
    kind: str  # valid, test or exclude
    text: str
    interval: Interval


def find_named_region(
    text: str, contigs: Mapping[str, int], assembly: Assembly, where: str = "region"
) -> Interval | None:
    """Return the interval of a named region; None if the text is not on a contig of the reference.

    `ConfigError` for ends beyond the contig.
    """
    whole = assembly.match(text, contigs)
    if whole is not None:
        return Interval(whole, 0, contigs[whole])
    region = parse_region(text)
    contig = assembly.match(region[0], contigs) if region else None
    if contig is None or region is None:
        return None
    length = contigs[contig]
    start = region[1]
    end = length if region[2] is None else region[2]
    if not 0 <= start < end <= length:
        raise ConfigError(
            f"{where}: {text!r}: positions on {contig} must be from 1 to {length:,}"
        )
    return Interval(contig, start, end)


def format_named_region(region: Interval) -> str:
    """Format a named region with both ends, without commas."""
    return f"{region.contig}:{region.start + 1}-{region.end}"


def read_named_region(text: str) -> Interval:
    """Parse a text of `format_named_region` without a reference; `ValueError` for any other text."""
    match = _WRITTEN.fullmatch(text)
    if match is None or not 1 <= int(match["first"]) <= int(match["last"]):
        raise ValueError(f"{text!r} is not a region such as 22:1001-2000")
    return Interval(match["contig"], int(match["first"]) - 1, int(match["last"]))


def name_parts(segments: Sequence[Interval], lengths: Mapping[str, int]) -> list[str]:
    """Return the named regions of those segments that are not a whole contig, in their order."""
    return [
        format_named_region(segment)
        for segment in segments
        if len(segment) < lengths[segment.contig]
    ]


def find_overlap(
    regions: Iterable[NamedRegion],
) -> tuple[NamedRegion, NamedRegion] | None:
    """Return two overlapping regions of different kinds in the order of their starts, or None."""
    ordered = sorted(regions, key=lambda region: region.interval)
    for _, group in groupby(ordered, key=lambda region: region.interval.contig):
        for first, second in combinations(group, 2):
            overlap = second.interval.start < first.interval.end
            if overlap and first.kind != second.kind:
                return first, second
    return None


Split = Literal["train", "valid", "test"]

SPLITS: tuple[Split, ...] = ("train", "valid", "test")
EXCLUDED, GAP = -1, -2
"""Split index of bins that are not used: they overlap an excluded region, or are too close to a held-out
region or only partly in it."""
_PATTERN = re.compile(r"[*?[]")
_SPLITS: Mapping[str, Split | None] = {
    "valid": "valid",
    "test": "test",
    "exclude": None,
}


class Segment(NamedTuple):
    """Consecutive bases of a contig with the same split; None means that they are not used."""

    interval: Interval
    split: Split | None


@dataclass(frozen=True)
class Splits:
    """The segments of each contig of a reference, in its order; together they cover the whole contig.

    Adjacent segments never have the same split.
    """

    by_contig: Mapping[str, tuple[Segment, ...]]

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
        splits = cls.from_regions(
            find_named(config, contigs, assembly, **regions), contigs
        )
        if not splits.contigs("train"):
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

        for region in sorted(named, key=lambda each: each.interval):
            contig, start, end = (
                region.interval.contig,
                region.interval.start,
                region.interval.end,
            )
            add(contig, start, "train")
            add(contig, end, _SPLITS[region.kind])
        for contig, length in contigs.items():
            add(contig, length, "train")
        return cls({contig: tuple(found) for contig, found in by_contig.items()})

    @property
    def segments(self) -> list[Segment]:
        """All segments, in the reference's order."""
        return [segment for own in self.by_contig.values() for segment in own]

    def intervals(self, split: Split) -> list[Interval]:
        """Return the segments of a split, in the reference's order."""
        return [segment.interval for segment in self.segments if segment.split == split]

    def contigs(self, split: Split) -> list[str]:
        """Return the contigs with a segment of a split, in the reference's order."""
        return list(
            dict.fromkeys(interval.contig for interval in self.intervals(split))
        )

    def over(self, interval: Interval) -> list[Segment]:
        """Return the segments that overlap an interval, in order; none outside the contig."""
        return [
            segment
            for segment in self.by_contig.get(interval.contig, ())
            if segment.interval.start < interval.end
            and interval.start < segment.interval.end
        ]

    def regions(self, contig: str, split: Split | None) -> Intervals:
        """Return the segments of a contig with a split, or those that are not used."""
        ends = [
            (segment.interval.start, segment.interval.end)
            for segment in self.by_contig[contig]
            if segment.split == split
        ]
        return Intervals(*np.array(ends, np.int64).reshape(-1, 2).T)

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
        opens = window_start(starts, size, window)
        # How far the window of a bin at the edge of a region extends beyond the region.
        before, after = (
            size // 2 - window // 2,
            window - size - (window // 2 - size // 2),
        )
        for number, kind in enumerate(SPLITS[1:], start=1):
            regions = self.regions(contig, kind)
            if not len(regions.starts):
                continue
            wide = Intervals.union(
                regions.starts + min(before, 0), regions.ends + max(after, 0)
            )
            near = wide.overlap(
                np.minimum(opens, starts), np.maximum(opens + window, starts + size)
            )
            splits[near] = GAP
            splits[regions.hold(starts, starts + size)] = number
        excluded = self.regions(contig, None).overlap(starts, starts + size)
        splits[excluded] = EXCLUDED
        return splits

    def describe(self) -> dict[str, list[str]]:
        """Return the named regions of each kind as text."""
        return {
            kind: [
                format_named_region(segment.interval)
                for segment in self.segments
                if segment.split == split
            ]
            for kind, split in _SPLITS.items()
        }


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
        interval = find_named_region(text, contigs, assembly, key)
        if interval is not None:
            named.append(NamedRegion(key, kind, text, interval))
        elif _PATTERN.search(text):
            patterns.append((key, kind, text))
        else:
            raise ConfigError(
                f"{key}: {text!r} is not a contig or region (such as 22:1,001-2,000) of the reference "
                f"({assembly.name}; the reference has {shown(contigs)}); {ALIAS_HINT}"
                f"{meant(text.partition(':')[0], contigs)}"
            )
    wholes = {contig: Interval(contig, 0, length) for contig, length in contigs.items()}
    by_name = {
        region.interval.contig
        for region in named
        if region.interval == wholes[region.interval.contig]
    }
    for key, kind, text in patterns:
        matches = [
            contig
            for contig in contigs
            if any(fnmatchcase(name, text) for name in assembly.names_of(contig))
        ]
        if not matches:
            what = f"{key}: {text!r} matches no contig of the reference"
            if kind != "exclude":
                raise ConfigError(
                    f"{what} ({assembly.name}; the reference has {shown(contigs)})"
                )
            log(what)
        for contig in matches:
            if contig not in by_name:
                named.append(NamedRegion(key, kind, text, wholes[contig]))
    if overlap := find_overlap(named):
        first, second = overlap
        raise ConfigError(
            f"{first.key}: {first.text!r} overlaps {second.text!r} in {second.key}, on contig "
            f"{first.interval.contig!r}"
        )
    return named
