"""Reading VCF as text: header lines and columns stay as they are, so that they can be written back.

Positions are 1-based in the file and 0-based in `VcfRecord.start`. Bytes that aren't UTF-8 survive
as surrogates: write the texts with `errors="surrogateescape"`.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from bigbird_dna.errors import DataError
from bigbird_dna.genome.compression import open_bytes

PREFIX = "BBD_"
"""Of the INFO keys that this software writes; those that a file has already are replaced."""

_COLUMNS = ("#CHROM", "POS", "ID", "REF", "ALT", "QUAL", "FILTER", "INFO")
_FURTHEST = 2**31 - 1  # a position of the format, bp
_LONGEST_FIRST_LINE = 1 << 16  # bytes; of a file that may be no text at all


class VcfRecord(NamedTuple):
    """One record: what is needed of it, and all of its columns as they were written."""

    line: int
    contig: str
    start: int  # 0-based; -1 for POS 0, which the format has for the telomere
    ref: str
    alts: tuple[str, ...]  # (".",) if there is none
    columns: tuple[str, ...]  # the eight fixed ones
    rest: str  # genotypes: "" or the further columns, tab-separated


class VcfFile(NamedTuple):
    """An open VCF: its header, and the records as they are read."""

    meta: tuple[str, ...]  # the lines that begin with `##`
    column_line: str  # the one that begins with `#CHROM`
    records: Iterator[VcfRecord]


class VcfSummary(NamedTuple):
    """What one pass over a file finds out."""

    records: int
    is_sorted: bool  # by position within contigs, each contig in one piece
    furthest: int  # base that a REF allele reaches, 1-based; 0 without records


@contextmanager
def open_vcf(path: Path, contigs: Collection[str] = ()) -> Iterator[VcfFile]:
    """Open a VCF file for one pass: plain, gzip or bgzip.

    Parameters
    ----------
    contigs
        Names as in the file: only their records are read. None: all are.

    Raises
    ------
    DataError
        On opening: the file can't be read, is BCF, or has no VCF header. While records are read: a
        line is no record: its number of columns isn't the header's, CHROM, REF or ALT is empty, or
        POS is no position. The text has file and line.
    """
    path = Path(path)
    with open_bytes(path) as stream:
        meta, column_line, number = _read_header(path, stream)
        records = _records(path, stream, column_line, number)
        if contigs:
            records = (record for record in records if record.contig in contigs)
        yield VcfFile(meta, column_line, records)


def scan_vcf(path: Path, contigs: Collection[str] = ()) -> VcfSummary:
    """Read a file once from end to end, so that faults are known before any work is done.

    `contigs` are as in `open_vcf`.

    Raises
    ------
    DataError
        As `open_vcf` does.
    """
    records = furthest = 0
    is_sorted = True
    contig, start = "", -1
    seen: set[str] = set()
    with open_vcf(path, contigs) as vcf:
        for record in vcf.records:
            records += 1
            furthest = max(furthest, record.start + len(record.ref))
            if record.contig == contig:
                is_sorted &= record.start >= start
            else:
                is_sorted &= record.contig not in seen
                seen.add(record.contig)
                contig = record.contig
            start = record.start
    return VcfSummary(records, is_sorted, furthest)


def _read_header(path: Path, stream: IO[bytes]) -> tuple[tuple[str, ...], str, int]:
    """The `##` lines, the line of column names, and the number of that line."""
    meta: list[str] = []
    line = stream.readline(_LONGEST_FIRST_LINE)
    if line.startswith(b"BCF"):
        raise DataError(f"{path}: BCF isn't read: convert it with `bcftools view -O z`")
    if not line.startswith(b"##fileformat=VCF"):
        raise DataError(f"{path}: line 1: not a VCF file: it must begin with ##fileformat=VCFv4.2")
    number = 1
    while line.startswith(b"##"):
        meta.append(_text(line))
        line = stream.readline()
        number += 1
    column_line = _text(line)
    if not line.startswith(b"#"):
        raise DataError(f"{path}: line {number}: the header has no line #CHROM, POS …")
    names = column_line.split("\t")
    if tuple(names[: len(_COLUMNS)]) != _COLUMNS:
        raise DataError(
            f"{path}: line {number}: the header's columns must be {', '.join(_COLUMNS)}, separated by tabs"
        )
    return tuple(meta), column_line, number


def _records(path: Path, stream: IO[bytes], column_line: str, header_line: int) -> Iterator[VcfRecord]:
    columns = column_line.count("\t") + 1
    for number, line in enumerate(stream, start=header_line + 1):
        text = _text(line)
        if text:
            yield _record(text, columns, number, f"{path}: line {number}")


def _record(text: str, columns: int, number: int, where: str) -> VcfRecord:
    if text.startswith("#"):
        raise DataError(f"{where}: a header line among the records")
    found = text.count("\t") + 1
    if found != columns:
        raise DataError(f"{where}: {found} columns, the header has {columns}")
    fields = text.split("\t", len(_COLUMNS))
    contig, pos, _, ref, alt = fields[:5]
    if not contig or " " in contig:
        raise DataError(f"{where}: CHROM {contig!r} is no name of a contig")
    # isdigit also holds for superscripts and the like, which int refuses.
    if not (pos.isdigit() and pos.isascii() and len(pos) < 20 and int(pos) <= _FURTHEST):
        raise DataError(f"{where}: POS {pos!r} is no position")
    if ref in ("", "."):
        raise DataError(f"{where}: REF is empty")
    alts = tuple(alt.split(","))
    if "" in alts:
        raise DataError(f"{where}: ALT {alt!r} has an empty allele")
    rest = fields[len(_COLUMNS)] if columns > len(_COLUMNS) else ""
    return VcfRecord(number, contig, int(pos) - 1, ref, alts, tuple(fields[: len(_COLUMNS)]), rest)


def _text(line: bytes) -> str:
    return line.rstrip(b"\r\n").decode("utf-8", "surrogateescape")
