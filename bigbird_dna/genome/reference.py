"""A reference genome: bases by contig and interval, and the making of its indexed file."""

import math
import os
import struct
import threading
import warnings
import zlib
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyfaidx

from bigbird_dna.console import log, progress
from bigbird_dna.disk.atomic import atomic_path, bgzip_writer, scratch_directory
from bigbird_dna.disk.compression import compression_of, open_handle, require_end_block
from bigbird_dna.errors import DataError, UsageError, error_text
from bigbird_dna.genome.assembly import (
    ALIAS_HINT,
    CUSTOM,
    Assembly,
    contig_finder,
    load_assembly,
    open_assembly,
    shown,
)
from bigbird_dna.genome.contig_records import ContigFragments, flat_format, stream_flat_file
from bigbird_dna.genome.fasta import Chunk, scan_fasta, stream_fasta
from bigbird_dna.genome.fasta_index import FastaIndex, Identity, index_fasta, recall, remember, settle
from bigbird_dna.genome.sequence import Interval, clean, reverse_complement
from bigbird_dna.genome.splits import find_named_region, fitting_contigs

FAULTS = (OSError, ValueError, LookupError, ArithmeticError, RuntimeError, struct.error, zlib.error)
"""What pyfaidx raises for files that are damaged."""


class _BgzfBlock(pyfaidx.BgzfBlock):  # type: ignore[misc]  # its base has no types
    """A block of a bgzip file that begins with its own first byte.

    By pyfaidx's own comparison that byte is looked for at the end of the block before, where it has
    no address if that block holds the 65,536 bytes that the format allows.
    """

    __slots__ = ()

    def __lt__(self, offset: int) -> bool:
        return bool(self.ustart <= offset)


def open_indexed(path: Path, index: FastaIndex) -> Any:
    """The file with just this index, whatever lies beside it: pyfaidx gets it as files, and by a name of the
    ending that it tells compression by."""
    bgzip = index.blocks is not None
    with scratch_directory() as directory, warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of an index that is older than its file
        name = directory / ("reference.fa.gz" if bgzip else "reference.fa")
        name.symlink_to(path.absolute())
        indices = [directory / f"index{place}" for place in range(1 + bgzip)]
        for place, content in zip(indices, index.contents(), strict=True):
            place.write_bytes(content)
        try:
            file = pyfaidx.Faidx(
                name,
                indexname=indices[0],
                gzi_indexname=indices[1] if bgzip else None,
                as_raw=True,
                rebuild=False,
                build_index=False,
            )
        except FAULTS as error:
            raise DataError(f"{path}: can't be opened: {error_text(error)}") from None
    if bgzip:
        file.gzi_index = [_BgzfBlock(*block) for block in file.gzi_index]
    return file


_LINE_BASES = 60
_CHUNK = 1 << 20  # bp read at a time: the reader's cost for one chunk goes with its square
_LARGE = 1 << 28  # bytes of a file whose reading takes long enough to say so
_ATTEMPTS = 3  # at a file that something changes again and again

_BGZIP_MODE = "wb4"  # level 4 of 9: five times as fast as the default, 4 % larger


class Prepared(NamedTuple):
    """What `prepare_reference` wrote."""

    contigs: dict[str, int]  # name → length in bp, in file order
    unknown: int  # N in the output, in bp
    ambiguous: int  # how many of them were IUPAC codes


class Reference:
    """The sequence of any interval of a FASTA file, plain or bgzip; plain gzip has no random access.

    The whole file is read and checked once, and where its bases are is remembered for as long as nothing
    about the file changes (see `fasta_index`); an index beside it isn't trusted, and is made for other
    programs where it is missing or wrong. All bases are of one content: if the file changes while it is open,
    the next `fetch` checks it anew. Objects can be pickled, and used by several processes and threads.
    `aliases` is a file of contigs' other names, for those who look up `names`: `fetch` takes the FASTA's.
    """

    def __init__(self, path: Path, aliases: Path | None = None) -> None:
        self.aliases = aliases
        self.names = None if aliases is None else open_assembly(CUSTOM, aliases)
        """The names of contigs that the alias file tells."""
        self.path = Path(path)
        self._index: FastaIndex | None = None  # of the content that all bases are of
        self._identity: Identity | None = None  # of the file when it was found to have that content
        self._lock = threading.Lock()
        self._file: Any = None
        self._process = 0  # that opened it
        with self._lock:
            self.contigs: dict[str, int] = {name: row.length for name, row in self._open().rows.items()}
        """Name → length in bp, in file order."""

    def fetch(self, interval: Interval) -> str:
        """The bases of an interval, in A C G T N; on "-" the reverse complement. Positions outside the contig
        are N.
        """
        length = self.contigs.get(interval.contig)
        if length is None:
            raise DataError(f"{self.path}: no contig {interval.contig!r} in the reference")
        start = min(max(interval.start, 0), length)
        end = min(max(interval.end, 0), length)
        raw = self._letters(interval.contig, start, end)
        if len(raw) != end - start:
            raise DataError(f"{self.path}: can't read {interval}: the file is damaged")
        where = f"{self.path}: {interval.contig}:{start}-{end}"
        sequence = clean(raw, where)
        before = min(max(-interval.start, 0), len(interval))
        sequence = ("N" * before + sequence).ljust(len(interval), "N")
        return reverse_complement(sequence) if interval.strand == "-" else sequence

    def close(self) -> None:
        """Close the file; the next `prepare fetch` opens it again."""
        with self._lock:
            self._close()

    def __enter__(self) -> "Reference":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_lock": None, "_file": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=threading.Lock())

    def _letters(self, contig: str, start: int, end: int) -> str:
        """Letters of a contig as the file has them."""
        with self._lock:
            for _ in range(_ATTEMPTS):
                self._open()
                fault: Exception | None = None
                try:
                    raw = "".join(
                        self._file.fetch(contig, first + 1, min(first + _CHUNK, end))
                        for first in range(start, end, _CHUNK)
                    )
                except FAULTS as error:
                    # It may take the block that it failed to unpack for the one before from now on.
                    fault = error
                # Looked at after reading: what was there before the last change is left out as well.
                unchanged = self._is_unchanged()
                if fault is not None or not unchanged:
                    self._close()
                if unchanged:
                    if fault is None:
                        return raw
                    what = error_text(fault)
                    raise DataError(f"{self.path}: can't read {contig}:{start}-{end}: {what}") from None
        raise DataError(f"{self.path}: changes again and again while it is read")

    def _is_unchanged(self) -> bool:
        try:
            return Identity.of(self.path.stat()) == self._identity
        except OSError:
            return False

    def _close(self) -> None:
        if self._file is not None and self._process == os.getpid():
            self._file.close()
        self._file = None

    def _open(self) -> FastaIndex:
        """Open the file if it isn't, refusing another content than before; the index of its content."""
        # A file handle inherited by fork shares its position with the parent: every process opens
        # its own.
        if self._file is None or self._process != os.getpid():
            handle = open_handle(self.path)
            try:
                identity = Identity.of(os.fstat(handle))
                if identity != self._identity:
                    index = recall(self.path, identity) or _prove(self.path, handle)
                    if self._index is not None and self._index.sha256 != index.sha256:
                        raise DataError(f"{self.path}: was changed while it was in use: start again")
                    self._index, self._identity = index, identity
                    _write_index(self.path, index)
            finally:
                os.close(handle)
            assert self._index is not None
            self._file = open_indexed(self.path, self._index)
            self._process = os.getpid()
        assert self._index is not None
        return self._index


def _prove(path: Path, handle: int) -> FastaIndex:
    """Read and check a file whole, and remember its index where a further change would show."""
    identity = Identity.of(os.fstat(handle))
    is_settled = settle(identity)
    kind = compression_of(path, os.pread(handle, 18, 0))
    if kind == "bgzip":
        require_end_block(path)
    unfit = "plain gzip" if kind == "gzip" else flat_format(path)
    if unfit is not None:
        raise DataError(
            f"{path}: {unfit} has no random access; write an indexed copy with "
            f"`bigbird-dna prepare reference {path} -o reference.fa.gz`"
        )
    if os.fstat(handle).st_size >= _LARGE:
        log(f"reading {path} to its end, to know where its bases are")
    with os.fdopen(handle, "rb", closefd=False) as stream:
        index = index_fasta(path, stream, kind == "bgzip")
    if Identity.of(os.fstat(handle)) != identity:
        raise DataError(f"{path}: was changed while it was read")
    if is_settled:
        remember(path, identity, index)
    return index


def _write_index(path: Path, index: FastaIndex) -> None:
    """Make the index beside a file right, where that directory can be written to."""
    wrong = index.wrong_files(path)
    stale = any(place.exists() for place, _ in wrong)
    if not wrong:
        return
    try:
        if not os.access(path.parent, os.W_OK):
            raise PermissionError
        for place, content in wrong:
            with atomic_path(place) as temporary:
                temporary.write_bytes(content)
    except (OSError, DataError, UsageError):
        if stale:
            log(
                f"warning: the index beside {path} is not of this file; other programs would read wrong bases"
            )
        return
    log(f"the index beside {path} was not of this file: made anew" if stale else f"indexing {path}")


def prepare_reference(source: Path, output: Path, assembly: Assembly | None = None) -> Prepared:
    """Check a FASTA, GenBank or EMBL file and write it as bgzip FASTA with its indices, whole or not at all.

    A record is named by its header's first word, or as `stream_flat_file` says; fragments of a contig are put
    at their position in it (see `ContigFragments`). The sequence is written in A C G T N, in lines of 60.
    Contigs must have the lengths of the assembly (see `Assembly.check_lengths`); None: they are free.
    """
    source = Path(source)
    flat = flat_format(source)
    # A multiple of the line length, so that every chunk starts a line.
    size = 60_000 * _LINE_BASES
    fragments = ContigFragments(str(source), assembly or load_assembly(CUSTOM))
    if flat is None:
        chunks = fragments.place(stream_fasta(source, size), size, lambda: scan_fasta(source))
    else:
        chunks = stream_flat_file(source, flat, size)
    shown = progress(chunks, f"preparing {source.name}")
    prepared = _write_chunks(output, shown, assembly, str(source), fragments.contigs)
    for contig, bases in fragments.contigs.items():
        where = "each at its position, and N elsewhere"
        log(f"{source}: contig {contig!r} has {bases:,} bp in fragments, {where}")
    return prepared


def write_fasta(path: Path, records: Iterable[tuple[str, str]]) -> None:
    """Write (name, sequence) pairs as `prepare_reference` does, whole or not at all."""
    chunks = (Chunk(name, 0, sequence, True) for name, sequence in records)
    _write_chunks(path, chunks)


def _write_chunks(
    path: Path,
    chunks: Iterable[Chunk],
    assembly: Assembly | None = None,
    where: str = "",
    partial: Collection[str] = (),
) -> Prepared:
    """Write chunks, and check their contigs against the assembly before anything takes its place.

    Of the contigs `partial` there is only a part.
    """
    path = Path(path)
    contigs: dict[str, int] = {}
    unknown = ambiguous = 0
    with (
        atomic_path(path) as fasta,
        atomic_path(path.with_name(f"{path.name}.gzi")) as gzi,
        atomic_path(path.with_name(f"{path.name}.fai")) as fai,
    ):
        with bgzip_writer(fasta, _BGZIP_MODE) as stream:
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
            assembly.check_lengths(contigs, where, partial)
        with fasta.open("rb") as written:
            index = index_fasta(path, written, bgzip=True)
            read = Identity.of(os.fstat(written.fileno()))
        for place, content in zip((fai, gzi), index.contents(), strict=True):
            place.write_bytes(content)
    found = Identity.of(path.stat())
    if settle(found) and found[:-1] == read[:-1]:  # taking its place was a change
        remember(path, found, index)
    return Prepared(contigs, unknown, ambiguous)


_SEGMENT = 1_000_000  # bp looked at together


def extract_contig(
    reference: Path,
    contig: str,
    output: Path,
    assembly: Assembly,
    megabases: float | None = None,
    but: Sequence[str] = (),
) -> None:
    """Write one contig, or a part of it so that coordinates stay its own, as bgzip FASTA with indices.

    `contig` is any name that `assembly` knows; or a region of it, before which N stands; or a shell pattern
    that fits a contig: the first such one that `but` doesn't name. `megabases` is how much of its start, from
    its first base that isn't N on.
    """
    if megabases is not None and not 0 < megabases < math.inf:
        raise UsageError(f"--megabases {megabases:g}: must be above 0")
    if reference.exists() and output.exists() and output.samefile(reference):
        raise UsageError(f"{output}: is the input")
    with Reference(reference) as genome:
        place = find_named_region(contig, genome.contigs, assembly, "extract")
        if place is None:
            passed = {other for text in but for other in fitting_contigs(text, genome.contigs, assembly)}
            fitting = fitting_contigs(contig, genome.contigs, assembly)
            name = next((other for other in fitting if other not in passed), None)
            place = None if name is None else Interval(name, 0, genome.contigs[name])
        if place is None:
            raise DataError(
                f"{reference}: no contig {contig!r} in the reference, which has {shown(genome.contigs)} "
                f"(names are looked up in {assembly.name}); {ALIAS_HINT}"
            )
        end = place.end
        if megabases is not None:
            end = min(end, _first_base(genome, place) + max(1, round(megabases * 1e6)))
        known = genome.fetch(Interval(place.contig, place.start, end))
        write_fasta(output, [(place.contig, "N" * place.start + known)])


def _first_base(genome: Reference, place: Interval) -> int:
    """Where a place begins that may have N in front, as before a fragment; its start if it is all N."""
    for start in range(place.start, place.end, _SEGMENT):
        known = genome.fetch(Interval(place.contig, start, min(start + _SEGMENT, place.end))).lstrip("N")
        if known:
            return min(start + _SEGMENT, place.end) - len(known)
    return place.start


def find_contigs(names: Iterable[str], reference: Reference) -> list[str]:
    """A reference's own names of contigs that are asked for, each once, by any names that are known.

    `DataError` names the first that it hasn't got.
    """
    find = contig_finder(reference.contigs, reference.names)
    found = {}
    for name in names:
        own = find(name)
        if own is None:
            raise DataError(f"{reference.path}: has no contig {name!r}; it has {shown(reference.contigs)}")
        found[own] = name
    return [*found]
