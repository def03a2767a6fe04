"""Commands that score variants, and show their effects and scans in browsers."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bigbird_dna.cli import options as opt
from bigbird_dna.cli.options import argument, option, output, runs

if TYPE_CHECKING:
    from bigbird_dna.calibration.variant_background import VariantBackground
    from bigbird_dna.reporting.track_hub import HubTrack


def _drawn(background: "VariantBackground", given: dict[str, Any]) -> Iterator[str]:
    yield f"{given['output'] or given['path']}: {background}"


@runs("scoring.random_variants.add_background", report=_drawn)
def add_background(
    path: Path = opt.MODEL_DIRECTORY,
    reference: Path = opt.REFERENCE,
    output: Path | None = output(
        None,
        "MODEL_DIR",
        "Copy of the model to write, with the background.",
        "variant_background.json in MODEL_DIR",
    ),
    contigs: list[str] | None = option(
        None,
        "NAME",
        "Contig of the random variants, by any known name; repeatable.",
        "all",
        "--contig",
    ),
    per_type: int = option(200, "N", "Number of random variants of each type."),
    seed: int = option(1, "N", "Random seed of the draw.", least=0),
    aliases: Path | None = opt.ALIASES,
    batch_size: int = opt.batch_size(32),
    device: str = opt.DEVICE,
    threads: int | None = opt.THREADS,
) -> None:
    """Store the effects of random variants with a model, from which score-variants computes quantiles.

    Draws random variants of a genome: of each of the six substitutions, of insertions and deletions of 1, 2
    to 5 and 6 to 20 bp, and of substitutions of 2 to 5 bp. Scores them as score-variants does by default.
    score-variants then writes BBD_QUANTILE, the fraction of random variants of the same type with a smaller
    absolute effect.

    Example: bigbird-dna model add-background models/chromatin --reference genome.fa.gz --contig chr4
    """


@runs(
    "reporting.variant_page.variant_page",
    report=lambda found, given: [f"{given['output']}: {len(found):,} variants"],
)
def report_variant_page(
    scored: Path = argument("VCF or table written by score-variants."),
    output: Path = output(..., "FILE", "HTML page to write."),
    promoters: Path | None = option(
        None,
        "TSV",
        "Annotated TSSs: the TSV of prepare promoters, with the contig names of SCORED.",
        "none",
    ),
    peaks: Path | None = option(
        None, "BED", "Regions to draw near the variants.", "none"
    ),
    top: int = option(50, "N", "Number of variants to show in detail.", least=0),
    around: int = option(
        2000, "BP", "Bases on both sides of a variant in its drawing."
    ),
) -> None:
    """Write an HTML page of scored variants: a table to sort and search, and the first variants in detail.

    Variants are sorted by BBD_QUANTILE, if the model has a background, and by their absolute effect. Details
    are the scores of both alleles, which need --top-tracks of score-variants for chromatin models, and a
    drawing of the variants, TSSs and regions nearby. The page needs no network.

    Example: bigbird-dna report variant-page effects.vcf.gz --promoters results/demo/genome/promoters.tsv
    -o variants.html
    """


def _hub(tracks: "list[HubTrack]", given: dict[str, Any]) -> Iterator[str]:
    yield f"{given['output']}: {len(tracks):,} tracks"


@runs("reporting.track_hub.track_hub", report=_hub)
def report_track_hub(
    scans: list[Path] = argument(
        "bigWig files of score-promoters, predict-tracks or explain, and BED files of call-promoters.",
        "SCAN...",
    ),
    output: Path = output(..., "DIR", "Directory for the hub."),
    genome: str = option(
        ..., "NAME", "The browser's name of the genome, such as hg38 or sacCer3."
    ),
    title: str = option(
        "", "TEXT", "Label of the hub, up to 17 characters.", "bigbird-dna"
    ),
) -> None:
    """Write a track hub of scans for UCSC's genome browser and IGV.

    Copies the files, and writes hub.txt, with a page of provenance per bigWig, for a web server, and
    igv_session.json, which IGV opens, with the BED files as well. Contigs must have the browser's names.

    Example: bigbird-dna report track-hub scores.bw calls.bed --genome sacCer3 -o hub
    """
