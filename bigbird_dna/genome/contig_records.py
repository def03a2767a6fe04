"""References in other forms: the flat files of the sequence archives, and fragments of contigs.

Fragments are records named `chr20:1000001-2000000`, as samtools names them. N stands before one and between
two of a contig, so that all coordinates are the contig's own.
"""

import io
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Literal

from bigbird_dna.console import log
from bigbird_dna.disk.compression import open_bytes
from bigbird_dna.errors import DataError, error_text
from bigbird_dna.genome.assembly import Assembly
from bigbird_dna.genome.fasta import Chunk, ChunkBuffer, record_chunks
from bigbird_dna.genome.fields import check_name, quoted, whole_number
from bigbird_dna.genome.sequence import Interval, describe_bad_letter, first_bad_letter

FlatFormat = Literal["GenBank", "EMBL"]

_STARTS: dict[FlatFormat, str] = {"GenBank": "LOCUS       ", "EMBL": "ID   "}
"""What a record's first line begins with."""

# Biopython warns of these and goes on; its other warnings are about lines that aren't used here.
_GRAVE = "Expected sequence length|Premature end of file"
# It takes lines apart without looking whether they have the parts that it expects.
_FAULTS = (ValueError, LookupError, TypeError, AttributeError, AssertionError, ArithmeticError, RuntimeError)
_LONGEST_LINE = 1 << 20  # letters; the formats have 80


def flat_format(path: Path) -> FlatFormat | None:
    """Which of the formats a file has, by its first line that isn't empty; `None`: neither."""
    with open_bytes(path) as stream:
        start = stream.read(4096).decode("utf-8-sig", "replace").lstrip("\r\n")
    return next((name for name, first in _STARTS.items() if start.startswith(first)), None)


def stream_flat_file(path: Path, flat: FlatFormat, chunk_bases: int) -> Iterator[Chunk]:
    """Yield the records of a GenBank or EMBL file in chunks of `chunk_bases` bp, as `stream_fasta`.

    A contig is called as its accession with version (GenBank's VERSION, EMBL's SV); in files of software that
    gives none or ".", as the accession or else as its LOCUS or ID. Memory is that of the longest record, of
    whose annotation nothing is kept.
    """
    names: set[str] = set()
    for name, raw in _records(path, flat):
        if name in names:
            raise DataError(f"{path}: a second record named {name!r}")
        names.add(name)
        bad = first_bad_letter(raw)
        if bad is not None:
            what = describe_bad_letter(raw[bad])
            raise DataError(f"{path}: record {name!r}, position {bad + 1}: {what}")
        yield from record_chunks(name, [raw], chunk_bases)


def _records(path: Path, flat: FlatFormat) -> Iterator[tuple[str, bytes]]:
    """Name and letters of every record."""
    from Bio import BiopythonParserWarning
    from Bio.GenBank.Scanner import EmblScanner, GenBankScanner  # slow to import
    from Bio.Seq import UndefinedSequenceError

    scanners: dict[FlatFormat, Any] = {"GenBank": GenBankScanner, "EMBL": EmblScanner}
    scanner = scanners[flat]()
    with open_bytes(path) as stream:
        lines = _Lines(path, stream, flat)
        while True:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", BiopythonParserWarning)
                warnings.filterwarnings("error", _GRAVE, BiopythonParserWarning)
                try:
                    record = scanner.parse(lines, do_features=False)
                except (*_FAULTS, Warning, StopIteration) as error:
                    what = f"can't be read as {flat}: {error_text(error)}"
                    raise DataError(f"{path}: line {lines.number}: {what}") from None
            if record is None:
                return
            name = str(record.name if record.id in (None, "", ".") else record.id)
            where = f"{path}: the record that ends in line {lines.number}"
            if name.split() != [name] or name == "<unknown name>":
                raise DataError(f"{where} has no name")
            check_name(name, "name", where)
            try:
                raw = bytes(record.seq)
            except UndefinedSequenceError:
                raw = b""
            if not raw:
                raise DataError(
                    f"{path}: record {name!r} has no sequence; one that only says which others it is made of "
                    "(CON) is to be downloaded in full"
                )
            yield name, raw


class _Lines:
    """The lines of a flat file, counted; Biopython passes over text between records, this doesn't."""

    def __init__(self, path: Path, stream: IO[bytes], flat: FlatFormat) -> None:
        self.path = path
        self.number = 0
        self._text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="replace")
        self._start = _STARTS[flat]
        self._inside = False  # a record

    def readline(self) -> str:
        """The next line, "" at the end."""
        line = self._text.readline(_LONGEST_LINE)
        self.number += line != ""
        if len(line) == _LONGEST_LINE:
            raise DataError(f"{self.path}: line {self.number}: a line of more than a million letters")
        if line.startswith(self._start):
            self._inside = True
        elif line.rstrip() == "//":
            self._inside = False
        elif not self._inside and line.strip():
            raise DataError(
                f"{self.path}: line {self.number}: text between records: {quoted(line.strip(), 40)}"
            )
        return line


_COUNT = r"[0-9]{1,20}|[0-9]{1,3}(?:,[0-9]{3}){1,6}"
_NAME = re.compile(rf"(?P<contig>.+):(?P<first>{_COUNT})-(?P<last>{_COUNT})")


def parse_fragment(name: str) -> Interval | None:
    """The fragment that a record's name tells, counted from 1 with both ends; None if it tells none."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    first, last = (whole_number(match[end].replace(",", "")) for end in ("first", "last"))
    if first is None or last is None or not 1 <= first <= last:
        return None
    return Interval(match["contig"], first - 1, last)


class ContigFragments:
    """The records of a file, of which some may be fragments of contigs.

    `contigs` are those made of fragments, with the bp that these have; it is complete once all chunks
    were placed.
    """

    def __init__(self, where: str, assembly: Assembly) -> None:
        self.where = where
        self.assembly = assembly
        self.contigs: dict[str, int] = {}

    def place(
        self, chunks: Iterable[Chunk], size: int, lengths: Callable[[], Mapping[str, int]]
    ) -> Iterator[Chunk]:
        """The chunks of records with every fragment at its position in its contig, whose chunks have `size`
        bp.

        A record is a fragment if the assembly doesn't know its name, and if it is as long as its name says.
        The fragments of a contig have to follow each other in the file, in the contig's order, else
        `DataError`. `lengths` gives the length of each record in file order, and is only called if a name may
        be a fragment's.
        """
        plan: dict[str, Interval] | None = None
        filling: ChunkBuffer | None = None
        for chunk in chunks:
            if plan is None and parse_fragment(chunk.contig) is not None:
                plan = self._plan(lengths())
            fragment = (plan or {}).get(chunk.contig)
            if filling is not None and (fragment is None or fragment.contig != filling.contig):
                yield from filling.finish()
                filling = None
            if fragment is None:
                yield chunk
                continue
            filling = filling or ChunkBuffer(fragment.contig, size)
            if chunk.start == 0:
                while missing := fragment.start - filling.start - filling.count:
                    yield from filling.add("N" * min(missing, size))
            yield from filling.add(chunk.sequence, chunk.ambiguous)
        if filling is not None:
            yield from filling.finish()

    def _plan(self, lengths: Mapping[str, int]) -> dict[str, Interval]:
        """The records that are fragments, once their order was found to be right."""
        plan = {}
        for name, length in lengths.items():
            fragment = None if self.assembly.knows(name) else parse_fragment(name)
            if fragment is None:
                continue
            if len(fragment) != length:
                log(
                    f"{self.where}: record {name!r} has {length:,} bp, not the {len(fragment):,} "
                    "that its name tells: it stays a contig of that name"
                )
            else:
                plan[name] = fragment
        self._check_order(lengths, plan)
        for fragment in plan.values():
            self.contigs[fragment.contig] = self.contigs.get(fragment.contig, 0) + len(fragment)
        return plan

    def _check_order(self, names: Iterable[str], plan: Mapping[str, Interval]) -> None:
        ended: dict[str, str] = {}  # name of the last record of a contig
        before: str | None = None
        for name in names:
            fragment = plan.get(name)
            contig = name if fragment is None else fragment.contig
            earlier = ended.get(contig)
            if earlier is not None:
                if fragment is None or earlier not in plan:
                    raise DataError(f"{self.where}: records {earlier!r} and {name!r} are of the same contig")
                last = plan[earlier]
                if fragment.start < last.end and last.start < fragment.end:
                    raise DataError(f"{self.where}: fragments {earlier!r} and {name!r} overlap")
                if earlier != before or fragment.start < last.end:
                    raise DataError(
                        f"{self.where}: fragment {name!r} comes after {earlier!r}: the fragments of a contig "
                        "have to follow each other, in the contig's order"
                    )
            ended[contig] = before = name
