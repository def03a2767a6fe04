"""Read intervals of BED, narrowPeak and broadPeak files, as peaks on a reference or regions of a command.

Only the first three columns are used. Coordinates are 0-based and half-open, as everywhere in this package.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bigbird_dna.console import log
from bigbird_dna.disk.compression import read_lines
from bigbird_dna.errors import DataError, UsageError, one_of
from bigbird_dna.genome.fields import FURTHEST, check_name, quoted
from bigbird_dna.genome.sequence import NO_INTERVALS, Intervals

if TYPE_CHECKING:
    from bigbird_dna.genome.assembly import Assembly


class PlacedPeaks(NamedTuple):
    """Peaks on a reference by its contig names, and counts of the peaks that are not used or clipped."""

    contigs: dict[str, Intervals]  # sorted, disjoint, not touching, inside the contig
    # peaks in the file; unknown: on a contig that is in neither the reference nor the assembly; absent: on a
    # contig, or an end of a contig, that the reference does not contain; clipped at the contig's end
    counts: dict[str, int]
    unknown_contigs: dict[str, int]  # unknown peaks per contig, by the file's names


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
        fields = line.split("\t") if "\t" in line else line.split()
        word = "".join(fields[:1])
        if word.startswith("#") or not line.strip() or word.split()[:1] in _HEADERS:
            continue
        try:
            start, end = int(fields[1]), int(fields[2])
        except (ValueError, IndexError):
            start = end = 0
        if not word.strip() or not 0 <= start < end <= FURTHEST:
            raise DataError(
                f"{path}: line {number}: not a contig, start and end with 0 <= start < end: {quoted(line)} "
                "(starts are 0-based, ends exclusive; a header line must begin with '#')"
            )
        if word not in checked:
            check_name(word, "contig", f"{path}: line {number}")
            checked.add(word)
        yield number, fields, start, end


_HEADERS = (["track"], ["browser"])


def strand_column(fields: list[str]) -> str:
    """Return the sixth column of a line from `read_bed`; "." without one."""
    return fields[5].strip() if len(fields) > 5 else "."


def read_intervals(path: Path) -> Iterator[tuple[int, str, int, int]]:
    """Yield line number, contig, start and end of each interval of a BED file."""
    for number, fields, start, end in read_bed(path):
        yield number, fields[0], start, end


def read_peaks(path: Path) -> dict[str, Intervals]:
    """Return the intervals of a BED file by contig, in any order; none of an empty file."""
    return Intervals.collect(row[1:] for row in read_intervals(path))


def place_peaks(
    path: Path, contigs: Mapping[str, int], assembly: Assembly, *, widen: int = 0
) -> PlacedPeaks:
    """Map the peaks of a file to the contigs of a reference, widen them by `widen` bp on each side, and join
    overlaps.

    The file is of another assembly if none of its contigs is known, or if a peak starts beyond its contig.
    This is a `DataError`.
    """
    peaks = read_peaks(path)
    counts = {
        "peaks": sum(len(starts) for starts, _ in peaks.values()),
        **dict.fromkeys(("unknown", "absent", "clipped"), 0),
    }
    unknown_contigs: dict[str, int] = {}
    parts: list[tuple[str, Intervals]] = []
    for name, (starts, ends) in peaks.items():
        contig = assembly.match(name, contigs)
        if contig is None:
            if assembly.knows(name):
                counts["absent"] += len(starts)
            else:
                unknown_contigs[name] = len(starts)
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
            widened = Intervals(
                np.maximum(starts - widen, 0), np.minimum(ends + widen, length)
            )
            parts.append((contig, widened))
    counts["unknown"] = sum(unknown_contigs.values())
    if counts["peaks"] and counts["unknown"] == counts["peaks"]:
        raise DataError(
            f"{path}: no peak is on the reference: {assembly.explain_none(peaks, contigs)}"
        )
    return PlacedPeaks(Intervals.joined(parts), counts, unknown_contigs)


_ALL = Intervals(np.array([0]), np.array([FURTHEST]))
"""All of a contig."""


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
        return next(self.clipped(contig, start, end), None) is not None

    def clipped(self, contig: str, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the parts of `[start, end)` of a contig that are in the regions."""
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


def _region_on(
    text: str, known: Mapping[str, int], find: Callable[[str], str | None]
) -> tuple[str, Intervals] | None:
    """Return the contig, and the part of it, that a text selects; None if it is not known."""
    contig = find(text)
    if contig is not None and contig in known:
        return contig, _ALL
    region = parse_region(text)
    contig = find(region[0]) if region else None
    if region is None or contig is None or contig not in known:
        return None
    _, start, end = region
    end = known[contig] if end is None else end
    if not 0 <= start < end:
        raise UsageError(
            f"region {text}: needs 1 <= start <= end (1-based, both inclusive)"
        )
    return contig, Intervals(np.array([start]), np.array([end]))


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

    find = contig_finder(known, names)

    def name(contig: str) -> str:
        return find(contig) or contig

    selected = {}
    if contigs:
        chosen = {text: _region_on(text, known, find) for text in contigs}
        unknown = [text for text, region in chosen.items() if region is None]
        if len(unknown) == len(chosen):
            raise DataError(
                f"{where}: no contig {shown(unknown)}: {one_of(unknown[0], known)}"
            )
        if unknown:
            log(f"warning: {where} has no contig {shown(unknown)}")
        selected = Intervals.joined(filter(None, chosen.values()))
        if regions is None:
            return Places(selected, name)

    region = (
        None if Path(str(regions)).exists() else _region_on(str(regions), known, find)
    )
    if region is not None:
        placed = Intervals.joined([region])
    else:
        peaks = read_peaks(Path(str(regions)))
        if not peaks:
            raise DataError(f"{regions}: the file contains no regions")
        absent = {
            contig: len(intervals.starts)
            for contig, intervals in peaks.items()
            if name(contig) not in known
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
        placed = Intervals.joined(
            (name(contig), intervals) for contig, intervals in peaks.items()
        )
    if contigs:
        placed = {
            contig: placed[contig].within(selected[contig])
            for contig in placed
            if contig in selected
        }
    return Places(placed, name)
