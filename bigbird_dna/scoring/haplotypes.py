"""Variants of one phased haplotype that are scored together, such as the records of a split MNV.

Records of a VCF are independent: two records of neighboring SNVs are scored as two changes of the reference,
and the values do not add up to that of both changes. For a sample with phased genotypes, alleles on the same
haplotype, in the same phase set, at most `WITHIN` bp apart can be scored together. Each of their records
then has the value of all changes at once, which is the value of the same change written as one record.

A homozygous allele is on every haplotype of every phase set. If its haplotypes differ nearby, its record has
the value of the one with the most changes, the first of several.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from os.path import commonprefix
from typing import NamedTuple

from bigbird_dna.errors import UsageError, one_of
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import Interval
from bigbird_dna.genome.variants import Note, find_change
from bigbird_dna.genome.vcf import Variant

WITHIN = 10
"""Maximum number of unchanged bp between two variants that are scored together."""
_MOST = 1000  # records in memory
_FORMAT = 8  # column of FORMAT; those of the samples follow


class _Allele(NamedTuple):
    """An allele of a record, without the bases that REF and ALT have in common at either end."""

    number: int  # of the record
    alt: str  # as in the record
    start: int
    ref: str
    changed: str

    @property
    def end(self) -> int:
        return self.start + len(self.ref)


def sample_column(names: Sequence[str], sample: str, where: object) -> int:
    """Return the number of a sample's column; `UsageError` if the VCF does not have it."""
    if sample not in names:
        known = one_of(sample, names) if names else "the file has no samples"
        raise UsageError(f"phased {sample!r}: no such sample in {where}: {known}")
    return _FORMAT + 1 + names.index(sample)


def near_records(records: Iterable[Variant]) -> Iterator[list[Variant]]:
    """Yield sorted records that may be scored together, as lists; other records alone."""
    group: list[Variant] = []
    end = 0
    for record in records:
        is_near = (
            group
            and len(group) < _MOST
            and record.contig == group[0].contig
            and group[-1].start <= record.start <= end + WITHIN
        )
        if group and not is_near:
            yield group
            group, end = [], 0
        group.append(record)
        end = max(end, record.end)
    if group:
        yield group


def joint_alleles(
    records: Sequence[Variant],
    column: int,
    reference: Reference,
    find_contig: Callable[[str], str | None],
) -> dict[tuple[int, str], tuple[int, str, str]]:
    """Return start, REF and ALT of the changes that are scored together, by number of the record and ALT.

    `column` is that of the sample (`sample_column`). Alleles whose changed bases overlap are not combined,
    nor are alleles that could not be scored alone, such as those whose REF differs from the reference.
    """
    contig = find_contig(records[0].contig)
    if len(records) == 1 or contig is None:
        return {}
    homozygous: list[_Allele] = []
    # by phase set and number of the haplotype
    haplotypes: dict[tuple[str, int], list[_Allele]] = defaultdict(list)
    for number, record in enumerate(records):
        for alt, phase_set, copies in _phased_alts(record, column):
            change = find_change(contig, record.start, record.ref, alt, reference)
            if isinstance(change, Note):
                continue
            allele = _trimmed(number, record, alt)
            if phase_set is None:
                homozygous.append(allele)
            else:
                for copy in copies:
                    haplotypes[phase_set, copy].append(allele)

    largest: dict[tuple[int, str], list[_Allele]] = {}
    for alleles in [*(haplotypes[key] for key in sorted(haplotypes)), []]:
        ordered = sorted([*alleles, *homozygous], key=lambda one: (one.start, one.end))
        for group in _groups(ordered):
            for allele in group:
                key = allele.number, allele.alt
                if len(group) > len(largest.get(key, ())):
                    largest[key] = group

    joint = {}
    for key, group in largest.items():
        start, end = group[0].start, group[-1].end
        ref = reference.fetch(Interval(contig, start, end))
        changed = group[0].changed
        for before, after in pairwise(group):
            changed += ref[before.end - start : after.start - start] + after.changed
        joint[key] = (start, ref, changed)
    return joint


def _groups(alleles: Sequence[_Allele]) -> list[list[_Allele]]:
    """Return groups of at least two alleles without overlap, each at most `WITHIN` bp after the previous."""
    groups: list[list[_Allele]] = []
    for allele in alleles:
        if groups and allele.start <= groups[-1][-1].end + WITHIN:
            groups[-1].append(allele)
        else:
            groups.append([allele])
    return [
        group
        for group in groups
        if len(group) > 1 and not any(_overlap(*pair) for pair in pairwise(group))
    ]


def _overlap(before: _Allele, after: _Allele) -> bool:
    """Return whether two sorted alleles change the same bases, or both insert bases at the same place."""
    same = (after.start, after.end) == (before.start, before.end)
    return same or after.start < before.end


def _trimmed(number: int, record: Variant, alt: str) -> _Allele:
    ref, changed = record.ref.upper(), alt.upper()
    suffix = len(commonprefix([ref[::-1], changed[::-1]]))  # noqa: RUF071 - of letters
    ref, changed = ref[: len(ref) - suffix], changed[: len(changed) - suffix]
    prefix = len(commonprefix([ref, changed]))  # noqa: RUF071
    return _Allele(number, alt, record.start + prefix, ref[prefix:], changed[prefix:])


def _phased_alts(
    record: Variant, column: int
) -> Iterator[tuple[str, str | None, list[int]]]:
    """Yield each ALT of bases with a known haplotype, its phase set, and the numbers of its haplotypes.

    The phase set is "" without one, and None for a homozygous ALT, phased or not.
    """
    columns = record.line.split("\t")
    keys = columns[_FORMAT].split(":")
    genotype = dict(zip(keys, columns[column].split(":"), strict=False))
    text = genotype.get("GT", ".")
    # VCF 4.4 allows a separator before the first allele
    calls = text.lstrip("/|").replace("|", "/").split("/")
    is_homozygous = len(set(calls)) == 1
    if not is_homozygous and "/" in text:
        return
    phase_set = None if is_homozygous else genotype.get("PS", "").strip(".")
    for call in sorted(set(calls) - {"0", "."}):
        number = int(call) if call.isdecimal() else 0
        if not 0 < number <= len(record.alts):
            continue
        alt = record.alts[number - 1]
        if set(alt.upper()) <= set("ACGT"):
            copies = [copy for copy, other in enumerate(calls) if other == call]
            yield alt, phase_set, copies
