"""Reading VCF as text: header lines and columns stay as they are, so that they can be written back.

Positions are 1-based in the file and 0-based in `VcfRecord.start`. Bytes that aren't UTF-8 survive
as surrogates: write the texts with `errors="surrogateescape"`.
"""

import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from io import BufferedReader
from pathlib import Path
from typing import IO, NamedTuple, cast

from bigbird_dna.disk.compression import control_character, numbered_lines, open_bytes
from bigbird_dna.errors import DataError
from bigbird_dna.genome.fields import check_name, quoted, whole_number

PREFIX = "BBD_"
"""Of the INFO keys that this software writes; those that a file has already are replaced."""

_COLUMNS = ("#CHROM", "POS", "ID", "REF", "ALT", "QUAL", "FILTER", "INFO")
LONGEST_LINE = 1 << 27  # bytes: genotypes of a million people
_LARGEST_HEADER, _MOST_HEADER_LINES = 1 << 26, 1_000_000  # bytes, lines
_START = b"##fileformat=VCF"
_CONTIG_LINE = re.compile(r"##contig=<(?:[^>]*,)?ID=([^,>]+)")
_UNFIT = re.compile('[,<>"]')  # in names that a header's line has no room for
_NO_VCF = "not a VCF file: it must begin with ##fileformat=VCFv4.2"


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
    is_sorted: bool  # by position within contigs, each contig in one run
    furthest: int  # base that a REF allele reaches, 1-based; 0 without records
    contigs: tuple[str, ...]  # of the records, in the order they come in


Keep = Callable[[VcfRecord], bool]
"""Whether a record is to be read."""


@contextmanager
def open_vcf(path: Path, keep: Keep | None = None, stream: IO[bytes] | None = None) -> Iterator[VcfFile]:
    """Open a VCF file for one pass, plain, gzip or bgzip; only records to `keep` are read.

    `stream` has its bytes, where they were opened already. What is no VCF, and while records are read a line
    that is no record, is a `DataError` with file and line.
    """
    path = Path(path)
    with open_bytes(path) if stream is None else nullcontext(stream) as opened:
        # Of a file that is not text at all, one could look for the first line's end for long.
        start = cast(BufferedReader, opened).peek(len(BOM_UTF8 + _START))[: len(BOM_UTF8 + _START)]
        start = start.removeprefix(BOM_UTF8)[: len(_START)]
        if start.startswith(b"BCF"):
            raise DataError(f"{path}: BCF isn't read: convert it with `bcftools view -O z`")
        if not _START.startswith(start) and not BOM_UTF8.startswith(start):
            raise DataError(f"{path}: line 1: {_NO_VCF}")
        lines = numbered_lines(path, opened, LONGEST_LINE)
        meta, column_line = _read_header(path, lines)
        records = _records(path, lines, column_line)
        if keep is not None:
            records = filter(keep, records)
        yield VcfFile(meta, column_line, records)


def scan_vcf(path: Path, keep: Keep | None = None) -> VcfSummary:
    """Read a file, or its records to `keep`, once from end to end, so that faults are known before any work
    is done.
    """
    records = furthest = 0
    is_sorted = True
    contig, start = "", -1
    seen: dict[str, None] = {}
    with open_vcf(path, keep) as vcf:
        for record in vcf.records:
            records += 1
            furthest = max(furthest, record.start + len(record.ref))
            if record.contig == contig:
                is_sorted &= record.start >= start
            else:
                is_sorted &= record.contig not in seen
                seen[record.contig] = None
                contig = record.contig
            start = record.start
    return VcfSummary(records, is_sorted, furthest, tuple(seen))


def contig_lines(
    meta: Sequence[str], contigs: Mapping[str, int], used: Iterable[str], find: Callable[[str], str | None]
) -> list[str]:
    """The `##contig` lines that a header `meta` lacks for the contigs of a reference, in the reference's
    order.

    A contig is declared under the names that records `used` for it; `find` maps any name to the reference's.
    """
    declared = {found[1] for line in meta if (found := _CONTIG_LINE.match(line))}
    known = {find(name) for name in declared}
    names: dict[str, list[str]] = {}
    for name in dict.fromkeys(used):
        contig = find(name)
        if contig is not None and name not in declared:
            names.setdefault(contig, []).append(name)
    return [
        f"##contig=<ID={name},length={length}>"
        for contig, length in contigs.items()
        for name in names.get(contig, [] if contig in known else [contig])
        if not _UNFIT.search(name)
    ]


def _read_header(path: Path, lines: Iterator[tuple[int, bytes]]) -> tuple[tuple[str, ...], str]:
    """The `##` lines, without a byte-order mark before them, and the line of column names."""
    meta: list[str] = []
    size = 0
    number, line = next(lines, (1, b""))
    line = line.removeprefix(BOM_UTF8)
    if not line.startswith(_START):
        raise DataError(f"{path}: line 1: {_NO_VCF}")
    while line.startswith(b"##"):
        size += len(line)
        if size > _LARGEST_HEADER or len(meta) == _MOST_HEADER_LINES:
            raise DataError(f"{path}: line {number}: the header is too long")
        meta.append(_text(line, f"{path}: line {number}"))
        number, line = next(lines, (number + 1, b""))
    column_line = _text(line, f"{path}: line {number}")
    if not line.startswith(b"#"):
        raise DataError(f"{path}: line {number}: the header has no line #CHROM, POS …")
    names = column_line.split("\t", len(_COLUMNS))
    if tuple(names[: len(_COLUMNS)]) != _COLUMNS:
        raise DataError(
            f"{path}: line {number}: the header's columns must be {', '.join(_COLUMNS)}, separated by tabs"
        )
    return tuple(meta), column_line


def _records(path: Path, lines: Iterator[tuple[int, bytes]], column_line: str) -> Iterator[VcfRecord]:
    columns = column_line.count("\t") + 1
    contig = ""
    for number, line in lines:
        where = f"{path}: line {number}"
        text = _text(line, where)
        if text:
            record = _record(text, columns, number, where)
            if record.contig != contig:
                contig = check_name(record.contig, "CHROM", where)
            yield record


def _record(text: str, columns: int, number: int, where: str) -> VcfRecord:
    if text.startswith("#"):
        raise DataError(f"{where}: a header line among the records")
    found = text.count("\t") + 1
    if found != columns:
        raise DataError(f"{where}: {found} columns, the header has {columns}")
    fields = text.split("\t", len(_COLUMNS))
    contig, pos, _, ref, alt = fields[:5]
    if not contig or " " in contig:
        raise DataError(f"{where}: CHROM {quoted(contig)} is not a name of a contig")
    position = whole_number(pos)
    if position is None:
        raise DataError(f"{where}: POS {quoted(pos)} is not a position")
    if ref in ("", "."):
        raise DataError(f"{where}: REF is empty")
    alts = tuple(alt.split(","))
    if "" in alts:
        raise DataError(f"{where}: ALT {quoted(alt)} has an empty allele")
    rest = fields[len(_COLUMNS)] if columns > len(_COLUMNS) else ""
    return VcfRecord(number, contig, position - 1, ref, alts, tuple(fields[: len(_COLUMNS)]), rest)


def _text(line: bytes, where: str) -> str:
    text = line.decode("utf-8", "surrogateescape")
    if not text.isascii() and (found := control_character(text.replace("\t", " "))):
        raise DataError(f"{where}: a control character ({found})")
    return text
