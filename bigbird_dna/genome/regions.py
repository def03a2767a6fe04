"""Named regions: segments of a reference as samtools writes them, counted from 1 with both ends.

`22` is a whole contig, `22:18,000,001-19,000,000` a part of it (commas are allowed), and `22:18000001-` or
`22:18000001` goes to the contig's end.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from bigbird_dna.errors import ConfigError
from bigbird_dna.genome.assembly import ALIAS_HINT, Assembly, shown
from bigbird_dna.genome.sequence import Interval

_REGION = re.compile(r"(?P<contig>.+):(?P<first>[0-9,]{1,30})(?:-(?P<last>[0-9,]{0,30}))?")
_WRITTEN = re.compile(r"(?P<contig>.+):(?P<first>[0-9]{1,18})-(?P<last>[0-9]{1,18})", re.ASCII)


class NamedRegion(NamedTuple):
    """An entry of the configuration, and what of the reference it names."""

    key: str  # of the configuration
    kind: str  # valid, test or exclude
    text: str
    interval: Interval


def parse_named_region(
    text: str, contigs: Mapping[str, int], assembly: Assembly, where: str = "region"
) -> Interval:
    """A named region on a reference; `ConfigError` for an unknown contig, or ends beyond it."""
    found = find_named_region(text, contigs, assembly, where)
    if found is None:
        raise ConfigError(
            f"{where}: {text!r} is not a contig or region (as 22:1,001-2,000) of the reference "
            f"({assembly.name}; it has {shown(contigs)}); {ALIAS_HINT}"
        )
    return found


def find_named_region(
    text: str, contigs: Mapping[str, int], assembly: Assembly, where: str = "region"
) -> Interval | None:
    """As `parse_named_region`, but None where the text is not a contig of the reference or part of one."""
    whole = assembly.match(text, contigs)
    if whole is not None:
        return Interval(whole, 0, contigs[whole])
    match = _REGION.fullmatch(text.strip())
    contig = assembly.match(match["contig"], contigs) if match else None
    if contig is None or match is None:
        return None
    length = contigs[contig]
    first = int(match["first"].replace(",", "") or 0)
    last = int((match["last"] or "").replace(",", "") or length)
    if not 1 <= first <= last <= length:
        raise ConfigError(f"{where}: {text!r}: a region of {contig} goes from 1 to at most {length:,}")
    return Interval(contig, first - 1, last)


def format_named_region(region: Interval) -> str:
    """A named region with both ends, without commas."""
    return f"{region.contig}:{region.start + 1}-{region.end}"


def read_named_region(text: str) -> Interval:
    """What `format_named_region` wrote, where no reference is at hand; ValueError for another text."""
    match = _WRITTEN.fullmatch(text)
    if match is None or not 1 <= int(match["first"]) <= int(match["last"]):
        raise ValueError(f"{text!r} is not a region as 22:1001-2000")
    return Interval(match["contig"], int(match["first"]) - 1, int(match["last"]))


def name_parts(segments: Sequence[Interval], lengths: Mapping[str, int]) -> list[str]:
    """The named regions of those segments that are not a whole contig, in their order."""
    return [format_named_region(segment) for segment in segments if len(segment) < lengths[segment.contig]]


def find_overlap(regions: Iterable[NamedRegion]) -> tuple[NamedRegion, NamedRegion] | None:
    """Two regions of different kinds that share a base, first the one that starts before; None: none do."""
    furthest: dict[str, NamedRegion] = {}  # of each kind the one that reaches furthest on the contig
    for region in sorted(regions, key=lambda named: named.interval):
        contig, start = region.interval.contig, region.interval.start
        here = {kind: other for kind, other in furthest.items() if other.interval.contig == contig}
        for kind, other in here.items():
            if kind != region.kind and other.interval.end > start:
                return other, region
        before = here.get(region.kind)
        if before is None or before.interval.end < region.interval.end:
            furthest[region.kind] = region
    return None
