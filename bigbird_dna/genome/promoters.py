"""Read transcription start sites (EPDnew, BED, annotations), place them on a reference, and write a table.

EPDnew publishes the same promoters in formats with different conventions. SGA gives the 1-based start site. EPDnew's BED, with eight columns, gives 60 bp around the site. Its thick part begins (on "-":
ends) at the start site, but the interval does not. Other BED files, with six or twelve columns or an empty
thick part, have an interval that begins (on "-": ends) at the site.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain as chained
from pathlib import Path
from typing import Any, NamedTuple

from bigbird_dna.console import log
from bigbird_dna.disk.atomic import write_json
from bigbird_dna.disk.compression import read_lines
from bigbird_dna.errors import DataError, error_text
from bigbird_dna.genome.annotation import read_annotation
from bigbird_dna.genome.assembly import ALIAS_HINT, Assembly, shown, warn_of_dropped
from bigbird_dna.genome.fields import (
    check_name,
    parse_lines,
    position,
    quoted,
    site,
    split_columns,
    strand,
    write_rows,
)
from bigbird_dna.genome.intervals import read_bed, strand_column
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import OPPOSITE, Locus

_GIVEN = "as the file gives it"
_INTERVAL = "the 5' end of the interval"
_THICK = "the 5' end of the interval's thick part (EPD's BED)"


_StartSite = tuple[Locus, str]  # start site and the rule that found it


def read_promoters(path: Path, *, unstranded: bool = False) -> list[Locus]:
    """Read start sites in file order with the file's contig names, and log the rules that were used.

    The suffix selects the format, optionally with `.gz`: EPDnew's `.sga`; `.bed`; `.gff3`, `.gff`
    or `.gtf` (see `read_annotation`); or `.tsv`, a table of `write_loci`. BED files of 8 to 11 columns follow
    EPDnew's rule where the thick part is not empty; others use the intervals' 5' ends.

    With `unstranded`, a line of a BED file without a strand has a start site on both; otherwise it is a
    `DataError`.
    """
    path = Path(path)
    suffix = (
        path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    ).lower()
    found: Iterable[tuple[int, _StartSite]]
    if suffix in _ANNOTATIONS:
        found = read_annotation(path)
    elif suffix == ".bed":
        found = _bed_sites(path, unstranded)
    elif suffix == ".tsv":
        found = _table_sites(path)
    elif suffix == ".sga":
        found = parse_lines(path, _parse_sga, read_lines(path))
    else:
        raise DataError(
            f"{path}: unknown suffix; start sites need .sga, .bed, .gff3, .gtf or .tsv (or .gz)"
        )
    rules: Counter[str] = Counter()
    loci = _collect(path, found, rules)
    if not loci:
        raise DataError(f"{path}: the file contains no promoters")
    text = ", ".join(f"{rule} ({count:,})" for rule, count in rules.most_common())
    log(f"{path}: the start site is {text}")
    return loci


def _collect(
    path: Path, found: Iterable[tuple[int, _StartSite]], rules: Counter[str]
) -> list[Locus]:
    """Return the loci of a file, with valid names, and count the uses of each rule in `rules`."""
    loci: list[Locus] = []
    for number, (locus, rule) in found:
        where = f"{path}: line {number}"
        check_name(locus.contig, "contig", where)
        check_name(locus.name.lstrip("#"), "name", where)
        # One string per contig, independent of the number of loci.
        loci.append(replace(locus, contig=sys.intern(locus.contig)))
        rules[rule] += 1
    return loci


def _parse_sga(line: str) -> _StartSite | None:
    if not line.strip() or line.startswith("#"):
        return None
    contig, feature, place, sense, _count, *name = split_columns(line, 5)
    return Locus(
        contig, site(place), strand(sense), name[0] if name else feature
    ), _GIVEN


def thick_part(
    start: int, end: int, thick_start: int, thick_end: int
) -> tuple[int, int]:
    """Return the part of an interval that begins (on "-": ends) at the start site: the thick part.

    It is the interval if the thick part is empty, or if the interval is a single base. `ValueError`: the
    thick part is not inside the interval.
    """
    if thick_start == thick_end or end - start == 1:
        return start, end
    if not start <= thick_start < thick_end <= end:
        raise ValueError(
            f"thick part {thick_start}-{thick_end} is not inside {start}-{end}"
        )
    return thick_start, thick_end


def _bed_sites(path: Path, unstranded: bool) -> Iterator[tuple[int, _StartSite]]:
    """Yield line and start site; two for a line without a strand, if that is allowed (`unstranded`)."""

    def parse(row: list[Any]) -> list[_StartSite]:
        fields, start, end = row
        columns = split_columns("\t".join(fields), 3 if unstranded else 6)
        sense = strand_column(fields)
        strands = (
            tuple(OPPOSITE) if unstranded and sense in ("", ".") else (strand(sense),)
        )
        part, rule = (start, end), _INTERVAL
        if 8 <= len(columns) < 12:
            part = thick_part(
                start, end, position(columns[6]), position(columns[7].strip())
            )
            rule = _INTERVAL if part == (start, end) else _THICK
        name = columns[3] if len(columns) > 3 else f"{columns[0]}:{start}-{end}"
        return [
            (Locus(columns[0], part[0] if own == "+" else part[1] - 1, own, name), rule)
            for own in strands
        ]

    lines = ((number, row) for number, *row in read_bed(path))
    for number, sites in parse_lines(path, parse, lines):
        yield from ((number, found) for found in sites)


_ANNOTATIONS = frozenset({".gff3", ".gff", ".gtf"})

COLUMNS = ("contig", "position", "strand", "name")


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


def write_loci(path: Path, loci: Iterable[Locus]) -> None:
    """Write loci atomically as a TSV (contig, 0-based position, strand, name)."""
    write_rows(
        path,
        chained([COLUMNS], ((x.contig, x.position, x.strand, x.name) for x in loci)),
    )


def read_loci(path: Path) -> list[Locus]:
    """Read a file of `write_loci`."""
    return _collect(path, _table_sites(Path(path)), Counter())


def _table_sites(path: Path) -> Iterator[tuple[int, _StartSite]]:
    lines = read_lines(path)
    _, header = next(lines, (0, ""))
    if tuple(header.split("\t")) != COLUMNS:
        raise DataError(
            f"{path}: the header must be {' '.join(COLUMNS)!r} (tab-separated)"
        )
    yield from parse_lines(path, _parse_locus, lines)


def _parse_locus(line: str) -> _StartSite:
    contig, start, sense, name = split_columns(line, 4, exactly=True)
    return Locus(contig, position(start), strand(sense), name), _GIVEN


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

    lengths = _check_chains(chain)
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
        if not 0 <= lifted_to < lengths.get(target, 0):
            raise DataError(
                f"{chain}: maps {locus.contig}:{locus.position} to {target}:{lifted_to}, which is not a "
                "position of that contig"
            )
        sense = locus.strand if direction == "+" else OPPOSITE[locus.strand]
        lifted.loci.append(Locus(target, lifted_to, sense, locus.name))
    if not lifted.loci:
        raise DataError(
            f"{chain}: no locus can be lifted: the contigs are {shown(renamed)}, the chain's {shown(names)}"
        )
    return lifted


def _check_chains(path: Path) -> dict[str, int]:
    """Check the lines of a chain file, which the reader does not; return the lengths of the target contigs.

    A chain is a header (score and, of both sides, contig, length, strand, start and end), and blocks (size
    and both gaps), whose sum reaches the ends. The last block is only a size.
    """
    lengths: dict[str, int] = {}
    missing = (0, 0)  # bases of the current chain until the end of both sides
    for number, line in read_lines(path):
        where = f"{path}: line {number}: not a usable chain file"
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        try:
            if words[0] == "chain" and missing == (0, 0):
                if words[4] != "+" or words[9] not in OPPOSITE:
                    raise ValueError("strands")
                start, end, target_length, target_start, target_end = (
                    position(words[column]) for column in (5, 6, 8, 10, 11)
                )
                lengths[check_name(words[7], "contig", where)] = target_length
                missing = (end - start, target_end - target_start)
                continue
            size, gap, target_gap = (
                position(word)
                for word in (words if len(words) == 3 else [*words, "0", "0"])
            )
            missing = (missing[0] - size - gap, missing[1] - size - target_gap)
        except (ValueError, IndexError):
            raise DataError(f"{where}: unexpected {quoted(' '.join(words))}") from None
        if min(missing) < 0 or (len(words) == 1 and missing != (0, 0)):
            raise DataError(f"{where}: the blocks do not end where the header says")
    if missing != (0, 0):
        raise DataError(f"{path}: not a usable chain file: the last chain is truncated")
    if not lengths:
        raise DataError(f"{path}: the file contains no chains")
    return lengths
