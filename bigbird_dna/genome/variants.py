"""Variants: read VCF as text, and derive normal forms and sequence windows from a reference.

Two records that change the reference to the same sequence have the same normal form and the same windows,
independent of padding and alignment. Header lines and columns of a VCF are kept unchanged so that they can be
written back. Bytes that are not UTF-8 become surrogates; write them with `errors="surrogateescape"`.
"""

import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from enum import StrEnum
from io import BufferedReader
from os.path import commonprefix
from pathlib import Path
from typing import IO, NamedTuple, Self, cast

from bigbird_dna.disk.compression import control_character, numbered_lines, open_bytes
from bigbird_dna.errors import DataError
from bigbird_dna.genome.assembly import ASSEMBLIES, load_assembly
from bigbird_dna.genome.fields import check_name, quoted, whole_number
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import Interval, clean, first_bad_letter, fraction_n

OFFSET_SPAN = 40
"""bp from the leftmost to the rightmost offset: a few tokens, so that tokenization phases average out."""

_LOOKED_AT = (
    64  # initial bp to fetch for an alignment; doubled until the allele stops moving
)
_BREAKEND = re.compile(r".*[\[\]].*|\.[^.]+|[^.]+\.")


class Note(StrEnum):
    """Reason why an alternative allele has no predicted effect, or a property of its effect.

    Members are in the order of the checks, with their meaning; only PHASED, and the last two, occur together
    with others.
    """

    meaning: str

    def __new__(cls, code: str, meaning: str) -> Self:
        """Return the code as a string with its meaning as an attribute."""
        note = str.__new__(cls, code)
        note._value_, note.meaning = code, meaning
        return note

    NO_ALT = "NO_ALT", "no alternative allele"
    SPANNING_DELETION = (
        "SPANNING_DELETION",
        "allele * (overlapped by an upstream deletion)",
    )
    BREAKEND = "BREAKEND", "breakend"
    SYMBOLIC = "SYMBOLIC", "symbolic allele"
    NOT_BASES = "NOT_BASES", "REF or ALT contains letters that are not bases"
    CONTIG_UNKNOWN = "CONTIG_UNKNOWN", "the contig is not in the reference"
    BEYOND_CONTIG = "BEYOND_CONTIG", "REF is not within the contig"
    REF_MISMATCH = "REF_MISMATCH", "REF differs from the reference"
    NO_CHANGE = "NO_CHANGE", "ALT equals REF"
    REF_UNKNOWN = (
        "REF_UNKNOWN",
        "the reference has N or another IUPAC code at the changed bases",
    )
    AMBIGUOUS = "AMBIGUOUS", "the changed bases have N or another IUPAC code"
    PHASED = (
        "PHASED",
        "scored together with neighboring variants of the same haplotype (scored or not)",
    )
    TOO_LONG = (
        "TOO_LONG",
        "the changed bases do not fit into the window at every offset",
    )
    TOO_MANY_N = (
        "TOO_MANY_N",
        "too large a fraction of N in a window, including positions beyond the contig",
    )
    CONTIG_EDGE = (
        "CONTIG_EDGE",
        "a window extends beyond the contig and is padded with N (scored or not)",
    )


class Change(NamedTuple):
    """A variant that replaces the bases `[start, start + len(ref))` of a contig, `ref`, by `alt`."""

    contig: str
    start: int
    ref: str
    alt: str


class AlleleWindows(NamedTuple):
    """Sequences of both alleles on the forward strand, one per offset each."""

    ref: tuple[str, ...]
    alt: tuple[str, ...]
    reaches_beyond: bool  # whether any window extends beyond the contig

    @property
    def largest_n_fraction(self) -> float:
        """The largest fraction of N in any of the windows."""
        return max(map(fraction_n, (*self.ref, *self.alt)))


def window_offsets(count: int, span: int = OFFSET_SPAN) -> tuple[int, ...]:
    """Return `count` distinct offsets in bp, evenly spaced over `span` bp around 0, ascending."""
    if not 1 <= count <= span + 1:
        raise ValueError(f"{count} offsets: the number must be from 1 to {span + 1}")
    if count == 1:
        return (0,)
    return tuple(round(span * index / (count - 1) - span / 2) for index in range(count))


def find_change(
    contig: str | None, start: int, ref: str, alt: str, reference: Reference
) -> Change | Note:
    """Return the normal form of a VCF allele (with 0-based `start`), or the reason why there is none.

    Case is ignored. REF must match the reference, except where the reference has N or another IUPAC code.
    Such positions may be padding, but must not be among the changed bases. `contig` is the reference's name,
    or None if the contig is not in the reference.
    """
    shape = _shape(alt)
    if shape is not None:
        return shape
    if first_bad_letter(ref.encode("ascii", "replace")) is not None:
        return Note.NOT_BASES
    if contig is None:
        return Note.CONTIG_UNKNOWN
    end = start + len(ref)
    if start < 0 or end > reference.contigs[contig]:
        return Note.BEYOND_CONTIG
    found = reference.fetch(Interval(contig, start, end))
    ref, alt = clean(ref, "REF"), clean(alt, "ALT")
    if any(a != b for a, b in zip(ref, found, strict=True) if b != "N"):
        return Note.REF_MISMATCH
    if ref == alt:
        return Note.NO_CHANGE
    # Remove the common suffix of both alleles, then their common prefix.
    suffix = len(commonprefix([ref[::-1], alt[::-1]]))  # noqa: RUF071 - for letters
    ref, alt = ref[: len(ref) - suffix], alt[: len(alt) - suffix]
    first = len(commonprefix([ref, alt]))  # noqa: RUF071
    change = Change(contig, start + first, ref[first:], alt[first:])
    if "N" in found[first : first + len(change.ref)]:
        return Note.REF_UNKNOWN
    if "N" in change.ref + change.alt:
        return Note.AMBIGUOUS
    return _left_aligned(change, reference)


def allele_windows(
    change: Change, reference: Reference, size: int, offsets: Sequence[int]
) -> AlleleWindows | None:
    """Return windows of `size` bp with each allele; None if the change does not fit into them.

    Both alleles have the same `(size - longer allele) // 2 + offset` bases on their left, and on their right
    as many as fill the window. A reference that contains `alt`, with the reverse change, therefore gives the
    same windows with the alleles exchanged. Positions beyond the contig are N.
    """
    longer = max(len(change.ref), len(change.alt))
    lefts = [(size - longer) // 2 + offset for offset in offsets]
    if min(lefts) < 0 or max(lefts) + longer > size:
        return None
    before, end = max(lefts), change.start + len(change.ref)
    after = size - min(lefts) - min(len(change.ref), len(change.alt))
    left_side = reference.fetch(
        Interval(change.contig, change.start - before, change.start)
    )
    right_side = reference.fetch(Interval(change.contig, end, end + after))
    ref, alt = (
        tuple(
            left_side[before - left :]
            + allele
            + right_side[: size - left - len(allele)]
            for left in lefts
        )
        for allele in (change.ref, change.alt)
    )
    beyond = change.start < before or end + after > reference.contigs[change.contig]
    return AlleleWindows(ref, alt, beyond)


def _shape(alt: str) -> Note | None:
    """Classify an ALT that is not a sequence of A C G T and IUPAC codes; None for a sequence."""
    if alt == ".":
        return Note.NO_ALT
    if alt == "*":
        return Note.SPANNING_DELETION
    if _BREAKEND.fullmatch(alt):
        return Note.BREAKEND
    if "<" in alt:
        return Note.SYMBOLIC
    if first_bad_letter(alt.encode("ascii", "replace")) is not None:
        return Note.NOT_BASES
    return None


def _left_aligned(change: Change, reference: Reference) -> Change:
    """Move a trimmed insertion or deletion as far left as the resulting sequence stays the same.

    Follows A. Tan, G. Abecasis and H. Kang, Unified representation of genetic variants, Bioinformatics 2015,
    but without the anchoring base, since an allele may be empty.
    """
    contig, start, ref, alt = change
    if ref and alt:
        return change
    moved = ref or alt
    size = len(moved)
    shift, reach = 0, _LOOKED_AT
    while shift < start:
        first = max(0, start - shift - reach)
        before = reference.fetch(Interval(contig, first, start - shift))
        # Each step moves the last base to the front: after k steps, the last base is number -1 - k (cyclic).
        steps = 0
        while (
            steps < len(before)
            and before[-1 - steps] == moved[-1 - (shift + steps) % size]
        ):
            steps += 1
        shift += steps
        if steps < len(before):
            break
        reach *= 2
    turn = shift % size
    moved = moved[size - turn :] + moved[: size - turn]
    return Change(contig, start - shift, moved if ref else "", moved if alt else "")


def right_shift(change: Change, reference: Reference) -> int:
    """Return how far a left-aligned insertion or deletion can move right without another result, in bp."""
    contig, start, ref, alt = change
    if ref and alt:
        return 0
    moved, end, length = ref or alt, start + len(ref), reference.contigs[contig]
    shift, reach = 0, _LOOKED_AT
    while end + shift < length:
        behind = reference.fetch(
            Interval(contig, end + shift, min(end + shift + reach, length))
        )
        turn = shift % len(moved)
        cycle = (moved[turn:] + moved[:turn]) * (1 + len(behind) // len(moved))
        steps = len(commonprefix([behind, cycle]))  # noqa: RUF071 - of letters
        shift += steps
        if steps < len(behind):
            break
        reach *= 2
    return shift


PREFIX = "BBD_"
"""Prefix of the INFO keys that this software writes; existing keys of the same name are replaced."""

_COLUMNS = ("#CHROM", "POS", "ID", "REF", "ALT", "QUAL", "FILTER", "INFO")
LONGEST_LINE = 1 << 27  # bytes: genotypes of a million people
_LARGEST_HEADER, _MOST_HEADER_LINES = 1 << 26, 1_000_000  # bytes, lines
_START = b"##fileformat=VCF"
_CONTIG_LINE = re.compile(r"##contig=<(?:[^>]*,)?ID=([^,>]+)")
_CONTIG_LENGTH = re.compile(
    r"(?=.*[<,]length=(\d{1,12})[,>])##contig=<(?:[^>]*,)?ID=([^,>]+)"
)
_UNFIT = re.compile('[,<>"]')  # in names that cannot be declared in a header line
_NO_VCF = "not a VCF file: it must begin with ##fileformat=VCFv4.2"


class Allele(NamedTuple):
    """REF and ALT at a 0-based start."""

    start: int
    ref: str
    alt: str


class VcfRecord(NamedTuple):
    """One record: the parsed fields, and all columns as written in the file."""

    line: int
    contig: str
    start: int  # 0-based; -1 for POS 0, the telomere in VCF
    ref: str
    alts: tuple[str, ...]  # (".",) without an alternative allele
    columns: tuple[str, ...]  # the eight fixed columns
    rest: str  # genotypes: the further columns, tab-separated, or ""
    joint: Mapping[
        str, Allele
    ] = {}  # by ALT, the changes of its haplotype that are scored together


class VcfFile(NamedTuple):
    """An open VCF: its header, and an iterator over its records."""

    meta: tuple[str, ...]  # lines that begin with `##`
    column_line: str  # line that begins with `#CHROM`
    records: Iterator[VcfRecord]


class VcfSummary(NamedTuple):
    """Results of one pass over a file."""

    records: int
    is_sorted: bool  # by position within contigs, with each contig contiguous
    furthest: int  # last base of any REF allele, 1-based; 0 without records
    contigs: tuple[str, ...]  # of the records, in order of occurrence


CHECKED_RECORDS = 100
"""Number of records after which a VCF of another assembly is recognized, unless it has fewer."""

Keep = Callable[[VcfRecord], bool]
"""Function that returns whether to read a record."""


@contextmanager
def open_vcf(
    path: Path, keep: Keep | None = None, stream: IO[bytes] | None = None
) -> Iterator[VcfFile]:
    """Open a plain, gzip or bgzip VCF file for one pass; only records selected by `keep` are read.

    `stream` has the bytes of the file if it is already open. A file that is not VCF, or later a line that is
    not a record, is a `DataError` with file and line.
    """
    path = Path(path)
    with open_bytes(path) if stream is None else nullcontext(stream) as opened:
        # In a binary file, searching for the end of the first line could take long.
        start = cast(BufferedReader, opened).peek(len(BOM_UTF8 + _START))[
            : len(BOM_UTF8 + _START)
        ]
        start = start.removeprefix(BOM_UTF8)[: len(_START)]
        if start.startswith(b"BCF"):
            raise DataError(
                f"{path}: BCF is not supported; convert the file with `bcftools view -O z`"
            )
        if not _START.startswith(start) and not BOM_UTF8.startswith(start):
            raise DataError(f"{path}: line 1: {_NO_VCF}")
        lines = numbered_lines(path, opened, LONGEST_LINE)
        meta, column_line = _read_header(path, lines)
        records = _records(path, lines, column_line)
        if keep is not None:
            records = filter(keep, records)
        yield VcfFile(meta, column_line, records)


def scan_vcf(
    path: Path,
    keep: Keep | None = None,
    check: Callable[[VcfFile], Iterator[VcfRecord]] | None = None,
) -> VcfSummary:
    """Read a file, or the records selected by `keep`, once from end to end to find faults before any work.

    `check` yields the records of the file, or raises an error; see `same_assembly`.
    """
    records = furthest = 0
    is_sorted = True
    contig, start = "", -1
    seen: dict[str, None] = {}
    with open_vcf(path, keep) as vcf:
        for record in vcf.records if check is None else check(vcf):
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


def same_assembly(
    vcf: VcfFile,
    path: Path | str,
    reference: Reference,
    find: Callable[[str], str | None],
) -> Iterator[VcfRecord]:
    """Yield the records; `DataError` if REF of most of them differs from the reference.

    Only the first `CHECKED_RECORDS` are compared, of those whose contig is known to `find`, which maps names
    to those of the reference.
    """
    checked = differing = 0

    def check(first: str) -> None:
        if 2 * differing > checked:
            declared = declared_assembly(vcf.meta)
            header = (
                f"; its header declares the contig lengths of {declared}"
                if declared
                else ""
            )
            raise DataError(
                f"{path}: REF of {differing} of the {first}{checked} records differs from {reference.path}: "
                f"use the reference of the assembly on which the variants were called{header}"
            )

    for record in vcf.records:
        if checked < CHECKED_RECORDS:
            note = find_change(
                find(record.contig), record.start, record.ref, record.ref, reference
            )
            differing += note in (Note.REF_MISMATCH, Note.BEYOND_CONTIG)
            checked += note in (Note.REF_MISMATCH, Note.BEYOND_CONTIG, Note.NO_CHANGE)
            if checked == CHECKED_RECORDS:
                check("first ")
        yield record
    if checked < CHECKED_RECORDS:
        check("")


def contig_lines(
    meta: Sequence[str],
    contigs: Mapping[str, int],
    used: Iterable[str],
    find: Callable[[str], str | None],
) -> list[str]:
    """Return the `##contig` lines that the header `meta` lacks, in the order of the reference's contigs.

    A contig is declared under the names in `used`; `find` maps any name to the reference's name.
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


def declared_assembly(meta: Sequence[str]) -> str | None:
    """Return the known assembly with the contig lengths that a VCF header declares, or None."""
    declared = {
        found[2]: int(found[1])
        for line in meta
        if (found := _CONTIG_LENGTH.match(line))
    }
    matches = {
        name: declared.items() & load_assembly(name).lengths.items()
        for name in ASSEMBLIES
    }
    best = max(matches, key=lambda name: len(matches[name]))
    return best if matches[best] else None


def _read_header(
    path: Path, lines: Iterator[tuple[int, bytes]]
) -> tuple[tuple[str, ...], str]:
    """Return the `##` lines without a byte-order mark, and the line of column names."""
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


def _records(
    path: Path, lines: Iterator[tuple[int, bytes]], column_line: str
) -> Iterator[VcfRecord]:
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
        raise DataError(f"{where}: header line between records")
    found = text.count("\t") + 1
    if found != columns:
        raise DataError(f"{where}: {found} columns, the header has {columns}")
    fields = text.split("\t", len(_COLUMNS))
    contig, pos, _, ref, alt = fields[:5]
    if not contig or " " in contig:
        raise DataError(f"{where}: CHROM {quoted(contig)} is not a contig name")
    position = whole_number(pos)
    if position is None:
        raise DataError(f"{where}: POS {quoted(pos)} is not a position")
    if ref in ("", "."):
        raise DataError(f"{where}: REF is empty")
    alts = tuple(alt.split(","))
    if "" in alts:
        raise DataError(f"{where}: ALT {quoted(alt)} contains an empty allele")
    rest = fields[len(_COLUMNS)] if columns > len(_COLUMNS) else ""
    return VcfRecord(
        number, contig, position - 1, ref, alts, tuple(fields[: len(_COLUMNS)]), rest
    )


def _text(line: bytes, where: str) -> str:
    text = line.decode("utf-8", "surrogateescape")
    if not text.isascii() and (found := control_character(text.replace("\t", " "))):
        raise DataError(f"{where}: the line contains a control character ({found})")
    return text
