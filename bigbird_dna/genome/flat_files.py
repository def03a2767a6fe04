"""Read the flat files of the sequence archives, GenBank and EMBL, with Biopython."""

import io
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from bigbird_dna.disk.compression import open_bytes
from bigbird_dna.errors import DataError, error_text
from bigbird_dna.genome.fasta import Chunk, record_chunks
from bigbird_dna.genome.fields import check_name
from bigbird_dna.genome.sequence import check_letters

FlatFormat = Literal["GenBank", "EMBL"]

_STARTS: dict[FlatFormat, str] = {"GenBank": "LOCUS       ", "EMBL": "ID   "}
"""Start of a record's first line."""

# Biopython only warns about these faults; its other warnings concern lines that are not used here.
_GRAVE = "Expected sequence length|Premature end of file"


def flat_format(path: Path) -> FlatFormat | None:
    """Return the flat-file format by the first nonempty line; None for other files."""
    with open_bytes(path) as stream:
        start = stream.read(4096).decode("utf-8-sig", "replace").lstrip("\r\n")
    for name, first in _STARTS.items():
        if start.startswith(first):
            return name
    return None


def stream_flat_file(path: Path, flat: FlatFormat, chunk_bases: int) -> Iterator[Chunk]:
    """Yield the records of a GenBank or EMBL file in chunks of `chunk_bases` bp, as `stream_fasta` does.

    A contig's name is its accession with version (GenBank's VERSION, EMBL's SV). In files without a version,
    or with ".", it is the accession or else the LOCUS or ID. Memory grows with the longest sequence only.
    """
    from Bio.GenBank.Scanner import EmblScanner, GenBankScanner  # slow to import

    scanners: dict[FlatFormat, Any] = {"GenBank": GenBankScanner, "EMBL": EmblScanner}
    scanner = scanners[flat]()
    names: set[str] = set()
    with open_bytes(path) as stream:
        text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="replace")
        while True:
            where = f"{path}: record {len(names) + 1}"
            record = _parse_record(scanner, text, f"{where}: cannot be read as {flat}")
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
            yield from record_chunks(
                name, [check_letters(str(record.seq), where)], chunk_bases
            )


def _parse_record(scanner: Any, text: io.TextIOBase, fault: str) -> Any:
    """Return the next record without its features; None at the end of the file."""
    from Bio import BiopythonParserWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BiopythonParserWarning)
        warnings.filterwarnings("error", _GRAVE, BiopythonParserWarning)
        try:
            return scanner.parse(text, do_features=False)
        except DataError:  # a damaged gzip file
            raise
        except Exception as error:  # Biopython splits lines without checks
            raise DataError(f"{fault}: {error_text(error)}") from None
