"""Read bases of a reference genome by contig and interval, and write the reference as an indexed file."""

import hashlib
import math
import os
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from bigbird_dna.genome.fasta import (
    flat_format,
    read_fasta,
    read_flat_file,
    scan_fasta,
)
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
        self.aliases = aliases
        self.names = None if aliases is None else open_assembly(CUSTOM, aliases)
        """Contig names from the alias file; None without one."""
        self.path = Path(path)
        self._lock = threading.Lock()
        self._blocks: dict[tuple[str, int], str] = {}  # the last used at the end
        self._whole: dict[str, Letters] = {}  # contigs that `windows` has read
        self._file: Any = None
        file = self._open()
        self.contigs: dict[str, int] = dict(
            zip(file.references, file.lengths, strict=True)
        )
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
        with self._lock:
            if end - start > _BLOCK:
                sequence = self._read(interval.contig, start, end)
            else:
                numbers = range(start // _BLOCK, -(-end // _BLOCK))
                blocks = [self._block(interval.contig, number) for number in numbers]
                first = start // _BLOCK * _BLOCK
                sequence = "".join(blocks)[start - first : end - first]
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
            if contig not in self._whole:
                sequence = self.fetch(Interval(contig, 0, self.contigs.get(contig, 0)))
                self._whole[contig] = np.frombuffer(sequence.encode(), np.uint8)
            bases = self._whole[contig][max(start, 0) : max(start + length, 0)]
            first = max(-start, 0)
            row[first : first + len(bases)] = bases
        return windows

    def close(self) -> None:
        """Close the file; the next `fetch` opens it again."""
        with self._lock:
            if self._file is not None:
                self._file.close()
            self._file = None

    def __enter__(self) -> "Reference":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_lock": None, "_file": None, "_blocks": {}, "_whole": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=threading.Lock())

    def _block(self, contig: str, number: int) -> str:
        """Return a block of a contig in A C G T N; the last ones read are kept.

        HTSlib unpacks 64 kB of a bgzip file for each read, and callers read many windows of the same bases.
        """
        block = self._blocks.pop((contig, number), None)
        if block is None:
            start = number * _BLOCK
            block = self._read(contig, start, min(start + _BLOCK, self.contigs[contig]))
            if len(self._blocks) == _MOST_BLOCKS:
                self._blocks.pop(next(iter(self._blocks)))
        self._blocks[contig, number] = block
        return block

    def _read(self, contig: str, start: int, end: int) -> str:
        where = f"{self.path}: {contig}:{start}-{end}"
        try:
            with quiet_htslib():
                raw = self._open().fetch(contig, start, end)
        except (OSError, ValueError, LookupError) as error:
            raise DataError(f"{where}: cannot be read: {error_text(error)}") from None
        if len(raw) != end - start:
            raise DataError(f"{where}: cannot be read: the file is damaged")
        return clean(raw, where)

    def _open(self) -> pysam.FastaFile:
        if self._file is None:
            self._file = open_fasta(self.path)
        file: pysam.FastaFile = self._file
        return file


def open_fasta(path: Path) -> pysam.FastaFile:
    """Open a FASTA file for random access, and index it first if it has no valid index.

    `DataError`: the file is missing, truncated or not FASTA, or in a format without random access.
    """
    kind = compression(path)
    unfit = "plain gzip" if kind == "gzip" else flat_format(path)
    if unfit is not None:
        raise DataError(
            f"{path}: {unfit} does not support random access; write an indexed copy with "
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
    """Check a FASTA, GenBank or EMBL file and write it atomically as bgzip FASTA with its indices.

    A record's name is the first word of its header, or comes from `read_flat_file`. The sequence is written
    in A C G T N, in lines of 60. Contigs must have the assembly's lengths (`Assembly.check_lengths`); None
    accepts any. `UsageError` if the output is the source.
    """
    source = Path(source)
    check_output(output, [source])
    flat = flat_format(source)
    records = read_fasta(source) if flat is None else read_flat_file(source, flat)
    return _write_records(
        output, progress(records, f"preparing {source.name}"), assembly, str(source)
    )


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

        write_fasta(output, _masked_contigs(genome, regions, megabases))


def _masked_contigs(
    genome: Reference, regions: Mapping[str, list[Interval]], megabases: float | None
) -> Iterator[tuple[str, str]]:
    """Yield name and sequence of contigs up to their last region, with N between regions."""
    for contig, intervals in regions.items():
        text = ""
        for interval in sorted(intervals):
            start = max(interval.start, len(text))  # regions may overlap
            if start < interval.end:
                bases = genome.fetch(Interval(contig, start, interval.end))
                text += "N" * (start - len(text)) + bases
        if megabases is None:
            yield contig, text
        else:
            first = len(text) - len(text.lstrip("N"))
            yield contig, text[: first + max(1, round(megabases * 1e6))]
            return
