"""A piece of a reference as a FASTA file of its own."""

import math
from collections.abc import Sequence
from pathlib import Path

from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.genome.assembly import ALIAS_HINT, Assembly, shown
from bigbird_dna.genome.intervals import Interval
from bigbird_dna.genome.reference import Reference, write_fasta
from bigbird_dna.genome.splits import fitting_contigs

_STRETCH = 1_000_000  # bp looked at together


def extract_contig(
    reference: Path,
    contig: str,
    output: Path,
    assembly: Assembly,
    megabases: float | None = None,
    but: Sequence[str] = (),
) -> None:
    """Write one contig, or its start so that coordinates stay its own, as bgzip FASTA with indices.

    Parameters
    ----------
    contig
        By any name that `assembly` knows, or a shell pattern that fits one: the first such contig.
    megabases
        How much of its start, from its first base that isn't N on; none: all.
    but
        Contigs, by name or pattern, that are passed over where `contig` is a pattern.

    Raises
    ------
    UsageError
        No positive size, or an output that is the reference.
    DataError
        The reference can't be read, or hasn't got the contig.
    """
    if megabases is not None and not 0 < megabases < math.inf:
        raise UsageError(f"--megabases {megabases:g}: must be above 0")
    if reference.exists() and output.exists() and output.samefile(reference):
        raise UsageError(f"{output}: is the input")
    with Reference(reference) as genome:
        name = assembly.match(contig, genome.contigs)
        if name is None:
            passed = {other for text in but for other in fitting_contigs(text, genome.contigs, assembly)}
            fitting = fitting_contigs(contig, genome.contigs, assembly)
            name = next((other for other in fitting if other not in passed), None)
        if name is None:
            raise DataError(
                f"{reference}: no contig {contig!r} in the reference, which has {shown(genome.contigs)}; "
                f"{ALIAS_HINT}"
            )
        end = genome.contigs[name]
        if megabases is not None:
            end = min(end, _first_base(genome, name) + max(1, round(megabases * 1e6)))
        write_fasta(output, [(name, genome.fetch(Interval(name, 0, end)))])


def _first_base(genome: Reference, contig: str) -> int:
    """Where a contig begins that may have N in front, as before a piece; 0 if it is all N."""
    for start in range(0, genome.contigs[contig], _STRETCH):
        known = genome.fetch(Interval(contig, start, start + _STRETCH)).lstrip("N")
        if known:
            return start + _STRETCH - len(known)
    return 0
