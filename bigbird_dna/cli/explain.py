"""Commands that explain predictions."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bigbird_dna.cli import options as opt
from bigbird_dna.cli.options import argument, option, output, runs

if TYPE_CHECKING:
    from bigbird_dna.explanation.explain import ExplanationCounts
    from bigbird_dna.explanation.motifs import MotifCounts

SEQUENCES = (
    "BED file of regions, or VCF, which need --reference; FASTA, or a table (CSV, TSV, Parquet) with a "
    "column of sequences; each also .gz."
)
REGIONS_REFERENCE = option(
    None,
    "FASTA",
    "Indexed genome of regions or variants, plain or bgzip.",
    "none",
    "--reference",
)

VIEWS = "4; 1 for models of start sites"
OFFSETS = option(
    None,
    "N",
    "Number of crops of a window over which scores are averaged.",
    VIEWS,
    "--offsets",
)
TOKENIZATIONS = option(
    None,
    "N",
    "Number of divisions of a window into other tokens, for the averages.",
    VIEWS,
    "--tokenizations",
)


def _explained(counts: "ExplanationCounts", given: dict[str, Any]) -> Iterator[str]:
    numbers = f"sequences: {counts.targets:,}, bases: {counts.bases:,}, seqlets: {counts.seqlets:,}"
    yield f"{given['output']}/explanation.html; {numbers}"


@runs("explanation.explain.explain", report=_explained)
def explain(
    model: Path = opt.MODEL_DIRECTORY,
    targets: Path = argument(SEQUENCES),
    output: Path = output(
        ..., "DIR", "Directory for the page, tables, arrays and tracks."
    ),
    reference: Path | None = REGIONS_REFERENCE,
    aliases: Path | None = opt.ALIASES,
    method: str = option(
        "mutagenesis",
        "mutagenesis|gradient",
        "Score every substitution, or approximate them by gradients, which is faster.",
    ),
    tracks: str | None = opt.TRACKS,
    deletions: bool = option(
        False, None, "Also score the deletion of each base.", "", "--deletions"
    ),
    flank: int = option(
        50, "BP", "Bases on both sides of a variant that are explained."
    ),
    offsets: int | None = OFFSETS,
    tokenizations: int | None = TOKENIZATIONS,
    sequence_column: str = opt.SEQUENCE_COLUMN,
    batch_size: int = opt.batch_size(32),
    device: str = opt.DEVICE,
    threads: int | None = opt.THREADS,
) -> None:
    """Explain a model's scores: the contribution of each base of regions, variants or sequences.

    For promoter, chromatin, sequence and pretrained models. A contribution is how much lower the score is on
    average with the other bases in the place of a base. Its noise is the standard deviation over divisions of
    the sequence into tokens. Files: explanation.html, bases.tsv, scores.tsv, seqlets.bed, contributions.bw,
    and ohe.npz and shap.npz for TF-MoDISco. A region is in the center of the model's window; one of a single
    base is a TSS for a promoter model, whose whole window is explained. With a model of start sites, such as
    yeast-promoters, a region of a single base is a start site, and 150 bp before it and 50 bp from it on are
    explained; in longer regions and in sequences it is the strongest one, and around a variant the one that
    it changes most.

    Example: bigbird-dna explain yeast-promoters promoters.bed --reference genome.fa.gz -o explained
    """


TAXA = "vertebrates|plants|insects|nematodes|fungi|urochordates"


def _motifs(counts: "MotifCounts", given: dict[str, Any]) -> Iterator[str]:
    numbers = f"outputs: {counts.outputs:,}, motifs: {counts.motifs:,}, with a match: {counts.matched:,}"
    yield f"{given['output']}/motifs.html; {numbers}"


@runs("explanation.motifs.find_motifs", report=_motifs)
def find_motifs(
    explained: list[Path] = argument(
        "Directories that explain wrote, each of other outputs."
    ),
    output: Path = opt.DIRECTORY,
    matrices: Path | None = option(
        None,
        "FILE",
        "Matrices of known binding sites, in JASPAR format.",
        "JASPAR's for --taxon",
    ),
    taxon: str = option(
        "vertebrates", TAXA, "Taxonomic group of JASPAR's core matrices."
    ),
    max_q: float = option(
        0.05, "Q", "Largest q-value of a match between a motif and a matrix."
    ),
    min_seqlets: int = option(20, "N", "Smallest number of seqlets of a motif."),
    threads: int | None = opt.THREADS,
) -> None:
    """Find recurring motifs in explanations, and compare them with matrices of known binding sites.

    Seqlets with similar contributions are clustered by TF-MoDISco, and each cluster is compared with all
    matrices by Tomtom. Outputs with the name of a factor are checked: do their motifs match the factor's own
    matrix, and how often those of the other factors? Files: motifs.html, motifs.tsv, matches.tsv,
    recovered.tsv, motifs.meme. Needs the extra "explain" of the package, which is compiled in the first run.

    Example: bigbird-dna motifs explained/Abf1 explained/Reb1 --taxon fungi -o motifs
    """
