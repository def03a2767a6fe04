"""Commands that measure the similarity of held-out windows to training windows, and metrics by similarity."""

from pathlib import Path

import typer

from bigbird_dna.cli import options as opt
from bigbird_dna.cli.options import argument, option, output, runs

BIN_WINDOW = option(
    None,
    "BP",
    "Length of the compared sequence around a bin.",
    "1000, or the bin if larger",
    "--window",
)


@runs(
    "reporting.promoter_check.check_promoters",
    report=lambda conclusions, _: conclusions,
    say=typer.echo,
)
def check_promoters(
    promoters: Path = argument(
        "EPDnew .sga, .fps or .bed; other .bed, .gff3 or .gtf; each also .gz."
    ),
    reference: Path = argument("Indexed reference genome, plain or bgzip.", "FASTA"),
    output: Path | None = opt.output(
        None, "FILE", "Also write all comparisons to this table (TSV)."
    ),
    assembly: str = opt.ASSEMBLY,
    aliases: Path | None = opt.ALIASES,
) -> None:
    """Check that start sites of promoters are on the right strand and not off by one or two bases.

    Compares the bases from 60 bp before to 40 bp after the start sites of one strand with those of the other,
    also shifted by up to 2 bp and read on the opposite strand, and prints what is wrong. A list whose
    positions on one strand are off by one, as in some releases of RegulonDB, is found. It also states how
    many start with A or G after C or T, as most transcripts do.

    Example: bigbird-dna check-promoters promoters.bed genome.fa.gz
    """


@runs("finetuning.similar.drop_similar_bins")
def drop_similar_bins(
    data: Path = argument("Data set of prepare chromatin.", "DATA"),
    reference: Path = opt.REFERENCE,
    similarity: float = option(
        ...,
        "FRACTION",
        "Exclude training bins with at least this similarity to a held-out bin.",
    ),
    output: Path = output(..., "DIR", "Data set to write."),
    window: int | None = BIN_WINDOW,
) -> None:
    """Write a chromatin data set without the training bins that are similar to a held-out bin.

    Similarity is defined as in evaluate nearest-bins. Tracks and held-out bins are unchanged, so that metrics
    remain comparable. In the workflow, the key splits.max_train_test_similarity applies this filter.

    Example: bigbird-dna prepare filter-bins results/demo/chromatin/data --reference
    results/demo/genome/reference.fa.gz --similarity 0.5 -o filtered
    """
