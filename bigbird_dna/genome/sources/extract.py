"""A piece of a reference as a FASTA file of its own."""

import math
from pathlib import Path

from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.genome.assembly import load_assembly
from bigbird_dna.genome.intervals import Interval
from bigbird_dna.genome.reference import Reference, write_fasta


def extract_contig(
    reference: Path, contig: str, output: Path, assembly: str, megabases: float | None = None
) -> None:
    """Write one contig, or its first Mb so that coordinates stay its own, as bgzip FASTA with indices.

    Parameters
    ----------
    contig
        By any name that `assembly` knows.
    megabases
        How much of its start; none: all.

    Raises
    ------
    UsageError
        No positive size, an unknown assembly, or an output that is the reference.
    DataError
        The reference can't be read, or hasn't got the contig.
    """
    if megabases is not None and not 0 < megabases < math.inf:
        raise UsageError(f"--megabases {megabases:g}: must be above 0")
    if reference.exists() and output.exists() and output.samefile(reference):
        raise UsageError(f"{output}: is the input")
    with Reference(reference) as genome:
        name = load_assembly(assembly).match(contig, genome.contigs)
        if name is None:
            raise DataError(f"{reference}: no contig {contig!r} in the reference")
        end = genome.contigs[name]
        if megabases is not None:
            end = min(end, max(1, round(megabases * 1e6)))
        write_fasta(output, [(name, genome.fetch(Interval(name, 0, end)))])
