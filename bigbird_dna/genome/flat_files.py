"""References in the flat-file formats of the sequence archives: GenBank and EMBL."""

import io
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Literal

from bigbird_dna.disk.compression import open_bytes
from bigbird_dna.errors import DataError, error_text
from bigbird_dna.genome.fasta import Chunk, ChunkBuffer
from bigbird_dna.genome.fields import check_name, quoted
from bigbird_dna.genome.sequence import describe_bad_letter, first_bad_letter

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
        buffer = ChunkBuffer(name, chunk_bases)
        yield from buffer.add_raw(raw)
        yield from buffer.finish()


def _records(path: Path, flat: FlatFormat) -> Iterator[tuple[str, bytes]]:
    """Name and letters of every record."""
    from Bio.GenBank.Scanner import EmblScanner, GenBankScanner  # slow to import
    from Bio.Seq import UndefinedSequenceError

    scanners: dict[FlatFormat, Any] = {"GenBank": GenBankScanner, "EMBL": EmblScanner}
    scanner = scanners[flat]()
    with open_bytes(path) as stream:
        lines = _Lines(path, stream, flat)
        while (record := _next_record(scanner, lines)) is not None:
            name = _name(record, lines)
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


def _next_record(scanner: Any, lines: "_Lines") -> Any:
    from Bio import BiopythonParserWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BiopythonParserWarning)
        warnings.filterwarnings("error", _GRAVE, BiopythonParserWarning)
        try:
            return scanner.parse(lines, do_features=False)
        except (*_FAULTS, Warning, StopIteration) as error:
            where = f"{lines.path}: line {lines.number}"
            raise DataError(f"{where}: can't be read as {lines.flat}: {error_text(error)}") from None


def _name(record: Any, lines: "_Lines") -> str:
    name = str(record.name if record.id in (None, "", ".") else record.id)
    where = f"{lines.path}: the record that ends in line {lines.number}"
    if name.split() != [name] or name == "<unknown name>":
        raise DataError(f"{where} has no name")
    return check_name(name, "name", where)


class _Lines:
    """The lines of a flat file, counted; Biopython passes over text between records, this doesn't."""

    def __init__(self, path: Path, stream: IO[bytes], flat: FlatFormat) -> None:
        self.path = path
        self.flat = flat
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
