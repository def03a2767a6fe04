"""Intervals of BED, narrowPeak and broadPeak files: peaks on a reference, and what a command keeps to.

Only the first three columns count. The formats are 0-based and half-open, as everything here.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from bigbird_dna.console import log
from bigbird_dna.disk.compression import read_lines
from bigbird_dna.errors import DataError
from bigbird_dna.genome.assembly import Assembly, contig_finder, shown
from bigbird_dna.genome.fields import FURTHEST, check_name, quoted, whole_number
from bigbird_dna.genome.sequence import MOST_CONTIGS, NO_INTERVALS, Intervals

_MOST_PEAKS = 30_000_000  # of a file: what memory has room for


class Peaks(NamedTuple):
    """The intervals of a file by contig, both as the file has them."""

    path: Path
    contigs: dict[str, Intervals]

    def __len__(self) -> int:
        return sum(len(found.starts) for found in self.contigs.values())


class PlacedPeaks(NamedTuple):
    """Peaks on a reference, by its names for the contigs, with what became of the others."""

    contigs: dict[str, Intervals]  # sorted, disjoint and not touching, inside the contig
    peaks: int  # in the file
    unknown: int  # on a contig that neither reference nor assembly knows
    absent: int  # on a contig, or an end of one, that the reference leaves out
    clipped: int  # reach beyond the contig's end; the part inside is used
    unknown_contigs: dict[str, int]  # how many of the unknown by contig, as the file names it

    @property
    def counts(self) -> dict[str, int]:
        """Every figure by name."""
        return {name: getattr(self, name) for name in ("peaks", "unknown", "absent", "clipped")}


def read_peaks(path: Path) -> Peaks:
    """Read the intervals of a BED3+, narrowPeak or broadPeak file: plain, gzip or bgzip.

    Empty lines, comments (`#`) and UCSC's `track` and `browser` lines are passed over; columns are separated
    by tabs or, in lines without tabs, by spaces. The order is free. An empty file has no peaks; whatever
    isn't an interval is a `DataError`.
    """
    path = Path(path)
    return Peaks(path, Intervals.collect(path, read_intervals(path), _MOST_PEAKS))


def place_peaks(
    peaks: Peaks, contigs: Mapping[str, int], assembly: Assembly, *, widen: int = 0
) -> PlacedPeaks:
    """Put peaks on a reference: its names of contigs, peaks widened by `widen` bp on each side, overlapping
    ones joined.

    Where no contig of the file is known, or a peak starts beyond its contig, the file is of another assembly:
    `DataError`.
    """
    if widen < 0:
        raise ValueError(f"widen must not be negative, not {widen}")
    names = {name: assembly.match(name, contigs) for name in peaks.contigs}
    whole = assembly.lengths
    absent = clipped = 0
    unknown_contigs: dict[str, int] = {}
    parts: list[tuple[str, Intervals]] = []
    for name, (starts, ends) in peaks.contigs.items():
        contig = names[name]
        if contig is None:
            if assembly.knows(name):
                absent += len(starts)
            else:
                unknown_contigs[name] = len(starts)
            continue
        length = contigs[contig]
        # A reference may hold a part of a contig, from its start.
        limit = max(length, whole.get(name, 0))
        if starts.max() >= limit:
            why = ": another assembly?"
            if name not in whole:
                why += (
                    " Of a part of a contig, NCBI's assembly report as genome.aliases tells the whole length"
                )
            start = int(starts[starts >= limit][0])
            line = next(n for n, *place, _ in read_intervals(peaks.path) if place == [name, start])
            raise DataError(
                f"{peaks.path}: line {line}: the peak at {name}:{start} (0-based) starts beyond the contig's "
                f"{limit:,} bp{why}"
            )
        on_reference = starts < length
        absent += int(np.count_nonzero(~on_reference))
        starts, ends = starts[on_reference], ends[on_reference]
        clipped += int(np.count_nonzero(ends > length))
        if len(starts):
            widened = Intervals(np.maximum(starts - widen, 0), np.minimum(ends + widen, length))
            parts.append((contig, widened))
    unknown = sum(unknown_contigs.values())
    if len(peaks) and unknown == len(peaks):
        raise DataError(
            f"{peaks.path}: no contig of the peaks is known: {assembly.explain_none(peaks.contigs, contigs)}"
        )
    return PlacedPeaks(Intervals.joined(parts), len(peaks), unknown, absent, clipped, unknown_contigs)


def read_intervals(path: Path) -> Iterator[tuple[int, str, int, int]]:
    """Line number, contig, start and end of every interval of a BED file; as `read_peaks` else."""
    for number, fields, start, end in read_bed(path):
        yield number, fields[0], start, end


def read_bed(path: Path, stream: IO[bytes] | None = None) -> Iterator[tuple[int, list[str], int, int]]:
    """Line number, the first columns, start and end of every interval; as `read_intervals`.

    The columns are three or more; those from the fifth on stand in one. `stream` has the bytes of what
    `path` names, where they were opened already.
    """
    if stream is None and path.is_file() and path.stat().st_size == 0:
        return
    checked: set[str] = set()
    for number, line in read_lines(path, stream):
        fields = line.split("\t", 4)
        if len(fields) < 3 or not fields[0] or line.startswith(("#", " ", "track", "browser")):
            words = line.split(maxsplit=4)
            if not words or words[0].startswith("#") or words[0] in ("track", "browser"):
                continue
            if "\t" not in line:
                fields = words
            if len(fields) < 3 or not fields[0].strip():
                raise DataError(f"{path}: line {number}: a contig, a start and an end are needed")
        contig, first, last = fields[0], fields[1], fields[2].rstrip()
        start, end = whole_number(first), whole_number(last)
        if start is None or end is None or not start < end:
            raise DataError(f"{path}: line {number}: {_fault(first, last)}")
        if contig not in checked:
            check_name(contig, "contig", f"{path}: line {number}")
            if len(checked) < MOST_CONTIGS:
                checked.add(contig)
        yield number, fields, start, end


def strand_column(fields: list[str]) -> str:
    """The sixth column of a line as `read_bed` gives it; "." where there is none."""
    further = fields[4].split("\t") if len(fields) > 4 else []
    return further[1].strip() if len(further) > 1 else "."


def _fault(first: str, last: str) -> str:
    for text in (first, last):
        if not re.fullmatch("-?[0-9]{1,20}", text):
            return f"{quoted(text)} is not a position (a header line must begin with '#')"
    start, end = int(first), int(last)
    if start < 0:
        return f"start {start} is negative"
    if start == end:
        return f"interval {start}-{end} is empty (starts are 0-based, ends exclusive)"
    if end < start:
        return f"interval {start}-{end} ends before it starts"
    return f"position {end} is beyond any contig (at most {FURTHEST:,})"


class Places(NamedTuple):
    """Regions, joined where they overlap, by contig; None for the whole of it.

    Contigs are called as the reference calls them, or by the name that was given if it has none; the
    methods take any name.
    """

    regions: Mapping[str, Intervals | None]
    name: Callable[[str], str]  # that a contig goes by here

    def on(self, contig: str) -> bool:
        """Whether anything of a contig belongs to them."""
        return self.name(contig) in self.regions

    def whole(self, contig: str) -> bool:
        """Whether all of a contig belongs to them."""
        return self.on(contig) and self.regions[self.name(contig)] is None

    def overlaps(self, contig: str, start: int, end: int) -> bool:
        """Whether `[start, end)` of a contig shares a base with them."""
        return next(self.clipped(contig, start, end), None) is not None

    def clipped(self, contig: str, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The parts of `[start, end)` of a contig that lie in them."""
        found = self.regions.get(self.name(contig), NO_INTERVALS)
        yield from [(start, end)] if found is None else found.clipped(start, end)

    def parts(self, contig: str, length: int) -> list[int]:
        """Sizes in bp of the regions of a contig of `length` bp."""
        return [end - start for start, end in self.clipped(contig, 0, length)]

    def widened(self, bases: int) -> "Places":
        """The same with `bases` bp more on either side of each region."""
        wider = {
            contig: None if found is None else Intervals.union(found.starts - bases, found.ends + bases)
            for contig, found in self.regions.items()
        }
        return Places(wider, self.name)


def contig_names(contigs: Sequence[str] | str) -> tuple[str, ...]:
    """Names of contigs as a caller gives them; a text is one name."""
    return (contigs,) if isinstance(contigs, str) else tuple(contigs)


def find_places(
    contigs: Sequence[str],
    regions: Path | str | None,
    known: Mapping[str, int],
    where: Path | str,
    names: Assembly | None,
) -> Places | None:
    """What lies on some contigs and in the regions of a BED file; None if neither is given: everywhere.

    `contigs` have any name that `contig_finder` knows, of `names` or the contigs `known` (bp by name) of
    `where`. Unknown ones are warned of in the log; `DataError` if none is known.
    """
    if not contigs and regions is None:
        return None
    find = contig_finder(known, names)

    def name(contig: str) -> str:
        return find(contig) or contig

    unknown = [contig for contig in dict.fromkeys(contigs) if name(contig) not in known]
    if contigs and len(unknown) == len(set(contigs)):
        raise DataError(f"{where}: has none of the contigs {shown(unknown)}; it has {shown(known)}")
    if unknown:
        log(f"warning: {where} has no contig {shown(unknown)}")
    wanted = {name(contig) for contig in contigs}
    if regions is None:
        return Places(dict.fromkeys(wanted), name)
    peaks = read_peaks(Path(regions))
    if not len(peaks):
        raise DataError(f"{regions}: no regions in the file")
    absent = {c: len(found.starts) for c, found in peaks.contigs.items() if name(c) not in known}
    if len(absent) == len(peaks.contigs):
        raise DataError(f"{regions}: none of its contigs ({shown(absent)}) is in {where} ({shown(known)})")
    warn_of_absent(regions, "regions", where, absent)
    placed = Intervals.joined((name(contig), found) for contig, found in peaks.contigs.items())
    return Places({c: found for c, found in placed.items() if c in wanted or not wanted}, name)


def warn_of_absent(
    path: Path | str, what: str, where: Path | str, unknown: Mapping[str, int], beyond: Mapping[str, int] = {}
) -> None:
    """Say in the log how much (`what`) of a file is passed over since it isn't on the reference `where`.

    By contig: how many are on one that is `unknown` there, and how many reach `beyond` the end of theirs.
    """
    if unknown:
        log(
            f"warning: {path}: {sum(unknown.values()):,} {what} on contigs that {where} has not got "
            f"({shown(unknown)})"
        )
    if beyond:
        log(
            f"warning: {path}: {sum(beyond.values()):,} {what} reach beyond their contigs in {where} "
            f"({shown(beyond)})"
        )
