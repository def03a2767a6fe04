"""Columns of tables of places; a `ValueError` says what is wrong with one."""

from dataclasses import replace

from bigbird_dna.errors import DataError
from bigbird_dna.genome.fields import check_name, quoted, whole_number
from bigbird_dna.genome.intervals import Locus, Strand

_MOST = 2_000_000  # loci of a file: what memory has room for


def split_columns(line: str, least: int, exactly: bool = False) -> list[str]:
    """The columns of a line, at least or exactly so many."""
    columns = line.split("\t")
    if len(columns) < least or (exactly and len(columns) > least):
        raise ValueError(f"expected {least} tab-separated columns, found {len(columns)}")
    return columns


def position(text: str) -> int:
    """A position, counted from 0."""
    found = whole_number(text)
    if found is None:
        raise ValueError(f"{quoted(text)} is not a position")
    return found


def site(text: str) -> int:
    """The position, counted from 0, that a file counts from 1."""
    found = position(text)
    if found == 0:
        raise ValueError("position 0 where positions are counted from 1")
    return found - 1


def strand(text: str) -> Strand:
    """A strand that is known."""
    if text == "+":
        return "+"
    if text == "-":
        return "-"
    raise ValueError(f"strand must be '+' or '-', not {quoted(text)}")


def append_locus(loci: list[Locus], locus: Locus, where: str) -> None:
    """Add the next locus of a file, whose place there is `where`.

    Raises
    ------
    DataError
        There are more than two million, or a name that would break a table.
    """
    if len(loci) == _MOST:
        raise DataError(f"{where}: more than {_MOST:,} promoters")
    # One text for a contig, however many loci it has.
    contig = loci[-1].contig if loci and loci[-1].contig == locus.contig else locus.contig
    check_name(contig, "contig", where)
    check_name(locus.name.lstrip("#"), "name", where)
    loci.append(replace(locus, contig=contig))
