"""Random variants near given ones: the null distribution of `evaluate variants --null`."""

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice

import numpy as np

from bigbird_dna.errors import DataError
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import Interval
from bigbird_dna.genome.variants import Change, find_change
from bigbird_dna.genome.vcf import Variant

WITHIN = 1000
"""Maximum distance in bp of a random variant from its variant."""
SEED = 1


def draw_random_variants(
    records: Iterable[Variant],
    reference: Reference,
    find_contig: Callable[[str], str | None],
    per_variant: int,
) -> list[Variant]:
    """Return random variants for each allele of records, sorted, with the records' names of contigs.

    A random variant starts at most `WITHIN` bp from its variant and changes as many bases: an SNV has the
    same REF and ALT base, other changes have the bases of ALT in random order. None is equal to a given
    variant or has N. Its ID is POS:REF:ALT of its variant and a number. Alleles without a normal form (see
    `Note`) have none. `DataError`: no allele has a random variant.
    """
    alleles: dict[tuple[str, str], Change] = {}
    for record in records:
        contig = find_contig(record.contig)
        for alt in record.alts:
            change = find_change(contig, record.start, record.ref, alt, reference)
            if isinstance(change, Change):
                name = f"{record.start + 1}:{record.ref}:{alt}"
                alleles[record.contig, name] = change

    rng = np.random.default_rng(SEED)
    order = {contig: number for number, contig in enumerate(reference.contigs)}
    taken = set(alleles.values())
    rows = []
    for (contig, name), change in alleles.items():
        drawn = islice(_draws(change, reference, taken, rng), per_variant)
        for number, (pos, ref, alt) in enumerate(drawn, 1):
            place = order[change.contig], contig, pos, ref, alt
            rows.append((*place, f"{name}:{number}"))
    if not rows:
        raise DataError(
            f"no allele of A, C, G and T has a random variant within {WITHIN:,} bp"
        )
    variants = []
    for _, contig, pos, ref, alt, name in sorted(rows):
        line = f"{contig}\t{pos}\t{name}\t{ref}\t{alt}\t.\t.\t."
        variants.append(Variant(contig, pos - 1, ref, (alt,), name, line))
    return variants


def _draws(
    change: Change,
    reference: Reference,
    taken: Collection[Change],
    rng: np.random.Generator,
) -> Iterator[tuple[int, str, str]]:
    """Yield POS, REF and ALT of distinct random variants of a change, at places in random order."""
    contig, start, ref, alt = change
    size = len(ref)
    first = max(0, start - WITHIN)
    last = min(start + WITHIN, reference.contigs[contig] - size)
    around = reference.fetch(Interval(contig, first, last + size))
    drawn: set[Change] = set()
    for at in rng.permutation(last - first + 1).tolist():
        here = around[at : at + size]
        # Substitutions differ in their typical effect, and their rates differ by the base: match both bases.
        if size == len(alt) == 1 and here != ref:
            continue
        shuffled = "".join(rng.permutation(list(alt)))
        made = find_change(contig, first + at, here, shuffled, reference)
        if not isinstance(made, Change) or made in taken or made in drawn:
            continue
        if (len(made.ref), len(made.alt)) != (size, len(alt)):
            continue  # equal bases at an end were trimmed
        if abs(made.start - start) > WITHIN:
            continue  # left alignment moved it
        drawn.add(made)
        # An insertion or deletion has the base before it in both alleles.
        is_indel = not made.ref or not made.alt
        anchor = reference.fetch(Interval(contig, made.start - is_indel, made.start))
        if anchor != "N":
            yield made.start - is_indel + 1, anchor + made.ref, anchor + made.alt
