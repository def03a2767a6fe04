"""Read regions of a file or table, on a reference."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bigbird_dna.errors import DataError
from bigbird_dna.genome.assembly import ALIAS_HINT, contig_finder, shown
from bigbird_dna.genome.intervals import Places, read_bed, strand_column
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import OPPOSITE, STRANDS, Strand

if TYPE_CHECKING:  # commands read files, and need 60 MB less without pandas
    import pandas as pd

Genome = Reference | Path | str
"""Path of an indexed FASTA file (plain or bgzip), or an open `Reference`."""

UNKNOWN, BEYOND = "contig_unknown", "beyond_contig"
"""Notes of regions that cannot be predicted: contig missing in the reference, or end beyond the contig."""


class Region(NamedTuple):
    """A region of a contig; `start` and `end` are 0-based, half-open.

    `contig` is the name in the reference, or the name as given if the reference has no such contig. `strand`
    is None if not given. `fault` is "" or the reason why the region cannot be scored.
    """

    contig: str
    start: int
    end: int
    name: str
    strand: Strand | None = None
    fault: str = ""


@contextmanager
def opened(reference: Genome, aliases: Path | str | None = None) -> Iterator[Reference]:
    """Yield an open reference as it is, or open a FASTA file, with a file of aliases, for the block."""
    if isinstance(reference, Reference):
        yield reference
        return
    names = None if aliases is None else Path(aliases)
    with Reference(Path(reference), names) as genome:
        yield genome


def read_regions(
    source: "Path | str | pd.DataFrame",
    reference: Reference,
    places: Places | None = None,
    *,
    stranded: bool = False,
) -> Iterator[Region]:
    """Yield the regions of a BED file, or of a table with the columns contig, start and end.

    With `places`, only regions that overlap them. A table may have the columns name and strand. `DataError`
    if a region is invalid, has another strand than +, - or . (if `stranded`), there are none, or the
    reference has none of their contigs.
    """
    find_contig = contig_finder(reference.contigs, reference.names)
    contigs: dict[str, str | None] = {}
    where = source if isinstance(source, (Path, str)) else "regions"
    for line, name, start, end, label, strand in _rows(source):
        if stranded and strand not in (*STRANDS, "."):
            raise DataError(f"{line}: strand must be '+', '-' or '.', found {strand!r}")

        if name not in contigs:
            contigs[name] = find_contig(name)

        on_reference = contigs[name]
        contig = on_reference or name
        if places is not None and not places.overlaps(contig, start, end):
            continue

        fault = ""
        if on_reference is None:
            fault = UNKNOWN
        elif end > reference.contigs[contig]:
            fault = BEYOND

        label = label or f"{contig}:{start}-{end}"
        yield Region(
            contig, start, end, label, strand if strand in OPPOSITE else None, fault
        )

    if not contigs:
        raise DataError(f"{where}: no regions in the file")

    if not any(contigs.values()):
        raise DataError(
            f"{where}: none of the contigs ({shown(contigs)}) is in {reference.path} "
            f"({shown(reference.contigs)}); {ALIAS_HINT}"
        )


def _rows(
    source: "Path | str | pd.DataFrame",
) -> Iterator[tuple[str, str, int, int, str, Any]]:
    """Yield where a region is from, its contig, start, end, name and strand."""
    if isinstance(source, (Path, str)):
        for number, fields, start, end in read_bed(Path(source)):
            name = fields[3].strip() if len(fields) > 3 else ""
            strand = strand_column(fields) or "."
            yield f"{source}: line {number}", fields[0], start, end, name, strand

        return

    table = source[["contig", "start", "end"]]
    for name in ("name", "strand"):
        table[name] = source.get(name)

    for row, contig, start, end, name, strand in table.itertuples():
        if not 0 <= start < end:
            raise DataError(f"regions[{row!r}]: needs 0 <= start < end")

        yield f"regions[{row!r}]", contig, start, end, name or "", strand or "."


def placed_regions(path: Path, genome: Reference, longest: int) -> Iterator[Region]:
    """Yield the regions of a BED file; `DataError` if one is not on the reference, or has more than `longest`
    bp."""
    for region in read_regions(path, genome, stranded=True):
        where = f"{path}: region {region.name!r}"
        if region.end - region.start > longest:
            raise DataError(f"{where} has more than {longest:,} bp")
        if region.fault:
            raise DataError(f"{where} is not in {genome.path}: {region.fault}")
        yield region
