"""Commands that measure the similarity of held-out windows to training windows, and metrics by similarity."""

from collections.abc import Sequence
from pathlib import Path

import typer

from bigbird_dna.cli import options as opt
from bigbird_dna.cli.options import argument, option, output, runs
from bigbird_dna.errors import UsageError

BIN_WINDOW = option(
    None,
    "BP",
    "Length of the compared sequence around a bin.",
    "1000, or the bin if larger",
    "--window",
)


def files_of_sets(
    option: str, values: Sequence[str], default: str = ""
) -> dict[str, dict[str, Path]]:
    """Return the files of an option's `SET/NAME=FILE` values by negative set and predictor, in order.

    `SET=FILE` has the predictor `default`, if there is one. `UsageError` as in `options.named_files`.
    """
    sets: dict[str, dict[str, Path]] = {}
    for name, path in opt.named_files(option, values).items():
        negative_set, _, predictor = name.partition("/")
        predictor = predictor or default
        if not (negative_set and predictor):
            raise UsageError(f"{option} {name}={path}: expected SET/NAME=FILE")
        if predictor in sets.setdefault(negative_set, {}):
            raise UsageError(
                f"{option}: {predictor!r} of {negative_set!r} is given twice"
            )
        sets[negative_set][predictor] = path
    return sets


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
