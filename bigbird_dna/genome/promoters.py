"""Read transcription start sites (EPDnew, BED, annotations), place them on a reference, and write a table.

EPDnew publishes the same promoters in formats with different conventions. SGA gives the 1-based start site.
EPDnew's BED, with eight columns, gives 60 bp around the site. Its thick part begins (on "-": ends) at the
start site, but the interval does not. Other BED files, with six or twelve columns or an empty thick part,
have an interval that begins (on "-": ends) at the site.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from bigbird_dna.disk.atomic import write_json
from bigbird_dna.disk.compression import read_lines
from bigbird_dna.errors import DataError, error_text
from bigbird_dna.genome.annotation import read_annotation
from bigbird_dna.genome.assembly import ALIAS_HINT, Assembly, shown, warn_of_dropped
from bigbird_dna.genome.fields import check_name, write_rows
from bigbird_dna.genome.intervals import read_bed
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import OPPOSITE, Locus

COLUMNS = ("contig", "position", "strand", "name")


def read_promoters(path: Path) -> list[Locus]:
    """Read start sites in file order with the file's contig names.

    The suffix selects the format, optionally with `.gz`: EPDnew's `.sga`; `.bed`; `.gff3`, `.gff`
    or `.gtf` (see `read_annotation`); or `.tsv`, a table of `write_loci`. BED files of 8 to 11 columns follow
    EPDnew's rule where the thick part is not empty; others use the intervals' 5' ends.
    """
    path = Path(path)
    suffix = (
        path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    ).lower()
    loci: Iterable[tuple[int, Locus]]
    if suffix in (".gff3", ".gff", ".gtf"):
        loci = read_annotation(path)
    elif suffix == ".bed":
        loci = _bed_sites(path)
    elif suffix == ".tsv":
        return read_loci(path)
    elif suffix == ".sga":
        loci = _sga_sites(path)
    else:
        raise DataError(
            f"{path}: unknown suffix; start sites need .sga, .bed, .gff3, .gtf or .tsv (or .gz)"
        )
    return _with_valid_names(path, loci)


def read_loci(path: Path) -> list[Locus]:
    """Read a file of `write_loci`."""
    return _with_valid_names(path, _table_sites(Path(path)))


def write_loci(path: Path, loci: Iterable[Locus]) -> None:
    """Write loci atomically as a TSV (contig, 0-based position, strand, name)."""
    rows = ((x.contig, x.position, x.strand, x.name) for x in loci)
    write_rows(path, [COLUMNS, *rows])


def _with_valid_names(path: Path, loci: Iterable[tuple[int, Locus]]) -> list[Locus]:
    found = []
    for number, locus in loci:
        where = f"{path}: line {number}"
        check_name(locus.contig, "contig", where)
        check_name(locus.name.lstrip("#"), "name", where)
        found.append(locus)
    if not found:
        raise DataError(f"{path}: the file contains no promoters")
    return found


def _sga_sites(path: Path) -> Iterator[tuple[int, Locus]]:
    for number, line in read_lines(path):
        if line.startswith("#") or not line.strip():
            continue
        try:
            contig, feature, position, strand, _, *name = line.split("\t")
            site = int(position) - 1
            yield number, Locus(contig, site, strand, name[0] if name else feature)  # type: ignore[arg-type]
        except ValueError as error:
            raise DataError(f"{path}: line {number}: {error}") from None


def _table_sites(path: Path) -> Iterator[tuple[int, Locus]]:
    for number, line in read_lines(path):
        columns = line.split("\t")
        if number == 1:
            if columns != [*COLUMNS]:
                raise DataError(
                    f"{path}: the header must be {' '.join(COLUMNS)!r} (tab-separated)"
                )
            continue
        try:
            contig, position, strand, name = columns
            yield number, Locus(contig, int(position), strand, name)  # type: ignore[arg-type]
        except ValueError as error:
            raise DataError(f"{path}: line {number}: {error}") from None


def _bed_sites(path: Path) -> Iterator[tuple[int, Locus]]:
    """Yield line and start site: the 5' end of an interval, or in EPD's BED of its thick part."""
    for number, columns, start, end in read_bed(path):
        name = columns[3] if len(columns) > 3 else f"{columns[0]}:{start}-{end}"
        strand = columns[5].strip() if len(columns) > 5 else "."
        try:
            if 8 <= len(columns) < 12 and end - start > 1:
                thick_start, thick_end = int(columns[6]), int(columns[7])
                if thick_start != thick_end:
                    if not start <= thick_start < thick_end <= end:
                        raise ValueError(
                            f"thick part {thick_start}-{thick_end} is not inside {start}-{end}"
                        )
                    start, end = thick_start, thick_end
            position = start if strand == "+" else end - 1
            yield number, Locus(columns[0], position, strand, name)  # type: ignore[arg-type]
        except ValueError as error:
            raise DataError(f"{path}: line {number}: {error}") from None


class PlacedPromoters(NamedTuple):
    """Loci placed on a reference."""

    loci: list[Locus]  # in the reference's order of contigs, then by position
    absent: dict[
        str, int
    ]  # counts of contigs that are not in the reference, largest first
    beyond: dict[str, int]  # counts by contig of loci beyond its end
    duplicates: int  # with contig, position and strand of an earlier locus


def prepare_promoters(
    promoters: Path,
    reference: Path,
    output: Path,
    assembly: Assembly,
    chain: tuple[Path, Assembly] | None = None,
) -> dict[str, Any]:
    """Place the promoters of a file on a reference; write them (see `write_loci`) and a `.json` of counts.

    `chain` is a liftOver chain to the assembly, and the assembly it starts from. Return the counts; those of
    contigs that are missing from the reference, or too short, are by the file's names. The log states the
    number of dropped promoters per reason.
    """
    with Reference(reference) as opened:
        contigs = opened.contigs
    loci = read_promoters(promoters)
    counts: dict[str, Any] = {"read": len(loci), "lifted": None, "unmapped": None}
    if chain is not None:
        lifted = lift(loci, chain[0], chain[1].match)
        loci = lifted.loci
        counts |= {"lifted": len(loci), "unmapped": len(lifted.unmapped)}
        unmapped = Counter(locus.contig for locus in lifted.unmapped)
        warn_of_dropped(
            str(promoters),
            "promoters",
            counts["read"],
            unmapped,
            f"have no unique target in {chain[0].name}",
        )
    placed = place(loci, contigs, assembly, str(promoters))
    hint = ""
    if not all(assembly.knows(name) for name in placed.absent):
        hint = f"; if the reference has these contigs under other names, {ALIAS_HINT}"
    where = str(promoters), "promoters", len(loci)
    warn_of_dropped(
        *where, placed.absent, "are on contigs that are not in the reference", hint
    )
    warn_of_dropped(*where, placed.beyond, "are beyond the end of their contig")
    counts |= {
        "off_reference": sum(placed.absent.values()) + sum(placed.beyond.values()),
        "duplicates": placed.duplicates,
        "promoters": len(placed.loci),
        "dropped_contigs": placed.absent,
        "beyond_contigs": placed.beyond,
    }
    write_json(output.with_suffix(".json"), counts)
    write_loci(output, placed.loci)
    return counts


def place(
    loci: Iterable[Locus], contigs: Mapping[str, int], assembly: Assembly, where: str
) -> PlacedPromoters:
    """Place loci on a reference, in its order and with its contig names; each site and strand occurs once.

    `where` names the file of the loci in errors.
    """
    loci = list(loci)
    names = {
        name: assembly.match(name, contigs)
        for name in dict.fromkeys(x.contig for x in loci)
    }
    placed: dict[tuple[str, int, str], Locus] = {}
    absent: Counter[str] = Counter()
    beyond: Counter[str] = Counter()
    duplicates = 0
    for locus in loci:
        contig = names[locus.contig]
        if contig is None:
            absent[locus.contig] += 1
            continue
        if locus.position >= contigs[contig]:
            beyond[locus.contig] += 1
            continue
        key = (contig, locus.position, locus.strand)
        if key in placed:
            duplicates += 1
        else:
            placed[key] = replace(locus, contig=contig)
    if not placed:
        raise DataError(
            f"{where}: no promoter is on the reference: {assembly.explain_none(names, contigs)}"
        )
    order = {contig: number for number, contig in enumerate(contigs)}
    found = sorted(
        placed.values(), key=lambda locus: (order[locus.contig], locus.position)
    )
    return PlacedPromoters(
        found, dict(absent.most_common()), dict(beyond.most_common()), duplicates
    )


class Lifted(NamedTuple):
    """Result of a liftOver."""

    loci: list[Locus]  # on the new assembly, contigs named as in the chain file
    unmapped: list[Locus]  # unchanged: no counterpart, or more than one


def lift(
    loci: Iterable[Locus], chain: Path, rename: Callable[[str, list[str]], str | None]
) -> Lifted:
    """Map loci along a chain file; the strand is flipped where the assemblies are inverted.

    `rename` maps a locus's contig and the chain's contig names to the matching chain contig, as
    `Assembly.match` does; a locus without a match is unmapped. `DataError`: the file is not of UCSC's format,
    or its last chain is truncated.
    """
    from liftover import ChainFile  # slow to import

    last = ""
    for number, line in read_lines(chain):
        words = line.split()
        if words[:1] == ["chain"] and len(words) not in (12, 13):
            raise DataError(f"{chain}: line {number}: not the header of a chain")
        last = line.strip() or last
    if not last.isdecimal():  # the last block of a chain is only a size
        raise DataError(f"{chain}: not a chain file, or truncated")
    try:
        chains = ChainFile(str(chain))
    except (OSError, ValueError, RuntimeError, LookupError, OverflowError) as error:
        raise DataError(
            f"{chain}: not a usable chain file: {error_text(error)}"
        ) from None
    names = list(chains)
    renamed: dict[str, str | None] = {}
    lifted = Lifted([], [])
    for locus in loci:
        if locus.contig not in renamed:
            renamed[locus.contig] = rename(locus.contig, names)
        contig = renamed[locus.contig]
        targets = [] if contig is None else chains[contig][locus.position]
        if len(targets) != 1:
            lifted.unmapped.append(locus)
            continue
        target, lifted_to, direction = targets[0]
        sense = locus.strand if direction == "+" else OPPOSITE[locus.strand]
        lifted.loci.append(Locus(target, lifted_to, sense, locus.name))
    if not lifted.loci:
        raise DataError(
            f"{chain}: no locus can be lifted: the contigs are {shown(renamed)}, the chain's {shown(names)}"
        )
    return lifted
