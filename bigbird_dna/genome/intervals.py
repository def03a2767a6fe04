"""Read intervals of BED, narrowPeak and broadPeak files, as peaks on a reference or regions of a command.

Only the first three columns are used. Coordinates are 0-based and half-open, as everywhere in this package.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bigbird_dna.console import log
from bigbird_dna.disk.compression import read_lines
from bigbird_dna.errors import DataError, UsageError, one_of
from bigbird_dna.genome.fields import FURTHEST, check_name, quoted
from bigbird_dna.genome.sequence import NO_INTERVALS, Interval, Intervals

if TYPE_CHECKING:
    from bigbird_dna.genome.assembly import Assembly


def read_bed(path: Path) -> Iterator[tuple[int, list[str], int, int]]:
    """Yield line number, columns, start and end of each interval of a BED, narrowPeak or broadPeak file.

    Empty lines, comments (`#`) and UCSC's `track` and `browser` lines are skipped. Columns are separated by
    tabs or, in lines without tabs, by spaces. A line that is not an interval is a `DataError`.
    """
    path = Path(path)
    if path.is_file() and path.stat().st_size == 0:
        return

    checked: set[str] = set()
    for number, line in read_lines(path):
        first = line.split(maxsplit=1)[:1]
        if line.startswith("#") or first in ([], ["track"], ["browser"]):
            continue

        fields = line.split("\t") if "\t" in line else line.split()
        try:
            start, end = int(fields[1]), int(fields[2])
        except (ValueError, IndexError):
            start = end = 0

        if not fields[0].strip() or not 0 <= start < end <= FURTHEST:
            raise DataError(
                f"{path}: line {number}: not a contig, start and end with 0 <= start < end: {quoted(line)} "
                "(starts are 0-based, ends exclusive; a header line must begin with '#')"
            )

        if fields[0] not in checked:
            check_name(fields[0], "contig", f"{path}: line {number}")
            checked.add(fields[0])

        yield number, fields, start, end


def strand_column(fields: list[str]) -> str:
    """Return the sixth column of a line from `read_bed`; "." without one."""
    return fields[5].strip() if len(fields) > 5 else "."


def read_peaks(path: Path) -> dict[str, Intervals]:
    """Return the intervals of a BED file by contig, in any order; none of an empty file."""
    ends_of: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for _, fields, start, end in read_bed(path):
        ends_of[fields[0]].append((start, end))
    peaks = {}
    for contig, ends in ends_of.items():
        peaks[contig] = Intervals(*np.array(ends, np.int64).T)
    return peaks


class PlacedPeaks(NamedTuple):
    """Peaks on a reference by its contig names, and counts of the peaks that are not used or clipped.

    Intervals are sorted, disjoint, not touching and inside the contig. Of the `counts`, `peaks` is the number
    in the file; `unknown` are on a contig that is in neither the reference nor the assembly, by the file's
    names in `unknown_contigs`; `absent` on a contig, or an end of a contig, that the reference does not
    contain; `clipped` at the contig's end.
    """

    contigs: dict[str, Intervals]
    counts: dict[str, int]
    unknown_contigs: dict[str, int]


def place_peaks(
    path: Path, contigs: Mapping[str, int], assembly: Assembly, *, widen: int = 0
) -> PlacedPeaks:
    """Map the peaks of a file to the contigs of a reference, widen them by `widen` bp on each side, and join
    overlaps.

    The file is of another assembly if none of its contigs is known, or if a peak starts beyond its contig.
    This is a `DataError`.
    """
    peaks = read_peaks(path)
    counts = dict.fromkeys(("peaks", "unknown", "absent", "clipped"), 0)
    unknown_contigs: dict[str, int] = {}
    parts: list[tuple[str, Intervals]] = []
    for name, (starts, ends) in peaks.items():
        counts["peaks"] += len(starts)
        contig = assembly.match(name, contigs)
        if contig is None and assembly.knows(name):
            counts["absent"] += len(starts)
            continue

        if contig is None:
            unknown_contigs[name] = len(starts)
            counts["unknown"] += len(starts)
            continue

        length = contigs[contig]
        # A reference may contain only the first part of a contig.
        limit = max(length, assembly.lengths.get(name, 0))
        if starts.max() >= limit:
            raise DataError(
                f"{path}: the peak at {name}:{starts.max()} (0-based) starts beyond the contig's {limit:,} bp; "
                "check the assembly. If the reference has only a part of the contig, give NCBI's assembly "
                "report as genome.aliases, which has the full length"
            )

        on_reference = starts < length
        counts["absent"] += int(np.count_nonzero(~on_reference))
        starts, ends = starts[on_reference], ends[on_reference]
        counts["clipped"] += int(np.count_nonzero(ends > length))
        if len(starts):
            starts = np.maximum(starts - widen, 0)
            ends = np.minimum(ends + widen, length)
            parts.append((contig, Intervals(starts, ends)))

    if counts["peaks"] and counts["unknown"] == counts["peaks"]:
        raise DataError(
            f"{path}: no peak is on the reference: {assembly.explain_none(peaks, contigs)}"
        )

    return PlacedPeaks(Intervals.joined(parts), counts, unknown_contigs)


class Places(NamedTuple):
    """Regions by contig, joined where they overlap.

    Keys are the reference's names of contigs, or given names that it lacks. Methods accept any name.
    """

    regions: Mapping[str, Intervals]
    name: Callable[[str], str]  # the key of a contig in `regions`

    def on(self, contig: str) -> bool:
        """Return whether any part of a contig is in the regions."""
        return self.name(contig) in self.regions

    def overlaps(self, contig: str, start: int, end: int) -> bool:
        """Return whether `[start, end)` of a contig overlaps a region."""
        return bool(self.clipped(contig, start, end))

    def clipped(self, contig: str, start: int, end: int) -> list[tuple[int, int]]:
        """Return the parts of `[start, end)` of a contig that are in the regions."""
        return self.regions.get(self.name(contig), NO_INTERVALS).clipped(start, end)

    def widened(self, bases: int) -> Places:
        """Return the regions extended by `bases` bp on both sides."""
        wider = {
            contig: Intervals.union(regions.starts - bases, regions.ends + bases)
            for contig, regions in self.regions.items()
        }
        return Places(wider, self.name)


def contig_names(contigs: Sequence[str] | str) -> tuple[str, ...]:
    """Return contig names from an argument; a string is one name."""
    return (contigs,) if isinstance(contigs, str) else tuple(contigs)


_REGION = re.compile(
    r"(?P<contig>.+):(?P<first>[0-9][0-9,]{0,29})(?:-(?P<last>[0-9,]{0,30}))?", re.ASCII
)


def parse_region(text: str) -> tuple[str, int, int | None] | None:
    """Parse `chr6:1,001-2,000` (1-based, both ends inclusive, as in samtools); None for any other text.

    Returns contig, start and end, 0-based and half-open. `chr6:1001` and `chr6:1001-` have no end: None.
    """
    match = _REGION.fullmatch(text.strip())
    if match is None:
        return None
    start = int(match["first"].replace(",", "")) - 1
    last = (match["last"] or "").replace(",", "")
    return match["contig"], start, int(last) if last else None


def find_region(
    text: str, contigs: Mapping[str, int], find: Callable[[str], str | None]
) -> Interval | None:
    """Return the contig or region that a text names; None if its contig is not known.

    `contigs` maps names to lengths, and `find` any name of a contig to that in `contigs`, or None. `UsageError`
    for positions that are not on the contig.
    """
    contig = find(text)
    if contig is not None:
        return Interval(contig, 0, contigs[contig])

    region = parse_region(text)
    contig = find(region[0]) if region else None
    if region is None or contig is None:
        return None

    length = contigs[contig]
    start = region[1]
    end = length if region[2] is None else region[2]
    if not 0 <= start < end <= length:
        raise UsageError(
            f"region {text}: positions on {contig} must be from 1 to {length:,}"
        )

    return Interval(contig, start, end)


def find_places(
    contigs: Sequence[str],
    regions: Path | str | None,
    known: Mapping[str, int],
    where: Path | str,
    names: Assembly | None,
) -> Places | None:
    """Return the selected contigs and regions; None if neither is given, for no restriction.

    `regions` is a BED file, or a region as in `parse_region`. `contigs` are contigs, or such regions, with
    any name that `contig_finder` accepts: names in `names` or in `known` (bp by name), the contigs of
    `where`. If both are given, places are in both. Unknown contigs cause a warning in the log; `DataError` if
    none is known.
    """
    if not contigs and regions is None:
        return None

    # Its tables are not needed to score all of a file.
    from bigbird_dna.genome.assembly import contig_finder, shown

    find_name = contig_finder(known, names)

    def find(text: str) -> str | None:
        contig = find_name(text)
        return contig if contig in known else None

    def name(contig: str) -> str:
        return find_name(contig) or contig

    def select(texts: Sequence[str]) -> dict[str, Intervals]:
        unknown, parts = [], []
        for text in texts:
            region = find_region(text, known, find)
            if region is None:
                unknown.append(text)
            else:
                ends = np.array([region.start]), np.array([region.end])
                parts.append((region.contig, Intervals(*ends)))

        if unknown and not parts:
            raise DataError(
                f"{where}: no contig {shown(unknown)}: {one_of(unknown[0], known)}"
            )

        if unknown:
            log(f"warning: {where} has no contig {shown(unknown)}")

        return Intervals.joined(parts)

    if regions is None:
        return Places(select(contigs), name)

    if not Path(str(regions)).exists() and find_region(str(regions), known, find):
        placed = select([str(regions)])
    else:
        peaks = read_peaks(Path(str(regions)))
        if not peaks:
            raise DataError(f"{regions}: the file contains no regions")

        absent = {
            contig: len(intervals.starts)
            for contig, intervals in peaks.items()
            if find(contig) is None
        }
        if len(absent) == len(peaks):
            raise DataError(
                f"{regions}: none of its contigs ({shown(absent)}) is in {where} ({shown(known)})"
            )

        if absent:
            log(
                f"warning: {regions}: {sum(absent.values()):,} regions on contigs that are not in {where} "
                f"({shown(absent)})"
            )

        parts = [(name(contig), intervals) for contig, intervals in peaks.items()]
        placed = Intervals.joined(parts)

    if contigs:
        selected = select(contigs)
        placed = {
            contig: placed[contig].within(selected[contig])
            for contig in placed
            if contig in selected
        }

    return Places(placed, name)
