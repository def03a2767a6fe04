"""Read transcription start sites (EPDnew, RegulonDB, BED, annotations), place them on a reference, and write a table.

EPDnew publishes the same promoters in formats with different conventions. SGA gives the 1-based start site.
EPDnew's BED, with eight columns, gives 60 bp around the site. Its thick part begins (on "-": ends) at the
start site, but the interval does not. Other BED files, with six or twelve columns or an empty thick part,
have an interval that begins (on "-": ends) at the site.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bigbird_dna.disk.atomic import write_json
from bigbird_dna.disk.compression import read_lines
from bigbird_dna.errors import DataError, error_text
from bigbird_dna.genome.annotation import read_annotation
from bigbird_dna.genome.assembly import ALIAS_HINT, Assembly, shown, warn_of_dropped
from bigbird_dna.genome.fields import check_name, write_rows
from bigbird_dna.genome.intervals import read_bed, strand_column
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import OPPOSITE, Locus, Strand

COLUMNS = ("contig", "position", "strand", "name")
_REGULONDB_STRANDS: dict[str, Strand] = {"forward": "+", "reverse": "-"}


def read_promoters(path: Path) -> list[Locus]:
    """Read start sites in file order with the file's contig names.

    The suffix selects the format, optionally with `.gz`: EPDnew's `.sga`; RegulonDB's `.txt`; `.bed`;
    `.gff3`, `.gff` or `.gtf` (see `read_annotation`); or `.tsv`, a table of `write_loci`. BED files of 8 to
    11 columns follow EPDnew's rule where the thick part is not empty; others use the intervals' 5' ends.
    """
    path = Path(path)
    suffix = Path(path.name.lower().removesuffix(".gz")).suffix
    if suffix in (".gff3", ".gff", ".gtf"):
        return _checked(path, read_annotation(path))

    if suffix == ".bed":
        return _checked(path, _bed_sites(path))

    if suffix == ".txt":
        return _checked(path, _regulondb_sites(path))

    if suffix in (".sga", ".tsv"):
        return _checked(path, _sites(path, suffix == ".sga"))

    raise DataError(
        f"{path}: unknown suffix; start sites need .sga, .txt, .bed, .gff3, .gtf or .tsv (or .gz)"
    )


def read_loci(path: Path) -> list[Locus]:
    """Read a file of `write_loci`."""
    return _checked(path, _sites(path, is_sga=False))


def write_loci(path: Path, loci: Iterable[Locus]) -> None:
    """Write loci atomically as a TSV (contig, 0-based position, strand, name)."""
    rows = ((x.contig, x.position, x.strand, x.name) for x in loci)
    write_rows(path, [COLUMNS, *rows])


def _checked(path: Path, loci: Iterable[tuple[int, Locus]]) -> list[Locus]:
    """Return loci, whose line numbers are given; `DataError` for names that a table cannot have."""
    sites = []
    for number, locus in loci:
        where = f"{path}: line {number}"
        check_name(locus.contig, "contig", where)
        check_name(locus.name.lstrip("#"), "name", where)
        sites.append(locus)
    if not sites:
        raise DataError(f"{path}: the file contains no promoters")
    return sites


def _sites(path: Path, is_sga: bool) -> Iterator[tuple[int, Locus]]:
    """Yield line and start site of an SGA file, or of a table of `write_loci`."""
    for number, line in read_lines(path):
        columns = line.split("\t")
        if is_sga:
            if line.startswith("#") or not line.strip():
                continue
        elif number == 1:
            if columns != [*COLUMNS]:
                raise DataError(
                    f"{path}: the header must be {' '.join(COLUMNS)!r} (tab-separated)"
                )

            continue

        try:
            if is_sga:
                contig, feature, position, strand, _, *names = columns
                name = names[0] if names else feature
                site = int(position) - 1
            else:
                contig, position, strand, name = columns
                site = int(position)

            yield number, Locus(contig, site, strand, name)  # type: ignore[arg-type]
        except ValueError as error:
            raise DataError(f"{path}: line {number}: {error}") from None


def _bed_sites(path: Path) -> Iterator[tuple[int, Locus]]:
    """Yield line and start site: the 5' end of an interval, or in EPD's BED of its thick part."""
    for number, columns, start, end in read_bed(path):
        name = columns[3] if len(columns) > 3 else f"{columns[0]}:{start}-{end}"
        strand = strand_column(columns)
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


def _regulondb_sites(path: Path) -> Iterator[tuple[int, Locus]]:
    """Yield line and start site of each promoter of RegulonDB's PromoterSet.txt that has a position.

    The contig is the accession after "Refseq version" in the header. The file also has the bases around each
    site, which are not read: in release 10.6.3, those of 2,465 promoters on the reverse strand are displaced by
    one base. The positions are right: 31 % of these start sites begin with A or G after C or T at the positions,
    and 13 % in the sequences.
    """
    contig = ""
    for number, line in read_lines(path):
        if named := re.search(r"#.*Refseq version: *([\w.]+)", line):
            contig = named[1]

        if line.startswith("#") or not line.strip():
            continue

        try:
            if not contig:
                raise ValueError("no 'Refseq version' in the comments before it")

            _, name, direction, position, *_ = line.split("\t")
            if position in ("", "0"):  # not known
                continue

            if direction not in _REGULONDB_STRANDS:
                raise ValueError(f"strand {direction!r:.60} is not forward or reverse")

            strand = _REGULONDB_STRANDS[direction]
            yield number, Locus(contig, int(position) - 1, strand, name)
        except ValueError as error:
            raise DataError(f"{path}: line {number}: {error}") from None


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
    loci = read_promoters(promoters)
    counts: dict[str, Any] = {"read": len(loci), "lifted": None, "unmapped": None}
    with Reference(reference) as genome:
        contigs = genome.contigs

    if chain is not None:
        total = len(loci)
        loci, unmapped = lift(loci, chain[0], chain[1].match)
        counts |= {"lifted": len(loci), "unmapped": len(unmapped)}
        warn_of_dropped(
            str(promoters),
            "promoters",
            total,
            Counter(locus.contig for locus in unmapped),
            f"have no unique target in {chain[0].name}",
        )

    loci, placed = place(loci, contigs, assembly, str(promoters))
    write_json(output.with_suffix(".json"), counts | placed)
    write_loci(output, loci)
    return counts | placed


def place(
    loci: Sequence[Locus], contigs: Mapping[str, int], assembly: Assembly, where: str
) -> tuple[list[Locus], dict[str, Any]]:
    """Place loci on a reference, in its order and with its contig names; each site and strand occurs once.

    Returns them and the counts of `promoters.json`. `where` names the file of the loci in messages.
    """
    names = {x.contig: assembly.match(x.contig, contigs) for x in loci}
    placed: dict[tuple[str, int, str], Locus] = {}
    absent: Counter[str] = Counter()
    beyond: Counter[str] = Counter()
    for locus in loci:
        contig = names[locus.contig]
        if contig is None:
            absent[locus.contig] += 1
        elif locus.position >= contigs[contig]:
            beyond[locus.contig] += 1
        else:
            key = contig, locus.position, locus.strand
            placed.setdefault(key, replace(locus, contig=contig))

    if not placed:
        raise DataError(
            f"{where}: no promoter is on the reference: {assembly.explain_none(names, contigs)}"
        )

    hint = ""
    if not all(assembly.knows(name) for name in absent):
        hint = f"; if the reference has these contigs under other names, {ALIAS_HINT}"

    total = where, "promoters", len(loci)
    why = "are on contigs that are not in the reference"
    warn_of_dropped(*total, absent, why, hint)
    warn_of_dropped(*total, beyond, "are beyond the end of their contig")
    order = {contig: number for number, contig in enumerate(contigs)}
    sites = sorted(placed.values(), key=lambda x: (order[x.contig], x.position))
    dropped = absent.total() + beyond.total()
    return sites, {
        "off_reference": dropped,
        "duplicates": len(loci) - dropped - len(sites),
        "promoters": len(sites),
        "dropped_contigs": dict(absent.most_common()),
        "beyond_contigs": dict(beyond.most_common()),
    }


def lift(
    loci: Iterable[Locus], chain: Path, rename: Callable[[str, list[str]], str | None]
) -> tuple[list[Locus], list[Locus]]:
    """Map loci along a chain file; the strand is flipped where the assemblies are inverted.

    Returns those on the new assembly, with contigs named as in the chain file, and those without a
    counterpart or with more than one, unchanged. `rename` maps a locus's contig and the chain's contig names
    to the matching chain contig, as `Assembly.match` does. `DataError`: the file is not of UCSC's format, or
    its last chain is truncated.
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
    lifted: list[Locus] = []
    unmapped: list[Locus] = []
    for locus in loci:
        if locus.contig not in renamed:
            renamed[locus.contig] = rename(locus.contig, names)

        contig = renamed[locus.contig]
        targets = [] if contig is None else chains[contig][locus.position]
        if len(targets) != 1:
            unmapped.append(locus)
            continue

        target, position, direction = targets[0]
        strand = locus.strand if direction == "+" else OPPOSITE[locus.strand]
        lifted.append(Locus(target, position, strand, locus.name))

    if not lifted:
        raise DataError(
            f"{chain}: no locus can be lifted: the contigs are {shown(renamed)}, the chain's {shown(names)}"
        )

    return lifted, unmapped
