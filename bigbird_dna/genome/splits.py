"""What the bases of a reference are for: to train, validate or test a model, or nothing."""

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import groupby
from typing import Literal, NamedTuple, Self

from bigbird_dna.config import GenomeConfig
from bigbird_dna.console import log
from bigbird_dna.errors import ConfigError
from bigbird_dna.genome.assembly import ALIAS_HINT, Assembly, shown
from bigbird_dna.genome.regions import NamedRegion, find_named_region, find_overlap, parse_named_region
from bigbird_dna.genome.sequence import Interval

Split = Literal["train", "valid", "test"]

_PATTERN = re.compile(r"[*?[]")
_SPLITS: Mapping[str, Split | None] = {"exclude": None, "valid": "valid", "test": "test"}


class Segment(NamedTuple):
    """Consecutive bases of a contig that are for the same; `split` is None where they take no part."""

    interval: Interval
    split: Split | None


@dataclass(frozen=True)
class Splits:
    """The segments of every contig of a reference, in its order; together they are the whole contig.

    A contig that is not cut is one segment, and two neighbours are never for the same.
    """

    by_contig: Mapping[str, tuple[Segment, ...]]

    @classmethod
    def from_config(
        cls, config: GenomeConfig, contigs: Mapping[str, int], assembly: Assembly, **regions: Sequence[str]
    ) -> Self:
        """Divide a reference as the configuration says, with regions besides as of `find_named`; what neither
        names is for training."""
        by_contig: defaultdict[str, list[NamedRegion]] = defaultdict(list)
        for region in find_named(config, contigs, assembly, **regions):
            by_contig[region.interval.contig].append(region)
        splits = cls({contig: _cut(contig, length, by_contig[contig]) for contig, length in contigs.items()})
        if not splits.contigs("train"):
            what = (
                "every base"
                if any(len(segments) > 1 for segments in splits.by_contig.values())
                else "every contig"
            )
            raise ConfigError(f"genome: exclude, valid and test name {what}, none is left to train on")
        return splits

    @property
    def segments(self) -> list[Segment]:
        """All of them, in the reference's order."""
        return [segment for own in self.by_contig.values() for segment in own]

    def intervals(self, split: Split) -> list[Interval]:
        """The segments of a split, in the reference's order."""
        return [segment.interval for segment in self.segments if segment.split == split]

    def contigs(self, split: Split) -> list[str]:
        """The contigs that have a segment of a split, in the reference's order."""
        return list(dict.fromkeys(interval.contig for interval in self.intervals(split)))

    def over(self, interval: Interval) -> list[Segment]:
        """The segments that share a base with an interval, in their order; none beyond a contig's ends."""
        return [
            segment
            for segment in self.by_contig.get(interval.contig, ())
            if segment.interval.start < interval.end and interval.start < segment.interval.end
        ]


def find_named(
    config: GenomeConfig,
    contigs: Mapping[str, int],
    assembly: Assembly,
    *,
    valid_regions: Sequence[str] = (),
    test_regions: Sequence[str] = (),
) -> list[NamedRegion]:
    """What the configuration names of a reference: contigs, each whole, and regions of others.

    An entry is any name of a contig, a region of one as samtools writes it, or a shell pattern that fits one
    of the contig's names; a name that is written out wins over patterns. Those of different kinds don't share
    a base. The regions given besides, those of chromatin.data, may lie on what is named for the same.
    """
    whole: dict[str, NamedRegion] = {}
    regions, patterns = [], []
    for key, texts in (("exclude", config.exclude), ("valid", config.valid), ("test", config.test)):
        for text in texts:
            contig = assembly.match(text, contigs)
            found = find_named_region(text, contigs, assembly, f"genome.{key}")
            if found is None and _PATTERN.search(text):
                patterns.append((key, text))
            elif found is None:
                raise ConfigError(_unknown(key, text, contigs, assembly))
            elif contig is None:
                regions.append(NamedRegion(f"genome.{key}", key, text, found))
            elif contig in whole:
                raise ConfigError(f"genome.{key}: {text!r} is contig {contig!r}, which is named already")
            else:
                whole[contig] = NamedRegion(f"genome.{key}", key, text, found)
    whole = _fitting(patterns, contigs, assembly, whole) | whole
    for region in regions:
        if (other := whole.get(region.interval.contig)) is not None:
            raise ConfigError(
                f"{region.key}: {region.text!r} is a region of contig {other.interval.contig!r}, which "
                f"{other.text!r} of {other.key} names whole"
            )
    besides = [
        NamedRegion(key, kind, text, parse_named_region(text, contigs, assembly, key))
        for kind, texts in (("valid", valid_regions), ("test", test_regions))
        for key in (f"chromatin.data.{kind}_regions",)
        for text in texts
    ]
    named = [*whole.values(), *regions, *besides]
    if overlap := find_overlap(named):
        one, other = overlap
        raise ConfigError(f"{one.key}: {one.text!r} overlaps {other.text!r} of {other.key}")
    return named


def _unknown(key: str, text: str, contigs: Collection[str], assembly: Assembly) -> str:
    region = " or region (as 22:1,001-2,000)" if ":" in text else ""
    return (
        f"genome.{key}: no contig{region} of the reference is {text!r} "
        f"({assembly.name}; the reference has {shown(contigs)}); {ALIAS_HINT}"
    )


def _fitting(
    patterns: Sequence[tuple[str, str]],
    contigs: Mapping[str, int],
    assembly: Assembly,
    named: Collection[str],
) -> dict[str, NamedRegion]:
    """The contigs that patterns fit, but for those whose names are written out."""
    found: dict[str, NamedRegion] = {}
    for key, text in patterns:
        fitting = fitting_contigs(text, contigs, assembly)
        if not fitting:
            what = f"genome.{key}: {text!r} fits no contig of the reference"
            if key != "exclude":
                raise ConfigError(f"{what} ({assembly.name}; the reference has {shown(contigs)})")
            log(what)
        for contig in fitting:
            whole = Interval(contig, 0, contigs[contig])
            other = found.setdefault(contig, NamedRegion(f"genome.{key}", key, text, whole))
            if other.kind != key and contig not in named:
                raise ConfigError(
                    f"genome: contig {contig!r} fits {other.text!r} of {other.kind} and {text!r} of "
                    f"{key}: write its name into one of them"
                )
    return found


def fitting_contigs(text: str, contigs: Collection[str], assembly: Assembly) -> list[str]:
    """The contigs of which a text is a name, or a shell pattern that fits one of their names."""
    named = assembly.match(text, contigs)
    if named is not None:
        return [named]
    return [
        contig for contig in contigs if any(fnmatchcase(name, text) for name in assembly.names_of(contig))
    ]


def _cut(contig: str, length: int, named: Sequence[NamedRegion]) -> tuple[Segment, ...]:
    """The segments of a contig; regions of two kinds don't overlap."""
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
