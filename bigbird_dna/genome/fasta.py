"""Read and validate FASTA in one pass, with files and records of any size.

All readers work on large blocks of bytes, and all but `read_records` hold only a part of a record. They raise for
faults that other readers accept: empty files and records, duplicate names, text without a header, and letters
that are not DNA. `DataError` names the file, the record, the line and the value.
"""

import shutil
import sys
from codecs import BOM_UTF8
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple, Protocol

from bigbird_dna.disk import compression
from bigbird_dna.disk.atomic import scratch_directory
from bigbird_dna.errors import DataError
from bigbird_dna.genome.fields import RecordNames, check_name
from bigbird_dna.genome.sequence import (
    clean_bytes,
    count_ambiguous_bytes,
    describe_bad_letter,
    first_bad_letter,
)

BLOCK_BYTES = 1 << 21


class Chunk(NamedTuple):
    """A chunk of a record: clean sequence of A C G T N from base `start` (0-based)."""

    contig: str
    start: int
    sequence: str
    last: bool  # whether the record ends with this chunk
    ambiguous: int = 0  # number of IUPAC codes in the file since the previous chunk


def record_chunks(name: str, parts: Iterable[bytes], size: int) -> Iterator[Chunk]:
    """Yield the chunks of a record from its letters in the file, which must be valid DNA letters."""
    text, start, ambiguous = "", 0, 0
    for letters in parts:
        text += clean_bytes(letters).decode("ascii")
        ambiguous += count_ambiguous_bytes(letters)
        position = 0
        # One more base than a chunk shows that the chunk is not the record's last.
        while len(text) - position > size:
            sequence = text[position : position + size]
            yield Chunk(name, start, sequence, False, ambiguous)
            position += size
            start += size
            ambiguous = 0
        text = text[position:]
    yield Chunk(name, start, text, True, ambiguous)


Observe = Callable[[bytes, bool], object]
"""Receives parts of records, in the letters of the file, and whether a part is the first of its record."""


def scan_fasta(path: Path, observe: Observe = lambda *_: None) -> dict[str, int]:
    """Check a whole FASTA file and return the length of each contig, in file order."""
    lengths: dict[str, int] = {}
    for name, letters in _parts(Path(path)):
        observe(letters, name not in lengths)
        lengths[name] = lengths.get(name, 0) + len(letters)
    return lengths


def read_records(
    path: Path, contigs: Collection[str] | None = None
) -> Iterator[tuple[str, str]]:
    """Yield the name and the sequence over A C G T N of each record of a FASTA file; None: of all.

    A file is read up to the last of `contigs`. Faults raise `DataError` when they are reached.
    """
    remaining = None if contigs is None else set(contigs)
    for name, parts in groupby(_parts(Path(path)), itemgetter(0)):
        if remaining is None or name in remaining:
            letters = b"".join(letters for _, letters in parts)
            yield name, clean_bytes(letters).decode("ascii")
        if remaining is not None:
            remaining.discard(name)
            if not remaining:
                return


def stream_fasta(path: Path, chunk_bases: int = 1_000_000) -> Iterator[Chunk]:
    """Yield the records of a FASTA file in chunks of `chunk_bases` bp.

    The last chunk of a record may be shorter. Memory depends only on `chunk_bases`. Chunks depend only on the
    sequence, not on lines or compression. Faults raise `DataError` when they are reached; `scan_fasta` finds
    them in advance.
    """
    if chunk_bases < 1:
        raise ValueError(f"chunk_bases must be positive, not {chunk_bases}")
    for name, parts in groupby(_parts(Path(path)), itemgetter(0)):
        yield from record_chunks(name, (letters for _, letters in parts), chunk_bases)


@contextmanager
def readable(path: Path | str) -> Iterator[Path]:
    """Yield a file that can be read repeatedly: `path`, or for "-" a temporary copy of standard input.

    Errors call the copy "standard input".
    """
    if str(path) != "-":
        yield Path(path)
        return
    compression.refuse_terminal()
    with scratch_directory() as directory:
        copy = directory / "stdin"
        with copy.open("wb") as stream:
            shutil.copyfileobj(sys.stdin.buffer, stream, 1 << 20)
        try:
            yield copy
        except DataError as error:
            raise DataError(str(error).replace(str(copy), "standard input")) from None


def _parts(path: Path) -> Iterator[tuple[str, bytes]]:
    with compression.open_bytes(path) as stream:
        yield from parse_fasta(path, stream)


class Readable(Protocol):
    """Stream for `parse_fasta`: `read(n)` returns n bytes, and fewer only at the end."""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes."""


def parse_fasta(
    path: Path,
    stream: Readable,
    names: RecordNames | None = None,
    *,
    strict: bool = True,
) -> Iterator[tuple[str, bytes]]:
    """Yield (name, letters as in the file) for consecutive parts of each record.

    `path` names the file in errors. A missing or repeated name is an error, unless `names` changes it. If not
    `strict`, records may be empty or have other letters than those of DNA, and each begins with an empty part.
    """
    used: set[str] = set()
    name: str | None = None  # of the current record
    length = line = 0
    for text in _blocks(stream):
        for number, part in enumerate(text.split(b"\n>")):
            if number > 0:
                if strict and name is not None and not length:
                    raise _no_sequence(path, name, line)
                line += 1
                header, newline, part = part.partition(b"\n")
                name = _record_name(header, names, f"{path}: line {line}")
                if name in used:
                    raise DataError(
                        f"{path}: line {line}: the name {name!r} occurs twice "
                        "(a name ends at the first blank); rename one of the records"
                    )
                used.add(name)
                length = 0
                line += len(newline)
                if not strict:
                    yield name, b""

            letters = part.translate(None, b"\r\n")
            if letters and name is None:
                start = part.split(maxsplit=1)[0][:40].decode("ascii", "replace")
                raise DataError(
                    f"{path}: no FASTA header: the first line does not start with '>' ({start!r})"
                )
            if letters and name is not None:
                if strict and first_bad_letter(letters) is not None:
                    raise _bad_letter(path, name, line, part)
                length += len(letters)
                yield name, letters
            line += part.count(b"\n")

    if name is None:
        raise DataError(f"{path}: the file contains no FASTA records")
    if strict and not length:
        raise _no_sequence(path, name, line)


def _blocks(stream: Readable) -> Iterator[bytes]:
    """Yield a file in blocks, as if it began with a line end; no header is in two blocks."""
    rest = b"\n"
    block = stream.read(BLOCK_BYTES).removeprefix(BOM_UTF8)
    while block:
        text = rest + block
        # The last line may be a header, or become one.
        last = text.rfind(b"\n")
        is_sequence = last < 0 or text[last + 1 : last + 2] not in (b"", b">")
        end = len(text) if is_sequence else last
        yield text[:end]
        rest = text[end:]
        block = stream.read(BLOCK_BYTES)
    yield rest


def _record_name(header: bytes, names: RecordNames | None, where: str) -> str:
    try:
        text = header.decode("utf-8").removesuffix("\r")
    except UnicodeDecodeError:
        raise DataError(f"{where}: the header is not text") from None
    if "\r" in text:
        raise DataError(f"{where}: carriage return in a line; use Unix line ends")
    if names is None and (not text or text[0].isspace()):
        raise DataError(f"{where}: the record has no name")
    words = text.split(maxsplit=1) or [""]
    name = check_name(words[0], "the record", where)
    return name if names is None else names.add(name)


def _no_sequence(path: Path, name: str, line: int) -> DataError:
    return DataError(f"{path}: record {name!r} has no sequence (line {line})")


def _bad_letter(path: Path, name: str, line: int, part: bytes) -> DataError:
    """Return the error for lines of a record, the first of which is number `line`."""
    position = first_bad_letter(part.translate(bytes.maketrans(b"\r\n", b"NN")))
    assert position is not None
    line += part.count(b"\n", 0, position)
    what = describe_bad_letter(part[position])
    return DataError(f"{path}: record {name!r}, line {line}: {what}")
