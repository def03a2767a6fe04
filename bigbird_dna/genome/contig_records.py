"""Read references in other forms: flat files of the sequence archives, and fragments of contigs.

Fragments are records named `chr20:1000001-2000000`, in samtools notation. N fills the gaps before and between
the fragments of a contig, so that all coordinates are those of the contig.
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
"""Start of a record's first line."""

# Biopython only warns about these faults; its other warnings concern lines that are not used here.
_GRAVE = "Expected sequence length|Premature end of file"
# Biopython splits lines without checking that they have the expected parts.
_FAULTS = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    AssertionError,
    ArithmeticError,
    RuntimeError,
)
_LONGEST_LINE = 1 << 20  # letters; the formats have 80


def flat_format(path: Path) -> FlatFormat | None:
    """Return the flat-file format by the first nonempty line; None for other files."""
    with open_bytes(path) as stream:
        start = stream.read(4096).decode("utf-8-sig", "replace").lstrip("\r\n")
    return next(
        (name for name, first in _STARTS.items() if start.startswith(first)), None
    )


def stream_flat_file(path: Path, flat: FlatFormat, chunk_bases: int) -> Iterator[Chunk]:
    """Yield the records of a GenBank or EMBL file in chunks of `chunk_bases` bp, as `stream_fasta` does.

    A contig's name is its accession with version (GenBank's VERSION, EMBL's SV). In files without a version,
    or with ".", it is the accession or else the LOCUS or ID. Memory grows with the longest sequence only.
    """
    names: set[str] = set()
    for name, raw in _records(path, flat):
        if name in names:
            raise DataError(f"{path}: duplicate record {name!r}")
        names.add(name)
        bad = first_bad_letter(raw)
        if bad is not None:
            what = describe_bad_letter(raw[bad])
            raise DataError(f"{path}: record {name!r}, position {bad + 1}: {what}")
        yield from record_chunks(name, [raw], chunk_bases)


def _records(path: Path, flat: FlatFormat) -> Iterator[tuple[str, bytes]]:
    """Yield the name and letters of each record."""
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
                    what = f"cannot read it as {flat}: {error_text(error)}"
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
                    f"{path}: record {name!r} has no sequence (a CON record?); download the full record"
                )
            yield name, raw


class _Lines:
    """The lines of a flat file with a counter; text between records, which Biopython skips, is an error."""

    def __init__(self, path: Path, stream: IO[bytes], flat: FlatFormat) -> None:
        self.path = path
        self.number = 0
        self._text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="replace")
        self._start = _STARTS[flat]
        self._inside = False  # a record

    def readline(self) -> str:
        """Return the next line, or "" at the end."""
        line = self._text.readline(_LONGEST_LINE)
        self.number += line != ""
        if len(line) == _LONGEST_LINE:
            raise DataError(
                f"{self.path}: line {self.number}: the line has more than a million letters"
            )
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
    """Parse a record name as a fragment with 1-based inclusive ends; None for any other name."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    first, last = (
        whole_number(match[end].replace(",", "")) for end in ("first", "last")
    )
    if first is None or last is None or not 1 <= first <= last:
        return None
    return Interval(match["contig"], first - 1, last)


class ContigFragments:
    """The records of a file, some of which may be fragments of contigs.

    `contigs` maps contigs made of fragments to the bp of the fragments; it is complete after the last chunk.
    """

    def __init__(self, where: str, assembly: Assembly) -> None:
        self.where = where
        self.assembly = assembly
        self.contigs: dict[str, int] = {}

    def place(
        self,
        chunks: Iterable[Chunk],
        size: int,
        lengths: Callable[[], Mapping[str, int]],
    ) -> Iterator[Chunk]:
        """Yield chunks with each fragment at its position in its contig; those of contigs have `size` bp.

        A record is a fragment if its name is not in the assembly and matches the record's length. The
        fragments of a contig must be consecutive in the file and in the contig's order, else `DataError`.
        `lengths` returns the length of each record in file order; it is called only if names need it.
        """
        plan: dict[str, Interval] | None = None
        filling: ChunkBuffer | None = None
        for chunk in chunks:
            if plan is None and parse_fragment(chunk.contig) is not None:
                plan = self._plan(lengths())
            fragment = (plan or {}).get(chunk.contig)
            if filling is not None and (
                fragment is None or fragment.contig != filling.contig
            ):
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
        """Return the records that are fragments, after checking their order."""
        plan = {}
        for name, length in lengths.items():
            fragment = None if self.assembly.knows(name) else parse_fragment(name)
            if fragment is None:
                continue
            if len(fragment) != length:
                log(
                    f"{self.where}: record {name!r} has {length:,} bp, but its name specifies "
                    f"{len(fragment):,}; it is used as a contig of that name"
                )
            else:
                plan[name] = fragment
        self._check_order(lengths, plan)
        for fragment in plan.values():
            self.contigs[fragment.contig] = self.contigs.get(fragment.contig, 0) + len(
                fragment
            )
        return plan

    def _check_order(self, names: Iterable[str], plan: Mapping[str, Interval]) -> None:
        ended: dict[str, str] = {}  # contig → name of its last record
        before: str | None = None
        for name in names:
            fragment = plan.get(name)
            contig = name if fragment is None else fragment.contig
            earlier = ended.get(contig)
            if earlier is not None:
                if fragment is None or earlier not in plan:
                    raise DataError(
                        f"{self.where}: records {earlier!r} and {name!r} are of the same contig"
                    )
                last = plan[earlier]
                if fragment.start < last.end and last.start < fragment.end:
                    raise DataError(
                        f"{self.where}: fragments {earlier!r} and {name!r} overlap"
                    )
                if earlier != before or fragment.start < last.end:
                    raise DataError(
                        f"{self.where}: fragment {name!r} comes after {earlier!r}; the fragments of a contig "
                        "must be consecutive and in the contig's order"
                    )
            ended[contig] = before = name
