"""Variants of one phased haplotype that are scored together, such as the records of a split MNV.

Records of a VCF are independent: two records of neighboring SNVs are scored as two changes of the reference,
and the values do not add up to that of both changes. For a sample with phased genotypes, alleles on the same
haplotype, in the same phase set, at most `WITHIN` bp apart can be scored together. Each of their records
then has the value of all changes at once, which is the value of the same change written as one record.

A homozygous allele is on every haplotype of every phase set. If its haplotypes differ nearby, its record has
the value of the one with the most changes, the first of several.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from os.path import commonprefix
from typing import NamedTuple

from bigbird_dna.errors import UsageError, one_of
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import Interval
from bigbird_dna.genome.variants import Allele, Note, VcfRecord, find_change

WITHIN = 10
"""Maximum number of unchanged bp between two variants that are scored together."""
_MOST = 1000  # records in memory
_FIRST_SAMPLE = 9  # column of the first sample; FORMAT is before it


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
    records: Iterable[VcfRecord],
    column: int,
    reference: Reference,
    find: Callable[[str], str | None],
) -> Iterator[VcfRecord]:
    """Yield the records, with the `joint` alleles of those to be scored together.

    `column` is that of the sample (`sample_column`), and `find` maps contig names to those of the reference.
    Only sorted records are combined. Alleles whose changed bases overlap are not, nor are alleles that could
    not be scored alone, such as those whose REF differs from the reference.
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
    if some:
        yield from _combined(some, column, reference, find)


def _combined(
    records: list[VcfRecord],
    column: int,
    reference: Reference,
    find: Callable[[str], str | None],
) -> Iterator[VcfRecord]:
    contig = find(records[0].contig)
    homozygous: list[_Phased] = []
    on_haplotype: dict[
        tuple[str, int], list[_Phased]
    ] = {}  # by phase set and number of the haplotype
    for number, record in enumerate(records if len(records) > 1 else ()):
        for alt, phase_set, haplotypes in _phased_alts(record, column):
            if isinstance(
                find_change(contig, record.start, record.ref, alt, reference), Note
            ):
                continue
            allele = _trimmed(number, record, alt)
            if phase_set is None:
                homozygous.append(allele)
            else:
                for haplotype in haplotypes:
                    on_haplotype.setdefault((phase_set, haplotype), []).append(allele)
    largest: dict[tuple[int, str], list[_Phased]] = {}  # by record and ALT
    for alleles in [*(on_haplotype[key] for key in sorted(on_haplotype)), []]:
        for group in _near(
            sorted([*alleles, *homozygous], key=lambda one: (one.start, one.end))
        ):
            for one in group:
                if len(group) > len(largest.get((one.number, one.alt), ())):
                    largest[one.number, one.alt] = group
    joint: dict[int, dict[str, Allele]] = {}
    for (number, alt), group in largest.items():
        joint.setdefault(number, {})[alt] = _joined(group, str(contig), reference)
    for number, record in enumerate(records):
        yield record._replace(joint=joint[number]) if number in joint else record


def _joined(group: list[_Phased], contig: str, reference: Reference) -> Allele:
    """Return the change of the reference that has all alleles of a group in place."""
    start, end = group[0].start, group[-1].end
    ref = reference.fetch(Interval(contig, start, end))
    changed = group[0].changed
    for before, after in pairwise(group):
        changed += ref[before.end - start : after.start - start] + after.changed
    return Allele(start, ref, changed)


def _near(alleles: list[_Phased]) -> Iterator[list[_Phased]]:
    """Yield groups of at least two alleles without overlap, each at most `WITHIN` bp after the previous."""
    group: list[_Phased] = []
    for one in [*alleles, None]:
        if one is not None and (not group or one.start <= group[-1].end + WITHIN):
            group.append(one)
            continue
        if len(group) > 1 and not any(
            _overlap(before, after) for before, after in pairwise(group)
        ):
            yield group
        group = [] if one is None else [one]


def _overlap(before: _Phased, after: _Phased) -> bool:
    """Return whether two sorted alleles change the same bases, or both insert bases at the same place."""
    return after.start < before.end or (after.start, after.end) == (
        before.start,
        before.end,
    )


def _trimmed(number: int, record: VcfRecord, alt: str) -> _Phased:
    ref, changed = record.ref.upper(), alt.upper()
    suffix = len(commonprefix([ref[::-1], changed[::-1]]))  # noqa: RUF071 - of letters
    ref, changed = ref[: len(ref) - suffix], changed[: len(changed) - suffix]
    prefix = len(commonprefix([ref, changed]))  # noqa: RUF071
    return _Phased(number, alt, record.start + prefix, ref[prefix:], changed[prefix:])


def _phased_alts(
    record: VcfRecord, column: int
) -> Iterator[tuple[str, str | None, tuple[int, ...]]]:
    """Yield each ALT of bases with a known haplotype, its phase set, and the numbers of its haplotypes.

    The phase set is "" without one, and None for a homozygous ALT, phased or not.
    """
    fields = record.rest.split("\t")
    keys, values = fields[0].split(":"), fields[column].split(":")
    genotype = dict(zip(keys, values, strict=False))
    text = genotype.get("GT", ".")
    calls = (
        text.lstrip("/|").replace("|", "/").split("/")
    )  # VCF 4.4 allows a separator before the first
    is_homozygous = len({*calls}) == 1
    if not is_homozygous and "/" in text:
        return
    phase_set = None if is_homozygous else genotype.get("PS", "").strip(".")
    for call in sorted({*calls} - {"0", "."}):
        number = int(call) if call.isdecimal() else 0
        if 0 < number <= len(record.alts) and {*record.alts[number - 1].upper()} <= {
            *"ACGT"
        }:
            haplotypes = tuple(
                index for index, other in enumerate(calls) if other == call
            )
            yield record.alts[number - 1], phase_set, haplotypes
