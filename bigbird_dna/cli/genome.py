"""Commands that bring a genome and its promoters into the form that all later steps read."""

from pathlib import Path

import typer

from bigbird_dna.console import log
from bigbird_dna.errors import UsageError

ASSEMBLY_HELP = "GRCh37, GRCh38, sacCer3, or demo (names stand for themselves)"


def register(app: typer.Typer) -> None:
    """Add this group's commands to the application."""
    app.command()(prepare_reference)
    app.command()(prepare_promoters)


def prepare_reference(
    fasta: Path = typer.Argument(help="FASTA: plain, gzip or bgzip"),
    output: Path = typer.Option(
        ..., "--output", "-o", help="bgzip FASTA to write, with its indices"
    ),
    assembly: str = typer.Option("demo", help=f"contig lengths to check against: {ASSEMBLY_HELP}"),
) -> None:
    """Check a genome and write it as bgzip with .fai and .gzi: upper-case, A C G T N."""
    from bigbird_dna.genome.assembly import load_assembly
    from bigbird_dna.genome.reference import prepare_reference

    names = load_assembly(assembly)
    prepared = prepare_reference(
        fasta, output, check=lambda contigs: names.check_lengths(contigs, str(fasta))
    )
    log(
        f"{output}: {len(prepared.contigs):,} contigs, {sum(prepared.contigs.values()):,} bp, "
        f"{prepared.unknown:,} N ({prepared.ambiguous:,} of them IUPAC codes)"
    )


def prepare_promoters(
    promoters: Path = typer.Argument(help="EPDnew's .sga, .bed or .fps, also .gz"),
    reference: Path = typer.Option(..., help="indexed FASTA, as prepare-reference writes it"),
    output: Path = typer.Option(
        ..., "--output", "-o", help="TSV to write; the counts go into a .json beside it"
    ),
    assembly: str = typer.Option("demo", help=f"the reference's: {ASSEMBLY_HELP}"),
    chain: Path | None = typer.Option(None, help="liftOver chain onto the reference's assembly"),
    from_assembly: str | None = typer.Option(None, help="assembly the chain starts from"),
) -> None:
    """Put promoters on a reference: lift, rename contigs, drop what is off it or there twice."""
    from bigbird_dna.files import write_json
    from bigbird_dna.genome.assembly import load_assembly
    from bigbird_dna.genome.liftover import lift
    from bigbird_dna.genome.promoters import place, read_promoters, write_loci
    from bigbird_dna.genome.reference import Reference

    if (chain is None) != (from_assembly is None):
        raise UsageError("--chain and --from-assembly go together")
    names = load_assembly(assembly)
    with Reference(reference) as opened:
        contigs = opened.contigs
    loci = read_promoters(promoters)
    counts: dict[str, int | None] = {"read": len(loci), "lifted": None, "unmapped": None}
    if chain is not None and from_assembly is not None:
        lifted = lift(loci, chain, load_assembly(from_assembly).match)
        loci = lifted.loci
        counts |= {"lifted": len(loci), "unmapped": len(lifted.unmapped)}
    placed = place(loci, contigs, names, str(promoters))
    counts |= {
        "off_reference": placed.off_reference,
        "duplicates": placed.duplicates,
        "promoters": len(placed.loci),
    }
    write_json(output.with_suffix(".json"), counts)
    write_loci(output, placed.loci)
    shown = ", ".join(
        f"{value:,} {key.replace('_', ' ')}" for key, value in counts.items() if value is not None
    )
    log(f"{output}: {shown}")
