"""Commands that bring in sequence: public files by key, and pieces of a reference."""

from pathlib import Path

import typer


def register(app: typer.Typer) -> None:
    """Add this group's commands to the application."""
    app.command()(fetch)
    app.command()(extract)


def fetch(
    key: str = typer.Argument(..., help="Key of a public file, such as GRCh37.reference."),
    output: Path = typer.Option(..., "-o", "--output", help="File to write."),
    local_data: Path | None = typer.Option(
        None, metavar="DIR", help="Looked in, with its subdirectories, before downloading."
    ),
) -> None:
    """Fetch a public file: resumed when cut, from a mirror where needed, checked before it is used."""
    from bigbird_dna.genome.sources.public import fetch

    fetch(key, output, local_data)


def extract(
    reference: Path = typer.Argument(..., help="Prepared reference (FASTA with its index)."),
    contig: str = typer.Argument(..., help="Contig, by any name that the assembly knows."),
    output: Path = typer.Option(..., "-o", "--output", help="bgzip FASTA to write."),
    megabases: float | None = typer.Option(
        None, metavar="F", help="Only the contig's first F Mb, so that coordinates stay its own."
    ),
    assembly: str = typer.Option("demo", help="Assembly whose contig names are understood."),
) -> None:
    """Write one contig of a reference, or its start, as a FASTA file of its own."""
    from bigbird_dna.errors import DataError, UsageError
    from bigbird_dna.genome.assembly import load_assembly
    from bigbird_dna.genome.intervals import Interval
    from bigbird_dna.genome.reference import Reference, write_fasta

    if megabases is not None and megabases <= 0:
        raise UsageError(f"--megabases {megabases:g}: must be above 0")
    with Reference(reference) as genome:
        name = load_assembly(assembly).match(contig, genome.contigs)
        if name is None:
            raise DataError(f"{reference}: no contig {contig!r} in the reference")
        end = genome.contigs[name]
        if megabases is not None:
            end = min(end, max(1, round(megabases * 1e6)))
        write_fasta(output, [(name, genome.fetch(Interval(name, 0, end)))])
