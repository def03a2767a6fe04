"""Read bases of a reference genome by contig and interval, and write the reference as an indexed file."""

import hashlib
import math
import os
import threading
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pysam
from numpy.typing import NDArray

from bigbird_dna.config.data import GenomeConfig
from bigbird_dna.console import log, progress
from bigbird_dna.disk.atomic import (
    atomic_path,
    bgzip_writer,
    quiet_htslib,
)
from bigbird_dna.disk.compression import compression, require_end_block
from bigbird_dna.disk.outputs import check_output
from bigbird_dna.disk.user_cache import cache_directory
from bigbird_dna.errors import (
    ConfigError,
    DataError,
    UsageError,
    error_text,
    meant,
)
from bigbird_dna.genome.assembly import CUSTOM, Assembly, open_assembly
from bigbird_dna.genome.fasta import read_fasta, scan_fasta
from bigbird_dna.genome.sequence import (
    Interval,
    clean,
    clean_bytes,
    count_ambiguous_bytes,
    reverse_complement,
)
from bigbird_dna.genome.splits import find_named

_LINE_BASES = 60
_CHUNK_BASES = 60_000 * _LINE_BASES  # so that every chunk starts on a new line
_BLOCK = 1 << 14  # bp
_MOST_BLOCKS = 256  # in memory
_BGZIP_MODE = "wb4"  # compression level 4 of 9: five times as fast as the default, files 4 % larger


Letters = NDArray[np.uint8]
"""Bases as the bytes of their letters, A C G T N."""
_COMPLEMENT = np.frombuffer(bytes.maketrans(b"ACGT", b"TGCA"), np.uint8)


def complement_windows(letters: Letters) -> Letters:
    """Return the reverse complement of windows (n, length)."""
    return _COMPLEMENT[letters[:, ::-1]]


def window_texts(letters: Letters) -> list[str]:
    """Return windows (n, length) as strings."""
    return [row.tobytes().decode("ascii") for row in letters]


class Prepared(NamedTuple):
    """Contigs and counts of the file that `prepare_reference` wrote."""

    contigs: dict[str, int]  # name → length in bp, in file order
    unknown: int  # N in the output, in bp
    ambiguous: int  # number of these that were IUPAC codes in the input


class Reference:
    """Sequence of any interval of a FASTA file, plain or bgzip; plain gzip does not support random access.

    The index (`.fai`, and `.gzi` for bgzip) next to the file is used unless it is missing, older than the
    file or of another file. Then the whole file is checked (`scan_fasta`) and indexed; in a directory that is
    not writable, the index is stored in the user's cache. Objects can be pickled, and several threads can use
    them. `aliases` is a file of alternative contig names for callers that look up `names`; `fetch` accepts
    only the names in the FASTA.
    """

    def __init__(self, path: Path, aliases: Path | None = None) -> None:
        self.path = Path(path)
        self.aliases = aliases
        self.names = None if aliases is None else open_assembly(CUSTOM, aliases)
        """Contig names from the alias file; None without one."""
        self._lock = threading.Lock()
        self._file = open_fasta(self.path)
        # HTSlib unpacks 64 kB of a bgzip file for each read, and callers read many windows of the same bases.
        self._block = lru_cache(_MOST_BLOCKS)(self._read_block)
        self._contig_letters: dict[str, Letters] = {}  # those that `windows` has read
        lengths = zip(self._file.references, self._file.lengths, strict=True)
        self.contigs: dict[str, int] = dict(lengths)
        """Name → length in bp, in file order."""

    def fetch(self, interval: Interval) -> str:
        """Return the bases of an interval in A C G T N; on "-" the reverse complement.

        Positions outside the contig are N.
        """
        contig = interval.contig
        length = self.contigs.get(contig)
        if length is None:
            near = meant(contig, self.contigs)
            raise DataError(
                f"{self.path}: the reference has no contig {contig!r}{near}"
            )

        start = min(max(interval.start, 0), length)
        end = min(max(interval.end, 0), length)
        if end - start > _BLOCK:
            sequence = self._read(contig, start, end)
        else:
            first = start // _BLOCK
            numbers = range(first, -(-end // _BLOCK))
            blocks = "".join([self._block(contig, number) for number in numbers])
            sequence = blocks[start - first * _BLOCK : end - first * _BLOCK]

        before = min(max(-interval.start, 0), len(interval))
        sequence = ("N" * before + sequence).ljust(len(interval), "N")
        return reverse_complement(sequence) if interval.strand == "-" else sequence

    def windows(self, contigs: list[str], starts: list[int], length: int) -> Letters:
        """Return the forward strand of n windows of `length` bp, (n, length); N outside the contig.

        A contig is kept in memory once it was read, one byte per base: training reads each base hundreds of
        times.
        """
        windows = np.full((len(contigs), length), ord("N"), np.uint8)
        for contig, start, row in zip(contigs, starts, windows, strict=True):
            if contig not in self._contig_letters:
                sequence = self.fetch(Interval(contig, 0, self.contigs.get(contig, 0)))
                letters = np.frombuffer(sequence.encode(), np.uint8)
                self._contig_letters[contig] = letters

            letters = self._contig_letters[contig]
            bases = letters[max(start, 0) : max(start + length, 0)]
            first = max(-start, 0)
            row[first : first + len(bases)] = bases

        return windows

    def __enter__(self) -> "Reference":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return Reference, (self.path, self.aliases)

    def _read_block(self, contig: str, number: int) -> str:
        start = number * _BLOCK
        return self._read(contig, start, min(start + _BLOCK, self.contigs[contig]))

    def _read(self, contig: str, start: int, end: int) -> str:
        where = f"{self.path}: {contig}:{start}-{end}"
        try:
            with self._lock, quiet_htslib():
                raw = self._file.fetch(contig, start, end)
        except (OSError, ValueError, LookupError) as error:
            raise DataError(f"{where}: cannot be read: {error_text(error)}") from None
        if len(raw) != end - start:
            raise DataError(f"{where}: cannot be read: the file is damaged")
        return clean(raw, where)


def open_fasta(path: Path) -> pysam.FastaFile:
    """Open a FASTA file for random access, and index it first if it has no valid index.

    `DataError`: the file is missing, truncated or not FASTA, or in a format without random access.
    """
    kind = compression(path)
    if kind == "gzip":
        raise DataError(
            f"{path}: plain gzip does not support random access; write an indexed copy with "
            f"`bigbird-dna prepare reference {path} -o reference.fa.gz`"
        )

    bgzip = kind == "bgzip"
    if bgzip:
        require_end_block(path)

    status = path.stat()
    key = f"{path.resolve()} {status.st_size} {status.st_mtime_ns}"
    digest = hashlib.sha256(os.fsencode(key)).hexdigest()[:32]
    cached = cache_directory() / "references" / digest
    suffixes = (".fai", ".gzi") if bgzip else (".fai",)
    for prefix in (path, cached):
        indices = [Path(f"{prefix}{suffix}") for suffix in suffixes]
        if all(
            index.is_file() and index.stat().st_mtime >= status.st_mtime
            for index in indices
        ):
            break
    else:
        scan_fasta(path)
        prefix = path
        try:
            _write_index(path, prefix, bgzip)
        except (OSError, UsageError):
            prefix = cached
            _write_index(path, prefix, bgzip)

        log(f"indexed {path}")

    try:
        with quiet_htslib():
            return pysam.FastaFile(
                str(path), f"{prefix}.fai", f"{prefix}.gzi" if bgzip else None
            )
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot open the file: {error_text(error)}") from None


def _write_index(path: Path, prefix: Path, bgzip: bool) -> None:
    """Write the index of a FASTA file to `prefix`.fai and, for bgzip, `prefix`.gzi."""
    with atomic_path(Path(f"{prefix}.fai")) as fai, quiet_htslib():
        gzi = fai.with_suffix(".gzi")
        try:
            pysam.faidx(str(path), "--fai-idx", str(fai), "--gzi-idx", str(gzi))
        except pysam.utils.SamtoolsError as error:
            raise DataError(f"{path}: cannot be indexed: {error_text(error)}") from None
        if bgzip:
            gzi.replace(f"{prefix}.gzi")


def prepare_reference(
    source: Path, output: Path, assembly: Assembly | None = None
) -> Prepared:
    """Check a FASTA file and write it atomically as bgzip FASTA with its indices.

    A record's name is the first word of its header. The sequence is written in A C G T N, in lines of 60.
    Contigs must have the assembly's lengths (`Assembly.check_lengths`); None accepts any. `UsageError` if the
    output is the source.
    """
    source = Path(source)
    check_output(output, [source])
    records = progress(read_fasta(source), f"preparing {source.name}")
    return _write_records(output, records, assembly, str(source))


def write_fasta(path: Path, records: Iterable[tuple[str, str]]) -> None:
    """Write (name, sequence) pairs atomically in the format of `prepare_reference`."""
    _write_records(path, ((name, text.encode()) for name, text in records))


def _write_records(
    path: Path,
    records: Iterable[tuple[str, bytes]],
    assembly: Assembly | None = None,
    where: str = "",
) -> Prepared:
    """Write records, and check their contigs against the assembly before the output is replaced."""
    contigs: dict[str, int] = {}
    unknown = ambiguous = 0
    with (
        atomic_path(path) as fasta,
        atomic_path(Path(f"{path}.fai")) as fai,
        atomic_path(Path(f"{path}.gzi")) as gzi,
    ):
        with bgzip_writer(fasta, _BGZIP_MODE) as stream:
            for name, letters in records:
                sequence = clean_bytes(letters)
                contigs[name] = len(sequence)
                unknown += sequence.count(b"N")
                ambiguous += count_ambiguous_bytes(letters)
                stream.write(f">{name}\n".encode())
                for first in range(0, len(sequence), _CHUNK_BASES):
                    last = min(first + _CHUNK_BASES, len(sequence))
                    lines = [
                        sequence[start : start + _LINE_BASES]
                        for start in range(first, last, _LINE_BASES)
                    ]
                    stream.write(b"\n".join(lines) + b"\n")

        if assembly is not None:
            assembly.check_lengths(contigs, where)

        with quiet_htslib():
            pysam.faidx(str(fasta), "--fai-idx", str(fai), "--gzi-idx", str(gzi))

    return Prepared(contigs, unknown, ambiguous)


def extract_regions(
    reference: Path,
    output: Path,
    assembly: Assembly,
    only: Sequence[str],
    exclude: Sequence[str] = (),
    megabases: float | None = None,
) -> None:
    """Write contigs or regions of a reference at unchanged coordinates, as bgzip FASTA with indices.

    `only` and `exclude` are entries as in the section `genome` of a configuration: names of contigs, regions
    or shell patterns. Other bases of their contigs are N, or left out at the end. With `megabases`, only the
    first contig is written, up to that length after the first base that is not N. `UsageError`: an entry is
    not on the reference.
    """
    if megabases is not None and not 0 < megabases < math.inf:
        raise UsageError(f"--megabases {megabases:g}: must be above 0")

    check_output(output, [reference])
    entries = GenomeConfig(test=tuple(only), exclude=tuple(exclude))
    regions: defaultdict[str, list[Interval]] = defaultdict(list)
    records = []
    with Reference(reference) as genome:
        try:
            named = find_named(entries, genome.contigs, assembly)
        except ConfigError as error:
            text = str(error).replace("genome.test", "--only")
            raise UsageError(text.replace("genome.exclude", "--exclude")) from None

        for region in named:
            if region.kind == "test":
                regions[region.interval.contig].append(region.interval)

        if not regions:
            raise UsageError("--only: all contigs that fit are excluded")

        for contig, intervals in regions.items():
            text = ""
            for interval in sorted(intervals):
                start = max(interval.start, len(text))  # regions may overlap
                if start < interval.end:
                    bases = genome.fetch(Interval(contig, start, interval.end))
                    text += "N" * (start - len(text)) + bases

            if megabases is not None:
                first = len(text) - len(text.lstrip("N"))
                text = text[: first + max(1, round(megabases * 1e6))]

            records.append((contig, text))
            if megabases is not None:
                break

        write_fasta(output, records)
