"""`bigbird-dna simulate`: the demo genome."""

from pathlib import Path

import typer


def simulate(
    out_dir: Path = typer.Argument(
        ..., metavar="OUT_DIR", help="Directory for the files; made if missing."
    ),
    seed: int = typer.Option(1, help="The same seed gives the same bytes."),
    megabases: float = typer.Option(4.0, help="Size of the genome, Mb (0.1 to 1000)."),
) -> None:
    """Write a demo genome with known truth.

    OUT_DIR gets genome.fa.gz, promoters.sga, peaks/*.narrowPeak.gz, tracks.tsv, variants.vcf.gz (true effects
    in INFO), loci.bed.gz and truth.json. Of the contigs demo1 to demo6, demo5 is meant for validation and
    demo6 for the test.
    """
    from bigbird_dna.simulate import simulate as write

    write(out_dir, seed, megabases)


def register(app: typer.Typer) -> None:
    """Add `simulate` to the application."""
    app.command()(simulate)
