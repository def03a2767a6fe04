"""Read and validate FASTA files, plain or compressed, record by record.

Faults that other readers accept are a `DataError`, which names the file, the record, the line and the value:
empty files and records, duplicate names, text without a header, and letters that are not DNA.
"""

import shutil
import sys
from codecs import BOM_UTF8
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from bigbird_dna.disk.atomic import scratch_directory
from bigbird_dna.disk.compression import open_bytes
from bigbird_dna.errors import DataError
from bigbird_dna.genome.fields import check_name
from bigbird_dna.genome.sequence import (
    clean_bytes,
    describe_bad_letter,
    first_bad_letter,
)


def split_records(path: Path) -> Iterator[tuple[str, int, list[bytes]]]:
    """Yield the name, the number of the header line, and the lines of sequence of each FASTA record.

    A name is the first word of the header; it is empty if the header is. Names may repeat.
    """
    path = Path(path)
    name = ""
    header = 0
    lines: list[bytes] = []
    with open_bytes(path) as stream:
        for number, line in enumerate(stream, start=1):
            if number == 1:
                line = line.removeprefix(BOM_UTF8)

            if line.startswith(b">"):
                if header:
                    yield name, header, lines

                words = line[1:].decode("utf-8", "replace").split(maxsplit=1)
                has_name = words and not line[1:2].isspace()
                name = words[0] if has_name else ""
                check_name(name, "the record", f"{path}: line {number}")
                header, lines = number, []
            elif header:
                lines.append(line)
            elif line.strip():
                start = line.split(maxsplit=1)[0][:40].decode("ascii", "replace")
                raise DataError(
                    f"{path}: no FASTA header: the first line does not start with '>' ({start!r})"
                )

    if not header:
        raise DataError(f"{path}: the file contains no FASTA records")

    yield name, header, lines


def read_fasta(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the letters, as in the file, of each record of a FASTA file."""
    names: set[str] = set()
    for name, header, lines in split_records(path):
        if not name:
            raise DataError(f"{path}: line {header}: the record has no name")

        if name in names:
            raise DataError(
                f"{path}: line {header}: the name {name!r} occurs twice (a name ends at the first blank); "
                "rename one of the records"
            )

        names.add(name)
        letters = b"".join(lines).translate(None, b"\r\n")
        if not letters:
            raise DataError(
                f"{path}: record {name!r} has no sequence (line {header + 1})"
            )

        if first_bad_letter(letters) is not None:
            for number, line in enumerate(lines, start=header + 1):
                position = first_bad_letter(line.strip(b"\r\n"))
                if position is not None:
                    what = describe_bad_letter(line[position])
                    raise DataError(f"{path}: record {name!r}, line {number}: {what}")

        yield name, letters


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
