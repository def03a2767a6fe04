"""Read RegulonDB's PromoterSet.txt, and compare the positions of its start sites with their sequences.

Each promoter has the position of its start site, counted from 1, and the 81 bases around it, with the start
site in upper case. The two can disagree: in release 10.6.3, the sequences of 2,465 promoters on the reverse
strand are displaced by one base. Which is right can be seen from the start sites, because most transcripts
begin with A or G after C or T. In that release it is the positions.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from bigbird_dna.console import log
from bigbird_dna.disk.compression import read_lines
from bigbird_dna.errors import DataError
from bigbird_dna.genome.assembly import Assembly
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import Locus, Strand, window_around

NEAR = 5  # bp on either side of a position in which its sequence is looked for
FEWEST = 40  # displaced sequences, to tell which are right
_CERTAIN = 5.0  # standard errors of a difference
_STRANDS: dict[str, Strand] = {"forward": "+", "reverse": "-"}


def read_regulondb(path: Path) -> Iterator[tuple[int, Locus, str]]:
    """Yield line, start site and sequence of each promoter that has a position.

    The contig is the accession after "Refseq version" in the header. The start site is the only base of the
    sequence in upper case.
    """
    contig = ""
    for number, line in read_lines(path):
        if line.startswith("#"):
            if named := re.search(r"Refseq version: *([\w.]+)", line):
                contig = named[1]

            continue

        if not line.strip():
            continue

        columns = line.split("\t")
        try:
            if not contig:
                raise ValueError("no 'Refseq version' in the comments before it")

            if len(columns) < 6:
                raise ValueError(f"{len(columns)} columns, expected at least 6")

            _, name, direction, position, _, sequence = columns[:6]
            if position in ("", "0"):  # not known
                continue

            if direction not in _STRANDS:
                raise ValueError(f"strand {direction!r:.60} is not forward or reverse")

            if len(re.findall("[A-Z]", sequence)) != 1:
                raise ValueError("not one base of the sequence is in upper case")

            locus = Locus(contig, int(position) - 1, _STRANDS[direction], name)
            yield number, locus, sequence
        except ValueError as error:
            raise DataError(f"{path}: line {number}: {error}") from None


def compare_sequences(
    path: Path, reference: Reference, assembly: Assembly
) -> tuple[list[Locus], dict[str, int]]:
    """Return the start sites of a file in its order, and counts of displaced and of moved ones.

    A sequence is displaced if it is not at its position but up to `NEAR` bp away. Where all displaced
    sequences of a strand and distance begin with A or G after C or T certainly more often than their
    positions do, they are used in place of the positions. The log has both frequencies. `DataError`: most
    sequences are not near their positions.
    """
    loci: list[Locus] = []
    displaced: defaultdict[tuple[Strand, int], list[int]] = defaultdict(list)
    elsewhere = 0
    for _, locus, sequence in read_regulondb(path):
        contig = assembly.match(locus.contig, reference.contigs)
        if contig is not None:
            locus = replace(locus, contig=contig)
            bp = _displacement(locus, sequence, reference)
            if bp is None:
                elsewhere += 1
            elif bp:
                displaced[locus.strand, bp].append(len(loci))

        loci.append(locus)

    if 2 * elsewhere > len(loci):
        raise DataError(
            f"{path}: {elsewhere:,} of {len(loci):,} sequences are not at their positions in {reference.path}: "
            "is it another assembly?"
        )

    moved = 0
    for (strand, bp), numbers in displaced.items():
        forward = bp if strand == "+" else -bp
        listed = [loci[number] for number in numbers]
        marked = [replace(site, position=site.position + forward) for site in listed]
        before = np.array([_is_initiator(site, reference) for site in listed])
        after = np.array([_is_initiator(site, reference) for site in marked])
        gains = after.astype(float) - before
        error = gains.std() / math.sqrt(len(gains))
        use_sequences = len(gains) >= FEWEST and gains.mean() > _CERTAIN * error
        if use_sequences:
            moved += len(numbers)
            for number, site in zip(numbers, marked, strict=True):
                loci[number] = site

        log(
            f"{path}: {len(numbers):,} sequences on {strand} are {abs(bp)} bp "
            f"{'downstream' if bp > 0 else 'upstream'} of their positions; {before.mean():.0%} of the start "
            f"sites begin with A or G after C or T at the positions, {after.mean():.0%} in the sequences: the "
            f"{'sequences' if use_sequences else 'positions'} are used"
        )

    return loci, {
        "displaced_sequences": sum(map(len, displaced.values())),
        "sequences_elsewhere": elsewhere,
        "moved": moved,
    }


def _displacement(locus: Locus, sequence: str, reference: Reference) -> int | None:
    """Return how many bp downstream of its position a sequence is; None if not within `NEAR` bp of it."""
    upstream = next(i for i, base in enumerate(sequence) if base.isupper())
    downstream = len(sequence) - upstream
    around = reference.fetch(window_around(locus, upstream + NEAR, downstream + NEAR))
    for bp in sorted(range(-NEAR, NEAR + 1), key=abs):
        if around[NEAR + bp :].startswith(sequence.upper()):
            return bp

    return None


def _is_initiator(locus: Locus, reference: Reference) -> bool:
    """Return whether a start site is A or G after C or T."""
    bases = reference.fetch(window_around(locus, 1, 1))
    return bases[0] in "CT" and bases[1] in "AG"
