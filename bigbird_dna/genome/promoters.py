"""Transcription start sites: the files of EPDnew, and the table that later steps read.

EPDnew publishes the same promoters in three formats with three conventions. SGA and FPS give the
start site itself, counted from 1. BED gives 60 bp around it, of which the thick part begins (on
"-": ends) at the start site; the interval's own ends are not the site.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from bigbird_dna.errors import DataError
from bigbird_dna.files import atomic_path, write_json
from bigbird_dna.genome.assembly import Assembly, naming_assemblies, shown
from bigbird_dna.genome.compression import read_lines
from bigbird_dna.genome.fields import check_name, quoted, whole_number
from bigbird_dna.genome.intervals import Locus, Strand
from bigbird_dna.genome.liftover import lift
from bigbird_dna.genome.reference import Reference

_MOST = 2_000_000  # promoters of a file: what memory has room for
_COLUMNS = ("contig", "position", "strand", "name")

# FP, a name of up to 20 columns, flags, a data bank, and the site as
# sequence:topology-strand-position.
_FPS_ENTRY = re.compile(
    r"FP\s{3}(?P<name>.{20}):\S{2}\s+\S+?:(?P<contig>\S+)\s+"
    r"[0-9](?P<strand>[+-])\s*(?P<position>[0-9]+);"
)


class Placed(NamedTuple):
    """Loci as they lie on a reference."""

    loci: list[Locus]  # in the reference's order of contigs, then by position
    off_reference: int  # on a contig that the reference hasn't got, or beyond its end
    duplicates: int  # same contig, position and strand as an earlier one


def prepare_promoters(
    promoters: Path,
    reference: Path,
    output: Path,
    assembly: Assembly,
    chain: tuple[Path, Assembly] | None = None,
) -> dict[str, int | None]:
    """Put the promoters of an EPDnew file on a reference, and write them (see `write_loci`).

    Parameters
    ----------
    reference
        An indexed FASTA file.
    output
        The table to write; the counts that are returned go into a `.json` file beside it.
    assembly
        The reference's.
    chain
        A liftOver chain onto that assembly, and the assembly it starts from.

    Returns
    -------
    dict
        How many were read, lifted and unmapped (`None` without a chain), off_reference, duplicates,
        and promoters: how many were written.

    Raises
    ------
    DataError
        A file can't be used, or no promoter lies on the reference.
    """
    with Reference(reference) as opened:
        contigs = opened.contigs
    loci = read_promoters(promoters)
    counts: dict[str, int | None] = {"read": len(loci), "lifted": None, "unmapped": None}
    if chain is not None:
        lifted = lift(loci, chain[0], chain[1].match)
        loci = lifted.loci
        counts |= {"lifted": len(loci), "unmapped": len(lifted.unmapped)}
    placed = place(loci, contigs, assembly, str(promoters))
    counts |= {
        "off_reference": placed.off_reference,
        "duplicates": placed.duplicates,
        "promoters": len(placed.loci),
    }
    write_json(output.with_suffix(".json"), counts)
    write_loci(output, placed.loci)
    return counts


def read_promoters(path: Path) -> list[Locus]:
    """Read start sites from an EPDnew file, in file order, contigs named as in the file.

    Parameters
    ----------
    path
        An `.sga`, `.bed` or `.fps` file, possibly with `.gz`. BED needs the columns up to
        `thickEnd`, except for intervals of a single base, which are the site.

    Raises
    ------
    DataError
        The format is unknown, the file can't be read, holds no promoter or more than two million, or a
        line is malformed.
    """
    path = Path(path)
    suffix = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    parse = _PARSERS.get(suffix.lower())
    if parse is None:
        raise DataError(f"{path}: promoters come as .sga, .bed or .fps (also .gz)")
    loci: list[Locus] = []
    for number, line in read_lines(path):
        try:
            locus = parse(line)
        except ValueError as error:
            raise DataError(f"{path}: line {number}: {error}") from None
        if locus is not None:
            _take(loci, locus, f"{path}: line {number}")
    if not loci:
        raise DataError(f"{path}: no promoter in the file")
    return loci


def write_loci(path: Path, loci: Iterable[Locus]) -> None:
    """Write loci as a TSV (contig, 0-based position, strand, name), whole or not at all."""
    with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8") as stream:
        stream.write("\t".join(_COLUMNS) + "\n")
        for locus in loci:
            stream.write(f"{locus.contig}\t{locus.position}\t{locus.strand}\t{locus.name}\n")


def read_loci(path: Path) -> list[Locus]:
    """Read what `write_loci` wrote.

    Raises
    ------
    DataError
        The file can't be read, has another header, or a line is malformed.
    """
    lines = read_lines(Path(path))
    _, header = next(lines, (0, ""))
    if tuple(header.split("\t")) != _COLUMNS:
        raise DataError(f"{path}: the header is not {' '.join(_COLUMNS)!r} (tab-separated)")
    loci: list[Locus] = []
    for number, line in lines:
        try:
            contig, position, strand, name = _fields(line, 4, exactly=True)
            locus = Locus(contig, _position(position), _strand(strand), name)
        except ValueError as error:
            raise DataError(f"{path}: line {number}: {error}") from None
        _take(loci, locus, f"{path}: line {number}")
    return loci


def _take(loci: list[Locus], locus: Locus, where: str) -> None:
    """Add the next locus of a file."""
    if len(loci) == _MOST:
        raise DataError(f"{where}: more than {_MOST:,} promoters")
    # One text for a contig, however many loci it has.
    contig = loci[-1].contig if loci and loci[-1].contig == locus.contig else locus.contig
    check_name(contig, "contig", where)
    check_name(locus.name.lstrip("#"), "name", where)
    loci.append(replace(locus, contig=contig))


def place(loci: Iterable[Locus], contigs: Mapping[str, int], assembly: Assembly, where: str) -> Placed:
    """Put loci on a reference: its names for the contigs, its order, each site and strand once.

    Parameters
    ----------
    loci
        Sites with contigs in any naming scheme that `assembly` knows.
    contigs
        Name → length in bp of the reference's contigs.
    where
        What an error calls the loci.

    Raises
    ------
    DataError
        None of the loci is on the reference; the text has the names of both sides.
    """
    loci = list(loci)
    names = {name: assembly.match(name, contigs) for name in dict.fromkeys(x.contig for x in loci)}
    placed: dict[tuple[str, int, str], Locus] = {}
    off_reference = duplicates = 0
    for locus in loci:
        contig = names[locus.contig]
        if contig is None or locus.position >= contigs[contig]:
            off_reference += 1
            continue
        key = (contig, locus.position, locus.strand)
        if key in placed:
            duplicates += 1
        else:
            placed[key] = replace(locus, contig=contig)
    if not placed:
        raise DataError(f"{where}: {_explain_none(names, contigs, assembly)}")
    order = {contig: number for number, contig in enumerate(contigs)}
    found = sorted(placed.values(), key=lambda locus: (order[locus.contig], locus.position))
    return Placed(found, off_reference, duplicates)


def _explain_none(names: Mapping[str, str | None], contigs: Mapping[str, int], assembly: Assembly) -> str:
    text = (
        f"no promoter lies on the reference: the promoters' contigs are {shown(names)}, the "
        f"reference's {shown(contigs)} (names are looked up in {assembly.name})"
    )
    others = [name for name in naming_assemblies(names) if name != assembly.name]
    if others and not any(names.values()):
        text += f"; the promoters' names are known to {' and '.join(others)}"
    return text


def _parse_sga(line: str) -> Locus | None:
    if not line.strip() or line.startswith("#"):
        return None
    contig, feature, position, strand, _count, *name = _fields(line, 5)
    return Locus(contig, _site(position), _strand(strand), name[0] if name else feature)


def _parse_bed(line: str) -> Locus | None:
    if not line.strip() or line.startswith(("#", "track", "browser")):
        return None
    contig, first, last, name, _score, strand_text, *thick = _fields(line, 6)
    start, end, strand = _position(first), _position(last), _strand(strand_text)
    if end - start == 1:
        return Locus(contig, start, strand, name)
    if len(thick) < 2:
        raise ValueError(
            f"an interval of {end - start} bp without thickStart and thickEnd doesn't say where "
            "the start site is"
        )
    thick_start, thick_end = _position(thick[0]), _position(thick[1])
    if not start <= thick_start < thick_end <= end:
        raise ValueError(f"thick part {thick_start}-{thick_end} is not inside {start}-{end}")
    return Locus(contig, thick_start if strand == "+" else thick_end - 1, strand, name)


def _parse_fps(line: str) -> Locus | None:
    if not line.startswith("FP"):
        if re.match(r"[A-Z]{2}(\s|$)|//|\s*$", line):  # other lines of the format's family
            return None
        raise ValueError(f"not a line of an FPS file: {quoted(line, 40)}")
    entry = _FPS_ENTRY.match(line)
    if entry is None:
        raise ValueError(f"not an FPS entry: {quoted(line, 40)}")
    contig, name = entry["contig"], entry["name"].strip()
    return Locus(contig, _site(entry["position"]), _strand(entry["strand"]), name)


_PARSERS: dict[str, Callable[[str], Locus | None]] = {
    ".sga": _parse_sga,
    ".bed": _parse_bed,
    ".fps": _parse_fps,
}


def _fields(line: str, least: int, exactly: bool = False) -> list[str]:
    fields = line.split("\t")
    if len(fields) < least or (exactly and len(fields) > least):
        raise ValueError(f"expected {least} tab-separated columns, found {len(fields)}")
    return fields


def _position(text: str) -> int:
    position = whole_number(text)
    if position is None:
        raise ValueError(f"{quoted(text)} is no position")
    return position


def _site(text: str) -> int:
    position = _position(text)
    if position == 0:
        raise ValueError("position 0 where positions are counted from 1")
    return position - 1


def _strand(text: str) -> Strand:
    if text == "+":
        return "+"
    if text == "-":
        return "-"
    raise ValueError(f"strand must be '+' or '-', not {quoted(text)}")
