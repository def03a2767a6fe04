"""Read and validate FASTA, GenBank and EMBL files, plain or compressed, record by record.

Faults that other readers accept are a `DataError`, which names the file, the record, the line and the value:
empty files and records, duplicate names, text without a header, and letters that are not DNA.
"""

import io
import shutil
import sys
import warnings
from codecs import BOM_UTF8
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from bigbird_dna.disk.atomic import reading, scratch_directory
from bigbird_dna.disk.compression import open_bytes
from bigbird_dna.errors import DataError
from bigbird_dna.genome.fields import check_name
from bigbird_dna.genome.sequence import (
    check_letters,
    clean_bytes,
    describe_bad_letter,
    first_bad_letter,
)

FLAT_FORMATS = {"GenBank": "LOCUS       ", "EMBL": "ID   "}
"""Start of a record's first line in the files of the sequence archives."""
_HEADER = ord(">")
# Biopython only warns about these faults; its other warnings concern lines that are not used here.
_GRAVE = "Expected sequence length|Premature end of file"


def read_fasta(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the letters, as in the file, of each record of a FASTA file.

    A name is the first word of the header.
    """
    path = Path(path)
    names: set[str] = set()
    name = ""
    lines: list[bytes] = []
    first = number = 0
    with open_bytes(path) as stream:
        for number, line in enumerate(stream, start=1):
            if number == 1:
                line = line.removeprefix(BOM_UTF8)
            if line[0] != _HEADER:
                if not name and line.strip():
                    start = line.split(maxsplit=1)[0][:40].decode("ascii", "replace")
                    raise DataError(
                        f"{path}: no FASTA header: the first line does not start with '>' ({start!r})"
                    )
                lines.append(line)
                continue
            if name:
                yield name, _letters(path, name, lines, first)
            where = f"{path}: line {number}"
            header = line[1:].decode("utf-8", "replace").rstrip()
            if not header or header[0].isspace():
                raise DataError(f"{where}: the record has no name")
            name = check_name(header.split(maxsplit=1)[0], "the record", where)
            if name in names:
                raise DataError(
                    f"{where}: the name {name!r} occurs twice (a name ends at the first blank); rename one of "
                    "the records"
                )
            names.add(name)
            lines = []
            first = number + 1
    if not name:
        raise DataError(f"{path}: the file contains no FASTA records")
    yield name, _letters(path, name, lines, first)


def _letters(path: Path, name: str, lines: list[bytes], first: int) -> bytes:
    """Return the letters of a record; `first` is the number of its first line."""
    letters = b"".join(lines).translate(None, b"\r\n")
    if not letters:
        raise DataError(f"{path}: record {name!r} has no sequence (line {first})")
    if first_bad_letter(letters) is not None:
        for number, line in enumerate(lines, start=first):
            position = first_bad_letter(line.strip(b"\r\n"))
            if position is not None:
                what = describe_bad_letter(line[position])
                raise DataError(f"{path}: record {name!r}, line {number}: {what}")
    return letters


def scan_fasta(path: Path) -> dict[str, int]:
    """Check a whole FASTA file and return the length of each contig, in file order."""
    return {name: len(letters) for name, letters in read_fasta(path)}


def read_records(
    path: Path, contigs: Collection[str] | None = None
) -> Iterator[tuple[str, str]]:
    """Yield the name and the sequence over A C G T N of each record of a FASTA file; None: of all.

    A file is read up to the last of `contigs`. Faults raise `DataError` when they are reached.
    """
    remaining = None if contigs is None else set(contigs)
    for name, letters in read_fasta(path):
        if remaining is None or name in remaining:
            yield name, clean_bytes(letters).decode("ascii")
        if remaining is not None:
            remaining.discard(name)
            if not remaining:
                return


@contextmanager
def readable(path: Path | str) -> Iterator[Path]:
    """Yield a file that can be read repeatedly: `path`, or for "-" a temporary copy of standard input.

    Errors call the copy "standard input".
    """
    if str(path) != "-":
        yield Path(path)
        return
    with scratch_directory() as directory:
        copy = directory / "stdin"
        with copy.open("wb") as stream:
            shutil.copyfileobj(sys.stdin.buffer, stream, 1 << 20)
        try:
            yield copy
        except DataError as error:
            raise DataError(str(error).replace(str(copy), "standard input")) from None


def flat_format(path: Path) -> str | None:
    """Return GenBank or EMBL by the first nonempty line; None for other files."""
    with open_bytes(path) as stream:
        start = stream.read(4096).decode("utf-8-sig", "replace").lstrip("\r\n")
    for name, first in FLAT_FORMATS.items():
        if start.startswith(first):
            return name
    return None


def read_flat_file(path: Path, flat: str) -> Iterator[tuple[str, bytes]]:
    """Yield the records of a GenBank or EMBL file, as `read_fasta` does.

    A contig's name is its accession with version (GenBank's VERSION, EMBL's SV). In files without a version,
    or with ".", it is the accession or else the LOCUS or ID.
    """
    from Bio import BiopythonParserWarning
    from Bio.GenBank.Scanner import EmblScanner, GenBankScanner  # slow to import

    scanner = EmblScanner() if flat == "EMBL" else GenBankScanner()  # type: ignore[no-untyped-call]
    names: set[str] = set()
    with open_bytes(path) as stream:
        text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="replace")
        while True:
            where = f"{path}: record {len(names) + 1}"
            with (
                warnings.catch_warnings(),
                reading(where, f"cannot be read as {flat}", Exception),
            ):
                warnings.simplefilter("ignore", BiopythonParserWarning)
                warnings.filterwarnings("error", _GRAVE, BiopythonParserWarning)
                record = scanner.parse(text, do_features=False)  # type: ignore[no-untyped-call]
            if record is None:
                return
            name = str(record.name if record.id in (None, "", ".") else record.id)
            if name.split() != [name] or name == "<unknown name>":
                raise DataError(f"{where} has no name")
            check_name(name, "name", where)
            if name in names:
                raise DataError(f"{path}: duplicate record {name!r}")
            names.add(name)
            where = f"{path}: record {name!r}"
            if not record.seq.defined or not record.seq:
                raise DataError(
                    f"{where} has no sequence (a CON record?); download the full record"
                )
            yield name, check_letters(str(record.seq), where)
