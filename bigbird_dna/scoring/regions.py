"""Parse regions, sites and variants given as a file, list or table, and build the tables of results."""

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Union

import numpy as np
import numpy.typing as npt

from bigbird_dna.errors import DataError, UsageError, shortened
from bigbird_dna.genome.assembly import ALIAS_HINT, contig_finder, shown
from bigbird_dna.genome.chromatin.track import Track
from bigbird_dna.genome.fields import FURTHEST, check_name, whole_number
from bigbird_dna.genome.given_sequences import is_pandas
from bigbird_dna.genome.intervals import Places, read_bed, strand_column, warn_of_absent
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import OPPOSITE, Locus, Strand
from bigbird_dna.genome.vcf import Variant, check_assembly, open_vcf, read_vcf
from bigbird_dna.scoring.effects import ScoredAllele, TssSites

if TYPE_CHECKING:
    import pandas as pd

Genome = Reference | str | os.PathLike[str]
"""Path of an indexed FASTA file (plain or bgzip), or an open `Reference`."""

Regions = Union[str, os.PathLike[str], "pd.DataFrame", Sequence[Sequence[Any]]]
"""A BED file; a table with the columns `contig` (or `chrom`), `start`, `end` and optionally `strand` and
`name`; or a list of (contig, start, end) or (contig, start, end, strand). 0-based, half-open."""

Variants = Union[str, os.PathLike[str], "pd.DataFrame", Sequence[Any]]
"""A VCF file; a table with the columns `contig` (or `chrom`), `position` (or `pos`), `ref` and `alt`; or a
list of strings "chr1:12345:A:G" or of (contig, position, ref, alt). Positions are 1-based, as in VCF."""

UNKNOWN, BEYOND = "contig_unknown", "beyond_contig"
"""Notes of regions that cannot be predicted: contig missing in the reference, or end beyond the contig."""

_VARIANT = re.compile(
    r"(?P<contig>\S+):(?P<position>\d+):(?P<ref>[^:\s]+):(?P<alt>[^:\s]+)", re.ASCII
)
_COLUMNS = {
    "chrom": "contig",
    "#chrom": "contig",
    "#contig": "contig",
    "pos": "position",
}

Row = tuple[str, str, int, int, Strand | None, str]
"""Source of the region for error messages; contig, start, end, strand, and name or ""."""


class Region(NamedTuple):
    """A region of a contig; `start` and `end` are 0-based, half-open.

    `contig` is the name in the reference, or the name as given if the reference has no such contig. `strand`
    is None if not given or ignored. `fault` is "" or the reason why the region cannot be scored.
    """

    contig: str
    start: int
    end: int
    name: str
    strand: Strand | None = None
    fault: str = ""


class Fit:
    """Contig names of an input, and whether the reference contains any of them."""

    def __init__(self, where: Path | str, reference: Reference) -> None:
        self.names: dict[str, str | None] = {}
        """Contig name in the input → name in the reference or None, in order of first appearance."""
        self.finder = contig_finder(reference.contigs, reference.names)
        """Returns the reference's name of any contig without recording it as part of the input."""
        self._where, self._reference = where, reference

    def find(self, contig: str) -> str | None:
        """Return the reference's name of a contig of the input, and record the contig."""
        if contig not in self.names:
            self.names[contig] = self.finder(contig)
        return self.names[contig]

    def check(self, contigs: Iterable[str] = ()) -> None:
        """Raise `DataError` if the reference has none of the input's contigs (`contigs` included)."""
        for contig in contigs:
            self.find(contig)
        if self.names and all(name is None for name in self.names.values()):
            raise DataError(
                f"{self._where}: none of the contigs ({shown(self.names)}) is in "
                f"{self._reference.path} ({shown(self._reference.contigs)}); {ALIAS_HINT}"
            )


@contextmanager
def opened(
    reference: Genome, aliases: str | os.PathLike[str] | None = None
) -> Iterator[Reference]:
    """Yield an open reference as it is, or open a FASTA file and close it at the end.

    `aliases` is the alias file for a FASTA path; an open reference already has its aliases.
    """
    if isinstance(reference, Reference):
        if aliases is not None:
            raise UsageError(
                "aliases: not allowed with an open reference; give the path of the FASTA instead"
            )
        yield reference
        return
    names = None if aliases is None else _path(aliases, "aliases")
    with Reference(_path(reference, "reference"), names) as genome:
        yield genome


def each_region(
    rows: Iterable[Row],
    reference: Reference,
    where: Path | str,
    places: Places | None = None,
    *,
    needed: bool = False,
) -> Iterator[Region]:
    """Yield regions on a reference in input order; with `places`, only regions that overlap them.

    `DataError` for an invalid region. At the end, `DataError` if the reference has none of the contigs, or if
    `needed` is set and there are no regions.
    """
    fit = Fit(where, reference)
    for line, name, start, end, strand, label in rows:
        if not 0 <= start < end:
            raise DataError(
                f"{line}: invalid region: needs 0 <= start < end, found start {start}, end {end}"
            )
        found = fit.find(name)
        contig = found or name
        if places is None or places.overlaps(contig, start, end):
            fault = (
                UNKNOWN
                if found is None
                else BEYOND
                if end > reference.contigs[found]
                else ""
            )
            yield Region(
                contig, start, end, label or f"{contig}:{start}-{end}", strand, fault
            )
    fit.check()
    if needed and not fit.names:
        raise DataError(f"{where}: no regions in the file")


def bed_rows(path: Path, wrong: type[Exception] | None = UsageError) -> Iterator[Row]:
    """Yield the regions of a BED file; `wrong` is raised for an invalid strand.

    With `wrong=None`, strands are ignored. `DataError` if a line is not an interval.
    """
    for number, fields, start, end in read_bed(path):
        line = f"{path}: line {number}"
        strand = _strand(line, strand_column(fields), wrong) if wrong else None
        yield (
            line,
            fields[0],
            start,
            end,
            strand,
            fields[3].strip() if len(fields) > 3 else "",
        )


def bed_regions(
    path: Path, reference: Reference, places: Places | None = None
) -> Iterator[Region]:
    """Yield the regions of a BED file, which must contain at least one; strands are ignored."""
    return each_region(bed_rows(path, None), reference, path, places, needed=True)


def placed_regions(path: Path, genome: Reference, longest: int) -> Iterator[Region]:
    """Yield the regions of a BED file; `DataError` if one is not on the reference, or has more than `longest`
    bp."""
    fault: Region | None = None
    for region in each_region(
        bed_rows(path, wrong=DataError), genome, path, needed=True
    ):
        if region.end - region.start > longest:
            raise DataError(
                f"{path}: region {region.name!r} has more than {longest:,} bp"
            )
        fault = fault or (region if region.fault else None)
        yield region
    if fault is not None:
        why = (
            f"its contig {fault.contig!r} is missing"
            if fault.fault == UNKNOWN
            else "it ends beyond the contig"
        )
        raise DataError(
            f"{path}: region {fault.name!r} is not in {genome.path}: {why}; remove it"
        )


def read_regions(
    given: Regions, reference: Reference
) -> tuple[list[Region], "pd.Index[Any]"]:
    """Return regions given by a Python user, and the index labels for the rows of the result.

    `UsageError` or `DataError` for an invalid region, naming the line of the file or the index in the list or
    table; `DataError` if the reference has none of the contigs.
    """
    import pandas as pd

    if isinstance(given, str | os.PathLike):
        path = _path(given, "regions")
        regions = list(each_region(bed_rows(path), reference, path))
        return regions, pd.RangeIndex(len(regions))
    regions = list(each_region(_region_rows(given), reference, "regions"))
    return regions, given.index if isinstance(given, pd.DataFrame) else pd.RangeIndex(
        len(regions)
    )


def tss_sites(given: Regions, reference: Reference) -> TssSites:
    """Return the TSS positions of a file (see `read_promoters`), or of a table or list of regions, by contig.

    The TSS of a region is its first base in transcription order, as in a BED file: with the columns
    `thickStart` and `thickEnd`, and without `blockCount`, that of its thick part. A region without a strand
    has a TSS on both. Positions outside the reference are skipped, and their number is logged. `DataError` if
    the reference has none of the contigs.
    """
    if isinstance(given, str | os.PathLike):
        from bigbird_dna.genome.promoters import read_promoters

        where = os.fspath(given)
        loci: Iterable[Locus] = read_promoters(_path(given, "sites"), unstranded=True)
    else:
        where, loci = "sites", _given_sites(given)
    fit = Fit(where, reference)
    sites: dict[str, list[tuple[int, Strand]]] = defaultdict(list)
    unknown: Counter[str] = Counter()
    beyond: Counter[str] = Counter()
    for locus in loci:
        contig = fit.find(locus.contig)
        if contig is None:
            unknown[locus.contig] += 1
        elif locus.position >= reference.contigs[contig]:
            beyond[contig] += 1
        else:
            sites[contig].append((locus.position, locus.strand))
    fit.check()
    warn_of_absent(where, "sites", reference.path, unknown, beyond)
    return TssSites(sites)


def _given_sites(given: Any) -> Iterator[Locus]:
    for where, contig, start, end, strand, name in _region_rows(
        given, "sites", thick=True
    ):
        if not 0 <= start < end:
            raise DataError(
                f"{where}: invalid region: needs 0 <= start < end, found start {start}, end {end}"
            )
        for own in OPPOSITE if strand is None else (strand,):
            yield Locus(contig, start if own == "+" else end - 1, own, name)


def read_variants(
    given: Variants, reference: Reference
) -> tuple[list[Variant], "pd.Index[Any] | None"]:
    """Return variants, and the index labels of a table's rows; errors as in `read_regions`.

    REF of a file is compared with the reference (`check_assembly`).
    """
    if isinstance(given, str) and (match := _VARIANT.fullmatch(given)):
        return [_record("the variant", *match.groups())], None
    if isinstance(given, str | os.PathLike):
        path = _path(given, "variants")
        with open_vcf(path) as vcf:
            records = list(read_vcf(vcf, path))
            find_contig = contig_finder(reference.contigs, reference.names)
            check_assembly(records, path, reference, find_contig, str(vcf.header))
        return records, None
    rows = _table_rows(given, "variants", ("contig", "position", "ref", "alt"), ())
    labels = given.index if is_pandas(given, "DataFrame") else None
    return [_variant(where, row) for where, row in rows], labels


def _variant(where: str, given: Any) -> Variant:
    if isinstance(given, str):
        match = _VARIANT.fullmatch(given)
        if match is None:
            raise UsageError(
                f"{where}: expected 'contig:position:ref:alt', found {shortened(repr(given))}"
            )
        return _record(where, *match.groups())
    if not isinstance(given, Sequence) or len(given) != 4:
        raise UsageError(
            f"{where}: expected (contig, position, ref, alt), found {_shown(given)}"
        )
    return _record(where, *given)


def _record(where: str, contig: Any, position: Any, ref: Any, alt: Any) -> Variant:
    for name, value in (("contig", contig), ("ref", ref), ("alt", alt)):
        if not isinstance(value, str) or not value:
            raise UsageError(
                f"{where}: {name} must be a non-empty string, found {_shown(value)}"
            )
    place = _whole(where, "position", position)
    if place < 1:
        raise UsageError(
            f"{where}: position {place}: must be at least 1 (positions are 1-based)"
        )
    alts = tuple(alt.split(","))
    if "" in alts:
        raise UsageError(f"{where}: alt {_shown(alt)}: contains an empty allele")
    check_name(contig, "contig", where)
    return Variant(contig, place - 1, ref, alts)


def _region_rows(
    given: Any, what: str = "regions", thick: bool = False
) -> Iterator[Row]:
    """Yield the regions of a list or table; with `thick`, the thick part of rows of a table that have one."""
    further = ["strand", "name"]
    # In BED12, which has blocks, the thick part is the coding part of a transcript.
    if (
        thick
        and is_pandas(given, "DataFrame")
        and "blockcount" not in {str(c).lower() for c in given}
    ):
        further += ["thickstart", "thickend"]
    for where, row in _table_rows(given, what, ("contig", "start", "end"), further):
        if (
            isinstance(row, str)
            or not isinstance(row, Sequence)
            or not 3 <= len(row) <= 3 + len(further)
        ):
            raise UsageError(
                f"{where}: expected (contig, start, end[, strand]), found {_shown(row)}"
            )
        contig, start, end, strand, label, *part = [*row, None, None, None, None][:7]
        if not isinstance(contig, str):
            raise UsageError(
                f"{where}: contig must be a string, found {_shown(contig)}"
            )
        ends = _whole(where, "start", start), _whole(where, "end", end)
        if not any(
            value is None or is_pandas(value, "NAType") or value != value
            for value in part
        ):
            thick_ends = (
                _whole(where, "thickStart", part[0]),
                _whole(where, "thickEnd", part[1]),
            )
            from bigbird_dna.genome.promoters import thick_part

            try:
                ends = thick_part(*ends, *thick_ends)
            except ValueError as error:
                raise UsageError(f"{where}: {error}") from None
        yield (
            where,
            contig,
            *ends,
            _strand(where, strand),
            label if isinstance(label, str) else "",
        )


def _table_rows(
    given: Any, what: str, needed: Sequence[str], further: Sequence[str]
) -> Iterator[tuple[str, Any]]:
    """Yield the rows of a list, or of the named columns of a table, each with its label for messages."""
    if is_pandas(given, "DataFrame"):
        table = given.rename(
            columns=lambda name: _COLUMNS.get(str(name).lower(), str(name).lower())
        )
        missing = [name for name in needed if list(table.columns).count(name) != 1]
        if missing:
            raise UsageError(
                f"{what}: the table needs exactly one column {missing[0]!r}"
            )
        columns = [
            table[name] if name in table else [None] * len(table)
            for name in (*needed, *further)
        ]
        for label, row in zip(given.index, zip(*columns, strict=True), strict=True):
            yield f"{what}[{label!r}]", row
        return
    if isinstance(given, Mapping | bytes) or not isinstance(given, Iterable):
        raise UsageError(
            f"{what}: expected a file, a list or a table, found {_shown(given)}"
        )
    for number, row in enumerate(given):
        yield f"{what}[{number}]", tuple(row) if isinstance(row, np.ndarray) else row


def _strand(
    where: str, given: Any, wrong: type[Exception] = UsageError
) -> Strand | None:
    if given in OPPOSITE:
        strand: Strand = given
        return strand
    # NaN is not itself.
    if (
        given is None
        or is_pandas(given, "NAType")
        or given in ("", ".")
        or given != given
    ):
        return None
    raise wrong(f"{where}: strand must be '+', '-' or '.', found {_shown(given)}")


def _whole(where: str, name: str, given: Any) -> int:
    number = whole_number(given) if isinstance(given, str) else None
    if isinstance(given, int | np.integer) and not isinstance(given, bool):
        number = int(given)
    if number is None or abs(number) > FURTHEST:
        raise UsageError(
            f"{where}: {name} must be a whole number, found {_shown(given)}"
        )
    return number


def _path(given: Any, what: str) -> Path:
    if not isinstance(given, str | os.PathLike):
        raise UsageError(f"{what}: expected the path of a file, found {_shown(given)}")
    return Path(given)


def _shown(given: object) -> str:
    return shortened(repr(given))


def region_table(regions: Iterable[Region], labels: "pd.Index[Any]") -> "pd.DataFrame":
    """Return the coordinates of regions, one row per region, with the given index labels."""
    import pandas as pd

    columns = [(one.contig, one.start, one.end, one.name) for one in regions]
    return pd.DataFrame(
        columns, index=labels, columns=["contig", "start", "end", "name"]
    )


def allele_table(
    records: Sequence[Variant],
    scored: Sequence[Sequence[ScoredAllele]],
    labels: "pd.Index[Any] | None",
) -> "pd.DataFrame":
    """Return the leading columns of a table of effects, one row per alternative allele of the records."""
    import pandas as pd

    rows, owners = [], []
    for number, (record, alleles) in enumerate(zip(records, scored, strict=True)):
        for alt, allele in zip(record.alts, alleles, strict=True):
            note = "&".join(allele.notes) or "."
            rows.append((record.contig, record.start + 1, record.ref, alt, note))
            owners.append(number)
    index = pd.RangeIndex(len(rows)) if labels is None else labels.take(owners)
    return pd.DataFrame(
        rows, index=index, columns=["contig", "position", "ref", "alt", "note"]
    )


def with_tracks(
    table: "pd.DataFrame",
    rows: Iterable[npt.NDArray[Any] | None],
    kind: type[np.floating[Any]],
    tracks: Sequence[Track],
    columns: Sequence[int],
) -> "pd.DataFrame":
    """Append the values of the tracks in `columns`; each row has the values of all tracks, or None."""
    import pandas as pd

    missing = np.full(len(tracks), np.nan)
    values = np.array([missing if row is None else row for row in rows], kind)
    chosen = values.reshape(len(values), len(tracks))[:, columns]
    names = [tracks[column].name for column in columns]
    return pd.concat(
        [table, pd.DataFrame(chosen, index=table.index, columns=names)], axis=1
    )
