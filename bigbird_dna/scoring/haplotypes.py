"""Variants of one phased haplotype that are scored together, such as the records of a split MNV.

Records of a VCF are independent: two records of neighboring SNVs are scored as two changes of the reference,
and the values do not add up to that of both changes. For a sample with phased genotypes, alleles on the same
haplotypes, in the same phase set, at most `WITHIN` bp apart can be scored together. Each of their records
then has the value of all changes at once, which is the value of the same change written as one record.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from os.path import commonprefix
from typing import NamedTuple

from bigbird_dna.errors import UsageError, one_of
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import Interval
from bigbird_dna.genome.variants import Allele, VcfRecord

WITHIN = 10
"""Maximum number of unchanged bp between two variants that are scored together."""
_MOST = 1000  # records in memory
_FIRST_SAMPLE = 9  # column of the first sample; FORMAT is before it

_Haplotypes = tuple[str, tuple[int, ...]]
"""A phase set, "" without one, and the numbers of the haplotypes."""


class _Phased(NamedTuple):
    """An allele of a record, without the bases that REF and ALT have in common at either end."""

    number: int  # of the record
    alt: str  # as in the record
    start: int
    ref: str
    changed: str

    @property
    def end(self) -> int:
        return self.start + len(self.ref)


def sample_column(column_line: str, sample: str, where: object) -> int:
    """Return the number of a sample's column; `UsageError` if the VCF does not have it."""
    names = column_line.split("\t")[_FIRST_SAMPLE:]
    if sample not in names:
        known = one_of(sample, names) if names else "the file has no samples"
        raise UsageError(f"phased {sample!r}: no such sample in {where}: {known}")
    return names.index(sample) + 1


def with_haplotypes(
    records: Iterable[VcfRecord], column: int, reference: Reference, find: Callable[[str], str | None]
) -> Iterator[VcfRecord]:
    """Yield the records, with the `joint` alleles of those to be scored together.

    `column` is that of the sample (`sample_column`), and `find` maps contig names to those of the reference.
    Only sorted records are combined. Alleles whose changed bases overlap are not.
    """
    some: list[VcfRecord] = []
    furthest = 0
    for record in records:
        is_near = some and record.contig == some[0].contig
        is_near = is_near and some[-1].start <= record.start <= furthest + WITHIN
        if some and (not is_near or len(some) == _MOST):
            yield from _combined(some, column, reference, find)
            some, furthest = [], 0
        some.append(record)
        furthest = max(furthest, record.start + len(record.ref))
    yield from _combined(some, column, reference, find)


def _combined(
    records: list[VcfRecord], column: int, reference: Reference, find: Callable[[str], str | None]
) -> Iterator[VcfRecord]:
    by_haplotype: dict[_Haplotypes, list[_Phased]] = {}
    for number, record in enumerate(records if len(records) > 1 else ()):
        for haplotypes, alt in _phased_alts(record, column):
            by_haplotype.setdefault(haplotypes, []).append(_trimmed(number, record, alt))
    joint: dict[int, dict[str, Allele]] = {}
    contig = find(records[0].contig) if by_haplotype else None
    for alleles in by_haplotype.values() if contig is not None else ():
        for together in _near(sorted(alleles, key=lambda one: (one.start, one.end))):
            first, end = together[0], max(one.end for one in together)
            ref = reference.fetch(Interval(str(contig), first.start, end))
            changed = first.changed
            for before, after in pairwise(together):
                changed += ref[before.end - first.start : after.start - first.start] + after.changed
            for one in together:
                joint.setdefault(one.number, {})[one.alt] = Allele(first.start, ref, changed)
    for number, record in enumerate(records):
        yield record._replace(joint=joint[number]) if number in joint else record


def _near(alleles: list[_Phased]) -> Iterator[list[_Phased]]:
    """Yield groups of at least two alleles without overlap, each at most `WITHIN` bp after the previous."""
    group: list[_Phased] = []
    for one in [*alleles, None]:
        if one is not None and (not group or one.start <= group[-1].end + WITHIN):
            group.append(one)
            continue
        if len(group) > 1 and all(before.end <= after.start for before, after in pairwise(group)):
            yield group
        group = [] if one is None else [one]


def _trimmed(number: int, record: VcfRecord, alt: str) -> _Phased:
    ref, changed = record.ref.upper(), alt.upper()
    suffix = len(commonprefix([ref[::-1], changed[::-1]]))  # noqa: RUF071 - of letters
    ref, changed = ref[: len(ref) - suffix], changed[: len(changed) - suffix]
    prefix = len(commonprefix([ref, changed]))  # noqa: RUF071
    return _Phased(number, alt, record.start + prefix, ref[prefix:], changed[prefix:])


def _phased_alts(record: VcfRecord, column: int) -> Iterator[tuple[_Haplotypes, str]]:
    """Yield the haplotypes of each ALT of bases in a phased or homozygous genotype."""
    fields = record.rest.split("\t")
    keys, values = fields[0].split(":"), fields[column].split(":")
    genotype = dict(zip(keys, values, strict=False))
    calls = genotype.get("GT", ".").replace("|", "/").split("/")
    is_homozygous = len({*calls}) == 1
    if not is_homozygous and "/" in genotype["GT"]:
        return
    # Homozygous alleles are on all haplotypes of every phase set.
    phase_set = "" if is_homozygous else genotype.get("PS", "")
    for call in sorted({*calls} - {"0", "."}):
        number = int(call) if call.isdecimal() else 0
        if 0 < number <= len(record.alts) and {*record.alts[number - 1].upper()} <= {*"ACGT"}:
            places = tuple(place for place, other in enumerate(calls) if other == call)
            yield (phase_set, places), record.alts[number - 1]
