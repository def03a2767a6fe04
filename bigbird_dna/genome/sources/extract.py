"""A part of a reference as a FASTA file of its own."""

import math
from collections.abc import Sequence
from pathlib import Path

from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.genome.assembly import ALIAS_HINT, Assembly, shown
from bigbird_dna.genome.reference import Reference, write_fasta
from bigbird_dna.genome.regions import find_named_region
from bigbird_dna.genome.sequence import Interval
from bigbird_dna.genome.splits import fitting_contigs

_SEGMENT = 1_000_000  # bp looked at together


def extract_contig(
    reference: Path,
    contig: str,
    output: Path,
    assembly: Assembly,
    megabases: float | None = None,
    but: Sequence[str] = (),
) -> None:
    """Write one contig, or a part of it so that coordinates stay its own, as bgzip FASTA with indices.

    `contig` is any name that `assembly` knows; or a region of it, before which N stands; or a shell pattern
    that fits a contig: the first such one that `but` doesn't name. `megabases` is how much of its start, from
    its first base that isn't N on.
    """
    if megabases is not None and not 0 < megabases < math.inf:
        raise UsageError(f"--megabases {megabases:g}: must be above 0")
    if reference.exists() and output.exists() and output.samefile(reference):
        raise UsageError(f"{output}: is the input")
    with Reference(reference) as genome:
        place = find_named_region(contig, genome.contigs, assembly, "extract")
        if place is None:
            passed = {other for text in but for other in fitting_contigs(text, genome.contigs, assembly)}
            fitting = fitting_contigs(contig, genome.contigs, assembly)
            name = next((other for other in fitting if other not in passed), None)
            place = None if name is None else Interval(name, 0, genome.contigs[name])
        if place is None:
            raise DataError(
                f"{reference}: no contig {contig!r} in the reference, which has {shown(genome.contigs)} "
                f"(names are looked up in {assembly.name}); {ALIAS_HINT}"
            )
        end = place.end
        if megabases is not None:
            end = min(end, _first_base(genome, place) + max(1, round(megabases * 1e6)))
        known = genome.fetch(Interval(place.contig, place.start, end))
        write_fasta(output, [(place.contig, "N" * place.start + known)])


def _first_base(genome: Reference, place: Interval) -> int:
    """Where a place begins that may have N in front, as before a fragment; its start if it is all N."""
    for start in range(place.start, place.end, _SEGMENT):
        known = genome.fetch(Interval(place.contig, start, min(start + _SEGMENT, place.end))).lstrip("N")
        if known:
            return min(start + _SEGMENT, place.end) - len(known)
    return place.start
