"""Commands that explain predictions."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bigbird_dna.cli import options as opt
from bigbird_dna.cli.options import argument, option, output, runs
from bigbird_dna.config.experiments import TAXA

if TYPE_CHECKING:
    from bigbird_dna.explanation.explain import ExplanationCounts
    from bigbird_dna.explanation.motifs import MotifCounts


def _explained(counts: "ExplanationCounts", given: dict[str, Any]) -> Iterator[str]:
    numbers = f"sequences: {counts.targets:,}, bases: {counts.bases:,}, seqlets: {counts.seqlets:,}"
    yield f"{given['output']}/explanation.html; {numbers}"


@runs("explanation.explain.explain", report=_explained)
def explain(
    model: Path = opt.MODEL_DIRECTORY,
    targets: Path = argument(
        "BED file of regions, or VCF, which need --reference; FASTA, or a table (CSV, TSV, Parquet) with a "
        "column of sequences; each also .gz."
    ),
    output: Path = output(..., "DIR", "Directory for the page, tables, arrays and tracks."),
    reference: Path | None = option(
        None, "FASTA", "Indexed genome of regions or variants, plain or bgzip.", "none"
    ),
    aliases: Path | None = opt.ALIASES,
    method: str = option(
        "mutagenesis",
        "mutagenesis|gradient",
        "Score every substitution, or approximate them by gradients, which is faster.",
    ),
    tracks: str | None = opt.TRACKS,
    deletions: bool = option(False, None, "Also score the deletion of each base.", "", "--deletions"),
    flank: int = option(50, "BP", "Bases on both sides of a variant that are explained."),
    offsets: int = option(4, "N", "Number of crops of a window over which values are averaged."),
    tokenizations: int = option(
        4, "N", "Number of divisions of a window into other tokens over which values are averaged."
    ),
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
    base is a TSS for a promoter model, whose whole window is explained.

    Example: bigbird-dna explain yeast-promoters promoters.bed --reference genome.fa.gz -o explained
    """


def _motifs(counts: "MotifCounts", given: dict[str, Any]) -> Iterator[str]:
    numbers = f"outputs: {counts.outputs:,}, motifs: {counts.motifs:,}, with a match: {counts.matched:,}"
    yield f"{given['output']}/motifs.html; {numbers}"


@runs("explanation.motifs.find_motifs", report=_motifs)
def find_motifs(
    explained: list[Path] = argument("Directories that explain wrote, each of other outputs."),
    output: Path = opt.DIRECTORY,
    matrices: Path | None = option(
        None, "FILE", "Matrices of known binding sites, in JASPAR format.", "JASPAR's for --taxon"
    ),
    taxon: str = option(TAXA[0], "|".join(TAXA), "Taxonomic group of JASPAR's core matrices."),
    max_q: float = option(0.05, "Q", "Largest q-value of a match between a motif and a matrix."),
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


def draw_dependencies(
    model: Path = opt.MODEL_DIRECTORY,
    regions: Path = argument("BED file of regions, or FASTA file of sequences; each also .gz."),
    output: Path = opt.DIRECTORY,
    reference: Path | None = option(None, "FASTA", "Indexed genome of the regions, plain or bgzip.", "none"),
    aliases: Path | None = opt.ALIASES,
    context: int = option(100, "BP", "Bases on both sides of a region that the model also reads."),
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

    options: dict[str, Any] = {"context": context, "offsets": offsets, "batch_size": batch_size}
    with cpu_threads(threads), into_directory(output, [model, regions]) as directory:
        for one in dependency_maps(
            load(model), regions, reference, aliases=aliases, device=device, **options
        ):
            one.save(directory / f"{one.file_name}.npz")
            path = directory / f"{one.file_name}.svg"
            save_dependency_figure(one.matrix, one.sequence, one.start, path, title=one.name)
