"""Regions, sites and variants as a Python user gives them: a file, a list or a table."""

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from bigbird_dna.errors import DataError, UsageError, shortened
from bigbird_dna.genome.chromatin.peaks import read_bed, strand_column
from bigbird_dna.genome.fields import FURTHEST, check_name, whole_number
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.region_filter import warn_of_absent
from bigbird_dna.genome.sequence import OPPOSITE, Strand
from bigbird_dna.genome.variants import contig_finder
from bigbird_dna.genome.vcf import VcfRecord, open_vcf
from bigbird_dna.tasks.chromatin.regions import BEYOND, UNKNOWN

Regions = str | os.PathLike[str] | pd.DataFrame | Sequence[Sequence[Any]]
"""A BED file; a table with the columns `contig` (or `chrom`), `start`, `end` and maybe `strand` and `name`;
or a list of (contig, start, end) or (contig, start, end, strand). 0-based, half-open."""

Variants = str | os.PathLike[str] | pd.DataFrame | Sequence[Any]
"""A VCF file; a table with the columns `contig` (or `chrom`), `position` (or `pos`), `ref` and `alt`; or a
list of texts "chr1:12345:A:G" or of (contig, position, ref, alt). Positions are the VCF's, from 1 on."""

_VARIANT = re.compile(r"(?P<contig>\S+):(?P<position>\d+):(?P<ref>[^:\s]+):(?P<alt>[^:\s]+)", re.ASCII)
_COLUMNS = {"chrom": "contig", "#chrom": "contig", "#contig": "contig", "pos": "position"}


class Region(NamedTuple):
    """A stretch of a contig, by the reference's name if that has it; the strand is None if none was given.

    `fault` is "", or the note of a region that isn't on the reference.
    """

    contig: str
    start: int
    end: int
    name: str
    strand: Strand | None
    fault: str


class Rows(NamedTuple):
    """What was given, row by row, and the labels that the rows of a result get."""

    rows: list[Any]
    labels: "pd.Index[Any]"


@contextmanager
def opened(
    reference: Reference | str | os.PathLike[str], aliases: str | os.PathLike[str] | None = None
) -> Iterator[Reference]:
    """A reference that is open already, or that of a FASTA file, which is closed in the end.

    `aliases` is the file's alias file; one that is open already has its own.
    """
    if isinstance(reference, Reference):
        if aliases is not None:
            raise UsageError("aliases: the reference is open already, with its own: give its file")
        yield reference
        return
    names = None if aliases is None else _path(aliases, "aliases")
    with Reference(_path(reference, "reference"), names) as genome:
        yield genome


def read_regions(given: Regions, reference: Reference) -> Rows:
    """Regions, with the reference's names of their contigs; one that isn't on it has a fault.

    Raises
    ------
    UsageError, DataError
        What was given is not regions; the message has the line of the file, or the index in the list or
        table. Or the reference has none of their contigs.
    """
    find = contig_finder(reference.contigs, reference.names)
    found = []
    rows, labels = _bed_rows(given) if isinstance(given, str | os.PathLike) else _region_rows(given)
    for where, fields in rows:
        name, start, end, strand, label = fields
        contig = find(name)
        if not 0 <= start < end:
            raise DataError(f"{where}: start {start} and end {end} are not those of a region")
        fault = UNKNOWN if contig is None else BEYOND if end > reference.contigs[contig] else ""
        contig = contig or name
        found.append(Region(contig, start, end, label or f"{contig}:{start}-{end}", strand, fault))
    if found and all(one.fault == UNKNOWN for one in found):
        raise DataError(
            f"regions: the reference has none of their contigs ({found[0].contig!r:.60}); it has "
            f"{', '.join(list(reference.contigs)[:3])} …"
        )
    return Rows(found, pd.RangeIndex(len(found)) if labels is None else labels)


def site_table(given: Regions, reference: Reference) -> dict[str, list[tuple[int, Strand]]]:
    """The first base of each region in transcription order, by contig; without a strand on either.

    Regions that aren't on the reference are passed over, and the log says how many. Errors are those of
    `read_regions`.
    """
    sites = defaultdict(list)
    absent: dict[str, Counter[str]] = {UNKNOWN: Counter(), BEYOND: Counter()}
    for region in read_regions(given, reference).rows:
        if region.fault:
            absent[region.fault][region.contig] += 1
            continue
        for strand in OPPOSITE if region.strand is None else (region.strand,):
            sites[region.contig].append((region.start if strand == "+" else region.end - 1, strand))
    path = given if isinstance(given, str | os.PathLike) else "sites"
    warn_of_absent(os.fspath(path), "sites", reference.path, absent[UNKNOWN], absent[BEYOND])
    return dict(sites)


@contextmanager
def read_variants(given: Variants) -> Iterator[tuple[Iterable[VcfRecord], "pd.Index[Any] | None"]]:
    """Variants as records, and the labels of the rows of a table.

    Raises
    ------
    UsageError, DataError
        What was given is not variants; the message has the line of the file, or the index in the list or
        table.
    """
    if isinstance(given, str) and (match := _VARIANT.fullmatch(given)):
        yield [_record("the variant", *match.groups())], None
    elif isinstance(given, str | os.PathLike):
        with open_vcf(_path(given, "variants")) as vcf:
            yield vcf.records, None
    else:
        rows = _table_rows(given, "variants", ("contig", "position", "ref", "alt"), ())
        labels = given.index if isinstance(given, pd.DataFrame) else None
        yield [_variant(where, row) for where, row in rows], labels


def _variant(where: str, given: Any) -> VcfRecord:
    if isinstance(given, str):
        match = _VARIANT.fullmatch(given)
        if match is None:
            raise UsageError(
                f"{where}: {shortened(repr(given))} is not of the form 'contig:position:ref:alt'"
            )
        return _record(where, *match.groups())
    if not isinstance(given, Sequence) or len(given) != 4:
        raise UsageError(f"{where}: {_shown(given)} is not (contig, position, ref, alt)")
    return _record(where, *given)


def _record(where: str, contig: Any, position: Any, ref: Any, alt: Any) -> VcfRecord:
    for name, value in (("contig", contig), ("ref", ref), ("alt", alt)):
        if not isinstance(value, str) or not value:
            raise UsageError(f"{where}: {name} {_shown(value)} is not a text")
    place = _whole(where, "position", position)
    if place < 1:
        raise UsageError(f"{where}: position {place}: the first base of a contig is number 1")
    alts = tuple(alt.split(","))
    if "" in alts:
        raise UsageError(f"{where}: alt {_shown(alt)} has an empty allele")
    check_name(contig, "contig", where)
    return VcfRecord(0, contig, place - 1, ref, alts, (contig, str(place), ".", ref, alt, ".", ".", "."), "")


def _bed_rows(given: str | os.PathLike[str]) -> tuple[Iterator[tuple[str, tuple[Any, ...]]], None]:
    path = _path(given, "regions")

    def rows() -> Iterator[tuple[str, tuple[Any, ...]]]:
        for number, fields, start, end in read_bed(path):
            label = fields[3].strip() if len(fields) > 3 else ""
            where = f"{path}: line {number}"
            yield where, (fields[0], start, end, _strand(where, strand_column(fields)), label)

    return rows(), None


def _region_rows(given: Any) -> tuple[Iterator[tuple[str, tuple[Any, ...]]], "pd.Index[Any] | None"]:
    rows = _table_rows(given, "regions", ("contig", "start", "end"), ("strand", "name"))

    def checked() -> Iterator[tuple[str, tuple[Any, ...]]]:
        for where, row in rows:
            if isinstance(row, str) or not isinstance(row, Sequence) or not 3 <= len(row) <= 5:
                raise UsageError(f"{where}: {_shown(row)} is not (contig, start, end) or with a strand")
            contig, start, end, strand, label = [*row, None, None][:5]
            if not isinstance(contig, str):
                raise UsageError(f"{where}: contig {_shown(contig)} is not a text")
            ends = _whole(where, "start", start), _whole(where, "end", end)
            yield where, (contig, *ends, _strand(where, strand), label if isinstance(label, str) else "")

    return checked(), given.index if isinstance(given, pd.DataFrame) else None


def _table_rows(
    given: Any, what: str, needed: Sequence[str], further: Sequence[str]
) -> Iterator[tuple[str, Any]]:
    """The rows of a list, or of the named columns of a table, each with what a message calls it."""
    if isinstance(given, pd.DataFrame):
        table = given.rename(columns=lambda name: _COLUMNS.get(str(name).lower(), str(name).lower()))
        missing = [name for name in needed if list(table.columns).count(name) != 1]
        if missing:
            raise UsageError(f"{what}: the table needs one column {missing[0]!r}")
        columns = [table[name] if name in table else [None] * len(table) for name in (*needed, *further)]
        for label, row in zip(given.index, zip(*columns, strict=True), strict=True):
            yield f"{what}[{label!r}]", row
        return
    if isinstance(given, Mapping | bytes) or not isinstance(given, Iterable):
        raise UsageError(f"{what}: {_shown(given)} is not a file, a list or a table")
    for number, row in enumerate(given):
        yield f"{what}[{number}]", tuple(row) if isinstance(row, np.ndarray) else row


def _strand(where: str, given: Any) -> Strand | None:
    if given in OPPOSITE:
        strand: Strand = given
        return strand
    if (
        given is None
        or given in ("", ".")
        or (isinstance(given, float) and np.isnan(given))
        or given is pd.NA
    ):
        return None
    raise UsageError(f"{where}: strand {_shown(given)} is not '+', '-' or '.'")


def _whole(where: str, name: str, given: Any) -> int:
    number = whole_number(given) if isinstance(given, str) else None
    if isinstance(given, int | np.integer) and not isinstance(given, bool):
        number = int(given)
    if number is None or abs(number) > FURTHEST:
        raise UsageError(f"{where}: {name} {_shown(given)} is not a whole number")
    return number


def _path(given: Any, what: str) -> Path:
    if not isinstance(given, str | os.PathLike):
        raise UsageError(f"{what}: {_shown(given)} is not a file")
    return Path(given)


def _shown(given: object) -> str:
    return shortened(repr(given))
