"""Index a FASTA file by reading all of it, and cache the index until the file changes.

An index file next to a FASTA file does not record which content it was made from. Here the whole file is read
and checked, and the index is made from that content.

A cached index is valid for a file with the same inode, size and times. These include the change time (ctime),
which programs cannot set: copying, unpacking, renaming and rewriting all change it, whichever modification
time the file is given.
"""

import base64
import hashlib
import io
import json
import os
import time
from pathlib import Path
from typing import IO, Any, NamedTuple

from bigbird_dna.disk.compression import BlockIndex, BlockStream
from bigbird_dna.disk.user_cache import UserCache
from bigbird_dna.errors import DataError
from bigbird_dna.genome.fasta import RecordLines, parse_fasta


class FaiRecord(NamedTuple):
    """A record, as in a line of a `.fai` file."""

    length: int  # bp
    offset: int  # of its first base in the file; for bgzip, in the uncompressed content
    bases: int  # bases per line
    width: int  # bytes per line, including the line end


class FastaIndex(NamedTuple):
    """The index of one FASTA file, and the checksum of the indexed file."""

    rows: dict[str, FaiRecord]  # by contig, in file order
    blocks: BlockIndex | None  # None: the file is plain
    sha256: str  # of the file's bytes

    def contents(self) -> tuple[bytes, ...]:
        """Return the content of the `.fai` file and, for bgzip, of the `.gzi` file."""
        lines = ("\t".join(map(str, (name, *row))) for name, row in self.rows.items())
        fai = "".join(f"{line}\n" for line in lines).encode()
        return (fai,) if self.blocks is None else (fai, self.blocks.to_bytes())

    def wrong_files(self, path: Path) -> list[tuple[Path, bytes]]:
        """Return the index files of `path` that are missing or differ, with the correct content."""
        wrong = []
        for suffix, content in zip((".fai", ".gzi"), self.contents(), strict=False):
            place = path.with_name(path.name + suffix)
            found = _content(place)
            if found != content and not (
                self.blocks and suffix == ".gzi" and self.blocks.agrees(found)
            ):
                wrong.append((place, content))
        return wrong


def index_fasta(path: Path, stream: IO[bytes], bgzip: bool) -> FastaIndex:
    """Check a FASTA file, plain or bgzip, from its first byte to its end, and return its index.

    Errors are those of `scan_fasta`, and an error for a record that mixes LF and CRLF line ends.
    """
    digest = hashlib.sha256()
    packed = BlockStream(stream, str(path), digest) if bgzip else None
    source = (
        _Digested(stream, digest)
        if packed is None
        else io.BufferedReader(packed, 1 << 21)
    )
    lengths: dict[str, int] = {}
    records: list[RecordLines] = []
    for name, letters in parse_fasta(path, source, records):
        lengths[name] = lengths.get(name, 0) + len(letters)
    rows = {
        name: _row(path, name, length, lines)
        for (name, length), lines in zip(lengths.items(), records, strict=True)
    }
    return FastaIndex(rows, packed.index if packed else None, digest.hexdigest())


def _row(path: Path, name: str, length: int, lines: RecordLines) -> FaiRecord:
    if lines.returns not in (0, lines.newlines):
        raise DataError(
            f"{path}: record {name!r}: lines mix LF and CRLF ends; write an indexed copy "
            f"with `bigbird-dna prepare reference {path} -o reference.fa.gz`"
        )
    if not lines.is_complete:
        return FaiRecord(length, lines.offset, length, length + 1)
    return FaiRecord(
        length, lines.offset, lines.width - 1 - (lines.returns > 0), lines.width
    )


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes() if path.is_file() else b""
    except OSError:
        return b""


class _Digested(NamedTuple):
    """A stream that adds the bytes to a checksum as they are read."""

    stream: IO[bytes]
    digest: "hashlib._Hash"

    def read(self, size: int, /) -> bytes:
        """Return the next bytes."""
        data = self.stream.read(size)
        self.digest.update(data)
        return data


_FORMAT = 1
SHELF = UserCache("references")
SMALLEST = (
    1 << 20
)  # bytes; smaller files are not cached because they are read in milliseconds
# Two changes within one tick of the file system's clock get the same time. Kernels tick every 10 ms or
# faster. A time of whole seconds suggests a file system whose clock ticks every other second.
TICK, _SLOW_TICK = 20_000_000, 2_100_000_000  # ns


class Identity(NamedTuple):
    """Properties of a file that show whether it has changed."""

    inode: int
    size: int
    modified: int  # ns
    changed: int  # ns; last change of the content or of any property

    @classmethod
    def of(cls, found: os.stat_result) -> "Identity":
        """Return the identity from a file's stat result."""
        return cls(found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def recall(path: Path, identity: Identity) -> FastaIndex | None:
    """Return the cached index of a file with this identity."""
    content = None if identity.size < SMALLEST else SHELF.get(_key(path))
    if content is None:
        return None
    try:
        stored = json.loads(content)
        proof = stored["proof"]
        if stored["sha256"] != _digest(proof) or proof["format"] != _FORMAT:
            return None
        if proof["identity"] != list(identity):
            return None
        blocks = (
            None
            if proof["gzi"] is None
            else BlockIndex.from_bytes(base64.b64decode(proof["gzi"]))
        )
        rows = {name: FaiRecord(*numbers) for name, *numbers in proof["rows"]}
        return FastaIndex(rows, blocks, proof["file_sha256"])
    except (
        ValueError,
        LookupError,
        TypeError,
        RecursionError,
    ):  # written by another version, or damaged
        return None


def settle(identity: Identity) -> bool:
    """Wait until any later change of a file gives another identity; return False if that takes too long."""
    tick = TICK if identity.changed % 1_000_000_000 else _SLOW_TICK
    left = identity.changed + tick - time.time_ns()
    if 0 < left <= TICK:
        time.sleep(left / 1e9)
    return left <= TICK


def remember(path: Path, identity: Identity, index: FastaIndex) -> None:
    """Cache the index of a file that had this settled identity before and after it was read."""
    if identity.size < SMALLEST:
        return
    proof = {
        "format": _FORMAT,
        "file": os.path.realpath(path),
        "identity": list(identity),
        "file_sha256": index.sha256,
        "rows": [[name, *row] for name, row in index.rows.items()],
        "gzi": None
        if index.blocks is None
        else base64.b64encode(index.blocks.to_bytes()).decode(),
    }
    SHELF.put(
        _key(path), json.dumps({"sha256": _digest(proof), "proof": proof}).encode()
    )


def _key(path: Path) -> str:
    return hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()[:32]


def _digest(proof: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(proof).encode()).hexdigest()
