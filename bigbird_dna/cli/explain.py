"""Commands that explain predictions."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bigbird_dna.cli import options as opt
from bigbird_dna.cli.options import argument, option, output, runs

if TYPE_CHECKING:
    import pandas as pd

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


def _designed(table: "pd.DataFrame", given: dict[str, Any]) -> Iterator[str]:
    reached = (
        ""
        if given["target"] is None
        else f", target reached: {(table['reached'] == 'yes').sum():,}"
    )
    yield f"{given['output']}/designs.fa; sequences: {len(table):,}, edits: {table['edits'].sum():,}{reached}"


OUTPUTS = "Tracks or groups, by name or pattern, or labels or classes by name; comma-separated."


@runs("explanation.design.design", report=_designed)
def design(
    model: Path = opt.MODEL_DIRECTORY,
    sequences: Path = argument(SEQUENCES),
    output: Path = output(
        ..., "DIR", "Directory for the edited sequences, tables and a plot."
    ),
    reference: Path | None = REGIONS_REFERENCE,
    aliases: Path | None = opt.ALIASES,
    tracks: str | None = option(
        None,
        "PATTERN",
        "The track, label or class whose score is changed.",
        "the only one",
        "--tracks",
    ),
    target: float | None = option(
        None, "SCORE", "Score to reach.", "as high as possible"
    ),
    edits: int = option(10, "N", "Maximum number of edits of a sequence."),
    minimize: bool = option(
        False, None, "Decrease the score, not increase it.", "", "--minimize"
    ),
    motifs: list[str] | None = option(
        None,
        "MOTIF",
        "Also insert this motif in place of bases, on both strands: bases, NAME=BASES, or a FASTA file of "
        "motifs; repeatable.",
        "none",
        "--motif",
    ),
    method: str = option(
        "mutagenesis",
        "mutagenesis|gradient",
        "Score every possible edit, or only those that gradients favor, which is faster.",
    ),
    offsets: int | None = OFFSETS,
    tokenizations: int | None = TOKENIZATIONS,
    sequence_column: str = opt.SEQUENCE_COLUMN,
    batch_size: int = opt.batch_size(32),
    device: str = opt.DEVICE,
    threads: int | None = opt.THREADS,
) -> None:
    """Edit sequences, one base or motif at a time, until a model's score is as high or low as wanted.

    For promoter, chromatin and sequence models. In each round, all substitutions of a sequence's bases are
    scored, and the best is accepted, until the target is reached or no edit improves the score. The bases
    around a sequence or region, in the model's window, do not change. Scores are log-odds, or the labels of a
    regression. Files: designs.fa, windows.fa, designs.tsv with each edit, scores.tsv, designs.svg.

    Example: bigbird-dna design yeast-promoters regions.bed --reference genome.fa.gz --edits 5 -o designs
    """


@runs(
    "explanation.marginalize.marginalize",
    report=lambda table, given: [
        f"{given['output']}/marginalization.tsv; rows: {len(table):,}"
    ],
)
def marginalize(
    model: Path = opt.MODEL_DIRECTORY,
    motifs: str = argument(
        "FASTA file of motifs, or motifs as BASES or NAME=BASES, comma-separated.",
        "MOTIFS",
    ),
    backgrounds: Path = argument(SEQUENCES),
    output: Path = output(..., "DIR", "Directory for the table and the plot."),
    reference: Path | None = REGIONS_REFERENCE,
    aliases: Path | None = opt.ALIASES,
    tracks: str | None = option(None, "PATTERN", OUTPUTS, "all", "--tracks"),
    start: int | None = option(
        None,
        "BP",
        "First base of a background that a motif replaces, 0-based.",
        "the center",
    ),
    shuffles: int = option(
        0,
        "N",
        "Replace each background by N copies shuffled with the same dinucleotides; 0: no.",
    ),
    seed: int = option(0, None, "Seed of the shuffling."),
    offsets: int | None = OFFSETS,
    tokenizations: int | None = TOKENIZATIONS,
    sequence_column: str = opt.SEQUENCE_COLUMN,
    batch_size: int = opt.batch_size(32),
    device: str = opt.DEVICE,
    threads: int | None = opt.THREADS,
) -> None:
    """Insert motifs into background sequences, and compare a model's scores before and after.

    For promoter, chromatin and sequence models. Both strands of a motif replace the bases in the center of
    each background. Files: marginalization.tsv with the mean change per motif, output and strand, its
    interval, and the fraction of backgrounds in which the score increases; marginalization.svg.

    Example: bigbird-dna marginalize yeast-promoters-window TATA=TATAAA backgrounds.fa --start 220 -o
    marginalized
    """


def draw_dependencies(
    model: Path = opt.MODEL_DIRECTORY,
    regions: Path = argument(
        "BED file of regions, or FASTA file of sequences; each also .gz."
    ),
    output: Path = opt.DIRECTORY,
    reference: Path | None = option(
        None, "FASTA", "Indexed genome of the regions, plain or bgzip.", "none"
    ),
    aliases: Path | None = opt.ALIASES,
    context: int = option(
        100, "BP", "Bases on both sides of a region that the model also reads."
    ),
    offsets: int = option(2, "N", "Number of window offsets to average over."),
    batch_size: int = opt.batch_size(32),
    device: str = opt.DEVICE,
    threads: int | None = opt.THREADS,
) -> None:
    """Map how a substitution of each base changes the predictions of the others, under a pretrained model.

    Writes CONTIG_START-END.npz and .svg for each region of at most 300 bp: the largest absolute change of
    the log-odds of any base at the column's position, over the three substitutions at the row's position,
    both strands and all offsets averaged.

    Example: bigbird-dna dependency-map results/demo/models/pretrained regions.bed --reference genome.fa.gz
    -o dependencies
    """
    from bigbird_dna.disk.directories import into_directory
    from bigbird_dna.explanation.dependencies import dependency_maps
    from bigbird_dna.model.inference import cpu_threads
    from bigbird_dna.reporting.attention import save_dependency_figure
    from bigbird_dna.scoring.models import load

    options: dict[str, Any] = {
        "context": context,
        "offsets": offsets,
        "batch_size": batch_size,
    }
    with cpu_threads(threads), into_directory(output, [model, regions]) as directory:
        for one in dependency_maps(
            load(model), regions, reference, aliases=aliases, device=device, **options
        ):
            one.save(directory / f"{one.file_name}.npz")
            path = directory / f"{one.file_name}.svg"
            save_dependency_figure(
                one.matrix, one.sequence, one.start, path, title=one.name
            )
