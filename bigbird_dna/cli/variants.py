"""Commands that score variants, and show their effects and scans in browsers."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bigbird_dna.cli import options as opt
from bigbird_dna.cli.options import argument, option, output, runs
from bigbird_dna.scoring.formats import VARIANT_FORMATS

if TYPE_CHECKING:
    from bigbird_dna.calibration.variant_background import VariantBackground
    from bigbird_dna.reporting.track_hub import HubTrack
    from bigbird_dna.scoring.variants import VariantCounts


def _with_effects(counts: "VariantCounts", given: dict[str, Any]) -> Iterator[str]:
    from bigbird_dna.genome.assembly import ALIAS_HINT
    from bigbird_dna.genome.variants import Note

    text = f"{counts.records:,} records: {counts.scored:,} alternative alleles scored"
    if counts.not_scored:
        text += f", {counts.not_scored:,} not scored"
    if counts.notes:
        text += f" ({', '.join(f'{note} {count:,}' for note, count in counts.notes.items())})"
    if counts.seem_foreign:
        text += "; warning: most alleles do not match the reference: check that the assembly is the same"
    if (
        counts.seem_foreign
        and given["aliases"] is None
        and Note.CONTIG_UNKNOWN in counts.notes
    ):
        text += f". If the VCF has other contig names, {ALIAS_HINT}"
    yield text


@runs("scoring.variants.score_variants", report=_with_effects, also=opt.scoring(32))
def score_variants(
    model: Path = argument("Model directory, or k-mer baseline (.npz).", "MODEL_DIR"),
    vcf: Path = argument("VCF file, plain, gzip or bgzip; - reads standard input."),
    reference: Path = opt.REFERENCE,
    aliases: Path | None = opt.ALIASES,
    tracks: str | None = opt.TRACKS,
    top_tracks: int | None = option(
        None,
        "N",
        "Chromatin models: write the probabilities of N tracks with the largest effects.",
        "none",
    ),
    contigs: list[str] | None = opt.CONTIGS,
    regions: Path | None = opt.REGIONS,
    output: Path | None = opt.RESULT_FILE,
    format: str | None = option(
        None,
        "|".join(VARIANT_FORMATS),
        "Output format.",
        "from the extension of -o, or vcf",
    ),
    offsets: int | None = option(
        None,
        "N",
        "Number of window offsets to average over, spread over a few tokens.",
        "4",
    ),
    context: int | None = option(
        None, "BP", "Pretrained models: bp on both sides of a change.", "100"
    ),
    phased: str | None = option(
        None,
        "SAMPLE",
        "Score phased variants of this sample together, if at most 10 bp apart.",
        "none",
    ),
    stride: int | None = option(
        None,
        "BP",
        "Models of promoter windows: distance between TSS positions to evaluate.",
        "20",
    ),
    sites: Path | None = option(
        None,
        "FILE",
        "Promoter models: TSS positions to evaluate, in a file as for prepare promoters.",
        "",
        "--tss",
    ),
) -> None:
    """Predict effects of the variants of a VCF on chromatin tracks or promoter scores, or their likelihood.

    The effect is ALT minus REF probability, each the mean over both strands and several window offsets. A VCF
    keeps its lines, including FILTER, and gets BBD_MAX and BBD_MAXTRACK in INFO. With --tracks, only the
    chosen tracks count, and BBD_DELTA and BBD_LOGODDS contain the values of each, joined by & ('*': of all
    tracks). --top-tracks writes BBD_TOP or the column top. Table columns: #contig position ref alt id note
    max_delta max_track, one row per ALT. With a promoter model, the effect is the score change of largest
    magnitude among the TSS positions around the variant: BBD_PROMOTER_REF, _ALT, _DELTA, _SITE and _STRAND,
    or the columns ref_score alt_score delta site strand. A model of start sites, such as yeast-promoters,
    adds the sums of all changes on a strand: _SUM_PLUS and _SUM_MINUS, or sum_plus sum_minus. With a
    pretrained model, it is the natural log-likelihood of ALT minus that of REF under masks: BBD_LOGRATIO,
    with its standard deviation over strands and offsets in BBD_SPREAD, or the columns log_ratio spread. If
    the model has a background (model add-background), BBD_QUANTILE or the column quantile is the fraction of
    random variants of the same type with a smaller absolute effect. An allele that cannot be scored has the
    reason in BBD_NOTE or the note.
    Missing ##contig lines are added to the header; for a stream, from the names in its first records. An
    output name that ends in .gz is written as bgzip, with an index if the input is sorted.

    Example: bigbird-dna score-variants yeast-promoters calls.vcf.gz --reference genome.fa.gz -o
    effects.vcf.gz
    """


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
