"""The part of a genome that a command keeps to: contigs by name, and regions of a BED file."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from bigbird_dna.console import log
from bigbird_dna.errors import DataError
from bigbird_dna.genome.assembly import Assembly, shown
from bigbird_dna.genome.chromatin.peaks import Peaks, read_peaks
from bigbird_dna.genome.sequence import Intervals
from bigbird_dna.genome.variants import contig_finder


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
        contig = self.name(contig)
        if contig not in self.regions:
            return
        found = self.regions[contig]
        if found is None:
            yield start, end
            return
        yield from found.clipped(start, end)

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

    @cache
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
    placed = _placed(read_peaks(Path(regions)), name, known, str(where))
    if wanted:
        placed = {contig: found for contig, found in placed.items() if contig in wanted}
    return Places(placed, name)


def _placed(
    peaks: Peaks, name: Callable[[str], str], known: Mapping[str, int], where: str
) -> dict[str, Intervals | None]:
    if not len(peaks):
        raise DataError(f"{peaks.path}: no regions in the file")
    unknown = {
        contig: len(found.starts) for contig, found in peaks.contigs.items() if name(contig) not in known
    }
    if len(unknown) == len(peaks.contigs):
        raise DataError(
            f"{peaks.path}: none of its contigs ({shown(unknown)}) is in {where} ({shown(known)})"
        )
    warn_of_absent(peaks.path, "regions", where, unknown)
    return {**Intervals.joined((name(contig), found) for contig, found in peaks.contigs.items())}


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
