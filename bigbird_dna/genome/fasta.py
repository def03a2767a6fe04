"""Read and validate FASTA in one pass, with files and records of any size.

All readers work on large blocks of bytes, so memory does not grow with the length of a record. They raise for
faults that other readers accept: empty files and records, duplicate names, text without a header, lines of
uneven length, and letters that are not DNA. `DataError` names the file, the record, the line and the value.
"""

import re
import shutil
import sys
from codecs import BOM_UTF8
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
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
_LONGEST_HEADER = 1 << 20
_BLANKS, _MOST_BLANKS = (
    b" \t\r",
    64,
)  # before a line's end; maximum number kept in one block


class Chunk(NamedTuple):
    """A chunk of a record: clean sequence of A C G T N from base `start` (0-based)."""

    contig: str
    start: int
    sequence: str
    last: bool  # whether the record ends with this chunk
    ambiguous: int = 0  # number of IUPAC codes in the file since the previous chunk


class ChunkBuffer:
    """Divide the sequence of a contig into chunks of `size` bp as it is read; the last may be shorter."""

    def __init__(self, contig: str, size: int) -> None:
        self.contig = contig
        self.size = size
        self.start = 0  # position of the buffered bases
        self.held: list[str] = []
        self.count = 0  # number of buffered bp
        self.ambiguous = 0

    def add(self, sequence: str, ambiguous: int = 0) -> Iterator[Chunk]:
        """Add bases in A C G T N, `ambiguous` of them IUPAC codes in the file; yield full chunks."""
        self.held.append(sequence)
        self.count += len(sequence)
        self.ambiguous += ambiguous
        # One more base than a chunk is needed to know that the chunk is not the contig's last.
        if self.count > self.size:
            text, place = "".join(self.held), 0
            while len(text) - place > self.size:
                yield self._chunk(text[place : place + self.size], last=False)
                place += self.size
            self.held, self.count = [text[place:]], len(text) - place

    def finish(self) -> Iterator[Chunk]:
        """Yield the last chunk."""
        yield self._chunk("".join(self.held), last=True)

    def _chunk(self, sequence: str, *, last: bool) -> Chunk:
        chunk = Chunk(self.contig, self.start, sequence, last, self.ambiguous)
        self.start += len(sequence)
        self.ambiguous = 0
        return chunk


def record_chunks(name: str, parts: Iterable[bytes], size: int) -> Iterator[Chunk]:
    """Yield the chunks of a record from its letters in the file, which must be valid DNA letters."""
    buffer = ChunkBuffer(name, size)
    for letters in parts:
        yield from buffer.add(
            clean_bytes(letters).decode("ascii"), count_ambiguous_bytes(letters)
        )
    yield from buffer.finish()


Observe = Callable[[bytes, bool], object]
"""Receives parts of records, in the letters of the file, and whether a part is the first of its record."""


def scan_fasta(path: Path, observe: Observe = lambda *_: None) -> dict[str, int]:
    """Check a whole FASTA file and return the length of each contig, in file order."""
    return LengthsAhead(path, observe=observe).all()


class LengthsAhead(Mapping[str, int]):
    """The lengths of a FASTA file's contigs; each is found on request by reading to the contig's end.

    Work on the first contig can therefore start before the rest of the file is read. Faults raise `DataError`
    when they are reached. Iteration yields the contigs found so far.
    """

    def __init__(
        self,
        path: Path,
        check: Callable[[str], object] = str,
        observe: Observe = lambda *_: None,
    ) -> None:
        """Open a second pass over a file that the caller reads too; `check` may raise for a contig's name."""
        self._check, self._observe = check, observe
        self._found: dict[str, int] = {}
        self._parts = _parts(Path(path))
        self._records = groupby(self._parts, itemgetter(0))

    def __getitem__(self, contig: str) -> int:
        while contig not in self._found and self._read_on():
            pass
        return self._found[contig]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def all(self) -> dict[str, int]:
        """Read to the end of the file, as `scan_fasta` does, and return all contigs."""
        while self._read_on():
            pass
        return self._found

    def _read_on(self) -> bool:
        for name, parts in self._records:
            try:
                self._check(name)
            except BaseException:
                self._parts.close()  # the error may keep it alive, and with it the open file
                raise
            length = 0
            for _, raw in parts:
                self._observe(raw, not length)
                length += len(raw)
            self._found[name] = length
            return True
        return False


def stream_fasta(path: Path, chunk_bases: int = 1_000_000) -> Iterator[Chunk]:
    """Yield the records of a FASTA file in chunks of `chunk_bases` bp.

    The last chunk of a record may be shorter. Memory depends only on `chunk_bases`. Chunks depend only on the
    sequence, not on lines or compression. Faults raise `DataError` when they are reached; `scan_fasta` finds
    them in advance.
    """
    if chunk_bases < 1:
        raise ValueError(f"chunk_bases must be positive, not {chunk_bases}")
    with closing(
        _parts(Path(path))
    ) as found:  # also after errors, which may keep the generator alive
        for name, parts in groupby(found, itemgetter(0)):
            yield from record_chunks(name, (raw for _, raw in parts), chunk_bases)


@contextmanager
def spool_stdin() -> Iterator[Path]:
    """Copy standard input to a temporary file that can be reread; errors call it "standard input"."""
    compression.refuse_terminal()
    with scratch_directory() as directory:
        path = directory / "stdin"
        with path.open("wb") as stream:
            shutil.copyfileobj(sys.stdin.buffer, stream, 1 << 20)
        try:
            yield path
        except DataError as error:
            raise DataError(str(error).replace(str(path), "standard input")) from None


def readable(path: Path | str) -> AbstractContextManager[Path]:
    """Return a file that can be read repeatedly: `path`, or for "-" the file of `spool_stdin`."""
    return spool_stdin() if str(path) == "-" else nullcontext(Path(path))


def _parts(path: Path) -> Generator[tuple[str, bytes], None, None]:
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

    `path` names the file in errors. A missing or repeated name is an error, unless `names` changes it. If not `strict`, records may be empty or have
    other letters than those of DNA, and each begins with an empty part.
    """
    parser = _Parser(path, names, strict)
    start = stream.read(3)
    for block in _blocks(start.removeprefix(BOM_UTF8), stream):
        yield from parser.feed(block)
    yield from parser.finish()


def _blocks(carry: bytes, stream: Readable) -> Iterator[bytes]:
    """Yield the blocks of a stream that begins with `carry`.

    Blanks and the text after them are in the same block, so that blanks at the end of a line are recognized.
    """
    while block := stream.read(BLOCK_BYTES):
        block = carry + block
        end = len(block.rstrip(_BLANKS))
        if len(block) - end > _MOST_BLANKS:
            end = len(block.removesuffix(b"\r"))
        block, carry = block[:end], block[end:]
        yield block
    yield from filter(
        None, (carry.removesuffix(b"\r"), carry[len(carry.removesuffix(b"\r")) :])
    )


class _Parser:
    """State of the parser between two blocks, which may divide lines anywhere."""

    def __init__(
        self,
        path: Path,
        names: RecordNames | None,
        strict: bool,
    ) -> None:
        self.path, self.strict = path, strict
        self.unique = names
        self.line = 1  # number of the current line
        self.at_line_start = True
        self.header: bytearray | None = None  # the part of a header in previous blocks
        self.names: set[str] = set()
        self._start_record("")

    def feed(self, block: bytes) -> Iterator[tuple[str, bytes]]:
        position = 0
        if block == b"\r":  # the end of the file
            return
        while position < len(block):
            if (
                self.header is None
                and self.at_line_start
                and block[position] == ord(">")
            ):
                self._end_record()
                self.header = bytearray()
                position += 1
            elif self.header is not None:
                position = self._read_header(block, position)
                if self.at_line_start and not self.strict:
                    yield self.name, b""
            else:
                cut = block.find(b"\n>", position)
                end = len(block) if cut < 0 else cut + 1
                letters = self._read_lines(block[position:end])
                if letters:
                    yield self.name, letters
                position = end

    def finish(self) -> Iterator[tuple[str, bytes]]:
        if self.header is not None:
            self._name_record()
            if not self.strict:
                yield self.name, b""
        self._end_record()
        if not self.names:
            raise DataError(f"{self.path}: the file contains no FASTA records")

    def _start_record(self, name: str) -> None:
        self.name = name
        self.bases = 0
        self.width: int | None = (
            None  # width of the record's lines, once the first is complete
        )
        self.partial = 0  # letters of the current line so far
        self.short_line: int | None = (
            None  # number of a line that is blank, or shorter than `width`
        )
        self.is_blank = False  # whether that line is blank

    def _end_record(self) -> None:
        if self.strict and self.names and not self.bases:
            raise DataError(
                f"{self.path}: record {self.name!r} has no sequence (line {self.line})"
            )

    def _read_header(self, block: bytes, position: int) -> int:
        assert self.header is not None
        end = block.find(b"\n", position)
        self.header += block[position : end if end >= 0 else len(block)]
        if len(self.header) > _LONGEST_HEADER:
            raise DataError(
                f"{self.path}: line {self.line}: the header has more than a million bytes"
            )
        if end < 0:
            self.at_line_start = False
            return len(block)
        self._name_record()
        self.line += 1
        self.at_line_start = True
        return end + 1

    def _name_record(self) -> None:
        assert self.header is not None
        try:
            header = self.header.decode("utf-8").removesuffix("\r")
        except UnicodeDecodeError:
            raise DataError(
                f"{self.path}: line {self.line}: the header is not text"
            ) from None
        self.header = None
        if "\r" in header:
            raise DataError(
                f"{self.path}: line {self.line}: carriage return in a line; use Unix line ends"
            )
        if self.unique is None and (not header.strip() or header[0].isspace()):
            raise DataError(f"{self.path}: line {self.line}: the record has no name")
        given = (header.split(maxsplit=1) or [""])[0]
        name = check_name(given, "the record", f"{self.path}: line {self.line}")
        if self.unique is not None:
            name = self.unique.add(name)
        if name in self.names:
            raise DataError(
                f"{self.path}: line {self.line}: the name {name!r} occurs twice "
                "(a name ends at the first blank); rename one of the records"
            )
        self.names.add(name)
        self._start_record(name)

    def _read_lines(self, text: bytes) -> bytes:
        """Check sequence lines, of which the first and last may be incomplete; return their letters."""
        text = text.replace(b"\r\n", b"\n") if b"\r" in text else text
        lines = text.split(b"\n")
        letters = b"".join(lines)
        if not self.names and letters:
            start = text.lstrip(b"\n")[:40]
            if re.search(rb"[^\t\n\r -~]", start):
                raise DataError(
                    f"{self.path}: not FASTA but binary content; save it as plain text"
                )
            shown = start.split(b"\n")[0].decode("ascii")
            what = f"the first line does not start with '>' ({shown!r})"
            raise DataError(f"{self.path}: no FASTA header: {what}")
        if self.strict and first_bad_letter(letters) is not None:
            self._refuse_letter(text)
        self._check_widths([len(line) for line in lines])
        self.line += len(lines) - 1
        self.at_line_start = not lines[-1]
        self.bases += len(letters)
        return letters

    def _check_widths(self, widths: list[int]) -> None:
        """Check that all lines of a record but the last have the same length; blank lines may follow."""
        widths[0] += self.partial
        self.partial = widths.pop()
        if not self.names:
            return
        if widths and self.width is None:
            self.width = widths[0]
        if (
            self.short_line is not None
            or not self.width
            or widths.count(self.width) != len(widths)
        ):
            for line, width in enumerate(widths, start=self.line):
                self._check_width(line, width)
        self._check_width(self.line + len(widths), self.partial, complete=False)

    def _check_width(self, line: int, width: int, complete: bool = True) -> None:
        if self.width is None or (width == 0 and not complete):
            return
        if width and self.is_blank:
            raise DataError(
                f"{self.path}: record {self.name!r}: line {self.short_line} is blank, but the sequence "
                "continues after it"
            )
        if width and self.short_line is not None:
            what = f"line {self.short_line} is shorter than the record's first"
            raise DataError(
                f"{self.path}: record {self.name!r}: uneven lines: {what} ({self.width} letters) "
                "but not its last"
            )
        if width > self.width:
            raise DataError(
                f"{self.path}: record {self.name!r}: uneven lines: line {line} is longer than the "
                f"record's first ({self.width} letters)"
            )
        if complete and (width < self.width or not width) and self.short_line is None:
            self.short_line, self.is_blank = line, not width

    def _refuse_letter(self, text: bytes) -> None:
        position = first_bad_letter(text.replace(b"\n", b"N"))
        assert position is not None
        line = self.line + text.count(b"\n", 0, position)
        if text[position] in b" \t" and not text[position:].split(b"\n", 1)[0].strip(
            _BLANKS
        ):
            raise DataError(
                f"{self.path}: record {self.name!r}: line {line} ends with a space or tab"
            )
        what = describe_bad_letter(text[position])
        raise DataError(f"{self.path}: record {self.name!r}, line {line}: {what}")
