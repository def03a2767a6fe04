"""Random access to a reference genome, and the making of its indexed file."""

import os
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pysam
from pysam.utils import SamtoolsError

from bigbird_dna.console import log, progress
from bigbird_dna.errors import DataError
from bigbird_dna.files import atomic_path
from bigbird_dna.genome.compression import compression, require_end_block
from bigbird_dna.genome.fasta import Chunk, scan_fasta, stream_fasta
from bigbird_dna.genome.intervals import Interval
from bigbird_dna.genome.sequence import clean, reverse_complement

_LINE_BASES = 60
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
        self._scratch: Path | None = None  # where the indices are if not beside the file
        kind = compression(self.path)
        if kind == "bgzip":
            require_end_block(self.path)
        if kind == "gzip":
            raise DataError(
                f"{self.path}: plain gzip has no random access; write an indexed copy with "
                f"`bigbird-dna prepare-reference {self.path} -o reference.fa.gz`"
            )
        file = self._open()
        self.contigs: dict[str, int] = dict(zip(file.references, file.lengths, strict=True))
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
            try:
                raw = self._open().fetch(interval.contig, start, end)
            except (OSError, ValueError) as error:
                raise DataError(f"{self.path}: can't read {interval}: {error}") from None
        if len(raw) != end - start:
            raise DataError(f"{self.path}: can't read {interval}: the file is damaged")
        sequence = clean(raw, f"{self.path}: {interval.contig}:{start}-{end}")
        before = min(max(-interval.start, 0), len(interval))
        sequence = "N" * before + sequence
        sequence += "N" * (len(interval) - len(sequence))
        return reverse_complement(sequence) if interval.strand == "-" else sequence

    def close(self) -> None:
        """Close the file; the next `fetch` opens it again."""
        with self._lock:
            if self._file is not None and self._process == os.getpid():
                self._file.close()
            self._file = None

    def __enter__(self) -> "Reference":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[type["Reference"], tuple[Path]]:
        return Reference, (self.path,)

    def _open(self) -> Any:
        # A file handle inherited by fork shares its position with the parent: every process opens
        # its own.
        if self._file is None or self._process != os.getpid():
            index, block_index = self._index()
            try:
                self._file = pysam.FastaFile(
                    str(self.path),
                    filepath_index=str(index),
                    filepath_index_compressed=str(block_index) if block_index else None,
                )
            except (OSError, ValueError) as error:
                raise DataError(f"{self.path}: can't be opened with its index: {error}") from None
            self._process = os.getpid()
        return self._file

    def _index(self) -> tuple[Path, Path | None]:
        """Paths of the index and, for bgzip, of the index of its blocks; made where needed."""
        bgzip = compression(self.path) == "bgzip"
        directory = self._scratch or self.path.parent
        paths = [directory / f"{self.path.name}.fai"]
        if bgzip:
            paths.append(directory / f"{self.path.name}.gzi")
        made = self.path.stat().st_mtime_ns
        if not all(path.exists() and path.stat().st_mtime_ns >= made for path in paths):
            scan_fasta(self.path)
            log(f"indexing {self.path}")
            if not os.access(directory, os.W_OK):
                self._scratch = Path(tempfile.mkdtemp(prefix="bigbird-dna-"))
                weakref.finalize(self, _remove_scratch, self._scratch, os.getpid())
                paths = [self._scratch / path.name for path in paths]
            with ExitStack() as stack:
                _build_index(self.path, *(stack.enter_context(atomic_path(p)) for p in paths))
        return paths[0], paths[1] if bgzip else None


def _remove_scratch(directory: Path, owner: int) -> None:
    if os.getpid() == owner:  # a forked process must not take it away from its parent
        shutil.rmtree(directory, ignore_errors=True)


def prepare_reference(
    source: Path, output: Path, check: Callable[[Mapping[str, int]], None] | None = None
) -> Prepared:
    """Check a FASTA file (plain, gzip or bgzip) and write it as bgzip with its indices.

    Lines have 60 letters. The sequence is written in A C G T N, upper-case. `output`, `output`.fai
    and `output`.gzi appear whole or not at all.

    Parameters
    ----------
    check
        Called with name → length in bp once the source has been read; raises if they won't do.

    Raises
    ------
    DataError
        The source can't be used; nothing is written.
    """
    contigs: dict[str, int] = {}
    unknown = ambiguous = 0

    def counted(chunks: Iterable[Chunk]) -> Iterable[Chunk]:
        nonlocal unknown, ambiguous
        for chunk in chunks:
            contigs[chunk.contig] = chunk.start + len(chunk.sequence)
            unknown += chunk.sequence.count("N")
            ambiguous += chunk.ambiguous
            yield chunk
        if check is not None:
            check(contigs)

    # A multiple of the line length, so that every chunk starts a line.
    chunks = stream_fasta(source, chunk_bases=60_000 * _LINE_BASES)
    _write_chunks(output, counted(progress(chunks, f"preparing {Path(source).name}")))
    return Prepared(contigs, unknown, ambiguous)


def write_fasta(path: Path, records: Iterable[tuple[str, str]]) -> None:
    """Write (name, sequence) pairs as `prepare_reference` does, whole or not at all."""
    _write_chunks(path, (Chunk(name, 0, sequence, True) for name, sequence in records))


def _write_chunks(path: Path, chunks: Iterable[Chunk]) -> None:
    path = Path(path)
    # The indices take their places before the file does: an index older than its file counts as
    # missing.
    with (
        atomic_path(path) as fasta,
        atomic_path(path.with_name(f"{path.name}.gzi")) as block_index,
        atomic_path(path.with_name(f"{path.name}.fai")) as index,
    ):
        with pysam.BGZFile(str(fasta), _BGZIP_MODE, None) as stream:
            for chunk in chunks:
                if chunk.start == 0:
                    stream.write(f">{chunk.contig}\n".encode())
                text = chunk.sequence
                lines = (text[i : i + _LINE_BASES] for i in range(0, len(text), _LINE_BASES))
                stream.write(("\n".join(lines) + "\n").encode())
        _build_index(fasta, index, block_index)


def _build_index(fasta: Path, index: Path, block_index: Path | None = None) -> None:
    options = ["--fai-idx", str(index)]
    if block_index is not None:
        options += ["--gzi-idx", str(block_index)]
    try:
        pysam.faidx(str(fasta), *options)
    except SamtoolsError as error:
        raise DataError(f"{fasta}: can't be indexed: {' '.join(str(error).split())}") from None
