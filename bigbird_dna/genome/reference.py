"""Random access to a reference genome, and the making of its indexed file."""

import os
import shutil
import struct
import tempfile
import threading
import warnings
import weakref
import zlib
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pyfaidx
import pysam
from pysam.utils import SamtoolsError

from bigbird_dna.console import log, progress
from bigbird_dna.errors import DataError, error_text
from bigbird_dna.files import atomic_path
from bigbird_dna.genome.assembly import Assembly
from bigbird_dna.genome.compression import compression, require_end_block
from bigbird_dna.genome.fasta import Chunk, scan_fasta, stream_fasta
from bigbird_dna.genome.flat_files import flat_format, stream_flat_file
from bigbird_dna.genome.intervals import Interval
from bigbird_dna.genome.sequence import clean, reverse_complement

_LINE_BASES = 60
_PIECE = 1 << 20  # bp read at a time: the reader's cost for one piece goes with its square
_FAULTS = (OSError, ValueError, LookupError, ArithmeticError, RuntimeError, struct.error, zlib.error)
"""What pyfaidx raises for files and indices that are damaged or don't belong together."""

_BGZIP_MODE: Any = "wb4"  # level 4 of 9: five times as fast as the default, 4 % larger


class Prepared(NamedTuple):
    """What `prepare_reference` wrote."""

    contigs: dict[str, int]  # name → length in bp, in file order
    unknown: int  # N in the output, in bp
    ambiguous: int  # how many of them were IUPAC codes


class Reference:
    """The sequence of any interval of an indexed FASTA file, plain or bgzip.

    An index (`.fai`, for bgzip also `.gzi`) that is missing or older than the file is made after
    the whole file has been checked: beside the file, or for this object alone where that directory
    can't be written to. Objects can be pickled, passed to other processes by fork or spawn, and
    used by several threads.

    Raises
    ------
    DataError
        The file or its index can't be used; plain gzip, which has no random access, among others.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()
        self._file: Any = None
        self._process = 0
        self._scratch: Path | None = None
        self._indices = self.path.parent
        kind = compression(self.path)
        if kind == "bgzip":
            require_end_block(self.path)
        unfit = "plain gzip" if kind == "gzip" else flat_format(self.path)
        if unfit is not None:
            raise DataError(
                f"{self.path}: {unfit} has no random access; write an indexed copy with "
                f"`bigbird-dna prepare-reference {self.path} -o reference.fa.gz`"
            )
        index = self._open().index
        self.contigs: dict[str, int] = {name: row.rlen for name, row in index.items()}
        """Name → length in bp, in file order."""

    def fetch(self, interval: Interval) -> str:
        """Return the bases of an interval, in A C G T N, as long as the interval.

        On "-" it is the reverse complement. Positions outside the contig are N.

        Raises
        ------
        DataError
            The reference has no such contig.
        """
        length = self.contigs.get(interval.contig)
        if length is None:
            raise DataError(f"{self.path}: no contig {interval.contig!r} in the reference")
        start = min(max(interval.start, 0), length)
        end = min(max(interval.end, 0), length)
        with self._lock:
            file = self._open()
            try:
                raw = "".join(
                    file.fetch(interval.contig, first + 1, min(first + _PIECE, end))
                    for first in range(start, end, _PIECE)
                )
            except _FAULTS as error:
                # It may take the block that it failed to unpack for the one before from now on.
                self._close()
                raise DataError(f"{self.path}: can't read {interval}: {error_text(error)}") from None
        if len(raw) != end - start:
            raise DataError(f"{self.path}: can't read {interval}: the file is damaged")
        sequence = clean(raw, f"{self.path}: {interval.contig}:{start}-{end}")
        before = min(max(-interval.start, 0), len(interval))
        sequence = ("N" * before + sequence).ljust(len(interval), "N")
        return reverse_complement(sequence) if interval.strand == "-" else sequence

    def close(self) -> None:
        """Close the file; the next `fetch` opens it again."""
        with self._lock:
            self._close()

    def __enter__(self) -> "Reference":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[type["Reference"], tuple[Path]]:
        return Reference, (self.path,)

    def _close(self) -> None:
        if self._file is not None and self._process == os.getpid():
            self._file.close()
        self._file = None

    def _open(self) -> Any:
        # A file handle inherited by fork shares its position with the parent: every process opens
        # its own.
        if self._file is None or self._process != os.getpid():
            bgzip = compression(self.path) == "bgzip"
            paths = self._index(bgzip)
            try:
                self._file = _open_indexed(self._telling_name(bgzip), *paths)
            except _FAULTS as error:
                what = error_text(error)
                raise DataError(f"{self.path}: can't be opened with its index: {what}") from None
            self._process = os.getpid()
        return self._file

    def _index(self, bgzip: bool) -> list[Path]:
        """Paths of the index and, for bgzip, of the index of its blocks; made where needed."""
        names = [f"{self.path.name}{suffix}" for suffix in (".fai", ".gzi")[: 1 + bgzip]]
        paths = [self._indices / name for name in names]
        made = self.path.stat().st_mtime_ns
        if not all(path.exists() and path.stat().st_mtime_ns >= made for path in paths):
            scan_fasta(self.path)
            log(f"indexing {self.path}")
            if not os.access(self._indices, os.W_OK):
                self._indices = self._scratch_directory()
                paths = [self._indices / name for name in names]
            with ExitStack() as stack:
                _build_index(self.path, *(stack.enter_context(atomic_path(p)) for p in paths))
        return paths

    def _telling_name(self, bgzip: bool) -> Path:
        """A path of the file whose ending says how it is compressed, which pyfaidx goes by."""
        suffix = self.path.suffix.lower()
        if suffix in (".gz", ".bgz") if bgzip else suffix not in (".gz", ".bgz", ".bz2", ".zip"):
            return self.path
        link = self._scratch_directory() / ("reference.fa.gz" if bgzip else "reference.fa")
        if not link.exists():
            link.symlink_to(self.path.absolute())
        return link

    def _scratch_directory(self) -> Path:
        """A directory of this object's own, for what can't be beside the file."""
        if self._scratch is None or not self._scratch.exists():
            self._scratch = Path(tempfile.mkdtemp(prefix="bigbird-dna-"))
            weakref.finalize(self, _remove_scratch, self._scratch, os.getpid())
        return self._scratch


class _BgzfBlock(pyfaidx.BgzfBlock):  # type: ignore[misc]  # its base has no types
    """A block of a bgzip file that begins with its own first byte.

    By pyfaidx's own comparison that byte is looked for at the end of the block before, where it has
    no address if that block holds the 65,536 bytes that the format allows.
    """

    __slots__ = ()

    def __lt__(self, offset: int) -> bool:
        return bool(self.ustart <= offset)


def _open_indexed(path: Path, index: Path, block_index: Path | None = None) -> Any:
    """The file with indices that are known to be there: pyfaidx makes and replaces none."""
    with warnings.catch_warnings():
        # Of an index just made that is older than its file all the same, where clocks differ.
        warnings.simplefilter("ignore", RuntimeWarning)
        file = pyfaidx.Faidx(
            path, indexname=index, gzi_indexname=block_index, as_raw=True, rebuild=False, build_index=False
        )
    if block_index is not None:
        file.gzi_index = [_BgzfBlock(*block) for block in file.gzi_index]
    return file


def _remove_scratch(directory: Path, owner: int) -> None:
    if os.getpid() == owner:  # a forked process must not take it away from its parent
        shutil.rmtree(directory, ignore_errors=True)


def prepare_reference(source: Path, output: Path, assembly: Assembly | None = None) -> Prepared:
    """Check a FASTA, GenBank or EMBL file and write it as bgzip FASTA with its indices.

    The file may be plain, gzip or bgzip. Contigs of FASTA are called as their headers say, those of
    the other formats by accession and version (see `stream_flat_file`). Lines have 60 letters. The
    sequence is written in A C G T N, upper-case. `output`, `output`.fai and `output`.gzi appear
    whole or not at all.

    Parameters
    ----------
    assembly
        Whose lengths the contigs must have (see `Assembly.check_lengths`).

    Raises
    ------
    DataError
        The source can't be used, or is of another assembly; nothing is written.
    """
    source = Path(source)
    flat = flat_format(source)
    # A multiple of the line length, so that every chunk starts a line.
    size = 60_000 * _LINE_BASES
    chunks = stream_fasta(source, size) if flat is None else stream_flat_file(source, flat, size)
    shown = progress(chunks, f"preparing {source.name}")
    return _write_chunks(output, shown, assembly, str(source))


def write_fasta(path: Path, records: Iterable[tuple[str, str]]) -> None:
    """Write (name, sequence) pairs as `prepare_reference` does, whole or not at all."""
    chunks = (Chunk(name, 0, sequence, True) for name, sequence in records)
    _write_chunks(path, chunks)


def _write_chunks(
    path: Path, chunks: Iterable[Chunk], assembly: Assembly | None = None, where: str = ""
) -> Prepared:
    """Write chunks, and check their contigs against the assembly before anything takes its place."""
    path = Path(path)
    contigs: dict[str, int] = {}
    unknown = ambiguous = 0
    # The indices take their places before the file does: an index older than its file counts as
    # missing.
    with (
        atomic_path(path) as fasta,
        atomic_path(path.with_name(f"{path.name}.gzi")) as block_index,
        atomic_path(path.with_name(f"{path.name}.fai")) as index,
    ):
        with pysam.BGZFile(str(fasta), _BGZIP_MODE, None) as stream:
            for chunk in chunks:
                text = chunk.sequence
                contigs[chunk.contig] = chunk.start + len(text)
                unknown += text.count("N")
                ambiguous += chunk.ambiguous
                if chunk.start == 0:
                    stream.write(f">{chunk.contig}\n".encode())
                lines = (text[i : i + _LINE_BASES] for i in range(0, len(text), _LINE_BASES))
                stream.write(("\n".join(lines) + "\n").encode())
        if assembly is not None:
            assembly.check_lengths(contigs, where)
        _build_index(fasta, index, block_index)
    return Prepared(contigs, unknown, ambiguous)


def _build_index(fasta: Path, index: Path, block_index: Path | None = None) -> None:
    options = ["--fai-idx", str(index)]
    if block_index is not None:
        options += ["--gzi-idx", str(block_index)]
    try:
        pysam.faidx(str(fasta), *options)
    except SamtoolsError as error:
        raise DataError(f"{fasta}: can't be indexed: {' '.join(str(error).split())}") from None
