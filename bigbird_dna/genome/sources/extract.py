"""A piece of a reference as a FASTA file of its own."""

import math
from collections.abc import Sequence
from pathlib import Path

from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.genome.assembly import ALIAS_HINT, Assembly, shown
from bigbird_dna.genome.intervals import Interval
from bigbird_dna.genome.reference import Reference, write_fasta
from bigbird_dna.genome.splits import fitting_contigs


def extract_contig(
    reference: Path,
    contig: str,
    output: Path,
    assembly: Assembly,
    megabases: float | None = None,
    but: Sequence[str] = (),
) -> None:
    """Write one contig, or its first Mb so that coordinates stay its own, as bgzip FASTA with indices.

    Parameters
    ----------
    contig
        By any name that `assembly` knows, or a shell pattern that fits one: the first such contig.
    megabases
        How much of its start; none: all.
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
            end = min(end, max(1, round(megabases * 1e6)))
        write_fasta(output, [(name, genome.fetch(Interval(name, 0, end)))])
