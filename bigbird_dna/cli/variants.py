"""Commands that score variants, and show their effects and scans in browsers."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bigbird_dna.cli import options as opt
from bigbird_dna.cli.options import option, output, runs

if TYPE_CHECKING:
    from bigbird_dna.calibration.variant_background import VariantBackground


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
