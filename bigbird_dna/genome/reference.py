"""Read bases of a reference genome by contig and interval, and write the reference as an indexed file."""

import math
import os
import struct
import threading
import warnings
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pyfaidx

from bigbird_dna.config import GenomeConfig
from bigbird_dna.console import log, progress
from bigbird_dna.disk.atomic import (
    atomic_path,
    bgzip_writer,
    is_special,
    link_target,
    scratch_directory,
)
from bigbird_dna.disk.compression import compression_of, open_handle, require_end_block
from bigbird_dna.errors import (
    ConfigError,
    DataError,
    UsageError,
    error_text,
    meant,
    one_of,
)
from bigbird_dna.genome.assembly import (
    ALIAS_HINT,
    CUSTOM,
    Assembly,
    contig_finder,
    load_assembly,
    open_assembly,
    shown,
)
from bigbird_dna.genome.contig_records import (
    ContigFragments,
    flat_format,
    stream_flat_file,
)
from bigbird_dna.genome.fasta import Chunk, scan_fasta, stream_fasta
from bigbird_dna.genome.fasta_index import (
    FastaIndex,
    Identity,
    index_fasta,
    recall,
    remember,
    settle,
)
from bigbird_dna.genome.sequence import Interval, clean, reverse_complement
from bigbird_dna.genome.splits import find_named, find_named_region, fitting_contigs

FAULTS = (
    OSError,
    ValueError,
    LookupError,
    ArithmeticError,
    RuntimeError,
    struct.error,
    zlib.error,
)
"""Exceptions that pyfaidx raises for damaged files."""


class _BgzfBlock(pyfaidx.BgzfBlock):  # type: ignore[misc]  # its base has no types
    """A block of a bgzip file whose range includes its own first byte.

    pyfaidx's own comparison assigns that byte to the end of the previous block. The byte has no address in
    that block if the block contains 65,536 bytes, the maximum of the format.
    """

    __slots__ = ()

    def __lt__(self, offset: int) -> bool:
        return bool(self.ustart <= offset)


def open_indexed(path: Path, index: FastaIndex) -> Any:
    """Open the file with the given index and ignore index files next to it.

    pyfaidx receives temporary index files and a link to the file, whose suffix specifies the compression.
    """
    bgzip = index.blocks is not None
    with scratch_directory() as directory, warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", RuntimeWarning
        )  # about an index that is older than its file
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
            raise DataError(
                f"{path}: cannot open the file: {error_text(error)}"
            ) from None
    if bgzip:
        file.gzi_index = [_BgzfBlock(*block) for block in file.gzi_index]
    return file


_LINE_BASES = 60
_CHUNK = (
    1 << 20
)  # bp per read: pyfaidx's cost per read is quadratic in the number of bp
_LARGE = 1 << 28  # bytes: reading a larger file takes long enough for a log line
_ATTEMPTS = 3  # to read a file that changes while it is read

_BGZIP_MODE = "wb4"  # compression level 4 of 9: five times as fast as the default, files 4 % larger


class Prepared(NamedTuple):
    """Contigs and counts of the file that `prepare_reference` wrote."""

    contigs: dict[str, int]  # name → length in bp, in file order
    unknown: int  # N in the output, in bp
    ambiguous: int  # number of these that were IUPAC codes in the input


class Reference:
    """Sequence of any interval of a FASTA file, plain or bgzip; plain gzip does not support random access.

    The whole file is read and checked once. Its index is cached until the file changes (see `fasta_index`).
    An index file next to it is not trusted; it is written for other programs where it is missing or wrong.
    All bases come from the same content: if the file changes while it is open, the next `fetch` checks it
    again. Objects can be pickled, and several processes and threads can use them. `aliases` is a file of
    alternative contig names for callers that look up `names`; `fetch` accepts only the names in the FASTA.
    """

    def __init__(self, path: Path, aliases: Path | None = None) -> None:
        self.aliases = aliases
        self.names = None if aliases is None else open_assembly(CUSTOM, aliases)
        """Contig names from the alias file; None without one."""
        self.path = Path(path)
        self._index: FastaIndex | None = None  # of the content that all bases come from
        self._identity: Identity | None = (
            None  # of the file when its content was last checked
        )
        self._lock = threading.Lock()
        self._file: Any = None
        self._process = 0  # id of the process that opened the file
        with self._lock:
            self.contigs: dict[str, int] = {
                name: row.length for name, row in self._open().rows.items()
            }
        """Name → length in bp, in file order."""

    def fetch(self, interval: Interval) -> str:
        """Return the bases of an interval in A C G T N; on "-" the reverse complement.

        Positions outside the contig are N.
        """
        length = self.contigs.get(interval.contig)
        if length is None:
            near = meant(interval.contig, self.contigs)
            raise DataError(
                f"{self.path}: the reference has no contig {interval.contig!r}{near}"
            )
        start = min(max(interval.start, 0), length)
        end = min(max(interval.end, 0), length)
        raw = self._letters(interval.contig, start, end)
        if len(raw) != end - start:
            raise DataError(f"{self.path}: cannot read {interval}: the file is damaged")
        where = f"{self.path}: {interval.contig}:{start}-{end}"
        sequence = clean(raw, where)
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

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_lock": None, "_file": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=threading.Lock())

    def _letters(self, contig: str, start: int, end: int) -> str:
        """Return the bases of a contig as they are written in the file."""
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
                    # pyfaidx may from now on confuse the block it failed to unpack with the previous one.
                    fault = error
                # Checked after reading, so that bases read before a change are discarded as well.
                unchanged = self._is_unchanged()
                if fault is not None or not unchanged:
                    self._close()
                if unchanged:
                    if fault is None:
                        return raw
                    what = error_text(fault)
                    raise DataError(
                        f"{self.path}: cannot read {contig}:{start}-{end}: {what}"
                    ) from None
        raise DataError(f"{self.path}: the file changes repeatedly while it is read")

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
        """Open the file if it is closed and return its index; `DataError` if its content changed."""
        # A file handle inherited by fork has the parent's file position, so each process opens its own.
        if self._file is None or self._process != os.getpid():
            handle = open_handle(self.path)
            try:
                identity = Identity.of(os.fstat(handle))
                if identity != self._identity:
                    index = recall(self.path, identity) or _prove(self.path, handle)
                    if self._index is not None and self._index.sha256 != index.sha256:
                        raise DataError(
                            f"{self.path}: the file was changed while it was in use; start again"
                        )
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
    """Read and check a whole file; cache its index if a later change would be detected."""
    identity = Identity.of(os.fstat(handle))
    is_settled = settle(identity)
    kind = compression_of(path, os.pread(handle, 18, 0))
    if kind == "bgzip":
        require_end_block(path)
    unfit = "plain gzip" if kind == "gzip" else flat_format(path)
    if unfit is not None:
        raise DataError(
            f"{path}: {unfit} does not support random access; write an indexed copy with "
            f"`bigbird-dna prepare reference {path} -o reference.fa.gz`"
        )
    if os.fstat(handle).st_size >= _LARGE:
        log(f"reading all of {path} to index it")
    with os.fdopen(handle, "rb", closefd=False) as stream:
        index = index_fasta(path, stream, kind == "bgzip")
    if Identity.of(os.fstat(handle)) != identity:
        raise DataError(f"{path}: the file was changed while it was read")
    if is_settled:
        remember(path, identity, index)
    return index


def _write_index(path: Path, index: FastaIndex) -> None:
    """Write or correct the index files next to a file, if its directory is writable."""
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
                f"warning: the index next to {path} is not of this file; other programs read wrong bases"
            )
        return
    log(
        f"the index next to {path} was not of this file; rewritten"
        if stale
        else f"indexing {path}"
    )


def prepare_reference(
    source: Path, output: Path, assembly: Assembly | None = None
) -> Prepared:
    """Check a FASTA, GenBank or EMBL file and write it atomically as bgzip FASTA with its indices.

    A record's name is the first word of its header, or comes from `stream_flat_file`. Fragments of a contig
    are written at their position in the contig (see `ContigFragments`). The sequence is written in A C G T N,
    in lines of 60. Contigs must have the assembly's lengths (`Assembly.check_lengths`); None accepts any.
    """
    source = Path(source)
    flat = flat_format(source)
    # A multiple of the line length, so that every chunk starts on a new line.
    size = 60_000 * _LINE_BASES
    fragments = ContigFragments(str(source), assembly or load_assembly(CUSTOM))
    if flat is None:
        chunks = fragments.place(
            stream_fasta(source, size), size, lambda: scan_fasta(source)
        )
    else:
        chunks = stream_flat_file(source, flat, size)
    shown = progress(chunks, f"preparing {source.name}")
    prepared = _write_chunks(output, shown, assembly, str(source), fragments.contigs)
    for contig, bases in fragments.contigs.items():
        log(f"{source}: contig {contig!r} has {bases:,} bp in fragments, N elsewhere")
    return prepared


def write_fasta(path: Path, records: Iterable[tuple[str, str]]) -> None:
    """Write (name, sequence) pairs atomically in the format of `prepare_reference`."""
    chunks = (Chunk(name, 0, sequence, True) for name, sequence in records)
    _write_chunks(path, chunks)


def _write_chunks(
    path: Path,
    chunks: Iterable[Chunk],
    assembly: Assembly | None = None,
    where: str = "",
    partial: Collection[str] = (),
) -> Prepared:
    """Write chunks, and check their contigs against the assembly before the output is replaced.

    `partial` lists the contigs of which the chunks contain only a part.
    """
    path = Path(path)
    if is_special(path):
        raise UsageError(
            f"{path}: must be a regular file, because its index is written next to it"
        )
    contigs: dict[str, int] = {}
    unknown = ambiguous = 0
    # Programs look for the index of a link next to the link, or next to the file that it leads to.
    places = dict.fromkeys((path, link_target(path)))
    with ExitStack() as outputs:
        fasta, *indices = (
            outputs.enter_context(atomic_path(one))
            for one in (
                path,
                *(
                    Path(f"{place}{end}")
                    for place in places
                    for end in (".fai", ".gzi")
                ),
            )
        )
        with bgzip_writer(fasta, _BGZIP_MODE) as stream:
            for chunk in chunks:
                text = chunk.sequence
                contigs[chunk.contig] = chunk.start + len(text)
                unknown += text.count("N")
                ambiguous += chunk.ambiguous
                if chunk.start == 0:
                    stream.write(f">{chunk.contig}\n".encode())
                lines = (
                    text[i : i + _LINE_BASES] for i in range(0, len(text), _LINE_BASES)
                )
                stream.write(("\n".join(lines) + "\n").encode())
        if assembly is not None:
            assembly.check_lengths(contigs, where, partial)
        with fasta.open("rb") as written:
            index = index_fasta(path, written, bgzip=True)
            read = Identity.of(os.fstat(written.fileno()))
        for place, content in zip(
            indices, [*index.contents()] * len(places), strict=True
        ):
            place.write_bytes(content)
    found = Identity.of(path.stat())
    if (
        settle(found) and found[:-1] == read[:-1]
    ):  # the rename changed the time of the last status change
        remember(path, found, index)
    return Prepared(contigs, unknown, ambiguous)


_SEGMENT = 1_000_000  # bp searched at a time


def extract_contig(
    reference: Path,
    contig: str,
    output: Path,
    assembly: Assembly,
    megabases: float | None = None,
    but: Sequence[str] = (),
) -> None:
    """Write one contig, or a part of it at unchanged coordinates, as bgzip FASTA with indices.

    `contig` is any name in `assembly`, a region (preceded by N in the output), or a shell pattern. A pattern
    selects the first matching contig that `but` does not name. `megabases` limits the output to that length,
    counted from the first base that is not N.
    """
    if megabases is not None and not 0 < megabases < math.inf:
        raise UsageError(f"--megabases {megabases:g}: must be above 0")
    _check_not_input(output, reference)
    with Reference(reference) as genome:
        place = find_named_region(contig, genome.contigs, assembly, "extract")
        if place is None:
            passed = {
                other
                for text in but
                for other in fitting_contigs(text, genome.contigs, assembly)
            }
            fitting = fitting_contigs(contig, genome.contigs, assembly)
            name = next((other for other in fitting if other not in passed), None)
            place = None if name is None else Interval(name, 0, genome.contigs[name])
        if place is None:
            raise DataError(
                f"{reference}: the reference has no contig {contig!r}; it has {shown(genome.contigs)} "
                f"(names are looked up in {assembly.name}); {ALIAS_HINT}{meant(contig, genome.contigs)}"
            )
        end = place.end
        if megabases is not None:
            end = min(end, _first_base(genome, place) + max(1, round(megabases * 1e6)))
        known = genome.fetch(Interval(place.contig, place.start, end))
        write_fasta(output, [(place.contig, "N" * place.start + known)])


def _check_not_input(output: Path, reference: Path) -> None:
    if reference.exists() and output.exists() and output.samefile(reference):
        raise UsageError(f"{output}: would overwrite the input file")


def extract_split(
    reference: Path, config: GenomeConfig, split: str, output: Path, assembly: Assembly
) -> None:
    """Write the held-out contigs and regions of a split at unchanged coordinates, as bgzip FASTA with
    indices. Other bases of their contigs are N, or left out at the end."""
    _check_not_input(output, reference)
    regions: defaultdict[str, list[Interval]] = defaultdict(list)
    with Reference(reference) as genome:
        for named in find_named(config, genome.contigs, assembly):
            if named.kind == split:
                regions[named.interval.contig].append(named.interval)
        if not regions:
            raise ConfigError(f"genome.{split} needs at least one contig or region")
        write_fasta(
            output,
            ((contig, _only(genome, contig, own)) for contig, own in regions.items()),
        )


def _only(genome: Reference, contig: str, regions: Sequence[Interval]) -> str:
    """Return the sequence of a contig up to the end of the last region, with N between regions."""
    text, end = "", 0
    for region in sorted(regions):
        start = max(region.start, end)  # regions of a split may overlap
        if start < region.end:
            text += "N" * (start - end) + genome.fetch(
                Interval(contig, start, region.end)
            )
            end = region.end
    return text


def _first_base(genome: Reference, place: Interval) -> int:
    """Return the position of the first base that is not N; the start if all are N."""
    for start in range(place.start, place.end, _SEGMENT):
        known = genome.fetch(
            Interval(place.contig, start, min(start + _SEGMENT, place.end))
        ).lstrip("N")
        if known:
            return min(start + _SEGMENT, place.end) - len(known)
    return place.start


def find_contigs(names: Iterable[str], reference: Reference) -> list[str]:
    """Return the reference's contigs for the given names or aliases, each once.

    `DataError` names the first name without a contig.
    """
    find = contig_finder(reference.contigs, reference.names)
    found = {}
    for name in names:
        own = find(name)
        if own is None:
            raise DataError(
                f"{reference.path}: no contig {name!r}: {one_of(name, reference.contigs)}"
            )
        found[own] = name
    return [*found]
