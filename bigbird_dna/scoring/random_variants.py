"""Random variants near given ones: their effects are the null distribution of `evaluate variants --null`."""

from collections.abc import Collection, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bigbird_dna.disk.outputs import check_output, command_line, named_output
from bigbird_dna.errors import DataError, check_at_least_one
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import Interval
from bigbird_dna.genome.variants import Change, contig_lines, find_change, open_vcf
from bigbird_dna.scoring.formats import indexed_destination, write_lines
from bigbird_dna.scoring.regions import Fit


class RandomCounts(NamedTuple):
    """Number of alleles with random variants, of these variants, and of alleles with fewer than requested."""

    alleles: int
    random: int
    fewer: int


def random_variants(
    vcf: Path,
    reference: Path,
    output: Path | None = None,
    *,
    per_variant: int = 20,
    within: int = 1000,
    seed: int = 1,
    aliases: Path | None = None,
) -> RandomCounts:
    """Draw random variants for the alleles of a VCF, and write them as a sorted VCF.

    A random variant starts at most `within` bp from its variant and changes as many bases: an SNV has the
    same REF and ALT base, other changes have the bases of ALT in random order. None is equal to a variant of
    the VCF or has N. Its ID is POS:REF:ALT of its variant and a number. Alleles without a normal form (see
    `Note`) have none. `DataError`: no allele has a random variant.
    """
    check_at_least_one({"per_variant": per_variant, "within": within})
    path, rng = named_output(output), np.random.default_rng(seed)
    check_output(path, [vcf, reference, aliases])
    with Reference(reference, aliases) as genome, open_vcf(vcf) as opened:
        fit, given = Fit(vcf, genome), dict[tuple[str, str], Change]()
        for record in opened.records:
            contig = fit.find(record.contig)
            for alt in record.alts:
                change = find_change(contig, record.start, record.ref, alt, genome)
                if isinstance(change, Change):
                    given[record.contig, f"{record.start + 1}:{record.ref}:{alt}"] = change
        fit.check()
        order = {name: number for number, name in enumerate(genome.contigs)}
        taken, rows, counts = set(given.values()), [], []
        for (contig, key), change in given.items():
            drawn = islice(_draws(change, genome, taken, within, rng), per_variant)
            own = [(order[change.contig], contig, *one, f"{key}:{n}") for n, one in enumerate(drawn, 1)]
            counts.append(len(own))
            rows += own
        if not rows:
            raise DataError(f"{vcf}: no allele of A, C, G and T has a random variant within {within:,} bp")
        options = {"--reference": reference, "--per-variant": per_variant, "--within": within, "--seed": seed}
        source = command_line("prepare random-variants", [vcf], {**options, "--aliases": aliases})
        declared = contig_lines((), genome.contigs, [row[1] for row in rows], fit.finder)
        columns = "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO"
        header = ["##fileformat=VCFv4.2", f"##source={source}", *declared, columns]
        lines = (f"{row[1]}\t{row[2]}\t{row[5]}\t{row[3]}\t{row[4]}\t.\t.\t." for row in sorted(rows))
        with indexed_destination(path, "vcf", max(row[2] + len(row[3]) for row in rows)) as target:
            write_lines(target, chain(header, lines), "surrogateescape")
    return RandomCounts(sum(map(bool, counts)), len(rows), sum(count < per_variant for count in counts))


def _draws(
    change: Change, reference: Reference, taken: Collection[Change], within: int, rng: np.random.Generator
) -> Iterator[tuple[int, str, str]]:
    """Yield POS, REF and ALT of distinct random variants of a change, at places in random order."""
    contig, start, ref, alt = change
    size, drawn = len(ref), set[Change]()
    first, last = max(0, start - within), min(start + within, reference.contigs[contig] - size)
    around = reference.fetch(Interval(contig, first, last + size))
    for at in rng.permutation(last - first + 1).tolist():
        here = around[at : at + size]
        # Substitutions differ in their typical effect, and their rates differ by the base: match both bases.
        if size == len(alt) == 1 and here != ref:
            continue
        made = find_change(contig, first + at, here, "".join(rng.permutation(list(alt))), reference)
        if not isinstance(made, Change) or made in taken or made in drawn:
            continue
        if (len(made.ref), len(made.alt)) != (size, len(alt)) or abs(made.start - start) > within:
            continue  # equal bases at an end were trimmed, or left alignment moved it
        drawn.add(made)
        # An insertion or deletion has the base before it in both alleles.
        before = Interval(contig, made.start - (not made.ref or not made.alt), made.start)
        anchor = reference.fetch(before)
        if anchor != "N":
            yield before.start + 1, anchor + made.ref, anchor + made.alt
