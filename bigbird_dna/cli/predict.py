"""Commands that use a model: on sequences, regions and variants, and to write new DNA."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bigbird_dna.cli import options as opt
from bigbird_dna.cli.options import argument, option, runs
from bigbird_dna.cli.options import output as result
from bigbird_dna.scoring.formats import SCORE_FORMATS, STRANDS, TRACK_FORMATS, VARIANT_FORMATS

if TYPE_CHECKING:
    from bigbird_dna.scoring.promoters import ScanCounts
    from bigbird_dna.scoring.tracks import PredictionCounts
    from bigbird_dna.scoring.variants import VariantCounts


def _scanned(counts: "ScanCounts", given: dict[str, Any]) -> Iterator[str]:
    text = f"{counts.scored:,} scores along {counts.records:,} records"
    if counts.not_scored:
        text += f"; {counts.not_scored:,} not scored (more than {given['max_n']:g} N)"
    if counts.in_short_records:
        text += f"; {counts.in_short_records:,} in records shorter than the window"
    yield text


@runs("scoring.promoters.score_promoters", report=_scanned, also=opt.scoring(32))
def score_promoters(
    model: Path = opt.MODEL_DIRECTORY,
    fasta: Path = argument("FASTA, plain, gzip or bgzip; - reads standard input."),
    output: Path | None = opt.RESULT_FILE,
    format: str | None = option(
        None, "|".join(SCORE_FORMATS), "What to write.", "by the ending of -o, or tsv"
    ),
    stride: int = option(10, "BP", "Distance between windows."),
    strand: str = option("both", "|".join(STRANDS), "Strands to score."),
    contigs: list[str] | None = opt.CONTIGS,
    regions: Path | None = opt.REGIONS,
) -> None:
    """Score windows of the model's size along every record of a FASTA file, on both strands.

    Table columns: #contig start end name score strand note; coordinates are 0-based and half-open. A score
    is the probability that the window has a promoter with its TSS where the model expects it. bedGraph and
    bigWig show the larger score of both strands at that place, and leave out records so short that more than
    --max-n of their window is N or lies beyond them; tables note them as short. With --regions these are the
    windows that share a base with a region; of bedGraph and bigWig what lies in the regions.

    Example: bigbird-dna score-promoters yeast-promoters genome.fa.gz -o scores.bed
    """


def _predicted(counts: "PredictionCounts", _: dict[str, Any]) -> Iterator[str]:
    text = f"{counts.regions:,} regions, {counts.tracks:,} tracks"
    yield f"{text}; {counts.not_scored:,} regions not scored" if counts.not_scored else text


@runs("scoring.tracks.predict_tracks", report=_predicted, also=opt.scoring(16, "prior"))
def predict_tracks(
    model: Path = opt.MODEL_DIRECTORY,
    regions: Path = argument("Regions: BED, plain or compressed; - reads standard input."),
    reference: Path = opt.REFERENCE,
    aliases: Path | None = opt.ALIASES,
    tracks: str | None = opt.TRACKS,
    contigs: list[str] | None = opt.CONTIGS,
    output: Path | None = opt.RESULT_FILE,
    format: str | None = option(
        None, "|".join(TRACK_FORMATS), "What to write; bigWig of one track.", "by the ending of -o, or tsv"
    ),
    summary: str = option("max", "max|mean", "Of the bins of a region longer than the model's bin."),
    middle: float = option(
        0.0,
        "FRACTION",
        "Predict all bins in this central fraction of a window at once: many times as fast where regions "
        "are close, but bins see less on one side.",
        "each in the center of its own window",
        "--center-fraction",
    ),
) -> None:
    """Predict the probability that each region is in a peak of each track, mean of both strands.

    Table columns: #contig start end name note, then one a track; coordinates are 0-based and half-open. The
    score of BED is 1000 times the largest probability. Tracks that are called as one of the other columns are
    refused. A region that can't be predicted (its contig is not
    in the reference, or it ends beyond it) has no figures, and a note that says why.

    Example: bigbird-dna predict-tracks results/demo/models/chromatin-8000-0 regions.bed --reference
    genome.fa.gz -o tracks.tsv
    """


def _with_effects(counts: "VariantCounts", given: dict[str, Any]) -> Iterator[str]:
    from bigbird_dna.genome.assembly import ALIAS_HINT
    from bigbird_dna.genome.variants import Note

    text = f"{counts.records:,} records: {counts.scored:,} alternative alleles scored"
    if counts.not_scored:
        text += f", {counts.not_scored:,} not"
    if counts.notes:
        text += f" ({', '.join(f'{note} {count:,}' for note, count in counts.notes.items())})"
    if counts.seem_foreign:
        text += "; warning: most of them don't fit the reference: is it of another assembly?"
    if counts.seem_foreign and given["aliases"] is None and Note.CONTIG_UNKNOWN in counts.notes:
        text += f" If the contigs have other names there, {ALIAS_HINT}"
    yield text


@runs("scoring.variants.score_variants", report=_with_effects, also=opt.scoring(32))
def score_variants(
    model: Path = opt.MODEL_DIRECTORY,
    vcf: Path = argument("VCF, plain, gzip or bgzip; - reads standard input."),
    reference: Path = opt.REFERENCE,
    aliases: Path | None = opt.ALIASES,
    tracks: str | None = opt.TRACKS,
    contigs: list[str] | None = opt.CONTIGS,
    regions: Path | None = opt.REGIONS,
    output: Path | None = opt.RESULT_FILE,
    format: str | None = option(
        None, "|".join(VARIANT_FORMATS), "What to write.", "by the ending of -o, or vcf"
    ),
    offsets: int | None = option(
        None, "N", "Window offsets to average over, spread over the length of a few tokens.", "4"
    ),
    stride: int | None = option(
        None, "BP", "Promoter models: distance between the TSS positions looked at.", "20"
    ),
    sites: Path | None = option(
        None, "BED", "Promoter models: TSS positions to look at instead, 5' ends of the lines.", "", "--tss"
    ),
) -> None:
    """Score how the variants of a VCF change the probabilities of chromatin tracks, or of promoters.

    The change is ALT minus REF, each the mean over both strands and several offsets of the window. A VCF
    keeps its lines and gets BBD_MAX and BBD_MAXTRACK in INFO; FILTER stays as it is. With --tracks only the
    chosen tracks count, and the values of each are written: BBD_DELTA and BBD_LOGODDS ('*': of all tracks).
    Table columns: #contig position ref alt id note max_delta max_track, a row for each ALT. With a promoter
    model the change is that of the score at the TSS position around the variant where it is largest, either
    way: BBD_PROMOTER_REF, _ALT, _DELTA, _SITE and _STRAND, or the columns ref_score alt_score delta site
    strand. An allele that can't be scored has the reason in BBD_NOTE or the note. ##contig lines that the
    header lacks are added: of a stream, from standard input to standard output, by the names that its first
    records have. A name in .gz is written as bgzip, with an index if the input is sorted.

    Example: bigbird-dna score-variants results/demo/models/chromatin-8000-0 variants.vcf.gz --reference
    genome.fa.gz -o effects.vcf.gz
    """


@runs("finetuning.calibrate.choose_threshold")
def choose_threshold(
    path: Path = opt.MODEL_DIRECTORY,
    rates: list[float] | None = option(
        None, "SHARE", "Wanted share of false calls; repeatable.", "0.01, 0.05, 0.1, 0.2 and 0.5", "--fdr"
    ),
    prior: float | None = option(
        None,
        "SHARE",
        "Share of promoters among all windows, as of score-promoters.",
        "as among validation windows",
    ),
    predictions: Path | None = opt.MODEL_PREDICTIONS,
    output: Path | None = opt.RESULT_FILE,
) -> None:
    """Say from which calibrated score on to call promoters, for a wanted false-discovery rate.

    Scores are those of score-promoters with --calibrated and the same --prior. Table columns: #fdr prior
    threshold expected_fdr empirical_fdr empirical_fdr_low empirical_fdr_high recall promoters negatives note.
    Expected is what the calibrated probabilities say; empirical is counted on the validation windows, with
    its 95 % interval; promoters and negatives are the validation windows at or above the threshold. Rates are
    of windows: neighbouring windows of a scan may be called for one promoter.

    Example: bigbird-dna evaluate promoter-threshold results/demo/models/promoter-genomic --fdr 0.1 --prior
    0.002
    """


@runs(
    "scoring.scorer.merge_shards",
    report=lambda counts, _: [f"{counts.shards:,} pieces, {counts.rows:,} {counts.kind}"],
)
def merge_shards(
    shards: list[Path] = argument("All pieces of a job, in any order.", "PIECE..."),
    output: Path | None = result(None, "FILE|DIR", "What the job would have written.", "standard output"),
) -> None:
    """Put together what score-promoters, predict-tracks, score-variants, evaluate test-bins or prepare
    chromatin wrote with --shard, to the bytes that the whole job would have written.

    The format is the one that the pieces were made for (--format there). Refused are pieces of different
    jobs (another model, reference, option or number of pieces), and sets that lack one or have one twice.

    Example: bigbird-dna merge-shards scores-1-of-2 scores-2-of-2 -o scores.bed
    """


@runs(
    "scoring.generation.generate_samples",
    report=lambda count, given: [f"{count:,} samples of {given['length']:,} bp"],
)
def generate(
    model: Path = opt.MODEL_DIRECTORY,
    output: Path | None = opt.RESULT_FILE,
    number: int = option(
        10, "N", "Samples, of each flank if there are several.", "", "--num-samples", least=1
    ),
    length: int = option(1000, "BP", "Of a sample.", least=1),
    left: Path | None = option(
        None, "FASTA", "What stands before samples, each record by itself.", "nothing", "--left-flank"
    ),
    right: Path | None = option(
        None,
        "FASTA",
        "What stands behind, with --left-flank record by record; not of a causal model.",
        "nothing",
        "--right-flank",
    ),
    temperature: float = option(
        1.0, "T", "Below 1 likely pieces are drawn still more often, above 1 less often."
    ),
    top_k: int | None = option(None, "K", "Draw from the K likeliest pieces only.", "all"),
    top_p: float | None = option(
        None, "SHARE", "Draw from the fewest likeliest pieces that have this share together.", "all"
    ),
    rounds: int = option(
        30, "N", "Rounds in which a gap is filled; not of a causal model.", "", "--iterations", least=1
    ),
    seed: int = option(1, "N", "Of the samples: the same one, the same bytes.", least=0),
    device: str = opt.DEVICE,
    threads: int | None = opt.THREADS,
) -> None:
    """Write new DNA, drawn from what a pretrained model says, as FASTA.

    A causal model (pretrained with encoder.causal) continues each record of --left-flank, or begins anew. A
    model of masked tokens fills a gap of that length between --left-flank and --right-flank. Flanks are not
    part of samples. Every sample has exactly that many bases: the last piece is cut. On a CPU a sample is the
    same however many are asked for, and with any --threads.

    Example: bigbird-dna generate yeast --num-samples 10 --length 1000 -o samples.fa
    """


@runs("reporting.samples.report_samples")
def report_samples(
    samples: Path = argument("Samples (FASTA), as generate writes them."),
    reference: Path = opt.REFERENCE,
    contigs: list[str] = option(
        ...,
        "NAME",
        "Contig to compare with, which the model has not learnt from; repeatable.",
        "",
        "--contig",
    ),
    output: Path = opt.DIRECTORY,
    exclude: list[str] = option(
        [], "NAME", "Contig that Markov chains don't learn from either; repeatable.", "none"
    ),
    longest: int = option(6, "K", "Of k-mers, from 1 on.", "", "--max-k", least=1),
    seed: int = option(1, "N", "Of drawn sequence and of Markov chains.", least=0),
) -> None:
    """Compare samples with held-out contigs: how often each k-mer stands there, and GC.

    Writes samples.tsv (the Jensen-Shannon divergence of k-mers from the contigs', in bits), samples.json and
    samples.svg. Two rulers stand beside the samples: as much sequence of the contigs themselves, and Markov
    chains of order 0 to 5 that have learnt from the reference's other contigs.

    Example: bigbird-dna evaluate samples samples.fa --reference genome.fa.gz --contig VII -o report
    """
