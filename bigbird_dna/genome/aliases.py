"""Files that say which names are the same contig's, and assemblies whose names come from them.

Such a file has all names of one contig on a line, separated by tabs, in any order; empty columns and lines
that begin with `#` are passed over. UCSC's `chromAlias.txt` of today is one. NCBI's assembly reports
(`*_assembly_report.txt`) are read too, and tell lengths.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bigbird_dna.errors import DataError
from bigbird_dna.genome.assembly import Assembly, Contig, load_assembly
from bigbird_dna.genome.compression import read_lines
from bigbird_dna.genome.fields import check_name, quoted, whole_number

_MOST = 2_000_000  # contigs of a file: what memory has room for
_ABSENT = frozenset({"", "na"})
_REPORT = "Sequence-Name"  # the first column of NCBI's
_COLUMNS = (_REPORT, "Sequence-Role", "Assigned-Molecule", "GenBank-Accn", "Relationship", "RefSeq-Accn")


class _Line(NamedTuple):
    """The names of a contig, the first of them its own, and its length where the file has it."""

    number: int
    names: tuple[str, ...]
    length: int | None = None


def open_assembly(assembly: str, aliases: Path | None = None, title: str | None = None) -> Assembly:
    """A known assembly, "demo" or "custom", with the names of an alias file.

    Parameters
    ----------
    title
        What messages and results call it; None: as `assembly`.

    Raises
    ------
    ConfigError
        The assembly is unknown.
    DataError
        The file can't be read; a name stands for two contigs. The text has the line.
    """
    known = load_assembly(assembly)
    contigs = known.contigs if aliases is None else tuple(_joined(Path(aliases), known))
    return Assembly(title or known.name, contigs)


def _joined(path: Path, known: Assembly) -> Iterator[Contig]:
    """The contigs of an assembly, with more names of the file, and the contigs that only the file has."""
    table = {name: contig for contig in known.contigs for name in contig.names}
    more: dict[str, set[str]] = {}
    first: dict[str, int] = {}
    new = []
    for line in _read(path):
        where = f"{path}: line {line.number}"
        for name in line.names:
            if name in first:
                raise DataError(
                    f"{where}: {quoted(name)} stands in line {first[name]} too: all names of a contig "
                    "belong on one line"
                )
            first[name] = line.number
        owners = {table[name].name for name in line.names if name in table}
        if len(owners) > 1:
            raise DataError(f"{where}: {' and '.join(sorted(owners))} are different contigs of {known.name}")
        if owners:
            more.setdefault(owners.pop(), set()).update(line.names)
        else:
            new.append(Contig(line.names[0], line.length, frozenset(line.names)))
    if not first:
        raise DataError(f"{path}: no names of contigs in the file")
    for contig in known.contigs:
        yield contig._replace(names=contig.names | more.get(contig.name, set()))
    yield from new


def _read(path: Path) -> Iterator[_Line]:
    lines = read_lines(path)
    columns: list[str] | None = None
    for count, (number, text) in enumerate(lines):
        if count > _MOST:
            raise DataError(f"{path}: line {number}: more than {_MOST:,} lines")
        if text.startswith("#"):
            header = text.lstrip("# ").split("\t")
            columns = header if header[0] == _REPORT else columns
        elif text.strip():
            where = f"{path}: line {number}"
            yield _names(text, number, where) if columns is None else _entry(text, columns, number, where)


def _names(text: str, number: int, where: str) -> _Line:
    names = tuple(dict.fromkeys(name for name in map(str.strip, text.split("\t")) if name))
    for name in names:
        check_name(name, "contig", where)
        if any(letter.isspace() for letter in name):
            raise DataError(f"{where}: contig {quoted(name)} has a space: names are separated by tabs")
    return _Line(number, names)


def _entry(text: str, columns: list[str], number: int, where: str) -> _Line:
    """A line of NCBI's assembly report."""
    fields = text.split("\t")
    if len(fields) != len(columns) or not {*_COLUMNS} <= {*columns}:
        raise DataError(f"{where}: has {len(fields)} columns, not the {len(columns)} of the report's header")
    row = dict(zip(columns, map(str.strip, fields), strict=True))
    names = [row[_REPORT], row["RefSeq-Accn"], row.get("UCSC-style-name", "")]
    # A scaffold is assigned to a chromosome without being it.
    if row["Sequence-Role"] == "assembled-molecule":
        names.append(row["Assigned-Molecule"])
    # Where the accessions' sequences differ, as the human mitochondria's of GRCh37, only RefSeq's is taken.
    if row["Relationship"] == "=" or row["RefSeq-Accn"] in _ABSENT:
        names.append(row["GenBank-Accn"])
    kept = tuple(dict.fromkeys(name for name in names if name not in _ABSENT))
    for name in kept:
        check_name(name, "contig", where)
    if not kept:
        raise DataError(f"{where}: a sequence without a name")
    return _Line(number, kept, whole_number(row.get("Sequence-Length", "")))
