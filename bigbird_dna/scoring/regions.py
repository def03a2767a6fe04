"""Regions, sites and variants as a Python user gives them (a file, a list or a table), and result tables."""

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from bigbird_dna.errors import DataError, UsageError, shortened
from bigbird_dna.genome.chromatin.peaks import read_bed, strand_column
from bigbird_dna.genome.chromatin.tracks import Track
from bigbird_dna.genome.fields import FURTHEST, check_name, whole_number
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.region_filter import warn_of_absent
from bigbird_dna.genome.sequence import OPPOSITE, Strand
from bigbird_dna.genome.variants import contig_finder
from bigbird_dna.genome.vcf import VcfRecord, open_vcf
from bigbird_dna.scoring.alleles import ScoredRecord
from bigbird_dna.scoring.region_scores import BEYOND, UNKNOWN, PredictedRegion, Region, RegionScore
from bigbird_dna.scoring.variant_effects import AlleleEffect
from bigbird_dna.scoring.variant_sites import PromoterEffect

Genome = Reference | str | os.PathLike[str]
"""An indexed FASTA file, plain or bgzip, or one that is open already."""

Regions = str | os.PathLike[str] | pd.DataFrame | Sequence[Sequence[Any]]
"""A BED file; a table with the columns `contig` (or `chrom`), `start`, `end` and maybe `strand` and `name`;
or a list of (contig, start, end) or (contig, start, end, strand). 0-based, half-open."""

Variants = str | os.PathLike[str] | pd.DataFrame | Sequence[Any]
"""A VCF file; a table with the columns `contig` (or `chrom`), `position` (or `pos`), `ref` and `alt`; or a
list of texts "chr1:12345:A:G" or of (contig, position, ref, alt). Positions are the VCF's, from 1 on."""

_VARIANT = re.compile(r"(?P<contig>\S+):(?P<position>\d+):(?P<ref>[^:\s]+):(?P<alt>[^:\s]+)", re.ASCII)
_COLUMNS = {"chrom": "contig", "#chrom": "contig", "#contig": "contig", "pos": "position"}


class GivenRegions(NamedTuple):
    """Regions as they were given, and the labels that the rows of a result get."""

    regions: list[Region]
    labels: "pd.Index[Any]"


@contextmanager
def opened(reference: Genome, aliases: str | os.PathLike[str] | None = None) -> Iterator[Reference]:
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


def read_regions(given: Regions, reference: Reference) -> GivenRegions:
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
    return GivenRegions(found, pd.RangeIndex(len(found)) if labels is None else labels)


def site_table(given: Regions, reference: Reference) -> dict[str, list[tuple[int, Strand]]]:
    """The first base of each region in transcription order, by contig; without a strand on either.

    Regions that aren't on the reference are passed over, and the log says how many. Errors are those of
    `read_regions`.
    """
    sites = defaultdict(list)
    absent: dict[str, Counter[str]] = {UNKNOWN: Counter(), BEYOND: Counter()}
    for region in read_regions(given, reference).regions:
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


def region_table(given: GivenRegions, scores: Sequence[RegionScore] | None = None) -> pd.DataFrame:
    """Where regions are, a row for each, with their own labels; and the promoter scores of each."""
    columns = [(one.contig, one.start, one.end, one.name) for one in given.regions]
    table = pd.DataFrame(columns, index=given.labels, columns=["contig", "start", "end", "name"])
    if scores is not None:
        strands = [
            score.strand or one.strand or "." for one, score in zip(given.regions, scores, strict=True)
        ]
        table["strand"] = pd.Series(strands, table.index, dtype=object)
        table["score"] = np.array([score.score for score in scores], np.float32)
        table["site"] = pd.array([score.site for score in scores], dtype="Int64")
        table["note"] = pd.Series([score.note for score in scores], table.index, dtype=object)
    return table


def allele_table(
    found: Iterable[ScoredRecord[Any]], labels: "pd.Index[Any] | None"
) -> tuple[pd.DataFrame, list[Any]]:
    """The first columns of a table of effects, a row for each alternative allele, and the effects."""
    rows, owners, effects = [], [], []
    for number, (record, own) in enumerate(found):
        for alt, effect in zip(record.alts, own, strict=True):
            note = "&".join(effect.notes) or "."
            rows.append((record.contig, record.start + 1, record.ref, alt, note))
            owners.append(number)
            effects.append(effect)
    index = pd.RangeIndex(len(rows)) if labels is None else labels.take(owners)
    return pd.DataFrame(rows, index=index, columns=["contig", "position", "ref", "alt", "note"]), effects


def site_effect_table(
    found: Iterable[ScoredRecord[PromoterEffect]], labels: "pd.Index[Any] | None"
) -> pd.DataFrame:
    """Effects on promoters, a row for each alternative allele."""
    table, effects = allele_table(found, labels)
    largest = [effect.largest for effect in effects]
    for name, field in (("ref_score", "ref"), ("alt_score", "alt"), ("delta", "delta")):
        values = [np.nan if one is None else getattr(one, field) for one in largest]
        table[name] = np.array(values, np.float64)
    table["site"] = pd.array([None if one is None else one.position + 1 for one in largest], dtype="Int64")
    strands = ["." if one is None else one.strand for one in largest]
    table["strand"] = pd.Series(strands, table.index, dtype=object)
    return table


def track_region_table(
    given: GivenRegions, predicted: Iterable[PredictedRegion], tracks: Sequence[Track], columns: Sequence[int]
) -> pd.DataFrame:
    """Probabilities of the tracks of `columns`, a row for each region."""
    found = list(predicted)
    table = region_table(given)
    table["note"] = pd.Series([one.note for one in found], table.index, dtype=object)
    missing = np.full(len(tracks), np.nan, np.float32)
    values = [missing if one.probabilities is None else one.probabilities for one in found]
    return _with_tracks(table, np.array(values, np.float32), tracks, columns)


def track_effect_table(
    found: Iterable[ScoredRecord[AlleleEffect]],
    labels: "pd.Index[Any] | None",
    values: str,
    tracks: Sequence[Track],
    columns: Sequence[int],
) -> pd.DataFrame:
    """Effects (`values` of `AlleleEffect`) on the tracks of `columns`, a row for each alternative allele."""
    table, effects = allele_table(found, labels)
    missing = np.full(len(tracks), np.nan)
    rows = [missing if (row := getattr(effect, values)) is None else row for effect in effects]
    return _with_tracks(table, np.array(rows, np.float64), tracks, columns)


def _with_tracks(
    table: pd.DataFrame, rows: npt.NDArray[Any], tracks: Sequence[Track], columns: Sequence[int]
) -> pd.DataFrame:
    values = rows.reshape(len(rows), len(tracks))[:, columns]
    names = [tracks[column].name for column in columns]
    return pd.concat([table, pd.DataFrame(values, index=table.index, columns=names)], axis=1)
