"""Assign the bases of a reference to training, validation, testing or nothing.

A named region is a part of the reference in samtools notation, with 1-based inclusive ends. `22` is a whole
contig, `22:18,000,001-19,000,000` a part of it (commas are allowed), and `22:18000001-` or `22:18000001`
extends to the contig's end.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import groupby
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
    furthest: dict[
        str, NamedRegion
    ] = {}  # per kind, the region with the largest end on the contig
    for region in sorted(regions, key=lambda named: named.interval):
        contig, start = region.interval.contig, region.interval.start
        here = {
            kind: other
            for kind, other in furthest.items()
            if other.interval.contig == contig
        }
        for kind, other in here.items():
            if kind != region.kind and other.interval.end > start:
                return other, region
        before = here.get(region.kind)
        if before is None or before.interval.end < region.interval.end:
            furthest[region.kind] = region
    return None


Split = Literal["train", "valid", "test"]

_PATTERN = re.compile(r"[*?[]")
_SPLITS: Mapping[str, Split | None] = {
    "exclude": None,
    "valid": "valid",
    "test": "test",
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
        by_contig: defaultdict[str, list[NamedRegion]] = defaultdict(list)
        for region in find_named(config, contigs, assembly, **regions):
            by_contig[region.interval.contig].append(region)
        splits = cls(
            {
                contig: _cut(contig, length, by_contig[contig])
                for contig, length in contigs.items()
            }
        )
        if not splits.contigs("train"):
            what = (
                "every base"
                if any(len(segments) > 1 for segments in splits.by_contig.values())
                else "every contig"
            )
            raise ConfigError(
                f"genome: exclude, valid and test name {what}, so none is left for training"
            )
        return splits

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


def _cut(contig: str, length: int, named: Sequence[NamedRegion]) -> tuple[Segment, ...]:
    """Return the segments of a contig; regions of different kinds must not overlap."""
    parts: list[tuple[Split | None, int]] = []  # split, end
    edge = 0
    for region in sorted(named, key=lambda each: each.interval):
        start, end = region.interval.start, region.interval.end
        if start > edge:
            parts.append(("train", start))
        edge = max(edge, end)
        parts.append((_SPLITS[region.kind], edge))
    if edge < length:
        parts.append(("train", length))
    segments = []
    edge = 0
    for split, together in groupby(parts, key=lambda part: part[0]):
        *_, (_, end) = together
        segments.append(Segment(Interval(contig, edge, end), split))
        edge = end
    return tuple(segments)


# Bin i of a contig is `[i * stride, i * stride + size)`; bins that would extend beyond the contig are not
# made. A gap between training and held-out bins ensures that no window of one overlaps a window or named
# region of the other.


SPLITS: tuple[Split, ...] = ("train", "valid", "test")
KINDS = ("valid", "test", "exclude")
EXCLUDED, GAP = -1, -2
"""Split index of bins that are not used: they overlap an excluded region, or are too close to a held-out
region or only partly in it."""


@dataclass(frozen=True)
class RegionSplits:
    """Named regions of a reference by kind (valid, test, exclude) and contig; the rest is for training."""

    regions: Mapping[str, Mapping[str, Intervals]]

    @classmethod
    def from_regions(cls, named: Sequence[NamedRegion]) -> Self:
        """Make an object from parsed regions; regions of different kinds must not overlap."""
        kinds = {
            kind: [one.interval for one in named if one.kind == kind] for kind in KINDS
        }
        return cls(
            {
                kind: Intervals.joined(
                    (one.contig, Intervals(np.array([one.start]), np.array([one.end])))
                    for one in regions
                )
                for kind, regions in kinds.items()
            }
        )

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
            regions = self.regions[kind].get(contig)
            if regions is None:
                continue
            wide = Intervals.union(
                regions.starts + min(before, 0), regions.ends + max(after, 0)
            )
            near = wide.overlap(
                np.minimum(opens, starts), np.maximum(opens + window, starts + size)
            )
            splits[near] = GAP
            splits[regions.hold(starts, starts + size)] = number
        if excluded := self.regions["exclude"].get(contig):
            splits[excluded.overlap(starts, starts + size)] = EXCLUDED
        return splits

    def describe(self) -> dict[str, list[str]]:
        """Return the named regions of each kind as text."""
        return {
            kind: [
                format_named_region(Interval(contig, *ends))
                for contig, regions in found.items()
                for ends in zip(
                    regions.starts.tolist(), regions.ends.tolist(), strict=True
                )
            ]
            for kind, found in self.regions.items()
        }
